#include "tensor/dtype.h"

#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "tensor/blocks.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "files are little-endian and read in place");

static const struct {
    const char *name;
    int64_t elems;
    size_t bytes;
    int gguf;
} rows[RP_N_DTYPES] = {
#define RP_X(code, name, elems, bytes, gguf) {name, elems, bytes, gguf},
    RP_DTYPE_TABLE(RP_X)
#undef RP_X
};

/* GGUF types that exist or once existed, by number: those not in RP_DTYPE_TABLE are refused by
 * these names. */
static const char *const gguf_names[] = {
    [0] = "F32",     [1] = "F16",         [2] = "Q4_0",        [3] = "Q4_1",        [4] = "Q4_2",
    [5] = "Q4_3",    [6] = "Q5_0",        [7] = "Q5_1",        [8] = "Q8_0",        [9] = "Q8_1",
    [10] = "Q2_K",   [11] = "Q3_K",       [12] = "Q4_K",       [13] = "Q5_K",       [14] = "Q6_K",
    [15] = "Q8_K",   [16] = "IQ2_XXS",    [17] = "IQ2_XS",     [18] = "IQ3_XXS",    [19] = "IQ1_S",
    [20] = "IQ4_NL", [21] = "IQ3_S",      [22] = "IQ2_S",      [23] = "IQ4_XS",     [24] = "I8",
    [25] = "I16",    [26] = "I32",        [27] = "I64",        [28] = "F64",        [29] = "IQ1_M",
    [30] = "BF16",   [31] = "Q4_0_4_4",   [32] = "Q4_0_4_8",   [33] = "Q4_0_8_8",   [34] = "TQ1_0",
    [35] = "TQ2_0",  [36] = "IQ4_NL_4_4", [37] = "IQ4_NL_4_8", [38] = "IQ4_NL_8_8", [39] = "MXFP4",
    [40] = "NVFP4",  [41] = "Q1_0",
};

static void check(rp_dtype t) {
    rp__assert((unsigned)t < RP_N_DTYPES, "dtype %d", (int)t);
}

const char *rp__dtype_name(rp_dtype t) {
    return check(t), rows[t].name;
}
int64_t rp__dtype_block_elems(rp_dtype t) {
    return check(t), rows[t].elems;
}
size_t rp__dtype_block_bytes(rp_dtype t) {
    return check(t), rows[t].bytes;
}
bool rp__dtype_is_block(rp_dtype t) {
    return check(t), rows[t].elems > 1;
}
int rp__dtype_to_gguf(rp_dtype t) {
    return check(t), rows[t].gguf;
}

bool rp__dtype_is_float(rp_dtype t) {
    return t == RP_F32 || t == RP_F16 || t == RP_BF16 || t == RP_F64;
}

bool rp__dtype_is_weight(rp_dtype t) {
    return check(t), t != RP_Q8_1 && t != RP_Q8_K && t != RP_Q16;
}

/* Formats whose values are scale * q + min meet Q8_1, which keeps the sum that min multiplies. */
static bool activation_of_8_bits(rp_dtype weight, rp_dtype *out) {
    switch (weight) {
    case RP_Q4_0:
    case RP_Q5_0:
    case RP_Q8_0:
    case RP_IQ4_NL:
        return *out = RP_Q8_0, true;
    case RP_Q4_1:
    case RP_Q5_1:
        return *out = RP_Q8_1, true;
    case RP_Q2_K:
    case RP_Q3_K:
    case RP_Q4_K:
    case RP_Q5_K:
    case RP_Q6_K:
        return *out = RP_Q8_K, true;
    default:
        return false;
    }
}

bool rp__dtype_activation(rp_dtype weight, int bits, rp_dtype *out) {
    rp__assert(bits == 8 || bits == 16, "%d bits", bits);
    if (!activation_of_8_bits(weight, out)) return false;
    if (bits == 16) *out = RP_Q16;
    return true;
}

bool rp__dtype_from_name(const char *name, rp_dtype *out) {
    for (int i = 0; i < RP_N_DTYPES; i++)
        if (!strcasecmp(rows[i].name, name)) return *out = (rp_dtype)i, true;
    return false;
}

bool rp__dtype_from_gguf(uint32_t type, rp_dtype *out, const char **known_name) {
    for (int i = 0; i < RP_N_DTYPES; i++) {
        if (rows[i].gguf < 0 || (uint32_t)rows[i].gguf != type) continue;
        if (rp__dtype_is_weight((rp_dtype)i)) return *out = (rp_dtype)i, true;
    }
    if (known_name)
        *known_name = type < sizeof gguf_names / sizeof *gguf_names ? gguf_names[type] : NULL;
    return false;
}

bool rp__dtype_bytes(rp_dtype t, int64_t n, size_t *out) {
    check(t);
    if (n < 0 || n % rows[t].elems) return false;
    return rp__mul_ok((size_t)(n / rows[t].elems), rows[t].bytes, out);
}

/* One loop per plain type: loads of any alignment through memcpy, then the conversion. */
#define RP_CONVERT(type, value)                                                                    \
    for (int64_t i = 0; i < n; i++) {                                                              \
        type v;                                                                                    \
        memcpy(&v, p + (size_t)i * sizeof v, sizeof v);                                            \
        dst[i] = (value);                                                                          \
    }                                                                                              \
    break

void rp__dtype_to_f32(rp_dtype t, const void *src, float *dst, int64_t n) {
    check(t);
    rp__assert(n >= 0 && n % rows[t].elems == 0, "%lld elements of %s", (long long)n, rows[t].name);
    const unsigned char *p = src;
    switch (t) {
    case RP_F32:
        if (n) memcpy(dst, src, (size_t)n * sizeof *dst);
        break;
    case RP_F16:
        RP_CONVERT(uint16_t, rp__f16_to_f32(v));
    case RP_BF16:
        RP_CONVERT(uint16_t, rp__bf16_to_f32(v));
    case RP_F64:
        RP_CONVERT(double, (float)v);
    case RP_I8:
        RP_CONVERT(int8_t, (float)v);
    case RP_I16:
        RP_CONVERT(int16_t, (float)v);
    case RP_I32:
        RP_CONVERT(int32_t, (float)v);
    case RP_I64:
        RP_CONVERT(int64_t, (float)v);
    case RP_U8:
        RP_CONVERT(uint8_t, (float)v);
    default:
        rp__blocks_decode(t, src, dst, n / rows[t].elems);
    }
}
#undef RP_CONVERT

bool rp__dtype_from_f32(rp_dtype t, const float *src, void *dst, int64_t n) {
    if (t != RP_F32 && t != RP_F16 && t != RP_BF16) return false;
    if (t == RP_F32) {
        if (n) memcpy(dst, src, (size_t)n * sizeof *src);
        return true;
    }
    unsigned char *p = dst;
    for (int64_t i = 0; i < n; i++) {
        uint16_t h = t == RP_F16 ? rp__f32_to_f16(src[i]) : rp__f32_to_bf16(src[i]);
        memcpy(p + (size_t)i * sizeof h, &h, sizeof h);
    }
    return true;
}
