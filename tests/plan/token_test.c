/* One token through 28 layers on the P150-like profile, through the real plan: on the card alone
 * and with norm and rope on the host, op by op and replayed. */
#include <stdio.h>

#include "plan/replay.h"
#include "tensor/view.h"
#include "test.h"

/* Qwen3-0.6B's layers with narrow matrices: on this card launches cost more than work. The ops are
 * those of the program that was measured: nothing fused. */
enum { WIDTH = 64, HEADS = 16, KV_HEADS = 8, HEAD = 8, FFN = 96, LAYERS = 28, BYTES = 64 << 10 };

typedef struct token {
    rp_device *device;
    rp__host host;
    rp_buffer *weights, *copies; /* zeros: the times are asked for, not the values */
    rp_tensor width_norm, head_norm, q, kv, o, up, down, cs, cache, host_copy[3];
    rp__placement placement;
    rp__program program;
    rp_buffer *buffers[2][3];
    rp__replayer replay;
} token;

static rp_tensor weight(const token *t, int n_dims, const int64_t *dim) {
    rp_tensor w = rp__tensor_make(t->weights, 0, RP_F32, n_dims, dim);
    w.is_weight = n_dims == 2;
    return w;
}

static rp_buffer *zeros(rp_device *device, const char *name, size_t bytes) {
    static const char none[BYTES];
    rp_error err = {0};
    rp_buffer *b;
    if (!bytes) return NULL;
    assert_ok(rp__buffer_create(device, name, bytes, true, &b, &err), err);
    for (size_t at = 0; at < bytes; at += sizeof none)
        assert_ok(rp__buffer_write(b, at, none, bytes - at < BYTES ? bytes - at : BYTES, &err),
                  err);
    return b;
}

static const rp_tensor *copy_of(void *user, const rp_tensor *w, rp_device *host) {
    token *t = user;
    int i = w == &t->width_norm ? 0 : w == &t->head_norm ? 1 : 2;
    assert_true(i < 2 || w == &t->cs);
    if (!t->copies) t->copies = zeros(host, "copies", BYTES);
    t->host_copy[i] = *w;
    t->host_copy[i].buffer = t->copies;
    return &t->host_copy[i];
}

static void make_weights(token *t) {
    t->width_norm = weight(t, 1, (int64_t[]){WIDTH});
    t->head_norm = weight(t, 1, (int64_t[]){HEAD});
    t->q = weight(t, 2, (int64_t[]){HEADS * HEAD, WIDTH});
    t->kv = weight(t, 2, (int64_t[]){KV_HEADS * HEAD, WIDTH});
    t->o = weight(t, 2, (int64_t[]){WIDTH, HEADS * HEAD});
    t->up = weight(t, 2, (int64_t[]){FFN, WIDTH});
    t->down = weight(t, 2, (int64_t[]){WIDTH, FFN});
    t->cs = rp__tensor_make(t->weights, 0, RP_F32, 2, (int64_t[]){1, HEAD});
    t->cache = rp__tensor_make(t->weights, 0, RP_F32, 4, (int64_t[]){1, KV_HEADS, 16, HEAD});
}

/* ---- the program ---- */

static rp__slot apply(token *t, rp_op op, rp__slot x, rp__slot with, int64_t width) {
    rp__program *p = &t->program;
    rp__slot y = rp__program_temp(p, "y", RP_F32, 2, (int64_t[]){1, width});
    rp__program_op(p, &op, 2, (rp__slot[]){x, with}, 1, &y);
    return y;
}

static rp__slot matmul(token *t, rp__slot x, const rp_tensor *w) {
    return apply(t, (rp_op){.kind = RP_OP_MATMUL}, x, rp__program_const(&t->program, "w", w),
                 w->dim[0]);
}

static rp__slot norm(token *t, rp__slot x) {
    return apply(t, (rp_op){.kind = RP_OP_RMS_NORM}, x,
                 rp__program_const(&t->program, "norm", &t->width_norm), WIDTH);
}

/* x by heads, normed over each, rotated. */
static rp__slot norm_and_rope(token *t, rp__slot x, int64_t heads) {
    rp__program *p = &t->program;
    rp_op rms = {.kind = RP_OP_RMS_NORM}, rope = {.kind = RP_OP_ROPE};
    const int64_t dim[] = {1, heads, HEAD};
    rp__slot y = rp__program_temp(p, "heads", RP_F32, 3, dim);
    x = rp__program_reshape(p, x, 3, dim);
    rp__program_op(p, &rms, 2, (rp__slot[]){x, rp__program_const(p, "norm", &t->head_norm)}, 1, &y);
    rp__program_op(p, &rope, 2, (rp__slot[]){y, rp__program_const(p, "cs", &t->cs)}, 1, &y);
    return y;
}

static rp__slot attention(token *t, rp__slot q, rp__slot k, rp__slot v, rp__slot ids) {
    rp__program *p = &t->program;
    rp_op write = {.kind = RP_OP_KV_WRITE}, op = {.kind = RP_OP_ATTENTION, .p.attention.scale = 1};
    rp__slot table = rp__program_reshape(p, ids, 2, (int64_t[]){1, 1});
    rp__slot cache[] = {rp__program_state(p, "k", &t->cache), rp__program_state(p, "v", &t->cache)};
    p->slots[cache[1]].tensor.offset = BYTES / 2;
    rp__slot y = rp__program_temp(p, "att", RP_F32, 3, (int64_t[]){1, HEADS, HEAD});
    v = rp__program_reshape(p, v, 3, (int64_t[]){1, KV_HEADS, HEAD});
    rp__program_op(p, &write, 3, (rp__slot[]){k, v, ids}, 2, cache);
    rp__program_op(p, &op, 6, (rp__slot[]){q, cache[0], cache[1], table, ids, ids}, 1, &y);
    return rp__program_reshape(p, y, 2, (int64_t[]){1, HEADS * HEAD});
}

static rp__slot layer(token *t, rp__slot x, rp__slot ids) {
    const rp_op add = {.kind = RP_OP_ADD}, gated = {.kind = RP_OP_GATED};
    rp__slot h = norm(t, x);
    rp__slot q = matmul(t, h, &t->q), k = matmul(t, h, &t->kv), v = matmul(t, h, &t->kv);
    q = norm_and_rope(t, q, HEADS);
    k = norm_and_rope(t, k, KV_HEADS);
    x = apply(t, add, x, matmul(t, attention(t, q, k, v, ids), &t->o), WIDTH);
    h = norm(t, x);
    rp__slot gate = matmul(t, h, &t->up), up = matmul(t, h, &t->up);
    return apply(t, add, x, matmul(t, apply(t, gated, gate, up, FFN), &t->down), WIDTH);
}

static void open_token(token *t, const char *rules) {
    rp_error err = {0};
    rp_device_config c = {.bytes = sizeof c, .options = "profile=p150-hybrid"};
    rp__replay_config policy = {.mode = RP_CAPTURE_AUTO, .max_graphs = 2};
    *t = (token){.host = {.config = {.bytes = sizeof c, .n_threads = 1}, .copy_of = copy_of}};
    t->host.user = t;
    assert_ok(rp__device_open("emu", &c, &t->device, &err), err);
    t->weights = zeros(t->device, "weights", BYTES);
    make_weights(t);
    rp__program *p = &t->program;
    rp__program_init(p, t->device, &(rp__bucket){RP_BUCKET_DECODE, 1, 1, 1});
    assert_ok(rp__placement_add(&t->placement, rules, RP_PLACE_DEVICE_RULE, &err), err);
    rp__program_place(p, &t->placement, &t->host);
    const int64_t one = 1, dim[] = {1, WIDTH};
    rp__slot x = rp__program_input(p, "x", RP_F32, 2, dim),
             ids = rp__program_input(p, "ids", RP_I32, 1, &one);
    for (int i = 0; i < LAYERS; i++) x = layer(t, x, ids);
    assert_ok(rp__program_finish(p, &err), err);
    rp__side_memory m[RP_N_SIDES];
    for (int s = 0; s < RP_N_SIDES; s++) {
        rp_device *on = s ? t->host.device : t->device;
        m[s] = (rp__side_memory){zeros(on, "arena", p->bytes[s].arena),
                                 zeros(on, "in", p->bytes[s].inputs), NULL};
        t->buffers[s][0] = m[s].arena;
        t->buffers[s][1] = m[s].inputs;
    }
    assert_ok(rp__program_bind(p, m, &err), err);
    assert_ok(rp__replayer_init(&t->replay, t->device, &policy, &err), err);
}

static void close_token(token *t) {
    rp__replayer_clear(&t->replay);
    rp__program_clear(&t->program);
    rp__placement_clear(&t->placement);
    for (int i = 0; i < 4; i++) rp__buffer_destroy(t->buffers[i / 2][i % 2], NULL);
    rp__buffer_destroy(t->copies, NULL);
    rp__buffer_destroy(t->weights, NULL);
    rp__host_close(&t->host);
    rp__device_close(t->device);
}

static rp__replay_report measure_token(token *t) {
    rp_error err = {0};
    rp__replay_report r;
    double samples[9];
    assert_ok(rp__replayer_measure(&t->replay, &t->program, 3, samples, &r, &err), err);
    return r;
}

/* 10.7 tokens/s eagerly on the card alone, 12.5 with norm and rope on the host, 27.1 captured: the
 * profile gives that order, and each within a third. */
RP_TEST(placement, one_token_on_the_p150_profile) {
    static token card, both;
    open_token(&card, "");
    open_token(&both, rp__device_props(card.device)->host_rules);
    assert_int_equal(card.program.n_segments, 1);
    assert_int_equal(both.program.traffic.n_host_ops, LAYERS * 6);
    assert_int_equal(both.program.traffic.n_downloads,
                     LAYERS * 4 - 1); /* the first x is an input */
    assert_int_equal(both.program.traffic.n_uploads, LAYERS * 4);
    rp__replay_report free_of_host = measure_token(&card), hybrid = measure_token(&both);
    print_message("one token, simulated: host-free eager %.0f ms, replayed %.0f ms; hybrid eager "
                  "%.0f ms, replayed in pieces %.0f ms\n",
                  free_of_host.eager_us / 1e3, free_of_host.replay_us / 1e3, hybrid.eager_us / 1e3,
                  hybrid.replay_us / 1e3);
    assert_true(free_of_host.replay_us < hybrid.eager_us);
    assert_true(free_of_host.replay_us < hybrid.replay_us);
    assert_true(hybrid.eager_us < free_of_host.eager_us);
    assert_float_equal(free_of_host.eager_us, 1e6 / 10.7, 1e6 / 10.7 / 3);
    assert_float_equal(hybrid.eager_us, 1e6 / 12.5, 1e6 / 12.5 / 3);
    assert_float_equal(free_of_host.replay_us, 1e6 / 27.1, 1e6 / 27.1 / 3);
    close_token(&card);
    close_token(&both);
}
