#include "device/cpu/panel.h"

#include <string.h>

#include "base/fail.h"
#include "device/op.h"
#include "tensor/dtype.h"
#include "tensor/view.h"

rp__panel_format rp__panel_format_of(rp_dtype dtype) {
    switch (dtype) {
    case RP_F16:
        return RP__PANEL_F16;
    case RP_BF16:
        return RP__PANEL_BF16;
    case RP_Q4_0:
        return RP__PANEL_U4_ZERO8;
    case RP_Q4_1:
        return RP__PANEL_U4_MIN;
    case RP_Q5_0:
        return RP__PANEL_U5_ZERO16;
    case RP_Q5_1:
        return RP__PANEL_U5_MIN;
    case RP_Q8_0:
    case RP_IQ4_NL:
        return RP__PANEL_I8;
    case RP_Q2_K:
        return RP__PANEL_U4_K16_MIN;
    case RP_Q3_K:
        return RP__PANEL_U4_K16_ZERO4;
    case RP_Q4_K:
        return RP__PANEL_U4_K32_MIN;
    case RP_Q5_K:
        return RP__PANEL_U5_K32_MIN;
    case RP_Q6_K:
        return RP__PANEL_U6_K16_ZERO32;
    default:
        return RP__PANEL_F32; /* every other type decodes to F32 values */
    }
}

static size_t plain_bytes(rp__panel_format f) {
    return f == RP__PANEL_F32 ? 4 : 2;
}

size_t rp__panel_bytes_each(rp__panel_format f, int64_t k) {
    rp__panel_traits t = rp__panel_traits_of(f);
    if (!t.bits) return (size_t)k * RP__PANEL_ROWS * plain_bytes(f);
    size_t n_chunks = (size_t)k / RP__PANEL_CHUNK;
    size_t n_heads = (size_t)k / RP__PANEL_SUPER;
    return n_chunks * rp__panel_chunk_bytes(t) + n_heads * rp__panel_head_bytes(t);
}

int64_t rp__panel_count(int64_t n) {
    return (n + RP__PANEL_ROWS - 1) / RP__PANEL_ROWS;
}

bool rp__panel_wants(const rp_tensor *desc) {
    return desc->n_dims >= 2;
}

/* A weight as X matrices of N rows and K columns. */
typedef struct shape {
    int64_t x, n, k;
} shape;

static shape shape_of(const rp_tensor *w) {
    shape s = {1, w->dim[w->n_dims - 2], w->dim[w->n_dims - 1]};
    for (int i = 0; i + 2 < w->n_dims; i++) s.x *= w->dim[i];
    return s;
}

size_t rp__panel_bytes(const rp_tensor *desc) {
    shape s = shape_of(desc);
    return (size_t)s.x * (size_t)rp__panel_count(s.n) *
           rp__panel_bytes_each(rp__panel_format_of(desc->dtype), s.k);
}

int64_t rp__panel_rows(void) {
    return RP__PANEL_ROWS;
}

/* ---- taking file blocks apart: 32 columns of one row ---- */

typedef rp__panel_piece piece;

/* Inlined where the format is a constant: loops of a few constant turns become straight lines. */
#define INSTANCE static inline __attribute__((always_inline))

static uint16_t u16_at(const uint8_t *p) {
    return (uint16_t)(p[0] | p[1] << 8);
}

/* Eight bytes at a time, no byte's bits reaching the next: loading a model is mostly this. */
static uint64_t eight_at(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static void put_eight(uint8_t *p, uint64_t v) {
    memcpy(p, &v, sizeof v);
}

/* Of each byte the lowest bits after a shift to the right. */
static uint64_t each_four(uint64_t v, int shift) {
    return v >> shift & 0x0F0F0F0F0F0F0F0F;
}
static uint64_t each_two(uint64_t v, int shift) {
    return v >> shift & 0x0303030303030303;
}
static uint64_t each_one(uint64_t v, int shift) {
    return v >> shift & 0x0101010101010101;
}

static void low_high_nibbles(const uint8_t *qs, uint8_t *q) {
    for (int i = 0; i < 16; i += 8) {
        put_eight(q + i, each_four(eight_at(qs + i), 0));
        put_eight(q + i + 16, each_four(eight_at(qs + i), 4));
    }
}

static void add_fifth_bits(const uint8_t *qh, uint8_t *q) {
    for (int i = 0; i < 32; i++) q[i] |= (uint8_t)((qh[i / 8] >> (i % 8) & 1) << 4);
}

static void take_q4_0(const uint8_t *b, piece *out) {
    out->head[0] = u16_at(b);
    low_high_nibbles(b + 2, out->q);
}

static void take_q4_1(const uint8_t *b, piece *out) {
    out->head[0] = u16_at(b), out->head[1] = u16_at(b + 2);
    low_high_nibbles(b + 4, out->q);
}

static void take_q5_0(const uint8_t *b, piece *out) {
    out->head[0] = u16_at(b);
    low_high_nibbles(b + 6, out->q);
    add_fifth_bits(b + 2, out->q);
}

static void take_q5_1(const uint8_t *b, piece *out) {
    out->head[0] = u16_at(b), out->head[1] = u16_at(b + 2);
    low_high_nibbles(b + 8, out->q);
    add_fifth_bits(b + 4, out->q);
}

static void take_q8_0(const uint8_t *b, piece *out) {
    out->head[0] = u16_at(b);
    memcpy(out->q, b + 2, 32);
}

static void take_iq4_nl(const uint8_t *b, piece *out) {
    static const int8_t levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                      1,    13,   25,  38,  53,  69,  89,  113};
    out->head[0] = u16_at(b);
    low_high_nibbles(b + 2, out->q);
    for (int i = 0; i < 32; i++) out->q[i] = (uint8_t)levels[out->q[i]];
}

/* The K formats below: chunk c (0..7) of a block of 256. A stored min is subtracted, so dmin
 * changes sign here. */

static void take_q2_k(const uint8_t *b, int c, piece *out) {
    out->head[0] = u16_at(b + 80), out->head[1] = u16_at(b + 82) ^ 0x8000;
    for (int g = 0; g < 2; g++) {
        out->scale[g] = b[2 * c + g] & 15;
        out->min[g] = (int8_t)(b[2 * c + g] >> 4);
    }
    const uint8_t *qs = b + 16 + c / 4 * 32;
    for (int i = 0; i < 32; i += 8) put_eight(out->q + i, each_two(eight_at(qs + i), c % 4 * 2));
}

static void take_q3_k(const uint8_t *b, int c, piece *out) {
    const uint8_t *hmask = b, *qs = b + 32 + c / 4 * 32, *s = b + 96;
    out->head[0] = u16_at(b + 108);
    for (int i = 0; i < 2; i++) {
        int g = 2 * c + i;
        int low = g < 8 ? s[g] & 15 : s[g - 8] >> 4;
        int high = s[8 + g % 4] >> (g / 4 * 2) & 3;
        out->scale[i] = (int8_t)((low | high << 4) - 32);
    }
    for (int i = 0; i < 32; i += 8)
        put_eight(out->q + i, each_two(eight_at(qs + i), c % 4 * 2) |
                                  each_one(eight_at(hmask + i), c) << 2);
}

static void take_k_scale_min(const uint8_t *b, int c, piece *out) {
    const uint8_t *s = b + 4;
    out->head[0] = u16_at(b), out->head[1] = u16_at(b + 2) ^ 0x8000;
    if (c < 4) {
        out->scale[0] = s[c] & 63;
        out->min[0] = s[c + 4] & 63;
    } else {
        out->scale[0] = (int8_t)((s[c + 4] & 15) | (s[c - 4] >> 6) << 4);
        out->min[0] = (int8_t)(s[c + 4] >> 4 | (s[c] >> 6) << 4);
    }
}

static void take_q4_k(const uint8_t *b, int c, piece *out) {
    take_k_scale_min(b, c, out);
    const uint8_t *qs = b + 16 + c / 2 * 32;
    for (int i = 0; i < 32; i += 8) put_eight(out->q + i, each_four(eight_at(qs + i), c % 2 * 4));
}

static void take_q5_k(const uint8_t *b, int c, piece *out) {
    take_k_scale_min(b, c, out);
    const uint8_t *qh = b + 16, *qs = b + 48 + c / 2 * 32;
    for (int i = 0; i < 32; i += 8)
        put_eight(out->q + i, each_four(eight_at(qs + i), c % 2 * 4) |
                                  each_one(eight_at(qh + i), c) << 4);
}

static void take_q6_k(const uint8_t *b, int c, piece *out) {
    int half = c / 4, quarter = c % 4;
    const uint8_t *ql = b + half * 64 + quarter % 2 * 32, *qh = b + 128 + half * 32;
    out->head[0] = u16_at(b + 208);
    for (int g = 0; g < 2; g++) out->scale[g] = (int8_t)b[192 + 2 * c + g];
    for (int i = 0; i < 32; i += 8)
        put_eight(out->q + i, each_four(eight_at(ql + i), quarter / 2 * 4) |
                                  each_two(eight_at(qh + i), quarter * 2) << 4);
}

INSTANCE void take_piece(rp_dtype dtype, size_t bytes, const uint8_t *row, int64_t chunk,
                         piece *out) {
    const uint8_t *block = row + (size_t)chunk * bytes;       /* of 32 */
    const uint8_t *super = row + (size_t)(chunk / 8) * bytes; /* of 256 */
    int c = (int)(chunk % 8);
    switch (dtype) {
    case RP_Q4_0:
        take_q4_0(block, out);
        break;
    case RP_Q4_1:
        take_q4_1(block, out);
        break;
    case RP_Q5_0:
        take_q5_0(block, out);
        break;
    case RP_Q5_1:
        take_q5_1(block, out);
        break;
    case RP_Q8_0:
        take_q8_0(block, out);
        break;
    case RP_IQ4_NL:
        take_iq4_nl(block, out);
        break;
    case RP_Q2_K:
        take_q2_k(super, c, out);
        break;
    case RP_Q3_K:
        take_q3_k(super, c, out);
        break;
    case RP_Q4_K:
        take_q4_k(super, c, out);
        break;
    case RP_Q5_K:
        take_q5_k(super, c, out);
        break;
    case RP_Q6_K:
        take_q6_k(super, c, out);
        break;
    default:
        rp__panic(__FILE__, __LINE__, "dtype", "%s is not a block format", rp__dtype_name(dtype));
    }
}

void rp__panel_take_piece(rp_dtype dtype, const uint8_t *row, int64_t chunk, piece *out) {
    take_piece(dtype, rp__dtype_block_bytes(dtype), row, chunk, out);
}

/* ---- putting one row into its lane ---- */

static void put_u16(uint8_t *p, int lane, uint16_t v) {
    memcpy(p + 2 * lane, &v, 2);
}

INSTANCE void put_heads(rp__panel_traits t, uint8_t *p, int lane, const piece *in) {
    put_u16(p, lane, in->head[0]);
    if (t.has_min) put_u16(p + RP__PANEL_ROWS * 2, lane, in->head[1]);
}

static uint32_t four_at(const uint8_t *p) {
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

INSTANCE void put_bytes(uint8_t *q, const uint8_t *in) {
    for (int i = 0; i < RP__PANEL_CHUNK; i += 4) memcpy(q + i / 4 * RP__PANEL_CELL, in + i, 4);
}

INSTANCE void put_nibbles(rp__panel_traits t, uint8_t *q, const uint8_t *in) {
    const int upper = rp__panel_upper_bits(t), run = rp__panel_run(t);
    for (int from = 0; from < RP__PANEL_CHUNK; from += run) {
        uint32_t above = 0;
        for (int i = 0; i < run; i += 8, q += RP__PANEL_CELL) {
            uint32_t a = four_at(in + from + i), b = four_at(in + from + i + 4);
            uint32_t cell = (a & 0x0F0F0F0F) | (b & 0x0F0F0F0F) << 4;
            memcpy(q, &cell, 4);
            above |= (a >> 4 & 0x0F0F0F0F) << upper * (i / 4);
            above |= (b >> 4 & 0x0F0F0F0F) << upper * (i / 4 + 1);
        }
        if (!upper) continue;
        memcpy(q, &above, 4);
        q += RP__PANEL_CELL;
    }
}

INSTANCE void put_piece(rp__panel_traits t, uint8_t *p, int lane, const piece *in) {
    size_t part = rp__panel_scale_bytes(t);
    if (t.is_k) {
        for (int g = 0; g < RP__PANEL_CHUNK / t.group; g++) {
            p[g * RP__PANEL_ROWS + lane] = (uint8_t)in->scale[g];
            if (t.has_min) p[part + (size_t)(g * RP__PANEL_ROWS + lane)] = (uint8_t)in->min[g];
        }
    } else {
        put_heads(t, p, lane, in);
    }
    uint8_t *q = p + part * (1u + t.has_min) + 4 * lane;
    if (t.bits == 8)
        put_bytes(q, in->q);
    else
        put_nibbles(t, q, in->q);
}

INSTANCE void write_lane_as(rp_dtype dtype, rp__panel_traits t, uint8_t *panel, int lane, int64_t k,
                            const uint8_t *row) {
    const size_t bytes = rp__dtype_block_bytes(dtype);
    piece in = {0}; /* a zero piece pads: every value is 0 */
    for (int64_t c = 0; c < k / RP__PANEL_CHUNK; c++) {
        if (row) take_piece(dtype, bytes, row, c, &in);
        if (t.is_k && c % 8 == 0) {
            put_heads(t, panel, lane, &in);
            panel += rp__panel_head_bytes(t);
        }
        put_piece(t, panel, lane, &in);
        panel += rp__panel_chunk_bytes(t);
    }
}

/* The formats that most files have get loops of their own. */
static void write_lane_blocks(rp_dtype dtype, uint8_t *panel, int lane, int64_t k,
                              const uint8_t *row) {
    switch (dtype) {
#define RP_X(type, code)                                                                           \
    case RP_##type:                                                                                \
        write_lane_as(RP_##type, rp__panel_traits_of(RP__PANEL_##code), panel, lane, k, row);      \
        break;
        RP_X(Q4_0, U4_ZERO8)
        RP_X(Q4_1, U4_MIN)
        RP_X(Q8_0, I8)
        RP_X(Q4_K, U4_K32_MIN)
        RP_X(Q6_K, U6_K16_ZERO32)
#undef RP_X
    default:
        write_lane_as(dtype, rp__panel_traits_of(rp__panel_format_of(dtype)), panel, lane, k, row);
        break;
    }
}

static void write_lane_16(uint16_t *panel, int lane, int64_t from, int64_t k, const uint8_t *row) {
    for (int64_t i = from; i < k; i++)
        panel[i * RP__PANEL_ROWS + lane] = row ? u16_at(row + 2 * i) : 0;
}

typedef uint16_t u16x8 __attribute__((vector_size(16)));

/* r[i] lane j becomes r[j] lane i: three times, halves are put together in turns. */
static void turn_square(u16x8 r[8]) {
    for (int step = 0; step < 3; step++) {
        u16x8 t[8];
        for (int i = 0; i < 4; i++) {
            t[2 * i] = __builtin_shufflevector(r[i], r[i + 4], 0, 8, 1, 9, 2, 10, 3, 11);
            t[2 * i + 1] = __builtin_shufflevector(r[i], r[i + 4], 4, 12, 5, 13, 6, 14, 7, 15);
        }
        memcpy(r, t, sizeof t);
    }
}

/* All rows of a panel at once, in squares of eight rows and columns: the first k / 8 * 8 columns. */
static void write_squares_16(uint16_t *panel, int64_t k, const uint8_t *rows) {
    const size_t row_bytes = (size_t)k * 2;
    for (int64_t i = 0; i + 8 <= k; i += 8)
        for (int half = 0; half < RP__PANEL_ROWS; half += 8) {
            u16x8 r[8];
            for (int j = 0; j < 8; j++)
                memcpy(&r[j], rows + (size_t)(half + j) * row_bytes + 2 * i, sizeof r[j]);
            turn_square(r);
            for (int j = 0; j < 8; j++)
                memcpy(panel + (i + j) * RP__PANEL_ROWS + half, &r[j], sizeof r[j]);
        }
}

static void write_lane_f32(rp_dtype dtype, float *panel, int lane, int64_t k, const uint8_t *row) {
    enum { STEP = 64 };
    float f[STEP] = {0};
    size_t bytes = rp__dtype_block_bytes(dtype);
    for (int64_t i = 0; i < k; i += STEP) {
        int64_t n = k - i < STEP ? k - i : STEP;
        if (row) rp__dtype_to_f32(dtype, row + (size_t)i * bytes, f, n);
        for (int64_t j = 0; j < n; j++) panel[(i + j) * RP__PANEL_ROWS + lane] = f[j];
    }
}

/* `row` NULL: zeros. */
static void write_lane(rp_dtype dtype, void *panel, int lane, int64_t k, const uint8_t *row) {
    rp__panel_format f = rp__panel_format_of(dtype);
    if (rp__panel_traits_of(f).bits)
        write_lane_blocks(dtype, panel, lane, k, row);
    else if (f == RP__PANEL_F32)
        write_lane_f32(dtype, panel, lane, k, row);
    else
        write_lane_16(panel, lane, 0, k, row);
}

/* Sixteen rows, a whole panel. */
static void write_panel(rp_dtype dtype, void *panel, int64_t k, const uint8_t *rows,
                        size_t row_bytes) {
    const rp__panel_format f = rp__panel_format_of(dtype);
    const bool is_16 = f == RP__PANEL_F16 || f == RP__PANEL_BF16;
    if (is_16) write_squares_16(panel, k, rows);
    for (int lane = 0; lane < RP__PANEL_ROWS; lane++, rows += row_bytes)
        if (is_16)
            write_lane_16(panel, lane, k / 8 * 8, k, rows);
        else
            write_lane(dtype, panel, lane, k, rows);
}

static uint8_t *panel_at(const shape *s, rp_dtype dtype, void *weight, int64_t row) {
    int64_t panel = row / s->n * rp__panel_count(s->n) + row % s->n / RP__PANEL_ROWS;
    return (uint8_t *)weight +
           (size_t)panel * rp__panel_bytes_each(rp__panel_format_of(dtype), s->k);
}

void rp__panel_write(const rp_tensor *desc, void *dst, int64_t row, int64_t n_rows,
                     const void *src) {
    shape s = shape_of(desc);
    size_t row_bytes =
        (size_t)(s.k / rp__dtype_block_elems(desc->dtype)) * rp__dtype_block_bytes(desc->dtype);
    const uint8_t *from = src;
    for (int64_t r = row, end = row + n_rows; r < end; r++, from += row_bytes) {
        uint8_t *panel = panel_at(&s, desc->dtype, dst, r);
        int lane = (int)(r % s.n % RP__PANEL_ROWS);
        if (lane == 0 && r + RP__PANEL_ROWS <= end && r % s.n + RP__PANEL_ROWS <= s.n) {
            write_panel(desc->dtype, panel, s.k, from, row_bytes);
            lane = RP__PANEL_ROWS - 1;
            r += lane, from += (size_t)lane * row_bytes;
        } else {
            write_lane(desc->dtype, panel, lane, s.k, from);
        }
        if (r % s.n == s.n - 1)
            while (++lane < RP__PANEL_ROWS) write_lane(desc->dtype, panel, lane, s.k, NULL);
    }
}

/* ---- reading one row back ---- */

static float f16_lane(const uint8_t *p, int lane) {
    return rp__f16_to_f32(u16_at(p + 2 * lane));
}

static int q_of(rp__panel_traits t, const uint8_t *q, int i, int lane) {
    const int upper = rp__panel_upper_bits(t), run = rp__panel_run(t);
    q += 4 * lane + i % 4;
    if (t.bits == 8) return (int8_t)q[i / 4 * RP__PANEL_CELL];
    q += (size_t)(i / run) * (size_t)(RP__PANEL_ROWS * run * t.bits / 8);
    i %= run;
    int low = q[i / 8 * RP__PANEL_CELL] >> (i % 8 / 4 * 4) & 15;
    if (!upper) return low;
    int above = q[run / 8 * RP__PANEL_CELL] >> (i / 4 * upper) & ((1 << upper) - 1);
    return low | above << 4;
}

static void read_chunk(rp__panel_traits t, const uint8_t *p, int lane, float d, float dmin,
                       float *dst) {
    size_t part = rp__panel_scale_bytes(t);
    const uint8_t *q = p + part * (1u + t.has_min);
    for (int g = 0; g < RP__PANEL_CHUNK / t.group; g++) {
        const uint8_t *factor = p + g * RP__PANEL_ROWS + lane;
        float scale = t.is_k ? d * (float)(int8_t)*factor : f16_lane(p, lane);
        float min = -(float)t.zero * scale;
        if (t.has_min) min = t.is_k ? dmin * (float)(int8_t)factor[part] : f16_lane(p + part, lane);
        for (int i = g * t.group; i < (g + 1) * t.group; i++)
            dst[i] = scale * (float)q_of(t, q, i, lane) + min;
    }
}

static void read_lane_blocks(rp__panel_format f, const uint8_t *p, int lane, int64_t k,
                             float *dst) {
    rp__panel_traits t = rp__panel_traits_of(f);
    float d = 0, dmin = 0;
    for (int64_t c = 0; c < k / RP__PANEL_CHUNK; c++, dst += RP__PANEL_CHUNK) {
        if (t.is_k && c % 8 == 0) {
            d = f16_lane(p, lane);
            if (t.has_min) dmin = f16_lane(p + RP__PANEL_ROWS * 2, lane);
            p += rp__panel_head_bytes(t);
        }
        read_chunk(t, p, lane, d, dmin, dst);
        p += rp__panel_chunk_bytes(t);
    }
}

void rp__panel_row(const rp_tensor *desc, const void *weight, int64_t row, float *dst) {
    shape s = shape_of(desc);
    rp__panel_format f = rp__panel_format_of(desc->dtype);
    const uint8_t *panel = panel_at(&s, desc->dtype, (void *)(uintptr_t)weight, row);
    int lane = (int)(row % s.n % RP__PANEL_ROWS);
    if (rp__panel_traits_of(f).bits) {
        read_lane_blocks(f, panel, lane, s.k, dst);
        return;
    }
    for (int64_t i = 0; i < s.k; i++) {
        size_t at = (size_t)(i * RP__PANEL_ROWS + lane);
        if (f == RP__PANEL_F32)
            memcpy(&dst[i], panel + at * 4, 4);
        else if (f == RP__PANEL_F16)
            dst[i] = f16_lane(panel, (int)at);
        else
            dst[i] = rp__bf16_to_f32(u16_at(panel + at * 2));
    }
}

/* ---- scratch ---- */

/* Queries, sums of a block and merged sums of a tile's rows, their scores for 256 positions, 64
 * positions of K or V, and four numbers per row: kernel_attention_kv.h lays them out. A tile has 64
 * rows, or the heads of one token. */
static size_t attention_scratch(const rp_op *op) {
    size_t group = (size_t)(op->in[0].dim[1] / op->in[1].dim[1]);
    size_t rows = group > 64 ? group : 64 / group * group;
    size_t d_pad = ((size_t)op->in[0].dim[2] + 15) / 16 * 16;
    return (64 * d_pad + rows * (256 + 3 * d_pad + 4)) * sizeof(float);
}

static size_t matmul_scratch(const rp_tensor *w, int64_t n_rows) {
    rp__panel_traits t = rp__panel_traits_of(rp__panel_format_of(w->dtype));
    if (n_rows > 1) n_rows = RP__MATMUL_ROWS;
    size_t n_sums = t.bits ? (size_t)(rp__tensor_last(w) / t.group) : 0;
    return RP__MATMUL_SCRATCH + (size_t)n_rows * n_sums * sizeof(float);
}

static size_t q8_scratch(const rp_op *op) {
    int64_t k = rp__tensor_last(&op->in[0]), n_rows = 1, n_wide = 0;
    if (op->kind == RP_OP_MATMUL) {
        n_rows = rp__op_rows(op) < RP__Q8_ROWS ? rp__op_rows(op) : RP__Q8_ROWS;
        if (op->in[0].dtype == RP_Q16) n_wide = rp__panel_wide_rows(k);
    }
    size_t factors = (size_t)(k / RP__PANEL_CHUNK * n_rows) * RP__PANEL_FACTORS;
    size_t wide = (size_t)((n_wide < n_rows ? n_wide : n_rows) * k) * 2;
    return RP__Q8_SCRATCH + wide + factors;
}

size_t rp__panel_scratch(const rp_op *op) {
    bool is_matmul = op->kind == RP_OP_MATMUL || op->kind == RP_OP_EXPERT_MATMUL;
    if (is_matmul && op->in[0].dtype != RP_F32) return q8_scratch(op);
    switch (op->kind) {
    case RP_OP_MATMUL:
        return matmul_scratch(&op->in[1], rp__op_rows(op));
    case RP_OP_EXPERT_MATMUL:
        return matmul_scratch(&op->in[1], rp__op_rows(op) * op->in[2].dim[1]);
    case RP_OP_ATTENTION:
        return attention_scratch(op);
    default:
        return 0;
    }
}

/* A decode step's attention over a long context: per token, head and 256 positions the sums of one
 * block and two numbers (a line, to keep lines apart). More tokens than a few keep the workers busy
 * without it. */
size_t rp__body_shared(const rp_op *op) {
    enum { MOST_TOKENS = 8, MOST_BYTES = 64 << 20 };
    if (op->kind != RP_OP_ATTENTION || op->in[0].dim[0] > MOST_TOKENS) return 0;
    size_t n_rows = (size_t)(op->in[0].dim[0] * op->in[0].dim[1]);
    size_t n_blocks = ((size_t)(op->in[3].dim[1] * op->in[1].dim[2]) + 255) / 256;
    size_t d_pad = ((size_t)op->in[0].dim[2] + 15) / 16 * 16;
    size_t bytes = n_rows * n_blocks * (d_pad + 16) * sizeof(float);
    return n_blocks > 1 && bytes <= MOST_BYTES ? bytes : 0;
}
