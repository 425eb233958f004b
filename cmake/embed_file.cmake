# Writes OUT, a C file with the bytes of FILE as the array NAME and their count as NAME_bytes, both declared in HEADER.
#   cmake -DFILE=... -DNAME=... -DHEADER=... -DOUT=... -P embed_file.cmake
file(READ ${FILE} hex HEX)
string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
file(WRITE ${OUT} "#include \"${HEADER}\"\n\nconst char ${NAME}[] = {${bytes}0};\n"
     "const size_t ${NAME}_bytes = sizeof ${NAME} - 1;\n")
