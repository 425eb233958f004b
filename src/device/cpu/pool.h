/* Worker threads that run one job together: the caller is worker 0, the others wait between jobs.
 *
 * Waiting spins for some microseconds and then sleeps, so that an idle pool and a machine with more
 * threads than free cores cost nothing but the wake-up. Threads: one thread at a time may call run;
 * barrier is called by all workers of the running job. */
#ifndef RP_DEVICE_CPU_POOL_H
#define RP_DEVICE_CPU_POOL_H

#include "reprise/status.h"

typedef struct rp__pool rp__pool;
typedef void (*rp__pool_fn)(void *arg, int worker, int n_workers);

/* RP_ENOMEM also when the system gives no thread. n_threads >= 1. */
rp_status rp__pool_create(int n_threads, rp__pool **out, rp_error *err);
void rp__pool_destroy(rp__pool *pool); /* NULL is fine */
int rp__pool_size(const rp__pool *pool);

/* Runs fn on every worker and returns when all have. What the caller wrote before is seen by all
 * workers, and what they wrote is seen by the caller after. */
void rp__pool_run(rp__pool *pool, rp__pool_fn fn, void *arg);

/* Bytes that a worker will read soon: it may ask the caches for them while it waits. */
typedef struct rp__pool_soon {
    const char *at;
    size_t n_bytes; /* 0: nothing */
} rp__pool_soon;

/* Inside a job, by its worker: nobody leaves before all have come. What has been asked for is taken
 * off `soon` (NULL: nothing). */
void rp__pool_barrier(rp__pool *pool, int worker, rp__pool_soon *soon);

/* Cores that this process may use: affinity, cgroup quota (v1 and v2), siblings of one core counted
 * once. At least 1. */
int rp__pool_default_size(void);

#endif
