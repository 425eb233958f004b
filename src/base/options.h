/* The one table of options: every switch of the command line and every environment variable of the
 * project.
 *
 * Owns: names (both dialects), value kinds, ranges, defaults and help text; parsing of arguments;
 * the environment mirror (REPRISE_MAX_TOKENS for --max-tokens, one for every long name); help,
 * suggestions and shell completion made from it. Leaves to others: what an option means. Only this
 * module calls getenv and setenv. Rules: an argument wins over the environment, which wins over the
 * default; of the same option given twice the last wins, except for kind RP_OPT_STRINGS, which
 * collects. `--name value`, `--name=value`, `-n value`, `-n=value`,
 * `--no-name` for a flag, `_` for `-` in long names; `--` ends the options.
 * Thread safety: pure functions over the caller's struct; rp__options_export only before threads
 * are started. */
#ifndef RP_BASE_OPTIONS_H
#define RP_BASE_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"

typedef enum rp__command {
    RP_CMD_RUN = 1 << 0,
    RP_CMD_CHAT = 1 << 1,
    RP_CMD_SERVE = 1 << 2,
    RP_CMD_TOKENIZE = 1 << 3,
    RP_CMD_INSPECT = 1 << 4,
    RP_CMD_EXPLAIN = 1 << 5,
    RP_CMD_DEVICES = 1 << 6,
    RP_CMD_BENCH = 1 << 7,
    RP_CMD_BENCH_SERVE = 1 << 8,
    RP_CMD_TUNE = 1 << 9,
    RP_CMD_VERSION = 1 << 10,
    RP_CMD_HELP = 1 << 11
} rp__command;

typedef struct rp__command_info {
    rp__command command;
    const char *name, *usage, *summary;
} rp__command_info;

const rp__command_info *rp__command_at(size_t i);           /* NULL past the end */
const rp__command_info *rp__command_find(const char *name); /* NULL: no such command */
const char *rp__command_suggest(const char *name);          /* the nearest command name, or NULL */

typedef enum rp__option_id {
    RP_OPT_MODEL,
    RP_OPT_CHAT_TEMPLATE,
    RP_OPT_CHAT_TEMPLATE_FILE,
    RP_OPT_CHAT_TEMPLATE_KWARGS,
    RP_OPT_CACHE,
    RP_OPT_PROMPT,
    RP_OPT_FILE,
    RP_OPT_SYSTEM,
    RP_OPT_RAW,
    RP_OPT_NO_BOS,
    RP_OPT_PARSE_SPECIAL,
    RP_OPT_MAX_TOKENS,
    RP_OPT_STOP,
    RP_OPT_IGNORE_EOS,
    RP_OPT_SEED,
    RP_OPT_TEMPERATURE,
    RP_OPT_TOP_K,
    RP_OPT_TOP_P,
    RP_OPT_MIN_P,
    RP_OPT_REPEAT_PENALTY,
    RP_OPT_REPEAT_LAST_N,
    RP_OPT_PRESENCE_PENALTY,
    RP_OPT_FREQUENCY_PENALTY,
    RP_OPT_DEVICE,
    RP_OPT_DEVICE_OPTIONS,
    RP_OPT_DEVICE_PATH,
    RP_OPT_LIST_DEVICES,
    RP_OPT_ISA,
    RP_OPT_THREADS,
    RP_OPT_PLACEMENT,
    RP_OPT_PLACE,
    RP_OPT_MAX_MODEL_LEN,
    RP_OPT_MAX_NUM_SEQS,
    RP_OPT_MAX_BATCH_TOKENS,
    RP_OPT_PREFILL_CHUNK,
    RP_OPT_SCHEDULER_STEPS,
    RP_OPT_PREFIX_CACHE,
    RP_OPT_BLOCK_SIZE,
    RP_OPT_NUM_BLOCKS,
    RP_OPT_KV_CACHE_DTYPE,
    RP_OPT_CACHE_TYPE_K,
    RP_OPT_CACHE_TYPE_V,
    RP_OPT_ACTIVATIONS,
    RP_OPT_CAPTURE,
    RP_OPT_ENFORCE_EAGER,
    RP_OPT_CAPTURE_AT_START,
    RP_OPT_MAX_GRAPHS,
    RP_OPT_MAX_GRAPH_BYTES,
    RP_OPT_HOST,
    RP_OPT_PORT,
    RP_OPT_ALIAS,
    RP_OPT_API_KEY,
    RP_OPT_API_KEY_FILE,
    RP_OPT_SSL_KEY_FILE,
    RP_OPT_SSL_CERT_FILE,
    RP_OPT_CORS,
    RP_OPT_MAX_QUEUE,
    RP_OPT_REQUEST_TIMEOUT,
    RP_OPT_TIMEOUT,
    RP_OPT_PING_INTERVAL,
    RP_OPT_MAX_BODY,
    RP_OPT_MAX_HEADER,
    RP_OPT_MAX_CONNECTIONS,
    RP_OPT_STREAM_BUFFER,
    RP_OPT_IGNORE_UNKNOWN,
    RP_OPT_SUMMARY_INTERVAL,
    RP_OPT_LOG_REQUESTS,
    RP_OPT_BENCH_PROMPT,
    RP_OPT_BENCH_GEN,
    RP_OPT_BENCH_DEPTH,
    RP_OPT_READ_MIB,
    RP_OPT_REPETITIONS,
    RP_OPT_URL,
    RP_OPT_MODEL_NAME,
    RP_OPT_ENDPOINT,
    RP_OPT_REQUESTS,
    RP_OPT_CONCURRENCY,
    RP_OPT_RATE,
    RP_OPT_PROMPTS,
    RP_OPT_PROMPT_TOKENS,
    RP_OPT_SHARED_TOKENS,
    RP_OPT_OUTPUT_TOKENS,
    RP_OPT_OUTPUT,
    RP_OPT_SVG,
    RP_OPT_OUT,
    RP_OPT_FIT,
    RP_OPT_TENSORS,
    RP_OPT_VOCAB,
    RP_OPT_ALL_OPS,
    RP_OPT_SELFTEST,
    RP_OPT_PIECES,
    RP_OPT_DETOKENIZE,
    RP_OPT_JSON,
    RP_OPT_LOGPROBS,
    RP_OPT_QUIET,
    RP_OPT_VERBOSE,
    RP_OPT_LOG_DISABLE,
    RP_OPT_COLOR,
    RP_OPT_HELP,
    RP_OPT_VERSION,
    RP_OPT_BASH_COMPLETION,
    RP_N_OPTIONS
} rp__option_id;

typedef enum rp__option_kind {
    RP_OPT_FLAG, /* --x, --no-x, --x=on */
    RP_OPT_STRING,
    RP_OPT_STRINGS, /* may be given several times */
    RP_OPT_INT,     /* min..max */
    RP_OPT_NUMBER,  /* min..max, finite */
    RP_OPT_INTS,    /* "512,1024": each min..max */
    RP_OPT_CHOICE,  /* one of `choices` */
    RP_OPT_ACTION   /* a flag that is never taken from the environment */
} rp__option_kind;

typedef struct rp__option {
    const char *name;         /* long name; the environment variable is made from it */
    const char *shorts;       /* names after one dash, space separated; NULL */
    const char *aliases;      /* further long names, space separated; NULL */
    const char *value;        /* what help calls the value; NULL for flags */
    const char *default_text; /* parsed as the default and shown; NULL: nothing */
    const char *choices;      /* "auto|on|off" */
    const char *help;
    double min, max;
    unsigned commands; /* of rp__command */
    uint8_t kind, group;
} rp__option;

const rp__option *rp__option_of(rp__option_id id);

typedef enum rp__option_origin {
    RP_ORIGIN_DEFAULT,
    RP_ORIGIN_ENV,
    RP_ORIGIN_ARG
} rp__option_origin;

typedef struct rp__option_value {
    rp__option_origin origin;
    const char
        *text; /* borrowed from argv, the environment or the table; NULL: not given, no default */
    int64_t number_int;
    double number;
    bool is_on;
    const char **items; /* kind RP_OPT_STRINGS */
    size_t n_items;
} rp__option_value;

typedef struct rp__options {
    rp__command command;
    rp__option_value values[RP_N_OPTIONS];
    const char **positional; /* arguments that are no options; borrowed strings */
    size_t n_positional;
} rp__options;

/* Parses the arguments after the command's name, then the environment, for the options of
 * `command`. The sentence of RP_EINVAL names the option as it was written and the value. Strings
 * are borrowed from `argv` and the environment. `options` must be cleared after success and failure
 * alike. */
rp_status rp__options_parse(rp__options *options, rp__command command, int argc, char *const *argv,
                            rp_error *err);
void rp__options_clear(rp__options *options);

const char *rp__options_str(const rp__options *o, rp__option_id id); /* NULL: not given */
int64_t rp__options_int(const rp__options *o, rp__option_id id);
double rp__options_number(const rp__options *o, rp__option_id id);
bool rp__options_on(const rp__options *o, rp__option_id id);
bool rp__options_given(const rp__options *o, rp__option_id id); /* by argument or environment */
/* The list of an RP_OPT_INTS option, at most `cap` of them; returns how many there are. */
size_t rp__options_ints(const rp__options *o, rp__option_id id, int64_t *out, size_t cap);

/* The environment's value of an option of the table, by its variable ("REPRISE_CACHE"): NULL when
 * unset or empty. For the library, which sees no command line: cache folder, list of device shared
 * objects. */
const char *rp__options_env(const char *variable);
/* Puts an option's value into this process's environment, so that an argument reaches
 * rp__options_env. */
rp_status rp__options_export(const rp__options *o, rp__option_id id, rp_error *err);

/* Strict decimal numbers: the whole text, in range (RP_EINVAL names `what`, the text and the
 * range). */
rp_status rp__parse_int(const char *what, const char *text, double min, double max, int64_t *out,
                        rp_error *err);
rp_status rp__parse_number(const char *what, const char *text, double min, double max, double *out,
                           rp_error *err);

/* Help of one command (or of `reprise` itself for RP_CMD_HELP), wrapped at `width` columns; false
 * when out of memory. */
bool rp__options_help(rp__bytes *out, rp__command command, size_t width);
bool rp__options_completion(rp__bytes *out); /* a bash completion script */

#endif
