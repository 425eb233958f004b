#include "plan/replay.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "base/log.h"
#include "base/stress.h"
#include "tensor/view.h"

enum {
    WARM_STEPS = 1,         /* eager ones before the first capture: everything is compiled then */
    MAX_LOSSES = 2,         /* one may have had another reason */
    MAX_WAIT = 4096,        /* eager steps between captures of a graph that never earns itself */
    FIRST_REMEASURE = 1024, /* steps until a decision is looked at again; doubles every time */
};

const char *rp__run_why_text(rp__run_why why) {
    static const char *const texts[] = {
#define RP_X(code, text) text,
        RP_RUN_WHYS(RP_X)
#undef RP_X
    };
    return (unsigned)why < RP_N_RUN_WHYS ? texts[why] : "?";
}

rp_status rp__replayer_init(rp__replayer *r, rp_device *device, const rp__replay_config *config,
                            rp_error *err) {
    *r = (rp__replayer){.config = *config, .device = device, .epoch = 1};
    if (r->config.max_graphs < 1) r->config.max_graphs = 1;
    r->held = rp__calloc((size_t)r->config.max_graphs, sizeof *r->held);
    if (!r->held)
        return rp__fail(err, RP_ENOMEM, "out of memory for a store of %d graphs",
                        r->config.max_graphs);
    return RP_OK;
}

/* ---- the store ---- */

static void drop_graph(rp__program *p, rp__segment *s) {
    if (!s->graph) return;
    rp__graph_destroy(s->graph);
    s->graph = NULL;
    s->n_warm = 0;
    rp__duel_restart(&s->duel);
    if (!s->n_unearned)
        s->wait = WARM_STEPS;
    else if (s->wait < MAX_WAIT)
        s->wait *= 2;
    p->n_graphs--;
}

void rp__replayer_drop(rp__replayer *r, rp__program *p) {
    for (int32_t i = 0; i < p->n_segments; i++) drop_graph(p, &p->segments[i]);
    for (int i = 0; i < r->n_held; i++)
        if (r->held[i] == p) r->held[i] = r->held[--r->n_held];
}

/* False when there is none but p's own. */
static bool drop_oldest_but(rp__replayer *r, const rp__program *p) {
    rp__program *oldest = NULL;
    for (int i = 0; i < r->n_held; i++)
        if (r->held[i] != p && (!oldest || r->held[i]->last_used < oldest->last_used))
            oldest = r->held[i];
    if (!oldest) return false;
    r->stats.n_evicted += (uint64_t)oldest->n_graphs;
    rp__replayer_drop(r, oldest);
    return true;
}

static void hold(rp__replayer *r, rp__program *p, rp__segment *s) {
    if (!p->n_graphs++) r->held[r->n_held++] = p;
    s->last_used = p->last_used = ++r->tick;
    s->n_unearned = s->wait;
}

size_t rp__replayer_graph_bytes(const rp__replayer *r) {
    size_t n = 0;
    for (int i = 0; i < r->n_held; i++)
        for (int32_t k = 0; k < r->held[i]->n_segments; k++)
            if (r->held[i]->segments[k].graph) n += rp__graph_bytes(r->held[i]->segments[k].graph);
    return n;
}

int rp__replayer_n_graphs(const rp__replayer *r) {
    int n = 0;
    for (int i = 0; i < r->n_held; i++) n += (int)r->held[i]->n_graphs;
    return n;
}

void rp__replayer_clear(rp__replayer *r) {
    while (r->n_held) rp__replayer_drop(r, r->held[0]);
    rp__free(r->held);
    *r = (rp__replayer){0};
}

static void blame(rp__segment *s) {
    if (++s->n_losses < MAX_LOSSES) return;
    s->refusal = RP_EDEVICE_LOST;
    rp__log(RP_LOG_WARN, "a step stays eager: the device was lost %u times with its replay",
            s->n_losses);
}

static void blame_used(rp__replayer *r, rp__program *p) {
    for (int32_t i = 0; i < p->n_segments; i++)
        if (p->segments[i].graph && p->segments[i].last_used > r->step_before)
            blame(&p->segments[i]);
}

void rp__replayer_reset(rp__replayer *r) {
    if (r->capturing) blame(r->capturing);
    r->capturing = NULL;
    for (int i = 0; i < r->n_held; i++) blame_used(r, r->held[i]);
    while (r->n_held) rp__replayer_drop(r, r->held[0]);
    r->epoch++;
}

void rp__replayer_set_mode(rp__replayer *r, rp_capture_mode mode) {
    r->config.mode = mode;
}

/* In the stress build graphs come and go. */
static void churn(rp__replayer *r) {
    enum { ONE_IN = 5 };
    if (!rp__stress_chance(&r->stress, ONE_IN) || !r->n_held) return;
    rp__program *p = r->held[rp__stress_draw(&r->stress) % (uint32_t)r->n_held];
    uint32_t wait = 1 + rp__stress_draw(&r->stress) % 3;
    rp__replayer_drop(r, p);
    for (int32_t i = 0; i < p->n_segments; i++) p->segments[i].wait = wait;
}

/* ---- running ---- */

static rp_status issue_ops(rp__replayer *r, const rp__program *p, const rp__segment *s,
                           rp_error *err) {
    for (int32_t i = 0; i < s->n_ops; i++)
        RP_TRY(rp__device_run(r->device, &p->ops[s->first_op + i], err));
    return RP_OK;
}

static rp_status run_transfer(const rp_op *op, rp_error *err) {
    const rp_tensor *from = &op->in[0], *to = &op->out[0];
    return rp__buffer_transfer(to->buffer, to->offset, from->buffer, from->offset,
                               rp__tensor_span(from), err);
}

static rp_status run_host_op(rp__replayer *r, const rp__program *p, const rp_op *op,
                             rp_error *err) {
    RP_TRY(rp__device_run(p->host->device, op, err));
    RP_TRY(rp__device_sync(p->host->device, err));
    rp__device_clock_host_op(r->device, op);
    return RP_OK;
}

static rp_status run_host(rp__replayer *r, const rp__program *p, rp__segment *s, rp_error *err) {
    s->why = RP_WHY_HOST;
    for (int32_t i = s->first_op; i < s->first_op + s->n_ops; i++) {
        bool is_transfer = p->places[i].is_transfer;
        RP_TRY(is_transfer ? run_transfer(&p->ops[i], err) : run_host_op(r, p, &p->ops[i], err));
        r->stats.n_transfers += is_transfer;
        r->stats.n_host_ops += !is_transfer;
    }
    s->n_eager++;
    return RP_OK;
}

static rp_status run_eager(rp__replayer *r, const rp__program *p, rp__segment *s, rp__run_why why,
                           rp_error *err) {
    s->why = why;
    RP_TRY(issue_ops(r, p, s, err));
    s->n_warm++;
    s->n_eager++;
    r->stats.n_eager++;
    r->stats.n_by_reason[why]++;
    return RP_OK;
}

static rp_status run_graph(rp__replayer *r, rp__program *p, rp__segment *s, rp__run_why why,
                           rp_error *err) {
    s->why = why;
    s->last_used = p->last_used = ++r->tick;
    RP_TRY(rp__graph_replay(s->graph, err));
    s->n_replays++;
    if (s->n_unearned) s->n_unearned--;
    r->stats.n_replays++;
    return RP_OK;
}

/* ---- capturing ---- */

static rp_status issue_captured(rp__replayer *r, const rp__program *p, const rp__segment *s,
                                rp_graph **graph, rp_error *err) {
    char name[64];
    RP_TRY(rp__capture_begin(r->device, err));
    (void)issue_ops(r, p, s, err); /* a failure is said again by the end */
    return rp__capture_end_graph(r->device, rp__bucket_text(&p->bucket, name, sizeof name), graph,
                                 err);
}

static rp_status refuse(rp__replayer *r, rp__segment *s, rp_status status, const char *sentence) {
    r->stats.n_refused++;
    s->refusal = status;
    s->why = RP_WHY_REFUSED;
    rp__log(RP_LOG_WARN, "a step stays eager, its capture was refused: %s", sentence);
    return RP_AGAIN;
}

/* Memory that others' graphs hold is theirs to lose; only a graph that does not fit without them is
 * refused. */
static rp_status make_room(rp__replayer *r, rp__program *p, rp__segment *s, const rp_error *why) {
    if (!drop_oldest_but(r, p)) return refuse(r, s, RP_ENOMEM, why->message);
    s->n_warm = 0;
    return RP_AGAIN;
}

static void keep_within_bytes(rp__replayer *r, rp__program *p, rp__segment *s) {
    size_t most = r->config.max_graph_bytes;
    while (most && rp__replayer_graph_bytes(r) > most && drop_oldest_but(r, p)) continue;
    if (!most || rp__replayer_graph_bytes(r) <= most) return;
    drop_graph(p, s);
    if (!p->n_graphs) rp__replayer_drop(r, p);
    (void)refuse(r, s, RP_ELIMIT, "the graph is larger than all graphs together may be");
}

/* The captured step is this step. RP_AGAIN: there is no graph, and the step is to be run again. */
static rp_status capture(rp__replayer *r, rp__program *p, rp__segment *s, rp_error *err) {
    if (!p->n_graphs && r->n_held == r->config.max_graphs) drop_oldest_but(r, p);
    rp_error why = {0};
    r->capturing = s;
    rp_status st = issue_captured(r, p, s, &s->graph, &why);
    if (st == RP_EDEVICE_LOST) {
        if (err) *err = why;
        return st;
    }
    r->capturing = NULL;
    if (st == RP_ENOMEM) return make_room(r, p, s, &why);
    if (st < 0) return refuse(r, s, st, why.message);
    hold(r, p, s);
    r->stats.n_captures++;
    if (s->n_captures++) r->stats.n_recaptures++;
    keep_within_bytes(r, p, s);
    return RP_OK; /* this step was run, graph or not */
}

/* ---- measuring ---- */

/* Steps until the next measurement. */
static uint64_t steps_between(const rp__segment *s) {
    uint64_t steps = s->n_eager + s->n_replays, earned = rp__duel_steps_between(&s->duel);
    if (steps < FIRST_REMEASURE) steps = FIRST_REMEASURE;
    return earned > steps ? earned : steps;
}

static rp__run_why winner_why(const rp__duel *d) {
    return d->winner == RP_REPLAY ? RP_WHY_REPLAY_FASTER : RP_WHY_EAGER_FASTER;
}

static void note_decision(rp__replayer *r, rp__segment *s) {
    s->remeasure_at = s->n_eager + s->n_replays + steps_between(s);
    s->why = winner_why(&s->duel);
    r->stats.n_measurements++;
}

/* Runs the segment one way between two syncs: what was queued before does not count, and all that
 * is queued now does. */
static rp_status run_timed(rp__replayer *r, rp__program *p, rp__segment *s, int way, double *us,
                           rp_error *err) {
    RP_TRY(rp__device_sync(r->device, err));
    double start = rp__device_clock_us(r->device);
    RP_TRY(way == RP_REPLAY ? run_graph(r, p, s, RP_WHY_MEASURING, err)
                            : run_eager(r, p, s, RP_WHY_MEASURING, err));
    RP_TRY(rp__device_sync(r->device, err));
    *us = rp__device_clock_us(r->device) - start;
    return RP_OK;
}

/* Steps of one bucket take the same time on a device that computes padding, and about as much per
 * live token on one that does not. */
static rp_status measure(rp__replayer *r, rp__program *p, rp__segment *s, int32_t n_live,
                         rp_error *err) {
    bool is_per_token = rp__device_props(r->device)->has_live_rows;
    double us;
    RP_TRY(run_timed(r, p, s, rp__duel_turn(&s->duel), &us, err));
    if (rp__duel_add(&s->duel, us, is_per_token ? n_live : 0)) note_decision(r, s);
    return RP_OK;
}

/* ---- deciding ---- */

/* After a loss nothing is compiled; a segment that never ran starts the same way. */
static void enter_epoch(const rp__replayer *r, rp__segment *s) {
    if (s->epoch == r->epoch) return;
    s->epoch = r->epoch;
    s->n_warm = 0;
    if (!s->wait) s->wait = WARM_STEPS;
}

static bool is_measured_now(const rp__segment *s) {
    return !s->duel.is_decided || s->n_eager + s->n_replays >= s->remeasure_at;
}

static rp_status prepare(const rp__replayer *r, const rp__program *p, const rp__segment *s,
                         rp_error *err) {
    for (int32_t i = 0; i < s->n_ops; i++)
        RP_TRY(rp__device_prepare(r->device, &p->ops[s->first_op + i], err));
    return RP_OK;
}

static bool has_lost(const rp__segment *s) {
    return s->duel.is_decided && s->duel.winner == RP_EAGER;
}

static rp_status run_without_graph(rp__replayer *r, rp__program *p, rp__segment *s, int32_t n_live,
                                   rp_error *err) {
    bool is_auto = r->config.mode == RP_CAPTURE_AUTO;
    if (is_auto && has_lost(s) && !is_measured_now(s))
        return run_eager(r, p, s, RP_WHY_EAGER_FASTER, err);
    if (s->n_warm >= s->wait) return capture(r, p, s, err);
    /* The last eager step before the capture is the first half of the first pair. */
    bool is_last = s->n_warm + 1 == s->wait && !s->duel.has_half && !s->duel.n_pairs;
    if (is_auto && !s->duel.is_decided && is_last) {
        RP_TRY(prepare(r, p, s, err)); /* compiling is no part of what a step takes */
        return measure(r, p, s, n_live, err);
    }
    return run_eager(r, p, s, s->n_captures ? RP_WHY_EVICTED : RP_WHY_WARMING, err);
}

static rp_status run_segment(rp__replayer *r, rp__program *p, rp__segment *s, int32_t n_live,
                             rp_error *err) {
    rp_capture_mode mode = r->config.mode;
    if (s->side == RP_SIDE_HOST) return run_host(r, p, s, err);
    enter_epoch(r, s);
    if (mode == RP_CAPTURE_OFF) return run_eager(r, p, s, RP_WHY_OFF, err);
    if (!rp__device_has_capture(r->device)) return run_eager(r, p, s, RP_WHY_NO_CAPTURE, err);
    if (s->refusal) return run_eager(r, p, s, RP_WHY_REFUSED, err);
    if (!s->graph) return run_without_graph(r, p, s, n_live, err);
    if (mode == RP_CAPTURE_ON) return run_graph(r, p, s, RP_WHY_ON, err);
    if (is_measured_now(s)) return measure(r, p, s, n_live, err);
    if (!has_lost(s)) return run_graph(r, p, s, RP_WHY_REPLAY_FASTER, err);
    return run_eager(r, p, s, RP_WHY_EAGER_FASTER, err);
}

rp_status rp__replayer_run(rp__replayer *r, rp__program *p, int32_t n_live, rp_error *err) {
    rp__assert(p->is_bound, "a program is run before it is bound");
    churn(r);
    r->step_before = r->step;
    r->step = r->tick;
    for (int32_t i = 0; i < p->n_segments; i++) {
        rp_status st = run_segment(r, p, &p->segments[i], n_live, err);
        if (st != RP_OK) return st;
    }
    r->stats.n_steps++;
    return RP_OK;
}

static bool is_settled(const rp__replayer *r, const rp__segment *s) {
    rp_capture_mode mode = r->config.mode;
    bool is_eager = mode == RP_CAPTURE_OFF || !rp__device_has_capture(r->device) || s->refusal;
    if (s->side == RP_SIDE_HOST) return true;
    if (s->epoch != r->epoch) return false;
    if (is_eager) return s->n_warm >= WARM_STEPS;
    if (mode == RP_CAPTURE_ON) return s->graph != NULL;
    return !is_measured_now(s) && (s->graph || has_lost(s));
}

bool rp__replayer_is_settled(const rp__replayer *r, const rp__program *p) {
    for (int32_t i = 0; i < p->n_segments; i++)
        if (!is_settled(r, &p->segments[i])) return false;
    return true;
}

/* ---- on demand ---- */

static rp_status rewind_inputs(rp__replayer *r, const rp__program *p, rp_error *err) {
    if (p->advance_op < 0 || !r->config.rewind) return RP_OK;
    return r->config.rewind(r->config.user, p, err);
}

static rp_status warm_up(rp__replayer *r, rp__program *p, rp__segment *s, rp_error *err) {
    while (s->n_warm < WARM_STEPS) {
        RP_TRY(run_eager(r, p, s, RP_WHY_WARMING, err));
        RP_TRY(rewind_inputs(r, p, err));
    }
    return RP_OK;
}

static rp_status capture_segment(rp__replayer *r, rp__program *p, rp__segment *s, rp_error *err) {
    if (s->side == RP_SIDE_HOST) return run_host(r, p, s, err);
    enter_epoch(r, s);
    if (s->graph || s->refusal) return run_eager(r, p, s, RP_WHY_WARMING, err);
    RP_TRY(warm_up(r, p, s, err));
    return capture(r, p, s, err);
}

rp_status rp__replayer_capture_now(rp__replayer *r, rp__program *p, rp_error *err) {
    if (!rp__device_has_capture(r->device)) return RP_OK;
    if (!p->n_graphs && r->n_held == r->config.max_graphs) return RP_END;
    for (int32_t i = 0; i < p->n_segments; i++) {
        rp_status st = capture_segment(r, p, &p->segments[i], err);
        if (st != RP_OK) return st;
    }
    return RP_OK;
}

/* Leaves every segment warm, and with a graph where it can have one. */
static rp_status make_ready(rp__replayer *r, rp__program *p, rp_error *err) {
    for (int32_t i = 0; i < p->n_segments; i++) {
        rp__segment *s = &p->segments[i];
        if (s->side == RP_SIDE_HOST) {
            RP_TRY(run_host(r, p, s, err));
            continue;
        }
        enter_epoch(r, s);
        RP_TRY(warm_up(r, p, s, err));
        if (!rp__device_has_capture(r->device) || s->graph || s->refusal) continue;
        rp_status st = capture(r, p, s, err);
        if (st != RP_OK) return st;
    }
    return RP_OK;
}

/* From pairs of times, n_pairs of each way and as much room after them. Sorts them. */
static void sum_up(bool has_graph, double *samples, int32_t n_pairs, rp__replay_report *out) {
    double *eager = samples, *replay = samples + n_pairs;
    uint32_t n = (uint32_t)n_pairs;
    out->ratio = (rp__duel_ratio){0};
    if (has_graph) out->ratio = rp__duel_compare(eager, replay, n, replay + n_pairs);
    out->eager_us = rp__duel_median(eager, n);
    out->replay_us = has_graph ? rp__duel_median(replay, n) : 0;
    out->is_replay_faster = has_graph && out->ratio.median >= 1;
}

static rp_status measure_segment(rp__replayer *r, rp__program *p, rp__segment *s, int32_t n_pairs,
                                 double *samples, rp__replay_report *out, rp_error *err) {
    double *us[] = {[RP_EAGER] = samples, [RP_REPLAY] = samples + n_pairs};
    if (s->side == RP_SIDE_HOST) return run_host(r, p, s, err);
    for (int32_t i = 0; i < n_pairs; i++)
        for (int half = 0; half < 2; half++) {
            int way = (i + half) % 2;
            if (way == RP_REPLAY && !s->graph) continue;
            RP_TRY(rewind_inputs(r, p, err));
            RP_TRY(run_timed(r, p, s, way, &us[way][i], err));
        }
    sum_up(s->graph != NULL, samples, n_pairs, out);
    s->duel.decided_us[RP_EAGER] = out->eager_us;
    if (!s->graph) return RP_OK;
    rp__duel_settle(&s->duel, out->eager_us, out->replay_us,
                    out->is_replay_faster ? RP_REPLAY : RP_EAGER);
    note_decision(r, s);
    return RP_OK;
}

/* All segments one way, from an idle device to an idle device. */
static rp_status run_whole(rp__replayer *r, rp__program *p, int way, double *us, rp_error *err) {
    RP_TRY(rewind_inputs(r, p, err));
    RP_TRY(rp__device_sync(r->device, err));
    double start = rp__device_clock_us(r->device);
    for (int32_t i = 0; i < p->n_segments; i++) {
        rp__segment *s = &p->segments[i];
        if (s->side == RP_SIDE_HOST)
            RP_TRY(run_host(r, p, s, err));
        else if (way == RP_REPLAY && s->graph)
            RP_TRY(run_graph(r, p, s, RP_WHY_MEASURING, err));
        else
            RP_TRY(run_eager(r, p, s, RP_WHY_MEASURING, err));
    }
    RP_TRY(rp__device_sync(r->device, err));
    *us = rp__device_clock_us(r->device) - start;
    return RP_OK;
}

static rp_status measure_whole(rp__replayer *r, rp__program *p, int32_t n_pairs, double *samples,
                               rp__replay_report *out, rp_error *err) {
    double *us[] = {[RP_EAGER] = samples, [RP_REPLAY] = samples + n_pairs};
    for (int32_t i = 0; i < n_pairs; i++)
        for (int half = 0; half < 2; half++) {
            int way = (i + half) % 2;
            if (way == RP_REPLAY && !p->n_graphs) continue;
            RP_TRY(run_whole(r, p, way, &us[way][i], err));
        }
    sum_up(p->n_graphs > 0, samples, n_pairs, out);
    return RP_OK;
}

static rp__run_why why_no_graph(const rp__replayer *r, const rp__program *p, rp_status *refusal) {
    rp__run_why why = RP_WHY_HOST;
    for (int32_t i = 0; i < p->n_segments; i++) {
        const rp__segment *s = &p->segments[i];
        if (s->side == RP_SIDE_HOST) continue;
        if (s->refusal) return *refusal = s->refusal, RP_WHY_REFUSED;
        why = rp__device_has_capture(r->device) ? RP_WHY_EVICTED : RP_WHY_NO_CAPTURE;
    }
    return why;
}

static void fill_report(const rp__replayer *r, const rp__program *p, rp__replay_report *out) {
    for (int32_t i = 0; i < p->n_segments; i++)
        if (p->segments[i].graph) out->graph_bytes += rp__graph_bytes(p->segments[i].graph);
    out->why = !p->n_graphs            ? why_no_graph(r, p, &out->refusal)
               : out->is_replay_faster ? RP_WHY_REPLAY_FASTER
                                       : RP_WHY_EAGER_FASTER;
}

rp_status rp__replayer_measure(rp__replayer *r, rp__program *p, int32_t n_pairs, double *samples,
                               rp__replay_report *out, rp_error *err) {
    *out = (rp__replay_report){0};
    rp_status st = make_ready(r, p, err);
    if (st != RP_OK) return st;
    for (int32_t i = 0; i < p->n_segments; i++)
        RP_TRY(measure_segment(r, p, &p->segments[i], n_pairs, samples, out, err));
    if (p->n_segments > 1) RP_TRY(measure_whole(r, p, n_pairs, samples, out, err));
    fill_report(r, p, out);
    return RP_OK;
}
