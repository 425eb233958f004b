/* /tokenize, /detokenize, /apply-template: in vLLM's form and in llama-server's. */
#include "base/json_writer.h"
#include "serve/ask.h"
#include "serve/route.h"
#include "serve/server_impl.h"

static void refuse(rp__exchange *x, const rp_error *err, const char *param) {
    rp__problem p;
    rp__refuse_error(&p, err, param);
    rp__exchange_refuse(x, &p);
}

static rp_status apply_template(rp_engine *engine, const rp__ask *ask, char **text, rp_error *err) {
    rp_request_options o = ask->options;
    o.messages = ask->messages;
    o.template_kwargs = ask->template_kwargs;
    return rp_engine_apply_template(engine, &o, text, err);
}

/* The ids of the ask's text, or of its messages put through the template. */
static rp_status tokenize(rp_engine *engine, const rp__ask *ask, int32_t **ids, size_t *n,
                          rp_error *err) {
    if (ask->n_prompts)
        return rp_engine_tokenize(engine, ask->prompts[0].text.p, ask->prompts[0].text.n,
                                  ask->add_special, ask->parse_special, ids, n, err);
    char *text;
    rp_status st = apply_template(engine, ask, &text, err);
    if (st < 0) return st;
    st = rp_engine_tokenize(engine, text, rp__str_of(text).n, ask->add_special, true, ids, n, err);
    rp_free(text);
    return st;
}

static void add_pieces(rp_engine *engine, const int32_t *ids, size_t n, rp__bytes *out) {
    rp__json_open(out, "token_strs", '[');
    for (size_t i = 0; i < n; i++) {
        size_t bytes;
        const char *text = rp_engine_token_bytes(engine, ids[i], &bytes);
        rp__json_strn(out, NULL, text ? text : "", text ? bytes : 0);
    }
    rp__json_close(out, ']');
}

void rp__route_tokenize(rp__exchange *x) {
    rp__ask ask;
    if (!rp__route_parse(x, RP_ASK_TOKENIZE, &ask)) return;
    rp_engine *engine = rp__exchange_engine(x);
    int32_t *ids = NULL;
    size_t n = 0;
    rp_error err = {0};
    if (tokenize(engine, &ask, &ids, &n, &err) < 0) {
        refuse(x, &err, ask.messages ? "messages" : "prompt");
        rp__ask_clear(&ask);
        return;
    }
    rp__bytes out = {0};
    rp__json_open(&out, NULL, '{');
    rp__json_uint(&out, "count", n);
    rp__json_int(&out, "max_model_len", x->server->info.n_ctx);
    rp__json_open(&out, "tokens", '[');
    for (size_t i = 0; i < n; i++) rp__json_int(&out, NULL, ids[i]);
    rp__json_close(&out, ']');
    if (ask.with_pieces) add_pieces(engine, ids, n, &out);
    rp__json_close(&out, '}');
    rp_free(ids);
    rp__ask_clear(&ask);
    rp__exchange_reply_json(x, &out);
}

void rp__route_detokenize(rp__exchange *x) {
    rp__ask ask;
    if (!rp__route_parse(x, RP_ASK_DETOKENIZE, &ask)) return;
    rp_error err = {0};
    char *text = NULL;
    size_t n = 0;
    rp_status st = rp_engine_detokenize(rp__exchange_engine(x), ask.prompts[0].ids,
                                        ask.prompts[0].n_ids, true, &text, &n, &err);
    rp__ask_clear(&ask);
    if (st < 0) {
        refuse(x, &err, "tokens");
        return;
    }
    rp__bytes out = {0};
    rp__json_open(&out, NULL, '{');
    rp__json_strn(&out, "prompt", text, n);
    rp__json_strn(&out, "content", text, n);
    rp__json_close(&out, '}');
    rp_free(text);
    rp__exchange_reply_json(x, &out);
}

void rp__route_apply_template(rp__exchange *x) {
    rp__ask ask;
    if (!rp__route_parse(x, RP_ASK_TEMPLATE, &ask)) return;
    rp_error err = {0};
    char *text = NULL;
    rp_status st = apply_template(rp__exchange_engine(x), &ask, &text, &err);
    rp__ask_clear(&ask);
    if (st < 0) {
        refuse(x, &err, "messages");
        return;
    }
    rp__bytes out = {0};
    rp__json_open(&out, NULL, '{');
    rp__json_str(&out, "prompt", text);
    rp__json_close(&out, '}');
    rp_free(text);
    rp__exchange_reply_json(x, &out);
}
