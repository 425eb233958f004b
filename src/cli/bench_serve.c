/* `reprise bench serve`: load on a server with OpenAI's API, and how it answers. */
#include <jansson.h>
#include <string.h>

#include <curl/curl.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "cli/bench.h"
#include "cli/cli.h"
#include "cli/load.h"

/* The address without what this file adds itself: a slash and /v1 at its end. */
static char *take_url(rp__options *o) {
    const char *url = rp__options_str(o, RP_OPT_URL);
    if (o->n_positional) url = rp__cli_take_argument(o);
    size_t n = strlen(url);
    while (n && url[n - 1] == '/') n--;
    if (n > 3 && !memcmp(url + n - 3, "/v1", 3)) n -= 3;
    return rp__strndup(url, n);
}

/* The first model the server lists; rp__free. */
static rp_status find_model(const rp__load_config *c, char **out, rp_error *err) {
    rp__bytes answer = {0};
    rp_status s = rp__load_fetch(c, "/v1/models", NULL, &answer, err);
    json_t *root = s ? NULL : json_loadb(answer.p ? answer.p : "", answer.n, 0, NULL);
    const json_t *first = json_array_get(json_object_get(root, "data"), 0);
    const char *id = json_string_value(json_object_get(first, "id"));
    if (!s && !id)
        s = rp__fail(err, RP_ENOTFOUND, "%s/v1/models lists no model: give --model-name", c->url);
    if (!s && !(*out = rp__strdup(id))) s = rp__fail(err, RP_ENOMEM, "out of memory");
    json_decref(root);
    rp__bytes_clear(&answer);
    return s;
}

static void fill(const rp__options *o, rp__load_config *c, rp__prompt_plan *plan) {
    const rp__option_value *keys = &o->values[RP_OPT_API_KEY];
    int64_t seed = rp__options_int(o, RP_OPT_SEED);
    c->api_key = keys->n_items ? keys->items[0] : NULL;
    c->is_chat = !strcmp(rp__options_str(o, RP_OPT_ENDPOINT), "chat");
    c->n_requests = (int)rp__options_int(o, RP_OPT_REQUESTS);
    c->concurrency = (int)rp__options_int(o, RP_OPT_CONCURRENCY);
    c->rate = rp__options_number(o, RP_OPT_RATE);
    c->max_tokens = (int)rp__options_int(o, RP_OPT_OUTPUT_TOKENS);
    c->ignore_eos = rp__options_on(o, RP_OPT_IGNORE_EOS);
    c->temperature = rp__options_number(o, RP_OPT_TEMPERATURE);
    c->timeout_seconds = rp__options_number(o, RP_OPT_REQUEST_TIMEOUT);
    c->seed = (seed >= 0 ? (uint64_t)seed : rp__cli_new_seed()) + 1; /* the generator's is not 0 */
    plan->file = rp__options_str(o, RP_OPT_PROMPTS);
    plan->n_tokens = (int)rp__options_int(o, RP_OPT_PROMPT_TOKENS);
    plan->n_shared = (int)rp__options_int(o, RP_OPT_SHARED_TOKENS);
}

static int check(const rp__options *o, const rp__prompt_plan *plan) {
    if (rp__options_number(o, RP_OPT_RATE) > 0 && rp__options_given(o, RP_OPT_CONCURRENCY))
        return rp__cli_usage(
            "give --concurrency (a closed loop) or --rate (an open loop), not both");
    if (plan->n_shared >= plan->n_tokens)
        return rp__cli_usage("--shared-tokens %d leaves nothing of --prompt-tokens %d to differ in",
                             plan->n_shared, plan->n_tokens);
    return RP_CLI_OK;
}

static int show(const rp__load_report *r, const rp__options *o) {
    rp__bytes out = {0}, svg = {0};
    int code = RP_CLI_OK;
    const char *path = rp__options_str(o, RP_OPT_SVG);
    if (rp__options_on(o, RP_OPT_JSON))
        rp__load_write_json(&out, r);
    else
        rp__load_write_table(&out, r);
    if (out.failed)
        code = rp__cli_out_of_memory();
    else
        rp__cli_write(out.p, out.n);
    if (path && !code) {
        rp__load_write_svg(&svg, r);
        code = rp__bench_save(path, &svg);
    }
    rp__bytes_clear(&svg);
    rp__bytes_clear(&out);
    return code;
}

static size_t count_done(const rp__load_result *r) {
    size_t n = 0;
    for (size_t i = 0; i < r->n_records; i++) n += r->records[i].is_done;
    return n;
}

/* Failing requests are part of the result; a run without one answer has failed itself. */
static int measure(rp__load_config *c, const rp__prompt_plan *plan, const rp__options *o) {
    rp__load_result result = {0};
    rp__load_report report = {.config = c, .result = &result, .plan = plan};
    rp_error err = {0};
    rp_status s = rp__load_make_prompts(c, plan, &report.unit, &err);
    if (!s) s = rp__load_run(c, &result, &err);
    int code = s == RP_ECANCELLED ? RP_CLI_INTERRUPTED : s ? rp__cli_fail(&err) : show(&report, o);
    if (!code && result.is_interrupted) code = RP_CLI_INTERRUPTED;
    if (!code && !count_done(&result)) code = RP_CLI_FAILED;
    rp__load_result_clear(&result);
    rp__load_free_prompts(c);
    return code;
}

int rp__cli_bench_serve(rp__options *o) {
    rp__load_config c = {0};
    rp__prompt_plan plan = {0};
    rp_error err = {0};
    char *url = take_url(o), *model = NULL;
    if (!url) return rp__cli_out_of_memory();
    c.url = url;
    fill(o, &c, &plan);
    int code = rp__cli_no_more_arguments(o) ? check(o, &plan) : RP_CLI_USAGE;
    rp__cli_interrupt_init();
    if (!code && curl_global_init(CURL_GLOBAL_DEFAULT)) code = rp__cli_out_of_memory();
    c.model = rp__options_str(o, RP_OPT_MODEL_NAME);
    if (!code && !c.model && find_model(&c, &model, &err)) code = rp__cli_fail(&err);
    if (model) c.model = model;
    if (!code) code = measure(&c, &plan, o);
    rp__free(model);
    rp__free(url);
    return rp__cli_finish_output(code);
}
