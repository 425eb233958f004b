/* Dtypes: names, block sizes, and decoding any of them to F32. Pure functions. */
#ifndef RP_TENSOR_DTYPE_H
#define RP_TENSOR_DTYPE_H

#include "reprise/tensor.h"

const char *rp__dtype_name(rp_dtype t);    /* "Q4_K" */
int64_t rp__dtype_block_elems(rp_dtype t); /* elements per block: 1 for plain types */
size_t rp__dtype_block_bytes(rp_dtype t);
bool rp__dtype_is_block(rp_dtype t);
bool rp__dtype_is_float(rp_dtype t);  /* F32, F16, BF16, F64 */
bool rp__dtype_is_weight(rp_dtype t); /* false for what holds activations only */
bool rp__dtype_from_name(const char *name, rp_dtype *out); /* case is ignored */

/* The type of 8 or 16 bits that activations are rounded to before a product with weights of this
 * type: whole numbers times whole numbers, scaled once per group. False for plain weights, which
 * take F32 only. */
bool rp__dtype_activation(rp_dtype weight, int bits, rp_dtype *out);

/* GGUF type number to dtype. When it is not one that weights may have, returns false and sets
 * *known_name to the format's name ("IQ2_XXS") or NULL when the number means nothing. */
bool rp__dtype_from_gguf(uint32_t type, rp_dtype *out, const char **known_name);
int rp__dtype_to_gguf(rp_dtype t); /* -1: no such GGUF type */

/* Bytes of n elements (n must fill whole blocks): false when it does not or wraps. */
bool rp__dtype_bytes(rp_dtype t, int64_t n, size_t *out);

/* Decodes n elements (whole blocks) at src to F32. Any alignment. Integers convert by value. */
void rp__dtype_to_f32(rp_dtype t, const void *src, float *dst, int64_t n);

/* Encodes F32 as F32, F16, BF16 (round to nearest even; NaN stays NaN). Other types: false. */
bool rp__dtype_from_f32(rp_dtype t, const float *src, void *dst, int64_t n);

float rp__f16_to_f32(uint16_t h);
uint16_t rp__f32_to_f16(float f);
static inline float rp__bf16_to_f32(uint16_t h) {
    union {
        uint32_t u;
        float f;
    } v = {(uint32_t)h << 16};
    return v.f;
}
uint16_t rp__f32_to_bf16(float f);

#endif
