/* Activations as whole numbers of one or two 8-bit digits: making them, and what goes with their
 * digits in a product. Part of kernels.h. */

/* How rows of an activation type are laid out. */
typedef struct x_layout {
    size_t block, q; /* bytes per block, and before its digits */
    int64_t chunks;  /* of 32 columns per block */
    int n_digits;    /* per number: 32 low ones, then 32 high ones */
} x_layout;

static x_layout x_layout_of(rp_dtype dtype) {
    x_layout l = {rp__dtype_block_bytes(dtype), RP__Q8_0_Q, 1, 1};
    if (dtype == RP_Q8_1) l.q = RP__Q8_1_Q;
    if (dtype == RP_Q8_K) l.q = RP__Q8_K_Q, l.chunks = RP__PANEL_SUPER / RP__PANEL_CHUNK;
    if (dtype == RP_Q16) l.q = RP__Q16_LOW, l.n_digits = 2;
    return l;
}

/* The low digits of a chunk. */
V16_INLINE const int8_t *q_at(const x_layout *l, const uint8_t *x, int64_t chunk) {
    const uint8_t *block = x + (size_t)(chunk / l->chunks) * l->block;
    return (const int8_t *)block + l->q + chunk % l->chunks * RP__PANEL_CHUNK;
}

/* ---- factors ---- */

/* What goes with the q of rows of x, by chunk of 32 columns, then group, then row. */
typedef struct x_factors {
    float *d;       /* [chunk][row] */
    int32_t *start; /* [chunk][2][row]: what the zero point and DOT_BIAS add to part */
    float *sum;     /* [chunk][2][row]: what mins multiply */
    size_t stride;  /* rows there is room for */
} x_factors;

/* In `memory` of RP__PANEL_FACTORS bytes per chunk and row. */
static x_factors x_factors_in(void *memory, int64_t n_chunks, int64_t n_rows) {
    size_t n = (size_t)(n_chunks * n_rows);
    float *d = memory, *sum = d + n;
    _Static_assert((1 + 2 + 2) * sizeof(float) == RP__PANEL_FACTORS, "d, sum, start");
    return (x_factors){d, (int32_t *)(sum + 2 * n), sum, (size_t)n_rows};
}

/* True when q may be any signed byte; the others are 0..63 at most. */
V16_INLINE bool is_signed(rp__panel_traits t) {
    return t.bits == 8;
}

/* Cells of 4 columns between dot_begin and dot_end: weights of 0..15, 0..31, 0..63 or any byte. */
V16_INLINE int dot_run(rp__panel_traits t) {
    static const int most[] = {[4] = 8, [5] = 4, [6] = 2, [8] = 1};
    const int all = t.group / 4;
    return DOT_PAIRS && most[t.bits] < all ? most[t.bits] : all;
}

static float f16_at(const uint8_t *p) {
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return s_from_f16(h);
}

static int32_t sum_of(const int8_t *q) {
    int32_t sum = 0;
    for (int i = 0; i < RP__PANEL_CHUNK; i++) sum += q[i];
    return sum;
}

static void take_factors_32(rp_dtype dtype, int32_t zero, const uint8_t *x, int64_t n_chunks,
                            x_factors f) {
    const x_layout l = x_layout_of(dtype);
    for (int64_t c = 0; c < n_chunks; c++, x += l.block) {
        *f.d = f16_at(x);
        *f.start = zero ? -zero * sum_of((const int8_t *)x + l.q) : 0;
        *f.sum = dtype == RP_Q8_1 ? f16_at(x + RP__Q8_1_S) : 0;
        f.d += f.stride, f.start += 2 * f.stride, f.sum += 2 * f.stride;
    }
}

/* Those of one chunk whose numbers add up to `sums` by sixteen; f points at it. */
V16_INLINE void put_factors(rp__panel_traits t, int32_t zero, float d, const int32_t *sums,
                            x_factors f) {
    int32_t of_group[2] = {sums[0], sums[1]};
    if (t.group == 32) of_group[0] += sums[1];
    *f.d = d;
    for (size_t g = 0; g < 2; g++) {
        f.start[g * f.stride] = -zero * of_group[g];
        f.sum[g * f.stride] = d * (float)of_group[g];
    }
}

static void take_factors_256(rp__panel_traits t, int32_t zero, const uint8_t *x, int64_t n_chunks,
                             x_factors f) {
    for (int64_t c = 0; c < n_chunks; c++) {
        const uint8_t *b = x + (size_t)(c / 8) * rp__dtype_block_bytes(RP_Q8_K);
        float d;
        int16_t sums[2];
        memcpy(&d, b, sizeof d);
        memcpy(sums, b + RP__Q8_K_SUMS + c % 8 * 4, sizeof sums);
        put_factors(t, zero, d, (int32_t[]){sums[0], sums[1]}, f);
        f.d += f.stride, f.start += 2 * f.stride, f.sum += 2 * f.stride;
    }
}

static void take_factors_q16(rp__panel_traits t, int32_t zero, const uint8_t *x, int64_t n_chunks,
                             x_factors f) {
    for (int64_t c = 0; c < n_chunks; c++, x += rp__dtype_block_bytes(RP_Q16)) {
        float d;
        int32_t sums[2];
        memcpy(&d, x, sizeof d);
        memcpy(sums, x + RP__Q16_SUMS, sizeof sums);
        put_factors(t, zero, d, sums, f);
        f.d += f.stride, f.start += 2 * f.stride, f.sum += 2 * f.stride;
    }
}

/* What products of bytes have too much of the sum of x. */
static int32_t zero_of(rp__panel_traits t) {
    return is_signed(t) ? DOT_BIAS : t.zero;
}

/* Of one row, which f points at. */
static void take_factors(rp__panel_traits t, int32_t zero, rp_dtype dtype, const uint8_t *x,
                         int64_t k, x_factors f) {
    if (dtype == RP_Q16)
        take_factors_q16(t, zero, x, k / RP__PANEL_CHUNK, f);
    else if (dtype == RP_Q8_K)
        take_factors_256(t, zero, x, k / RP__PANEL_CHUNK, f);
    else
        take_factors_32(dtype, zero, x, k / RP__PANEL_CHUNK, f);
}

/* ---- numbers of 16 bits ---- */

/* True when tiles take numbers of so many digits whole. */
V16_INLINE bool is_wide(int n_digits) {
#if defined(DOT_WIDE)
    return n_digits == 2;
#else
    (void)n_digits;
    return false;
#endif
}

/* Rows of them: no factors between. */
static const x_layout wide_layout = {2 * RP__PANEL_CHUNK, 0, 1, 1};

/* From a row of Q16. */
static void widen_row(const uint8_t *x, int64_t k, uint8_t *to) {
    for (int64_t c = 0; c < k / RP__PANEL_CHUNK; c++, x += rp__dtype_block_bytes(RP_Q16)) {
        const int8_t *low = (const int8_t *)x + RP__Q16_LOW;
        const int8_t *high = (const int8_t *)x + RP__Q16_HIGH;
        int16_t v[RP__PANEL_CHUNK];
        for (int i = 0; i < RP__PANEL_CHUNK; i++) v[i] = (int16_t)(RP__Q16_BASE * high[i] + low[i]);
        memcpy(to + (size_t)c * sizeof v, v, sizeof v);
    }
}

/* ---- making them: the bytes that rp__blocks_encode makes ---- */

/* The largest |x| of n, a multiple of 32; NaN when any is NaN or infinite: times zero, all others
 * are zero. */
V16_INLINE float q8_top(const float *x, int n) {
    v16 top = v16_zero(), zeros = v16_zero();
    for (int i = 0; i < n; i += 16) {
        v16 v = v16_load(x + i);
        top = v16_max(top, v16_abs(v));
        zeros = v16_add(zeros, v16_mul(v, v16_zero()));
    }
    return v16_sum(zeros) == 0 ? v16_top(top) : NAN;
}

V16_INLINE float q8_scale(float most, float top) {
    float scale = most / top;
    return isfinite(scale) ? scale : 0;
}

/* Without a scale x may be anything, NaN too. */
V16_INLINE v16 q8_whole(const float *x, float scale) {
    return scale == 0 ? v16_zero() : v16_round(v16_mul(v16_load(x), v16_set1(scale)));
}

/* Sixteen q; returns their sum, exact. */
V16_INLINE float q8_sixteen(const float *x, float scale, int8_t *q) {
    v16 v = q8_whole(x, scale);
    v16_to_i8(q, v);
    return v16_sum(v);
}

/* Of up to 16 blocks of 32: what a step of q is worth, and its inverse. */
typedef struct q8_steps {
    float d[16], scale[16];
} q8_steps;

/* `most` is the q of a block's largest |x|. */
V16_INLINE void q8_steps_of(const float *x, int n_blocks, float most, q8_steps *s) {
    const v16 lost = v16_set1(INFINITY);
    v16 zeros = v16_zero(), top;
    float tops[16] = {0};
    for (int i = 0; i < n_blocks; i++) {
        v16 a = v16_load(x + i * RP__PANEL_CHUNK), b = v16_load(x + i * RP__PANEL_CHUNK + 16);
        tops[i] = v16_top(v16_max(v16_abs(a), v16_abs(b)));
        zeros = v16_add(zeros, v16_mul(v16_add(v16_abs(a), v16_abs(b)), v16_zero()));
    }
    if (v16_sum(zeros) != 0) /* NaN: not all numbers */
        for (int i = 0; i < n_blocks; i++) tops[i] = q8_top(x + i * RP__PANEL_CHUNK, 32);
    top = v16_load(tops);
    v16_store(s->d, v16_div(top, v16_set1(most)));
    v16 scale = v16_div(v16_set1(most), top);
    v16_store(s->scale, v16_select_less(scale, lost, scale, v16_zero()));
}

V16_INLINE void q8_encode_as(rp_dtype dtype, const float *x, int64_t n_blocks, uint8_t *b) {
    const x_layout l = x_layout_of(dtype);
    q8_steps s;
    for (int64_t i = 0; i < n_blocks; i++, x += RP__PANEL_CHUNK, b += l.block) {
        const int at = (int)(i % 16);
        if (at == 0) q8_steps_of(x, (int)min_i64(16, n_blocks - i), 127, &s);
        const v16 v = q8_whole(x, s.scale[at]), w = q8_whole(x + 16, s.scale[at]);
        v16_to_i8((int8_t *)b + l.q, v);
        v16_to_i8((int8_t *)b + l.q + 16, w);
        uint16_t half[2] = {s_to_f16(s.d[at]), 0};
        if (dtype == RP_Q8_1) half[1] = s_to_f16(s.d[at] * v16_sum(v16_add(v, w)));
        memcpy(b, half, dtype == RP_Q8_1 ? 4 : 2);
    }
}

static void q8_encode_32(rp_dtype dtype, const float *x, int64_t n_blocks, uint8_t *b) {
    if (dtype == RP_Q8_1)
        q8_encode_as(RP_Q8_1, x, n_blocks, b);
    else
        q8_encode_as(RP_Q8_0, x, n_blocks, b);
}

/* True when the first of 256 x of the largest size is above 0. */
V16_INLINE bool q8_top_is_positive(const float *x, float top) {
    v16 most = v16_zero(), least = v16_zero();
    for (int i = 0; i < RP__PANEL_SUPER; i += 16) {
        most = v16_max(most, v16_load(x + i));
        least = v16_min(least, v16_load(x + i));
    }
    if (v16_top(most) < top) return false;
    if (v16_top(v16_sub(v16_zero(), least)) < top) return true;
    while (fabsf(*x) != top) x++;
    return *x > 0;
}

/* q goes by the first x of the largest size: by its sign. */
static void q8_encode_256(const float *x, int64_t n_blocks, uint8_t *b) {
    for (int64_t i = 0; i < n_blocks; i++, x += RP__PANEL_SUPER) {
        float top = q8_top(x, RP__PANEL_SUPER), scale = q8_scale(127, top);
        if (scale != 0 && q8_top_is_positive(x, top)) scale = -scale;
        float d = isnan(top) ? NAN : scale != 0 ? 1 / scale : 0;
        memcpy(b, &d, sizeof d);
        for (int g = 0; g < RP__PANEL_SUPER / 16; g++) {
            float sum = q8_sixteen(x + 16 * g, scale, (int8_t *)b + RP__Q8_K_Q + 16 * g);
            int16_t whole = (int16_t)sum;
            memcpy(b + RP__Q8_K_SUMS + 2 * g, &whole, sizeof whole);
        }
        b += rp__dtype_block_bytes(RP_Q8_K);
    }
}

static void q16_encode(const float *x, int64_t n_blocks, uint8_t *b) {
    const v16 base = v16_set1(RP__Q16_BASE), most = v16_set1(127);
    const size_t block = rp__dtype_block_bytes(RP_Q16);
    q8_steps s;
    for (int64_t i = 0; i < n_blocks; i++, b += block) {
        const int at = (int)(i % 16);
        int32_t sums[2];
        if (at == 0) q8_steps_of(x, (int)min_i64(16, n_blocks - i), RP__Q16_TOP, &s);
        for (int g = 0; g < 2; g++, x += 16) {
            v16 v = q8_whole(x, s.scale[at]);
            v16 high = v16_round(v16_mul(v, v16_set1(1.0f / RP__Q16_BASE)));
            v16 low = v16_sub(v, v16_mul(high, base));
            low = v16_max(v16_min(low, most), v16_sub(v16_zero(), most));
            v16_to_i8((int8_t *)b + RP__Q16_LOW + 16 * g, low);
            v16_to_i8((int8_t *)b + RP__Q16_HIGH + 16 * g, high);
            sums[g] = (int32_t)v16_sum(v16_add(v16_mul(high, base), low));
        }
        memcpy(b, &s.d[at], sizeof s.d[at]);
        memcpy(b + RP__Q16_SUMS, sums, sizeof sums);
    }
}

static void fast_convert(const rp__body_args *a) {
    const rp_tensor *tx = &a->op->in[0], *ty = &a->op->out[0];
    if (!rp__dtype_is_block(ty->dtype)) {
        rp__body_reference.fn[RP_OP_CONVERT](a);
        return;
    }
    int64_t n_blocks = rp__tensor_last(tx) / rp__dtype_block_elems(ty->dtype);
    ref_share rows = ref_split(a, ref_live_rows(tx, a->n_live));
    for (int64_t r = rows.from; r < rows.to; r++) {
        const float *x = ref_row(tx, a->in[0], r);
        void *y = ref_row_out(ty, a->out[0], r);
        if (ty->dtype == RP_Q16)
            q16_encode(x, n_blocks, y);
        else if (ty->dtype == RP_Q8_K)
            q8_encode_256(x, n_blocks, y);
        else
            q8_encode_32(ty->dtype, x, n_blocks, y);
    }
}
