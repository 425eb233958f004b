/* Which of two placements of a bucket's program runs: everything on the device, or what the
 * device's rules say on the host. The only copy of this decision.
 *
 * Until it is measured, the placement without host ops runs where steps can be captured (one graph
 * has the whole step), and the other one where they cannot (the rules are about ops that run one by
 * one). After some hundred steps of a bucket the other placement is tried: it is run until its
 * replay decisions stand, then both take turns until the faster is known (duel.h). That is looked
 * at again after ever longer stretches. The loser's graphs are destroyed.
 *
 * Without capture other times hold, so the two cases are decided apart. Times are those of the
 * device's clock. Threads: the device's one. */
#ifndef RP_PLAN_CHOICE_H
#define RP_PLAN_CHOICE_H

#include "plan/replay.h"

/* X(code, text) */
#define RP_CHOICE_WHYS(X)                                                                          \
    X(RP_CHOICE_ONLY, "there is no other")                                                         \
    X(RP_CHOICE_CAPTURED, "not measured yet: whole steps can be captured")                         \
    X(RP_CHOICE_BY_OP, "not measured yet: steps run op by op")                                     \
    X(RP_CHOICE_TRIED, "placements are being measured")                                            \
    X(RP_CHOICE_FASTER, "measured to be faster")                                                   \
    X(RP_CHOICE_NO_ROOM, "the other one never came to rest")

typedef enum rp__choice_why {
#define RP_X(code, text) code,
    RP_CHOICE_WHYS(RP_X)
#undef RP_X
        RP_N_CHOICE_WHYS
} rp__choice_why;

const char *rp__choice_why_text(rp__choice_why why); /* static */

/* The decision with capture, or without. */
typedef struct rp__choice_case {
    rp__duel duel;
    bool is_trying, is_measuring;
    bool gave_up;
    uint32_t n_tried; /* steps of the other way in this trial */
    uint64_t n_runs, look_at;
} rp__choice_case;

typedef struct rp__choice {
    rp__program *ways[2];     /* without rules, with rules; [1] NULL: they are the same */
    rp__choice_case cases[2]; /* captured, not captured */
    rp__choice_why why;       /* of the last step */
    int way;                  /* of the last step */
    uint64_t n_by_reason[2][RP_N_CHOICE_WHYS]; /* steps */
} rp__choice;

/* The program that the next step takes: asked for before every step; the same until one was run. */
rp__program *rp__choice_next(rp__choice *c, rp__replayer *r);

/* Runs that one, and notes what that taught. Returns as rp__replayer_run. */
rp_status rp__choice_run(rp__choice *c, rp__replayer *r, int32_t n_live, rp_error *err);

/* Both programs, and which one steps take now and why. false when out of memory. */
bool rp__choice_explain(const rp__choice *c, const rp__replayer *r, bool all_ops, rp__bytes *out);

/* Decides from times found elsewhere: of each way with capture, the better of eager and replay. */
void rp__choice_settle(rp__choice *c, rp__replayer *r, double us_0, double us_1);

#endif
