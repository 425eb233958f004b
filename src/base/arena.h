/* Arena: many small allocations that live and die together (a model's tables, a request, a step).
 * Not thread safe. Memory is uninitialised unless zeroed by the call that says so. */
#ifndef RP_BASE_ARENA_H
#define RP_BASE_ARENA_H

#include <stddef.h>

typedef struct rp__arena {
    struct rp__arena_chunk *chunk; /* newest first */
    size_t n_bytes;                /* handed out since the last reset */
} rp__arena;

/* A zeroed rp__arena is ready for use. Both return 16-byte aligned memory, NULL when out of memory.
 */
void *rp__arena_alloc(rp__arena *a, size_t bytes);
void *rp__arena_calloc(rp__arena *a, size_t n, size_t bytes); /* zeroed; NULL also when it wraps */
char *rp__arena_strndup(rp__arena *a, const char *s, size_t n); /* n bytes and a terminator */

void rp__arena_reset(rp__arena *a); /* forgets everything, keeps the largest chunk */
void rp__arena_clear(rp__arena *a); /* frees everything; the arena is ready for use again */

#endif
