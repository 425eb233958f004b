/* UTF-8: decoding, checking, encoding. Pure functions. */
#ifndef RP_BASE_UTF8_H
#define RP_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RP_UTF8_BAD 0xFFFFFFFFu

/* Decodes one code point at p[0..n). Returns the bytes it took (1..4) and sets *cp; an ill-formed
 * or cut sequence takes the length of its maximal subpart (at least 1) and sets RP_UTF8_BAD
 * (Unicode 15, section 3.9). n > 0. */
size_t rp__utf8_decode(const char *p, size_t n, uint32_t *cp);

/* Writes 1..4 bytes; cp must be a scalar value. Returns how many. */
size_t rp__utf8_encode(uint32_t cp, char out[4]);

bool rp__utf8_valid(const char *p, size_t n);

/* Length of the longest prefix that ends no character in the middle: bytes that could still become
 * a character when more arrive are left out; ill-formed bytes that never can are counted in. */
size_t rp__utf8_complete(const char *p, size_t n);

#endif
