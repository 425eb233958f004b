/* An answer has the same bits whoever else is served and however it is computed (T51, T52, T58): 32
 * prompts, greedy and seeded, of which many begin alike, against each of them alone. */
#include <sched.h>
#include <string.h>

#include "engine/answer.h"
#include "test.h"

enum { N = 32, N_NEW = 32, N_LONGEST = 120, N_IDS = 250 };

typedef struct way {
    const char *name;
    int max_seqs, max_tokens, chunk, n_threads, n_blocks;
    bool prefix_cache, is_shuffled, is_staggered;
    rp_capture_mode capture;
    const char *device, *device_options;
} way;

static rp_engine *open_way(const way *w) {
    rp_engine_options o = rp_engine_options_default();
    o.max_seqs = w->max_seqs;
    o.n_ctx = N_LONGEST + N_NEW;
    o.max_batch_tokens = w->max_tokens;
    o.prefill_chunk = w->chunk;
    o.block_size = 8;
    o.n_blocks = w->n_blocks;
    o.n_threads = w->n_threads;
    o.prefix_cache = w->prefix_cache;
    o.capture = w->capture;
    o.device = w->device;
    o.device_options = w->device_options;
    return rp_answer_engine(o);
}

/* Lengths around the ends of blocks; every other prompt begins like its neighbours. */
static rp_request_options prompt(int i, int32_t ids[N_LONGEST]) {
    static const size_t lengths[] = {1, 7, 8, 9, 15, 16, 17, 40, 63, 64, 65, 71, 72, 73, 119, 120};
    uint64_t rng = (uint64_t)(i % 2 ? i : 1) + 99;
    rp_request_options o = rp_request_options_default();
    o.prompt_ids = ids;
    o.n_prompt_ids = lengths[i / 2];
    for (size_t k = 0; k < o.n_prompt_ids; k++) ids[k] = (int32_t)(rp_test_rand(&rng) % N_IDS);
    o.max_tokens = N_NEW;
    o.ignore_eos = true;
    o.n_logprobs = 3;
    o.sampling.seed = (uint64_t)i;
    o.sampling.temperature = i % 4 < 2 ? 0 : 1;
    return o;
}

static void answer_alone(rp_answer *alone) {
    const way solo = {"alone", 1, 512, 512, 1, 0, .capture = RP_CAPTURE_OFF};
    rp_engine *e = open_way(&solo);
    int32_t ids[N_LONGEST];
    for (int i = 0; i < N; i++) {
        rp_request_options o = prompt(i, ids);
        rp_answer_of(e, &o, &alone[i]);
        assert_int_equal(alone[i].n, N_NEW);
        assert_int_equal(alone[i].usage.n_cached, 0);
    }
    rp_engine_destroy(e);
}

/* Which prompt is the k-th to come: 13 and 32 have no common factor. */
static int order(const way *w, int k) {
    return w->is_shuffled ? k * 13 % N : k;
}

static void answer_all(rp_engine *e, const way *w, const rp_answer *alone) {
    static rp_answer a;
    rp_request *r[N];
    int32_t ids[N_LONGEST];
    uint64_t start = rp_answer_stats(e).n_generated_tokens;
    for (int k = 0; k < N; k++) {
        rp_request_options o = prompt(order(w, k), ids);
        uint64_t wanted = w->is_staggered ? start + 5 * (uint64_t)k : 0;
        while (rp_answer_stats(e).n_generated_tokens < wanted) sched_yield();
        r[k] = rp_answer_submit(e, &o);
    }
    for (int k = 0; k < N; k++) {
        rp_answer_take(r[k], &a);
        rp_answer_assert_same(&a, &alone[order(w, k)]);
        rp_request_release(r[k]);
    }
}

static void compare(const way *w, const rp_answer *alone) {
    rp_engine *e = open_way(w);
    for (int round = 0; round < 2; round++) /* the second time all of it is cached */
        answer_all(e, w, alone);
    rp_engine_stats s = rp_answer_stats(e);
    assert_int_equal(s.n_prefix_hits > 0, w->prefix_cache);
    if (w->n_blocks && !RP_STRESS) assert_true(s.n_preemptions > 0);
    if (w->capture == RP_CAPTURE_ON) assert_true(s.n_replays > 0);
    assert_int_equal(s.blocks_live, 0);
    rp_engine_destroy(e);
}

RP_TEST(bits, are_the_same_in_any_company) {
    static rp_answer alone[N];
    static const way ways[] = {
        {"2", 2, 64, 64, 1, 0, false, .capture = RP_CAPTURE_OFF},
        {"3, cached, replayed", 3, 64, 16, 2, 0, true, .capture = RP_CAPTURE_ON},
        {"8, shuffled", 8, 512, 512, 2, 0, false, true, .capture = RP_CAPTURE_OFF},
        {"8, cached, staggered", 8, 512, 64, 2, 0, true, true, true, .capture = RP_CAPTURE_AUTO},
        {"32, cached", 32, 512, 512, 1, 0, true, .capture = RP_CAPTURE_ON},
        {"32, shuffled, small chunks", 32, 64, 3, 2, 0, true, true, .capture = RP_CAPTURE_AUTO},
        {"8, few blocks", 8, 64, 32, 1, 40, true, true, .capture = RP_CAPTURE_OFF},
        {"32, very few blocks, replayed", 32, 64, 16, 2, 24, false, .capture = RP_CAPTURE_ON},
        {"3 on an accelerator", 3, 64, 16, 0, 30, true, true, .capture = RP_CAPTURE_ON,
         .device = "emu"},
        {"5, prompts by themselves", 5, 40, 30, 0, 0, true, true, .capture = RP_CAPTURE_ON,
         .device = "emu", .device_options = "prompt_align=16,advance=1"},
    };
    answer_alone(alone);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        print_message("  %s\n", ways[i].name);
        compare(&ways[i], alone);
    }
}

/* T52: a prompt three times, with lengths around the end of a block. */
RP_TEST(bits, a_cached_prefix_changes_nothing) {
    RP_NEEDS_COUNTS();
    const way w = {"cached", 2, 512, 512, 2, 0, true, .capture = RP_CAPTURE_AUTO};
    static rp_answer first, again;
    for (size_t n = 15; n <= 17; n++) {
        rp_engine *e = open_way(&w);
        int32_t ids[N_LONGEST];
        rp_request_options o = prompt(31, ids);
        o.n_prompt_ids = n;
        o.use_prefix_cache = false;
        rp_answer_of(e, &o, &first);
        assert_int_equal(rp_answer_stats(e).blocks_cached, 0); /* and it leaves nothing */
        o.use_prefix_cache = true;
        for (int i = 0; i < 3; i++) {
            rp_answer_of(e, &o, &again);
            rp_answer_assert_same(&first, &again);
            size_t found = RP_STRESSED(n == 17 ? 16 : 8, n - 1); /* whole blocks */
            assert_int_equal(again.usage.n_cached, i == 0 ? 0 : found);
        }
        o.cache_salt = "another";
        rp_answer_of(e, &o, &again);
        rp_answer_assert_same(&first, &again);
        assert_int_equal(again.usage.n_cached, 0);
        rp_engine_destroy(e);
    }
}

/* T58: seeds are a request's own. */
RP_TEST(bits, seeds_belong_to_their_requests) {
    const way w = {"seeds", 8, 512, 64, 2, 0, true, .capture = RP_CAPTURE_AUTO};
    static rp_answer a[N], solo;
    rp_request *r[N];
    int32_t ids[N_LONGEST];
    rp_engine *e = open_way(&w);
    rp_request_options o = prompt(22, ids);
    for (int i = 0; i < N; i++) {
        o.sampling.seed = i % 2 ? 0 : (uint64_t)i / 2 + 1;
        r[i] = rp_answer_submit(e, &o);
    }
    for (int i = 0; i < N; i++) {
        rp_answer_take(r[i], &a[i]);
        rp_request_release(r[i]);
    }
    o.sampling.seed = 0;
    rp_answer_of(e, &o, &solo);
    for (int i = 0; i < N; i++) {
        if (i % 2)
            rp_answer_assert_same(&a[i], &solo);
        else
            for (int k = 0; k < i; k++)
                assert_int_not_equal(memcmp(a[i].ids, a[k].ids, sizeof solo.ids), 0);
    }
    rp_engine_destroy(e);
}

/* Choice i of n is the answer to seed + i, however many of them run at once, and the prompt is
 * computed once for those that do. */
RP_TEST(bits, choices_are_the_answers_of_their_seeds) {
    static rp_answer want, got;
    for (int max_seqs = 1; max_seqs <= 8; max_seqs += 2) {
        const way w = {"choices",
                       max_seqs,
                       64,
                       64,
                       2,
                       30,
                       true,
                       .capture = RP_CAPTURE_AUTO,
                       .device = max_seqs == 3 ? "emu" : NULL};
        rp_engine *e = open_way(&w);
        int32_t ids[N_LONGEST];
        rp_request_options o = prompt(21, ids); /* 65 tokens: a block is shared in part */
        rp_request *r[5];
        rp_error err = {0};
        assert_ok(rp_engine_submit_n(e, &o, 5, r, &err), err);
        static rp_answer all[5];
        for (int i = 0; i < 5; i++) {
            rp_answer_take(r[i], &all[i]);
            rp_request_release(r[i]);
        }
        if (max_seqs >= 5 && !RP_STRESS)
            assert_int_equal(rp_answer_stats(e).n_prompt_tokens, o.n_prompt_ids);
        for (int i = 0; i < 5; i++, o.sampling.seed++) {
            got = all[i];
            rp_answer_of(e, &o, &want);
            rp_answer_assert_same(&got, &want);
        }
        assert_int_equal(rp_answer_stats(e).blocks_live, 0);
        rp_engine_destroy(e);
    }
}
