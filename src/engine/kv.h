/* Blocks of the paged KV cache: who holds which. Pure bookkeeping over block numbers: no device, no
 * clock, no tensors.
 *
 * Owns: the free list and the reference counts. Block 0 is the sink: padding reads and writes it;
 * it is never given out. Invariant: free + held blocks = all blocks but the sink. Not thread safe:
 * the engine thread's. */
#ifndef RP_ENGINE_KV_H
#define RP_ENGINE_KV_H

#include <stdint.h>

#include "reprise/status.h"

enum { RP_KV_SINK = 0 };

typedef struct rp__kv {
    int32_t block_size; /* positions per block */
    int32_t n_blocks;   /* with the sink */
    int32_t *free;      /* stack of free blocks */
    int32_t n_free;
    int32_t *n_refs; /* per block */
} rp__kv;

/* The blocks of one sequence, in order of position. Zeroed is empty; `blocks` has room for `cap`
 * numbers. */
typedef struct rp__kv_seq {
    int32_t *blocks; /* the caller's memory */
    int32_t n_blocks, cap;
} rp__kv_seq;

rp_status rp__kv_init(rp__kv *kv, int32_t n_blocks, int32_t block_size,
                      rp_error *err); /* n_blocks with the sink, >= 2 */
void rp__kv_clear(rp__kv *kv);

int32_t rp__kv_blocks_for(const rp__kv *kv, int64_t n_positions);

/* Gives the sequence blocks for its first n_positions: all that are missing or none (RP_NO_BLOCKS).
 */
rp_status rp__kv_reserve(rp__kv *kv, rp__kv_seq *seq, int64_t n_positions);
void rp__kv_release(rp__kv *kv, rp__kv_seq *seq); /* the sequence is empty afterwards */

int32_t rp__kv_slot(const rp__kv *kv, const rp__kv_seq *seq,
                    int64_t position); /* block * block_size + offset */

#endif
