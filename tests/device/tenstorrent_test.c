/* The tenstorrent device, on a stand-in for ttnn that has ttnn's rules (tests/tenstorrent/fake), or
 * on the real one (tests/device/ttnn.h). That the contract of captures holds there is shown by
 * capture_test.c and stress_test.c, which run on every device; that its numbers are right, here. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "device/fixture.h"
#include "device/ttnn.h"
#include "model/tiny.h"
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
        for (int round = 0; round < 2; round++)
            for (int i = 0; i < 2; i++) check_replay(graph[i], &p[i]);
        rp__graph_destroy(graph[order]);
        check_replay(graph[!order], &p[!order]);
        rp__graph_destroy(graph[!order]);
        for (int i = 0; i < 2; i++) drop_product(&p[i]);
    }
    rp__device_close(dev);
}

/* ---- models ---- */

/* Against float32 logits whose spread is 1 to 3 (tests/model/tiny_test.py): what rounding every
 * intermediate to BF16 costs through two layers. */
static const double logit_bound = 0.3;

static rp_tiny_config ttnn_model(const char *path) {
    rp_tiny_config c = rp_tiny_default(path);
    c.device = "tenstorrent";
    c.device_options = rp_test_ttnn();
    c.block_size = 32;
    c.kv_type = RP_BF16;
    c.max_seqs = 2;
    c.max_tokens = 16;
    return c;
}

static int likeliest(const float *row, int n) {
    int best = 0;
    for (int i = 1; i < n; i++)
        if (row[i] > row[best]) best = i;
    return best;
}

typedef struct agreement {
    double worst;        /* largest difference of a logit */
    int n_rows, n_other; /* rows whose likeliest token is another, */
    double widest;       /* and by how much the wanted one led there at most */
} agreement;

static agreement compare(const float *found, const float *wanted, int n, int n_vocab) {
    agreement a = {.n_rows = n};
    for (int i = 0; i < n; i++, found += n_vocab, wanted += n_vocab) {
        for (int v = 0; v < n_vocab; v++) {
            double d = fabs((double)found[v] - (double)wanted[v]);
            if (!(d <= a.worst)) a.worst = d;
        }
        int f = likeliest(found, n_vocab), w = likeliest(wanted, n_vocab);
        if (f == w) continue;
        a.n_other++;
        a.widest = fmax(a.widest, (double)wanted[w] - (double)wanted[f]);
    }
    return a;
}

/* A row's likeliest token may be another only where two were nearly as likely. */
static void check_agreement(const char *what, agreement a, double bound) {
    print_message("%s: largest difference %.4f, another likeliest token in %d of %d rows, where "
                  "the lead was at most %.4f\n",
                  what, a.worst, a.n_other, a.n_rows, a.widest);
    assert_true(a.worst < bound);
    assert_true(a.widest < 0.1);
    assert_true(a.n_other <= a.n_rows / 10);
}

/* The prompt in chunks of 16 (prefill), the rest token by token (decode). */
static void check_model(const char *model, const char *golden) {
    rp_golden g;
    rp_golden_open(&g, golden);
    rp_tiny_config c = ttnn_model(model);
    rp_tiny t;
    rp_tiny_open(&t, &c);
    int n = rp_test_ttnn_is_real() ? 18 : g.n;
    size_t size = (size_t)n * (size_t)g.n_vocab;
    float *logits = rp__calloc(size, sizeof *logits);
    int32_t *ids = g.ids;
    rp_tiny_feed(&t, 1, (const int32_t *[]){ids}, n, 2, (float *[]){logits});
    check_agreement(model, compare(logits, g.logits, n, g.n_vocab), logit_bound);
    rp_tiny_feed(&t, 1, (const int32_t *[]){ids}, n, 1, (float *[]){logits});
    check_agreement("  token by token", compare(logits, g.logits, n, g.n_vocab), logit_bound);
    assert_true(t.stepper.replay.stats.n_replays > 0);
    rp__free(logits);
    rp__free(g.logits);
    rp_tiny_close(&t);
}

RP_TEST(tenstorrent, llama) {
    RP_NEED_TTNN();
    check_model("fixtures/tiny/llama3", "fixtures/tiny/llama3");
    if (rp_test_ttnn_is_real()) return;
    check_model("fixtures/tiny/llama3-bf16.gguf", "fixtures/tiny/llama3-bf16");
    check_model("fixtures/tiny/smollm2.gguf", "fixtures/tiny/smollm2");
}

RP_TEST(tenstorrent, qwen3) {
    RP_NEED_TTNN();
    check_model("fixtures/tiny/qwen3", "fixtures/tiny/qwen3");
}

RP_TEST(tenstorrent, mistral) {
    RP_NEED_TTNN();
    check_model("fixtures/tiny/mistral", "fixtures/tiny/mistral");
}

RP_TEST(tenstorrent, internlm2) {
    RP_NEED_TTNN();
    check_model("fixtures/tiny/internlm2", "fixtures/tiny/internlm2");
}

/* Tokens of no meaning, the same on every device. */
static void make_ids(int32_t *ids, int n, int seed) {
    for (int i = 0; i < n; i++) ids[i] = (i * 37 + seed * 11 + i * i % 7) % 250;
}

static void feed(const rp_tiny_config *c, int n_seqs, int n, int chunk, float **out,
                 rp__replay_stats *stats) {
    rp_tiny t;
    int32_t ids[2][256];
    rp_tiny_open(&t, c);
    for (int s = 0; s < n_seqs; s++) make_ids(ids[s], n, s);
    rp_tiny_feed(&t, n_seqs, (const int32_t *[]){ids[0], ids[1]}, n, chunk, out);
    *stats = t.stepper.replay.stats;
    rp_tiny_close(&t);
}

static float *logits_of(const rp_tiny_config *c, int n_seqs, int n, rp__replay_stats *stats) {
    enum { VOCAB = 272 };
    size_t rows = (size_t)n * VOCAB;
    float *out = rp__calloc(2 * rows, sizeof *out);
    feed(c, n_seqs, n, 1, (float *[]){out, out + rows}, stats);
    return out;
}

/* One trace, 200 replays in a row, over the borders of blocks: no drift away from the CPU. */
RP_TEST(tenstorrent, two_hundred_replays_across_blocks) {
    enum { STEPS = 202, VOCAB = 272 };
    RP_NEED_TTNN();
    if (rp_test_ttnn_is_real()) RP_SKIP("too long for the simulator");
    rp__replay_stats stats;
    rp_tiny_config on_cpu = rp_tiny_default("fixtures/tiny/llama3"), c = ttnn_model(on_cpu.path);
    on_cpu.n_ctx = c.n_ctx = 256;
    float *wanted = logits_of(&on_cpu, 1, STEPS, &stats), *found = logits_of(&c, 1, STEPS, &stats);
    assert_true(stats.n_replays >= 200);
    assert_int_equal(stats.n_captures, 1);
    check_agreement("200 replays", compare(found, wanted, STEPS, VOCAB), logit_bound);
    rp__free(wanted);
    rp__free(found);
}

/* Two sequences side by side, then one alone, then two again: two traces alive, taking turns, and
 * positions that are right after each change. */
RP_TEST(tenstorrent, two_step_sizes_take_turns) {
    enum { STEPS = 40, VOCAB = 272 };
    RP_NEED_TTNN();
    if (rp_test_ttnn_is_real()) RP_SKIP("too long for the simulator");
    rp__replay_stats stats;
    rp_tiny_config on_cpu = rp_tiny_default("fixtures/tiny/qwen3"), c = ttnn_model(on_cpu.path);
    size_t size = STEPS * VOCAB;
    float *wanted = logits_of(&on_cpu, 2, STEPS, &stats),
          *found = rp__calloc(2 * size, sizeof *found);
    rp_tiny t;
    int32_t ids[2][256];
    for (int s = 0; s < 2; s++) make_ids(ids[s], STEPS, s);
    rp_tiny_open(&t, &c);
    for (int round = 0; round < 3; round++)
        for (int n_seqs = 1; n_seqs <= 2; n_seqs++) {
            float *out[] = {found, found + size};
            rp_tiny_feed(&t, n_seqs, (const int32_t *[]){ids[0], ids[1]}, STEPS / 2, 1, out);
            for (int s = 0; s < n_seqs; s++) {
                agreement a = compare(out[s], wanted + (size_t)s * size, STEPS / 2, VOCAB);
                check_agreement(n_seqs == 1 ? "alone" : "two", a, logit_bound);
            }
        }
    assert_int_equal(t.stepper.replay.stats.n_captures, 2);
    assert_int_equal(rp__device_get_stats(t.device).live_graphs, 2);
    rp_tiny_close(&t);
    rp__free(wanted);
    rp__free(found);
}

/* What crosses between host and device per replayed step: inputs in, logits out, nothing else. */
RP_TEST(tenstorrent, a_decode_step_writes_its_inputs_and_reads_its_logits) {
    RP_NEED_TTNN();
    rp_tiny_config c = ttnn_model("fixtures/tiny/llama3");
    rp_tiny t;
    int32_t ids[8];
    float *out = rp__calloc(8 * 272, sizeof *out);
    make_ids(ids, 8, 3);
    rp_tiny_open(&t, &c);
    rp_tiny_feed(&t, 1, (const int32_t *[]){ids}, 8, 1, &out);
    rp__device_stats before = rp__device_get_stats(t.device);
    rp_tiny_feed(&t, 1, (const int32_t *[]){ids}, 8, 1, &out);
    rp__device_stats after = rp__device_get_stats(t.device);
    assert_int_equal(after.n_replays - before.n_replays, 8);
    assert_int_equal(after.n_writes - before.n_writes, 8);
    assert_int_equal(after.n_reads - before.n_reads, 8);
    assert_int_equal(after.n_ops, before.n_ops);
    assert_int_equal(after.n_allocs, before.n_allocs);
    rp_tiny_close(&t);
    rp__free(out);
}

/* Block floats of 8 bits: coarser weights, the same answers but for what they round. */
RP_TEST(tenstorrent, weights_as_block_floats) {
    enum { STEPS = 24, VOCAB = 272 };
    RP_NEED_TTNN();
    if (rp_test_ttnn_is_real()) RP_SKIP("too long for the simulator");
    rp__replay_stats stats;
    char options[600];
    rp_tiny_config on_cpu = rp_tiny_default("fixtures/tiny/llama3"), c = ttnn_model(on_cpu.path);
    float *wanted = logits_of(&on_cpu, 1, STEPS, &stats);
    static const struct {
        const char *type;
        double bound;
    } types[] = {{"bfloat8_b", 0.3}, {"bfloat4_b", 4}};
    for (int i = 0; i < 2; i++) {
        snprintf(options, sizeof options, "%s,weights=%s", rp_test_ttnn(), types[i].type);
        c.device_options = options;
        float *found = logits_of(&c, 1, STEPS, &stats);
        agreement a = compare(found, wanted, STEPS, VOCAB);
        print_message("%s: largest difference %.4f, another likeliest token in %d of %d rows\n",
                      types[i].type, a.worst, a.n_other, a.n_rows);
        assert_true(a.worst < types[i].bound);
        rp__free(found);
    }
    rp__free(wanted);
}
