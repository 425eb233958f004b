/* Decoders of GGUF's block formats, and encoders of those that activations are rounded to: one
 * plain and right one each. Pure functions.
 *
 * Values are made as the format defines them, each product and sum rounded to F32 in the order
 * written, so the bits equal those of the reference decoders (the `gguf` package). Sources may have
 * any alignment. */
#ifndef RP_TENSOR_BLOCKS_H
#define RP_TENSOR_BLOCKS_H

#include "reprise/tensor.h"

/* Decodes n_blocks blocks of a block dtype. */
void rp__blocks_decode(rp_dtype t, const void *src, float *dst, int64_t n_blocks);

/* Where the parts of the activation types lie in their blocks, in bytes. */
enum {
    RP__Q8_0_Q = 2, /* d F16, q[32] */
    RP__Q8_1_S = 2,
    RP__Q8_1_Q = 4, /* d F16, s F16, q[32] */
    RP__Q8_K_Q = 4,
    RP__Q8_K_SUMS = 260, /* d F32, q[256], I16 sums of 16 */
    RP__Q16_SUMS = 4,
    RP__Q16_LOW = 12,
    RP__Q16_HIGH = 44 /* d F32, I32 sums of 16, low digits [32], high digits [32] */
};

/* What a high digit of Q16 counts, and the largest number that two digits of +-127 make. */
enum { RP__Q16_BASE = 256, RP__Q16_TOP = 127 * RP__Q16_BASE + 127 };

/* Encodes n_blocks blocks of Q8_0, Q8_1, Q8_K or Q16 by the rules at CONVERT in device.h. */
void rp__blocks_encode(rp_dtype t, const float *src, void *dst, int64_t n_blocks);

#endif
