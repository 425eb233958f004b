/* Parsing of requests: what comes out, and every failing allocation on the way. */
#include "test.h"

#include <string.h>

#include "base/alloc.h"
#include "serve/ask.h"

static const rp__ask_limits limits = {.max_depth = 16, .n_vocab = 100};

static rp_status parse(rp__ask *ask, rp__ask_kind kind, const char *text, rp__problem *p) {
    rp__bytes body = {0};
    *p = (rp__problem){0};
    *ask = (rp__ask){0};
    rp_status st = RP_ENOMEM;
    if (rp__bytes_add_str(&body, text)) st = rp__ask_parse(ask, kind, &body, &limits, p);
    rp__bytes_clear(&body);
    return st;
}

static const char everything[] =
    "{\"model\": \"m\", \"messages\": [{\"role\": \"developer\", \"content\": [{\"type\": \"text\","
    " \"text\": \"a\"}]}, {\"role\": \"user\", \"content\": \"b\"}], \"stop\": [\"x\", \"y\"],"
    " \"stop_token_ids\": [1, 2], \"logit_bias\": {\"7\": -100}, \"seed\": 5, \"n\": 2,"
    " \"temperature\": 0.5, \"max_tokens\": 3, \"logprobs\": true, \"top_logprobs\": 2,"
    " \"stream\": true, \"stream_options\": {\"include_usage\": true},"
    " \"chat_template_kwargs\": {\"x\": 1}, \"cache_salt\": \"s\", \"priority\": -4}";

RP_TEST(serve, ask_takes_every_field) {
    rp__ask ask;
    rp__problem p;
    assert_int_equal(parse(&ask, RP_ASK_CHAT, everything, &p), RP_OK);
    const rp_request_options *o = &ask.options;
    assert_string_equal(ask.model, "m");
    assert_string_equal(ask.messages, "[{\"role\":\"system\",\"content\":\"a\"},"
                                      "{\"role\":\"user\",\"content\":\"b\"}]");
    assert_string_equal(ask.template_kwargs, "{\"x\":1}");
    assert_int_equal(o->n_stop, 2);
    assert_string_equal(o->stop[1], "y");
    assert_int_equal(o->n_stop_ids, 2);
    assert_int_equal(o->stop_ids[1], 2);
    assert_int_equal(o->sampling.n_logit_bias, 1);
    assert_int_equal(o->sampling.logit_bias[0].id, 7);
    assert_true(o->sampling.logit_bias[0].bias == -100.0f && o->sampling.temperature == 0.5f);
    assert_true(ask.has_seed && o->sampling.seed == 5 && ask.n == 2 && o->max_tokens == 3);
    assert_true(o->n_logprobs == 2 && ask.stream && ask.include_usage && o->priority == -4);
    assert_string_equal(o->cache_salt, "s");
    rp__ask_clear(&ask);
}

RP_TEST(serve, ask_defaults_are_openais) {
    rp__ask ask;
    rp__problem p;
    assert_int_equal(parse(&ask, RP_ASK_COMPLETION, "{\"prompt\": [5, 6]}", &p), RP_OK);
    const rp_sampling *s = &ask.options.sampling;
    assert_true(s->temperature == 1 && s->top_p == 1 && !s->top_k && s->min_p == 0);
    assert_true(s->repetition_penalty == 1 && ask.options.max_tokens == 16 && ask.n == 1);
    assert_int_equal(ask.options.n_logprobs, -1);
    assert_int_equal(ask.prompts[0].n_ids, 2);
    rp__ask_clear(&ask);
}

RP_TEST(serve, ask_survives_every_failing_allocation) {
    uint64_t live = rp__alloc_get_stats().n_allocs - rp__alloc_get_stats().n_frees;
    rp_status st = RP_ENOMEM;
    for (uint64_t n = 1; st == RP_ENOMEM; n++) {
        rp__ask ask;
        rp__problem p;
        assert_true(n < 1000);
        rp__alloc_fail_at(n, true);
        st = parse(&ask, RP_ASK_CHAT, everything, &p);
        rp__alloc_fail_at(0, false);
        assert_true(st == RP_OK || (st == RP_ENOMEM && (p.http == 503 || !p.http)));
        rp__ask_clear(&ask);
        assert_int_equal(rp__alloc_get_stats().n_allocs - rp__alloc_get_stats().n_frees, live);
    }
    assert_int_equal(st, RP_OK);
}

RP_TEST(serve, ask_says_what_and_where) {
    static const struct {
        const char *body, *param, *part;
    } cases[] = {{"{\"prompt\": \"a\", \"top_p\": 2}", "top_p", "top_p is 2, expected"},
                 {"{\"prompt\": \"a\", \"n\": 1.5}", "n", "expected a whole number"},
                 {"{\"prompt\": [1, 100]}", "prompt[1]", "expected 0 to 99"},
                 {"{\"prompt\": \"a\", \"seed\": 1e30}", "seed", "seed is 1e+30"},
                 {"{\"prompt\": \"a\", \"seed\": 1e400}", "seed", "not valid JSON"},
                 {"{\"prompt\": [1, 2}", "", "not valid JSON"},
                 {"{\"prompt\": [1] 2}", "", "not valid JSON"},
                 {"{\"prompt\": [1", "", "not valid JSON"},
                 {"{\"seed\": ", "", "not valid JSON"},
                 {"prompt", "", "not valid JSON"},
                 {"{\"prompt\": \"a\", \"stop\": [\"\"]}", "stop[0]", "has 0 bytes"},
                 {"{}", "prompt", "prompt is missing"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rp__ask ask;
        rp__problem p;
        assert_true(parse(&ask, RP_ASK_COMPLETION, cases[i].body, &p) < 0);
        assert_int_equal(p.http, 400);
        assert_string_equal(p.param, cases[i].param);
        assert_message(p.error, cases[i].part);
        rp__ask_clear(&ask);
    }
}
