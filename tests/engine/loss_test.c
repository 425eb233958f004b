/* T18: the device is lost while the engine works. The requests in flight end with the device's
 * sentence, the next one is answered on the reopened device, and nothing aborts. And work that a
 * watchdog would end is cut into submits that it lets pass. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/device_impl.h"
#include "engine/engine_impl.h"
#include "engine/toys.h"

enum { N_TOKENS = 24 };

static const char *placement; /* of engines that are opened from now on; NULL: their own choice */

static rp_status open_emu_engine(const char *options, rp_capture_mode capture, bool at_start,
                                 rp_engine **e, rp_error *err) {
    rp_engine_options o = rp_engine_options_default();
    char path[512];
    snprintf(path, sizeof path, "%s", rp_test_path("fixtures/tiny/llama3.gguf"));
    o.model = path;
    o.device = "emu";
    o.device_options = options;
    o.max_seqs = 2;
    o.n_ctx = 64;
    o.max_batch_tokens = 16;
    o.block_size = 8;
    o.capture = capture;
    o.capture_at_start = at_start;
    o.placement = placement;
    return rp_engine_create(&o, e, err);
}

typedef struct answer {
    rp_status submitted;
    rp_finish finish;
    int32_t ids[N_TOKENS];
    size_t n;
    rp_error error;
} answer;

static answer ask(rp_engine *e) {
    rp_request_options q = rp_request_options_default();
    rp_request *r;
    rp_event ev;
    answer a = {0};
    q.prompt = "Once upon a time";
    q.max_tokens = N_TOKENS;
    q.ignore_eos = true;
    q.sampling.temperature = 0;
    a.submitted = rp_engine_submit(e, &q, &r, &a.error);
    if (a.submitted < 0) return a;
    while (rp_request_next(r, -1, &ev) == RP_OK) {
        if (ev.kind == RP_EVENT_TOKEN) {
            a.ids[a.n++] = ev.id;
            continue;
        }
        a.finish = ev.finish;
        a.error = ev.error;
    }
    rp_request_release(r);
    return a;
}

static answer known_answer(void) {
    rp_engine *e;
    rp_error err = {0};
    assert_ok(open_emu_engine(NULL, RP_CAPTURE_OFF, false, &e, &err), err);
    answer a = ask(e);
    assert_int_equal(a.finish, RP_FINISH_LENGTH);
    assert_int_equal(a.n, N_TOKENS);
    rp_engine_destroy(e);
    return a;
}

static void assert_known(const answer *a, const answer *known) {
    if (a->finish != RP_FINISH_LENGTH) fail_msg("the answer ended with: %s", a->error.message);
    assert_memory_equal(a->ids, known->ids, sizeof known->ids);
}

static void lose_at(uint64_t n_ops, const char *more, rp_capture_mode capture,
                    const answer *known) {
    rp_engine *e;
    rp_error err = {0};
    char options[128];
    snprintf(options, sizeof options, "lost_at=%llu%s", (unsigned long long)n_ops, more);
    assert_ok(open_emu_engine(options, capture, false, &e, &err), err);
    answer a = ask(e);
    if (a.finish != RP_FINISH_ERROR) fail_msg("lost at op %d and nobody noticed", (int)n_ops);
    assert_int_equal(a.error.code, RP_EDEVICE_LOST);
    assert_message(a.error, "the device stopped answering");
    for (int i = 0; i < 2; i++) {
        a = ask(e);
        assert_known(&a, known);
    }
    rp_engine_stats s = {.bytes = sizeof s};
    rp_engine_get_stats(e, &s);
    assert_int_equal(s.n_device_losses, 1);
    assert_int_equal(s.blocks_live, 0);
    if (capture == RP_CAPTURE_ON) assert_true(s.n_replays > N_TOKENS);
    rp_engine_destroy(e);
}

/* A prompt and 24 tokens are some 600 ops: 25 a step, eager first, then captured and replayed. */
RP_TEST(loss, in_any_step_the_next_request_is_answered) {
    answer known = known_answer();
    static const uint64_t at[] = {1, 2, 24, 25, 26, 49, 50, 51, 75, 76, 77, 95, 100, 101, 130};
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) lose_at(at[i], "", RP_CAPTURE_ON, &known);
    uint64_t seed = 18;
    for (int i = 0; i < 12; i++)
        lose_at(1 + rp_test_rand(&seed) % 600, "", i % 3 ? RP_CAPTURE_AUTO : RP_CAPTURE_OFF,
                &known);
}

/* The same where a watchdog cuts each step into several submits. */
RP_TEST(loss, in_any_submit_of_a_cut_step) {
    answer known = known_answer();
    uint64_t seed = 19;
    for (int i = 0; i < 24; i++)
        lose_at(1 + rp_test_rand(&seed) % 600, ",profile=pcie-accelerator,watchdog_us=60",
                i % 3 ? RP_CAPTURE_ON : RP_CAPTURE_AUTO, &known);
}

/* And where each step is in pieces between ops on the host. */
RP_TEST(loss, in_any_piece_of_a_hybrid_step) {
    answer known = known_answer();
    uint64_t seed = 20;
    placement = "hybrid";
    for (int i = 0; i < 24; i++)
        lose_at(1 + rp_test_rand(&seed) % 400, ",profile=p150-hybrid",
                i % 3 ? RP_CAPTURE_ON : RP_CAPTURE_AUTO, &known);
    placement = NULL;
}

RP_TEST(loss, while_loading_is_a_clean_refusal) {
    rp_error err = {0};
    rp_engine *e;
    for (int n = 1; n < 120; n += 33) {
        char options[64];
        snprintf(options, sizeof options, "lost_at=%d", n);
        assert_int_equal(open_emu_engine(options, RP_CAPTURE_ON, true, &e, &err), RP_EDEVICE_LOST);
        assert_null(e);
        assert_message(err, "the device stopped answering");
    }
}

/* One op is short enough for the watchdog, a whole step as one submit is not, and the device does
 * not say so beforehand: after losing it twice the step stays eager, and requests are answered. */
RP_TEST(loss, watchdog_ends_in_eager_steps) {
    answer known = known_answer(), a = {0};
    rp_engine *e;
    rp_error err = {0};
    const char *options = "profile=pcie-accelerator,watchdog_us=60,estimates=0";
    assert_ok(open_emu_engine(options, RP_CAPTURE_ON, false, &e, &err), err);
    int n_failed = 0;
    for (; n_failed < 6; n_failed++) {
        a = ask(e);
        if (a.finish != RP_FINISH_ERROR) break;
        assert_int_equal(a.error.code, RP_EDEVICE_LOST);
        assert_message(a.error, "watchdog");
    }
    assert_in_range(n_failed, 1, 4); /* twice for each of two step sizes */
    assert_known(&a, &known);
    rp_engine_stats s = {.bytes = sizeof s};
    rp_engine_get_stats(e, &s);
    assert_int_equal(s.n_device_losses, n_failed);
    rp_engine_destroy(e);
}

/* Where the device says what an op takes, the same steps are cut, captured and replayed. */
RP_TEST(loss, watchdog_cuts_steps_into_submits) {
    RP_NEEDS_COUNTS();
    answer known = known_answer();
    rp_engine *e;
    rp_error err = {0};
    const char *options = "profile=pcie-accelerator,watchdog_us=60";
    assert_ok(open_emu_engine(options, RP_CAPTURE_ON, false, &e, &err), err);
    for (int i = 0; i < 3; i++) {
        answer a = ask(e);
        assert_known(&a, &known);
    }
    rp_engine_stats s = {.bytes = sizeof s};
    rp_engine_get_stats(e, &s);
    assert_int_equal(s.n_device_losses, 0);
    assert_true(s.n_graphs > 2 * 2); /* two step sizes, each in several pieces */
    assert_true(s.n_replays > 2 * N_TOKENS * 2);
    rp_engine_destroy(e);
}

/* ---- a prompt that takes seconds on a device that allows half a second ---- */

enum { N_LONG = 4000, LONG_CTX = 4096, COMMON = 20 };

/* 1 GFLOP/s: attention of 512 tokens over the whole context takes about a second. */
static const char slow_profile[] = "launch_us 5\nop_us 2\ngraph_op_us 2\nreplay_us 10\nsync_us 5\n"
                                   "device_gflops 1\ncapture 1\nrecords_only 1\n"
                                   "watchdog_us 500000\n";

static void ask_long(const char *device_options, const int32_t *prompt, toy_answer *a,
                     uint64_t *n_losses) {
    rp_engine_options o = toy_options(HISTOGRAM);
    o.device = "emu";
    o.device_options = device_options;
    o.max_seqs = 2;
    o.n_ctx = LONG_CTX;
    o.capture = RP_CAPTURE_ON;
    rp_engine *e = toy_open(&o);
    rp_request_options q = toy_question(prompt, N_LONG, 2);
    toy_ask(e, &q, a);
    *n_losses = toy_stats(e).n_device_losses;
    rp_engine_destroy(e);
}

RP_TEST(loss, watchdog_lets_a_long_prompt_pass) {
    static int32_t prompt[N_LONG];
    static toy_answer a;
    uint64_t n_losses;
    char profile[] = "/tmp/reprise-slow.XXXXXX", options[128];
    for (int i = 0; i < N_LONG; i++) prompt[i] = i % 3 ? 30 + i % 32 : COMMON;
    int fd = mkstemp(profile);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, slow_profile, sizeof slow_profile - 1), sizeof slow_profile - 1);
    close(fd);
    snprintf(options, sizeof options, "profile=%s", profile);
    ask_long(options, prompt, &a, &n_losses);
    assert_int_equal(n_losses, 0);
    assert_int_equal(a.n, 2);
    assert_int_equal(a.ids[1], COMMON);
    assert_histogram_answer(&a, prompt, N_LONG);
    snprintf(options, sizeof options, "profile=%s,estimates=0", profile); /* nothing is cut */
    ask_long(options, prompt, &a, &n_losses);
    unlink(profile);
    assert_int_equal(a.error.code, RP_EDEVICE_LOST);
    assert_message(a.error, "watchdog");
}

static rp_status refuse_to_reopen(const rp_device_config *config, void **self, rp_error *err) {
    (void)config;
    (void)self;
    if (err) {
        *err = (rp_error){.code = RP_EDEVICE};
        snprintf(err->message, sizeof err->message, "the slot is empty");
    }
    return RP_EDEVICE;
}

RP_TEST(loss, for_good_refuses_further_work) {
    rp_engine *e;
    rp_error err = {0};
    assert_ok(open_emu_engine("lost_at=100", RP_CAPTURE_AUTO, false, &e, &err), err);
    rp_device_api broken = *e->device->api;
    broken.open = refuse_to_reopen;
    e->device->api = &broken; /* the engine's thread is asleep until the first request */
    answer a = ask(e);
    assert_int_equal(a.finish, RP_FINISH_ERROR);
    assert_message(a.error, "the device stopped answering");
    for (int i = 0; i < 2; i++) {
        a = ask(e);
        assert_true(a.submitted < 0 || a.finish == RP_FINISH_ERROR);
        assert_true(a.error.code < 0);
    }
    assert_message(a.error, "the slot is empty");
    rp_engine_destroy(e);
}

/* A launch that fails once costs its request and nothing else. */
RP_TEST(loss, one_failed_launch_ends_one_request) {
    answer known = known_answer();
    rp_engine *e;
    rp_error err = {0};
    assert_ok(open_emu_engine("launch_fail_at=40", RP_CAPTURE_OFF, false, &e, &err), err);
    answer a = ask(e);
    assert_int_equal(a.finish, RP_FINISH_ERROR);
    assert_int_equal(a.error.code, RP_EDEVICE);
    a = ask(e);
    assert_known(&a, &known);
    rp_engine_destroy(e);
}
