/* Matmuls with rounded activations: whole numbers times whole numbers in panels. Part of kernels.h.
 *
 * y[t][n], in F32, group after group of the columns that share a scale:
 *     part = sum of (w.q - zero) * x.q, exact
 *     y    = fma(scale * d, part, y), then, where there are mins, y = fma(min, sum, y)
 * from 0, then + bias, then + add; sum is Q8_1's s, or else d times the sum of the group. An x.q of
 * two digits meets weights digit by digit: part is 256 times the sum of the high ones' products
 * plus that of the low ones'. */

/* Rows of x. */
typedef struct q8_rows {
    const uint8_t *x; /* row r: x + r * x_stride */
    size_t x_stride;
    const x_layout *l;
    x_factors f;
    int n_rows;
    int64_t k;
} q8_rows;

/* A group's products with numbers of n_digits, from `start`. q: the chunk's cells, of which the
 * group begins at column `from`; or w: the group's, unpacked. */
V16_INLINE d16 dot_group(rp__panel_traits t, int n_digits, const uint8_t *q, int from, const w64 *w,
                         const int8_t *x, int32_t start) {
    const int n_cells = t.group / 4, n_run = dot_run(t);
    d16 part[2] = {d16_set1(start), d16_set1(0)};
    UNROLL for (int i = 0; i < n_cells; i += n_run) {
        d16 run[2];
        UNROLL for (int d = 0; d < n_digits; d++) run[d] = dot_begin(part[d]);
        UNROLL for (int j = i; j < i + n_run; j++) {
            w64 cell = w ? w[j] : q8_cell(t, q, from + 4 * j);
            UNROLL for (int d = 0; d < n_digits; d++) {
                int32_t four = four_bytes(x + d * RP__PANEL_CHUNK + 4 * j);
                run[d] = is_signed(t) ? dot_signed(run[d], cell, four)
                                      : dot_small(run[d], cell, four);
            }
        }
        UNROLL for (int d = 0; d < n_digits; d++) part[d] = dot_end(part[d], run[d]);
    }
    return n_digits == 1 ? part[0] : d16_add(d16_times_256(part[1]), part[0]);
}

/* ---- gemv: n panels over all of k for one row ---- */

V16_INLINE void q8_gemv_n(rp__panel_traits t, int n_digits, int n, const uint8_t *w,
                          size_t panel_bytes, const q8_rows *a, float *out) {
    const size_t chunk_bytes = rp__panel_chunk_bytes(t);
    const x_factors f = a->f;
    v16 acc[GEMV_PANELS];
    cursor at[GEMV_PANELS];
    UNROLL for (int p = 0; p < n; p++) {
        acc[p] = v16_zero();
        at[p] = (cursor){w + (size_t)p * panel_bytes, v16_zero(), v16_zero()};
    }
    for (int64_t c = 0; c < a->k / RP__PANEL_CHUNK; c++) {
        if (t.is_k && c % 8 == 0) {
            UNROLL for (int p = 0; p < n; p++) take_head(t, &at[p]);
        }
        const size_t ahead = fetch_offset((size_t)(at[0].p - w), panel_bytes, n);
        UNROLL for (int p = 0; p < n; p++) fetch(at[p].p + ahead, chunk_bytes);
        const int8_t *x = q_at(a->l, a->x, c);
        v16 d = v16_set1(f.d[c]);
        UNROLL for (int g = 0; g < RP__PANEL_CHUNK / t.group; g++) {
            UNROLL for (int p = 0; p < n; p++) {
                const uint8_t *q = at[p].p + rp__panel_scale_bytes(t) * (1u + t.has_min);
                d16 part = dot_group(t, n_digits, q, g * t.group, NULL, x + g * t.group,
                                     f.start[2 * c + g]);
                v16 scale = group_scale(t, &at[p], g);
                acc[p] = v16_fma(v16_mul(scale, d), d16_to_v16(part), acc[p]);
                if (t.has_min)
                    acc[p] = v16_fma(group_min(t, &at[p], g, scale), v16_set1(f.sum[2 * c + g]),
                                     acc[p]);
            }
        }
        UNROLL for (int p = 0; p < n; p++) at[p].p += chunk_bytes;
    }
    UNROLL for (int p = 0; p < n; p++) v16_store(out + p * RP__PANEL_ROWS, acc[p]);
}

V16_INLINE void q8_gemv_as(rp__panel_traits t, int n_digits, int n, const uint8_t *w,
                           size_t panel_bytes, const q8_rows *a, float *out) {
    if (n == GEMV_PANELS)
        q8_gemv_n(t, n_digits, GEMV_PANELS, w, panel_bytes, a, out);
    else
        for (int p = 0; p < n; p++, w += panel_bytes, out += RP__PANEL_ROWS)
            q8_gemv_n(t, n_digits, 1, w, panel_bytes, a, out);
}

/* out [n * 16] = the sums of n <= GEMV_PANELS panels. */
static void q8_gemv(rp__panel_format format, int n, const uint8_t *w, size_t panel_bytes,
                    const q8_rows *a, float *out) {
    switch (format) {
#define RP_X(code, bits, group, is_k, has_min, zero)                                               \
    case RP__PANEL_##code:                                                                         \
        if (bits && a->l->n_digits == 1)                                                           \
            q8_gemv_as(q8_traits_of(RP__PANEL_##code), 1, n, w, panel_bytes, a, out);              \
        else if (bits)                                                                             \
            q8_gemv_as(q8_traits_of(RP__PANEL_##code), 2, n, w, panel_bytes, a, out);              \
        break;
        RP__PANEL_TABLE(RP_X)
#undef RP_X
    case RP__N_PANEL_FORMATS:
        break;
    }
}

/* ---- few rows: a few panels over all of k, each weight read and unpacked once ---- */

/* Rows for which cells stay in registers from one row to the next; more go in tiles. */
enum { Q8_FEW = 8 };

/* Group g of chunk c, whose low digits of row 0 are at x, for every row. The sums, touched once per
 * group, lie in memory. */
V16_INLINE void q8_few_group(rp__panel_traits t, int n_digits, int n, const cursor *at,
                             const q8_rows *a, const int8_t *x, int64_t c, int g, float *sums) {
    const size_t stride = a->x_stride, f_at = (size_t)(2 * c + g) * a->f.stride;
    const float *d = a->f.d + (size_t)c * a->f.stride, *sum = a->f.sum + f_at;
    const int32_t *start = a->f.start + f_at;
    const int n_rows = a->n_rows;
    v16 scale[TILE_PANELS], min[TILE_PANELS];
    w64 w[TILE_PANELS][RP__PANEL_CHUNK / 4];
    UNROLL for (int p = 0; p < n; p++) {
        const uint8_t *q = at[p].p + rp__panel_scale_bytes(t) * (1u + t.has_min);
        scale[p] = group_scale(t, &at[p], g);
        min[p] = group_min(t, &at[p], g, scale[p]);
        UNROLL for (int i = 0; i < t.group / 4; i++) w[p][i] = q8_cell(t, q, g * t.group + 4 * i);
    }
    for (int r = 0; r < n_rows; r++, x += stride) {
        UNROLL for (int p = 0; p < n; p++, sums += RP__PANEL_ROWS) {
            d16 part = dot_group(t, n_digits, NULL, 0, w[p], x, start[r]);
            v16 by = v16_mul(scale[p], v16_set1(d[r]));
            v16 y = v16_fma(by, d16_to_v16(part), v16_load(sums));
            if (t.has_min) y = v16_fma(min[p], v16_set1(sum[r]), y);
            v16_store(sums, y);
        }
    }
}

V16_INLINE void q8_few_n(rp__panel_traits t, int n_digits, int n, const uint8_t *w,
                         size_t panel_bytes, const q8_rows *a, float *sums) {
    const size_t chunk_bytes = rp__panel_chunk_bytes(t);
    cursor at[TILE_PANELS];
    UNROLL for (int p = 0; p < n; p++) at[p] =
        (cursor){w + (size_t)p * panel_bytes, v16_zero(), v16_zero()};
    memset(sums, 0, (size_t)(a->n_rows * n * RP__PANEL_ROWS) * sizeof *sums);
    for (int64_t c = 0; c < a->k / RP__PANEL_CHUNK; c++) {
        if (t.is_k && c % 8 == 0) {
            UNROLL for (int p = 0; p < n; p++) take_head(t, &at[p]);
        }
        const size_t ahead = fetch_offset((size_t)(at[0].p - w), panel_bytes, n);
        UNROLL for (int p = 0; p < n; p++) fetch(at[p].p + ahead, chunk_bytes);
        const int8_t *x = q_at(a->l, a->x, c);
        UNROLL for (int g = 0; g < RP__PANEL_CHUNK / t.group; g++)
            q8_few_group(t, n_digits, n, at, a, x + g * t.group, c, g, sums);
        UNROLL for (int p = 0; p < n; p++) at[p].p += chunk_bytes;
    }
}

V16_INLINE void q8_few_as(rp__panel_traits t, int n_digits, int n, const uint8_t *w,
                          size_t panel_bytes, const q8_rows *a, float *sums) {
    if (n == TILE_PANELS)
        q8_few_n(t, n_digits, TILE_PANELS, w, panel_bytes, a, sums);
    else
        q8_few_n(t, n_digits, 1, w, panel_bytes, a, sums);
}

/* sums [n_rows][n][16] of n <= TILE_PANELS panels: the full number, or one. */
static void q8_few(rp__panel_format format, int n, const uint8_t *w, size_t panel_bytes,
                   const q8_rows *a, float *sums) {
    switch (format) {
#define RP_X(code, bits, group, is_k, has_min, zero)                                               \
    case RP__PANEL_##code:                                                                         \
        if (bits && a->l->n_digits == 1)                                                           \
            q8_few_as(q8_traits_of(RP__PANEL_##code), 1, n, w, panel_bytes, a, sums);              \
        else if (bits)                                                                             \
            q8_few_as(q8_traits_of(RP__PANEL_##code), 2, n, w, panel_bytes, a, sums);              \
        break;
        RP__PANEL_TABLE(RP_X)
#undef RP_X
    case RP__N_PANEL_FORMATS:
        break;
    }
}

/* ---- bodies ---- */

enum { Q8_TC = RP__Q8_ROWS }; /* rows that go over panels while they are unpacked */

/* What a worker has for itself: panels of RP__Q8_SCRATCH bytes, then factors. */
typedef struct q8_scratch {
    uint8_t *cells;            /* [TILE_PANELS][Q8_CELLS] */
    float *scale, *min, *sums; /* [TILE_PANELS][Q8_SCALES] twice, [Q8_TC][Q8_C_STRIDE] */
    uint8_t *wide;             /* [n_wide][k], numbers of 16 bits */
    int64_t *cut;              /* of q8_tiled, that `wide` and f are of; left for the next part */
    x_factors f;
} q8_scratch;

static q8_scratch q8_scratch_of(void *memory, int64_t k, int64_t n_rows, int64_t n_wide) {
    q8_scratch s = {.cells = memory};
    s.scale = (float *)(s.cells + TILE_PANELS * Q8_CELLS);
    s.min = s.scale + TILE_PANELS * Q8_SCALES;
    s.sums = s.min + TILE_PANELS * Q8_SCALES;
    _Static_assert(TILE_PANELS * (Q8_CELLS + 4 * (2 * Q8_SCALES + Q8_TC * RP__PANEL_ROWS)) + 64 <=
                       RP__Q8_SCRATCH,
                   "rp__panel_scratch covers it");
    s.cut = (int64_t *)(s.cells + RP__Q8_SCRATCH - sizeof *s.cut);
    s.wide = s.cells + RP__Q8_SCRATCH;
    s.f = x_factors_in(s.wide + (size_t)(n_wide * k) * 2, k / RP__PANEL_CHUNK, n_rows);
    return s;
}

/* Panels [from, to) for one row, whose factors may be there. */
static void q8_row(const matmul *m, const sink *s, rp_dtype dtype, const uint8_t *x, int64_t t,
                   ref_share panels, bool has_factors) {
    float sums[GEMV_PANELS * RP__PANEL_ROWS];
    const x_layout l = x_layout_of(dtype);
    const q8_rows a = {x, 0, &l, q8_scratch_of(m->scratch, m->k, 1, 0).f, 1, m->k};
    if (!has_factors) take_factors(m->traits, zero_of(m->traits), dtype, x, m->k, a.f);
    for (int64_t p = panels.from; p < panels.to; p += GEMV_PANELS) {
        int n = (int)min_i64(GEMV_PANELS, panels.to - p);
        q8_gemv(m->format, n, m->w + (size_t)p * m->panel_bytes, m->panel_bytes, &a, sums);
        for (int i = 0; i < n; i++) finish_panel(m, s, t, p + i, sums + i * RP__PANEL_ROWS);
    }
}

/* This worker's panels for 2 to Q8_FEW rows. */
static void q8_few_rows(const rp__body_args *b, const matmul *m, const sink *s) {
    const rp_tensor *tx = &b->op->in[0];
    const ref_share panels = ref_split(b, m->n_panels);
    const x_layout l = x_layout_of(tx->dtype);
    const q8_scratch own = q8_scratch_of(m->scratch, m->k, b->n_live, 0);
    const q8_rows a = {b->in[0], tx->stride, &l, own.f, (int)b->n_live, m->k};
    for (int64_t t = 0; t < b->n_live && !b->is_again; t++) {
        x_factors f = own.f;
        f.d += t, f.start += t, f.sum += t;
        take_factors(m->traits, zero_of(m->traits), tx->dtype, ref_item(tx, b->in[0], t), m->k, f);
    }
    for (int64_t p = panels.from; p < panels.to;) {
        int n = panels.to - p < TILE_PANELS ? 1 : TILE_PANELS;
        q8_few(m->format, n, m->w + (size_t)p * m->panel_bytes, m->panel_bytes, &a, own.sums);
        for (int64_t t = 0; t < b->n_live; t++)
            for (int i = 0; i < n; i++)
                finish_panel(m, s, t, p + i, own.sums + (t * n + i) * RP__PANEL_ROWS);
        p += n;
    }
}

/* Columns [k, k + a->n) of TILE_PANELS panels. A missing last panel is computed as the first one
 * and not stored. */
static void q8_take_columns(const matmul *m, const q8_scratch *s, int64_t panel, int n_panels,
                            int64_t k, q8_args *a) {
    for (int p = 0; p < TILE_PANELS; p++) {
        uint8_t *cells = s->cells + p * Q8_CELLS;
        float *scale = s->scale + p * Q8_SCALES, *min = s->min + p * Q8_SCALES;
        if (p < n_panels)
            q8_unpack(m->format, a->n_digits, m->w + (size_t)(panel + p) * m->panel_bytes, k, a->n,
                      cells, scale, min);
        a->cells[p] = p < n_panels ? cells : a->cells[0];
        a->scale[p] = p < n_panels ? scale : a->scale[0];
        a->min[p] = p < n_panels ? min : a->min[0];
    }
}

/* Up to TILE_PANELS panels from `panel` on for some rows, of which t0 is the first. */
static void q8_block(const matmul *m, const sink *s, const q8_scratch *own, const q8_rows *x,
                     int n_digits, int64_t t0, int64_t panel) {
    int n_panels = (int)min_i64(TILE_PANELS, m->n_panels - panel);
    q8_args a = {.x_stride = x->x_stride, .c = own->sums, .n_digits = n_digits};
    a.x_chunk = x->l->chunks == 1 ? x->l->block : RP__PANEL_CHUNK;
    memset(a.c, 0, (size_t)(x->n_rows * Q8_C_STRIDE) * sizeof *a.c);
    fetch_sink(s, t0, x->n_rows, panel);
    for (int64_t k = 0; k < m->k; k += RP__PANEL_SUPER) {
        size_t chunk = (size_t)(k / RP__PANEL_CHUNK), stride = x->f.stride;
        a.n = min_i64(RP__PANEL_SUPER, m->k - k);
        q8_take_columns(m, own, panel, n_panels, k, &a);
        a.x = q_at(x->l, x->x, (int64_t)chunk);
        a.f = (x_factors){x->f.d + chunk * stride, x->f.start + 2 * chunk * stride,
                          x->f.sum + 2 * chunk * stride, stride};
        q8_tile_rows(m->traits, x->n_rows, a);
    }
    for (int64_t r = 0; r < x->n_rows; r++)
        for (int p = 0; p < n_panels; p++)
            finish_panel(m, s, t0 + r, panel + p, a.c + r * Q8_C_STRIDE + p * RP__PANEL_ROWS);
}

/* Rows [t0, t1) as tiles take them, maybe taken before. */
static q8_rows q8_take_rows(const rp__body_args *a, const matmul *m, const q8_scratch *own,
                            const x_layout *l, int64_t t0, int64_t t1, bool is_taken) {
    const rp_tensor *tx = &a->op->in[0];
    const bool wide = is_wide(l->n_digits);
    for (int64_t t = t0; t < t1 && !is_taken; t++) {
        const uint8_t *x = ref_item(tx, a->in[0], t);
        x_factors f = own->f;
        f.d += t - t0, f.start += t - t0, f.sum += t - t0;
        take_factors(m->traits, wide ? m->traits.zero : zero_of(m->traits), tx->dtype, x, m->k, f);
        if (wide) widen_row(x, m->k, own->wide + (size_t)((t - t0) * m->k) * 2);
    }
    q8_rows x = {ref_item(tx, a->in[0], t0), tx->stride, l, own->f, (int)(t1 - t0), m->k};
    if (wide) x.x = own->wide, x.x_stride = (size_t)m->k * 2, x.l = &wide_layout;
    return x;
}

/* Rows go in even cuts of whole tiles: smaller ones where there are not panels enough for all
 * workers. */
static void q8_tiled(const rp__body_args *a, const matmul *m, const sink *s) {
    const x_layout l = x_layout_of(a->op->in[0].dtype);
    const int64_t n_groups = (m->n_panels + TILE_PANELS - 1) / TILE_PANELS;
    const int64_t most = is_wide(l.n_digits) ? rp__panel_wide_rows(m->k) : Q8_TC;
    int64_t n_least = (a->n_live + most - 1) / most;
    int64_t rows = ((a->n_live + n_least - 1) / n_least + Q8_ROWS - 1) / Q8_ROWS * Q8_ROWS;
    while (rows > Q8_ROWS && (a->n_live + rows - 1) / rows * n_groups < LEAST_ITEMS * a->n_workers)
        rows -= Q8_ROWS;
    int64_t n_cuts = (a->n_live + rows - 1) / rows;
    ref_share items = ref_split(a, n_cuts * n_groups);
    int64_t n_own = min_i64(most, a->n_live);
    q8_scratch own = q8_scratch_of(m->scratch, m->k, n_own, is_wide(l.n_digits) ? n_own : 0);
    q8_rows x = {0};
    if (!a->is_again) *own.cut = -1;
    for (int64_t i = items.from; i < items.to; i++) {
        int64_t cut = i / n_groups, t0 = cut * rows, t1 = min_i64(t0 + rows, a->n_live);
        if (i == items.from || cut != *own.cut)
            x = q8_take_rows(a, m, &own, &l, t0, t1, cut == *own.cut);
        *own.cut = cut;
        q8_block(m, s, &own, &x, l.n_digits, t0, i % n_groups * TILE_PANELS);
    }
}

static void q8_matmul(const rp__body_args *a, const matmul *m, const sink *s) {
    if (a->n_live > Q8_FEW)
        q8_tiled(a, m, s);
    else if (a->n_live > 1)
        q8_few_rows(a, m, s);
    else if (a->n_live == 1)
        q8_row(m, s, a->op->in[0].dtype, a->in[0], 0, ref_split(a, m->n_panels), a->is_again);
}

/* One (token, choice): m is that expert's matrix. */
static void q8_expert_row(const rp__body_args *a, const matmul *m, const sink *s, const void *x) {
    q8_row(m, s, a->op->in[0].dtype, x, 0, ref_split(a, m->n_panels), false);
}
