/* Counters of the server, and the Prometheus text of them and the engine's.
 *
 * Names are vLLM's where it has one, so that dashboards find them; what only this engine counts
 * (captures, replays, eager steps by reason, graph bytes) begins with reprise_. Thread safe. */
#ifndef RP_SERVE_METRICS_H
#define RP_SERVE_METRICS_H

#include <pthread.h>

#include "base/bytes.h"
#include "reprise/reprise.h"

enum { RP_HISTOGRAM_BUCKETS = 24 };

typedef struct rp__histogram {
    const double *bounds; /* ascending */
    size_t n_bounds;
    uint64_t counts[RP_HISTOGRAM_BUCKETS + 1]; /* the last: above every bound */
    double sum;
} rp__histogram;

typedef struct rp__metrics {
    pthread_mutex_t lock;
    rp__histogram first_token, gap, whole; /* seconds */
    uint64_t n_finished[RP_N_FINISHES];    /* by rp_finish */
    uint64_t n_http[6];                    /* by hundreds of the status */
} rp__metrics;

void rp__metrics_init(rp__metrics *m);
void rp__metrics_clear(rp__metrics *m);
void rp__metrics_first_token(rp__metrics *m, double seconds);
void rp__metrics_gap(rp__metrics *m, double seconds);
void rp__metrics_done(rp__metrics *m, rp_finish finish, double seconds);
void rp__metrics_http(rp__metrics *m, int status);

/* `engine` NULL: it is loading. */
void rp__metrics_write(rp__metrics *m, rp_engine *engine, const char *model, rp__bytes *out);

#endif
