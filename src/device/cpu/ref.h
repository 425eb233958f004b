/* What the reference bodies share: addressing of items and rows, and how workers split.
 *
 * The reference set is written to be read: one plain loop per formula, double accumulation in index
 * order, one rounding when a result is stored. Activations are F32; only row-major weights. */
#ifndef RP_DEVICE_CPU_REF_H
#define RP_DEVICE_CPU_REF_H

#include "base/fail.h"
#include "device/cpu/body.h"
#include "tensor/dtype.h"
#include "tensor/view.h"

/* Item i of dim[0]. */
static inline const void *ref_item(const rp_tensor *t, const void *base, int64_t i) {
    return (const char *)base + (size_t)i * t->stride;
}
static inline void *ref_item_out(const rp_tensor *t, void *base, int64_t i) {
    return (char *)base + (size_t)i * t->stride;
}

/* Row r over all dimensions but the last: items of dim[0] may lie apart, rows inside an item are
 * dense. */
static inline size_t ref_row_offset(const rp_tensor *t, int64_t r) {
    if (t->n_dims == 1) return 0;
    int64_t inner = t->dim[0] ? rp__tensor_rows(t) / t->dim[0] : 1;
    size_t row_bytes = rp__tensor_item_bytes(t) / (size_t)inner;
    return (size_t)(r / inner) * t->stride + (size_t)(r % inner) * row_bytes;
}
static inline const float *ref_row(const rp_tensor *t, const void *base, int64_t r) {
    return (const float *)((const char *)base + ref_row_offset(t, r));
}
static inline float *ref_row_out(const rp_tensor *t, void *base, int64_t r) {
    return (float *)((char *)base + ref_row_offset(t, r));
}

/* Live rows of a tensor of which n_live items are: all rows of each. A vector is one row. */
static inline int64_t ref_live_rows(const rp_tensor *t, int64_t n_live) {
    if (t->n_dims == 1) return 1;
    return t->dim[0] ? rp__tensor_rows(t) / t->dim[0] * n_live : 0;
}

/* This part's share [from, to) of n things: neighbours, as even as can be. */
typedef struct ref_share {
    int64_t from, to;
} ref_share;
static inline ref_share ref_split(const rp__body_args *a, int64_t n) {
    return (ref_share){n * a->from / a->of, n * a->to / a->of};
}

/* Where KV_WRITE puts token t: block * S + offset. */
static inline int64_t ref_kv_slot(const rp__body_args *a, int64_t t) {
    const rp_op *op = a->op;
    if (a->in[2]) return ((const int32_t *)a->in[2])[t];
    int64_t size = op->out[0].dim[2], pos = ((const int32_t *)a->in[5])[t];
    const int32_t *table = ref_item(&op->in[3], a->in[3], ((const int32_t *)a->in[4])[t]);
    return table[pos / size] * size + pos % size;
}

void rp__ref_embed(const rp__body_args *a);
void rp__ref_rms_norm(const rp__body_args *a);
void rp__ref_layer_norm(const rp__body_args *a);
void rp__ref_matmul(const rp__body_args *a);
void rp__ref_rope(const rp__body_args *a);
void rp__ref_kv_write(const rp__body_args *a);
void rp__ref_attention(const rp__body_args *a);
void rp__ref_gated(const rp__body_args *a);
void rp__ref_act(const rp__body_args *a);
void rp__ref_add(const rp__body_args *a);
void rp__ref_mul(const rp__body_args *a);
void rp__ref_scale(const rp__body_args *a);
void rp__ref_softcap(const rp__body_args *a);
void rp__ref_gather_rows(const rp__body_args *a);
void rp__ref_convert(const rp__body_args *a);
void rp__ref_router_topk(const rp__body_args *a);
void rp__ref_expert_matmul(const rp__body_args *a);
void rp__ref_expert_sum(const rp__body_args *a);
void rp__ref_argmax(const rp__body_args *a);
void rp__ref_topk(const rp__body_args *a);
void rp__ref_sample(const rp__body_args *a);
void rp__ref_advance(const rp__body_args *a);
void rp__ref_feed(const rp__body_args *a);

#endif
