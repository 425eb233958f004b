/* A set of op keys (rp__op_key): which ops are prepared. Grows, never shrinks. Not thread safe. */
#ifndef RP_DEVICE_KEYS_H
#define RP_DEVICE_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct rp__keys {
    uint64_t *slots; /* open addressing; 0 is an empty slot */
    size_t n, cap;
} rp__keys;

/* A zeroed set is ready for use. */
bool rp__keys_has(const rp__keys *set, uint64_t key);
bool rp__keys_add(rp__keys *set, uint64_t key); /* false when out of memory: the set is as it was */
void rp__keys_clear(rp__keys *set);             /* frees; ready for use again */

#endif
