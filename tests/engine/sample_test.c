/* The sampler against distributions worked out by hand. */
#include "engine/sample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/stop.h"
#include "test.h"

static rp_sampling plain(float temperature) {
    return (rp_sampling){.temperature = temperature, .top_p = 1, .repetition_penalty = 1};
}

/* Draws 10,000 times and checks Pearson's chi-square against the wanted probabilities (0: never
 * drawn). 13.8: the 0.1 % point with two degrees of freedom, an upper bound for fewer. */
static void check_distribution(const float *logits, int n, rp_sampling p, const double *want) {
    rp__sampler s;
    rp_error err = {0};
    assert_ok(rp__sampler_init(&s, n, &err), err);
    enum { DRAWS = 10000 };
    int counts[8] = {0};
    for (int i = 0; i < DRAWS; i++) {
        p.seed = (uint64_t)i;
        int32_t history[1] = {0};
        counts[rp__sampler_choose(&s, logits, &p, history, 1, 1)]++;
    }
    double chi = 0;
    for (int i = 0; i < n; i++) {
        if (want[i] == 0)
            assert_int_equal(counts[i], 0);
        else
            chi += pow(counts[i] - want[i] * DRAWS, 2) / (want[i] * DRAWS);
    }
    if (!(chi < 13.8)) fail_msg("chi-square %g", chi);
    rp__sampler_clear(&s);
}

static const float log_721[4] = {-0.35667494f, -1.60943791f, -2.30258509f,
                                 -INFINITY}; /* ln 0.7, 0.2, 0.1, 0 */

RP_TEST(sample, distributions_by_hand) {
    const double all[] = {0.7, 0.2, 0.1, 0}, two[] = {7.0 / 9, 2.0 / 9, 0, 0}, one[] = {1, 0, 0, 0};
    rp_sampling p = plain(1);
    check_distribution(log_721, 4, p, all);
    p.top_k = 2;
    check_distribution(log_721, 4, p, two);
    p = plain(1), p.top_p = 0.75f; /* 0.7 < 0.75: the second is needed, the third is not */
    check_distribution(log_721, 4, p, two);
    p.top_p = 0.65f;
    check_distribution(log_721, 4, p, one);
    p = plain(1), p.min_p = 0.2f; /* 0.2 / 0.7 stays, 0.1 / 0.7 goes */
    check_distribution(log_721, 4, p, two);
    p = plain(2); /* square roots: 0.8367, 0.4472, 0.3162 */
    const double warm[] = {0.522887, 0.279495, 0.197618, 0};
    check_distribution(log_721, 4, p, warm);
    p = plain(1);
    rp_logit_bias bias[] = {
        {0, -100}, {2, 0.69314718f}}; /* removes the first, doubles the third: 0.2 and 0.2 */
    p.logit_bias = bias, p.n_logit_bias = 2;
    const double biased[] = {0, 0.5, 0.5, 0};
    check_distribution(log_721, 4, p, biased);
}

RP_TEST(sample, penalties_by_hand) {
    rp__sampler s;
    rp_error err = {0};
    assert_ok(rp__sampler_init(&s, 4, &err), err);
    const float logits[4] = {2, 1.5f, 1, -1};
    const int32_t history[] = {2, 0, 0, 1};
    rp_sampling p = plain(0);
    assert_int_equal(rp__sampler_choose(&s, logits, &p, history, 4, 1), 0);
    p.presence_penalty = 0.6f; /* 1.4, 0.9, 1 (the prompt does not count), -1 */
    assert_int_equal(rp__sampler_choose(&s, logits, &p, history, 4, 1), 0);
    p.frequency_penalty = 0.25f; /* 2 - 0.6 - 0.5 = 0.9, 1.5 - 0.85 = 0.65, 1 */
    assert_int_equal(rp__sampler_choose(&s, logits, &p, history, 4, 1), 2);
    p = plain(0), p.repetition_penalty = 1.9f, p.penalty_last_n = 3; /* 1.05, 0.79, 1, -1 */
    assert_int_equal(rp__sampler_choose(&s, logits, &p, history, 4, 1), 0);
    p.penalty_last_n = -1; /* the prompt's 2 too: 0.53 */
    assert_int_equal(rp__sampler_choose(&s, logits, &p, history, 4, 1), 0);
    p.repetition_penalty = 4; /* 0.5, 0.375, 0.25, and -1 untouched */
    assert_int_equal(rp__sampler_choose(&s, logits, &p, history, 4, 1), 0);
    for (int i = 0; i < 4; i++) assert_int_equal(s.counts[i], 0);
    rp__sampler_clear(&s);
}

RP_TEST(sample, logprobs_are_the_models_own) {
    rp__sampler s;
    rp_error err = {0};
    assert_ok(rp__sampler_init(&s, 4, &err), err);
    rp_top_logprob top[4];
    float lp = rp__sampler_logprobs(&s, log_721, 1, top, 4);
    assert_true(fabsf(lp + 1.60943791f) < 1e-6f);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(top[i].id, i);
        assert_true(fabsf(top[i].logprob - log_721[i]) < 1e-6f);
    }
    assert_true(isinf(top[3].logprob));
    rp__sampler_clear(&s);
}

/* Philox 4x32-10's published known answers (Random123): counter 0, key 0 gives 6627e8d5 e169c58d
 * ... */
RP_TEST(sample, philox_known_answer) {
    uint64_t bits = (uint64_t)0x6627e8d5u << 32 | 0xe169c58du;
    assert_true(rp__random_uniform(0, 0) == (double)(bits >> 11) * 0x1p-53);
}

RP_TEST(sample, ties_and_broken_rows) {
    rp__sampler s;
    rp_error err = {0};
    assert_ok(rp__sampler_init(&s, 4, &err), err);
    const float ties[4] = {1, 3, 3, 0}, nan[4] = {NAN, NAN, 5, 6}, broken[4] = {NAN, NAN, NAN, NAN};
    int32_t h[1] = {0};
    rp_sampling p = plain(0);
    assert_int_equal(rp__sampler_choose(&s, ties, &p, h, 1, 1), 1);
    assert_int_equal(rp__sampler_choose(&s, nan, &p, h, 1, 1), 3);
    p.temperature = 1, p.top_k = 1;
    assert_int_equal(rp__sampler_choose(&s, ties, &p, h, 1, 1), 1);
    assert_int_equal(rp__sampler_choose(&s, nan, &p, h, 1, 1), 3);
    assert_in_range(rp__sampler_choose(&s, broken, &p, h, 1, 1), 0, 3);
    rp__sampler_clear(&s);
}

/* ---- a large vocabulary against sorting all of it ---- */

enum { LARGE = 5000 };

static const float *sorted_by;

static int by_logit(const void *a, const void *b) {
    int32_t i = *(const int32_t *)a, j = *(const int32_t *)b;
    if (sorted_by[i] != sorted_by[j]) return sorted_by[i] < sorted_by[j] ? 1 : -1;
    return i < j ? -1 : 1;
}

/* As the settings are defined, in double: order, top-k, top-p, min-p, draw. Without a cut tokens
 * are drawn in the order of their ids. */
static int32_t choose_plainly(const float *v, const rp_sampling *p) {
    int32_t order[LARGE];
    double w[LARGE], all = 0, kept = 0, sum = 0, u = rp__random_uniform(p->seed, 0);
    float top = -INFINITY;
    int n = LARGE, n_kept = 0, limit = p->top_k > 0 && p->top_k < LARGE ? p->top_k : LARGE;
    for (int i = 0; i < n; i++) order[i] = i, top = v[i] > top ? v[i] : top;
    sorted_by = v;
    if (limit < n || p->top_p < 1 || p->min_p > 0) qsort(order, LARGE, sizeof *order, by_logit);
    for (int i = 0; i < n; i++)
        w[i] = exp(((double)v[order[i]] - (double)top) / (double)p->temperature);
    for (int i = 0; i < limit; i++) all += w[i];
    while (n_kept < limit && (!n_kept || p->top_p == 1 || kept < (double)p->top_p * all) &&
           w[n_kept] >= (double)p->min_p)
        kept += w[n_kept++];
    for (int i = 0; i < n_kept; i++)
        if ((sum += w[i]) > u * kept) return order[i];
    return order[n_kept - 1];
}

RP_TEST(sample, a_large_vocabulary_as_if_it_were_sorted) {
    static float v[LARGE];
    rp__sampler s;
    rp_error err = {0};
    assert_ok(rp__sampler_init(&s, LARGE, &err), err);
    for (int i = 0; i < LARGE; i++) /* steps of 1/64: many ties */
        v[i] = floorf((float)(rp__random_uniform(1, (uint64_t)i) * 12 * 64)) / 64;
    const rp_sampling settings[] = {
        {.temperature = 1, .top_p = 1},
        {.temperature = 0.7f, .top_p = 1, .top_k = 40},
        {.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f},
        {.temperature = 1, .top_p = 0.9f},
        {.temperature = 2, .top_p = 1, .min_p = 0.1f},
        {.temperature = 1.5f, .top_p = 0.5f, .top_k = 3000},
        {.temperature = 1e-40f, .top_p = 1},
    };
    const int32_t history[1] = {0};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        for (uint64_t seed = 0; seed < 40; seed++) {
            rp_sampling p = settings[i];
            p.seed = seed, p.repetition_penalty = 1;
            assert_int_equal(rp__sampler_choose(&s, v, &p, history, 1, 1), choose_plainly(v, &p));
        }
    rp__sampler_clear(&s);
}

/* ---- stop strings (T36) ---- */

static void check_stop(const char *const *tokens, int n_tokens, const char *const *stops,
                       int n_stops, const char *want, int want_hit) {
    rp__str list[4];
    for (int i = 0; i < n_stops; i++) list[i] = rp__str_of(stops[i]);
    rp__stops s = {.strings = list, .n = (size_t)n_stops};
    rp__bytes out = {0};
    int hit = -1;
    for (int i = 0; i < n_tokens && hit < 0; i++)
        hit = rp__stops_add(&s, rp__str_of(tokens[i]), &out);
    if (hit < 0) hit = rp__stops_finish(&s, &out);
    assert_int_equal(hit, want_hit);
    assert_string_equal(out.p ? out.p : "", want);
    rp__bytes_clear(&out);
    rp__stops_clear(&s);
}

RP_TEST(stop, held_back_exactly) {
    static const char *const t[] = {"ABC", "DE", "FG", "HI", "J K"};
    check_stop(t, 5, (const char *[]){"DEFGHIJ"}, 1, "ABC", 0);
    check_stop(t, 5, (const char *[]){"DEX"}, 1, "ABCDEFGHIJ K", -1);
    check_stop(t, 5, (const char *[]){"FG", "EFGH"}, 2, "ABCD", 1);
    check_stop(t, 5, (const char *[]){"C"}, 1, "AB", 0);
    check_stop(t, 5, (const char *[]){"IJ K!"}, 1, "ABCDEFGHIJ K", -1);
    check_stop(t, 3, (const char *[]){"FG", "EFGH"}, 2, "ABCDE", 0); /* the longer one never came */
    check_stop(t, 5, NULL, 0, "ABCDEFGHIJ K", -1);
    static const char *const u[] = {"a\xC3", "\xA9", "b"};
    check_stop(u, 3, (const char *[]){"\xC3\xA9"}, 1, "a", 0);
}
