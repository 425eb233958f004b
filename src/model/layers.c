#include "model/layers.h"

#include <math.h>
#include <stdio.h>

#include "tensor/dtype.h"

rp__step_slots rp__layer_inputs(rp__program *p, const rp__model *m) {
    const rp_tensor *cache = &m->layers[0].k_cache;
    int64_t n_table = (m->n_ctx + cache->dim[2] - 1) / cache->dim[2];
    const int64_t one = 1, t = p->bucket.n_tokens, r = p->bucket.n_rows;
    const int64_t table[2] = {p->bucket.n_seqs + 1,
                              n_table}; /* the last row is the padding's: the sink block only */
    /* What changes with every step stands together, and what is large and seldom changes at the
     * end: a step writes the range that changed. */
    bool is_fed = p->bucket.kind == RP_BUCKET_DECODE && m->n_fed > 1;
    rp__step_slots s;
    s.past =
        is_fed ? rp__program_input(p, "past", RP_I32, 2, (int64_t[]){m->n_fed, t}) : RP_NO_SLOT;
    s.live_tokens = rp__program_input(p, "live_tokens", RP_I32, 1, &one);
    s.live_rows = rp__program_input(p, "live_rows", RP_I32, 1, &one);
    s.seq = rp__program_input(p, "seq", RP_I32, 1, &t);
    s.rows = rp__program_input(p, "rows", RP_I32, 1, &r);
    s.ids = rp__program_input(p, "ids", RP_I32, 1, &t);
    s.slots = is_fed ? RP_NO_SLOT : rp__program_input(p, "slots", RP_I32, 1, &t);
    s.pos = rp__program_input(p, "pos", RP_I32, 1, &t);
    s.table = rp__program_input(p, "table", RP_I32, 2, table);
    return s;
}

static const rp_tensor *shape(const rp__program *p, rp__slot s) {
    return &p->slots[s].tensor;
}

rp__slot rp__layer_embed(rp__program *p, const rp_tensor *table, const char *name, rp__slot ids,
                         float scale) {
    if (p->error.code) return RP_NO_SLOT;
    const int64_t dim[2] = {shape(p, ids)->dim[0], table->dim[1]};
    rp__slot y = rp__program_temp(p, name, RP_F32, 2, dim);
    rp_op op = {.kind = RP_OP_EMBED, .label = name, .p.embed = {scale}};
    rp__program_op(p, &op, 2, (rp__slot[]){rp__program_const(p, name, table), ids}, 1, &y);
    return y;
}

void rp__layer_rms_norm_into(rp__program *p, const char *label, rp__slot x, const rp_tensor *w,
                             float eps, rp__slot y) {
    rp_op op = {.kind = RP_OP_RMS_NORM, .label = label, .p.norm = {.eps = eps}};
    rp__program_op(p, &op, 2, (rp__slot[]){x, rp__program_const(p, label, w)}, 1, &y);
}

rp__slot rp__layer_rms_norm(rp__program *p, const char *label, rp__slot x, const rp_tensor *w,
                            float eps) {
    if (p->error.code) return RP_NO_SLOT;
    rp__slot y = rp__program_temp(p, label, RP_F32, shape(p, x)->n_dims, shape(p, x)->dim);
    rp__layer_rms_norm_into(p, label, x, w, eps, y);
    return y;
}

/* What a matmul reads: x itself, or rounded to the blocks that belong to the weight's. */
static rp__slot matmul_input(rp__program *p, const rp__model *m, rp__slot x, const rp_tensor *w) {
    rp_dtype to;
    return m->activation_bits && rp__dtype_activation(w->dtype, m->activation_bits, &to)
               ? rp__program_round(p, x, to)
               : x;
}

rp__slot rp__layer_linear(rp__program *p, const rp__model *m, const char *label, rp__slot x,
                          const rp__linear *l, rp__slot add) {
    if (p->error.code) return RP_NO_SLOT;
    const int64_t dim[2] = {shape(p, x)->dim[0], l->w.dim[0]};
    rp__slot y = rp__program_temp(p, label, RP_F32, 2, dim);
    rp_op op = {.kind = RP_OP_MATMUL, .label = label};
    rp__slot in[] = {matmul_input(p, m, x, &l->w), rp__program_const(p, label, &l->w),
                     rp__program_const(p, label, &l->b), add};
    rp__program_op(p, &op, 4, in, 1, &y);
    return y;
}

void rp__layer_rope(rp__program *p, const char *label, rp__slot x, rp__slot cs,
                    rp_rope_style style) {
    rp_op op = {.kind = RP_OP_ROPE, .label = label, .p.rope = {style}};
    rp__program_op(p, &op, 2, (rp__slot[]){x, cs}, 1, &x);
}

rp__slot rp__layer_gated(rp__program *p, const char *label, rp__slot gate, rp__slot up,
                         rp_act act) {
    if (p->error.code) return RP_NO_SLOT;
    rp__slot y = rp__program_temp(p, label, RP_F32, 2, shape(p, gate)->dim);
    rp_op op = {.kind = RP_OP_GATED, .label = label, .p.act = {act}};
    rp__program_op(p, &op, 2, (rp__slot[]){gate, up}, 1, &y);
    return y;
}

rp__slot rp__layer_gather(rp__program *p, rp__slot x, rp__slot rows) {
    if (p->error.code) return RP_NO_SLOT;
    const int64_t dim[2] = {shape(p, rows)->dim[0], shape(p, x)->dim[1]};
    rp__slot y = rp__program_temp(p, "rows", RP_F32, 2, dim);
    rp_op op = {.kind = RP_OP_GATHER_ROWS, .label = "rows"};
    rp__program_op(p, &op, 2, (rp__slot[]){x, rows}, 1, &y);
    return y;
}

rp__slot rp__layer_attention(rp__program *p, const rp__model *m, int64_t layer,
                             const rp__step_slots *in, rp__slot q, rp__slot k, rp__slot v) {
    if (p->error.code) return RP_NO_SLOT;
    char label[64];
    snprintf(label, sizeof label, "blk.%lld.kv", (long long)layer);
    rp__slot caches[] = {rp__program_state(p, "k_cache", &m->layers[layer].k_cache),
                         rp__program_state(p, "v_cache", &m->layers[layer].v_cache)};
    static const rp_rows rows[] = {RP_ROWS_SINGLE, RP_ROWS_MIXED, RP_ROWS_PROMPT};
    rp_op write = {.kind = RP_OP_KV_WRITE, .label = label, .p.kv_write = {rows[p->bucket.kind]}};
    rp__slot places[] = {k, v, in->slots, in->table, in->seq, in->pos};
    rp__program_op(p, &write, in->slots == RP_NO_SLOT ? 6 : 3, places, 2, caches);

    snprintf(label, sizeof label, "blk.%lld.attn", (long long)layer);
    int64_t t = shape(p, q)->dim[0], n = shape(p, q)->dim[1] * shape(p, q)->dim[2];
    rp__slot y = rp__program_temp(p, label, RP_F32, 3, shape(p, q)->dim);
    rp_op op = {.kind = RP_OP_ATTENTION, .label = label};
    op.p.attention.rows = rows[p->bucket.kind];
    op.p.attention.scale = 1.0f / sqrtf((float)m->h.head_dim);
    op.p.attention.window = rp__hparams_has_window(&m->h, layer) ? (int32_t)m->h.window : 0;
    rp__program_op(p, &op, 6, (rp__slot[]){q, caches[0], caches[1], in->table, in->seq, in->pos}, 1,
                   &y);
    return rp__program_reshape(p, y, 2, (int64_t[]){t, n});
}

/* After every op that reads them: a replay leaves them as the next step of the same sequences wants
 * them. */
static void advance_positions(rp__program *p, const rp__step_slots *in) {
    bool is_wanted = rp__device_props(p->device)->advances_positions;
    if (!is_wanted || p->bucket.kind != RP_BUCKET_DECODE) return;
    rp_op op = {.kind = RP_OP_ADVANCE, .label = "pos", .p.advance.step = 1};
    rp__program_live(p, in->live_tokens);
    rp__program_op(p, &op, 1, &in->pos, 1, &in->pos);
}

/* Beside the logits, which are read where anybody wants more than the best token. */
static void pick_tokens(rp__program *p, const rp__step_slots *in, rp__slot logits) {
    if (p->error.code || !rp__device_props(p->device)->picks_tokens) return;
    bool is_fed = in->past != RP_NO_SLOT;
    rp__slot best = is_fed ? rp__program_temp(p, "best", RP_I32, 1, shape(p, logits)->dim)
                           : rp__program_output(p, "best", RP_I32, 1, shape(p, logits)->dim);
    rp_op pick = {.kind = RP_OP_ARGMAX, .label = "best"},
          feed = {.kind = RP_OP_FEED, .label = "ids"};
    rp__program_op(p, &pick, 1, &logits, 1, &best);
    if (!is_fed) return;
    rp__program_live(p, in->live_tokens);
    rp__program_op(p, &feed, 2, (rp__slot[]){best, in->past}, 2, (rp__slot[]){in->ids, in->past});
}

void rp__layer_head(rp__program *p, const rp__model *m, const rp__step_slots *in, rp__slot x) {
    rp__program_live(p, in->live_rows);
    rp__slot rows = rp__layer_gather(p, x, in->rows);
    rp__slot h = rp__layer_rms_norm(p, "output_norm", rows, &m->output_norm, m->h.norm_eps);
    const rp_tensor *w = m->head.w.n_dims ? &m->head.w : &m->embed; /* tied */
    const int64_t dim[2] = {p->bucket.n_rows, w->dim[0]};
    rp__slot logits = rp__program_output(p, "logits", RP_F32, 2, dim);
    rp_op op = {.kind = RP_OP_MATMUL, .label = "output"};
    rp__slot operands[] = {matmul_input(p, m, h, w), rp__program_const(p, "output", w),
                           rp__program_const(p, "output", &m->head.b)};
    rp__program_op(p, &op, 3, operands, 1, &logits);
    pick_tokens(p, in, logits);
    advance_positions(p, in);
}
