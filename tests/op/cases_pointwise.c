/* Cases of the ops that make each element from elements at the same place. Wanted: formulas other
 * than the bodies' where there are such (erfc for GELU, logistic by tanh). */
#include "op/corpus_build.h"

typedef struct point_spec {
    rp_op_kind kind;
    shape s;
    rp_act act;
    float value;
    bool is_shared; /* b [E] */
    int alias;      /* input + 1 */
    bool is_strided;
    int live; /* n + 1 */
} point_spec;

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
#define SHAPE4(a, b, c, d)                                                                         \
    {                                                                                              \
        4, {                                                                                       \
            a, b, c, d                                                                             \
        }                                                                                          \
    }

static const point_spec specs[] = {
    {RP_OP_ACT, SHAPE2(1, 1), RP_ACT_SILU},
    {RP_OP_ACT, SHAPE2(3, 100), RP_ACT_SILU},
    {RP_OP_ACT, SHAPE2(3, 100), RP_ACT_GELU},
    {RP_OP_ACT, SHAPE2(3, 100), RP_ACT_GELU_TANH, .alias = 1},
    {RP_OP_ACT, SHAPE2(3, 100), RP_ACT_RELU, .is_strided = true},
    {RP_OP_ACT, SHAPE1(77), RP_ACT_GELU},
    {RP_OP_ACT, SHAPE3(5, 3, 7), RP_ACT_SILU, .live = 1 + 2},
    {RP_OP_ACT, SHAPE4(2, 2, 3, 5), RP_ACT_GELU_TANH, .is_strided = true, .alias = 1},
    {RP_OP_GATED, SHAPE2(1, 1), RP_ACT_SILU},
    {RP_OP_GATED, SHAPE2(7, 1536), RP_ACT_SILU},
    {RP_OP_GATED, SHAPE2(3, 33), RP_ACT_GELU},
    {RP_OP_GATED, SHAPE2(3, 33), RP_ACT_GELU_TANH, .alias = 1},
    {RP_OP_GATED, SHAPE2(3, 33), RP_ACT_RELU, .alias = 2},
    {RP_OP_GATED, SHAPE2(17, 65), RP_ACT_SILU, .is_strided = true},
    {RP_OP_GATED, SHAPE2(17, 65), RP_ACT_SILU, .is_strided = true, .live = 1 + 3},
    {RP_OP_GATED, SHAPE2(2, 65), RP_ACT_SILU, .live = 1 + 0},
    {RP_OP_ADD, SHAPE2(3, 65)},
    {RP_OP_ADD, SHAPE2(17, 100), .is_shared = true},
    {RP_OP_ADD, SHAPE2(3, 65), .alias = 1},
    {RP_OP_ADD, SHAPE2(3, 65), .alias = 2, .is_strided = true},
    {RP_OP_ADD, SHAPE2(9, 65), .live = 1 + 8},
    {RP_OP_ADD, SHAPE2(9, 65), .is_shared = true, .live = 1 + 0},
    {RP_OP_MUL, SHAPE2(3, 65)},
    {RP_OP_MUL, SHAPE2(17, 100), .is_shared = true, .is_strided = true},
    {RP_OP_MUL, SHAPE2(3, 65), .alias = 1, .is_shared = true},
    {RP_OP_MUL, SHAPE2(33, 7), .alias = 2},
    {RP_OP_MUL, SHAPE2(9, 65), .live = 1 + 3},
    {RP_OP_SCALE, SHAPE2(3, 65), .value = 0.125f},
    {RP_OP_SCALE, SHAPE1(1000), .value = -33.3f, .alias = 1},
    {RP_OP_SCALE, SHAPE1(100), .value = 3, .live = 1 + 37},
    {RP_OP_SCALE, SHAPE3(3, 4, 5), .value = 0, .is_strided = true},
    {RP_OP_SOFTCAP, SHAPE2(3, 65), .value = 30},
    {RP_OP_SOFTCAP, SHAPE2(1, 1000), .value = 0.5f, .alias = 1},
    {RP_OP_SOFTCAP, SHAPE2(7, 5), .value = 50, .is_strided = true, .live = 1 + 5},
};
enum { N_HAND = 7, N_SPECS = sizeof specs / sizeof *specs };

static bool is_binary(rp_op_kind kind) {
    return kind == RP_OP_GATED || kind == RP_OP_ADD || kind == RP_OP_MUL;
}

static void make_hand(size_t i, corpus_case *c) {
    static const rp_op_kind kind[N_HAND] = {RP_OP_ACT, RP_OP_ACT, RP_OP_ACT,    RP_OP_ACT,
                                            RP_OP_ADD, RP_OP_MUL, RP_OP_SOFTCAP};
    static const float x[] = {-1000, -1, 0, 1, 1000}, b[] = {1, 2, 3, 4, 5};
    static const double y[N_HAND][5] = {
        [RP_ACT_SILU] = {0, -0.2689414213699951, 0, 0.7310585786300049, 1000},
        [RP_ACT_GELU] = {0, -0.15865525393145707, 0, 0.8413447460685429, 1000},
        [RP_ACT_GELU_TANH] = {0, -0.15880800939172324, 0, 0.8411919906082768, 1000},
        [RP_ACT_RELU] = {0, 0, 0, 1, 1000},
        {-999, 1, 3, 5, 1005},
        {-1000, -2, 0, 4, 5000},
        {-2, -0.9242343145200195, 0, 0.9242343145200195, 2}, /* 2 tanh(1/2) */
    };
    rp_case_begin(c, kind[i], i, "by hand %zu", i);
    rp_case_in_f32(c, 0, S2(1, 5), x);
    if (is_binary(kind[i])) rp_case_in_f32(c, 1, S1(5), b);
    if (kind[i] == RP_OP_ACT) c->op.p.act.kind = (rp_act)i;
    if (kind[i] == RP_OP_SOFTCAP) c->op.p.scalar.value = 2;
    rp_case_out(c, 0, RP_F32, S2(1, 5), TOL_FUNCTION);
    rp_case_want(c, 0, y[i]);
    /* beside 0 a function may leave a rest; the sum and product may not */
    for (int e = 0; e < 5; e++)
        if (kind[i] == RP_OP_ACT) c->out[0].mag[e] += 1e-3;
}

static double activate(rp_act kind, double x) {
    switch (kind) {
    case RP_ACT_SILU:
        return x * 0.5 * (1 + tanh(x / 2));
    case RP_ACT_GELU:
        return x * 0.5 * erfc(-x / sqrt(2));
    case RP_ACT_GELU_TANH: {
        double u =
            2 * sqrt(2 / M_PI) * (x + 0.044715 * pow(x, 3)); /* (1 + tanh v) / 2 = logistic(2v) */
        return x / (1 + exp(-u));
    }
    default:
        return fmax(x, 0);
    }
}

static void want_element(const corpus_case *c, double a, double b, double *value, double *mag) {
    switch (c->op.kind) {
    case RP_OP_ACT:
        *value = activate(c->op.p.act.kind, a), *mag = fabs(a);
        break;
    case RP_OP_GATED:
        *value = activate(c->op.p.act.kind, a) * b, *mag = fabs(a * b);
        break;
    case RP_OP_ADD:
        *value = a + b, *mag = fabs(a + b);
        break;
    case RP_OP_MUL:
        *value = a * b, *mag = fabs(a * b);
        break;
    case RP_OP_SCALE:
        *value = c->op.p.scalar.value * a, *mag = fabs(*value);
        break;
    default:
        *value = c->op.p.scalar.value * tanh(a / c->op.p.scalar.value), *mag = fabs(a);
        break;
    }
}

static void make(size_t i, corpus_case *c) {
    if (i < N_HAND) {
        make_hand(i, c);
        return;
    }
    const point_spec *p = &specs[i - N_HAND];
    int64_t last = p->s.dim[p->s.n_dims - 1];
    bool has_function = p->kind == RP_OP_ACT || p->kind == RP_OP_GATED || p->kind == RP_OP_SOFTCAP;
    char text[64];
    rp_case_begin(c, p->kind, i, "%s", "");
    double *a = rp_case_in_f32(c, 0, p->s, NULL), *b = NULL;
    rp_case_name(c, "%s act=%d value=%g%s y=%d%s live=%d",
                 rp__tensor_text(&c->op.in[0], text, sizeof text), p->act, (double)p->value,
                 p->is_shared ? " shared" : "", p->alias - 1, p->is_strided ? " strided" : "",
                 p->live - 1);
    int64_t n = rp__tensor_elems(&c->op.in[0]);
    for (int64_t e = 0; e < n; e++) a[e] *= 8; /* into the flat parts of the functions */
    rp_case_store(c, &c->in[0], &c->op.in[0]);
    if (is_binary(p->kind)) b = rp_case_in_f32(c, 1, p->is_shared ? S1(last) : p->s, NULL);
    if (p->kind == RP_OP_ACT || p->kind == RP_OP_GATED)
        c->op.p.act.kind = p->act;
    else if (!is_binary(p->kind))
        c->op.p.scalar.value = p->value;
    double *y = rp_case_out(c, 0, RP_F32, p->s, has_function ? TOL_FUNCTION : TOL_ROUNDED);
    for (int64_t e = 0; e < n; e++)
        want_element(c, a[e], b ? b[p->is_shared ? e % last : e] : 0, &y[e], &c->out[0].mag[e]);
    c->out[0].alias = p->alias - 1;
    rp_case_live(c, p->live - 1);
    rp_case_rows(c, p->is_shared ? 1 : 3, 1);
    if (p->is_strided) rp_case_strided(c, 3, 1);
}

const corpus_group rp_corpus_pointwise = {N_HAND + N_SPECS, make};
