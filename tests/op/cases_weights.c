/* Cases of embed and matmul over every weight dtype. Decoding is rp__dtype_to_f32's, which has
 * tests of its own.
 *
 * The error of a product of row x with weight row w is measured against |w| max|x|: independent
 * errors of step s in each x add up to s |w| sqrt(1/12), whatever the length. */
#include "op/corpus_build.h"

/* ---- matmul ---- */

typedef struct matmul_spec {
    int64_t t, k, n; /* k in units: see whole_blocks */
    bool has_bias, has_add, is_in_place, is_strided;
    int live; /* n + 1 */
} matmul_spec;

/* Run for each dtype. */
static const matmul_spec per_dtype[] = {
    {1, 100, 33, .has_bias = true},
    {2, 33, 17, .has_add = true},
    {3, 288, 8, .has_bias = true, .has_add = true, .is_in_place = true},
    {7, 513, 65, .is_strided = true, .has_add = true},
    {17, 259, 5},
    {33, 512, 40, .has_bias = true, .is_strided = true},
};
/* Run for a few. */
static const matmul_spec for_some[] = {
    {1, 1, 1},
    {1, 576, 300},
    {5, 5, 3, .is_strided = true, .is_in_place = true, .has_add = true},
    {6, 100, 16, .live = 1 + 4, .has_bias = true},
    {6, 100, 16, .live = 1 + 1, .has_add = true},
    {6, 100, 16, .live = 1 + 0},
    {6, 100, 16, .live = 1 + 6},
    {4, 4096, 5},
    {130, 96, 50},
    {1, 70, 16 * 16 + 1},
};
static const rp_dtype some_dtypes[] = {RP_F32,  RP_F16,  RP_BF16, RP_Q4_0,
                                       RP_Q4_1, RP_Q8_0, RP_Q4_K, RP_Q6_K};
enum {
    N_PER_DTYPE = sizeof per_dtype / sizeof *per_dtype,
    N_FOR_SOME = sizeof for_some / sizeof *for_some,
    N_SOME = sizeof some_dtypes / sizeof *some_dtypes,
    N_MATMULS = N_PER_DTYPE * N_WEIGHT_DTYPES + N_FOR_SOME * N_SOME,
    N_HAND = 2,
};

static int64_t whole_blocks(rp_dtype dtype, int64_t k) {
    int64_t block = rp__dtype_block_elems(dtype);
    return (k + block - 1) / block * block;
}

static corpus_tol matmul_tol(rp_dtype dtype) {
    if (rp__dtype_is_block(dtype)) return TOL_MATMUL_BLOCK;
    return dtype == RP_BF16 ? TOL_MATMUL_BF16 : TOL_MATMUL_FLOAT;
}

static double norm_of(const double *w, int64_t n) {
    double squares = 0;
    for (int64_t i = 0; i < n; i++) squares += w[i] * w[i];
    return sqrt(squares);
}

static double largest_of(const double *x, int64_t n) {
    double largest = 0;
    for (int64_t i = 0; i < n; i++) largest = fmax(largest, fabs(x[i]));
    return largest;
}

static void want_matmul(corpus_case *c) {
    int64_t t_end = c->op.in[0].dim[0], k = c->op.in[0].dim[1], n_end = c->op.in[1].dim[0];
    const double *bias = c->in[2].value, *add = c->in[3].value;
    for (int64_t n = 0; n < n_end; n++) {
        const double *w = c->in[1].value + n * k;
        double norm = norm_of(w, k), b = bias ? bias[n] : 0;
        for (int64_t t = 0; t < t_end; t++) {
            const double *x = c->in[0].value + t * k;
            double a = add ? add[t * n_end + n] : 0;
            long double sum = b + (long double)a;
            for (int64_t i = 0; i < k; i++) sum += (long double)x[i] * w[i];
            c->out[0].value[t * n_end + n] = (double)sum;
            c->out[0].mag[t * n_end + n] =
                norm * largest_of(x, k) + fabs(b) + fabs(a) + (double)fabsl(sum);
        }
    }
}

static void make_matmul(size_t i, corpus_case *c) {
    bool is_per_dtype = i < N_PER_DTYPE * N_WEIGHT_DTYPES;
    size_t j = is_per_dtype ? i : i - N_PER_DTYPE * N_WEIGHT_DTYPES;
    rp_dtype dtype =
        is_per_dtype ? rp_case_weight_dtype(j / N_PER_DTYPE) : some_dtypes[j / N_FOR_SOME];
    const matmul_spec *p = is_per_dtype ? &per_dtype[j % N_PER_DTYPE] : &for_some[j % N_FOR_SOME];
    int64_t k = whole_blocks(dtype, p->k);
    rp_case_begin(c, RP_OP_MATMUL, i, "%s T=%lld K=%lld N=%lld%s%s%s%s live=%d",
                  rp__dtype_name(dtype), (long long)p->t, (long long)k, (long long)p->n,
                  p->has_bias ? " bias" : "", p->has_add ? " add" : "",
                  p->is_in_place ? " in place" : "", p->is_strided ? " strided" : "", p->live - 1);
    rp_case_in_f32(c, 0, S2(p->t, k), NULL);
    rp_case_in_random(c, 1, dtype, S2(p->n, k));
    c->op.in[1].is_weight = 1;
    if (p->has_bias) rp_case_in_f32(c, 2, S1(p->n), NULL);
    if (p->has_add) rp_case_in_f32(c, 3, S2(p->t, p->n), NULL);
    rp_case_out(c, 0, RP_F32, S2(p->t, p->n), matmul_tol(dtype));
    want_matmul(c);
    if (p->is_in_place) c->out[0].alias = 3;
    rp_case_rows(c, p->has_add ? 1 << 0 | 1 << 3 : 1 << 0, 1);
    rp_case_live(c, p->live - 1);
    if (p->is_strided) rp_case_strided(c, 1 << 0 | 1 << 3, 1);
}

static void make_matmul_hand(size_t i, corpus_case *c) {
    static const float x[] = {1, 2, 3, 4}, w[] = {1, 0, 0, 1, 1, 1};
    static const float bias[] = {10, 20, 30}, add[] = {0, 0, 1, 0, 0, 2};
    rp_case_begin(c, RP_OP_MATMUL, i, "by hand %zu", i);
    rp_case_in_f32(c, 0, S2(2, 2), x);
    rp_case_in_f32(c, 1, S2(3, 2), w);
    c->op.in[1].is_weight = 1;
    if (i == 1) {
        rp_case_in_f32(c, 2, S1(3), bias);
        rp_case_in_f32(c, 3, S2(2, 3), add);
    }
    rp_case_out(c, 0, RP_F32, S2(2, 3), TOL_MATMUL_FLOAT);
    rp_case_want(c, 0, i == 1 ? (double[]){11, 22, 34, 13, 24, 39} : (double[]){1, 2, 3, 3, 4, 7});
    rp_case_rows(c, i == 1 ? 1 << 0 | 1 << 3 : 1 << 0, 1);
}

/* ---- embed ---- */

typedef struct embed_spec {
    int64_t v, e, t;
    float scale;
    bool is_strided;
    int live; /* n + 1 */
} embed_spec;
static const embed_spec embeds[] = {
    {11, 64, 5, .scale = 1},
    {7, 33, 17, .scale = 11.25f, .is_strided = true},
    {5, 300, 3, .scale = 2, .live = 1 + 2},
    {5, 10, 3, .scale = 2, .live = 1 + 0},
};
enum { N_EMBEDS = sizeof embeds / sizeof *embeds, N_ALL_EMBEDS = N_EMBEDS * N_WEIGHT_DTYPES };

static void make_embed(size_t i, corpus_case *c) {
    rp_dtype dtype = rp_case_weight_dtype(i / N_EMBEDS);
    const embed_spec *p = &embeds[i % N_EMBEDS];
    int64_t e_end = whole_blocks(dtype, p->e);
    int32_t ids[64];
    rp_case_begin(c, RP_OP_EMBED, i, "%s V=%lld E=%lld T=%lld scale=%g%s live=%d",
                  rp__dtype_name(dtype), (long long)p->v, (long long)e_end, (long long)p->t,
                  (double)p->scale, p->is_strided ? " strided" : "", p->live - 1);
    double *table = rp_case_in_random(c, 0, dtype, S2(p->v, e_end));
    c->op.in[0].is_weight = 1;
    for (int64_t t = 0; t < p->t; t++) ids[t] = (int32_t)rp_case_rand(c, (uint64_t)p->v);
    ids[0] = (int32_t)p->v - 1, ids[p->t - 1] = 0;
    rp_case_in_i32(c, 1, S1(p->t), ids);
    double *y = rp_case_out(c, 0, RP_F32, S2(p->t, e_end), TOL_ROUNDED);
    for (int64_t at = 0; at < p->t * e_end; at++) {
        y[at] = (double)p->scale * table[ids[at / e_end] * e_end + at % e_end];
        c->out[0].mag[at] = fabs(y[at]);
    }
    c->op.p.embed.scale = p->scale;
    rp_case_rows(c, 1 << 1, 1);
    rp_case_live(c, p->live - 1);
    if (p->is_strided) rp_case_strided(c, 0, 1);
}

static void make_embed_hand(corpus_case *c) {
    static const float table[] = {1, 2, 3, 4, 5, 6};
    rp_case_begin(c, RP_OP_EMBED, 0, "by hand");
    rp_case_in_f32(c, 0, S2(3, 2), table);
    c->op.in[0].is_weight = 1;
    rp_case_in_i32(c, 1, S1(2), (int32_t[]){2, 0});
    rp_case_out(c, 0, RP_F32, S2(2, 2), TOL_ROUNDED);
    rp_case_want(c, 0, (double[]){10, 12, 2, 4});
    c->op.p.embed.scale = 2;
    rp_case_rows(c, 1 << 1, 1);
}

static void make(size_t i, corpus_case *c) {
    if (i < N_HAND)
        make_matmul_hand(i, c);
    else if (i < N_HAND + N_MATMULS)
        make_matmul(i - N_HAND, c);
    else if ((i -= N_HAND + N_MATMULS) < 1)
        make_embed_hand(c);
    else
        make_embed(i - 1, c);
}

const corpus_group rp_corpus_weights = {N_HAND + N_MATMULS + 1 + N_ALL_EMBEDS, make};
