/* Reference bodies of the ops that make each element from elements at the same place, and of moving
 * rows. */
#include <math.h>
#include <string.h>

#include "device/cpu/ref.h"
#include "tensor/blocks.h"

/* GELU is x Phi(x), exact or by the tanh formula (Hendrycks and Gimpel, arXiv 1606.08415). */
static double activate(rp_act kind, double x) {
    switch (kind) {
    case RP_ACT_SILU:
        return x / (1 + exp(-x));
    case RP_ACT_GELU:
        return 0.5 * x * (1 + erf(x * 0.70710678118654752440));
    case RP_ACT_GELU_TANH:
        return 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
    case RP_ACT_RELU:
        return x > 0 ? x : 0;
    default:
        rp__assert(false, "activation %d", (int)kind);
    }
}

static double apply_one(const rp_op *op, double x) {
    double value = op->p.scalar.value;
    switch (op->kind) {
    case RP_OP_ACT:
        return activate(op->p.act.kind, x);
    case RP_OP_SCALE:
        return value * x;
    default:
        return value * tanh(x / value); /* SOFTCAP */
    }
}

/* Items of any rank as rows of `n` elements: a vector is `n_live` items of one element. */
static void unary(const rp__body_args *a) {
    const rp_op *op = a->op;
    int64_t n = op->in[0].dim[0] ? rp__tensor_elems(&op->in[0]) / op->in[0].dim[0] : 0;
    ref_share items = ref_split(a, a->n_live);
    for (int64_t i = items.from; i < items.to; i++) {
        const float *x = ref_item(&op->in[0], a->in[0], i);
        float *y = ref_item_out(&op->out[0], a->out[0], i);
        for (int64_t e = 0; e < n; e++) y[e] = (float)apply_one(op, x[e]);
    }
}

void rp__ref_act(const rp__body_args *a) {
    unary(a);
}
void rp__ref_scale(const rp__body_args *a) {
    unary(a);
}
void rp__ref_softcap(const rp__body_args *a) {
    unary(a);
}

static double apply_two(const rp_op *op, double x, double y) {
    switch (op->kind) {
    case RP_OP_GATED:
        return activate(op->p.act.kind, x) * y;
    case RP_OP_ADD:
        return x + y;
    default:
        return x * y; /* MUL */
    }
}

/* The second operand has a row per token or one row for all. */
static void binary(const rp__body_args *a) {
    const rp_op *op = a->op;
    int64_t n = op->in[0].dim[1];
    bool is_shared = op->in[1].n_dims == 1;
    ref_share tokens = ref_split(a, a->n_live);
    for (int64_t t = tokens.from; t < tokens.to; t++) {
        const float *x = ref_item(&op->in[0], a->in[0], t);
        const float *y = ref_item(&op->in[1], a->in[1], is_shared ? 0 : t);
        float *z = ref_item_out(&op->out[0], a->out[0], t);
        for (int64_t e = 0; e < n; e++) z[e] = (float)apply_two(op, x[e], y[e]);
    }
}

void rp__ref_gated(const rp__body_args *a) {
    binary(a);
}
void rp__ref_add(const rp__body_args *a) {
    binary(a);
}
void rp__ref_mul(const rp__body_args *a) {
    binary(a);
}

void rp__ref_gather_rows(const rp__body_args *a) {
    const rp_op *op = a->op;
    const int32_t *rows = a->in[1];
    ref_share share = ref_split(a, a->n_live);
    for (int64_t r = share.from; r < share.to; r++) {
        rp__assert(rows[r] >= 0 && rows[r] < op->in[0].dim[0], "row %d of %lld", rows[r],
                   (long long)op->in[0].dim[0]);
        memcpy(ref_item_out(&op->out[0], a->out[0], r), ref_item(&op->in[0], a->in[0], rows[r]),
               (size_t)op->in[0].dim[1] * sizeof(float));
    }
}

/* Activations to blocks, which lie whole within a row. */
static void convert_to_blocks(const rp__body_args *a) {
    const rp_tensor *tx = &a->op->in[0], *ty = &a->op->out[0];
    int64_t n_rows = ref_live_rows(tx, a->n_live);
    int64_t n_blocks = rp__tensor_last(tx) / rp__dtype_block_elems(ty->dtype);
    ref_share rows = ref_split(a, n_rows);
    for (int64_t r = rows.from; r < rows.to; r++)
        rp__blocks_encode(ty->dtype, ref_row(tx, a->in[0], r), ref_row_out(ty, a->out[0], r),
                          n_blocks);
}

/* A copy keeps every bit, NaN payloads too; otherwise by way of F32, which holds F16 and BF16
 * exactly. */
void rp__ref_convert(const rp__body_args *a) {
    const rp_tensor *tx = &a->op->in[0], *ty = &a->op->out[0];
    int64_t n = tx->dim[0] ? rp__tensor_elems(tx) / tx->dim[0] : 0;
    if (rp__dtype_is_block(ty->dtype)) {
        convert_to_blocks(a);
        return;
    }
    size_t x_bytes = rp__dtype_block_bytes(tx->dtype), y_bytes = rp__dtype_block_bytes(ty->dtype);
    ref_share items = ref_split(a, a->n_live);
    for (int64_t i = items.from; i < items.to; i++) {
        const char *x = ref_item(tx, a->in[0], i);
        char *y = ref_item_out(ty, a->out[0], i);
        for (int64_t e = 0; e < n; e++) {
            float f;
            if (tx->dtype == ty->dtype) {
                memmove(y + (size_t)e * y_bytes, x + (size_t)e * x_bytes, x_bytes);
                continue;
            }
            rp__dtype_to_f32(tx->dtype, x + (size_t)e * x_bytes, &f, 1);
            rp__dtype_from_f32(ty->dtype, &f, y + (size_t)e * y_bytes, 1);
        }
    }
}

/* Wraps like the machine's integers rather than being undefined: a padding row may count on for
 * ever. */
void rp__ref_advance(const rp__body_args *a) {
    const int32_t *x = a->in[0];
    int32_t *y = a->out[0];
    uint32_t step = (uint32_t)a->op->p.advance.step;
    ref_share tokens = ref_split(a, a->n_live);
    for (int64_t t = tokens.from; t < tokens.to; t++) y[t] = (int32_t)((uint32_t)x[t] + step);
}

/* Rows move up one after the other: `past` may be moved in place. */
void rp__ref_feed(const rp__body_args *a) {
    const rp_op *op = a->op;
    const int32_t *x = a->in[0];
    int32_t *ids = a->out[0];
    int64_t n_rows = op->out[1].dim[0];
    ref_share tokens = ref_split(a, a->n_live);
    for (int64_t t = tokens.from; t < tokens.to; t++) {
        for (int64_t w = 0; w < n_rows; w++) {
            const int32_t *next = w + 1 < n_rows ? ref_item(&op->in[1], a->in[1], w + 1) : x;
            ((int32_t *)ref_item_out(&op->out[1], a->out[1], w))[t] = next[t];
        }
        ids[t] = x[t];
    }
}
