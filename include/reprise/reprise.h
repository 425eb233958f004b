/* Reprise: load a model, submit requests, get text.
 *
 * Two nouns: an *engine* (a model on a device) and a *request* (one prompt and its answer). The
 * server, the command line and embedders see this header only.
 *
 * Threads: every function may be called from any thread. One thread inside the engine owns the
 * model, the KV cache and the device; calls send it messages. Callbacks run on that thread and must
 * return soon. Ownership: strings and arrays in option structs are borrowed for the call. What a
 * function gives in an `out` parameter belongs to the caller and is released as its comment says.
 * Text is UTF-8. Errors: every call that can fail takes an rp_error (may be NULL) and writes one
 * sentence into it. Option structs start from rp_x_default(), which also sets `bytes`, so that
 * older callers keep working. */
#ifndef REPRISE_REPRISE_H
#define REPRISE_REPRISE_H

#include "reprise/common.h"

#ifdef __cplusplus
extern "C" {
#endif

#define RP_VERSION "0.1.0"
RP_API const char *rp_version(void);

/* ---- engine ---- */

typedef struct rp_engine rp_engine;
typedef struct rp_request rp_request;

enum { RP_MAX_SCHEDULER_STEPS = 64 };

typedef struct rp_engine_options {
    uint32_t bytes;
    const char *model;  /* .gguf file, model folder, or short name in ~/.cache/reprise/models */
    const char *device; /* a name of rp_device_info_at, or the path of a device's shared object;
                           NULL: "cpu" */
    const char *device_options; /* "key=value,..." for that device; NULL */
    int n_threads;              /* cpu threads; 0: the cores that may be used */
    int n_ctx;            /* most positions of one sequence; 0: the model's own, at most 8192 */
    int max_seqs;         /* sequences stepping together (default 8) */
    int max_batch_tokens; /* most tokens of one step (default 512) */
    int prefill_chunk;    /* most prompt tokens of a step while answers are running: bounds the gap
                             in everyone's stream (default 256; 0: max_batch_tokens) */
    int max_queue;        /* requests that may wait beside max_seqs running ones; one more is
                             refused with RP_EQUEUE (default 1024; 0: the default) */
    bool prefix_cache;    /* equal beginnings of prompts are computed once (default true) */
    int block_size;       /* positions per KV block (default 32) */
    int n_blocks; /* KV blocks in all; 0: enough for max_seqs sequences of n_ctx, within memory */
    const char *cache_type_k, *cache_type_v; /* "f16" (default), "bf16", "f32" */
    rp_activations activations; /* default auto */
    rp_capture_mode capture;
    int max_graphs; /* graphs kept at once (default 32); the least recently used goes first */
    size_t max_graph_bytes;    /* a plan whose graphs need more device bytes is refused (default 0:
                                  what they need, within memory) */
    bool capture_at_start;     /* capture every bucket before READY instead of on first use */
    const char *chat_template; /* Jinja text used instead of the model's own; NULL */
    rp_progress_fn progress;
    void *progress_user;
    /* Where the ops of a step stand. "host-free": on the device, but for those it does not run;
     * "hybrid": where the device's own rules say; "auto" or NULL: whichever of the two is measured
     * to be faster, step size by step size; "tuned", or the path of a profile (with a / or . in
     * it): where rp_engine_tune found it faster. */
    const char *placement;
    const char *place;        /* rules that win over those: "norm:rows<32=host rope=device"; NULL */
    const char *host_options; /* device_options of the host's side; NULL */
    int scheduler_steps; /* most steps of greedy answers in one visit of the host, up to
                            RP_MAX_SCHEDULER_STEPS: the device feeds its tokens back itself, and a
                            stream has them in one go. A device that cannot is refused (default 1;
                            0: the default) */
} rp_engine_options;

RP_API rp_engine_options rp_engine_options_default(void);

/* Loads and starts. RP_ENOMEM says needed and available bytes before anything big is allocated. */
RP_API rp_status rp_engine_create(const rp_engine_options *options, rp_engine **out, rp_error *err);
/* Cancels what runs, waits for the engine thread, frees. Requests must have been released. Not from
 * a callback. NULL is fine. */
RP_API void rp_engine_destroy(rp_engine *engine);

/* Refuses new requests (RP_ESHUTDOWN) for good and waits until all that were accepted are done:
 * RP_OK, or RP_AGAIN after timeout_ms (-1: no limit; 0 and in a callback: only stops accepting).
 * May be called again. */
RP_API rp_status rp_engine_drain(rp_engine *engine, int timeout_ms);

/* RP_OK: requests are accepted and answered. RP_ESHUTDOWN while draining; the failure after which
 * the engine refuses all work. *step_seconds (may be NULL): how long the step in progress has taken
 * so far, 0 between steps: a hung device shows here. */
RP_API rp_status rp_engine_health(rp_engine *engine, double *step_seconds, rp_error *err);

/* Run-time switch; takes effect from the next step. */
RP_API void rp_engine_set_capture(rp_engine *engine, rp_capture_mode mode);

typedef struct rp_engine_info {
    uint32_t bytes;
    char model_name[128];  /* general.name or the file's name */
    char architecture[64]; /* "llama", "qwen3", ... */
    char quantization[64]; /* the most common weight format, "Q4_1" */
    char device[192];      /* device and its description */
    int64_t n_params;
    int n_layers, n_embd, n_vocab, n_ctx, n_ctx_train;
    size_t weight_bytes, kv_bytes, arena_bytes; /* on the device */
    size_t graph_bytes; /* kept free there for graphs; 0: the device cannot tell beforehand */
    bool has_chat_template;
    bool is_simulated; /* device times are not real */
    double load_seconds;
} rp_engine_info;
RP_API void rp_engine_get_info(rp_engine *engine, rp_engine_info *out); /* set out->bytes first */

typedef enum rp_finish {
    RP_FINISH_NONE,
    RP_FINISH_STOP,   /* end of text, a stop string or a stop id */
    RP_FINISH_LENGTH, /* max_tokens, or the context is full */
    RP_FINISH_CANCELLED,
    RP_FINISH_ERROR,
    RP_FINISH_TIMEOUT, /* timeout_seconds passed, waiting or running */
    RP_N_FINISHES
} rp_finish;
RP_API const char *rp_finish_name(rp_finish f); /* "stop", "length", ... */

typedef struct rp_reason_count {
    const char *reason; /* static */
    uint64_t count;
} rp_reason_count;

typedef struct rp_engine_stats { /* since creation */
    uint32_t bytes;
    uint64_t n_steps, n_captures, n_replays, n_eager_steps, n_graphs, graph_bytes;
    uint64_t n_prompt_tokens, n_generated_tokens, n_requests;
    uint64_t blocks_free, blocks_live, blocks_cached;
    uint64_t heap_allocs; /* allocations by the library in the whole process */
    uint64_t device_allocs, device_bytes;
    uint64_t n_recaptures, n_evictions, n_refusals; /* of graphs: captured again, dropped for
                                                       others, refused by the device */
    uint64_t n_device_losses;                       /* after each the device was opened again */
    rp_reason_count eager_reasons[12];              /* why steps ran eagerly */
    uint32_t n_eager_reasons;
    uint64_t n_running, n_waiting;             /* requests now */
    uint64_t n_preemptions;                    /* requests put back because KV blocks ran out */
    uint64_t n_prefix_queries, n_prefix_hits;  /* prompt tokens looked up in the prefix cache and
                                                  found there */
    uint64_t n_finished[RP_N_FINISHES];        /* requests by rp_finish */
    uint64_t n_queue_full;                     /* requests refused with RP_EQUEUE */
    uint64_t n_first_tokens;                   /* requests that got their first token, and: */
    double queue_seconds, first_token_seconds; /* sums over them, from submit on */
    uint64_t n_host_ops, n_transfers;          /* of steps with ops on the host */
    rp_reason_count placements[12]; /* steps by placement, and why it was taken; none where there
                                       is one placement only */
    uint32_t n_placements;
} rp_engine_stats;
RP_API void rp_engine_get_stats(rp_engine *engine, rp_engine_stats *out); /* set out->bytes first */

/* ---- requests ---- */

typedef struct rp_logit_bias {
    int32_t id;
    float bias;
} rp_logit_bias; /* bias <= -100 removes the token */

/* How the next token is chosen. Order: logit bias, penalties, temperature, top-k, top-p, min-p,
 * draw. */
typedef struct rp_sampling {
    float temperature;        /* 0: greedy (default 0.8) */
    int top_k;                /* 0: off (default 40) */
    float top_p;              /* 1: off (default 0.95) */
    float min_p;              /* 0: off (default 0.05) */
    float repetition_penalty; /* 1: off; > 1 divides positive and multiplies negative logits of
                                 tokens seen (CTRL paper) */
    float presence_penalty,
        frequency_penalty; /* OpenAI's: subtracted once / per use, of generated tokens */
    int penalty_last_n; /* window of the repetition penalty in tokens of prompt and answer; -1: all
                           (default 64) */
    uint64_t seed;      /* same seed, same request: same tokens, whoever else is served */
    const rp_logit_bias *logit_bias;
    size_t n_logit_bias;
} rp_sampling;
RP_API rp_sampling rp_sampling_default(void);

typedef struct rp_usage {
    uint32_t n_prompt, n_cached,
        n_generated;        /* n_cached: prompt tokens found in the prefix cache */
    uint32_t n_preemptions; /* times it was put back, and computed again */
    double queue_seconds, prefill_seconds,
        decode_seconds; /* until the first step, the first token, the end */
} rp_usage;

typedef struct rp_top_logprob {
    int32_t id;
    float logprob;
} rp_top_logprob;

typedef enum rp_event_kind {
    RP_EVENT_TOKEN, /* id, logprob, and the text that became complete with it (may be empty) */
    RP_EVENT_DONE   /* finish, usage, the last held-back text; error.message when finish is
                       RP_FINISH_ERROR or RP_FINISH_TIMEOUT */
} rp_event_kind;

typedef struct rp_event {
    rp_event_kind kind;
    int32_t id;    /* TOKEN */
    float logprob; /* TOKEN: ln P(id) of the model's own distribution, before sampling settings; 0
                      unless asked for */
    const rp_top_logprob *top; /* TOKEN: n_logprobs entries; valid until the next event */
    size_t n_top;
    const char *text; /* whole UTF-8 characters; valid until the next event */
    size_t text_bytes;
    rp_finish finish; /* DONE */
    const char *stop; /* DONE: the stop string that ended it, or NULL */
    rp_usage usage;   /* DONE */
    rp_error error;   /* DONE */
} rp_event;
typedef void (*rp_event_fn)(void *user, rp_request *request, const rp_event *event);

typedef struct rp_request_options {
    uint32_t bytes;
    /* Exactly one of: ids, messages (a JSON array in OpenAI's form, put through the chat template),
     * text. */
    const int32_t *prompt_ids;
    size_t n_prompt_ids;
    const char *messages;
    const char *template_kwargs; /* JSON object of further template variables; NULL */
    bool add_generation_prompt;  /* messages: the prompt ends where the answer begins (default) */
    bool continue_final_message; /* messages: the answer continues the last one; then without
                                    add_generation_prompt */
    const char *prompt;
    size_t prompt_bytes; /* of `prompt`; 0: up to its zero byte */
    bool parse_special;  /* special tokens written in `prompt` become tokens (default true for raw
                            prompts) */
    bool skip_bos;       /* no BOS even where the model wants one */

    int max_tokens; /* -1 (default): until the model ends or the context is full */
    int min_tokens; /* no end of text, stop id or stop string before so many (default 0) */
    bool ignore_eos;
    bool skip_special_tokens; /* control tokens of the answer give no text (default true) */
    const char *const *stop;  /* texts that end the answer; not part of it */
    size_t n_stop;
    const int32_t *stop_ids;
    size_t n_stop_ids;
    rp_sampling sampling;
    int n_logprobs; /* -1 (default): none; 0: of the chosen token; 1 to 20: and of so many best ones
                     */
    int n_prompt_logprobs; /* the same for the prompt's own tokens, see rp_request_prompt_logprob;
                              the prompt is then computed in small steps, without the prefix cache
                            */

    int priority;           /* lower is served first (default 0; -1000000 to 1000000); a step of
                               priority weighs as much as 10 seconds of waiting: nobody starves */
    double timeout_seconds; /* from submit on, waiting included; 0 (default): none */
    bool use_prefix_cache;  /* default true; false: neither looks for its prompt nor leaves it */
    const char *cache_salt; /* prompts share the cache only under equal salts; NULL: the common one
                             */
    rp_event_fn on_event;   /* NULL: take events with rp_request_next */
    void *user;
} rp_request_options;
RP_API rp_request_options rp_request_options_default(void);

/* Checks, tokenises and queues. RP_ECONTEXT names both numbers when the prompt leaves no room for
 * an answer; an answer that reaches the end of the context ends with RP_FINISH_LENGTH. */
RP_API rp_status rp_engine_submit(rp_engine *engine, const rp_request_options *options,
                                  rp_request **out, rp_error *err);

/* n requests for one prompt, which is computed once: choice i is out[i], with seed + i. Each is a
 * request of its own, to be read, cancelled and released; the prompt's log probabilities are with
 * out[0]. All or none. RP_EQUEUE when they do not all find a place. */
RP_API rp_status rp_engine_submit_n(rp_engine *engine, const rp_request_options *options, int n,
                                    rp_request **out, rp_error *err);

/* The prompt as the model sees it; valid until release. */
RP_API const int32_t *rp_request_prompt_ids(const rp_request *request, size_t *n);
/* After the first event of a request with n_prompt_logprobs >= 0: of prompt token i given those
 * before it. *top (may be NULL) gets *n_top entries, valid until release. false: there is none (i
 * is 0 or past the prompt, or they were not asked for or not reached). */
RP_API bool rp_request_prompt_logprob(rp_request *request, size_t i, float *logprob,
                                      const rp_top_logprob **top, size_t *n_top);

/* Waits for the next event of a request without callback. RP_OK; RP_END after DONE was given;
 * RP_AGAIN after timeout_ms (-1: no limit), in a callback at once. */
RP_API rp_status rp_request_next(rp_request *request, int timeout_ms, rp_event *out);

/* Waits until it is done (RP_ESTATE in a callback, which would wait for itself); *text (rp_free)
 * gets the whole answer when not NULL. The failure when it ended with one (RP_ETIMEOUT gives the
 * text so far, too). */
RP_API rp_status rp_request_wait(rp_request *request, char **text, rp_usage *usage, rp_error *err);

/* Ends within one step, or visit of scheduler_steps; DONE with RP_FINISH_CANCELLED follows. */
RP_API void rp_request_cancel(rp_request *request);
/* Cancels if needed, waits for the end, frees. In a callback, its own or another's, it does not
 * wait: no event follows, and the engine frees the request when it has ended. NULL is fine. */
RP_API void rp_request_release(rp_request *request);

/* ---- text ---- */

/* *ids from the library: rp_free. */
RP_API rp_status rp_engine_tokenize(rp_engine *engine, const char *text, size_t text_bytes,
                                    bool add_special, bool parse_special, int32_t **ids,
                                    size_t *n_ids, rp_error *err);
/* *text: exact bytes and a terminating zero (rp_free). */
RP_API rp_status rp_engine_detokenize(rp_engine *engine, const int32_t *ids, size_t n_ids,
                                      bool show_special, char **text, size_t *text_bytes,
                                      rp_error *err);
/* The bytes that a token adds to a text (perhaps part of a character; special tokens: their name).
 * A view that lives as long as the engine; NULL: no such id. */
RP_API const char *rp_engine_token_bytes(rp_engine *engine, int32_t id, size_t *bytes);
/* The prompt that messages become (rp_free), by the fields of `options` that are about messages.
 * RP_ETEMPLATE carries the template's own refusal. */
RP_API rp_status rp_engine_apply_template(rp_engine *engine, const rp_request_options *options,
                                          char **text, rp_error *err);

/* ---- looking inside ---- */

/* Text reports (rp_free): the program of each bucket: ops, placement, bytes, segments, inputs. */
RP_API rp_status rp_engine_explain(rp_engine *engine, bool all_ops, char **text, rp_error *err);

/* Eager against replay for the steps of one size and placement, from an idle device to an idle
 * device. */
typedef struct rp_capture_row {
    char bucket[32];    /* "decode 4", "prefill 512" */
    char placement[32]; /* "host-free", "hybrid": a row for each that there is */
    bool is_chosen;     /* the placement that steps of this size take from now on */
    bool is_prefill;
    int n_tokens, n_ops;
    int n_host_ops, n_transfers;
    double eager_us, replay_us; /* medians of a step; replay_us 0: there is no graph */
    /* Eager to replay by pairs: the median, and the borders of the middle half; 0 without graph. */
    double ratio, ratio_low, ratio_high;
    bool is_replay;             /* the decision of RP_CAPTURE_AUTO, with this placement */
    char reason[96];            /* for it */
    bool is_simulated;          /* the times are a device's virtual ones */
    size_t graph_bytes;
} rp_capture_row;

typedef struct rp_bench_capture_options {
    uint32_t bytes;
    int n_pairs; /* eager and replay in turns (default 15) */
    /* One row per step size and placement, i of n, on the engine's thread; true stops
     * (RP_ECANCELLED). */
    bool (*on_row)(void *user, const rp_capture_row *row, int i, int n);
    void *user;
} rp_bench_capture_options;
RP_API rp_bench_capture_options rp_bench_capture_options_default(void);

/* Captures and measures the steps of every size on sequences of its own, and decides anew from what
 * it finds. RP_EBUSY while there are requests. */
RP_API rp_status rp_engine_bench_capture(rp_engine *engine, const rp_bench_capture_options *options,
                                         rp_error *err);

/* One op of one size on the device, and on the host with the transfers that it would need there. */
typedef struct rp_tune_row {
    char op[32];
    int64_t rows, width;
    double device_us, host_us; /* medians */
    bool is_host;              /* the host is faster */
    bool is_simulated;
} rp_tune_row;

typedef struct rp_tune_options {
    uint32_t bytes;
    int n_pairs; /* device and host in turns (default 5) */
    /* Row i of n, on the engine's thread; true stops (RP_ECANCELLED). */
    bool (*on_row)(void *user, const rp_tune_row *row, int i, int n);
    void *user;
} rp_tune_options;
RP_API rp_tune_options rp_tune_options_default(void);

/* Measures every op of the model's steps in every size, and makes the profile that `placement`
 * takes (*profile: rp_free). For an engine with placement "host-free". RP_EBUSY while there are
 * requests; RP_EUNSUPPORTED where the device works in the host's memory. */
RP_API rp_status rp_engine_tune(rp_engine *engine, const rp_tune_options *options, char **profile,
                                rp_error *err);
/* Where "tuned" looks for it (rp_free). */
RP_API rp_status rp_engine_tune_path(rp_engine *engine, char **path, rp_error *err);

/* What a device can do at most in one respect, measured: what speeds are held against. */
typedef struct rp_machine_row {
    char what[16]; /* "read" (bytes), "f32", "bf16", "int8" (products and sums, 2 each) */
    char how[48];  /* kind of pages, or the instruction set */
    int n_threads;
    double per_second;
} rp_machine_row;

typedef struct rp_bench_machine_options {
    uint32_t bytes;
    const char *device, *device_options; /* as for engines */
    int n_threads;                       /* the most; 0: the device's own choice */
    size_t read_bytes;                   /* memory that is read (default 512 MiB) */
    bool (*on_row)(void *user, const rp_machine_row *row); /* true stops: RP_ECANCELLED */
    void *user;
} rp_bench_machine_options;
RP_API rp_bench_machine_options rp_bench_machine_options_default(void);

/* RP_EUNSUPPORTED: the device does not measure its limits. */
RP_API rp_status rp_bench_machine(const rp_bench_machine_options *options, rp_error *err);

/* Metadata, tensors and memory by purpose of a model file, without loading it. */
typedef struct rp_inspect_options {
    uint32_t bytes;
    const char *model;
    int n_ctx, max_seqs;
    const char *cache_type_k, *cache_type_v;
    bool show_tensors, show_vocab;
    bool as_json;
    const char *device, *device_options; /* where it should fit; NULL: as for engines */
    bool show_fit; /* whether it fits there, and the largest context that would */
} rp_inspect_options;
RP_API rp_inspect_options rp_inspect_options_default(void);
RP_API rp_status rp_inspect(const rp_inspect_options *options, char **text, rp_error *err);

/* Devices there are, one after the other; false past the end. `usable` says whether it opens here,
 * `note` why not. */
typedef struct rp_device_info {
    uint32_t bytes;
    char name[64], description[192], note[256];
    bool usable, has_capture, is_simulated;
    size_t memory_bytes;
} rp_device_info;
RP_API bool rp_device_info_at(size_t i, rp_device_info *out);

/* Whether a device sees each input that was written just before a replay: n_rounds of copying 1 and
 * 513 integers. RP_EDEVICE says what was written and what was read. `options` as in engines. */
RP_API rp_status rp_device_selftest(const char *name, const char *options, uint32_t n_rounds,
                                    rp_error *err);

/* One tokenizer without a model's weights. */
typedef struct rp_vocab rp_vocab;
RP_API rp_status rp_vocab_open(const char *model, rp_vocab **out, rp_error *err);
RP_API void rp_vocab_close(rp_vocab *v);
RP_API rp_status rp_vocab_tokenize(rp_vocab *v, const char *text, size_t text_bytes,
                                   bool add_special, bool parse_special, int32_t **ids,
                                   size_t *n_ids, rp_error *err);
RP_API rp_status rp_vocab_detokenize(rp_vocab *v, const int32_t *ids, size_t n_ids,
                                     bool show_special, char **text, size_t *text_bytes,
                                     rp_error *err);
RP_API const char *
rp_vocab_piece(rp_vocab *v, int32_t id,
               size_t *bytes); /* as the vocabulary writes it; NULL: no such id */

RP_API void rp_free(void *p); /* what the library gave in an out parameter */

#ifdef __cplusplus
}
#endif
#endif
