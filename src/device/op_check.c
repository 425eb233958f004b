/* Checks an op against its row of the table (op.c): operand counts, dtypes, shapes by letters,
 * strides, live rows, and, once buffers are known, that no output lies over an operand it may not
 * share. */
#include "device/op_impl.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "tensor/dtype.h"
#include "tensor/view.h"

rp_status rp__op_fail(rp_error *err, const rp_op *op, const char *fmt, ...) {
    char why[sizeof err->message];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    return rp__fail(err, RP_EINVAL, "%s%s%.80s: %s", rp__op_name(op->kind), op->label ? " " : "",
                    op->label ? op->label : "", why);
}

/* What the letters of a row stand for in this op; a letter not met yet is -1. */
typedef struct letters {
    int64_t size['z' - 'A' + 1];
    const rp_tensor *lead; /* the first operand whose shape has '*' */
} letters;

static const char *shape_end(const char *shape) {
    const char *bar = strchr(shape, '|');
    return bar ? bar : shape + strlen(shape);
}

/* Tries one alternative and binds its new letters; a mismatch may leave some bound, so the caller
 * passes a copy. */
static bool match_shape(const char *shape, const rp_tensor *t, letters *l) {
    int n = (int)(shape_end(shape) - shape), d = 0;
    if (*shape == '*') {
        d = t->n_dims - (n - 1);
        if (d < 0) return false;
        if (!l->lead) l->lead = t;
        if (l->lead->n_dims != t->n_dims) return false;
        for (int i = 0; i < d; i++)
            if (l->lead->dim[i] != t->dim[i]) return false;
        shape++, n--;
    } else if (t->n_dims != n) {
        return false;
    }
    for (int i = 0; i < n; i++) {
        int64_t *size = &l->size[shape[i] - 'A'];
        if (*size < 0) *size = t->dim[d + i];
        if (*size != t->dim[d + i]) return false;
    }
    return true;
}

/* "[T = 3, K]" or "[T = 3, K] or [K]": letters already known are shown with their size. */
static const char *wanted_text(const char *shape, const letters *l, char *out, size_t cap) {
    size_t n = 0;
    bool is_first = true;
    rp__op_text_add(out, cap, &n, "[");
    for (const char *s = shape; *s; s++) {
        const char *comma = is_first ? "" : ", ";
        is_first = false;
        if (*s == '|') {
            rp__op_text_add(out, cap, &n, "] or [");
            is_first = true;
        } else if (*s == '*' && l->lead) {
            for (int i = 0; i + 1 < l->lead->n_dims; i++)
                rp__op_text_add(out, cap, &n, "%s%lld", i ? ", " : "", (long long)l->lead->dim[i]);
            is_first = l->lead->n_dims == 1;
        } else if (*s == '*') {
            rp__op_text_add(out, cap, &n, "..");
        } else if (l->size[*s - 'A'] < 0) {
            rp__op_text_add(out, cap, &n, "%s%c", comma, *s);
        } else {
            rp__op_text_add(out, cap, &n, "%s%c = %lld", comma, *s, (long long)l->size[*s - 'A']);
        }
    }
    rp__op_text_add(out, cap, &n, "]");
    return out;
}

static bool class_takes(op_class cls, rp_dtype t) {
    switch (cls) {
    case OP_F32:
        return t == RP_F32;
    case OP_I32:
        return t == RP_I32;
    case OP_WEIGHT:
        return (unsigned)t < RP_N_DTYPES && rp__dtype_is_weight(t);
    case OP_FLOAT:
        return t == RP_F32 || t == RP_F16 || t == RP_BF16;
    case OP_FACTOR:
        return t == RP_F32 || t == RP_Q16 || t == RP_Q8_0 || t == RP_Q8_1 || t == RP_Q8_K;
    case OP_MADE:
        return class_takes(OP_FLOAT, t) || class_takes(OP_FACTOR, t);
    }
    return false;
}

static const char *class_text(op_class cls) {
    static const char *const text[] = {
        "F32",
        "I32",
        "a dtype of weights",
        "F32, F16 or BF16",
        "F32, Q16, Q8_0, Q8_1 or Q8_K",
        "F32, F16, BF16, Q16, Q8_0, Q8_1 or Q8_K",
    };
    return text[cls];
}

/* Sizes that make sense by themselves: no negative or (inside an item) empty dimension, whole
 * blocks, no wrap. */
static rp_status check_sizes(const rp_op *op, const op_operand *want, const rp_tensor *t,
                             rp_error *err) {
    int64_t least = want->cls == OP_WEIGHT;
    size_t elems = 1, bytes;
    for (int i = t->n_dims - 1; i >= 0;
         i--) { /* inside first: items must fit even where there are none */
        if (t->dim[i] < (i ? 1 : least))
            return rp__op_fail(err, op, "%s wants dimension %d to be at least %d, found %lld",
                               want->name, i, i ? 1 : (int)least, (long long)t->dim[i]);
        if (!rp__mul_ok(elems, (size_t)t->dim[i], &elems) || elems > INT64_MAX / 16)
            return rp__op_fail(err, op, "%s wants fewer than 2^59 elements", want->name);
    }
    if (rp__tensor_last(t) % rp__dtype_block_elems(t->dtype))
        return rp__op_fail(err, op, "%s wants rows of whole blocks of %lld for %s, found %lld",
                           want->name, (long long)rp__dtype_block_elems(t->dtype),
                           rp__dtype_name(t->dtype), (long long)rp__tensor_last(t));
    if (t->dim[0] > 1 && (!rp__mul_ok((size_t)t->dim[0], t->stride, &bytes) || bytes > INT64_MAX))
        return rp__op_fail(err, op, "%s wants a stride that does not wrap, found %zu", want->name,
                           t->stride);
    return RP_OK;
}

/* Rows of a wider matrix are fine for operands of two dimensions or more; weights and vectors are
 * dense. */
static rp_status check_stride(const rp_op *op, const op_operand *want, const rp_tensor *t,
                              rp_error *err) {
    size_t item = rp__tensor_item_bytes(t), elem = rp__dtype_block_bytes(t->dtype);
    bool must_be_dense = t->n_dims == 1 || want->cls == OP_WEIGHT;
    if (t->dim[0] > 1 && must_be_dense && t->stride != item)
        return rp__op_fail(err, op, "%s wants to be dense (stride %zu), found stride %zu",
                           want->name, item, t->stride);
    if (t->dim[0] > 1 && t->stride < item)
        return rp__op_fail(err, op, "%s wants a stride of at least %zu bytes, found %zu",
                           want->name, item, t->stride);
    /* Blocks are read byte by byte: they may lie anywhere. */
    if (want->cls != OP_WEIGHT && !rp__dtype_is_block(t->dtype) &&
        (t->offset % elem || (t->dim[0] > 1 && t->stride % elem)))
        return rp__op_fail(err, op,
                           "%s wants offset and stride in whole elements of %zu bytes, found %zu "
                           "and %zu",
                           want->name, elem, t->offset, t->stride);
    return RP_OK;
}

static rp_status check_operand(const rp_op *op, const op_operand *want, const rp_tensor *t,
                               letters *l, rp_error *err) {
    char found[128], wanted[160];
    if (!t->n_dims) {
        if (want->is_optional) return RP_OK;
        return rp__op_fail(err, op, "%s is missing: wants %s %s", want->name,
                           wanted_text(want->shape, l, wanted, sizeof wanted),
                           class_text(want->cls));
    }
    if (t->n_dims > RP_MAX_DIMS)
        return rp__op_fail(err, op, "%s wants at most %d dimensions, found %d", want->name,
                           RP_MAX_DIMS, t->n_dims);
    if (!class_takes(want->cls, t->dtype))
        return rp__op_fail(err, op, "%s wants %s, found %s", want->name, class_text(want->cls),
                           (unsigned)t->dtype < RP_N_DTYPES ? rp__dtype_name(t->dtype)
                                                            : "no dtype at all");
    if (t->is_weight && want->cls != OP_WEIGHT)
        return rp__op_fail(err, op,
                           "%s wants plain memory, found a weight in the device's own layout",
                           want->name);
    RP_TRY(check_sizes(op, want, t, err));
    RP_TRY(check_stride(op, want, t, err));
    for (const char *s = want->shape;; s++) {
        letters trial = *l;
        if (match_shape(s, t, &trial)) {
            *l = trial;
            return RP_OK;
        }
        s = shape_end(s);
        if (!*s) break;
    }
    return rp__op_fail(err, op, "%s wants %s, found %s", want->name,
                       wanted_text(want->shape, l, wanted, sizeof wanted),
                       rp__tensor_text(t, found, sizeof found));
}

static rp_status check_operands(const rp_op *op, const char *what, const op_operand *want, int max,
                                const rp_tensor *t, int n, letters *l, rp_error *err) {
    int n_most = 0, n_least = 0;
    for (int i = 0; i < max && want[i].name; i++) {
        n_most = i + 1;
        if (!want[i].is_optional) n_least = i + 1;
    }
    if (n < n_least || n > n_most)
        return rp__op_fail(err, op, "wants %d to %d %s, found %d", n_least, n_most, what, n);
    for (int i = 0; i < n; i++) RP_TRY(check_operand(op, &want[i], &t[i], l, err));
    return RP_OK;
}

static rp_status check_live(const rp_op *op, rp_error *err) {
    const rp_tensor *t = &op->live;
    char found[128];
    if (!t->n_dims) return RP_OK;
    if (t->n_dims != 1 || t->dim[0] != 1 || t->dtype != RP_I32 || t->is_weight)
        return rp__op_fail(err, op, "live wants [1] I32, found %s",
                           t->n_dims > RP_MAX_DIMS || (unsigned)t->dtype >= RP_N_DTYPES
                               ? "no tensor at all"
                               : rp__tensor_text(t, found, sizeof found));
    if (rp__op_table[op->kind].norms_last && op->out[0].n_dims < 2)
        return rp__op_fail(err, op, "live wants rows to count, found y with one dimension");
    return RP_OK;
}

/* ---- overlap ---- */

/* Columns of one wider matrix interleave without sharing a byte: equal strides, and items that
 * never meet. */
static bool share_bytes(const rp_tensor *a, const rp_tensor *b) {
    if (!a->buffer || a->buffer != b->buffer) return false;
    size_t a_span = rp__tensor_span(a), b_span = rp__tensor_span(b);
    if (a->offset >= b->offset + b_span || b->offset >= a->offset + a_span) return false;
    if (a->offset > b->offset) {
        const rp_tensor *t = a;
        a = b, b = t;
    }
    if (a->stride != b->stride || !a->stride) return true;
    size_t apart = (b->offset - a->offset) % a->stride;
    return apart < rp__tensor_item_bytes(a) || apart + rp__tensor_item_bytes(b) > a->stride;
}

static bool same_place(const rp_tensor *a, const rp_tensor *b) {
    return a->buffer == b->buffer && a->offset == b->offset &&
           (a->stride == b->stride || a->dim[0] <= 1);
}

rp_status rp__op_check_overlap(const rp_op *op, rp_error *err) {
    const op_row *row = &rp__op_table[op->kind];
    for (int i = 0; i < op->n_out; i++) {
        const rp_tensor *y = &op->out[i];
        if (!y->n_dims) continue;
        for (int j = 0; j < op->n_in; j++) {
            if (!op->in[j].n_dims || !share_bytes(y, &op->in[j])) continue;
            if (rp__op_may_alias(op, i, j) && same_place(y, &op->in[j])) continue;
            return rp__op_fail(
                err, op, "%s wants memory of its own%s, found it over %s", row->out[i].name,
                row->alias[i] >> j & 1 ? " or exactly that operand's" : "", row->in[j].name);
        }
        for (int j = 0; j < i; j++)
            if (op->out[j].n_dims && share_bytes(y, &op->out[j]))
                return rp__op_fail(err, op, "%s wants memory of its own, found it over %s",
                                   row->out[i].name, row->out[j].name);
        if (op->live.n_dims && share_bytes(y, &op->live))
            return rp__op_fail(err, op, "%s wants memory of its own, found it over live",
                               row->out[i].name);
    }
    return RP_OK;
}

rp_status rp__op_check(const rp_op *op, rp_error *err) {
    if ((unsigned)op->kind >= RP_N_OPS)
        return rp__fail(err, RP_EINVAL, "op kind wants a number below %d, found %d", RP_N_OPS,
                        (int)op->kind);
    const op_row *row = &rp__op_table[op->kind];
    letters l = {.lead = NULL};
    for (size_t i = 0; i < sizeof l.size / sizeof *l.size; i++) l.size[i] = -1;
    RP_TRY(check_operands(op, "inputs", row->in, RP_OP_MAX_IN, op->in, op->n_in, &l, err));
    RP_TRY(check_operands(op, "outputs", row->out, RP_OP_MAX_OUT, op->out, op->n_out, &l, err));
    RP_TRY(check_live(op, err));
    if (row->check) RP_TRY(row->check(op, err));
    return rp__op_check_overlap(op, err);
}
