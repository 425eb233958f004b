/* Part A of the cases that engines fail at, on the whole engine: graphs that leak, are never
 * replayed, outlive an error, read somebody else's bytes, or are thrown away. Answers come from
 * models whose answers are known by hand (toys.h). */
#include "engine/toys.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "engine/engine_impl.h"

static uint64_t live_heap(void) {
    rp__alloc_stats s = rp__alloc_get_stats();
    return s.n_allocs - s.n_frees;
}

static uint64_t add_bits(uint64_t bits, const toy_answer *a) { /* FNV-1a */
    for (size_t i = 0; i < a->n; i++) {
        uint32_t u;
        memcpy(&u, &a->logprobs[i], sizeof u);
        bits = ((bits ^ u) * 0x100000001B3u ^ (uint32_t)a->ids[i]) * 0x100000001B3u;
    }
    return (bits ^ (uint64_t)a->finish) * 0x100000001B3u;
}

/* ---- T02: memory does not grow with use ---- */

enum {
    T02_REQUESTS = RP_TEST_IS_INSTRUMENTED ? 120 : 500,
    T02_EARLY = 50, /* the first look */
    T02_GRAPHS = 4
};

/* Rounds of 1, 2, 3 and 4 sequences at once; prompts of 1 to 500 tokens. */
static uint64_t serve_widths(rp_engine *e, rp_engine_stats *early) {
    static int32_t prompts[4][512];
    static toy_answer a;
    uint64_t bits = 0;
    for (int i = 0, width = 1; i < T02_REQUESTS; i += width, width = width % 4 + 1) {
        rp_request *r[4];
        for (int k = 0; k < width; k++) {
            size_t n = 1 + (size_t)(i + k) * 37 % 500;
            toy_ids((uint64_t)(i + k), prompts[k], n);
            rp_request_options q = toy_question(prompts[k], n, 3);
            r[k] = toy_submit(e, &q, &a);
            if (!r[k]) fail_msg("%s", a.error.message);
        }
        for (int k = 0; k < width; k++) {
            size_t n = 1 + (size_t)(i + k) * 37 % 500;
            toy_take(r[k], &a);
            assert_table_answer(&a, prompts[k][n - 1]);
            bits = add_bits(bits, &a);
        }
        if (i <= T02_EARLY) *early = toy_stats(e);
    }
    return bits;
}

static void flat_with_use(const char *device) {
    rp_engine_options o = toy_options(TABLE);
    rp_engine_stats early, late;
    o.device = device;
    o.max_seqs = 4;
    o.n_ctx = 512;
    o.max_batch_tokens = 128;
    o.max_graphs = T02_GRAPHS;
    o.capture = RP_CAPTURE_OFF;
    rp_engine *e = toy_open(&o);
    uint64_t bits = serve_widths(e, &early);
    assert_int_equal(toy_stats(e).n_captures, 0);
    rp_engine_destroy(e);
    o.capture = RP_CAPTURE_ON;
    e = toy_open(&o);
    assert_true(serve_widths(e, &early) == bits);
    late = toy_stats(e);
    assert_int_equal(early.n_graphs, T02_GRAPHS);
    assert_int_equal(late.n_graphs, T02_GRAPHS);
    assert_int_equal(late.device_bytes, early.device_bytes);
    assert_int_equal(late.device_allocs, early.device_allocs);
    assert_int_equal(late.graph_bytes, early.graph_bytes);
    assert_true(late.n_replays > early.n_replays);
    rp_engine_destroy(e);
}

RP_TEST(graphs, t02_memory_is_flat_with_use) {
    RP_NEEDS_COUNTS();
    flat_with_use(NULL);
    flat_with_use("emu");
}

/* ---- T03: what is captured is replayed ---- */

enum { T03_TOKENS = 256 };

static void replays_what_it_captures(rp_capture_mode mode, const char *profile) {
    rp_engine_options o = toy_options(TABLE);
    static toy_answer a;
    const int32_t prompt[] = {20, 21, 22};
    o.device = "emu";
    o.device_options = profile;
    o.max_seqs = 4;
    o.n_ctx = 512;
    o.capture = mode;
    rp_engine *e = toy_open(&o);
    rp_request_options q = toy_question(prompt, 3, T03_TOKENS);
    rp_engine_stats before = toy_stats(e), after;
    for (int i = 0; i < 3; i++, before = after) {
        toy_ask(e, &q, &a);
        assert_int_equal(a.n, T03_TOKENS);
        assert_table_answer(&a, prompt[2]);
        after = toy_stats(e);
        uint64_t captures = after.n_captures - before.n_captures;
        assert_int_equal(after.n_recaptures, 0);
        assert_in_range(captures, 0, 2); /* a prompt of 16 and a decode of 1 */
        /* With auto, the first request also measures. */
        uint64_t n_measured = i == 0 && mode == RP_CAPTURE_AUTO ? 2 : 0;
        assert_true(after.n_replays - before.n_replays >= T03_TOKENS - captures - 2 - n_measured);
    }
    assert_int_equal(after.n_captures, 2);
    rp_engine_destroy(e);
}

RP_TEST(graphs, t03_what_is_captured_is_replayed) {
    RP_NEEDS_COUNTS();
    replays_what_it_captures(RP_CAPTURE_ON, "profile=discrete-gpu");
    replays_what_it_captures(RP_CAPTURE_AUTO, "profile=discrete-gpu");
    replays_what_it_captures(RP_CAPTURE_AUTO, "profile=pcie-accelerator");
}

/* ---- T04: errors and full contexts leave no trace, over 10,000 requests ---- */

enum {
    T04_REQUESTS = RP_TEST_IS_INSTRUMENTED ? 2000 : 10000,
    T04_CTX = 48,
    T04_SEQS = 4,
    T04_BLOCKS = 16 /* of 8: 128 positions for four sequences of up to 48 */
};

/* Of four requests one fits, one is longer than the context, one fits and one runs into its end. */
static rp_request_options overflow_question(int i, int32_t *prompt) {
    static const size_t lengths[] = {3, T04_CTX, 7, T04_CTX - 4};
    size_t n = lengths[i % 4];
    toy_ids((uint64_t)i, prompt, n);
    return toy_question(prompt, n, i % 4 == 3 ? -1 : 1 + i % 5);
}

static uint64_t take_overflow(rp_request *r, int i, const int32_t *prompt, uint64_t bits) {
    static toy_answer a;
    if (!r) return bits;
    toy_take(r, &a);
    size_t n_prompt = i % 4 == 3 ? T04_CTX - 4 : i % 4 ? 7 : 3;
    assert_int_equal(a.finish, RP_FINISH_LENGTH);
    assert_int_equal(a.n, i % 4 == 3 ? 4 : 1 + i % 5);
    assert_table_answer(&a, prompt[n_prompt - 1]);
    return add_bits(bits, &a);
}

static uint64_t serve_overflow(rp_engine *e, int from, int to) {
    static int32_t prompts[T04_SEQS][T04_CTX];
    static toy_answer a;
    rp_request *r[T04_SEQS] = {0};
    uint64_t bits = 0;
    for (int i = from; i < to; i++) {
        int k = i % T04_SEQS;
        if (i - from >= T04_SEQS) bits = take_overflow(r[k], i - T04_SEQS, prompts[k], bits);
        rp_request_options q = overflow_question(i, prompts[k]);
        r[k] = toy_submit(e, &q, &a);
        if (!r[k] != (i % 4 == 1)) fail_msg("request %d: %s", i, a.error.message);
        if (!r[k]) assert_int_equal(a.error.code, RP_ECONTEXT);
    }
    for (int i = to - T04_SEQS; i < to; i++)
        bits = take_overflow(r[i % T04_SEQS], i, prompts[i % T04_SEQS], bits);
    return bits;
}

static uint64_t overflow(const char *device, rp_capture_mode mode, int n_requests) {
    rp_engine_options o = toy_options(TABLE);
    o.device = device;
    o.max_seqs = T04_SEQS;
    o.n_ctx = T04_CTX;
    o.n_blocks = T04_BLOCKS;
    o.max_batch_tokens = 64;
    o.max_graphs = 4;
    o.capture = mode;
    rp_engine *e = toy_open(&o);
    uint64_t bits = serve_overflow(e, 0, n_requests / 10);
    rp_engine_stats warm = toy_stats(e), after;
    uint64_t heap = live_heap();
    bits ^= serve_overflow(e, n_requests / 10, n_requests);
    after = toy_stats(e);
    assert_int_equal(after.blocks_live, 0);
    if (!RP_STRESS) {
        assert_int_equal(after.device_bytes, warm.device_bytes);
        assert_int_equal(after.device_allocs, warm.device_allocs);
        assert_int_equal(after.graph_bytes, warm.graph_bytes);
        assert_int_equal(live_heap(), heap);
        assert_int_equal(after.n_graphs, mode == RP_CAPTURE_OFF ? 0 : 4);
    }
    rp_engine_destroy(e);
    return bits;
}

RP_TEST(graphs, t04_overflowing_requests_leave_no_trace) {
    uint64_t off = overflow(NULL, RP_CAPTURE_OFF, T04_REQUESTS);
    assert_true(overflow(NULL, RP_CAPTURE_ON, T04_REQUESTS) == off);
    off = overflow("emu", RP_CAPTURE_OFF, T04_REQUESTS / 10);
    assert_true(overflow("emu", RP_CAPTURE_ON, T04_REQUESTS / 10) == off);
}

/* ---- T08: prompts of other shapes between the replays of a decode ---- */

enum { T08_PREFILLS = 100, T08_TOKENS = 300, T08_CTX = 512 };

static void ask_between(rp_engine *e, toy_answer *a) {
    static int32_t prompt[T08_CTX], other[T08_CTX];
    static toy_answer b;
    toy_ids(8, prompt, 10);
    rp_request_options q = toy_question(prompt, 10, T08_TOKENS);
    q.sampling.temperature = 1;
    q.sampling.seed = 8;
    rp_request *r = toy_submit(e, &q, a);
    if (!r) fail_msg("%s", a->error.message);
    for (int i = 0; i < T08_PREFILLS; i++) {
        size_t n = 1 + (size_t)(2 * i) % 199; /* odd lengths */
        toy_ids((uint64_t)i + 100, other, n);
        rp_request_options p = toy_question(other, n, 1);
        toy_ask(e, &p, &b);
        assert_histogram_answer(&b, other, n);
    }
    toy_take(r, a);
    assert_histogram_answer(a, prompt, 10);
}

RP_TEST(graphs, t08_odd_prompts_between_replays) {
    static toy_answer eager, replayed;
    static const char *const allocators[] = {"reuse=always,fill=ff", "reuse=never,fill=ff",
                                             "reuse=always,fill=ff,live_rows=1"};
    rp_engine_options o = toy_options(HISTOGRAM);
    o.n_threads = 2;
    o.max_seqs = 3;
    o.n_ctx = T08_CTX;
    o.max_batch_tokens = 64;
    o.capture = RP_CAPTURE_OFF;
    rp_engine *e = toy_open(&o);
    ask_between(e, &eager);
    rp_engine_destroy(e);
    assert_int_equal(eager.n, T08_TOKENS);
    o.device = "emu";
    o.capture = RP_CAPTURE_ON;
    for (size_t i = 0; i < sizeof allocators / sizeof *allocators; i++) {
        o.device_options = allocators[i];
        e = toy_open(&o);
        ask_between(e, &replayed);
        assert_true(toy_stats(e).n_replays > RP_STRESSED(T08_TOKENS / 2, 10));
        rp_engine_destroy(e);
        assert_int_equal(replayed.n, eager.n);
        assert_memory_equal(replayed.ids, eager.ids, sizeof eager.ids);
        assert_memory_equal(replayed.logprobs, eager.logprobs, sizeof eager.logprobs);
    }
}

/* ---- T12: kinds of requests share graphs, and cost the same ---- */

enum { T12_REQUESTS = 200 };

static rp_request_options question_of_kind(int kind, const int32_t *prompt) {
    rp_request_options q = toy_question(prompt, 3, 6);
    q.sampling.temperature = kind % 2 ? 0.8f : 0;
    q.sampling.repetition_penalty = kind % 3 ? 1.2f : 1;
    q.sampling.presence_penalty = kind % 3 ? 0.5f : 0;
    q.n_logprobs = kind % 5 ? 3 : -1;
    return q;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Simulated time that 95% of the requests stay below. The device is asked between requests, when
 * the engine's thread sleeps. */
static double p95_us(rp_engine *e, bool is_mixed) {
    static toy_answer a;
    const int32_t prompt[] = {20, 21, 22};
    double us[T12_REQUESTS];
    for (int i = 0; i < T12_REQUESTS; i++) {
        rp_request_options q = question_of_kind(is_mixed ? i : 0, prompt);
        double start = rp__device_clock_us(e->device);
        toy_ask(e, &q, &a);
        us[i] = rp__device_clock_us(e->device) - start;
        assert_int_equal(a.n, 6);
    }
    qsort(us, T12_REQUESTS, sizeof *us, by_value);
    return us[T12_REQUESTS * 95 / 100];
}

RP_TEST(graphs, t12_kinds_of_requests_share_graphs) {
    RP_NEEDS_COUNTS();
    rp_engine_options o = toy_options(TABLE);
    o.device = "emu";
    o.device_options = "profile=discrete-gpu";
    o.n_ctx = 64;
    o.capture = RP_CAPTURE_ON;
    rp_engine *e = toy_open(&o);
    double alike = p95_us(e, false);
    rp_engine_stats warm = toy_stats(e), after;
    double mixed = p95_us(e, true);
    after = toy_stats(e);
    assert_int_equal(after.n_captures, warm.n_captures);
    assert_int_equal(after.n_eager_steps, warm.n_eager_steps);
    assert_true(mixed <= 1.2 * alike);
    rp_engine_destroy(e);
}

/* ---- T14: capture does not make the start slow, unless it was asked to ---- */

static void serve_sizes(rp_engine *e) {
    static int32_t prompts[8][64];
    static toy_answer a;
    for (int width = 1; width <= 8; width++) {
        rp_request *r[8];
        for (int k = 0; k < width; k++) {
            size_t n = 1 + (size_t)(width * 13 + k * 7) % 60;
            toy_ids((uint64_t)k, prompts[k], n);
            rp_request_options q = toy_question(prompts[k], n, 4);
            r[k] = toy_submit(e, &q, &a);
            if (!r[k]) fail_msg("%s", a.error.message);
        }
        for (int k = 0; k < width; k++) {
            toy_take(r[k], &a);
            assert_table_answer(&a, prompts[k][(width * 13 + k * 7) % 60]);
        }
    }
}

RP_TEST(graphs, t14_capture_at_start_leaves_none_for_later) {
    RP_NEEDS_COUNTS();
    static const rp_capture_mode modes[] = {RP_CAPTURE_ON, RP_CAPTURE_AUTO};
    for (int m = 0; m < 4; m++) {
        rp_engine_options o = toy_options(TABLE);
        o.device = m < 2 ? "emu" : NULL;
        o.n_ctx = 128;
        o.max_batch_tokens = 128;
        o.capture = modes[m % 2];
        rp_engine *e = toy_open(&o); /* lazily: nothing is captured before it is used */
        assert_int_equal(toy_stats(e).n_captures, 0);
        rp_engine_destroy(e);
        o.capture_at_start = true;
        e = toy_open(&o);
        rp_engine_stats ready = toy_stats(e);
        assert_int_equal(ready.n_captures, 4 + 4); /* decode 1 to 8, prompts of 16 to 128 */
        serve_sizes(e);
        assert_int_equal(toy_stats(e).n_captures, ready.n_captures);
        assert_true(toy_stats(e).n_replays > 0);
        rp_engine_destroy(e);
    }
}

/* ---- T17: another thread loads, uses and frees a model meanwhile ---- */

typedef struct loader {
    rp_engine_options options;
    int n_lives;
    _Atomic bool is_done;
    char failed[128];
} loader;

static void *load_and_free(void *arg) {
    loader *l = arg;
    const int32_t prompt[] = {20};
    for (int i = 0; i < l->n_lives && !l->failed[0]; i++) {
        rp_request_options q = toy_question(prompt, 1, 3);
        rp_engine *e = NULL;
        rp_request *r = NULL;
        rp_error err = {0};
        rp_status st = rp_engine_create(&l->options, &e, &err);
        if (st >= 0) st = rp_engine_submit(e, &q, &r, &err);
        if (st >= 0) st = rp_request_wait(r, NULL, NULL, &err);
        rp_request_release(r);
        rp_engine_destroy(e);
        if (st < 0) snprintf(l->failed, sizeof l->failed, "life %d: %.100s", i, err.message);
    }
    l->is_done = true;
    return NULL;
}

static void serve_beside_loader(const char *device, int n_lives) {
    static loader l;
    static int32_t prompt[10];
    static toy_answer a, first;
    pthread_t thread;
    rp_engine_options o = toy_options(HISTOGRAM);
    o.device = device;
    o.n_threads = 2;
    o.n_ctx = 64;
    o.max_seqs = 2;
    o.capture = RP_CAPTURE_ON;
    rp_engine *e = toy_open(&o);
    l = (loader){.options = toy_options(TABLE), .n_lives = n_lives};
    l.options.device = device;
    l.options.n_ctx = 64;
    l.options.max_seqs = 1;
    l.options.max_batch_tokens = 16;
    l.options.capture = RP_CAPTURE_ON;
    l.options.capture_at_start = true;
    assert_int_equal(pthread_create(&thread, NULL, load_and_free, &l), 0);
    toy_ids(17, prompt, 10);
    for (int i = 0; i < 10 || !l.is_done; i++) {
        rp_request_options q = toy_question(prompt, 10, 20);
        toy_ask(e, &q, &a);
        assert_histogram_answer(&a, prompt, 10);
        if (i == 0) first = a;
        assert_memory_equal(a.ids, first.ids, sizeof a.ids);
    }
    pthread_join(thread, NULL);
    assert_string_equal(l.failed, "");
    assert_int_equal(toy_stats(e).n_refusals, 0);
    rp_engine_destroy(e);
}

RP_TEST(graphs, t17_loading_another_model_breaks_no_capture) {
    int n_lives = RP_TEST_IS_INSTRUMENTED ? 50 : 1000; /* on each device */
    serve_beside_loader(NULL, n_lives);
    serve_beside_loader("emu", n_lives);
}
