#include "base/arena.h"

#include <stdint.h>
#include <string.h>

#include "base/alloc.h"
#include "base/stress.h"

struct rp__arena_chunk {
    struct rp__arena_chunk *next;
    size_t used, cap;
    _Alignas(16) unsigned char data[];
};

enum { MIN_CHUNK = RP_STRESSED(16 * 1024, 1) };

static struct rp__arena_chunk *add_chunk(rp__arena *a, size_t bytes) {
    size_t cap = a->chunk ? a->chunk->cap * 2 : MIN_CHUNK;
    if (cap > ((size_t)1 << 24)) cap = (size_t)1 << 24; /* growth stops doubling at 16 MiB */
    if (cap < bytes) cap = bytes;
    size_t total;
    if (!rp__add_ok(cap, sizeof(struct rp__arena_chunk), &total)) return NULL;
    struct rp__arena_chunk *c = rp__alloc(total);
    if (!c) return NULL;
    *c = (struct rp__arena_chunk){.next = a->chunk, .cap = cap};
    return a->chunk = c;
}

void *rp__arena_alloc(rp__arena *a, size_t bytes) {
    if (bytes > SIZE_MAX - 15) return NULL;
    size_t need = (bytes + 15) & ~(size_t)15;
    if (!need) need = 16;
    struct rp__arena_chunk *c = a->chunk;
    if (!c || c->cap - c->used < need) c = add_chunk(a, need);
    if (!c) return NULL;
    void *p = c->data + c->used;
    c->used += need;
    a->n_bytes += need;
    return p;
}

void *rp__arena_calloc(rp__arena *a, size_t n, size_t bytes) {
    size_t total;
    if (!rp__mul_ok(n, bytes, &total)) return NULL;
    void *p = rp__arena_alloc(a, total);
    return p ? memset(p, 0, total) : NULL;
}

char *rp__arena_strndup(rp__arena *a, const char *s, size_t n) {
    if (n == SIZE_MAX) return NULL;
    char *p = rp__arena_alloc(a, n + 1);
    if (!p) return NULL;
    memcpy(p, s, n);
    p[n] = 0;
    return p;
}

void rp__arena_reset(rp__arena *a) {
    struct rp__arena_chunk *keep = a->chunk, *c = keep ? keep->next : NULL;
    while (c) {
        struct rp__arena_chunk *next = c->next;
        rp__free(c);
        c = next;
    }
    if (keep) *keep = (struct rp__arena_chunk){.cap = keep->cap};
    a->n_bytes = 0;
}

void rp__arena_clear(rp__arena *a) {
    rp__arena_reset(a);
    rp__free(a->chunk);
    a->chunk = NULL;
}
