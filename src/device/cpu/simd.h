/* Sixteen floats at a time: the one vocabulary in which the kernels are written.
 *
 * Included by every kernels_<set>.c, each compiled for its own instruction set; everything here is
 * static and always inlined, so that no function compiled for a higher set can be picked by the
 * linker for code that runs on a lower one.
 *
 * Every lane does the same IEEE operations in AVX2, AVX-512 and NEON, so those sets give the same
 * bits. The generic set (SIMD_GENERIC) rounds between product and sum, since no fused instruction
 * is assumed, and has bits of its own. */
#ifndef RP_DEVICE_CPU_SIMD_H
#define RP_DEVICE_CPU_SIMD_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define V16_INLINE static inline __attribute__((always_inline, unused))

#if defined(__AVX512F__) && defined(__AVX512BW__)
#define V16_AVX512 1
#include <immintrin.h>
typedef __m512 v16;
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define V16_AVX2 1
#include <immintrin.h>
typedef struct v16 {
    __m256 a, b; /* lanes 0..7 and 8..15 */
} v16;
#elif defined(__aarch64__) && !defined(SIMD_GENERIC)
#define V16_NEON 1
#include "device/cpu/simd_neon.h"
#else
#define V16_GENERIC 1
#include "tensor/dtype.h"
typedef float v16 __attribute__((vector_size(64)));
typedef int32_t v16i __attribute__((vector_size(64)));
#endif

/* ---- plain arithmetic ---- */

#if defined(V16_AVX512)

V16_INLINE v16 v16_zero(void) {
    return _mm512_setzero_ps();
}
V16_INLINE v16 v16_set1(float f) {
    return _mm512_set1_ps(f);
}
V16_INLINE v16 v16_load(const float *p) {
    return _mm512_loadu_ps(p);
}
V16_INLINE void v16_store(float *p, v16 v) {
    _mm512_storeu_ps(p, v);
}
V16_INLINE __mmask16 v16_mask(int64_t n) {
    return (__mmask16)((1u << n) - 1u);
}
V16_INLINE v16 v16_load_n(const float *p, int64_t n) {
    return _mm512_maskz_loadu_ps(v16_mask(n), p);
}
V16_INLINE void v16_store_n(float *p, v16 v, int64_t n) {
    _mm512_mask_storeu_ps(p, v16_mask(n), v);
}
V16_INLINE v16 v16_add(v16 x, v16 y) {
    return _mm512_add_ps(x, y);
}
V16_INLINE v16 v16_sub(v16 x, v16 y) {
    return _mm512_sub_ps(x, y);
}
V16_INLINE v16 v16_mul(v16 x, v16 y) {
    return _mm512_mul_ps(x, y);
}
V16_INLINE v16 v16_div(v16 x, v16 y) {
    return _mm512_div_ps(x, y);
}
V16_INLINE v16 v16_fma(v16 x, v16 y, v16 z) {
    return _mm512_fmadd_ps(x, y, z);
}
/* max and min give the second operand when either is NaN. */
V16_INLINE v16 v16_max(v16 x, v16 y) {
    return _mm512_max_ps(x, y);
}
V16_INLINE v16 v16_min(v16 x, v16 y) {
    return _mm512_min_ps(x, y);
}
V16_INLINE v16 v16_abs(v16 x) {
    return _mm512_abs_ps(x);
}
V16_INLINE v16 v16_round(v16 x) {
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
V16_INLINE v16 v16_ldexp(v16 x, v16 n) {
    return _mm512_scalef_ps(x, n);
} /* x * 2^n, n whole, -252..252 */
V16_INLINE v16 v16_select_less(v16 x, v16 y, v16 yes, v16 no) { /* x < y ? yes : no */
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, y, _CMP_LT_OQ), no, yes);
}
V16_INLINE v16 v16_keep_n(v16 x, int64_t n, v16 rest) {
    return _mm512_mask_blend_ps(v16_mask(n), rest, x);
}
V16_INLINE float s_fma(float x, float y, float z) {
    return __builtin_fmaf(x, y, z);
}

#elif defined(V16_AVX2)

V16_INLINE v16 v16_zero(void) {
    return (v16){_mm256_setzero_ps(), _mm256_setzero_ps()};
}
V16_INLINE v16 v16_set1(float f) {
    return (v16){_mm256_set1_ps(f), _mm256_set1_ps(f)};
}
V16_INLINE v16 v16_load(const float *p) {
    return (v16){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
V16_INLINE void v16_store(float *p, v16 v) {
    _mm256_storeu_ps(p, v.a), _mm256_storeu_ps(p + 8, v.b);
}
V16_INLINE __m256i v16_mask_half(int64_t n) { /* the first n of 8 lanes; n may be out of range */
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
V16_INLINE v16 v16_load_n(const float *p, int64_t n) {
    return (v16){_mm256_maskload_ps(p, v16_mask_half(n)),
                 _mm256_maskload_ps(p + 8, v16_mask_half(n - 8))};
}
V16_INLINE void v16_store_n(float *p, v16 v, int64_t n) {
    _mm256_maskstore_ps(p, v16_mask_half(n), v.a);
    _mm256_maskstore_ps(p + 8, v16_mask_half(n - 8), v.b);
}
#define V16_BOTH(name, op)                                                                         \
    V16_INLINE v16 name(v16 x, v16 y) {                                                            \
        return (v16){op(x.a, y.a), op(x.b, y.b)};                                                  \
    }
V16_BOTH(v16_add, _mm256_add_ps)
V16_BOTH(v16_sub, _mm256_sub_ps)
V16_BOTH(v16_mul, _mm256_mul_ps)
V16_BOTH(v16_div, _mm256_div_ps)
V16_BOTH(v16_max, _mm256_max_ps)
V16_BOTH(v16_min, _mm256_min_ps)
#undef V16_BOTH
V16_INLINE v16 v16_fma(v16 x, v16 y, v16 z) {
    return (v16){_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
V16_INLINE v16 v16_abs(v16 x) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return (v16){_mm256_andnot_ps(sign, x.a), _mm256_andnot_ps(sign, x.b)};
}
V16_INLINE v16 v16_round(v16 x) {
    enum { NEAREST = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC };
    return (v16){_mm256_round_ps(x.a, NEAREST), _mm256_round_ps(x.b, NEAREST)};
}
/* In two steps of half the exponent: the first is exact, the second rounds once, as scalef does. */
V16_INLINE __m256 v8_ldexp(__m256 x, __m256 n) {
    const __m256i bias = _mm256_set1_epi32(127);
    __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1);
    __m256i rest = _mm256_sub_epi32(whole, half);
    __m256 by_half = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23));
    __m256 by_rest = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23));
    return _mm256_mul_ps(_mm256_mul_ps(x, by_half), by_rest);
}
V16_INLINE v16 v16_ldexp(v16 x, v16 n) {
    return (v16){v8_ldexp(x.a, n.a), v8_ldexp(x.b, n.b)};
}
V16_INLINE v16 v16_select_less(v16 x, v16 y, v16 yes, v16 no) {
    return (v16){_mm256_blendv_ps(no.a, yes.a, _mm256_cmp_ps(x.a, y.a, _CMP_LT_OQ)),
                 _mm256_blendv_ps(no.b, yes.b, _mm256_cmp_ps(x.b, y.b, _CMP_LT_OQ))};
}
V16_INLINE v16 v16_keep_n(v16 x, int64_t n, v16 rest) {
    return (v16){_mm256_blendv_ps(rest.a, x.a, _mm256_castsi256_ps(v16_mask_half(n))),
                 _mm256_blendv_ps(rest.b, x.b, _mm256_castsi256_ps(v16_mask_half(n - 8)))};
}
V16_INLINE float s_fma(float x, float y, float z) {
    return __builtin_fmaf(x, y, z);
}

#elif defined(V16_GENERIC)

V16_INLINE v16 v16_zero(void) {
    return (v16){0};
}
V16_INLINE v16 v16_set1(float f) {
    return (v16){f, f, f, f, f, f, f, f, f, f, f, f, f, f, f, f};
}
V16_INLINE v16 v16_load(const float *p) {
    v16 v;
    memcpy(&v, p, sizeof v);
    return v;
}
V16_INLINE void v16_store(float *p, v16 v) {
    memcpy(p, &v, sizeof v);
}
V16_INLINE v16 v16_load_n(const float *p, int64_t n) {
    v16 v = {0};
    memcpy(&v, p, (size_t)n * sizeof(float));
    return v;
}
V16_INLINE void v16_store_n(float *p, v16 v, int64_t n) {
    memcpy(p, &v, (size_t)n * sizeof(float));
}
V16_INLINE v16 v16_add(v16 x, v16 y) {
    return x + y;
}
V16_INLINE v16 v16_sub(v16 x, v16 y) {
    return x - y;
}
V16_INLINE v16 v16_mul(v16 x, v16 y) {
    return x * y;
}
V16_INLINE v16 v16_div(v16 x, v16 y) {
    return x / y;
}
V16_INLINE v16 v16_fma(v16 x, v16 y, v16 z) {
    return x * y + z;
}
V16_INLINE v16 v16_pick(v16i mask, v16 yes, v16 no) {
    return (v16)(((v16i)yes & mask) | ((v16i)no & ~mask));
}
V16_INLINE v16 v16_max(v16 x, v16 y) {
    return v16_pick(x > y, x, y);
}
V16_INLINE v16 v16_min(v16 x, v16 y) {
    return v16_pick(x < y, x, y);
}
V16_INLINE v16 v16_abs(v16 x) {
    return (v16)((v16i)x & 0x7FFFFFFF);
}
/* Adding 1.5 * 2^23 leaves no bits below one: the sum is rounded to nearest even. For |x| < 2^22.
 */
V16_INLINE v16 v16_round(v16 x) {
    return (x + 12582912.0f) - 12582912.0f;
}
V16_INLINE v16 v16_ldexp(v16 x, v16 n) {
    v16i whole = (v16i)(n + 12582912.0f) - 0x4B400000, half = whole >> 1, rest = whole - half;
    return x * (v16)((half + 127) << 23) * (v16)((rest + 127) << 23);
}
V16_INLINE v16 v16_select_less(v16 x, v16 y, v16 yes, v16 no) {
    return v16_pick(x < y, yes, no);
}
V16_INLINE v16 v16_keep_n(v16 x, int64_t n, v16 rest) {
    v16i lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    return v16_pick(lane < (int32_t)n, x, rest);
}
V16_INLINE float s_fma(float x, float y, float z) {
    return x * y + z;
}

#endif

/* ---- reductions, in one tree: lanes (i, i+8), then (i, i+4), (i, i+2), (i, i+1) ---- */

#if defined(V16_GENERIC)
V16_INLINE float v16_sum(v16 v) {
    float f[16];
    v16_store(f, v);
    for (int half = 8; half; half /= 2)
        for (int i = 0; i < half; i++) f[i] += f[i + half];
    return f[0];
}
V16_INLINE float v16_top(v16 v) { /* largest lane; NaN lanes may be lost */
    float f[16];
    v16_store(f, v);
    for (int half = 8; half; half /= 2)
        for (int i = 0; i < half; i++) f[i] = f[i] > f[i + half] ? f[i] : f[i + half];
    return f[0];
}
#elif !defined(V16_NEON)
#if defined(V16_AVX512)
V16_INLINE __m256 v16_low(v16 v) {
    return _mm512_castps512_ps256(v);
}
V16_INLINE __m256 v16_high(v16 v) {
    return _mm512_extractf32x8_ps(v, 1);
}
#else
V16_INLINE __m256 v16_low(v16 v) {
    return v.a;
}
V16_INLINE __m256 v16_high(v16 v) {
    return v.b;
}
#endif
V16_INLINE float v16_sum(v16 v) {
    __m256 h = _mm256_add_ps(v16_low(v), v16_high(v));
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_shuffle_ps(q, q, 1)));
}
V16_INLINE float v16_top(v16 v) {
    __m256 h = _mm256_max_ps(v16_low(v), v16_high(v));
    __m128 q = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    q = _mm_max_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_max_ss(q, _mm_shuffle_ps(q, q, 1)));
}
#endif

/* ---- loads that convert, all exact; stores that round to nearest even ---- */

#if defined(V16_AVX512)

V16_INLINE v16 v16_from_f16(const uint16_t *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
V16_INLINE v16 v16_from_bf16(const uint16_t *p) {
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
V16_INLINE v16 v16_from_u8(const uint8_t *p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p)));
}
V16_INLINE v16 v16_from_i8(const uint8_t *p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}
/* Of the 32-bit lanes at p, the unsigned nibble that starts at bit `shift`. The
 * permute reads only the low four bits of each index: it masks and converts in one instruction. */
V16_INLINE v16 v16_nibble_at(const uint8_t *p, int shift) {
    const v16 value = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m512i lanes = _mm512_loadu_si512(p);
    return _mm512_permutexvar_ps(_mm512_srli_epi32(lanes, (unsigned)shift), value);
}
V16_INLINE void v16_to_f16(uint16_t *p, v16 v) {
    _mm256_storeu_si256((__m256i *)p,
                        _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
/* Whole numbers of at most 127. */
V16_INLINE void v16_to_i8(int8_t *p, v16 v) {
    _mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(v)));
}

#elif defined(V16_AVX2)

V16_INLINE v16 v16_from_f16(const uint16_t *p) {
    return (v16){_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)),
                 _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 8)))};
}
V16_INLINE __m256 v8_from_bf16(const uint16_t *p) {
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
V16_INLINE v16 v16_from_bf16(const uint16_t *p) {
    return (v16){v8_from_bf16(p), v8_from_bf16(p + 8)};
}
V16_INLINE __m256i v8_from_u8(const uint8_t *p) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
}
V16_INLINE __m256i v8_from_i8(const uint8_t *p) {
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p));
}
V16_INLINE v16 v16_from_u8(const uint8_t *p) {
    return (v16){_mm256_cvtepi32_ps(v8_from_u8(p)), _mm256_cvtepi32_ps(v8_from_u8(p + 8))};
}
V16_INLINE v16 v16_from_i8(const uint8_t *p) {
    return (v16){_mm256_cvtepi32_ps(v8_from_i8(p)), _mm256_cvtepi32_ps(v8_from_i8(p + 8))};
}
V16_INLINE __m256 v8_nibble_at(const uint8_t *p, int shift) {
    __m256i low = _mm256_srli_epi32(_mm256_loadu_si256((const __m256i *)p), shift);
    return _mm256_cvtepi32_ps(_mm256_and_si256(low, _mm256_set1_epi32(15)));
}
V16_INLINE v16 v16_nibble_at(const uint8_t *p, int shift) {
    return (v16){v8_nibble_at(p, shift), v8_nibble_at(p + 32, shift)};
}
V16_INLINE void v16_to_f16(uint16_t *p, v16 v) {
    enum { NEAREST = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC };
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(v.a, NEAREST));
    _mm_storeu_si128((__m128i *)(p + 8), _mm256_cvtps_ph(v.b, NEAREST));
}
V16_INLINE void v16_to_i8(int8_t *p, v16 v) {
    __m256i both = _mm256_packs_epi32(_mm256_cvtps_epi32(v.a), _mm256_cvtps_epi32(v.b));
    both = _mm256_permute4x64_epi64(both, 0xD8); /* packs works within halves */
    _mm_storeu_si128((__m128i *)p, _mm_packs_epi16(_mm256_castsi256_si128(both),
                                                   _mm256_extracti128_si256(both, 1)));
}

#elif defined(V16_GENERIC)

V16_INLINE v16 v16_from_f16(const uint16_t *p) {
    float f[16];
    rp__dtype_to_f32(RP_F16, p, f, 16);
    return v16_load(f);
}
V16_INLINE v16 v16_from_bf16(const uint16_t *p) {
    int32_t bits[16];
    v16 v;
    for (int i = 0; i < 16; i++) bits[i] = (int32_t)((uint32_t)p[i] << 16);
    memcpy(&v, bits, sizeof v);
    return v;
}
V16_INLINE v16 v16_from_u8(const uint8_t *p) {
    float f[16];
    for (int i = 0; i < 16; i++) f[i] = p[i];
    return v16_load(f);
}
V16_INLINE v16 v16_from_i8(const uint8_t *p) {
    float f[16];
    for (int i = 0; i < 16; i++) f[i] = (int8_t)p[i];
    return v16_load(f);
}
V16_INLINE v16 v16_nibble_at(const uint8_t *p, int shift) {
    v16i lanes;
    memcpy(&lanes, p, sizeof lanes);
    return __builtin_convertvector(lanes >> shift & 15, v16);
}
V16_INLINE void v16_to_f16(uint16_t *p, v16 v) {
    float f[16];
    v16_store(f, v);
    rp__dtype_from_f32(RP_F16, f, p, 16);
}
V16_INLINE void v16_to_i8(int8_t *p, v16 v) {
    float f[16];
    v16_store(f, v);
    for (int i = 0; i < 16; i++) p[i] = (int8_t)f[i];
}

#endif

/* One of them. */
#if defined(V16_GENERIC)
V16_INLINE float s_from_f16(uint16_t h) {
    return rp__f16_to_f32(h);
}
V16_INLINE uint16_t s_to_f16(float f) {
    return rp__f32_to_f16(f);
}
#elif !defined(V16_NEON)
V16_INLINE float s_from_f16(uint16_t h) {
    return _cvtsh_ss(h);
}
V16_INLINE uint16_t s_to_f16(float f) {
    return (uint16_t)_cvtss_sh(f, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
#endif

/* ---- functions, in one order of operations ---- */

/* e^x: x = n ln2 + r, |r| <= ln2 / 2, and a polynomial of degree 6 in r (coefficients: Cephes,
 * expf). Within 2 ulp; 0 where it would be below 2^-126, since processors take twenty times as long
 * to make a subnormal number; infinity above 89, NaN stays NaN. */
V16_INLINE v16 v16_exp(v16 x) {
    const v16 least = v16_set1(-87.33654f), given = x;
    x = v16_min(v16_set1(89.0f), v16_max(least, x));
    v16 n = v16_round(v16_mul(x, v16_set1(1.44269504f)));
    v16 r = v16_fma(n, v16_set1(-0.693359375f), x);
    r = v16_fma(n, v16_set1(2.12194440e-4f), r);
    v16 p = v16_set1(1.9875691500e-4f);
    p = v16_fma(p, r, v16_set1(1.3981999507e-3f));
    p = v16_fma(p, r, v16_set1(8.3334519073e-3f));
    p = v16_fma(p, r, v16_set1(4.1665795894e-2f));
    p = v16_fma(p, r, v16_set1(1.6666665459e-1f));
    p = v16_fma(p, r, v16_set1(5.0000001201e-1f));
    p = v16_fma(v16_mul(p, r), r, r);
    p = v16_ldexp(v16_add(p, v16_set1(1.0f)), n);
    return v16_select_less(given, least, v16_zero(), p);
}

/* tanh x: an odd polynomial below 0.625 (coefficients: Cephes, tanhf), 1 - 2 / (e^2x + 1) above,
 * where nothing cancels. */
V16_INLINE v16 v16_tanh(v16 x) {
    const v16 one = v16_set1(1.0f);
    v16 z = v16_mul(x, x), p = v16_set1(-5.70498872745e-3f);
    p = v16_fma(p, z, v16_set1(2.06390887954e-2f));
    p = v16_fma(p, z, v16_set1(-5.37397155531e-2f));
    p = v16_fma(p, z, v16_set1(1.33314422036e-1f));
    p = v16_fma(p, z, v16_set1(-3.33332819422e-1f));
    v16 small = v16_fma(v16_mul(p, z), x, x);
    v16 large = v16_sub(one, v16_div(v16_set1(2.0f), v16_add(v16_exp(v16_add(x, x)), one)));
    return v16_select_less(v16_abs(x), v16_set1(0.625f), small, large);
}

V16_INLINE float s_exp(float x) {
    float f[16];
    v16_store(f, v16_exp(v16_set1(x)));
    return f[0];
}
V16_INLINE float s_tanh(float x) {
    float f[16];
    v16_store(f, v16_tanh(v16_set1(x)));
    return f[0];
}

/* ---- 16 x 16 transpose: r[i] lane j becomes r[j] lane i ---- */

#if defined(V16_AVX512)
V16_INLINE void v16_transpose(v16 r[16]) {
    v16 t[16];
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4)
        for (int h = 0; h < 2; h++) {
            __m512d a = _mm512_castps_pd(t[i + h]), b = _mm512_castps_pd(t[i + h + 2]);
            r[i + 2 * h] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
            r[i + 2 * h + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
        }
    /* r[4 g + c] holds, per 128-bit lane l, column 4 l + c of rows 4 g .. 4 g + 3. */
    for (int c = 0; c < 4; c++) {
        v16 a = _mm512_shuffle_f32x4(r[c], r[4 + c], 0x88),
            b = _mm512_shuffle_f32x4(r[8 + c], r[12 + c], 0x88);
        v16 d = _mm512_shuffle_f32x4(r[c], r[4 + c], 0xDD),
            e = _mm512_shuffle_f32x4(r[8 + c], r[12 + c], 0xDD);
        t[c] = _mm512_shuffle_f32x4(a, b, 0x88);
        t[8 + c] = _mm512_shuffle_f32x4(a, b, 0xDD);
        t[4 + c] = _mm512_shuffle_f32x4(d, e, 0x88);
        t[12 + c] = _mm512_shuffle_f32x4(d, e, 0xDD);
    }
    for (int i = 0; i < 16; i++) r[i] = t[i];
}
#elif defined(V16_AVX2)
V16_INLINE void v8_transpose(__m256 r[8]) {
    __m256 t[8], u[8];
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4)
        for (int h = 0; h < 2; h++) {
            u[i + 2 * h] = _mm256_shuffle_ps(t[i + h], t[i + h + 2], 0x44);
            u[i + 2 * h + 1] = _mm256_shuffle_ps(t[i + h], t[i + h + 2], 0xEE);
        }
    for (int c = 0; c < 4; c++) {
        r[c] = _mm256_permute2f128_ps(u[c], u[4 + c], 0x20);
        r[4 + c] = _mm256_permute2f128_ps(u[c], u[4 + c], 0x31);
    }
}
V16_INLINE void v16_transpose(v16 r[16]) {
    __m256 aa[8], ab[8], ba[8], bb[8];
    for (int i = 0; i < 8; i++)
        aa[i] = r[i].a, ab[i] = r[i].b, ba[i] = r[i + 8].a, bb[i] = r[i + 8].b;
    v8_transpose(aa), v8_transpose(ab), v8_transpose(ba), v8_transpose(bb);
    for (int i = 0; i < 8; i++) r[i] = (v16){aa[i], ba[i]}, r[i + 8] = (v16){ab[i], bb[i]};
}
#elif defined(V16_GENERIC)
V16_INLINE void v16_transpose(v16 r[16]) {
    float m[16][16];
    for (int i = 0; i < 16; i++) v16_store(m[i], r[i]);
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 16; j++) r[i][j] = m[j][i];
}
#endif

#endif
