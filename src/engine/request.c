/* A request's life outside the engine thread: checked and queued by submit, read by next and wait,
 * freed by release. */
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fail.h"
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
    static const char *const names[] = {"none",      "stop",  "length",
                                        "cancelled", "error", "timeout"};
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

static rp_status copy_settings(rp_request *r, const rp_request_options *o, rp_error *err) {
    const rp_engine *e = r->engine;
    RP_TRY(rp__sampling_check(&o->sampling, e->sampler.n_vocab, err));
    if (o->n_logprobs < -1 || o->n_logprobs > 20)
        return rp__fail(err, RP_EINVAL, "n_logprobs is %d, expected -1 to 20", o->n_logprobs);
    if (o->max_tokens < -1 || o->max_tokens == 0)
        return rp__fail(err, RP_EINVAL, "max_tokens is %d, expected at least 1, or -1 for no limit",
                        o->max_tokens);
    r->sampling = o->sampling;
    r->ignore_eos = o->ignore_eos;
    r->n_logprobs = o->n_logprobs;
    r->on_event = o->on_event;
    r->user = o->user;
    if (o->sampling.n_logit_bias) {
        r->logit_bias = rp__calloc(o->sampling.n_logit_bias, sizeof *r->logit_bias);
        if (!r->logit_bias) return no_memory(err);
        memcpy(r->logit_bias, o->sampling.logit_bias,
               o->sampling.n_logit_bias * sizeof *r->logit_bias);
    }
    r->sampling.logit_bias = r->logit_bias;
    if (o->n_stop_ids) {
        r->stop_ids = rp__calloc(o->n_stop_ids, sizeof *r->stop_ids);
        if (!r->stop_ids) return no_memory(err);
        memcpy(r->stop_ids, o->stop_ids, o->n_stop_ids * sizeof *r->stop_ids);
        r->n_stop_ids = o->n_stop_ids;
    }
    return copy_stops(r, o, err);
}

/* Bytes of text reserved per token, so that a step need not grow the answer: more than nearly every
 * token has. */
enum { TEXT_PER_TOKEN = 16, TEXT_SLACK = 4096 };

/* Everything the answer can need is allocated here; a step only fills it. */
static rp_status reserve(rp_request *r, const rp_request_options *o, const rp__ids *ids,
                         rp_error *err) {
    const rp_engine *e = r->engine;
    size_t n_ctx = (size_t)e->model->n_ctx;
    if (!ids->n) return rp__fail(err, RP_EINVAL, "the prompt is empty");
    if (ids->n >= n_ctx)
        return rp__fail(err, RP_ECONTEXT,
                        "the prompt has %zu tokens and the context is %zu: no room for an answer",
                        ids->n, n_ctx);
    size_t room = n_ctx - ids->n;
    r->n_prompt = r->n_history = ids->n;
    r->max_new = o->max_tokens < 0 || (size_t)o->max_tokens > room ? room : (size_t)o->max_tokens;
    int32_t n_blocks = rp__kv_blocks_for(&e->kv, (int64_t)(r->n_prompt + r->max_new));
    if (n_blocks > e->kv.n_blocks - 1)
        return rp__fail(err, RP_ECONTEXT, "prompt and answer take %d KV blocks, there are %d",
                        (int)n_blocks, (int)e->kv.n_blocks - 1);
    size_t n_top = o->n_logprobs > 0 ? (size_t)o->n_logprobs : 0;
    r->history = rp__calloc(r->n_prompt + r->max_new, sizeof *r->history);
    r->logprobs = rp__calloc(r->max_new, sizeof *r->logprobs);
    r->text_ends = rp__calloc(r->max_new, sizeof *r->text_ends);
    if (n_top) r->tops = rp__calloc(r->max_new, n_top * sizeof *r->tops);
    r->seq = (rp__kv_seq){.blocks = rp__calloc((size_t)n_blocks, sizeof(int32_t)), .cap = n_blocks};
    bool has_text = rp__bytes_reserve(&r->text, r->max_new * TEXT_PER_TOKEN + TEXT_SLACK) &&
                    rp__bytes_reserve(&r->piece, TEXT_SLACK) &&
                    rp__bytes_reserve(&r->stops.held, TEXT_SLACK);
    if (!r->history || !r->logprobs || !r->text_ends || (n_top && !r->tops) || !r->seq.blocks ||
        !has_text)
        return no_memory(err);
    memcpy(r->history, ids->p, ids->n * sizeof *ids->p);
    r->detokenizer =
        (rp__detokenizer){.tokenizer = e->tokenizer, .show_special = !o->skip_special_tokens};
    return RP_OK;
}

static void free_request(rp_request *r) {
    void *memory[] = {r->logit_bias, r->stop_strings, r->stop_memory, r->stop_ids,  r->history,
                      r->logprobs,   r->text_ends,    r->tops,        r->seq.blocks};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++) rp__free(memory[i]);
    rp__stops_clear(&r->stops);
    rp__bytes_clear(&r->piece);
    rp__bytes_clear(&r->text);
    rp__bytes_clear(&r->event_text);
    pthread_cond_destroy(&r->changed);
    rp__free(r);
}

static rp_status build(rp_request *r, const rp_request_options *o, rp_error *err) {
    rp__ids ids = {0};
    rp_status st = copy_settings(r, o, err);
    if (st >= 0) st = encode_prompt(r->engine, o, &ids, err);
    if (st >= 0) st = reserve(r, o, &ids, err);
    rp__ids_clear(&ids);
    return st;
}

static rp_status enqueue(rp_engine *e, rp_request *r, rp_error *err) {
    pthread_mutex_lock(&e->lock);
    rp_status st = e->failure.code;
    if (st < 0) {
        if (err) *err = e->failure;
    } else if (e->is_draining) {
        st = rp__fail(err, RP_ESHUTDOWN, "the engine finishes its requests and takes no new ones");
    } else {
        *e->queue_end = r;
        e->queue_end = &r->next;
        pthread_cond_signal(&e->wake);
    }
    pthread_mutex_unlock(&e->lock);
    return st < 0 ? st : RP_OK;
}

rp_status rp_engine_submit(rp_engine *e, const rp_request_options *o, rp_request **out,
                           rp_error *err) {
    *out = NULL;
    rp_request *r = rp__calloc(1, sizeof *r);
    if (!r) return no_memory(err);
    r->engine = e;
    r->submitted_ns = rp__clock_ns();
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&r->changed, &attr);
    pthread_condattr_destroy(&attr);
    rp_status st = build(r, o, err);
    *out = r; /* the callback may run before enqueue returns */
    if (st >= 0) st = enqueue(e, r, err);
    if (st >= 0) return RP_OK;
    *out = NULL;
    free_request(r);
    return st;
}

rp_status rp_engine_submit_n(rp_engine *e, const rp_request_options *o, int n, rp_request **out,
                             rp_error *err) {
    rp_request_options choice = *o;
    for (int i = 0; i < n; i++, choice.sampling.seed++) {
        rp_status st = rp_engine_submit(e, &choice, &out[i], err);
        if (st >= 0) continue;
        while (i-- > 0) rp_request_release(out[i]);
        return st;
    }
    return RP_OK;
}

const int32_t *rp_request_prompt_ids(const rp_request *r, size_t *n) {
    *n = r->n_prompt;
    return r->history;
}

bool rp_request_prompt_logprob(rp_request *r, size_t i, float *logprob, const rp_top_logprob **top,
                               size_t *n_top) {
    (void)r, (void)i, (void)logprob, (void)top, (void)n_top;
    return false;
}

/* ---- reading ---- */

static struct timespec deadline_after(int ms) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += ms / 1000;
    t.tv_nsec += (long)(ms % 1000) * 1000000;
    if (t.tv_nsec >= 1000000000) t.tv_sec++, t.tv_nsec -= 1000000000;
    return t;
}

/* Under the lock: copies the text of the event, so that it stays while the answer grows. */
static bool take_text(rp_request *r, size_t end, rp_event *ev) {
    rp__bytes_reset(&r->event_text);
    if (!rp__bytes_add(&r->event_text, r->text.p + r->text_read, end - r->text_read)) return false;
    r->text_read = end;
    ev->text = r->event_text.p;
    ev->text_bytes = r->event_text.n;
    return true;
}

static rp_status take_event(rp_request *r, rp_event *ev) {
    size_t i = r->n_read, n_top = r->n_logprobs > 0 ? (size_t)r->n_logprobs : 0;
    if (i < r->n_tokens) {
        *ev = (rp_event){.kind = RP_EVENT_TOKEN,
                         .id = r->history[r->n_prompt + i],
                         .logprob = r->logprobs[i],
                         .top = r->tops ? r->tops + i * n_top : NULL,
                         .n_top = n_top};
        if (!take_text(r, r->text_ends[i], ev)) return RP_ENOMEM;
        r->n_read++;
        return RP_OK;
    }
    if (!r->is_done) return RP_AGAIN;
    if (r->done_given) return RP_END;
    *ev = (rp_event){.kind = RP_EVENT_DONE,
                     .finish = r->finish,
                     .stop = r->stop_hit,
                     .usage = r->usage,
                     .error = r->error};
    if (!take_text(r, r->text.n, ev)) return RP_ENOMEM;
    r->done_given = true;
    return RP_OK;
}

rp_status rp_request_next(rp_request *r, int timeout_ms, rp_event *out) {
    rp_engine *e = r->engine;
    struct timespec deadline = deadline_after(timeout_ms > 0 ? timeout_ms : 0);
    pthread_mutex_lock(&e->lock);
    rp_status st;
    while ((st = take_event(r, out)) == RP_AGAIN) {
        if (timeout_ms < 0)
            pthread_cond_wait(&r->changed, &e->lock);
        else if (pthread_cond_timedwait(&r->changed, &e->lock, &deadline))
            break;
    }
    pthread_mutex_unlock(&e->lock);
    return st;
}

rp_status rp_request_wait(rp_request *r, char **text, rp_usage *usage, rp_error *err) {
    rp_engine *e = r->engine;
    pthread_mutex_lock(&e->lock);
    while (!r->is_done) pthread_cond_wait(&r->changed, &e->lock);
    pthread_mutex_unlock(&e->lock);
    if (usage) *usage = r->usage;
    if (text) *text = NULL;
    if (r->finish == RP_FINISH_ERROR) {
        if (err) *err = r->error;
        return r->error.code;
    }
    if (!text) return RP_OK;
    *text = rp__strndup(r->text.p ? r->text.p : "", r->text.n);
    return *text ? RP_OK : no_memory(err);
}

void rp_request_cancel(rp_request *r) {
    atomic_store(&r->is_cancelled, true);
    pthread_mutex_lock(&r->engine->lock);
    pthread_cond_signal(&r->engine->wake);
    pthread_mutex_unlock(&r->engine->lock);
}

void rp_request_release(rp_request *r) {
    if (!r) return;
    rp_engine *e = r->engine;
    rp_request_cancel(r);
    pthread_mutex_lock(&e->lock);
    while (!r->is_done) pthread_cond_wait(&r->changed, &e->lock);
    pthread_mutex_unlock(&e->lock);
    free_request(r);
}
