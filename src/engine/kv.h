/* Blocks of the paged KV cache: who holds which, and which are found again by the prompt they hold.
 * Pure bookkeeping over block numbers: no device, no clock, no tensors.
 *
 * A block is *live* (some sequence holds it), *cached* (nobody does, but its prefix is findable) or
 * *free*; live + cached + free = all blocks but the sink. Block 0 is the sink: padding reads and
 * writes it; it is never given out. A cached block is given out again when no free one is left, the
 * one unused for longest first.
 *
 * Finding: a full block is filed under a keyed 128-bit hash of its whole prefix (the hash of a
 * block is SipHash of its tokens keyed with the hash of the block before; the first key is the
 * engine's secret with the request's salt). A hit counts only when the tokens are equal and the
 * block before is the one it was filed behind, so that no collision, made or met, gives a foreign
 * block.
 *
 * A block is written by one sequence alone: one that shares it is given a copy first (reserve).
 * Not thread safe: the engine thread's. */
#ifndef RP_ENGINE_KV_H
#define RP_ENGINE_KV_H

#include <stdbool.h>

#include "base/siphash.h"
#include "reprise/status.h"

enum { RP_KV_SINK = 0 };

typedef struct rp__kv_config {
    int32_t n_blocks, block_size; /* n_blocks with the sink, >= 2 */
    bool has_cache;               /* false: nothing is found again */
    rp__hash128 key;              /* secret */
    int hash_bits;                /* tests: so many bits of a hash are used; 0: all */
} rp__kv_config;

/* The prefix that ends with a block: what its successor is filed under. `id` tells apart what has
 * equal hashes. */
typedef struct rp__kv_prefix {
    rp__hash128 hash;
    uint64_t id;
} rp__kv_prefix;

typedef struct rp__kv_block {
    int32_t n_refs;
    bool is_findable;
    int32_t next;         /* findable: in its chain of the table; the sink ends it */
    int32_t older, newer; /* cached: in order of use; the sink ends it */
    rp__kv_prefix prefix; /* findable: with this block */
    uint64_t parent;      /* findable: id of the prefix before it */
} rp__kv_block;

typedef struct rp__kv {
    rp__kv_config config;
    int32_t block_size, n_blocks;
    rp__kv_block *blocks;
    int32_t *tokens; /* [n_blocks, block_size] of findable ones */
    int32_t *table;  /* [table_mask + 1] first of each chain */
    uint64_t table_mask;
    int32_t *free; /* stack */
    int32_t n_free, n_cached, oldest, newest;
    uint64_t last_id;
} rp__kv;

/* The blocks of one sequence, in order of position; `blocks` has room for `cap` numbers. Zeroed is
 * empty and good for sequences that are never filed; else init it. */
typedef struct rp__kv_seq {
    int32_t *blocks; /* the caller's memory */
    int32_t n_blocks, cap;
    int32_t n_filed; /* leading blocks that `prefix` covers */
    rp__kv_prefix root, prefix;
    bool is_private; /* neither finds nor is found */
} rp__kv_seq;

/* A block to be copied on the device before the step that writes `to`. */
typedef struct rp__kv_copy {
    int32_t from, to; /* both the sink: nothing to copy */
} rp__kv_copy;

rp_status rp__kv_init(rp__kv *kv, const rp__kv_config *config, rp_error *err);
void rp__kv_clear(rp__kv *kv);

/* Sequences find each other's blocks under equal salts only. May be called from any thread. */
void rp__kv_seq_init(const rp__kv *kv, rp__kv_seq *seq, int32_t *blocks, int32_t cap,
                     const char *salt, size_t salt_bytes);

int32_t rp__kv_blocks_for(const rp__kv *kv, int64_t n_positions);
int32_t rp__kv_available(const rp__kv *kv); /* blocks that can be given out: free and cached */

/* Takes over the blocks that hold the next tokens, as far as they are found; `tokens` are those of
 * the whole sequence, which ends at a whole block so far. Never takes the block of tokens[n - 1]:
 * that one is to be computed. Returns the positions that the sequence has now. */
int64_t rp__kv_match(rp__kv *kv, rp__kv_seq *seq, const int32_t *tokens, int64_t n);

/* Makes positions [n_computed, n_positions) writable: adds the blocks that are missing, and
 * replaces the one that others share where writing begins, which *copy then says (may be NULL where
 * nothing is forked). All or nothing (RP_NO_BLOCKS). */
rp_status rp__kv_reserve(rp__kv *kv, rp__kv_seq *seq, int64_t n_computed, int64_t n_positions,
                         rp__kv_copy *copy);

/* Files the blocks that are full now that n_computed tokens have been computed. A block of which an
 * equal one is filed already is given back for that one. */
void rp__kv_file(rp__kv *kv, rp__kv_seq *seq, const int32_t *tokens, int64_t n_computed);

/* `to`, which is empty, holds the same blocks as `from`. */
void rp__kv_fork(rp__kv *kv, const rp__kv_seq *from, rp__kv_seq *to);

void rp__kv_release(rp__kv *kv, rp__kv_seq *seq); /* the sequence is empty afterwards */

/* Nothing that was computed so far is found any more: the device's memory is not what it was. */
void rp__kv_forget(rp__kv *kv);

int32_t rp__kv_slot(const rp__kv *kv, const rp__kv_seq *seq,
                    int64_t position); /* block * block_size + offset */

#endif
