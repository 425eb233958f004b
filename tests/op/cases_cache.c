/* Cases of rope and of writing the paged KV cache. */
#include <complex.h>
#include <stdlib.h>
#include <string.h>

#include "op/corpus_build.h"

/* ---- rope ---- */

typedef struct rope_spec {
    int64_t t, h, d, r;
    rp_rope_style style;
    bool is_in_place, is_strided;
    int live; /* n + 1 */
} rope_spec;
static const rope_spec ropes[] = {
    {1, 1, 2, 2},
    {3, 4, 64, 64},
    {3, 4, 64, 64, RP_ROPE_INTERLEAVED},
    {7, 3, 80, 32},
    {7, 3, 80, 32, RP_ROPE_INTERLEAVED, .is_in_place = true},
    {17, 2, 128, 128, .is_in_place = true},
    {2, 9, 64, 64, .is_strided = true},
    {33, 2, 16, 8, RP_ROPE_INTERLEAVED, .is_strided = true},
    {2, 2, 40, 40, .is_strided = true, .is_in_place = true},
    {3, 1, 96, 2},
    {2, 1, 256, 256},
    {3, 2, 10, 6},
    {6, 2, 64, 64, .live = 1 + 3},
    {6, 2, 64, 32, RP_ROPE_INTERLEAVED, .is_in_place = true, .live = 1 + 1},
    {6, 2, 64, 64, .live = 1 + 0},
};
enum { N_ROPES = sizeof ropes / sizeof *ropes };

/* Each pair is a complex number turned by cos + i sin. */
static void want_rope(corpus_case *c, const rope_spec *p) {
    for (int64_t at = 0; at < p->t * p->h * p->d; at++) {
        const double *x = c->in[0].value + at / p->d * p->d;
        const double *cs = c->in[1].value + at / p->d / p->h * p->r;
        int64_t i = at % p->d, half = p->r / 2;
        c->out[0].value[at] = x[i];
        if (i < p->r) {
            bool is_half = p->style == RP_ROPE_HALF;
            int64_t pair = is_half ? i % half : i / 2;
            int64_t re = is_half ? pair : 2 * pair, im = is_half ? pair + half : 2 * pair + 1;
            double complex z = (x[re] + I * x[im]) * (cs[pair] + I * cs[half + pair]);
            c->out[0].value[at] = i == re ? creal(z) : cimag(z);
            c->out[0].mag[at] = cabs(x[re] + I * x[im]);
        }
    }
}

static void make_rope(size_t i, corpus_case *c) {
    const rope_spec *p = &ropes[i];
    rp_case_begin(c, RP_OP_ROPE, i, "T=%lld H=%lld D=%lld R=%lld style=%d%s%s live=%d",
                  (long long)p->t, (long long)p->h, (long long)p->d, (long long)p->r, p->style,
                  p->is_in_place ? " in place" : "", p->is_strided ? " strided" : "", p->live - 1);
    rp_case_in_f32(c, 0, S3(p->t, p->h, p->d), NULL);
    double *cs = rp_case_in_f32(c, 1, S2(p->t, p->r), NULL);
    for (int64_t t = 0; t < p->t; t++) {
        for (int64_t k = 0; k < p->r / 2; k++) {
            double angle = (double)(t * 97 + 3) * pow(10000, -2 * (double)k / (double)p->r);
            cs[t * p->r + k] = cos(angle), cs[t * p->r + p->r / 2 + k] = sin(angle);
        }
    }
    rp_case_store(c, &c->in[1], &c->op.in[1]);
    rp_case_out(c, 0, RP_F32, S3(p->t, p->h, p->d), TOL_ROUNDED);
    want_rope(c, p);
    c->op.p.rope.style = p->style;
    if (p->is_in_place) c->out[0].alias = 0;
    rp_case_rows(c, 3, 1);
    rp_case_live(c, p->live - 1);
    if (p->is_strided) rp_case_strided(c, 3, 1);
}

static void make_rope_hand(size_t i, corpus_case *c) {
    static const float x[] = {1, 2, 3, 4, 5, 6}, cs[] = {0, 1, 1, 0}; /* a quarter turn, and none */
    rp_case_begin(c, RP_OP_ROPE, i, "by hand %zu", i);
    rp_case_in_f32(c, 0, S3(1, 1, 6), x);
    rp_case_in_f32(c, 1, S2(1, 4), cs);
    rp_case_out(c, 0, RP_F32, S3(1, 1, 6), TOL_ROUNDED);
    rp_case_want(c, 0, i ? (double[]){-2, 1, 3, 4, 5, 6} : (double[]){-3, 2, 1, 4, 5, 6});
    c->op.p.rope.style = i ? RP_ROPE_INTERLEAVED : RP_ROPE_HALF;
}

/* ---- kv_write ---- */

typedef struct write_spec {
    int64_t t, k, d, p, s;
    bool is_strided;
    int live; /* n + 1 */
    rp_rows rows;
    bool is_by_table; /* places from table, seq and pos */
} write_spec;
static const write_spec writes[] = {
    {1, 1, 16, 3, 1},
    {3, 2, 40, 4, 16},
    {17, 3, 64, 6, 4, .is_strided = true},
    {33, 1, 80, 3, 32},
    {6, 2, 16, 4, 4, .live = 1 + 4},
    {6, 2, 16, 4, 4, .live = 1 + 0},
    {5, 2, 64, 7, 32, .rows = RP_ROWS_SINGLE},
    {64, 2, 64, 4, 32, .rows = RP_ROWS_PROMPT},
    {5, 2, 64, 7, 32, .rows = RP_ROWS_SINGLE, .is_by_table = true},
    {6, 2, 16, 4, 4, .live = 1 + 4, .is_by_table = true},
    {17, 3, 64, 6, 4, .is_strided = true, .is_by_table = true},
};
static const rp_dtype cache_dtypes[] = {RP_F32, RP_F16, RP_BF16};
enum { N_WRITES = sizeof writes / sizeof *writes, N_ALL_WRITES = N_WRITES * 9 };

/* Distinct slots outside block 0; rows that are not live go to block 0. */
static void choose_slots(corpus_case *c, const write_spec *p, int32_t *slots) {
    int32_t order[256];
    int64_t n_live = p->live ? p->live - 1 : p->t;
    if (p->t > (p->p - 1) * p->s) abort(); /* a row of the table that asks for too much */
    if (p->rows) {
        int64_t per_block = p->rows == RP_ROWS_PROMPT ? p->s : 1;
        rp_case_shuffle(c, order, p->p - 1);
        for (int64_t t = 0; t < p->t; t++)
            slots[t] = (int32_t)((order[t / per_block] + 1) * p->s +
                                 (per_block > 1 ? t % p->s : 3 * t % p->s));
        return;
    }
    rp_case_shuffle(c, order, (p->p - 1) * p->s);
    for (int64_t t = 0; t < p->t; t++)
        slots[t] = t < n_live ? order[t] + (int32_t)p->s : (int32_t)(t % p->s);
}

/* The same places by way of one sequence that has all blocks, in any order; row 0 of the table is
 * the sink's. */
static void add_table(corpus_case *c, const write_spec *p, const int32_t *slots) {
    int32_t table[2 * 8] = {0}, seq[64], pos[64], n = (int32_t)p->p - 1, size = (int32_t)p->s;
    rp_case_shuffle(c, table + n, n);
    for (int32_t i = 0; i < n; i++) table[n + i]++;
    for (int64_t t = 0; t < p->t; t++) {
        int32_t at = 0, block = slots[t] / size;
        seq[t] = block != 0;
        while (block && table[n + at] != block) at++;
        pos[t] = at * size + slots[t] % size;
    }
    rp_case_in_i32(c, 3, S2(2, n), table);
    rp_case_in_i32(c, 4, S1(p->t), seq);
    rp_case_in_i32(c, 5, S1(p->t), pos);
}

static void make_write(size_t i, corpus_case *c) {
    const write_spec *p = &writes[i / 9];
    rp_dtype dtype[2] = {cache_dtypes[i % 3], cache_dtypes[i / 3 % 3]};
    int64_t row = p->k * p->d, n_live = p->live ? p->live - 1 : p->t;
    int32_t slots[64];
    rp_case_begin(c, RP_OP_KV_WRITE, i, "T=%lld K=%lld D=%lld P=%lld S=%lld %s %s%s%s live=%d",
                  (long long)p->t, (long long)p->k, (long long)p->d, (long long)p->p,
                  (long long)p->s, rp__dtype_name(dtype[0]), rp__dtype_name(dtype[1]),
                  p->is_strided ? " strided" : "", p->is_by_table ? " by table" : "", p->live - 1);
    for (int j = 0; j < 2; j++) {
        double *x = rp_case_in_f32(c, j, S3(p->t, p->k, p->d), NULL);
        for (int64_t e = 0; e < p->t * row; e++) x[e] *= exp2((double)(e % 40) - 20);
        rp_case_store(c, &c->in[j], &c->op.in[j]);
    }
    choose_slots(c, p, slots);
    if (p->is_by_table)
        add_table(c, p, slots);
    else
        rp_case_in_i32(c, 2, S1(p->t), slots);
    for (int j = 0; j < 2; j++) {
        double *cache = rp_case_out(c, j, dtype[j], S4(p->p, p->k, p->s, p->d), TOL_BITS);
        for (int64_t e = 0; e < p->p * p->s * row; e++) cache[e] = rp_case_randf(c);
        rp_case_out_before(c, j);
        for (int64_t e = 0; e < n_live * row; e++) {
            int64_t slot = slots[e / row], head = slot / p->s * p->k + e % row / p->d;
            cache[(head * p->s + slot % p->s) * p->d + e % p->d] =
                rp_case_round(dtype[j], c->in[j].value[e]);
        }
    }
    c->op.p.kv_write.rows = p->rows;
    rp_case_live(c, p->live - 1);
    rp_case_rows(c, p->is_by_table ? 3 | 3 << 4 : 7, 0);
    c->has_sink_block = p->live != 0;
    if (p->is_strided) rp_case_strided(c, 3, 3);
}

static void make_write_hand(corpus_case *c) {
    static const float k[] = {1, 2, 3, 4}, v[] = {5, 6, 7, 8};
    rp_case_begin(c, RP_OP_KV_WRITE, 0, "by hand");
    rp_case_in_f32(c, 0, S3(2, 2, 1), k);
    rp_case_in_f32(c, 1, S3(2, 2, 1), v);
    rp_case_in_i32(c, 2, S1(2), (int32_t[]){3, 0}); /* block 1 offset 1, block 0 offset 0 */
    for (int j = 0; j < 2; j++) {
        double *cache = rp_case_out(c, j, RP_F16, S4(2, 2, 2, 1), TOL_BITS);
        for (int e = 0; e < 8; e++) cache[e] = 9;
        rp_case_out_before(c, j);
        rp_case_want(c, j,
                     j ? (double[]){7, 9, 8, 9, 9, 5, 9, 6} : (double[]){3, 9, 4, 9, 9, 1, 9, 2});
    }
}

static void make(size_t i, corpus_case *c) {
    if (i < 2)
        make_rope_hand(i, c);
    else if (i < 2 + N_ROPES)
        make_rope(i - 2, c);
    else if ((i -= 2 + N_ROPES) < 1)
        make_write_hand(c);
    else
        make_write(i - 1, c);
}

const corpus_group rp_corpus_caches = {2 + N_ROPES + 1 + N_ALL_WRITES, make};
