/* Matmuls with 8-bit activations: whole numbers times whole numbers in panels. Part of kernels.h.
 *
 * y[t][n], in F32, group after group of the columns that share a scale:
 *     part = sum of (w.q - zero) * x.q, exact
 *     y    = fma(scale * d, part, y), then, where there are mins, y = fma(min, sum, y)
 * from 0, then + bias, then + add; sum is Q8_1's s, or Q8_K's d times the sum of the group. */

/* 32 columns of a row of x, beside their q. */
typedef struct x_chunk {
    float d;
    int32_t start[2]; /* of group 0 and 1: what the zero point and DOT_BIAS add to part */
    float sum[2];
} x_chunk;

_Static_assert(sizeof(x_chunk) == RP__PANEL_FACTOR, "rp__panel_scratch covers them");

/* How rows of an activation type are laid out. */
typedef struct x_layout {
    size_t block, q; /* bytes per block, and before its q */
    int chunks;      /* of 32 columns per block */
} x_layout;

static x_layout x_layout_of(rp_dtype dtype) {
    if (dtype == RP_Q8_K) return (x_layout){rp__dtype_block_bytes(dtype), RP__Q8_K_Q, 8};
    size_t q = dtype == RP_Q8_1 ? RP__Q8_1_Q : RP__Q8_0_Q;
    return (x_layout){rp__dtype_block_bytes(dtype), q, 1};
}

static inline const int8_t *q_at(const x_layout *l, const uint8_t *x, int64_t chunk) {
    const uint8_t *block = x + (size_t)(chunk / l->chunks) * l->block;
    return (const int8_t *)block + l->q + chunk % l->chunks * RP__PANEL_CHUNK;
}

/* True when q may be any signed byte; the others are 0..31 at most. */
V16_INLINE bool is_signed(rp__panel_traits t) {
    return t.bits == 8 && !t.has_min;
}

/* ---- what goes with the q of x ---- */

static float f16_at(const uint8_t *p) {
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return rp__f16_to_f32(h);
}

static int32_t sum_of(const int8_t *q, int n) {
    int32_t sum = 0;
    for (int i = 0; i < n; i++) sum += q[i];
    return sum;
}

static void take_factors_32(rp_dtype dtype, int32_t zero, const uint8_t *x, int64_t n_chunks,
                            x_chunk *out) {
    const x_layout l = x_layout_of(dtype);
    for (int64_t c = 0; c < n_chunks; c++, x += l.block) {
        out[c] = (x_chunk){.d = f16_at(x)};
        if (zero) out[c].start[0] = -zero * sum_of((const int8_t *)x + l.q, RP__PANEL_CHUNK);
        if (dtype == RP_Q8_1) out[c].sum[0] = f16_at(x + RP__Q8_1_S);
    }
}

static void take_factors_256(rp__panel_traits t, int32_t zero, const uint8_t *x, int64_t n_chunks,
                             x_chunk *out) {
    for (int64_t c = 0; c < n_chunks; c++) {
        const uint8_t *b = x + (size_t)(c / 8) * rp__dtype_block_bytes(RP_Q8_K);
        int16_t sums[2];
        memcpy(&out[c].d, b, sizeof out[c].d);
        memcpy(sums, b + RP__Q8_K_SUMS + c % 8 * 4, sizeof sums);
        int32_t of_group[2] = {sums[0], sums[1]};
        if (t.group == 32) of_group[0] += sums[1];
        for (int g = 0; g < 2; g++) {
            out[c].start[g] = -zero * of_group[g];
            out[c].sum[g] = out[c].d * (float)of_group[g];
        }
    }
}

static void take_factors(rp__panel_traits t, rp_dtype dtype, const uint8_t *x, int64_t k,
                         x_chunk *out) {
    int32_t zero = is_signed(t) ? DOT_BIAS : t.zero;
    if (dtype == RP_Q8_K)
        take_factors_256(t, zero, x, k / RP__PANEL_CHUNK, out);
    else
        take_factors_32(dtype, zero, x, k / RP__PANEL_CHUNK, out);
}

/* ---- gemv: n panels over all of k for one row ---- */

/* Adds the products of the group of w and one of x, 32 or 16 columns. */
V16_INLINE d16 dot_group(rp__panel_traits t, const uint8_t *w, const int8_t *x, d16 part) {
    const int per_cell = t.bits == 4 ? 8 : 4;
    UNROLL for (int i = 0; i < t.group / per_cell; i++, x += per_cell) {
        w64 c = w64_load(w + i * RP__PANEL_CELL);
        if (t.bits == 4) {
            part = dot_small(part, w64_low(c), four_bytes(x));
            part = dot_small(part, w64_high(c), four_bytes(x + 4));
        } else if (is_signed(t)) {
            part = dot_signed(part, c, four_bytes(x));
        } else {
            part = dot_small(part, c, four_bytes(x));
        }
    }
    return part;
}

V16_INLINE void q8_gemv_n(rp__panel_format f, int n, const uint8_t *w, size_t panel_bytes,
                          const x_layout *l, const uint8_t *x, const x_chunk *factors, int64_t k,
                          float *out) {
    const rp__panel_traits t = rp__panel_traits_of(f);
    const size_t group_bytes = (size_t)(RP__PANEL_ROWS * t.group * t.bits / 8);
    v16 acc[GEMV_PANELS];
    cursor at[GEMV_PANELS];
    UNROLL for (int p = 0; p < n; p++) {
        acc[p] = v16_zero();
        at[p] = (cursor){w + (size_t)p * panel_bytes, v16_zero(), v16_zero()};
    }
    for (int64_t c = 0; c < k / RP__PANEL_CHUNK; c++) {
        if (t.is_k && c % 8 == 0) {
            UNROLL for (int p = 0; p < n; p++) take_head(t, &at[p]);
        }
        const int8_t *q = q_at(l, x, c);
        v16 d = v16_set1(factors[c].d);
        UNROLL for (int g = 0; g < RP__PANEL_CHUNK / t.group; g++) {
            UNROLL for (int p = 0; p < n; p++) {
                const uint8_t *cells = at[p].p + rp__panel_scale_bytes(t) * (1u + t.has_min);
                d16 part = dot_group(t, cells + (size_t)g * group_bytes, q + g * t.group,
                                     d16_set1(factors[c].start[g]));
                v16 scale = group_scale(t, &at[p], g);
                acc[p] = v16_fma(v16_mul(scale, d), d16_to_v16(part), acc[p]);
                if (t.has_min)
                    acc[p] = v16_fma(group_min(t, &at[p], g, scale), v16_set1(factors[c].sum[g]),
                                     acc[p]);
            }
        }
        UNROLL for (int p = 0; p < n; p++) at[p].p += rp__panel_chunk_bytes(t);
    }
    UNROLL for (int p = 0; p < n; p++) v16_store(out + p * RP__PANEL_ROWS, acc[p]);
}

/* out [n * 16] = the sums of n <= GEMV_PANELS panels. */
static void q8_gemv(rp__panel_format f, int n, const uint8_t *w, size_t panel_bytes,
                    const x_layout *l, const uint8_t *x, const x_chunk *factors, int64_t k,
                    float *out) {
    switch (f) {
#define RP_X(code, bits, group, is_k, has_min, zero)                                               \
    case RP__PANEL_##code:                                                                         \
        if (!bits) break;                                                                          \
        if (n == GEMV_PANELS)                                                                      \
            q8_gemv_n(bits ? RP__PANEL_##code : RP__PANEL_I8, GEMV_PANELS, w, panel_bytes, l, x,   \
                      factors, k, out);                                                            \
        else                                                                                       \
            for (int p = 0; p < n; p++)                                                            \
                q8_gemv_n(bits ? RP__PANEL_##code : RP__PANEL_I8, 1, w + (size_t)p * panel_bytes,  \
                          panel_bytes, l, x, factors, k, out + p * RP__PANEL_ROWS);                \
        break;
        RP__PANEL_TABLE(RP_X)
#undef RP_X
    case RP__N_PANEL_FORMATS:
        break;
    }
}

/* ---- bodies ---- */

/* Panels [from, to) for one row. */
static void q8_row(const matmul *m, const sink *s, rp_dtype dtype, const uint8_t *x, int64_t t,
                   ref_share panels, x_chunk *factors) {
    float sums[GEMV_PANELS * RP__PANEL_ROWS];
    const x_layout l = x_layout_of(dtype);
    if (panels.from == panels.to) return;
    take_factors(rp__panel_traits_of(m->format), dtype, x, m->k, factors);
    for (int64_t p = panels.from; p < panels.to; p += GEMV_PANELS) {
        int n = (int)min_i64(GEMV_PANELS, panels.to - p);
        q8_gemv(m->format, n, m->w + (size_t)p * m->panel_bytes, m->panel_bytes, &l, x, factors,
                m->k, sums);
        for (int i = 0; i < n; i++) finish_panel(m, s, t, p + i, sums + i * RP__PANEL_ROWS);
    }
}

static void q8_matmul(const rp__body_args *a, const matmul *m, const sink *s) {
    const rp_tensor *tx = &a->op->in[0];
    ref_share panels = ref_split(a, m->n_panels);
    for (int64_t t = 0; t < a->n_live; t++)
        q8_row(m, s, tx->dtype, ref_item(tx, a->in[0], t), t, panels, a->scratch);
}

/* One (token, choice): m is that expert's matrix. */
static void q8_expert_row(const rp__body_args *a, const matmul *m, const sink *s, const void *x) {
    q8_row(m, s, a->op->in[0].dtype, x, 0, ref_split(a, m->n_panels), a->scratch);
}
