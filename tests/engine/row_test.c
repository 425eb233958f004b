/* Passes over rows of logits against the C library, one value after the other. */
#include "engine/row.h"

#include <float.h>
#include <math.h>

#include "test.h"

enum { MOST = 3 * RP__ROW_CHUNK + 5 };

/* Logits from -12 to 12, some of them equal. */
static void fill(float *v, int n) {
    uint32_t state = 7;
    for (int i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        v[i] = (float)(int)(state >> 24) / 10.0f - 12.0f;
    }
}

RP_TEST(row, tops_and_the_first_largest) {
    float v[MOST], top[4];
    fill(v, MOST);
    for (int n = 1; n <= MOST; n++) {
        int best = 0;
        for (int i = 0; i < n; i++)
            if (v[i] > v[best]) best = i;
        assert_int_equal(rp__row_argmax(v, n), best);
        assert_true(rp__row_tops(v, n, top) == v[best]);
        assert_true(top[best / RP__ROW_CHUNK] == v[best]);
        assert_int_equal(rp__row_chunks(n), (n + 63) / 64);
    }
    v[70] = v[130] = 99, v[3] = v[69] = NAN, v[5] = -INFINITY;
    assert_int_equal(rp__row_argmax(v, MOST), 70);
    for (int i = 0; i < MOST; i++) v[i] = i == 100 ? -INFINITY : NAN;
    assert_int_equal(rp__row_argmax(v, MOST), 100);
    assert_true(rp__row_tops(v, MOST, top) == -INFINITY);
}

RP_TEST(row, weights_are_exponentials) {
    float x[MOST], w[RP__ROW_CHUNK];
    for (int i = 0; i < 4000; i++) {
        float v = -87.0f * (float)i / 4000.0f;
        rp__row_weights(&v, 1, 0, 1, w);
        double want = exp((double)v);
        if (!(fabs((double)w[0] - want) <= 3e-7 * want))
            fail_msg("exp(%g) is %g", (double)v, (double)w[0]);
    }
    const float odd[] = {0, -87.5f, -INFINITY, NAN, -FLT_MAX};
    rp__row_weights(odd, 5, 0, 1, w);
    assert_true(w[0] == 1);
    for (int i = 1; i < 5; i++) assert_true(w[i] == 0);
    rp__row_weights(odd, 3, 0, FLT_MAX, w); /* as cold as can be */
    assert_true(w[0] == 1 && w[1] == 0 && w[2] == 0);
    fill(x, MOST);
    x[17] = NAN;
    for (int n = 1; n <= MOST; n += 7) {
        double sums[4], all = rp__row_sum(x, n, 13, 0.5f, sums), want = 0, chunks = 0;
        for (int i = 0; i < n; i++)
            if (i != 17) want += exp(((double)x[i] - 13) / 2);
        for (int i = 0; i < rp__row_chunks(n); i++) chunks += sums[i];
        assert_true(fabs(all - want) <= 1e-6 * want);
        assert_true(chunks == all);
    }
}
