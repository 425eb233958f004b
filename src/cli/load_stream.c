#include <jansson.h>
#include <string.h>

#include "cli/load.h"

void rp__load_stream_begin(rp__load_stream *s, rp__load_record *record) {
    rp__bytes_reset(&s->rest);
    *s = (rp__load_stream){.rest = s->rest, .record = record};
}

static void copy_sentence(const char *p, size_t n, char out[RP_LOAD_ERROR_CAP]) {
    if (n >= RP_LOAD_ERROR_CAP) n = RP_LOAD_ERROR_CAP - 1;
    for (size_t i = 0; i < n; i++) out[i] = (unsigned char)p[i] < ' ' ? ' ' : p[i];
    out[n] = 0;
}

/* {"error": {"message": ...}} and {"error": ...}. */
static const char *error_of(const json_t *root) {
    const json_t *error = json_object_get(root, "error");
    const json_t *message = json_object_get(error, "message");
    return json_is_string(error)     ? json_string_value(error)
           : json_is_string(message) ? json_string_value(message)
           : json_is_object(error)   ? "an error without a message"
                                     : NULL;
}

void rp__load_sentence(const char *p, size_t n, char out[RP_LOAD_ERROR_CAP]) {
    json_t *root = json_loadb(p ? p : "", n, 0, NULL);
    const char *sentence = error_of(root);
    if (sentence)
        copy_sentence(sentence, strlen(sentence), out);
    else
        copy_sentence(p ? p : "", n, out);
    json_decref(root);
}

static bool has_text(const json_t *value) {
    return json_is_string(value) && json_string_length(value) > 0;
}

/* A thinking model's text before its answer counts too: the first token is the first token. */
static bool brings_text(const json_t *root) {
    const json_t *choice = json_array_get(json_object_get(root, "choices"), 0);
    const json_t *delta = json_object_get(choice, "delta");
    return has_text(json_object_get(choice, "text")) ||
           has_text(json_object_get(delta, "content")) ||
           has_text(json_object_get(delta, "reasoning_content")) ||
           has_text(json_object_get(delta, "reasoning"));
}

static uint32_t count_of(const json_t *object, const char *key) {
    json_int_t n = json_integer_value(json_object_get(object, key));
    return n > 0 && n <= UINT32_MAX ? (uint32_t)n : 0;
}

static void take_usage(rp__load_record *r, const json_t *usage) {
    if (!json_is_object(usage)) return;
    r->n_prompt = count_of(usage, "prompt_tokens");
    r->n_generated = count_of(usage, "completion_tokens");
    r->n_cached = count_of(json_object_get(usage, "prompt_tokens_details"), "cached_tokens");
}

static void take_event(rp__load_stream *s, const char *p, size_t n) {
    if (n == 6 && !memcmp(p, "[DONE]", 6)) {
        s->is_ended = true;
        return;
    }
    json_t *root = json_loadb(p, n, 0, NULL);
    const char *error = error_of(root);
    if (!root || error) s->has_failed = true;
    if (error)
        copy_sentence(error, strlen(error), s->record->error);
    else if (!root)
        copy_sentence("a chunk of the stream is no JSON", 32, s->record->error);
    if (brings_text(root)) s->brought_text = true;
    take_usage(s->record, json_object_get(root, "usage"));
    json_decref(root);
}

static void take_line(rp__load_stream *s, const char *p, size_t n) {
    if (n && p[n - 1] == '\r') n--;
    if (n < 5 || memcmp(p, "data:", 5)) return; /* a comment, or the blank line after an event */
    p += 5, n -= 5;
    if (n && *p == ' ') p++, n--;
    if (!s->has_failed) take_event(s, p, n);
}

bool rp__load_stream_take(rp__load_stream *s, const char *p, size_t n) {
    s->brought_text = false;
    for (const char *end; (end = memchr(p, '\n', n)) != NULL;) {
        size_t took = (size_t)(end - p);
        if (s->rest.n) {
            if (!rp__bytes_add(&s->rest, p, took)) return false;
            take_line(s, s->rest.p, s->rest.n);
            rp__bytes_reset(&s->rest);
        } else {
            take_line(s, p, took);
        }
        p += took + 1, n -= took + 1;
    }
    return !n || rp__bytes_add(&s->rest, p, n);
}
