/* A duel: two ways of running the same thing take turns, and the faster one is found from pairs of
 * times: two pairs when they agree clearly, up to seven otherwise. What is looked at is the ratio
 * within each pair: a machine that changes its speed changes both halves of most pairs alike.
 * Fought again, it changes its mind only for a gain that every pair shows. Used for eager against
 * replay (replay.c) and for one placement against another (choice.c). Pure functions over the
 * struct; no clock. */
#ifndef RP_PLAN_DUEL_H
#define RP_PLAN_DUEL_H

#include <stdbool.h>
#include <stdint.h>

enum { RP_DUEL_PAIRS = 7 };

typedef struct rp__duel {
    double us[RP_DUEL_PAIRS][2];
    uint32_t n_pairs, n_uneven;
    bool has_half; /* the first step of a pair is done */
    double half_us;
    int32_t half_live;

    bool is_decided;
    int winner;           /* 0 or 1 */
    double decided_us[2]; /* medians the decision was made from */
} rp__duel;

/* The way whose turn it is. Which one comes first alternates, so that a machine that gets slower
 * favours neither. */
int rp__duel_turn(const rp__duel *d);

/* Notes the time of a step of the way whose turn it was. n_live > 0: the step had so many live
 * tokens, and the device's time grows with them: times are taken per token, and steps of a pair
 * should be of about the same size. True when this decided. */
bool rp__duel_add(rp__duel *d, double us, int32_t n_live);

/* Decides from medians found elsewhere. */
void rp__duel_settle(rp__duel *d, double us_0, double us_1, int winner);

/* Forgets an unfinished measurement; the decision stays. */
void rp__duel_restart(rp__duel *d);

/* So many steps of the winner make up for measuring once more: what the slower steps of a
 * measurement waste is then a small share. */
uint64_t rp__duel_steps_between(const rp__duel *d);

double rp__duel_median(double *values, uint32_t n); /* sorts them */

/* The middle one of the pairs' us_0[i] / us_1[i], and the borders of the middle half of them. */
typedef struct rp__duel_ratio {
    double low, median, high;
} rp__duel_ratio;

/* `scratch` has room for n; the times stay as they are. n >= 1. */
rp__duel_ratio rp__duel_compare(const double *us_0, const double *us_1, uint32_t n,
                                double *scratch);

#endif
