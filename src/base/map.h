/* Map from byte strings to 64-bit values: open addressing, keys copied or borrowed, never shrinks.
 * Not thread safe. Hashing is seeded per process, so that file contents cannot choose collisions.
 */
#ifndef RP_BASE_MAP_H
#define RP_BASE_MAP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"

typedef struct rp__map {
    struct rp__map_slot *slots;
    size_t n, cap; /* cap is 0 or a power of two */
} rp__map;

/* A zeroed rp__map is ready for use. Keys are borrowed: they must outlive the map. */
bool rp__map_reserve(rp__map *m, size_t n_keys);           /* false when out of memory */
bool rp__map_put(rp__map *m, rp__str key, uint64_t value); /* replaces; false when out of memory */
bool rp__map_get(const rp__map *m, rp__str key, uint64_t *value); /* false when absent */
void rp__map_clear(rp__map *m);

uint64_t rp__hash_bytes(const void *p, size_t n, uint64_t seed); /* fast, not cryptographic */

#endif
