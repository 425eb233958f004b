/* Greedy answers on a device that picks tokens: the same ones, and no logits cross for them. */
#include "device/device.h"
#include "engine/answer.h"
#include "engine/engine_impl.h"
#include "test.h"

enum { N = 4, N_NEW = 20 };

static rp_engine *open_engine(const char *options) {
    rp_engine_options o = rp_engine_options_default();
    o.device = "emu";
    o.device_options = options;
    o.max_seqs = 3;
    o.max_batch_tokens = 32;
    o.n_ctx = 64;
    return rp_answer_engine(o);
}

/* The third one is not greedy, the fourth has a penalty: from then on logits are read. */
static rp_request_options prompt(int i, int32_t ids[8]) {
    rp_request_options o = rp_request_options_default();
    for (int k = 0; k < 8; k++) ids[k] = (i * 31 + k * 7) % 250;
    o.prompt_ids = ids;
    o.n_prompt_ids = 3 + (size_t)i;
    o.max_tokens = N_NEW;
    o.ignore_eos = true;
    o.sampling.seed = 5;
    o.sampling.temperature = i == 2 ? 1 : 0;
    o.sampling.repetition_penalty = i == 3 ? 1.5f : 1;
    return o;
}

static void answer_together(rp_engine *e, int first, int n, rp_answer *a) {
    rp_request *r[N];
    int32_t ids[N][8];
    for (int i = first; i < first + n; i++) {
        rp_request_options o = prompt(i, ids[i]);
        r[i] = rp_answer_submit(e, &o);
    }
    for (int i = first; i < first + n; i++) {
        rp_answer_take(r[i], &a[i]);
        rp_request_release(r[i]);
    }
}

RP_TEST(greedy, tokens_are_picked_on_the_device) {
    static rp_answer plain[N], picked[N];
    static const char *const options[] = {"picks=1", "picks=1,prompt_align=16,advance=1"};
    rp_engine *e = open_engine("picks=0");
    answer_together(e, 0, N, plain);
    rp_engine_destroy(e);
    for (int i = 0; i < 2; i++) {
        e = open_engine(options[i]);
        answer_together(e, 0, 2, picked);
        rp__device_stats s = rp__device_get_stats(e->device);
        assert_true(e->stepper.has_best);
        assert_true(s.bytes_read <= 4 * 2 * (N_NEW + 8)); /* a token for each row */
        answer_together(e, 2, 2, picked);
        assert_false(e->stepper.has_best);
        for (int k = 0; k < N; k++) rp_answer_assert_same(&picked[k], &plain[k]);
        rp_engine_destroy(e);
    }
}
