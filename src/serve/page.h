/* The web page at "/": page.html, made into a byte array when the project is built. */
#ifndef RP_SERVE_PAGE_H
#define RP_SERVE_PAGE_H

#include <stddef.h>

extern const char rp__page_html[];
extern const size_t rp__page_html_bytes;

#endif
