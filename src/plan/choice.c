#include "plan/choice.h"

#include "base/fail.h"

enum {
    FIRST_LOOK = 768, /* steps until the other placement is tried; capturing its many segments costs
                       * as much as a dozen of steps */
    MAX_TRIED = 64,   /* steps in which it must have come to rest */
};

const char *rp__choice_why_text(rp__choice_why why) {
    static const char *const texts[] = {
#define RP_X(code, text) text,
        RP_CHOICE_WHYS(RP_X)
#undef RP_X
    };
    return (unsigned)why < RP_N_CHOICE_WHYS ? texts[why] : "?";
}

static bool can_capture(const rp__replayer *r) {
    return r->config.mode != RP_CAPTURE_OFF && rp__device_has_capture(r->device);
}

static int case_of(const rp__replayer *r) {
    return can_capture(r) ? 0 : 1;
}

/* The way that runs when nothing is tried. */
static int standing_way(const rp__choice_case *k, const rp__replayer *r) {
    return k->duel.is_decided ? k->duel.winner : can_capture(r) ? 0 : 1;
}

static int next_way(const rp__choice *c, const rp__replayer *r) {
    const rp__choice_case *k = &c->cases[case_of(r)];
    if (!c->ways[1]) return 0;
    if (k->is_measuring) return rp__duel_turn(&k->duel);
    return k->is_trying ? !standing_way(k, r) : standing_way(k, r);
}

static rp__choice_why why_now(const rp__choice *c, const rp__replayer *r) {
    const rp__choice_case *k = &c->cases[case_of(r)];
    if (!c->ways[1]) return RP_CHOICE_ONLY;
    if (k->is_trying) return RP_CHOICE_TRIED;
    if (k->duel.is_decided) return RP_CHOICE_FASTER;
    if (k->gave_up) return RP_CHOICE_NO_ROOM;
    return can_capture(r) ? RP_CHOICE_CAPTURED : RP_CHOICE_BY_OP;
}

/* ---- learning ---- */

static void end_trial(rp__choice *c, rp__choice_case *k, rp__replayer *r) {
    uint64_t wait = k->n_runs, earned = k->duel.is_decided ? rp__duel_steps_between(&k->duel) : 0;
    if (wait < FIRST_LOOK) wait = FIRST_LOOK;
    if (wait < earned) wait = earned;
    k->look_at = k->n_runs + wait;
    k->is_trying = k->is_measuring = false;
    rp__duel_restart(&k->duel);
    rp__replayer_drop(r, c->ways[!standing_way(k, r)]);
}

static void give_up(rp__choice *c, rp__choice_case *k, rp__replayer *r) {
    k->gave_up = true;
    end_trial(c, k, r);
}

/* Goes on from one step to the next: run, try, measure. */
static void advance(rp__choice *c, rp__choice_case *k, rp__replayer *r) {
    if (!k->look_at) k->look_at = FIRST_LOOK;
    k->n_runs++;
    int way = standing_way(k, r);
    if (!k->is_trying) {
        k->is_trying = k->n_runs >= k->look_at && rp__replayer_is_settled(r, c->ways[way]);
        k->n_tried = 0;
        return;
    }
    if (rp__replayer_is_settled(r, c->ways[!way])) {
        k->is_measuring = true;
    } else if (++k->n_tried == MAX_TRIED) {
        give_up(c, k, r);
    }
}

static rp_status run_timed(rp__choice *c, rp__choice_case *k, rp__replayer *r, rp__program *p,
                           int32_t n_live, rp_error *err) {
    RP_TRY(rp__device_sync(r->device, err));
    double start = rp__device_clock_us(r->device);
    rp_status st = rp__replayer_run(r, p, n_live, err);
    if (st != RP_OK) return st;
    RP_TRY(rp__device_sync(r->device, err));
    double us = rp__device_clock_us(r->device) - start;
    bool is_per_token = rp__device_props(r->device)->has_live_rows;
    k->n_runs++;
    if (rp__duel_add(&k->duel, us, is_per_token ? n_live : 0)) end_trial(c, k, r);
    return RP_OK;
}

/* A store without room for the graphs of both would have one of them measured without. */
static void check_trial(rp__choice *c, rp__choice_case *k, rp__replayer *r) {
    if (!k->is_measuring || rp__replayer_is_settled(r, c->ways[rp__duel_turn(&k->duel)])) return;
    give_up(c, k, r);
}

rp__program *rp__choice_next(rp__choice *c, rp__replayer *r) {
    check_trial(c, &c->cases[case_of(r)], r);
    return c->ways[next_way(c, r)];
}

rp_status rp__choice_run(rp__choice *c, rp__replayer *r, int32_t n_live, rp_error *err) {
    rp__choice_case *k = &c->cases[case_of(r)];
    int way = next_way(c, r);
    rp__choice_why why = why_now(c, r);
    bool is_timed = k->is_measuring;
    rp_status st = is_timed ? run_timed(c, k, r, c->ways[way], n_live, err)
                            : rp__replayer_run(r, c->ways[way], n_live, err);
    if (st != RP_OK) return st;
    c->way = way;
    c->why = why;
    c->n_by_reason[way][why]++;
    if (c->ways[1] && !is_timed) advance(c, k, r);
    return RP_OK;
}

void rp__choice_settle(rp__choice *c, rp__replayer *r, double us_0, double us_1) {
    rp__choice_case *k = &c->cases[0];
    if (!c->ways[1]) return;
    rp__duel_settle(&k->duel, us_0, us_1, us_1 < us_0);
    end_trial(c, k, r);
}

bool rp__choice_explain(const rp__choice *c, const rp__replayer *r, bool all_ops, rp__bytes *out) {
    const rp__duel *d = &c->cases[case_of(r)].duel;
    char name[64];
    if (!c->ways[1]) return rp__program_explain(c->ways[0], all_ops, out);
    const rp__program *p = c->ways[next_way(c, r)];
    rp__bytes_printf(out, "\n%s takes %s: %s", rp__bucket_text(&p->bucket, name, sizeof name),
                     p->placement->name, rp__choice_why_text(why_now(c, r)));
    if (d->is_decided)
        rp__bytes_printf(out, " (%s %.1f us, %s %.1f us)", c->ways[0]->placement->name,
                         d->decided_us[0], c->ways[1]->placement->name, d->decided_us[1]);
    return rp__bytes_add_char(out, '\n') && rp__program_explain(c->ways[0], all_ops, out) &&
           rp__program_explain(c->ways[1], all_ops, out);
}
