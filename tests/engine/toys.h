/* Engines on the models whose answers are known by hand (tests/models.py says how they work;
 * tools/make_table_model.py makes the fixtures), and requests to them. Failures fail the test.
 *
 * TABLE: the next token depends on the last one alone; greedily it is table_next().
 * HISTOGRAM: the next token depends on how often each token was there, so that a missing, doubled,
 * stale or foreign position of the KV cache shows. */
#ifndef RP_TESTS_ENGINE_TOYS_H
#define RP_TESTS_ENGINE_TOYS_H

#include "reprise/reprise.h"
#include "test.h"

enum { TOY_VOCAB = 64, TOY_ANSWER = 512 };

#define TABLE     "fixtures/models/table64.gguf"
#define HISTOGRAM "fixtures/models/histogram64.gguf"

/* Options for a fixture: one thread, blocks of 8. The path stays valid until the next call. */
rp_engine_options toy_options(const char *fixture);
rp_engine *toy_open(const rp_engine_options *o);
rp_engine_stats toy_stats(rp_engine *e);

typedef struct toy_answer {
    rp_finish finish; /* RP_FINISH_ERROR with error.code, also when it was not accepted */
    rp_error error;
    int32_t ids[TOY_ANSWER];
    float logprobs[TOY_ANSWER];
    size_t n;
} toy_answer;

/* Greedy, to the end of max_tokens, with log probabilities; change what should be different. */
rp_request_options toy_question(const int32_t *prompt, size_t n_prompt, int max_tokens);
/* NULL: refused, and out->error says why. */
rp_request *toy_submit(rp_engine *e, const rp_request_options *q, toy_answer *out);
void toy_take(rp_request *r, toy_answer *out); /* all of it; releases */
void toy_ask(rp_engine *e, const rp_request_options *q, toy_answer *out);

/* n ids, 3 to 62, from a seed. */
void toy_ids(uint64_t seed, int32_t *ids, size_t n);

/* ---- what is right, from what the models are ---- */

int32_t table_next(int32_t id);
void assert_table_answer(const toy_answer *a, int32_t last_prompt_id);

/* ln P(id) after these n tokens: logits are c * p with p = count / n and
 * c = sqrt(d / (1 + sum of p squared)), d = 128. */
double histogram_logprob(const int32_t *ids, size_t n, int32_t id);
/* Every log probability of the answer to this prompt. */
void assert_histogram_answer(const toy_answer *a, const int32_t *prompt, size_t n_prompt);

#endif
