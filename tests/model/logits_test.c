/* Logits of every member of the family against transformers in float32, and equal bits however a
 * step is cut. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "model/tiny.h"
#include "test.h"

/* Bound on the largest difference. F32 weights: rounding of the accumulations alone. BF16 weights:
 * the same values on both sides and float32 arithmetic on both, so the same bound. */
static const double bound = 1e-4;

static const struct {
    const char *model, *golden;
} members[] = {
    {"fixtures/tiny/llama2", "fixtures/tiny/llama2"},
    {"fixtures/tiny/llama2.gguf", "fixtures/tiny/llama2"},
    {"fixtures/tiny/llama3", "fixtures/tiny/llama3"},
    {"fixtures/tiny/llama3.gguf", "fixtures/tiny/llama3"},
    {"fixtures/tiny/llama3-bf16", "fixtures/tiny/llama3-bf16"},
    {"fixtures/tiny/llama3-bf16.gguf", "fixtures/tiny/llama3-bf16"},
    {"fixtures/tiny/smollm2", "fixtures/tiny/smollm2"},
    {"fixtures/tiny/smollm2.gguf", "fixtures/tiny/smollm2"},
    {"fixtures/tiny/mistral", "fixtures/tiny/mistral"},
    {"fixtures/tiny/mistral.gguf", "fixtures/tiny/mistral"},
    {"fixtures/tiny/qwen2", "fixtures/tiny/qwen2"},
    {"fixtures/tiny/qwen2.gguf", "fixtures/tiny/qwen2"},
    {"fixtures/tiny/qwen3", "fixtures/tiny/qwen3"},
    {"fixtures/tiny/qwen3.gguf", "fixtures/tiny/qwen3"},
    {"fixtures/tiny/qwen3-bf16", "fixtures/tiny/qwen3-bf16"},
    {"fixtures/tiny/qwen3-bf16.gguf", "fixtures/tiny/qwen3-bf16"},
    {"fixtures/tiny/internlm2", "fixtures/tiny/internlm2"},
    {"fixtures/tiny/internlm2.gguf", "fixtures/tiny/internlm2"},
    {"fixtures/tiny/rope-linear", "fixtures/tiny/rope-linear"},
    {"fixtures/tiny/rope-linear.gguf", "fixtures/tiny/rope-linear"},
    {"fixtures/tiny/rope-yarn", "fixtures/tiny/rope-yarn"},
    {"fixtures/tiny/rope-yarn.gguf", "fixtures/tiny/rope-yarn"},
    {"fixtures/tiny/rope-yarn-mscale", "fixtures/tiny/rope-yarn-mscale"},
    {"fixtures/tiny/rope-yarn-mscale.gguf", "fixtures/tiny/rope-yarn-mscale"},
    {"fixtures/tiny/rope-dynamic", "fixtures/tiny/rope-dynamic-fixed"},
};
enum { N_MEMBERS = sizeof members / sizeof *members };

static double largest_difference(const float *a, const float *b, size_t n) {
    double worst = 0;
    for (size_t i = 0; i < n; i++) {
        double d = fabs((double)a[i] - (double)b[i]);
        if (!(d <= worst)) worst = d; /* a NaN stays */
    }
    return worst;
}

/* The prompt in one chunk, then the rest token by token. */
static void check_member(const char *device, int i) {
    rp_golden g;
    rp_golden_open(&g, members[i].golden);
    rp_tiny_config c = rp_tiny_default(members[i].model);
    c.device = device;
    rp_tiny t;
    rp_tiny_open(&t, &c);
    assert_int_equal(t.n_vocab, g.n_vocab);
    size_t n = (size_t)g.n * (size_t)g.n_vocab;
    float *logits = rp__calloc(n, sizeof *logits);
    rp_tiny_feed(&t, 1, (const int32_t *[]){g.ids}, g.n, g.n_prompt, (float *[]){logits});
    double worst = largest_difference(logits, g.logits, n);
    if (!(worst < bound))
        fail_msg("%s on %s: largest difference %g, bound %g", members[i].model, device, worst,
                 bound);
    rp__free(logits);
    rp__free(g.logits);
    rp_tiny_close(&t);
}

RP_TEST(model, logits_equal_transformers_on_cpu) {
    for (int i = 0; i < N_MEMBERS; i++) check_member("cpu", i);
}

RP_TEST(model, logits_equal_transformers_on_emu) {
    for (int i = 0; i < N_MEMBERS; i++) check_member("emu", i);
}

/* ---- equal bits ---- */

enum { N_SEQS = 3, N_IDS = 50 };

/* Three sequences: the golden's ids, and the same ones rotated, so that no two rows of a batch are
 * alike. */
static void make_ids(const rp_golden *g, int32_t ids[N_SEQS][N_IDS]) {
    for (int s = 0; s < N_SEQS; s++)
        for (int k = 0; k < N_IDS; k++) ids[s][k] = g->ids[(k + 7 * s) % g->n];
}

static void run_all(const rp_tiny_config *c, int n_seqs, int chunk, int32_t ids[N_SEQS][N_IDS],
                    float *out[N_SEQS]) {
    rp_tiny t;
    rp_tiny_open(&t, c);
    if (n_seqs == N_SEQS) {
        rp_tiny_feed(&t, N_SEQS, (const int32_t *[]){ids[0], ids[1], ids[2]}, N_IDS, chunk, out);
    } else {
        for (int s = 0; s < N_SEQS; s++)
            rp_tiny_feed(&t, 1, (const int32_t *[]){ids[s]}, N_IDS, chunk, &out[s]);
    }
    const rp__replay_stats *stats = &t.stepper.replay.stats;
    if (c->capture == RP_CAPTURE_OFF)
        assert_int_equal(stats->n_replays, 0);
    else if (chunk == 1 && !RP_STRESS)
        assert_true(stats->n_captures >= 1 && stats->n_replays >= 40);
    rp_tiny_close(&t);
}

/* Alone, eager, whole, one thread is the reference; every other way must give its bits. */
static void check_bits(const char *device, const char *model, const char *golden) {
    rp_golden g;
    rp_golden_open(&g, golden);
    static int32_t ids[N_SEQS][N_IDS];
    make_ids(&g, ids);
    float *want[N_SEQS], *got[N_SEQS];
    size_t bytes = (size_t)N_IDS * (size_t)g.n_vocab * sizeof(float);
    for (int s = 0; s < N_SEQS; s++) want[s] = rp__alloc(bytes), got[s] = rp__alloc(bytes);
    rp_tiny_config c = rp_tiny_default(model);
    c.device = device;
    c.max_seqs = c.max_tokens = 192; /* three sequences with all their rows */
    c.n_threads = 1;
    c.capture = RP_CAPTURE_OFF;
    run_all(&c, 1, 64, ids, want);
    static const int chunks[] = {1, 7, 64};
    for (int way = 0; way < 3 * 2 * 2 * 2; way++) {
        int chunk = chunks[way % 3], n_seqs = way / 3 % 2 ? N_SEQS : 1;
        c.n_threads = way / 6 % 2 ? 2 : 1;
        c.capture = way / 12 ? RP_CAPTURE_ON : RP_CAPTURE_OFF;
        run_all(&c, n_seqs, chunk, ids, got);
        for (int s = 0; s < N_SEQS; s++)
            if (memcmp(want[s], got[s], bytes))
                fail_msg("%s on %s: chunk %d, batch %d, %d threads, %s: bits differ in sequence %d",
                         model, device, chunk, n_seqs, c.n_threads,
                         c.capture == RP_CAPTURE_ON ? "replay" : "eager", s);
    }
    for (int s = 0; s < N_SEQS; s++) rp__free(want[s]), rp__free(got[s]);
    rp__free(g.logits);
}

/* Every fifth member where time is short. */
enum { STRIDE = RP_TEST_IS_INSTRUMENTED ? 5 : 1 };

RP_TEST(model, bits_equal_every_way_on_cpu) {
    for (int i = 0; i < N_MEMBERS; i += STRIDE)
        check_bits("cpu", members[i].model, members[i].golden);
}

RP_TEST(model, bits_equal_every_way_on_emu) {
    for (int i = 0; i < N_MEMBERS; i += STRIDE)
        check_bits("emu", members[i].model, members[i].golden);
}
