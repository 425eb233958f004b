/* A model on a device without an engine around it: tests feed it ids and take logits. Failures fail
 * the test. */
#ifndef RP_TESTS_MODEL_TINY_H
#define RP_TESTS_MODEL_TINY_H

#include "engine/kv.h"
#include "engine/step.h"

typedef struct rp_tiny_config {
    const char *path; /* below tests/, or absolute/ */
    const char *device, *device_options;
    const rp_device_api *api; /* instead of the device of that name; NULL: that one */
    int n_threads;
    int32_t max_seqs, max_tokens, block_size, n_ctx;
    int32_t n_blocks; /* with the sink; 0: enough for 8 sequences */
    rp_dtype kv_type;
    rp_capture_mode capture;
    int max_graphs;
    rp_activations activations;
    const char *hybrid; /* rules of a placement; NULL: everything on the device that it runs */
    bool is_hybrid_only;
} rp_tiny_config;

typedef struct rp_tiny {
    rp__checkpoint *checkpoint;
    rp_device *device;
    rp__model *model;
    rp__stepper stepper;
    rp__kv kv;
    int32_t n_vocab;
} rp_tiny;

rp_tiny_config rp_tiny_default(
    const char *path); /* cpu, 2 threads, F32 cache, capture on, 64 of everything, blocks of 8 */
void rp_tiny_open(rp_tiny *t, const rp_tiny_config *config);
void rp_tiny_close(rp_tiny *t);

/* Feeds n_seqs sequences together (all with the same ids, or each its own: ids[s]), `chunk` tokens
 * of each per step, and gives the logits of every position: out[s] has n * V values. */
void rp_tiny_feed(rp_tiny *t, int n_seqs, const int32_t *const *ids, int n, int chunk,
                  float *const *out);

/* As an engine does: the prompt `chunk` tokens per step, then token by token. Gives the logits of
 * positions n_prompt - 1 to n - 1. */
void rp_tiny_answer(rp_tiny *t, const int32_t *ids, int n_prompt, int n, int chunk, float *out);

/* The golden of a fixture: ids and logits [n, V] (free with rp__free). */
typedef struct rp_golden {
    int32_t ids[128];
    int n, n_prompt, n_vocab;
    float *logits;
} rp_golden;
void rp_golden_open(rp_golden *g, const char *name); /* "fixtures/tiny/llama3" */

/* Where `tools/fetch_model.py smollm2` puts it: there may be none. */
const char *rp_test_smollm2(void);

#endif
