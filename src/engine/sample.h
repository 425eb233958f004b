/* Choosing the next token from a row of logits. Pure function of logits, settings, history and
 * step: the same request gives the same tokens whoever else is served.
 *
 * Order: logit bias, penalties, temperature, top-k, top-p, min-p, draw. Ties go to the lower id.
 * Sums of weights in a fixed order. Random numbers: Philox 4x32-10 (Salmon et al. 2011), counter =
 * index of the token in the answer, key = seed. */
#ifndef RP_ENGINE_SAMPLE_H
#define RP_ENGINE_SAMPLE_H

#include <stddef.h>

#include "reprise/reprise.h"

typedef struct rp__candidate {
    float logit;
    int32_t id;
} rp__candidate;

/* Scratch of one engine: sized for the vocabulary, used by one thread. */
typedef struct rp__sampler {
    int32_t n_vocab;
    float *logits;   /* [V] after bias and penalties */
    int32_t *counts; /* [V] zero between calls */
    /* A row in descending order, as far as it was asked for. */
    const float *row;
    float top;                          /* its largest */
    float *tops;                        /* [chunks] */
    double *sums;                       /* [chunks] of weights */
    rp__candidate *chunks, *candidates; /* heaps: unopened chunks by their tops, [V] tokens */
    rp__candidate *best;                /* [V] tokens in order */
    size_t n_chunks, n_candidates, n_best;
    bool is_ordered; /* the heaps are the row's */
} rp__sampler;

/* True when the next token is always that of the largest logit. */
bool rp__sampling_is_greedy(const rp_sampling *p);

rp_status rp__sampler_init(rp__sampler *s, int32_t n_vocab, rp_error *err);
void rp__sampler_clear(rp__sampler *s);

/* Refuses values out of range: the sentence names parameter, value and range. */
rp_status rp__sampling_check(const rp_sampling *p, int32_t n_vocab, rp_error *err);

/* history: prompt then answer, n_prompt of n_history tokens are the prompt. n_history - n_prompt is
 * the step. */
int32_t rp__sampler_choose(rp__sampler *s, const float *logits, const rp_sampling *p,
                           const int32_t *history, size_t n_history, size_t n_prompt);

/* Log probabilities of the model's own distribution: of `id`, and the n_top best (descending) into
 * `top`. */
float rp__sampler_logprobs(rp__sampler *s, const float *logits, int32_t id, rp_top_logprob *top,
                           size_t n_top);

/* Uniform in [0, 1) with 53 bits: number `index` of the stream `seed`. */
double rp__random_uniform(uint64_t seed, uint64_t index);

#endif
