/* A request's events as its owner takes them, and its end: next, wait, cancel, release. */
#include <time.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "engine/engine_impl.h"

void rp__cond_init(pthread_cond_t *c) {
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(c, &attr);
    pthread_condattr_destroy(&attr);
}

struct timespec rp__deadline_after(int ms) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += ms / 1000;
    t.tv_nsec += (long)(ms % 1000) * 1000000;
    if (t.tv_nsec >= 1000000000) t.tv_sec++, t.tv_nsec -= 1000000000;
    return t;
}

bool rp__is_engine_thread(const rp_engine *e) {
    return pthread_equal(pthread_self(), e->thread);
}

rp_status rp__refuse_engine_thread(const rp_engine *e, rp_error *err) {
    if (!rp__is_engine_thread(e)) return RP_OK;
    return rp__fail(err, RP_ESTATE, "called in a callback, this would wait for the callback");
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
    struct timespec deadline = rp__deadline_after(timeout_ms > 0 ? timeout_ms : 0);
    pthread_mutex_lock(&e->lock);
    rp_status st;
    while ((st = take_event(r, out)) == RP_AGAIN && !rp__is_engine_thread(e)) {
        if (timeout_ms < 0)
            pthread_cond_wait(&r->changed, &e->lock);
        else if (pthread_cond_timedwait(&r->changed, &e->lock, &deadline))
            break;
    }
    pthread_mutex_unlock(&e->lock);
    return st;
}

const int32_t *rp_request_prompt_ids(const rp_request *r, size_t *n) {
    *n = r->n_prompt;
    return r->history;
}

bool rp_request_prompt_logprob(rp_request *r, size_t i, float *logprob, const rp_top_logprob **top,
                               size_t *n_top) {
    pthread_mutex_lock(&r->engine->lock);
    bool is_known = i > 0 && i < r->n_prompt_known && (r->n_tokens || r->is_done);
    pthread_mutex_unlock(&r->engine->lock);
    if (!is_known) return false;
    size_t n = r->n_prompt_logprobs > 0 ? (size_t)r->n_prompt_logprobs : 0;
    *logprob = r->prompt_logprobs[i];
    if (top) *top = n ? r->prompt_tops + i * n : NULL;
    if (n_top) *n_top = n;
    return true;
}

rp_status rp_request_wait(rp_request *r, char **text, rp_usage *usage, rp_error *err) {
    rp_engine *e = r->engine;
    if (text) *text = NULL;
    RP_TRY(rp__refuse_engine_thread(e, err));
    pthread_mutex_lock(&e->lock);
    while (!r->is_done) pthread_cond_wait(&r->changed, &e->lock);
    pthread_mutex_unlock(&e->lock);
    rp_status st = r->error.code;
    if (usage) *usage = r->usage;
    if (st < 0 && err) *err = r->error;
    if (!text || r->finish == RP_FINISH_ERROR) return st;
    *text = rp__strndup(r->text.p ? r->text.p : "", r->text.n);
    return *text ? st : rp__fail(err, RP_ENOMEM, "out of memory for the answer");
}

void rp_request_cancel(rp_request *r) {
    atomic_store(&r->is_cancelled, true);
    pthread_mutex_lock(&r->engine->lock);
    r->engine->has_cancels = true;
    pthread_cond_signal(&r->engine->wake);
    pthread_mutex_unlock(&r->engine->lock);
}

void rp_request_release(rp_request *r) {
    if (!r) return;
    rp_engine *e = r->engine;
    rp_request_cancel(r);
    bool must_wait = !rp__is_engine_thread(e);
    if (!must_wait) r->is_released = true;
    pthread_mutex_lock(&e->lock);
    while (!r->is_done && must_wait) pthread_cond_wait(&r->changed, &e->lock);
    bool is_done = r->is_done;
    pthread_mutex_unlock(&e->lock);
    if (is_done) rp__request_free(r); /* else the engine's thread does, at its end */
}
