/* The engine thread: takes submitted requests, steps what runs, hands out tokens.
 *
 * Admission is first come, first served: a request is let in when a sequence is free and all KV
 * blocks it can ever need are. A step takes one token of every sequence that is decoding, then
 * fills the token budget with prompts in order. */
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/log.h"
#include "engine/engine_impl.h"

static void copy_reasons(rp_engine *e, const rp__replay_stats *s) {
    uint32_t n = 0;
    for (int i = 0; i < RP_N_RUN_WHYS; i++)
        if (s->n_by_reason[i])
            e->stats.eager_reasons[n++] =
                (rp_reason_count){rp__run_why_text((rp__run_why)i), s->n_by_reason[i]};
    e->stats.n_eager_reasons = n;
}

void rp__engine_copy_stats(rp_engine *e) {
    const rp__replay_stats *s = &e->stepper.replay.stats;
    e->stats.n_steps = s->n_steps;
    e->stats.n_captures = s->n_captures;
    e->stats.n_replays = s->n_replays;
    e->stats.n_eager_steps = s->n_eager;
    e->stats.n_recaptures = s->n_recaptures;
    e->stats.n_evictions = s->n_evicted;
    e->stats.n_refusals = s->n_refused;
    copy_reasons(e, s);
    e->stats.n_graphs = (uint64_t)e->stepper.replay.n_held;
    e->stats.graph_bytes = rp__replayer_graph_bytes(&e->stepper.replay);
    e->stats.blocks_free = (uint64_t)e->kv.n_free;
    e->stats.blocks_live = (uint64_t)(e->kv.n_blocks - 1 - e->kv.n_free);
    rp__device_stats d = rp__device_get_stats(e->device);
    e->stats.device_allocs = d.n_allocs;
    e->stats.device_bytes = d.live_bytes;
}

/* ---- telling the reader ---- */

static void publish_done(rp_engine *e, rp_request *r, rp_finish finish, const rp_error *error) {
    uint64_t now = rp__clock_ns(), first = r->first_token_ns ? r->first_token_ns : now;
    uint64_t start = r->started_ns ? r->started_ns : now;
    pthread_mutex_lock(&e->lock);
    size_t from = r->text.n;
    rp__bytes_reset(&r->piece);
    rp__detokenizer_finish(&r->detokenizer, &r->piece);
    int hit =
        r->stop_hit ? -1 : rp__stops_add(&r->stops, (rp__str){r->piece.p, r->piece.n}, &r->text);
    if (hit == -1 && !r->stop_hit) hit = rp__stops_finish(&r->stops, &r->text);
    if (hit >= 0) {
        r->stop_hit = r->stop_strings[hit].p;
        if (finish == RP_FINISH_LENGTH) finish = RP_FINISH_STOP;
    }
    r->usage = (rp_usage){.n_prompt = (uint32_t)r->n_prompt,
                          .n_generated = (uint32_t)(r->n_history - r->n_prompt),
                          .queue_seconds = (double)(start - r->submitted_ns) * 1e-9,
                          .prefill_seconds = (double)(first - start) * 1e-9,
                          .decode_seconds = (double)(now - first) * 1e-9};
    r->finish = finish;
    if (error) r->error = *error;
    rp__kv_release(&e->kv, &r->seq);
    e->stats.n_requests++;
    rp__engine_copy_stats(e); /* whoever is told sees the request counted and its blocks free */
    pthread_mutex_unlock(&e->lock);
    if (r->on_event) {
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
    r->is_done = true; /* from here on the request belongs to its owner */
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&e->lock);
}

/* Takes the text of a token; true when a stop string is complete. */
static bool publish_token(rp_engine *e, rp_request *r, int32_t id, float logprob) {
    rp__bytes_reset(&r->piece);
    rp__detokenizer_add(&r->detokenizer, id, &r->piece);
    pthread_mutex_lock(&e->lock);
    size_t from = r->text.n, i = r->n_tokens;
    int hit = rp__stops_add(&r->stops, (rp__str){r->piece.p, r->piece.n}, &r->text);
    if (hit >= 0) r->stop_hit = r->stop_strings[hit].p;
    r->logprobs[i] = logprob;
    r->text_ends[i] = r->text.n;
    r->n_tokens++;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&e->lock);
    if (r->on_event) {
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

/* ---- admission ---- */

static void take_queue(rp_engine *e) {
    if (!e->queue) return;
    *e->waiting_end = e->queue;
    e->waiting_end = e->queue_end;
    e->queue = NULL;
    e->queue_end = &e->queue;
}

static void remove_waiting(rp_engine *e, rp_request **link) {
    rp_request *r = *link;
    *link = r->next;
    if (!*link) e->waiting_end = link;
    r->next = NULL;
}

static void admit(rp_engine *e) {
    while (e->waiting && e->n_running < e->max_seqs) {
        rp_request *r = e->waiting;
        if (rp__kv_reserve(&e->kv, &r->seq, (int64_t)(r->n_prompt + r->max_new)) != RP_OK) return;
        remove_waiting(e, &e->waiting);
        r->started_ns = rp__clock_ns();
        e->running[e->n_running++] = r;
    }
}

/* A request out of the running list, the order of the others kept. */
static void stop_running(rp_engine *e, const rp_request *r) {
    int32_t i = 0;
    while (e->running[i] != r) i++;
    e->n_running--;
    memmove(&e->running[i], &e->running[i + 1], (size_t)(e->n_running - i) * sizeof *e->running);
}

static void drop_cancelled(rp_engine *e) {
    for (int32_t i = 0; i < e->n_running;) {
        rp_request *r = e->running[i];
        if (!atomic_load(&r->is_cancelled)) {
            i++;
            continue;
        }
        stop_running(e, r);
        publish_done(e, r, RP_FINISH_CANCELLED, NULL);
    }
    for (rp_request **link = &e->waiting; *link;) {
        rp_request *r = *link;
        if (!atomic_load(&r->is_cancelled)) {
            link = &r->next;
            continue;
        }
        remove_waiting(e, link);
        publish_done(e, r, RP_FINISH_CANCELLED, NULL);
    }
}

static void fail_running(rp_engine *e, const rp_error *error) {
    while (e->n_running) {
        rp_request *r = e->running[0];
        stop_running(e, r);
        publish_done(e, r, RP_FINISH_ERROR, error);
    }
}

/* Ends everything that is here with an error, and refuses what comes. */
static void fail_all(rp_engine *e, const rp_error *error) {
    fail_running(e, error);
    while (e->waiting) {
        rp_request *r = e->waiting;
        remove_waiting(e, &e->waiting);
        publish_done(e, r, RP_FINISH_ERROR, error);
    }
    pthread_mutex_lock(&e->lock);
    e->failure = *error;
    pthread_mutex_unlock(&e->lock);
}

/* A step failed: its requests end with the sentence. A lost device is opened again for those that
 * wait; other failures (memory, one launch) may be gone with the next step. */
static void recover(rp_engine *e, const rp_error *error) {
    rp__log(RP_LOG_ERROR, "a step failed: %s", error->message);
    fail_running(e, error);
    if (error->code == RP_EINTERNAL) fail_all(e, error);
    if (!rp__device_is_lost(e->device)) return;
    rp_error again = {0};
    if (rp__stepper_reopen(&e->stepper, &again) < 0) {
        rp__log(RP_LOG_ERROR, "the device stays lost: %s", again.message);
        fail_all(e, &again);
        return;
    }
    rp__log(RP_LOG_WARN, "%s was lost and opened again", rp__device_name(e->device));
    pthread_mutex_lock(&e->lock);
    e->stats.n_device_losses++;
    pthread_mutex_unlock(&e->lock);
}

/* ---- one step ---- */

/* Adds the next `n` tokens of a request to the batch. */
static void add_tokens(rp_engine *e, rp_request *r, int32_t n) {
    rp__batch *b = &e->stepper.batch;
    int32_t row = b->n_seqs++;
    b->tables[row] = r->seq.blocks;
    b->n_blocks[row] = r->seq.n_blocks;
    for (int32_t k = 0; k < n; k++) {
        int32_t i = b->n_tokens++, pos = (int32_t)r->n_computed + k;
        b->ids[i] = r->history[pos];
        b->pos[i] = pos;
        b->seq[i] = row;
        b->slots[i] = rp__kv_slot(&e->kv, &r->seq, pos);
    }
    r->n_computed += (size_t)n;
    if (r->n_computed < r->n_history) return;
    e->row_owner[b->n_rows] = r;
    b->rows[b->n_rows++] = b->n_tokens - 1;
}

static size_t n_pending(const rp_request *r) {
    return r->n_history - r->n_computed;
}

static void build_batch(rp_engine *e) {
    rp__batch *b = &e->stepper.batch;
    b->n_tokens = b->n_seqs = b->n_rows = 0;
    e->n_prompt_stepped = 0;
    int32_t budget = e->stepper.config.max_tokens;
    for (int pass = 0; pass < 2;
         pass++) { /* decoding first: nobody's stream waits for another's prompt */
        for (int32_t i = 0; i < e->n_running && b->n_tokens < budget; i++) {
            rp_request *r = e->running[i];
            size_t n = n_pending(r);
            bool is_decode = n == 1 && r->n_history > r->n_prompt;
            if (!n || is_decode != (pass == 0)) continue;
            int32_t room = budget - b->n_tokens;
            int32_t take = n < (size_t)room ? (int32_t)n : room;
            add_tokens(e, r, take);
            if (!is_decode) e->n_prompt_stepped += (uint64_t)take;
        }
    }
}

static bool is_stop_id(const rp_request *r, int32_t id) {
    for (size_t i = 0; i < r->n_stop_ids; i++)
        if (r->stop_ids[i] == id) return true;
    return !r->ignore_eos && rp__tokenizer_is_eog(r->engine->tokenizer, id);
}

/* Chooses the next token of a request; RP_FINISH_NONE when it goes on. */
static rp_finish next_token(rp_engine *e, rp_request *r, const float *logits) {
    size_t n_top = r->n_logprobs > 0 ? (size_t)r->n_logprobs : 0;
    int32_t id = rp__sampler_choose(&e->sampler, logits, &r->sampling, r->history, r->n_history,
                                    r->n_prompt);
    float logprob = 0;
    if (r->n_logprobs >= 0)
        logprob = rp__sampler_logprobs(&e->sampler, logits, id,
                                       r->tops ? r->tops + r->n_tokens * n_top : NULL, n_top);
    if (!r->first_token_ns) r->first_token_ns = rp__clock_ns();
    r->history[r->n_history++] = id;
    if (is_stop_id(r, id)) return RP_FINISH_STOP;
    if (publish_token(e, r, id, logprob)) return RP_FINISH_STOP;
    return r->n_history == r->n_prompt + r->max_new ? RP_FINISH_LENGTH : RP_FINISH_NONE;
}

static void take_results(rp_engine *e) {
    const rp__batch *b = &e->stepper.batch;
    pthread_mutex_lock(&e->lock);
    e->stats.n_generated_tokens += (uint64_t)b->n_rows;
    e->stats.n_prompt_tokens += e->n_prompt_stepped;
    pthread_mutex_unlock(&e->lock);
    for (int32_t k = 0; k < b->n_rows; k++) {
        rp_request *r = e->row_owner[k];
        rp_finish finish =
            next_token(e, r, e->stepper.logits + (size_t)k * (size_t)e->sampler.n_vocab);
        if (finish == RP_FINISH_NONE) continue;
        stop_running(e, r);
        publish_done(e, r, finish, NULL);
    }
}

static void step(rp_engine *e) {
    build_batch(e);
    rp_error err = {0};
    if (rp__stepper_run(&e->stepper, &err) >= 0)
        take_results(e);
    else
        recover(e, &err);
}

/* ---- jobs of other threads ---- */

rp_status rp__engine_do(rp_engine *e, rp__engine_job_fn run, void *arg, rp_error *err) {
    rp__engine_job job = {.run = run, .arg = arg};
    pthread_mutex_lock(&e->lock);
    rp_status st = e->failure.code;
    if (st < 0 && err) *err = e->failure;
    if (!st && e->job) st = rp__fail(err, RP_EBUSY, "another job is on the engine");
    if (!st) {
        e->job = &job;
        pthread_cond_broadcast(&e->wake);
        while (!job.is_done) pthread_cond_wait(&e->job_done, &e->lock);
        st = job.status;
        if (st < 0 && err) *err = job.error;
    }
    pthread_mutex_unlock(&e->lock);
    return st;
}

static void finish_job(rp_engine *e, rp__engine_job *job) {
    pthread_mutex_lock(&e->lock);
    rp__engine_copy_stats(e);
    e->job = NULL;
    job->is_done = true;
    pthread_cond_broadcast(&e->job_done);
    pthread_mutex_unlock(&e->lock);
}

static void run_job(rp_engine *e) {
    pthread_mutex_lock(&e->lock);
    rp__engine_job *job = e->job;
    pthread_mutex_unlock(&e->lock);
    if (!job) return;
    if (e->n_running || e->waiting)
        job->status = rp__fail(&job->error, RP_EBUSY, "the engine has requests to answer");
    else
        job->status = job->run(e, job->arg, &job->error);
    if (rp__device_is_lost(e->device)) recover(e, &job->error);
    finish_job(e, job);
}

void *rp__engine_thread(void *engine) {
    rp_engine *e = engine;
    pthread_mutex_lock(&e->lock);
    for (;;) {
        take_queue(e);
        rp__engine_copy_stats(e);
        rp_capture_mode mode = e->mode;
        bool is_stopping = e->is_stopping;
        pthread_mutex_unlock(&e->lock);

        rp__replayer_set_mode(&e->stepper.replay, mode);
        if (is_stopping) {
            rp_error err;
            rp__fail(&err, RP_ECANCELLED, "the engine is being destroyed");
            fail_all(e, &err);
            return NULL;
        }
        drop_cancelled(e);
        admit(e);
        if (e->n_running) step(e);
        run_job(e);

        pthread_mutex_lock(&e->lock);
        while (!e->queue && !e->n_running && !e->waiting && !e->job && !e->is_stopping) {
            rp__engine_copy_stats(e);
            pthread_cond_wait(&e->wake, &e->lock);
        }
    }
}
