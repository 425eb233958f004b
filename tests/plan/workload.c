#include "plan/workload.h"

#include <string.h>

#include "test.h"

enum { MAX_SEQS = 32, MAX_TOKENS = 64, BLOCK = 32, CTX = 64 };

static void compile_all(workload *w) {
    rp_error err = {0};
    rp__stepper *s = &w->tiny.stepper;
    for (int b = 0; b < s->n_buckets; b++)
        for (int way = 0; way < 2; way++)
            if (s->choices[b].ways[way])
                assert_ok(rp__program_prepare(s->choices[b].ways[way], &err), err);
}

rp_tiny_config workload_config(const char *device, const char *options, rp_capture_mode mode,
                               int max_graphs) {
    rp_tiny_config c = rp_tiny_default("fixtures/tiny/llama3.gguf");
    c.device = device;
    c.device_options = options;
    c.n_threads = 1;
    c.max_seqs = MAX_SEQS;
    c.max_tokens = MAX_TOKENS;
    c.block_size = BLOCK;
    c.n_ctx = CTX;
    c.n_blocks = 2 * MAX_SEQS + 1;
    c.capture = mode;
    c.max_graphs = max_graphs;
    return c;
}

void workload_open_config(workload *w, const rp_tiny_config *c) {
    *w = (workload){.seed = 5, .n_live = 4};
    rp_tiny_open(&w->tiny, c);
    for (int32_t i = 0; i < MAX_SEQS; i++) {
        w->tables[i][0] = 1 + 2 * i;
        w->tables[i][1] = 2 + 2 * i;
    }
    compile_all(w);
}

void workload_open(workload *w, const char *device, const char *options, rp_capture_mode mode,
                   int max_graphs) {
    rp_tiny_config c = workload_config(device, options, mode, max_graphs);
    workload_open_config(w, &c);
}

void workload_close(workload *w) {
    rp_tiny_close(&w->tiny);
}

static void add_bits(workload *w, const float *logits, size_t n) { /* FNV-1a over the bits */
    for (size_t i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, &logits[i], sizeof u);
        w->bits = (w->bits ^ u) * 0x100000001B3ULL;
    }
}

static void add_token(workload *w, int32_t seq, int32_t pos) {
    rp__batch *b = &w->tiny.stepper.batch;
    int32_t i = b->n_tokens++;
    b->ids[i] = (int32_t)(rp_test_rand(&w->seed) % (uint64_t)w->tiny.n_vocab);
    b->pos[i] = pos;
    b->seq[i] = b->n_seqs - 1;
    b->slots[i] = w->tables[seq][pos / BLOCK] * BLOCK + pos % BLOCK;
}

static void add_sequence(workload *w, int32_t seq, int32_t n) {
    rp__batch *b = &w->tiny.stepper.batch;
    b->tables[b->n_seqs] = w->tables[seq];
    b->n_blocks[b->n_seqs++] = 2;
    for (int32_t pos = 0; pos < n; pos++) add_token(w, seq, pos);
    b->rows[b->n_rows++] = b->n_tokens - 1;
}

void workload_step(workload *w, int32_t n_tokens, int32_t n_seqs) {
    rp_error err = {0};
    rp__stepper *s = &w->tiny.stepper;
    rp__batch *b = &s->batch;
    b->n_tokens = b->n_seqs = b->n_rows = 0;
    for (int32_t i = 0; i < n_seqs; i++) add_sequence(w, i, n_seqs > 1 ? 1 : n_tokens);
    int k = rp__bucket_find(s->buckets, s->n_buckets, b->n_tokens, b->n_seqs, b->n_rows);
    double start = rp__device_clock_us(s->device);
    assert_ok(rp__stepper_run(s, &err), err);
    double us = rp__device_clock_us(s->device) - start;
    add_bits(w, s->logits, (size_t)b->n_rows * (size_t)w->tiny.n_vocab);
    w->total_us += us;
    w->by_bucket_us[k] += us;
    w->last_us[k] = us;
    w->n_by_bucket[k]++;
}

/* Sequences come and go one by one, as in a server; now and then the load jumps. Three steps in
 * sixteen are prompts. */
void workload_run(workload *w, int n_steps) {
    for (int i = 0; i < n_steps; i++) {
        uint64_t r = rp_test_rand(&w->seed) >> 20;
        if (r % 16 < 3) {
            workload_step(w, 2 + (int32_t)(r / 16 % (MAX_TOKENS - 1)), 1);
            continue;
        }
        if (r % 64 == 63)
            w->n_live = 1 + (int32_t)(r / 64 % MAX_SEQS);
        else if (r % 16 == 4 && w->n_live > 1)
            w->n_live--;
        else if (r % 16 == 5 && w->n_live < MAX_SEQS)
            w->n_live++;
        workload_step(w, w->n_live, w->n_live);
    }
}
