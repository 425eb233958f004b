/* Cases of rounded activations: making them (convert) and multiplying weights with them.
 *
 * Wanted products come from the operands' own whole numbers, so that the only error left is that of
 * adding up groups in F32: mag is the sum of the sizes of what is added up. */
#include <stdlib.h>
#include <string.h>

#include "op/corpus_build.h"

static const rp_dtype activations[] = {RP_Q8_0, RP_Q8_1, RP_Q8_K, RP_Q16};
enum { N_ACTIVATIONS = 4 };

static const rp_dtype weights[] = {RP_Q4_0, RP_Q4_1, RP_Q5_0, RP_Q5_1, RP_Q8_0,  RP_Q2_K,
                                   RP_Q3_K, RP_Q4_K, RP_Q5_K, RP_Q6_K, RP_IQ4_NL};
enum { N_WEIGHTS = sizeof weights / sizeof *weights };

/* Bytes before q in a block of activations; Q16's low digits, which 32 high ones follow. */
static size_t q_offset(rp_dtype t) {
    return t == RP_Q8_0 ? 2 : t == RP_Q16 ? 12 : 4;
}

/* Number i of a block. */
static int number(rp_dtype t, const uint8_t *b, int64_t i) {
    const int8_t *q = (const int8_t *)b + q_offset(t) + i;
    return t == RP_Q16 ? 256 * q[32] + q[0] : q[0];
}

static int64_t whole_blocks(rp_dtype dtype, int64_t k) {
    int64_t block = rp__dtype_block_elems(dtype);
    return (k + block - 1) / block * block;
}

/* ---- convert ---- */

static void put_f16(uint8_t *p, double v) {
    uint16_t h = rp__f32_to_f16((float)rp_case_round(RP_F16, v));
    memcpy(p, &h, sizeof h);
}

static void put_f32(uint8_t *p, double v) {
    float f = (float)v;
    memcpy(p, &f, sizeof f);
}

/* As two digits of at most 127 in size. */
static void put_digits(uint8_t *low, double q) {
    double high = nearbyint(q / 256);
    low[0] = (uint8_t)(int)fmax(-127, fmin(127, q - 256 * high));
    low[32] = (uint8_t)(int)high;
}

/* One block by the formulas of device.h, each F32 result rounded from an exact or double one. */
static void want_block(rp_dtype t, const double *x, uint8_t *b) {
    int n = (int)rp__dtype_block_elems(t), at = 0;
    bool is_finite = true;
    for (int i = 0; i < n; i++) {
        is_finite = is_finite && isfinite(x[i]);
        if (fabs(x[i]) > fabs(x[at])) at = i;
    }
    double most = t == RP_Q16 ? 127 * 256 + 127 : 127, amax = fabs(x[at]);
    double by = amax > 0 ? rp_case_round(RP_F32, most / amax) : 0;
    if (!is_finite || isinf(by)) by = 0;
    if (t == RP_Q8_K && x[at] > 0) by = -by;
    double sum = 0, d = is_finite ? rp_case_round(RP_F32, amax / most) : (double)NAN;
    for (int i = 0; i < n; i++) {
        double q = by != 0 ? nearbyint(rp_case_round(RP_F32, x[i] * by)) : 0;
        uint8_t *to = b + q_offset(t) + i;
        if (t == RP_Q16)
            put_digits(to, q);
        else
            *to = (uint8_t)(int)q;
        sum += q;
    }
    if (t == RP_Q16)
        put_f32(b, d);
    else if (t == RP_Q8_K)
        put_f32(b, !is_finite ? (double)NAN : by != 0 ? rp_case_round(RP_F32, 1 / by) : 0);
    else
        put_f16(b, d);
    if (t == RP_Q8_1) put_f16(b + 2, rp_case_round(RP_F32, d * sum));
    rp_case_mend_sums(t, b);
}

static void want_blocks(corpus_case *c) {
    const rp_tensor *y = &c->op.out[0];
    size_t bytes = rp__dtype_block_bytes(y->dtype);
    int64_t elems = rp__dtype_block_elems(y->dtype);
    uint8_t *want = rp_case_want_bytes(c, 0);
    for (int64_t i = 0; i < rp__tensor_elems(y) / elems; i++)
        want_block(y->dtype, c->in[0].value + i * elems, want + (size_t)i * bytes);
}

typedef enum contents {
    RANDOM,
    ZEROS,
    TIES,
    OUTLIERS,
    NEGATIVE,
    HALVES,
    TINY,
    HUGE_ONES,
    NOT_FINITE
} contents;

static double element(corpus_case *c, contents content, int64_t e) {
    double r = rp_case_randf(c);
    switch (content) {
    case ZEROS:
        return e % 512 < 256 ? 0 : r; /* whole blocks of zeros beside others */
    case TIES:
        return e % 32 == 0 ? 127 : floor(r * 120) + 0.5;
    case OUTLIERS:
        return e % 77 == 5 ? r * 5000 : r;
    case NEGATIVE:
        return e % 32 == 9 ? -3 : r * 2.99;
    case HALVES: /* between two high digits of Q16: 32639 is 127 and 127 */
        return e % 32 == 3 ? 32639 : 128 + 256 * floor(r * 127);
    case TINY: /* 127 / amax overflows, or d is zero as F16 */
        return r * (e / 256 % 2 ? 1e-37 : 1e-12);
    case HUGE_ONES: /* d overflows F16 */
        return r * (e / 256 % 2 ? 1e30 : 1e7);
    case NOT_FINITE:
        return e % 300 == 7 ? (double)NAN : e % 300 == 170 ? (double)INFINITY : r;
    default:
        return r;
    }
}

typedef struct convert_spec {
    shape s;
    contents content;
    bool is_strided;
    int live; /* n + 1 */
} convert_spec;
static const convert_spec converts[] = {
    {{2, {3, 512}}, RANDOM},
    {{2, {2, 512}}, ZEROS},
    {{2, {2, 512}}, TIES},
    {{2, {3, 1024}}, OUTLIERS},
    {{2, {2, 256}}, NEGATIVE},
    {{2, {2, 256}}, HALVES},
    {{2, {1, 1024}}, TINY},
    {{2, {1, 1024}}, HUGE_ONES},
    {{2, {2, 1024}}, NOT_FINITE},
    {{2, {7, 768}}, RANDOM, .is_strided = true},
    {{3, {3, 2, 256}}, RANDOM, .live = 1 + 2},
    {{2, {6, 256}}, RANDOM, .live = 1 + 0},
    {{2, {1, 8192}}, RANDOM},
};
enum { N_SPECS = sizeof converts / sizeof *converts, N_CONVERTS = N_SPECS * N_ACTIVATIONS };

static void make_convert(size_t i, corpus_case *c) {
    rp_dtype to = activations[i / N_SPECS];
    const convert_spec *p = &converts[i % N_SPECS];
    char text[64];
    rp_case_begin(c, RP_OP_CONVERT, i + 1000, "%s", "");
    double *x = rp_case_in_f32(c, 0, p->s, NULL);
    rp_case_name(c, "%s to %s, content %d%s live=%d",
                 rp__tensor_text(&c->op.in[0], text, sizeof text), rp__dtype_name(to), p->content,
                 p->is_strided ? " strided" : "", p->live - 1);
    for (int64_t e = 0; e < rp__tensor_elems(&c->op.in[0]); e++) x[e] = element(c, p->content, e);
    rp_case_store(c, &c->in[0], &c->op.in[0]);
    rp_case_out(c, 0, to, p->s, TOL_BITS);
    want_blocks(c);
    rp_case_rows(c, 1, 1);
    rp_case_live(c, p->live - 1);
    if (p->is_strided) rp_case_strided(c, 1, 1);
}

/* amax is 127, so d is 1 and q is x, ties to even: 0.5 to 0, 1.5 and 2.5 to 2. Q8_K goes by the
 * first extreme, which is 127 here: d is -1 and q is -x. */
static void make_convert_hand_8(rp_dtype to, corpus_case *c) {
    static const int8_t q[8] = {0, 2, 2, 0, -2, 3, 127, -127};
    static const float x[8] = {0.5f, 1.5f, 2.5f, -0.5f, -1.5f, 3.25f, 127, -127};
    int64_t k = rp__dtype_block_elems(to);
    float row[256] = {0};
    memcpy(row, x, sizeof x);
    rp_case_in_f32(c, 0, S2(1, k), row);
    rp_case_out(c, 0, to, S2(1, k), TOL_BITS);
    uint8_t *b = rp_case_want_bytes(c, 0);
    for (int e = 0; e < 8; e++)
        b[q_offset(to) + (size_t)e] = (uint8_t)(to == RP_Q8_K ? -q[e] : q[e]);
    if (to == RP_Q8_K) {
        memcpy(b, &(float){-1}, 4);
        memcpy(b + 260, &(int16_t){-5}, 2); /* of the first sixteen: -(0 + 2 + 2 + 0 - 2 + 3) */
    } else {
        memcpy(b, &(uint16_t){0x3C00}, 2);                        /* 1 */
        if (to == RP_Q8_1) memcpy(b + 2, &(uint16_t){0x4500}, 2); /* 5 */
    }
}

/* amax is 32639, so d is 1 and q is x. 1000 is 4 * 256 - 24; 384 is half way between 256 and 512:
 * the high digit is the even one, and 128 above it becomes 127 above it; -384 likewise. */
static void make_convert_hand_16(corpus_case *c) {
    static const float x[32] = {32639, -32639, 1000, 384, [16] = -384, 640, 2.5f, -256};
    static const int8_t low[32] = {127, -127, -24, -127, [16] = 127, 127, 2, 0};
    static const int8_t high[32] = {127, -127, 4, 2, [16] = -2, 2, 0, -1};
    static const int32_t sums[2] = {1000 + 385, -385 + 639 + 2 - 256};
    rp_case_in_f32(c, 0, S2(1, 32), x);
    rp_case_out(c, 0, RP_Q16, S2(1, 32), TOL_BITS);
    uint8_t *b = rp_case_want_bytes(c, 0);
    memcpy(b, &(float){1}, 4);
    memcpy(b + 4, sums, 8);
    memcpy(b + 12, low, 32);
    memcpy(b + 44, high, 32);
}

static void make_convert_hand(size_t i, corpus_case *c) {
    rp_dtype to = activations[i];
    rp_case_begin(c, RP_OP_CONVERT, i, "by hand %s", rp__dtype_name(to));
    if (to == RP_Q16)
        make_convert_hand_16(c);
    else
        make_convert_hand_8(to, c);
}

/* ---- products ---- */

/* A weight's scale * q and its min per element, exactly: decoded with the one or the other put to
 * zero. */
typedef struct parts {
    double *product, *min;
} parts;

static double *decoded(const rp_tensor *t, const uint8_t *bytes) {
    int64_t n = rp__tensor_elems(t);
    float *f = malloc((size_t)n * sizeof *f);
    double *v = malloc((size_t)n * sizeof *v);
    if (!f || !v) abort();
    rp__dtype_to_f32(t->dtype, bytes, f, n);
    for (int64_t i = 0; i < n; i++) v[i] = (double)f[i];
    free(f);
    return v;
}

/* Where a block keeps the F16 that makes its mins (-1: none), and its q. */
static int min_offset(rp_dtype t, size_t q[2]) {
    q[0] = t == RP_Q4_1 || t == RP_Q5_1 ? 4 : 16;
    q[1] = t == RP_Q2_K ? 80 : rp__dtype_block_bytes(t);
    switch (t) {
    case RP_Q4_1:
    case RP_Q5_1:
    case RP_Q4_K:
    case RP_Q5_K:
        return 2;
    case RP_Q2_K:
        return 82;
    default:
        return -1;
    }
}

static parts parts_of(const rp_tensor *w, const uint8_t *bytes) {
    size_t n = rp__tensor_span(w), block = rp__dtype_block_bytes(w->dtype), q[2];
    int at = min_offset(w->dtype, q);
    parts out = {NULL, NULL};
    if (at < 0) {
        out.product = decoded(w, bytes);
        return out;
    }
    uint8_t *copy = malloc(n);
    if (!copy) abort();
    memcpy(copy, bytes, n);
    for (size_t b = 0; b < n; b += block) memset(copy + b + at, 0, 2);
    out.product = decoded(w, copy);
    memcpy(copy, bytes, n);
    for (size_t b = 0; b < n; b += block) memset(copy + b + q[0], 0, q[1] - q[0]);
    out.min = decoded(w, copy);
    free(copy);
    return out;
}

static double f16_at(const uint8_t *p) {
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return (double)rp__f16_to_f32(h);
}

/* The product of one row of x with one of w; *mag gets the sizes of the groups' parts. Groups of 16
 * do for all: two of them have the scale and min of one of 32. */
static double product(rp_dtype x_dtype, const uint8_t *x, const double *scaled, const double *min,
                      int64_t k, double *mag) {
    int64_t elems = rp__dtype_block_elems(x_dtype);
    double y = 0;
    *mag = 0;
    for (int64_t i = 0; i < k; i += 16) {
        const uint8_t *b = x + (size_t)(i / elems) * rp__dtype_block_bytes(x_dtype);
        bool has_sums = x_dtype == RP_Q8_K || x_dtype == RP_Q16;
        float d32;
        memcpy(&d32, b, sizeof d32);
        double d = has_sums ? (double)d32 : f16_at(b), part = 0, q_sum = 0;
        for (int j = 0; j < 16; j++) {
            int q = number(x_dtype, b, i % elems + j);
            part += scaled[i + j] * q, q_sum += q;
        }
        y += part * d;
        *mag += fabs(part * d);
        if (!min) continue;
        double sum = has_sums ? d * q_sum : i % 32 ? 0 : f16_at(b + 2);
        y += min[i] * sum;
        *mag += fabs(min[i] * sum);
    }
    return y;
}

/* x and w of a case: random ones, but for rows of extreme numbers first and last. */
static void make_operands(corpus_case *c, rp_dtype w_dtype, rp_dtype x_dtype, shape x_shape,
                          shape w_shape) {
    rp_case_in_random(c, 0, x_dtype, x_shape);
    rp_case_in_random(c, 1, w_dtype, w_shape);
    c->op.in[1].is_weight = 1;
    /* Two products of 127 with -128 are more than 16 bits hold when they are not taken apart. */
    size_t row = rp__tensor_span(&c->op.in[1]) / (size_t)rp__tensor_rows(&c->op.in[1]);
    if (w_dtype == RP_Q8_0)
        for (size_t b = 0; b < row; b += 34) memset((uint8_t *)c->in[1].bytes + b + 2, 0x80, 32);
    int64_t k = rp__tensor_last(&c->op.in[0]), elems = rp__dtype_block_elems(x_dtype);
    if (rp__tensor_rows(&c->op.in[0]) == 1) return;
    for (int64_t i = 0; i < k; i += elems) {
        uint8_t *b = (uint8_t *)c->in[0].bytes +
                     (size_t)(i / elems) * rp__dtype_block_bytes(x_dtype);
        size_t n_digits = (size_t)elems * (x_dtype == RP_Q16 ? 2 : 1);
        for (size_t j = 0; j < n_digits; j++)
            b[q_offset(x_dtype) + j] = ((size_t)i + j % (size_t)elems) / 64 % 2 ? 0x81 : 127;
        rp_case_mend_sums(x_dtype, b);
    }
}

/* Products are those of every weight with its 8-bit type, then with Q16. */
static rp_dtype x_dtype_of(rp_dtype w_dtype, size_t i, size_t n_of_8) {
    rp_dtype x_dtype = RP_Q8_0;
    if (!rp__dtype_activation(w_dtype, i < n_of_8 ? 8 : 16, &x_dtype)) abort();
    return x_dtype;
}

typedef struct matmul_spec {
    int64_t t, k, n; /* k in units: see whole_blocks */
    bool has_bias, has_add, is_in_place, is_strided;
    int live; /* n + 1 */
} matmul_spec;
static const matmul_spec matmuls[] = {
    {1, 64, 33, .has_bias = true},
    {2, 32, 17, .has_add = true},
    {3, 288, 8, .has_bias = true, .has_add = true, .is_in_place = true},
    {7, 513, 65, .is_strided = true, .has_add = true},
    {17, 96, 5},
    {33, 512, 40, .has_bias = true, .is_strided = true},
    {1, 576, 150},
    {4, 4096, 5},
    {6, 100, 16, .live = 1 + 4, .has_bias = true},
    {6, 100, 16, .live = 1 + 1, .has_add = true},
    {6, 100, 16, .live = 1 + 0},
    {130, 96, 50},
};
enum { N_MATMUL_SPECS = sizeof matmuls / sizeof *matmuls, N_MATMULS = N_MATMUL_SPECS * N_WEIGHTS };

static void want_matmul(corpus_case *c) {
    const rp_tensor *x = &c->op.in[0], *w = &c->op.in[1];
    int64_t t_end = x->dim[0], k = x->dim[1], n_end = w->dim[0];
    const double *bias = c->in[2].value, *add = c->in[3].value;
    parts p = parts_of(w, c->in[1].bytes);
    size_t item = rp__tensor_item_bytes(x);
    for (int64_t at = 0; at < t_end * n_end; at++) {
        int64_t t = at / n_end, n = at % n_end;
        double mag, b = bias ? bias[n] : 0, a = add ? add[at] : 0;
        double y = product(x->dtype, (const uint8_t *)c->in[0].bytes + (size_t)t * item,
                           p.product + n * k, p.min ? p.min + n * k : NULL, k, &mag);
        c->out[0].value[at] = y + b + a;
        c->out[0].mag[at] = mag + fabs(b) + fabs(a);
    }
    free(p.product), free(p.min);
}

static void make_matmul(size_t i, corpus_case *c) {
    rp_dtype dtype = weights[i / N_MATMUL_SPECS % N_WEIGHTS];
    rp_dtype x_dtype = x_dtype_of(dtype, i, N_MATMULS);
    const matmul_spec *p = &matmuls[i % N_MATMUL_SPECS];
    int64_t k = whole_blocks(dtype, p->k);
    rp_case_begin(c, RP_OP_MATMUL, i + 1000, "%s x %s T=%lld K=%lld N=%lld%s%s%s%s live=%d",
                  x_dtype == RP_Q16 ? "q16" : "q8", rp__dtype_name(dtype), (long long)p->t, (long long)k, (long long)p->n,
                  p->has_bias ? " bias" : "", p->has_add ? " add" : "",
                  p->is_in_place ? " in place" : "", p->is_strided ? " strided" : "", p->live - 1);
    make_operands(c, dtype, x_dtype, S2(p->t, k), S2(p->n, k));
    if (p->has_bias) rp_case_in_f32(c, 2, S1(p->n), NULL);
    if (p->has_add) rp_case_in_f32(c, 3, S2(p->t, p->n), NULL);
    rp_case_out(c, 0, RP_F32, S2(p->t, p->n), TOL_MATMUL_WHOLE);
    want_matmul(c);
    if (p->is_in_place) c->out[0].alias = 3;
    rp_case_rows(c, p->has_add ? 1 << 0 | 1 << 3 : 1 << 0, 1);
    rp_case_live(c, p->live - 1);
    if (p->is_strided) rp_case_strided(c, 1 << 0 | 1 << 3, 1);
}

/* Q4_1: d = 2, m = 10, q = 3 everywhere: w = 16. x: d = 0.5, q = 1, 2, .. 32, and s = 100, which is
 * not what d and q would make. Two times 0.5 times 3 * 528, and 10 * 100. */
static void make_matmul_hand(corpus_case *c) {
    rp_case_begin(c, RP_OP_MATMUL, 0, "by hand q8");
    rp_case_in_random(c, 0, RP_Q8_1, S2(1, 32));
    rp_case_in_random(c, 1, RP_Q4_1, S2(1, 32));
    c->op.in[1].is_weight = 1;
    uint8_t *x = c->in[0].bytes, *w = c->in[1].bytes;
    memcpy(x, (uint16_t[]){0x3800, 0x5640}, 4);
    memcpy(w, (uint16_t[]){0x4000, 0x4900}, 4);
    for (int i = 0; i < 32; i++) x[4 + i] = (uint8_t)(i + 1);
    memset(w + 4, 0x33, 16);
    rp_case_out(c, 0, RP_F32, S2(1, 1), TOL_MATMUL_WHOLE);
    rp_case_want(c, 0, (double[]){1584 + 1000});
    rp_case_rows(c, 1, 1);
}

/* ---- experts ---- */

typedef struct expert_spec {
    int64_t t, k, x, n, k_choices;
    bool is_per_choice; /* x [T,k,K] */
    int live;           /* n + 1 */
} expert_spec;
static const expert_spec experts[] = {
    {1, 64, 4, 17, 2},
    {5, 288, 3, 8, 2, .is_per_choice = true},
    {17, 33, 8, 5, 3},
    {6, 100, 2, 16, 2, .is_per_choice = true, .live = 1 + 4},
    {6, 100, 2, 16, 1, .live = 1 + 0},
};
enum { N_EXPERT_SPECS = sizeof experts / sizeof *experts, N_EXPERTS = N_EXPERT_SPECS * N_WEIGHTS };

static void want_experts(corpus_case *c, const expert_spec *s, int64_t k) {
    const rp_tensor *x = &c->op.in[0];
    parts p = parts_of(&c->op.in[1], c->in[1].bytes);
    size_t row = rp__tensor_span(x) / (size_t)rp__tensor_rows(x);
    for (int64_t at = 0; at < s->t * s->k_choices * s->n; at++) {
        int64_t choice = at / s->n, w = ((int64_t)c->in[2].value[choice] * s->n + at % s->n) * k;
        int64_t x_row = s->is_per_choice ? choice : choice / s->k_choices;
        c->out[0].value[at] =
            product(x->dtype, (const uint8_t *)c->in[0].bytes + (size_t)x_row * row, p.product + w,
                    p.min ? p.min + w : NULL, k, &c->out[0].mag[at]);
    }
    free(p.product), free(p.min);
}

static void make_expert(size_t i, corpus_case *c) {
    rp_dtype dtype = weights[i / N_EXPERT_SPECS % N_WEIGHTS];
    rp_dtype x_dtype = x_dtype_of(dtype, i, N_EXPERTS);
    const expert_spec *p = &experts[i % N_EXPERT_SPECS];
    int64_t k = whole_blocks(dtype, p->k);
    int32_t ids[64];
    rp_case_begin(c, RP_OP_EXPERT_MATMUL, i + 1000,
                  "%s x %s T=%lld K=%lld X=%lld N=%lld k=%lld%s live=%d",
                  x_dtype == RP_Q16 ? "q16" : "q8", rp__dtype_name(dtype), (long long)p->t, (long long)k, (long long)p->x, (long long)p->n,
                  (long long)p->k_choices, p->is_per_choice ? " per choice" : "", p->live - 1);
    make_operands(c, dtype, x_dtype, p->is_per_choice ? S3(p->t, p->k_choices, k) : S2(p->t, k),
                  S3(p->x, p->n, k));
    for (int64_t j = 0; j < p->t * p->k_choices; j++)
        ids[j] = (int32_t)rp_case_rand(c, (uint64_t)p->x);
    rp_case_in_i32(c, 2, S2(p->t, p->k_choices), ids);
    rp_case_out(c, 0, RP_F32, S3(p->t, p->k_choices, p->n), TOL_MATMUL_WHOLE);
    want_experts(c, p, k);
    rp_case_rows(c, 1 << 0 | 1 << 2, 1);
    rp_case_live(c, p->live - 1);
}

static void make(size_t i, corpus_case *c) {
    if (i < N_ACTIVATIONS)
        make_convert_hand(i, c);
    else if ((i -= N_ACTIVATIONS) < N_CONVERTS)
        make_convert(i, c);
    else if ((i -= N_CONVERTS) < 1)
        make_matmul_hand(c);
    else if ((i -= 1) < 2 * N_MATMULS)
        make_matmul(i, c);
    else
        make_expert(i - 2 * N_MATMULS, c);
}

const corpus_group rp_corpus_q8 = {N_ACTIVATIONS + N_CONVERTS + 1 + 2 * (N_MATMULS + N_EXPERTS),
                                   make};
