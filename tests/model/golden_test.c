/* SmolLM2-135M-Instruct (Q4_1) against llama.cpp on the same file: along its own greedy answers to
 * 20 prompts, our best token is its token wherever its two best are at least 0.1 apart in log
 * probability. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/tiny.h"
#include "reprise/reprise.h"
#include "test.h"

static const double clear_gap = 0.1;
static const double most_near_ties = 0.01; /* share of all steps */
enum { MAX_STEPS = 64, MAX_PROMPT = 128, N_CTX = 256 };

typedef struct golden_case {
    int32_t ids[MAX_PROMPT + MAX_STEPS];
    double gaps[MAX_STEPS];
    int n_prompt, n_steps;
} golden_case;

static const char *model_path(void) {
    static char path[512];
    const char *cache = getenv("REPRISE_CACHE"), *home = getenv("HOME");
    if (cache && *cache)
        snprintf(path, sizeof path, "%s/models/smollm2.gguf", cache);
    else
        snprintf(path, sizeof path, "%s/.cache/reprise/models/smollm2.gguf", home ? home : ".");
    return path;
}

static json_t *open_golden(void) {
    json_t *j = json_load_file(rp_test_path("fixtures/golden/smollm2_greedy.json"), 0, NULL);
    assert_non_null(j);
    return j;
}

static void read_case(const json_t *j, golden_case *c) {
    const json_t *prompt = json_object_get(j, "prompt_ids"), *ids = json_object_get(j, "ids");
    *c = (golden_case){.n_prompt = (int)json_array_size(prompt),
                       .n_steps = (int)json_array_size(ids)};
    assert_in_range(c->n_prompt, 1, MAX_PROMPT);
    assert_in_range(c->n_steps, 1, MAX_STEPS);
    for (int i = 0; i < c->n_prompt; i++)
        c->ids[i] = (int32_t)json_integer_value(json_array_get(prompt, (size_t)i));
    for (int i = 0; i < c->n_steps; i++) {
        c->ids[c->n_prompt + i] = (int32_t)json_integer_value(json_array_get(ids, (size_t)i));
        c->gaps[i] = json_number_value(json_array_get(json_object_get(j, "gap"), (size_t)i));
    }
}

static int32_t best_of(const float *row, int32_t n) {
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++)
        if (row[i] > row[best]) best = i;
    return best;
}

RP_TEST(golden, smollm2_best_token_is_llama_cpps) {
    if (access(model_path(), R_OK) != 0) RP_SKIP("tools/fetch_model.py smollm2 was not run");
    rp_tiny_config config = rp_tiny_default(NULL);
    config.path = model_path();
    config.max_seqs = config.max_tokens = config.n_ctx = N_CTX;
    config.block_size = 32;
    config.kv_type = RP_F16;
    rp_tiny t;
    rp_tiny_open(&t, &config);
    json_t *j = open_golden(), *entry;
    size_t i;
    int n_steps = 0, n_near = 0, n_wrong = 0;
    float *logits = malloc((size_t)N_CTX * (size_t)t.n_vocab * sizeof *logits);
    assert_non_null(logits);
    json_array_foreach(json_object_get(j, "cases"), i, entry) {
        static golden_case c;
        read_case(entry, &c);
        int n = c.n_prompt + c.n_steps - 1;
        rp_tiny_feed(&t, 1, (const int32_t *[]){c.ids}, n, n, &logits);
        for (int s = 0; s < c.n_steps; s++, n_steps++) {
            int32_t best =
                best_of(logits + (size_t)(c.n_prompt - 1 + s) * (size_t)t.n_vocab, t.n_vocab);
            if (best == c.ids[c.n_prompt + s]) continue;
            bool is_near = c.gaps[s] < clear_gap;
            n_near += is_near;
            n_wrong += !is_near;
            print_message("%s: prompt %d, step %d: llama.cpp %d, here %d, its gap %.4f\n",
                          is_near ? "near tie" : "WRONG", (int)i, s, (int)c.ids[c.n_prompt + s],
                          (int)best, c.gaps[s]);
        }
    }
    print_message("%d steps, %d near ties, %d wrong\n", n_steps, n_near, n_wrong);
    json_decref(j);
    free(logits);
    rp_tiny_close(&t);
    assert_int_equal(n_wrong, 0);
    assert_true(n_near < most_near_ties * n_steps);
}

/* The engine's own greedy answers follow llama.cpp's up to the first near tie. */
RP_TEST(golden, smollm2_greedy_text_is_llama_cpps_up_to_a_near_tie) {
    if (access(model_path(), R_OK) != 0) RP_SKIP("tools/fetch_model.py smollm2 was not run");
    rp_engine_options o = rp_engine_options_default();
    rp_error err = {0};
    rp_engine *e;
    o.model = model_path();
    o.n_ctx = N_CTX;
    o.n_threads = 2;
    assert_ok(rp_engine_create(&o, &e, &err), err);
    json_t *j = open_golden(), *entry;
    size_t i;
    json_array_foreach(json_object_get(j, "cases"), i, entry) {
        static golden_case c;
        read_case(entry, &c);
        rp_request_options q = rp_request_options_default();
        rp_request *r;
        rp_event ev;
        q.prompt_ids = c.ids;
        q.n_prompt_ids = (size_t)c.n_prompt;
        q.max_tokens = c.n_steps;
        q.sampling.temperature = 0;
        assert_ok(rp_engine_submit(e, &q, &r, &err), err);
        for (int s = 0;
             rp_request_next(r, -1, &ev) == RP_OK && ev.kind == RP_EVENT_TOKEN && s < c.n_steps;
             s++) {
            if (ev.id == c.ids[c.n_prompt + s]) continue;
            if (c.gaps[s] >= clear_gap)
                fail_msg("prompt %d: step %d is %d, llama.cpp's %d, its gap %.4f", (int)i, s,
                         (int)ev.id, (int)c.ids[c.n_prompt + s], c.gaps[s]);
            break; /* from a near tie on the answers are two */
        }
        rp_request_release(r);
    }
    json_decref(j);
    rp_engine_destroy(e);
}
