#define _GNU_SOURCE
#include "device/cpu/limits.h"

#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/fail.h"
#include "device/cpu/isa.h"
#include "device/cpu/pool.h"

/* The best of so many rounds: the one that nobody disturbed. */
enum { ROUNDS = 7 };

typedef struct limits {
    rp_device_limit_fn on_row;
    void *user;
    rp_error *err;
} limits;

static rp_status report(const limits *l, const char *what, const char *how, int n_threads,
                        double per_second) {
    const rp_device_limit row = {what, how, n_threads, per_second};
    if (l->on_row(l->user, &row)) return rp__fail(l->err, RP_ECANCELLED, "measuring was stopped");
    return RP_OK;
}

/* `amount` per second of the fastest round. */
static double best_rate(rp__pool *pool, rp__pool_fn fn, void *arg, double amount) {
    double best = 0;
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t start = rp__clock_ns();
        rp__pool_run(pool, fn, arg);
        double rate = amount / ((double)(rp__clock_ns() - start) * 1e-9);
        if (rate > best) best = rate;
    }
    return best;
}

/* ---- arithmetic ---- */

typedef struct peak_job {
    uint64_t (*peak)(int64_t rounds);
    int64_t n_rounds;
    uint64_t n_ops; /* of one worker */
} peak_job;

static void peak_share(void *arg, int worker, int n_workers) {
    peak_job *j = arg;
    (void)n_workers;
    uint64_t n = j->peak(j->n_rounds);
    if (worker == 0) j->n_ops = n;
}

static rp_status measure_peaks(const limits *l, const rp__body_set *set, rp__pool *pool) {
    static const char *const names[RP__N_PEAKS] = {"f32", "bf16", "int8"};
    for (int kind = 0; kind < RP__N_PEAKS; kind++) {
        peak_job j = {.peak = set->peak[kind], .n_rounds = 400000};
        if (!j.peak) continue;
        rp__pool_run(pool, peak_share, &j);
        double n = (double)j.n_ops * rp__pool_size(pool);
        RP_TRY(report(l, names[kind], set->name, rp__pool_size(pool),
                      best_rate(pool, peak_share, &j, n)));
    }
    return RP_OK;
}

/* ---- memory ---- */

typedef struct read_job {
    void (*read)(const void *p, size_t n);
    char *memory;
    size_t bytes;
} read_job;

static size_t share_of(const read_job *j, int worker, int n_workers, char **from) {
    size_t each = j->bytes / (size_t)n_workers & ~(size_t)4095;
    *from = j->memory + each * (size_t)worker;
    return each;
}

static void read_share(void *arg, int worker, int n_workers) {
    const read_job *j = arg;
    char *from;
    size_t n = share_of(j, worker, n_workers, &from);
    j->read(from, n);
}

/* First touched by the worker that will read it. */
static void fill_share(void *arg, int worker, int n_workers) {
    const read_job *j = arg;
    char *from;
    size_t n = share_of(j, worker, n_workers, &from);
    memset(from, 1, n);
}

static rp_status measure_reads(const limits *l, const rp__body_set *set, rp__pool *pool,
                               size_t bytes, bool is_huge) {
    read_job j = {.read = set->read, .bytes = bytes};
    j.memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (j.memory == MAP_FAILED)
        return rp__fail(l->err, RP_ENOMEM, "cpu: no memory for %zu bytes to read", bytes);
    madvise(j.memory, bytes, is_huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE); /* a hint */
    rp__pool_run(pool, fill_share, &j);
    double rate = best_rate(pool, read_share, &j, (double)bytes);
    munmap(j.memory, bytes);
    return report(l, "read", is_huge ? "huge pages" : "4K pages", rp__pool_size(pool), rate);
}

/* ---- all of it ---- */

static rp_status measure_with(const limits *l, const rp__body_set *best, rp__pool *pool,
                              size_t read_bytes) {
    const rp__body_set *set;
    RP_TRY(measure_reads(l, best, pool, read_bytes, false));
    RP_TRY(measure_reads(l, best, pool, read_bytes, true));
    for (int i = 0; (set = rp__body_at(i)); i++)
        if (set->is_available() && set->read) RP_TRY(measure_peaks(l, set, pool));
    return RP_OK;
}

/* 1, 2, 4, ... threads and all. */
rp_status rp__cpu_limits(int n_threads, size_t read_bytes, rp_device_limit_fn on_row, void *user,
                         rp_error *err) {
    limits l = {on_row, user, err};
    const rp__body_set *best;
    RP_TRY(rp__body_choose(NULL, &best, err));
    for (int n = 1;; n = n * 2 < n_threads ? n * 2 : n_threads) {
        rp__pool *pool;
        RP_TRY(rp__pool_create(n, &pool, err));
        rp_status status = measure_with(&l, best, pool, read_bytes);
        rp__pool_destroy(pool);
        if (status < 0 || n == n_threads) return status;
    }
}
