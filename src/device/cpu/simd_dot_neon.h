/* simd_dot.h in the words of arm64. Part of it. Weights and activations are both signed there, so
 * nothing is biased; sums need no pairs, as products of two bytes are added to 32 bits at once. */

typedef struct w64 {
    uint8x16_t a, b, c, d; /* rows 0..3, 4..7, 8..11, 12..15 */
} w64;
typedef struct d16 {
    int32x4_t a, b, c, d;
} d16;

V16_INLINE w64 w64_load(const uint8_t *p) {
    return (w64){vld1q_u8(p), vld1q_u8(p + 16), vld1q_u8(p + 32), vld1q_u8(p + 48)};
}
V16_INLINE void w64_store(uint8_t *p, w64 c) {
    vst1q_u8(p, c.a), vst1q_u8(p + 16, c.b), vst1q_u8(p + 32, c.c), vst1q_u8(p + 48, c.d);
}
V16_INLINE w64 w64_low(w64 c) {
    const uint8x16_t mask = vdupq_n_u8(15);
    return (w64){vandq_u8(c.a, mask), vandq_u8(c.b, mask), vandq_u8(c.c, mask),
                 vandq_u8(c.d, mask)};
}
V16_INLINE w64 w64_high(w64 c) {
    return (w64){vshrq_n_u8(c.a, 4), vshrq_n_u8(c.b, 4), vshrq_n_u8(c.c, 4), vshrq_n_u8(c.d, 4)};
}
/* The shifts are C: those by a constant become the immediate kind. */
V16_INLINE uint8x16_t v4_add_upper(uint8x16_t c, uint8x16_t upper, int n, int shift) {
    upper = shift < 4 ? upper << (4 - shift) : upper >> (shift - 4);
    return vorrq_u8(c, vandq_u8(upper, vdupq_n_u8((uint8_t)(((1 << n) - 1) << 4))));
}
V16_INLINE w64 w64_add_upper(w64 c, w64 upper, int n, int shift) {
    return (w64){v4_add_upper(c.a, upper.a, n, shift), v4_add_upper(c.b, upper.b, n, shift),
                 v4_add_upper(c.c, upper.c, n, shift), v4_add_upper(c.d, upper.d, n, shift)};
}
V16_INLINE float32x4_t v4_unsigned_byte(uint8x16_t c, int j) {
    return vcvtq_f32_u32(vreinterpretq_u32_u8(c) >> 8 * j & 255);
}
V16_INLINE v16 w64_unsigned_byte(w64 c, int j) {
    return (v16){v4_unsigned_byte(c.a, j), v4_unsigned_byte(c.b, j), v4_unsigned_byte(c.c, j),
                 v4_unsigned_byte(c.d, j)};
}
V16_INLINE float32x4_t v4_signed_byte(uint8x16_t c, int j) {
    return vcvtq_f32_s32(vreinterpretq_s32_u8(c) << (24 - 8 * j) >> 24);
}
V16_INLINE v16 w64_signed_byte(w64 c, int j) {
    return (v16){v4_signed_byte(c.a, j), v4_signed_byte(c.b, j), v4_signed_byte(c.c, j),
                 v4_signed_byte(c.d, j)};
}
V16_INLINE d16 d16_set1(int32_t v) {
    int32x4_t q = vdupq_n_s32(v);
    return (d16){q, q, q, q};
}
V16_INLINE d16 d16_times_256(d16 d) {
    return (d16){vshlq_n_s32(d.a, 8), vshlq_n_s32(d.b, 8), vshlq_n_s32(d.c, 8),
                 vshlq_n_s32(d.d, 8)};
}
V16_INLINE d16 d16_add(d16 x, d16 y) {
    return (d16){vaddq_s32(x.a, y.a), vaddq_s32(x.b, y.b), vaddq_s32(x.c, y.c),
                 vaddq_s32(x.d, y.d)};
}
V16_INLINE v16 d16_to_v16(d16 d) {
    return (v16){vcvtq_f32_s32(d.a), vcvtq_f32_s32(d.b), vcvtq_f32_s32(d.c), vcvtq_f32_s32(d.d)};
}
V16_INLINE d16 dot_begin(d16 sum) {
    return sum;
}
V16_INLINE d16 dot_end(d16 sum, d16 now) {
    (void)sum;
    return now;
}
V16_INLINE int32x4_t v4_dot(int32x4_t sum, uint8x16_t weights, int8x16_t x) {
    int8x16_t w = vreinterpretq_s8_u8(weights);
#if defined(__ARM_FEATURE_DOTPROD)
    return vdotq_s32(sum, w, x);
#else
    int16x8_t low = vmull_s8(vget_low_s8(w), vget_low_s8(x)), high = vmull_high_s8(w, x);
    return vpadalq_s16(sum, vpaddq_s16(low, high));
#endif
}
V16_INLINE d16 dot_signed(d16 sum, w64 w, int32_t x) {
    int8x16_t all = vreinterpretq_s8_s32(vdupq_n_s32(x));
    return (d16){v4_dot(sum.a, w.a, all), v4_dot(sum.b, w.b, all), v4_dot(sum.c, w.c, all),
                 v4_dot(sum.d, w.d, all)};
}
V16_INLINE d16 dot_small(d16 sum, w64 w, int32_t x) {
    return dot_signed(sum, w, x);
}

/* ---- two rows of activations at a time ---- */

#if defined(__ARM_FEATURE_MATMUL_INT8)
#define DOT_TWO 1

/* Sums of sixteen rows with two of x: a register has those of weight rows 2 i and 2 i + 1, each
 * with both. */
typedef struct d16x2 {
    d16 low, high; /* weight rows 0..7, 8..15 */
} d16x2;

/* Two cells as dot_two wants them: a register has eight columns of two rows. */
V16_INLINE uint8x16_t two_rows_of(uint8x16_t x, uint8x16_t y, bool is_high) {
    uint32x4_t a = vreinterpretq_u32_u8(x), b = vreinterpretq_u32_u8(y);
    return vreinterpretq_u8_u32(is_high ? vzip2q_u32(a, b) : vzip1q_u32(a, b));
}
V16_INLINE void w64_store_two(uint8_t *p, w64 x, w64 y) {
    w64_store(p, (w64){two_rows_of(x.a, y.a, false), two_rows_of(x.a, y.a, true),
                       two_rows_of(x.b, y.b, false), two_rows_of(x.b, y.b, true)});
    w64_store(p + 64, (w64){two_rows_of(x.c, y.c, false), two_rows_of(x.c, y.c, true),
                            two_rows_of(x.d, y.d, false), two_rows_of(x.d, y.d, true)});
}
V16_INLINE d16x2 two_set1(int32_t first, int32_t second) {
    int32x2_t both = vset_lane_s32(second, vdup_n_s32(first), 1);
    int32x4_t q = vcombine_s32(both, both);
    return (d16x2){{q, q, q, q}, {q, q, q, q}};
}
V16_INLINE d16x2 two_add_times_256(d16x2 x, d16x2 y) {
    return (d16x2){d16_add(x.low, d16_times_256(y.low)), d16_add(x.high, d16_times_256(y.high))};
}
V16_INLINE int32x4_t v4_dot_two(int32x4_t sum, uint8x16_t w, int8x16_t x) {
    return vmmlaq_s32(sum, vreinterpretq_s8_u8(w), x);
}
/* The two cells at p, and eight bytes of either row of x. */
V16_INLINE d16x2 dot_two(d16x2 sum, const uint8_t *p, const int8_t *first, const int8_t *second) {
    w64 low = w64_load(p), high = w64_load(p + 64);
    int8x16_t x = vcombine_s8(vld1_s8(first), vld1_s8(second));
    return (d16x2){{v4_dot_two(sum.low.a, low.a, x), v4_dot_two(sum.low.b, low.b, x),
                    v4_dot_two(sum.low.c, low.c, x), v4_dot_two(sum.low.d, low.d, x)},
                   {v4_dot_two(sum.high.a, high.a, x), v4_dot_two(sum.high.b, high.b, x),
                    v4_dot_two(sum.high.c, high.c, x), v4_dot_two(sum.high.d, high.d, x)}};
}
V16_INLINE d16 two_first(d16x2 sum) {
    return (d16){vuzp1q_s32(sum.low.a, sum.low.b), vuzp1q_s32(sum.low.c, sum.low.d),
                 vuzp1q_s32(sum.high.a, sum.high.b), vuzp1q_s32(sum.high.c, sum.high.d)};
}
V16_INLINE d16 two_second(d16x2 sum) {
    return (d16){vuzp2q_s32(sum.low.a, sum.low.b), vuzp2q_s32(sum.low.c, sum.low.d),
                 vuzp2q_s32(sum.high.a, sum.high.b), vuzp2q_s32(sum.high.c, sum.high.d)};
}
#endif
