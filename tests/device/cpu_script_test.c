/* The thread script: barriers stand exactly where data needs them, and a script with any number of
 * workers gives what running its ops one after another gives. */
#include "test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "device/cpu/script.h"
#include "tensor/view.h"

enum { ROWS = 32, COLS = 1024, REGION = ROWS * COLS }; /* large enough to be split */

typedef struct bench {
    float *data;
    rp_buffer buf;
    rp__script *script;
    rp__pool *pool;
    rp__scratch scratch;
} bench;

static bench bench_open(int n_regions, int n_workers) {
    rp_error err = {0};
    bench b = {.data = calloc((size_t)n_regions * REGION, sizeof(float))};
    b.buf = (rp_buffer){.handle = b.data, .bytes = (size_t)n_regions * REGION * sizeof(float)};
    b.scratch.n_workers = n_workers;
    assert_ok(rp__script_create(&rp__body_reference, &b.script, &err), err);
    assert_ok(rp__pool_create(n_workers, &b.pool, &err), err);
    return b;
}

static void bench_close(bench *b) {
    rp__script_destroy(b->script);
    rp__pool_destroy(b->pool);
    rp__scratch_clear(&b->scratch);
    free(b->data);
}

static rp_tensor region(bench *b, int i, int64_t rows) {
    return rp__tensor_make(&b->buf, (size_t)i * REGION * sizeof(float), RP_F32, 2,
                           (int64_t[]){rows, COLS});
}

/* region y = region x + region z */
static void say_add(bench *b, int x, int z, int y, int64_t rows) {
    rp_error err = {0};
    rp_op op = {.kind = RP_OP_ADD, .n_in = 2, .n_out = 1};
    op.in[0] = region(b, x, rows), op.in[1] = region(b, z, rows), op.out[0] = region(b, y, rows);
    assert_ok(rp__script_add(b->script, &op, &err), err);
}

static void compile(bench *b) {
    rp_error err = {0};
    assert_ok(rp__script_compile(b->script, rp__pool_size(b->pool), &err), err);
    assert_true(rp__scratch_reserve(&b->scratch, rp__script_scratch(b->script), 0));
}

static size_t barriers(bench *b) {
    compile(b);
    return rp__script_barriers(b->script);
}

RP_TEST(cpu_script, a_barrier_only_where_data_needs_one) {
    bench b = bench_open(8, 2);
    bench *x = &b;
    say_add(x, 0, 1, 2, ROWS);
    say_add(x, 0, 1, 3, ROWS); /* reads what the first read: none */
    assert_int_equal(barriers(x), 0);
    say_add(x, 2, 3, 4, ROWS); /* read after write: one */
    assert_int_equal(barriers(x), 1);
    say_add(x, 0, 1, 5, ROWS); /* independent of the third: none */
    assert_int_equal(barriers(x), 1);
    say_add(x, 6, 6, 2, ROWS); /* write after read of region 2: one */
    assert_int_equal(barriers(x), 2);
    say_add(x, 7, 7, 2, ROWS); /* write after write */
    assert_int_equal(barriers(x), 3);
    bench_close(x);
}

RP_TEST(cpu_script, small_ops_stay_on_one_worker_without_barriers) {
    bench b = bench_open(4, 2);
    for (int i = 0; i < 5; i++) say_add(&b, 0, 1, 1, 1);
    assert_int_equal(barriers(&b), 0);
    say_add(&b, 1, 1, 2, ROWS); /* all read what worker 0 wrote, alone as in place */
    assert_int_equal(barriers(&b), 1);
    say_add(&b, 2, 2, 3, 1); /* worker 0 reads what all wrote */
    assert_int_equal(barriers(&b), 2);
    bench_close(&b);
}

RP_TEST(cpu_script, small_ops_between_large_ones_are_run_by_all) {
    bench b = bench_open(8, 3);
    say_add(&b, 0, 0, 1, ROWS);
    say_add(&b, 1, 1, 2, 1); /* reads what all wrote: a barrier, then each for itself */
    say_add(&b, 2, 2, 3, 1); /* reads copies */
    say_add(&b, 0, 3, 4, 1);
    assert_int_equal(barriers(&b), 1);
    rp_error err = {0};
    rp_op op = {.kind = RP_OP_ADD, .n_in = 2, .n_out = 1};
    op.in[0] = region(&b, 0, ROWS), op.out[0] = region(&b, 5, ROWS);
    op.in[1] = rp__tensor_make(&b.buf, 4 * REGION * sizeof(float), RP_F32, 1, (int64_t[]){COLS});
    assert_ok(rp__script_add(b.script, &op, &err), err);
    assert_int_equal(barriers(&b), 1); /* a split op reads copies too */
    say_add(&b, 4, 4, 4, 1);           /* in place: worker 0 alone, on what it alone reads */
    assert_int_equal(barriers(&b), 1);
    say_add(&b, 4, 5, 6, 1); /* a copy of what 4 was is no use: a barrier */
    assert_int_equal(barriers(&b), 2);
    for (int i = 0; i < 8 * REGION; i++) b.data[i] = 0;
    for (int i = 0; i < REGION; i++) b.data[i] = (float)i;
    rp__script_run(b.script, b.pool, &b.scratch);
    for (int i = 0; i < REGION; i++) {
        float in_4 = (float)(9 * (i % COLS)); /* i + 8 i: of the first row */
        assert_true(b.data[5 * REGION + i] == (float)i + in_4);
        if (i < COLS) assert_true(b.data[6 * REGION + i] == 2 * in_4 + (float)i + in_4);
    }
    bench_close(&b);
}

RP_TEST(cpu_script, one_worker_needs_no_barriers) {
    bench b = bench_open(3, 1);
    say_add(&b, 0, 1, 2, ROWS);
    say_add(&b, 2, 2, 1, ROWS);
    assert_int_equal(barriers(&b), 0);
    bench_close(&b);
}

/* Random ops over few regions, so that every kind of hazard is common; run serially by plain loops
 * here, and as a script replayed several times. */
static void random_script(uint64_t seed, int n_workers) {
    enum { N_REGIONS = 6, N_OPS = 24 };
    bench b = bench_open(N_REGIONS, n_workers);
    size_t n = (size_t)N_REGIONS * REGION;
    float *want = malloc(n * sizeof *want), *start = malloc(n * sizeof *start);
    int ops[N_OPS][4];
    for (size_t i = 0; i < n; i++) start[i] = (float)(rp_test_rand(&seed) % 1000);
    memcpy(want, start, n * sizeof *want);
    for (int o = 0; o < N_OPS; o++) {
        for (int i = 0; i < 3; i++) ops[o][i] = (int)(rp_test_rand(&seed) % N_REGIONS);
        ops[o][3] = rp_test_rand(&seed) % 3 ? ROWS : 1 + (int)(rp_test_rand(&seed) % 8);
        say_add(&b, ops[o][0], ops[o][1], ops[o][2], ops[o][3]);
    }
    for (int replay = 0; replay < 3; replay++)
        for (int o = 0; o < N_OPS; o++)
            for (int64_t i = 0; i < (int64_t)ops[o][3] * COLS; i++) {
                float v = want[ops[o][0] * REGION + i] + want[ops[o][1] * REGION + i];
                want[ops[o][2] * REGION + i] = v;
            }
    memcpy(b.data, start, n * sizeof *start);
    compile(&b);
    for (int replay = 0; replay < 3; replay++) rp__script_run(b.script, b.pool, &b.scratch);
    for (size_t i = 0; i < n; i++)
        if (b.data[i] != want[i])
            fail_msg("seed %llu, %d workers, element %zu: %g, serially %g",
                     (unsigned long long)seed, n_workers, i, (double)b.data[i], (double)want[i]);
    free(want), free(start);
    bench_close(&b);
}

RP_TEST(cpu_script, random_scripts_equal_serial_execution) {
    for (uint64_t seed = 1; seed <= 24; seed++)
        for (int n = 1; n <= 4; n++) random_script(seed * 977, n);
}

/* ---- long ops: parts that workers take as they come ---- */

enum { MOST_UNITS = 1024 };

static struct {
    atomic_int n_done[MOST_UNITS], n_all, n_units;
    atomic_bool has_begun, was_helped;
    bool is_slow; /* another thread than the first does one part, after all the others */
    pthread_t first;
} parts;

static bool comes_true(atomic_int *n, int least) {
    for (int i = 0; i < 20000 && atomic_load(n) < least; i++) usleep(1000);
    return atomic_load(n) >= least;
}

/* The first thread begins when the slow one has a part; that one ends when all others are done. */
static void be_slow(const rp__body_args *a) {
    if (pthread_equal(pthread_self(), parts.first)) {
        for (int i = 0; i < 20000 && !atomic_load(&parts.has_begun); i++) usleep(1000);
    } else {
        atomic_store(&parts.has_begun, true);
        if (comes_true(&parts.n_all, a->of - (a->to - a->from)))
            atomic_store(&parts.was_helped, true);
    }
}

static void count_part(const rp__body_args *a) {
    if (parts.is_slow) be_slow(a);
    for (int i = a->from; i < a->to; i++) atomic_fetch_add(&parts.n_done[i % MOST_UNITS], 1);
    atomic_fetch_add(&parts.n_all, a->to - a->from);
    atomic_store(&parts.n_units, a->of);
}

static void run_parts(int n_workers, int n_steps, int n_runs) {
    static const rp__body_set counting = {.name = "counting", .fn = {[RP_OP_MATMUL] = count_part}};
    rp_error err = {0};
    rp_op op = {.kind = RP_OP_MATMUL, .n_in = 2, .n_out = 1};
    bench b = bench_open(2, n_workers);
    op.in[0] = op.in[1] = op.out[0] =
        rp__tensor_make(&b.buf, 0, RP_F32, 2, (int64_t[]){256, 256}); /* nobody looks at them */
    rp__script_destroy(b.script);
    assert_ok(rp__script_create(&counting, &b.script, &err), err);
    for (int i = 0; i < n_steps; i++) assert_ok(rp__script_add(b.script, &op, &err), err);
    assert_ok(rp__script_compile(b.script, n_workers, &err), err);
    for (int i = 0; i < n_runs; i++) rp__script_run(b.script, b.pool, &b.scratch);
    bench_close(&b);
}

RP_TEST(cpu_script, every_part_of_a_long_op_is_run_once) {
    for (int n = 2; n <= 11; n++) {
        memset(&parts, 0, sizeof parts);
        run_parts(n, 2, 20);
        assert_true(parts.n_units > n);
        for (int i = 0; i < parts.n_units; i++) assert_int_equal(parts.n_done[i], 2 * 20);
    }
}

RP_TEST(cpu_script, parts_of_a_slow_worker_are_taken_by_others) {
    memset(&parts, 0, sizeof parts);
    parts.is_slow = true;
    parts.first = pthread_self();
    run_parts(2, 1, 1);
    assert_true(parts.was_helped);
    assert_int_equal(parts.n_all, parts.n_units);
}

RP_TEST(cpu_script, replay_allocates_nothing_and_reads_live_rows_then) {
    bench b = bench_open(3, 2);
    rp_error err = {0};
    int32_t live = ROWS;
    rp_buffer live_buf = {.handle = &live, .bytes = sizeof live};
    rp_op op = {.kind = RP_OP_ADD, .n_in = 2, .n_out = 1};
    op.in[0] = region(&b, 0, ROWS), op.in[1] = region(&b, 1, ROWS), op.out[0] = region(&b, 2, ROWS);
    op.live = rp__tensor_make(&live_buf, 0, RP_I32, 1, (int64_t[]){1});
    assert_ok(rp__script_add(b.script, &op, &err), err);
    assert_ok(rp__script_compile(b.script, 2, &err), err);
    for (int i = 0; i < 2 * REGION; i++) b.data[i] = 1;
    rp__alloc_stats before = rp__alloc_get_stats();
    for (live = 0; live <= ROWS; live += 5) {
        memset(b.data + 2 * REGION, 0, REGION * sizeof(float));
        rp__script_run(b.script, b.pool, &b.scratch);
        for (int r = 0; r < ROWS; r++)
            assert_true(b.data[2 * REGION + r * COLS] == (r < live ? 2.0f : 0.0f));
    }
    live = -3; /* no rows rather than a crash */
    rp__script_run(b.script, b.pool, &b.scratch);
    assert_int_equal(rp__alloc_get_stats().n_allocs, before.n_allocs);
    assert_true(rp__script_bytes(b.script) > 0);
    bench_close(&b);
}
