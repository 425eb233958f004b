#include "base/alloc.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static atomic_uint_fast64_t n_allocs, n_frees, n_failed;
static atomic_int_fast64_t fail_countdown; /* 0: off; N: the N-th from now fails */
static atomic_bool fail_sticky;

static bool should_fail(void) {
    if (atomic_load_explicit(&fail_countdown, memory_order_relaxed) <= 0) return false;
    int_fast64_t left = atomic_fetch_sub(&fail_countdown, 1);
    if (left != 1) return false;
    if (atomic_load(&fail_sticky)) atomic_store(&fail_countdown, 1);
    return true;
}

static void *count(void *p) {
    atomic_fetch_add_explicit(p ? &n_allocs : &n_failed, 1, memory_order_relaxed);
    return p;
}

void *rp__alloc(size_t bytes) {
    return count(should_fail() ? NULL : malloc(bytes ? bytes : 1));
}

void *rp__calloc(size_t n, size_t bytes) {
    return count(should_fail() ? NULL : calloc(n ? n : 1, bytes ? bytes : 1));
}

void *rp__realloc(void *p, size_t bytes) {
    if (!p) return rp__alloc(bytes);
    void *q = should_fail() ? NULL : realloc(p, bytes ? bytes : 1);
    if (!q) atomic_fetch_add_explicit(&n_failed, 1, memory_order_relaxed);
    return q;
}

void *rp__realloc_array(void *p, size_t n, size_t bytes) {
    size_t total;
    if (!rp__mul_ok(n, bytes, &total)) return NULL;
    return rp__realloc(p, total);
}

void *rp__alloc_aligned(size_t align, size_t bytes) {
    size_t rounded;
    if (!rp__add_ok(bytes ? bytes : 1, align - 1, &rounded)) return count(NULL);
    return count(should_fail() ? NULL : aligned_alloc(align, rounded & ~(align - 1)));
}

void rp__free(void *p) {
    if (!p) return;
    atomic_fetch_add_explicit(&n_frees, 1, memory_order_relaxed);
    free(p);
}

char *rp__strndup(const char *s, size_t n) {
    if (n == SIZE_MAX) return NULL;
    char *p = rp__alloc(n + 1);
    if (!p) return NULL;
    memcpy(p, s, n);
    p[n] = 0;
    return p;
}

char *rp__strdup(const char *s) {
    return rp__strndup(s, strlen(s));
}

rp__alloc_stats rp__alloc_get_stats(void) {
    return (rp__alloc_stats){atomic_load(&n_allocs), atomic_load(&n_frees), atomic_load(&n_failed)};
}

void rp__alloc_fail_at(uint64_t n, bool sticky) {
    atomic_store(&fail_sticky, sticky);
    atomic_store(&fail_countdown, (int_fast64_t)n);
}
