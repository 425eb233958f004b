/* The stream of an answer: server-sent events, made as the reader takes them.
 *
 * Order: per choice its first chunk (the role), chunks of text as they come, a chunk with the
 * reason of the end; when all choices ended, the usage chunk if it was asked for, then [DONE].
 * Choices take turns. A failure after the first byte is an event with an "error" member. */
#include <microhttpd.h>
#include <string.h>

#include "serve/answer.h"
#include "serve/server_impl.h"

static void begin_event(rp__bytes *out) {
    rp__bytes_add_str(out, "data: ");
}
static void end_event(rp__bytes *out) {
    rp__bytes_add_str(out, "\n\n");
}

static bool has_more(const rp__choice *c) {
    return c->text.n > 0 || c->logprobs[0].n > 0;
}

static void add_done(rp__answer *a) {
    if (a->failure.http || a->ask.include_usage) {
        begin_event(&a->out);
        if (a->failure.http)
            rp__problem_write(&a->out, &a->failure);
        else
            rp__reply_usage_chunk(a, &a->out);
        end_event(&a->out);
    }
    begin_event(&a->out);
    rp__bytes_add_str(&a->out, "[DONE]");
    end_event(&a->out);
    a->is_finished = true;
}

/* Whether a first chunk is due beside what text brings: the role of a chat, an echoed prompt. It
 * comes with the first token, as clients take it for that. */
static bool has_opening(const rp__answer *a, const rp__choice *c) {
    bool is_due = a->ask.kind == RP_ASK_CHAT || c->echo.n > 0;
    return is_due && !c->is_begun && (c->has_token || c->is_done);
}

/* One event of this choice, if it has something to say. */
static bool add_event(rp__answer *a, rp__choice *c) {
    bool is_chunk = has_opening(a, c) || has_more(c);
    bool is_last = !is_chunk && c->is_done && !c->is_told && !a->failure.http;
    if (!is_chunk && !is_last) return false;
    begin_event(&a->out);
    if (is_chunk)
        rp__reply_chunk(a, c, &a->out);
    else
        rp__reply_last_chunk(a, c, &a->out);
    end_event(&a->out);
    c->is_told = is_last;
    return true;
}

static bool is_told(const rp__answer *a) {
    for (size_t i = 0; i < a->n_choices; i++)
        if (!a->choices[i].is_told) return false;
    return true;
}

/* Makes the next events: one of each choice that has something to say. */
static void make_events(rp__answer *a) {
    for (size_t i = 0; i < a->n_choices; i++) add_event(a, &a->choices[i]);
    if (a->out.n) return;
    if (a->failure.http || is_told(a))
        add_done(a);
    else if (a->exchange->wants_ping)
        rp__bytes_add_str(&a->out, ": still working\n\n");
    a->exchange->wants_ping = false;
}

ssize_t rp__answer_read(rp__answer *a, char *buf, size_t cap) {
    if (a->n_given == a->out.n) {
        if (a->is_finished) return MHD_CONTENT_READER_END_OF_STREAM;
        rp__bytes_reset(&a->out);
        a->n_given = 0;
        make_events(a);
        if (a->out.failed) return MHD_CONTENT_READER_END_WITH_ERROR;
    }
    size_t n = a->out.n - a->n_given < cap ? a->out.n - a->n_given : cap;
    if (n) memcpy(buf, a->out.p + a->n_given, n);
    a->n_given += n;
    return (ssize_t)n;
}
