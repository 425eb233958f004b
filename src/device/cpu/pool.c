#define _GNU_SOURCE
#include "device/cpu/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fail.h"

/* How long a worker looks before it sleeps: inside a job about as long as the others may still work
 * on their part, between jobs as long as the caller takes from one decode step to the next.
 *
 * Between looks it offers its core to who has work: at once where the pool has more threads than
 * there are cores, else after a time that waiting seldom takes. An offer that another program
 * accepts costs milliseconds, and at every barrier again, even if that program is worth little to
 * the system. */
enum { JOB_SPIN_US = 50, IDLE_SPIN_US = 300, PATIENT_US = 15, LOOKS = 64 };

/* What each worker waits at. `arrived` grows by one at every barrier and is written by its worker
 * alone, so that who comes last reads one line per worker and goes on. */
typedef struct worker_state {
    _Alignas(64) atomic_uint arrived;
    struct rp__pool *pool;
    int idx;
    pthread_t thread;
} worker_state;

struct rp__pool {
    int n_threads;
    int n_started; /* threads to join */
    uint64_t offer_after_us;
    /* Sleepers count themselves before their last look, and a change looks for sleepers after it is
     * made (both sequentially consistent), so that none is missed. */
    _Alignas(64) atomic_int n_sleepers;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    _Alignas(64) atomic_uint n_jobs;
    rp__pool_fn fn; /* written before n_jobs grows, read after */
    void *arg;
    atomic_bool is_closing;
    worker_state workers[];
};

static void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* True until `value` comes to `want`. */
static bool is_before(const atomic_uint *value, unsigned want, memory_order order) {
    return (int)(atomic_load_explicit(value, order) - want) < 0;
}

static void sleep_until(rp__pool *pool, const atomic_uint *value, unsigned want) {
    pthread_mutex_lock(&pool->mutex);
    atomic_fetch_add(&pool->n_sleepers, 1);
    while (is_before(value, want, memory_order_seq_cst))
        pthread_cond_wait(&pool->changed, &pool->mutex);
    atomic_fetch_sub(&pool->n_sleepers, 1);
    pthread_mutex_unlock(&pool->mutex);
}

/* Between two looks: a few lines into the second-level cache, which takes as long as memory does,
 * or just a moment. */
static void pass_time(rp__pool_soon *soon) {
    enum { LINE = 64, LINES = 4 };
    if (!soon || soon->n_bytes < LINES * LINE) {
        relax();
        return;
    }
    for (int i = 0; i < LINES; i++) __builtin_prefetch(soon->at + i * LINE, 0, 2);
    soon->at += LINES * LINE, soon->n_bytes -= LINES * LINE;
}

static void wait_until(rp__pool *pool, const atomic_uint *value, unsigned want, uint64_t spin_us,
                       rp__pool_soon *soon) {
    uint64_t start = 0;
    for (;;) {
        for (int i = 0; i < LOOKS; i++) {
            if (!is_before(value, want, memory_order_acquire)) return;
            pass_time(soon);
        }
        uint64_t now = rp__clock_ns();
        if (!start) start = now;
        if (now - start > spin_us * 1000) break;
        if (now - start >= pool->offer_after_us * 1000) sched_yield();
    }
    sleep_until(pool, value, want);
}

static void wake(rp__pool *pool) {
    if (atomic_load(&pool->n_sleepers) == 0) return;
    pthread_mutex_lock(&pool->mutex);
    pthread_cond_broadcast(&pool->changed);
    pthread_mutex_unlock(&pool->mutex);
}

static bool have_arrived(const rp__pool *pool, unsigned turn) {
    for (int i = 0; i < pool->n_threads; i++)
        if (is_before(&pool->workers[i].arrived, turn, memory_order_seq_cst)) return false;
    return true;
}

void rp__pool_barrier(rp__pool *pool, int worker, rp__pool_soon *soon) {
    if (pool->n_threads == 1) return;
    unsigned turn = atomic_fetch_add(&pool->workers[worker].arrived, 1) + 1;
    if (have_arrived(pool, turn))
        wake(pool); /* the last to come, or one of several at once */
    else
        for (int i = 0; i < pool->n_threads; i++)
            wait_until(pool, &pool->workers[i].arrived, turn, JOB_SPIN_US, soon);
}

static void *worker_main(void *arg) {
    worker_state *w = arg;
    rp__pool *pool = w->pool;
    for (unsigned job = 1;; job++) {
        wait_until(pool, &pool->n_jobs, job, IDLE_SPIN_US, NULL);
        if (atomic_load_explicit(&pool->is_closing, memory_order_acquire)) return NULL;
        pool->fn(pool->arg, w->idx, pool->n_threads);
        rp__pool_barrier(pool, w->idx, NULL);
    }
}

static void begin_job(rp__pool *pool) {
    atomic_fetch_add(&pool->n_jobs, 1);
    wake(pool);
}

void rp__pool_run(rp__pool *pool, rp__pool_fn fn, void *arg) {
    pool->fn = fn;
    pool->arg = arg;
    if (pool->n_threads > 1) begin_job(pool);
    fn(arg, 0, pool->n_threads);
    rp__pool_barrier(pool, 0, NULL);
}

int rp__pool_size(const rp__pool *pool) {
    return pool->n_threads;
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

/* Threads that can run at a time. */
static int count_cpus(void) {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    if (sched_getaffinity(0, sizeof allowed, &allowed)) return 1;
    return quota_cpus(CPU_COUNT(&allowed));
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

/* ---- making and ending one ---- */

static bool init_locks(rp__pool *pool) {
    if (pthread_mutex_init(&pool->mutex, NULL)) return false;
    if (pthread_cond_init(&pool->changed, NULL) == 0) return true;
    pthread_mutex_destroy(&pool->mutex);
    return false;
}

rp_status rp__pool_create(int n_threads, rp__pool **out, rp_error *err) {
    *out = NULL;
    size_t bytes = sizeof(rp__pool) + (size_t)n_threads * sizeof(worker_state);
    rp__pool *pool = rp__alloc_aligned(64, bytes);
    if (!pool)
        return rp__fail(err, RP_ENOMEM, "cpu: no memory for a pool of %d threads", n_threads);
    memset(pool, 0, bytes);
    pool->n_threads = n_threads;
    pool->offer_after_us = n_threads > count_cpus() ? 0 : PATIENT_US;
    if (!init_locks(pool)) {
        rp__free(pool);
        return rp__fail(err, RP_ENOMEM, "cpu: the system gave no locks for a pool");
    }
    for (int i = 1; i < n_threads; i++) {
        worker_state *w = &pool->workers[i];
        w->pool = pool, w->idx = i;
        if (pthread_create(&w->thread, NULL, worker_main, w)) {
            int n_had = pool->n_started + 1;
            rp__pool_destroy(pool);
            return rp__fail(err, RP_ENOMEM, "cpu: the system gave %d of %d threads", n_had,
                            n_threads);
        }
        pool->n_started++;
    }
    *out = pool;
    return RP_OK;
}

void rp__pool_destroy(rp__pool *pool) {
    if (!pool) return;
    atomic_store_explicit(&pool->is_closing, true, memory_order_release);
    begin_job(pool);
    for (int i = 1; i <= pool->n_started; i++) pthread_join(pool->workers[i].thread, NULL);
    pthread_cond_destroy(&pool->changed);
    pthread_mutex_destroy(&pool->mutex);
    rp__free(pool);
}
