#include "serve/ask.h"

#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/json_scan.h"

static rp_status check_depth(rp__str text, size_t max_depth, rp__problem *p) {
    size_t at = rp__json_too_deep(text, max_depth);
    if (at == text.n) return RP_OK;
    return rp__refuse(p, RP_EINVAL, NULL, "byte %zu: the JSON nests deeper than %zu levels", at,
                      max_depth);
}

/* jansson's sentence and place. A field is named where its value alone is no JSON (NaN, 1e999); in
 * text that does not end, or is mended elsewhere, none is to blame. */
static rp_status fail_parse(rp__str text, const json_error_t *e, rp__problem *p) {
    if (json_error_code(e) == json_error_out_of_memory)
        return rp__refuse(p, RP_ENOMEM, NULL, "out of memory for the request");
    size_t at = e->position > 0 ? (size_t)e->position : 0;
    bool has_end = json_error_code(e) != json_error_premature_end_of_input;
    rp__str key = has_end ? rp__json_key_at(text, at) : (rp__str){"", 0};
    char param[sizeof p->param] = "";
    if (key.n < sizeof param) memcpy(param, key.p, key.n);
    return rp__refuse(p, RP_EFORMAT, param, "the body is not valid JSON: line %d, byte %zu: %s",
                      e->line, at, e->text);
}

static rp_status parse(rp__ask *ask, rp__bytes *body, size_t max_depth, rp__problem *p) {
    rp__str text = {body->p ? body->p : "", body->n};
    if (!text.n) return rp__refuse(p, RP_EFORMAT, NULL, "the body is empty; JSON is wanted");
    RP_TRY(check_depth(text, max_depth, p));
    rp__json_soften_integers(body->p, body->n);
    json_error_t e;
    ask->root = json_loadb(text.p, text.n, JSON_ALLOW_NUL, &e);
    if (!ask->root) return fail_parse(text, &e, p);
    if (json_is_object(ask->root)) return RP_OK;
    return rp__refuse(p, RP_EFORMAT, NULL, "the body is not a JSON object");
}

static int append(const char *p, size_t n, void *out) {
    return rp__bytes_add(out, p, n) ? 0 : -1;
}

char *rp__ask_dump(const json_t *value) {
    rp__bytes text = {0};
    if (!json_dump_callback(value, append, &text, JSON_COMPACT)) return rp__bytes_take(&text);
    rp__bytes_clear(&text);
    return NULL;
}

static rp_status require(const rp__ask *ask, rp__problem *p) {
    bool has_prompt = ask->n_prompts > 0, has_messages = ask->messages != NULL;
    const char *field = ask->kind & (RP_ASK_CHAT | RP_ASK_TEMPLATE) ? "messages"
                        : ask->kind & RP_ASK_DETOKENIZE             ? "tokens"
                                                                    : "prompt";
    if (ask->kind == RP_ASK_TOKENIZE && has_prompt != has_messages) return RP_OK;
    if (ask->kind == RP_ASK_TOKENIZE && has_prompt)
        return rp__refuse(p, RP_EINVAL, "prompt", "give prompt or messages, not both");
    if (ask->kind & (RP_ASK_CHAT | RP_ASK_TEMPLATE) ? has_messages : has_prompt) return RP_OK;
    return rp__refuse(p, RP_EINVAL, field, "%s is missing", field);
}

/* What one field alone cannot tell. */
static rp_status check_together(rp__ask *ask, rp__problem *p) {
    if (ask->n_top >= 0 && !ask->has_logprobs)
        return rp__refuse(p, RP_EINVAL, "top_logprobs", "top_logprobs needs logprobs: true");
    if (ask->has_logprobs) ask->options.n_logprobs = ask->n_top > 0 ? ask->n_top : 0;
    if (ask->prompt_only && !ask->echo)
        return rp__refuse(p, RP_EINVAL, "max_tokens", "max_tokens is 0, which needs echo: true");
    rp_request_options *o = &ask->options;
    if (o->continue_final_message && ask->has_generation_prompt && o->add_generation_prompt)
        return rp__refuse(p, RP_EINVAL, "continue_final_message",
                          "continue_final_message and add_generation_prompt exclude each other");
    if (o->continue_final_message) o->add_generation_prompt = false;
    if (ask->include_usage && !ask->stream)
        return rp__refuse(p, RP_EINVAL, "stream_options", "stream_options needs stream: true");
    return RP_OK;
}

rp_sampling rp__ask_default_sampling(void) {
    return (rp_sampling){.temperature = 1,
                         .top_p = 1,
                         .repetition_penalty = 1,
                         .penalty_last_n = -1,
                         .seed = rp_sampling_default().seed};
}

static void set_defaults(rp__ask *ask, rp__ask_kind kind) {
    rp_request_options o = rp_request_options_default();
    o.sampling = rp__ask_default_sampling();
    if (kind == RP_ASK_COMPLETION) o.max_tokens = 16;
    *ask = (rp__ask){.kind = kind,
                     .options = o,
                     .n = 1,
                     .n_top = -1,
                     .add_special = true,
                     .parse_special = true};
}

rp_status rp__ask_parse(rp__ask *ask, rp__ask_kind kind, rp__bytes *text,
                        const rp__ask_limits *limits, rp__problem *p) {
    set_defaults(ask, kind);
    ask->max_id = limits->n_vocab - 1;
    RP_TRY(parse(ask, text, limits->max_depth, p));
    RP_TRY(rp__ask_take_fields(ask, limits, p));
    RP_TRY(require(ask, p));
    return check_together(ask, p);
}

void rp__ask_clear(rp__ask *ask) {
    json_decref(ask->root);
    rp__free(ask->messages);
    rp__free(ask->template_kwargs);
    rp__arena_clear(&ask->arena);
    *ask = (rp__ask){0};
}
