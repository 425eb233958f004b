/* Looking over JSON text before a parser sees it: how deep it nests, numbers that would not fit.
 * Pure functions over text that need not be valid. */
#ifndef RP_BASE_JSON_SCAN_H
#define RP_BASE_JSON_SCAN_H

#include "base/bytes.h"

/* Index of the first bracket that nests deeper than `max_depth`; `text.n` when none does. Parsers
 * call themselves once per level, so this comes first. */
size_t rp__json_too_deep(rp__str text, size_t max_depth);

/* Rewrites "1234..89" as "1234..e2" where it is an integer that 64 bits cannot hold: a real of the
 * same length, off by less than a double's rounding. */
void rp__json_soften_integers(char *text, size_t n);

/* The key of the outermost object whose value `at` lies in, if that is a bare word such as NaN:
 * neither string, list nor object. Empty when there is none. */
rp__str rp__json_key_at(rp__str text, size_t at);

#endif
