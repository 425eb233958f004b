#define _GNU_SOURCE /* sincos */
#include "model/hparams.h"

#include <math.h>

double rp__rope_mscale(double scale, double m) {
    return scale <= 1 ? 1.0 : 0.1 * m * log(scale) + 1.0;
}

static const double two_pi = 6.283185307179586476925286766559;

/* Dimension at which `rotations` full turns fit into the original context (YaRN, equation 17 ff.).
 */
static double correction_dim(const rp__rope_params *p, double rotations) {
    return (double)p->n_rot * log(p->original_ctx / (rotations * two_pi)) / (2 * log(p->theta));
}

static void scale_yarn(const rp__rope_params *p, double *inv_freq) {
    double low = correction_dim(p, p->beta_fast), high = correction_dim(p, p->beta_slow);
    if (p->truncate) low = floor(low), high = ceil(high);
    low = fmax(low, 0);
    high = fmin(high, (double)p->n_rot - 1);
    if (low == high) high += 0.001; /* a ramp of no width is a step */
    for (int64_t i = 0; i < p->n_rot / 2; i++) {
        double ramp = fmin(fmax(((double)i - low) / (high - low), 0), 1);
        inv_freq[i] = inv_freq[i] / p->factor * ramp + inv_freq[i] * (1 - ramp);
    }
}

static void scale_llama3(const rp__rope_params *p, double *inv_freq) {
    for (int64_t i = 0; i < p->n_rot / 2; i++) {
        double turns =
            p->original_ctx * inv_freq[i] / two_pi; /* full turns within the original context */
        if (turns > p->high_freq) continue;
        if (turns < p->low_freq) {
            inv_freq[i] /= p->factor;
            continue;
        }
        double smooth = (turns - p->low_freq) / (p->high_freq - p->low_freq);
        inv_freq[i] = (1 - smooth) * inv_freq[i] / p->factor + smooth * inv_freq[i];
    }
}

/* Stretched once, to the longest context the factor promises. */
static double dynamic_theta(const rp__rope_params *p) {
    if (p->n_rot <= 2) return p->theta;
    double stretch = p->factor * p->factor - (p->factor - 1);
    return p->theta * pow(stretch, (double)p->n_rot / (double)(p->n_rot - 2));
}

double rp__rope_frequencies(const rp__rope_params *p, double *inv_freq) {
    double theta = p->scaling == RP_ROPE_DYNAMIC_NTK ? dynamic_theta(p) : p->theta;
    for (int64_t i = 0; i < p->n_rot / 2; i++) {
        inv_freq[i] = pow(theta, -2.0 * (double)i / (double)p->n_rot);
        if (p->freq_divisors) inv_freq[i] /= (double)p->freq_divisors[i];
        if (p->scaling == RP_ROPE_LINEAR) inv_freq[i] /= p->factor;
    }
    if (p->scaling == RP_ROPE_YARN) scale_yarn(p, inv_freq);
    if (p->scaling == RP_ROPE_LLAMA3) scale_llama3(p, inv_freq);
    return p->scaling == RP_ROPE_YARN ? p->attn_factor : 1.0;
}

void rp__rope_table(const double *inv_freq, int64_t n_rot, double factor, int64_t first, int64_t n,
                    float *out) {
    int64_t half = n_rot / 2;
    for (int64_t r = 0; r < n; r++) {
        for (int64_t i = 0; i < half; i++) {
            double s, c, angle = (double)(first + r) * inv_freq[i];
            sincos(angle, &s, &c);
            out[r * n_rot + i] = (float)(c * factor);
            out[r * n_rot + half + i] = (float)(s * factor);
        }
    }
}

bool rp__hparams_has_window(const rp__hparams *h, int64_t layer) {
    if (h->window <= 0) return false;
    return h->layer_windows ? h->layer_windows[layer] : layer >= h->window_from_layer;
}
