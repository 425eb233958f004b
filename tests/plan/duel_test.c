/* Who wins a duel, by sums done by hand. */
#include "plan/duel.h"

#include "test.h"

/* Fights one pair; whose turn comes first alternates. True when it decided. */
static bool fight(rp__duel *d, double us_0, double us_1) {
    const double us[] = {us_0, us_1};
    rp__duel_add(d, us[rp__duel_turn(d)], 0);
    return rp__duel_add(d, us[rp__duel_turn(d)], 0);
}

RP_TEST(duel, a_ratio_is_that_of_the_middle_pair) {
    const double us_0[] = {10, 30, 44, 20, 9}, us_1[] = {10, 20, 40, 10, 10}; /* 1 1.5 1.1 2 .9 */
    double scratch[5];
    rp__duel_ratio r = rp__duel_compare(us_0, us_1, 5, scratch);
    assert_float_equal(r.low, 1, 1e-12);
    assert_float_equal(r.median, 1.1, 1e-12);
    assert_float_equal(r.high, 1.5, 1e-12);
    assert_float_equal(us_0[2], 44, 0);
}

/* Half of the time the machine runs at half speed, and once it changes between the halves of a
 * pair: the medians of the times are 100 and 190, and the second way is the faster one. */
RP_TEST(duel, a_machine_that_changes_its_speed_misleads_nobody) {
    rp__duel d = {0};
    for (int i = 0; i < 3; i++) assert_false(fight(&d, 100, 95));
    assert_false(fight(&d, 100, 190));
    for (int i = 0; i < 2; i++) assert_false(fight(&d, 200, 190));
    assert_true(fight(&d, 200, 190));
    assert_true(d.is_decided);
    assert_int_equal(d.winner, 1);
    assert_float_equal(d.decided_us[0], 100, 0);
    assert_float_equal(d.decided_us[1], 190, 0);
}

RP_TEST(duel, a_clear_gain_takes_two_pairs_and_a_draw_goes_to_the_second) {
    rp__duel d = {0};
    assert_false(fight(&d, 10, 100));
    assert_true(fight(&d, 10, 100));
    assert_int_equal(d.winner, 0);
    d = (rp__duel){0};
    for (int i = 0; i < RP_DUEL_PAIRS; i++) fight(&d, 50, 50);
    assert_true(d.is_decided);
    assert_int_equal(d.winner, 1);
}
