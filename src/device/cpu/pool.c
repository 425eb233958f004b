#define _GNU_SOURCE
#include "device/cpu/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"

/* About 20 to 50 us of spinning: longer than a barrier inside a step takes when every worker has a
 * core, shorter than a scheduler's time slice when it has not. */
enum { SPINS = 2000, YIELDS = 4 };

/* A number that is waited on until it changes. Sleepers count themselves before their last look,
 * and a change looks for sleepers after it is made (both sequentially consistent), so that none is
 * missed. */
typedef struct gate {
    _Alignas(64) atomic_uint value;
    atomic_int n_sleepers;
    pthread_mutex_t mutex;
    pthread_cond_t cond;
} gate;

struct rp__pool {
    int n_threads;
    int n_started; /* threads to join */
    gate start;    /* grows with every job */
    gate barrier;  /* grows when the last worker has come */
    _Alignas(64) atomic_int n_arrived;
    rp__pool_fn fn; /* written before `start` changes, read after */
    void *arg;
    atomic_bool is_closing;
    struct worker {
        rp__pool *pool;
        int idx;
        pthread_t thread;
    } worker[];
};

static void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static bool gate_init(gate *g) {
    atomic_init(&g->value, 0);
    atomic_init(&g->n_sleepers, 0);
    if (pthread_mutex_init(&g->mutex, NULL)) return false;
    if (pthread_cond_init(&g->cond, NULL) == 0) return true;
    pthread_mutex_destroy(&g->mutex);
    return false;
}

static void gate_clear(gate *g) {
    pthread_cond_destroy(&g->cond);
    pthread_mutex_destroy(&g->mutex);
}

static void gate_open(gate *g) {
    atomic_fetch_add(&g->value, 1);
    if (atomic_load(&g->n_sleepers) == 0) return;
    pthread_mutex_lock(&g->mutex);
    pthread_cond_broadcast(&g->cond);
    pthread_mutex_unlock(&g->mutex);
}

static void gate_wait(gate *g, unsigned old) {
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&g->value, memory_order_acquire) != old) return;
        relax();
    }
    for (int i = 0; i < YIELDS; i++) {
        if (atomic_load_explicit(&g->value, memory_order_acquire) != old) return;
        sched_yield();
    }
    pthread_mutex_lock(&g->mutex);
    atomic_fetch_add(&g->n_sleepers, 1);
    while (atomic_load(&g->value) == old) pthread_cond_wait(&g->cond, &g->mutex);
    atomic_fetch_sub(&g->n_sleepers, 1);
    pthread_mutex_unlock(&g->mutex);
}

void rp__pool_barrier(rp__pool *pool) {
    if (pool->n_threads == 1) return;
    unsigned old = atomic_load_explicit(&pool->barrier.value, memory_order_acquire);
    if (atomic_fetch_add_explicit(&pool->n_arrived, 1, memory_order_acq_rel) + 1 <
        pool->n_threads) {
        gate_wait(&pool->barrier, old);
        return;
    }
    atomic_store_explicit(&pool->n_arrived, 0, memory_order_relaxed);
    gate_open(&pool->barrier);
}

static void *worker_main(void *arg) {
    struct worker *w = arg;
    rp__pool *pool = w->pool;
    for (unsigned seen = 0;; seen++) {
        gate_wait(&pool->start, seen);
        if (atomic_load_explicit(&pool->is_closing, memory_order_acquire)) return NULL;
        pool->fn(pool->arg, w->idx, pool->n_threads);
        rp__pool_barrier(pool);
    }
}

void rp__pool_run(rp__pool *pool, rp__pool_fn fn, void *arg) {
    pool->fn = fn;
    pool->arg = arg;
    if (pool->n_threads > 1) gate_open(&pool->start);
    fn(arg, 0, pool->n_threads);
    rp__pool_barrier(pool);
}

int rp__pool_size(const rp__pool *pool) {
    return pool->n_threads;
}

rp_status rp__pool_create(int n_threads, rp__pool **out, rp_error *err) {
    *out = NULL;
    size_t bytes = sizeof(rp__pool) + (size_t)n_threads * sizeof(struct worker);
    rp__pool *pool = rp__alloc_aligned(64, bytes);
    if (!pool)
        return rp__fail(err, RP_ENOMEM, "cpu: no memory for a pool of %d threads", n_threads);
    memset(pool, 0, bytes);
    pool->n_threads = n_threads;
    if (!gate_init(&pool->start)) goto no_start;
    if (!gate_init(&pool->barrier)) goto no_barrier;
    atomic_init(&pool->n_arrived, 0);
    atomic_init(&pool->is_closing, false);
    for (int i = 1; i < n_threads; i++) {
        pool->worker[i] = (struct worker){.pool = pool, .idx = i};
        if (pthread_create(&pool->worker[i].thread, NULL, worker_main, &pool->worker[i])) {
            int n_had = pool->n_started + 1;
            rp__pool_destroy(pool);
            return rp__fail(err, RP_ENOMEM, "cpu: the system gave %d of %d threads", n_had,
                            n_threads);
        }
        pool->n_started++;
    }
    *out = pool;
    return RP_OK;

no_barrier:
    gate_clear(&pool->start);
no_start:
    rp__free(pool);
    return rp__fail(err, RP_ENOMEM, "cpu: the system gave no locks for a pool");
}

void rp__pool_destroy(rp__pool *pool) {
    if (!pool) return;
    atomic_store_explicit(&pool->is_closing, true, memory_order_release);
    gate_open(&pool->start);
    for (int i = 1; i <= pool->n_started; i++) pthread_join(pool->worker[i].thread, NULL);
    gate_clear(&pool->barrier);
    gate_clear(&pool->start);
    rp__free(pool);
}

/* ---- how many ---- */

static bool read_line(const char *path, char *line, size_t cap) {
    FILE *f = fopen(path, "re");
    if (!f) return false;
    bool ok = fgets(line, (int)cap, f) != NULL;
    fclose(f);
    return ok;
}

/* Whole CPUs that the cgroup's quota allows (rounded up); `most` without one. */
static int quota_cpus(int most) {
    char line[128];
    long long quota = -1, period = 0;
    if (read_line("/sys/fs/cgroup/cpu.max", line, sizeof line)) {
        if (sscanf(line, "%lld %lld", &quota, &period) != 2) return most; /* "max 100000" */
    } else if (read_line("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", line, sizeof line)) {
        quota = strtoll(line, NULL, 10);
        if (!read_line("/sys/fs/cgroup/cpu/cpu.cfs_period_us", line, sizeof line)) return most;
        period = strtoll(line, NULL, 10);
    }
    if (quota <= 0 || period <= 0) return most;
    long long n = (quota + period - 1) / period;
    return n < most ? (int)n : most;
}

/* True when no allowed CPU with a lower number shares this one's core. */
static bool is_first_sibling(int cpu, const cpu_set_t *allowed) {
    char path[96], line[256];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    if (!read_line(path, line, sizeof line)) return true;
    for (char *p = line; *p >= '0' && *p <= '9';) { /* "0-1,8-9" */
        long from = strtol(p, &p, 10), to = from;
        if (*p == '-') to = strtol(p + 1, &p, 10);
        for (long i = from; i <= to && i < cpu; i++)
            if (i < CPU_SETSIZE && CPU_ISSET((int)i, allowed)) return false;
        if (*p == ',') p++;
    }
    return true;
}

int rp__pool_default_size(void) {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    if (sched_getaffinity(0, sizeof allowed, &allowed)) return 1;
    int n = 0;
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &allowed) && is_first_sibling(i, &allowed)) n++;
    if (n < 1) n = 1;
    return quota_cpus(n);
}
