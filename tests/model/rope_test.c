/* RoPE scalings against numbers worked out by hand in double precision. */
#include <math.h>

#include "model/hparams.h"
#include "test.h"

static rp__rope_params plain(double theta, int64_t n_rot) {
    return (rp__rope_params){.theta = theta,
                             .n_rot = n_rot,
                             .factor = 1,
                             .original_ctx = 8192,
                             .attn_factor = 1,
                             .low_freq = 1,
                             .high_freq = 4,
                             .beta_fast = 32,
                             .beta_slow = 1,
                             .truncate = true};
}

static void assert_near(double got, double want, double within) {
    if (!(fabs(got - want) <= within)) fail_msg("%.9g, wanted %.9g", got, want);
}

/* T55: base 500000, dimension 128, factor 8, low 1, high 4, original 8192. */
RP_TEST(rope, llama3_bands) {
    rp__rope_params p = plain(500000, 128);
    double base[64], scaled[64];
    rp__rope_frequencies(&p, base);
    p.scaling = RP_ROPE_LLAMA3;
    p.factor = 8;
    rp__rope_frequencies(&p, scaled);
    static const struct {
        int i;
        double ratio;
    } rows[] = {{0, 1},         {28, 1},     {29, 0.828168}, {30, 0.643743},
                {34, 0.190211}, {35, 0.125}, {63, 0.125}};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        assert_near(scaled[rows[r].i] / base[rows[r].i], rows[r].ratio, 1e-6);
}

/* T56: 0.1 ln(s) + 1. */
RP_TEST(rope, yarn_attention_factor) {
    static const struct {
        double scale, factor;
    } rows[] = {{1, 1}, {0.5, 1}, {2, 1.069315}, {4, 1.138629}, {8, 1.207944}, {64, 1.415888}};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        assert_near(rp__rope_mscale(rows[r].scale, 1), rows[r].factor, 1e-6);
}

/* theta 10000 over 64 dimensions, factor 4, original 4096, beta 32 and 1: the correction dimensions
 * are 64 ln(4096 / (32 * 2 pi)) / (2 ln 10000) = 10.47 and 64 ln(4096 / (2 pi)) / (2 ln 10000)
 * = 22.51, so pairs up to 10 keep their frequency, pairs from 23 on have a quarter of it, and pair
 * 16 lies 6/13 of the way: 1 - 0.75 * 6/13. */
RP_TEST(rope, yarn_ramp) {
    rp__rope_params p = plain(10000, 64);
    double base[32], scaled[32];
    rp__rope_frequencies(&p, base);
    p.scaling = RP_ROPE_YARN;
    p.factor = 4;
    p.original_ctx = 4096;
    p.attn_factor = 1.138629;
    assert_near(rp__rope_frequencies(&p, scaled), 1.138629, 0);
    assert_near(scaled[10] / base[10], 1, 1e-12);
    assert_near(scaled[16] / base[16], 1 - 0.75 * 6 / 13, 1e-12);
    assert_near(scaled[23] / base[23], 0.25, 1e-12);
    assert_near(scaled[31] / base[31], 0.25, 1e-12);
}

RP_TEST(rope, linear_and_divisors) {
    rp__rope_params p = plain(10000, 4);
    double f[2];
    rp__rope_frequencies(&p, f);
    assert_near(f[0], 1, 0);
    assert_near(f[1], 0.01, 1e-15);
    p.scaling = RP_ROPE_LINEAR;
    p.factor = 4;
    rp__rope_frequencies(&p, f);
    assert_near(f[1], 0.0025, 1e-15);
    const float divisors[2] = {1, 8};
    p = plain(10000, 4);
    p.freq_divisors = divisors;
    rp__rope_frequencies(&p, f);
    assert_near(f[1], 0.00125, 1e-15);
}

RP_TEST(rope, table_is_cosines_then_sines) {
    const double f[2] = {1, 0.5};
    float t[2 * 4];
    rp__rope_table(f, 4, 2.0, 3, 2, t); /* positions 3 and 4, factor 2 */
    const double want[8] = {2 * cos(3), 2 * cos(1.5), 2 * sin(3), 2 * sin(1.5),
                            2 * cos(4), 2 * cos(2),   2 * sin(4), 2 * sin(2)};
    for (int i = 0; i < 8; i++) assert_true(t[i] == (float)want[i]);
}
