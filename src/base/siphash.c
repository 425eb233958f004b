#include "base/siphash.h"

#include <string.h>

typedef struct state {
    uint64_t v0, v1, v2, v3;
} state;

static uint64_t rotate(uint64_t x, int n) {
    return x << n | x >> (64 - n);
}

static void rounds(state *s, int n) {
    while (n-- > 0) {
        s->v0 += s->v1, s->v1 = rotate(s->v1, 13) ^ s->v0, s->v0 = rotate(s->v0, 32);
        s->v2 += s->v3, s->v3 = rotate(s->v3, 16) ^ s->v2;
        s->v0 += s->v3, s->v3 = rotate(s->v3, 21) ^ s->v0;
        s->v2 += s->v1, s->v1 = rotate(s->v1, 17) ^ s->v2, s->v2 = rotate(s->v2, 32);
    }
}

static uint64_t word_at(const unsigned char *p, size_t n) { /* little-endian, n <= 8 bytes */
    uint64_t w = 0;
    for (size_t i = 0; i < n; i++) w |= (uint64_t)p[i] << (8 * i);
    return w;
}

static void absorb(state *s, uint64_t word) {
    s->v3 ^= word;
    rounds(s, 2);
    s->v0 ^= word;
}

static uint64_t squeeze(state *s) {
    rounds(s, 4);
    return s->v0 ^ s->v1 ^ s->v2 ^ s->v3;
}

rp__hash128 rp__siphash128(rp__hash128 key, const void *data, size_t n) {
    const unsigned char *p = data;
    state s = {0x736f6d6570736575 ^ key.lo, 0x646f72616e646f6d ^ key.hi ^ 0xee,
               0x6c7967656e657261 ^ key.lo, 0x7465646279746573 ^ key.hi};
    size_t at = 0;
    for (; at + 8 <= n; at += 8) absorb(&s, word_at(p + at, 8));
    absorb(&s, word_at(p + at, n - at) | (uint64_t)n << 56);
    s.v2 ^= 0xee;
    rp__hash128 h = {.lo = squeeze(&s)};
    s.v1 ^= 0xdd;
    h.hi = squeeze(&s);
    return h;
}
