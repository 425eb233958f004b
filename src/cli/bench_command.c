/* `reprise bench`: prompt and generation speed, eager against replay.
 *
 * A row is a test (ppN: N prompt tokens in one request; tgN: N tokens generated one by one) in one
 * capture mode; with several sequences, of so many requests at once. The modes take turns within
 * every repetition, so that a machine that slows down or speeds up does so for all of them. Each
 * prompt is made of different tokens: none finds an earlier one in the cache. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "cli/bench.h"
#include "cli/cli.h"

enum { TESTS_MOST = 64, SEQS_MOST = 256 };

typedef struct bench {
    rp_engine *engine;
    rp_engine_info info;
    rp__bench_row *rows;
    size_t n_rows;
    int n_repetitions, n_depth, n_seqs;
    rp_request *requests[SEQS_MOST];
    uint64_t random;
} bench;

/* ---- rows ---- */

static bool add_row(bench *b, bool is_prompt, int64_t n, rp_capture_mode capture) {
    rp__bench_row row = {.is_prompt = is_prompt, .n_tokens = (int)n, .capture = capture};
    row.samples = rp__calloc((size_t)b->n_repetitions, sizeof *row.samples);
    rp__bench_row *rows = rp__realloc_array(b->rows, b->n_rows + 1, sizeof *rows);
    if (rows) b->rows = rows;
    if (!rows || !row.samples) {
        rp__free(row.samples);
        return false;
    }
    b->rows[b->n_rows++] = row;
    return true;
}

/* Which modes are compared: off and on, or the one that was asked for. */
static size_t choose_modes(const rp__options *o, rp_capture_mode out[2]) {
    const char *mode = rp__options_str(o, RP_OPT_CAPTURE);
    bool is_given = rp__options_given(o, RP_OPT_CAPTURE),
         is_eager = rp__options_on(o, RP_OPT_ENFORCE_EAGER);
    out[0] = RP_CAPTURE_OFF;
    out[1] = RP_CAPTURE_ON;
    if (!is_given) return is_eager ? 1 : 2;
    out[0] = is_eager || !strcmp(mode, "off") ? RP_CAPTURE_OFF
             : !strcmp(mode, "on")            ? RP_CAPTURE_ON
                                              : RP_CAPTURE_AUTO;
    return 1;
}

static bool add_rows(bench *b, const rp__options *o) {
    rp_capture_mode modes[2];
    size_t n_modes = choose_modes(o, modes);
    for (int kind = 0; kind < 2; kind++) {
        int64_t sizes[TESTS_MOST];
        size_t n =
            rp__options_ints(o, kind ? RP_OPT_BENCH_GEN : RP_OPT_BENCH_PROMPT, sizes, TESTS_MOST);
        for (size_t i = 0; i < n && i < TESTS_MOST; i++)
            for (size_t m = 0; sizes[i] && m < n_modes; m++)
                if (!add_row(b, kind == 0, sizes[i], modes[m])) return false;
    }
    return true;
}

/* ---- measuring ---- */

static int32_t random_id(bench *b) { /* xorshift64* */
    b->random ^= b->random >> 12, b->random ^= b->random << 25, b->random ^= b->random >> 27;
    return (int32_t)((b->random * 0x2545F4914F6CDD1DULL >> 33) % (uint64_t)b->info.n_vocab);
}

static rp_status submit_one(bench *b, const rp__bench_row *row, rp_request **out, rp_error *err) {
    int n_prompt = row->is_prompt ? row->n_tokens : 1 + b->n_depth;
    int32_t *ids = rp__calloc((size_t)n_prompt, sizeof *ids);
    if (!ids) return rp__fail(err, RP_ENOMEM, "out of memory for %d token ids", n_prompt);
    for (int i = 0; i < n_prompt; i++) ids[i] = random_id(b);
    rp_request_options q = rp_request_options_default();
    q.prompt_ids = ids;
    q.n_prompt_ids = (size_t)n_prompt;
    q.max_tokens = 1 + (row->is_prompt ? 0 : row->n_tokens);
    q.ignore_eos = true;
    q.use_prefix_cache = false; /* every prompt is computed */
    q.sampling.temperature = 0;
    rp_status s = rp_engine_submit(b->engine, &q, out, err);
    rp__free(ids);
    return s;
}

/* Follows a request to its end; *seconds is what the row measures of it. */
static rp_status finish_one(const rp__bench_row *row, rp_request *request, double *seconds,
                            rp_error *err) {
    uint32_t n_wanted = 1 + (row->is_prompt ? 0 : (uint32_t)row->n_tokens);
    rp__cli_answer a;
    rp_status s = rp__cli_answer_follow(request, false, NULL, NULL, &a, err);
    *seconds = row->is_prompt ? a.usage.prefill_seconds : a.usage.decode_seconds;
    if (!s && a.interrupted)
        s = rp__fail(err, RP_ECANCELLED, "interrupted");
    else if (!s && (a.usage.n_generated != n_wanted || a.usage.n_cached))
        s = rp__fail(err, RP_EINTERNAL,
                     "measured %u generated tokens instead of %u, %u of the prompt cached",
                     a.usage.n_generated, n_wanted, a.usage.n_cached);
    rp__cli_answer_clear(&a);
    return s;
}

/* Tokens per second of one measurement, of all sequences together. A ppN request makes one token,
 * whose cost is that of the prompt's last step; a tgN request makes N after the first. */
static rp_status measure(bench *b, const rp__bench_row *row, double *speed, rp_error *err) {
    double longest = 0;
    int n = 0;
    rp_status s = RP_OK;
    while (s >= 0 && n < b->n_seqs) {
        s = submit_one(b, row, &b->requests[n], err);
        n += s >= 0;
    }
    for (int i = 0; i < n; i++) {
        double seconds = 0;
        if (s < 0)
            rp_request_cancel(b->requests[i]);
        else
            s = finish_one(row, b->requests[i], &seconds, err);
        rp_request_release(b->requests[i]);
        if (seconds > longest) longest = seconds;
    }
    *speed = longest > 0 ? b->n_seqs * row->n_tokens / longest : 0;
    return s;
}

static rp_status measure_row(bench *b, rp__bench_row *row, int repetition, rp_error *err) {
    rp_engine_stats before = {.bytes = sizeof before}, after = {.bytes = sizeof after};
    double speed = 0;
    rp_engine_set_capture(b->engine, row->capture);
    rp_engine_get_stats(b->engine, &before);
    RP_TRY(measure(b, row, &speed, err));
    rp_engine_get_stats(b->engine, &after);
    row->n_captures += after.n_captures - before.n_captures;
    if (repetition < 0) return RP_OK;
    row->samples[row->n_samples++] = speed;
    row->n_replays += after.n_replays - before.n_replays;
    row->n_eager_steps += after.n_eager_steps - before.n_eager_steps;
    return RP_OK;
}

/* Two rounds before the first that counts: steps are eager while cold, then captured. */
static rp_status measure_all(bench *b, rp_error *err) {
    enum { WARM_ROUNDS = 2 };
    for (int r = -WARM_ROUNDS; r < b->n_repetitions; r++)
        for (size_t i = 0; i < b->n_rows; i++) {
            rp__bench_row *row = &b->rows[i];
            if (!rp__cli_is_quiet())
                rp__cli_status_line("%s%d, round %d of %d", row->is_prompt ? "pp" : "tg",
                                    row->n_tokens, r + WARM_ROUNDS + 1,
                                    b->n_repetitions + WARM_ROUNDS);
            RP_TRY(measure_row(b, row, r, err));
        }
    return RP_OK;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void summarise(rp__bench_row *row) {
    double sorted[1000]; /* the most repetitions */
    size_t n = row->n_samples;
    memcpy(sorted, row->samples, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, by_value);
    row->median = n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
    row->least = sorted[0];
    row->most = sorted[n - 1];
}

/* ---- the command ---- */

static int print_rows(bench *b, const rp__options *o) {
    rp__bytes out = {0};
    for (size_t i = 0; i < b->n_rows; i++) summarise(&b->rows[i]);
    const char *form = rp__options_on(o, RP_OPT_JSON) ? "json" : rp__options_str(o, RP_OPT_OUTPUT);
    rp__bench_header h = {.info = &b->info,
                          .n_threads = (int)rp__options_int(o, RP_OPT_THREADS),
                          .n_seqs = b->n_seqs,
                          .n_depth = b->n_depth};
    if (!strcmp(form, "json"))
        rp__bench_write_json(&out, &h, b->rows, b->n_rows);
    else if (!strcmp(form, "csv"))
        rp__bench_write_csv(&out, &h, b->rows, b->n_rows);
    else
        rp__bench_write_table(&out, &h, b->rows, b->n_rows);
    bool is_whole = !out.failed;
    if (is_whole) rp__cli_write(out.p, out.n);
    rp__bytes_clear(&out);
    return is_whole ? RP_CLI_OK : rp__cli_out_of_memory();
}

static int run_bench(bench *b, const rp__options *o) {
    rp_error err = {0};
    b->info.bytes = sizeof b->info;
    rp_engine_get_info(b->engine, &b->info);
    rp_status s = measure_all(b, &err);
    rp__cli_status_line(NULL);
    if (s == RP_ECANCELLED && rp__cli_interrupted()) return RP_CLI_INTERRUPTED;
    return s < 0 ? rp__cli_fail(&err) : print_rows(b, o);
}

/* The context a row needs when -c was not given, so that a long test just runs. */
static void fit_context(const bench *b, rp__options *o) {
    int most = 0;
    for (size_t i = 0; i < b->n_rows; i++)
        if (b->rows[i].n_tokens > most) most = b->rows[i].n_tokens;
    most += b->n_depth;
    if (!rp__options_given(o, RP_OPT_MAX_MODEL_LEN))
        o->values[RP_OPT_MAX_MODEL_LEN].number_int = most + 2;
}

int rp__cli_bench(rp__options *o) {
    if (rp__cli_take_word(o, "capture")) return rp__cli_bench_capture(o);
    if (rp__cli_take_word(o, "machine")) return rp__cli_bench_machine(o);
    bench b = {.n_repetitions = (int)rp__options_int(o, RP_OPT_REPETITIONS),
               .n_depth = (int)rp__options_int(o, RP_OPT_BENCH_DEPTH),
               .n_seqs = 1,
               .random = 0x9E3779B97F4A7C15ULL};
    if (rp__options_given(o, RP_OPT_MAX_NUM_SEQS))
        b.n_seqs = (int)rp__options_int(o, RP_OPT_MAX_NUM_SEQS);
    if (b.n_seqs > SEQS_MOST)
        return rp__cli_usage("bench: %d sequences at once (at most %d)", b.n_seqs, SEQS_MOST);
    const char *model = rp__cli_take_model(o);
    if (!model || !rp__cli_no_more_arguments(o)) return RP_CLI_USAGE;
    rp__cli_interrupt_init();
    int code = add_rows(&b, o) ? RP_CLI_OK : rp__cli_out_of_memory();
    if (!code && !b.n_rows) code = rp__cli_usage("nothing to measure: -p and -n are both 0");
    if (!code) {
        fit_context(&b, o);
        code = rp__cli_start(o, model, b.n_seqs, &b.engine);
    }
    if (!code) code = run_bench(&b, o);
    rp_engine_destroy(b.engine);
    for (size_t i = 0; i < b.n_rows; i++) rp__free(b.rows[i].samples);
    rp__free(b.rows);
    return rp__cli_finish_output(code);
}
