/* Which of two placements runs, on the virtual clock. */
#include <stdio.h>

#include "plan/choice.h"
#include "plan/workload.h"
#include "test.h"

#define P150_RULES "norm:rows<32=host rope:rows<64=host"

static void open_auto(workload *w, rp_capture_mode mode, int max_graphs) {
    rp_tiny_config c = workload_config("emu", "profile=p150-hybrid", mode, max_graphs);
    c.hybrid = P150_RULES;
    workload_open_config(w, &c);
}

static void decode(workload *w, int n_steps) {
    for (int i = 0; i < n_steps; i++) workload_step(w, 1, 1);
}

/* Whole steps can be captured: nothing is on the host until it is measured that nothing should be.
 */
RP_TEST(choice, host_free_replay_beats_hybrid_at_one_token) {
    RP_NEEDS_COUNTS();
    static workload w, off;
    open_auto(&w, RP_CAPTURE_AUTO, 32);
    workload_open(&off, "emu", "profile=p150-hybrid", RP_CAPTURE_OFF, 32);
    const rp__choice *c = &w.tiny.stepper.choices[0];
    decode(&w, 100);
    assert_int_equal(c->way, 0);
    assert_int_equal(c->why, RP_CHOICE_CAPTURED);
    decode(&w, 900);
    assert_int_equal(c->way, 0);
    assert_int_equal(c->why, RP_CHOICE_FASTER);
    const rp__duel *d = &c->cases[0].duel;
    assert_true(d->is_decided && d->decided_us[0] < d->decided_us[1]);
    assert_int_equal(c->ways[1]->n_graphs, 0); /* the loser's graphs are gone */
    assert_in_range(c->n_by_reason[1][RP_CHOICE_TRIED], 5, 40);
    decode(&off, 1000);
    assert_true(w.bits == off.bits);
    workload_close(&w);
    workload_close(&off);
}

/* Op by op the device's rules hold. */
RP_TEST(choice, hybrid_wins_without_capture) {
    static workload w;
    open_auto(&w, RP_CAPTURE_OFF, 32);
    const rp__choice *c = &w.tiny.stepper.choices[0];
    decode(&w, 100);
    assert_int_equal(c->way, 1);
    assert_int_equal(c->why, RP_CHOICE_BY_OP);
    decode(&w, 900);
    assert_int_equal(c->way, 1);
    assert_int_equal(c->why, RP_CHOICE_FASTER);
    assert_true(c->cases[1].duel.decided_us[1] < c->cases[1].duel.decided_us[0]);
    /* Switched at run time: other times hold. */
    rp__replayer_set_mode(&w.tiny.stepper.replay, RP_CAPTURE_ON);
    decode(&w, 10);
    assert_int_equal(c->way, 0);
    assert_int_equal(c->why, RP_CHOICE_CAPTURED);
    workload_close(&w);
}

/* A store with one place cannot hold the graphs of both. */
RP_TEST(choice, no_room_for_both_leaves_the_first) {
    static workload w;
    open_auto(&w, RP_CAPTURE_AUTO, 1);
    const rp__choice *c = &w.tiny.stepper.choices[0];
    decode(&w, 1200);
    assert_int_equal(c->way, 0);
    assert_int_equal(c->why, RP_CHOICE_NO_ROOM);
    workload_close(&w);
}

/* All sizes, mixed: the same bits as on the device alone, and hardly more time than never trying.
 */
RP_TEST(choice, mixed_steps_keep_bits_and_time) {
    static workload w, free_of_host;
    enum { STEPS = RP_TEST_IS_INSTRUMENTED ? 1000 : 4000 };
    open_auto(&w, RP_CAPTURE_AUTO, 32);
    workload_open(&free_of_host, "emu", "profile=p150-hybrid", RP_CAPTURE_AUTO, 32);
    workload_run(&w, STEPS);
    workload_run(&free_of_host, STEPS);
    assert_true(w.bits == free_of_host.bits);
    print_message("choosing costs %+.2f%%, simulated\n",
                  100 * (w.total_us / free_of_host.total_us - 1));
    assert_true(w.total_us < 1.02 * free_of_host.total_us);
    workload_close(&w);
    workload_close(&free_of_host);
}

RP_TEST(choice, measured_on_demand) {
    static workload w;
    rp_error err = {0};
    double samples[9];
    open_auto(&w, RP_CAPTURE_AUTO, 32);
    rp__stepper *s = &w.tiny.stepper;
    for (int b = 0; b < s->n_buckets; b++) {
        rp__replay_report r[2];
        s->batch.n_tokens = s->batch.n_seqs = s->batch.n_rows = 0; /* padding only */
        assert_ok(rp__stepper_measure(s, b, 3, samples, r, &err), err);
        if (!s->choices[b].ways[1]) continue;
        assert_true(r[0].replay_us < r[1].eager_us && r[1].replay_us < r[1].eager_us);
        assert_true(r[0].eager_us > r[1].eager_us && r[0].replay_us < r[1].replay_us);
        assert_ptr_equal(rp__choice_next(&s->choices[b], &s->replay), s->choices[b].ways[0]);
    }
    workload_close(&w);
}
