/* The worker pool: every worker runs every job once, sees what came before, and barriers hold. */
#include "test.h"

#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "device/cpu/pool.h"

enum { MOST = 5 };

typedef struct tally {
    long plain[MOST]; /* one per worker: not atomic on purpose, the pool orders them */
    long input, sum;
    rp__pool *pool;
    int n_bad;
} tally;

static void add_one(void *arg, int worker, int n_workers) {
    tally *t = arg;
    if (n_workers > MOST) t->n_bad = 1;
    t->plain[worker] += t->input;
}

RP_TEST(cpu_pool, ten_thousand_jobs_run_once_on_every_worker) {
    rp_error err = {0};
    for (int n = 1; n <= MOST; n++) {
        tally t = {0};
        assert_ok(rp__pool_create(n, &t.pool, &err), err);
        assert_int_equal(rp__pool_size(t.pool), n);
        int n_jobs =
            n <= 2 ? 10000 : 500; /* more threads than cores: each job waits for the scheduler */
        long want = 0;
        for (int i = 0; i < n_jobs; i++) {
            t.input = i;
            want += i;
            rp__pool_run(t.pool, add_one, &t);
        }
        for (int w = 0; w < n; w++) assert_int_equal(t.plain[w], want);
        rp__pool_destroy(t.pool);
    }
}

/* After the barrier each worker reads what its neighbour wrote before it. */
static void pass_round(void *arg, int worker, int n_workers) {
    tally *t = arg;
    long seen = 0;
    for (int round = 1; round <= 50; round++) {
        t->plain[worker] = round * 100 + worker;
        rp__pool_barrier(t->pool, worker, NULL);
        int next = (worker + 1) % n_workers;
        seen += t->plain[next] != round * 100 + next;
        rp__pool_barrier(t->pool, worker, NULL);
    }
    if (seen) t->n_bad = 1;
}

RP_TEST(cpu_pool, nobody_passes_a_barrier_early) {
    rp_error err = {0};
    for (int n = 2; n <= 4; n++) {
        tally t = {0};
        assert_ok(rp__pool_create(n, &t.pool, &err), err);
        for (int i = 0; i < 20; i++) rp__pool_run(t.pool, pass_round, &t);
        assert_int_equal(t.n_bad, 0);
        rp__pool_destroy(t.pool);
    }
}

RP_TEST(cpu_pool, out_of_memory_is_a_status) {
    rp_error err = {0};
    rp__pool *pool = NULL;
    rp__alloc_fail_at(1, false);
    assert_int_equal(rp__pool_create(2, &pool, &err), RP_ENOMEM);
    rp__alloc_fail_at(0, false);
    assert_null(pool);
    assert_message(err, "2 threads");
}

RP_TEST(cpu_pool, default_size_is_at_least_one) {
    assert_true(rp__pool_default_size() >= 1);
}
