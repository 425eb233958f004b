/* Log probabilities in OpenAI's two shapes: chat has one list of objects, completions has four
 * lists side by side. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_writer.h"
#include "base/utf8.h"
#include "serve/answer.h"

/* What OpenAI writes for a probability of zero: JSON has no infinity. */
#define LEAST_LOGPROB -9999.0

enum { TOKENS, TOKEN_LOGPROBS, TOP_LOGPROBS, TEXT_OFFSET }; /* a completion's lists */

static rp__str bytes_of(rp_engine *engine, int32_t id) {
    rp__str b = {0};
    b.p = rp_engine_token_bytes(engine, id, &b.n);
    return b.p ? b : (rp__str){"", 0};
}

/* What a token is called: its text, or its number where the client wants that ("token_id:7"), as
 * different tokens can have one text. */
typedef struct token_name {
    char number[24];
    rp__str text;
} token_name;

static rp__str name_token(const rp__choice *c, rp_engine *engine, int32_t id, token_name *name) {
    name->text = bytes_of(engine, id);
    if (!c->answer->ask.with_token_ids) return name->text;
    snprintf(name->number, sizeof name->number, "token_id:%d", (int)id);
    return rp__str_of(name->number);
}

static double json_logprob(float logprob) {
    return isfinite(logprob) ? (double)logprob : LEAST_LOGPROB;
}

/* The list's items are written without its brackets: a comma between them. */
static void separate(rp__bytes *list) {
    if (list->n) rp__bytes_add_char(list, ',');
}

/* ---- chat ---- */

/* Members of one entry; an object is opened by hand, as the writer would see the list's end as a
 * value before it. */
static void add_entry(rp__bytes *out, const rp__choice *c, rp_engine *engine, int32_t id,
                      float logprob) {
    token_name t;
    rp__str name = name_token(c, engine, id, &t), b = t.text;
    rp__bytes_add_char(out, '{');
    rp__json_strn(out, "token", name.p, name.n);
    rp__json_num(out, "logprob", json_logprob(logprob));
    rp__json_open(out, "bytes", '[');
    for (size_t i = 0; i < b.n; i++) rp__json_uint(out, NULL, (unsigned char)b.p[i]);
    rp__json_close(out, ']');
}

static void add_chat(rp__choice *c, rp_engine *engine, const rp_event *ev) {
    rp__bytes *list = &c->logprobs[0];
    separate(list);
    add_entry(list, c, engine, ev->id, ev->logprob);
    rp__json_open(list, "top_logprobs", '[');
    for (size_t i = 0; i < ev->n_top; i++) {
        if (i) rp__bytes_add_char(list, ',');
        add_entry(list, c, engine, ev->top[i].id, ev->top[i].logprob);
        rp__json_close(list, '}');
    }
    rp__json_close(list, ']');
    rp__json_close(list, '}');
}

/* ---- completions ---- */

/* Counts the characters that became whole with these bytes; at most three wait. */
static size_t count_chars(rp__choice *c, const char *p, size_t n) {
    rp__bytes all = {0};
    size_t n_chars = 0, at = 0;
    rp__bytes_add(&all, c->cut, c->n_cut);
    if (!rp__bytes_add(&all, p, n)) {
        rp__bytes_clear(&all);
        return 0;
    }
    size_t whole = rp__utf8_complete(all.p, all.n);
    for (; at < whole; n_chars++) {
        uint32_t cp;
        at += rp__utf8_decode(all.p + at, whole - at, &cp);
    }
    c->n_cut = all.n - whole < sizeof c->cut ? all.n - whole : 0;
    memcpy(c->cut, all.p + whole, c->n_cut);
    rp__bytes_clear(&all);
    return n_chars;
}

static void add_pair(rp__bytes *out, const rp__choice *c, rp_engine *engine, int32_t id,
                     float logprob) {
    token_name t;
    rp__str name = name_token(c, engine, id, &t);
    rp__json_add_text(out, name.p, name.n);
    rp__bytes_printf(out, ":%.9g", json_logprob(logprob));
}

/* The best tokens, and the chosen one wherever it stands. */
static void add_top(rp__choice *c, rp_engine *engine, int32_t id, float logprob,
                    const rp_top_logprob *top, size_t n_top) {
    rp__bytes *list = &c->logprobs[TOP_LOGPROBS];
    bool has_own = false;
    rp__bytes_add_char(list, '{');
    for (size_t i = 0; i < n_top; i++) {
        if (i) rp__bytes_add_char(list, ',');
        add_pair(list, c, engine, top[i].id, top[i].logprob);
        has_own |= top[i].id == id;
    }
    if (!has_own) {
        if (n_top) rp__bytes_add_char(list, ',');
        add_pair(list, c, engine, id, logprob);
    }
    rp__bytes_add_char(list, '}');
}

/* Returns the token's bytes. */
static rp__str add_token(rp__choice *c, rp_engine *engine, int32_t id) {
    token_name t;
    rp__str name = name_token(c, engine, id, &t);
    for (size_t k = 0; k < RP_LOGPROB_LISTS; k++) separate(&c->logprobs[k]);
    rp__json_add_text(&c->logprobs[TOKENS], name.p, name.n);
    rp__bytes_printf(&c->logprobs[TEXT_OFFSET], "%zu", c->n_chars);
    return t.text;
}

static void add_completion(rp__choice *c, rp_engine *engine, const rp_event *ev) {
    rp__str b = add_token(c, engine, ev->id);
    rp__bytes_printf(&c->logprobs[TOKEN_LOGPROBS], "%.9g", json_logprob(ev->logprob));
    add_top(c, engine, ev->id, ev->logprob, ev->top, ev->n_top);
    c->n_chars += count_chars(c, b.p, b.n);
}

/* A token that the engine put first is no part of the text that is echoed. */
static bool is_put_first(const rp__choice *c, size_t i, rp__str token) {
    return !i && !rp__str_starts(c->echo, token);
}

void rp__logprob_add_prompt(rp__choice *c, rp_engine *engine, rp_request *request) {
    size_t n;
    const int32_t *ids = rp_request_prompt_ids(request, &n);
    for (size_t i = 0; i < n; i++) {
        float logprob = 0;
        const rp_top_logprob *top = NULL;
        size_t n_top = 0;
        bool has = rp_request_prompt_logprob(request, i, &logprob, &top, &n_top);
        rp__str b = add_token(c, engine, ids[i]);
        if (has) {
            rp__bytes_printf(&c->logprobs[TOKEN_LOGPROBS], "%.9g", json_logprob(logprob));
            add_top(c, engine, ids[i], logprob, top, n_top);
        } else { /* nothing comes before the first token that could foretell it */
            rp__bytes_add_str(&c->logprobs[TOKEN_LOGPROBS], "null");
            rp__bytes_add_str(&c->logprobs[TOP_LOGPROBS], "null");
        }
        if (!is_put_first(c, i, b)) c->n_chars += count_chars(c, b.p, b.n);
    }
}

void rp__logprob_add(rp__choice *c, rp_engine *engine, const rp_event *event) {
    if (c->answer->ask.kind == RP_ASK_CHAT)
        add_chat(c, engine, event);
    else
        add_completion(c, engine, event);
}

static void add_list(rp__bytes *out, const char *key, const rp__bytes *list) {
    rp__json_open(out, key, '[');
    rp__bytes_add(out, list->p, list->n);
    rp__json_close(out, ']');
    out->failed |= list->failed;
}

void rp__logprob_write(rp__bytes *out, const rp__choice *c) {
    if (c->answer->ask.options.n_logprobs < 0) {
        rp__json_str(out, "logprobs", NULL);
        return;
    }
    rp__json_open(out, "logprobs", '{');
    if (c->answer->ask.kind == RP_ASK_CHAT) {
        add_list(out, "content", &c->logprobs[0]);
        rp__json_str(out, "refusal", NULL);
    } else {
        add_list(out, "tokens", &c->logprobs[TOKENS]);
        add_list(out, "token_logprobs", &c->logprobs[TOKEN_LOGPROBS]);
        add_list(out, "top_logprobs", &c->logprobs[TOP_LOGPROBS]);
        add_list(out, "text_offset", &c->logprobs[TEXT_OFFSET]);
    }
    rp__json_close(out, '}');
}
