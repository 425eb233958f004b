/* The replay policy: whether a segment runs op by op or as a captured graph. The only copy of this
 * decision.
 *
 * Life of a segment: eager while cold, for one step -> captured -> with RP_CAPTURE_ON: replayed;
 * with RP_CAPTURE_AUTO: measured (eager and replay take turns in pairs of steps, two pairs when
 * they agree clearly, up to seven otherwise) -> replayed or eager, whichever median is lower. It is
 * measured again after ever longer stretches, so seldom that measuring costs less than half a
 * percent, and the decision then changes only for a gain that every pair shows. A refused capture
 * leaves the segment eager, with the reason.
 *
 * Graphs are kept in a store bounded by count and bytes. Its unit is the program: the graphs of all
 * its segments come and go together, the least recently replayed program's first. Their segments
 * keep their decisions and are captured again after as many eager steps as before, or twice as many
 * when the graph had not replayed that often: more programs than places cannot make the store spend
 * its time capturing.
 *
 * Segments on the host run op by op, always; their times are the device's clock's too.
 *
 * RP_CAPTURE_OFF runs everything eagerly. Results are the same bits in every mode. Times are those
 * of the device's clock, so a simulated device is judged by its simulated times.
 * Threads: the device's one. */
#ifndef RP_PLAN_REPLAY_H
#define RP_PLAN_REPLAY_H

#include "plan/program.h"
#include "reprise/common.h"

typedef struct rp__replay_config {
    rp_capture_mode mode;
    int max_graphs;         /* programs that have graphs; at least 1 */
    size_t max_graph_bytes; /* 0: no bound */
    /* Writes the inputs of `p` again, where it changes them itself (advance_op) and is run several
     * times on the same step: to warm, capture and measure it on demand. NULL: it never does. */
    rp_status (*rewind)(void *user, const rp__program *p, rp_error *err);
    void *user;
} rp__replay_config;

typedef struct rp__replay_stats { /* runs of segments on the device */
    uint64_t n_steps, n_captures, n_recaptures, n_replays, n_eager, n_refused, n_evicted;
    uint64_t n_host_ops, n_transfers;    /* of programs with ops on the host */
    uint64_t n_measurements;             /* decisions made, first ones included */
    uint64_t n_by_reason[RP_N_RUN_WHYS]; /* of n_eager */
} rp__replay_stats;

typedef struct rp__replayer {
    rp__replay_config config;
    rp_device *device;
    rp__replay_stats stats;
    rp__program **held; /* programs that have graphs, max_graphs of them at most */
    int n_held;
    uint64_t tick;
    uint32_t epoch;             /* grows when kernels become cold */
    uint64_t step, step_before; /* `tick` when this step began, and the one before: a loss may be
                                   noticed a step late */
    rp__segment *capturing;     /* whose capture has not ended well yet */
    uint32_t stress;            /* draws of the stress build */
} rp__replayer;

rp_status rp__replayer_init(rp__replayer *r, rp_device *device, const rp__replay_config *config,
                            rp_error *err);
void rp__replayer_clear(
    rp__replayer *r); /* destroys the graphs; the programs they came from are still there */
void rp__replayer_set_mode(rp__replayer *r, rp_capture_mode mode); /* from the next step on */

/* Destroys every graph and takes every kernel for cold: a lost device is about to be opened again.
 * Decisions and statistics stay. A segment in whose steps the device was lost twice while it was
 * replayed (it may be longer than a watchdog allows, where its ops one by one are not) is not
 * captured again. */
void rp__replayer_reset(rp__replayer *r);

/* Runs the bound program once; its inputs are in place. n_live: live tokens, to compare steps of
 * different size. RP_AGAIN: a capture was refused, and what its ops wrote is undefined: write the
 * inputs again and run again, which is then eager. A failure of the device comes back as it is; the
 * graph store stays consistent. */
rp_status rp__replayer_run(rp__replayer *r, rp__program *p, int32_t n_live, rp_error *err);

/* Warms and captures all of a program now, on whatever its inputs hold. RP_AGAIN as above;
 * RP_END: the store is full, nothing was captured. */
rp_status rp__replayer_capture_now(rp__replayer *r, rp__program *p, rp_error *err);

/* What rp__replayer_measure found. Times are of one step, from an idle device to an idle device. */
typedef struct rp__replay_report {
    double eager_us, replay_us; /* medians; replay_us 0: no graph */
    rp__duel_ratio ratio;       /* of eager to replay, by pairs; 0: no graph */
    bool is_replay_faster;
    rp__run_why why;
    rp_status refusal; /* of the capture, when it was refused */
    size_t graph_bytes;
} rp__replay_report;

/* Measures n_pairs interleaved pairs (eager and replay of the same step) and decides from the
 * median of their ratios, in any mode. `samples` has room for 3 * n_pairs. RP_AGAIN as above. */
rp_status rp__replayer_measure(rp__replayer *r, rp__program *p, int32_t n_pairs, double *samples,
                               rp__replay_report *out, rp_error *err);

/* Whether the next run of a program is one like those before it: warm, and as decided. */
bool rp__replayer_is_settled(const rp__replayer *r, const rp__program *p);

/* Destroys a program's graphs: it will not be run again soon. */
void rp__replayer_drop(rp__replayer *r, rp__program *p);

size_t rp__replayer_graph_bytes(const rp__replayer *r);
int rp__replayer_n_graphs(const rp__replayer *r);

#endif
