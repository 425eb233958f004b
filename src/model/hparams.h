/* What a decoder-only transformer of the Llama family is made of, whichever file said so, and its
 * RoPE tables. */
#ifndef RP_MODEL_HPARAMS_H
#define RP_MODEL_HPARAMS_H

#include "reprise/device.h"

typedef enum rp__rope_scaling {
    RP_ROPE_PLAIN,
    RP_ROPE_LINEAR,
    RP_ROPE_DYNAMIC_NTK,
    RP_ROPE_YARN,
    RP_ROPE_LLAMA3
} rp__rope_scaling;

typedef struct rp__rope_params {
    rp_rope_style style;
    rp__rope_scaling scaling;
    int64_t n_rot; /* rotated dimensions, even */
    double theta, factor;
    double original_ctx;         /* positions the unscaled model was trained on */
    double low_freq, high_freq;  /* llama3 */
    double beta_fast, beta_slow; /* yarn */
    double attn_factor;          /* yarn: multiplies cosines and sines */
    bool truncate;               /* yarn: correction range rounded to whole dimensions */
    const float *freq_divisors;  /* [n_rot/2] GGUF's rope_freqs: divides each frequency; borrowed,
                                    NULL: none */
} rp__rope_params;

typedef struct rp__hparams {
    int64_t n_layers, n_embd, n_heads, n_kv_heads, head_dim, n_ff, n_vocab, n_ctx_train;
    float norm_eps;
    rp_act act;
    rp__rope_params rope;
    int64_t window;            /* sliding window of the layers that have one; 0: none */
    int64_t window_from_layer; /* layers before it see everything */
    const bool *layer_windows; /* [n_layers] when the file says it per layer; owned by the model;
                                  NULL: by the rule */
} rp__hparams;

/* Inverse frequencies in radians per position, [n_rot/2]; returns the factor on cosines and sines.
 * Dynamic NTK is taken at its full stretch, original_ctx * factor, whatever the length of a text: a
 * token's rotation never depends on what follows it, nor on the engine's settings. Sources: Su et
 * al. 2021 (RoPE); bloc97's NTK-aware scaling; Peng et al. 2023 (YaRN); Llama 3.1's frequency
 * bands. */
double rp__rope_frequencies(const rp__rope_params *p, double *inv_freq);

/* The table that EMBED gathers per token: [n_ctx, n_rot] F32, per position n_rot/2 cosines then
 * n_rot/2 sines, each computed in double and rounded once. Rows [first, first + n). inv_freq from
 * rp__rope_frequencies. */
void rp__rope_table(const double *inv_freq, int64_t n_rot, double factor, int64_t first, int64_t n,
                    float *out);

/* YaRN's magnitude correction: 0.1 * m * ln(scale) + 1, 1 for scale <= 1. */
double rp__rope_mscale(double scale, double m);

bool rp__hparams_has_window(const rp__hparams *h, int64_t layer);

#endif
