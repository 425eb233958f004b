/* What a load run measured, as a table, JSON and a plot. Percentiles interpolate linearly between
 * the two nearest of the sorted values. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json_writer.h"
#include "cli/bench.h"
#include "cli/cli.h"
#include "cli/load.h"

/* ---- figures ---- */

typedef struct series {
    double *values; /* seconds, sorted */
    size_t n;
    double mean;
} series;

enum { S_FIRST, S_GAP, S_TOKEN, S_WHOLE, N_SERIES };

static const struct {
    const char *title, *key, *curve; /* curve NULL: not plotted */
    const char *colour;
} kinds[N_SERIES] = {
    [S_FIRST] = {"time to first token", "ttft_ms", "time to first token", RP_PLOT_ORANGE},
    [S_GAP] = {"between chunks", "gap_ms", "between chunks", RP_PLOT_BLUE},
    [S_TOKEN] = {"per later token", "tpot_ms", NULL, NULL},
    [S_WHOLE] = {"whole answer", "e2e_ms", "whole answer", RP_PLOT_GREEN},
};

typedef struct figures {
    series series[N_SERIES];
    size_t n_done, n_failed;
    uint64_t n_prompt, n_cached, n_output;
    bool is_counted; /* the server counted the tokens of every answer; else chunks are shown */
    bool failed;     /* out of memory */
} figures;

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void add(series *s, double value) {
    s->values[s->n++] = value;
}

static void finish(series *s) {
    double sum = 0;
    qsort(s->values, s->n, sizeof *s->values, by_value);
    for (size_t i = 0; i < s->n; i++) sum += s->values[i];
    s->mean = s->n ? sum / (double)s->n : NAN;
}

/* NAN when there are none. */
static double quantile(const series *s, double q) {
    if (!s->n) return NAN;
    double at = q * (double)(s->n - 1);
    size_t low = (size_t)at;
    if (low + 1 >= s->n) return s->values[s->n - 1];
    return s->values[low] + (at - (double)low) * (s->values[low + 1] - s->values[low]);
}

static void add_record(figures *f, const rp__load_record *r) {
    if (!r->is_done) {
        f->n_failed++;
        return;
    }
    uint32_t n = r->n_generated ? r->n_generated : r->n_chunks;
    f->n_done++;
    f->n_prompt += r->n_prompt;
    f->n_cached += r->n_cached;
    f->n_output += n;
    if (!r->n_generated) f->is_counted = false;
    add(&f->series[S_WHOLE], r->ended - r->began);
    if (r->first < 0) return; /* an empty answer */
    add(&f->series[S_FIRST], r->first - r->began);
    if (n > 1) add(&f->series[S_TOKEN], (r->last - r->first) / (n - 1));
}

static void open_figures(figures *f, const rp__load_result *r) {
    *f = (figures){.is_counted = true};
    for (int i = 0; i < N_SERIES; i++) {
        size_t n = i == S_GAP ? r->n_gaps : r->n_records;
        f->series[i].values = rp__calloc(n ? n : 1, sizeof(double));
        if (!f->series[i].values) f->failed = true;
    }
    if (f->failed) return;
    for (size_t i = 0; i < r->n_records; i++) add_record(f, &r->records[i]);
    for (size_t i = 0; i < r->n_gaps; i++) add(&f->series[S_GAP], r->gaps[i]);
    for (int i = 0; i < N_SERIES; i++) finish(&f->series[i]);
}

static void close_figures(figures *f) {
    for (int i = 0; i < N_SERIES; i++) rp__free(f->series[i].values);
}

static double rate_of(const rp__load_report *r, uint64_t n) {
    return r->result->seconds > 0 ? (double)n / r->result->seconds : 0;
}

/* ---- failures, equal ones together ---- */

typedef struct failure {
    const rp__load_record *first;
    size_t n;
} failure;

enum { FAILURES_MOST = 16 }; /* kinds that are told apart */

static size_t gather_failures(const rp__load_result *r, failure out[FAILURES_MOST]) {
    size_t n = 0;
    for (size_t i = 0; i < r->n_records; i++) {
        const rp__load_record *record = &r->records[i];
        size_t k = 0;
        if (record->is_done) continue;
        while (k < n &&
               (out[k].first->http != record->http || strcmp(out[k].first->error, record->error)))
            k++;
        if (k == FAILURES_MOST) continue;
        if (k == n) out[n++] = (failure){.first = record};
        out[k].n++;
    }
    return n;
}

/* ---- table ---- */

static void add_plan(rp__bytes *out, const rp__load_report *r) {
    const rp__load_config *c = r->config;
    rp__bytes_printf(out, "%s, %s, %s, ", c->url, c->model, c->is_chat ? "chat" : "completions");
    if (c->rate > 0)
        rp__bytes_printf(out, "open loop of %g requests/s", c->rate);
    else
        rp__bytes_printf(out, "closed loop of %d", c->concurrency);
    if (r->plan->file)
        rp__bytes_printf(out, ", prompts of %s", r->plan->file);
    else
        rp__bytes_printf(out, ", prompts of %s%d %s",
                         r->unit == RP_PROMPT_ABOUT_TOKENS ? "about " : "", r->plan->n_tokens,
                         r->unit == RP_PROMPT_WORDS ? "words" : "tokens");
    if (!r->plan->file && r->plan->n_shared)
        rp__bytes_printf(out, " (the first %d shared)", r->plan->n_shared);
    rp__bytes_printf(out, ", answers of at most %d tokens", c->max_tokens);
}

static const char *cell(double seconds, char *out, size_t cap) {
    if (isnan(seconds)) return "-";
    return rp__bench_duration(seconds * 1e6, out, cap);
}

static void add_series(rp__bytes *out, const char *title, const series *s) {
    double values[] = {s->mean, quantile(s, 0.5), quantile(s, 0.9), quantile(s, 0.99),
                       quantile(s, 1)};
    rp__bytes_printf(out, "| %-19s |", title);
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        char text[32];
        rp__bytes_printf(out, " %8s |", cell(values[i], text, sizeof text));
    }
    rp__bytes_add_char(out, '\n');
}

static void add_counts(rp__bytes *out, const rp__load_report *r, const figures *f) {
    const char *unit = f->is_counted ? "tokens" : "chunks";
    rp__bytes_printf(out, "requests   %zu done, %zu failed, %.1f s, %.2f requests/s%s\n", f->n_done,
                     f->n_failed, r->result->seconds, rate_of(r, f->n_done),
                     r->result->is_interrupted ? " (interrupted)" : "");
    if (r->config->rate > 0)
        rp__bytes_printf(out, "at once    %d at most\n", r->result->most_at_once);
    rp__bytes_printf(out, "prompts    %llu tokens (%llu cached), %.1f tokens/s\n",
                     (unsigned long long)f->n_prompt, (unsigned long long)f->n_cached,
                     rate_of(r, f->n_prompt));
    rp__bytes_printf(out, "answers    %llu %s, %.1f %s/s\n", (unsigned long long)f->n_output, unit,
                     rate_of(r, f->n_output), unit);
    rp__bytes_printf(out, "together   %.1f %s/s\n", rate_of(r, f->n_prompt + f->n_output), unit);
}

static void add_failures(rp__bytes *out, const rp__load_result *r) {
    failure list[FAILURES_MOST];
    size_t n = gather_failures(r, list);
    for (size_t i = 0; i < n; i++) {
        rp__bytes_printf(out, "%sfailed     %zu x ", i ? "" : "\n", list[i].n);
        if (list[i].first->http) rp__bytes_printf(out, "HTTP %d: ", list[i].first->http);
        rp__bytes_printf(out, "%s\n", list[i].first->error);
    }
}

void rp__load_write_table(rp__bytes *out, const rp__load_report *r) {
    figures f;
    open_figures(&f, r->result);
    if (f.failed) {
        out->failed = true;
    } else {
        add_plan(out, r);
        rp__bytes_add_str(out, "\n\n");
        add_counts(out, r, &f);
        rp__bytes_add_str(out,
                          "\n|                     |     mean |      p50 |      p90 |      p99 |"
                          "      max |\n|---------------------|---------:|---------:|---------:|"
                          "---------:|---------:|\n");
        for (int i = 0; i < N_SERIES; i++) add_series(out, kinds[i].title, &f.series[i]);
        add_failures(out, r->result);
    }
    close_figures(&f);
}

/* ---- JSON ---- */

static void add_series_json(rp__bytes *out, const char *key, const series *s) {
    rp__json_open(out, key, '{');
    rp__json_uint(out, "count", s->n);
    rp__json_num(out, "mean", s->mean * 1e3);
    rp__json_num(out, "p50", quantile(s, 0.5) * 1e3);
    rp__json_num(out, "p90", quantile(s, 0.9) * 1e3);
    rp__json_num(out, "p99", quantile(s, 0.99) * 1e3);
    rp__json_num(out, "max", quantile(s, 1) * 1e3);
    rp__json_close(out, '}');
}

static const char *const units[] = {[RP_PROMPT_TOKENS] = "tokens",
                                    [RP_PROMPT_ABOUT_TOKENS] = "about tokens",
                                    [RP_PROMPT_WORDS] = "words"};

static void add_plan_json(rp__bytes *out, const rp__load_report *r) {
    const rp__load_config *c = r->config;
    bool is_open = c->rate > 0;
    rp__json_str(out, "url", c->url);
    rp__json_str(out, "model", c->model);
    rp__json_str(out, "endpoint", c->is_chat ? "chat" : "completions");
    rp__json_str(out, "loop", is_open ? "open" : "closed");
    rp__json_num(out, "rate", is_open ? c->rate : NAN);
    rp__json_num(out, "concurrency", is_open ? NAN : c->concurrency);
    rp__json_int(out, "requests", c->n_requests);
    rp__json_str(out, "prompts", r->plan->file ? r->plan->file : units[r->unit]);
    rp__json_num(out, "prompt_length", r->plan->file ? NAN : r->plan->n_tokens);
    rp__json_num(out, "shared_length", r->plan->file ? NAN : r->plan->n_shared);
    rp__json_int(out, "max_tokens", c->max_tokens);
    rp__json_uint(out, "seed", c->seed);
}

void rp__load_write_json(rp__bytes *out, const rp__load_report *r) {
    figures f;
    failure list[FAILURES_MOST];
    size_t n = gather_failures(r->result, list);
    open_figures(&f, r->result);
    if (f.failed) out->failed = true;
    rp__json_open(out, NULL, '{');
    add_plan_json(out, r);
    rp__json_bool(out, "interrupted", r->result->is_interrupted);
    rp__json_uint(out, "done", f.n_done);
    rp__json_uint(out, "failed", f.n_failed);
    rp__json_num(out, "seconds", r->result->seconds);
    rp__json_int(out, "most_at_once", r->result->most_at_once);
    rp__json_num(out, "requests_per_second", rate_of(r, f.n_done));
    rp__json_uint(out, "prompt_tokens", f.n_prompt);
    rp__json_uint(out, "cached_tokens", f.n_cached);
    rp__json_uint(out, "output_tokens", f.n_output);
    rp__json_str(out, "output_counted_by", f.is_counted ? "usage" : "chunks");
    rp__json_num(out, "output_tokens_per_second", rate_of(r, f.n_output));
    rp__json_num(out, "total_tokens_per_second", rate_of(r, f.n_prompt + f.n_output));
    for (int i = 0; i < N_SERIES; i++) add_series_json(out, kinds[i].key, &f.series[i]);
    rp__json_open(out, "errors", '[');
    for (size_t i = 0; i < n; i++) {
        rp__json_open(out, NULL, '{');
        rp__json_int(out, "http", list[i].first->http);
        rp__json_uint(out, "count", list[i].n);
        rp__json_str(out, "message", list[i].first->error);
        rp__json_close(out, '}');
    }
    rp__json_close(out, ']');
    rp__json_close(out, '}');
    rp__bytes_add_char(out, '\n');
    close_figures(&f);
}

/* ---- plot: how many were so quick ---- */

enum { LEFT = 64, TOP = 92, WIDTH = 620, HEIGHT = 330, BOTTOM = 60, RIGHT = 30 };

typedef struct plot {
    rp__bytes *out;
    double low, high; /* seconds: round numbers */
} plot;

static double x_of(const plot *p, double seconds) {
    return LEFT + WIDTH * log(fmax(seconds, p->low) / p->low) / log(p->high / p->low);
}

static double y_of(double share) {
    return TOP + HEIGHT * (1 - share);
}

static void plot_range(plot *p, const figures *f) {
    double low = INFINITY, high = 0;
    for (int i = 0; i < N_SERIES; i++) {
        if (!kinds[i].curve || !f->series[i].n) continue;
        low = fmin(low, f->series[i].values[0]);
        high = fmax(high, quantile(&f->series[i], 1));
    }
    low = isfinite(low) ? fmax(low, 1e-6) : 1e-3;
    high = fmax(high, low * 10);
    for (p->low = pow(10, floor(log10(low))); rp__plot_next_round(p->low) <= low;)
        p->low = rp__plot_next_round(p->low);
    for (p->high = p->low; p->high < high;) p->high = rp__plot_next_round(p->high);
}

static void plot_axes(plot *p) {
    for (double s = p->low; s <= p->high * 1.001; s = rp__plot_next_round(s)) {
        char label[32];
        double x = x_of(p, s);
        rp__bytes_printf(p->out,
                         "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" stroke=\"#ddd\"/>\n", x,
                         TOP, x, TOP + HEIGHT);
        bool is_labelled = p->high / p->low < 500 || fabs(log10(s) - round(log10(s))) < 1e-6;
        snprintf(label, sizeof label, s < 0.999 ? "%.3g ms" : "%.3g s", s < 0.999 ? s * 1e3 : s);
        if (is_labelled)
            rp__plot_text(p->out, x, TOP + HEIGHT + 20, "text-anchor=\"middle\" fill=\"#444\"",
                          label);
    }
    for (int percent = 0; percent <= 100; percent += 25) {
        char label[16];
        double y = y_of(percent / 100.0);
        rp__bytes_printf(p->out,
                         "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" stroke=\"#ddd\"/>\n",
                         LEFT, y, LEFT + WIDTH, y);
        snprintf(label, sizeof label, "%d %%", percent);
        rp__plot_text(p->out, LEFT - 8, y + 4, "text-anchor=\"end\" fill=\"#444\"", label);
    }
    rp__plot_text(p->out, LEFT + WIDTH / 2.0, TOP + HEIGHT + 44,
                  "text-anchor=\"middle\" fill=\"#444\"", "share done within a time, log scale");
}

/* At most so many points: a curve of a million gaps looks the same. */
static void plot_curve(plot *p, const series *s, const char *colour) {
    enum { POINTS = 400 };
    rp__bytes_add_str(p->out, "<polyline fill=\"none\" stroke-width=\"2\" points=\"");
    for (int i = 0; i <= POINTS; i++) {
        double share = (double)i / POINTS;
        rp__bytes_printf(p->out, "%.1f,%.1f ", x_of(p, quantile(s, share)), y_of(share));
    }
    rp__bytes_printf(p->out, "\" stroke=\"%s\"/>\n", colour);
}

void rp__load_write_svg(rp__bytes *out, const rp__load_report *r) {
    figures f;
    rp__bytes title = {0}, subtitle = {0};
    plot p = {.out = out};
    open_figures(&f, r->result);
    add_plan(&subtitle, r);
    rp__bytes_printf(&title, "%s under load: %zu answers, %.1f tokens/s", r->config->model,
                     f.n_done, rate_of(r, f.n_prompt + f.n_output));
    if (f.failed || title.failed || subtitle.failed) {
        out->failed = true;
        goto done;
    }
    plot_range(&p, &f);
    rp__plot_begin(out, LEFT + WIDTH + RIGHT, TOP + HEIGHT + BOTTOM, LEFT, title.p, subtitle.p);
    plot_axes(&p);
    for (int i = 0, x = LEFT; i < N_SERIES; i++) {
        char attributes[64];
        if (!kinds[i].curve) continue;
        if (f.series[i].n) plot_curve(&p, &f.series[i], kinds[i].colour);
        snprintf(attributes, sizeof attributes, "fill=\"%s\"", kinds[i].colour);
        rp__plot_text(out, x, TOP - 18, attributes, kinds[i].curve);
        x += 170;
    }
    rp__plot_end(out);
done:
    rp__bytes_clear(&subtitle);
    rp__bytes_clear(&title);
    close_figures(&f);
}
