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
    RP__Q8_K_SUMS = 260 /* d F32, q[256], I16 sums of 16 */
};

/* Encodes n_blocks blocks of Q8_0, Q8_1 or Q8_K by the rules at CONVERT in device.h. */
void rp__blocks_encode(rp_dtype t, const float *src, void *dst, int64_t n_blocks);

#endif
