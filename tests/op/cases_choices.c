/* Cases of argmax, top-k and sampling. Ties, NaN and infinities have a defined answer. */
#include <string.h>

#include "op/corpus_build.h"

/* ---- argmax ---- */

typedef struct argmax_spec {
    int64_t r, v;
    bool has_ties, has_nans, is_strided;
    int live; /* n + 1 */
} argmax_spec;
static const argmax_spec argmaxes[] = {
    {1, 1},
    {3, 33},
    {17, 1000},
    {2, 32003},
    {5, 100, .has_ties = true},
    {5, 4099, .has_ties = true, .has_nans = true},
    {7, 65, .has_nans = true, .is_strided = true},
    {6, 50, .live = 1 + 2},
    {6, 50, .live = 1 + 0},
};
enum { N_ARGMAXES = sizeof argmaxes / sizeof *argmaxes };

static double *random_logits(corpus_case *c, int64_t r, int64_t v, bool has_ties, bool has_nans) {
    double *x = rp_case_in_f32(c, 0, S2(r, v), NULL);
    for (int64_t e = 0; e < r * v; e++) {
        x[e] = has_ties ? floor(4 * x[e]) : 4 * x[e];
        if (has_nans && rp_case_rand(c, 4) == 0) x[e] = NAN;
    }
    rp_case_store(c, &c->in[0], &c->op.in[0]);
    return x;
}

static void make_argmax(size_t i, corpus_case *c) {
    const argmax_spec *p = &argmaxes[i];
    rp_case_begin(c, RP_OP_ARGMAX, i, "R=%lld V=%lld%s%s%s live=%d", (long long)p->r,
                  (long long)p->v, p->has_ties ? " ties" : "", p->has_nans ? " nans" : "",
                  p->is_strided ? " strided" : "", p->live - 1);
    const double *x = random_logits(c, p->r, p->v, p->has_ties, p->has_nans);
    double *y = rp_case_out(c, 0, RP_I32, S1(p->r), TOL_BITS);
    for (int64_t r = 0; r < p->r; r++) {
        double best = -INFINITY;
        for (int64_t v = p->v - 1; v >= 0; v--) /* backwards: an equal one further on gives way */
            if (x[r * p->v + v] >= best) best = x[r * p->v + v], y[r] = (double)v;
    }
    rp_case_rows(c, 1, 1);
    rp_case_live(c, p->live - 1);
    if (p->is_strided) rp_case_strided(c, 1, 0);
}

static void make_argmax_hand(corpus_case *c) {
    static const float x[] = {1,         5,         5,         2,         NAN,       1,
                              NAN,       0,         NAN,       NAN,       NAN,       NAN,
                              -INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY, NAN,
                              -INFINITY, -3,        NAN,       NAN,       -INFINITY, NAN};
    rp_case_begin(c, RP_OP_ARGMAX, 0, "by hand");
    rp_case_in_f32(c, 0, S2(6, 4), x);
    rp_case_out(c, 0, RP_I32, S1(6), TOL_BITS);
    rp_case_want(c, 0, (double[]){1, 1, 0, 0, 3, 2});
    rp_case_rows(c, 1, 1);
}

/* ---- top-k ---- */

typedef struct topk_spec {
    int64_t r, v, k;
    bool has_ties, is_strided;
    int live; /* n + 1 */
} topk_spec;
static const topk_spec topks[] = {
    {1, 1, 1},
    {3, 33, 5},
    {2, 2000, 40},
    {4, 64, 64},
    {5, 300, 20, .has_ties = true},
    {3, 100, 7, .is_strided = true},
    {6, 50, 3, .live = 1 + 4},
    {6, 50, 3, .live = 1 + 0},
};
enum { N_TOPKS = sizeof topks / sizeof *topks };

static void make_topk(size_t i, corpus_case *c) {
    const topk_spec *p = &topks[i];
    rp_case_begin(c, RP_OP_TOPK, i, "R=%lld V=%lld k=%lld%s%s live=%d", (long long)p->r,
                  (long long)p->v, (long long)p->k, p->has_ties ? " ties" : "",
                  p->is_strided ? " strided" : "", p->live - 1);
    const double *x = random_logits(c, p->r, p->v, p->has_ties, false);
    double *values = rp_case_out(c, 0, RP_F32, S2(p->r, p->k), TOL_BITS);
    double *ids = rp_case_out(c, 1, RP_I32, S2(p->r, p->k), TOL_BITS);
    for (int64_t at = 0; at < p->r * p->v; at++) { /* its place is the number of those before it */
        const double *row = x + at / p->v * p->v;
        int64_t v = at % p->v, place = 0;
        for (int64_t j = 0; j < p->v; j++) place += row[j] > row[v] || (row[j] == row[v] && j < v);
        if (place >= p->k) continue;
        values[at / p->v * p->k + place] = row[v];
        ids[at / p->v * p->k + place] = (double)v;
    }
    rp_case_rows(c, 1, 3);
    rp_case_live(c, p->live - 1);
    if (p->is_strided) rp_case_strided(c, 1, 3);
}

static void make_topk_hand(corpus_case *c) {
    static const float x[] = {3, 7, 3, 9, -INFINITY, 0, 0, -1, NAN, 0};
    rp_case_begin(c, RP_OP_TOPK, 0, "by hand");
    rp_case_in_f32(c, 0, S2(2, 5), x);
    rp_case_out(c, 0, RP_F32, S2(2, 3), TOL_BITS);
    rp_case_out(c, 1, RP_I32, S2(2, 3), TOL_BITS);
    rp_case_want(c, 0, (double[]){9, 7, 3, 0, 0, 0});
    rp_case_want(c, 1, (double[]){3, 1, 0, 0, 1, 4});
    rp_case_rows(c, 1, 3);
}

/* ---- sample ---- */

typedef struct sample_spec {
    int64_t r, v;
    bool is_strided;
    int live; /* n + 1 */
} sample_spec;
static const sample_spec samples[] = {
    {1, 1},
    {3, 33},
    {17, 100, .is_strided = true},
    {2, 5000},
    {6, 50, .live = 1 + 3},
    {6, 50, .live = 1 + 0},
};
enum { N_SAMPLES = sizeof samples / sizeof *samples };

/* u is the middle of the interval that belongs to a chosen index of some probability, so that no
 * rounding of the running sum moves it into a neighbour's. */
static double middle_of(const double *x, int64_t n, double temperature, int64_t index) {
    double total = 0, before = 0;
    for (int64_t i = 0; i < n; i++) total += exp(x[i] / temperature);
    for (int64_t i = 0; i < index; i++) before += exp(x[i] / temperature);
    return (before + 0.5 * exp(x[index] / temperature)) / total;
}

static void make_sample(size_t i, corpus_case *c) {
    const sample_spec *p = &samples[i];
    rp_case_begin(c, RP_OP_SAMPLE, i, "R=%lld V=%lld%s live=%d", (long long)p->r, (long long)p->v,
                  p->is_strided ? " strided" : "", p->live - 1);
    const double *x = random_logits(c, p->r, p->v, false, false);
    double *u = rp_case_in_f32(c, 1, S1(p->r), NULL);
    double *temperature = rp_case_in_f32(c, 2, S1(p->r), NULL);
    double *y = rp_case_out(c, 0, RP_I32, S1(p->r), TOL_BITS);
    for (int64_t r = 0; r < p->r; r++) {
        temperature[r] = rp_case_round(RP_F32, 0.7 + 0.1 * (double)(r % 13));
        int64_t best = 0; /* the likeliest of a few random ones */
        for (int j = 0; j < 8; j++) {
            int64_t v = (int64_t)rp_case_rand(c, (uint64_t)p->v);
            if (j == 0 || x[r * p->v + v] > x[r * p->v + best]) best = v;
        }
        u[r] = middle_of(x + r * p->v, p->v, temperature[r], best);
        y[r] = (double)best;
    }
    rp_case_store(c, &c->in[1], &c->op.in[1]);
    rp_case_store(c, &c->in[2], &c->op.in[2]);
    rp_case_rows(c, 7, 1);
    rp_case_live(c, p->live - 1);
    if (p->is_strided) rp_case_strided(c, 1, 0);
}

static void make_sample_hand(corpus_case *c) {
    /* ln 2 in the middle: 1/4, 1/2, 1/4; at temperature 1/2: 1/6, 4/6, 1/6 */
    static const float row[] = {0, 0.693147180559945f, 0};
    static const float u[] = {0, 0.2f, 0.3f, 0.74f, 0.76f, 0.99999f, 0.2f, 0.8f};
    static const float temperature[] = {1, 1, 1, 1, 1, 1, 0.5f, 0.5f};
    float x[8 * 3];
    for (int r = 0; r < 8; r++) memcpy(x + r * 3, row, sizeof row);
    rp_case_begin(c, RP_OP_SAMPLE, 0, "by hand");
    rp_case_in_f32(c, 0, S2(8, 3), x);
    rp_case_in_f32(c, 1, S1(8), u);
    rp_case_in_f32(c, 2, S1(8), temperature);
    rp_case_out(c, 0, RP_I32, S1(8), TOL_BITS);
    rp_case_want(c, 0, (double[]){0, 0, 1, 1, 2, 2, 1, 1});
    rp_case_rows(c, 7, 1);
}

static void make(size_t i, corpus_case *c) {
    if (i < 1)
        make_argmax_hand(c);
    else if (i < 1 + N_ARGMAXES)
        make_argmax(i - 1, c);
    else if ((i -= 1 + N_ARGMAXES) < 1)
        make_topk_hand(c);
    else if (i < 1 + N_TOPKS)
        make_topk(i - 1, c);
    else if ((i -= 1 + N_TOPKS) < 1)
        make_sample_hand(c);
    else
        make_sample(i - 1, c);
}

const corpus_group rp_corpus_choices = {3 + N_ARGMAXES + N_TOPKS + N_SAMPLES, make};
