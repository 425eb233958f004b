#include "plan/duel.h"

#include <stdlib.h>

enum {
    CLEAR_PAIRS = 2,         /* so many pairs decide when each shows a gain of CLEAR_PERCENT, */
    CLEAR_PERCENT = 50,      /* far beyond the noise of a busy machine; */
    LESS_CLEAR_PERCENT = 20, /* twice as many when each shows this */
    SWITCH_PERCENT = 3,      /* a decision changes only for more than this, in every pair */
    MEASURE_SHARE = 200,     /* measuring may cost one part in so many of the steps between */
    UNEVEN_SHARE = 8,        /* steps of a pair may differ by this part of their live tokens */
    MAX_UNEVEN = 32,         /* pairs thrown away for that, then any pair counts */
};

int rp__duel_turn(const rp__duel *d) {
    return (int)((d->n_pairs + d->has_half) % 2);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double rp__duel_median(double *v, uint32_t n) {
    qsort(v, n, sizeof *v, by_value);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

rp__duel_ratio rp__duel_compare(const double *us_0, const double *us_1, uint32_t n,
                                double *scratch) {
    for (uint32_t i = 0; i < n; i++) scratch[i] = us_0[i] / us_1[i];
    double median = rp__duel_median(scratch, n);
    uint32_t quarter = (n - 1) / 4;
    return (rp__duel_ratio){scratch[quarter], median, scratch[n - 1 - quarter]};
}

/* Whether every pair shows this way to gain more than `percent` of the other. */
static bool all_show(const rp__duel *d, int way, int percent) {
    for (uint32_t i = 0; i < d->n_pairs; i++)
        if (d->us[i][way] >= d->us[i][!way] * (1 - percent / 100.0)) return false;
    return true;
}

static bool all_agree(const rp__duel *d, int percent) {
    return all_show(d, 0, percent) || all_show(d, 1, percent);
}

static bool is_clear(const rp__duel *d) {
    return (d->n_pairs >= CLEAR_PAIRS && all_agree(d, CLEAR_PERCENT)) ||
           (d->n_pairs >= 2 * CLEAR_PAIRS && all_agree(d, LESS_CLEAR_PERCENT));
}

void rp__duel_restart(rp__duel *d) {
    d->n_pairs = d->n_uneven = 0;
    d->has_half = false;
}

void rp__duel_settle(rp__duel *d, double us_0, double us_1, int winner) {
    rp__duel_restart(d);
    d->is_decided = true;
    d->winner = winner;
    d->decided_us[0] = us_0;
    d->decided_us[1] = us_1;
}

/* On a draw the second way wins. */
static void decide(rp__duel *d) {
    double us[2], column[2][RP_DUEL_PAIRS], scratch[RP_DUEL_PAIRS];
    for (int way = 0; way < 2; way++)
        for (uint32_t i = 0; i < d->n_pairs; i++) column[way][i] = d->us[i][way];
    int winner = rp__duel_compare(column[0], column[1], d->n_pairs, scratch).median >= 1;
    for (int way = 0; way < 2; way++) us[way] = rp__duel_median(column[way], d->n_pairs);
    if (d->is_decided) winner = all_show(d, !d->winner, SWITCH_PERCENT) ? !d->winner : d->winner;
    rp__duel_settle(d, us[0], us[1], winner);
}

static bool is_uneven(const rp__duel *d, int32_t n_live) {
    int64_t more = n_live > d->half_live ? n_live : d->half_live, apart = n_live - d->half_live;
    return (apart < 0 ? -apart : apart) * UNEVEN_SHARE > more;
}

bool rp__duel_add(rp__duel *d, double us, int32_t n_live) {
    int way = rp__duel_turn(d);
    if (n_live > 0) us /= n_live;
    d->has_half = !d->has_half;
    if (d->has_half) {
        d->half_us = us;
        d->half_live = n_live;
        return false;
    }
    if (n_live > 0 && is_uneven(d, n_live) && d->n_uneven++ < MAX_UNEVEN) return false;
    d->us[d->n_pairs][way] = us;
    d->us[d->n_pairs++][!way] = d->half_us;
    if (!is_clear(d) && d->n_pairs < RP_DUEL_PAIRS) return false;
    decide(d);
    return true;
}

uint64_t rp__duel_steps_between(const rp__duel *d) {
    double fast = d->decided_us[d->winner], slow = d->decided_us[!d->winner];
    if (fast > slow) { /* a decision that hysteresis kept */
        double other = fast;
        fast = slow;
        slow = other;
    }
    double wasted = fast > 0 ? RP_DUEL_PAIRS * (slow / fast - 1) * MEASURE_SHARE : 0;
    return (uint64_t)wasted;
}
