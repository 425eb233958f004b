/* Cases of the ops that move or convert values without computing: gather, convert, advance,
 * feed. All to the bit. */
#include "op/corpus_build.h"

/* ---- gather ---- */

typedef struct gather_spec {
    int64_t t, e, r;
    bool is_strided;
    int live; /* n + 1 */
} gather_spec;

static const gather_spec gathers[] = {
    {1, 1, 1},
    {7, 65, 3},
    {3, 16, 17}, /* more rows out than in */
    {33, 100, 5, .is_strided = true},
    {5, 64, 6, .live = 1 + 2},
    {5, 64, 6, .live = 1 + 0},
};
enum { N_GATHERS = sizeof gathers / sizeof *gathers };

static void make_gather(size_t i, corpus_case *c) {
    const gather_spec *p = &gathers[i];
    rp_case_begin(c, RP_OP_GATHER_ROWS, i, "T=%lld E=%lld R=%lld%s live=%d", (long long)p->t,
                  (long long)p->e, (long long)p->r, p->is_strided ? " strided" : "", p->live - 1);
    double *x = rp_case_in_f32(c, 0, S2(p->t, p->e), NULL);
    int32_t rows[64];
    for (int64_t r = 0; r < p->r; r++) rows[r] = (int32_t)rp_case_rand(c, (uint64_t)p->t);
    rows[0] = (int32_t)p->t - 1;
    rp_case_in_i32(c, 1, S1(p->r), rows);
    double *y = rp_case_out(c, 0, RP_F32, S2(p->r, p->e), TOL_BITS);
    for (int64_t at = 0; at < p->r * p->e; at++) y[at] = x[rows[at / p->e] * p->e + at % p->e];
    rp_case_rows(c, 1 << 1, 1);
    rp_case_live(c, p->live - 1);
    if (p->is_strided) rp_case_strided(c, 1, 1);
}

static void make_gather_hand(corpus_case *c) {
    static const float x[] = {1, 2, 3, 4, 5, 6};
    rp_case_begin(c, RP_OP_GATHER_ROWS, 0, "by hand");
    rp_case_in_f32(c, 0, S2(3, 2), x);
    rp_case_in_i32(c, 1, S1(4), (int32_t[]){2, 0, 0, 1});
    rp_case_out(c, 0, RP_F32, S2(4, 2), TOL_BITS);
    rp_case_want(c, 0, (double[]){5, 6, 1, 2, 1, 2, 3, 4});
    rp_case_rows(c, 1 << 1, 1);
}

/* ---- convert ---- */

static const rp_dtype floats[] = {RP_F32, RP_F16, RP_BF16};
enum { N_FLOATS = 3 };

/* Ties and edges of F16 (11 bits, subnormals below 2^-14) and BF16 (8 bits). */
static const float edges[] = {
    0,
    1,
    -1,
    65504,
    65519,
    65520,
    1e30f,
    INFINITY,
    -INFINITY,
    0x1p-24f,
    0x1p-25f,
    0x1.8p-25f,
    0x1.8p-24f,
    0x1p-14f,
    0x1.ffcp-15f,
    0x1p-126f,
    0x1p-133f,
    0x1p-134f,
    0x1p-149f,
    0x1.004p0f,
    0x1.002p0f,
    0x1.006p0f,
    0x1.01p0f,
    0x1.03p0f,
    0x1.010002p0f,
    0x1.fffffep127f,
    0x1.fep127f,
    0x1.ffp127f,
    NAN,
};
enum { N_EDGES = sizeof edges / sizeof *edges };

typedef struct convert_spec {
    shape s;
    bool is_strided, is_in_place;
    int live; /* n + 1 */
} convert_spec;
static const convert_spec converts[] = {
    {{2, {1, N_EDGES}}},
    {{1, {77}}},
    {{2, {7, 100}}, .is_strided = true},
    {{3, {3, 2, 17}}, .live = 1 + 2},
    {{4, {2, 2, 2, 9}}, .is_in_place = true},
};
enum { N_CONVERTS = sizeof converts / sizeof *converts };

static void make_convert(size_t i, corpus_case *c) {
    rp_dtype from = floats[i % N_FLOATS], to = floats[i / N_FLOATS % N_FLOATS];
    const convert_spec *p = &converts[i / N_FLOATS / N_FLOATS];
    char text[64];
    rp_case_begin(c, RP_OP_CONVERT, i, "%s", "");
    double *x = rp_case_in_random(c, 0, from, p->s);
    rp_case_name(c, "%s to %s%s%s live=%d", rp__tensor_text(&c->op.in[0], text, sizeof text),
                 rp__dtype_name(to), p->is_strided ? " strided" : "",
                 p->is_in_place ? " in place" : "", p->live - 1);
    int64_t n = rp__tensor_elems(&c->op.in[0]);
    for (int64_t e = 0; e < n; e++) x[e] = p == converts ? edges[e] : x[e] * exp2(e % 40 - 30.0);
    rp_case_store(c, &c->in[0], &c->op.in[0]);
    double *y = rp_case_out(c, 0, to, p->s, TOL_BITS);
    for (int64_t e = 0; e < n; e++) y[e] = rp_case_round(to, x[e]);
    if (p->is_in_place && from == to) c->out[0].alias = 0;
    rp_case_rows(c, 1, 1);
    rp_case_live(c, p->live - 1);
    if (p->is_strided) rp_case_strided(c, 1, 1);
}

static void make_convert_hand(corpus_case *c) {
    /* ties at 11 bits go to even: 1 + 2^-11 down to 1, 1 + 3 * 2^-11 up to 1 + 2^-9 */
    static const float x[] = {0x1.002p0f, 0x1.006p0f, 65519, 65520, 0x1p-25f, 0x1.8p-25f};
    rp_case_begin(c, RP_OP_CONVERT, 0, "by hand");
    rp_case_in_f32(c, 0, S2(1, 6), x);
    rp_case_out(c, 0, RP_F16, S2(1, 6), TOL_BITS);
    rp_case_want(c, 0, (double[]){1, 1.001953125, 65504, INFINITY, 0, 5.9604644775390625e-8});
}

/* ---- advance ---- */

typedef struct advance_spec {
    int64_t t;
    int32_t step;
    bool is_in_place;
    int live; /* n + 1 */
} advance_spec;
static const advance_spec advances[] = {
    {1, 1, false, 0},    {3, 1, true, 0},      {17, -5, false, 0}, {33, 1000000, true, 0},
    {8, 1, true, 1 + 3}, {8, 1, false, 1 + 0}, {1000, 7, true, 0},
};
enum { N_ADVANCES = sizeof advances / sizeof *advances };

static void make_advance(size_t i, corpus_case *c) {
    const advance_spec *p = &advances[i];
    int32_t x[1000];
    rp_case_begin(c, RP_OP_ADVANCE, i, "T=%lld step=%d%s live=%d", (long long)p->t, p->step,
                  p->is_in_place ? " in place" : "", p->live - 1);
    for (int64_t t = 0; t < p->t; t++) x[t] = (int32_t)rp_case_rand(c, 100000);
    rp_case_in_i32(c, 0, S1(p->t), x);
    double *y = rp_case_out(c, 0, RP_I32, S1(p->t), TOL_BITS);
    for (int64_t t = 0; t < p->t; t++) y[t] = (double)x[t] + p->step;
    c->op.p.advance.step = p->step;
    if (p->is_in_place) c->out[0].alias = 0;
    rp_case_rows(c, 1, 1);
    rp_case_live(c, p->live - 1);
}

static void make_advance_hand(corpus_case *c) {
    rp_case_begin(c, RP_OP_ADVANCE, 0, "by hand");
    rp_case_in_i32(c, 0, S1(3), (int32_t[]){0, 41, -1});
    rp_case_out(c, 0, RP_I32, S1(3), TOL_BITS);
    rp_case_want(c, 0, (double[]){1, 42, 0});
    c->op.p.advance.step = 1;
    c->out[0].alias = 0;
}

/* ---- feed ---- */

static const int64_t feeds[][2] = {{1, 1}, {1, 4}, {3, 2}, {32, 8}}; /* T, W */
enum { N_FEEDS = sizeof feeds / sizeof *feeds };

/* Even cases are in place. */
static void make_feed(size_t i, corpus_case *c) {
    int64_t t = feeds[i / 2][0], w = feeds[i / 2][1], n = t * w;
    int32_t values[9 * 32]; /* past, and x behind it */
    rp_case_begin(c, RP_OP_FEED, i, "T=%lld W=%lld%s", (long long)t, (long long)w,
                  i % 2 ? "" : " in place");
    for (int64_t k = 0; k < n + t; k++) values[k] = (int32_t)rp_case_rand(c, 100000);
    rp_case_in_i32(c, 0, S1(t), values + n);
    rp_case_in_i32(c, 1, S2(w, t), values);
    double *ids = rp_case_out(c, 0, RP_I32, S1(t), TOL_BITS);
    for (int64_t k = 0; k < t; k++) ids[k] = values[n + k];
    double *moved = rp_case_out(c, 1, RP_I32, S2(w, t), TOL_BITS);
    for (int64_t k = 0; k < n; k++) moved[k] = values[t + k];
    if (i % 2 == 0) c->out[1].alias = 1;
}

static void make_feed_hand(corpus_case *c) {
    rp_case_begin(c, RP_OP_FEED, 0, "by hand");
    rp_case_in_i32(c, 0, S1(2), (int32_t[]){7, 8});
    rp_case_in_i32(c, 1, S2(3, 2), (int32_t[]){1, 2, 3, 4, 5, 6});
    rp_case_out(c, 0, RP_I32, S1(2), TOL_BITS);
    rp_case_want(c, 0, (double[]){7, 8});
    rp_case_out(c, 1, RP_I32, S2(3, 2), TOL_BITS);
    rp_case_want(c, 1, (double[]){3, 4, 5, 6, 7, 8});
    c->out[1].alias = 1;
}

static void make(size_t i, corpus_case *c) {
    enum { N_ALL_CONVERTS = N_CONVERTS * N_FLOATS * N_FLOATS };
    if (i < 1)
        make_gather_hand(c);
    else if (i < 1 + N_GATHERS)
        make_gather(i - 1, c);
    else if ((i -= 1 + N_GATHERS) < 1)
        make_convert_hand(c);
    else if (i < 1 + N_ALL_CONVERTS)
        make_convert(i - 1, c);
    else if ((i -= 1 + N_ALL_CONVERTS) < 1)
        make_advance_hand(c);
    else if (i < 1 + N_ADVANCES)
        make_advance(i - 1, c);
    else if ((i -= 1 + N_ADVANCES) < 1)
        make_feed_hand(c);
    else
        make_feed(i - 1, c);
}

const corpus_group rp_corpus_moves = {
    4 + N_GATHERS + N_CONVERTS * N_FLOATS * N_FLOATS + N_ADVANCES + 2 * N_FEEDS, make};
