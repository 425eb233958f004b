/* The histogram model's logits are the token counts of all that is visible, so that every row of
 * the KV cache that is missing, doubled, stale or foreign changes them by a known part: wrong
 * prefix reuse, eviction and copying show without another engine to compare with. */
#include <math.h>
#include <string.h>

#include "engine/answer.h"
#include "test.h"

enum { N_VOCAB = 64, N_CTX = 128, N_STATE = 128 };

static rp_engine *open_histogram(int max_seqs, int n_blocks) {
    rp_engine_options o = rp_engine_options_default();
    o.model = "fixtures/models/histogram64.gguf";
    o.max_seqs = max_seqs;
    o.n_ctx = N_CTX;
    o.block_size = 4;
    o.max_batch_tokens = 32;
    o.prefill_chunk = 8;
    o.n_blocks = n_blocks;
    return rp_answer_engine(o);
}

/* ln P(id) after these tokens: logits = p * sqrt(d / (1 + sum of p squared)), p = count / n. */
static double expected(const int32_t *ids, size_t n, int32_t id) {
    double p[N_VOCAB] = {0}, squares = 0, sum = 0;
    for (size_t i = 0; i < n; i++) p[ids[i]] += 1.0 / (double)n;
    for (int i = 0; i < N_VOCAB; i++) squares += p[i] * p[i];
    double c = sqrt(N_STATE / (1 + squares));
    for (int i = 0; i < N_VOCAB; i++) sum += exp(c * p[i]);
    return c * p[id] - log(sum);
}

typedef struct asked {
    rp_request *request;
    int32_t ids[N_CTX];
    size_t n;
} asked;

/* One row wrong in 128 moves a log probability by some 0.05; rounding by less than 0.001. */
static void check(asked *a) {
    static rp_answer answer;
    rp_answer_take(a->request, &answer);
    rp_request_release(a->request);
    assert_int_equal(answer.finish, RP_FINISH_LENGTH);
    for (size_t i = 0; i < answer.n; i++) {
        double want = expected(a->ids, a->n, answer.ids[i]);
        if (fabs((double)answer.logprobs[i] - want) > 1e-3)
            fail_msg("token %d of the answer: ln P is %g, not %g", (int)i,
                     (double)answer.logprobs[i], want);
        a->ids[a->n++] = answer.ids[i];
    }
}

static rp_request_options options_for(const asked *a, int n_new) {
    rp_request_options o = rp_request_options_default();
    o.prompt_ids = a->ids;
    o.n_prompt_ids = a->n;
    o.max_tokens = n_new;
    o.ignore_eos = true;
    o.n_logprobs = 0;
    o.sampling.temperature = 1;
    o.sampling.top_k = 0;
    o.sampling.top_p = 1;
    o.sampling.min_p = 0;
    return o;
}

static int32_t random_id(uint64_t *rng) {
    return (int32_t)(rp_test_rand(rng) % N_VOCAB);
}

/* Prompts that are the same, extended, shortened or diverging, many at once in a pool that is too
 * small for them. */
static void serve_random(uint64_t seed, int max_seqs, int n_blocks, rp_engine_stats *s) {
    enum { AT_ONCE = 6 };
    static asked a[AT_ONCE];
    rp_engine *e = open_histogram(max_seqs, n_blocks);
    uint64_t rng = seed;
    memset(a, 0, sizeof a);
    for (int round = 0; round < 12; round++) {
        for (int i = 0; i < AT_ONCE; i++) {
            const asked *like = &a[rp_test_rand(&rng) % AT_ONCE];
            size_t same = like->n ? rp_test_rand(&rng) % like->n : 0;
            if (same > 70) same = 70;
            memmove(a[i].ids, like->ids, same * sizeof *a[i].ids);
            a[i].n = same + 1 + rp_test_rand(&rng) % 25;
            for (size_t k = same; k < a[i].n; k++) a[i].ids[k] = random_id(&rng);
        }
        for (int i = 0; i < AT_ONCE; i++) {
            rp_request_options o = options_for(&a[i], 1 + (int)(rp_test_rand(&rng) % 16));
            o.sampling.seed = rp_test_rand(&rng);
            a[i].request = rp_answer_submit(e, &o);
        }
        for (int i = 0; i < AT_ONCE; i++) check(&a[i]);
    }
    *s = rp_answer_stats(e);
    rp_engine_destroy(e);
}

RP_TEST(histogram, reuse_eviction_and_preemption_keep_every_row) {
    rp_engine_stats s;
    uint64_t n_preemptions = 0;
    for (uint64_t seed = 1; seed <= 6; seed++) {
        serve_random(seed, seed % 2 ? 6 : 3, 40, &s);
        assert_true(s.n_prefix_hits > 0);
        n_preemptions += s.n_preemptions;
    }
    assert_true(n_preemptions > 0);
}

/* T53: what salts part is not shared, in any order. */
RP_TEST(histogram, salted_prompts_keep_to_themselves) {
    RP_NEEDS_COUNTS();
    rp_engine *e = open_histogram(2, 0);
    static asked a;
    static const char *const salts[] = {NULL, "alice", "bob", "alice", NULL, "bob"};
    static const uint32_t want[] = {0, 0, 0, 28, 28, 28};
    for (int i = 0; i < 6; i++) {
        static rp_answer answer;
        for (a.n = 0; a.n < 30; a.n++) a.ids[a.n] = (int32_t)(a.n * 7 % N_VOCAB);
        rp_request_options o = options_for(&a, 3);
        o.cache_salt = salts[i];
        rp_answer_of(e, &o, &answer);
        assert_int_equal(answer.usage.n_cached, want[i]);
    }
    assert_int_equal(rp_answer_stats(e).n_prefix_hits, 3 * 28);
    rp_engine_destroy(e);
}

/* Choices write behind a half-full block that they share: each its own copy. */
RP_TEST(histogram, choices_copy_what_they_share) {
    for (size_t n_prompt = 5; n_prompt <= 8; n_prompt++) {
        rp_engine *e = open_histogram(4, 0);
        static asked a[4];
        rp_request *r[4];
        rp_error err = {0};
        for (int i = 0; i < 4; i++)
            for (a[i].n = 0; a[i].n < n_prompt; a[i].n++) a[i].ids[a[i].n] = (int32_t)a[i].n;
        rp_request_options o = options_for(&a[0], 20);
        assert_ok(rp_engine_submit_n(e, &o, 4, r, &err), err);
        for (int i = 0; i < 4; i++) {
            a[i].request = r[i];
            check(&a[i]);
        }
        for (int i = 1; i < 4; i++)
            assert_int_not_equal(memcmp(a[i].ids, a[0].ids, sizeof a[0].ids), 0);
        rp_engine_destroy(e);
    }
}
