/* The engine thread: takes submitted requests, has the scheduler plan, runs the step, chooses
 * tokens and hands them out. Who computes what is decided in sched.c. */
#include <string.h>

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

static const char *placement_reason(int way, int why) {
    static const char *const texts[2][RP_N_CHOICE_WHYS] = {
#define RP_X(code, text) "host-free: " text,
        {RP_CHOICE_WHYS(RP_X)},
#undef RP_X
#define RP_X(code, text) "hybrid: " text,
        {RP_CHOICE_WHYS(RP_X)}
#undef RP_X
    };
    return texts[way][why];
}

static uint64_t n_steps_by(const rp_engine *e, int way, int why) {
    uint64_t n = 0;
    for (int i = 0; i < e->stepper.n_buckets; i++) n += e->stepper.choices[i].n_by_reason[way][why];
    return n;
}

static void copy_placements(rp_engine *e) {
    uint32_t n = 0;
    if (e->stepper.config.n_placements < 2) return;
    for (int way = 0; way < 2; way++)
        for (int why = 0; why < RP_N_CHOICE_WHYS; why++) {
            uint64_t count = n_steps_by(e, way, why);
            if (!count) continue;
            e->stats.placements[n++] = (rp_reason_count){placement_reason(way, why), count};
        }
    e->stats.n_placements = n;
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
    e->stats.n_host_ops = s->n_host_ops;
    e->stats.n_transfers = s->n_transfers;
    copy_reasons(e, s);
    copy_placements(e);
    e->stats.n_graphs = (uint64_t)rp__replayer_n_graphs(&e->stepper.replay);
    e->stats.graph_bytes = rp__replayer_graph_bytes(&e->stepper.replay);
    e->stats.blocks_free = (uint64_t)e->kv.n_free;
    e->stats.blocks_cached = (uint64_t)e->kv.n_cached;
    e->stats.blocks_live = (uint64_t)(e->kv.n_blocks - 1 - rp__kv_available(&e->kv));
    e->stats.n_running = (uint64_t)e->sched.n_running;
    e->stats.n_preemptions = e->sched.stats.n_preemptions;
    e->stats.n_prefix_queries = e->sched.stats.n_prefix_queries;
    e->stats.n_prefix_hits = e->sched.stats.n_prefix_hits;
    rp__device_stats d = rp__device_get_stats(e->device);
    e->stats.device_allocs = d.n_allocs;
    e->stats.device_bytes = d.live_bytes;
}

/* ---- coming and going ---- */

static void take_queue(rp_engine *e) {
    for (rp_request *r = e->queue, *next; r; r = next) {
        next = r->next;
        rp__sched_add(&e->sched, &r->task);
    }
    e->queue = NULL;
    e->queue_end = &e->queue;
}

static rp_request *find_cancelled(const rp_engine *e) {
    const rp__sched *s = &e->sched;
    for (int32_t i = 0; i < s->n_running; i++)
        if (atomic_load(&rp__request_of(s->running[i])->is_cancelled))
            return rp__request_of(s->running[i]);
    for (rp__task *t = s->first_waiting; t; t = t->next)
        if (atomic_load(&rp__request_of(t)->is_cancelled)) return rp__request_of(t);
    return NULL;
}

static void drop_cancelled(rp_engine *e) {
    for (rp_request *r; (r = find_cancelled(e));) rp__publish_done(e, r, RP_FINISH_CANCELLED, NULL);
}

static void drop_late(rp_engine *e) {
    rp__task *t;
    uint64_t now = rp__clock_ns();
    while ((t = rp__sched_expired(&e->sched, now))) {
        rp_error err;
        rp__fail(&err, RP_ETIMEOUT, "the request was not done after %.3g s: %s",
                 (double)(t->deadline_ns - t->arrival_ns) * 1e-9,
                 !t->started_ns               ? "it was waiting for its turn"
                 : t->n_tokens == t->n_prompt ? "its prompt was being computed"
                                              : "its answer was being computed");
        rp__publish_done(e, rp__request_of(t), RP_FINISH_TIMEOUT, &err);
    }
}

static void fail_running(rp_engine *e, const rp_error *error) {
    while (e->sched.n_running)
        rp__publish_done(e, rp__request_of(e->sched.running[0]), RP_FINISH_ERROR, error);
}

/* Ends everything that is here with an error, and refuses what comes. */
static void fail_all(rp_engine *e, const rp_error *error) {
    pthread_mutex_lock(&e->lock);
    e->failure = *error;
    take_queue(e); /* from here on nothing is added to it */
    pthread_mutex_unlock(&e->lock);
    for (rp__task *t; (t = rp__sched_any(&e->sched));)
        rp__publish_done(e, rp__request_of(t), RP_FINISH_ERROR, error);
}

/* A step failed: its requests end with the sentence, and nothing computed so far is used again, as
 * earlier steps may not have run to their ends. A lost device is opened again for those that wait;
 * other failures (memory, one launch) may be gone with the next step. */
static void recover(rp_engine *e, const rp_error *error) {
    rp__log(RP_LOG_ERROR, "a step failed: %s", error->message);
    fail_running(e, error);
    rp__kv_forget(&e->kv);
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

/* ---- from plan to batch ---- */

static void add_to_batch(rp_engine *e, const rp__plan_item *item) {
    rp__batch *b = &e->stepper.batch;
    const rp__task *t = item->task;
    int32_t row = b->n_seqs++;
    b->tables[row] = t->seq.blocks;
    b->n_blocks[row] = t->seq.n_blocks;
    for (int32_t k = 0; k < item->n_tokens; k++) {
        int32_t i = b->n_tokens++;
        int64_t pos = t->n_computed + k;
        b->ids[i] = t->tokens[pos];
        b->pos[i] = (int32_t)pos;
        b->seq[i] = row;
        b->slots[i] = rp__kv_slot(&e->kv, &t->seq, pos);
    }
    for (int32_t k = item->n_rows; k > 0; k--) b->rows[b->n_rows++] = b->n_tokens - k;
}

/* Nothing but the best token of its rows is wanted. */
static bool is_greedy(const rp__plan_item *item) {
    const rp_request *r = rp__request_of(item->task);
    return !item->n_rows || (rp__sampling_is_greedy(&r->sampling) && r->n_logprobs < 0 &&
                             !r->prompt_logprobs && !r->task.first);
}

/* Steps until the first answer is as long as it may be, when every one is greedy. */
static int32_t wanted_steps(const rp_engine *e, const rp__plan *plan) {
    int64_t n = e->stepper.config.n_steps;
    if (plan->n_prompt_tokens) return 1;
    for (int32_t i = 0; i < plan->n_items; i++) {
        const rp_request *r = rp__request_of(plan->items[i].task);
        int64_t left = (int64_t)(r->n_prompt + r->max_new) - r->task.n_tokens;
        if (!is_greedy(&plan->items[i])) return 1;
        if (left < n) n = left;
    }
    return (int32_t)n;
}

static rp_status run_plan(rp_engine *e, const rp__plan *plan, rp_error *err) {
    rp__batch *b = &e->stepper.batch;
    int32_t n_steps = wanted_steps(e, plan);
    b->n_steps = n_steps > 1 ? rp__sched_extend(&e->sched, n_steps) : 1;
    for (int32_t i = 0; i < plan->n_copies; i++)
        RP_TRY(rp__stepper_copy_block(&e->stepper, plan->copies[i].from, plan->copies[i].to, err));
    b->n_tokens = b->n_seqs = b->n_rows = 0;
    b->is_greedy = true;
    for (int32_t i = 0; i < plan->n_items; i++) {
        add_to_batch(e, &plan->items[i]);
        b->is_greedy &= is_greedy(&plan->items[i]);
    }
    return rp__stepper_run(&e->stepper, err);
}

/* ---- from logits to tokens ---- */

static size_t n_best(int n_logprobs) {
    return n_logprobs > 0 ? (size_t)n_logprobs : 0;
}

static bool is_stop_id(const rp_request *r, int32_t id) {
    for (size_t i = 0; i < r->n_stop_ids; i++)
        if (r->stop_ids[i] == id) return true;
    return !r->ignore_eos && rp__tokenizer_is_eog(r->engine->tokenizer, id);
}

static int32_t choose(rp_engine *e, const rp_request *r, const float *logits) {
    rp_sampling s = r->sampling;
    size_t n = (size_t)r->task.n_tokens;
    if (n - r->n_prompt >= r->min_tokens) {
        s.logit_bias += r->n_bans;
        s.n_logit_bias -= r->n_bans;
    }
    return rp__sampler_choose(&e->sampler, logits, &s, r->history, n, r->n_prompt);
}

static void count_first_token(rp_engine *e, rp_request *r) {
    r->first_token_ns = rp__clock_ns();
    pthread_mutex_lock(&e->lock);
    e->stats.n_first_tokens++;
    e->stats.queue_seconds += (double)(r->task.started_ns - r->task.arrival_ns) * 1e-9;
    e->stats.first_token_seconds += (double)(r->first_token_ns - r->task.arrival_ns) * 1e-9;
    pthread_mutex_unlock(&e->lock);
}

static const float *logits_of(const rp_engine *e, int32_t row) {
    return e->stepper.logits + (size_t)row * (size_t)e->sampler.n_vocab;
}

/* Chooses the next token of a request; RP_FINISH_NONE when it goes on. Rows of the steps of a visit
 * follow one another, and have no logits but in the first. */
static rp_finish next_token(rp_engine *e, rp_request *r, int32_t row) {
    size_t n_top = n_best(r->n_logprobs);
    const float *logits = e->stepper.has_best ? NULL : logits_of(e, row);
    int32_t id = e->stepper.has_best ? e->stepper.best[row] : choose(e, r, logits);
    float logprob = 0;
    if (r->n_logprobs >= 0)
        logprob = rp__sampler_logprobs(&e->sampler, logits, id,
                                       r->tops ? r->tops + r->n_tokens * n_top : NULL, n_top);
    if (!r->first_token_ns) count_first_token(e, r);
    r->history[r->task.n_tokens++] = id;
    if (is_stop_id(r, id)) return RP_FINISH_STOP;
    if (rp__publish_token(e, r, id, logprob)) return RP_FINISH_STOP;
    return (size_t)r->task.n_tokens == r->n_prompt + r->max_new ? RP_FINISH_LENGTH : RP_FINISH_NONE;
}

static void take_token(rp_engine *e, rp_request *r, int32_t row) {
    rp_finish finish = next_token(e, r, row);
    if (finish != RP_FINISH_NONE) rp__publish_done(e, r, finish, NULL);
}

/* What the prompt's own tokens were worth, from the logits of positions [first, first + n). */
static void take_prompt_logprobs(rp_engine *e, rp_request *r, int64_t first, int32_t n,
                                 const float *logits) {
    size_t n_top = n_best(r->n_prompt_logprobs);
    for (int64_t i = first + 1; i <= first + n && i < r->task.n_prompt; i++) {
        rp_top_logprob *top = r->prompt_tops ? r->prompt_tops + (size_t)i * n_top : NULL;
        r->prompt_logprobs[i] =
            rp__sampler_logprobs(&e->sampler, logits, r->history[i], top, n_top);
        logits += e->sampler.n_vocab;
        r->n_prompt_known = (size_t)i + 1;
    }
}

/* The rows of one item. Followers of a prompt are forked before its own first token is chosen. */
static void take_rows(rp_engine *e, const rp__plan_item *item, int32_t row, uint64_t now) {
    rp_request *r = rp__request_of(item->task);
    bool is_prompt = r->task.n_tokens == r->task.n_prompt;
    if (is_prompt && r->prompt_logprobs)
        take_prompt_logprobs(e, r, r->task.n_computed - item->n_tokens, item->n_rows,
                             logits_of(e, row));
    if (r->task.n_computed < r->task.n_tokens) return;
    row += item->n_rows - 1;
    for (rp__task *t; is_prompt && (t = rp__sched_fork(&e->sched, &r->task, now));)
        take_token(e, rp__request_of(t), row);
    take_token(e, r, row);
}

/* What is over after a step of a visit is dropped with the tokens that later ones picked for it. */
static void take_step(rp_engine *e, const rp__plan *plan, int32_t row, uint64_t now) {
    rp__sched_commit(&e->sched);
    for (int32_t i = 0; i < plan->n_items; i++) {
        int32_t n_rows = plan->items[i].n_rows;
        if (n_rows && plan->items[i].task) take_rows(e, &plan->items[i], row, now);
        row += n_rows;
    }
}

static void take_results(rp_engine *e, const rp__plan *plan, uint64_t now) {
    pthread_mutex_lock(&e->lock);
    e->stats.n_prompt_tokens += (uint64_t)plan->n_prompt_tokens;
    pthread_mutex_unlock(&e->lock);
    for (int32_t k = 0; k < e->stepper.n_steps; k++) take_step(e, plan, k * plan->n_rows, now);
}

static void mark_step(rp_engine *e, uint64_t start_ns) {
    pthread_mutex_lock(&e->lock);
    e->step_start_ns = start_ns;
    pthread_mutex_unlock(&e->lock);
}

static void step(rp_engine *e) {
    uint64_t now = rp__clock_ns();
    const rp__plan *plan = rp__sched_plan(&e->sched, now);
    if (!plan->n_items) return;
    rp_error err = {0};
    mark_step(e, now);
    rp_status st = run_plan(e, plan, &err);
    mark_step(e, 0);
    if (st >= 0)
        take_results(e, plan, now);
    else
        recover(e, &err);
}

/* ---- jobs of other threads ---- */

rp_status rp__engine_do(rp_engine *e, rp__engine_job_fn run, void *arg, rp_error *err) {
    rp__engine_job job = {.run = run, .arg = arg};
    RP_TRY(rp__refuse_engine_thread(e, err));
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
    if (rp__sched_any(&e->sched))
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
        bool is_stopping = e->is_stopping, has_cancels = e->has_cancels;
        e->has_cancels = false;
        pthread_mutex_unlock(&e->lock);

        rp__replayer_set_mode(&e->stepper.replay, mode);
        if (is_stopping) {
            rp_error err;
            rp__fail(&err, RP_ECANCELLED, "the engine is being destroyed");
            fail_all(e, &err);
            return NULL;
        }
        if (has_cancels) drop_cancelled(e);
        drop_late(e);
        step(e);
        run_job(e);

        pthread_mutex_lock(&e->lock);
        while (!e->queue && !rp__sched_any(&e->sched) && !e->job && !e->is_stopping) {
            rp__engine_copy_stats(e);
            pthread_cond_wait(&e->wake, &e->lock);
        }
    }
}
