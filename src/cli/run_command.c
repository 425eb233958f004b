/* `reprise run`: one prompt, one answer. */
#include <math.h>

#include "base/fail.h"
#include "cli/cli.h"
#include "base/json_writer.h"

typedef struct run {
    rp__options *o;
    rp_engine *engine;
    rp__bytes prompt, messages;
    rp__bytes tokens; /* the JSON of the tokens so far */
    int n_logprobs;
    bool as_json;
} run;

/* ---- prompt ---- */

/* Most files and every `echo` end with a line end that belongs to no prompt. */
static void drop_line_end(rp__bytes *b) {
    if (b->n && b->p[b->n - 1] == '\n') b->p[--b->n] = 0;
    if (b->n && b->p[b->n - 1] == '\r') b->p[--b->n] = 0;
}

static int take_prompt(run *r) {
    rp_error err = {0};
    bool from_file;
    int code = rp__cli_take_prompt(r->o, &r->prompt, &from_file);
    if (code) return code;
    if (from_file) drop_line_end(&r->prompt);
    if (!r->prompt.n) return rp__cli_usage("the prompt is empty");
    if (rp__cli_check_utf8("the prompt", r->prompt.p, r->prompt.n, &err)) return rp__cli_fail(&err);
    const char *system = rp__options_str(r->o, RP_OPT_SYSTEM);
    if (system && rp__cli_check_utf8("the system prompt", system, rp__str_of(system).n, &err))
        return rp__cli_fail(&err);
    return rp__cli_no_more_arguments(r->o) ? RP_CLI_OK : RP_CLI_USAGE;
}

static void add_message(rp__bytes *b, const char *role, const char *p, size_t n) {
    rp__json_open(b, NULL, '{');
    rp__json_str(b, "role", role);
    rp__json_strn(b, "content", p, n);
    rp__json_close(b, '}');
}

static void use_messages(run *r, rp_request_options *q) {
    const char *system = rp__options_str(r->o, RP_OPT_SYSTEM);
    rp__json_open(&r->messages, NULL, '[');
    if (system) add_message(&r->messages, "system", system, rp__str_of(system).n);
    add_message(&r->messages, "user", r->prompt.p, r->prompt.n);
    rp__json_close(&r->messages, ']');
    q->messages = r->messages.p;
    q->template_kwargs = rp__options_str(r->o, RP_OPT_CHAT_TEMPLATE_KWARGS);
}

/* 0 or an exit status. */
static int fill_request(run *r, rp_request_options *q) {
    rp_engine_info info = {.bytes = sizeof info};
    rp_engine_get_info(r->engine, &info);
    bool is_chat = info.has_chat_template && !rp__options_on(r->o, RP_OPT_RAW);
    if (!is_chat && rp__options_str(r->o, RP_OPT_SYSTEM)) {
        rp_error err = {0};
        rp__fail(&err, RP_EINVAL, "%s has no chat template, so a system prompt has no place",
                 info.model_name);
        return rp__cli_fail(&err);
    }
    *q = rp__cli_request_options(r->o);
    q->skip_bos = rp__options_on(r->o, RP_OPT_NO_BOS);
    if (r->as_json) q->n_logprobs = r->n_logprobs; /* 0: of the chosen token */
    if (is_chat) {
        use_messages(r, q);
        return r->messages.failed ? rp__cli_out_of_memory() : RP_CLI_OK;
    }
    q->prompt = r->prompt.p;
    q->prompt_bytes = r->prompt.n;
    q->parse_special = rp__options_on(r->o, RP_OPT_PARSE_SPECIAL);
    return RP_CLI_OK;
}

/* ---- JSON ---- */

static void add_token(void *user, const rp_event *event) {
    run *r = user;
    if (event->kind != RP_EVENT_TOKEN) return;
    rp__bytes *b = &r->tokens;
    rp__json_open(b, NULL, '{');
    rp__json_int(b, "id", event->id);
    rp__json_strn(b, "text", event->text, event->text_bytes);
    rp__json_num(b, "logprob", (double)event->logprob);
    if (event->n_top) {
        rp__json_open(b, "top", '[');
        for (size_t i = 0; i < event->n_top; i++) {
            rp__json_open(b, NULL, '{');
            rp__json_int(b, "id", event->top[i].id);
            rp__json_num(b, "logprob", (double)event->top[i].logprob);
            rp__json_close(b, '}');
        }
        rp__json_close(b, ']');
    }
    rp__json_close(b, '}');
}

static void add_figures(run *r, rp__bytes *b, const rp__cli_answer *a) {
    rp_engine_info info = {.bytes = sizeof info};
    rp_engine_stats stats = {.bytes = sizeof stats};
    rp_engine_get_info(r->engine, &info);
    rp_engine_get_stats(r->engine, &stats);
    rp__json_str(b, "model", info.model_name);
    rp__json_str(b, "device", info.device);
    rp__json_bool(b, "times_are_simulated", info.is_simulated);
    rp__json_uint(b, "prompt_tokens", a->usage.n_prompt);
    rp__json_uint(b, "cached_tokens", a->usage.n_cached);
    rp__json_uint(b, "completion_tokens", a->usage.n_generated);
    rp__json_num(b, "load_seconds", info.load_seconds);
    rp__json_num(b, "prefill_seconds", a->usage.prefill_seconds);
    rp__json_num(b, "decode_seconds", a->usage.decode_seconds);
    rp__json_uint(b, "captures", stats.n_captures);
    rp__json_uint(b, "replays", stats.n_replays);
    rp__json_uint(b, "eager_steps", stats.n_eager_steps);
}

static int print_json(run *r, const rp__cli_answer *a, uint64_t seed) {
    rp__bytes b = {0};
    rp__json_open(&b, NULL, '{');
    rp__json_strn(&b, "text", a->text.p, a->text.n);
    rp__json_str(&b, "finish_reason", rp_finish_name(a->finish));
    rp__json_uint(&b, "seed", seed);
    add_figures(r, &b, a);
    rp__json_open(&b, "tokens", '[');
    if (r->tokens.n) rp__bytes_add(&b, r->tokens.p, r->tokens.n);
    rp__json_close(&b, ']');
    rp__bytes_add_str(&b, "}\n");
    bool is_whole = !b.failed && !r->tokens.failed;
    if (is_whole) rp__cli_write(b.p, b.n);
    rp__bytes_clear(&b);
    return is_whole ? RP_CLI_OK : rp__cli_out_of_memory();
}

/* ---- the command ---- */

static int answer(run *r) {
    rp_request_options q;
    rp__cli_answer a;
    rp_error err = {0};
    int code = fill_request(r, &q);
    if (code) return code;
    rp_status s =
        rp__cli_answer_take(r->engine, &q, !r->as_json, r->as_json ? add_token : NULL, r, &a, &err);
    if (!s && r->as_json) code = print_json(r, &a, q.sampling.seed);
    code = rp__cli_finish_output(code);
    if (s < 0)
        code = rp__cli_fail(&err);
    else
        rp__cli_print_figures(r->engine, &a.usage, a.finish, q.sampling.seed);
    if (a.interrupted && !code) code = RP_CLI_INTERRUPTED;
    rp__cli_answer_clear(&a);
    return code;
}

int rp__cli_run(rp__options *o) {
    run r = {.o = o,
             .as_json = rp__options_on(o, RP_OPT_JSON),
             .n_logprobs = (int)rp__options_int(o, RP_OPT_LOGPROBS)};
    if (r.n_logprobs && !r.as_json)
        return rp__cli_usage("--logprobs needs --json, where they are shown");
    if (rp__options_on(o, RP_OPT_RAW) && rp__options_str(o, RP_OPT_SYSTEM))
        return rp__cli_usage("--raw uses no chat template, so --system-prompt has no place");
    const char *model = rp__cli_take_model(o);
    if (!model) return RP_CLI_USAGE;
    int code = take_prompt(&r);
    rp__cli_interrupt_init();
    if (!code) code = rp__cli_start(o, model, 1, &r.engine);
    if (!code) code = answer(&r);
    rp_engine_destroy(r.engine);
    rp__bytes_clear(&r.prompt);
    rp__bytes_clear(&r.messages);
    rp__bytes_clear(&r.tokens);
    return code;
}
