/* What a server needs of the engine: a bounded queue, deadlines, draining, health, choices, and the
 * smaller promises of a request's options. */
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "engine/answer.h"
#include "test.h"

static rp_engine_options options(int max_seqs, int n_ctx) {
    rp_engine_options o = rp_engine_options_default();
    o.max_seqs = max_seqs;
    o.n_ctx = n_ctx;
    o.max_batch_tokens = 32;
    o.block_size = 8;
    return o;
}

static rp_engine *open_tiny(int max_seqs, int n_ctx) {
    return rp_answer_engine(options(max_seqs, n_ctx));
}

static rp_request_options ask(const char *prompt, int n) {
    rp_request_options r = rp_request_options_default();
    r.prompt = prompt;
    r.max_tokens = n;
    r.ignore_eos = true;
    r.sampling.temperature = 0;
    return r;
}

RP_TEST(serving, queue_is_bounded) {
    rp_engine_options eo = options(1, 512);
    eo.max_queue = 2;
    rp_engine *e = rp_answer_engine(eo);
    rp_error err = {0};
    rp_gate gate;
    rp_request_options o = ask("hello", -1), gated = o;
    rp_gate_put(&gate, &gated);
    rp_request *r[3] = {rp_answer_submit(e, &gated)}, *more[3];
    rp_gate_wait(&gate, 1); /* it holds the one place */
    for (int i = 1; i < 3; i++) r[i] = rp_answer_submit(e, &o);
    assert_int_equal(rp_engine_submit(e, &o, &more[0], &err), RP_EQUEUE);
    assert_int_equal(rp_status_http(RP_EQUEUE), 429);
    assert_message(err, "3 requests are running and waiting, 3 are the most");
    assert_null(more[0]);
    rp_gate_allow(&gate, 1);
    rp_gate_wait(&gate, 2); /* a step later the figures show it */
    rp_engine_stats s = rp_answer_stats(e);
    assert_int_equal(s.n_running, 1);
    assert_int_equal(s.n_waiting, 2);
    assert_int_equal(s.n_queue_full, 1);
    rp_request_cancel(r[1]);
    rp_request_cancel(r[0]);
    rp_gate_allow(&gate, RP_GATE_ALL);
    rp_request_release(r[0]);
    rp_request_release(r[1]);
    assert_int_equal(rp_engine_submit_n(e, &o, 3, more, &err), RP_EQUEUE); /* all or none */
    assert_null(more[0]);
    rp_request_release(r[2]);
    assert_int_equal(rp_engine_submit_n(e, &o, 3, r, &err), RP_OK);
    for (int i = 0; i < 3; i++) rp_request_release(r[i]);
    s = rp_answer_stats(e);
    assert_int_equal(s.n_running + s.n_waiting + s.blocks_live, 0);
    rp_engine_destroy(e);
}

static void sleep_a_little(void *user, rp_request *request, const rp_event *event) {
    (void)user, (void)request, (void)event;
    usleep(1000);
}

RP_TEST(serving, deadlines_hold_running_and_waiting) {
    rp_engine *e = open_tiny(1, 8192);
    rp_error err = {0};
    rp_answer a;
    rp_request_options o = ask("hello", -1);
    o.timeout_seconds = 0.5;
    o.on_event = sleep_a_little; /* so that it is not done before */
    rp_request *running = rp_answer_submit(e, &o);
    o.timeout_seconds = 0.2;
    rp_request *waiting = rp_answer_submit(e, &o);
    rp_answer_take(waiting, &a);
    assert_int_equal(a.finish, RP_FINISH_TIMEOUT);
    assert_int_equal(a.error.code, RP_ETIMEOUT);
    assert_message(a.error, "not done after 0.2 s: it was waiting for its turn");
    assert_int_equal(a.n, 0);
    char *text;
    rp_usage usage;
    assert_int_equal(rp_request_wait(running, &text, &usage, &err), RP_ETIMEOUT);
    assert_message(err, "not done after 0.5 s: its "); /* prompt or answer was being computed */
    assert_true(usage.n_generated < 8000);
    assert_non_null(text);
    rp_free(text);
    rp_request_release(running);
    rp_request_release(waiting);
    assert_int_equal(rp_answer_stats(e).n_finished[RP_FINISH_TIMEOUT], 2);
    o.timeout_seconds = 600; /* and one that is in time is not touched */
    o.max_tokens = 4;
    rp_answer_of(e, &o, &a);
    assert_int_equal(a.finish, RP_FINISH_LENGTH);
    rp_engine_destroy(e);
}

static void *drain(void *engine) {
    return (void *)(intptr_t)rp_engine_drain(engine, -1);
}

RP_TEST(serving, draining_finishes_what_was_accepted) {
    rp_engine *e = open_tiny(1, 64);
    rp_error err = {0};
    rp_gate gate;
    rp_request_options o = ask("hello", 20), gated = o;
    rp_gate_put(&gate, &gated);
    double seconds = -1;
    assert_int_equal(rp_engine_health(e, &seconds, &err), RP_OK);
    assert_true(seconds >= 0);
    rp_request *r[2] = {rp_answer_submit(e, &gated), rp_answer_submit(e, &o)}, *late;
    assert_int_equal(rp_engine_drain(e, 0), RP_AGAIN);
    assert_int_equal(rp_engine_submit(e, &o, &late, &err), RP_ESHUTDOWN);
    assert_int_equal(rp_engine_health(e, NULL, &err), RP_ESHUTDOWN);
    pthread_t thread;
    void *status;
    assert_int_equal(pthread_create(&thread, NULL, drain, e), 0);
    rp_gate_allow(&gate, RP_GATE_ALL);
    for (int i = 0; i < 2; i++) {
        rp_answer a;
        rp_answer_take(r[i], &a);
        assert_int_equal(a.n, 20);
        rp_request_release(r[i]);
    }
    pthread_join(thread, &status);
    assert_int_equal((intptr_t)status, RP_OK);
    rp_engine_destroy(e);
}

/* ---- gaps ---- */

enum { CHUNK = 16, LONG_PROMPT = 300, STREAM = 60 };

typedef struct watch {
    rp_engine *engine;
    rp_request *late; /* the long prompt, which comes in the middle of the stream */
    int32_t ids[LONG_PROMPT];
    int n_tokens;
    uint64_t n_steps[STREAM], n_prompt[STREAM]; /* when each token of the stream came */
} watch;

static void watch_stream(void *user, rp_request *request, const rp_event *event) {
    (void)request;
    watch *w = user;
    rp_engine_stats s = rp_answer_stats(w->engine);
    if (event->kind != RP_EVENT_TOKEN) return;
    w->n_steps[w->n_tokens] = s.n_steps;
    w->n_prompt[w->n_tokens] = s.n_prompt_tokens;
    if (++w->n_tokens != 5) return;
    rp_request_options o = ask(NULL, 1);
    o.prompt_ids = w->ids, o.n_prompt_ids = LONG_PROMPT;
    w->late = rp_answer_submit(w->engine, &o);
}

/* T45 without a clock: between two tokens of a stream there is one step, with its own token and at
 * most a chunk of the prompt that has come. */
RP_TEST(serving, a_stream_waits_for_one_chunk) {
    RP_NEEDS_COUNTS();
    rp_engine_options eo = options(4, 512);
    eo.max_batch_tokens = 256, eo.prefill_chunk = CHUNK;
    static watch w;
    w = (watch){.engine = rp_answer_engine(eo)};
    for (int i = 0; i < LONG_PROMPT; i++) w.ids[i] = 3 + i % 50;
    rp_request_options o = ask("hello", STREAM);
    o.on_event = watch_stream, o.user = &w;
    rp_request *r = rp_answer_submit(w.engine, &o);
    assert_int_equal(rp_request_wait(r, NULL, NULL, NULL), RP_OK);
    assert_int_equal(rp_request_wait(w.late, NULL, NULL, NULL), RP_OK);
    int n_chunks = 0;
    for (int i = 1; i < STREAM; i++) {
        uint64_t n_prompt = w.n_prompt[i] - w.n_prompt[i - 1];
        assert_int_equal(w.n_steps[i] - w.n_steps[i - 1], 1);
        assert_in_range(n_prompt, 0, CHUNK);
        n_chunks += n_prompt > 0;
    }
    assert_int_equal(n_chunks, (LONG_PROMPT + CHUNK - 1) / CHUNK);
    rp_request_release(r);
    rp_request_release(w.late);
    rp_engine_destroy(w.engine);
}

/* ---- what a callback may do ---- */

typedef struct releasing {
    rp_request *other; /* released with the first token */
    int n_tokens, n_done, release_at;
    rp_status wait, next;
} releasing;

static void release_inside(void *user, rp_request *request, const rp_event *event) {
    releasing *x = user;
    rp_event none;
    x->n_done += event->kind == RP_EVENT_DONE;
    x->n_tokens += event->kind == RP_EVENT_TOKEN;
    x->wait = rp_request_wait(request, NULL, NULL, NULL);
    if (x->other) x->next = rp_request_next(x->other, -1, &none);
    rp_request_release(x->other);
    x->other = NULL;
    if (x->n_tokens == x->release_at || event->kind == RP_EVENT_DONE) rp_request_release(request);
}

static void wait_until_over(rp_engine *e) {
    rp_engine_stats s;
    do usleep(1000);
    while (s = rp_answer_stats(e), s.n_running + s.n_waiting > 0);
}

/* A callback's own request and another, in the middle of an answer and at its end: nothing waits,
 * nothing is told afterwards, nothing leaks (the sanitizer's part). */
RP_TEST(serving, requests_may_be_released_in_a_callback) {
    static const int release_at[] = {1, 7, 20, -1};
    rp_engine *e = open_tiny(2, 128);
    for (size_t i = 0; i < sizeof release_at / sizeof *release_at; i++) {
        releasing x = {.release_at = release_at[i]};
        rp_gate gate;
        rp_request_options o = ask("hello", 20), other = o;
        rp_gate_put(&gate, &other);
        if (i % 2) x.other = rp_answer_submit(e, &other);
        if (i % 2) rp_gate_wait(&gate, 1);
        o.on_event = release_inside, o.user = &x;
        rp_answer_submit(e, &o);
        rp_gate_allow(&gate, RP_GATE_ALL);
        wait_until_over(e);
        assert_int_equal(x.n_tokens, release_at[i] > 0 ? release_at[i] : 20);
        assert_int_equal(x.n_done, release_at[i] < 0);
        assert_int_equal(x.wait, RP_ESTATE);
        if (i % 2) assert_true(x.next == RP_AGAIN || x.next == RP_OK);
    }
    rp_answer a;
    rp_request_options o = ask("hello", 20);
    rp_answer_of(e, &o, &a);
    assert_int_equal(a.n, 20);
    rp_engine_destroy(e);
}

/* T42 for a pool that is smaller than the context: refused with both numbers, or answered as far as
 * there is room. */
RP_TEST(serving, a_pool_smaller_than_the_context_bounds_a_request) {
    rp_engine_options eo = options(2, 64);
    eo.n_blocks = 4; /* 32 positions */
    rp_engine *e = rp_answer_engine(eo);
    rp_error err = {0};
    rp_request *r;
    int32_t ids[40];
    for (int i = 0; i < 40; i++) ids[i] = 40 + i;
    rp_request_options o = ask(NULL, -1);
    o.prompt_ids = ids;
    o.n_prompt_ids = 32;
    assert_int_equal(rp_engine_submit(e, &o, &r, &err), RP_ECONTEXT);
    assert_message(err, "32 tokens and the KV cache 32");
    rp_answer a;
    for (size_t n = 1; n < 32; n += 10) {
        o.n_prompt_ids = n;
        rp_answer_of(e, &o, &a);
        assert_int_equal(a.n, 32 - n);
        assert_int_equal(a.finish, RP_FINISH_LENGTH);
    }
    rp_engine_destroy(e);
}

/* The table model says "fghijk..." after "e", each letter for sure. */
static rp_engine *open_table(void) {
    rp_engine_options o = options(2, 64);
    o.model = "fixtures/models/table64.gguf";
    return rp_answer_engine(o);
}

RP_TEST(serving, min_tokens_keeps_an_answer_going) {
    rp_engine *e = open_table();
    rp_answer a;
    rp_request_options o = ask("e", 12);
    static const char *const stop[] = {"h"};
    o.ignore_eos = false;
    o.stop = stop;
    o.n_stop = 1;
    rp_answer_of(e, &o, &a);
    assert_string_equal(a.text, "fg");
    assert_int_equal(a.finish, RP_FINISH_STOP);
    o.min_tokens = 5; /* "h" is the third token and goes by */
    rp_answer_of(e, &o, &a);
    assert_memory_equal(a.text, "fghij", 5);
    o.n_stop = 0;
    rp_answer plain;
    o.min_tokens = 0;
    o.max_tokens = 40;
    o.prompt = "o"; /* "ok." and the end */
    rp_answer_of(e, &o, &plain);
    assert_int_equal(plain.finish, RP_FINISH_STOP);
    o.min_tokens = (int)plain.n + 4;
    rp_answer_of(e, &o, &a);
    assert_true(a.n >= plain.n + 4);
    assert_memory_equal(a.ids, plain.ids, plain.n * sizeof *plain.ids);
    int32_t id = plain.ids[0];
    o.stop_ids = &id;
    o.n_stop_ids = 1;
    o.min_tokens = 0;
    rp_answer_of(e, &o, &a);
    assert_int_equal(a.n, 0);
    o.min_tokens = 1; /* it is not chosen at all */
    rp_answer_of(e, &o, &a);
    assert_true(a.n >= 1 && a.ids[0] != id);
    rp_engine_destroy(e);
}

RP_TEST(serving, special_tokens_are_shown_when_asked_for) {
    rp_engine *e = open_table();
    rp_error err = {0};
    rp_answer a;
    int32_t *ids;
    size_t n, n_bytes;
    assert_ok(rp_engine_tokenize(e, "<|im_end|>", 10, false, true, &ids, &n, &err), err);
    assert_int_equal(n, 1);
    const char *bytes = rp_engine_token_bytes(e, ids[0], &n_bytes);
    assert_int_equal(n_bytes, 10);
    assert_memory_equal(bytes, "<|im_end|>", 10);
    assert_null(rp_engine_token_bytes(e, -1, &n_bytes));
    assert_null(rp_engine_token_bytes(e, 64, &n_bytes));
    rp_logit_bias force = {ids[0], 99};
    rp_request_options o = ask("e", 2);
    o.sampling.logit_bias = &force;
    o.sampling.n_logit_bias = 1;
    rp_answer_of(e, &o, &a);
    assert_string_equal(a.text, "");
    o.skip_special_tokens = false;
    rp_answer_of(e, &o, &a);
    assert_string_equal(a.text, "<|im_end|><|im_end|>");
    rp_free(ids);
    rp_engine_destroy(e);
}

static void assert_prompt(rp_engine *e, const rp_request_options *o, const char *want) {
    char *text;
    rp_error err = {0};
    assert_ok(rp_engine_apply_template(e, o, &text, &err), err);
    assert_string_equal(text, want);
    rp_free(text);
}

RP_TEST(serving, an_answer_begun_by_the_caller_goes_on) {
    rp_engine_options eo = options(1, 64);
    eo.chat_template =
        "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</>\n{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}";
    rp_engine *e = rp_answer_engine(eo);
    rp_error err = {0};
    char *text;
    rp_request_options o = rp_request_options_default();
    o.messages = "[{\"role\":\"user\",\"content\":\"Hi\"},"
                 "{\"role\":\"assistant\",\"content\":\"Well, \"}]";
    assert_prompt(e, &o, "<user>Hi</>\n<assistant>Well,</>\n<assistant>");
    o.add_generation_prompt = false;
    assert_prompt(e, &o, "<user>Hi</>\n<assistant>Well,</>\n");
    o.continue_final_message = true;
    assert_prompt(e, &o, "<user>Hi</>\n<assistant>Well, ");
    o.add_generation_prompt = true;
    assert_int_equal(rp_engine_apply_template(e, &o, &text, &err), RP_EINVAL);
    o.add_generation_prompt = false;
    o.messages = "[{\"role\":\"user\",\"content\":null}]";
    assert_int_equal(rp_engine_apply_template(e, &o, &text, &err), RP_EINVAL);
    assert_message(err, "messages[0].content is not a text");
    rp_engine_destroy(e);
    eo.chat_template = "always the same";
    e = rp_answer_engine(eo);
    o.messages = "[{\"role\":\"user\",\"content\":\"Hi\"}]";
    assert_int_equal(rp_engine_apply_template(e, &o, &text, &err), RP_ETEMPLATE);
    rp_engine_destroy(e);
}

/* Log probabilities of a prompt's own tokens are those of an answer that says the same. */
RP_TEST(serving, prompt_logprobs_are_those_of_an_answer) {
    for (int max_seqs = 1; max_seqs <= 5; max_seqs += 2) {
        rp_engine *e = open_tiny(max_seqs, 128);
        rp_answer said;
        rp_request_options o = ask("Once upon", 30);
        o.n_logprobs = 3;
        rp_request *r = rp_answer_submit(e, &o), *other = rp_answer_submit(e, &o);
        size_t n_prompt, n;
        rp_answer_take(r, &said);
        int32_t ids[64];
        const int32_t *prompt = rp_request_prompt_ids(r, &n_prompt);
        memcpy(ids, prompt, n_prompt * sizeof *ids);
        memcpy(ids + n_prompt, said.ids, said.n * sizeof *ids);
        rp_request_release(r);
        o.prompt = NULL;
        o.prompt_ids = ids;
        o.n_prompt_ids = n_prompt + said.n;
        o.n_prompt_logprobs = 2;
        o.max_tokens = 1;
        r = rp_answer_submit(e, &o);
        rp_event ev;
        assert_int_equal(rp_request_next(r, -1, &ev), RP_OK);
        float logprob;
        const rp_top_logprob *top;
        assert_false(rp_request_prompt_logprob(r, 0, &logprob, &top, &n));
        assert_true(rp_request_prompt_logprob(r, 1, &logprob, &top, &n));
        assert_false(rp_request_prompt_logprob(r, n_prompt + said.n, &logprob, &top, &n));
        for (size_t i = 0; i < said.n; i++) {
            assert_true(rp_request_prompt_logprob(r, n_prompt + i, &logprob, &top, &n));
            assert_int_equal(n, 2);
            assert_memory_equal(&logprob, &said.logprobs[i], sizeof logprob);
            assert_memory_equal(top, said.tops[i], 2 * sizeof *top);
        }
        assert_false(rp_request_prompt_logprob(other, 1, &logprob, NULL, NULL));
        rp_request_release(r);
        rp_request_release(other);
        rp_engine_destroy(e);
    }
}

RP_TEST(serving, new_options_are_checked_by_name) {
    rp_engine *e = open_tiny(2, 64);
    rp_error err = {0};
    rp_request *r[3];
    rp_request_options o = ask("hello", 4);
    int32_t id = 272;
    static const double bad[] = {-1, 1e300, __builtin_nan(""), __builtin_inf()};
    for (size_t i = 0; i < 4; i++) {
        o.timeout_seconds = bad[i];
        assert_int_equal(rp_engine_submit(e, &o, r, &err), RP_EINVAL);
        assert_message(err, "timeout_seconds is ");
    }
    o = ask("hello", 4);
    o.priority = 1000001;
    assert_int_equal(rp_engine_submit(e, &o, r, &err), RP_EINVAL);
    assert_message(err, "priority is 1000001");
    o = ask("hello", 4);
    o.min_tokens = 5;
    assert_int_equal(rp_engine_submit(e, &o, r, &err), RP_EINVAL);
    assert_message(err, "min_tokens is 5, more than max_tokens 4");
    o = ask("hello", 4);
    o.n_prompt_logprobs = 21;
    assert_int_equal(rp_engine_submit(e, &o, r, &err), RP_EINVAL);
    assert_message(err, "n_prompt_logprobs is 21");
    o = ask("hello", 4);
    o.stop_ids = &id;
    o.n_stop_ids = 1;
    assert_int_equal(rp_engine_submit(e, &o, r, &err), RP_EINVAL);
    assert_message(err, "stop_ids[0] is 272");
    o = ask("hello", 4);
    assert_int_equal(rp_engine_submit_n(e, &o, 0, r, &err), RP_EINVAL);
    assert_message(err, "n is 0");
    assert_int_equal(rp_engine_submit_n(e, &o, 1 << 20, r, &err), RP_EINVAL);
    rp_engine_destroy(e);
}

/* Choices, preemption, evictions and hits allocate nothing, once the steps are warm. */
RP_TEST(serving, a_step_allocates_nothing_whatever_it_does) {
    enum { N_TEXTS = 5, N_ROUNDS = 3 };
    rp_engine_options eo = options(4, 64);
    eo.n_blocks = 14;
    eo.capture = RP_CAPTURE_OFF;
    rp_engine *e = rp_answer_engine(eo);
    rp_error err = {0};
    static const char *const texts[N_TEXTS] = {"a first text that is long", "a first text that is",
                                               "something else", "b", "a first text"};
    uint64_t before = 0, after = 0;
    for (int round = 0; round < N_ROUNDS; round++) {
        rp_request *r[1 + 2 * N_TEXTS];
        rp_gate gate;
        rp_request_options o = ask("x", 2);
        rp_gate_put(&gate, &o); /* nobody steps while requests are made */
        r[0] = rp_answer_submit(e, &o);
        rp_gate_wait(&gate, 1);
        for (int i = 0; i < N_TEXTS; i++) {
            o = ask(texts[i], 30);
            assert_ok(rp_engine_submit_n(e, &o, 2, &r[1 + 2 * i], &err), err);
        }
        before = rp_answer_stats(e).heap_allocs;
        rp_gate_allow(&gate, RP_GATE_ALL);
        for (int i = 0; i < 1 + 2 * N_TEXTS; i++)
            assert_ok(rp_request_wait(r[i], NULL, NULL, &err), err);
        after = rp_answer_stats(e).heap_allocs;
        for (int i = 0; i < 1 + 2 * N_TEXTS; i++) rp_request_release(r[i]);
    }
    assert_int_equal(after, before); /* in the last round */
    rp_engine_stats s = rp_answer_stats(e);
    assert_true(s.n_preemptions > 0 && s.n_prefix_hits > 0);
    rp_engine_destroy(e);
}

/* An option struct of an older caller ends earlier; the rest is as by default. */
RP_TEST(serving, shorter_structs_of_older_callers_work) {
    rp_engine *e = open_tiny(1, 64);
    rp_error err = {0};
    rp_request *r;
    union {
        rp_request_options o;
        unsigned char bytes[sizeof(rp_request_options)];
    } u = {.o = ask("hello", 4)};
    size_t n = offsetof(rp_request_options, n_prompt_logprobs);
    memset(u.bytes + n, 0xEE, sizeof u.bytes - n); /* not the caller's memory */
    u.o.bytes = (uint32_t)n;
    assert_ok(rp_engine_submit(e, &u.o, &r, &err), err);
    assert_ok(rp_request_wait(r, NULL, NULL, &err), err);
    rp_request_release(r);
    rp_engine_destroy(e);
}

/* Every allocation of a submit with choices fails once. */
RP_TEST(serving, every_failing_allocation_of_choices_is_survived) {
    rp_engine *e = open_tiny(3, 64);
    rp_error err = {0};
    rp_request *r[3] = {0};
    static const char *const stop[] = {"zzz"};
    int32_t id = 5;
    rp_request_options o = ask("hello world", 3);
    o.stop = stop, o.n_stop = 1, o.stop_ids = &id, o.n_stop_ids = 1;
    o.min_tokens = 1, o.n_logprobs = 2, o.n_prompt_logprobs = 2;
    uint64_t n = 0;
    for (bool has_failed = true; has_failed; n++) {
        uint64_t failed = rp__alloc_get_stats().n_failed;
        rp__alloc_fail_at(n + 1, false);
        rp_status st = rp_engine_submit_n(e, &o, 3, r, &err);
        for (int i = 0; i < 3 && st == RP_OK; i++) rp_request_wait(r[i], NULL, NULL, NULL);
        rp__alloc_fail_at(0, false);
        has_failed = rp__alloc_get_stats().n_failed > failed;
        if (st != RP_OK && (st != RP_ENOMEM || !has_failed))
            fail_msg("allocation %d: %s: %s", (int)n, rp_status_name(st), err.message);
        for (int i = 0; i < 3; i++) {
            if (st != RP_OK) assert_null(r[i]);
            rp_request_release(r[i]);
        }
    }
    assert_true(n > 30);
    rp_engine_stats s = rp_answer_stats(e);
    assert_int_equal(s.n_running + s.n_waiting + s.blocks_live, 0);
    rp_engine_destroy(e);
}

/* ---- many threads ---- */

typedef struct crowd {
    rp_engine *engine;
    rp_answer want[4];
    int n_right;
    pthread_mutex_t lock;
} crowd;

static rp_request_options crowd_ask(int kind) {
    static const char *const prompts[] = {"Once upon a time there was", "Once upon a time there is",
                                          "x", "The quick brown fox jumps over the lazy dog"};
    rp_request_options o = ask(prompts[kind], 12);
    o.sampling.temperature = 1;
    o.priority = kind - 1;
    return o;
}

/* Some are read, some cancelled at once, some in the middle, some let go unread; with choices. */
static void *member(void *user) {
    crowd *c = user;
    rp_request *r[3];
    rp_answer a;
    rp_event ev;
    for (int i = 0; i < 24; i++) {
        int kind = i % 4, n = i % 5 == 0 ? 3 : 1, n_right = 0;
        rp_request_options o = crowd_ask(kind);
        if (i % 7 == 6) o.timeout_seconds = 1e-6;
        if (rp_engine_submit_n(c->engine, &o, n, r, NULL) < 0) continue; /* the queue is full */
        if (i % 6 == 1) rp_request_cancel(r[0]);
        if (i % 6 == 2) rp_request_next(r[0], -1, &ev), rp_request_cancel(r[0]);
        if (i % 6 == 4) {
            rp_answer_take(r[0], &a);
            n_right = a.n == c->want[kind].n && !memcmp(a.ids, c->want[kind].ids, sizeof a.ids);
        }
        for (int k = n; k-- > 0;) rp_request_release(r[k]);
        pthread_mutex_lock(&c->lock);
        c->n_right += n_right;
        pthread_mutex_unlock(&c->lock);
    }
    return NULL;
}

RP_TEST(serving, many_threads_submit_and_cancel) {
    rp_engine_options eo = options(3, 64);
    eo.n_blocks = 12;
    static crowd c;
    c = (crowd){.engine = rp_answer_engine(eo)};
    pthread_mutex_init(&c.lock, NULL);
    for (int i = 0; i < 4; i++) {
        rp_request_options o = crowd_ask(i);
        rp_answer_of(c.engine, &o, &c.want[i]);
    }
    pthread_t threads[8];
    for (int i = 0; i < 8; i++) assert_int_equal(pthread_create(&threads[i], NULL, member, &c), 0);
    for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
    assert_int_equal(c.n_right, 8 * 4); /* i is 4, 10, 16 and 22 */
    rp_engine_stats s = rp_answer_stats(c.engine);
    assert_int_equal(s.n_running + s.n_waiting + s.blocks_live, 0);
    rp_engine_destroy(c.engine);
}
