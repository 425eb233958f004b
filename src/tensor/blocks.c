#include "tensor/blocks.h"

#include <math.h>
#include <string.h>

#include "base/fail.h"
#include "tensor/dtype.h"

enum { QK = 32, QK_K = 256 }; /* elements per block and per super-block */

static float read_f16(const uint8_t *p) {
    return rp__f16_to_f32((uint16_t)(p[0] | p[1] << 8));
}

/* ---- blocks of 32: low nibbles are the first 16 elements, high nibbles the last 16 ---- */

static int nibble(const uint8_t *qs, int i) {
    return i < QK / 2 ? qs[i] & 15 : qs[i - QK / 2] >> 4;
}

/* The fifth bit of element i, as 0 or 16. */
static int fifth_bit(const uint8_t *qh, int i) {
    return (qh[i / 8] >> (i % 8) & 1) << 4;
}

/* d F16, qs[16]: d * (q - 8) */
static void decode_q4_0(const uint8_t *b, float *y) {
    float d = read_f16(b);
    for (int i = 0; i < QK; i++) y[i] = d * (float)(nibble(b + 2, i) - 8);
}

/* d F16, m F16, qs[16]: d * q + m */
static void decode_q4_1(const uint8_t *b, float *y) {
    float d = read_f16(b), m = read_f16(b + 2);
    for (int i = 0; i < QK; i++) y[i] = d * (float)nibble(b + 4, i) + m;
}

/* d F16, qh[4], qs[16]: d * (q - 16) */
static void decode_q5_0(const uint8_t *b, float *y) {
    float d = read_f16(b);
    for (int i = 0; i < QK; i++) y[i] = d * (float)((nibble(b + 6, i) | fifth_bit(b + 2, i)) - 16);
}

/* d F16, m F16, qh[4], qs[16]: d * q + m */
static void decode_q5_1(const uint8_t *b, float *y) {
    float d = read_f16(b), m = read_f16(b + 2);
    for (int i = 0; i < QK; i++) y[i] = d * (float)(nibble(b + 8, i) | fifth_bit(b + 4, i)) + m;
}

/* d F16, qs[32] signed: d * q */
static void decode_q8_0(const uint8_t *b, float *y) {
    float d = read_f16(b);
    for (int i = 0; i < QK; i++) y[i] = d * (float)(int8_t)b[2 + i];
}

/* As Q4_0, but a nibble picks one of 16 unevenly spaced levels: finer near zero, where weights are
 * dense. */
static void decode_iq4_nl(const uint8_t *b, float *y) {
    static const int8_t levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                      1,    13,   25,  38,  53,  69,  89,  113};
    float d = read_f16(b);
    for (int i = 0; i < QK; i++) y[i] = d * (float)levels[nibble(b + 2, i)];
}

/* ---- super-blocks of 256 ---- */

/* Two-bit fields of Q2_K and Q3_K: 32 bytes hold 128 elements, 32 per shift. */
static int two_bits(const uint8_t *qs, int i) {
    return qs[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
}

/* scales[16] (4 bit scale, 4 bit min), qs[64], d F16, dmin F16: d * sc * q - dmin * m, in groups of
 * 16 */
static void decode_q2_k(const uint8_t *b, float *y) {
    const uint8_t *scales = b, *qs = b + 16;
    float d = read_f16(b + 80), dmin = read_f16(b + 82);
    for (int i = 0; i < QK_K; i++) {
        float scale = d * (float)(scales[i / 16] & 15);
        float min = dmin * (float)(scales[i / 16] >> 4);
        y[i] = scale * (float)two_bits(qs, i) - min;
    }
}

/* Scale g (0..15) of Q3_K, six bits less 32: low four bits in 8 bytes, high two in the 4 bytes
 * after them. */
static int q3_k_scale(const uint8_t *s, int g) {
    int low = g < 8 ? s[g] & 15 : s[g - 8] >> 4;
    int high = s[8 + g % 4] >> (g / 4 * 2) & 3;
    return (low | high << 4) - 32;
}

/* hmask[32], qs[64], scales[12], d F16: d * sc * (q - 4 where the mask bit is clear), in groups of
 * 16 */
static void decode_q3_k(const uint8_t *b, float *y) {
    const uint8_t *hmask = b, *qs = b + 32, *scales = b + 96;
    float d = read_f16(b + 108);
    for (int i = 0; i < QK_K; i++) {
        float scale = d * (float)q3_k_scale(scales, i / 16);
        int q = two_bits(qs, i) - ((hmask[i % 32] >> (i / 32) & 1) ? 0 : 4);
        y[i] = scale * (float)q;
    }
}

/* Scale and min g (0..7) of Q4_K and Q5_K, six bits each in 12 bytes. */
static void k_scale_min(const uint8_t *s, int g, int *scale, int *min) {
    if (g < 4) {
        *scale = s[g] & 63;
        *min = s[g + 4] & 63;
    } else {
        *scale = (s[g + 4] & 15) | (s[g - 4] >> 6) << 4;
        *min = s[g + 4] >> 4 | (s[g] >> 6) << 4;
    }
}

/* Four-bit fields of Q4_K and Q5_K: 32 bytes hold two groups of 32. */
static int k_nibble(const uint8_t *qs, int g, int i) {
    return qs[g / 2 * 32 + i] >> (g % 2 * 4) & 15;
}

/* d F16, dmin F16, scales[12], qs[128]: d * sc * q - dmin * m, in groups of 32 */
static void decode_q4_k(const uint8_t *b, float *y) {
    float d = read_f16(b), dmin = read_f16(b + 2);
    for (int g = 0; g < 8; g++) {
        int sc, m;
        k_scale_min(b + 4, g, &sc, &m);
        float scale = d * (float)sc, min = dmin * (float)m;
        for (int i = 0; i < 32; i++) *y++ = scale * (float)k_nibble(b + 16, g, i) - min;
    }
}

/* d F16, dmin F16, scales[12], qh[32], qs[128]: as Q4_K with a fifth bit from bit g of qh */
static void decode_q5_k(const uint8_t *b, float *y) {
    const uint8_t *qh = b + 16, *qs = b + 48;
    float d = read_f16(b), dmin = read_f16(b + 2);
    for (int g = 0; g < 8; g++) {
        int sc, m;
        k_scale_min(b + 4, g, &sc, &m);
        float scale = d * (float)sc, min = dmin * (float)m;
        for (int i = 0; i < 32; i++) {
            int q = k_nibble(qs, g, i) | (qh[i] >> g & 1) << 4;
            *y++ = scale * (float)q - min;
        }
    }
}

/* ql[128], qh[64], scales[16] signed, d F16: d * sc * (q - 32), in groups of 16.
 * Each half of 128 elements: 64 bytes of ql (32 elements per 32 bytes, low nibbles then high), 32
 * bytes of qh. */
static void decode_q6_k(const uint8_t *b, float *y) {
    float d = read_f16(b + 208);
    for (int i = 0; i < QK_K; i++) {
        int half = i / 128, in_half = i % 128;
        int low = b[half * 64 + in_half % 64] >> (in_half / 64 * 4) & 15;
        int high = b[128 + half * 32 + i % 32] >> (in_half / 32 * 2) & 3;
        float scale = d * (float)(int8_t)b[192 + i / 16];
        y[i] = scale * (float)((low | high << 4) - 32);
    }
}

/* ---- activations ---- */

/* d F16, s F16, qs[32] signed: d * q; s is for products only */
static void decode_q8_1(const uint8_t *b, float *y) {
    float d = read_f16(b);
    for (int i = 0; i < QK; i++) y[i] = d * (float)(int8_t)b[RP__Q8_1_Q + i];
}

/* d F32, qs[256] signed, sums: d * q */
static void decode_q8_k(const uint8_t *b, float *y) {
    float d;
    memcpy(&d, b, sizeof d);
    for (int i = 0; i < QK_K; i++) y[i] = d * (float)(int8_t)b[RP__Q8_K_Q + i];
}

/* d F32, sums of q, low and high digits, signed: d * (256 * high + low) */
static void decode_q16(const uint8_t *b, float *y) {
    float d;
    memcpy(&d, b, sizeof d);
    for (int i = 0; i < QK; i++) {
        int q = RP__Q16_BASE * (int8_t)b[RP__Q16_HIGH + i] + (int8_t)b[RP__Q16_LOW + i];
        y[i] = d * (float)q;
    }
}

typedef void (*decode_fn)(const uint8_t *block, float *y);

static const decode_fn decoders[RP_N_DTYPES] = {
    [RP_Q4_0] = decode_q4_0, [RP_Q4_1] = decode_q4_1,     [RP_Q5_0] = decode_q5_0,
    [RP_Q5_1] = decode_q5_1, [RP_Q8_0] = decode_q8_0,     [RP_Q2_K] = decode_q2_k,
    [RP_Q3_K] = decode_q3_k, [RP_Q4_K] = decode_q4_k,     [RP_Q5_K] = decode_q5_k,
    [RP_Q6_K] = decode_q6_k, [RP_IQ4_NL] = decode_iq4_nl, [RP_Q8_1] = decode_q8_1,
    [RP_Q8_K] = decode_q8_k, [RP_Q16] = decode_q16,
};

void rp__blocks_decode(rp_dtype t, const void *src, float *dst, int64_t n_blocks) {
    decode_fn decode = (unsigned)t < RP_N_DTYPES ? decoders[t] : NULL;
    rp__assert(decode, "dtype %d has no block decoder", (int)t);
    size_t block_bytes = rp__dtype_block_bytes(t);
    size_t block_elems = (size_t)rp__dtype_block_elems(t);
    const uint8_t *b = src;
    for (int64_t i = 0; i < n_blocks; i++, b += block_bytes, dst += block_elems) decode(b, dst);
}

/* ---- encoding activations ---- */

static void write_f16(uint8_t *p, float f) {
    uint16_t h = rp__f32_to_f16(f);
    memcpy(p, &h, sizeof h);
}

/* The first element of the largest size, with its sign; NaN when any is NaN or infinite. */
static float extreme_of(const float *x, int n) {
    float top = x[0];
    for (int i = 0; i < n; i++) {
        if (!isfinite(x[i])) return NAN;
        if (fabsf(x[i]) > fabsf(top)) top = x[i];
    }
    return top;
}

/* most / |top|, or 0 where that is not a number to scale by: every q is 0 then. */
static float scale_to(float most, float top) {
    float scale = most / fabsf(top);
    return isfinite(scale) ? scale : 0;
}

/* q = x * scale, to nearest even; returns the sum. |q| <= 127: scale is 127 / the largest |x|,
 * rounded once. */
static int quantise(const float *x, float scale, int n, uint8_t *q) {
    int sum = 0;
    for (int i = 0; i < n; i++) {
        int v = scale != 0 ? (int)rintf(x[i] * scale) : 0;
        q[i] = (uint8_t)v;
        sum += v;
    }
    return sum;
}

static void encode_q8_0(const float *x, uint8_t *b) {
    float top = extreme_of(x, QK);
    write_f16(b, fabsf(top) / 127.0f);
    quantise(x, scale_to(127, top), QK, b + RP__Q8_0_Q);
}

static void encode_q8_1(const float *x, uint8_t *b) {
    float top = extreme_of(x, QK), d = fabsf(top) / 127.0f;
    write_f16(b, d);
    write_f16(b + RP__Q8_1_S, d * (float)quantise(x, scale_to(127, top), QK, b + RP__Q8_1_Q));
}

static void encode_q8_k(const float *x, uint8_t *b) {
    float top = extreme_of(x, QK_K), size = scale_to(127, top);
    float scale = top > 0 ? -size : size, d = isnan(top) ? NAN : scale != 0 ? 1 / scale : 0;
    memcpy(b, &d, sizeof d);
    for (int g = 0; g < QK_K / 16; g++) {
        int16_t sum = (int16_t)quantise(x + 16 * g, scale, 16, b + RP__Q8_K_Q + 16 * g);
        memcpy(b + RP__Q8_K_SUMS + 2 * g, &sum, sizeof sum);
    }
}

/* A low digit of +-128, half way between two high ones, becomes +-127. */
static void encode_q16(const float *x, uint8_t *b) {
    float top = extreme_of(x, QK), d = fabsf(top) / RP__Q16_TOP, scale = scale_to(RP__Q16_TOP, top);
    int32_t sums[2] = {0, 0};
    memcpy(b, &d, sizeof d);
    for (int i = 0; i < QK; i++) {
        float q = scale != 0 ? rintf(x[i] * scale) : 0, high = rintf(q / RP__Q16_BASE);
        float low = fmaxf(-127, fminf(127, q - RP__Q16_BASE * high));
        b[RP__Q16_LOW + i] = (uint8_t)(int)low;
        b[RP__Q16_HIGH + i] = (uint8_t)(int)high;
        sums[i / 16] += RP__Q16_BASE * (int)high + (int)low;
    }
    memcpy(b + RP__Q16_SUMS, sums, sizeof sums);
}

void rp__blocks_encode(rp_dtype t, const float *src, void *dst, int64_t n_blocks) {
    void (*encode)(const float *, uint8_t *) = t == RP_Q8_0   ? encode_q8_0
                                               : t == RP_Q8_1 ? encode_q8_1
                                               : t == RP_Q8_K ? encode_q8_k
                                               : t == RP_Q16  ? encode_q16
                                                              : NULL;
    rp__assert(encode, "dtype %d has no block encoder", (int)t);
    size_t block_bytes = rp__dtype_block_bytes(t);
    size_t block_elems = (size_t)rp__dtype_block_elems(t);
    uint8_t *b = dst;
    for (int64_t i = 0; i < n_blocks; i++, src += block_elems, b += block_bytes) encode(src, b);
}
