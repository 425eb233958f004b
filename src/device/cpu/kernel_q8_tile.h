/* Tiles of whole numbers: rows of rounded activations times a few panels. Part of kernels.h.
 *
 * Up to 256 columns of the panels are unpacked once into cells of bytes (or of 16 bits, for x taken
 * whole: see DOT_WIDE), scales and mins; then every few rows go over them with their parts in
 * registers. The sums, F32, lie in memory: they are touched once per group. kernel_q8.h says what
 * is computed, in which order. */

enum {
    Q8_CELLS = 256 / 2 * RP__PANEL_CELL, /* bytes per panel, at two columns per cell */
    Q8_SCALES = 256 / 16 * RP__PANEL_ROWS,
    Q8_C_STRIDE = TILE_PANELS * RP__PANEL_ROWS,
};

/* One go: n columns of TILE_PANELS panels. Row r of x is x + r * x_stride, at the low digits of its
 * first chunk; those of the next lie x_chunk bytes further. */
typedef struct q8_args {
    const uint8_t *cells[TILE_PANELS];
    const float *scale[TILE_PANELS], *min[TILE_PANELS];
    const int8_t *x;
    size_t x_stride, x_chunk;
    int n_digits;
    x_factors f; /* at the first chunk and row */
    int64_t n;
    float *c; /* [rows][Q8_C_STRIDE] */
} q8_args;

/* A format's traits; of plain ones, which never come here, any others. */
V16_INLINE rp__panel_traits q8_traits_of(rp__panel_format f) {
    return rp__panel_traits_of(rp__panel_traits_of(f).bits ? f : RP__PANEL_I8);
}

/* ---- unpacking ---- */

/* Columns i..i+3 as dot_small or dot_signed wants them. */
V16_INLINE w64 q8_cell(rp__panel_traits t, const uint8_t *q, int i) {
    w64 c = take_four(t, q, i);
    return is_signed(t) ? w64_biased(c) : c;
}

V16_INLINE uint8_t *q8_unpack_chunk(rp__panel_traits t, int n_digits, const uint8_t *q,
                                    uint8_t *cells) {
#if defined(DOT_WIDE)
    if (is_wide(n_digits)) {
        UNROLL for (int i = 0; i < RP__PANEL_CHUNK; i += 4) {
            w64 c = take_four(t, q, i);
            w64_store(cells + i / 2 * RP__PANEL_CELL, w64_wide(c, 0));
            w64_store(cells + (i / 2 + 1) * RP__PANEL_CELL, w64_wide(c, 1));
        }
        return cells + RP__PANEL_CHUNK / 2 * RP__PANEL_CELL;
    }
#endif
    (void)n_digits;
    UNROLL for (int i = 0; i < RP__PANEL_CHUNK; i += 8)
        w64_store_two(cells + i / 4 * RP__PANEL_CELL, q8_cell(t, q, i), q8_cell(t, q, i + 4));
    return cells + RP__PANEL_CHUNK / 4 * RP__PANEL_CELL;
}

/* Columns [k0, k0 + n) of a panel; k0 is a multiple of 256. `scale` and `min` get 16 floats per
 * group. */
V16_INLINE void q8_unpack_as(rp__panel_traits t, int n_digits, const uint8_t *panel, int64_t k0,
                             int64_t n, uint8_t *cells, float *scale, float *min) {
    const int n_groups = RP__PANEL_CHUNK / t.group;
    cursor at = {panel, v16_zero(), v16_zero()};
    at.p += (size_t)(k0 / RP__PANEL_CHUNK) * rp__panel_chunk_bytes(t);
    at.p += (size_t)(k0 / RP__PANEL_SUPER) * rp__panel_head_bytes(t);
    if (t.is_k) take_head(t, &at);
    for (int64_t c = 0; c < n / RP__PANEL_CHUNK; c++) {
        UNROLL for (int g = 0; g < n_groups; g++) {
            v16 by = group_scale(t, &at, g);
            v16_store(scale, by), scale += RP__PANEL_ROWS;
            if (t.has_min) v16_store(min, group_min(t, &at, g, by)), min += RP__PANEL_ROWS;
        }
        cells = q8_unpack_chunk(t, n_digits, at.p + rp__panel_scale_bytes(t) * (1u + t.has_min),
                                cells);
        at.p += rp__panel_chunk_bytes(t);
    }
}

static void q8_unpack(rp__panel_format f, int n_digits, const uint8_t *panel, int64_t k0, int64_t n,
                      uint8_t *cells, float *scale, float *min) {
    switch (f) {
#define RP_X(code, bits, group, is_k, has_min, zero)                                               \
    case RP__PANEL_##code:                                                                         \
        if (bits && is_wide(n_digits))                                                             \
            q8_unpack_as(rp__panel_traits_of(RP__PANEL_##code), 2, panel, k0, n, cells, scale,     \
                         min);                                                                     \
        else if (bits)                                                                             \
            q8_unpack_as(rp__panel_traits_of(RP__PANEL_##code), 1, panel, k0, n, cells, scale,     \
                         min);                                                                     \
        break;
        RP__PANEL_TABLE(RP_X)
#undef RP_X
    case RP__N_PANEL_FORMATS:
        break;
    }
}

/* ---- tiles ---- */

typedef struct q8_at {
    const int8_t *base[(Q8_ROWS + 2) / 3]; /* of every third row: see tile_at */
    const uint8_t *cells[TILE_PANELS];
} q8_at;

/* Traits of what a format is after unpacking: cells per group, of which `run` as dot_run; and of x:
 * every cell meets four bytes of each digit. */
typedef struct q8_kind {
    int group, n_cells, run;
    bool has_min, is_signed, is_wide;
    int n_digits;
} q8_kind;

V16_INLINE q8_kind q8_kind_of(int group, int run, bool has_min, bool is_signed_q, int n_digits) {
    if (is_wide(n_digits)) return (q8_kind){group, group / 2, group / 2, has_min, false, true, 1};
    return (q8_kind){group, group / 4, run, has_min, is_signed_q, false, n_digits};
}

/* From the end of a group, where its digits of one kind are done, back to its start. */
V16_INLINE void q8_rewind(int rows, q8_kind kind, q8_at *at) {
    UNROLL for (int p = 0; p < TILE_PANELS; p++) at->cells[p] -= kind.n_cells * RP__PANEL_CELL;
    UNROLL for (int b = 0; b < (rows + 2) / 3; b++) at->base[b] -= 4 * kind.n_cells;
    MEMORY_CHANGES(); /* cells of the first go are not worth a register until the second */
}

#if defined(DOT_TWO)

V16_INLINE const int8_t *q8_row_at(const q8_at *at, size_t stride, int r) {
    return at->base[r / 3] + (size_t)(r % 3) * stride;
}

/* A group's products with the digits that lie `offset` bytes behind the low ones. A last row
 * without a second is its own. */
V16_INLINE void q8_dot_digits(int rows, q8_kind kind, size_t stride, int offset, q8_at *at,
                              d16x2 sum[(Q8_ROWS + 1) / 2][TILE_PANELS]) {
    for (int i = 0; i < kind.group; i += 8) {
        UNROLL for (int r = 0; r < rows; r += 2) {
            const int8_t *first = q8_row_at(at, stride, r) + offset;
            const int8_t *second = q8_row_at(at, stride, r + 1 < rows ? r + 1 : r) + offset;
            UNROLL for (int p = 0; p < TILE_PANELS; p++) sum[r / 2][p] =
                dot_two(sum[r / 2][p], at->cells[p], first, second);
        }
        UNROLL for (int p = 0; p < TILE_PANELS; p++) at->cells[p] += 2 * RP__PANEL_CELL;
        UNROLL for (int b = 0; b < (rows + 2) / 3; b++) at->base[b] += 8;
        if (DOT_IN_STEPS) MEMORY_CHANGES();
    }
}

/* A group's products, from their starts. */
V16_INLINE void q8_dots(int rows, q8_kind kind, size_t stride, const int32_t *start, q8_at *at,
                        d16 part[Q8_ROWS][TILE_PANELS]) {
    d16x2 sum[(Q8_ROWS + 1) / 2][TILE_PANELS];
    if (kind.n_digits == 2) {
        UNROLL for (int r = 0; r < rows; r += 2) UNROLL for (int p = 0; p < TILE_PANELS; p++)
            sum[r / 2][p] = two_set1(0, 0);
        q8_dot_digits(rows, kind, stride, RP__PANEL_CHUNK, at, sum);
        q8_rewind(rows, kind, at);
    }
    UNROLL for (int r = 0; r < rows; r += 2) UNROLL for (int p = 0; p < TILE_PANELS; p++) {
        d16x2 first = two_set1(start[r], start[r + 1 < rows ? r + 1 : r]);
        sum[r / 2][p] = kind.n_digits == 2 ? two_add_times_256(first, sum[r / 2][p]) : first;
    }
    q8_dot_digits(rows, kind, stride, 0, at, sum);
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int p = 0; p < TILE_PANELS; p++) part[r][p] =
        r % 2 ? two_second(sum[r / 2][p]) : two_first(sum[r / 2][p]);
}

#else

/* A wide product is added to the sum itself, also where those of bytes gather in pairs. */
V16_INLINE d16 q8_begin(q8_kind kind, d16 sum) {
    return kind.is_wide && DOT_PAIRS ? sum : dot_begin(sum);
}
V16_INLINE d16 q8_end(q8_kind kind, d16 sum, d16 run) {
    return kind.is_wide ? run : dot_end(sum, run);
}
V16_INLINE d16 q8_dot(q8_kind kind, d16 run, w64 w, int32_t x) {
#if defined(DOT_WIDE)
    if (kind.is_wide) return dot_wide(run, w, x);
#endif
    return kind.is_signed ? dot_signed(run, w, x) : dot_small(run, w, x);
}

/* The next `run` cells times the digits that lie `offset` bytes behind the low ones. */
V16_INLINE void q8_dot_run(int rows, q8_kind kind, size_t stride, int offset, q8_at *at,
                           d16 part[Q8_ROWS][TILE_PANELS]) {
    d16 run[Q8_ROWS][TILE_PANELS];
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int p = 0; p < TILE_PANELS; p++) run[r][p] =
        q8_begin(kind, part[r][p]);
    for (int i = 0; i < kind.run; i++) {
        w64 w[TILE_PANELS];
        UNROLL for (int p = 0; p < TILE_PANELS; p++) w[p] =
            w64_load(at->cells[p] + i * RP__PANEL_CELL);
        UNROLL for (int r = 0; r < rows; r++) {
            int32_t x = four_bytes(at->base[r / 3] + (size_t)(r % 3) * stride + offset + 4 * i);
            UNROLL for (int p = 0; p < TILE_PANELS; p++) run[r][p] =
                q8_dot(kind, run[r][p], w[p], x);
        }
        if (DOT_IN_STEPS) MEMORY_CHANGES();
    }
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int p = 0; p < TILE_PANELS; p++) part[r][p] =
        q8_end(kind, part[r][p], run[r][p]);
    UNROLL for (int p = 0; p < TILE_PANELS; p++) at->cells[p] += kind.run * RP__PANEL_CELL;
    UNROLL for (int b = 0; b < (rows + 2) / 3; b++) at->base[b] += 4 * kind.run;
}

/* A group's products, from their starts: with the high digits, then with the low ones on top. */
V16_INLINE void q8_dots(int rows, q8_kind kind, size_t stride, const int32_t *start, q8_at *at,
                        d16 part[Q8_ROWS][TILE_PANELS]) {
    if (kind.n_digits == 2) {
        UNROLL for (int r = 0; r < rows; r++) UNROLL for (int p = 0; p < TILE_PANELS; p++)
            part[r][p] = d16_set1(0);
        for (int i = 0; i < kind.n_cells; i += kind.run)
            q8_dot_run(rows, kind, stride, RP__PANEL_CHUNK, at, part);
        q8_rewind(rows, kind, at);
    }
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int p = 0; p < TILE_PANELS; p++) {
        /* Formats with stored mins have no zero point. */
        d16 first = d16_set1(kind.has_min ? 0 : start[r]);
        part[r][p] = kind.n_digits == 2 ? d16_add(d16_times_256(part[r][p]), first) : first;
    }
    for (int i = 0; i < kind.n_cells; i += kind.run)
        q8_dot_run(rows, kind, stride, 0, at, part);
}

#endif

V16_INLINE void q8_tile_n(int rows, q8_kind kind, const q8_args *a) {
    const size_t stride = a->x_stride, f_stride = a->f.stride, x_chunk_step = a->x_chunk;
    const float *scale[TILE_PANELS], *min[TILE_PANELS], *d = a->f.d, *sum = a->f.sum;
    const int32_t *start = a->f.start;
    const int64_t n_chunks = a->n / RP__PANEL_CHUNK;
    float *c = a->c;
    q8_at at;
    UNROLL for (int b = 0; b < (rows + 2) / 3; b++) at.base[b] = a->x + (size_t)(3 * b) * stride;
    UNROLL for (int p = 0; p < TILE_PANELS; p++) {
        at.cells[p] = a->cells[p];
        scale[p] = a->scale[p], min[p] = a->min[p];
    }
    for (int64_t chunk = 0; chunk < n_chunks; chunk++) {
        for (int g = 0; g < RP__PANEL_CHUNK / kind.group; g++) {
            d16 part[Q8_ROWS][TILE_PANELS];
            q8_dots(rows, kind, stride, start + (size_t)g * f_stride, &at, part);
            UNROLL for (int r = 0; r < rows; r++) UNROLL for (int p = 0; p < TILE_PANELS; p++) {
                float *y = c + r * Q8_C_STRIDE + p * RP__PANEL_ROWS;
                v16 by = v16_mul(v16_load(scale[p]), v16_set1(d[r]));
                v16 s = v16_fma(by, d16_to_v16(part[r][p]), v16_load(y));
                if (kind.has_min)
                    s = v16_fma(v16_load(min[p]), v16_set1(sum[(size_t)g * f_stride + r]), s);
                v16_store(y, s);
            }
            UNROLL for (int p = 0; p < TILE_PANELS; p++) {
                scale[p] += RP__PANEL_ROWS;
                if (kind.has_min) min[p] += RP__PANEL_ROWS;
            }
            MEMORY_CHANGES();
        }
        UNROLL for (int b = 0; b < (rows + 2) / 3; b++) at.base[b] +=
            x_chunk_step - (size_t)(RP__PANEL_CHUNK / kind.group * 4 * kind.n_cells);
        d += f_stride, start += 2 * f_stride, sum += 2 * f_stride;
    }
}

/* One instance per kind. Where pairs fill up before a group ends, runs are of two cells in a group
 * of 16 and of four in one of 32, or of one whose bytes are signed. */
V16_INLINE void q8_tile_of(int rows, rp__panel_traits t, int n_digits, const q8_args *a) {
    const bool is_signed_q = is_signed(t) && !DOT_BIAS && !is_wide(n_digits);
    const bool is_one_run = !DOT_PAIRS || is_wide(n_digits) || 4 * dot_run(t) == t.group;
    if (t.group == 16 && t.has_min)
        q8_tile_n(rows, q8_kind_of(16, 4, true, false, n_digits), a);
    else if (t.group == 16 && is_one_run)
        q8_tile_n(rows, q8_kind_of(16, 4, false, false, n_digits), a);
    else if (t.group == 16)
        q8_tile_n(rows, q8_kind_of(16, 2, false, false, n_digits), a);
    else if (is_signed_q)
        q8_tile_n(rows, q8_kind_of(32, DOT_PAIRS ? 1 : 8, false, true, n_digits), a);
    else if (t.has_min && is_one_run)
        q8_tile_n(rows, q8_kind_of(32, 8, true, false, n_digits), a);
    else if (t.has_min)
        q8_tile_n(rows, q8_kind_of(32, 4, true, false, n_digits), a);
    else if (is_one_run)
        q8_tile_n(rows, q8_kind_of(32, 8, false, false, n_digits), a);
    else
        q8_tile_n(rows, q8_kind_of(32, 4, false, false, n_digits), a);
}

#define Q8_TILE(rows)                                                                              \
    static __attribute__((noinline)) void q8_tile_##rows(rp__panel_traits t, const q8_args *a) {   \
        if (a->n_digits == 1)                                                                      \
            q8_tile_of(rows, t, 1, a);                                                             \
        else                                                                                       \
            q8_tile_of(rows, t, 2, a);                                                             \
    }
Q8_TILE(1)
Q8_TILE(2)
#if Q8_ROWS >= 4
Q8_TILE(4)
#endif
#if Q8_ROWS >= 12
Q8_TILE(8)
Q8_TILE(12)
#endif
#undef Q8_TILE

/* Any number of rows, in the largest tiles that fit. */
static void q8_tile_rows(rp__panel_traits t, int64_t n_rows, q8_args a) {
    static const struct {
        int rows;
        void (*tile)(rp__panel_traits t, const q8_args *a);
    } sizes[] = {
#if Q8_ROWS >= 12
        {12, q8_tile_12},
        {8, q8_tile_8},
#endif
#if Q8_ROWS >= 4
        {4, q8_tile_4},
#endif
        {2, q8_tile_2},
        {1, q8_tile_1},
    };
    for (int i = 0; n_rows > 0;) {
        int64_t rows = sizes[i].rows;
        if (n_rows < rows) {
            i++;
            continue;
        }
        sizes[i].tile(t, &a);
        n_rows -= rows;
        a.x += (size_t)rows * a.x_stride;
        a.c += rows * Q8_C_STRIDE;
        a.f.d += rows, a.f.start += rows, a.f.sum += rows;
    }
}
