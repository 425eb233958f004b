/* Cases of mixtures of experts: router, grouped matmul, weighted sum. */
#include "op/corpus_build.h"

/* ---- router ---- */

typedef struct router_spec {
    int64_t t, x, k;
    bool sigmoid, normalise, has_ties;
    float scale;
    int live; /* n + 1 */
} router_spec;
static const router_spec routers[] = {
    {1, 1, 1, .scale = 1},
    {3, 8, 2, .scale = 1, .normalise = true},
    {7, 60, 4, .scale = 2.5f},
    {17, 128, 8, .scale = 1, .normalise = true},
    {5, 33, 6, .sigmoid = true, .scale = 1.5f},
    {5, 33, 6, .sigmoid = true, .normalise = true, .scale = 1},
    {4, 16, 16, .scale = 1},
    {33, 16, 3, .scale = 1, .has_ties = true},
    {6, 16, 3, .scale = 1, .live = 1 + 2},
    {6, 16, 3, .scale = 1, .live = 1 + 0},
};
enum { N_ROUTERS = sizeof routers / sizeof *routers };

/* The c-th id is the one that exactly c others stand before. */
static void rank_ids(const double *x, int64_t n, int64_t k, int32_t *ids) {
    for (int64_t i = 0; i < n; i++) {
        int64_t n_before = 0;
        for (int64_t j = 0; j < n; j++) n_before += x[j] > x[i] || (x[j] == x[i] && j < i);
        if (n_before < k) ids[n_before] = (int32_t)i;
    }
}

static void want_router_row(corpus_case *c, const router_spec *p, int64_t t) {
    const double *x = c->in[0].value + t * p->x;
    int32_t ids[128];
    double kept = 0, w[128];
    rank_ids(x, p->x, p->k, ids);
    for (int64_t i = 0; i < p->k; i++) {
        double others = 0; /* softmax: 1 / sum of exp of differences */
        for (int64_t j = 0; j < p->x; j++) others += exp(x[j] - x[ids[i]]);
        w[i] = p->sigmoid ? 0.5 * (1 + tanh(x[ids[i]] / 2)) : 1 / others;
        kept += w[i];
    }
    for (int64_t i = 0; i < p->k; i++) {
        int64_t at = t * p->k + i;
        c->out[0].value[at] = ids[i];
        c->out[1].value[at] = w[i] / (p->normalise ? kept : 1) * (double)p->scale;
        c->out[1].mag[at] = fabs(c->out[1].value[at]);
    }
}

static void make_router(size_t i, corpus_case *c) {
    const router_spec *p = &routers[i];
    rp_case_begin(c, RP_OP_ROUTER_TOPK, i, "T=%lld X=%lld k=%lld%s%s%s scale=%g live=%d",
                  (long long)p->t, (long long)p->x, (long long)p->k, p->sigmoid ? " sigmoid" : "",
                  p->normalise ? " normalise" : "", p->has_ties ? " ties" : "", (double)p->scale,
                  p->live - 1);
    double *x = rp_case_in_f32(c, 0, S2(p->t, p->x), NULL);
    for (int64_t e = 0; e < p->t * p->x; e++) x[e] = p->has_ties ? floor(x[e] * 3) : x[e] * 5;
    rp_case_store(c, &c->in[0], &c->op.in[0]);
    rp_case_out(c, 0, RP_I32, S2(p->t, p->k), TOL_BITS);
    rp_case_out(c, 1, RP_F32, S2(p->t, p->k), TOL_FUNCTION);
    for (int64_t t = 0; t < p->t; t++) want_router_row(c, p, t);
    c->op.p.router.sigmoid = p->sigmoid;
    c->op.p.router.normalise = p->normalise;
    c->op.p.router.scale = p->scale;
    rp_case_rows(c, 1, 3);
    rp_case_live(c, p->live - 1);
}

static void make_router_hand(size_t i, corpus_case *c) {
    static const float x[] = {0, 0.693147180559945f, 0}; /* ln 2: softmax 1/4, 1/2, 1/4 */
    static const double weights[3][2] = {{0.5, 0.25}, {2.0 / 3, 1.0 / 3}, {4.0 / 3, 1}};
    rp_case_begin(c, RP_OP_ROUTER_TOPK, i, "by hand %zu", i);
    rp_case_in_f32(c, 0, S2(1, 3), x);
    rp_case_out(c, 0, RP_I32, S2(1, 2), TOL_BITS);
    rp_case_out(c, 1, RP_F32, S2(1, 2), TOL_FUNCTION);
    rp_case_want(c, 0, (double[]){1, 0});
    rp_case_want(c, 1, weights[i]);
    c->op.p.router.sigmoid = i == 2;
    c->op.p.router.normalise = i == 1;
    c->op.p.router.scale = i == 2 ? 2 : 1;
}

/* ---- matmul ---- */

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
enum { N_EXPERTS = sizeof experts / sizeof *experts, N_ALL_EXPERTS = N_EXPERTS * N_WEIGHT_DTYPES };

static void want_experts(corpus_case *c, const expert_spec *p, int64_t k) {
    for (int64_t at = 0; at < p->t * p->k_choices * p->n; at++) {
        int64_t choice = at / p->n, n = at % p->n;
        int64_t expert = (int64_t)c->in[2].value[choice];
        const double *x = c->in[0].value + (p->is_per_choice ? choice : choice / p->k_choices) * k;
        const double *w = c->in[1].value + (expert * p->n + n) * k;
        double squares = 0, largest = 0;
        long double sum = 0;
        for (int64_t i = 0; i < k; i++) {
            sum += (long double)x[i] * w[i];
            squares += w[i] * w[i];
            largest = fmax(largest, fabs(x[i]));
        }
        c->out[0].value[at] = (double)sum;
        c->out[0].mag[at] = sqrt(squares) * largest + (double)fabsl(sum);
    }
}

static void make_expert(size_t i, corpus_case *c) {
    rp_dtype dtype = rp_case_weight_dtype(i / N_EXPERTS);
    const expert_spec *p = &experts[i % N_EXPERTS];
    int64_t block = rp__dtype_block_elems(dtype), k = (p->k + block - 1) / block * block;
    int32_t ids[64];
    rp_case_begin(c, RP_OP_EXPERT_MATMUL, i, "%s T=%lld K=%lld X=%lld N=%lld k=%lld%s live=%d",
                  rp__dtype_name(dtype), (long long)p->t, (long long)k, (long long)p->x,
                  (long long)p->n, (long long)p->k_choices, p->is_per_choice ? " per choice" : "",
                  p->live - 1);
    rp_case_in_f32(c, 0, p->is_per_choice ? S3(p->t, p->k_choices, k) : S2(p->t, k), NULL);
    rp_case_in_random(c, 1, dtype, S3(p->x, p->n, k));
    c->op.in[1].is_weight = 1;
    for (int64_t j = 0; j < p->t * p->k_choices; j++)
        ids[j] = (int32_t)rp_case_rand(c, (uint64_t)p->x);
    rp_case_in_i32(c, 2, S2(p->t, p->k_choices), ids);
    corpus_tol tol = rp__dtype_is_block(dtype) ? TOL_MATMUL_BLOCK
                     : dtype == RP_BF16        ? TOL_MATMUL_BF16
                                               : TOL_MATMUL_FLOAT;
    rp_case_out(c, 0, RP_F32, S3(p->t, p->k_choices, p->n), tol);
    want_experts(c, p, k);
    rp_case_rows(c, 1 << 0 | 1 << 2, 1);
    rp_case_live(c, p->live - 1);
}

static void make_expert_hand(corpus_case *c) {
    static const float x[] = {1, 2, 3, 4}, w[] = {1, 1, 1, -1, 10, 0, 0, 10};
    rp_case_begin(c, RP_OP_EXPERT_MATMUL, 0,
                  "by hand"); /* expert 0: sum, difference; 1: times ten */
    rp_case_in_f32(c, 0, S2(2, 2), x);
    rp_case_in_f32(c, 1, S3(2, 2, 2), w);
    c->op.in[1].is_weight = 1;
    rp_case_in_i32(c, 2, S2(2, 2), (int32_t[]){1, 0, 0, 1});
    rp_case_out(c, 0, RP_F32, S3(2, 2, 2), TOL_MATMUL_FLOAT);
    rp_case_want(c, 0, (double[]){10, 20, 3, -1, 7, -1, 30, 40});
    rp_case_rows(c, 1 << 0 | 1 << 2, 1);
}

/* ---- sum ---- */

typedef struct sum_spec {
    int64_t t, k, n;
    bool is_strided;
    int live; /* n + 1 */
} sum_spec;
static const sum_spec sums[] = {
    {1, 1, 1},
    {3, 2, 65},
    {17, 8, 33, .is_strided = true},
    {6, 2, 16, .live = 1 + 5},
    {6, 2, 16, .live = 1 + 0},
};
enum { N_SUMS = sizeof sums / sizeof *sums };

static void make_sum(size_t i, corpus_case *c) {
    const sum_spec *p = &sums[i];
    rp_case_begin(c, RP_OP_EXPERT_SUM, i, "T=%lld k=%lld N=%lld%s live=%d", (long long)p->t,
                  (long long)p->k, (long long)p->n, p->is_strided ? " strided" : "", p->live - 1);
    const double *x = rp_case_in_f32(c, 0, S3(p->t, p->k, p->n), NULL);
    const double *w = rp_case_in_f32(c, 1, S2(p->t, p->k), NULL);
    double *y = rp_case_out(c, 0, RP_F32, S2(p->t, p->n), TOL_MATMUL_FLOAT);
    for (int64_t at = 0; at < p->t * p->k * p->n; at++) {
        int64_t choice = at / p->n, to = choice / p->k * p->n + at % p->n;
        y[to] += w[choice] * x[at];
        c->out[0].mag[to] += fabs(w[choice] * x[at]);
    }
    rp_case_rows(c, 3, 1);
    rp_case_live(c, p->live - 1);
    if (p->is_strided) rp_case_strided(c, 3, 1);
}

static void make_sum_hand(corpus_case *c) {
    static const float x[] = {1, 2, 3, 4}, w[] = {10, 1};
    rp_case_begin(c, RP_OP_EXPERT_SUM, 0, "by hand");
    rp_case_in_f32(c, 0, S3(1, 2, 2), x);
    rp_case_in_f32(c, 1, S2(1, 2), w);
    rp_case_out(c, 0, RP_F32, S2(1, 2), TOL_MATMUL_FLOAT);
    rp_case_want(c, 0, (double[]){13, 24});
}

static void make(size_t i, corpus_case *c) {
    if (i < 3)
        make_router_hand(i, c);
    else if (i < 3 + N_ROUTERS)
        make_router(i - 3, c);
    else if ((i -= 3 + N_ROUTERS) < 1)
        make_expert_hand(c);
    else if (i < 1 + N_ALL_EXPERTS)
        make_expert(i - 1, c);
    else if ((i -= 1 + N_ALL_EXPERTS) < 1)
        make_sum_hand(c);
    else
        make_sum(i - 1, c);
}

const corpus_group rp_corpus_experts = {3 + N_ROUTERS + 1 + N_ALL_EXPERTS + 1 + N_SUMS, make};
