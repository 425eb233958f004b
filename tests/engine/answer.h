/* An engine on a tiny model and whole answers of it, for comparing to the bit. Failures fail the
 * test. */
#ifndef RP_TESTS_ENGINE_ANSWER_H
#define RP_TESTS_ENGINE_ANSWER_H

#include <pthread.h>

#include "reprise/reprise.h"

enum { RP_ANSWER_MOST = 256 };

typedef struct rp_answer {
    int32_t ids[RP_ANSWER_MOST];
    float logprobs[RP_ANSWER_MOST];
    rp_top_logprob tops[RP_ANSWER_MOST][3]; /* of the best three that were asked for */
    size_t n, n_text;
    char text[4096];
    rp_finish finish;
    rp_usage usage;
    rp_error error;
} rp_answer;

/* o.model: a path below tests/, NULL for a tiny Llama 3; o.n_threads 0: two. */
rp_engine *rp_answer_engine(rp_engine_options o);

rp_request *rp_answer_submit(rp_engine *e, const rp_request_options *o);
/* Reads to the end. */
void rp_answer_take(rp_request *r, rp_answer *a);
/* Submits, reads, releases. */
void rp_answer_of(rp_engine *e, const rp_request_options *o, rp_answer *a);

/* Tokens, text and all log probabilities, to the bit. */
void rp_answer_assert_same(const rp_answer *a, const rp_answer *b);

rp_engine_stats rp_answer_stats(rp_engine *e);

/* Holds the engine at a request's events, so that a test does not race it: the engine's thread
 * stays in the callback of event `allowed` + 1 until more are allowed. */
typedef struct rp_gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int n_seen, allowed;
} rp_gate;

#define RP_GATE_ALL (1 << 30)

void rp_gate_put(rp_gate *g, rp_request_options *o); /* nothing is allowed yet */
void rp_gate_allow(rp_gate *g, int n);
void rp_gate_wait(rp_gate *g, int n_seen); /* until that event has come */

#endif
