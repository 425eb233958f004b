/* OpenAI's message shapes: content as a string, null, or a list of text parts; the developer role,
 * which templates know as system. What cannot be honoured yet is refused by its place. */
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "serve/ask.h"

typedef struct place {
    char text[96]; /* "messages[3]" */
} place;

static rp_status refuse_at(const place *at, const char *member, rp_status code, const char *what,
                           rp__problem *p) {
    char param[sizeof p->param];
    snprintf(param, sizeof param, "%.80s%.14s", at->text, member);
    return rp__refuse(p, code, param, "%s %s", param, what);
}

static rp_status no_memory(rp__problem *p) {
    return rp__refuse(p, RP_ENOMEM, NULL, "out of memory for the messages");
}

/* ---- content ---- */

static rp_status take_part(const place *at, size_t i, const json_t *part, rp__bytes *text,
                           rp__problem *p) {
    place here;
    const char *type = json_string_value(json_object_get(part, "type"));
    snprintf(here.text, sizeof here.text, "%.40s.content[%zu]", at->text, i);
    if (!type) return refuse_at(&here, ".type", RP_EINVAL, "is missing or not a string", p);
    bool is_text = !strcmp(type, "text"), is_refusal = !strcmp(type, "refusal");
    if (!is_text && !is_refusal)
        return refuse_at(&here, ".type", RP_EUNSUPPORTED,
                         "is not supported: the model takes text parts only", p);
    const json_t *body = json_object_get(part, type);
    if (!json_is_string(body))
        return refuse_at(&here, is_text ? ".text" : ".refusal", RP_EINVAL,
                         "is missing or not a string", p);
    rp__bytes_add(text, json_string_value(body), json_string_length(body));
    return RP_OK;
}

static rp_status join_parts(const place *at, const json_t *parts, json_t **out, rp__problem *p) {
    rp__bytes text = {0};
    const json_t *part;
    size_t i;
    rp_status st = RP_OK;
    json_array_foreach(parts, i, part) {
        st = take_part(at, i, part, &text, p);
        if (st < 0) break;
    }
    if (st >= 0) *out = text.failed ? NULL : json_stringn(text.p ? text.p : "", text.n);
    rp__bytes_clear(&text);
    if (st < 0) return st;
    return *out ? RP_OK : no_memory(p);
}

/* Null and absent content is an empty text, as for an assistant's turn without words. */
static rp_status take_content(const place *at, json_t *message, bool may_be_absent,
                              rp__problem *p) {
    const json_t *content = json_object_get(message, "content");
    json_t *joined = NULL;
    if (json_is_string(content)) return RP_OK;
    if (json_is_array(content))
        RP_TRY(join_parts(at, content, &joined, p));
    else if (json_is_null(content) || (!content && may_be_absent))
        joined = json_string("");
    else
        return refuse_at(at, ".content", RP_EINVAL,
                         content ? "is neither a string nor a list of parts" : "is missing", p);
    return joined && !json_object_set_new(message, "content", joined) ? RP_OK : no_memory(p);
}

/* ---- roles ---- */

/* *is_assistant: whose turns may have no words. */
static rp_status take_role(const place *at, json_t *message, bool *is_assistant, rp__problem *p) {
    const char *role = json_string_value(json_object_get(message, "role"));
    if (!role) return refuse_at(at, ".role", RP_EINVAL, "is missing or not a string", p);
    *is_assistant = !strcmp(role, "assistant");
    if (*is_assistant || !strcmp(role, "system") || !strcmp(role, "user")) return RP_OK;
    if (!strcmp(role, "tool") || !strcmp(role, "function"))
        return refuse_at(at, ".role", RP_EUNSUPPORTED, "is refused: tools are not built yet", p);
    if (strcmp(role, "developer"))
        return refuse_at(at, ".role", RP_EINVAL, "is none of system, developer, user and assistant",
                         p);
    return json_object_set_new(message, "role", json_string("system")) ? no_memory(p) : RP_OK;
}

/* Members that mean nothing to a text model when they are empty, and something unsupported when
 * not. */
static rp_status check_members(const place *at, const json_t *message, rp__problem *p) {
    static const struct {
        const char *name, *why;
    } refused[] = {{"tool_calls", "is refused: tools are not built yet"},
                   {"function_call", "is refused: tools are not built yet"},
                   {"tool_call_id", "is refused: tools are not built yet"},
                   {"audio", "is refused: only text is supported"}};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const json_t *v = json_object_get(message, refused[i].name);
        char member[32];
        snprintf(member, sizeof member, ".%s", refused[i].name);
        if (!v || json_is_null(v) || (json_is_array(v) && !json_array_size(v))) continue;
        return refuse_at(at, member, RP_EUNSUPPORTED, refused[i].why, p);
    }
    const json_t *name = json_object_get(message, "name");
    if (name && !json_is_null(name) && !json_is_string(name))
        return refuse_at(at, ".name", RP_EINVAL, "is not a string", p);
    return RP_OK;
}

static rp_status take_message(const rp__ask *ask, size_t i, json_t *message, rp__problem *p) {
    place at;
    bool is_assistant = false;
    snprintf(at.text, sizeof at.text, "messages[%zu]", i);
    if (!json_is_object(message)) return refuse_at(&at, "", RP_EINVAL, "is not an object", p);
    RP_TRY(take_role(&at, message, &is_assistant, p));
    RP_TRY(check_members(&at, message, p));
    RP_TRY(take_content(&at, message, is_assistant, p));
    const json_t *content = json_object_get(message, "content");
    if (ask->kind == RP_ASK_CHAT ||
        strlen(json_string_value(content)) == json_string_length(content))
        return RP_OK;
    return refuse_at(&at, ".content", RP_EINVAL, "has a zero byte, where a text would end", p);
}

rp_status rp__ask_take_messages(rp__ask *ask, const json_t *value, rp__problem *p) {
    size_t i;
    json_t *message;
    if (!json_is_array(value))
        return rp__refuse(p, RP_EINVAL, "messages", "messages is not a list");
    if (!json_array_size(value)) return rp__refuse(p, RP_EINVAL, "messages", "messages is empty");
    json_array_foreach((json_t *)value, i, message) RP_TRY(take_message(ask, i, message, p));
    ask->messages = rp__ask_dump(value);
    return ask->messages ? RP_OK : no_memory(p);
}
