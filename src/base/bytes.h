/* Growing byte string, always zero-terminated once anything was added. Not thread safe.
 * A failed append sets `failed` and leaves the contents as they were, so that a run of appends
 * needs one check. */
#ifndef RP_BASE_BYTES_H
#define RP_BASE_BYTES_H

#include <stdbool.h>
#include <stddef.h>

#include "reprise/status.h"

/* A view of bytes that somebody else owns; not zero-terminated. */
typedef struct rp__str {
    const char *p;
    size_t n;
} rp__str;

#define RP_STR(lit) ((rp__str){(lit), sizeof(lit) - 1})

rp__str rp__str_of(const char *zero_terminated);
bool rp__str_eq(rp__str a, rp__str b);
bool rp__str_is(rp__str a, const char *zero_terminated);
bool rp__str_starts(rp__str a, rp__str prefix);

typedef struct rp__bytes {
    char *p; /* NULL while empty */
    size_t n, cap;
    bool failed;
} rp__bytes;

/* A zeroed rp__bytes is ready for use. The appends return false (and set `failed`) when out of
 * memory. */
bool rp__bytes_add(rp__bytes *b, const void *p, size_t n);
bool rp__bytes_add_str(rp__bytes *b, const char *zero_terminated);
bool rp__bytes_add_char(rp__bytes *b, char c);
bool rp__bytes_printf(rp__bytes *b, const char *fmt, ...) RP_PRINTF(2, 3);
bool rp__bytes_reserve(rp__bytes *b, size_t extra);
void rp__bytes_reset(rp__bytes *b); /* empties, keeps the memory */
void rp__bytes_clear(rp__bytes *b); /* frees; ready for use again */
char *rp__bytes_take(
    rp__bytes *b); /* hands the zero-terminated buffer to the caller (rp__free); empties */

#endif
