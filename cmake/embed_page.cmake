# Puts the web page together from DIR/page.html and the files that stand in it as lines @NAME@; writes it as FILE, and as
# OUT, a C file with its bytes and its Content-Security-Policy, both declared in serve/page.h. The policy allows the
# page's one style and one script by their SHA-256, requests to its own server, and nothing else.
#   cmake -DDIR=... -DFILE=... -DOUT=... -P embed_page.cmake
cmake_minimum_required(VERSION 3.25)

# CMake gives hashes in hexadecimal, the policy has them in base64: three digits of the one are two of the other. Of the
# 64 digits the last is left; it ends as one character and one "=".
function(base64_of hex out)
  set(alphabet "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
  set(text "")
  foreach(at RANGE 0 60 3)
    string(SUBSTRING ${hex} ${at} 3 digits)
    foreach(expression "0x${digits} / 64" "0x${digits} % 64")
      math(EXPR value "${expression}")
      string(SUBSTRING ${alphabet} ${value} 1 character)
      string(APPEND text ${character})
    endforeach()
  endforeach()
  string(SUBSTRING ${hex} 63 1 digits)
  math(EXPR value "0x${digits} * 4")
  string(SUBSTRING ${alphabet} ${value} 1 character)
  set(${out} "${text}${character}=" PARENT_SCOPE)
endfunction()

# The source that allows what stands between two tags; each is there once.
function(source_of page open close out)
  string(FIND "${page}" "${open}" begin)
  string(FIND "${page}" "${close}" end)
  string(LENGTH "${open}" skipped)
  math(EXPR begin "${begin} + ${skipped}")
  math(EXPR length "${end} - ${begin}")
  if(begin LESS skipped OR length LESS 0)
    message(FATAL_ERROR "${FILE} has no ${open} ... ${close}")
  endif()
  string(SUBSTRING "${page}" ${begin} ${length} text)
  string(SHA256 hex "${text}")
  base64_of(${hex} hash)
  set(${out} "'sha256-${hash}'" PARENT_SCOPE)
endfunction()

file(READ ${DIR}/page.html page)
file(GLOB parts RELATIVE ${DIR} ${DIR}/*.css ${DIR}/*.js)
foreach(part ${parts})
  file(READ ${DIR}/${part} text)
  string(REPLACE "@${part}@\n" "${text}" page "${page}")
endforeach()
file(WRITE ${FILE} "${page}")
source_of("${page}" "<style>" "</style>" style)
source_of("${page}" "<script type=\"module\">" "</script>" script)
set(policy
    "default-src 'none'"
    "style-src ${style}"
    "script-src ${script}"
    "connect-src 'self'"
    "img-src data:"
    "base-uri 'none'"
    "form-action 'none'"
    "frame-ancestors 'none'"
    "require-trusted-types-for 'script'"
    "trusted-types 'none'")
list(JOIN policy "; " policy)

set(NAME rp__page_html)
set(HEADER serve/page.h)
include(${CMAKE_CURRENT_LIST_DIR}/embed_file.cmake)
file(APPEND ${OUT} "const char rp__page_policy[] = \"${policy}\";\n")
