/* Decoders of GGUF's block formats: one plain and right one each. Pure functions.
 *
 * Values are made as the format defines them, each product and sum rounded to F32 in the order
 * written, so the bits equal those of the reference decoders (the `gguf` package). Sources may have
 * any alignment. */
#ifndef RP_TENSOR_BLOCKS_H
#define RP_TENSOR_BLOCKS_H

#include "reprise/tensor.h"

/* Decodes n_blocks blocks of a block dtype. */
void rp__blocks_decode(rp_dtype t, const void *src, float *dst, int64_t n_blocks);

#endif
