/* Invariants: a block in the free stack has no users and is not findable; a block in the list of
 * cached ones has no users and is findable; a findable block is in exactly one chain of the table.
 * The sink's number ends lists and chains, as it is never in one. */
#include "engine/kv.h"

#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"

/* ---- life ---- */

rp_status rp__kv_init(rp__kv *kv, const rp__kv_config *c, rp_error *err) {
    *kv = (rp__kv){.config = *c, .block_size = c->block_size, .n_blocks = c->n_blocks};
    size_t n = (size_t)c->n_blocks, n_table = 1;
    while (n_table < n) n_table *= 2;
    kv->table_mask = n_table - 1;
    kv->blocks = rp__calloc(n, sizeof *kv->blocks);
    kv->free = rp__calloc(n, sizeof *kv->free);
    kv->tokens = rp__calloc(n, (size_t)c->block_size * sizeof *kv->tokens);
    kv->table = rp__calloc(n_table, sizeof *kv->table);
    if (!kv->blocks || !kv->free || !kv->tokens || !kv->table) {
        rp__kv_clear(kv);
        return rp__fail(err, RP_ENOMEM, "out of memory for a table of %d KV blocks",
                        (int)c->n_blocks);
    }
    for (int32_t b = c->n_blocks - 1; b > RP_KV_SINK; b--)
        kv->free[kv->n_free++] = b; /* lowest comes first */
    return RP_OK;
}

void rp__kv_clear(rp__kv *kv) {
    rp__free(kv->blocks);
    rp__free(kv->free);
    rp__free(kv->tokens);
    rp__free(kv->table);
    *kv = (rp__kv){0};
}

static rp__hash128 hash_of(const rp__kv *kv, rp__hash128 key, const void *p, size_t n) {
    rp__hash128 h = rp__siphash128(key, p, n);
    if (!kv->config.hash_bits) return h;
    return (rp__hash128){.lo = h.lo & (((uint64_t)1 << kv->config.hash_bits) - 1)};
}

void rp__kv_seq_init(const rp__kv *kv, rp__kv_seq *seq, int32_t *blocks, int32_t cap,
                     const char *salt, size_t salt_bytes) {
    *seq = (rp__kv_seq){.blocks = blocks, .cap = cap};
    seq->root.hash = rp__siphash128(kv->config.key, salt, salt_bytes);
    seq->root.id = seq->root.hash.hi | (uint64_t)1 << 63; /* ids of blocks count from 1 */
    seq->prefix = seq->root;
}

int32_t rp__kv_blocks_for(const rp__kv *kv, int64_t n_positions) {
    return (int32_t)((n_positions + kv->block_size - 1) / kv->block_size);
}

int32_t rp__kv_available(const rp__kv *kv) {
    return kv->n_free + kv->n_cached;
}

/* ---- the list of cached blocks ---- */

static void put_newest(rp__kv *kv, int32_t b) {
    rp__kv_block *x = &kv->blocks[b];
    x->older = kv->newest;
    x->newer = RP_KV_SINK;
    if (kv->newest)
        kv->blocks[kv->newest].newer = b;
    else
        kv->oldest = b;
    kv->newest = b;
    kv->n_cached++;
}

static void take_cached(rp__kv *kv, int32_t b) {
    const rp__kv_block *x = &kv->blocks[b];
    if (x->older)
        kv->blocks[x->older].newer = x->newer;
    else
        kv->oldest = x->newer;
    if (x->newer)
        kv->blocks[x->newer].older = x->older;
    else
        kv->newest = x->older;
    kv->n_cached--;
}

/* ---- the table ---- */

static int32_t *tokens_of(const rp__kv *kv, int32_t b) {
    return kv->tokens + (size_t)b * (size_t)kv->block_size;
}

static size_t token_bytes(const rp__kv *kv) {
    return (size_t)kv->block_size * sizeof(int32_t);
}

static int32_t find(const rp__kv *kv, rp__hash128 hash, uint64_t parent, const int32_t *tokens) {
    int32_t b = kv->table[hash.lo & kv->table_mask];
    for (; b; b = kv->blocks[b].next) {
        const rp__kv_block *x = &kv->blocks[b];
        if (x->prefix.hash.lo == hash.lo && x->prefix.hash.hi == hash.hi && x->parent == parent &&
            !memcmp(tokens_of(kv, b), tokens, token_bytes(kv)))
            return b;
    }
    return RP_KV_SINK;
}

static void make_findable(rp__kv *kv, int32_t b, rp__hash128 hash, uint64_t parent,
                          const int32_t *tokens) {
    rp__kv_block *x = &kv->blocks[b];
    int32_t *chain = &kv->table[hash.lo & kv->table_mask];
    rp__assert(!x->is_findable, "block %d is filed twice", (int)b);
    memcpy(tokens_of(kv, b), tokens, token_bytes(kv));
    x->prefix = (rp__kv_prefix){hash, ++kv->last_id};
    x->parent = parent;
    x->is_findable = true;
    x->next = *chain;
    *chain = b;
}

static void make_unfindable(rp__kv *kv, int32_t b) {
    rp__kv_block *x = &kv->blocks[b];
    int32_t *link = &kv->table[x->prefix.hash.lo & kv->table_mask];
    while (*link != b) link = &kv->blocks[*link].next;
    *link = x->next;
    x->is_findable = false;
}

/* ---- users ---- */

static int32_t take_block(rp__kv *kv) {
    int32_t b = kv->n_free ? kv->free[--kv->n_free] : kv->oldest;
    rp__assert(b != RP_KV_SINK && kv->blocks[b].n_refs == 0, "block %d has %d users", (int)b,
               (int)kv->blocks[b].n_refs);
    if (kv->blocks[b].is_findable) {
        take_cached(kv, b);
        make_unfindable(kv, b);
    }
    kv->blocks[b].n_refs = 1;
    return b;
}

static void add_user(rp__kv *kv, int32_t b) {
    if (kv->blocks[b].n_refs++ == 0) take_cached(kv, b);
}

static void drop_user(rp__kv *kv, int32_t b) {
    rp__kv_block *x = &kv->blocks[b];
    rp__assert(x->n_refs > 0, "block %d is released twice", (int)b);
    if (--x->n_refs) return;
    if (x->is_findable)
        put_newest(kv, b);
    else
        kv->free[kv->n_free++] = b;
}

/* ---- sequences ---- */

int64_t rp__kv_match(rp__kv *kv, rp__kv_seq *seq, const int32_t *tokens, int64_t n) {
    int64_t size = kv->block_size;
    bool may_find = kv->config.has_cache && !seq->is_private;
    while (may_find && seq->n_filed == seq->n_blocks && (seq->n_blocks + 1) * size < n) {
        const int32_t *next = tokens + seq->n_blocks * size;
        rp__hash128 hash = hash_of(kv, seq->prefix.hash, next, token_bytes(kv));
        int32_t b = find(kv, hash, seq->prefix.id, next);
        if (b == RP_KV_SINK) break;
        add_user(kv, b);
        seq->blocks[seq->n_blocks++] = b;
        seq->n_filed++;
        seq->prefix = kv->blocks[b].prefix;
    }
    return seq->n_blocks * size;
}

/* The block that writing at n_computed begins in, when others hold it too; -1: none. */
static int32_t shared_block(const rp__kv *kv, const rp__kv_seq *seq, int64_t n_computed) {
    int64_t i = n_computed / kv->block_size;
    return i < seq->n_blocks && kv->blocks[seq->blocks[i]].n_refs > 1 ? (int32_t)i : -1;
}

rp_status rp__kv_reserve(rp__kv *kv, rp__kv_seq *seq, int64_t n_computed, int64_t n_positions,
                         rp__kv_copy *copy) {
    int32_t want = rp__kv_blocks_for(kv, n_positions), shared = shared_block(kv, seq, n_computed);
    int32_t n_new = (want > seq->n_blocks ? want - seq->n_blocks : 0) + (shared >= 0);
    if (copy) *copy = (rp__kv_copy){RP_KV_SINK, RP_KV_SINK};
    rp__assert(want <= seq->cap, "%d blocks in a table of %d", (int)want, (int)seq->cap);
    rp__assert(shared < 0 || copy, "a shared block is written and nobody copies it");
    if (n_new > rp__kv_available(kv)) return RP_NO_BLOCKS;
    if (shared >= 0) {
        *copy = (rp__kv_copy){seq->blocks[shared], take_block(kv)};
        drop_user(kv, copy->from);
        seq->blocks[shared] = copy->to;
    }
    while (seq->n_blocks < want) seq->blocks[seq->n_blocks++] = take_block(kv);
    return RP_OK;
}

void rp__kv_file(rp__kv *kv, rp__kv_seq *seq, const int32_t *tokens, int64_t n_computed) {
    if (!kv->config.has_cache || seq->is_private) return;
    int64_t size = kv->block_size;
    for (; (seq->n_filed + 1) * size <= n_computed; seq->n_filed++) {
        const int32_t *own = tokens + seq->n_filed * size;
        rp__hash128 hash = hash_of(kv, seq->prefix.hash, own, token_bytes(kv));
        int32_t *b = &seq->blocks[seq->n_filed], same = find(kv, hash, seq->prefix.id, own);
        if (same == RP_KV_SINK) {
            make_findable(kv, *b, hash, seq->prefix.id, own);
        } else if (same != *b) { /* equal prefixes have equal bits: one copy is enough */
            add_user(kv, same);
            drop_user(kv, *b);
            *b = same;
        }
        seq->prefix = kv->blocks[*b].prefix;
    }
}

void rp__kv_fork(rp__kv *kv, const rp__kv_seq *from, rp__kv_seq *to) {
    rp__assert(!to->n_blocks && from->n_blocks <= to->cap, "%d blocks into a table of %d",
               (int)from->n_blocks, (int)to->cap);
    for (int32_t i = 0; i < from->n_blocks; i++) {
        kv->blocks[from->blocks[i]].n_refs++;
        to->blocks[to->n_blocks++] = from->blocks[i];
    }
    to->n_filed = from->n_filed;
    to->prefix = from->prefix;
}

/* The last block first, so that of a cached prefix the end is given away before the beginning. */
void rp__kv_release(rp__kv *kv, rp__kv_seq *seq) {
    while (seq->n_blocks) drop_user(kv, seq->blocks[--seq->n_blocks]);
    seq->n_filed = 0;
    seq->prefix = seq->root;
}

void rp__kv_forget(rp__kv *kv) {
    for (int32_t b = RP_KV_SINK + 1; b < kv->n_blocks; b++) {
        rp__kv_block *x = &kv->blocks[b];
        if (!x->is_findable) continue;
        make_unfindable(kv, b);
        if (x->n_refs) continue;
        take_cached(kv, b);
        kv->free[kv->n_free++] = b;
    }
}

int32_t rp__kv_slot(const rp__kv *kv, const rp__kv_seq *seq, int64_t position) {
    int64_t i = position / kv->block_size;
    rp__assert(i < seq->n_blocks, "position %lld has no block", (long long)position);
    return seq->blocks[i] * kv->block_size + (int32_t)(position % kv->block_size);
}
