/* Panels: weights as the fast kernels want them.
 *
 * A matrix [N,K] is cut into panels of 16 rows (the last padded with zero rows); inside a panel the
 * values of one column lie side by side, so that a kernel's lane is an output row and every sum
 * runs over k in order. Whatever the file's format, a weight is fma(scale, q, min) with an exact
 * product: one rounding, as in the file's decoder.
 *
 * Quantised panels go in chunks of 32 columns: [scales][mins][q]. q goes in cells of 64 bytes, four
 * per row, so that a cell meets four 8-bit activations in one integer dot product per lane: four
 * columns (I8), or eight (U4: columns 0..3 in the low nibbles, 4..7 in the high ones). U5 and U6
 * are runs of such nibbles, each followed by a cell of what is above them: a run of 32 columns with
 * one bit of each, or of 16 with two. Byte j of a row has those of column 4 s + j from bit s (U5)
 * or 2 s (U6) on. Scales and mins: one of each per row per group of columns, either F16, or (K) an
 * 8-bit factor that a pair of F16 per row and 256 columns multiplies: those head every eighth chunk
 * ([d][dmin]). A [X,N,K] weight is X such matrices one after another, each padded by itself.
 *
 * kernels.h reads this layout; panel.c writes it. */
#ifndef RP_DEVICE_CPU_PANEL_H
#define RP_DEVICE_CPU_PANEL_H

#include "device/cpu/body.h"

enum { RP__PANEL_ROWS = 16, RP__PANEL_CHUNK = 32, RP__PANEL_SUPER = 256, RP__PANEL_CELL = 64 };

/* X(code, bits of q (0: plain), columns per group, two-level scales, stored mins, zero: min is
 * -zero * scale) */
#define RP__PANEL_TABLE(X)                                                                         \
    X(F32, 0, 32, 0, 0, 0)                                                                         \
    X(F16, 0, 32, 0, 0, 0)                                                                         \
    X(BF16, 0, 32, 0, 0, 0)                                                                        \
    X(U4_ZERO8, 4, 32, 0, 0, 8)       /* Q4_0 */                                                   \
    X(U4_MIN, 4, 32, 0, 1, 0)         /* Q4_1 */                                                   \
    X(U4_K32_MIN, 4, 32, 1, 1, 0)     /* Q4_K */                                                   \
    X(U4_K16_MIN, 4, 16, 1, 1, 0)     /* Q2_K */                                                   \
    X(U4_K16_ZERO4, 4, 16, 1, 0, 4)   /* Q3_K */                                                   \
    X(U5_ZERO16, 5, 32, 0, 0, 16)     /* Q5_0 */                                                   \
    X(U5_MIN, 5, 32, 0, 1, 0)         /* Q5_1 */                                                   \
    X(U5_K32_MIN, 5, 32, 1, 1, 0)     /* Q5_K */                                                   \
    X(U6_K16_ZERO32, 6, 16, 1, 0, 32) /* Q6_K */                                                   \
    X(I8, 8, 32, 0, 0, 0)             /* Q8_0, IQ4_NL */

typedef enum rp__panel_format {
#define RP_X(code, bits, group, is_k, has_min, zero) RP__PANEL_##code,
    RP__PANEL_TABLE(RP_X)
#undef RP_X
        RP__N_PANEL_FORMATS
} rp__panel_format;

typedef struct rp__panel_traits {
    uint8_t bits, group, is_k, has_min, zero;
} rp__panel_traits;

/* A row of the table; with a constant argument in an inlined kernel, constants. */
static inline __attribute__((always_inline)) rp__panel_traits
rp__panel_traits_of(rp__panel_format f) {
    switch (f) {
#define RP_X(code, bits, group, is_k, has_min, zero)                                               \
    case RP__PANEL_##code:                                                                         \
        return (rp__panel_traits){bits, group, is_k, has_min, zero};
        RP__PANEL_TABLE(RP_X)
#undef RP_X
    case RP__N_PANEL_FORMATS:
        break;
    }
    return (rp__panel_traits){0};
}

/* Bytes of the parts of a quantised chunk. */
static inline __attribute__((always_inline)) size_t rp__panel_scale_bytes(rp__panel_traits t) {
    return t.is_k ? (size_t)(RP__PANEL_CHUNK / t.group) * RP__PANEL_ROWS : RP__PANEL_ROWS * 2;
}
static inline __attribute__((always_inline)) size_t rp__panel_chunk_bytes(rp__panel_traits t) {
    return rp__panel_scale_bytes(t) * (1u + t.has_min) +
           (size_t)RP__PANEL_ROWS * RP__PANEL_CHUNK * t.bits / 8;
}
static inline __attribute__((always_inline)) size_t rp__panel_head_bytes(rp__panel_traits t) {
    return t.is_k ? RP__PANEL_ROWS * 2 * (1u + t.has_min) : 0;
}

/* Bits per weight above the nibbles, and the columns of a run that ends with a cell of them. */
static inline __attribute__((always_inline)) int rp__panel_upper_bits(rp__panel_traits t) {
    return t.bits < 8 ? t.bits - 4 : 0;
}
static inline __attribute__((always_inline)) int rp__panel_run(rp__panel_traits t) {
    int upper = rp__panel_upper_bits(t);
    return upper ? RP__PANEL_CHUNK / upper : RP__PANEL_CHUNK;
}

/* 32 columns of one row of a block format, taken apart as panels keep them: q is signed where bits
 * is 8. Scale of group g: head[0] as F16, in K formats times scale[g]; min likewise of head[1] and
 * min[g], or -zero times the scale. */
typedef struct rp__panel_piece {
    uint16_t head[2];
    int8_t scale[2], min[2];
    uint8_t q[RP__PANEL_CHUNK];
} rp__panel_piece;

/* Chunk `chunk` of a row as it is in the file. */
void rp__panel_take_piece(rp_dtype dtype, const uint8_t *row, int64_t chunk, rp__panel_piece *out);

rp__panel_format rp__panel_format_of(rp_dtype dtype);
size_t rp__panel_bytes_each(rp__panel_format f, int64_t k); /* bytes of one panel with k columns */
int64_t rp__panel_count(int64_t n);                         /* panels of a matrix with n rows */

/* True when the device keeps this weight in panels: two dimensions or more of a type that decodes
 * to F32. */
bool rp__panel_wants(const rp_tensor *desc);

/* Rows of x in one go of the fast matmuls, and what they need per worker for two panels: 256
 * decoded columns, scales and mins of 16 groups, sums of those rows. Sums of x per group and row
 * come on top. */
enum { RP__MATMUL_ROWS = 256, RP__MATMUL_SCRATCH = 2 * 16 * (256 + 2 * 16 + RP__MATMUL_ROWS) * 4 };

/* Rows of rounded activations in one go, and what they need per worker for two panels: 256 columns
 * of two bytes, scales and mins of 16 groups, sums of those rows, and a line. Factors come on top:
 * bytes that go with 32 columns of one row. */
enum {
    RP__Q8_ROWS = 264,
    RP__Q8_SCRATCH = 2 * 16 * (2 * 256 + 4 * (2 * 16 + RP__Q8_ROWS)) + 64,
    RP__PANEL_FACTORS = 20,
};

/* Rows of k numbers of 16 bits in one go, which a worker keeps beside: half of a second-level cache
 * is filled with less than all where they are long. A multiple of any tile's rows. */
static inline int64_t rp__panel_wide_rows(int64_t k) {
    enum { CACHE = 512 << 10, STEP = 12 };
    int64_t n = CACHE / (2 * k) / STEP * STEP;
    return n < STEP ? STEP : n > RP__Q8_ROWS ? RP__Q8_ROWS : n;
}

/* Scratch bytes per worker that the fast sets need for this op (part of rp__body_scratch). */
size_t rp__panel_scratch(const rp_op *op);

#endif
