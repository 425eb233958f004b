/* Integer dot products, sixteen lanes at a time: a cell of 64 bytes of weights, four per lane,
 * against four 8-bit activations. Beside simd.h, in the same manner; exact, so that every
 * instruction set gives the same sums.
 *
 * |x| <= 127 throughout: numbers of two such digits take two sums, which d16_times_256 puts
 * together. Products are added between dot_begin and dot_end, which give and take the
 * sums: cells of dot_small, weights of 0..63, or of dot_signed, signed bytes after w64_biased.
 * Where DOT_PAIRS is set they gather meanwhile in pairs of 16 bits, which hold so many: the sizes
 * of the weights of all cells together may be 129 (129 * 2 * 127 < 2^15). */
#ifndef RP_DEVICE_CPU_SIMD_DOT_H
#define RP_DEVICE_CPU_SIMD_DOT_H

#include "device/cpu/simd.h"

/* What w64_biased adds to every weight: sums are too large by this times the sum of x. */
#if defined(__AVX512VNNI__) || defined(__AVXVNNI__)
#define DOT_VNNI 1
enum { DOT_BIAS = 128 };
#else
enum { DOT_BIAS = 0 };
#endif

V16_INLINE int32_t four_bytes(const int8_t *p) {
    int32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

#if (defined(V16_AVX512) || defined(V16_AVX2)) && !defined(DOT_VNNI)
enum { DOT_PAIRS = 1 };
#else
enum { DOT_PAIRS = 0 };
#endif

/* Where compilers else load what many cells need before the first of them, most of it to the stack.
 */
#if defined(V16_NEON)
enum { DOT_IN_STEPS = 1 };
#else
enum { DOT_IN_STEPS = 0 };
#endif

/* Where DOT_WIDE is defined, tiles multiply numbers of two digits whole instead: dot_wide takes
 * cells of 64 bytes, two weights of 16 bits per lane (w64_wide makes them), against two 16-bit
 * numbers. An instruction then does as much as one for bytes, and pairs need no gathering. */
#if (defined(V16_AVX512) || defined(V16_AVX2)) && !defined(DOT_VNNI)
#define DOT_WIDE 1
#endif

/* Keeps the compiler from holding sums in registers across groups, which are wanted for parts. */
#define MEMORY_CHANGES() __asm__ volatile("" ::: "memory")

#if defined(V16_AVX512)

typedef __m512i w64;
typedef __m512i d16; /* sixteen sums */

V16_INLINE w64 w64_load(const uint8_t *p) {
    return _mm512_loadu_si512(p);
}
V16_INLINE void w64_store(uint8_t *p, w64 c) {
    _mm512_storeu_si512(p, c);
}
V16_INLINE w64 w64_low(w64 c) {
    return _mm512_and_si512(c, _mm512_set1_epi8(15));
}
V16_INLINE w64 w64_high(w64 c) {
    return _mm512_and_si512(_mm512_srli_epi16(c, 4), _mm512_set1_epi8(15));
}
/* To nibbles, as bits 4 and up, the n bits from `shift` on of every byte of `upper`. */
V16_INLINE w64 w64_add_upper(w64 c, w64 upper, int n, int shift) {
    const __m512i mask = _mm512_set1_epi8((char)(((1 << n) - 1) << 4));
    if (shift < 4) upper = _mm512_slli_epi16(upper, (unsigned)(4 - shift));
    if (shift > 4) upper = _mm512_srli_epi16(upper, (unsigned)(shift - 4));
    return _mm512_or_si512(c, _mm512_and_si512(upper, mask));
}
/* Byte j of every lane as a number. One port shifts, another shuffles: some of each. */
V16_INLINE __m512i byte_to(__m512i c, int from, int to) {
    const int32_t at = (int32_t)((0x80808080u & ~(255u << 8 * to)) | (unsigned)from << 8 * to);
    const int32_t next = 4 << 8 * to;
    return _mm512_shuffle_epi8(c, _mm512_set4_epi32(at + 3 * next, at + 2 * next, at + next, at));
}
V16_INLINE v16 w64_unsigned_byte(w64 c, int j) {
    if (j == 0) return _mm512_cvtepi32_ps(_mm512_and_si512(c, _mm512_set1_epi32(255)));
    return _mm512_cvtepi32_ps(j < 3 ? byte_to(c, j, 0) : _mm512_srli_epi32(c, 24));
}
V16_INLINE v16 w64_signed_byte(w64 c, int j) {
    return _mm512_cvtepi32_ps(_mm512_srai_epi32(j < 3 ? byte_to(c, j, 3) : c, 24));
}
V16_INLINE d16 d16_set1(int32_t v) {
    return _mm512_set1_epi32(v);
}
V16_INLINE d16 d16_times_256(d16 d) {
    return _mm512_slli_epi32(d, 8);
}
V16_INLINE d16 d16_add(d16 x, d16 y) {
    return _mm512_add_epi32(x, y);
}
V16_INLINE v16 d16_to_v16(d16 d) {
    return _mm512_cvtepi32_ps(d);
}
#if defined(DOT_VNNI)
/* In a register that nobody shares: equal starts else become copies made later, in the midst of the
 * products. */
V16_INLINE d16 dot_begin(d16 sum) {
    __asm__("" : "+v"(sum));
    return sum;
}
V16_INLINE d16 dot_end(d16 sum, d16 now) {
    (void)sum;
    return now;
}
V16_INLINE d16 dot_small(d16 sum, w64 w, int32_t x) {
    /* As an instruction: around the builtin GCC copies every sum once per cell. */
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(w), "v"(_mm512_set1_epi32(x)));
    return sum;
}
V16_INLINE w64 w64_biased(w64 c) {
    return _mm512_xor_si512(c, _mm512_set1_epi8((char)0x80));
}
V16_INLINE d16 dot_signed(d16 sum, w64 w, int32_t x) {
    return dot_small(sum, w, x);
}
#else
V16_INLINE d16 dot_begin(d16 sum) {
    (void)sum;
    return _mm512_setzero_si512();
}
V16_INLINE d16 dot_end(d16 sum, d16 pairs) {
    return _mm512_add_epi32(sum, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
}
/* Columns 2 half and 2 half + 1 of a cell of signed bytes. */
V16_INLINE w64 w64_wide(w64 c, int half) {
    const int32_t at = half ? 0x03800280 : 0x01800080; /* to the upper bytes */
    const __m512i each = _mm512_set4_epi32(at + 0x0C000C00, at + 0x08000800, at + 0x04000400, at);
    return _mm512_srai_epi16(_mm512_shuffle_epi8(c, each), 8);
}
V16_INLINE d16 dot_wide(d16 sum, w64 w, int32_t x) {
    return _mm512_add_epi32(sum, _mm512_madd_epi16(w, _mm512_set1_epi32(x)));
}
V16_INLINE d16 dot_small(d16 pairs, w64 w, int32_t x) {
    return _mm512_add_epi16(pairs, _mm512_maddubs_epi16(w, _mm512_set1_epi32(x)));
}
/* Signs move from w to x. */
V16_INLINE d16 dot_signed(d16 pairs, w64 w, int32_t x) {
    __m512i all = _mm512_set1_epi32(x), zero = _mm512_setzero_si512();
    __m512i moved = _mm512_mask_sub_epi8(all, _mm512_movepi8_mask(w), zero, all);
    return _mm512_add_epi16(pairs, _mm512_maddubs_epi16(_mm512_abs_epi8(w), moved));
}
#endif

#elif defined(V16_AVX2)

typedef struct w64 {
    __m256i a, b;
} w64;
typedef w64 d16;

V16_INLINE w64 w64_load(const uint8_t *p) {
    return (w64){_mm256_loadu_si256((const __m256i *)p),
                 _mm256_loadu_si256((const __m256i *)(p + 32))};
}
V16_INLINE void w64_store(uint8_t *p, w64 c) {
    _mm256_storeu_si256((__m256i *)p, c.a);
    _mm256_storeu_si256((__m256i *)(p + 32), c.b);
}
V16_INLINE w64 w64_low(w64 c) {
    const __m256i mask = _mm256_set1_epi8(15);
    return (w64){_mm256_and_si256(c.a, mask), _mm256_and_si256(c.b, mask)};
}
V16_INLINE w64 w64_high(w64 c) {
    return w64_low((w64){_mm256_srli_epi16(c.a, 4), _mm256_srli_epi16(c.b, 4)});
}
V16_INLINE __m256i add_upper_half(__m256i c, __m256i upper, int n, int shift) {
    const __m256i mask = _mm256_set1_epi8((char)(((1 << n) - 1) << 4));
    if (shift < 4) upper = _mm256_slli_epi16(upper, 4 - shift);
    if (shift > 4) upper = _mm256_srli_epi16(upper, shift - 4);
    return _mm256_or_si256(c, _mm256_and_si256(upper, mask));
}
V16_INLINE w64 w64_add_upper(w64 c, w64 upper, int n, int shift) {
    return (w64){add_upper_half(c.a, upper.a, n, shift), add_upper_half(c.b, upper.b, n, shift)};
}
V16_INLINE __m256 unsigned_byte_of(__m256i c, int j) {
    return _mm256_cvtepi32_ps(
        _mm256_and_si256(_mm256_srli_epi32(c, 8 * j), _mm256_set1_epi32(255)));
}
V16_INLINE __m256 signed_byte_of(__m256i c, int j) {
    return _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(c, 24 - 8 * j), 24));
}
V16_INLINE v16 w64_unsigned_byte(w64 c, int j) {
    return (v16){unsigned_byte_of(c.a, j), unsigned_byte_of(c.b, j)};
}
V16_INLINE v16 w64_signed_byte(w64 c, int j) {
    return (v16){signed_byte_of(c.a, j), signed_byte_of(c.b, j)};
}
V16_INLINE d16 d16_set1(int32_t v) {
    return (d16){_mm256_set1_epi32(v), _mm256_set1_epi32(v)};
}
V16_INLINE d16 d16_times_256(d16 d) {
    return (d16){_mm256_slli_epi32(d.a, 8), _mm256_slli_epi32(d.b, 8)};
}
V16_INLINE d16 d16_add(d16 x, d16 y) {
    return (d16){_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)};
}
V16_INLINE v16 d16_to_v16(d16 d) {
    return (v16){_mm256_cvtepi32_ps(d.a), _mm256_cvtepi32_ps(d.b)};
}
#if defined(DOT_VNNI)
V16_INLINE d16 dot_begin(d16 sum) {
    __asm__("" : "+x"(sum.a), "+x"(sum.b));
    return sum;
}
V16_INLINE d16 dot_end(d16 sum, d16 now) {
    (void)sum;
    return now;
}
V16_INLINE d16 dot_small(d16 sum, w64 w, int32_t x) {
    __m256i all = _mm256_set1_epi32(x);
    __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum.a) : "x"(w.a), "x"(all));
    __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum.b) : "x"(w.b), "x"(all));
    return sum;
}
V16_INLINE w64 w64_biased(w64 c) {
    const __m256i bias = _mm256_set1_epi8((char)0x80);
    return (w64){_mm256_xor_si256(c.a, bias), _mm256_xor_si256(c.b, bias)};
}
V16_INLINE d16 dot_signed(d16 sum, w64 w, int32_t x) {
    return dot_small(sum, w, x);
}
#else
V16_INLINE d16 dot_begin(d16 sum) {
    (void)sum;
    return (d16){_mm256_setzero_si256(), _mm256_setzero_si256()};
}
V16_INLINE d16 dot_end(d16 sum, d16 pairs) {
    const __m256i one = _mm256_set1_epi16(1);
    return (d16){_mm256_add_epi32(sum.a, _mm256_madd_epi16(pairs.a, one)),
                 _mm256_add_epi32(sum.b, _mm256_madd_epi16(pairs.b, one))};
}
V16_INLINE w64 w64_wide(w64 c, int half) {
    const int32_t at = half ? 0x03800280 : 0x01800080; /* to the upper bytes */
    const __m256i each =
        _mm256_set_epi32(at + 0x0C000C00, at + 0x08000800, at + 0x04000400, at, at + 0x0C000C00,
                         at + 0x08000800, at + 0x04000400, at);
    return (w64){_mm256_srai_epi16(_mm256_shuffle_epi8(c.a, each), 8),
                 _mm256_srai_epi16(_mm256_shuffle_epi8(c.b, each), 8)};
}
V16_INLINE d16 dot_wide(d16 sum, w64 w, int32_t x) {
    __m256i all = _mm256_set1_epi32(x);
    return (d16){_mm256_add_epi32(sum.a, _mm256_madd_epi16(w.a, all)),
                 _mm256_add_epi32(sum.b, _mm256_madd_epi16(w.b, all))};
}
V16_INLINE d16 dot_small(d16 pairs, w64 w, int32_t x) {
    __m256i all = _mm256_set1_epi32(x);
    return (d16){_mm256_add_epi16(pairs.a, _mm256_maddubs_epi16(w.a, all)),
                 _mm256_add_epi16(pairs.b, _mm256_maddubs_epi16(w.b, all))};
}
/* Signs move from w to x. */
V16_INLINE __m256i pairs_of_signed(__m256i w, __m256i x) {
    return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
}
V16_INLINE d16 dot_signed(d16 pairs, w64 w, int32_t x) {
    __m256i all = _mm256_set1_epi32(x);
    return (d16){_mm256_add_epi16(pairs.a, pairs_of_signed(w.a, all)),
                 _mm256_add_epi16(pairs.b, pairs_of_signed(w.b, all))};
}
#endif

#elif defined(V16_NEON)

#include "device/cpu/simd_dot_neon.h"

#else

typedef uint8_t w64 __attribute__((vector_size(64)));
typedef v16i d16;
typedef int16_t v32h __attribute__((vector_size(64)));

V16_INLINE w64 w64_load(const uint8_t *p) {
    w64 c;
    memcpy(&c, p, sizeof c);
    return c;
}
V16_INLINE void w64_store(uint8_t *p, w64 c) {
    memcpy(p, &c, sizeof c);
}
V16_INLINE w64 w64_low(w64 c) {
    return c & 15;
}
V16_INLINE w64 w64_high(w64 c) {
    return c >> 4;
}
V16_INLINE w64 w64_add_upper(w64 c, w64 upper, int n, int shift) {
    return c | (w64)((upper >> shift & (uint8_t)((1 << n) - 1)) << 4);
}
V16_INLINE v16 w64_unsigned_byte(w64 c, int j) {
    return __builtin_convertvector((v16i)c >> 8 * j & 255, v16);
}
V16_INLINE v16 w64_signed_byte(w64 c, int j) {
    return __builtin_convertvector((v16i)c << (24 - 8 * j) >> 24, v16);
}
V16_INLINE d16 d16_set1(int32_t v) {
    return (d16){v, v, v, v, v, v, v, v, v, v, v, v, v, v, v, v};
}
V16_INLINE d16 dot_begin(d16 sum) {
    return sum;
}
V16_INLINE d16 dot_end(d16 sum, d16 now) {
    (void)sum;
    return now;
}
V16_INLINE d16 d16_times_256(d16 d) {
    return d * 256;
}
V16_INLINE d16 d16_add(d16 x, d16 y) {
    return x + y;
}
V16_INLINE v16 d16_to_v16(d16 d) {
    return __builtin_convertvector(d, v16);
}
/* Bytes 0 and 2 of each lane, and 1 and 3, as halves of the lane: products of two bytes and sums of
 * two such fit 16 bits, for which every machine has a multiplication. */
V16_INLINE d16 dot_signed(d16 sum, w64 w, int32_t x) {
    v32h odd = (v32h)w >> 8, even = (v32h)((v16i)w << 8) >> 8;
    v32h x_odd = (v32h)d16_set1(x) >> 8, x_even = (v32h)(d16_set1(x) << 8) >> 8;
    v16i pairs = (v16i)(odd * x_odd + even * x_even);
    return sum + (pairs >> 16) + ((pairs << 16) >> 16);
}
V16_INLINE d16 dot_small(d16 sum, w64 w, int32_t x) {
    return dot_signed(sum, w, x);
}

#endif

#if !defined(DOT_VNNI)
V16_INLINE w64 w64_biased(w64 c) {
    return c;
}
#endif

/* Two cells that tiles will meet one after the other; with DOT_TWO in an order of their own. */
#if !defined(DOT_TWO)
V16_INLINE void w64_store_two(uint8_t *p, w64 x, w64 y) {
    w64_store(p, x);
    w64_store(p + 64, y);
}
#endif

#endif
