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

#endif
