/* Rows of `reprise bench` and the forms they are written in. */
#ifndef RP_CLI_BENCH_H
#define RP_CLI_BENCH_H

#include "base/bytes.h"
#include "base/options.h"
#include "reprise/reprise.h"

typedef struct rp__bench_row {
    bool is_prompt; /* ppN, else tgN */
    int n_tokens;
    rp_capture_mode capture;
    double *samples; /* tokens per second, one per repetition */
    size_t n_samples;
    double median, least, most;
    uint64_t n_captures, n_replays, n_eager_steps; /* captures count the warm rounds too */
} rp__bench_row;

typedef struct rp__bench_header {
    const rp_engine_info *info;
    int n_threads; /* as asked for; 0 or less: the device's choice */
    int n_seqs;    /* at once */
    int n_depth;   /* tokens in the cache before generation is measured */
} rp__bench_header;

void rp__bench_write_table(rp__bytes *out, const rp__bench_header *h, const rp__bench_row *rows,
                           size_t n);
void rp__bench_write_json(rp__bytes *out, const rp__bench_header *h, const rp__bench_row *rows,
                          size_t n);
void rp__bench_write_csv(rp__bytes *out, const rp__bench_header *h, const rp__bench_row *rows,
                         size_t n);

/* `bench capture`: the word is taken from the arguments already. */
int rp__cli_bench_capture(rp__options *o);
/* `bench machine`, likewise. */
int rp__cli_bench_machine(rp__options *o);

/* A duration in three or four digits and its unit; returns `out`. */
const char *rp__bench_duration(double us, char *out, size_t cap);

/* ---- plots (bench_plot.c): SVG, piece by piece ---- */

/* Okabe and Ito's colours, told apart by colour-blind readers. */
#define RP_PLOT_ORANGE "#d55e00"
#define RP_PLOT_BLUE   "#0072b2"
#define RP_PLOT_GREEN  "#009e73"

/* Opens a white page with a title and a line under it, both at `left`. */
void rp__plot_begin(rp__bytes *out, int width, int height, int left, const char *title,
                    const char *subtitle);
void rp__plot_end(rp__bytes *out);
void rp__plot_text(rp__bytes *out, double x, double y, const char *attributes, const char *text);
double rp__plot_next_round(double v); /* 1, 2, 5, 10, 20, ...: from one to the next */
/* Writes a finished plot; 0 or an exit status after a sentence. */
int rp__bench_save(const char *path, const rp__bytes *text);

#endif
