#include "base/map.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/random.h>

#include "base/alloc.h"

struct rp__map_slot {
    rp__str key; /* p == NULL: empty */
    uint64_t hash, value;
};

static uint64_t map_seed(void) {
    static _Atomic uint64_t seed;
    uint64_t s = atomic_load(&seed);
    if (s) return s;
    if (getrandom(&s, sizeof s, GRND_NONBLOCK) != (ssize_t)sizeof s) s = (uint64_t)(uintptr_t)&seed;
    s |= 1;
    uint64_t zero = 0;
    return atomic_compare_exchange_strong(&seed, &zero, s) ? s : zero;
}

/* A multiply-and-fold hash over 8-byte words (the construction of wyhash, with its public
 * constants). */
static uint64_t fold(uint64_t a, uint64_t b) {
    unsigned __int128 m = (unsigned __int128)a * b;
    return (uint64_t)m ^ (uint64_t)(m >> 64);
}

uint64_t rp__hash_bytes(const void *data, size_t n, uint64_t seed) {
    const unsigned char *p = data;
    uint64_t h = seed ^ 0xa0761d6478bd642fULL ^ n, w;
    for (; n >= 8; n -= 8, p += 8) {
        memcpy(&w, p, 8);
        h = fold(h ^ w, 0xe7037ed1a0b428dbULL);
    }
    w = 0;
    if (n) memcpy(&w, p, n);
    return fold(fold(h ^ w, 0x8ebc6af09c88c6e3ULL), 0x589965cc75374cc3ULL);
}

static struct rp__map_slot *find(struct rp__map_slot *slots, size_t cap, rp__str key, uint64_t h) {
    size_t i = h & (cap - 1);
    while (slots[i].key.p && !(slots[i].hash == h && rp__str_eq(slots[i].key, key)))
        i = (i + 1) & (cap - 1);
    return &slots[i];
}

bool rp__map_reserve(rp__map *m, size_t n_keys) {
    size_t want;
    if (!rp__mul_ok(n_keys, 2, &want)) return false;
    size_t cap = m->cap ? m->cap : 16;
    while (cap < want)
        if (!rp__mul_ok(cap, 2, &cap)) return false;
    if (cap == m->cap) return true;
    struct rp__map_slot *slots = rp__calloc(cap, sizeof *slots);
    if (!slots) return false;
    for (size_t i = 0; i < m->cap; i++)
        if (m->slots[i].key.p) *find(slots, cap, m->slots[i].key, m->slots[i].hash) = m->slots[i];
    rp__free(m->slots);
    m->slots = slots;
    m->cap = cap;
    return true;
}

bool rp__map_put(rp__map *m, rp__str key, uint64_t value) {
    if (!key.p) key.p = "";
    if ((m->n + 1) * 2 > m->cap && !rp__map_reserve(m, m->n ? m->n * 2 : 8)) return false;
    uint64_t h = rp__hash_bytes(key.p, key.n, map_seed());
    struct rp__map_slot *s = find(m->slots, m->cap, key, h);
    if (!s->key.p) m->n++;
    *s = (struct rp__map_slot){key, h, value};
    return true;
}

bool rp__map_get(const rp__map *m, rp__str key, uint64_t *value) {
    if (!m->cap) return false;
    if (!key.p) key.p = "";
    struct rp__map_slot *s = find(m->slots, m->cap, key, rp__hash_bytes(key.p, key.n, map_seed()));
    if (!s->key.p) return false;
    if (value) *value = s->value;
    return true;
}

void rp__map_clear(rp__map *m) {
    rp__free(m->slots);
    *m = (rp__map){0};
}
