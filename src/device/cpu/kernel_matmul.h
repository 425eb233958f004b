/* Bodies that read weights: matmul, experts' matmul, embed. Part of kernels.h.
 * y[t][n] is the sum that kernel_tile.h defines, then + bias, then + add. */

enum {
    KC = 256, /* columns decoded at a time: with TILE_PANELS panels, most of a first-level cache */
    TC = RP__MATMUL_ROWS, /* rows of x whose sums are kept while a panel's columns go by */
    KC_GROUPS = KC / 16,  /* at most */
    W_FLOATS = KC * RP__PANEL_ROWS, /* scratch per panel: columns; scales, mins; sums */
    S_FLOATS = KC_GROUPS * RP__PANEL_ROWS,
    C_FLOATS = TC * RP__PANEL_ROWS,
    BLOCK_FLOATS = TILE_PANELS * (W_FLOATS + 2 * S_FLOATS + C_FLOATS),
};

_Static_assert(BLOCK_FLOATS * sizeof(float) <= RP__MATMUL_SCRATCH, "rp__panel_scratch covers it");
_Static_assert(KC % RP__PANEL_SUPER == 0, "blocks start at a head");

typedef struct matmul {
    const uint8_t *w;
    rp__panel_format format;
    rp__panel_traits traits;
    size_t panel_bytes;
    int64_t n, k;
    int64_t n_panels;
    int64_t n_sums;          /* groups per row whose sums of x are wanted; 0 without mins */
    float *scratch, *x_sums; /* a worker's: BLOCK_FLOATS, then [n_sums][TC], of one row [n_sums] */
} matmul;

static matmul matmul_of(const rp_tensor *w, const void *data, void *scratch) {
    matmul m = {.w = data, .format = rp__panel_format_of(w->dtype), .scratch = scratch};
    m.traits = rp__panel_traits_of(m.format);
    m.n = w->dim[w->n_dims - 2];
    m.k = w->dim[w->n_dims - 1];
    m.n_panels = rp__panel_count(m.n);
    m.panel_bytes = rp__panel_bytes_each(m.format, m.k);
    m.n_sums = adds_min(m.traits) ? m.k / m.traits.group : 0;
    m.x_sums = m.scratch + BLOCK_FLOATS;
    return m;
}

/* Where sums go: y row = y + t * y_stride, and what is added on the way. */
typedef struct sink {
    const float *bias;           /* [N] or NULL */
    const char *add;             /* [T,N] or NULL */
    size_t add_stride, y_stride; /* bytes */
    char *y;
} sink;

/* Asks for what finish_panel will touch: a line or two per row, which no prefetcher foresees. Not a
 * function of its own: it would be taken for one without effects, and left out. */
V16_INLINE void fetch_sink(const sink *s, int64_t t0, int64_t n_rows, int64_t panel) {
    size_t at = (size_t)panel * RP__PANEL_ROWS * sizeof(float);
    for (int64_t t = t0; t < t0 + n_rows; t++) {
        const char *y = s->y + (size_t)t * s->y_stride + at;
        for (int p = 0; p < TILE_PANELS; p++) __builtin_prefetch(y + p * LINE, 1);
        if (s->add) fetch(s->add + (size_t)t * s->add_stride + at, TILE_PANELS * LINE);
    }
}

static void finish_panel(const matmul *m, const sink *s, int64_t t, int64_t panel,
                         const float *sums) {
    int64_t n0 = panel * RP__PANEL_ROWS, n = min_i64(RP__PANEL_ROWS, m->n - n0);
    v16 v = v16_load(sums);
    float *y = (float *)(s->y + (size_t)t * s->y_stride) + n0;
    const float *add = NULL;
    if (s->bias) v = v16_add(v, v16_load_n(s->bias + n0, n));
    if (s->add) add = (const float *)(s->add + (size_t)t * s->add_stride) + n0;
    if (n == RP__PANEL_ROWS) {
        v16_store(y, add ? v16_add(v, v16_load(add)) : v);
    } else {
        v16_store_n(y, add ? v16_add(v, v16_load_n(add, n)) : v, n);
    }
}

/* Panels [from, to) for one row. */
static void matmul_row(const matmul *m, const sink *s, const float *x, int64_t t, int64_t from,
                       int64_t to) {
    float sums[GEMV_PANELS * RP__PANEL_ROWS];
    if (m->n_sums && from < to) sum_groups(m->traits, x, m->k, m->x_sums, 1);
    for (int64_t p = from; p < to; p += GEMV_PANELS) {
        int n = (int)min_i64(GEMV_PANELS, to - p);
        gemv(m->format, n, m->w + (size_t)p * m->panel_bytes, m->panel_bytes, x, m->x_sums, m->k,
             sums);
        for (int i = 0; i < n; i++) finish_panel(m, s, t, p + i, sums + i * RP__PANEL_ROWS);
    }
}

/* Panels [from, to) for 2 to FEW_ROWS rows. */
static void matmul_few(const rp__body_args *a, const matmul *m, const sink *s, int64_t from,
                       int64_t to) {
    const rp_tensor *tx = &a->op->in[0];
    v16 acc[FEW_ROWS * TILE_PANELS];
    few_args f = {.x = a->in[0],
                  .x_stride = tx->stride / sizeof(float),
                  .x_sums = m->x_sums,
                  .panel_bytes = m->panel_bytes,
                  .n_rows = (int)a->n_live,
                  .k = m->k};
    for (int64_t t = 0; m->n_sums && from < to && t < a->n_live; t++)
        sum_groups(m->traits, ref_item(tx, a->in[0], t), m->k, m->x_sums + t, SUMS_STRIDE);
    for (int64_t p = from; p < to; p += TILE_PANELS) {
        int n = (int)min_i64(TILE_PANELS, to - p);
        f.w = m->w + (size_t)p * m->panel_bytes;
        few(m->format, n, &f, acc);
        for (int64_t i = 0; i < a->n_live * n; i++) {
            float sums[RP__PANEL_ROWS];
            v16_store(sums, acc[i]);
            finish_panel(m, s, i / n, p + i % n, sums);
        }
    }
}

/* Columns [k, k + a->n) of TILE_PANELS panels into scratch. A missing last panel is computed as the
 * first one and not stored. */
static void take_columns(const matmul *m, int64_t panel, int n_panels, int64_t k, tile_args *a) {
    float *at = m->scratch;
    for (int p = 0; p < TILE_PANELS; p++, at += W_FLOATS + 2 * S_FLOATS) {
        if (p >= n_panels) {
            a->w[p] = a->w[0], a->scale[p] = a->scale[0], a->min[p] = a->min[0];
            continue;
        }
        float *scale = at + W_FLOATS, *min = scale + S_FLOATS;
        const uint8_t *w = m->w + (size_t)(panel + p) * m->panel_bytes;
        a->w[p] = decode_panel(m->format, w, k, a->n, at, scale, min);
        a->scale[p] = scale, a->min[p] = min;
    }
}

/* Up to TILE_PANELS panels from `panel` on for rows [t0, t0 + n_rows), n_rows <= TC; x: row t0. */
static void matmul_block(const matmul *m, const sink *s, const float *x, size_t x_stride,
                         int64_t t0, int64_t n_rows, int64_t panel) {
    int n_panels = (int)min_i64(TILE_PANELS, m->n_panels - panel);
    tile_args a = {.x_stride = x_stride,
                   .c = m->scratch + TILE_PANELS * (W_FLOATS + 2 * S_FLOATS),
                   .c_stride = TILE_C_STRIDE};
    if (m->traits.bits) a.group = m->traits.group;
    if (a.group) memset(a.c, 0, (size_t)(n_rows * TILE_C_STRIDE) * sizeof *a.c);
    fetch_sink(s, t0, n_rows, panel);
    for (int64_t k = 0; k < m->k; k += KC) {
        a.n = min_i64(KC, m->k - k);
        take_columns(m, panel, n_panels, k, &a);
        a.x = x + k;
        a.x_sums = m->n_sums ? m->x_sums + k / m->traits.group * SUMS_STRIDE : NULL;
        a.is_first = k == 0;
        tile_rows(n_rows, a);
    }
    for (int64_t r = 0; r < n_rows; r++)
        for (int p = 0; p < n_panels; p++)
            finish_panel(m, s, t0 + r, panel + p,
                         a.c + (size_t)r * a.c_stride + p * RP__PANEL_ROWS);
}

/* Rows are cut so that every worker has something to do also when there are few panels: so many
 * pieces of work, for one may be slower than the others. */
enum { LEAST_ITEMS = 8 };

static void matmul_tiled(const rp__body_args *a, const matmul *m, const sink *s) {
    const rp_tensor *tx = &a->op->in[0];
    int64_t n_groups = (m->n_panels + TILE_PANELS - 1) / TILE_PANELS;
    int64_t n_cuts = (a->n_live + TC - 1) / TC;
    int64_t most_cuts = (a->n_live + TILE_ROWS - 1) / TILE_ROWS;
    if (n_cuts * n_groups < LEAST_ITEMS * a->n_workers)
        n_cuts = LEAST_ITEMS * a->n_workers / n_groups;
    n_cuts = max_i64(1, min_i64(n_cuts, most_cuts));
    if ((a->n_live + n_cuts - 1) / n_cuts > TC) n_cuts = (a->n_live + TC - 1) / TC;
    ref_share items = ref_split(a, n_cuts * n_groups);
    int64_t cut_before = -1;
    for (int64_t i = items.from; i < items.to; i++) {
        int64_t cut = i / n_groups;
        int64_t t0 = a->n_live * cut / n_cuts, t1 = a->n_live * (cut + 1) / n_cuts;
        if (cut != cut_before && m->n_sums)
            for (int64_t t = t0; t < t1; t++)
                sum_groups(m->traits, ref_item(tx, a->in[0], t), m->k, m->x_sums + (t - t0),
                           SUMS_STRIDE);
        cut_before = cut;
        matmul_block(m, s, ref_item(tx, a->in[0], t0), tx->stride / sizeof(float), t0, t1 - t0,
                     i % n_groups * TILE_PANELS);
    }
}

/* kernel_q8.h: the same with 8-bit x. */
static void q8_matmul(const rp__body_args *a, const matmul *m, const sink *s);
static void q8_expert_row(const rp__body_args *a, const matmul *m, const sink *s, const void *x);

static void fast_matmul(const rp__body_args *a) {
    const rp_op *op = a->op;
    if (!op->in[1].is_weight) {
        rp__body_reference.fn[RP_OP_MATMUL](a);
        return;
    }
    matmul m = matmul_of(&op->in[1], a->in[1], a->scratch);
    sink s = {.y = a->out[0], .y_stride = op->out[0].stride};
    if (has_in(a, 2)) s.bias = a->in[2];
    if (has_in(a, 3)) s.add = a->in[3], s.add_stride = op->in[3].stride;
    if (op->in[0].dtype != RP_F32) {
        q8_matmul(a, &m, &s);
    } else if (a->n_live == 1) {
        ref_share panels = ref_split(a, m.n_panels);
        matmul_row(&m, &s, a->in[0], 0, panels.from, panels.to);
    } else if (a->n_live > 1 && a->n_live <= FEW_ROWS && m.traits.bits) {
        ref_share panels = ref_split(a, m.n_panels);
        matmul_few(a, &m, &s, panels.from, panels.to);
    } else if (a->n_live > 1) {
        matmul_tiled(a, &m, &s);
    }
}

/* ---- experts ---- */

/* One (token, choice) of an op as a row of x and of y. */
static const void *expert_x(const rp__body_args *a, int64_t i, int64_t n_choices) {
    const rp_tensor *tx = &a->op->in[0];
    const char *x = ref_item(tx, a->in[0], i / n_choices);
    if (tx->n_dims != 3) return x;
    return x + (size_t)(i % n_choices) * (rp__tensor_item_bytes(tx) / (size_t)n_choices);
}

static int64_t expert_id(const rp__body_args *a, int64_t i, int64_t n_choices) {
    const int32_t *ids = ref_item(&a->op->in[2], a->in[2], i / n_choices);
    return ids[i % n_choices];
}

/* Each worker makes its own panels for all rows, so that an expert's panel is read by one worker
 * only. */
static void fast_expert_matmul(const rp__body_args *a) {
    const rp_op *op = a->op;
    if (!op->in[1].is_weight) {
        rp__body_reference.fn[RP_OP_EXPERT_MATMUL](a);
        return;
    }
    matmul m = matmul_of(&op->in[1], a->in[1], a->scratch);
    int64_t n_choices = op->in[2].dim[1], n_rows = a->n_live * n_choices;
    size_t expert_bytes = (size_t)m.n_panels * m.panel_bytes;
    const uint8_t *first = m.w;
    ref_share panels = ref_split(a, m.n_panels);
    for (int64_t i = 0; i < n_rows; i++) {
        int64_t id = expert_id(a, i, n_choices);
        rp__assert(id >= 0 && id < op->in[1].dim[0], "expert %lld of %lld", (long long)id,
                   (long long)op->in[1].dim[0]);
        m.w = first + (size_t)id * expert_bytes;
        sink s = {.y = ref_item_out(&op->out[0], a->out[0], i / n_choices)};
        s.y += (size_t)(i % n_choices) * (size_t)m.n * sizeof(float);
        const void *x = expert_x(a, i, n_choices);
        if (op->in[0].dtype != RP_F32)
            q8_expert_row(a, &m, &s, x);
        else
            matmul_row(&m, &s, x, 0, panels.from, panels.to);
    }
}

/* ---- embed ---- */

static void fast_embed(const rp__body_args *a) {
    const rp_op *op = a->op;
    const rp_tensor *table = &op->in[0];
    if (!table->is_weight) {
        rp__body_reference.fn[RP_OP_EMBED](a);
        return;
    }
    const int32_t *ids = a->in[1];
    v16 scale = v16_set1(op->p.embed.scale);
    ref_share tokens = ref_split(a, a->n_live);
    for (int64_t t = tokens.from; t < tokens.to; t++) {
        rp__assert(ids[t] >= 0 && ids[t] < table->dim[0], "id %d of %lld", (int)ids[t],
                   (long long)table->dim[0]);
        float *y = ref_item_out(&op->out[0], a->out[0], t);
        rp__panel_row(table, a->in[0], ids[t], y);
        if (op->p.embed.scale == 1.0f) continue;
        for (int64_t e = 0; e < table->dim[1]; e += 16) {
            int64_t n = min_i64(16, table->dim[1] - e);
            v16_store_n(y + e, v16_mul(scale, v16_load_n(y + e, n)), n);
        }
    }
}
