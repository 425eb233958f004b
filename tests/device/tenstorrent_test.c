/* The tenstorrent device, on a stand-in for ttnn that has ttnn's rules (tests/tenstorrent/fake), or
 * on the real one (tests/device/ttnn.h). That the contract of captures holds there is shown by
 * capture_test.c and stress_test.c, which run on every device; that its numbers are right, here; whole models, in
 * tenstorrent_model_test.c. */
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
 */
static const double bf16_eps = 1.0 / 64;

RP_TEST(tenstorrent, corpus) {
    RP_NEED_TTNN();
    rp_device *dev = open_ttnn();
    rp_corpus_options o = {
        .filter = getenv("RP_TEST_OPS"), .precision = CORPUS_FLOAT, .eps = bf16_eps};
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
