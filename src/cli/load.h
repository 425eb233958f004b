/* Load on a server: requests are sent by a plan, and what came back is kept with its time.
 *
 * Closed loop: `concurrency` clients, each sends its next request when the last one is answered.
 * Open loop: requests arrive by a Poisson process of `rate` per second, however slow the answers
 * are; times count from the arrival. One thread drives every connection (libcurl's multi
 * interface). A time is that of the bytes that brought it, before they are parsed. Main thread
 * only. */
#ifndef RP_CLI_LOAD_H
#define RP_CLI_LOAD_H

#include "base/bytes.h"
#include "base/options.h"
#include "reprise/reprise.h"

typedef struct rp__load_config {
    const char *url;     /* of the server, without /v1 and without a slash at its end */
    const char *api_key; /* NULL: none is sent */
    const char *model;
    bool is_chat; /* else plain completions */
    int n_requests;
    int concurrency;
    double rate; /* 0: closed loop */
    int max_tokens;
    bool ignore_eos;
    double temperature;
    double timeout_seconds; /* of one request; 0: none */
    uint64_t seed;
    char **prompts; /* request i has prompt i % n_prompts */
    size_t n_prompts;
} rp__load_config;

enum { RP_LOAD_ERROR_CAP = 256 };

typedef struct rp__load_record {
    double began, first, last, ended;         /* seconds of the run; first < 0: no text came */
    uint32_t n_chunks;                        /* that brought text */
    uint32_t n_prompt, n_cached, n_generated; /* as the server counts; 0 when it does not say */
    int http;                                 /* 0: no answer came */
    bool is_done;
    char error[RP_LOAD_ERROR_CAP]; /* when it is not */
} rp__load_record;

typedef struct rp__load_result {
    rp__load_record *records;
    size_t n_records; /* ended ones, in the order of their ends */
    double *gaps;     /* seconds between chunks of the answers that were done */
    size_t n_gaps, gaps_cap;
    double seconds; /* from the first request to the last answer */
    int most_at_once;
    bool is_interrupted; /* by Ctrl-C: what was under way is not among the records */
} rp__load_result;

/* Runs the plan. A failing request is a record; RP_ENOMEM and our own faults are failures. The
 * result must be cleared after both. */
rp_status rp__load_run(const rp__load_config *config, rp__load_result *out, rp_error *err);
void rp__load_result_clear(rp__load_result *r);

/* One whole exchange, before the run: GET, or POST when `body` is not NULL. The sentence of
 * RP_ENOTFOUND and RP_EIO names the address. */
rp_status rp__load_fetch(const rp__load_config *config, const char *path, const char *body,
                         rp__bytes *out, rp_error *err);

/* ---- load_prompts.c ---- */

typedef struct rp__prompt_plan {
    const char *file; /* one prompt per line; NULL: made of random words */
    int n_tokens;     /* of each, those of the shared beginning included */
    int n_shared;
} rp__prompt_plan;

/* What the lengths of made prompts are lengths of. */
typedef enum rp__prompt_unit {
    RP_PROMPT_TOKENS,       /* each has the wanted count, by the server's /tokenize */
    RP_PROMPT_ABOUT_TOKENS, /* the same, but words do not end where they would have to */
    RP_PROMPT_WORDS         /* the server does not count: a word is taken for a token */
} rp__prompt_unit;

/* Fills config->prompts, different ones for every request. */
rp_status rp__load_make_prompts(rp__load_config *config, const rp__prompt_plan *plan,
                                rp__prompt_unit *unit, rp_error *err);
void rp__load_free_prompts(rp__load_config *config);

/* xorshift64*, from a seed that is not 0. */
uint64_t rp__load_random(uint64_t *state);

/* ---- load_stream.c: an answer as it comes ---- */

typedef struct rp__load_stream {
    rp__bytes rest; /* a line that is not whole yet, or an answer that is no stream */
    bool is_ended;  /* [DONE] came */
    bool has_failed;
    bool brought_text; /* by the last call of take */
    rp__load_record *record;
} rp__load_stream;

void rp__load_stream_begin(rp__load_stream *s, rp__load_record *record);
/* Takes bytes of a server-sent stream into the record. False when out of memory. */
bool rp__load_stream_take(rp__load_stream *s, const char *p, size_t n);
/* The server's own sentence out of an error's JSON, else the beginning of its text. */
void rp__load_sentence(const char *p, size_t n, char out[RP_LOAD_ERROR_CAP]);

/* ---- load_report.c ---- */

typedef struct rp__load_report {
    const rp__load_config *config;
    const rp__load_result *result;
    rp__prompt_unit unit;
    const rp__prompt_plan *plan;
} rp__load_report;

void rp__load_write_table(rp__bytes *out, const rp__load_report *r);
void rp__load_write_json(rp__bytes *out, const rp__load_report *r);
void rp__load_write_svg(rp__bytes *out, const rp__load_report *r);

#endif
