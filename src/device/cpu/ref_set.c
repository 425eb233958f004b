/* The reference set as a table, and the scratch its bodies need. */
#include "device/cpu/panel.h"
#include "device/cpu/ref.h"

static bool always(void) {
    return true;
}

const rp__body_set rp__body_reference = {
    .name = "reference",
    .is_available = always,
    .fn = {[RP_OP_EMBED] = rp__ref_embed,
           [RP_OP_RMS_NORM] = rp__ref_rms_norm,
           [RP_OP_LAYER_NORM] = rp__ref_layer_norm,
           [RP_OP_MATMUL] = rp__ref_matmul,
           [RP_OP_ROPE] = rp__ref_rope,
           [RP_OP_KV_WRITE] = rp__ref_kv_write,
           [RP_OP_ATTENTION] = rp__ref_attention,
           [RP_OP_GATED] = rp__ref_gated,
           [RP_OP_ACT] = rp__ref_act,
           [RP_OP_ADD] = rp__ref_add,
           [RP_OP_MUL] = rp__ref_mul,
           [RP_OP_SCALE] = rp__ref_scale,
           [RP_OP_SOFTCAP] = rp__ref_softcap,
           [RP_OP_GATHER_ROWS] = rp__ref_gather_rows,
           [RP_OP_CONVERT] = rp__ref_convert,
           [RP_OP_ROUTER_TOPK] = rp__ref_router_topk,
           [RP_OP_EXPERT_MATMUL] = rp__ref_expert_matmul,
           [RP_OP_EXPERT_SUM] = rp__ref_expert_sum,
           [RP_OP_ARGMAX] = rp__ref_argmax,
           [RP_OP_TOPK] = rp__ref_topk,
           [RP_OP_SAMPLE] = rp__ref_sample,
           [RP_OP_ADVANCE] = rp__ref_advance,
           [RP_OP_FEED] = rp__ref_feed},
};

/* Embed and the matmuls decode one weight row at a time; attention keeps a score per visible
 * position, one decoded K or V row and one row of sums. */
static size_t reference_scratch(const rp_op *op) {
    switch (op->kind) {
    case RP_OP_EMBED:
    case RP_OP_MATMUL:
    case RP_OP_EXPERT_MATMUL: {
        const rp_tensor *w = &op->in[op->kind != RP_OP_EMBED];
        return (size_t)rp__tensor_last(w) * sizeof(float);
    }
    case RP_OP_ATTENTION: {
        size_t context = (size_t)op->in[3].dim[1] * (size_t)op->in[1].dim[2];
        size_t d = (size_t)op->in[0].dim[2];
        return (context + d) * sizeof(double) + d * sizeof(float);
    }
    default:
        return 0;
    }
}

size_t rp__body_scratch(const rp_op *op) {
    size_t reference = reference_scratch(op);
    size_t fast = rp__panel_scratch(op);
    return reference > fast ? reference : fast;
}
