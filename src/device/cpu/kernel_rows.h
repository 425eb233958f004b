/* Bodies that work row by row or element by element. Part of kernels.h.
 * Sums over a row: four accumulators of 16 lanes take turns, ((a0 + a1) + (a2 + a3)), then the tree
 * of v16_sum. */

/* ---- norms ---- */

typedef struct row_sum {
    v16 part[4];
} row_sum;

V16_INLINE row_sum row_sum_zero(void) {
    return (row_sum){{v16_zero(), v16_zero(), v16_zero(), v16_zero()}};
}
V16_INLINE float row_sum_total(const row_sum *s) {
    return v16_sum(v16_add(v16_add(s->part[0], s->part[1]), v16_add(s->part[2], s->part[3])));
}

/* Elements i and on of x (+ r), 16 or what is left, kept in `sum` when given. */
V16_INLINE v16 added(const float *x, const float *r, float *sum, int64_t i, int64_t n) {
    v16 s = n < 16 ? v16_load_n(x + i, n) : v16_load(x + i);
    if (r) s = v16_add(s, n < 16 ? v16_load_n(r + i, n) : v16_load(r + i));
    if (sum && n < 16) v16_store_n(sum + i, s, n);
    if (sum && n >= 16) v16_store(sum + i, s);
    return s;
}

/* s = x (+ r), kept in `sum` when given; the sum of its squares. */
static float sum_of_squares(const float *x, const float *r, float *sum, int64_t n) {
    row_sum total = row_sum_zero();
    int64_t i = 0;
    for (; i + 64 <= n; i += 64) {
        UNROLL for (int j = 0; j < 4; j++) {
            v16 s = added(x, r, sum, i + 16 * j, 16);
            total.part[j] = v16_fma(s, s, total.part[j]);
        }
    }
    UNROLL for (int j = 0; j < 4; j++) {
        if (i + 16 * j >= n) break;
        v16 s = added(x, r, sum, i + 16 * j, n - i - 16 * j);
        total.part[j] = v16_fma(s, s, total.part[j]);
    }
    return row_sum_total(&total);
}

/* y = (x (+ r)) * by * (w (+ 1)) */
static void scale_row(const float *x, const float *r, float by, const float *w, bool add_one,
                      float *y, int64_t n) {
    const v16 factor = v16_set1(by), one = v16_set1(1.0f);
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        v16 s = added(x, r, NULL, i, 16), wi = v16_load(w + i);
        if (add_one) wi = v16_add(wi, one);
        v16_store(y + i, v16_mul(v16_mul(s, factor), wi));
    }
    if (i == n) return;
    v16 wi = v16_load_n(w + i, n - i);
    if (add_one) wi = v16_add(wi, one);
    v16_store_n(y + i, v16_mul(v16_mul(added(x, r, NULL, i, n - i), factor), wi), n - i);
}

static void fast_rms_norm(const rp__body_args *a) {
    const rp_op *op = a->op;
    const rp_tensor *tx = &op->in[0];
    int64_t n = rp__tensor_last(tx);
    ref_share rows = ref_split(a, ref_live_rows(tx, a->n_live));
    for (int64_t i = rows.from; i < rows.to; i++) {
        const float *x = ref_row(tx, a->in[0], i);
        const float *r = has_in(a, 2) ? ref_row(&op->in[2], a->in[2], i) : NULL;
        float *sum = has_out(a, 1) ? ref_row_out(&op->out[1], a->out[1], i) : NULL;
        float squares = sum_of_squares(x, r, sum, n);
        float by = 1.0f / sqrtf(squares / (float)n + op->p.norm.eps);
        if (sum) x = sum, r = NULL; /* the sum may lie where x or r was */
        scale_row(x, r, by, a->in[1], op->p.norm.add_one, ref_row_out(&op->out[0], a->out[0], i),
                  n);
    }
}

static float row_mean(const float *x, int64_t n) {
    row_sum total = row_sum_zero();
    for (int64_t i = 0, turn = 0; i < n; i += 16, turn = (turn + 1) & 3)
        total.part[turn] = v16_add(total.part[turn], v16_load_n(x + i, min_i64(16, n - i)));
    return row_sum_total(&total) / (float)n;
}

static float row_variance(const float *x, float mean, int64_t n) {
    row_sum total = row_sum_zero();
    v16 m = v16_set1(mean);
    for (int64_t i = 0, turn = 0; i < n; i += 16, turn = (turn + 1) & 3) {
        int64_t left = min_i64(16, n - i);
        v16 d = v16_keep_n(v16_sub(v16_load_n(x + i, left), m), left, v16_zero());
        total.part[turn] = v16_fma(d, d, total.part[turn]);
    }
    return row_sum_total(&total) / (float)n;
}

static void fast_layer_norm(const rp__body_args *a) {
    const rp_op *op = a->op;
    const rp_tensor *tx = &op->in[0];
    const float *w = a->in[1], *b = has_in(a, 2) ? a->in[2] : NULL;
    int64_t n = rp__tensor_last(tx);
    ref_share rows = ref_split(a, ref_live_rows(tx, a->n_live));
    for (int64_t i = rows.from; i < rows.to; i++) {
        const float *x = ref_row(tx, a->in[0], i);
        float *y = ref_row_out(&op->out[0], a->out[0], i);
        float mean = row_mean(x, n), by = 1.0f / sqrtf(row_variance(x, mean, n) + op->p.norm.eps);
        v16 m = v16_set1(mean), factor = v16_set1(by);
        for (int64_t e = 0; e < n; e += 16) {
            int64_t left = min_i64(16, n - e);
            v16 s = v16_mul(v16_sub(v16_load_n(x + e, left), m), factor);
            v16 bias = b ? v16_load_n(b + e, left) : v16_zero();
            v16_store_n(y + e, v16_fma(s, v16_load_n(w + e, left), bias), left);
        }
    }
}

/* ---- rope ---- */

/* (p, q) turned by (cos, sin), pairs i and i + half; both are read before either is written: y may
 * be x. */
static void rope_half(const float *x, const float *cs, float *y, int64_t half) {
    for (int64_t i = 0; i < half; i += 16) {
        int64_t n = min_i64(16, half - i);
        v16 p = v16_load_n(x + i, n), q = v16_load_n(x + half + i, n);
        v16 c = v16_load_n(cs + i, n), s = v16_load_n(cs + half + i, n);
        v16 minus_qs = v16_sub(v16_zero(), v16_mul(q, s));
        v16_store_n(y + i, v16_fma(p, c, minus_qs), n);
        v16_store_n(y + half + i, v16_fma(q, c, v16_mul(p, s)), n);
    }
}

static void rope_interleaved(const float *x, const float *cs, float *y, int64_t half) {
    for (int64_t i = 0; i < half; i++) {
        float p = x[2 * i], q = x[2 * i + 1], c = cs[i], s = cs[half + i];
        y[2 * i] = s_fma(p, c, -(q * s));
        y[2 * i + 1] = s_fma(q, c, p * s);
    }
}

static void fast_rope(const rp__body_args *a) {
    const rp_op *op = a->op;
    const rp_tensor *tx = &op->in[0];
    int64_t n_heads = tx->dim[1], d = tx->dim[2], r = op->in[1].dim[1];
    ref_share rows = ref_split(a, a->n_live * n_heads);
    for (int64_t i = rows.from; i < rows.to; i++) {
        const float *x = ref_row(tx, a->in[0], i),
                    *cs = ref_item(&op->in[1], a->in[1], i / n_heads);
        float *y = ref_row_out(&op->out[0], a->out[0], i);
        if (op->p.rope.style == RP_ROPE_HALF)
            rope_half(x, cs, y, r / 2);
        else
            rope_interleaved(x, cs, y, r / 2);
        if (y != x) memcpy(y + r, x + r, (size_t)(d - r) * sizeof(float));
    }
}

/* ---- element by element: y = f(x, z) ---- */

typedef enum map_kind { MAP_ADD, MAP_MUL, MAP_SCALE, MAP_SOFTCAP, MAP_ACT, MAP_GATED } map_kind;

/* x * (0.5 + 0.5 erf(x / sqrt 2)); libm's erf lane by lane: the exact form is rare. */
static v16 gelu_exact(v16 x) {
    float f[16];
    v16_store(f, x);
    for (int i = 0; i < 16; i++) f[i] = f[i] * (0.5f + 0.5f * erff(f[i] * 0.70710678f));
    return v16_load(f);
}

V16_INLINE v16 activate(rp_act act, v16 x) {
    const v16 one = v16_set1(1.0f), half = v16_set1(0.5f);
    switch (act) {
    case RP_ACT_SILU:
        return v16_div(x, v16_add(one, v16_exp(v16_sub(v16_zero(), x))));
    case RP_ACT_GELU:
        return gelu_exact(x);
    case RP_ACT_GELU_TANH: { /* x / 2 * (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) */
        v16 cube = v16_mul(v16_mul(x, x), x);
        v16 u = v16_mul(v16_set1(0.79788456f), v16_fma(v16_set1(0.044715f), cube, x));
        return v16_mul(v16_mul(half, x), v16_add(one, v16_tanh(u)));
    }
    case RP_ACT_RELU:
        return v16_max(v16_zero(), x); /* NaN stays NaN */
    case RP_N_ACTS:
        break;
    }
    return x;
}

V16_INLINE v16 map_one(map_kind kind, rp_act act, v16 value, v16 x, v16 z) {
    switch (kind) {
    case MAP_ADD:
        return v16_add(x, z);
    case MAP_MUL:
        return v16_mul(x, z);
    case MAP_SCALE:
        return v16_mul(value, x);
    case MAP_SOFTCAP:
        return v16_mul(value, v16_tanh(v16_div(x, value)));
    case MAP_ACT:
        return activate(act, x);
    case MAP_GATED:
        return v16_mul(activate(act, x), z);
    }
    return x;
}

V16_INLINE void map_span(map_kind kind, rp_act act, float value, const float *x, const float *z,
                         float *y, int64_t n) {
    bool has_z = kind == MAP_ADD || kind == MAP_MUL || kind == MAP_GATED;
    v16 by = v16_set1(value);
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        v16_store(y + i, map_one(kind, act, by, v16_load(x + i), has_z ? v16_load(z + i) : by));
    if (i < n) {
        v16 last = has_z ? v16_load_n(z + i, n - i) : by;
        v16_store_n(y + i, map_one(kind, act, by, v16_load_n(x + i, n - i), last), n - i);
    }
}

static void map_row(map_kind kind, rp_act act, float value, const float *x, const float *z,
                    float *y, int64_t n) {
    switch (kind) {
    case MAP_ADD:
        map_span(MAP_ADD, RP_ACT_RELU, value, x, z, y, n);
        return;
    case MAP_MUL:
        map_span(MAP_MUL, RP_ACT_RELU, value, x, z, y, n);
        return;
    case MAP_SCALE:
        map_span(MAP_SCALE, RP_ACT_RELU, value, x, z, y, n);
        return;
    case MAP_SOFTCAP:
        map_span(MAP_SOFTCAP, RP_ACT_RELU, value, x, z, y, n);
        return;
    case MAP_ACT:
    case MAP_GATED:
        break;
    }
    bool gated = kind == MAP_GATED;
    switch (act) {
#define ACT_CASE(code)                                                                             \
    case code:                                                                                     \
        if (gated)                                                                                 \
            map_span(MAP_GATED, code, value, x, z, y, n);                                          \
        else                                                                                       \
            map_span(MAP_ACT, code, value, x, z, y, n);                                            \
        return;
        ACT_CASE(RP_ACT_SILU)
        ACT_CASE(RP_ACT_GELU)
        ACT_CASE(RP_ACT_GELU_TANH)
        ACT_CASE(RP_ACT_RELU)
#undef ACT_CASE
    case RP_N_ACTS:
        return;
    }
}

/* Items are cut into spans of MAP_SPAN elements, which workers share out: also a single row uses
 * all of them. */
enum { MAP_SPAN = 1024 };

static void map_items(const rp__body_args *a, map_kind kind, rp_act act, float value) {
    const rp_tensor *tx = &a->op->in[0], *tz = &a->op->in[1], *ty = &a->op->out[0];
    bool has_z = kind == MAP_ADD || kind == MAP_MUL || kind == MAP_GATED;
    bool z_is_row = has_z && tz->n_dims < tx->n_dims; /* [E] for every row */
    bool is_vector = tx->n_dims == 1;                 /* items are elements */
    int64_t n_items = is_vector ? 1 : a->n_live;
    int64_t n = is_vector ? a->n_live : (tx->dim[0] ? rp__tensor_elems(tx) / tx->dim[0] : 0);
    int64_t n_spans = (n + MAP_SPAN - 1) / MAP_SPAN;
    ref_share work = ref_split(a, n_items * n_spans);
    for (int64_t i = work.from; i < work.to; i++) {
        int64_t item = i / n_spans, from = i % n_spans * MAP_SPAN,
                count = min_i64(MAP_SPAN, n - from);
        const float *x = (const float *)ref_item(tx, a->in[0], is_vector ? 0 : item) + from;
        float *y = (float *)ref_item_out(ty, a->out[0], is_vector ? 0 : item) + from;
        const float *z = NULL;
        if (has_z)
            z = (const float *)ref_item(tz, a->in[1], z_is_row || is_vector ? 0 : item) + from;
        map_row(kind, act, value, x, z, y, count);
    }
}

static void fast_add(const rp__body_args *a) {
    map_items(a, MAP_ADD, RP_ACT_RELU, 0);
}
static void fast_mul(const rp__body_args *a) {
    map_items(a, MAP_MUL, RP_ACT_RELU, 0);
}
static void fast_scale(const rp__body_args *a) {
    map_items(a, MAP_SCALE, RP_ACT_RELU, a->op->p.scalar.value);
}
static void fast_softcap(const rp__body_args *a) {
    map_items(a, MAP_SOFTCAP, RP_ACT_RELU, a->op->p.scalar.value);
}
static void fast_act(const rp__body_args *a) {
    map_items(a, MAP_ACT, a->op->p.act.kind, 0);
}
static void fast_gated(const rp__body_args *a) {
    map_items(a, MAP_GATED, a->op->p.act.kind, 0);
}

/* ---- KV write ---- */

static void store_kv(rp_dtype dtype, const float *x, void *dst, int64_t n) {
    int64_t i = 0;
    if (dtype == RP_F16)
        for (; i + 16 <= n; i += 16) v16_to_f16((uint16_t *)dst + i, v16_load(x + i));
    if (i < n)
        rp__dtype_from_f32(dtype, x + i, (char *)dst + (size_t)i * rp__dtype_block_bytes(dtype),
                           n - i);
}

static void fast_kv_write(const rp__body_args *a) {
    const rp_op *op = a->op;
    ref_share tokens = ref_split(a, a->n_live);
    for (int side = 0; side < 2; side++) {
        const rp_tensor *cache = &op->out[side];
        int64_t block = cache->dim[2], d = cache->dim[3];
        size_t row_bytes = (size_t)d * rp__dtype_block_bytes(cache->dtype);
        for (int64_t t = tokens.from; t < tokens.to; t++) {
            int64_t slot = ref_kv_slot(a, t);
            rp__assert(slot >= 0 && slot < cache->dim[0] * block, "slot %lld", (long long)slot);
            const float *x = ref_item(&op->in[side], a->in[side], t);
            char *dst = ref_item_out(cache, a->out[side], slot / block);
            dst += (size_t)(slot % block) * row_bytes;
            for (int64_t kv = 0; kv < cache->dim[1]; kv++)
                store_kv(cache->dtype, x + kv * d, dst + (size_t)(kv * block) * row_bytes, d);
        }
    }
}

/* ---- argmax ---- */

/* Largest of n values, NaN aside; -infinity when there is none. */
static float largest_of(const float *x, int64_t n) {
    const v16 lowest = v16_set1(-INFINITY);
    v16 top = lowest;
    for (int64_t i = 0; i < n; i += 16) {
        int64_t left = min_i64(16, n - i);
        top = v16_max(v16_keep_n(v16_load_n(x + i, left), left, lowest), top); /* NaN gives `top` */
    }
    return v16_top(top);
}

/* The first span that has the largest value, then the first index in it. */
static int32_t argmax_row(const float *x, int64_t n) {
    float largest = -INFINITY;
    int64_t at = 0;
    for (int64_t i = 0; i < n; i += MAP_SPAN) {
        float top = largest_of(x + i, min_i64(MAP_SPAN, n - i));
        if (top > largest) largest = top, at = i;
    }
    for (int64_t i = at; i < n; i++)
        if (x[i] == largest) return (int32_t)i;
    return 0; /* all are NaN */
}

static void fast_argmax(const rp__body_args *a) {
    int32_t *ids = a->out[0];
    ref_share rows = ref_split(a, a->n_live);
    for (int64_t r = rows.from; r < rows.to; r++)
        ids[r] = argmax_row(ref_item(&a->op->in[0], a->in[0], r), a->op->in[0].dim[1]);
}
