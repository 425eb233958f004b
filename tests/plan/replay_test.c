/* The policy: what it chooses, what choosing costs, and that it never changes a bit. */
#include "plan/replay.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "device/emu/emu.h"
#include "plan/workload.h"
#include "test.h"

static const rp__segment *segment_of(const workload *w, int bucket) {
    return &w->tiny.stepper.programs[bucket].segments[0];
}

/* ---- the choice, on every shipped profile ---- */

/* The thread sanitizer is there for races, which a few steps show; thousands take minutes. */
#if defined(__SANITIZE_THREAD__)
enum { IS_TSAN = 1 };
#else
enum { IS_TSAN = 0 };
#endif

enum {
    MIXED_STEPS = 4000,
    EAGER_STEPS = IS_TSAN ? 60 : 600 /* enough to know what a step of each bucket costs */
};

static void assert_right_choices(const char *profile, const workload *off, const workload *on,
                                 const workload *automatic) {
    for (int b = 0; b < automatic->tiny.stepper.n_buckets; b++) {
        const rp__segment *s = segment_of(automatic, b);
        if (!off->n_by_bucket[b]) fail_msg("bucket %d was never used", b);
        if (!s->duel.is_decided) fail_msg("%s: bucket %d is not decided", profile, b);
        /* Every step of a bucket costs the same once captured, but for the rows that are read. */
        bool is_faster = on->last_us[b] < off->last_us[b];
        if (s->duel.winner != is_faster)
            fail_msg("%s: bucket %d: eager %g us, replay %g us, and the choice is %s (%g, %g)",
                     profile, b, off->last_us[b], on->last_us[b],
                     s->duel.winner ? "replay" : "eager", s->duel.decided_us[RP_EAGER],
                     s->duel.decided_us[RP_REPLAY]);
    }
}

/* Known afterwards: for each bucket, never to capture or to capture at once, whichever is less. */
static double best_total(const workload *off, const workload *on) {
    double best = 0;
    for (int b = 0; b < on->tiny.stepper.n_buckets; b++) {
        double eager =
            off->by_bucket_us[b] / (double)off->n_by_bucket[b] * (double)on->n_by_bucket[b];
        best += eager < on->by_bucket_us[b] ? eager : on->by_bucket_us[b];
    }
    return best;
}

static void judge(const char *profile, const workload *off, workload *on, workload *automatic) {
    if (rp__device_has_capture(on->tiny.device)) {
        workload_run(on, MIXED_STEPS - EAGER_STEPS);
        workload_run(automatic, MIXED_STEPS - EAGER_STEPS);
        assert_right_choices(profile, off, on, automatic);
    }
    double best = best_total(off, on);
    printf("%-18s replay %8.1f ms, auto %8.1f ms, best %8.1f ms (%+.2f%%), simulated\n", profile,
           on->total_us / 1e3, automatic->total_us / 1e3, best / 1e3,
           100 * (automatic->total_us / best - 1));
    assert_true(automatic->total_us <= 1.02 * best);
}

static void try_profile(const char *profile) {
    static workload off, on, automatic;
    char options[96];
    snprintf(options, sizeof options, "profile=%s", profile);
    workload_open(&off, "emu", options, RP_CAPTURE_OFF, 32);
    workload_open(&on, "emu", options, RP_CAPTURE_ON, 32);
    workload_open(&automatic, "emu", options, RP_CAPTURE_AUTO, 32);
    workload_run(&off, EAGER_STEPS);
    workload_run(&on, EAGER_STEPS);
    workload_run(&automatic, EAGER_STEPS);
    assert_true(off.bits == on.bits && off.bits == automatic.bits);
    if (!IS_TSAN) judge(profile, &off, &on, &automatic);
    workload_close(&off);
    workload_close(&on);
    workload_close(&automatic);
}

RP_TEST(replay, chooses_the_cheaper_on_every_profile) {
    RP_NEEDS_COUNTS();
    const char *profile;
    for (size_t i = 0; (profile = rp__emu_profile_at(i, NULL)); i++) try_profile(profile);
}

/* ---- T06: no cliff between batch sizes, and no way back that is missing ---- */

enum { T06_SEQS = 32, T06_SETTLE = 24 };

static double settled_us(workload *w, int32_t n_seqs) {
    for (int i = 0; i < T06_SETTLE; i++) workload_step(w, n_seqs, n_seqs);
    int b =
        rp__bucket_find(w->tiny.stepper.buckets, w->tiny.stepper.n_buckets, n_seqs, n_seqs, n_seqs);
    return w->last_us[b];
}

RP_TEST(replay, t06_throughput_has_no_cliff) {
    RP_NEEDS_COUNTS();
    static workload w;
    const char *profile;
    for (size_t i = 0; (profile = rp__emu_profile_at(i, NULL)); i++) {
        char options[96];
        snprintf(options, sizeof options, "profile=%s", profile);
        workload_open(&w, "emu", options, RP_CAPTURE_AUTO, 32);
        double before = 0, at_four = 0;
        for (int32_t n = 1; n <= T06_SEQS; n++) {
            double us = settled_us(&w, n), rate = n / us;
            if (rate < 0.9 * before)
                fail_msg("%s: %g tokens/s with %d sequences, %g with one fewer", profile,
                         1e6 * rate, (int)n, 1e6 * before);
            before = rate;
            if (n == 4) at_four = us;
        }
        /* The load is over: a step takes what it took, but for the rows that are read. */
        assert_true(settled_us(&w, 4) <= 1.01 * at_four);
        workload_close(&w);
    }
}

/* ---- switches and the store: never another bit ---- */

enum { LONG_STEPS = 10000, CAP = 4 };

static uint64_t live_heap(void) {
    rp__alloc_stats s = rp__alloc_get_stats();
    return s.n_allocs - s.n_frees;
}

/* The store is always full after a while, and each graph of these programs takes the same memory:
 * nothing may grow or shrink from then on. */
static void run_capped(const char *device, const char *options, int n_steps) {
    static workload off, capped;
    workload_open(&off, device, options, RP_CAPTURE_OFF, CAP);
    workload_run(&off, n_steps);
    uint64_t bits = off.bits;
    workload_close(&off);
    workload_open(&capped, device, options, RP_CAPTURE_ON, CAP);
    const rp__replayer *r = &capped.tiny.stepper.replay;
    workload_run(&capped, n_steps / 10);
    assert_int_equal(r->n_held, CAP);
    rp__device_stats before = rp__device_get_stats(capped.tiny.device), after;
    uint64_t heap = live_heap();
    for (int i = 1; i < 10; i++) {
        workload_run(&capped, n_steps / 10);
        after = rp__device_get_stats(capped.tiny.device);
        assert_int_equal(r->n_held, CAP);
        assert_int_equal(after.live_graphs, CAP);
        assert_int_equal(after.live_bytes, before.live_bytes);
        assert_int_equal(after.graph_bytes, before.graph_bytes);
        assert_int_equal(after.n_allocs, before.n_allocs);
        assert_int_equal(live_heap(), heap);
    }
    assert_true(capped.bits == bits);
    assert_true(r->stats.n_evicted > 0 && r->stats.n_recaptures > 0);
    /* More sizes than places: capturing must stay rare, and what is often used be replayed. */
    assert_true(r->stats.n_captures < (uint64_t)n_steps / 20);
    assert_true(r->stats.n_replays > (uint64_t)n_steps / 3);
    workload_close(&capped);
}

RP_TEST(replay, capped_store_keeps_memory_and_bits) {
    RP_NEEDS_COUNTS();
    run_capped("cpu", NULL, LONG_STEPS); /* lint-allow: cpu, a device that is always there */
    run_capped("emu", "reuse=always,fill=ff", LONG_STEPS / 10);
}

RP_TEST(replay, store_is_bounded_by_bytes) {
    RP_NEEDS_COUNTS();
    static workload w;
    workload_open(&w, "emu", NULL, RP_CAPTURE_ON, 32);
    rp__replayer *r = &w.tiny.stepper.replay;
    for (int i = 0; i < 3; i++) workload_step(&w, 1, 1);
    size_t one = rp__replayer_graph_bytes(r);
    assert_true(one > 0);
    r->config.max_graph_bytes = 2 * one;
    for (int i = 0; i < 20; i++)
        for (int32_t n = 1; n <= 8; n *= 2) workload_step(&w, n, n);
    assert_int_equal(r->n_held, 2);
    r->config.max_graph_bytes = one - 1; /* not even one */
    for (int i = 0; i < 200; i++) workload_step(&w, 40, 1);
    assert_int_equal(r->n_held, 0);
    assert_int_equal(segment_of(&w, w.tiny.stepper.n_buckets - 1)->refusal, RP_ELIMIT);
    workload_close(&w);
}

RP_TEST(replay, modes_change_at_run_time) {
    static workload off, other;
    static const rp_capture_mode modes[] = {RP_CAPTURE_OFF, RP_CAPTURE_AUTO, RP_CAPTURE_ON};
    workload_open(&off, "emu", "profile=discrete-gpu", RP_CAPTURE_OFF, 3);
    workload_open(&other, "emu", "profile=discrete-gpu", RP_CAPTURE_OFF, 3);
    uint64_t seed = 99;
    workload_run(&off, 400);
    for (int i = 0; i < 40; i++) {
        rp__replayer_set_mode(&other.tiny.stepper.replay, modes[rp_test_rand(&seed) % 3]);
        workload_run(&other, 10);
    }
    const rp__replay_stats *s = &off.tiny.stepper.replay.stats; /* T15 */
    assert_int_equal(s->n_captures + s->n_replays, 0);
    assert_int_equal(s->n_eager, 400);
    assert_int_equal(s->n_by_reason[RP_WHY_OFF], 400);
    s = &other.tiny.stepper.replay.stats;
    assert_true(s->n_replays > 50 && s->n_by_reason[RP_WHY_OFF] > 50);
    assert_true(off.bits == other.bits);
    workload_close(&off);
    workload_close(&other);
}

RP_TEST(replay, captured_at_start_is_never_captured_again) { /* T14 */
    RP_NEEDS_COUNTS();
    rp_error err = {0};
    static workload w, off;
    workload_open(&w, "emu", "profile=p150-hybrid", RP_CAPTURE_AUTO, 32);
    workload_open(&off, "emu", "profile=p150-hybrid", RP_CAPTURE_OFF, 32);
    assert_ok(rp__stepper_capture_all(&w.tiny.stepper, &err), err);
    rp__replay_stats *s = &w.tiny.stepper.replay.stats;
    assert_int_equal(s->n_captures, w.tiny.stepper.n_buckets);
    workload_run(&w, 300);
    workload_run(&off, 300);
    assert_int_equal(s->n_captures, w.tiny.stepper.n_buckets);
    assert_true(s->n_replays > 200);
    assert_true(w.bits == off.bits);
    workload_close(&w);
    workload_close(&off);
    workload_open(&w, "emu", NULL, RP_CAPTURE_ON, 3); /* a smaller store is filled, not churned */
    assert_ok(rp__stepper_capture_all(&w.tiny.stepper, &err), err);
    assert_int_equal(s->n_captures, 3);
    assert_int_equal(s->n_evicted, 0);
    workload_close(&w);
}

/* ---- one op on a device whose every run costs what the test says ---- */

static struct {
    double us, eager_us, replay_us, noise; /* noise 0.1: from 10% less to 10% more */
    uint64_t seed;
} fake;

static double noisy(double us) {
    return us * (1 + fake.noise * (double)rp_test_randf(&fake.seed));
}

static double fake_clock(void *self) {
    (void)self;
    return fake.us;
}

static rp_status fake_run(void *self, uint32_t queue, const rp_op *op, rp_error *err) {
    fake.us += noisy(fake.eager_us);
    return rp__emu_api.run(self, queue, op, err);
}

static rp_status fake_replay(void *self, uint32_t queue, void *graph, rp_error *err) {
    fake.us += noisy(fake.replay_us);
    return rp__emu_api.replay(self, queue, graph, err);
}

typedef struct one_op {
    rp_device_api api;
    rp_device *device;
    rp__program program;
    rp_buffer *arena, *inputs, *outputs;
    rp__replayer replay;
} one_op;

static void one_op_open(one_op *o, const char *options, bool is_pinned, uint64_t seed) {
    rp_error err = {0};
    rp_device_config config = {.bytes = sizeof config, .options = options};
    rp__bucket bucket = {RP_BUCKET_DECODE, 1, 1, 1};
    rp__replay_config policy = {.mode = RP_CAPTURE_AUTO, .max_graphs = 4};
    const int64_t one = 1;
    rp_op op = {.kind = RP_OP_ADVANCE, .label = "count", .p.advance.step = 1};
    *o = (one_op){.api = rp__emu_api};
    o->api.clock_us = fake_clock;
    o->api.run = fake_run;
    o->api.replay = fake_replay;
    fake.us = 0;
    fake.noise = 0;
    fake.seed = seed;
    assert_ok(rp__device_open_api(&o->api, &config, &o->device, &err), err);
    rp__program *p = &o->program;
    rp__program_init(p, o->device, &bucket);
    rp__slot x = rp__program_input(p, "x", RP_I32, 1, &one),
             y = rp__program_output(p, "y", RP_I32, 1, &one);
    rp__program_op(p, &op, 1, &x, 1, &y);
    assert_ok(rp__program_finish(p, &err), err);
    assert_ok(rp__buffer_create(o->device, "arena", 64, is_pinned, &o->arena, &err), err);
    assert_ok(rp__buffer_create(o->device, "in", 64, is_pinned, &o->inputs, &err), err);
    assert_ok(rp__buffer_create(o->device, "out", 64, is_pinned, &o->outputs, &err), err);
    const rp__side_memory memory[RP_N_SIDES] = {{o->arena, o->inputs, o->outputs}};
    assert_ok(rp__program_bind(p, memory, &err), err);
    assert_ok(rp__replayer_init(&o->replay, o->device, &policy, &err), err);
}

static void one_op_close(one_op *o) {
    rp_error err = {0};
    rp__replayer_clear(&o->replay);
    rp__program_clear(&o->program);
    assert_ok(rp__buffer_destroy(o->arena, &err), err);
    assert_ok(rp__buffer_destroy(o->inputs, &err), err);
    assert_ok(rp__buffer_destroy(o->outputs, &err), err);
    rp__device_close(o->device);
}

static void one_op_run(one_op *o, int n) {
    rp_error err = {0};
    int32_t x = 41, y = 0;
    for (int i = 0; i < n; i++) {
        rp_status st;
        do {
            assert_ok(rp__buffer_write(o->inputs, 0, &x, sizeof x, &err), err);
            assert_ok(st = rp__replayer_run(&o->replay, &o->program, 1, &err), err);
        } while (st == RP_AGAIN);
    }
    assert_ok(rp__buffer_read(o->outputs, 0, &y, sizeof y, &err), err);
    assert_int_equal(y, 42);
}

RP_TEST(replay, noise_does_not_make_it_flap) {
    RP_NEEDS_COUNTS();
    int n_changes = 0;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        one_op o;
        one_op_open(&o, NULL, true, seed);
        const rp__segment *s = &o.program.segments[0];
        fake.eager_us = fake.replay_us = 100;
        fake.noise = 0.1;
        one_op_run(&o, 40);
        assert_true(s->duel.is_decided);
        int first = s->duel.winner;
        int changes = 0;
        for (int i = 0; i < 80; i++) {
            one_op_run(&o, 250);
            changes += s->duel.winner != first;
            first = s->duel.winner;
        }
        assert_true(changes <= 1);
        n_changes += changes;
        assert_true(o.replay.stats.n_measurements <= 6); /* first, 1 k, 2 k, 4 k, 8 k, 16 k */
        one_op_close(&o);
    }
    assert_true(n_changes <= 2);
}

/* The machine changes: what was slower becomes faster, and is found out at the next look. */
RP_TEST(replay, a_clear_change_is_followed) {
    RP_NEEDS_COUNTS();
    one_op o;
    one_op_open(&o, NULL, true, 3);
    const rp__segment *s = &o.program.segments[0];
    fake.eager_us = 100;
    fake.replay_us = 150;
    fake.noise = 0.05;
    one_op_run(&o, 900);
    assert_true(s->duel.is_decided && !s->duel.winner);
    assert_int_equal(s->why, RP_WHY_EAGER_FASTER);
    fake.replay_us = 50;
    one_op_run(&o, 100);
    assert_false(s->duel.winner); /* not looked at yet */
    one_op_run(&o, 1000);
    assert_true(s->duel.winner);
    assert_int_equal(o.replay.stats.n_captures, 1);
    one_op_close(&o);
}

/* Measuring costs less than half a percent of the steps, however much slower the loser is. */
RP_TEST(replay, measuring_is_rare) {
    RP_NEEDS_COUNTS();
    one_op o;
    one_op_open(&o, NULL, true, 4);
    fake.eager_us = 1000;
    fake.replay_us = 10;
    one_op_run(&o, 20000);
    const rp__replay_stats *s = &o.replay.stats;
    assert_int_equal(s->n_measurements, 1);
    assert_true(s->n_eager <= 4); /* two warm, the second of which is measured, one more measured */
    assert_int_equal(s->n_captures, 1);
    one_op_close(&o);
}

static void assert_stays_eager(const char *options, bool is_pinned, rp_status refusal) {
    one_op o;
    one_op_open(&o, options, is_pinned, 5);
    fake.eager_us = 100;
    fake.replay_us = 1;
    one_op_run(&o, 3000);
    const rp__segment *s = &o.program.segments[0];
    assert_int_equal(s->refusal, refusal);
    assert_int_equal(s->why, RP_WHY_REFUSED);
    assert_int_equal(o.replay.stats.n_refused, 1);
    assert_int_equal(o.replay.stats.n_captures, 0);
    assert_true(o.replay.stats.n_by_reason[RP_WHY_REFUSED] >= 2990);
    rp__bytes text = {0};
    assert_true(rp__program_explain(&o.program, true, &text));
    assert_non_null(strstr(text.p, "its capture was refused"));
    assert_non_null(strstr(text.p, rp_status_text(refusal)));
    rp__bytes_clear(&text);
    one_op_close(&o);
}

RP_TEST(replay, refused_capture_stays_eager_with_its_reason) {
    assert_stays_eager(NULL, false, RP_ECAPTURE_TRANSIENT);
    assert_stays_eager("record=run", false, RP_ECAPTURE_TRANSIENT);
    assert_stays_eager("graph_region=64", true, RP_ENOMEM); /* no graph is that small */
    assert_stays_eager("launch_fail_at=3", true, RP_EDEVICE);
}

RP_TEST(replay, report_measures_any_mode) {
    rp_error err = {0};
    one_op o;
    rp__replay_report report;
    double samples[45];
    one_op_open(&o, NULL, true, 6);
    fake.eager_us = 100;
    fake.replay_us = 40;
    rp__replayer_set_mode(&o.replay, RP_CAPTURE_OFF);
    assert_ok(rp__replayer_measure(&o.replay, &o.program, 15, samples, &report, &err), err);
    assert_true(report.eager_us == 100 && report.replay_us == 40 && report.is_replay_faster);
    assert_true(report.ratio.low == 2.5 && report.ratio.median == 2.5 && report.ratio.high == 2.5);
    assert_int_equal(report.why, RP_WHY_REPLAY_FASTER);
    assert_true(report.graph_bytes > 0);
    one_op_close(&o);
    one_op_open(&o, "capture=0", true, 6);
    assert_ok(rp__replayer_measure(&o.replay, &o.program, 15, samples, &report, &err), err);
    assert_true(report.eager_us == 100 && report.replay_us == 0 && !report.is_replay_faster);
    assert_int_equal(report.why, RP_WHY_NO_CAPTURE);
    one_op_close(&o);
}

/* ---- a store that is too small ---- */

/* Steps of two sizes in turns with a place for one graph: each capture would push the other's graph
 * out. That costs little more than never capturing. */
RP_TEST(replay, a_fight_over_one_place_ends) {
    RP_NEEDS_COUNTS();
    static workload off, one;
    workload_open(&off, "emu", "profile=p150-hybrid", RP_CAPTURE_OFF, 1);
    workload_open(&one, "emu", "profile=p150-hybrid", RP_CAPTURE_AUTO, 1);
    for (int i = 0; i < 600; i++) {
        workload_step(&off, 1, 1);
        workload_step(&off, 2, 2);
        workload_step(&one, 1, 1);
        workload_step(&one, 2, 2);
    }
    printf("two sizes, one place: %.3f of eager, simulated\n", one.total_us / off.total_us);
    assert_true(one.total_us < 1.02 * off.total_us);
    assert_true(off.bits == one.bits);
    workload_close(&off);
    workload_close(&one);
}

/* The mixed workload with fewer places than sizes: what is used most keeps its graph. */
RP_TEST(replay, a_small_store_still_gains) {
    RP_NEEDS_COUNTS();
    enum { FEW_STEPS = 600 };
    static workload off, some;
    workload_open(&off, "emu", "profile=p150-hybrid", RP_CAPTURE_OFF, CAP);
    workload_open(&some, "emu", "profile=p150-hybrid", RP_CAPTURE_AUTO, CAP);
    workload_run(&off, FEW_STEPS);
    workload_run(&some, FEW_STEPS);
    printf("nine sizes, four places: %.3f of eager, simulated\n", some.total_us / off.total_us);
    assert_true(some.total_us < 0.9 * off.total_us);
    workload_close(&off);
    workload_close(&some);
}
