/* F16 and BF16 to F32 and back, in integer arithmetic, so that every build gives the bits that
 * hardware gives: round to nearest, ties to even; subnormals kept; NaN keeps its sign and upper
 * payload and becomes quiet. */
#include <string.h>

#include "tensor/dtype.h"

static uint32_t bits_of(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static float float_of(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

float rp__f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t exponent = (h >> 10) & 0x1Fu, mantissa = h & 0x3FFu;
    if (exponent == 31) {
        uint32_t quiet = mantissa ? 0x400000u : 0;
        return float_of(sign | 0x7F800000u | quiet | mantissa << 13);
    }
    if (exponent == 0) { /* zero or subnormal: mantissa * 2^-24, exact in F32 */
        float v = (float)mantissa * 0x1p-24f;
        return float_of(sign | bits_of(v));
    }
    return float_of(sign | (exponent + 112) << 23 |
                    mantissa << 13); /* 127 - 15: the biases' difference */
}

/* Shifts right by n (1..31), rounding to nearest, ties to even. */
static uint32_t shift_round(uint32_t v, uint32_t n) {
    uint32_t kept = v >> n, lost = v & ((1u << n) - 1), half = 1u << (n - 1);
    return kept + (lost > half || (lost == half && (kept & 1)));
}

uint16_t rp__f32_to_f16(float f) {
    uint32_t u = bits_of(f), sign = u >> 16 & 0x8000u, a = u & 0x7FFFFFFFu;
    if (a > 0x7F800000u) return (uint16_t)(sign | 0x7E00u | (a >> 13 & 0x3FFu));
    if (a >= 0x47800000u) return (uint16_t)(sign | 0x7C00u); /* 2^16 and above, Inf */
    if (a >=
        0x38800000u) /* 2^-14: normal; a carry out of the mantissa raises the exponent, up to Inf */
        return (uint16_t)(sign | (shift_round(a, 13) - (112u << 10)));
    uint32_t exponent = a >> 23;
    if (exponent < 102)
        return (uint16_t)sign; /* below 2^-25: nearer to zero than to the least subnormal */
    return (uint16_t)(sign | shift_round((a & 0x7FFFFFu) | 0x800000u, 126 - exponent));
}

uint16_t rp__f32_to_bf16(float f) {
    uint32_t u = bits_of(f);
    if ((u & 0x7FFFFFFFu) > 0x7F800000u) return (uint16_t)(u >> 16 | 0x40u);
    return (uint16_t)((u + 0x7FFFu + (u >> 16 & 1)) >> 16);
}
