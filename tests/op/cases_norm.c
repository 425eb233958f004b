/* Cases of the norms. Wanted: two passes over exact sums in long double. */
#include "op/corpus_build.h"

typedef struct norm_spec {
    rp_op_kind kind;
    shape s;
    bool has_r, has_sum, has_b, add_one;
    int y_alias, sum_alias; /* input + 1; 0: memory of its own */
    bool is_strided;
    int live; /* n + 1; 0: absent */
} norm_spec;

#define RMS(...)                                                                                   \
    { RP_OP_RMS_NORM, __VA_ARGS__ }
#define LAYER(...)                                                                                 \
    { RP_OP_LAYER_NORM, __VA_ARGS__ }
#define SHAPE1(a)                                                                                  \
    {                                                                                              \
        1, {                                                                                       \
            a                                                                                      \
        }                                                                                          \
    }
#define SHAPE2(a, b)                                                                               \
    {                                                                                              \
        2, {                                                                                       \
            a, b                                                                                   \
        }                                                                                          \
    }
#define SHAPE3(a, b, c)                                                                            \
    {                                                                                              \
        3, {                                                                                       \
            a, b, c                                                                                \
        }                                                                                          \
    }

static const norm_spec specs[] = {
    RMS(SHAPE1(33)),
    RMS(SHAPE2(1, 64)),
    RMS(SHAPE2(3, 1)),
    RMS(SHAPE2(7, 100), .add_one = true),
    RMS(SHAPE2(17, 576), .has_r = true, .has_sum = true),
    RMS(SHAPE2(5, 65), .has_r = true),
    RMS(SHAPE2(2, 48), .has_sum = true),
    RMS(SHAPE3(3, 4, 40)),
    RMS(SHAPE3(3, 4, 128), .is_strided = true, .add_one = true),
    RMS(SHAPE3(3, 5, 16), .is_strided = true, .y_alias = 1),
    RMS(SHAPE2(4, 130), .has_r = true, .has_sum = true, .is_strided = true),
    RMS(SHAPE2(4, 96), .y_alias = 1),
    RMS(SHAPE2(4, 96), .has_r = true, .has_sum = true, .y_alias = 1, .sum_alias = 3),
    RMS(SHAPE2(4, 96), .has_r = true, .has_sum = true, .y_alias = 3, .sum_alias = 1),
    RMS(SHAPE2(4, 96), .has_r = true, .has_sum = true, .sum_alias = 3),
    RMS(SHAPE2(6, 96), .has_r = true, .has_sum = true, .live = 1 + 4),
    RMS(SHAPE3(6, 2, 96), .live = 1 + 1),
    RMS(SHAPE2(6, 96), .live = 1 + 0),
    RMS(SHAPE2(6, 96), .live = 1 + 6),
    RMS(SHAPE2(2, 4096)),
    LAYER(SHAPE1(33)),
    LAYER(SHAPE2(1, 64), .has_b = true),
    LAYER(SHAPE2(3, 1), .has_b = true),
    LAYER(SHAPE2(17, 100)),
    LAYER(SHAPE2(7, 768), .has_b = true, .y_alias = 1),
    LAYER(SHAPE3(3, 4, 40), .has_b = true, .is_strided = true),
    LAYER(SHAPE2(6, 96), .has_b = true, .live = 1 + 5),
    LAYER(SHAPE2(6, 96), .has_b = true, .live = 1 + 0),
};
enum { N_HAND = 4, N_SPECS = sizeof specs / sizeof *specs };

static void make_hand(size_t i, corpus_case *c) {
    static const float x_rms[] = {1, 7}, w_rms[] = {5, 10}, w_one[] = {4, 9}; /* mean(x^2) = 25 */
    static const float x_sum[] = {0, 3}, r_sum[] = {1, 4};
    static const float x_layer[] = {1, 3}, w_layer[] = {2, 3}, b_layer[] = {10, 20};
    static const float *const x[N_HAND] = {x_rms, x_rms, x_sum, x_layer};
    static const float *const w[N_HAND] = {w_rms, w_one, w_rms, w_layer};
    rp_case_begin(c, i == 3 ? RP_OP_LAYER_NORM : RP_OP_RMS_NORM, i, "by hand %zu", i);
    rp_case_in_f32(c, 0, S2(1, 2), x[i]);
    rp_case_in_f32(c, 1, S1(2), w[i]);
    if (i == 2) rp_case_in_f32(c, 2, S2(1, 2), r_sum);
    if (i == 3) rp_case_in_f32(c, 2, S1(2), b_layer);
    c->op.p.norm.add_one = i == 1;
    rp_case_out(c, 0, RP_F32, S2(1, 2), TOL_NORM);
    rp_case_want(c, 0, i == 3 ? (double[]){8, 23} : (double[]){1, 14});
    if (i != 2) return;
    rp_case_out(c, 1, RP_F32, S2(1, 2), TOL_ROUNDED);
    rp_case_want(c, 1, (double[]){1, 7});
}

/* What is normed: for RMS x + r as F32 adds them, for LAYER_NORM x - mean. */
static void centred(const corpus_case *c, int64_t row, int64_t n, double *s) {
    const double *x = c->in[0].value + row * n;
    const double *r = c->op.kind == RP_OP_RMS_NORM ? c->in[2].value : NULL;
    long double mean = 0;
    for (int64_t e = 0; e < n; e++) s[e] = r ? rp_case_round(RP_F32, x[e] + r[row * n + e]) : x[e];
    if (c->op.kind == RP_OP_RMS_NORM) return;
    for (int64_t e = 0; e < n; e++) mean += s[e] / (long double)n;
    for (int64_t e = 0; e < n; e++) s[e] = (double)(s[e] - mean);
}

static void want(corpus_case *c) {
    int64_t n = rp__tensor_last(&c->op.in[0]), n_rows = rp__tensor_rows(&c->op.in[0]);
    corpus_operand *y = &c->out[0], *sum = &c->out[1];
    double s[4096];
    for (int64_t row = 0; row < n_rows; row++) {
        long double squares = 0;
        centred(c, row, n, s);
        for (int64_t e = 0; e < n; e++) squares += (long double)s[e] * s[e];
        double deviation = (double)sqrtl(squares / n + (long double)c->op.p.norm.eps);
        for (int64_t e = 0; e < n; e++) {
            double w = c->in[1].value[e] + (c->op.p.norm.add_one ? 1 : 0);
            double v = s[e] / deviation * w;
            bool has_b = c->op.kind == RP_OP_LAYER_NORM && c->in[2].value;
            y->value[row * n + e] = v + (has_b ? c->in[2].value[e] : 0);
            y->mag[row * n + e] = fabs(v) + fabs(w) + (has_b ? fabs(c->in[2].value[e]) : 0);
            if (c->op.n_out > 1) {
                sum->value[row * n + e] = s[e];
                sum->mag[row * n + e] = fabs(s[e]);
            }
        }
    }
}

static void make(size_t i, corpus_case *c) {
    if (i < N_HAND) {
        make_hand(i, c);
        return;
    }
    const norm_spec *p = &specs[i - N_HAND];
    int64_t n = p->s.dim[p->s.n_dims - 1];
    char shape_text[64];
    rp_case_begin(c, p->kind, i, "%s", "");
    rp_case_in_f32(c, 0, p->s, NULL);
    rp_case_in_f32(c, 1, S1(n), NULL);
    if (p->has_r) rp_case_in_f32(c, 2, p->s, NULL);
    if (p->has_b) rp_case_in_f32(c, 2, S1(n), NULL);
    rp_case_name(c, "%s%s%s%s%s%s y=%d sum=%d%s live=%d",
                 rp__tensor_text(&c->op.in[0], shape_text, sizeof shape_text), p->has_r ? " r" : "",
                 p->has_sum ? " sum" : "", p->has_b ? " b" : "", p->add_one ? " add_one" : "",
                 p->is_strided ? " strided" : "", p->y_alias - 1, p->sum_alias - 1, "",
                 p->live - 1);
    c->op.p.norm.eps = 1e-5f;
    c->op.p.norm.add_one = p->add_one;
    rp_case_out(c, 0, RP_F32, p->s, TOL_NORM);
    if (p->has_sum) rp_case_out(c, 1, RP_F32, p->s, TOL_ROUNDED);
    want(c);
    c->out[0].alias = p->y_alias - 1;
    c->out[1].alias = p->sum_alias - 1;
    rp_case_live(c, p->live - 1);
    if (p->is_strided) rp_case_strided(c, 1 << 0 | 1 << 2, 3);
    /* a vector is one row: it has no rows to tell apart */
    if (p->s.n_dims > 1) rp_case_rows(c, p->has_r ? 1 << 0 | 1 << 2 : 1 << 0, 3);
}

const corpus_group rp_corpus_norms = {N_HAND + N_SPECS, make};
