/* Writing JSON into growing bytes: values one after the other, commas put where they belong, no
 * spaces. A failed append shows in the bytes' own `failed`. Not thread safe. */
#ifndef RP_BASE_JSON_WRITER_H
#define RP_BASE_JSON_WRITER_H

#include <stdint.h>

#include "base/bytes.h"

/* Text in quotes; bytes that are no UTF-8 become U+FFFD. */
void rp__json_add_text(rp__bytes *b, const char *p, size_t n);

/* A comma unless the value is the first after a bracket, then the key when not NULL. */
void rp__json_key(rp__bytes *b, const char *key);
void rp__json_str(rp__bytes *b, const char *key, const char *text); /* NULL text: null */
void rp__json_strn(rp__bytes *b, const char *key, const char *p, size_t n);
void rp__json_int(rp__bytes *b, const char *key, int64_t v);
void rp__json_uint(rp__bytes *b, const char *key, uint64_t v);
void rp__json_num(rp__bytes *b, const char *key, double v); /* not finite: null */
void rp__json_bool(rp__bytes *b, const char *key, bool v);
void rp__json_open(rp__bytes *b, const char *key, char bracket); /* '{' or '[' */
void rp__json_close(rp__bytes *b, char bracket);

#endif
