/* The engine through its public header, on tiny models: same answers however requests meet, limits,
 * refusals, and every allocation failing once. */
#include "reprise/reprise.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "engine/answer.h"
#include "test.h"

static rp_engine *open_tiny(int max_seqs, int n_ctx, rp_capture_mode capture) {
    rp_engine_options o = rp_engine_options_default();
    o.max_seqs = max_seqs;
    o.n_ctx = n_ctx;
    o.max_batch_tokens = 32;
    o.block_size = 8;
    o.capture = capture;
    return rp_answer_engine(o);
}

static rp_request_options ask(const char *prompt, int n, uint64_t seed) {
    rp_request_options r = rp_request_options_default();
    r.prompt = prompt;
    r.max_tokens = n;
    r.ignore_eos = true;
    r.sampling.seed = seed;
    r.sampling.temperature = 1.5f;
    r.n_logprobs = 3;
    return r;
}

static const char *const prompts[] = {"Once upon a time", "x",
                                      "The quick brown fox jumps over the lazy dog, twice.",
                                      "1 2 3 4 5 6 7 8 9 10 11 12 13", "def f(x):\n    return"};
enum { N_PROMPTS = sizeof prompts / sizeof *prompts };

RP_TEST(engine, an_answer_does_not_depend_on_company_or_replay) {
    static rp_answer alone[N_PROMPTS], other;
    rp_engine *e = open_tiny(1, 128, RP_CAPTURE_OFF);
    for (int i = 0; i < N_PROMPTS; i++) {
        rp_request_options o = ask(prompts[i], 24, (uint64_t)i);
        rp_answer_of(e, &o, &alone[i]);
        assert_int_equal(alone[i].n, 24);
        assert_int_equal(alone[i].finish, RP_FINISH_LENGTH);
    }
    rp_engine_destroy(e);
    static const int batches[] = {2, 3, 8};
    for (size_t b = 0; b < 3; b++) {
        e = open_tiny(batches[b], 128, b == 1 ? RP_CAPTURE_ON : RP_CAPTURE_AUTO);
        rp_request *r[2 * N_PROMPTS];
        rp_error err = {0};
        for (int i = 0; i < 2 * N_PROMPTS; i++) { /* every prompt twice, in both orders */
            int p = i < N_PROMPTS ? i : 2 * N_PROMPTS - 1 - i;
            rp_request_options o = ask(prompts[p], 24, (uint64_t)p);
            assert_ok(rp_engine_submit(e, &o, &r[i], &err), err);
        }
        for (int i = 0; i < 2 * N_PROMPTS; i++) {
            rp_answer_take(r[i], &other);
            rp_answer_assert_same(&alone[i < N_PROMPTS ? i : 2 * N_PROMPTS - 1 - i], &other);
            rp_request_release(r[i]);
        }
        rp_engine_stats s = {.bytes = sizeof s};
        rp_engine_get_stats(e, &s);
        if (b == 1) assert_true(s.n_replays > 0);
        assert_int_equal(s.blocks_live, 0);
        rp_engine_destroy(e);
    }
}

RP_TEST(engine, seeds_differ_and_repeat) {
    rp_engine *e = open_tiny(2, 128, RP_CAPTURE_AUTO);
    static rp_answer a, b, c;
    rp_request_options o = ask("Once", 24, 7), other = ask("Once", 24, 8);
    rp_answer_of(e, &o, &a);
    rp_answer_of(e, &other, &b);
    rp_answer_of(e, &o, &c);
    rp_answer_assert_same(&a, &c);
    assert_int_not_equal(memcmp(a.ids, b.ids, sizeof a.ids), 0);
    rp_engine_destroy(e);
}

RP_TEST(engine, context_limits_are_exact) {
    rp_engine *e = open_tiny(1, 16, RP_CAPTURE_AUTO);
    rp_error err = {0};
    rp_request *r;
    int32_t ids[64];
    for (int i = 0; i < 64; i++) ids[i] = 40 + i;
    rp_request_options o = ask(NULL, -1, 0);
    o.prompt_ids = ids;
    static rp_answer a;
    o.n_prompt_ids = 15; /* one token of room */
    rp_answer_of(e, &o, &a);
    assert_int_equal(a.n, 1);
    assert_int_equal(a.finish, RP_FINISH_LENGTH);
    assert_int_equal(a.usage.n_prompt, 15);
    for (size_t n = 16; n <= 64; n += 48) {
        o.n_prompt_ids = n;
        assert_int_equal(rp_engine_submit(e, &o, &r, &err), RP_ECONTEXT);
        assert_message(err, n == 16 ? "16 tokens and the context is 16"
                                    : "64 tokens and the context is 16");
    }
    o.n_prompt_ids = 4; /* the answer fills the context */
    rp_answer_of(e, &o, &a);
    assert_int_equal(a.n, 12);
    rp_engine_destroy(e);
}

RP_TEST(engine, bad_requests_are_refused_by_name) {
    rp_engine *e = open_tiny(1, 64, RP_CAPTURE_AUTO);
    rp_error err = {0};
    rp_request *r;
    static const struct {
        const char *part;
        int field;
        double value;
    } rows[] = {{"temperature is -1", 0, -1},   {"temperature is nan", 0, __builtin_nan("")},
                {"top_p is 1.5", 1, 1.5},       {"top_p is 0", 1, 0},
                {"min_p is -0.1", 2, -0.1},     {"max_tokens is 0", 3, 0},
                {"max_tokens is -2", 3, -2},    {"n_logprobs is 21", 4, 21},
                {"top_k is -5", 5, -5},         {"logit_bias names token 99999", 6, 99999},
                {"prompt_ids[1] is -1", 7, -1}, {"prompt_ids[1] is 272", 7, 272},
                {"stop[0] is empty", 8, 0},     {"exactly one of", 9, 0},
                {"the prompt is empty", 10, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        rp_request_options o = ask("hello", 4, 0);
        double v = rows[i].value;
        rp_logit_bias bias = {(int32_t)v, 1};
        int32_t ids[2] = {1, (int32_t)v};
        const char *stop = "";
        switch (rows[i].field) {
        case 0:
            o.sampling.temperature = (float)v;
            break;
        case 1:
            o.sampling.top_p = (float)v;
            break;
        case 2:
            o.sampling.min_p = (float)v;
            break;
        case 3:
            o.max_tokens = (int)v;
            break;
        case 4:
            o.n_logprobs = (int)v;
            break;
        case 5:
            o.sampling.top_k = (int)v;
            break;
        case 6:
            o.sampling.logit_bias = &bias, o.sampling.n_logit_bias = 1;
            break;
        case 7:
            o.prompt = NULL, o.prompt_ids = ids, o.n_prompt_ids = 2;
            break;
        case 8:
            o.stop = &stop, o.n_stop = 1;
            break;
        case 9:
            o.messages = "[]";
            break;
        default:
            o.prompt = "", o.skip_bos = true;
            break;
        }
        rp_status st = rp_engine_submit(e, &o, &r, &err);
        if (st != RP_EINVAL) fail_msg("row %zu: status %s", i, rp_status_name(st));
        assert_message(err, rows[i].part);
    }
    rp_request_options o = ask("hello", 4, 0); /* and the engine still answers */
    static rp_answer a;
    rp_answer_of(e, &o, &a);
    assert_int_equal(a.n, 4);
    rp_engine_destroy(e);
}

RP_TEST(engine, cancel_ends_running_and_waiting_requests) {
    rp_engine *e = open_tiny(1, 4096, RP_CAPTURE_AUTO);
    rp_error err = {0};
    rp_gate gate;
    rp_request_options o = ask("hello", -1, 0), gated = o;
    rp_gate_put(&gate, &gated);
    rp_request *running = rp_answer_submit(e, &gated), *waiting = rp_answer_submit(e, &o);
    rp_gate_allow(&gate, 4);
    rp_gate_wait(&gate, 5); /* it is on its way */
    rp_request_cancel(waiting);
    rp_request_cancel(running);
    rp_gate_allow(&gate, RP_GATE_ALL);
    rp_usage usage;
    assert_ok(rp_request_wait(waiting, NULL, &usage, &err), err);
    assert_int_equal(usage.n_generated, 0);
    assert_ok(rp_request_wait(running, NULL, &usage, &err), err);
    assert_int_equal(usage.n_generated, 5); /* not one step more */
    rp_request_release(running);
    rp_request_release(waiting);
    static rp_answer a;
    o = ask("hello", 4, 0);
    rp_answer_of(e, &o, &a);
    assert_int_equal(a.n, 4);
    assert_int_equal(rp_answer_stats(e).blocks_live, 0);
    rp_engine_destroy(e);
}

static void count_events(void *user, rp_request *request, const rp_event *event) {
    (void)request;
    int *n = user;
    n[event->kind]++;
}

RP_TEST(engine, callback_sees_every_token_and_the_end) {
    rp_engine *e = open_tiny(1, 128, RP_CAPTURE_AUTO);
    rp_error err = {0};
    rp_request *r;
    int n[2] = {0};
    rp_request_options o = ask("hello", 20, 3);
    o.on_event = count_events;
    o.user = n;
    assert_ok(rp_engine_submit(e, &o, &r, &err), err);
    assert_ok(rp_request_wait(r, NULL, NULL, &err), err);
    assert_int_equal(n[RP_EVENT_TOKEN], 20);
    assert_int_equal(n[RP_EVENT_DONE], 1);
    rp_request_release(r);
    rp_engine_destroy(e);
}

typedef struct snapshots {
    rp_engine *engine;
    int n_tokens;
    rp_engine_stats early, late;
} snapshots;

/* On the engine's thread, so that what lies between is steps alone. */
static void take_snapshots(void *user, rp_request *request, const rp_event *event) {
    (void)request;
    snapshots *s = user;
    if (event->kind != RP_EVENT_TOKEN) return;
    s->early.bytes = s->late.bytes = sizeof s->early;
    if (++s->n_tokens == 50) rp_engine_get_stats(s->engine, &s->early);
    if (s->n_tokens == 400) rp_engine_get_stats(s->engine, &s->late);
}

RP_TEST(engine, a_step_allocates_nothing_once_warm) {
    RP_NEEDS_COUNTS();
    static const rp_capture_mode modes[] = {RP_CAPTURE_ON, RP_CAPTURE_OFF};
    for (int m = 0; m < 2; m++) {
        rp_engine *e = open_tiny(1, 512, modes[m]);
        rp_error err = {0};
        rp_request *r;
        rp_request_options o = ask("hello", 400, 3);
        snapshots s = {.engine = e};
        o.on_event = take_snapshots;
        o.user = &s;
        assert_ok(rp_engine_submit(e, &o, &r, &err), err);
        assert_ok(rp_request_wait(r, NULL, NULL, &err), err);
        assert_int_equal(s.late.n_steps, s.early.n_steps + 350);
        assert_int_equal(s.late.heap_allocs, s.early.heap_allocs);
        assert_int_equal(s.late.device_allocs, s.early.device_allocs);
        assert_int_equal(s.late.device_bytes, s.early.device_bytes);
        rp_request_release(r);
        rp_engine_destroy(e);
    }
}

RP_TEST(engine, capture_is_used_as_asked_and_switched_at_run_time) {
    RP_NEEDS_COUNTS();
    rp_engine *e = open_tiny(1, 512, RP_CAPTURE_ON);
    static rp_answer on, off;
    rp_request_options o = ask("hello", 200, 3);
    rp_engine_stats s = {.bytes = sizeof s};
    rp_answer_of(e, &o, &on);
    rp_engine_get_stats(e, &s);
    assert_in_range(s.n_captures, 1, 2);
    assert_true(s.n_replays >= 200 - s.n_captures - 4); /* T03: captured once, then replayed */
    rp_engine_set_capture(e, RP_CAPTURE_OFF);
    uint64_t replays = s.n_replays;
    rp_answer_of(e, &o, &off);
    rp_engine_get_stats(e, &s);
    assert_int_equal(s.n_replays, replays);
    rp_answer_assert_same(&on, &off);
    rp_engine_destroy(e);
}

/* Every `step`-th allocation fails once, while loading and while a request is made: a clean status
 * or success, no leak (address sanitizer), and the engine goes on. */
static void fail_allocations(rp_engine_options o, uint64_t step) {
    char path[512];
    snprintf(path, sizeof path, "%s", rp_test_path("fixtures/tiny/llama3.gguf"));
    o.model = path;
    o.max_seqs = 1;
    o.n_ctx = 64;
    o.n_threads = 1;
    o.max_batch_tokens = 16;
    rp_error err;
    rp_engine *e = NULL;
    uint64_t n = 0;
    for (bool has_failed = true; has_failed; n += step) {
        uint64_t failed = rp__alloc_get_stats().n_failed;
        rp_engine_destroy(e);
        err = (rp_error){0};
        rp__alloc_fail_at(n + 1, false);
        rp_status st = rp_engine_create(&o, &e, &err);
        rp__alloc_fail_at(0, false);
        has_failed = rp__alloc_get_stats().n_failed > failed;
        /* RP_OK: PCRE2 goes on without its just-in-time compiler. */
        if (st != RP_OK && (st != RP_ENOMEM || !has_failed))
            fail_msg("allocation %d on load: %s: %s", (int)n, rp_status_name(st), err.message);
    }
    assert_true(n > 50);
    rp_request_options q = ask("hello world", 3, 1);
    rp_request *r = NULL;
    n = 0;
    for (bool has_failed = true; has_failed; n += step) {
        uint64_t failed = rp__alloc_get_stats().n_failed;
        rp_request_release(r);
        r = NULL;
        rp__alloc_fail_at(n + 1, false);
        rp_status st = rp_engine_submit(e, &q, &r, &err);
        if (st == RP_OK) rp_request_wait(r, NULL, NULL, NULL);
        rp__alloc_fail_at(0, false);
        has_failed = rp__alloc_get_stats().n_failed > failed;
        if (st != RP_OK && (st != RP_ENOMEM || !has_failed))
            fail_msg("allocation %d on a request: %s: %s", (int)n, rp_status_name(st), err.message);
    }
    assert_true(n > 5);
    assert_ok(rp_request_wait(r, NULL, NULL, &err), err);
    rp_request_release(r);
    rp_engine_destroy(e);
}

RP_TEST(engine, every_failing_allocation_is_survived) {
    fail_allocations(rp_engine_options_default(), 1);
}

RP_TEST(engine, failing_allocations_with_ops_on_the_host) {
    rp_engine_options o = rp_engine_options_default();
    o.device = "emu";
    o.device_options = "profile=p150-hybrid,memory=64M";
    fail_allocations(o, 7);
}

typedef struct worker {
    rp_engine *engine;
    rp_answer want;
} worker;

static void *many_requests(void *user) {
    worker *w = user;
    for (int i = 0; i < 8; i++) {
        rp_request_options o = ask(prompts[i % N_PROMPTS], 6, 1);
        rp_answer a;
        rp_answer_of(w->engine, &o, &a);
        if (i == 0) rp_answer_assert_same(&a, &w->want);
    }
    return NULL;
}

RP_TEST(engine, requests_from_many_threads) {
    rp_engine *e = open_tiny(3, 64, RP_CAPTURE_AUTO);
    static worker w;
    w.engine = e;
    rp_request_options o = ask(prompts[0], 6, 1);
    rp_answer_of(e, &o, &w.want);
    pthread_t threads[6];
    for (int i = 0; i < 6; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, many_requests, &w), 0);
    for (int i = 0; i < 6; i++) pthread_join(threads[i], NULL);
    rp_engine_destroy(e);
}
