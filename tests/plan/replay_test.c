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

enum {
    MIXED_STEPS = 4000,
    EAGER_STEPS = 600 /* enough to know what a step of each bucket costs */
};

static void assert_right_choices(const char *profile, const workload *off, const workload *on,
                                 const workload *automatic) {
    for (int b = 0; b < automatic->tiny.stepper.n_buckets; b++) {
        const rp__segment *s = segment_of(automatic, b);
        if (!off->n_by_bucket[b]) fail_msg("bucket %d was never used", b);
        if (!s->is_decided) fail_msg("%s: bucket %d is not decided", profile, b);
        /* Every step of a bucket costs the same once captured, but for the rows that are read. */
        bool is_faster = on->last_us[b] < off->last_us[b];
        if (s->is_replay_faster != is_faster)
            fail_msg("%s: bucket %d: eager %g us, replay %g us, and the choice is %s (%g, %g)",
                     profile, b, off->last_us[b], on->last_us[b],
                     s->is_replay_faster ? "replay" : "eager", s->decided_eager_us,
                     s->decided_replay_us);
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
    if (rp__device_has_capture(on.tiny.device)) {
        workload_run(&on, MIXED_STEPS - EAGER_STEPS);
        workload_run(&automatic, MIXED_STEPS - EAGER_STEPS);
        assert_right_choices(profile, &off, &on, &automatic);
    }
    double best = best_total(&off, &on);
    printf("%-18s replay %8.1f ms, auto %8.1f ms, best %8.1f ms (%+.2f%%), simulated\n", profile,
           on.total_us / 1e3, automatic.total_us / 1e3, best / 1e3,
           100 * (automatic.total_us / best - 1));
    assert_true(automatic.total_us <= 1.02 * best);
    workload_close(&off);
    workload_close(&on);
    workload_close(&automatic);
}

RP_TEST(replay, chooses_the_cheaper_on_every_profile) {
    const char *profile;
    for (size_t i = 0; (profile = rp__emu_profile_at(i, NULL)); i++) try_profile(profile);
}
