/* simd.h in the words of arm64: what every arm64 machine has, NEON with fused products and
 * conversions of F16. Part of simd.h. A vector of sixteen lanes is four registers.
 *
 * Every lane does the same IEEE operations as on AVX2 and AVX-512: the bits are theirs. */

#include <arm_neon.h>

typedef struct v16 {
    float32x4_t a, b, c, d; /* lanes 0..3, 4..7, 8..11, 12..15 */
} v16;

/* ---- plain arithmetic ---- */

V16_INLINE v16 v16_set1(float f) {
    float32x4_t q = vdupq_n_f32(f);
    return (v16){q, q, q, q};
}
V16_INLINE v16 v16_zero(void) {
    return v16_set1(0);
}
V16_INLINE v16 v16_load(const float *p) {
    return (v16){vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)};
}
V16_INLINE void v16_store(float *p, v16 v) {
    vst1q_f32(p, v.a), vst1q_f32(p + 4, v.b), vst1q_f32(p + 8, v.c), vst1q_f32(p + 12, v.d);
}
V16_INLINE v16 v16_load_n(const float *p, int64_t n) {
    float f[16] = {0};
    memcpy(f, p, (size_t)n * sizeof *f);
    return v16_load(f);
}
V16_INLINE void v16_store_n(float *p, v16 v, int64_t n) {
    float f[16];
    v16_store(f, v);
    memcpy(p, f, (size_t)n * sizeof *f);
}
/* The second operand when either is NaN, unlike the instructions for it. */
V16_INLINE float32x4_t v4_max(float32x4_t x, float32x4_t y) {
    return vbslq_f32(vcgtq_f32(x, y), x, y);
}
V16_INLINE float32x4_t v4_min(float32x4_t x, float32x4_t y) {
    return vbslq_f32(vcltq_f32(x, y), x, y);
}
#define V16_EACH(name, op)                                                                         \
    V16_INLINE v16 name(v16 x, v16 y) {                                                            \
        return (v16){op(x.a, y.a), op(x.b, y.b), op(x.c, y.c), op(x.d, y.d)};                      \
    }
V16_EACH(v16_add, vaddq_f32)
V16_EACH(v16_sub, vsubq_f32)
V16_EACH(v16_mul, vmulq_f32)
V16_EACH(v16_div, vdivq_f32)
V16_EACH(v16_max, v4_max)
V16_EACH(v16_min, v4_min)
V16_INLINE v16 v16_fma(v16 x, v16 y, v16 z) {
    return (v16){vfmaq_f32(z.a, x.a, y.a), vfmaq_f32(z.b, x.b, y.b), vfmaq_f32(z.c, x.c, y.c),
                 vfmaq_f32(z.d, x.d, y.d)};
}
V16_INLINE v16 v16_abs(v16 x) {
    return (v16){vabsq_f32(x.a), vabsq_f32(x.b), vabsq_f32(x.c), vabsq_f32(x.d)};
}
V16_INLINE v16 v16_round(v16 x) {
    return (v16){vrndnq_f32(x.a), vrndnq_f32(x.b), vrndnq_f32(x.c), vrndnq_f32(x.d)};
}
/* In two steps of half the exponent: the first is exact, the second rounds once. */
V16_INLINE float32x4_t v4_ldexp(float32x4_t x, float32x4_t n) {
    const int32x4_t bias = vdupq_n_s32(127);
    int32x4_t whole = vcvtnq_s32_f32(n), half = vshrq_n_s32(whole, 1);
    int32x4_t rest = vsubq_s32(whole, half);
    x = vmulq_f32(x, vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(half, bias), 23)));
    return vmulq_f32(x, vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(rest, bias), 23)));
}
V16_EACH(v16_ldexp, v4_ldexp)
#undef V16_EACH
V16_INLINE v16 v16_select_less(v16 x, v16 y, v16 yes, v16 no) {
    return (v16){
        vbslq_f32(vcltq_f32(x.a, y.a), yes.a, no.a), vbslq_f32(vcltq_f32(x.b, y.b), yes.b, no.b),
        vbslq_f32(vcltq_f32(x.c, y.c), yes.c, no.c), vbslq_f32(vcltq_f32(x.d, y.d), yes.d, no.d)};
}
/* x in the lanes from `first` on that are below n. */
V16_INLINE float32x4_t v4_keep(float32x4_t x, int first, int64_t n, float32x4_t rest) {
    static const int32_t lane[4] = {0, 1, 2, 3};
    return vbslq_f32(vcltq_s32(vld1q_s32(lane), vdupq_n_s32((int)n - first)), x, rest);
}
V16_INLINE v16 v16_keep_n(v16 x, int64_t n, v16 rest) {
    return (v16){v4_keep(x.a, 0, n, rest.a), v4_keep(x.b, 4, n, rest.b), v4_keep(x.c, 8, n, rest.c),
                 v4_keep(x.d, 12, n, rest.d)};
}
V16_INLINE float s_fma(float x, float y, float z) {
    return __builtin_fmaf(x, y, z);
}

/* ---- reductions, in the order of simd.h ---- */

V16_INLINE float v16_sum(v16 v) {
    float32x4_t q = vaddq_f32(vaddq_f32(v.a, v.c), vaddq_f32(v.b, v.d));
    float32x2_t h = vadd_f32(vget_low_f32(q), vget_high_f32(q));
    return vget_lane_f32(h, 0) + vget_lane_f32(h, 1);
}
V16_INLINE float v16_top(v16 v) {
    float32x4_t q = v4_max(v4_max(v.a, v.c), v4_max(v.b, v.d));
    q = v4_max(q, vextq_f32(q, q, 2));
    q = v4_max(q, vextq_f32(q, q, 1));
    return vgetq_lane_f32(q, 0);
}

/* ---- loads that convert, all exact; stores that round to nearest even ---- */

V16_INLINE float32x4_t v4_from_f16(uint16x4_t h) {
    return vcvt_f32_f16(vreinterpret_f16_u16(h));
}
V16_INLINE v16 v16_from_f16(const uint16_t *p) {
    uint16x8_t low = vld1q_u16(p), high = vld1q_u16(p + 8);
    return (v16){v4_from_f16(vget_low_u16(low)), v4_from_f16(vget_high_u16(low)),
                 v4_from_f16(vget_low_u16(high)), v4_from_f16(vget_high_u16(high))};
}
V16_INLINE float32x4_t v4_from_bf16(uint16x4_t h) {
    return vreinterpretq_f32_u32(vshll_n_u16(h, 16));
}
V16_INLINE v16 v16_from_bf16(const uint16_t *p) {
    uint16x8_t low = vld1q_u16(p), high = vld1q_u16(p + 8);
    return (v16){v4_from_bf16(vget_low_u16(low)), v4_from_bf16(vget_high_u16(low)),
                 v4_from_bf16(vget_low_u16(high)), v4_from_bf16(vget_high_u16(high))};
}
V16_INLINE float32x4_t v4_from_u16(uint16x4_t h) {
    return vcvtq_f32_u32(vmovl_u16(h));
}
V16_INLINE v16 v16_from_u8(const uint8_t *p) {
    uint8x16_t q = vld1q_u8(p);
    uint16x8_t low = vmovl_u8(vget_low_u8(q)), high = vmovl_u8(vget_high_u8(q));
    return (v16){v4_from_u16(vget_low_u16(low)), v4_from_u16(vget_high_u16(low)),
                 v4_from_u16(vget_low_u16(high)), v4_from_u16(vget_high_u16(high))};
}
V16_INLINE float32x4_t v4_from_s16(int16x4_t h) {
    return vcvtq_f32_s32(vmovl_s16(h));
}
V16_INLINE v16 v16_from_i8(const uint8_t *p) {
    int8x16_t q = vreinterpretq_s8_u8(vld1q_u8(p));
    int16x8_t low = vmovl_s8(vget_low_s8(q)), high = vmovl_s8(vget_high_s8(q));
    return (v16){v4_from_s16(vget_low_s16(low)), v4_from_s16(vget_high_s16(low)),
                 v4_from_s16(vget_low_s16(high)), v4_from_s16(vget_high_s16(high))};
}
/* The shifts are C: those by a constant become the immediate kind. */
V16_INLINE float32x4_t v4_nibble_at(const uint8_t *p, int shift) {
    uint32x4_t lanes = vreinterpretq_u32_u8(vld1q_u8(p));
    return vcvtq_f32_u32(lanes >> shift & 15);
}
V16_INLINE v16 v16_nibble_at(const uint8_t *p, int shift) {
    return (v16){v4_nibble_at(p, shift), v4_nibble_at(p + 16, shift), v4_nibble_at(p + 32, shift),
                 v4_nibble_at(p + 48, shift)};
}
V16_INLINE uint16x8_t v8_to_f16(float32x4_t low, float32x4_t high) {
    return vreinterpretq_u16_f16(vcombine_f16(vcvt_f16_f32(low), vcvt_f16_f32(high)));
}
V16_INLINE void v16_to_f16(uint16_t *p, v16 v) {
    vst1q_u16(p, v8_to_f16(v.a, v.b));
    vst1q_u16(p + 8, v8_to_f16(v.c, v.d));
}
V16_INLINE int16x8_t v8_to_s16(float32x4_t low, float32x4_t high) {
    return vcombine_s16(vmovn_s32(vcvtnq_s32_f32(low)), vmovn_s32(vcvtnq_s32_f32(high)));
}
V16_INLINE void v16_to_i8(int8_t *p, v16 v) {
    vst1q_s8(p, vcombine_s8(vmovn_s16(v8_to_s16(v.a, v.b)), vmovn_s16(v8_to_s16(v.c, v.d))));
}
V16_INLINE float s_from_f16(uint16_t h) {
    __fp16 f;
    memcpy(&f, &h, sizeof f);
    return (float)f;
}
V16_INLINE uint16_t s_to_f16(float f) {
    __fp16 half = (__fp16)f;
    uint16_t h;
    memcpy(&h, &half, sizeof h);
    return h;
}

/* ---- 16 x 16 transpose, in squares of four ---- */

V16_INLINE float32x4_t v4_pairs(float32x4_t x, float32x4_t y, bool is_high) {
    float64x2_t a = vreinterpretq_f64_f32(x), b = vreinterpretq_f64_f32(y);
    return vreinterpretq_f32_f64(is_high ? vtrn2q_f64(a, b) : vtrn1q_f64(a, b));
}
V16_INLINE v16 v4_transpose(float32x4_t r0, float32x4_t r1, float32x4_t r2, float32x4_t r3) {
    float32x4_t even0 = vtrn1q_f32(r0, r1), odd0 = vtrn2q_f32(r0, r1);
    float32x4_t even2 = vtrn1q_f32(r2, r3), odd2 = vtrn2q_f32(r2, r3);
    return (v16){v4_pairs(even0, even2, false), v4_pairs(odd0, odd2, false),
                 v4_pairs(even0, even2, true), v4_pairs(odd0, odd2, true)};
}
/* Four columns of all rows, which become four rows. */
V16_INLINE void v16_put_columns(v16 *to, v16 s0, v16 s1, v16 s2, v16 s3) {
    to[0] = (v16){s0.a, s1.a, s2.a, s3.a};
    to[1] = (v16){s0.b, s1.b, s2.b, s3.b};
    to[2] = (v16){s0.c, s1.c, s2.c, s3.c};
    to[3] = (v16){s0.d, s1.d, s2.d, s3.d};
}
#define SQUARE(i, part) v4_transpose(r[i].part, r[(i) + 1].part, r[(i) + 2].part, r[(i) + 3].part)
#define COLUMNS(part)   SQUARE(0, part), SQUARE(4, part), SQUARE(8, part), SQUARE(12, part)
V16_INLINE void v16_transpose(v16 r[16]) {
    v16 t[16];
    v16_put_columns(t, COLUMNS(a));
    v16_put_columns(t + 4, COLUMNS(b));
    v16_put_columns(t + 8, COLUMNS(c));
    v16_put_columns(t + 12, COLUMNS(d));
    for (int i = 0; i < 16; i++) r[i] = t[i];
}
#undef SQUARE
#undef COLUMNS
