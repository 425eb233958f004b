#include "plan/replay.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/log.h"
#include "base/stress.h"

enum {
    WARM_STEPS = 1,          /* eager ones before the first capture: everything is compiled then */
    MAX_LOSSES = 2,          /* one may have had another reason */
    MAX_WAIT = 4096,         /* eager steps between captures of a graph that never earns itself */
    CLEAR_PAIRS = 2,         /* so many pairs decide when each shows a gain of CLEAR_PERCENT, */
    CLEAR_PERCENT = 50,      /* far beyond the noise of a busy machine; */
    LESS_CLEAR_PERCENT = 20, /* twice as many when each shows this */
    SWITCH_PERCENT = 3,      /* a decision changes only for more than this, in every pair */
    FIRST_REMEASURE = 1024,  /* steps until a decision is looked at again; doubles every time */
    MEASURE_SHARE = 200,     /* measuring may cost one part in so many of the steps between */
    UNEVEN_SHARE = 8,        /* steps of a pair may differ by this part of their live tokens */
    MAX_UNEVEN = 32,         /* pairs thrown away for that, then any pair counts */
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

static void drop_graph(rp__replayer *r, int i) {
    rp__segment *s = r->held[i];
    rp__graph_destroy(s->graph);
    s->graph = NULL;
    s->n_warm = 0;
    s->n_pairs = 0;
    s->has_half = false;
    if (!s->n_unearned)
        s->wait = WARM_STEPS;
    else if (s->wait < MAX_WAIT)
        s->wait *= 2;
    r->held[i] = r->held[--r->n_held];
}

static void drop_oldest(rp__replayer *r) {
    int oldest = 0;
    for (int i = 1; i < r->n_held; i++)
        if (r->held[i]->last_used < r->held[oldest]->last_used) oldest = i;
    drop_graph(r, oldest);
    r->stats.n_evicted++;
}

static void hold(rp__replayer *r, rp__segment *s) {
    r->held[r->n_held++] = s;
    s->last_used = ++r->tick;
    s->n_unearned = s->wait;
}

size_t rp__replayer_graph_bytes(const rp__replayer *r) {
    size_t n = 0;
    for (int i = 0; i < r->n_held; i++) n += rp__graph_bytes(r->held[i]->graph);
    return n;
}

void rp__replayer_clear(rp__replayer *r) {
    while (r->n_held) drop_graph(r, 0);
    rp__free(r->held);
    *r = (rp__replayer){0};
}

static void blame(rp__segment *s) {
    if (++s->n_losses < MAX_LOSSES) return;
    s->refusal = RP_EDEVICE_LOST;
    rp__log(RP_LOG_WARN, "a step stays eager: the device was lost %u times with its replay",
            s->n_losses);
}

void rp__replayer_reset(rp__replayer *r) {
    if (r->capturing) blame(r->capturing);
    r->capturing = NULL;
    for (int i = 0; i < r->n_held; i++)
        if (r->held[i]->last_used > r->step_before) blame(r->held[i]);
    while (r->n_held) drop_graph(r, 0);
    r->epoch++;
}

void rp__replayer_set_mode(rp__replayer *r, rp_capture_mode mode) {
    r->config.mode = mode;
}

/* In the stress build graphs come and go. */
static void churn(rp__replayer *r) {
    enum { ONE_IN = 5 };
    if (!rp__stress_chance(&r->stress, ONE_IN) || !r->n_held) return;
    int i = (int)(rp__stress_draw(&r->stress) % (uint32_t)r->n_held);
    rp__segment *s = r->held[i];
    drop_graph(r, i);
    s->wait = 1 + rp__stress_draw(&r->stress) % 3;
}

/* ---- running ---- */

static rp_status issue_ops(rp__replayer *r, const rp__program *p, const rp__segment *s,
                           rp_error *err) {
    for (int32_t i = 0; i < s->n_ops; i++)
        RP_TRY(rp__device_run(r->device, &p->ops[s->first_op + i], err));
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

static rp_status run_graph(rp__replayer *r, rp__segment *s, rp__run_why why, rp_error *err) {
    s->why = why;
    s->last_used = ++r->tick;
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

/* Memory that others' graphs hold is theirs to lose; only a graph that does not fit alone is
 * refused. */
static rp_status make_room(rp__replayer *r, rp__segment *s, const rp_error *why) {
    if (!r->n_held) return refuse(r, s, RP_ENOMEM, why->message);
    drop_oldest(r);
    s->n_warm = 0;
    return RP_AGAIN;
}

/* The captured step is this step. RP_AGAIN: there is no graph, and the step is to be run again. */
static rp_status capture(rp__replayer *r, const rp__program *p, rp__segment *s, rp_error *err) {
    if (r->n_held == r->config.max_graphs) drop_oldest(r);
    rp_error why = {0};
    r->capturing = s;
    rp_status st = issue_captured(r, p, s, &s->graph, &why);
    if (st == RP_EDEVICE_LOST) {
        if (err) *err = why;
        return st;
    }
    r->capturing = NULL;
    if (st == RP_ENOMEM) return make_room(r, s, &why);
    if (st < 0) return refuse(r, s, st, why.message);
    hold(r, s);
    r->stats.n_captures++;
    if (s->n_captures++) r->stats.n_recaptures++;
    size_t most = r->config.max_graph_bytes;
    while (most && r->n_held > 1 && rp__replayer_graph_bytes(r) > most) drop_oldest(r);
    if (!most || rp__replayer_graph_bytes(r) <= most) return RP_OK;
    drop_graph(r, 0);
    (void)refuse(r, s, RP_ELIMIT, "the graph is larger than all graphs together may be");
    return RP_OK; /* this step was run */
}

/* ---- measuring ---- */

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, uint32_t n) { /* sorts v */
    qsort(v, n, sizeof *v, by_value);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

/* How many pairs show replay (or eager) to gain more than `percent` of the other. */
static uint32_t n_agreeing(const rp__segment *s, bool is_replay, int percent) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_pairs; i++) {
        const rp__replay_pair *q = &s->pairs[i];
        double winner = is_replay ? q->replay_us : q->eager_us,
               loser = is_replay ? q->eager_us : q->replay_us;
        n += winner < loser * (1 - percent / 100.0);
    }
    return n;
}

static bool all_agree(const rp__segment *s, int percent) {
    return n_agreeing(s, true, percent) == s->n_pairs ||
           n_agreeing(s, false, percent) == s->n_pairs;
}

static bool is_clear(const rp__segment *s) {
    return (s->n_pairs >= CLEAR_PAIRS && all_agree(s, CLEAR_PERCENT)) ||
           (s->n_pairs >= 2 * CLEAR_PAIRS && all_agree(s, LESS_CLEAR_PERCENT));
}

/* Steps until the next measurement: what its slower steps may waste is a small share of them. */
static uint64_t steps_between(const rp__segment *s) {
    double slow = s->decided_eager_us, fast = s->decided_replay_us;
    if (slow < fast) {
        slow = s->decided_replay_us;
        fast = s->decided_eager_us;
    }
    uint64_t steps = s->n_eager + s->n_replays;
    if (steps < FIRST_REMEASURE) steps = FIRST_REMEASURE;
    double wasted = fast > 0 ? RP_REPLAY_PAIRS * (slow / fast - 1) * MEASURE_SHARE : 0;
    return wasted > (double)steps ? (uint64_t)wasted : steps;
}

static void settle(rp__replayer *r, rp__segment *s, double eager_us, double replay_us,
                   bool is_replay_faster) {
    s->is_decided = true;
    s->is_replay_faster = is_replay_faster;
    s->decided_eager_us = eager_us;
    s->decided_replay_us = replay_us;
    s->remeasure_at = s->n_eager + s->n_replays + steps_between(s);
    s->n_pairs = s->n_uneven = 0;
    s->why = is_replay_faster ? RP_WHY_REPLAY_FASTER : RP_WHY_EAGER_FASTER;
    r->stats.n_measurements++;
}

static void decide(rp__replayer *r, rp__segment *s) {
    double eager[RP_REPLAY_PAIRS], replay[RP_REPLAY_PAIRS];
    for (uint32_t i = 0; i < s->n_pairs; i++) {
        eager[i] = s->pairs[i].eager_us;
        replay[i] = s->pairs[i].replay_us;
    }
    double eager_us = median(eager, s->n_pairs), replay_us = median(replay, s->n_pairs);
    bool is_faster = replay_us <= eager_us;
    if (s->is_decided) {
        bool is_other = !s->is_replay_faster;
        bool changes = n_agreeing(s, is_other, SWITCH_PERCENT) == s->n_pairs;
        is_faster = changes ? is_other : s->is_replay_faster;
    }
    settle(r, s, eager_us, replay_us, is_faster);
}

/* Runs the segment one way between two syncs: what was queued before does not count, and all that
 * is queued now does. */
static rp_status run_timed(rp__replayer *r, const rp__program *p, rp__segment *s, bool with_graph,
                           double *us, rp_error *err) {
    RP_TRY(rp__device_sync(r->device, err));
    double start = rp__device_clock_us(r->device);
    RP_TRY(with_graph ? run_graph(r, s, RP_WHY_MEASURING, err)
                      : run_eager(r, p, s, RP_WHY_MEASURING, err));
    RP_TRY(rp__device_sync(r->device, err));
    *us = rp__device_clock_us(r->device) - start;
    return RP_OK;
}

/* Steps of one bucket take the same time on a device that computes padding, and about as much per
 * live token on one that does not. There the steps of a pair should be about the same size. */
static bool is_uneven(const rp__segment *s, int32_t n_live) {
    int64_t more = n_live > s->half_live ? n_live : s->half_live, apart = n_live - s->half_live;
    return (apart < 0 ? -apart : apart) * UNEVEN_SHARE > more;
}

/* One step of a pair. Which way comes first alternates, so that a machine that gets slower favours
 * neither. */
static rp_status measure(rp__replayer *r, const rp__program *p, rp__segment *s, int32_t n_live,
                         rp_error *err) {
    bool is_per_token = rp__device_props(r->device)->has_live_rows && n_live > 0;
    bool with_graph = (s->n_pairs + s->has_half) % 2;
    double us;
    RP_TRY(run_timed(r, p, s, with_graph, &us, err));
    if (is_per_token) us /= n_live;
    s->has_half = !s->has_half;
    if (s->has_half) {
        s->half_us = us;
        s->half_live = n_live;
        return RP_OK;
    }
    if (is_per_token && is_uneven(s, n_live) && s->n_uneven++ < MAX_UNEVEN) return RP_OK;
    s->pairs[s->n_pairs++] =
        with_graph ? (rp__replay_pair){s->half_us, us} : (rp__replay_pair){us, s->half_us};
    if (is_clear(s) || s->n_pairs == RP_REPLAY_PAIRS) decide(r, s);
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
    return !s->is_decided || s->n_eager + s->n_replays >= s->remeasure_at;
}

static rp_status prepare(const rp__replayer *r, const rp__program *p, const rp__segment *s,
                         rp_error *err) {
    for (int32_t i = 0; i < s->n_ops; i++)
        RP_TRY(rp__device_prepare(r->device, &p->ops[s->first_op + i], err));
    return RP_OK;
}

static rp_status run_without_graph(rp__replayer *r, const rp__program *p, rp__segment *s,
                                   int32_t n_live, rp_error *err) {
    bool is_auto = r->config.mode == RP_CAPTURE_AUTO;
    if (is_auto && s->is_decided && !s->is_replay_faster && !is_measured_now(s))
        return run_eager(r, p, s, RP_WHY_EAGER_FASTER, err);
    if (s->n_warm >= s->wait) return capture(r, p, s, err);
    /* The last eager step before the capture is the first half of the first pair. */
    bool is_last = s->n_warm + 1 == s->wait && !s->has_half && !s->n_pairs;
    if (is_auto && !s->is_decided && is_last) {
        RP_TRY(prepare(r, p, s, err)); /* compiling is no part of what a step takes */
        return measure(r, p, s, n_live, err);
    }
    return run_eager(r, p, s, s->n_captures ? RP_WHY_EVICTED : RP_WHY_WARMING, err);
}

static rp_status run_segment(rp__replayer *r, const rp__program *p, rp__segment *s, int32_t n_live,
                             rp_error *err) {
    rp_capture_mode mode = r->config.mode;
    enter_epoch(r, s);
    if (mode == RP_CAPTURE_OFF) return run_eager(r, p, s, RP_WHY_OFF, err);
    if (!rp__device_has_capture(r->device)) return run_eager(r, p, s, RP_WHY_NO_CAPTURE, err);
    if (s->refusal) return run_eager(r, p, s, RP_WHY_REFUSED, err);
    if (!s->graph) return run_without_graph(r, p, s, n_live, err);
    if (mode == RP_CAPTURE_ON) return run_graph(r, s, RP_WHY_ON, err);
    if (is_measured_now(s)) return measure(r, p, s, n_live, err);
    if (s->is_replay_faster) return run_graph(r, s, RP_WHY_REPLAY_FASTER, err);
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

/* ---- on demand ---- */

static rp_status capture_segment(rp__replayer *r, const rp__program *p, rp__segment *s,
                                 rp_error *err) {
    enter_epoch(r, s);
    if (s->graph || s->refusal) return run_eager(r, p, s, RP_WHY_WARMING, err);
    while (s->n_warm < WARM_STEPS) RP_TRY(run_eager(r, p, s, RP_WHY_WARMING, err));
    return capture(r, p, s, err);
}

rp_status rp__replayer_capture_now(rp__replayer *r, rp__program *p, rp_error *err) {
    if (!rp__device_has_capture(r->device)) return RP_OK;
    if (r->n_held + p->n_segments > r->config.max_graphs) return RP_END;
    for (int32_t i = 0; i < p->n_segments; i++) {
        rp_status st = capture_segment(r, p, &p->segments[i], err);
        if (st != RP_OK) return st;
    }
    return RP_OK;
}

static rp_status measure_segment(rp__replayer *r, const rp__program *p, rp__segment *s,
                                 int32_t n_pairs, double *samples, rp_error *err) {
    double *eager = samples, *replay = samples + n_pairs;
    for (int32_t i = 0; i < n_pairs; i++)
        for (int half = 0; half < 2; half++) {
            bool with_graph = (i + half) % 2;
            if (with_graph && !s->graph) continue;
            RP_TRY(run_timed(r, p, s, with_graph, with_graph ? &replay[i] : &eager[i], err));
        }
    double eager_us = median(eager, (uint32_t)n_pairs),
           replay_us = s->graph ? median(replay, (uint32_t)n_pairs) : 0;
    if (s->graph) settle(r, s, eager_us, replay_us, replay_us <= eager_us);
    s->decided_eager_us = eager_us;
    return RP_OK;
}

static void add_to_report(const rp__replayer *r, const rp__segment *s, rp__replay_report *out) {
    out->eager_us += s->decided_eager_us;
    out->replay_us += s->graph ? s->decided_replay_us : s->decided_eager_us;
    if (s->graph) {
        out->graph_bytes += rp__graph_bytes(s->graph);
        out->is_replay_faster |= s->is_replay_faster;
        out->why = out->is_replay_faster ? RP_WHY_REPLAY_FASTER : RP_WHY_EAGER_FASTER;
    } else if (s->refusal) {
        out->why = RP_WHY_REFUSED;
        out->refusal = s->refusal;
    } else {
        out->why = rp__device_has_capture(r->device) ? RP_WHY_EVICTED : RP_WHY_NO_CAPTURE;
    }
}

rp_status rp__replayer_measure(rp__replayer *r, rp__program *p, int32_t n_pairs, double *samples,
                               rp__replay_report *out, rp_error *err) {
    *out = (rp__replay_report){0};
    bool has_graph = false;
    for (int32_t i = 0; i < p->n_segments; i++) {
        rp__segment *s = &p->segments[i];
        enter_epoch(r, s);
        while (s->n_warm < WARM_STEPS) RP_TRY(run_eager(r, p, s, RP_WHY_WARMING, err));
        if (rp__device_has_capture(r->device) && !s->graph && !s->refusal) {
            rp_status st = capture(r, p, s, err);
            if (st != RP_OK) return st;
        }
        RP_TRY(measure_segment(r, p, s, n_pairs, samples, err));
        add_to_report(r, s, out);
        has_graph |= s->graph != NULL;
    }
    if (!has_graph) out->replay_us = 0;
    return RP_OK;
}
