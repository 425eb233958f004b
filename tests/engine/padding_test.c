/* T07: padding is inert. Steps of r sequences run in programs for S > r, on memory that holds the
 * worst that padding could read or write: NaN in the sink, in free blocks and in temporaries, a
 * padding token whose embedding is NaN, tables of absent sequences that name live blocks, and,
 * where the device counts live rows, ids, positions and slots of padding that are out of range or a
 * live sequence's. The histogram model tells what is right, and eager steps of exactly r rows the
 * bits. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/cpu.h" /* lint-allow: cpu, whose table is wrapped here */
#include "device/emu/emu.h"
#include "engine/toys.h"
#include "model/tiny.h"

enum {
    MOST = 8, /* sequences */
    BLOCK = 8,
    CTX = 64,
    PER_SEQ = CTX / BLOCK,
    N_BLOCKS = MOST * PER_SEQ + 9, /* with the sink, and some that nobody has */
    N_PROMPT = 11,                 /* tokens of sequence 0; each other one has one more */
    N_STEPS = 6,
    NAN_ID = 63
};

/* ---- the device, which poisons what is written to it ---- */

static struct {
    const rp_device_api *api;
    rp_tiny *tiny;
    const rp__program *program; /* NULL: nothing is poisoned */
    int32_t n_live;
} hook;

static int32_t *input(char *bytes, const char *name) {
    rp__slot slot = rp__program_find(hook.program, name);
    return (int32_t *)(void *)(bytes + hook.program->slots[slot].home[RP_SIDE_DEVICE].place);
}

static void fill(int32_t *values, int32_t from, int32_t to, int32_t value) {
    for (int32_t i = from; i < to; i++) values[i] = value;
}

static void poison_inputs(char *bytes) {
    const rp__program *p = hook.program;
    int32_t live = hook.n_live, t = p->bucket.n_tokens, victim = 1; /* sequence 0's first block */
    fill(input(bytes, "table"), live * PER_SEQ, p->bucket.n_seqs * PER_SEQ, victim);
    bool counts_live = rp__device_props(hook.tiny->device)->has_live_rows;
    fill(input(bytes, "ids"), live, t, counts_live ? INT32_MAX : NAN_ID);
    if (!counts_live) return; /* there padding is computed, and its inputs are the engine's */
    fill(input(bytes, "pos"), live, t, INT32_MAX);
    fill(input(bytes, "seq"), live, t, 0);
    fill(input(bytes, "slots"), live, t, victim * BLOCK);
    fill(input(bytes, "rows"), live, p->bucket.n_rows, INT32_MAX);
}

static rp_status poisoned_write(void *self, uint32_t queue, void *handle, size_t offset,
                                const void *src, size_t n, rp_error *err) {
    if (!hook.program || handle != hook.tiny->stepper.memory[RP_SIDE_DEVICE].inputs->handle ||
        n != hook.program->bytes[RP_SIDE_DEVICE].inputs)
        return hook.api->write(self, queue, handle, offset, src, n, err);
    char *bytes = malloc(n);
    assert_non_null(bytes);
    memcpy(bytes, src, n);
    poison_inputs(bytes);
    rp_status st = hook.api->write(self, queue, handle, offset, bytes, n, err);
    free(bytes);
    return st;
}

/* The last row of the embedding becomes NaN. */
static rp_status poisoned_weight_write(void *self, const rp_tensor *w, int64_t row, int64_t n,
                                       const void *src, rp_error *err) {
    const rp_tensor *embed = &hook.tiny->model->embed;
    if (w->buffer != embed->buffer || w->offset != embed->offset || row + n != TOY_VOCAB)
        return hook.api->weight_write(self, w, row, n, src, err);
    size_t width = (size_t)w->dim[1];
    float *values = malloc((size_t)n * width * sizeof *values);
    assert_non_null(values);
    memcpy(values, src, (size_t)n * width * sizeof *values);
    for (size_t i = 0; i < width; i++) values[((size_t)n - 1) * width + i] = NAN;
    rp_status st = hook.api->weight_write(self, w, row, n, values, err);
    free(values);
    return st;
}

/* ---- sequences ---- */

typedef struct batch_of {
    rp_tiny t;
    int32_t ids[MOST][CTX];
    int32_t n[MOST]; /* tokens so far */
    int32_t tables[MOST][PER_SEQ];
    int n_seqs;
} batch_of;

static void open_batch(batch_of *b, const rp_device_api *api, const char *options, int n_seqs,
                       int max_seqs, rp_capture_mode mode) {
    static rp_device_api wrapped;
    *b = (batch_of){.n_seqs = n_seqs};
    wrapped = *api;
    wrapped.write = poisoned_write;
    wrapped.weight_write = poisoned_weight_write;
    hook.api = api;
    hook.tiny = &b->t;
    hook.program = NULL;
    rp_tiny_config c = rp_tiny_default(HISTOGRAM);
    c.api = &wrapped;
    c.device_options = options;
    c.max_seqs = max_seqs;
    c.block_size = BLOCK;
    c.n_ctx = CTX;
    c.n_blocks = N_BLOCKS;
    c.capture = mode;
    rp_tiny_open(&b->t, &c);
    for (int s = 0; s < MOST; s++) {
        toy_ids((uint64_t)s + 7, b->ids[s], CTX);
        for (int k = 0; k < PER_SEQ; k++) b->tables[s][k] = 1 + s * PER_SEQ + k;
    }
}

static int32_t slot_of(const batch_of *b, int s, int32_t pos) {
    return b->tables[s][pos / BLOCK] * BLOCK + pos % BLOCK;
}

/* Adds the next n tokens of a sequence to the step. */
static void add(batch_of *b, int s, int n) {
    rp__batch *t = &b->t.stepper.batch;
    for (int k = 0; k < n; k++) {
        int32_t i = t->n_tokens++, pos = b->n[s]++;
        t->ids[i] = b->ids[s][pos];
        t->pos[i] = pos;
        t->seq[i] = t->n_seqs;
        t->slots[i] = slot_of(b, s, pos);
    }
    t->tables[t->n_seqs] = b->tables[s];
    t->n_blocks[t->n_seqs++] = PER_SEQ;
    t->rows[t->n_rows++] = t->n_tokens - 1;
}

static void begin_step(batch_of *b) {
    rp__batch *t = &b->t.stepper.batch;
    t->n_tokens = t->n_seqs = t->n_rows = 0;
}

/* ---- what the memory holds ---- */

static void fill_buffer(rp_buffer *buf, size_t from, size_t to) {
    rp_error err = {0};
    static unsigned char ones[4096];
    memset(ones, 0xFF, sizeof ones);
    for (size_t at = from; at < to; at += sizeof ones)
        assert_ok(
            rp__buffer_write(buf, at, ones, to - at < sizeof ones ? to - at : sizeof ones, &err),
            err);
}

/* The caches of the one layer. */
static const rp_tensor *cache_of(const batch_of *b, int c) {
    return c ? &b->t.model->layers[0].v_cache : &b->t.model->layers[0].k_cache;
}

static void poison_memory(batch_of *b) {
    rp__stepper *s = &b->t.stepper;
    rp__side_memory *m = &s->memory[RP_SIDE_DEVICE];
    rp_buffer *scratch[] = {m->arena, m->inputs, m->outputs};
    for (int i = 0; i < 3; i++) fill_buffer(scratch[i], 0, scratch[i]->bytes);
    s->n_known = 0; /* the stepper knows nothing of this, and writes only what it thinks changed */
    for (int c = 0; c < 2; c++) {
        const rp_tensor *t = cache_of(b, c);
        fill_buffer(s->cache, t->offset, t->offset + t->stride); /* the sink */
        fill_buffer(s->cache, t->offset + (1 + MOST * PER_SEQ) * t->stride,
                    t->offset + N_BLOCKS * t->stride); /* nobody's */
    }
}

/* All of the cache but the sink and what this step writes, to be compared afterwards. */
static void read_pool(batch_of *b, char *out) {
    rp_error err = {0};
    rp_buffer *cache = b->t.stepper.cache;
    const rp__batch *t = &b->t.stepper.batch;
    assert_ok(rp__buffer_read(cache, 0, out, cache->bytes, &err), err);
    for (int c = 0; c < 2; c++) {
        const rp_tensor *k = cache_of(b, c);
        const size_t head = k->stride / (size_t)k->dim[1], row = head / BLOCK;
        memset(out + k->offset, 0, k->stride);
        for (int32_t i = 0; i < t->n_tokens; i++) {
            char *block = out + k->offset + (size_t)(t->slots[i] / BLOCK) * k->stride;
            for (int64_t kv = 0; kv < k->dim[1]; kv++)
                memset(block + (size_t)kv * head + (size_t)(t->slots[i] % BLOCK) * row, 0, row);
        }
    }
}

static void assert_right(const batch_of *b) {
    for (int s = 0; s < b->n_seqs; s++) {
        const float *row = b->t.stepper.logits + (size_t)s * TOY_VOCAB;
        double most = -INFINITY, sum = 0;
        for (int i = 0; i < TOY_VOCAB; i++) most = row[i] > most ? (double)row[i] : most;
        for (int i = 0; i < TOY_VOCAB; i++) sum += exp((double)row[i] - most);
        for (int i = 0; i < TOY_VOCAB; i++) {
            double right = histogram_logprob(b->ids[s], (size_t)b->n[s], i);
            assert_float_equal((double)row[i] - most - log(sum), right, 1e-4);
        }
    }
}

/* ---- steps ---- */

static void run_step(batch_of *b) {
    rp_error err = {0};
    rp__stepper *s = &b->t.stepper;
    static char before[1 << 20], after[1 << 20];
    int i = rp__bucket_find(s->buckets, s->n_buckets, s->batch.n_tokens, s->batch.n_seqs,
                            s->batch.n_rows);
    assert_true(s->cache->bytes <= sizeof before);
    poison_memory(b);
    read_pool(b, before);
    hook.program = &s->programs[i];
    hook.n_live = s->batch.n_tokens;
    if (s->batch.n_tokens > s->batch.n_seqs) hook.program = NULL; /* prompts are checked below */
    assert_ok(rp__stepper_run(s, &err), err);
    hook.program = NULL;
    read_pool(b, after);
    assert_memory_equal(before, after, s->cache->bytes);
    assert_right(b);
}

static void prefill(batch_of *b) {
    for (int s = 0; s < b->n_seqs; s++) {
        begin_step(b);
        add(b, s, N_PROMPT + s);
        rp_error err = {0};
        assert_ok(rp__stepper_run(&b->t.stepper, &err), err);
    }
}

static void decode(batch_of *b, float *logits) {
    size_t row_bytes = (size_t)b->n_seqs * TOY_VOCAB * sizeof *logits;
    prefill(b);
    for (int i = 0; i < N_STEPS; i++) {
        begin_step(b);
        for (int s = 0; s < b->n_seqs; s++) add(b, s, 1);
        run_step(b);
        memcpy((char *)logits + (size_t)i * row_bytes, b->t.stepper.logits, row_bytes);
    }
}

/* Steps of fewer sequences than `size` run in its program, too. */
static void leave_only(rp__stepper *s, int32_t size) {
    for (int i = 0; i < s->n_buckets; i++)
        if (s->buckets[i].kind == RP_BUCKET_DECODE && s->buckets[i].n_seqs != size)
            s->buckets[i].n_tokens = 0;
}

static void padded_equals_exact(const rp_device_api *api, const char *options) {
    static batch_of b;
    static float exact[N_STEPS * MOST * TOY_VOCAB], padded[N_STEPS * MOST * TOY_VOCAB];
    for (int r = 1; r < MOST; r++) {
        open_batch(&b, api, options, r, r, RP_CAPTURE_OFF);
        leave_only(&b.t.stepper, r);
        decode(&b, exact);
        rp_tiny_close(&b.t);
        for (int32_t size = 1; size <= MOST; size *= 2) {
            if (size <= r) continue;
            open_batch(&b, api, options, r, MOST, RP_CAPTURE_ON);
            leave_only(&b.t.stepper, size);
            decode(&b, padded);
            assert_true(b.t.stepper.replay.stats.n_replays > 0);
            rp_tiny_close(&b.t);
            assert_memory_equal(padded, exact,
                                (size_t)N_STEPS * (size_t)r * TOY_VOCAB * sizeof *exact);
        }
    }
}

RP_TEST(padding, t07_decode_is_inert_on_cpu) {
    padded_equals_exact(&rp__cpu_api, NULL);
}
RP_TEST(padding, t07_decode_is_inert_where_it_is_computed) {
    padded_equals_exact(&rp__emu_api, "reuse=always,fill=ff");
    padded_equals_exact(&rp__emu_api, "bodies=reference,record=run");
}
RP_TEST(padding, t07_decode_is_inert_where_live_rows_count) {
    padded_equals_exact(&rp__emu_api, "live_rows=1,fill=ff");
}

/* Prompts in chunks of r < S tokens. */
static void prompts_are_inert(const rp_device_api *api, const char *options) {
    static batch_of b;
    for (int mode = RP_CAPTURE_ON; mode <= RP_CAPTURE_OFF; mode++) {
        open_batch(&b, api, options, 1, 2, (rp_capture_mode)mode);
        static const int chunks[] = {3, 5, 15, 16, 1, 17};
        for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
            begin_step(&b);
            add(&b, 0, chunks[i]);
            run_step(&b);
        }
        rp_tiny_close(&b.t);
    }
}

RP_TEST(padding, t07_prompts_are_inert) {
    prompts_are_inert(&rp__cpu_api, NULL);
    prompts_are_inert(&rp__emu_api, "fill=ff");
    prompts_are_inert(&rp__emu_api, "live_rows=1");
}
