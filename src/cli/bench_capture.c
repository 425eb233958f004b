/* `reprise bench capture`: eager against replay for the steps of every size and placement, as a
 * table, JSON and a plot. The library measures; this file shows. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "cli/bench.h"
#include "cli/cli.h"
#include "base/json_writer.h"

enum { ROWS_MOST = 96, DEFAULT_PAIRS = 15 };

typedef struct capture_bench {
    rp_engine_info info;
    rp_capture_row rows[ROWS_MOST];
    size_t n_rows;
    int n_pairs;
} capture_bench;

/* ---- rows ---- */

static bool on_row(void *user, const rp_capture_row *row, int i, int n) {
    capture_bench *b = user;
    if (b->n_rows < ROWS_MOST) b->rows[b->n_rows++] = *row;
    if (!rp__cli_is_quiet())
        rp__cli_status_line("measured %s %s, %d of %d", row->bucket, row->placement, i + 1, n);
    return rp__cli_interrupted();
}

static const char *decision_of(const rp_capture_row *r) {
    return r->is_replay ? "replay" : "eager";
}

/* ---- table and JSON ---- */

/* Several placements have a row each; the one that steps take is marked. */
static bool has_placements(const capture_bench *b) {
    for (size_t k = 0; k < b->n_rows; k++)
        if (!b->rows[k].is_chosen) return true;
    return false;
}

static void write_table_row(rp__bytes *out, const capture_bench *b, const rp_capture_row *r) {
    char eager[32], replay[32] = "-", ratio[32] = "-";
    rp__bench_duration(r->eager_us, eager, sizeof eager);
    if (r->replay_us > 0) {
        rp__bench_duration(r->replay_us, replay, sizeof replay);
        snprintf(ratio, sizeof ratio, "%.3f (%.3f-%.3f)", r->ratio, r->ratio_low, r->ratio_high);
    }
    rp__bytes_printf(out, "| %-12s | %-9s | %5d | %7d | %12s | %12s | %19s | %-8s | %s%s\n",
                     r->bucket, r->placement, r->n_ops, r->n_host_ops, eager, replay, ratio,
                     decision_of(r),
                     !has_placements(b) ? ""
                     : r->is_chosen     ? "yes    | "
                                        : "       | ",
                     r->reason);
}

static void write_table(rp__bytes *out, const capture_bench *b) {
    const rp_engine_info *i = &b->info;
    rp__bytes_printf(out, "%s, %s, on %s%s, medians of %d pairs\n\n", i->model_name,
                     i->quantization, i->device, rp__cli_simulated(i->device, i->is_simulated),
                     b->n_pairs);
    rp__bytes_printf(out,
                     "| bucket       | placement |   ops | on host | %12s | %12s | eager/replay (half) | "
                     "decision | %sreason\n",
                     i->is_simulated ? "eager, sim." : "eager",
                     i->is_simulated ? "replay, sim." : "replay",
                     has_placements(b) ? "chosen | " : "");
    rp__bytes_printf(out,
                     "|--------------|-----------|------:|--------:|-------------:|-------------:|"
                     "--------------------:|----------|-%s------\n",
                     has_placements(b) ? "-------|-" : "");
    for (size_t k = 0; k < b->n_rows; k++) write_table_row(out, b, &b->rows[k]);
}

static void write_json(rp__bytes *out, const capture_bench *b) {
    rp__json_open(out, NULL, '{');
    rp__json_str(out, "model", b->info.model_name);
    rp__json_str(out, "quantization", b->info.quantization);
    rp__json_str(out, "device", b->info.device);
    rp__json_bool(out, "simulated", b->info.is_simulated);
    rp__json_int(out, "pairs", b->n_pairs);
    rp__json_open(out, "rows", '[');
    for (size_t k = 0; k < b->n_rows; k++) {
        const rp_capture_row *r = &b->rows[k];
        rp__json_open(out, NULL, '{');
        rp__json_str(out, "bucket", r->bucket);
        rp__json_str(out, "placement", r->placement);
        rp__json_bool(out, "chosen", r->is_chosen);
        rp__json_str(out, "kind", r->is_prefill ? "prefill" : "decode");
        rp__json_int(out, "tokens", r->n_tokens);
        rp__json_int(out, "ops", r->n_ops);
        rp__json_int(out, "host_ops", r->n_host_ops);
        rp__json_int(out, "transfers", r->n_transfers);
        rp__json_num(out, "eager_us", r->eager_us);
        rp__json_num(out, "replay_us", r->replay_us > 0 ? r->replay_us : NAN);
        rp__json_num(out, "ratio", r->replay_us > 0 ? r->ratio : NAN);
        rp__json_num(out, "ratio_low", r->replay_us > 0 ? r->ratio_low : NAN);
        rp__json_num(out, "ratio_high", r->replay_us > 0 ? r->ratio_high : NAN);
        rp__json_str(out, "decision", decision_of(r));
        rp__json_str(out, "reason", r->reason);
        rp__json_bool(out, "simulated", r->is_simulated);
        rp__json_uint(out, "graph_bytes", r->graph_bytes);
        rp__json_close(out, '}');
    }
    rp__json_close(out, ']');
    rp__json_close(out, '}');
    rp__bytes_add_char(out, '\n');
}

/* ---- plot ---- */

enum { PLOT_LEFT = 84, PLOT_TOP = 92, PLOT_HEIGHT = 330, PLOT_BOTTOM = 96, COLUMN = 74 };
#define EAGER_COLOUR  RP_PLOT_ORANGE
#define REPLAY_COLOUR RP_PLOT_BLUE

typedef struct plot {
    rp__bytes *out;
    double low, high; /* ends of the axis, in microseconds: round numbers */
    int width;
} plot;

static double y_of(const plot *p, double us) {
    return PLOT_TOP + PLOT_HEIGHT * log(p->high / us) / log(p->high / p->low);
}

static void plot_range(plot *p, const capture_bench *b) {
    double low = INFINITY, high = 0;
    for (size_t i = 0; i < b->n_rows; i++) {
        const rp_capture_row *r = &b->rows[i];
        double replay = r->replay_us > 0 ? r->replay_us : r->eager_us;
        low = fmin(low, fmin(r->eager_us, replay));
        high = fmax(high, fmax(r->eager_us, replay));
    }
    low = fmax(low, 1e-3) * 0.8; /* room for the labels */
    high = fmax(high, 1e-3) * 1.2;
    for (p->low = pow(10, floor(log10(low))); rp__plot_next_round(p->low) <= low;)
        p->low = rp__plot_next_round(p->low);
    for (p->high = p->low; p->high < high;) p->high = rp__plot_next_round(p->high);
}

static void plot_axes(plot *p, const capture_bench *b) {
    for (double us = p->low; us <= p->high * 1.001; us = rp__plot_next_round(us)) {
        char label[32];
        double y = y_of(p, us);
        rp__bytes_printf(p->out,
                         "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" stroke=\"#ddd\"/>\n",
                         PLOT_LEFT, y, p->width - 20, y);
        snprintf(label, sizeof label, "%g %s", us < 1e3 ? us : us / 1e3, us < 1e3 ? "us" : "ms");
        rp__plot_text(p->out, PLOT_LEFT - 8, y + 4, "text-anchor=\"end\" fill=\"#444\"", label);
    }
    char y_label[64];
    snprintf(y_label, sizeof y_label, "time of one step%s, log scale",
             b->info.is_simulated ? ", simulated" : "");
    rp__bytes_printf(p->out, "<g transform=\"translate(16,%d) rotate(-90)\">\n",
                     PLOT_TOP + PLOT_HEIGHT / 2);
    rp__plot_text(p->out, 0, 0, "text-anchor=\"middle\" fill=\"#444\"", y_label);
    rp__bytes_add_str(p->out, "</g>\n");
}

/* Round where nothing is on the host, square where something is. */
static void plot_mark(plot *p, double x, double y, const char *colour, const char *fill,
                      bool is_square) {
    static const char style[] = "stroke-width=\"2\"/>\n";
    if (is_square)
        rp__bytes_printf(p->out,
                         "<rect x=\"%.1f\" y=\"%.1f\" width=\"9\" height=\"9\" fill=\"%s\" "
                         "stroke=\"%s\" %s",
                         x - 4.5, y - 4.5, fill, colour, style);
    else
        rp__bytes_printf(p->out,
                         "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"5\" fill=\"%s\" stroke=\"%s\" %s", x,
                         y, fill, colour, style);
}

static void plot_dot(plot *p, const rp_capture_row *r, double x, double us, bool is_replay,
                     bool is_upper) {
    char label[32], attributes[96];
    const char *colour = is_replay ? REPLAY_COLOUR : EAGER_COLOUR;
    plot_mark(p, x, y_of(p, us), colour, is_replay ? colour : "#fff", r->n_host_ops > 0);
    snprintf(attributes, sizeof attributes, "text-anchor=\"middle\" font-size=\"11\" fill=\"%s\"",
             colour);
    rp__bench_duration(us, label, sizeof label);
    rp__plot_text(p->out, x, y_of(p, us) + (is_upper ? -10 : 19), attributes, label);
}

static void plot_row(plot *p, const rp_capture_row *r, double x) {
    bool has_replay = r->replay_us > 0;
    double y_axis = PLOT_TOP + PLOT_HEIGHT;
    if (has_replay) {
        rp__bytes_printf(p->out,
                         "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#999\" "
                         "stroke-width=\"2\"/>\n",
                         x, y_of(p, r->eager_us), x, y_of(p, r->replay_us));
        plot_dot(p, r, x, r->replay_us, true, r->replay_us > r->eager_us);
    }
    plot_dot(p, r, x, r->eager_us, false, !has_replay || r->eager_us >= r->replay_us);
    char tokens[16];
    snprintf(tokens, sizeof tokens, "%d", r->n_tokens);
    rp__plot_text(p->out, x, y_axis + 34, "text-anchor=\"middle\"", tokens);
    if (!r->is_chosen) return;
    rp__plot_text(p->out, x, y_axis + 52,
                  r->is_replay
                      ? "text-anchor=\"middle\" font-size=\"11\" fill=\"" REPLAY_COLOUR "\""
                      : "text-anchor=\"middle\" font-size=\"11\" fill=\"" EAGER_COLOUR "\"",
                  decision_of(r));
}

/* The buckets of one kind share a line with its name under them. */
static void plot_kinds(plot *p, const capture_bench *b) {
    for (size_t i = 0; i < b->n_rows;) {
        size_t first = i;
        while (i < b->n_rows && b->rows[i].is_prefill == b->rows[first].is_prefill) i++;
        double x1 = PLOT_LEFT + COLUMN * (double)first + 8, x2 = PLOT_LEFT + COLUMN * (double)i - 8,
               y = PLOT_TOP + PLOT_HEIGHT + 64;
        rp__bytes_printf(
            p->out, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#444\"/>\n", x1,
            y, x2, y);
        rp__plot_text(p->out, (x1 + x2) / 2, y + 18, "text-anchor=\"middle\"",
                      b->rows[first].is_prefill ? "prefill tokens" : "decode sequences");
    }
}

static void plot_legend(plot *p, const capture_bench *b) {
    static const struct {
        const char *text, *colour, *fill;
        bool is_square;
    } items[] = {{"eager: op by op", EAGER_COLOUR, "#fff", false},
                 {"replay: as one graph", REPLAY_COLOUR, REPLAY_COLOUR, false},
                 {"hybrid, eager", EAGER_COLOUR, "#fff", true},
                 {"hybrid, replay in pieces", REPLAY_COLOUR, REPLAY_COLOUR, true}};
    int n = has_placements(b) ? 4 : 2;
    for (int i = 0; i < n; i++) {
        double x = PLOT_LEFT + 160 * i, y = PLOT_TOP - 26;
        plot_mark(p, x + 6, y - 4, items[i].colour, items[i].fill, items[i].is_square);
        rp__plot_text(p->out, x + 18, y, "", items[i].text);
    }
}

static void write_svg(rp__bytes *out, const capture_bench *b) {
    char title[256], subtitle[288];
    enum { NARROWEST = 780 }; /* holds the device's description and the legend */
    plot p = {.out = out, .width = PLOT_LEFT + COLUMN * (int)b->n_rows + 20};
    if (p.width < NARROWEST) p.width = NARROWEST;
    int height = PLOT_TOP + PLOT_HEIGHT + PLOT_BOTTOM;
    plot_range(&p, b);
    snprintf(title, sizeof title, "%s, %s: eager against replay%s", b->info.model_name,
             b->info.quantization, b->info.is_simulated ? " (simulated times)" : "");
    snprintf(subtitle, sizeof subtitle, "%s, medians of %d pairs", b->info.device, b->n_pairs);
    rp__plot_begin(out, p.width, height, PLOT_LEFT, title, subtitle);
    plot_legend(&p, b);
    plot_axes(&p, b);
    for (size_t i = 0; i < b->n_rows; i++)
        plot_row(&p, &b->rows[i], PLOT_LEFT + COLUMN * ((double)i + 0.5));
    plot_kinds(&p, b);
    rp__plot_end(out);
}

/* ---- the command ---- */

static int show(const capture_bench *b, const rp__options *o) {
    rp__bytes out = {0}, svg = {0};
    int code = RP_CLI_OK;
    const char *path = rp__options_str(o, RP_OPT_SVG);
    if (rp__options_on(o, RP_OPT_JSON))
        write_json(&out, b);
    else
        write_table(&out, b);
    if (out.failed)
        code = rp__cli_out_of_memory();
    else
        rp__cli_write(out.p, out.n);
    if (path && !code) {
        write_svg(&svg, b);
        code = rp__bench_save(path, &svg);
    }
    rp__bytes_clear(&svg);
    rp__bytes_clear(&out);
    return code;
}

int rp__cli_bench_capture(rp__options *o) {
    capture_bench b = {.n_pairs = DEFAULT_PAIRS, .info = {.bytes = sizeof b.info}};
    rp_engine *engine = NULL;
    rp_error err = {0};
    const char *model = rp__cli_take_model(o);
    if (!model || !rp__cli_no_more_arguments(o)) return RP_CLI_USAGE;
    if (rp__options_given(o, RP_OPT_REPETITIONS))
        b.n_pairs = (int)rp__options_int(o, RP_OPT_REPETITIONS);
    rp__cli_interrupt_init();
    int code = rp__cli_start(o, model, (int)rp__options_int(o, RP_OPT_MAX_NUM_SEQS), &engine);
    if (code) return code;
    rp_engine_get_info(engine, &b.info);
    rp_bench_capture_options q = rp_bench_capture_options_default();
    q.n_pairs = b.n_pairs;
    q.on_row = on_row;
    q.user = &b;
    rp_status s = rp_engine_bench_capture(engine, &q, &err);
    rp__cli_status_line(NULL);
    if (s == RP_ECANCELLED && rp__cli_interrupted())
        code = RP_CLI_INTERRUPTED;
    else
        code = s < 0 ? rp__cli_fail(&err) : show(&b, o);
    rp_engine_destroy(engine);
    return rp__cli_finish_output(code);
}
