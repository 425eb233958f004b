#include "plan/replay.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/log.h"

enum {
    WARM_STEPS = 2, /* the first compiles, the second shows that nothing more is compiled */
    FIRST_REMEASURE =
        1024, /* steps until the first decision is looked at again; doubles every time */
    SWITCH_GAIN_PERCENT = 5, /* a decision once made changes only for a gain beyond the noise */
};

rp_status rp__replayer_init(rp__replayer *r, rp_device *device, const rp__replay_config *config,
                            rp_error *err) {
    *r = (rp__replayer){.config = *config, .device = device};
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
    s->n_eager_samples = s->n_replay_samples = 0;
    s->remeasure_at = 0;
    s->state = RP_SEGMENT_WARMING;
    s->reason = "its graph was dropped from the store";
    r->held[i] = r->held[--r->n_held];
}

static void drop_oldest(rp__replayer *r) {
    int oldest = 0;
    for (int i = 1; i < r->n_held; i++)
        if (r->held[i]->last_used < r->held[oldest]->last_used) oldest = i;
    drop_graph(r, oldest);
    r->stats.n_evicted++;
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

void rp__replayer_set_mode(rp__replayer *r, rp_capture_mode mode) {
    r->config.mode = mode;
}

/* ---- running ---- */

static uint64_t now(const rp__replayer *r) {
    return r->config.clock_ns ? r->config.clock_ns(r->config.clock_user) : rp__clock_ns();
}

static rp_status run_eager(rp__replayer *r, const rp__program *p, rp__segment *s, rp_error *err) {
    const rp_op *ops = p->ops + s->first_op;
    for (int32_t i = 0; i < s->n_ops && !s->is_prepared; i++)
        RP_TRY(rp__device_prepare(r->device, &ops[i], err));
    s->is_prepared = true;
    for (int32_t i = 0; i < s->n_ops; i++) RP_TRY(rp__device_run(r->device, &ops[i], err));
    s->n_eager++;
    r->stats.n_eager++;
    return RP_OK;
}

static rp_status run_graph(rp__replayer *r, rp__segment *s, rp_error *err) {
    RP_TRY(rp__graph_replay(s->graph, err));
    s->last_used = ++r->tick;
    s->n_replays++;
    r->stats.n_replays++;
    return RP_OK;
}

static rp_status issue_captured(rp__replayer *r, const rp__program *p, const rp__segment *s,
                                rp_graph **graph, rp_error *err) {
    char name[64];
    RP_TRY(rp__capture_begin(r->device, err));
    for (int32_t i = 0; i < s->n_ops; i++)
        if (rp__device_run(r->device, &p->ops[s->first_op + i], err) < 0)
            break; /* the end says it again */
    return rp__capture_end_graph(r->device, rp__bucket_text(&p->bucket, name, sizeof name), graph,
                                 err);
}

/* Captures the segment; the captured step is this step. A refusal is remembered and the step runs
 * eagerly. */
static rp_status capture(rp__replayer *r, rp__program *p, rp__segment *s, rp_error *err) {
    if (r->n_held == r->config.max_graphs) drop_oldest(r);
    rp_error why = {0};
    rp_status st = issue_captured(r, p, s, &s->graph, &why);
    if (st == RP_EDEVICE_LOST) {
        if (err) *err = why;
        return st;
    }
    if (st < 0) {
        r->stats.n_refused++;
        s->state = RP_SEGMENT_EAGER;
        s->reason = "its capture was refused";
        rp__log(RP_LOG_WARN, "a step stays eager, its capture was refused: %s", why.message);
        return run_eager(r, p, s, err);
    }
    r->held[r->n_held++] = s;
    s->last_used = ++r->tick;
    r->stats.n_captures++;
    if (s->n_captures++) r->stats.n_recaptures++;
    while (r->config.max_graph_bytes && r->n_held > 1 &&
           rp__replayer_graph_bytes(r) > r->config.max_graph_bytes)
        drop_oldest(r);
    return RP_OK;
}

/* ---- deciding ---- */

static int by_value(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static float median(const float *v) {
    float sorted[RP_REPLAY_SAMPLES];
    memcpy(sorted, v, sizeof sorted);
    qsort(sorted, RP_REPLAY_SAMPLES, sizeof *sorted, by_value);
    return sorted[RP_REPLAY_SAMPLES / 2];
}

static void decide(rp__segment *s) {
    float eager = median(s->eager_us), replay = median(s->replay_us);
    float keep = 1.0f - SWITCH_GAIN_PERCENT / 100.0f;
    bool is_first = s->remeasure_at == 0;
    if (is_first)
        s->is_replay_faster = replay < eager;
    else
        s->is_replay_faster = s->is_replay_faster ? eager >= replay * keep : replay < eager * keep;
    s->state = s->is_replay_faster ? RP_SEGMENT_REPLAY : RP_SEGMENT_EAGER;
    s->reason = s->is_replay_faster ? "replay was measured to be faster"
                                    : "eager was measured to be faster";
    s->decided_eager_us = eager;
    s->decided_replay_us = replay;
    uint64_t steps = s->n_eager + s->n_replays;
    s->remeasure_at = steps + (is_first ? FIRST_REMEASURE : steps);
    s->n_eager_samples = s->n_replay_samples = 0;
}

static rp_status measure(rp__replayer *r, rp__program *p, rp__segment *s, int32_t n_live,
                         rp_error *err) {
    bool with_graph = s->n_replay_samples < s->n_eager_samples;
    RP_TRY(rp__device_sync(r->device, err));
    uint64_t start = now(r);
    RP_TRY(with_graph ? run_graph(r, s, err) : run_eager(r, p, s, err));
    RP_TRY(rp__device_sync(r->device, err));
    float us = (float)(now(r) - start) / 1000.0f / (float)(n_live > 0 ? n_live : 1);
    if (with_graph)
        s->replay_us[s->n_replay_samples++] = us;
    else
        s->eager_us[s->n_eager_samples++] = us;
    if (s->n_replay_samples < RP_REPLAY_SAMPLES) return RP_OK;
    decide(s);
    return RP_OK;
}

static rp_status run_segment(rp__replayer *r, rp__program *p, rp__segment *s, int32_t n_live,
                             rp_error *err) {
    rp_capture_mode mode = r->config.mode;
    if (mode == RP_CAPTURE_OFF || !rp__device_has_capture(r->device)) {
        s->reason = mode == RP_CAPTURE_OFF ? "capture is off" : "the device cannot capture";
        return run_eager(r, p, s, err);
    }
    if (s->graph && mode == RP_CAPTURE_ON) return run_graph(r, s, err);
    if (s->state == RP_SEGMENT_EAGER && !s->graph) return run_eager(r, p, s, err); /* refused */
    if (!s->graph) {
        if (s->n_warm++ < WARM_STEPS) {
            s->reason = "warming";
            return run_eager(r, p, s, err);
        }
        RP_TRY(capture(r, p, s, err));
        if (s->graph) {
            s->state = mode == RP_CAPTURE_ON ? RP_SEGMENT_REPLAY : RP_SEGMENT_MEASURING;
            s->reason = mode == RP_CAPTURE_ON ? "capture is on" : "measuring";
        }
        return RP_OK;
    }
    if (s->state != RP_SEGMENT_MEASURING && s->n_eager + s->n_replays >= s->remeasure_at)
        s->state = RP_SEGMENT_MEASURING;
    if (s->state == RP_SEGMENT_MEASURING) return measure(r, p, s, n_live, err);
    return s->state == RP_SEGMENT_REPLAY ? run_graph(r, s, err) : run_eager(r, p, s, err);
}

rp_status rp__replayer_run(rp__replayer *r, rp__program *p, int32_t n_live, rp_error *err) {
    rp__assert(p->is_bound, "a program is run before it is bound");
    r->stats.n_steps++;
    for (int32_t i = 0; i < p->n_segments; i++)
        RP_TRY(run_segment(r, p, &p->segments[i], n_live, err));
    return RP_OK;
}

rp_status rp__replayer_capture_now(rp__replayer *r, rp__program *p, rp_error *err) {
    if (!rp__device_has_capture(r->device)) return RP_OK;
    for (int i = 0; i <= WARM_STEPS; i++) RP_TRY(rp__replayer_run(r, p, p->bucket.n_tokens, err));
    return RP_OK;
}
