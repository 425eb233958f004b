#include "engine/row.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

enum { LANES = 4, STEPS = RP__ROW_CHUNK / LANES };

typedef float lanes __attribute__((vector_size(4 * LANES)));
typedef int32_t ints __attribute__((vector_size(4 * LANES)));

INLINE lanes load(const float *p) {
    lanes v;
    memcpy(&v, p, sizeof v);
    return v;
}

INLINE lanes all(float f) {
    return (lanes){f, f, f, f};
}

/* Of lanes where `mask` is 0, zero. */
INLINE lanes keep(ints mask, lanes v) {
    return (lanes)((ints)v & mask);
}

INLINE lanes pick(ints mask, lanes yes, lanes no) {
    return (lanes)(((ints)yes & mask) | ((ints)no & ~mask));
}

int32_t rp__row_chunks(int32_t n) {
    return n / RP__ROW_CHUNK + (n % RP__ROW_CHUNK != 0);
}

/* ---- the largest ---- */

INLINE float chunk_top(const float *v) {
    lanes top = all(-INFINITY);
    for (int i = 0; i < STEPS; i++) {
        lanes x = load(v + i * LANES);
        top = pick(x > top, x, top);
    }
    float best = -INFINITY;
    for (int i = 0; i < LANES; i++) best = top[i] > best ? top[i] : best;
    return best;
}

static float short_top(const float *v, int32_t n) {
    float best = -INFINITY;
    for (int32_t i = 0; i < n; i++) best = v[i] > best ? v[i] : best;
    return best;
}

static float top_of(const float *v, int32_t n) {
    return n >= RP__ROW_CHUNK ? chunk_top(v) : short_top(v, n);
}

float rp__row_tops(const float *v, int32_t n, float *top) {
    float best = -INFINITY;
    for (int32_t i = 0; i < n; i += RP__ROW_CHUNK) {
        float t = top_of(v + i, n - i);
        best = t > best ? t : best;
        *top++ = t;
    }
    return best;
}

static int32_t find(const float *v, int32_t n, float what) {
    for (int32_t i = 0; i < n; i++)
        if (v[i] == what) return i;
    return n - 1;
}

int32_t rp__row_argmax(const float *v, int32_t n) {
    float best = -INFINITY;
    int32_t at = 0;
    for (int32_t i = 0; i < n; i += RP__ROW_CHUNK) {
        float t = top_of(v + i, n - i);
        if (t > best) best = t, at = i;
    }
    return at + find(v + at, n - at, best);
}

/* ---- exponentials ---- */

/* e^x for x <= 0: 2^n times a polynomial in the rest (coefficients: Cephes, expf); ln 2 in two
 * parts, of which the first times n is exact. */
INLINE lanes exp_lanes(lanes x) {
    const lanes lowest = all(-87.0f), magic = all(0x1.8p23f);
    ints is_seen = x >= lowest;
    x = keep(is_seen, x);
    lanes n = (x * all(1.44269504f) + magic) - magic;
    lanes r = (x - n * all(0.693359375f)) + n * all(2.12194440e-4f);
    lanes p = all(1.9875691500e-4f);
    p = p * r + all(1.3981999507e-3f);
    p = p * r + all(8.3334519073e-3f);
    p = p * r + all(4.1665795894e-2f);
    p = p * r + all(1.6666665459e-1f);
    p = p * r + all(5.0000001201e-1f);
    p = p * (r * r) + r + all(1.0f);
    ints power = __builtin_convertvector(n, ints) << 23;
    return keep(is_seen, (lanes)((ints)p + power));
}

INLINE lanes weights_at(const float *v, float max, float by) {
    return exp_lanes((load(v) - all(max)) * all(by));
}

void rp__row_weights(const float *v, int32_t n, float max, float by, float *w) {
    float in[RP__ROW_CHUNK], out[RP__ROW_CHUNK];
    for (int i = 0; i < RP__ROW_CHUNK; i++) in[i] = i < n ? v[i] : -INFINITY;
    for (int i = 0; i < RP__ROW_CHUNK; i += LANES) {
        lanes x = weights_at(in + i, max, by);
        memcpy(out + i, &x, sizeof x);
    }
    memcpy(w, out, (size_t)n * sizeof *w);
}

INLINE double chunk_sum(const float *v, float max, float by) {
    lanes sum = all(0);
    for (int i = 0; i < STEPS; i++) sum += weights_at(v + i * LANES, max, by);
    return (double)((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

static double short_sum(const float *v, int32_t n, float max, float by) {
    float rest[RP__ROW_CHUNK];
    for (int i = 0; i < RP__ROW_CHUNK; i++) rest[i] = i < n ? v[i] : -INFINITY;
    return chunk_sum(rest, max, by);
}

double rp__row_sum(const float *v, int32_t n, float max, float by, double *sums) {
    double total = 0;
    for (int32_t i = 0; i < n; i += RP__ROW_CHUNK) {
        double sum = n - i >= RP__ROW_CHUNK ? chunk_sum(v + i, max, by)
                                            : short_sum(v + i, n - i, max, by);
        total += sum;
        if (sums) *sums++ = sum;
    }
    return total;
}
