/* What the table of options shows as defaults is what the library does without them. */
#include "test.h"

#include <string.h>

#include "base/options.h"
#include "reprise/reprise.h"

static rp__options defaults(rp__command command) {
    rp__options o;
    rp_error err = {0};
    assert_ok(rp__options_parse(&o, command, 0, NULL, &err), err);
    return o;
}

static const char *or_default(const char *text, const char *when_null) {
    return text ? text : when_null;
}

RP_TEST(cli, engine_defaults_are_the_librarys) {
    rp__options o = defaults(RP_CMD_EXPLAIN);
    rp_engine_options e = rp_engine_options_default();
    assert_string_equal(rp__options_str(&o, RP_OPT_DEVICE), or_default(e.device, "cpu"));
    assert_int_equal(rp__options_int(&o, RP_OPT_THREADS), e.n_threads);
    assert_int_equal(rp__options_int(&o, RP_OPT_MAX_MODEL_LEN), e.n_ctx);
    assert_int_equal(rp__options_int(&o, RP_OPT_MAX_NUM_SEQS), e.max_seqs);
    assert_int_equal(rp__options_int(&o, RP_OPT_MAX_BATCH_TOKENS), e.max_batch_tokens);
    assert_int_equal(rp__options_int(&o, RP_OPT_PREFILL_CHUNK), e.prefill_chunk);
    assert_int_equal(rp__options_int(&o, RP_OPT_SCHEDULER_STEPS), e.scheduler_steps);
    assert_int_equal(rp__options_int(&o, RP_OPT_MAX_QUEUE), e.max_queue);
    assert_true(rp__options_on(&o, RP_OPT_PREFIX_CACHE) == e.prefix_cache);
    assert_int_equal(rp__options_int(&o, RP_OPT_BLOCK_SIZE), e.block_size);
    assert_int_equal(rp__options_int(&o, RP_OPT_NUM_BLOCKS), e.n_blocks);
    assert_int_equal(rp__options_int(&o, RP_OPT_MAX_GRAPHS), e.max_graphs);
    assert_int_equal(rp__options_int(&o, RP_OPT_MAX_GRAPH_BYTES), e.max_graph_bytes);
    assert_string_equal(rp__options_str(&o, RP_OPT_PLACEMENT), or_default(e.placement, "auto"));
    assert_int_equal(e.activations, RP_ACTIVATIONS_AUTO);
    assert_string_equal(rp__options_str(&o, RP_OPT_ACTIVATIONS), "auto");
    assert_int_equal(e.capture, RP_CAPTURE_AUTO);
    assert_string_equal(rp__options_str(&o, RP_OPT_CAPTURE), "auto");
    assert_string_equal(rp__options_str(&o, RP_OPT_CACHE_TYPE_K),
                        or_default(e.cache_type_k, "f16"));
    assert_string_equal(rp__options_str(&o, RP_OPT_CACHE_TYPE_V),
                        or_default(e.cache_type_v, "f16"));
    rp__options_clear(&o);
}

RP_TEST(cli, sampling_defaults_are_the_librarys) {
    rp__options o = defaults(RP_CMD_RUN);
    rp_sampling s = rp_sampling_default();
    assert_true((float)rp__options_number(&o, RP_OPT_TEMPERATURE) == s.temperature);
    assert_int_equal(rp__options_int(&o, RP_OPT_TOP_K), s.top_k);
    assert_true((float)rp__options_number(&o, RP_OPT_TOP_P) == s.top_p);
    assert_true((float)rp__options_number(&o, RP_OPT_MIN_P) == s.min_p);
    assert_true((float)rp__options_number(&o, RP_OPT_REPEAT_PENALTY) == s.repetition_penalty);
    assert_true((float)rp__options_number(&o, RP_OPT_PRESENCE_PENALTY) == s.presence_penalty);
    assert_true((float)rp__options_number(&o, RP_OPT_FREQUENCY_PENALTY) == s.frequency_penalty);
    assert_int_equal(rp__options_int(&o, RP_OPT_REPEAT_LAST_N), s.penalty_last_n);
    rp_request_options r = rp_request_options_default();
    assert_int_equal(rp__options_int(&o, RP_OPT_MAX_TOKENS), r.max_tokens);
    assert_true(rp__options_on(&o, RP_OPT_PARSE_SPECIAL) == r.parse_special);
    rp__options_clear(&o);
}
