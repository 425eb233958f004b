/* KV blocks: hand-checked cases, and a random walk against a model that knows what every row holds.
 */
#include "engine/kv.h"

#include <string.h>

#include "base/alloc.h"
#include "engine/cache_model.h"
#include "test.h"

static void open_kv(rp__kv *kv, int32_t n_blocks, int32_t size, bool has_cache, int hash_bits) {
    rp_error err = {0};
    rp__kv_config c = {.n_blocks = n_blocks,
                       .block_size = size,
                       .has_cache = has_cache,
                       .key = {1, 2},
                       .hash_bits = hash_bits};
    assert_ok(rp__kv_init(kv, &c, &err), err);
}

RP_TEST(kv, slots_walk_through_the_blocks) {
    rp__kv kv;
    open_kv(&kv, 4, 8, true, 0);
    int32_t blocks[3];
    rp__kv_seq s = {.blocks = blocks, .cap = 3};
    assert_int_equal(rp__kv_reserve(&kv, &s, 0, 17, NULL), RP_OK); /* three blocks: 1, 2, 3 */
    assert_int_equal(rp__kv_slot(&kv, &s, 0), 8);
    assert_int_equal(rp__kv_slot(&kv, &s, 7), 15);
    assert_int_equal(rp__kv_slot(&kv, &s, 16), 24);
    assert_int_equal(rp__kv_reserve(&kv, &s, 17, 24, NULL), RP_OK); /* the room is there already */
    rp__kv_clear(&kv);
}

/* Sequence of `n` computed tokens with a salt; the caller releases it. */
typedef struct filed {
    int32_t blocks[16];
    rp__kv_seq seq;
} filed;

static void compute(rp__kv *kv, filed *f, const char *salt, const int32_t *tokens, int64_t n) {
    rp__kv_seq_init(kv, &f->seq, f->blocks, 16, salt, strlen(salt));
    int64_t found = rp__kv_match(kv, &f->seq, tokens, n);
    assert_int_equal(rp__kv_reserve(kv, &f->seq, found, n, NULL), RP_OK);
    rp__kv_file(kv, &f->seq, tokens, n);
}

static int64_t found(rp__kv *kv, const char *salt, const int32_t *tokens, int64_t n) {
    filed f;
    rp__kv_seq_init(kv, &f.seq, f.blocks, 16, salt, strlen(salt));
    int64_t positions = rp__kv_match(kv, &f.seq, tokens, n);
    rp__kv_release(kv, &f.seq);
    return positions;
}

static const int32_t text[] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3};

/* T52: lengths around a block's end; the last token is always left to compute. */
RP_TEST(kv, whole_blocks_of_a_prefix_are_found) {
    rp__kv kv;
    filed f;
    open_kv(&kv, 16, 4, true, 0);
    compute(&kv, &f, "", text, 14);
    static const int64_t want[] = {0, 0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12, 12};
    for (int64_t n = 1; n <= 17; n++) assert_int_equal(found(&kv, "", text, n), want[n]);
    rp__kv_release(&kv, &f.seq);
    assert_int_equal(kv.n_cached, 3); /* the fourth block was not full */
    for (int64_t n = 1; n <= 17; n++) assert_int_equal(found(&kv, "", text, n), want[n]);
    assert_int_equal(rp__kv_match(&kv, &f.seq, text, 14), 12); /* its own, when it comes back */
    rp__kv_release(&kv, &f.seq);
    int32_t other[18];
    memcpy(other, text, sizeof text);
    other[5]++; /* in the second block */
    assert_int_equal(found(&kv, "", other, 17), 4);
    other[0]++;
    assert_int_equal(found(&kv, "", other, 17), 0); /* equal blocks behind another beginning */
    assert_int_equal(found(&kv, "", text + 4, 13), 0);
    rp__kv_clear(&kv);
}

RP_TEST(kv, salts_part_the_cache) {
    rp__kv kv;
    filed a, b;
    open_kv(&kv, 16, 4, true, 0);
    compute(&kv, &a, "alice", text, 9);
    assert_int_equal(found(&kv, "bob", text, 9), 0);
    assert_int_equal(found(&kv, "", text, 9), 0);
    assert_int_equal(found(&kv, "alice", text, 9), 8);
    compute(&kv, &b, "bob", text, 9);
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 3; k++) assert_int_not_equal(a.blocks[i], b.blocks[k]);
    rp__kv_release(&kv, &a.seq);
    rp__kv_release(&kv, &b.seq);
    rp__kv_clear(&kv);
}

/* Two that computed the same at the same time keep one copy. */
RP_TEST(kv, equal_blocks_are_kept_once) {
    rp__kv kv;
    filed a, b;
    open_kv(&kv, 16, 4, true, 0);
    rp__kv_seq_init(&kv, &a.seq, a.blocks, 16, "", 0);
    rp__kv_seq_init(&kv, &b.seq, b.blocks, 16, "", 0);
    assert_int_equal(rp__kv_reserve(&kv, &a.seq, 0, 9, NULL), RP_OK);
    assert_int_equal(rp__kv_reserve(&kv, &b.seq, 0, 9, NULL), RP_OK);
    assert_int_equal(rp__kv_available(&kv), 15 - 6);
    rp__kv_file(&kv, &a.seq, text, 9);
    rp__kv_file(&kv, &b.seq, text, 9);
    assert_int_equal(rp__kv_available(&kv), 15 - 4);
    assert_memory_equal(a.blocks, b.blocks, 2 * sizeof *a.blocks);
    assert_int_not_equal(a.blocks[2], b.blocks[2]);
    rp__kv_release(&kv, &a.seq);
    rp__kv_release(&kv, &b.seq);
    rp__kv_clear(&kv);
}

/* The longest unused goes first, and of one prefix its end before its beginning. */
RP_TEST(kv, evicts_the_longest_unused) {
    rp__kv kv;
    filed a, b, c;
    open_kv(&kv, 8, 4, true, 0); /* 7 blocks */
    compute(&kv, &a, "", text, 12);
    compute(&kv, &b, "b", text, 12);
    rp__kv_release(&kv, &a.seq);
    rp__kv_release(&kv, &b.seq);
    assert_int_equal(kv.n_cached, 6);
    rp__kv_seq_init(&kv, &c.seq, c.blocks, 16, "c", 1);
    assert_int_equal(rp__kv_reserve(&kv, &c.seq, 0, 4, NULL), RP_OK); /* the free one */
    assert_int_equal(found(&kv, "", text, 13), 12);                   /* a is the newer one now */
    assert_int_equal(rp__kv_reserve(&kv, &c.seq, 4, 12, NULL), RP_OK);
    assert_int_equal(found(&kv, "b", text, 13), 4);
    assert_int_equal(found(&kv, "", text, 13), 12);
    rp__kv_forget(&kv);
    assert_int_equal(found(&kv, "", text, 13), 0);
    assert_int_equal(kv.n_free, 4);
    rp__kv_release(&kv, &c.seq);
    rp__kv_clear(&kv);
}

RP_TEST(kv, a_shared_block_is_copied_before_it_is_written) {
    rp__kv kv;
    filed a, b, c;
    rp__kv_copy copy;
    open_kv(&kv, 8, 4, true, 0);
    compute(&kv, &a, "", text, 6);
    rp__kv_seq_init(&kv, &b.seq, b.blocks, 16, "", 0);
    rp__kv_seq_init(&kv, &c.seq, c.blocks, 16, "", 0);
    rp__kv_fork(&kv, &a.seq, &b.seq);
    rp__kv_fork(&kv, &a.seq, &c.seq);
    assert_int_equal(rp__kv_available(&kv), 5);
    int32_t shared = a.blocks[1];
    assert_int_equal(rp__kv_reserve(&kv, &a.seq, 6, 7, &copy), RP_OK);
    assert_int_equal(copy.from, shared);
    assert_int_equal(copy.to, a.blocks[1]);
    assert_int_not_equal(copy.to, shared);
    assert_int_equal(rp__kv_reserve(&kv, &b.seq, 6, 7, &copy), RP_OK);
    assert_int_equal(copy.from, shared);
    assert_int_equal(rp__kv_reserve(&kv, &c.seq, 6, 7, &copy), RP_OK); /* the last keeps it */
    assert_int_equal(copy.to, RP_KV_SINK);
    assert_int_equal(c.blocks[1], shared);
    assert_int_equal(a.blocks[0], b.blocks[0]);
    rp__kv_release(&kv, &a.seq);
    rp__kv_release(&kv, &b.seq);
    rp__kv_release(&kv, &c.seq);
    rp__kv_clear(&kv);
}

RP_TEST(kv, every_failing_allocation_is_survived) {
    rp_error err;
    rp__kv kv;
    rp__kv_config c = {.n_blocks = 8, .block_size = 4};
    for (uint64_t n = 1; n <= 4; n++) {
        rp__alloc_fail_at(n, false);
        assert_int_equal(rp__kv_init(&kv, &c, &err), RP_ENOMEM);
    }
    rp__alloc_fail_at(0, false);
}

/* ---- a random walk ---- */

enum { N_BLOCKS = 24, SIZE = 4, N_SEQS = 6, N_POS = 40 };

typedef struct walker {
    rp__kv_seq seq;
    int32_t blocks[N_POS / SIZE], tokens[N_POS];
    int64_t n, n_computed; /* n 0: not there */
    int salt;
} walker;

typedef struct walk {
    rp__kv kv;
    rp_cache_model model;
    walker w[N_SEQS];
    uint64_t rng;
    int64_t n_found;
} walk;

static int64_t below(walk *k, int64_t n) {
    return (int64_t)(rp_test_rand(&k->rng) >> 11) % n;
}

/* A prompt that begins as another one does: the same, an extension, shorter, or diverging. */
static void begin(walk *k, walker *w) {
    const walker *like = &k->w[below(k, N_SEQS)];
    static const char *const salts[] = {"", "x"};
    int64_t same = like->n ? below(k, like->n + 1) : 0;
    w->salt = below(k, 4) == 0;
    w->n = same + below(k, N_POS + 1 - same);
    if (!w->n) w->n = 1;
    for (int64_t i = 0; i < w->n; i++)
        w->tokens[i] = i < same ? like->tokens[i] : (int32_t)below(k, 2);
    rp__kv_seq_init(&k->kv, &w->seq, w->blocks, N_POS / SIZE, salts[w->salt], (size_t)w->salt);
    w->seq.is_private = below(k, 8) == 0;
    w->n_computed = rp__kv_match(&k->kv, &w->seq, w->tokens, w->n);
    k->n_found += w->n_computed;
    assert_true(w->n_computed < w->n);
    if (w->seq.is_private) assert_int_equal(w->n_computed, 0);
}

static void advance(walk *k, walker *w) {
    rp__kv_copy copy;
    if (w->n_computed == w->n) { /* answer: a token more */
        if (w->n == N_POS) return;
        w->tokens[w->n++] = (int32_t)below(k, 2);
    }
    int64_t n = 1 + below(k, w->n - w->n_computed);
    int32_t available = rp__kv_available(&k->kv), had = w->seq.n_blocks;
    rp_status st = rp__kv_reserve(&k->kv, &w->seq, w->n_computed, w->n_computed + n, &copy);
    if (st == RP_NO_BLOCKS) { /* all or nothing */
        assert_int_equal(w->seq.n_blocks, had);
        assert_int_equal(rp__kv_available(&k->kv), available);
        return;
    }
    if (copy.to != RP_KV_SINK) rp_cache_model_copy(&k->model, copy);
    rp_cache_model_compute(&k->model, &w->seq, w->tokens, w->n_computed, n);
    w->n_computed += n;
    rp__kv_file(&k->kv, &w->seq, w->tokens, w->n_computed);
}

static void fork_into(walk *k, const walker *from, walker *to) {
    if (!from->n || to->n) return;
    memcpy(to->tokens, from->tokens, sizeof to->tokens);
    to->n = from->n;
    to->n_computed = from->n_computed;
    to->salt = from->salt;
    rp__kv_seq_init(&k->kv, &to->seq, to->blocks, N_POS / SIZE, "x", (size_t)to->salt);
    to->seq.is_private = from->seq.is_private;
    rp__kv_fork(&k->kv, &from->seq, &to->seq);
}

static void check(walk *k) {
    const rp__kv_seq *seqs[N_SEQS];
    for (int i = 0; i < N_SEQS; i++) {
        const walker *w = &k->w[i];
        seqs[i] = &w->seq;
        rp_cache_model_check(&k->model, &w->seq, w->tokens, w->n_computed);
        for (int j = 0; j < i; j++) /* salts never share */
            if (k->w[j].salt != w->salt && w->n && k->w[j].n)
                for (int32_t a = 0; a < w->seq.n_blocks; a++)
                    for (int32_t b = 0; b < k->w[j].seq.n_blocks; b++)
                        assert_int_not_equal(w->blocks[a], k->w[j].blocks[b]);
    }
    rp_cache_model_audit(&k->model, seqs, N_SEQS);
}

static void walk_once(uint64_t seed, int n_ops, bool has_cache, int hash_bits) {
    walk k = {.rng = seed};
    open_kv(&k.kv, N_BLOCKS, SIZE, has_cache, hash_bits);
    rp_cache_model_init(&k.model, &k.kv);
    for (int op = 0; op < n_ops; op++) {
        walker *w = &k.w[below(&k, N_SEQS)];
        int64_t what = below(&k, 64);
        if (!w->n)
            begin(&k, w);
        else if (what == 0)
            rp__kv_forget(&k.kv);
        else if (what < 8)
            rp__kv_release(&k.kv, &w->seq), w->n = w->n_computed = 0;
        else if (what < 20)
            fork_into(&k, w, &k.w[below(&k, N_SEQS)]);
        else
            advance(&k, w);
        check(&k);
    }
    assert_int_equal(k.n_found > 0, has_cache);
    for (int i = 0; i < N_SEQS; i++) rp__kv_release(&k.kv, &k.w[i].seq);
    assert_int_equal(rp__kv_available(&k.kv), N_BLOCKS - 1);
    rp_cache_model_clear(&k.model);
    rp__kv_clear(&k.kv);
}

/* T53: with hashes of 4 bits and of 1 everything collides, and nothing foreign is found. */
RP_TEST(kv, random_walk_finds_only_what_it_should) {
    int n_seeds = RP_TEST_IS_INSTRUMENTED ? 3 : 12;
    for (uint64_t seed = 1; seed <= (uint64_t)n_seeds; seed++) {
        walk_once(seed, 10000, true, 0);
        walk_once(seed + 100, 10000, true, seed % 2 ? 4 : 1);
    }
    walk_once(7, 10000, false, 0);
}
