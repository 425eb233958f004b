/* What the engine thread tells the reader of a request: tokens with their text, and the end. */
#include "base/clock.h"
#include "engine/engine_impl.h"

/* Until min_tokens no stop string counts. */
static int add_text(rp_request *r, rp__str text) {
    if (r->n_tokens < r->min_tokens) return rp__bytes_add(&r->text, text.p, text.n) ? -1 : -2;
    return rp__stops_add(&r->stops, text, &r->text);
}

bool rp__publish_token(rp_engine *e, rp_request *r, int32_t id, float logprob) {
    rp__bytes_reset(&r->piece);
    rp__detokenizer_add(&r->detokenizer, id, &r->piece);
    pthread_mutex_lock(&e->lock);
    e->stats.n_generated_tokens++;
    size_t from = r->text.n, i = r->n_tokens;
    int hit = add_text(r, (rp__str){r->piece.p, r->piece.n});
    if (hit >= 0) r->stop_hit = r->stop_strings[hit].p;
    r->logprobs[i] = logprob;
    r->text_ends[i] = r->text.n;
    r->n_tokens++;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&e->lock);
    if (r->on_event && !r->is_released) {
        size_t n_top = r->n_logprobs > 0 ? (size_t)r->n_logprobs : 0;
        rp_event ev = {.kind = RP_EVENT_TOKEN,
                       .id = id,
                       .logprob = logprob,
                       .top = r->tops ? r->tops + i * n_top : NULL,
                       .n_top = n_top,
                       .text = r->text.n > from ? r->text.p + from : "",
                       .text_bytes = r->text.n - from};
        r->on_event(r->user, r, &ev);
    }
    return hit >= 0;
}

/* Lets out the text that was held back. */
static void finish_text(rp_request *r, rp_finish *finish) {
    rp__bytes_reset(&r->piece);
    rp__detokenizer_finish(&r->detokenizer, &r->piece);
    if (r->stop_hit) return;
    int hit = add_text(r, (rp__str){r->piece.p, r->piece.n});
    if (hit == -1) hit = rp__stops_finish(&r->stops, &r->text);
    if (hit < 0) return;
    r->stop_hit = r->stop_strings[hit].p;
    if (*finish == RP_FINISH_LENGTH) *finish = RP_FINISH_STOP;
}

static rp_usage usage_of(const rp_request *r) {
    const rp__task *t = &r->task;
    uint64_t now = rp__clock_ns(), first = r->first_token_ns ? r->first_token_ns : now,
             start = t->started_ns ? t->started_ns : now;
    return (rp_usage){.n_prompt = (uint32_t)r->n_prompt,
                      .n_cached = (uint32_t)t->n_cached,
                      .n_generated = (uint32_t)((size_t)t->n_tokens - r->n_prompt),
                      .n_preemptions = t->n_preemptions,
                      .queue_seconds = (double)(start - t->arrival_ns) * 1e-9,
                      .prefill_seconds = (double)(first - start) * 1e-9,
                      .decode_seconds = (double)(now - first) * 1e-9};
}

void rp__publish_done(rp_engine *e, rp_request *r, rp_finish finish, const rp_error *error) {
    rp__sched_remove(&e->sched, &r->task);
    pthread_mutex_lock(&e->lock);
    size_t from = r->text.n;
    finish_text(r, &finish);
    r->usage = usage_of(r);
    e->stats.n_generated_tokens += r->usage.n_generated - r->n_tokens; /* that ended it, untold */
    r->finish = finish;
    if (error) r->error = *error;
    e->n_open--;
    e->stats.n_requests++;
    e->stats.n_finished[finish]++;
    rp__engine_copy_stats(e); /* whoever is told sees the request counted and its blocks free */
    pthread_mutex_unlock(&e->lock);
    if (r->on_event && !r->is_released) {
        rp_event ev = {.kind = RP_EVENT_DONE,
                       .finish = finish,
                       .stop = r->stop_hit,
                       .usage = r->usage,
                       .error = r->error};
        ev.text = r->text.n > from ? r->text.p + from : "";
        ev.text_bytes = r->text.n - from;
        r->on_event(r->user, r, &ev);
    }
    pthread_mutex_lock(&e->lock);
    bool is_released = r->is_released;
    r->is_done = true; /* from here on the request belongs to its owner, if it has one */
    pthread_cond_broadcast(&r->changed);
    if (!e->n_open) pthread_cond_broadcast(&e->idle);
    pthread_mutex_unlock(&e->lock);
    if (is_released) rp__request_free(r);
}
