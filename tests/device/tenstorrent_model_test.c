/* Models on the tenstorrent device against float32: logits, traces that take turns, what crosses
 * per step. On the stand-in for ttnn, or on the real one (device/ttnn.h), where some are cut short.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "device/ttnn.h"
#include "engine/answer.h"
#include "engine/engine_impl.h"
#include "model/tiny.h"
#include "test.h"

/* Against float32 logits whose spread is 1 to 3 (tests/model/tiny_test.py): what rounding every
 * intermediate to BF16 and attention's approximate exponential cost through two layers. */
typedef struct bounds {
    double logit, tie; /* largest difference; lead of the wanted token where another one wins */
    int one_in;        /* rows, of which another token may win in one */
} bounds;
static const bounds allowed = {0.4, 0.15, 5};

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
static void check_agreement(const char *what, agreement a) {
    print_message("%s: largest difference %.4f, another likeliest token in %d of %d rows, where "
                  "the lead was at most %.4f\n",
                  what, a.worst, a.n_other, a.n_rows, a.widest);
    assert_true(a.worst < allowed.logit);
    assert_true(a.widest < allowed.tie);
    assert_true(a.n_other <= a.n_rows / allowed.one_in);
}

/* A prompt of two chunks, of which the second is not whole, and an answer. */
static void check_answer(rp_tiny *t, const rp_golden *g, float *logits) {
    enum { PROMPT = 34 };
    int n = rp_test_ttnn_is_real() ? 38 : g->n;
    rp_tiny_answer(t, g->ids, PROMPT, n, 32, logits);
    const float *wanted = g->logits + (size_t)(PROMPT - 1) * (size_t)g->n_vocab;
    check_agreement("  prompt and answer", compare(logits, wanted, n - PROMPT + 1, g->n_vocab));
}

static void check_model(const char *model, const char *golden) {
    rp_golden g;
    rp_golden_open(&g, golden);
    rp_tiny_config c = ttnn_model(model);
    c.max_seqs = 1;
    c.max_tokens = 32;
    rp_tiny t;
    rp_tiny_open(&t, &c);
    float *logits = rp__calloc((size_t)g.n * (size_t)g.n_vocab, sizeof *logits);
    int n_rounds = rp_test_ttnn_is_real() ? 1 : 2; /* the second time the prompt is replayed too */
    print_message("%s\n", model);
    for (int round = 0; round < n_rounds; round++) check_answer(&t, &g, logits);
    assert_true(t.stepper.replay.stats.n_replays > 0);
    if (!rp_test_ttnn_is_real()) {
        rp_tiny_feed(&t, 1, (const int32_t *[]){g.ids}, g.n, 1, (float *[]){logits});
        check_agreement("  token by token", compare(logits, g.logits, g.n, g.n_vocab));
    }
    rp__free(logits);
    rp__free(g.logits);
    rp_tiny_close(&t);
}

RP_TEST(tenstorrent, llama) {
    RP_NEED_TTNN();
    check_model("fixtures/tiny/llama3", "fixtures/tiny/llama3");
    if (!rp_test_ttnn_is_real())
        check_model("fixtures/tiny/llama3-bf16.gguf", "fixtures/tiny/llama3-bf16");
}

RP_TEST(tenstorrent, smollm2) {
    RP_NEED_TTNN();
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

enum { VOCAB = 272, MAX_SEQS = 32 };

/* n tokens of each of the sequences, one per step; logits [n_seqs, n, V]. */
static void feed(rp_tiny *t, int n_seqs, int n, float *logits) {
    static int32_t ids[MAX_SEQS][256];
    const int32_t *in[MAX_SEQS];
    float *out[MAX_SEQS];
    for (int s = 0; s < n_seqs; s++) {
        make_ids(ids[s], n, s);
        in[s] = ids[s];
        out[s] = logits + (size_t)s * (size_t)n * VOCAB;
    }
    rp_tiny_feed(t, n_seqs, in, n, 1, out);
}

static float *logits_of(const rp_tiny_config *c, int n_seqs, int n, rp__replay_stats *stats) {
    rp_tiny t;
    float *out = rp__calloc((size_t)n_seqs * (size_t)n * VOCAB, sizeof *out);
    rp_tiny_open(&t, c);
    feed(&t, n_seqs, n, out);
    *stats = t.stepper.replay.stats;
    rp_tiny_close(&t);
    return out;
}

/* Batches of these sizes, one after the other, against the CPU. */
static void check_batches(rp_tiny *t, const rp_tiny_config *on_cpu, const int *sizes, int n_sizes,
                          int n) {
    rp__replay_stats stats;
    int most = 1;
    for (int i = 0; i < n_sizes; i++)
        if (sizes[i] > most) most = sizes[i];
    float *wanted = logits_of(on_cpu, most, n, &stats);
    float *found = rp__calloc((size_t)most * (size_t)n * VOCAB, sizeof *found);
    agreement all = {0};
    for (int i = 0; i < n_sizes; i++) {
        feed(t, sizes[i], n, found);
        agreement a = compare(found, wanted, sizes[i] * n, VOCAB);
        all.worst = fmax(all.worst, a.worst);
        all.widest = fmax(all.widest, a.widest);
        all.n_rows += a.n_rows;
        all.n_other += a.n_other;
    }
    check_agreement("batches", all);
    rp__free(wanted);
    rp__free(found);
}

/* Four traces alive, in changing order, with and without padding. */
RP_TEST(tenstorrent, batches_of_every_size) {
    RP_NEEDS_COUNTS();
    static const int sizes[] = {8, 1, 3, 2, 7, 4, 1, 5, 8, 2, 6, 3};
    RP_NEED_TTNN();
    rp_tiny_config on_cpu = rp_tiny_default("fixtures/tiny/llama3"), c = ttnn_model(on_cpu.path);
    c.max_seqs = 8;
    rp_tiny t;
    rp_tiny_open(&t, &c);
    check_batches(&t, &on_cpu, sizes, sizeof sizes / sizeof *sizes, 5);
    assert_int_equal(t.stepper.replay.stats.n_captures, 4);
    assert_int_equal(rp__device_get_stats(t.device).live_graphs, 4);
    assert_int_equal(t.stepper.replay.stats.n_recaptures, 0);
    rp_tiny_close(&t);
}

/* The sizes beyond, the largest of which takes a core for every sequence. */
RP_TEST(tenstorrent, batches_of_up_to_32) {
    RP_NEEDS_COUNTS();
    static const int sizes[] = {32, 17, 9, 32, 16};
    RP_NEED_TTNN();
    rp_tiny_config on_cpu = rp_tiny_default("fixtures/tiny/llama3"), c = ttnn_model(on_cpu.path);
    c.max_seqs = c.max_tokens = MAX_SEQS;
    c.n_blocks = MAX_SEQS + 2;
    rp_tiny t;
    rp_tiny_open(&t, &c);
    check_batches(&t, &on_cpu, sizes, sizeof sizes / sizeof *sizes, 3);
    assert_int_equal(t.stepper.replay.stats.n_refused, 0);
    rp_tiny_close(&t);
}

/* Room for one trace: each change of the batch captures again, and positions are right after it,
 * across the border of a block. */
RP_TEST(tenstorrent, captured_again_after_a_batch_change) {
    static const int sizes[] = {1, 2, 1, 2, 1};
    RP_NEED_TTNN();
    const int n_sizes = rp_test_ttnn_is_real() ? 3 : 5;
    rp_tiny_config on_cpu = rp_tiny_default("fixtures/tiny/qwen3"), c = ttnn_model(on_cpu.path);
    c.max_graphs = 1;
    rp_tiny t;
    rp_tiny_open(&t, &c);
    check_batches(&t, &on_cpu, sizes, n_sizes, 36);
    assert_true(t.stepper.replay.stats.n_recaptures >= (uint64_t)n_sizes - 2);
    assert_int_equal(rp__device_get_stats(t.device).live_graphs, 1);
    rp_tiny_close(&t);
}

/* One trace, 200 replays in a row, over the borders of blocks: no drift away from the CPU. */
RP_TEST(tenstorrent, two_hundred_replays_across_blocks) {
    RP_NEEDS_COUNTS();
    enum { STEPS = 202 };
    RP_NEED_TTNN();
    rp__replay_stats stats;
    rp_tiny_config on_cpu = rp_tiny_default("fixtures/tiny/llama3"), c = ttnn_model(on_cpu.path);
    on_cpu.n_ctx = c.n_ctx = 256;
    c.max_seqs = c.max_tokens = 1; /* no other step size: ready sooner on the simulator */
    float *wanted = logits_of(&on_cpu, 1, STEPS, &stats), *found = logits_of(&c, 1, STEPS, &stats);
    assert_true(stats.n_replays >= 200);
    assert_int_equal(stats.n_captures, 1);
    check_agreement("200 replays", compare(found, wanted, STEPS, VOCAB));
    rp__free(wanted);
    rp__free(found);
}

/* Two sequences side by side, then one alone, then two again: two traces alive, taking turns, and
 * positions that are right after each change. */
RP_TEST(tenstorrent, two_step_sizes_take_turns) {
    RP_NEEDS_COUNTS();
    RP_NEED_TTNN();
    static const int sizes[] = {1, 2, 1, 2, 1, 2};
    const int n_steps = rp_test_ttnn_is_real() ? 6 : 20;
    rp_tiny_config on_cpu = rp_tiny_default("fixtures/tiny/qwen3"), c = ttnn_model(on_cpu.path);
    rp_tiny t;
    rp_tiny_open(&t, &c);
    check_batches(&t, &on_cpu, sizes, sizeof sizes / sizeof *sizes, n_steps);
    assert_int_equal(t.stepper.replay.stats.n_captures, 2);
    assert_int_equal(rp__device_get_stats(t.device).live_graphs, 2);
    rp_tiny_close(&t);
}

/* What crosses between host and device per replayed step: inputs in, logits out, nothing else. */
RP_TEST(tenstorrent, a_decode_step_writes_its_inputs_and_reads_its_logits) {
    RP_NEEDS_COUNTS();
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

/* ---- several steps per visit ---- */

enum { N_VISITED = 14 };

static rp_request *submit(rp_engine *e, int seed, int n_new, rp_gate *gate) {
    int32_t ids[8];
    rp_request_options o = rp_request_options_default();
    make_ids(ids, 8, seed);
    o.prompt_ids = ids;
    o.n_prompt_ids = 1;
    o.max_tokens = n_new;
    o.ignore_eos = true;
    o.sampling.temperature = 0;
    if (gate) rp_gate_put(gate, &o);
    return rp_answer_submit(e, &o);
}

/* Two greedy answers side by side from their first step on, the second one shorter. */
static void answer_two(int n_steps, rp_answer *a, rp__device_stats *stats) {
    char options[600];
    snprintf(options, sizeof options, "%s,pick=1", rp_test_ttnn());
    rp_engine_options eo = rp_engine_options_default();
    eo.model = "fixtures/tiny/llama3";
    eo.device = "tenstorrent";
    eo.device_options = options;
    eo.scheduler_steps = n_steps;
    eo.max_seqs = eo.max_batch_tokens = 2;
    eo.n_ctx = 64;
    eo.capture = RP_CAPTURE_ON;
    rp_engine *e = rp_answer_engine(eo);
    rp_gate gate; /* of one that holds the engine until both are there */
    rp_request *first = submit(e, 2, 1, &gate);
    rp_gate_wait(&gate, 1);
    rp_request *r[2] = {submit(e, 0, N_VISITED, NULL), submit(e, 1, N_VISITED / 2, NULL)};
    rp_gate_allow(&gate, RP_GATE_ALL);
    rp_request_release(first);
    for (int i = 0; i < 2; i++) {
        rp_answer_take(r[i], &a[i]);
        rp_request_release(r[i]);
    }
    *stats = rp__device_get_stats(e->device);
    rp_engine_destroy(e);
}

RP_TEST(tenstorrent, visits_of_several_steps_pick_the_same_tokens) {
    RP_NEEDS_COUNTS();
    RP_NEED_TTNN();
    static rp_answer one[2], four[2];
    rp__device_stats single, visits;
    answer_two(1, one, &single);
    answer_two(4, four, &visits);
    for (int i = 0; i < 2; i++) rp_answer_assert_same(&four[i], &one[i]);
    assert_int_equal(four[0].n, N_VISITED);
    assert_true(visits.n_reads < single.n_reads / 2);
}

/* Block floats of 8 bits: coarser weights, the same answers but for what they round. */
RP_TEST(tenstorrent, weights_as_block_floats) {
    enum { STEPS = 24 };
    RP_NEED_TTNN();
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

/* ---- SmolLM2 ---- */

enum { SMOL_STEPS = 2 };

/* The beginning of a chat, a token per step, and how long that took. */
static float *first_steps(rp_tiny *t, rp_capture_mode mode, int n, const char *what) {
    static const int32_t ids[SMOL_STEPS] = {1, 9690};
    float *logits = rp__calloc(SMOL_STEPS * (size_t)t->n_vocab, sizeof *logits);
    uint64_t begin = rp__clock_ns();
    rp__replayer_set_mode(&t->stepper.replay, mode);
    rp_tiny_feed(t, 1, (const int32_t *[]){ids}, n, 1, (float *[]){logits});
    print_message("%d %s: %.2f s each\n", n, what, (double)(rp__clock_ns() - begin) * 1e-9 / n);
    return logits;
}

static void open_smollm2(rp_tiny *t, const rp_tiny_config *c) {
    uint64_t begin = rp__clock_ns();
    rp_tiny_open(t, c);
    print_message("SmolLM2 on %s: ready after %.1f s\n", c->device,
                  (double)(rp__clock_ns() - begin) * 1e-9);
}

/* sum p (ln p - ln q), with p and q the softmax of the wanted and the found logits. */
static double divergence(const float *wanted, const float *found, int n) {
    double sum_p = 0, sum_q = 0, kl = 0, max_p = (double)wanted[likeliest(wanted, n)],
           max_q = (double)found[likeliest(found, n)];
    for (int i = 0; i < n; i++) {
        sum_p += exp((double)wanted[i] - max_p);
        sum_q += exp((double)found[i] - max_q);
    }
    for (int i = 0; i < n; i++) {
        double ln_p = (double)wanted[i] - max_p - log(sum_p);
        kl += exp(ln_p) * (ln_p - ((double)found[i] - max_q - log(sum_q)));
    }
    return kl;
}

static void check_position(int pos, const float *found, const float *wanted, int n_vocab) {
    double kl = divergence(wanted, found, n_vocab);
    print_message("position %d: largest difference %.3f, divergence %.4f, token %d, wanted %d\n",
                  pos, compare(found, wanted, 1, n_vocab).worst, kl, likeliest(found, n_vocab),
                  likeliest(wanted, n_vocab));
    assert_int_equal(likeliest(found, n_vocab), likeliest(wanted, n_vocab));
    assert_true(kl < 0.03);
}

/* A whole model with real weights, through 30 layers of BF16: the CPU's answer, and the same bits
 * eager and replayed. */
RP_TEST(tenstorrent, whole_smollm2_decodes) {
    RP_NEED_TTNN();
    if (access(rp_test_smollm2(), R_OK) != 0) RP_SKIP("tools/fetch_model.py smollm2 was not run");
    rp_tiny_config on_cpu = rp_tiny_default(rp_test_smollm2()), c = ttnn_model(on_cpu.path);
    c.max_seqs = c.max_tokens = 1;
    rp_tiny t;
    open_smollm2(&t, &on_cpu);
    float *wanted = first_steps(&t, RP_CAPTURE_OFF, SMOL_STEPS, "steps");
    rp_tiny_close(&t);
    open_smollm2(&t, &c);
    float *eager = first_steps(&t, RP_CAPTURE_OFF, 1, "eager step"),
          *replayed = first_steps(&t, RP_CAPTURE_ON, SMOL_STEPS, "steps, captured and replayed");
    assert_int_equal(t.stepper.replay.stats.n_captures, 1);
    assert_int_equal(t.stepper.replay.stats.n_replays, SMOL_STEPS - 1);
    size_t row = (size_t)t.n_vocab;
    for (int i = 0; i < SMOL_STEPS; i++)
        check_position(i, replayed + (size_t)i * row, wanted + (size_t)i * row, t.n_vocab);
    assert_memory_equal(eager, replayed, row * sizeof *eager);
    rp__free(wanted);
    rp__free(eager);
    rp__free(replayed);
    rp_tiny_close(&t);
}

/* ---- hybrid ---- */

/* Norm and rope on the host, as others found it faster op by op: each piece between is a trace, and
 * reads what the one before it made. */
RP_TEST(tenstorrent, pieces_between_host_ops_are_traces) {
    RP_NEEDS_COUNTS();
    RP_NEED_TTNN();
    const int n_steps = rp_test_ttnn_is_real() ? 8 : 40; /* a step there takes a while */
    rp__replay_stats stats;
    rp_tiny_config on_cpu = rp_tiny_default("fixtures/tiny/qwen3"), c = ttnn_model(on_cpu.path);
    float *wanted = logits_of(&on_cpu, 2, n_steps, &stats);
    c.hybrid = "norm:rows<32=host rope:rows<64=host";
    c.is_hybrid_only = true;
    float *found = logits_of(&c, 2, n_steps, &stats);
    assert_int_equal(stats.n_refused, 0);
    assert_true(stats.n_host_ops > 0 && stats.n_transfers > 0);
    assert_true(stats.n_captures > 2 && stats.n_recaptures == 0);
    assert_true(stats.n_replays > (uint64_t)(n_steps - 3) * stats.n_captures);
    check_agreement("norm and rope on the host", compare(found, wanted, 2 * n_steps, VOCAB));
    rp__free(wanted);
    rp__free(found);
}
