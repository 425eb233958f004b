# Writes OUT, a C file with the table rp__emu_profile_texts: one row per *.txt in DIR, its text as a byte array.
#   cmake -DDIR=... -DOUT=... -P embed_profiles.cmake
file(GLOB files ${DIR}/*.txt)
list(SORT files)
set(arrays "")
set(rows "")
foreach(file ${files})
  get_filename_component(name ${file} NAME_WE)
  string(MAKE_C_IDENTIFIER ${name} id)
  file(READ ${file} hex HEX)
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
  string(APPEND arrays "static const char text_${id}[] = {${bytes}0};\n")
  string(APPEND rows "    {\"${name}\", text_${id}},\n")
endforeach()
file(WRITE ${OUT} "#include \"device/emu/emu_impl.h\"\n\n${arrays}\n"
     "const rp__emu_profile_text rp__emu_profile_texts[] = {\n${rows}    {NULL, NULL},\n};\n")
