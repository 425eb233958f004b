/* Ops on the host, in every family: the same bits as on the device alone, and exactly so many
 * transfers. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "model/tiny.h"
#include "test.h"

static const char *const members[] = {
    "llama2",
    "llama2.gguf",
    "llama3",
    "llama3.gguf",
    "llama3-bf16",
    "llama3-bf16.gguf",
    "smollm2",
    "smollm2.gguf",
    "mistral",
    "mistral.gguf",
    "qwen2",
    "qwen2.gguf",
    "qwen3",
    "qwen3.gguf",
    "qwen3-bf16",
    "qwen3-bf16.gguf",
    "internlm2",
    "internlm2.gguf",
    "rope-linear",
    "rope-linear.gguf",
    "rope-yarn",
    "rope-yarn.gguf",
    "rope-yarn-mscale",
    "rope-yarn-mscale.gguf",
    "rope-dynamic",
};
enum { N_MEMBERS = sizeof members / sizeof *members, STRIDE = RP_TEST_IS_INSTRUMENTED ? 6 : 1 };

#define P150_RULES "norm:rows<32=host rope:rows<64=host"

static rp_tiny_config config_of(int member, char path[128]) {
    snprintf(path, 128, "fixtures/tiny/%s", members[member]);
    rp_tiny_config c = rp_tiny_default(path);
    c.device = "emu";
    c.device_options = "profile=p150-hybrid";
    c.n_threads = 1;
    return c;
}

/* ---- bits ---- */

enum { MAX_IDS = 50, MAX_SEQS = 8 };

/* Sizes that reach every bucket of up to 8 sequences, and every chunk: so many sequences, chunks of
 * so many tokens, so many tokens. */
static const struct {
    int n_seqs, chunk, n;
} feeds[] = {{1, 1, 6}, {2, 1, 4}, {4, 1, 4}, {8, 1, 4}, {1, 10, 20}, {1, 20, 40}, {1, 50, 50}};

static uint64_t hash_of(uint64_t h, const float *v, size_t n) {
    for (size_t i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, &v[i], sizeof u);
        h = (h ^ u) * 0x100000001B3ULL;
    }
    return h;
}

/* All logits of all feeds, fed twice so that graphs are replayed. */
static uint64_t run_feeds(const rp_tiny_config *c) {
    static int32_t ids[MAX_SEQS][MAX_IDS];
    float *out[MAX_SEQS];
    const int32_t *in[MAX_SEQS];
    rp_tiny t;
    rp_tiny_open(&t, c);
    size_t n_vocab = (size_t)t.n_vocab;
    for (int s = 0; s < MAX_SEQS; s++) {
        in[s] = ids[s];
        out[s] = rp__calloc(MAX_IDS * n_vocab, sizeof *out[s]);
        for (int i = 0; i < MAX_IDS; i++) ids[s][i] = (s * 71 + i * 13 + 5) % t.n_vocab;
    }
    uint64_t h = 0;
    for (int round = 0; round < 2; round++)
        for (size_t f = 0; f < sizeof feeds / sizeof *feeds; f++) {
            rp_tiny_feed(&t, feeds[f].n_seqs, in, feeds[f].n, feeds[f].chunk, out);
            for (int s = 0; s < feeds[f].n_seqs; s++)
                h = hash_of(h, out[s], (size_t)feeds[f].n * n_vocab);
        }
    for (int b = 0; b < t.stepper.n_buckets; b++)
        if (t.stepper.buckets[b].kind == RP_BUCKET_PREFILL || t.stepper.buckets[b].n_seqs <= 8)
            assert_true(t.stepper.choices[b].n_by_reason[0][RP_CHOICE_ONLY] > 0);
    const rp__replay_stats *stats = &t.stepper.replay.stats;
    if (c->capture == RP_CAPTURE_ON && rp__replayer_n_graphs(&t.stepper.replay))
        assert_true(stats->n_replays > 0);
    assert_true(!c->hybrid || stats->n_host_ops > 0);
    for (int s = 0; s < MAX_SEQS; s++) rp__free(out[s]);
    rp_tiny_close(&t);
    return h;
}

/* As on that card; everything small; matrices; everything but what is looked up; all of it, with
 * the cache. */
static const char *const placements[] = {
    P150_RULES,    "*=host matmul=device attention=device kv_write=device",
    "matmul=host", "embed=device gather_rows=device norm=host rope=host gated=host kv_write=host",
    "*=host",
};

static void check_bits(const char *device_options) {
    char path[128];
    for (int i = 0; i < N_MEMBERS; i += STRIDE) {
        rp_tiny_config c = config_of(i, path);
        c.device_options = device_options;
        uint64_t want = run_feeds(&c);
        c.is_hybrid_only = true;
        for (size_t k = 0; k < 2 * sizeof placements / sizeof *placements; k++) {
            c.hybrid = placements[k / 2];
            c.capture = k % 2 ? RP_CAPTURE_ON : RP_CAPTURE_OFF;
            if (run_feeds(&c) != want)
                fail_msg("%s, \"%s\", %s, %s: other bits than on the device alone", members[i],
                         c.hybrid, k % 2 ? "replay" : "eager", device_options);
        }
    }
}

RP_TEST(placement, bits_are_those_of_the_device_alone) {
    check_bits("profile=p150-hybrid");
}

/* Where rows that nobody wants are left out, and where memory is hostile. */
RP_TEST(placement, bits_with_live_rows_and_hostile_memory) {
    check_bits("live_rows=1,reuse=always,fill=ff");
}

/* ---- transfers ---- */

typedef struct counted {
    uint64_t n_writes, n_reads, bytes_written, bytes_read;
} counted;

/* What crosses in one replayed decode step of one sequence. */
static counted count_step(rp_tiny *t) {
    static const int32_t blocks[] = {1, 2};
    rp_error err = {0};
    rp__batch *b = &t->stepper.batch;
    rp__device_stats before = {0}, after = {0};
    for (int step = 0; step < 6; step++) {
        b->n_tokens = b->n_seqs = b->n_rows = 1;
        b->ids[0] = 3;
        b->pos[0] = step;
        b->slots[0] = blocks[0] * t->stepper.config.block_size + step;
        b->seq[0] = b->rows[0] = 0;
        b->tables[0] = blocks;
        b->n_blocks[0] = 2;
        before = rp__device_get_stats(t->device);
        assert_ok(rp__stepper_run(&t->stepper, &err), err);
        after = rp__device_get_stats(t->device);
    }
    assert_int_equal(after.n_allocs, before.n_allocs);
    assert_true(after.n_replays > before.n_replays && after.n_ops == before.n_ops);
    return (counted){after.n_writes - before.n_writes, after.n_reads - before.n_reads,
                     after.bytes_written - before.bytes_written,
                     after.bytes_read - before.bytes_read};
}

/* Of the inputs only ids, slots and positions change, which stand together. */
static size_t changing_bytes(const rp__program *p) {
    const rp__slot_info *ids = &p->slots[rp__program_find(p, "ids")],
                        *pos = &p->slots[rp__program_find(p, "pos")];
    return pos->home[RP_SIDE_DEVICE].place + 64 - ids->home[RP_SIDE_DEVICE].place;
}

RP_TEST(placement, a_decode_step_moves_inputs_and_logits_only) {
    char path[128];
    for (int i = 0; i < N_MEMBERS; i++) {
        rp_tiny_config c = config_of(i, path);
        rp_tiny t;
        rp_tiny_open(&t, &c);
        const rp__program *p = t.stepper.choices[0].ways[0];
        counted n = count_step(&t);
        assert_int_equal(p->n_segments, 1);
        assert_int_equal(n.n_writes, 1);
        assert_in_range(n.bytes_written, 1, changing_bytes(p));
        assert_int_equal(n.n_reads, 1);
        assert_int_equal(n.bytes_read, (size_t)t.n_vocab * sizeof(float));
        rp_tiny_close(&t);
    }
}

/* Per layer: the residual down and its norm up, twice, and q, k, v down and up; then the rope table
 * once, and the last norm. */
RP_TEST(placement, a_hybrid_decode_step_moves_so_much) {
    char path[128];
    for (int i = 0; i < N_MEMBERS; i++) {
        rp_tiny_config c = config_of(i, path);
        c.hybrid = P150_RULES;
        c.is_hybrid_only = true;
        rp_tiny t;
        rp_tiny_open(&t, &c);
        const rp__program *p = t.stepper.choices[0].ways[0];
        const rp__hparams *h = &t.model->h;
        counted n = count_step(&t);
        bool has_qk_norm = t.model->layers[0].q_norm.n_dims > 0;
        size_t qk = (size_t)((h->n_heads + h->n_kv_heads) * h->head_dim),
               qkv = qk + (size_t)(h->n_kv_heads * h->head_dim), e = (size_t)h->n_embd,
               layers = (size_t)h->n_layers;
        assert_int_equal(n.n_writes, 1 + 3 * layers + 1);
        assert_int_equal(n.n_reads, 3 * layers + 2 + 1);
        assert_int_equal(p->traffic.n_uploads, 3 * layers + 1);
        assert_int_equal(p->traffic.n_downloads, 3 * layers + 2);
        assert_int_equal(p->traffic.upload_bytes,
                         4 * (layers * (2 * e + (has_qk_norm ? qk : qkv)) + e));
        assert_int_equal(p->traffic.download_bytes,
                         4 * (layers * (2 * e + qkv) + e + (size_t)h->rope.n_rot));
        assert_in_range(n.bytes_written, 1 + p->traffic.upload_bytes,
                        changing_bytes(p) + p->traffic.upload_bytes);
        assert_int_equal(n.bytes_read,
                         (size_t)t.n_vocab * sizeof(float) + p->traffic.download_bytes);
        /* Segments: device and host in turns, three times a layer, and once more for the head. */
        assert_int_equal(p->n_segments, 2 * (3 * layers + 1) + 1);
        rp_tiny_close(&t);
    }
}

/* ---- positions that advance on the device ---- */

RP_TEST(placement, advanced_positions_give_the_same_bits) {
    static const char *const options[] = {"advance=1", "advance=1,live_rows=1",
                                          "advance=1,profile=p150-hybrid"};
    char path[128];
    for (int i = 0; i < N_MEMBERS; i += 4) {
        rp_tiny_config c = config_of(i, path);
        uint64_t want = run_feeds(&c);
        for (size_t k = 0; k < 12; k++) {
            c.device_options = options[k % 3];
            c.capture = k / 3 % 2 ? RP_CAPTURE_ON : RP_CAPTURE_OFF;
            c.hybrid = k / 6 ? P150_RULES : NULL;
            c.is_hybrid_only = true;
            if (run_feeds(&c) != want)
                fail_msg("%s, %s, %s: other bits", members[i], options[k % 3],
                         k / 3 % 2 ? "replay" : "eager");
        }
    }
}

/* 100 replays of a step whose inputs are written once: the device counts exactly, and the stepper
 * knows where it is. */
RP_TEST(placement, a_hundred_replays_advance_positions_exactly) {
    RP_NEEDS_COUNTS();
    static const int32_t blocks[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
    char path[128];
    rp_error err = {0};
    rp_tiny_config c = config_of(3, path);
    c.device_options = "advance=1";
    c.n_ctx = 128;
    rp_tiny t;
    rp_tiny_open(&t, &c);
    rp__stepper *s = &t.stepper;
    rp__batch *b = &s->batch;
    const rp__program *p = s->choices[0].ways[0];
    size_t pos = p->slots[rp__program_find(p, "pos")].home[RP_SIDE_DEVICE].place;
    assert_true(p->advance_op >= 0);
    for (int step = 0; step < 110; step++) {
        b->n_tokens = b->n_seqs = b->n_rows = 1;
        b->ids[0] = step % 200;
        b->pos[0] = step;
        b->slots[0] = blocks[step / 8] * 8 + step % 8;
        b->seq[0] = b->rows[0] = 0;
        b->tables[0] = blocks;
        b->n_blocks[0] = 16;
        rp__device_stats before = rp__device_get_stats(t.device);
        assert_ok(rp__stepper_run(s, &err), err);
        uint64_t written = rp__device_get_stats(t.device).bytes_written - before.bytes_written;
        int32_t there, known;
        assert_ok(rp__buffer_read(s->memory[RP_SIDE_DEVICE].inputs, pos, &there, 4, &err), err);
        memcpy(&known, s->known + pos, 4);
        assert_int_equal(there, step + 1);
        assert_int_equal(known, step + 1);
        if (step) assert_in_range(written, 1, 2 * 64); /* an id and a slot */
    }
    assert_true(s->replay.stats.n_replays >= 100);
    rp_tiny_close(&t);
}

/* On demand a step runs many times on the same inputs: positions are put back. */
RP_TEST(placement, measuring_puts_positions_back) {
    char path[128];
    rp_error err = {0};
    double samples[3 * 200];
    rp_tiny_config c = config_of(3, path);
    c.device_options = "advance=1,profile=p150-hybrid";
    c.hybrid = P150_RULES;
    rp_tiny t;
    rp_tiny_open(&t, &c);
    rp__stepper *s = &t.stepper;
    rp__replay_report r[2];
    s->batch.n_tokens = s->batch.n_seqs = s->batch.n_rows = 0;
    size_t pos =
        s->programs[0].slots[rp__program_find(&s->programs[0], "pos")].home[RP_SIDE_DEVICE].place;
    assert_ok(rp__stepper_measure(s, 0, 200, samples, r, &err), err);
    int32_t there;
    assert_ok(rp__buffer_read(s->memory[RP_SIDE_DEVICE].inputs, pos, &there, 4, &err), err);
    assert_int_equal(there, 1);
    assert_int_equal(s->n_known, 0);
    rp_tiny_close(&t);
}

/* ---- explaining ---- */

static char *explain(const rp_tiny *t) {
    rp__bytes text = {0};
    assert_true(rp__program_explain(t->stepper.choices[0].ways[0], true, &text));
    return rp__bytes_take(&text);
}

RP_TEST(placement, explain_says_where_and_why) {
    char path[128];
    rp_tiny_config c = config_of(3, path);
    c.hybrid = P150_RULES;
    c.is_hybrid_only = true;
    rp_tiny t;
    rp_tiny_open(&t, &c);
    rp_error err = {0};
    char *text = explain(&t);
    assert_non_null(strstr(text, "decode 1, hybrid: 25 ops in 15 segments"));
    assert_non_null(strstr(text, "on the host: 7 ops; per step 8 transfers down, 2368 bytes, and 7 "
                                 "up, 2304 bytes"));
    assert_non_null(strstr(text, "segment 1, host: ops 2 to 4"));
    assert_non_null(strstr(text, "[the device's rule: rope:rows<64=host]"));
    assert_non_null(strstr(text, "down                           0.5 KiB  blk.0.attn_qkv"));
    rp__free(text);
    rp_tiny_close(&t);
    c.hybrid = "attention=host";
    rp_tiny_open(&t, &c);
    text = explain(&t);
    assert_non_null(strstr(text, "[the KV cache is there]"));
    assert_non_null(strstr(text, "[the device's rule: attention=host]"));
    rp__free(text);
    rp_tiny_close(&t);
    (void)err;
}
