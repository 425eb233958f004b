/* OpenAI's objects: chat.completion, text_completion, and their chunks. */
#include "base/json_writer.h"
#include "serve/answer.h"
#include "serve/server_impl.h"

static bool is_chat(const rp__answer *a) {
    return a->ask.kind == RP_ASK_CHAT;
}

static void open_object(const rp__answer *a, rp__bytes *out, bool is_chunk) {
    const rp__server *s = a->exchange->server;
    const char *object = !is_chat(a) ? "text_completion"
                         : is_chunk  ? "chat.completion.chunk"
                                     : "chat.completion";
    rp__bytes_add_char(out, '{');
    rp__json_str(out, "id", a->id);
    rp__json_str(out, "object", object);
    rp__json_int(out, "created", a->created);
    rp__json_str(out, "model", a->ask.model ? a->ask.model : s->config.names[0]);
    rp__json_str(out, "system_fingerprint", s->fingerprint);
}

static void add_usage(const rp__answer *a, rp__bytes *out) {
    rp_usage u = rp__answer_usage(a);
    rp__json_open(out, "usage", '{');
    rp__json_uint(out, "prompt_tokens", u.n_prompt);
    rp__json_uint(out, "completion_tokens", u.n_generated);
    rp__json_uint(out, "total_tokens", (uint64_t)u.n_prompt + u.n_generated);
    rp__json_open(out, "prompt_tokens_details", '{');
    rp__json_uint(out, "cached_tokens", u.n_cached);
    rp__json_close(out, '}');
    rp__json_open(out, "completion_tokens_details", '{');
    rp__json_uint(out, "reasoning_tokens", 0);
    rp__json_close(out, '}');
    rp__json_close(out, '}');
}

/* Text of a choice in quotes, an echoed prompt before it. */
static void add_text(rp__bytes *out, const char *key, rp__str echo, const rp__bytes *text) {
    if (!echo.n) {
        rp__json_strn(out, key, text->p ? text->p : "", text->n);
        return;
    }
    rp__bytes both = {0};
    rp__bytes_add(&both, echo.p, echo.n);
    rp__bytes_add(&both, text->p, text->n);
    if (both.failed)
        out->failed = true;
    else
        rp__json_strn(out, key, both.p, both.n);
    rp__bytes_clear(&both);
}

static void add_message(const rp__choice *c, rp__bytes *out) {
    rp__json_open(out, "message", '{');
    rp__json_str(out, "role", "assistant");
    add_text(out, "content", c->echo, &c->text);
    rp__json_str(out, "refusal", NULL);
    rp__json_open(out, "annotations", '[');
    rp__json_close(out, ']');
    rp__json_close(out, '}');
}

void rp__reply_write(const rp__answer *a, rp__bytes *out) {
    open_object(a, out, false);
    rp__json_open(out, "choices", '[');
    for (size_t i = 0; i < a->n_choices; i++) {
        const rp__choice *c = &a->choices[i];
        rp__json_open(out, NULL, '{');
        rp__json_int(out, "index", c->index);
        if (is_chat(a))
            add_message(c, out);
        else
            add_text(out, "text", c->echo, &c->text);
        rp__logprob_write(out, c);
        rp__json_str(out, "finish_reason", rp_finish_name(c->finish));
        rp__json_close(out, '}');
    }
    rp__json_close(out, ']');
    add_usage(a, out);
    rp__json_close(out, '}');
}

/* ---- chunks ---- */

static void open_chunk(const rp__answer *a, const rp__choice *c, rp__bytes *out) {
    open_object(a, out, true);
    rp__json_open(out, "choices", '[');
    rp__json_open(out, NULL, '{');
    rp__json_int(out, "index", c->index);
}

static void close_chunk(const rp__answer *a, const char *finish, rp__bytes *out) {
    rp__json_str(out, "finish_reason", finish);
    rp__json_close(out, '}');
    rp__json_close(out, ']');
    if (a->ask.include_usage) rp__json_str(out, "usage", NULL);
    rp__json_close(out, '}');
}

static void reset_choice(rp__choice *c) {
    rp__bytes_reset(&c->text);
    for (size_t k = 0; k < RP_LOGPROB_LISTS; k++) rp__bytes_reset(&c->logprobs[k]);
}

/* The first chunk of a chat carries the role and no text. */
static bool add_role(rp__choice *c, rp__bytes *out) {
    static const rp__bytes none = {0};
    rp__json_open(out, "delta", '{');
    rp__json_str(out, "role", "assistant");
    add_text(out, "content", (rp__str){0}, &none);
    rp__json_close(out, '}');
    rp__json_str(out, "logprobs", NULL);
    return c->is_begun = true;
}

void rp__reply_chunk(rp__answer *a, rp__choice *c, rp__bytes *out) {
    open_chunk(a, c, out);
    if (is_chat(a) && !c->is_begun) {
        add_role(c, out);
        close_chunk(a, NULL, out);
        return;
    }
    if (is_chat(a)) {
        rp__json_open(out, "delta", '{');
        add_text(out, "content", (rp__str){0}, &c->text);
        rp__json_close(out, '}');
    } else {
        add_text(out, "text", c->is_begun ? (rp__str){0} : c->echo, &c->text);
    }
    c->is_begun = true;
    rp__logprob_write(out, c);
    close_chunk(a, NULL, out);
    reset_choice(c);
}

void rp__reply_last_chunk(rp__answer *a, rp__choice *c, rp__bytes *out) {
    open_chunk(a, c, out);
    if (is_chat(a)) {
        rp__json_open(out, "delta", '{');
        rp__json_close(out, '}');
    } else {
        rp__json_str(out, "text", "");
    }
    rp__json_str(out, "logprobs", NULL);
    close_chunk(a, rp_finish_name(c->finish), out);
}

void rp__reply_usage_chunk(rp__answer *a, rp__bytes *out) {
    open_object(a, out, true);
    rp__json_open(out, "choices", '[');
    rp__json_close(out, ']');
    add_usage(a, out);
    rp__json_close(out, '}');
}
