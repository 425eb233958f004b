/* Chat: OpenAI messages through the model's own template to the text of a prompt.
 *
 * Message content given as a list of text parts is joined, as templates expect strings; other kinds
 * of parts are refused by name. What messages say never becomes a control token: the spans that
 * come from them are kept apart. */
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "engine/engine_impl.h"

/* ---- the template's source ---- */

/* chat_template in tokenizer_config.json: a string, or a list of named ones of which "default" is
 * taken. */
static const char *template_of_config(const json_t *config) {
    const json_t *t = json_object_get(config, "chat_template"), *entry;
    if (json_is_string(t)) return json_string_value(t);
    size_t i;
    json_array_foreach(t, i, entry) {
        const char *name = json_string_value(json_object_get(entry, "name"));
        if (name && !strcmp(name, "default"))
            return json_string_value(json_object_get(entry, "template"));
    }
    return NULL;
}

rp_status rp__chat_template_source(const rp__checkpoint *c, char **out, rp_error *err) {
    rp__str text = {0};
    *out = NULL;
    if (c->gguf) {
        rp_status st = rp__gguf_str(c->gguf, "tokenizer.chat_template", &text, err);
        if (st == RP_ENOTFOUND) return RP_OK;
        RP_TRY(st);
    } else if (c->chat_template.n) {
        text = (rp__str){c->chat_template.p, c->chat_template.n};
    } else {
        text = rp__str_of(template_of_config(c->tokenizer_config));
        if (!text.p) return RP_OK;
    }
    *out = rp__strndup(text.p, text.n);
    return *out ? RP_OK : rp__fail(err, RP_ENOMEM, "out of memory for the chat template");
}

/* ---- messages ---- */

static rp_status join_parts(size_t message, const json_t *parts, json_t **out, rp_error *err) {
    rp__bytes text = {0};
    const json_t *part;
    size_t i;
    rp_status st = RP_OK;
    json_array_foreach(parts, i, part) {
        const char *type = json_string_value(json_object_get(part, "type"));
        const json_t *body = json_object_get(part, "text");
        if (!type || strcmp(type, "text") || !json_is_string(body)) {
            st = rp__fail(
                err, RP_EUNSUPPORTED,
                "messages[%zu].content[%zu]: a part of type \"%s\" is not supported, only text",
                message, i, type ? type : "?");
            break;
        }
        rp__bytes_add(&text, json_string_value(body), json_string_length(body));
    }
    if (st >= 0 && (text.failed || !(*out = json_stringn(text.p ? text.p : "", text.n))))
        st = rp__fail(err, RP_ENOMEM, "out of memory for messages[%zu]", message);
    rp__bytes_clear(&text);
    return st;
}

static rp_status check_messages(json_t *messages, rp_error *err) {
    if (!json_is_array(messages)) return rp__fail(err, RP_EINVAL, "messages is not a list");
    if (!json_array_size(messages)) return rp__fail(err, RP_EINVAL, "messages is empty");
    json_t *m;
    size_t i;
    json_array_foreach(messages, i, m) {
        const json_t *content = json_object_get(m, "content");
        if (!json_is_object(m) || !json_is_string(json_object_get(m, "role")))
            return rp__fail(err, RP_EINVAL, "messages[%zu].role is missing or not a string", i);
        if (json_is_array(content)) {
            json_t *joined = NULL;
            RP_TRY(join_parts(i, content, &joined, err));
            json_object_set_new(m, "content", joined);
        } else if (content && !json_is_string(content) && !json_is_null(content)) {
            return rp__fail(err, RP_EINVAL,
                            "messages[%zu].content is neither a string nor a list of parts", i);
        }
    }
    return RP_OK;
}

static rp_status parse(const char *what, const char *text, json_t **out, rp_error *err) {
    json_error_t why;
    *out = json_loads(text, JSON_ALLOW_NUL, &why);
    if (*out) return RP_OK;
    return rp__fail(err, RP_EINVAL, "%s is not valid JSON: %s (byte %d)", what, why.text,
                    why.position);
}

static void set_token(json_t *context, const char *name, const rp__tokenizer *t, int32_t id) {
    rp__str text = id < 0 ? RP_STR("") : rp__tokenizer_text(t, id);
    json_object_set_new(context, name, json_stringn(text.p ? text.p : "", text.n));
}

/* ---- an answer begun by the caller ---- */

/* Follows the final message's text into the template, to find where that text ends in the prompt.
 */
#define END_MARK "\x01continue here\x01" /* no white space at its ends: templates trim */

static rp_status mark_end(json_t *messages, rp_error *err) {
    size_t last = json_array_size(messages) - 1;
    json_t *m = json_array_get(messages, last), *content = json_object_get(m, "content");
    if (!json_is_string(content))
        return rp__fail(err, RP_EINVAL,
                        "continue_final_message: messages[%zu].content is not a text", last);
    rp__bytes marked = {0};
    rp__bytes_add(&marked, json_string_value(content), json_string_length(content));
    rp__bytes_add_str(&marked, END_MARK);
    bool ok = !marked.failed &&
              !json_object_set_new(m, "content", json_stringn_nocheck(marked.p, marked.n));
    rp__bytes_clear(&marked);
    return ok ? RP_OK : rp__fail(err, RP_ENOMEM, "out of memory for messages[%zu]", last);
}

static rp_status cut_at_mark(rp__rendered *r, rp_error *err) {
    size_t n = sizeof END_MARK - 1, at = r->text.n;
    while (at > 0 && (at + n > r->text.n || memcmp(r->text.p + at, END_MARK, n))) at--;
    if (at + n > r->text.n || memcmp(r->text.p + at, END_MARK, n))
        return rp__fail(err, RP_ETEMPLATE,
                        "continue_final_message: the chat template leaves out the final message");
    r->text.n = at;
    r->text.p[at] = 0;
    while (r->n_literal && r->literal[r->n_literal - 1].begin >= at) r->n_literal--;
    if (r->n_literal && r->literal[r->n_literal - 1].end > at)
        r->literal[r->n_literal - 1].end = at;
    return RP_OK;
}

/* ---- rendering ---- */

static rp_status fill_context(const rp_engine *e, json_t *context, const rp_request_options *o,
                              rp_error *err) {
    json_t *list, *more;
    RP_TRY(parse("messages", o->messages, &list, err));
    json_object_set_new(context, "messages", list);
    RP_TRY(check_messages(list, err));
    if (o->continue_final_message) RP_TRY(mark_end(list, err));
    json_object_set_new(context, "tools", json_null());
    json_object_set_new(context, "documents", json_null());
    json_object_set_new(context, "add_generation_prompt", json_boolean(o->add_generation_prompt));
    set_token(context, "bos_token", e->tokenizer, rp__tokenizer_bos(e->tokenizer));
    set_token(context, "eos_token", e->tokenizer, rp__tokenizer_eos(e->tokenizer));
    if (!o->template_kwargs) return RP_OK;
    RP_TRY(parse("template_kwargs", o->template_kwargs, &more, err));
    bool is_object = json_is_object(more);
    if (is_object) json_object_update(context, more);
    json_decref(more);
    return is_object ? RP_OK : rp__fail(err, RP_EINVAL, "template_kwargs is not a JSON object");
}

rp_status rp__chat_render(const rp_engine *e, const rp_request_options *o, rp__rendered *out,
                          rp_error *err) {
    if (o->continue_final_message && o->add_generation_prompt)
        return rp__fail(err, RP_EINVAL,
                        "continue_final_message and add_generation_prompt exclude each other");
    if (!e->chat_template)
        return rp__fail(err, RP_EUNSUPPORTED,
                        "%s has no chat template: give a plain prompt, or a template",
                        e->checkpoint->path);
    json_t *context = json_object();
    if (!context) return rp__fail(err, RP_ENOMEM, "out of memory for the messages");
    rp_status st = fill_context(e, context, o, err);
    if (st >= 0) st = rp__template_render(e->chat_template, context, (int64_t)time(NULL), out, err);
    if (st >= 0 && o->continue_final_message) st = cut_at_mark(out, err);
    json_decref(context);
    return st;
}

rp_status rp_engine_apply_template(rp_engine *e, const rp_request_options *o, char **text,
                                   rp_error *err) {
    rp__rendered r = {0};
    *text = NULL;
    if (!o->messages) return rp__fail(err, RP_EINVAL, "no messages were given");
    rp_status st = rp__chat_render(e, o, &r, err);
    if (st >= 0 && !(*text = rp__bytes_take(&r.text)))
        st = rp__fail(err, RP_ENOMEM, "out of memory for the prompt");
    rp__rendered_clear(&r);
    return st;
}
