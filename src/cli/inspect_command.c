/* `reprise inspect` and `reprise explain`: the library's own reports. */
#include "cli/cli.h"

static int print_report(char *text) {
    rp__cli_write_str(text);
    rp_free(text);
    return rp__cli_finish_output(RP_CLI_OK);
}

int rp__cli_inspect(rp__options *o) {
    rp_inspect_options i = rp_inspect_options_default();
    rp_error err = {0};
    char *text = NULL;
    const char *both = rp__options_str(o, RP_OPT_KV_CACHE_DTYPE);
    bool has_both = !rp__str_is(RP_STR("auto"), both);
    i.model = rp__cli_take_model(o);
    if (!i.model || !rp__cli_no_more_arguments(o)) return RP_CLI_USAGE;
    i.n_ctx = (int)rp__options_int(o, RP_OPT_MAX_MODEL_LEN);
    if (rp__options_given(o, RP_OPT_MAX_NUM_SEQS))
        i.max_seqs = (int)rp__options_int(o, RP_OPT_MAX_NUM_SEQS);
    i.cache_type_k = has_both && !rp__options_given(o, RP_OPT_CACHE_TYPE_K)
                         ? both
                         : rp__options_str(o, RP_OPT_CACHE_TYPE_K);
    i.cache_type_v = has_both && !rp__options_given(o, RP_OPT_CACHE_TYPE_V)
                         ? both
                         : rp__options_str(o, RP_OPT_CACHE_TYPE_V);
    i.show_tensors = rp__options_on(o, RP_OPT_TENSORS);
    i.show_vocab = rp__options_on(o, RP_OPT_VOCAB);
    i.show_fit = rp__options_on(o, RP_OPT_FIT);
    i.device = rp__options_str(o, RP_OPT_DEVICE);
    i.device_options = rp__options_str(o, RP_OPT_DEVICE_OPTIONS);
    i.as_json = rp__options_on(o, RP_OPT_JSON);
    return rp_inspect(&i, &text, &err) < 0 ? rp__cli_fail(&err) : print_report(text);
}

int rp__cli_explain(rp__options *o) {
    rp_engine *engine = NULL;
    rp_error err = {0};
    char *text = NULL;
    const char *model = rp__cli_take_model(o);
    if (!model || !rp__cli_no_more_arguments(o)) return RP_CLI_USAGE;
    rp__cli_interrupt_init();
    int code = rp__cli_start(o, model, (int)rp__options_int(o, RP_OPT_MAX_NUM_SEQS), &engine);
    if (code) return code;
    if (rp_engine_explain(engine, rp__options_on(o, RP_OPT_ALL_OPS), &text, &err) < 0)
        code = rp__cli_fail(&err);
    else
        code = print_report(text);
    rp_engine_destroy(engine);
    return code;
}
