/* SipHash-2-4 with 128 bits of output (Aumasson and Bernstein, "SipHash: a fast short-input PRF"):
 * a keyed hash whose values cannot be predicted, nor collisions be made, without the key. Pure. */
#ifndef RP_BASE_SIPHASH_H
#define RP_BASE_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

typedef struct rp__hash128 {
    uint64_t lo, hi;
} rp__hash128;

rp__hash128 rp__siphash128(rp__hash128 key, const void *p, size_t n);

#endif
