/* Memory is planned before anything big is allocated: it fits to the byte, or is refused with both
 * numbers and a context that does fit (T01, T10). And what the engine tells of its steps. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "engine/engine_impl.h"
#include "engine/fit.h"
#include "engine/toys.h"

static const char *model_path(void) {
    static char path[512];
    snprintf(path, sizeof path, "%s", rp_test_path("fixtures/tiny/llama3.gguf"));
    return path;
}

static rp_status open_with_memory(size_t memory, int n_ctx, rp_engine **e, rp_error *err) {
    rp_engine_options o = rp_engine_options_default();
    char options[64];
    snprintf(options, sizeof options, "memory=%zu", memory);
    o.model = model_path();
    o.device = "emu";
    o.device_options = options;
    o.n_ctx = n_ctx;
    o.max_seqs = 4;
    o.max_batch_tokens = 32;
    o.block_size = 8;
    o.capture = RP_CAPTURE_ON;
    return rp_engine_create(&o, e, err);
}

static size_t number_after(const char *text, const char *words) {
    const char *at = strstr(text, words);
    if (!at) fail_msg("\"%s\" is not in: %s", words, text);
    return (size_t)strtoull(at + strlen(words), NULL, 10);
}

static void answer_some(rp_engine *e) {
    rp_request *r[8];
    rp_error err = {0};
    for (int i = 0; i < 8; i++) {
        rp_request_options q = rp_request_options_default();
        q.prompt = "The quick brown fox jumps over the lazy dog";
        q.prompt_bytes = 2 + (size_t)i;
        q.max_tokens = 12;
        q.ignore_eos = true;
        assert_ok(rp_engine_submit(e, &q, &r[i], &err), err);
    }
    for (int i = 0; i < 8; i++) {
        assert_ok(rp_request_wait(r[i], NULL, NULL, &err), err);
        rp_request_release(r[i]);
    }
}

static void assert_it_works(rp_engine *e) {

    rp_engine_stats before = {.bytes = sizeof before}, after = {.bytes = sizeof after};
    rp_engine_get_stats(e, &before);
    for (int i = 0; i < 5; i++) answer_some(e);
    rp_engine_get_stats(e, &after);
    assert_int_equal(after.device_allocs, before.device_allocs);
    assert_int_equal(after.device_bytes, before.device_bytes);
    assert_int_equal(after.n_refusals, 0); /* what graphs need was part of the plan */
    assert_true(after.n_captures > 2);
}

RP_TEST(fit, needed_bytes_are_exact) {
    rp_engine *e;
    rp_error err = {0};
    assert_int_equal(open_with_memory(64 << 10, 64, &e, &err), RP_ENOMEM);
    size_t need = number_after(err.message, "the model needs ");
    assert_int_equal(number_after(err.message, " and 6"), 5536); /* "and 65536 are available" */
    assert_int_equal(open_with_memory(need - 1, 64, &e, &err), RP_ENOMEM);
    assert_int_equal(number_after(err.message, "the model needs "), need);
    assert_ok(open_with_memory(need, 64, &e, &err), err);
    assert_it_works(e);
    rp_engine_destroy(e);
}

/* Ops on the host have memory there: of the weights that they read, the arena, inputs and outputs.
 */
RP_TEST(fit, host_bytes_are_exact) {
    rp_engine_options o = rp_engine_options_default();
    rp_engine *e;
    rp_error err = {0};
    o.model = model_path();
    o.device = "emu";
    o.device_options = "profile=p150-hybrid";
    o.placement = "hybrid";
    o.n_ctx = 64;
    assert_ok(rp_engine_create(&o, &e, &err), err);
    rp__fit fit = rp__fit_of(e->model, &e->stepper);
    assert_true(fit.host > 0);
    assert_int_equal(fit.host, rp__device_get_stats(e->model->host.device).live_bytes);
    rp_engine_destroy(e);
    o.placement = "host-free";
    assert_ok(rp_engine_create(&o, &e, &err), err);
    assert_int_equal(rp__fit_of(e->model, &e->stepper).host, 0);
    rp_engine_destroy(e);
}

/* T66: a context that no machine holds is refused before anything of its size is made. */
RP_TEST(fit, refuses_before_it_allocates) {
    rp_engine *e;
    rp_error err = {0};
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    assert_int_equal(open_with_memory((size_t)1 << 30, 1 << 26, &e, &err), RP_ENOMEM);
    getrusage(RUSAGE_SELF, &after);
    assert_true(after.ru_maxrss - before.ru_maxrss <
                64 << 10); /* KiB: the rope table alone would be 4 GiB */
}

/* ---- T01: there is no amount of memory with a third outcome ---- */

enum { T01_STEPS = 24, T01_REQUESTS = RP_TEST_IS_INSTRUMENTED ? 200 : 1000, T01_SEQS = 8 };

static bool count_progress(void *user, double fraction, const char *what) {
    (void)fraction, (void)what;
    ++*(int *)user;
    return false;
}

static rp_status open_capped(size_t memory, rp_capture_mode mode, int *n_progress, rp_engine **e,
                             rp_error *err) {
    rp_engine_options o = toy_options(TABLE);
    char options[64];
    snprintf(options, sizeof options, "memory=%zu,reuse=always,fill=ff", memory);
    o.device = "emu";
    o.device_options = options;
    o.n_ctx = 64;
    o.max_seqs = T01_SEQS;
    o.max_batch_tokens = 64;
    o.capture = mode;
    o.progress = count_progress;
    o.progress_user = n_progress;
    *n_progress = 0;
    return rp_engine_create(&o, e, err);
}

/* Rounds of 1 to 8 requests at once. */
static void serve_mixed(rp_engine *e, int n_requests) {
    static int32_t prompts[T01_SEQS][64];
    static toy_answer a;
    for (int i = 0, width = 1; i < n_requests; i += width, width = width % T01_SEQS + 1) {
        rp_request *r[T01_SEQS];
        for (int k = 0; k < width; k++) {
            size_t n = 1 + (size_t)(i + k) * 11 % 56;
            toy_ids((uint64_t)(i + k), prompts[k], n);
            rp_request_options q = toy_question(prompts[k], n, 1 + (i + k) % 6);
            r[k] = toy_submit(e, &q, &a);
            if (!r[k]) fail_msg("request %d: %s", i + k, a.error.message);
        }
        for (int k = 0; k < width; k++) {
            toy_take(r[k], &a);
            assert_table_answer(&a, prompts[k][(i + k) * 11 % 56]);
        }
    }
}

RP_TEST(fit, t01_every_cap_refuses_or_serves) {
    rp_engine *e;
    rp_error err = {0};
    int n_progress, n_refused = 0, n_works = 0;
    assert_int_equal(open_capped(64 << 10, RP_CAPTURE_ON, &n_progress, &e, &err), RP_ENOMEM);
    size_t need = number_after(err.message, "the model needs "), step = need / T01_STEPS;
    for (size_t memory = need / 2; memory <= need + 4 * step; memory += step) {
        rp_capture_mode mode = n_works % 2 ? RP_CAPTURE_AUTO : RP_CAPTURE_ON;
        rp_status st = open_capped(memory, mode, &n_progress, &e, &err);
        if (st == RP_ENOMEM) {
            assert_int_equal(n_progress, 0); /* before any weight was read */
            assert_int_equal(number_after(err.message, "the model needs "), need);
            assert_int_equal(number_after(err.message, ") and "), memory);
            assert_true(memory < need);
            n_refused++;
            continue;
        }
        assert_ok(st, err);
        assert_true(memory >= need && n_progress > 0);
        rp_engine_stats before = toy_stats(e), after;
        serve_mixed(e, n_works ? T01_REQUESTS / 10 : T01_REQUESTS);
        after = toy_stats(e);
        assert_int_equal(after.device_allocs, before.device_allocs);
        assert_int_equal(after.device_bytes, before.device_bytes);
        assert_int_equal(after.n_refusals, 0);
        rp_engine_destroy(e);
        n_works++;
    }
    assert_true(n_refused >= 10 && n_works >= 4);
}

/* ---- T10: what graphs take is known before anything is computed ---- */

typedef struct graph_case {
    const char *fixture;
    int max_seqs;
} graph_case;

static rp_status open_graphs(const graph_case *c, size_t cap, size_t region, int *n_progress,
                             rp_engine **e, rp_error *err) {
    rp_engine_options o = toy_options(c->fixture);
    char options[64] = "";
    if (region) snprintf(options, sizeof options, "graph_region=%zu", region);
    o.device = "emu";
    o.device_options = options;
    o.n_ctx = 64;
    o.max_seqs = c->max_seqs;
    o.max_batch_tokens = 64;
    o.capture = RP_CAPTURE_ON;
    o.capture_at_start = true;
    o.max_graph_bytes = cap;
    o.progress = count_progress;
    o.progress_user = n_progress;
    *n_progress = 0;
    return rp_engine_create(&o, e, err);
}

static char graphs_line[256];

static void keep_graphs_line(void *user, rp_log_level level, const char *line) {
    (void)user, (void)level;
    if (!strncmp(line, "graphs: ", 8)) snprintf(graphs_line, sizeof graphs_line, "%s", line);
}

static void assert_all_captured(rp_engine *e, size_t used) {
    rp_engine_stats s = toy_stats(e);
    assert_int_equal(s.graph_bytes, used);
    assert_int_equal(s.n_refusals + s.n_evictions, 0);
    assert_int_equal(number_after(graphs_line, "captured in "), used);
    assert_int_equal(number_after(graphs_line, "bytes, "), used);
    rp_engine_destroy(e);
}

static void assert_refused(const graph_case *c, size_t cap, size_t region, size_t need) {
    rp_engine *e;
    rp_error err = {0};
    int n_progress;
    assert_int_equal(open_graphs(c, cap, region, &n_progress, &e, &err), RP_ENOMEM);
    assert_int_equal(number_after(err.message, "recorded steps need "), need);
    assert_int_equal(number_after(err.message, "on emu and "), need - 1);
    assert_int_equal(n_progress, 0);
}

RP_TEST(fit, t10_graphs_are_sized_from_a_dry_run) {
    static const graph_case cases[] = {{TABLE, 1},
                                       {TABLE, 8},
                                       {HISTOGRAM, 5},
                                       {"fixtures/tiny/llama3.gguf", 1},
                                       {"fixtures/tiny/llama3.gguf", 12},
                                       {"fixtures/tiny/qwen3.gguf", 8}};
    rp_log_set(keep_graphs_line, NULL, RP_LOG_INFO);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rp_engine *e;
        rp_error err = {0};
        int n;
        assert_ok(open_graphs(&cases[i], 0, 0, &n, &e, &err), err);
        rp_engine_info info = {.bytes = sizeof info};
        rp_engine_get_info(e, &info);
        size_t used = info.graph_bytes;
        assert_true(used > 0);
        assert_all_captured(e, used);
        assert_refused(&cases[i], used - 1, 0, used);
        assert_refused(&cases[i], 0, used - 1, used); /* a region of the device's own */
        assert_ok(open_graphs(&cases[i], used, 0, &n, &e, &err), err);
        assert_all_captured(e, used);
        assert_ok(open_graphs(&cases[i], 0, used, &n, &e, &err), err);
        assert_all_captured(e, used);
    }
    rp_log_set(NULL, NULL, RP_LOG_INFO);
}

RP_TEST(fit, largest_context_fits_and_a_block_more_does_not) {
    RP_NEEDS_COUNTS();
    rp_engine *e;
    rp_error err = {0};
    assert_int_equal(open_with_memory(64 << 10, 512, &e, &err), RP_ENOMEM);
    assert_int_equal(number_after(err.message, "sequences is "), 0);
    size_t most = number_after(err.message, "the model needs ");
    assert_int_equal(open_with_memory(64 << 10, 64, &e, &err), RP_ENOMEM);
    size_t least = number_after(err.message, "the model needs ");
    assert_int_equal(open_with_memory((most + least) / 2, 512, &e, &err), RP_ENOMEM);
    int ctx = (int)number_after(err.message, "sequences is ");
    assert_in_range(ctx, 65, 511);
    assert_ok(open_with_memory((most + least) / 2, ctx, &e, &err), err);
    rp_engine_destroy(e);
    assert_int_equal(open_with_memory((most + least) / 2, ctx + 8, &e, &err), RP_ENOMEM);
}

RP_TEST(fit, inspect_says_the_same) {
    rp_inspect_options o = rp_inspect_options_default();
    rp_error err = {0};
    char *text;
    o.model = model_path();
    o.device = "emu";
    o.show_fit = true;
    assert_ok(rp_inspect(&o, &text, &err), err);
    assert_non_null(strstr(text, "\nfits on emu: needs "));
    rp_free(text);
    o.device_options = "memory=64K";
    assert_ok(rp_inspect(&o, &text, &err), err);
    assert_non_null(strstr(text, "does not fit on emu: needs "));
    assert_non_null(strstr(text, "65536 are available"));
    assert_non_null(strstr(text, "largest context that fits with 1 sequence(s): 0"));
    rp_free(text);
}

/* ---- eager against replay ---- */

typedef struct seen {
    rp_capture_row rows[64];
    int n, n_expected, stop_at;
} seen;

static bool on_row(void *user, const rp_capture_row *row, int i, int n) {
    seen *s = user;
    assert_int_equal(i, s->n);
    s->n_expected = n;
    s->rows[s->n++] = *row;
    return s->n == s->stop_at;
}

static rp_engine *open_profile(const char *device_options) {
    rp_engine_options o = rp_engine_options_default();
    rp_engine *e;
    rp_error err = {0};
    o.model = model_path();
    o.device = "emu";
    o.device_options = device_options;
    o.max_seqs = 4;
    o.n_ctx = 48; /* shorter than the largest prompt step: that one takes several sequences */
    o.max_batch_tokens = 64;
    assert_ok(rp_engine_create(&o, &e, &err), err);
    return e;
}

RP_TEST(fit, bench_capture_measures_every_size) {
    RP_NEEDS_COUNTS();
    static const struct {
        const char *options, *reason;
        bool is_replay;
    } cases[] = {{"profile=pcie-accelerator", "replay was measured to be faster", true},
                 {"profile=integrated-gpu", "eager was measured to be faster", false},
                 {"profile=no-capture", "the device cannot capture", false}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        rp_engine *e = open_profile(cases[c].options);
        rp_error err = {0};
        seen s = {0};
        rp_bench_capture_options o = rp_bench_capture_options_default();
        o.n_pairs = 3;
        o.on_row = on_row;
        o.user = &s;
        assert_ok(rp_engine_bench_capture(e, &o, &err), err);
        assert_int_equal(s.n, s.n_expected);
        assert_int_equal(s.n, 3 + 3); /* decode 1, 2, 4; prefill 16, 32, 64 */
        for (int i = 0; i < s.n; i++) {
            const rp_capture_row *r = &s.rows[i];
            assert_string_equal(r->reason, cases[c].reason);
            assert_int_equal(r->is_replay, cases[c].is_replay);
            assert_true(r->is_simulated);
            assert_int_equal(r->is_prefill, i >= 3);
            if (c < 2) assert_true((r->replay_us < r->eager_us) == r->is_replay);
        }
        assert_string_equal(s.rows[2].bucket, "decode 4");
        answer_some(e); /* and the engine answers as before */
        rp_engine_stats stats = {.bytes = sizeof stats};
        rp_engine_get_stats(e, &stats);
        assert_int_equal(stats.blocks_live, 0);
        s.n = 0;
        s.stop_at = 2;
        assert_int_equal(rp_engine_bench_capture(e, &o, &err), RP_ECANCELLED);
        assert_int_equal(s.n, 2);
        rp_engine_destroy(e);
    }
}

RP_TEST(fit, eager_steps_are_counted_by_reason) {
    rp_engine *e = open_profile("profile=pcie-accelerator");
    answer_some(e);
    rp_engine_stats s = {.bytes = sizeof s};
    rp_engine_get_stats(e, &s);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < s.n_eager_reasons; i++) sum += s.eager_reasons[i].count;
    assert_true(sum > 0);
    assert_int_equal(sum, s.n_eager_steps);
    rp_engine_destroy(e);
}
