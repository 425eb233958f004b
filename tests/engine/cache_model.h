/* What the KV cache would hold: a row per slot that tells which tokens it was computed from. A
 * block that is missing, stale, foreign or written by two shows as a wrong row. Failures fail the
 * test. */
#ifndef RP_TESTS_ENGINE_CACHE_MODEL_H
#define RP_TESTS_ENGINE_CACHE_MODEL_H

#include "engine/kv.h"

typedef struct rp_cache_model {
    rp__kv *kv;
    uint64_t *rows; /* [n_blocks * block_size] */
    int32_t *n_users;
} rp_cache_model;

void rp_cache_model_init(rp_cache_model *m, rp__kv *kv);
void rp_cache_model_clear(rp_cache_model *m);

/* Computes positions [first, first + n), each from the rows before it as the sequence's table shows
 * them. Returns a number that depends on all of them: what comes next. */
uint64_t rp_cache_model_compute(rp_cache_model *m, const rp__kv_seq *seq, const int32_t *tokens,
                                int64_t first, int64_t n);
void rp_cache_model_copy(rp_cache_model *m, rp__kv_copy copy);

/* The same number from the tokens alone. */
uint64_t rp_cache_model_expect(const int32_t *tokens, int64_t n);

/* The first n_computed rows of the sequence are those of its tokens. */
void rp_cache_model_check(const rp_cache_model *m, const rp__kv_seq *seq, const int32_t *tokens,
                          int64_t n_computed);

/* The books: `seqs` are all sequences there are. */
void rp_cache_model_audit(rp_cache_model *m, const rp__kv_seq *const *seqs, int n);

#endif
