/* What the server says about itself and its model. */
#include <string.h>

#include "base/json_writer.h"
#include "serve/ask.h"
#include "serve/page.h"
#include "serve/route.h"
#include "serve/server_impl.h"

void rp__route_page(rp__exchange *x) {
    rp__bytes out = {0};
    rp__bytes_add(&out, rp__page_html, rp__page_html_bytes);
    x->policy = rp__page_policy;
    rp__exchange_reply(x, 200, "text/html; charset=utf-8", &out);
}

/* No step takes so long: the device hangs, though it reports nothing. */
#define HUNG_SECONDS 300.0

static void check_engine(rp_engine *engine, rp__problem *p) {
    rp_error err = {0};
    double seconds = 0;
    if (rp_engine_health(engine, &seconds, &err) < 0)
        rp__refuse_http(p, 503, "engine_dead", "%s", err.message);
    else if (seconds > HUNG_SECONDS)
        rp__refuse_http(p, 503, "engine_hung", "a step has taken %.0f seconds so far", seconds);
}

void rp__route_health(rp__exchange *x) {
    rp__server *s = x->server;
    rp_engine *engine = atomic_load(&s->engine);
    rp__problem p = {0};
    if (atomic_load(&s->state) != RP_SERVER_OPEN)
        rp__refuse_http(&p, 503, "shutting_down", "the server is shutting down");
    else if (!engine)
        rp__refuse_http(&p, 503, "loading", "the model is still loading");
    else
        check_engine(engine, &p);
    if (p.http) {
        rp__exchange_refuse(x, &p);
        return;
    }
    rp__bytes out = {0};
    rp__json_open(&out, NULL, '{');
    rp__json_str(&out, "status", "ok");
    rp__json_close(&out, '}');
    rp__exchange_reply_json(x, &out);
}

void rp__route_version(rp__exchange *x) {
    rp__bytes out = {0};
    rp__json_open(&out, NULL, '{');
    rp__json_str(&out, "version", rp_version());
    rp__json_close(&out, '}');
    rp__exchange_reply_json(x, &out);
}

void rp__route_metrics(rp__exchange *x) {
    rp__server *s = x->server;
    rp__bytes out = {0};
    rp__metrics_write(&s->metrics, rp__exchange_engine(x), s->config.names[0], &out);
    if (out.failed)
        rp__exchange_reply_json(x, &out);
    else
        rp__exchange_reply(x, 200, "text/plain; version=0.0.4; charset=utf-8", &out);
}

/* What an answer is sampled with when the client says nothing. */
static void add_defaults(rp__bytes *out) {
    rp_sampling d = rp__ask_default_sampling();
    rp__json_open(out, "default_generation_settings", '{');
    rp__json_num(out, "temperature", d.temperature);
    rp__json_num(out, "top_p", d.top_p);
    rp__json_int(out, "top_k", d.top_k);
    rp__json_num(out, "min_p", d.min_p);
    rp__json_num(out, "repetition_penalty", d.repetition_penalty);
    rp__json_num(out, "presence_penalty", d.presence_penalty);
    rp__json_num(out, "frequency_penalty", d.frequency_penalty);
    rp__json_close(out, '}');
}

void rp__route_props(rp__exchange *x) {
    const rp__server *s = x->server;
    rp__bytes out = {0};
    rp__json_open(&out, NULL, '{');
    rp__json_str(&out, "model_alias", s->config.names[0]);
    rp__json_str(&out, "model_path", s->config.model_path);
    rp__json_str(&out, "model_name", s->info.model_name);
    rp__json_str(&out, "architecture", s->info.architecture);
    rp__json_str(&out, "quantization", s->info.quantization);
    rp__json_str(&out, "device", s->info.device);
    rp__json_int(&out, "n_params", s->info.n_params);
    rp__json_int(&out, "n_vocab", s->info.n_vocab);
    rp__json_int(&out, "n_ctx", s->info.n_ctx);
    rp__json_int(&out, "n_ctx_train", s->info.n_ctx_train);
    rp__json_int(&out, "total_slots", s->config.max_seqs);
    rp__json_bool(&out, "has_chat_template", s->info.has_chat_template);
    add_defaults(&out);
    rp__json_str(&out, "build_info", s->fingerprint);
    rp__json_close(&out, '}');
    rp__exchange_reply_json(x, &out);
}

/* ---- models ---- */

static void add_model(const rp__server *s, const char *name, rp__bytes *out) {
    rp__json_open(out, NULL, '{');
    rp__json_str(out, "id", name);
    rp__json_str(out, "object", "model");
    rp__json_int(out, "created", s->created);
    rp__json_str(out, "owned_by", "reprise");
    rp__json_str(out, "root", s->config.model_path);
    if (atomic_load(&s->engine)) rp__json_int(out, "max_model_len", s->info.n_ctx);
    rp__json_close(out, '}');
}

void rp__route_models(rp__exchange *x) {
    const rp__server *s = x->server;
    rp__bytes out = {0};
    rp__json_open(&out, NULL, '{');
    rp__json_str(&out, "object", "list");
    rp__json_open(&out, "data", '[');
    for (size_t i = 0; i < s->config.n_names; i++) add_model(s, s->config.names[i], &out);
    rp__json_close(&out, ']');
    rp__json_close(&out, '}');
    rp__exchange_reply_json(x, &out);
}

void rp__route_model(rp__exchange *x) {
    const rp__server *s = x->server;
    for (size_t i = 0; i < s->config.n_names; i++) {
        if (strcmp(s->config.names[i], x->tail)) continue;
        rp__bytes out = {0};
        add_model(s, s->config.names[i], &out);
        rp__exchange_reply_json(x, &out);
        return;
    }
    rp__problem p = {0};
    rp__refuse(&p, RP_ENOTFOUND, "model", "model \"%.80s\" is not served here, \"%.80s\" is",
               x->tail, s->config.names[0]);
    p.code = "model_not_found";
    rp__exchange_refuse(x, &p);
}
