/* Fuzzes the parser of requests: whatever the body, it is refused with a sentence and a status, or
 * what comes out is within the table's ranges. The first byte chooses the endpoint.
 *
 * Built and run as the other fuzzers: see CMakeLists.txt, RP_FUZZ. */
#include <stdint.h>

#include "base/fail.h"
#include "serve/ask.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const rp__ask *ask) {
    const rp_request_options *o = &ask->options;
    const rp_sampling *s = &o->sampling;
    rp__assert(s->temperature >= 0 && s->temperature <= 2, "%g", (double)s->temperature);
    rp__assert(s->top_p > 0 && s->top_p <= 1, "%g", (double)s->top_p);
    rp__assert(ask->n >= 1 && ask->n <= 128, "%d", ask->n);
    rp__assert(o->n_logprobs >= -1 && o->n_logprobs <= 20, "%d", o->n_logprobs);
    for (size_t i = 0; i < s->n_logit_bias; i++)
        rp__assert(s->logit_bias[i].id >= 0 && s->logit_bias[i].id <= ask->max_id, "bias");
    for (size_t i = 0; i < ask->n_prompts; i++)
        for (size_t k = 0; k < ask->prompts[i].n_ids; k++)
            rp__assert(ask->prompts[i].ids[k] >= 0 && ask->prompts[i].ids[k] <= ask->max_id, "id");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const rp__ask_limits limits = {.max_depth = 16, .n_vocab = 1000};
    if (!size) return 0;
    rp__ask ask;
    rp__problem p = {0};
    rp__bytes body = {0}, text = {0};
    rp__bytes_add(&body, data + 1, size - 1);
    rp_status st = rp__ask_parse(&ask, (rp__ask_kind)(1 << data[0] % 5), &body, &limits, &p);
    if (st >= 0) {
        check(&ask);
    } else {
        rp__assert(p.http >= 400 && p.error.message[0], "%d", p.http);
        rp__problem_write(&text, &p);
    }
    rp__ask_clear(&ask);
    rp__bytes_clear(&body);
    rp__bytes_clear(&text);
    return 0;
}
