#include "device/keys.h"

#include "base/alloc.h"

/* 0 marks an empty slot, so key 0 is kept as 1: a collision of one pair in 2^64. */
static uint64_t stored(uint64_t key) {
    return key ? key : 1;
}

static uint64_t *find(uint64_t *slots, size_t cap, uint64_t key) {
    size_t i = (size_t)(key * 0x9E3779B97F4A7C15u >> 32) & (cap - 1);
    while (slots[i] && slots[i] != key) i = (i + 1) & (cap - 1);
    return &slots[i];
}

bool rp__keys_has(const rp__keys *set, uint64_t key) {
    return set->n && *find(set->slots, set->cap, stored(key)) != 0;
}

static bool grow(rp__keys *set) {
    size_t cap = set->cap ? set->cap * 2 : 64;
    uint64_t *slots = rp__calloc(cap, sizeof *slots);
    if (!slots) return false;
    for (size_t i = 0; i < set->cap; i++)
        if (set->slots[i]) *find(slots, cap, set->slots[i]) = set->slots[i];
    rp__free(set->slots);
    set->slots = slots;
    set->cap = cap;
    return true;
}

bool rp__keys_add(rp__keys *set, uint64_t key) {
    if ((set->n + 1) * 2 > set->cap && !grow(set)) return false;
    uint64_t *slot = find(set->slots, set->cap, stored(key));
    if (!*slot) set->n++;
    *slot = stored(key);
    return true;
}

void rp__keys_clear(rp__keys *set) {
    rp__free(set->slots);
    *set = (rp__keys){0};
}
