/* The tenstorrent device, on a stand-in for ttnn that has ttnn's rules (tests/tenstorrent/fake), or
 * on the real one (tests/device/ttnn.h). That the contract of captures holds there is shown by
 * capture_test.c and stress_test.c, which run on every device; that its numbers are right, here; whole models, in
 * tenstorrent_model_test.c. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "device/fixture.h"
#include "device/ttnn.h"
#include "op/corpus.h"
#include "tensor/view.h"

static rp_device *open_ttnn(void) {
    return open_named("tenstorrent", rp_test_ttnn());
}

/* ---- opening ---- */

static void check_refusal(const char *options, rp_status status, const char *wanted) {
    rp_error err = {0};
    rp_device *dev;
    rp_device_config config = {.bytes = sizeof config, .options = options};
    assert_int_equal(rp__device_open("tenstorrent", &config, &dev, &err), status);
    assert_message(err, wanted);
    assert_null(dev);
}

RP_TEST(tenstorrent, says_what_is_missing) {
    RP_NEED_TTNN();
    check_refusal("python=/nowhere/python", RP_ENOTFOUND, "\"/nowhere/python\" cannot be started");
    check_refusal("weights=q4", RP_EINVAL, "bf16, bfloat8_b or bfloat4_b");
    check_refusal("speed=9", RP_EINVAL, "no option \"speed\"");
    if (rp_test_ttnn_is_real()) return;
    unsetenv("PYTHONPATH");
    check_refusal(rp_test_ttnn(), RP_ENOTFOUND, "has no ttnn");
    setenv("PYTHONPATH", RP_TESTS_DIR "/tenstorrent/fake", 1);
}

RP_TEST(tenstorrent, describes_itself) {
    RP_NEED_TTNN();
    rp_device *dev = open_ttnn();
    const rp_device_properties *p = rp__device_props(dev);
    assert_non_null(strstr(p->description, "grid "));
    assert_non_null(strstr(p->description, "ttnn "));
    assert_true(p->memory_bytes > 0 && p->has_capture && p->records_only && p->hides_temporaries);
    rp__device_close(dev);
}

/* ---- ops ---- */

/* BF16 keeps 8 bits of a number: an op rounds some of what it makes on its way, and what it gives.
 * ttnn's attention weighs by an exponential that is off by a factor of up to 1 +- d, d = 0.0299. The
 * result is then off by at most d / (1 - d) times the mean distance of the values from it, which no
 * values have larger than the largest of them: 0.0308 of that. Its last bits depend on how many
 * cores share a head, and so on the number of rows. */
static const corpus_coarse bf16 = {
    .eps = 1.0 / 64, .attention_eps = 1.0 / 64 + 1.0 / 32, .attention_varies = true};

RP_TEST(tenstorrent, corpus) {
    RP_NEED_TTNN();
    rp_device *dev = open_ttnn();
    rp_corpus_options o = {
        .filter = getenv("RP_TEST_OPS"), .precision = CORPUS_FLOAT, .coarse = bf16};
    rp_corpus_result r;
    rp_corpus_is_bf16 = true;
    rp_corpus_run(dev, &o, &r);
    rp_corpus_is_bf16 = false;
    print_message("%zu cases, %zu not supported, %zu failed\n", r.n_run, r.n_unsupported,
                  r.n_failed);
    assert_true(r.n_run > 0);
    assert_int_equal(r.n_failed, 0);
    rp__device_close(dev);
}

/* ---- what no token sees ---- */

enum { S = 32, D = 32, N_BLOCKS = 2, N_SEEN = 3 };

/* Keys of 0 and values of 1 at what is seen of block 1; behind it `key`, which a sequence left there
 * that had the block before. */
static void write_block(rp_device *dev, rp_buffer *kc, rp_buffer *vc, float key, rp_rows rows) {
    rp_error err = {0};
    const int64_t n = rows == RP_ROWS_PROMPT ? S : N_SEEN + 1, heads[] = {n, 1, D},
                  cache[] = {N_BLOCKS, 1, S, D};
    float k[S * D] = {0}, v[S * D];
    int32_t slots[S];
    for (int i = 0; i < S * D; i++) v[i] = i < N_SEEN * D ? 1 : 9;
    for (int i = N_SEEN * D; i < S * D; i++) k[i] = key;
    for (int i = 0; i < S; i++) slots[i] = S + i;
    rp_buffer *in[] = {make_buffer(dev, "k", sizeof k, true), make_buffer(dev, "v", sizeof v, true),
                       make_buffer(dev, "slots", sizeof slots, true)};
    put(in[0], k, sizeof k), put(in[1], v, sizeof v), put(in[2], slots, sizeof slots);
    rp_op op = {.kind = RP_OP_KV_WRITE, .n_in = 3, .n_out = 2};
    for (int i = 0; i < 2; i++) {
        op.in[i] = rp__tensor_make(in[i], 0, RP_F32, 3, heads);
        op.out[i] = rp__tensor_make(i ? vc : kc, 0, RP_F32, 4, cache);
    }
    op.in[2] = i32_vector(in[2], n);
    op.p.kv_write.rows = rows;
    assert_ok(rp__device_run(dev, &op, &err), err);
    for (int i = 0; i < 3; i++) drop_buffer(in[i]);
}

/* Attention of one token over what is seen of block 1: the mean of ones. */
static void check_seen(rp_device *dev, rp_buffer *kc, rp_buffer *vc) {
    rp_error err = {0};
    const int64_t heads[] = {1, 1, D}, cache[] = {N_BLOCKS, 1, S, D};
    const int32_t numbers[] = {1, 0, N_SEEN - 1}; /* the table, its row, the position */
    float q[D], y[D];
    for (int i = 0; i < D; i++) q[i] = 4;
    rp_buffer *buf[] = {make_buffer(dev, "q", sizeof q, true), make_buffer(dev, "table", 4, true),
                        make_buffer(dev, "seq", 4, true), make_buffer(dev, "pos", 4, true),
                        make_buffer(dev, "y", sizeof y, true)};
    put(buf[0], q, sizeof q);
    for (int i = 0; i < 3; i++) put(buf[1 + i], &numbers[i], sizeof numbers[i]);
    rp_op op = {.kind = RP_OP_ATTENTION,
                .n_in = 6,
                .n_out = 1,
                .in = {rp__tensor_make(buf[0], 0, RP_F32, 3, heads),
                       rp__tensor_make(kc, 0, RP_F32, 4, cache),
                       rp__tensor_make(vc, 0, RP_F32, 4, cache),
                       rp__tensor_make(buf[1], 0, RP_I32, 2, (int64_t[]){1, 1}),
                       i32_vector(buf[2], 1), i32_vector(buf[3], 1)},
                .out = {rp__tensor_make(buf[4], 0, RP_F32, 3, heads)}};
    op.p.attention.scale = 1;
    assert_ok(rp__device_run(dev, &op, &err), err);
    get(buf[4], y, sizeof y);
    for (int i = 0; i < D; i++) assert_true(fabsf(y[i] - 1) <= 1.0f / 64); /* no NaN either */
    for (int i = 0; i < 5; i++) drop_buffer(buf[i]);
}

/* A sequence whose numbers overflow does not reach the one that gets its blocks. */
RP_TEST(tenstorrent, keys_that_are_no_numbers_are_not_seen) {
    RP_NEED_TTNN();
    const float keys[] = {NAN, INFINITY, -INFINITY, 1e38f};
    rp_device *dev = open_ttnn();
    const size_t bytes = sizeof(float) * N_BLOCKS * S * D;
    rp_buffer *kc = make_buffer(dev, "keys", bytes, true),
              *vc = make_buffer(dev, "values", bytes, true);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        write_block(dev, kc, vc, keys[i], RP_ROWS_MIXED);
        check_seen(dev, kc, vc);
        write_block(dev, kc, vc, keys[i], RP_ROWS_PROMPT);
        check_seen(dev, kc, vc);
    }
    drop_buffer(kc);
    drop_buffer(vc);
    rp__device_close(dev);
}

/* ---- capture ---- */

enum { T = 4, K = 64, N = 32 };

typedef struct product {
    rp_buffer *x, *w, *y;
    rp_op op;
    float warm[T * N];
} product;

static void write_product(product *p, int seed) {
    float x[T * K];
    for (int i = 0; i < T * K; i++) x[i] = (float)((i * 7 + seed * 3) % 11 - 5) / 4;
    put(p->x, x, sizeof x);
}

static product make_product(rp_device *dev) {
    rp_error err = {0};
    product p = {.x = make_buffer(dev, "x", T * K * sizeof(float), true),
                 .y = make_buffer(dev, "y", T * N * sizeof(float), true)};
    rp_tensor desc = f32_matrix(NULL, N, K);
    desc.is_weight = 1;
    p.w = make_buffer(dev, "w", rp__weight_bytes(dev, &desc), true);
    p.op = op_matmul(p.x, p.w, p.y, T, N, K);
    float w[N * K];
    for (int i = 0; i < N * K; i++) w[i] = (float)((i * 5) % 13 - 6) / 8;
    assert_ok(rp__weight_write(&p.op.in[1], 0, N, w, &err), err);
    return p;
}

/* The warm result of inputs `seed`, and then a replay that must have the same bits. */
static void warm_up(rp_device *dev, product *p, int seed) {
    rp_error err = {0};
    write_product(p, seed);
    assert_ok(rp__device_run(dev, &p->op, &err), err);
    get(p->y, p->warm, sizeof p->warm);
}

static void check_replay(rp_graph *graph, product *p) {
    rp_error err = {0};
    float y[T * N];
    assert_ok(rp__graph_replay(graph, &err), err);
    get(p->y, y, sizeof y);
    assert_memory_equal(y, p->warm, sizeof y);
}

static void drop_product(product *p) {
    drop_buffer(p->x);
    drop_buffer(p->w);
    drop_buffer(p->y);
}

RP_TEST(tenstorrent, replays_have_the_bits_of_the_warm_run) {
    RP_NEED_TTNN();
    rp_device *dev = open_ttnn();
    product p = make_product(dev);
    warm_up(dev, &p, 1);
    rp_graph *graph = capture_ops(dev, "product", &p.op, 1);
    for (int i = 0; i < 3; i++) check_replay(graph, &p);
    for (int seed = 2; seed < 5; seed++) {
        warm_up(dev, &p, seed); /* eager beside the live trace */
        write_product(&p, seed);
        check_replay(graph, &p);
    }
    assert_true(rp__graph_bytes(graph) > 0);
    rp__graph_destroy(graph);
    drop_product(&p);
    rp__device_close(dev);
}

RP_TEST(tenstorrent, two_handles_destroyed_in_either_order) {
    RP_NEED_TTNN();
    rp_device *dev = open_ttnn();
    for (int order = 0; order < 2; order++) {
        product p[2] = {make_product(dev), make_product(dev)};
        rp_graph *graph[2];
        for (int i = 0; i < 2; i++) warm_up(dev, &p[i], 7 + i);
        for (int i = 0; i < 2; i++) graph[i] = capture_ops(dev, i ? "b" : "a", &p[i].op, 1);
        assert_int_equal(rp__graph_bytes(graph[1]), rp__graph_bytes(graph[0])); /* each its own */
        for (int round = 0; round < 2; round++)
            for (int i = 0; i < 2; i++) check_replay(graph[i], &p[i]);
        rp__graph_destroy(graph[order]);
        check_replay(graph[!order], &p[!order]);
        rp__graph_destroy(graph[!order]);
        for (int i = 0; i < 2; i++) drop_product(&p[i]);
    }
    rp__device_close(dev);
}
