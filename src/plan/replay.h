/* The replay policy: whether a segment runs op by op or as a captured graph. The only copy of this
 * decision.
 *
 * Life of a segment: WARMING (eager, at least two steps, so that kernels are compiled and caches
 * are hot) -> its graph is captured -> with RP_CAPTURE_ON: REPLAY; with RP_CAPTURE_AUTO: MEASURING
 * (eager and replay take turns, a few samples each) -> REPLAY or EAGER, whichever median is lower;
 * measured again after ever longer stretches, and then changed only for a clear gain. A refused
 * capture leaves the segment EAGER, with the reason. Graphs are kept in a store bounded by count
 * and bytes; the least recently used one goes first, and its segment warms again. RP_CAPTURE_OFF
 * runs everything eagerly; the results are the same bits. Threads: the device's one. */
#ifndef RP_PLAN_REPLAY_H
#define RP_PLAN_REPLAY_H

#include "plan/program.h"
#include "reprise/common.h"

typedef struct rp__replay_config {
    rp_capture_mode mode;
    int max_graphs;               /* at least 1 */
    size_t max_graph_bytes;       /* 0: no bound */
    uint64_t (*clock_ns)(void *); /* NULL: real time; a simulated device's own clock otherwise */
    void *clock_user;
} rp__replay_config;

typedef struct rp__replay_stats {
    uint64_t n_steps, n_captures, n_recaptures, n_replays, n_eager, n_refused, n_evicted;
} rp__replay_stats;

typedef struct rp__replayer {
    rp__replay_config config;
    rp_device *device;
    rp__replay_stats stats;
    rp__segment **held; /* segments that have a graph, max_graphs of them at most */
    int n_held;
    uint64_t tick;
} rp__replayer;

rp_status rp__replayer_init(rp__replayer *r, rp_device *device, const rp__replay_config *config,
                            rp_error *err);
void rp__replayer_clear(
    rp__replayer *r); /* destroys the graphs; the programs they came from are still there */
void rp__replayer_set_mode(rp__replayer *r, rp_capture_mode mode); /* from the next step on */

/* Runs the bound program once; its inputs are in place. n_live: live tokens, to compare steps of
 * different size. A failure of the device comes back as it is; the graph store stays consistent. */
rp_status rp__replayer_run(rp__replayer *r, rp__program *p, int32_t n_live, rp_error *err);

/* Prepares and captures all of a program now: runs it (twice warm, then captured) on whatever its
 * inputs hold. */
rp_status rp__replayer_capture_now(rp__replayer *r, rp__program *p, rp_error *err);

size_t rp__replayer_graph_bytes(const rp__replayer *r);

#endif
