/* Panels as vectors: decoding them, one row of x against several (gemv), a tile of rows against a
 * few. Part of kernels.h.
 *
 * The sum of an output element, in F32. Plain formats: fused products over k in order, from 0.
 * Quantised ones, group after group of the columns that share a scale:
 *     part = fused products q * x over the group in order, from 0
 *     sum  = fma(scale, part, sum), then, where there are mins, sum = fma(min, sum of the group's
 * x, sum) so that a weight costs one product, and q stays a whole number until its group is done.
 */

/* ---- one panel, column after column ---- */

typedef struct cursor {
    const uint8_t *p;
    v16 d, dmin; /* K formats: what the factors of these 256 columns multiply */
} cursor;

V16_INLINE void take_head(rp__panel_traits t, cursor *c) {
    c->d = v16_from_f16((const uint16_t *)c->p);
    if (t.has_min) c->dmin = v16_from_f16((const uint16_t *)(c->p + RP__PANEL_ROWS * 2));
    c->p += rp__panel_head_bytes(t);
}

V16_INLINE v16 group_scale(rp__panel_traits t, const cursor *c, int g) {
    if (!t.is_k) return v16_from_f16((const uint16_t *)c->p);
    return v16_mul(c->d, v16_from_i8(c->p + g * RP__PANEL_ROWS));
}

V16_INLINE v16 group_min(rp__panel_traits t, const cursor *c, int g, v16 scale) {
    const uint8_t *mins = c->p + rp__panel_scale_bytes(t);
    if (!t.has_min) return v16_mul(scale, v16_set1(-(float)t.zero));
    if (!t.is_k) return v16_from_f16((const uint16_t *)mins);
    return v16_mul(c->dmin, v16_from_i8(mins + g * RP__PANEL_ROWS));
}

/* Columns i..i+3 of the chunk whose cells q points at, as bytes; i is a multiple of 4. */
V16_INLINE w64 take_four(rp__panel_traits t, const uint8_t *q, int i) {
    const int upper = rp__panel_upper_bits(t), run = rp__panel_run(t);
    if (t.bits == 8) return w64_load(q + i / 4 * RP__PANEL_CELL);
    q += i / run * (RP__PANEL_ROWS * run * t.bits / 8);
    i %= run;
    w64 low = w64_load(q + i / 8 * RP__PANEL_CELL);
    low = i % 8 ? w64_high(low) : w64_low(low);
    if (!upper) return low;
    return w64_add_upper(low, w64_load(q + run / 8 * RP__PANEL_CELL), upper, i / 4 * upper);
}

/* Columns i + j and i + j + 1 of the chunk as whole numbers. i is a multiple of 8: where they lie
 * in their cell is told by j, which loops make a constant. */
V16_INLINE void take_pair(rp__panel_traits t, const cursor *c, int i, int j, v16 *even, v16 *odd) {
    const uint8_t *q = c->p + rp__panel_scale_bytes(t) * (1u + t.has_min);
    if (t.bits == 4) {
        const uint8_t *cell = q + i / 8 * RP__PANEL_CELL;
        int shift = j % 4 * 8 + j / 4 * 4;
        *even = v16_nibble_at(cell, shift);
        *odd = v16_nibble_at(cell, shift + 8);
    } else {
        w64 cell = take_four(t, q, i + j / 4 * 4);
        *even = t.bits < 8 ? w64_unsigned_byte(cell, j % 4) : w64_signed_byte(cell, j % 4);
        *odd = t.bits < 8 ? w64_unsigned_byte(cell, j % 4 + 1) : w64_signed_byte(cell, j % 4 + 1);
    }
}

/* True when groups add something to every weight. */
V16_INLINE bool adds_min(rp__panel_traits t) {
    return t.has_min || t.zero;
}

V16_INLINE v16 plain_column(rp__panel_format f, const uint8_t *p, int64_t k) {
    if (f == RP__PANEL_F32) return v16_load((const float *)p + k * RP__PANEL_ROWS);
    if (f == RP__PANEL_F16) return v16_from_f16((const uint16_t *)p + k * RP__PANEL_ROWS);
    return v16_from_bf16((const uint16_t *)p + k * RP__PANEL_ROWS);
}

/* ---- gemv: sums of n panels over all of k for one row of x ---- */

V16_INLINE void gemv_plain(rp__panel_format f, int n, const uint8_t *w, size_t panel_bytes,
                           const float *x, int64_t k, v16 *acc) {
    enum { STEP = 8 };
    const size_t step_bytes = STEP * RP__PANEL_ROWS * (f == RP__PANEL_F32 ? 4 : 2);
    for (int64_t from = 0; from < k; from += STEP) {
        const size_t done = (size_t)(from / STEP) * step_bytes;
        const size_t ahead = done + fetch_offset(done, panel_bytes, n);
        UNROLL for (int p = 0; p < n; p++) fetch(w + (size_t)p * panel_bytes + ahead, step_bytes);
        for (int64_t i = from; i < min_i64(from + STEP, k); i++) {
            v16 xi = v16_set1(x[i]);
            UNROLL for (int p = 0; p < n; p++) acc[p] =
                v16_fma(plain_column(f, w + (size_t)p * panel_bytes, i), xi, acc[p]);
        }
    }
}

/* Group g of one chunk; x_sum: the sum of its x. */
V16_INLINE void gemv_group(rp__panel_traits t, int n, const cursor *at, int g, const float *x,
                           float x_sum, v16 *acc) {
    v16 part[GEMV_PANELS];
    UNROLL for (int p = 0; p < n; p++) part[p] = v16_zero();
    for (int i = g * t.group; i < (g + 1) * t.group; i += 8) {
        UNROLL for (int j = 0; j < 8; j += 2) {
            v16 x0 = v16_set1(x[i + j]), x1 = v16_set1(x[i + j + 1]);
            UNROLL for (int p = 0; p < n; p++) {
                v16 even, odd;
                take_pair(t, &at[p], i, j, &even, &odd);
                part[p] = v16_fma(even, x0, part[p]);
                part[p] = v16_fma(odd, x1, part[p]);
            }
        }
    }
    UNROLL for (int p = 0; p < n; p++) {
        v16 scale = group_scale(t, &at[p], g);
        acc[p] = v16_fma(scale, part[p], acc[p]);
        if (adds_min(t)) acc[p] = v16_fma(group_min(t, &at[p], g, scale), v16_set1(x_sum), acc[p]);
    }
}

V16_INLINE void gemv_blocks(rp__panel_traits t, int n, const uint8_t *w, size_t panel_bytes,
                            const float *x, const float *x_sums, int64_t k, v16 *acc) {
    cursor at[GEMV_PANELS];
    UNROLL for (int p = 0; p < n; p++) at[p] =
        (cursor){w + (size_t)p * panel_bytes, v16_zero(), v16_zero()};
    const size_t chunk_bytes = rp__panel_chunk_bytes(t);
    for (int64_t c = 0; c < k / RP__PANEL_CHUNK; c++, x += RP__PANEL_CHUNK) {
        if (t.is_k && c % 8 == 0) {
            UNROLL for (int p = 0; p < n; p++) take_head(t, &at[p]);
        }
        const size_t ahead = fetch_offset((size_t)(at[0].p - w), panel_bytes, n);
        UNROLL for (int p = 0; p < n; p++) fetch(at[p].p + ahead, chunk_bytes);
        for (int g = 0; g < RP__PANEL_CHUNK / t.group; g++)
            gemv_group(t, n, at, g, x, adds_min(t) ? *x_sums++ : 0, acc);
        UNROLL for (int p = 0; p < n; p++) at[p].p += chunk_bytes;
    }
}

V16_INLINE void gemv_n(rp__panel_format f, int n, const uint8_t *w, size_t panel_bytes,
                       const float *x, const float *x_sums, int64_t k, float *out) {
    v16 acc[GEMV_PANELS];
    UNROLL for (int p = 0; p < n; p++) acc[p] = v16_zero();
    rp__panel_traits t = rp__panel_traits_of(f);
    if (t.bits)
        gemv_blocks(t, n, w, panel_bytes, x, x_sums, k, acc);
    else
        gemv_plain(f, n, w, panel_bytes, x, k, acc);
    UNROLL for (int p = 0; p < n; p++) v16_store(out + p * RP__PANEL_ROWS, acc[p]);
}

/* out [n * 16] = the sums of n <= GEMV_PANELS panels. One instance per format, of the full width
 * and of one. */
static void gemv(rp__panel_format f, int n, const uint8_t *w, size_t panel_bytes, const float *x,
                 const float *x_sums, int64_t k, float *out) {
    switch (f) {
#define RP_X(code, bits, group, is_k, has_min, zero)                                               \
    case RP__PANEL_##code:                                                                         \
        if (n == GEMV_PANELS)                                                                      \
            gemv_n(RP__PANEL_##code, GEMV_PANELS, w, panel_bytes, x, x_sums, k, out);              \
        else                                                                                       \
            for (int p = 0; p < n; p++)                                                            \
                gemv_n(RP__PANEL_##code, 1, w + (size_t)p * panel_bytes, panel_bytes, x, x_sums,   \
                       k, out + p * RP__PANEL_ROWS);                                               \
        break;
        RP__PANEL_TABLE(RP_X)
#undef RP_X
    case RP__N_PANEL_FORMATS:
        break;
    }
}

/* ---- few rows: some panels over all of k, each weight unpacked once for all rows ---- */

/* Past this many rows, panels unpacked into the first-level cache are faster, as tiles keep more
 * sums in registers. SUMS_STRIDE: of the sums of x by group, floats apart. */
enum { FEW_ROWS = 8, SUMS_STRIDE = RP__MATMUL_ROWS };

typedef struct few_args {
    const float *x, *x_sums; /* row r of x: x + r * x_stride */
    size_t x_stride, panel_bytes;
    const uint8_t *w;
    int n_rows;
    int64_t k;
} few_args;

/* Eight columns from i on of a chunk, whose x of row 0 is x: part [row][n] += products, in order of
 * columns. */
V16_INLINE void few_columns(rp__panel_traits t, int n, const cursor *at, const few_args *a,
                            const float *x, int i, v16 *part) {
    v16 w[8][TILE_PANELS];
    UNROLL for (int p = 0; p < n; p++) UNROLL for (int j = 0; j < 8; j += 2)
        take_pair(t, &at[p], i, j, &w[j][p], &w[j + 1][p]);
    for (int r = 0; r < a->n_rows; r++, x += a->x_stride, part += n) {
        v16 sum[TILE_PANELS];
        UNROLL for (int p = 0; p < n; p++) sum[p] = part[p];
        UNROLL for (int j = 0; j < 8; j++) {
            v16 xj = v16_set1(x[i + j]);
            UNROLL for (int p = 0; p < n; p++) sum[p] = v16_fma(w[j][p], xj, sum[p]);
        }
        UNROLL for (int p = 0; p < n; p++) part[p] = sum[p];
    }
}

V16_INLINE void few_group(rp__panel_traits t, int n, const cursor *at, int g, const few_args *a,
                          const float *x, const float *x_sums, v16 *acc) {
    v16 part[FEW_ROWS * TILE_PANELS];
    for (int i = 0; i < a->n_rows * n; i++) part[i] = v16_zero();
    for (int i = g * t.group; i < (g + 1) * t.group; i += 8) few_columns(t, n, at, a, x, i, part);
    UNROLL for (int p = 0; p < n; p++) {
        v16 scale = group_scale(t, &at[p], g), min = group_min(t, &at[p], g, scale);
        for (int r = 0; r < a->n_rows; r++) {
            v16 sum = v16_fma(scale, part[r * n + p], acc[r * n + p]);
            acc[r * n + p] = adds_min(t) ? v16_fma(min, v16_set1(x_sums[r]), sum) : sum;
        }
    }
}

/* acc [row][n] = the sums of n panels. */
V16_INLINE void few_blocks(rp__panel_traits t, int n, const few_args *a, v16 *acc) {
    cursor at[TILE_PANELS];
    const float *x = a->x, *x_sums = a->x_sums;
    const size_t chunk_bytes = rp__panel_chunk_bytes(t);
    UNROLL for (int p = 0; p < n; p++) at[p] =
        (cursor){a->w + (size_t)p * a->panel_bytes, v16_zero(), v16_zero()};
    for (int i = 0; i < a->n_rows * n; i++) acc[i] = v16_zero();
    for (int64_t c = 0; c < a->k / RP__PANEL_CHUNK; c++, x += RP__PANEL_CHUNK) {
        if (t.is_k && c % 8 == 0) {
            UNROLL for (int p = 0; p < n; p++) take_head(t, &at[p]);
        }
        const size_t ahead = fetch_offset((size_t)(at[0].p - a->w), a->panel_bytes, n);
        UNROLL for (int p = 0; p < n; p++) fetch(at[p].p + ahead, chunk_bytes);
        for (int g = 0; g < RP__PANEL_CHUNK / t.group; g++, x_sums += SUMS_STRIDE)
            few_group(t, n, at, g, a, x, x_sums, acc);
        UNROLL for (int p = 0; p < n; p++) at[p].p += chunk_bytes;
    }
}

/* The same for n <= TILE_PANELS panels of a quantised format. */
static void few(rp__panel_format f, int n, const few_args *a, v16 *acc) {
    switch (f) {
#define RP_X(code, bits, group, is_k, has_min, zero)                                               \
    case RP__PANEL_##code:                                                                         \
        if (bits && n == TILE_PANELS)                                                              \
            few_blocks(rp__panel_traits_of(RP__PANEL_##code), TILE_PANELS, a, acc);                \
        else if (bits)                                                                             \
            few_blocks(rp__panel_traits_of(RP__PANEL_##code), 1, a, acc);                          \
        break;
        RP__PANEL_TABLE(RP_X)
#undef RP_X
    case RP__N_PANEL_FORMATS:
        break;
    }
}

/* The sums of x over each group of columns, which the mins multiply; `stride` floats apart. */
static void sum_groups(rp__panel_traits t, const float *x, int64_t k, float *sums, size_t stride) {
    for (int64_t i = 0; i < k; i += t.group, sums += stride) {
        v16 v = v16_load(x + i);
        if (t.group == 32) v = v16_add(v, v16_load(x + i + 16));
        *sums = v16_sum(v);
    }
}

/* ---- taking part of a panel apart: columns of F32, and of quantised ones scales and mins ---- */

/* `scale` and `min` get 16 floats per group. */
V16_INLINE void decode_blocks(rp__panel_traits t, const uint8_t *panel, int64_t k0, int64_t n,
                              float *q, float *scale, float *min) {
    cursor at = {panel, v16_zero(), v16_zero()};
    int64_t first = k0 / RP__PANEL_CHUNK;
    at.p += (size_t)first * rp__panel_chunk_bytes(t);
    at.p += (size_t)(first / 8) * rp__panel_head_bytes(t);
    for (int64_t c = first; c < first + n / RP__PANEL_CHUNK; c++) {
        if (t.is_k && c % 8 == 0) take_head(t, &at);
        for (int g = 0; g < RP__PANEL_CHUNK / t.group; g++) {
            v16 by = group_scale(t, &at, g);
            v16_store(scale, by), scale += RP__PANEL_ROWS;
            if (adds_min(t)) v16_store(min, group_min(t, &at, g, by)), min += RP__PANEL_ROWS;
        }
        for (int i = 0; i < RP__PANEL_CHUNK; i += 8) {
            UNROLL for (int j = 0; j < 8; j += 2, q += 2 * RP__PANEL_ROWS) {
                v16 even, odd;
                take_pair(t, &at, i, j, &even, &odd);
                v16_store(q, even);
                v16_store(q + RP__PANEL_ROWS, odd);
            }
        }
        at.p += rp__panel_chunk_bytes(t);
    }
}

V16_INLINE void decode_plain(rp__panel_format f, const uint8_t *panel, int64_t k0, int64_t n,
                             float *dst) {
    for (int64_t i = 0; i < n; i++)
        v16_store(dst + i * RP__PANEL_ROWS, plain_column(f, panel, k0 + i));
}

/* Columns [k0, k0 + n) of a panel as n rows of 16 floats: `dst`, or the panel's own memory when it
 * is F32 already. k0 is a multiple of 256. */
static const float *decode_panel(rp__panel_format f, const uint8_t *panel, int64_t k0, int64_t n,
                                 float *dst, float *scale, float *min) {
    if (f == RP__PANEL_F32) return (const float *)panel + k0 * RP__PANEL_ROWS;
    switch (f) {
#define RP_X(code, bits, group, is_k, has_min, zero)                                               \
    case RP__PANEL_##code:                                                                         \
        if (bits)                                                                                  \
            decode_blocks(rp__panel_traits_of(RP__PANEL_##code), panel, k0, n, dst, scale, min);   \
        else                                                                                       \
            decode_plain(RP__PANEL_##code, panel, k0, n, dst);                                     \
        break;
        RP__PANEL_TABLE(RP_X)
#undef RP_X
    case RP__N_PANEL_FORMATS:
        break;
    }
    return dst;
}

/* ---- tile: c [rows][..] += x [rows][n] times n columns of TILE_PANELS panels ---- */

/* What a tile works on. Row r of x is x + r * x_stride, row r of c is c + r * c_stride (strides in
 * floats); panel p fills 16 floats of a row of c at 16 * p. */
typedef struct tile_args {
    const float *x;
    size_t x_stride;
    const float *w[TILE_PANELS];
    int64_t n;
    float *c;
    size_t c_stride; /* quantised: TILE_C_STRIDE */
    bool is_first;   /* plain: sums start from 0, else from c. Quantised: always from c */
    /* quantised: columns per group (0: plain); 16 floats per group of scales and mins; the sums of
     * x by group, SUMS_STRIDE floats apart, then by row; NULL without mins */
    int group;
    const float *scale[TILE_PANELS], *min[TILE_PANELS];
    const float *x_sums;
} tile_args;

enum { TILE_C_STRIDE = TILE_PANELS * RP__PANEL_ROWS };

/* Where a tile stands: one pointer per three rows of x, the others are reached as base + stride and
 * base + 2 * stride. */
typedef struct tile_at {
    const float *base[(TILE_ROWS + 2) / 3], *w[TILE_PANELS];
    size_t stride;
} tile_at;

V16_INLINE tile_at tile_start(int rows, const tile_args *a) {
    tile_at at = {.stride = a->x_stride};
    UNROLL for (int b = 0; b < (rows + 2) / 3; b++) at.base[b] =
        a->x + (size_t)(3 * b) * a->x_stride;
    UNROLL for (int p = 0; p < TILE_PANELS; p++) at.w[p] = a->w[p];
    return at;
}

/* n columns, whose x lies x_step floats apart. */
V16_INLINE void tile_columns(int rows, int64_t n, int x_step, tile_at *at,
                             v16 acc[TILE_ROWS][TILE_PANELS]) {
    UNROLL_FOUR for (int64_t i = 0; i < n; i++) {
        v16 w[TILE_PANELS];
        UNROLL for (int p = 0; p < TILE_PANELS; p++) {
            w[p] = v16_load(at->w[p]);
            at->w[p] += RP__PANEL_ROWS;
        }
        UNROLL for (int r = 0; r < rows; r++) {
            v16 xr = v16_set1(at->base[r / 3][(size_t)(r % 3) * at->stride]);
            UNROLL for (int p = 0; p < TILE_PANELS; p++) acc[r][p] = v16_fma(w[p], xr, acc[r][p]);
        }
        UNROLL for (int b = 0; b < (rows + 2) / 3; b++) at->base[b] += x_step;
    }
}

V16_INLINE void tile_plain(int rows, const tile_args *a) {
    v16 acc[TILE_ROWS][TILE_PANELS];
    tile_at at = tile_start(rows, a);
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int p = 0; p < TILE_PANELS; p++) {
        const float *c = a->c + (size_t)r * a->c_stride + p * RP__PANEL_ROWS;
        acc[r][p] = a->is_first ? v16_zero() : v16_load(c);
    }
    tile_columns(rows, a->n, 1, &at, acc);
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int p = 0; p < TILE_PANELS; p++)
        v16_store(a->c + (size_t)r * a->c_stride + p * RP__PANEL_ROWS, acc[r][p]);
}

/* The sums live in c, since the registers are taken by the parts of the group. Everything the loop
 * reads of `a` is copied first: a store to c might change *a, for all the compiler knows. */
V16_INLINE void tile_groups(int rows, bool has_min, const tile_args *a) {
    tile_at at = tile_start(rows, a);
    const float *scale[TILE_PANELS], *min[TILE_PANELS], *x_sums = a->x_sums;
    float *c = a->c;
    const int group = a->group;
    const int64_t n_groups = a->n / group;
    UNROLL for (int p = 0; p < TILE_PANELS; p++) scale[p] = a->scale[p], min[p] = a->min[p];
    for (int64_t g = 0; g < n_groups; g++, x_sums += SUMS_STRIDE) {
        v16 acc[TILE_ROWS][TILE_PANELS];
        UNROLL for (int r = 0; r < rows; r++) UNROLL for (int p = 0; p < TILE_PANELS; p++)
            acc[r][p] = v16_zero();
        tile_columns(rows, group, 1, &at, acc);
        UNROLL for (int r = 0; r < rows; r++) UNROLL for (int p = 0; p < TILE_PANELS; p++) {
            float *sum = c + r * TILE_C_STRIDE + p * RP__PANEL_ROWS;
            v16 s = v16_fma(v16_load(scale[p] + g * RP__PANEL_ROWS), acc[r][p], v16_load(sum));
            if (has_min) s = v16_fma(v16_load(min[p] + g * RP__PANEL_ROWS), v16_set1(x_sums[r]), s);
            v16_store(sum, s);
        }
    }
}

V16_INLINE void tile_n(int rows, const tile_args *a) {
    if (!a->group)
        tile_plain(rows, a);
    else if (a->x_sums)
        tile_groups(rows, true, a);
    else
        tile_groups(rows, false, a);
}

static void tile(int rows, const tile_args *a) {
    switch (rows) {
    case 1:
        tile_n(1, a);
        break;
    case 2:
        tile_n(2, a);
        break;
#if TILE_ROWS > 2
    case 3:
        tile_n(3, a);
        break;
    case 4:
        tile_n(4, a);
        break;
    case 5:
        tile_n(5, a);
        break;
    case 6:
        tile_n(6, a);
        break;
#endif
#if TILE_ROWS > 6
    case 7:
        tile_n(7, a);
        break;
    case 8:
        tile_n(8, a);
        break;
    case 9:
        tile_n(9, a);
        break;
    case 10:
        tile_n(10, a);
        break;
    case 11:
        tile_n(11, a);
        break;
    case 12:
        tile_n(12, a);
        break;
    case 13:
        tile_n(13, a);
        break;
    case 14:
        tile_n(14, a);
        break;
#endif
    default:
        rp__panic(__FILE__, __LINE__, "rows", "a tile of %d rows", rows);
    }
}

/* Any number of rows, as even tiles of at most `most`: a last tile of one row would run at a
 * fraction of the speed. */
V16_INLINE void even_tiles(void (*run)(int rows, const tile_args *a), int64_t most, int64_t n_rows,
                           tile_args a) {
    int64_t n_tiles = (n_rows + most - 1) / most;
    for (int64_t i = 0; i < n_tiles; i++) {
        int64_t rows = n_rows * (i + 1) / n_tiles - n_rows * i / n_tiles;
        run((int)rows, &a);
        a.x += (size_t)rows * a.x_stride;
        a.c += (size_t)rows * a.c_stride;
        if (a.x_sums) a.x_sums += rows;
    }
}

static void tile_rows(int64_t n_rows, tile_args a) {
    even_tiles(tile, TILE_ROWS, n_rows, a);
}
