/* Reference bodies of the ops that choose: router, argmax, top-k, sample. One worker makes a whole
 * row.
 *
 * Order: larger first, equal ones by lower index; NaN stands behind everything, so that a top-k
 * always has k different indices. */
#include <math.h>

#include "device/cpu/ref.h"

static bool is_before(float a, float b) {
    return a > b || (isnan(b) && !isnan(a));
}

/* The k first of x[0..n) in order, by insertion. */
static void top_k(const float *x, int64_t n, int32_t *ids, int64_t k) {
    int64_t n_have = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t at = n_have;
        while (at > 0 && is_before(x[i], x[ids[at - 1]])) at--;
        if (at == k) continue;
        if (n_have < k) n_have++;
        for (int64_t j = n_have - 1; j > at; j--) ids[j] = ids[j - 1];
        ids[at] = (int32_t)i;
    }
}

/* Weights of the chosen before `scale`: a part of the softmax over all, or a sigmoid each. */
static void router_row(const rp_op *op, const float *x, const int32_t *ids, float *weights) {
    int64_t n = op->in[0].dim[1], k = op->out[0].dim[1];
    double largest = x[ids[0]], total = 0, kept = 0;
    for (int64_t i = 0; i < n; i++) total += exp(x[i] - largest);
    for (int pass = 0; pass < 2; pass++) { /* what is kept in all, then the weights */
        for (int64_t c = 0; c < k; c++) {
            double v = x[ids[c]];
            double w = op->p.router.sigmoid ? 1 / (1 + exp(-v)) : exp(v - largest) / total;
            if (pass == 0)
                kept += w;
            else
                weights[c] = (float)(w * op->p.router.scale / (op->p.router.normalise ? kept : 1));
        }
    }
}

void rp__ref_router_topk(const rp__body_args *a) {
    const rp_op *op = a->op;
    ref_share tokens = ref_split(a, a->n_live);
    for (int64_t t = tokens.from; t < tokens.to; t++) {
        const float *x = ref_item(&op->in[0], a->in[0], t);
        int32_t *ids = ref_item_out(&op->out[0], a->out[0], t);
        top_k(x, op->in[0].dim[1], ids, op->out[0].dim[1]);
        router_row(op, x, ids, ref_item_out(&op->out[1], a->out[1], t));
    }
}

void rp__ref_argmax(const rp__body_args *a) {
    int32_t *ids = a->out[0];
    ref_share rows = ref_split(a, a->n_live);
    for (int64_t r = rows.from; r < rows.to; r++)
        top_k(ref_item(&a->op->in[0], a->in[0], r), a->op->in[0].dim[1], &ids[r], 1);
}

void rp__ref_topk(const rp__body_args *a) {
    const rp_op *op = a->op;
    int64_t n = op->in[0].dim[1], k = op->out[0].dim[1];
    ref_share rows = ref_split(a, a->n_live);
    for (int64_t r = rows.from; r < rows.to; r++) {
        const float *x = ref_item(&op->in[0], a->in[0], r);
        float *values = ref_item_out(&op->out[0], a->out[0], r);
        int32_t *ids = ref_item_out(&op->out[1], a->out[1], r);
        top_k(x, n, ids, k);
        for (int64_t c = 0; c < k; c++) values[c] = x[ids[c]];
    }
}

/* Rounding may leave the running sum at or below a u near 1: then the last index that has any
 * probability. */
static int32_t sample_row(const float *x, int64_t n, double u, double temperature) {
    double largest = -INFINITY, total = 0, running = 0;
    int32_t last = 0;
    for (int64_t i = 0; i < n; i++)
        if (x[i] > largest) largest = x[i];
    for (int64_t i = 0; i < n; i++) total += exp((x[i] - largest) / temperature);
    for (int64_t i = 0; i < n; i++) {
        double p = exp((x[i] - largest) / temperature) / total;
        running += p;
        if (p > 0) last = (int32_t)i;
        if (running > u) return (int32_t)i;
    }
    return last;
}

void rp__ref_sample(const rp__body_args *a) {
    const rp_op *op = a->op;
    const float *u = a->in[1], *temperature = a->in[2];
    int32_t *ids = a->out[0];
    ref_share rows = ref_split(a, a->n_live);
    for (int64_t r = rows.from; r < rows.to; r++)
        ids[r] =
            sample_row(ref_item(&op->in[0], a->in[0], r), op->in[0].dim[1], u[r], temperature[r]);
}
