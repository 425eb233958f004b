/* A request until it is queued: checked, tokenised, given all the memory it can ever need. */
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/stress.h"
#include "base/utf8.h"
#include "engine/engine_impl.h"

rp_request_options rp_request_options_default(void) {
    return (rp_request_options){.bytes = sizeof(rp_request_options),
                                .parse_special = true,
                                .max_tokens = -1,
                                .n_logprobs = -1,
                                .n_prompt_logprobs = -1,
                                .add_generation_prompt = true,
                                .skip_special_tokens = true,
                                .use_prefix_cache = true,
                                .sampling = rp_sampling_default()};
}

const char *rp_finish_name(rp_finish f) {
    static const char *const names[] = {"none", "stop", "length", "cancelled", "error", "timeout"};
    return (unsigned)f < RP_N_FINISHES ? names[f] : "none";
}

/* ---- the prompt ---- */

static rp_status encode_chat(const rp_engine *e, const rp_request_options *o, rp__ids *ids,
                             rp_error *err) {
    rp__rendered text = {0};
    rp_status st = rp__chat_render(e, o, &text, err);
    rp__encode_options how = {.parse_special = true,
                              .add_special = !o->skip_bos,
                              .literal = text.literal,
                              .n_literal = text.n_literal};
    if (st >= 0)
        st =
            rp__tokenizer_encode(e->tokenizer, (rp__str){text.text.p, text.text.n}, &how, ids, err);
    rp__rendered_clear(&text);
    return st;
}

static rp_status copy_ids(const rp_engine *e, const rp_request_options *o, rp__ids *ids,
                          rp_error *err) {
    for (size_t i = 0; i < o->n_prompt_ids; i++) {
        if (o->prompt_ids[i] < 0 || o->prompt_ids[i] >= e->sampler.n_vocab)
            return rp__fail(err, RP_EINVAL, "prompt_ids[%zu] is %d, tokens are 0 to %d", i,
                            (int)o->prompt_ids[i], (int)e->sampler.n_vocab - 1);
        if (!rp__ids_add(ids, o->prompt_ids[i]))
            return rp__fail(err, RP_ENOMEM, "out of memory for the prompt");
    }
    return RP_OK;
}

static rp_status encode_prompt(const rp_engine *e, const rp_request_options *o, rp__ids *ids,
                               rp_error *err) {
    if ((o->prompt_ids != NULL) + (o->messages != NULL) + (o->prompt != NULL) != 1)
        return rp__fail(err, RP_EINVAL,
                        "exactly one of prompt_ids, messages and prompt must be given");
    if (o->prompt_ids) return copy_ids(e, o, ids, err);
    if (o->messages) return encode_chat(e, o, ids, err);
    rp__encode_options how = {.parse_special = o->parse_special, .add_special = !o->skip_bos};
    rp__str text = {o->prompt, o->prompt_bytes ? o->prompt_bytes : strlen(o->prompt)};
    return rp__tokenizer_encode(e->tokenizer, text, &how, ids, err);
}

/* ---- building ---- */

static const double MAX_TIMEOUT = 1e9; /* seconds; nanoseconds of it fit easily in 64 bits */

static rp_status no_memory(rp_error *err) {
    return rp__fail(err, RP_ENOMEM, "out of memory for a request");
}

static rp_status copy_stops(rp_request *r, const rp_request_options *o, rp_error *err) {
    size_t bytes = 0;
    for (size_t i = 0; i < o->n_stop; i++) {
        if (!o->stop[i] || !*o->stop[i]) return rp__fail(err, RP_EINVAL, "stop[%zu] is empty", i);
        bytes += strlen(o->stop[i]) + 1;
    }
    if (!o->n_stop) return RP_OK;
    r->stop_strings = rp__calloc(o->n_stop, sizeof *r->stop_strings);
    char *at = r->stop_memory = rp__alloc(bytes);
    if (!r->stop_strings || !at) return no_memory(err);
    for (size_t i = 0; i < o->n_stop; i++) {
        size_t n = strlen(o->stop[i]);
        memcpy(at, o->stop[i], n + 1);
        r->stop_strings[i] = (rp__str){at, n};
        at += n + 1;
    }
    r->n_stops = o->n_stop;
    r->stops = (rp__stops){.strings = r->stop_strings, .n = r->n_stops};
    return RP_OK;
}

static rp_status copy_stop_ids(rp_request *r, const rp_request_options *o, rp_error *err) {
    if (!o->n_stop_ids) return RP_OK;
    for (size_t i = 0; i < o->n_stop_ids; i++)
        if (o->stop_ids[i] < 0 || o->stop_ids[i] >= r->engine->sampler.n_vocab)
            return rp__fail(err, RP_EINVAL, "stop_ids[%zu] is %d, tokens are 0 to %d", i,
                            (int)o->stop_ids[i], (int)r->engine->sampler.n_vocab - 1);
    r->stop_ids = rp__calloc(o->n_stop_ids, sizeof *r->stop_ids);
    if (!r->stop_ids) return no_memory(err);
    memcpy(r->stop_ids, o->stop_ids, o->n_stop_ids * sizeof *r->stop_ids);
    r->n_stop_ids = o->n_stop_ids;
    return RP_OK;
}

/* The caller's biases, after those that keep an answer from ending before min_tokens. */
static rp_status copy_bias(rp_request *r, const rp_request_options *o, rp_error *err) {
    const rp_engine *e = r->engine;
    size_t n_eog = r->ignore_eos ? 0 : e->n_eog, n = o->sampling.n_logit_bias;
    r->min_tokens = (size_t)o->min_tokens;
    r->n_bans = o->min_tokens ? n_eog + r->n_stop_ids : 0;
    r->sampling.n_logit_bias = r->n_bans + n;
    if (!r->sampling.n_logit_bias) return RP_OK;
    rp_logit_bias *b = r->logit_bias = rp__calloc(r->n_bans + n, sizeof *b);
    if (!b) return no_memory(err);
    for (size_t i = 0; i < r->n_bans; i++)
        *b++ = (rp_logit_bias){i < n_eog ? e->eog_ids[i] : r->stop_ids[i - n_eog], -100};
    if (n) memcpy(b, o->sampling.logit_bias, n * sizeof *b);
    r->sampling.logit_bias = r->logit_bias;
    return RP_OK;
}

static rp_status check_range(const char *name, int value, int min, int max, rp_error *err) {
    if (value >= min && value <= max) return RP_OK;
    return rp__fail(err, RP_EINVAL, "%s is %d, expected %d to %d", name, value, min, max);
}

static rp_status check_settings(const rp_engine *e, const rp_request_options *o, rp_error *err) {
    RP_TRY(rp__sampling_check(&o->sampling, e->sampler.n_vocab, err));
    RP_TRY(check_range("n_logprobs", o->n_logprobs, -1, 20, err));
    RP_TRY(check_range("n_prompt_logprobs", o->n_prompt_logprobs, -1, 20, err));
    RP_TRY(check_range("min_tokens", o->min_tokens, 0, INT32_MAX, err));
    RP_TRY(
        check_range("priority", o->priority, -RP_SCHED_MAX_PRIORITY, RP_SCHED_MAX_PRIORITY, err));
    if (!(o->timeout_seconds >= 0 && o->timeout_seconds <= MAX_TIMEOUT)) /* NaN fails too */
        return rp__fail(err, RP_EINVAL, "timeout_seconds is %g, expected 0 to %g",
                        o->timeout_seconds, MAX_TIMEOUT);
    if (o->max_tokens < -1 || o->max_tokens == 0)
        return rp__fail(err, RP_EINVAL, "max_tokens is %d, expected at least 1, or -1 for no limit",
                        o->max_tokens);
    if (o->max_tokens > 0 && o->min_tokens > o->max_tokens)
        return rp__fail(err, RP_EINVAL, "min_tokens is %d, more than max_tokens %d", o->min_tokens,
                        o->max_tokens);
    return RP_OK;
}

static rp_status copy_settings(rp_request *r, const rp_request_options *o, rp_error *err) {
    r->sampling = o->sampling;
    r->ignore_eos = o->ignore_eos;
    r->n_logprobs = o->n_logprobs;
    r->on_event = o->on_event;
    r->user = o->user;
    RP_TRY(copy_stop_ids(r, o, err));
    RP_TRY(copy_bias(r, o, err));
    return copy_stops(r, o, err);
}

/* Bytes of text reserved per token, so that a step need not grow the answer: more than nearly every
 * token has. */
enum { TEXT_PER_TOKEN = RP_STRESSED(16, 0), TEXT_SLACK = RP_STRESSED(4096, 1) };

/* The most positions that a sequence can have: those of the context, or of all KV blocks when they
 * are fewer. */
static rp_status find_room(rp_request *r, const rp_request_options *o, size_t n_prompt,
                           rp_error *err) {
    const rp_engine *e = r->engine;
    size_t n_ctx = (size_t)e->model->n_ctx,
           n_cache = (size_t)(e->kv.n_blocks - 1) * (size_t)e->kv.block_size;
    if (!n_prompt) return rp__fail(err, RP_EINVAL, "the prompt is empty");
    if (n_prompt >= n_ctx)
        return rp__fail(err, RP_ECONTEXT,
                        "the prompt has %zu tokens and the context is %zu: no room for an answer",
                        n_prompt, n_ctx);
    if (n_prompt >= n_cache)
        return rp__fail(err, RP_ECONTEXT,
                        "the prompt has %zu tokens and the KV cache %zu: no room for an answer",
                        n_prompt, n_cache);
    size_t room = (n_ctx < n_cache ? n_ctx : n_cache) - n_prompt;
    r->n_prompt = n_prompt;
    r->max_new = o->max_tokens < 0 || (size_t)o->max_tokens > room ? room : (size_t)o->max_tokens;
    return RP_OK;
}

static rp_status prepare_task(rp_request *r, const rp_request_options *o, rp_error *err) {
    const rp_engine *e = r->engine;
    const char *salt = o->cache_salt ? o->cache_salt : "";
    int32_t cap = rp__kv_blocks_for(&e->kv, (int64_t)(r->n_prompt + r->max_new));
    int32_t *blocks = rp__calloc((size_t)cap, sizeof *blocks);
    if (!blocks) return no_memory(err);
    r->task = (rp__task){.tokens = r->history,
                         .n_tokens = (int64_t)r->n_prompt,
                         .n_prompt = (int64_t)r->n_prompt,
                         .priority = o->priority,
                         .wants_all_rows = r->prompt_logprobs != NULL,
                         .arrival_ns = rp__clock_ns()};
    if (o->timeout_seconds > 0)
        r->task.deadline_ns = r->task.arrival_ns + (uint64_t)(o->timeout_seconds * 1e9);
    rp__kv_seq_init(&e->kv, &r->task.seq, blocks, cap, salt, strlen(salt));
    r->task.seq.is_private = !o->use_prefix_cache;
    return RP_OK;
}

static rp_status reserve_prompt_logprobs(rp_request *r, int n_best, rp_error *err) {
    if (n_best < 0) return RP_OK;
    r->n_prompt_logprobs = n_best;
    r->prompt_logprobs = rp__calloc(r->n_prompt, sizeof *r->prompt_logprobs);
    if (n_best) r->prompt_tops = rp__calloc(r->n_prompt, (size_t)n_best * sizeof *r->prompt_tops);
    return r->prompt_logprobs && (!n_best || r->prompt_tops) ? RP_OK : no_memory(err);
}

/* Everything the answer can need is allocated here; a step only fills it. */
static rp_status reserve(rp_request *r, const rp_request_options *o, const rp__ids *ids,
                         rp_error *err) {
    const rp_engine *e = r->engine;
    RP_TRY(find_room(r, o, ids->n, err));
    size_t n_top = o->n_logprobs > 0 ? (size_t)o->n_logprobs : 0;
    r->history = rp__calloc(r->n_prompt + r->max_new, sizeof *r->history);
    r->logprobs = rp__calloc(r->max_new, sizeof *r->logprobs);
    r->text_ends = rp__calloc(r->max_new, sizeof *r->text_ends);
    if (n_top) r->tops = rp__calloc(r->max_new, n_top * sizeof *r->tops);
    bool has_text = rp__bytes_reserve(&r->text, r->max_new * TEXT_PER_TOKEN + TEXT_SLACK) &&
                    rp__bytes_reserve(&r->piece, TEXT_SLACK) &&
                    rp__bytes_reserve(&r->stops.held, TEXT_SLACK);
    if (!r->history || !r->logprobs || !r->text_ends || (n_top && !r->tops) || !has_text)
        return no_memory(err);
    memcpy(r->history, ids->p, ids->n * sizeof *ids->p);
    r->detokenizer =
        (rp__detokenizer){.tokenizer = e->tokenizer, .show_special = !o->skip_special_tokens};
    RP_TRY(reserve_prompt_logprobs(r, o->n_prompt_logprobs, err));
    return prepare_task(r, o, err);
}

void rp__request_free(rp_request *r) {
    if (!r) return;
    void *memory[] = {r->logit_bias,  r->stop_strings,    r->stop_memory,    r->stop_ids,
                      r->history,     r->logprobs,        r->text_ends,      r->tops,
                      r->prompt_tops, r->prompt_logprobs, r->task.seq.blocks};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++) rp__free(memory[i]);
    rp__stops_clear(&r->stops);
    rp__bytes_clear(&r->piece);
    rp__bytes_clear(&r->text);
    rp__bytes_clear(&r->event_text);
    pthread_cond_destroy(&r->changed);
    rp__free(r);
}

/* ---- submitting ---- */

/* One choice of a prompt; *out is there, half built, after a failure. */
static rp_status create(rp_engine *e, const rp_request_options *o, const rp__ids *ids,
                        rp_request **out, rp_error *err) {
    rp_request *r = *out = rp__calloc(1, sizeof *r);
    if (!r) return no_memory(err);
    r->engine = e;
    rp__cond_init(&r->changed);
    RP_TRY(copy_settings(r, o, err));
    return reserve(r, o, ids, err);
}

static rp_status create_all(rp_engine *e, const rp_request_options *o, int n, rp_request **out,
                            rp_error *err) {
    rp__ids ids = {0};
    rp_request_options choice = *o;
    rp_status st = encode_prompt(e, o, &ids, err);
    for (int i = 0; i < n && st >= 0; i++, choice.sampling.seed++) {
        st = create(e, &choice, &ids, &out[i], err);
        choice.n_prompt_logprobs = -1; /* the first has those */
        if (st < 0 || i == 0) continue;
        out[i]->task.arrival_ns = out[0]->task.arrival_ns;
        out[i]->task.deadline_ns = out[0]->task.deadline_ns;
        rp__task_follow(&out[0]->task, &out[i]->task);
    }
    rp__ids_clear(&ids);
    return st;
}

static rp_status may_enter(rp_engine *e, int n, rp_error *err) {
    if (e->failure.code < 0) {
        if (err) *err = e->failure;
        return e->failure.code;
    }
    if (e->is_draining)
        return rp__fail(err, RP_ESHUTDOWN,
                        "the engine finishes its requests and takes no new ones");
    if (n <= e->max_open - e->n_open) return RP_OK;
    e->stats.n_queue_full++;
    return rp__fail(err, RP_EQUEUE, "%d requests are running and waiting, %d are the most",
                    (int)e->n_open, (int)e->max_open);
}

static rp_status enqueue(rp_engine *e, int n, rp_request **r, rp_error *err) {
    pthread_mutex_lock(&e->lock);
    rp_status st = may_enter(e, n, err);
    for (int i = 0; i < n && st >= 0; i++) {
        *e->queue_end = r[i];
        e->queue_end = &r[i]->next;
        e->n_open++;
    }
    if (st >= 0) pthread_cond_signal(&e->wake);
    pthread_mutex_unlock(&e->lock);
    return st;
}

/* Older callers' structs end earlier: what they do not have is as by default. */
static rp_request_options options_of(const rp_request_options *given) {
    rp_request_options o = rp_request_options_default();
    memcpy(&o, given, given->bytes < sizeof o ? given->bytes : sizeof o);
    return o;
}

rp_status rp_engine_submit_n(rp_engine *e, const rp_request_options *options, int n,
                             rp_request **out, rp_error *err) {
    rp_request_options o = options_of(options);
    RP_TRY(check_range("n", n, 1, e->max_open, err));
    memset(out, 0, (size_t)n * sizeof *out);
    RP_TRY(check_settings(e, &o, err));
    rp_status st = create_all(e, &o, n, out, err); /* callbacks may run before enqueue returns */
    if (st >= 0) st = enqueue(e, n, out, err);
    if (st >= 0) return RP_OK;
    for (int i = 0; i < n; i++) rp__request_free(out[i]);
    memset(out, 0, (size_t)n * sizeof *out);
    return st;
}

rp_status rp_engine_submit(rp_engine *e, const rp_request_options *o, rp_request **out,
                           rp_error *err) {
    *out = NULL;
    return rp_engine_submit_n(e, o, 1, out, err);
}
