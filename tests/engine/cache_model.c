#include "engine/cache_model.h"

#include <stdlib.h>
#include <string.h>

#include "test.h"

void rp_cache_model_init(rp_cache_model *m, rp__kv *kv) {
    size_t n = (size_t)kv->n_blocks;
    *m = (rp_cache_model){.kv = kv};
    m->rows = calloc(n * (size_t)kv->block_size, sizeof *m->rows);
    m->n_users = calloc(n, sizeof *m->n_users);
    assert_true(m->rows && m->n_users);
}

void rp_cache_model_clear(rp_cache_model *m) {
    free(m->rows);
    free(m->n_users);
}

static uint64_t mix(uint64_t before, int32_t token) {
    uint64_t x = (before ^ (uint64_t)(uint32_t)token) * 0x9E3779B97F4A7C15u;
    return (x ^ x >> 29) * 0xBF58476D1CE4E5B9u + 1;
}

static uint64_t *row_at(const rp_cache_model *m, const rp__kv_seq *seq, int64_t position) {
    return &m->rows[rp__kv_slot(m->kv, seq, position)];
}

uint64_t rp_cache_model_compute(rp_cache_model *m, const rp__kv_seq *seq, const int32_t *tokens,
                                int64_t first, int64_t n) {
    uint64_t before = 0;
    for (int64_t i = 0; i < first; i++) { /* attention reads every row */
        before = mix(before, tokens[i]);
        if (*row_at(m, seq, i) != before) before = *row_at(m, seq, i) ^ 0xBAD;
    }
    for (int64_t i = first; i < first + n; i++)
        *row_at(m, seq, i) = before = mix(before, tokens[i]);
    return before;
}

void rp_cache_model_copy(rp_cache_model *m, rp__kv_copy c) {
    size_t n = (size_t)m->kv->block_size;
    memcpy(m->rows + (size_t)c.to * n, m->rows + (size_t)c.from * n, n * sizeof *m->rows);
}

uint64_t rp_cache_model_expect(const int32_t *tokens, int64_t n) {
    uint64_t x = 0;
    for (int64_t i = 0; i < n; i++) x = mix(x, tokens[i]);
    return x;
}

void rp_cache_model_check(const rp_cache_model *m, const rp__kv_seq *seq, const int32_t *tokens,
                          int64_t n_computed) {
    uint64_t x = 0;
    for (int64_t i = 0; i < n_computed; i++) {
        x = mix(x, tokens[i]);
        if (*row_at(m, seq, i) != x) fail_msg("position %d holds a foreign row", (int)i);
    }
}

void rp_cache_model_audit(rp_cache_model *m, const rp__kv_seq *const *seqs, int n) {
    const rp__kv *kv = m->kv;
    memset(m->n_users, 0, (size_t)kv->n_blocks * sizeof *m->n_users);
    for (int i = 0; i < n; i++)
        for (int32_t k = 0; k < seqs[i]->n_blocks; k++) m->n_users[seqs[i]->blocks[k]]++;
    assert_int_equal(m->n_users[RP_KV_SINK], 0);
    int32_t live = 0, cached = 0;
    for (int32_t b = 1; b < kv->n_blocks; b++) {
        assert_int_equal(kv->blocks[b].n_refs, m->n_users[b]);
        live += m->n_users[b] > 0;
        cached += m->n_users[b] == 0 && kv->blocks[b].is_findable;
    }
    assert_int_equal(cached, kv->n_cached);
    assert_int_equal(live + kv->n_cached + kv->n_free, kv->n_blocks - 1);
    for (int32_t i = 0; i < kv->n_free; i++) m->n_users[kv->free[i]]++; /* once, and not live */
    for (int32_t b = kv->oldest; b; b = kv->blocks[b].newer) m->n_users[b] += 1;
    for (int32_t b = 1; b < kv->n_blocks; b++)
        assert_int_equal(m->n_users[b], kv->blocks[b].n_refs ? kv->blocks[b].n_refs : 1);
}
