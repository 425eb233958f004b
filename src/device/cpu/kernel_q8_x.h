/* 8-bit activations: making them, and what goes with their q in a product. Part of kernels.h. */

/* How rows of an activation type are laid out. */
typedef struct x_layout {
    size_t block, q; /* bytes per block, and before its q */
    int64_t chunks;  /* of 32 columns per block */
} x_layout;

static x_layout x_layout_of(rp_dtype dtype) {
    x_layout l = {rp__dtype_block_bytes(dtype), RP__Q8_0_Q, 1};
    if (dtype == RP_Q8_1) l.q = RP__Q8_1_Q;
    if (dtype == RP_Q8_K) l.q = RP__Q8_K_Q, l.chunks = RP__PANEL_SUPER / RP__PANEL_CHUNK;
    return l;
}

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

/* True when q may be any signed byte; the others are 0..31 at most. */
V16_INLINE bool is_signed(rp__panel_traits t) {
    return t.bits == 8 && !t.has_min;
}

static float f16_at(const uint8_t *p) {
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return rp__f16_to_f32(h);
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

static void take_factors_256(rp__panel_traits t, int32_t zero, const uint8_t *x, int64_t n_chunks,
                             x_factors f) {
    for (int64_t c = 0; c < n_chunks; c++) {
        const uint8_t *b = x + (size_t)(c / 8) * rp__dtype_block_bytes(RP_Q8_K);
        int16_t sums[2];
        memcpy(f.d, b, sizeof *f.d);
        memcpy(sums, b + RP__Q8_K_SUMS + c % 8 * 4, sizeof sums);
        int32_t of_group[2] = {sums[0], sums[1]};
        if (t.group == 32) of_group[0] += sums[1];
        for (size_t g = 0; g < 2; g++) {
            f.start[g * f.stride] = -zero * of_group[g];
            f.sum[g * f.stride] = *f.d * (float)of_group[g];
        }
        f.d += f.stride, f.start += 2 * f.stride, f.sum += 2 * f.stride;
    }
}

/* Of one row, which f points at. */
static void take_factors(rp__panel_traits t, rp_dtype dtype, const uint8_t *x, int64_t k,
                         x_factors f) {
    int32_t zero = is_signed(t) ? DOT_BIAS : t.zero;
    if (dtype == RP_Q8_K)
        take_factors_256(t, zero, x, k / RP__PANEL_CHUNK, f);
    else
        take_factors_32(dtype, zero, x, k / RP__PANEL_CHUNK, f);
}
