/* The web page at "/": the files of page/, made into one byte array when the project is built, and
 * the Content-Security-Policy it is sent with, which names its script and style by their hashes. */
#ifndef RP_SERVE_PAGE_H
#define RP_SERVE_PAGE_H

#include <stddef.h>

extern const char rp__page_html[];
extern const size_t rp__page_html_bytes;
extern const char rp__page_policy[];

#endif
