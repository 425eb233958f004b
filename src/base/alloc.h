/* The one door to the heap: counted, and able to fail on demand so that tests can walk every
 * out-of-memory path. Thread safe. Every pointer from here is freed with rp__free (NULL is fine).
 */
#ifndef RP_BASE_ALLOC_H
#define RP_BASE_ALLOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void *rp__alloc(size_t bytes);            /* uninitialised; NULL when out of memory */
void *rp__calloc(size_t n, size_t bytes); /* zeroed; NULL also when n * bytes wraps */
void *rp__realloc(void *p, size_t bytes); /* NULL leaves `p` valid */
void *rp__realloc_array(void *p, size_t n, size_t bytes); /* as above; NULL when n * bytes wraps */
void *rp__alloc_aligned(size_t align, size_t bytes); /* align: a power of two; freed by rp__free */
void rp__free(void *p);
char *rp__strdup(const char *s);
char *rp__strndup(const char *s, size_t n); /* copies exactly n bytes and a terminator */

/* Counters since process start; `live` is allocations minus frees. */
typedef struct rp__alloc_stats {
    uint64_t n_allocs, n_frees, n_failed;
} rp__alloc_stats;
rp__alloc_stats rp__alloc_get_stats(void);

/* Makes the N-th allocation from now on this process fail (1 = the next), and every one after it
 * too when `sticky`. 0 switches failing off. Tests only. */
void rp__alloc_fail_at(uint64_t n, bool sticky);

/* size_t arithmetic on numbers from a file or socket: true when it does not wrap. */
static inline bool rp__mul_ok(size_t a, size_t b, size_t *out) {
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool rp__add_ok(size_t a, size_t b, size_t *out) {
    return !__builtin_add_overflow(a, b, out);
}

#endif
