#include "engine/kv.h"

#include "base/alloc.h"
#include "base/fail.h"

rp_status rp__kv_init(rp__kv *kv, int32_t n_blocks, int32_t block_size, rp_error *err) {
    *kv = (rp__kv){.block_size = block_size, .n_blocks = n_blocks};
    kv->free = rp__calloc((size_t)n_blocks, sizeof *kv->free);
    kv->n_refs = rp__calloc((size_t)n_blocks, sizeof *kv->n_refs);
    if (!kv->free || !kv->n_refs) {
        rp__kv_clear(kv);
        return rp__fail(err, RP_ENOMEM, "out of memory for a table of %d KV blocks", (int)n_blocks);
    }
    for (int32_t b = n_blocks - 1; b > RP_KV_SINK; b--)
        kv->free[kv->n_free++] = b; /* lowest comes first */
    return RP_OK;
}

void rp__kv_clear(rp__kv *kv) {
    rp__free(kv->free);
    rp__free(kv->n_refs);
    *kv = (rp__kv){0};
}

int32_t rp__kv_blocks_for(const rp__kv *kv, int64_t n_positions) {
    return (int32_t)((n_positions + kv->block_size - 1) / kv->block_size);
}

rp_status rp__kv_reserve(rp__kv *kv, rp__kv_seq *seq, int64_t n_positions) {
    int32_t want = rp__kv_blocks_for(kv, n_positions);
    if (want <= seq->n_blocks) return RP_OK;
    rp__assert(want <= seq->cap, "%d blocks in a table of %d", (int)want, (int)seq->cap);
    if (want - seq->n_blocks > kv->n_free) return RP_NO_BLOCKS;
    while (seq->n_blocks < want) {
        int32_t b = kv->free[--kv->n_free];
        rp__assert(kv->n_refs[b] == 0, "free block %d has %d users", (int)b, (int)kv->n_refs[b]);
        kv->n_refs[b] = 1;
        seq->blocks[seq->n_blocks++] = b;
    }
    return RP_OK;
}

void rp__kv_release(rp__kv *kv, rp__kv_seq *seq) {
    while (seq->n_blocks) {
        int32_t b = seq->blocks[--seq->n_blocks];
        rp__assert(kv->n_refs[b] > 0, "block %d is released twice", (int)b);
        if (--kv->n_refs[b] == 0) kv->free[kv->n_free++] = b;
    }
}

int32_t rp__kv_slot(const rp__kv *kv, const rp__kv_seq *seq, int64_t position) {
    int64_t i = position / kv->block_size;
    rp__assert(i < seq->n_blocks, "position %lld has no block", (long long)position);
    return seq->blocks[i] * kv->block_size + (int32_t)(position % kv->block_size);
}
