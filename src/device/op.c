/* The op table: every op's operands, in-place rule, scalar check and cost, one row each; and what
 * is read off it: names, keys, text. The generic check of operands against a row is in op_check.c.
 *
 * Costs are for placing and explaining: what depends on run-time values (context length, chosen
 * experts) is counted at its largest. */
#include "device/op_impl.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/map.h"
#include "tensor/dtype.h"
#include "tensor/view.h"

/* ---- what letters cannot say ---- */

static rp_status want_finite(const rp_op *op, const char *what, float v, rp_error *err) {
    if (isfinite(v)) return RP_OK;
    return rp__op_fail(err, op, "%s wants a finite number, found %g", what, (double)v);
}

static rp_status check_embed(const rp_op *op, rp_error *err) {
    return want_finite(op, "scale", op->p.embed.scale, err);
}

static rp_status check_norm(const rp_op *op, rp_error *err) {
    float eps = op->p.norm.eps;
    if (eps >= 0 && isfinite(eps)) return RP_OK;
    return rp__op_fail(err, op, "eps wants a finite number >= 0, found %g", (double)eps);
}

/* Rounded x must be of a type that the weight's dtype goes with. */
static rp_status check_matmul(const rp_op *op, rp_error *err) {
    rp_dtype x = op->in[0].dtype, w = op->in[1].dtype, wanted;
    if (x == RP_F32) return RP_OK;
    if (!rp__dtype_activation(w, 8, &wanted))
        return rp__op_fail(err, op, "x wants F32 beside a weight of %s, found %s",
                           rp__dtype_name(w), rp__dtype_name(x));
    if (x == wanted || x == RP_Q16) return RP_OK;
    return rp__op_fail(err, op, "x wants F32, Q16 or %s beside a weight of %s, found %s",
                       rp__dtype_name(wanted), rp__dtype_name(w), rp__dtype_name(x));
}

static rp_status check_convert(const rp_op *op, rp_error *err) {
    rp_dtype x = op->in[0].dtype, y = op->out[0].dtype;
    if (!rp__dtype_is_block(y)) return RP_OK;
    if (x != RP_F32)
        return rp__op_fail(err, op, "x wants F32 to be rounded to %s, found %s", rp__dtype_name(y),
                           rp__dtype_name(x));
    if (op->out[0].n_dims >= 2) return RP_OK;
    return rp__op_fail(err, op, "y wants two dimensions or more for %s, found 1",
                       rp__dtype_name(y));
}

static rp_status check_rope(const rp_op *op, rp_error *err) {
    int64_t d = op->in[0].dim[2], r = op->in[1].dim[1];
    if (r > d || r % 2)
        return rp__op_fail(err, op, "cs wants an even R of at most D = %lld, found R = %lld",
                           (long long)d, (long long)r);
    if (op->p.rope.style != RP_ROPE_HALF && op->p.rope.style != RP_ROPE_INTERLEAVED)
        return rp__op_fail(err, op, "style wants half (0) or interleaved (1), found %d",
                           (int)op->p.rope.style);
    return RP_OK;
}

/* The places of rows: slots, or what they follow from. */
static rp_status check_places(const rp_op *op, rp_error *err) {
    static const char *const names[] = {"table", "seq", "pos"};
    bool has_slots = op->in[2].n_dims > 0;
    for (int i = 0; i < 3; i++) {
        bool is_there = i + 3 < op->n_in && op->in[i + 3].n_dims > 0;
        if (is_there == has_slots)
            return rp__op_fail(err, op, "wants slots, or table, seq and pos: %s is %s", names[i],
                               is_there ? "there, too" : "missing");
    }
    return RP_OK;
}

static rp_status check_kv_write(const rp_op *op, rp_error *err) {
    int64_t p = op->out[0].dim[0], s = op->out[0].dim[2];
    RP_TRY(check_places(op, err));
    if (p <= INT32_MAX / s) return RP_OK;
    return rp__op_fail(err, op, "kc wants P * S below 2^31 for I32 slots, found %lld * %lld",
                       (long long)p, (long long)s);
}

static rp_status check_attention(const rp_op *op, rp_error *err) {
    int64_t h = op->in[0].dim[1], k = op->in[1].dim[1];
    float cap = op->p.attention.softcap;
    if (h % k)
        return rp__op_fail(err, op, "q wants H to be a multiple of K = %lld, found H = %lld",
                           (long long)k, (long long)h);
    if (!(cap >= 0) || !isfinite(cap))
        return rp__op_fail(err, op, "softcap wants a finite number >= 0 (0 is off), found %g",
                           (double)cap);
    if (op->p.attention.window < 0)
        return rp__op_fail(err, op, "window wants a number >= 0 (0 is off), found %d",
                           op->p.attention.window);
    return want_finite(op, "scale", op->p.attention.scale, err);
}

static rp_status check_act(const rp_op *op, rp_error *err) {
    if ((unsigned)op->p.act.kind < RP_N_ACTS) return RP_OK;
    return rp__op_fail(err, op, "act wants a kind below %d, found %d", RP_N_ACTS,
                       (int)op->p.act.kind);
}

static rp_status check_scale(const rp_op *op, rp_error *err) {
    return want_finite(op, "value", op->p.scalar.value, err);
}

static rp_status check_softcap(const rp_op *op, rp_error *err) {
    float v = op->p.scalar.value;
    if (v > 0 && isfinite(v)) return RP_OK;
    return rp__op_fail(err, op, "value wants a finite number > 0, found %g", (double)v);
}

static rp_status check_top(const rp_op *op, rp_error *err) {
    int64_t k = op->out[0].dim[1], n = op->in[0].dim[1];
    if (k <= n) return RP_OK;
    return rp__op_fail(err, op, "%s wants k of at most %lld, found %lld",
                       rp__op_table[op->kind].out[0].name, (long long)n, (long long)k);
}

static rp_status check_router(const rp_op *op, rp_error *err) {
    rp_status st = check_top(op, err);
    return st < 0 ? st : want_finite(op, "scale", op->p.router.scale, err);
}

/* ---- costs ---- */

static double tensor_bytes(const rp_tensor *t) {
    if (!t->n_dims) return 0;
    return (double)rp__tensor_elems(t) / (double)rp__dtype_block_elems(t->dtype) *
           (double)rp__dtype_block_bytes(t->dtype);
}

static double operand_bytes(const rp_op *op) {
    double bytes = 0;
    for (int i = 0; i < op->n_in; i++) bytes += tensor_bytes(&op->in[i]);
    for (int i = 0; i < op->n_out; i++) bytes += tensor_bytes(&op->out[i]);
    return bytes;
}

/* Only the rows that are gathered are read. */
static rp__op_cost cost_gather(const rp_op *op) {
    double y = tensor_bytes(&op->out[0]), x = tensor_bytes(&op->in[0]);
    double read = op->in[0].dim[0] ? x / (double)op->in[0].dim[0] * (double)op->out[0].dim[0] : 0;
    return (rp__op_cost){.flops =
                             op->kind == RP_OP_EMBED ? (double)rp__tensor_elems(&op->out[0]) : 0,
                         .bytes = read + tensor_bytes(&op->in[1]) + y};
}

static rp__op_cost cost_matmul(const rp_op *op) {
    double y = (double)rp__tensor_elems(&op->out[0]), k = (double)rp__tensor_last(&op->in[0]);
    return (rp__op_cost){.flops = 2 * y * k, .bytes = operand_bytes(op)};
}

/* At most one expert per row and choice is read. */
static rp__op_cost cost_expert_matmul(const rp_op *op) {
    rp__op_cost c = cost_matmul(op);
    double n_experts = (double)op->in[1].dim[0], w = tensor_bytes(&op->in[1]);
    double n_chosen = (double)rp__tensor_elems(&op->in[2]);
    if (n_chosen < n_experts) c.bytes -= w * (1 - n_chosen / n_experts);
    return c;
}

static rp__op_cost cost_kv_write(const rp_op *op) {
    double kv = (double)rp__tensor_elems(&op->in[0]), bytes = 0;
    for (int i = 2; i < op->n_in; i++) bytes += tensor_bytes(&op->in[i]);
    for (int i = 0; i < 2; i++)
        bytes += tensor_bytes(&op->in[i]) + kv * (double)rp__dtype_block_bytes(op->out[i].dtype);
    return (rp__op_cost){.flops = 0, .bytes = bytes};
}

/* As if every sequence were as long as its row of the block table, or as the window. */
static rp__op_cost cost_attention(const rp_op *op) {
    const rp_tensor *q = &op->in[0], *kc = &op->in[1], *vc = &op->in[2], *table = &op->in[3];
    double context = (double)table->dim[1] * (double)kc->dim[2];
    if (op->p.attention.window > 0) context = fmin(context, op->p.attention.window);
    double position = (double)(kc->dim[1] * kc->dim[3]) *
                      (double)(rp__dtype_block_bytes(kc->dtype) + rp__dtype_block_bytes(vc->dtype));
    double cache = tensor_bytes(kc) + tensor_bytes(vc);
    rp__op_cost c = {.flops = 4 * (double)rp__tensor_elems(q) * context};
    c.bytes = operand_bytes(op) - cache + fmin(cache, (double)table->dim[0] * context * position);
    return c;
}

/* ---- the table ---- */

#define F32(name, shape)                                                                           \
    { name, shape, OP_F32, false }
#define F32_OPT(name, shape)                                                                       \
    { name, shape, OP_F32, true }
#define I32(name, shape)                                                                           \
    { name, shape, OP_I32, false }
#define I32_OPT(name, shape)                                                                       \
    { name, shape, OP_I32, true }
#define WEIGHT(name, shape)                                                                        \
    { name, shape, OP_WEIGHT, false }
#define FLOAT(name, shape)                                                                         \
    { name, shape, OP_FLOAT, false }
#define FACTOR(name, shape)                                                                        \
    { name, shape, OP_FACTOR, false }
#define MADE(name, shape)                                                                          \
    { name, shape, OP_MADE, false }

const op_row rp__op_table[RP_N_OPS] = {
    [RP_OP_EMBED] = {.in = {WEIGHT("table", "VE"), I32("ids", "T")},
                     .out = {F32("y", "TE")},
                     .check = check_embed,
                     .cost = cost_gather},
    [RP_OP_RMS_NORM] = {.in = {F32("x", "*E"), F32("w", "E"), F32_OPT("r", "*E")},
                        .out = {F32("y", "*E"), F32_OPT("sum", "*E")},
                        .alias = {1 << 0 | 1 << 2, 1 << 0 | 1 << 2},
                        .norms_last = true,
                        .flops = 5,
                        .check = check_norm},
    [RP_OP_LAYER_NORM] = {.in = {F32("x", "*E"), F32("w", "E"), F32_OPT("b", "E")},
                          .out = {F32("y", "*E")},
                          .alias = {1 << 0},
                          .norms_last = true,
                          .flops = 7,
                          .check = check_norm},
    [RP_OP_MATMUL] = {.in = {FACTOR("x", "TK"), WEIGHT("w", "NK"), F32_OPT("bias", "N"),
                             F32_OPT("add", "TN")},
                      .out = {F32("y", "TN")},
                      .alias = {1 << 3},
                      .check = check_matmul,
                      .cost = cost_matmul},
    [RP_OP_ROPE] = {.in = {F32("x", "THD"), F32("cs", "TR")},
                    .out = {F32("y", "THD")},
                    .alias = {1 << 0},
                    .flops = 3,
                    .check = check_rope},
    [RP_OP_KV_WRITE] = {.in = {F32("k", "TKD"), F32("v", "TKD"), I32_OPT("slots", "T"),
                               I32_OPT("table", "BM"), I32_OPT("seq", "T"), I32_OPT("pos", "T")},
                        .out = {FLOAT("kc", "PKSD"), FLOAT("vc", "PKSD")},
                        .partial = 1 << 0 | 1 << 1,
                        .check = check_kv_write,
                        .cost = cost_kv_write},
    [RP_OP_ATTENTION] = {.in = {F32("q", "THD"), FLOAT("kc", "PKSD"), FLOAT("vc", "PKSD"),
                                I32("table", "BM"), I32("seq", "T"), I32("pos", "T"),
                                F32_OPT("sinks", "H")},
                         .out = {F32("y", "THD")},
                         .check = check_attention,
                         .cost = cost_attention},
    [RP_OP_GATED] = {.in = {F32("gate", "TF"), F32("up", "TF")},
                     .out = {F32("y", "TF")},
                     .alias = {1 << 0 | 1 << 1},
                     .flops = 10,
                     .check = check_act},
    [RP_OP_ACT] = {.in = {F32("x", "*E")},
                   .out = {F32("y", "*E")},
                   .alias = {1 << 0},
                   .flops = 9,
                   .check = check_act},
    [RP_OP_ADD] = {.in = {F32("a", "TE"), F32("b", "TE|E")},
                   .out = {F32("y", "TE")},
                   .alias = {1 << 0 | 1 << 1},
                   .flops = 1},
    [RP_OP_MUL] = {.in = {F32("a", "TE"), F32("b", "TE|E")},
                   .out = {F32("y", "TE")},
                   .alias = {1 << 0 | 1 << 1},
                   .flops = 1},
    [RP_OP_SCALE] = {.in = {F32("x", "*E")},
                     .out = {F32("y", "*E")},
                     .alias = {1 << 0},
                     .flops = 1,
                     .check = check_scale},
    [RP_OP_SOFTCAP] = {.in = {F32("x", "*E")},
                       .out = {F32("y", "*E")},
                       .alias = {1 << 0},
                       .flops = 8,
                       .check = check_softcap},
    [RP_OP_GATHER_ROWS] = {.in = {F32("x", "TE"), I32("rows", "R")},
                           .out = {F32("y", "RE")},
                           .cost = cost_gather},
    [RP_OP_CONVERT] = {.in = {FLOAT("x", "*E")},
                       .out = {MADE("y", "*E")},
                       .alias = {1 << 0},
                       .check = check_convert},
    [RP_OP_ROUTER_TOPK] = {.in = {F32("logits", "TX")},
                           .out = {I32("ids", "Tk"), F32("weights", "Tk")},
                           .flops = 10,
                           .check = check_router},
    [RP_OP_EXPERT_MATMUL] = {.in = {FACTOR("x", "TK|TkK"), WEIGHT("w", "XNK"), I32("ids", "Tk")},
                             .out = {F32("y", "TkN")},
                             .check = check_matmul,
                             .cost = cost_expert_matmul},
    [RP_OP_EXPERT_SUM] = {.in = {F32("x", "TkN"), F32("weights", "Tk")},
                          .out = {F32("y", "TN")},
                          .flops = 2},
    [RP_OP_ARGMAX] = {.in = {F32("x", "RV")}, .out = {I32("ids", "R")}, .flops = 1},
    [RP_OP_TOPK] = {.in = {F32("x", "RV")},
                    .out = {F32("values", "Rk"), I32("ids", "Rk")},
                    .flops = 1,
                    .check = check_top},
    [RP_OP_SAMPLE] = {.in = {F32("x", "RV"), F32("u", "R"), F32("temperature", "R")},
                      .out = {I32("ids", "R")},
                      .flops = 10},
    [RP_OP_ADVANCE] = {.in = {I32("x", "T")},
                       .out = {I32("y", "T")},
                       .alias = {1 << 0},
                       .flops = 1},
    [RP_OP_FEED] = {.in = {I32("x", "T"), I32("past", "WT")},
                    .out = {I32("ids", "T"), I32("past'", "WT")},
                    .alias = {0, 1 << 1},
                    .flops = 1},
};

#undef F32
#undef F32_OPT
#undef I32
#undef I32_OPT
#undef WEIGHT
#undef FLOAT
#undef FACTOR
#undef MADE

/* ---- read off the table ---- */

const char *rp__op_name(rp_op_kind kind) {
    static const char *const names[RP_N_OPS] = {
#define RP_X(code, name) [code] = name,
        RP_OP_TABLE(RP_X)
#undef RP_X
    };
    return (unsigned)kind < RP_N_OPS ? names[kind] : "unknown op";
}

rp__op_cost rp__op_cost_of(const rp_op *op) {
    const op_row *row = &rp__op_table[op->kind];
    if (row->cost) return row->cost(op);
    /* Choosing ops look at every element of their input; the others make each element of their
     * output. */
    int64_t n_in = rp__tensor_elems(&op->in[0]), n_out = rp__tensor_elems(&op->out[0]);
    double n = (double)(n_in > n_out ? n_in : n_out);
    return (rp__op_cost){.flops = row->flops * n, .bytes = operand_bytes(op)};
}

uint32_t rp__op_partial_outputs(const rp_op *op) {
    return rp__op_table[op->kind].partial;
}

int64_t rp__op_rows(const rp_op *op) {
    return op->kind == RP_OP_KV_WRITE ? op->in[0].dim[0] : op->out[0].dim[0];
}

bool rp__op_may_alias(const rp_op *op, int out, int in) {
    const rp_tensor *y = &op->out[out], *x = &op->in[in];
    if (!(rp__op_table[op->kind].alias[out] >> in & 1)) return false;
    return x->dtype == y->dtype && rp__tensor_same_shape(x, y);
}

/* ---- keys ---- */

enum { KEY_SCALARS = 4, KEY_TENSOR = 3 + RP_MAX_DIMS };

static uint64_t float_bits(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

/* Field by field: bytes of the union that this kind does not use never reach the key. */
static void scalar_words(const rp_op *op, uint64_t w[KEY_SCALARS]) {
    switch (op->kind) {
    case RP_OP_EMBED:
        w[0] = float_bits(op->p.embed.scale);
        break;
    case RP_OP_RMS_NORM:
    case RP_OP_LAYER_NORM:
        w[0] = float_bits(op->p.norm.eps);
        w[1] = op->p.norm.add_one;
        break;
    case RP_OP_ROPE:
        w[0] = op->p.rope.style;
        break;
    case RP_OP_ATTENTION:
        w[0] = float_bits(op->p.attention.scale);
        w[1] = float_bits(op->p.attention.softcap);
        w[2] = (uint32_t)op->p.attention.window;
        w[3] = op->p.attention.rows;
        break;
    case RP_OP_KV_WRITE:
        w[0] = op->p.kv_write.rows;
        break;
    case RP_OP_GATED:
    case RP_OP_ACT:
        w[0] = op->p.act.kind;
        break;
    case RP_OP_SCALE:
    case RP_OP_SOFTCAP:
        w[0] = float_bits(op->p.scalar.value);
        break;
    case RP_OP_ROUTER_TOPK:
        w[0] = float_bits(op->p.router.scale);
        w[1] = op->p.router.sigmoid;
        w[2] = op->p.router.normalise;
        break;
    case RP_OP_ADVANCE:
        w[0] = (uint32_t)op->p.advance.step;
        break;
    default:
        break;
    }
}

static uint64_t *tensor_words(const rp_tensor *t, uint64_t *w) {
    w[0] = t->n_dims;
    if (t->n_dims) {
        w[1] = (uint64_t)t->dtype << 1 | t->is_weight;
        w[2] = t->stride;
        for (int i = 0; i < t->n_dims; i++) w[3 + i] = (uint64_t)t->dim[i];
    }
    return w + KEY_TENSOR;
}

uint64_t rp__op_key(const rp_op *op) {
    uint64_t w[1 + KEY_SCALARS + KEY_TENSOR * (RP_OP_MAX_IN + RP_OP_MAX_OUT + 1)] = {0};
    w[0] = (uint64_t)op->kind << 16 | (uint64_t)op->n_in << 8 | op->n_out;
    scalar_words(op, w + 1);
    uint64_t *end = w + 1 + KEY_SCALARS;
    for (int i = 0; i < op->n_in; i++) end = tensor_words(&op->in[i], end);
    for (int i = 0; i < op->n_out; i++) end = tensor_words(&op->out[i], end);
    end = tensor_words(&op->live, end);
    return rp__hash_bytes(w, (size_t)(end - w) * sizeof *w, 0);
}

/* ---- text ---- */

void rp__op_text_add(char *out, size_t cap, size_t *n, const char *fmt, ...) {
    if (*n >= cap) return;
    va_list ap;
    va_start(ap, fmt);
    int added = vsnprintf(out + *n, cap - *n, fmt, ap);
    va_end(ap);
    if (added > 0) *n += (size_t)added;
}

static void operands_text(const rp_tensor *t, int n_operands, const char *comma, char *out,
                          size_t cap, size_t *n) {
    char shape[128];
    for (int i = 0; i < n_operands; i++)
        rp__op_text_add(out, cap, n, "%s%s", i ? comma : " ",
                        t[i].n_dims ? rp__tensor_text(&t[i], shape, sizeof shape) : "none");
}

static bool is_same_operand(const rp_tensor *a, const rp_tensor *b) {
    uint64_t x[KEY_TENSOR] = {0}, y[KEY_TENSOR] = {0};
    tensor_words(a, x);
    tensor_words(b, y);
    return !memcmp(x, y, sizeof x);
}

static bool operands_differ(const char *what, const rp_tensor *a, int n_a, const rp_tensor *b,
                            int n_b, char *out, size_t cap) {
    static const rp_tensor none;
    char is[128], was[128];
    for (int i = 0; i < n_a || i < n_b; i++) {
        const rp_tensor *x = i < n_a ? &a[i] : &none, *y = i < n_b ? &b[i] : &none;
        if (is_same_operand(x, y)) continue;
        snprintf(out, cap, "%s %d is %s, not %s", what, i,
                 x->n_dims ? rp__tensor_text(x, is, sizeof is) : "absent",
                 y->n_dims ? rp__tensor_text(y, was, sizeof was) : "absent");
        return true;
    }
    return false;
}

char *rp__op_difference(const rp_op *op, const rp_op *other, char *out, size_t cap) {
    if (!operands_differ("input", op->in, op->n_in, other->in, other->n_in, out, cap) &&
        !operands_differ("output", op->out, op->n_out, other->out, other->n_out, out, cap) &&
        !operands_differ("live count", &op->live, 1, &other->live, 1, out, cap))
        snprintf(out, cap, "its scalars are others");
    return out;
}

char *rp__op_text(const rp_op *op, char *out, size_t cap) {
    size_t n = 0;
    rp__op_text_add(out, cap, &n, "%s%s%s", rp__op_name(op->kind), op->label ? " " : "",
                    op->label ? op->label : "");
    operands_text(op->in, op->n_in, " x ", out, cap, &n);
    rp__op_text_add(out, cap, &n, " ->");
    operands_text(op->out, op->n_out, ", ", out, cap, &n);
    return out;
}
