/* Reprise's ops as calls of ttnn (by way of the glue): operands are looked up by view, results are
 * bound to theirs.
 *
 * To prepare an op is to run it on operands of the same shapes and to throw the result away:
 * weights and what the host has written are the real ones, everything else is zeros. Nothing that
 * the op would write changes. */
#include <string.h>

#include "base/fail.h"
#include "device/tenstorrent/tt.h"
#include "tensor/dtype.h"
#include "tensor/view.h"

enum {
    MAX_HEADS = 64,    /* of one tile row in the attention kernel, padded */
    MAX_ADVANCE = 128, /* each step is a call */
    MAX_TILE_DIMS = 4
};

/* ---- what runs here ---- */

static bool is_there(const rp_tensor *t) {
    return t->n_dims > 0;
}

static bool has(const rp_op *op, int i) {
    return i < op->n_in && is_there(&op->in[i]);
}

static bool is_activation(const rp_tensor *t) {
    return !is_there(t) ||
           ((t->dtype == RP_F32 || t->dtype == RP_F16 || t->dtype == RP_BF16) && t->n_dims <= 3);
}

static bool are_activations(const rp_op *op) {
    for (int i = 0; i < op->n_in; i++)
        if (!is_activation(&op->in[i])) return false;
    for (int i = 0; i < op->n_out; i++)
        if (!is_activation(&op->out[i])) return false;
    return true;
}

/* The paged kernels work on whole tiles of positions. */
static bool is_cache(const rp_tensor *t) {
    return (t->dtype == RP_F32 || t->dtype == RP_F16 || t->dtype == RP_BF16) &&
           t->dim[2] % RP_TT_BLOCK == 0;
}

static bool is_float_or_weight(const rp_tensor *t) {
    return rp__dtype_is_float(t->dtype) || rp__dtype_is_block(t->dtype);
}

static bool supports_attention(const rp_op *op) {
    return is_activation(&op->in[0]) && is_cache(&op->in[1]) && is_cache(&op->in[2]) &&
           !has(op, 6) && op->p.attention.softcap == 0 && op->in[0].dim[1] <= MAX_HEADS;
}

bool rp__tt_supports(void *self, const rp_op *op) {
    (void)self;
    switch (op->kind) {
    case RP_OP_EMBED:
        return is_float_or_weight(&op->in[0]) && is_activation(&op->out[0]);
    case RP_OP_MATMUL:
        return is_activation(&op->in[0]) && is_float_or_weight(&op->in[1]) &&
               is_activation(&op->out[0]) && op->in[1].n_dims == 2;
    case RP_OP_RMS_NORM: /* 1 + w in BF16 would lose what w adds */
        return are_activations(op) && !op->p.norm.add_one;
    case RP_OP_LAYER_NORM:
    case RP_OP_ROPE:
    case RP_OP_GATED:
    case RP_OP_ACT:
    case RP_OP_ADD:
    case RP_OP_MUL:
    case RP_OP_SCALE:
    case RP_OP_SOFTCAP:
        return are_activations(op);
    case RP_OP_GATHER_ROWS:
    case RP_OP_ARGMAX:
        return is_activation(&op->in[0]);
    case RP_OP_KV_WRITE:
        return is_activation(&op->in[0]) && is_cache(&op->out[0]) && is_cache(&op->out[1]);
    case RP_OP_ATTENTION:
        return supports_attention(op);
    case RP_OP_ADVANCE:
        return op->p.advance.step >= 0 && op->p.advance.step <= MAX_ADVANCE;
    case RP_OP_FEED:
        return true;
    default:
        return false;
    }
}

/* ---- operands ---- */

typedef struct issue {
    rp__tt *d;
    rp__ttnn_call call;
} issue;

static issue begin(rp__tt *d, const char *function) {
    return (issue){.d = d, .call = {.function = function}};
}

/* Dimensions of the tile tensor of a view. */
static void tile_dims(const rp_tensor *t, int64_t out[MAX_TILE_DIMS]) {
    for (int i = 0; i < MAX_TILE_DIMS; i++) out[i] = 1;
    int lead = t->n_dims == 3 ? 1 : MAX_TILE_DIMS - t->n_dims;
    for (int i = 0; i < t->n_dims; i++) out[lead + i] = t->dim[i];
}

static void add_int(rp__ttnn_call *c, int64_t v) {
    c->ints[c->n_ints++] = v;
}

static rp_status temporary(rp__tt *d, rp__ttnn_id *id, rp_error *err) {
    *id = rp__tt_temporary(d);
    return *id ? RP_OK : rp__fail(err, RP_ENOMEM, "out of memory for what an op makes on its way");
}

/* Zeros, or -1 for slots, which the cache's kernel then leaves alone. */
static rp_status make_stand_in(rp__tt *d, const int64_t *dims, int n, rp__tt_form form,
                               const void *data, size_t bytes, rp__ttnn_id *id, rp_error *err) {
    rp__ttnn_call c = {.function = "make",
                       .text = rp__tt_form_name(form),
                       .n_ints = n,
                       .n_out = 1,
                       .data = data,
                       .bytes = bytes};
    memcpy(c.ints, dims, (size_t)n * sizeof *dims);
    RP_TRY(temporary(d, id, err));
    c.out[0] = *id;
    return rp__ttnn_send(d->ttnn, &c, err);
}

static rp_status reshape(rp__tt *d, rp__ttnn_id from, const int64_t *dims, int n, rp__ttnn_id *id,
                         rp_error *err) {
    rp__ttnn_call c = {.function = "reshape", .in = {from}, .n_in = 1, .n_out = 1, .n_ints = n};
    memcpy(c.ints, dims, (size_t)n * sizeof *dims);
    RP_TRY(temporary(d, id, err));
    c.out[0] = *id;
    return rp__ttnn_send(d->ttnn, &c, err);
}

static rp_status send_slice(rp__tt *d, rp__ttnn_id from, const int64_t *begins, const int64_t *ends,
                            const int64_t *wanted, rp__ttnn_id *id, rp_error *err) {
    rp__ttnn_call c = {.function = "slice", .in = {from}, .n_in = 1, .n_out = 1};
    for (int i = 0; i < MAX_TILE_DIMS; i++) add_int(&c, begins[i]);
    for (int i = 0; i < MAX_TILE_DIMS; i++) add_int(&c, ends[i]);
    for (int i = 0; i < MAX_TILE_DIMS; i++) add_int(&c, wanted[i]);
    RP_TRY(temporary(d, id, err));
    c.out[0] = *id;
    return rp__ttnn_send(d->ttnn, &c, err);
}

/* Rows and columns of a wider matrix; heads of a tensor of heads. */
static rp_status slice(rp__tt *d, const rp__tt_value *v, const rp_tensor *t, rp__ttnn_id *id,
                       rp_error *err) {
    int64_t wanted[MAX_TILE_DIMS];
    size_t elem = rp__dtype_block_bytes(t->dtype), at = t->offset - v->view.offset;
    int64_t row = (int64_t)(at / v->view.stride), column = (int64_t)(at % v->view.stride / elem);
    int64_t n = rp__tensor_elems(t) / t->dim[0], end = row + t->dim[0];
    rp__ttnn_id from = v->id;
    tile_dims(t, wanted);
    if (v->view.n_dims == 3) {
        int64_t d_head = v->view.dim[2];
        if (t->n_dims == 3 && t->dim[2] == d_head && column % d_head == 0)
            return send_slice(d, from, (int64_t[]){0, row, column / d_head, 0},
                              (int64_t[]){1, end, column / d_head + t->dim[1], d_head}, wanted, id,
                              err);
        RP_TRY(reshape(d, v->id, (int64_t[]){1, 1, v->view.dim[0], v->view.dim[1] * d_head},
                       MAX_TILE_DIMS, &from, err));
    }
    return send_slice(d, from, (int64_t[]){0, 0, row, column}, (int64_t[]){1, 1, end, column + n},
                      wanted, id, err);
}

/* True when `t` is rows and columns of the matrix `v`, both cut alike. */
static bool is_part(const rp_tensor *v, const rp_tensor *t) {
    if (v->dtype != t->dtype || t->offset < v->offset) return false;
    size_t at = t->offset - v->offset, item = rp__tensor_item_bytes(t);
    if (t->dim[0] > 1 && t->stride != v->stride) return false;
    return (int64_t)(at / v->stride) + t->dim[0] <= v->dim[0] &&
           at % v->stride + item <= rp__tensor_item_bytes(v);
}

static bool same_tile(const rp_tensor *a, const rp_tensor *b) {
    int64_t x[MAX_TILE_DIMS], y[MAX_TILE_DIMS];
    tile_dims(a, x);
    tile_dims(b, y);
    return !memcmp(x, y, sizeof x);
}

static rp_status from_value(rp__tt *d, const rp__tt_value *v, const rp_tensor *t, rp__ttnn_id *id,
                            rp_error *err) {
    int64_t dims[MAX_TILE_DIMS];
    if (!rp__tt_same_bytes(&v->view, t)) return slice(d, v, t, id, err);
    *id = v->id;
    if (same_tile(&v->view, t)) return RP_OK;
    tile_dims(t, dims);
    return reshape(d, v->id, dims, MAX_TILE_DIMS, id, err);
}

/* Heads that several results made side by side, as the norms of q and k do: joined. Sets *id when
 * `t` is such a view. */
static rp_status join_heads(rp__tt *d, const rp_tensor *t, rp__ttnn_id *id, rp_error *err) {
    const rp__tt_buffer *b = rp__tt_buffer_of(t);
    rp__ttnn_call c = {.function = "join_heads", .n_out = 1};
    size_t at = t->offset, end = at + rp__tensor_item_bytes(t);
    *id = 0;
    if (t->n_dims != 3) return RP_OK;
    while (at < end && c.n_in < RP_TTNN_MAX_TENSORS) {
        const rp__tt_value *v = NULL;
        for (int i = b->n_values; i-- > 0 && !v;)
            if (b->values[i].view.offset == at) v = &b->values[i];
        if (!v || v->form != RP_TT_TILE || v->view.n_dims != 3 || v->view.dim[2] != t->dim[2] ||
            !is_part(t, &v->view) || v->view.dim[0] != t->dim[0])
            return RP_OK;
        c.in[c.n_in++] = v->id;
        at += rp__tensor_item_bytes(&v->view);
    }
    if (at != end) return RP_OK;
    RP_TRY(temporary(d, id, err));
    c.out[0] = *id;
    return rp__ttnn_send(d->ttnn, &c, err);
}

/* An operand that is made of several results, or of parts of them: by way of the host. */
static rp_status by_the_host(rp__tt *d, const rp_tensor *t, rp_error *err) {
    rp__tt_buffer *b = rp__tt_buffer_of(t);
    if (d->recording)
        return rp__fail(err, RP_ECAPTURE_HOST,
                        "a captured op reads a view of buffer \"%s\" that is no one result, nor "
                        "columns of one",
                        t->buffer->name);
    RP_TRY(rp__tt_settle(d, b, t->offset, rp__tensor_span(t), err));
    for (rp__tt_value *v; (v = rp__tt_find_value(t));) rp__tt_unbind(d, b, (int)(v - b->values));
    b->serial++;
    return RP_OK;
}

/* True when nobody has put anything there yet. */
static bool holds_nothing(const rp_tensor *t) {
    const rp__tt_buffer *b = rp__tt_buffer_of(t);
    if (!b) return true;
    size_t begin = t->offset, end = begin + rp__tensor_span(t);
    return !rp__tt_find_value(t) && (end <= b->dirty_begin || begin >= b->dirty_end);
}

/* A captured op reads what an op outside the capture made. The trace keeps an address, so it reads
 * a resident, into which each replay first brings what others put there; where there is none, the
 * result itself becomes one, and stays with the trace that makes it when that is another one. */
static rp_status adopt(rp__tt *d, rp__tt_value *v, const rp_tensor *t, rp__ttnn_id *id,
                       rp_error *err) {
    if (rp__tt_resident_is_there(t, RP_TT_TILE))
        return rp__tt_resident_get(d, t, NULL, RP_TT_TILE, id, err);
    if (v->form != RP_TT_TILE || !(rp__tt_same_bytes(&v->view, t) || is_part(&v->view, t)))
        return by_the_host(d, t, err);
    rp__tt_value whole = *v;
    if (rp__tt_resident_is_there(&whole.view, RP_TT_TILE)) {
        RP_TRY(rp__tt_resident_get(d, &whole.view, NULL, RP_TT_TILE, &whole.id, err));
    } else {
        RP_TRY(rp__tt_resident_adopt(d, v, err));
        if (!whole.owner) {
            v->id = 0; /* it is the resident's */
            rp__tt_unbind(d, rp__tt_buffer_of(t), (int)(v - rp__tt_buffer_of(t)->values));
        }
    }
    return from_value(d, &whole, t, id, err);
}

/* The tile tensor of an activation. */
static rp_status find_tile(rp__tt *d, const rp_tensor *t, rp__ttnn_id *id, rp_error *err) {
    int64_t dims[MAX_TILE_DIMS];
    tile_dims(t, dims);
    if (d->is_preparing && holds_nothing(t))
        return make_stand_in(d, dims, MAX_TILE_DIMS, RP_TT_TILE, NULL, 0, id, err);
    rp__tt_value *v = rp__tt_find_value(t);
    if (v && d->recording && v->owner != d->recording) return adopt(d, v, t, id, err);
    if (v && v->form == RP_TT_TILE && (rp__tt_same_bytes(&v->view, t) || is_part(&v->view, t)))
        return from_value(d, v, t, id, err);
    if (v) {
        RP_TRY(join_heads(d, t, id, err));
        if (*id) return RP_OK;
        RP_TRY(by_the_host(d, t, err));
    }
    return rp__tt_resident_get(d, t, NULL, RP_TT_TILE, id, err);
}

static rp_status convert_integers(rp__tt *d, const rp__tt_value *v, const rp_tensor *t,
                                  rp__tt_form form, rp__ttnn_id *id, rp_error *err) {
    rp__ttnn_call c = {.function = "integers",
                       .text = rp__tt_form_name(form),
                       .in = {v->id},
                       .n_in = 1,
                       .n_out = 1};
    if (form == RP_TT_U32) add_int(&c, 1);
    add_int(&c, rp__tensor_elems(t));
    RP_TRY(temporary(d, id, err));
    c.out[0] = *id;
    return rp__ttnn_send(d->ttnn, &c, err);
}

/* A vector of integers. The resident is made while preparing too: nothing is made later, beside
 * live traces. */
static rp_status find_integers(rp__tt *d, const rp_tensor *t, rp__tt_form form, rp__ttnn_id *id,
                               rp_error *err) {
    rp__tt_value *v = rp__tt_find_value(t);
    if (v && v->form == form && rp__tt_same_bytes(&v->view, t)) {
        *id = v->id;
        return RP_OK;
    }
    if (v && v->form != RP_TT_TILE && rp__tt_same_bytes(&v->view, t))
        return convert_integers(d, v, t, form, id, err);
    if (v) RP_TRY(by_the_host(d, t, err));
    if (t->buffer) return rp__tt_resident_get(d, t, NULL, form, id, err);
    const int64_t dims[] = {1, rp__tensor_elems(t)};
    return make_stand_in(d, form == RP_TT_U32 ? dims : dims + 1, form == RP_TT_U32 ? 2 : 1, form,
                         NULL, 0, id, err);
}

static rp_status add_tile(issue *s, const rp_tensor *t, rp_error *err) {
    return find_tile(s->d, t, &s->call.in[s->call.n_in++], err);
}

static rp_status add_optional(issue *s, const rp_op *op, int i, rp_error *err) {
    if (has(op, i)) return add_tile(s, &op->in[i], err);
    s->call.in[s->call.n_in++] = 0;
    return RP_OK;
}

static rp_status add_integers(issue *s, const rp_tensor *t, rp__tt_form form, rp_error *err) {
    return find_integers(s->d, t, form, &s->call.in[s->call.n_in++], err);
}

/* A matrix of weights: resident, whichever way it was written. */
static rp_status add_matrix(issue *s, const rp_tensor *t, rp__tt_form form, rp_error *err) {
    rp__ttnn_id *id = &s->call.in[s->call.n_in++];
    if (!t->buffer) return make_stand_in(s->d, t->dim, t->n_dims, form, NULL, 0, id, err);
    return t->is_weight ? rp__tt_weight_get(s->d, t, form, id, err)
                        : rp__tt_resident_get(s->d, t, NULL, form, id, err);
}

static rp_status add_cache(issue *s, const rp_tensor *t, rp_error *err) {
    rp__ttnn_id *id = &s->call.in[s->call.n_in++];
    if (!t->buffer) return make_stand_in(s->d, t->dim, t->n_dims, RP_TT_CACHE, NULL, 0, id, err);
    return rp__tt_resident_get(s->d, t, NULL, RP_TT_CACHE, id, err);
}

/* ---- results ---- */

static rp_status send(issue *s, rp_error *err) {
    return rp__ttnn_send(s->d->ttnn, &s->call, err);
}

/* Names the result of the call. */
static rp_status add_out(issue *s, const rp_tensor *t, rp_error *err) {
    rp__ttnn_id *id = &s->call.out[s->call.n_out++];
    if (!is_there(t)) return RP_OK;
    if (s->d->is_preparing) return temporary(s->d, id, err);
    *id = rp__tt_new_id(s->d);
    rp__tt_graph *g = s->d->recording;
    if (g && !rp__tt_list_add(&g->ids, id, sizeof *id))
        return rp__fail(err, RP_ENOMEM, "out of memory to note what a trace makes");
    return RP_OK;
}

static rp_status bind(issue *s, const rp_op *op, rp__tt_form form, rp_error *err) {
    if (s->d->is_preparing) return RP_OK;
    for (int i = 0; i < s->call.n_out; i++)
        if (s->call.out[i]) RP_TRY(rp__tt_bind(s->d, &op->out[i], form, s->call.out[i], err));
    return RP_OK;
}

/* Names the results, sends, binds. */
static rp_status finish(issue *s, const rp_op *op, rp_error *err) {
    for (int i = 0; i < op->n_out; i++) RP_TRY(add_out(s, &op->out[i], err));
    RP_TRY(send(s, err));
    return bind(s, op, RP_TT_TILE, err);
}

/* ---- ops ---- */

static rp_status run_embed(rp__tt *d, const rp_op *op, rp_error *err) {
    issue s = begin(d, "embed");
    RP_TRY(add_matrix(&s, &op->in[0], RP_TT_TABLE, err));
    RP_TRY(add_integers(&s, &op->in[1], RP_TT_U32, err));
    s.call.floats[s.call.n_floats++] = (double)op->p.embed.scale;
    return finish(&s, op, err);
}

static rp_status run_norm(rp__tt *d, const rp_op *op, rp_error *err) {
    bool is_rms = op->kind == RP_OP_RMS_NORM;
    issue s = begin(d, is_rms ? "rms_norm" : "layer_norm");
    RP_TRY(add_tile(&s, &op->in[0], err));
    RP_TRY(add_tile(&s, &op->in[1], err));
    RP_TRY(add_optional(&s, op, 2, err));
    s.call.floats[s.call.n_floats++] = (double)op->p.norm.eps;
    return finish(&s, op, err);
}

static rp_status run_matmul(rp__tt *d, const rp_op *op, rp_error *err) {
    issue s = begin(d, "linear");
    RP_TRY(add_tile(&s, &op->in[0], err));
    RP_TRY(add_matrix(&s, &op->in[1], RP_TT_WEIGHT, err));
    RP_TRY(add_optional(&s, op, 2, err));
    RP_TRY(add_optional(&s, op, 3, err));
    return finish(&s, op, err);
}

/* Cosines and sines in the places where they multiply: made once for all layers of a step. */
static rp_status make_rope_tables(rp__tt *d, const rp_op *op, rp__ttnn_id cs, rp__ttnn_id out[2],
                                  rp_error *err) {
    issue s = begin(d, "rope_tables");
    s.call.in[s.call.n_in++] = cs;
    add_int(&s.call, op->p.rope.style == RP_ROPE_INTERLEAVED);
    add_int(&s.call, op->in[0].dim[2]);
    for (int i = 0; i < 2; i++) {
        out[i] = rp__tt_new_id(d);
        rp__tt_graph *g = d->recording;
        if (g && !rp__tt_list_add(&g->ids, &out[i], sizeof out[i]))
            return rp__fail(err, RP_ENOMEM, "out of memory to note what a trace makes");
        s.call.out[s.call.n_out++] = out[i];
    }
    return send(&s, err);
}

static rp_status find_rope_tables(rp__tt *d, const rp_op *op, rp__ttnn_id out[2], rp_error *err) {
    const rp_tensor *t = &op->in[1];
    bool is_interleaved = op->p.rope.style == RP_ROPE_INTERLEAVED;
    rp__ttnn_id cs;
    RP_TRY(find_tile(d, t, &cs, err));
    rp__tt_value *v = rp__tt_find_value(t);
    bool is_kept = v && v->id == cs && v->owner == d->recording;
    if (is_kept && v->rope_dim == op->in[0].dim[2] && v->is_interleaved == is_interleaved) {
        out[0] = v->cos;
        out[1] = v->sin;
        return RP_OK;
    }
    RP_TRY(make_rope_tables(d, op, cs, out, err));
    if (is_kept && !v->rope_dim) {
        v->cos = out[0];
        v->sin = out[1];
        v->rope_dim = op->in[0].dim[2];
        v->is_interleaved = is_interleaved;
    } else if (!d->recording) {
        rp__tt_drop(d, out[0]);
        rp__tt_drop(d, out[1]);
    }
    return RP_OK;
}

static rp_status run_rope(rp__tt *d, const rp_op *op, rp_error *err) {
    issue s = begin(d, "rope");
    RP_TRY(add_tile(&s, &op->in[0], err));
    RP_TRY(find_rope_tables(d, op, &s.call.in[s.call.n_in], err));
    s.call.n_in += 2;
    add_int(&s.call, op->p.rope.style == RP_ROPE_INTERLEAVED);
    add_int(&s.call, op->in[1].dim[1]);
    return finish(&s, op, err);
}

/* Slots or blocks that the cache's kernels leave alone, in place of real ones, while preparing. */
static rp_status add_nowhere(issue *s, const int64_t *dims, int n_dims, rp_error *err) {
    enum { MAX_ROWS = 4096 };
    static const unsigned char ones[MAX_ROWS * sizeof(int32_t)] = {[0 ... sizeof ones - 1] = 0xFF};
    int64_t n = dims[n_dims - 1];
    if (n > MAX_ROWS)
        return rp__fail(err, RP_EUNSUPPORTED, "%lld rows of a KV cache in one step", (long long)n);
    return make_stand_in(s->d, dims, n_dims, RP_TT_I32, ones, (size_t)n * sizeof(int32_t),
                         &s->call.in[s->call.n_in++], err);
}

static rp_status add_slots(issue *s, const rp_tensor *t, rp_error *err) {
    rp__ttnn_id real;
    if (!s->d->is_preparing) return add_integers(s, t, RP_TT_I32, err);
    if (t->buffer) RP_TRY(find_integers(s->d, t, RP_TT_I32, &real, err));
    return add_nowhere(s, t->dim, 1, err);
}

/* The blocks that a prompt fills, one after the other. */
static rp_status add_blocks(issue *s, const rp_op *op, rp_error *err) {
    rp_tensor t = op->in[2];
    t.n_dims = 2;
    t.dim[1] = op->out[0].dim[2];
    t.dim[0] /= t.dim[1];
    t.stride = (size_t)t.dim[1] * sizeof(int32_t);
    if (t.buffer && rp__tt_find_value(&t)) RP_TRY(by_the_host(s->d, &op->in[2], err));
    rp__ttnn_id real;
    if (t.buffer) RP_TRY(rp__tt_resident_get(s->d, &t, NULL, RP_TT_BLOCKS, &real, err));
    if (s->d->is_preparing) return add_nowhere(s, (int64_t[]){1, t.dim[0]}, 2, err);
    s->call.in[s->call.n_in++] = real;
    return RP_OK;
}

/* Block table and rows come from the host, so the table of each token of `seq` is made there. */
static rp_status add_pages(issue *s, const rp_tensor *table, const rp_tensor *seq, rp_error *err) {
    rp__ttnn_id *id = &s->call.in[s->call.n_in++];
    if (!table->buffer || !seq->buffer)
        return make_stand_in(s->d, (int64_t[]){seq->dim[0], rp__tt_pages_width(table->dim[1])}, 2,
                             RP_TT_PAGES, NULL, 0, id, err);
    if (rp__tt_find_value(table)) RP_TRY(by_the_host(s->d, table, err));
    if (rp__tt_find_value(seq)) RP_TRY(by_the_host(s->d, seq, err));
    return rp__tt_resident_get(s->d, table, seq, RP_TT_PAGES, id, err);
}

static bool is_prompt(const rp_op *op, rp_rows rows, const rp_tensor *cache) {
    return rows == RP_ROWS_PROMPT && op->in[0].dim[0] % cache->dim[2] == 0;
}

/* Places of single tokens: slots, in a cache whose block b is page b; or positions and pages. */
static rp_status add_places(issue *s, const rp_op *op, rp_error *err) {
    if (has(op, 2)) {
        RP_TRY(add_slots(s, &op->in[2], err));
        s->call.in[s->call.n_in++] = 0;
        return RP_OK;
    }
    RP_TRY(add_slots(s, &op->in[5], err));
    return add_pages(s, &op->in[3], &op->in[4], err);
}

static rp_status run_kv_write(rp__tt *d, const rp_op *op, rp_error *err) {
    bool is_fill = has(op, 2) && is_prompt(op, op->p.kv_write.rows, &op->out[0]);
    issue s = begin(d, is_fill ? "kv_fill" : "kv_write");
    for (int i = 0; i < 2; i++) RP_TRY(add_cache(&s, &op->out[i], err));
    for (int i = 0; i < 2; i++) RP_TRY(add_tile(&s, &op->in[i], err));
    RP_TRY(is_fill ? add_blocks(&s, op, err) : add_places(&s, op, err));
    if (!is_fill) add_int(&s.call, op->p.kv_write.rows == RP_ROWS_SINGLE);
    RP_TRY(send(&s, err));
    for (int i = 0; i < 2 && !d->is_preparing; i++)
        RP_TRY(rp__tt_resident_changed(d, &op->out[i], err));
    return RP_OK;
}

/* The kernel for prompts has no window, and takes heads that fill their tiles. */
static bool has_prompt_kernel(const rp_op *op) {
    return is_prompt(op, op->p.attention.rows, &op->in[1]) && !op->p.attention.window &&
           op->in[0].dim[2] % RP_TT_BLOCK == 0;
}

/* A prompt's table and position are those of its first token. */
static rp_status run_attention(rp__tt *d, const rp_op *op, rp_error *err) {
    bool is_one = has_prompt_kernel(op);
    rp_tensor seq = op->in[4], pos = op->in[5];
    if (is_one) seq.dim[0] = pos.dim[0] = 1;
    issue s = begin(d, is_one ? "prompt_attention" : "attention");
    RP_TRY(add_tile(&s, &op->in[0], err));
    RP_TRY(add_cache(&s, &op->in[1], err));
    RP_TRY(add_cache(&s, &op->in[2], err));
    RP_TRY(add_pages(&s, &op->in[3], &seq, err));
    RP_TRY(add_integers(&s, &pos, RP_TT_I32, err));
    if (!is_one) add_int(&s.call, op->p.attention.window);
    s.call.floats[s.call.n_floats++] = (double)op->p.attention.scale;
    return finish(&s, op, err);
}

/* Ops on tiles alone: their operands in order, and an activation or a number. */
static rp_status run_plain(rp__tt *d, const rp_op *op, const char *function, rp_error *err) {
    issue s = begin(d, function);
    for (int i = 0; i < op->n_in; i++) RP_TRY(add_tile(&s, &op->in[i], err));
    if (op->kind == RP_OP_GATED || op->kind == RP_OP_ACT) add_int(&s.call, op->p.act.kind);
    if (op->kind == RP_OP_SCALE || op->kind == RP_OP_SOFTCAP)
        s.call.floats[s.call.n_floats++] = (double)op->p.scalar.value;
    return finish(&s, op, err);
}

static rp_status run_gather_rows(rp__tt *d, const rp_op *op, rp_error *err) {
    issue s = begin(d, "gather_rows");
    RP_TRY(add_tile(&s, &op->in[0], err));
    RP_TRY(add_integers(&s, &op->in[1], RP_TT_U32, err));
    return finish(&s, op, err);
}

static rp_status run_argmax(rp__tt *d, const rp_op *op, rp_error *err) {
    issue s = begin(d, "argmax");
    RP_TRY(add_tile(&s, &op->in[0], err));
    add_int(&s.call, op->in[0].dim[0]);
    RP_TRY(add_out(&s, &op->out[0], err));
    RP_TRY(send(&s, err));
    return bind(&s, op, RP_TT_U32, err);
}

/* In place: every resident form of the numbers advances, as does their value, so that none of them
 * is stale. */
static rp_status advance_in_place(rp__tt *d, const rp_op *op, rp_error *err) {
    const rp_tensor *t = &op->in[0];
    rp__tt_value *v = rp__tt_find_value(t);
    issue s = begin(d, "advance");
    add_int(&s.call, op->p.advance.step);
    s.call.n_in = 1;
    if (v) {
        s.call.in[0] = v->id;
        v->is_on_host = false;
        return send(&s, err);
    }
    const rp__tt_form forms[] = {RP_TT_I32, RP_TT_U32};
    for (int i = 0; i < 2; i++) {
        if (forms[i] != RP_TT_I32 && !rp__tt_resident_is_there(t, forms[i])) continue;
        RP_TRY(rp__tt_resident_get(d, t, NULL, forms[i], &s.call.in[0], err));
        RP_TRY(send(&s, err));
    }
    return rp__tt_resident_changed(d, t, err);
}

static rp_status run_advance(rp__tt *d, const rp_op *op, rp_error *err) {
    bool is_in_place = op->in[0].buffer && op->in[0].buffer == op->out[0].buffer &&
                       rp__tt_same_bytes(&op->in[0], &op->out[0]);
    if (is_in_place && !d->is_preparing) return advance_in_place(d, op, err);
    issue s = begin(d, "advance");
    RP_TRY(add_integers(&s, &op->in[0], RP_TT_I32, err));
    add_int(&s.call, op->p.advance.step);
    RP_TRY(add_out(&s, &op->out[0], err));
    RP_TRY(send(&s, err));
    return bind(&s, op, RP_TT_I32, err);
}

/* A tensor that stays, to be written by the op; of no account while preparing. */
static rp_status add_written(issue *s, const rp_tensor *t, rp__tt_form form, rp_error *err) {
    rp__ttnn_id *id = &s->call.in[s->call.n_in++];
    const int64_t flat[] = {1, rp__tensor_elems(t)};
    if (t->buffer) {
        for (rp__tt_value *v; !s->d->is_preparing && (v = rp__tt_find_value(t));)
            rp__tt_unbind(s->d, rp__tt_buffer_of(t), (int)(v - rp__tt_buffer_of(t)->values));
        RP_TRY(rp__tt_resident_get(s->d, t, NULL, form, id, err));
    }
    if (!s->d->is_preparing) return rp__tt_resident_changed(s->d, t, err);
    return make_stand_in(s->d, form == RP_TT_U32 ? flat : t->dim, 2, form, NULL, 0, id, err);
}

static rp_status run_feed(rp__tt *d, const rp_op *op, rp_error *err) {
    issue s = begin(d, "feed");
    RP_TRY(add_integers(&s, &op->in[0], RP_TT_U32, err));
    RP_TRY(add_integers(&s, &op->in[1], RP_TT_U32_ROWS, err));
    RP_TRY(add_written(&s, &op->out[0], RP_TT_U32, err));
    RP_TRY(add_written(&s, &op->out[1], RP_TT_U32_ROWS, err));
    return send(&s, err);
}

static rp_status run_op(rp__tt *d, const rp_op *op, rp_error *err) {
    switch (op->kind) {
    case RP_OP_EMBED:
        return run_embed(d, op, err);
    case RP_OP_RMS_NORM:
    case RP_OP_LAYER_NORM:
        return run_norm(d, op, err);
    case RP_OP_MATMUL:
        return run_matmul(d, op, err);
    case RP_OP_ROPE:
        return run_rope(d, op, err);
    case RP_OP_KV_WRITE:
        return run_kv_write(d, op, err);
    case RP_OP_ATTENTION:
        return run_attention(d, op, err);
    case RP_OP_GATHER_ROWS:
        return run_gather_rows(d, op, err);
    case RP_OP_ARGMAX:
        return run_argmax(d, op, err);
    case RP_OP_ADVANCE:
        return run_advance(d, op, err);
    case RP_OP_FEED:
        return run_feed(d, op, err);
    case RP_OP_GATED:
        return run_plain(d, op, "gated", err);
    case RP_OP_ACT:
        return run_plain(d, op, "act", err);
    case RP_OP_ADD:
        return run_plain(d, op, "add", err);
    case RP_OP_MUL:
        return run_plain(d, op, "mul", err);
    case RP_OP_SCALE:
        return run_plain(d, op, "scale", err);
    case RP_OP_SOFTCAP:
        return run_plain(d, op, "softcap", err);
    default:
        return rp__fail(err, RP_EUNSUPPORTED, "the tenstorrent device does not run this op");
    }
}

rp_status rp__tt_run(void *self, uint32_t queue, const rp_op *op, rp_error *err) {
    rp__tt *d = self;
    (void)queue;
    rp_status st = run_op(d, op, err);
    rp__tt_send_garbage(d);
    return st;
}

rp_status rp__tt_prepare(void *self, const rp_op *op, rp_error *err) {
    rp__tt *d = self;
    d->is_preparing = true;
    rp_status st = rp__tt_run(self, 0, op, err);
    d->is_preparing = false;
    rp_status done =
        rp__ttnn_ask(d->ttnn, &(rp__ttnn_call){.function = "sync"}, NULL, 0, st < 0 ? NULL : err);
    return st < 0 ? st : done;
}
