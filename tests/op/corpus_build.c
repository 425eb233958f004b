/* The list of cases, and what their makers share. */
#include "op/corpus_build.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/op.h"
#include "test.h"

static void *zeroed(size_t n, size_t bytes) {
    void *p = calloc(n ? n : 1, bytes);
    if (!p) abort();
    return p;
}

/* ---- the list ---- */

static const corpus_group *const groups[] = {
    &rp_corpus_norms,   &rp_corpus_pointwise, &rp_corpus_moves,
    &rp_corpus_weights, &rp_corpus_experts,   &rp_corpus_q8,
    &rp_corpus_caches,  &rp_corpus_attention, &rp_corpus_choices,
};
enum { N_GROUPS = sizeof groups / sizeof *groups };

size_t rp_corpus_count(void) {
    size_t n = 0;
    for (int g = 0; g < N_GROUPS; g++) n += groups[g]->n;
    return n;
}

/* Rows that are not live hold NaN: they must reach nothing. */
static void poison_dead_rows(corpus_case *c) {
    for (int j = 0; j < c->op.n_in; j++) {
        const rp_tensor *t = &c->op.in[j];
        if (!c->in[j].is_rows) continue;
        if (rp__dtype_is_block(t->dtype)) { /* all bits set: d is NaN */
            size_t item = rp__tensor_item_bytes(t);
            memset((uint8_t *)c->in[j].bytes + (size_t)c->n_live * item, 0xFF,
                   (size_t)(t->dim[0] - c->n_live) * item);
        }
        if (t->dtype != RP_F32) continue;
        int64_t n = rp__tensor_elems(t), n_inner = n / t->dim[0];
        for (int64_t e = c->n_live * n_inner; e < n; e++) ((float *)c->in[j].bytes)[e] = NAN;
    }
}

void rp_corpus_make(size_t i, corpus_case *c) {
    int g = 0;
    while (i >= groups[g]->n) i -= groups[g++]->n;
    groups[g]->make(i, c);
    if (c->n_live >= 0) poison_dead_rows(c);
}

void rp_corpus_clear(corpus_case *c) {
    for (int i = 0; i < RP_OP_MAX_IN + RP_OP_MAX_OUT; i++) {
        corpus_operand *o = i < RP_OP_MAX_IN ? &c->in[i] : &c->out[i - RP_OP_MAX_IN];
        free(o->bytes), free(o->value), free(o->mag), free(o->want);
        o->bytes = NULL, o->value = o->mag = NULL, o->want = NULL;
    }
}

/* ---- numbers ---- */

uint64_t rp_case_rand(corpus_case *c, uint64_t below) {
    return rp_test_rand(&c->seed) % below;
}
bool rp_corpus_is_bf16;

double rp_case_randf(corpus_case *c) {
    double v = rp_test_randf(&c->seed);
    return rp_corpus_is_bf16 ? rp_case_round(RP_BF16, v) : v;
}

void rp_case_shuffle(corpus_case *c, int32_t *ids, int64_t n) {
    for (int64_t i = 0; i < n; i++) ids[i] = (int32_t)i;
    for (int64_t i = n - 1; i > 0; i--) {
        int64_t j = (int64_t)rp_case_rand(c, (uint64_t)i + 1);
        int32_t t = ids[i];
        ids[i] = ids[j], ids[j] = t;
    }
}

double rp_case_round(rp_dtype dtype, double v) {
    int bits = dtype == RP_F32 ? 24 : dtype == RP_F16 ? 11 : 8; /* of the significand */
    int least = dtype == RP_F16 ? -14 : -126, most = dtype == RP_F16 ? 15 : 127;
    if (!isfinite(v) || v == 0) return v;
    int e = ilogb(v) < least ? least : ilogb(v); /* below: subnormal, evenly spaced */
    double step = ldexp(1, e - bits + 1);
    double r = nearbyint(v / step) * step; /* the division is by a power of two: exact */
    return fabs(r) >= ldexp(1, most + 1) ? copysign(INFINITY, v) : r;
}

rp_dtype rp_case_weight_dtype(size_t i) {
    int t = 0;
    for (;; t++)
        if (rp__dtype_is_weight((rp_dtype)t) && !i--) return (rp_dtype)t;
}

/* ---- operands ---- */

static void add_name(corpus_case *c, const char *fmt, va_list ap) {
    size_t n = strlen(c->name);
    vsnprintf(c->name + n, sizeof c->name - n, fmt, ap);
}

void rp_case_name(corpus_case *c, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    add_name(c, fmt, ap);
    va_end(ap);
}

void rp_case_begin(corpus_case *c, rp_op_kind kind, uint64_t seed, const char *fmt, ...) {
    *c = (corpus_case){.n_live = -1, .op = {.kind = kind}};
    c->seed = (seed + 1) * 0x9E3779B97F4A7C15ULL ^ (uint64_t)kind << 32;
    rp_case_name(c, "%s ", rp__op_name(kind));
    va_list ap;
    va_start(ap, fmt);
    add_name(c, fmt, ap);
    va_end(ap);
    for (int i = 0; i < RP_OP_MAX_OUT; i++) c->out[i].alias = -1;
}

static corpus_operand *add_operand(corpus_case *c, bool is_out, int at, rp_dtype dtype, shape s) {
    rp_tensor *t = is_out ? &c->op.out[at] : &c->op.in[at];
    corpus_operand *o = is_out ? &c->out[at] : &c->in[at];
    uint8_t *n = is_out ? &c->op.n_out : &c->op.n_in;
    *t = rp__tensor_make(NULL, 0, dtype, s.n_dims, s.dim);
    if (*n < at + 1) *n = (uint8_t)(at + 1);
    o->bytes = zeroed(rp__tensor_span(t), 1);
    o->value = zeroed((size_t)rp__tensor_elems(t), sizeof *o->value);
    return o;
}

static void decode(corpus_operand *o, const rp_tensor *t) {
    int64_t n = rp__tensor_elems(t);
    float *f = zeroed((size_t)n, sizeof *f);
    rp__dtype_to_f32(t->dtype, o->bytes, f, n);
    for (int64_t i = 0; i < n; i++) o->value[i] = f[i];
    free(f);
}

void rp_case_store(corpus_case *c, corpus_operand *o, const rp_tensor *t) {
    (void)c;
    int64_t n = rp__tensor_elems(t);
    float *f = zeroed((size_t)n, sizeof *f);
    for (int64_t i = 0; i < n; i++)
        f[i] = (float)(o->value[i] = rp_case_round(t->dtype, o->value[i]));
    rp__dtype_from_f32(t->dtype, f, o->bytes, n);
    free(f);
}

double *rp_case_in_f32(corpus_case *c, int j, shape s, const float *literal) {
    corpus_operand *o = add_operand(c, false, j, RP_F32, s);
    int64_t n = rp__tensor_elems(&c->op.in[j]);
    for (int64_t i = 0; i < n; i++) o->value[i] = literal ? (double)literal[i] : rp_case_randf(c);
    rp_case_store(c, o, &c->op.in[j]);
    return o->value;
}

double *rp_case_in_i32(corpus_case *c, int j, shape s, const int32_t *literal) {
    corpus_operand *o = add_operand(c, false, j, RP_I32, s);
    int64_t n = rp__tensor_elems(&c->op.in[j]);
    memcpy(o->bytes, literal, (size_t)n * sizeof *literal);
    for (int64_t i = 0; i < n; i++) o->value[i] = literal[i];
    return o->value;
}

/* Where a block keeps its F16 scales: every other byte may be anything. */
static int scale_offsets(rp_dtype t, size_t at[2]) {
    at[0] = 0, at[1] = 2;
    switch (t) {
    case RP_Q4_1:
    case RP_Q5_1:
    case RP_Q4_K:
    case RP_Q5_K:
    case RP_Q8_1:
        return 2;
    case RP_Q2_K:
        at[0] = 80, at[1] = 82;
        return 2;
    case RP_Q3_K:
        at[0] = 108;
        return 1;
    case RP_Q6_K:
        at[0] = 208;
        return 1;
    default:
        return 1;
    }
}

static void fill_blocks(corpus_case *c, corpus_operand *o, const rp_tensor *t) {
    size_t n = rp__tensor_span(t), block = rp__dtype_block_bytes(t->dtype), at[2];
    uint8_t *p = o->bytes;
    for (size_t i = 0; i < n; i++) p[i] = (uint8_t)rp_case_rand(c, 256);
    int n_scales = scale_offsets(t->dtype, at);
    for (size_t b = 0; b < n; b += block) {
        for (int s = 0; s < n_scales; s++) {
            uint16_t h = rp__f32_to_f16((float)(rp_case_randf(c) * 0.02));
            memcpy(p + b + at[s], &h, sizeof h);
        }
    }
}

/* Sums of sixteen numbers: Q8_K's of 16 bits behind them, Q16's of 32 before. */
void rp_case_mend_sums(rp_dtype t, uint8_t *b) {
    for (size_t g = 0; g < 16 && t == RP_Q8_K; g++) {
        int16_t sum = 0;
        for (size_t i = 0; i < 16; i++) sum = (int16_t)(sum + (int8_t)b[4 + 16 * g + i]);
        memcpy(b + 260 + 2 * g, &sum, sizeof sum);
    }
    for (size_t g = 0; g < 2 && t == RP_Q16; g++) {
        const int8_t *low = (int8_t *)b + 12 + 16 * g, *high = low + 32;
        int32_t sum = 0;
        for (size_t i = 0; i < 16; i++) sum += 256 * high[i] + low[i];
        memcpy(b + 4 + 4 * g, &sum, sizeof sum);
    }
}

/* -128 is no digit, d of Q8_K and Q16 is an F32, and their sums are right. */
static void mend_activations(corpus_case *c, corpus_operand *o, const rp_tensor *t) {
    size_t n = rp__tensor_span(t), block = rp__dtype_block_bytes(t->dtype);
    size_t q = t->dtype == RP_Q8_0 ? 2 : t->dtype == RP_Q16 ? 12 : 4;
    size_t n_digits = t->dtype == RP_Q16 ? 64 : (size_t)rp__dtype_block_elems(t->dtype);
    for (size_t at = 0; at < n; at += block) {
        uint8_t *b = (uint8_t *)o->bytes + at;
        float d = (float)(rp_case_randf(c) * 0.02);
        for (size_t i = q; i < q + n_digits; i++) b[i] = b[i] == 0x80 ? 0 : b[i];
        if (t->dtype == RP_Q8_K || t->dtype == RP_Q16) memcpy(b, &d, sizeof d);
        rp_case_mend_sums(t->dtype, b);
    }
}

/* Integers of every width that F32 holds exactly, large ones among them. */
static void fill_integers(corpus_case *c, corpus_operand *o, const rp_tensor *t) {
    int64_t n = rp__tensor_elems(t);
    for (int64_t i = 0; i < n; i++) {
        int64_t v = (int64_t)rp_case_rand(c, 256) - (t->dtype == RP_U8 ? 0 : 128);
        size_t bytes = rp__dtype_block_bytes(t->dtype);
        memcpy((char *)o->bytes + (size_t)i * bytes, &v,
               bytes); /* little endian, two's complement */
    }
}

double *rp_case_in_random(corpus_case *c, int j, rp_dtype dtype, shape s) {
    corpus_operand *o = add_operand(c, false, j, dtype, s);
    rp_tensor *t = &c->op.in[j];
    int64_t n = rp__tensor_elems(t);
    if (rp__dtype_is_block(dtype)) {
        fill_blocks(c, o, t);
        if (!rp__dtype_is_weight(dtype) || dtype == RP_Q8_0) mend_activations(c, o, t);
    } else if (dtype == RP_F64) {
        for (int64_t i = 0; i < n; i++) ((double *)o->bytes)[i] = rp_case_randf(c);
    } else if (rp__dtype_is_float(dtype)) {
        for (int64_t i = 0; i < n; i++) o->value[i] = rp_case_randf(c);
        rp_case_store(c, o, t);
    } else {
        fill_integers(c, o, t);
    }
    decode(o, t);
    return o->value;
}

double *rp_case_out(corpus_case *c, int i, rp_dtype dtype, shape s, corpus_tol tol) {
    corpus_operand *o = add_operand(c, true, i, dtype, s);
    o->tol = tol;
    if (tol != TOL_BITS) o->mag = zeroed((size_t)rp__tensor_elems(&c->op.out[i]), sizeof *o->mag);
    memset(o->bytes, 0xC3, rp__tensor_span(&c->op.out[i]));
    return o->value;
}

uint8_t *rp_case_want_bytes(corpus_case *c, int i) {
    return c->out[i].want = zeroed(rp__tensor_span(&c->op.out[i]), 1);
}

void rp_case_want(corpus_case *c, int i, const double *literal) {
    corpus_operand *o = &c->out[i];
    int64_t n = rp__tensor_elems(&c->op.out[i]);
    for (int64_t e = 0; e < n; e++) {
        o->value[e] = literal[e];
        if (o->mag) o->mag[e] = fabs(literal[e]);
    }
}

void rp_case_out_before(corpus_case *c, int i) {
    rp_case_store(c, &c->out[i], &c->op.out[i]);
}

void rp_case_rows(corpus_case *c, uint32_t in_mask, uint32_t out_mask) {
    for (int j = 0; j < c->op.n_in; j++) c->in[j].is_rows = in_mask >> j & 1;
    for (int i = 0; i < c->op.n_out; i++) c->out[i].is_rows = out_mask >> i & 1;
}

/* Vectors and weights stay dense: the op check wants them so. */
void rp_case_strided(corpus_case *c, uint32_t in_mask, uint32_t out_mask) {
    for (int j = 0; j < c->op.n_in; j++)
        c->in[j].is_strided = in_mask >> j & 1 && c->op.in[j].n_dims > 1;
    for (int i = 0; i < c->op.n_out; i++)
        c->out[i].is_strided = out_mask >> i & 1 && c->op.out[i].n_dims > 1;
}

void rp_case_live(corpus_case *c, int64_t n_live) {
    c->n_live = n_live;
    if (n_live >= 0) c->op.live = rp__tensor_make(NULL, 0, RP_I32, 1, (int64_t[]){1});
}
