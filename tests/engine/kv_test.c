/* KV blocks: a random walk against a model that counts. */
#include "engine/kv.h"

#include "test.h"

enum { N_BLOCKS = 24, BLOCK = 4, N_SEQS = 6, N_POS = 40 };

RP_TEST(kv, random_walk_keeps_every_block_accounted_for) {
    for (uint64_t seed = 1; seed <= 20; seed++) {
        uint64_t rng = seed;
        rp__kv kv;
        rp_error err = {0};
        assert_ok(rp__kv_init(&kv, N_BLOCKS, BLOCK, &err), err);
        int32_t memory[N_SEQS][N_POS / BLOCK];
        rp__kv_seq seqs[N_SEQS];
        for (int i = 0; i < N_SEQS; i++)
            seqs[i] = (rp__kv_seq){.blocks = memory[i], .cap = N_POS / BLOCK};
        for (int op = 0; op < 10000; op++) {
            rp__kv_seq *s = &seqs[rp_test_rand(&rng) % N_SEQS];
            int32_t had = s->n_blocks;
            if (rp_test_rand(&rng) % 3 == 0) {
                rp__kv_release(&kv, s);
            } else {
                int64_t n = (int64_t)(rp_test_rand(&rng) % (N_POS + 1));
                int32_t want = (int32_t)((n + BLOCK - 1) / BLOCK),
                        more = want > had ? want - had : 0, free = kv.n_free;
                rp_status st = rp__kv_reserve(&kv, s, n);
                assert_int_equal(st, more > free ? RP_NO_BLOCKS : RP_OK);
                assert_int_equal(s->n_blocks, st == RP_OK ? had + more : had); /* all or nothing */
            }
            bool seen[N_BLOCKS] = {[RP_KV_SINK] = true};
            int32_t held = 0;
            for (int i = 0; i < N_SEQS; i++)
                for (int32_t b = 0; b < seqs[i].n_blocks; b++) {
                    assert_false(seen[seqs[i].blocks[b]]); /* the sink, or held twice */
                    seen[seqs[i].blocks[b]] = true;
                    held++;
                }
            assert_int_equal(held + kv.n_free, N_BLOCKS - 1);
        }
        rp__kv_clear(&kv);
    }
}

RP_TEST(kv, slots_walk_through_the_blocks) {
    rp__kv kv;
    rp_error err = {0};
    assert_ok(rp__kv_init(&kv, 4, 8, &err), err);
    int32_t blocks[3];
    rp__kv_seq s = {.blocks = blocks, .cap = 3};
    assert_int_equal(rp__kv_reserve(&kv, &s, 17), RP_OK); /* three blocks: 1, 2, 3 */
    assert_int_equal(rp__kv_slot(&kv, &s, 0), 8);
    assert_int_equal(rp__kv_slot(&kv, &s, 7), 15);
    assert_int_equal(rp__kv_slot(&kv, &s, 16), 24);
    rp__kv_clear(&kv);
}
