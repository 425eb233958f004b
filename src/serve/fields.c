/* The one table of request fields: what each endpoint takes, in which range, and what is done with
 * it. A field that nobody knows is refused, as OpenAI does, so that a misspelt one is noticed. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "serve/ask.h"

enum {
    CHAT = RP_ASK_CHAT,
    TEXT = RP_ASK_COMPLETION,
    ANSWERS = CHAT | TEXT,
    TEMPLATES = CHAT | RP_ASK_TEMPLATE | RP_ASK_TOKENIZE
};

enum {
    MOST_STOPS = 16,        /* each is looked for at every byte */
    MOST_STOP_BYTES = 1024, /* held back in the stream at most */
    MOST_STOP_IDS = 1024,
    MOST_CHOICES = 256 /* of one request: prompts times n */
};
#define INT_MOST 2147483647.0

typedef enum field_kind {
    F_INT,     /* int at `offset`, min..max */
    F_NUMBER,  /* float at `offset`, min..max */
    F_BOOL,    /* bool at `offset` */
    F_TAKE,    /* `take` checks and keeps it */
    F_IGNORED, /* any value: it changes nothing here, by its meaning */
    F_REFUSED  /* any value but null and `neutral`: `why` says what to do */
} field_kind;

typedef struct field {
    const char *name;
    uint8_t kind, asks; /* asks: of rp__ask_kind */
    double min, max;
    size_t offset;
    rp_status (*take)(rp__ask *ask, const char *name, const json_t *v, rp__problem *p);
    const char *neutral, *why;
} field;

/* ---- checks that several fields share ---- */

static const char *type_name(const json_t *v) {
    static const char *const names[] = {
        [JSON_OBJECT] = "an object", [JSON_ARRAY] = "a list",  [JSON_STRING] = "a string",
        [JSON_INTEGER] = "a number", [JSON_REAL] = "a number", [JSON_TRUE] = "true",
        [JSON_FALSE] = "false",      [JSON_NULL] = "null"};
    return names[json_typeof(v)];
}

static rp_status wrong_type(const char *name, const char *wanted, const json_t *v, rp__problem *p) {
    return rp__refuse(p, RP_EINVAL, name, "%s is %s, expected %s", name, type_name(v), wanted);
}

static rp_status take_number(const char *name, const json_t *v, double min, double max, double *out,
                             rp__problem *p) {
    if (!json_is_number(v)) return wrong_type(name, "a number", v, p);
    *out = json_number_value(v);
    if (*out >= min && *out <= max) return RP_OK;
    return rp__refuse(p, RP_EINVAL, name, "%s is %g, expected %g to %.10g", name, *out, min, max);
}

static rp_status take_whole(const char *name, const json_t *v, double min, double max, int64_t *out,
                            rp__problem *p) {
    double number;
    if (!json_is_number(v)) return wrong_type(name, "a whole number", v, p);
    RP_TRY(take_number(name, v, min, max, &number, p));
    if (json_is_real(v) && number != floor(number))
        return rp__refuse(p, RP_EINVAL, name, "%s is %g, expected a whole number", name, number);
    *out = json_is_integer(v) ? json_integer_value(v) : (int64_t)number;
    return RP_OK;
}

static rp_status take_bool(const char *name, const json_t *v, bool *out, rp__problem *p) {
    if (!json_is_boolean(v)) return wrong_type(name, "true or false", v, p);
    *out = json_is_true(v);
    return RP_OK;
}

static void *reserve(rp__ask *ask, size_t n, size_t bytes, rp__problem *p) {
    void *memory = rp__arena_calloc(&ask->arena, n ? n : 1, bytes);
    if (!memory) rp__refuse(p, RP_ENOMEM, NULL, "out of memory for the request");
    return memory;
}

static rp_status take_ids(rp__ask *ask, const char *name, const json_t *list, int32_t **ids,
                          size_t *n_ids, rp__problem *p) {
    size_t n = json_array_size(list);
    *ids = reserve(ask, n, sizeof **ids, p);
    if (!*ids) return RP_ENOMEM;
    for (size_t i = 0; i < n; i++) {
        char place[sizeof p->param];
        int64_t id;
        snprintf(place, sizeof place, "%s[%zu]", name, i);
        RP_TRY(take_whole(place, json_array_get(list, i), 0, ask->max_id, &id, p));
        (*ids)[i] = (int32_t)id;
    }
    *n_ids = n;
    return RP_OK;
}

/* ---- fields with a form of their own ---- */

static rp_status take_model(rp__ask *ask, const char *name, const json_t *v, rp__problem *p) {
    if (!json_is_string(v)) return wrong_type(name, "a string", v, p);
    ask->model = json_string_value(v);
    return RP_OK;
}

static rp_status take_messages(rp__ask *ask, const char *name, const json_t *v, rp__problem *p) {
    (void)name;
    return rp__ask_take_messages(ask, v, p);
}

/* Whether a list is one prompt of ids, and not a list of prompts. */
static bool is_ids(const json_t *v) {
    return json_is_array(v) && json_array_size(v) && json_is_number(json_array_get(v, 0));
}

static rp_status take_one_prompt(rp__ask *ask, const char *name, const json_t *v, rp__prompt *out,
                                 rp__problem *p) {
    if (json_is_string(v)) {
        out->text = (rp__str){json_string_value(v), json_string_length(v)};
        if (out->text.n) return RP_OK;
        return rp__refuse(p, RP_EINVAL, name, "%s is empty", name);
    }
    if (is_ids(v)) return take_ids(ask, name, v, &out->ids, &out->n_ids, p);
    if (json_is_array(v) && !json_array_size(v))
        return rp__refuse(p, RP_EINVAL, name, "%s is empty", name);
    return wrong_type(name, "a string, a list of token ids, or a list of either", v, p);
}

static rp_status take_prompt(rp__ask *ask, const char *name, const json_t *v, rp__problem *p) {
    bool is_one = !json_is_array(v) || is_ids(v) || !json_array_size(v);
    size_t n = is_one ? 1 : json_array_size(v);
    if (n > MOST_CHOICES)
        return rp__refuse(p, RP_EINVAL, name, "%s has %zu entries, at most %d are taken", name, n,
                          MOST_CHOICES);
    ask->prompts = reserve(ask, n, sizeof *ask->prompts, p);
    if (!ask->prompts) return RP_ENOMEM;
    for (size_t i = 0; i < n; i++) {
        char place[sizeof p->param];
        snprintf(place, sizeof place, is_one ? "%s" : "%s[%zu]", name, i);
        RP_TRY(take_one_prompt(ask, place, is_one ? v : json_array_get(v, i), &ask->prompts[i], p));
    }
    ask->n_prompts = n;
    return RP_OK;
}

/* A text for /tokenize, which may be empty. */
static rp_status take_text(rp__ask *ask, const char *name, const json_t *v, rp__problem *p) {
    if (!json_is_string(v)) return wrong_type(name, "a string", v, p);
    ask->prompts = reserve(ask, 1, sizeof *ask->prompts, p);
    if (!ask->prompts) return RP_ENOMEM;
    ask->prompts[0].text = (rp__str){json_string_value(v), json_string_length(v)};
    ask->n_prompts = 1;
    return RP_OK;
}

static rp_status take_tokens(rp__ask *ask, const char *name, const json_t *v, rp__problem *p) {
    if (!json_is_array(v)) return wrong_type(name, "a list of token ids", v, p);
    ask->prompts = reserve(ask, 1, sizeof *ask->prompts, p);
    if (!ask->prompts) return RP_ENOMEM;
    ask->n_prompts = 1;
    return take_ids(ask, name, v, &ask->prompts[0].ids, &ask->prompts[0].n_ids, p);
}

static rp_status take_one_stop(const char *name, const json_t *v, const char **out,
                               rp__problem *p) {
    if (!json_is_string(v)) return wrong_type(name, "a string", v, p);
    size_t n = json_string_length(v);
    if (!n || n > MOST_STOP_BYTES)
        return rp__refuse(p, RP_EINVAL, name, "%s has %zu bytes, expected 1 to %d", name, n,
                          MOST_STOP_BYTES);
    *out = json_string_value(v);
    if (strlen(*out) == n) return RP_OK;
    return rp__refuse(p, RP_EINVAL, name, "%s has a zero byte", name);
}

static rp_status take_stop(rp__ask *ask, const char *name, const json_t *v, rp__problem *p) {
    bool is_list = json_is_array(v);
    size_t n = is_list ? json_array_size(v) : 1;
    if (!is_list && !json_is_string(v)) return wrong_type(name, "a string or a list", v, p);
    if (n > MOST_STOPS)
        return rp__refuse(p, RP_EINVAL, name, "%s has %zu entries, at most %d are taken", name, n,
                          MOST_STOPS);
    const char **stops = reserve(ask, n, sizeof *stops, p);
    if (!stops) return RP_ENOMEM;
    for (size_t i = 0; i < n; i++) {
        char place[sizeof p->param];
        snprintf(place, sizeof place, is_list ? "%s[%zu]" : "%s", name, i);
        RP_TRY(take_one_stop(place, is_list ? json_array_get(v, i) : v, &stops[i], p));
    }
    ask->options.stop = stops;
    ask->options.n_stop = n;
    return RP_OK;
}

static rp_status take_stop_ids(rp__ask *ask, const char *name, const json_t *v, rp__problem *p) {
    int32_t *ids;
    if (!json_is_array(v)) return wrong_type(name, "a list of token ids", v, p);
    if (json_array_size(v) > MOST_STOP_IDS)
        return rp__refuse(p, RP_EINVAL, name, "%s has %zu entries, at most %d are taken", name,
                          json_array_size(v), MOST_STOP_IDS);
    RP_TRY(take_ids(ask, name, v, &ids, &ask->options.n_stop_ids, p));
    ask->options.stop_ids = ids;
    return RP_OK;
}

/* "50256": the whole key, as OpenAI's objects have it. */
static rp_status take_token_key(const rp__ask *ask, const char *name, const char *key, int32_t *id,
                                rp__problem *p) {
    int64_t n = 0;
    size_t i = 0;
    for (; key[i] >= '0' && key[i] <= '9' && n <= ask->max_id; i++) n = n * 10 + (key[i] - '0');
    if (!i || key[i] || n > ask->max_id)
        return rp__refuse(p, RP_EINVAL, name,
                          "%s has the key \"%.40s\", expected a token id, 0 to %d", name, key,
                          (int)ask->max_id);
    *id = (int32_t)n;
    return RP_OK;
}

static rp_status take_logit_bias(rp__ask *ask, const char *name, const json_t *v, rp__problem *p) {
    if (!json_is_object(v)) return wrong_type(name, "an object of token ids", v, p);
    size_t n = 0;
    rp_logit_bias *bias = reserve(ask, json_object_size(v), sizeof *bias, p);
    if (!bias) return RP_ENOMEM;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)v, key, value) {
        char place[sizeof p->param];
        double number;
        RP_TRY(take_token_key(ask, name, key, &bias[n].id, p));
        snprintf(place, sizeof place, "%s.%s", name, key);
        RP_TRY(take_number(place, value, -100, 100, &number, p));
        bias[n++].bias = (float)number;
    }
    ask->options.sampling.logit_bias = bias;
    ask->options.sampling.n_logit_bias = n;
    return RP_OK;
}

static rp_status take_seed(rp__ask *ask, const char *name, const json_t *v, rp__problem *p) {
    int64_t seed;
    RP_TRY(take_whole(name, v, -9223372036854775808.0, 9223372036854774784.0, &seed, p));
    ask->options.sampling.seed = (uint64_t)seed;
    ask->has_seed = true;
    return RP_OK;
}

static rp_status take_top_k(rp__ask *ask, const char *name, const json_t *v, rp__problem *p) {
    int64_t k;
    RP_TRY(take_whole(name, v, -1, 1e9, &k, p));
    ask->options.sampling.top_k = k > 0 ? (int)k : 0;
    return RP_OK;
}

/* Zero has a meaning for completions: an echoed prompt alone. The engine makes at least one. */
static rp_status take_max_tokens(rp__ask *ask, const char *name, const json_t *v, rp__problem *p) {
    int64_t n;
    RP_TRY(take_whole(name, v, ask->kind == RP_ASK_CHAT ? 1 : 0, INT_MOST, &n, p));
    ask->prompt_only = n == 0;
    ask->options.max_tokens = n ? (int)n : 1;
    return RP_OK;
}

/* Newer name of max_tokens, which it wins over. */
static rp_status take_max_completion(rp__ask *ask, const char *name, const json_t *v,
                                     rp__problem *p) {
    int64_t n;
    RP_TRY(take_whole(name, v, 1, INT_MOST, &n, p));
    ask->options.max_tokens = (int)n;
    return RP_OK;
}

static rp_status take_stream_options(rp__ask *ask, const char *name, const json_t *v,
                                     rp__problem *p) {
    const char *key;
    json_t *value;
    if (!json_is_object(v)) return wrong_type(name, "an object", v, p);
    json_object_foreach((json_t *)v, key, value) {
        char place[sizeof p->param];
        bool ignored;
        snprintf(place, sizeof place, "%s.%.60s", name, key);
        if (!strcmp(key, "include_usage")) {
            RP_TRY(take_bool(place, value, &ask->include_usage, p));
        } else if (!strcmp(key, "include_obfuscation")) {
            RP_TRY(take_bool(place, value, &ignored, p)); /* padding against traffic analysis: there
                                                             is none to leave out */
        } else {
            return rp__refuse(p, RP_EINVAL, place, "%s is not known", place);
        }
    }
    return RP_OK;
}

/* Variables that the request has fields for, or the server sets. */
static bool is_reserved_kwarg(const char *key) {
    static const char *const names[] = {"messages",  "tools",     "documents",
                                        "bos_token", "eos_token", "add_generation_prompt"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(key, names[i])) return true;
    return false;
}

static rp_status take_kwargs(rp__ask *ask, const char *name, const json_t *v, rp__problem *p) {
    const char *key;
    json_t *value;
    if (!json_is_object(v)) return wrong_type(name, "an object", v, p);
    json_object_foreach((json_t *)v, key, value) {
        char place[sizeof p->param];
        snprintf(place, sizeof place, "%s.%.60s", name, key);
        if (is_reserved_kwarg(key))
            return rp__refuse(p, RP_EINVAL, place, "%s is set by the request's own fields", place);
    }
    ask->template_kwargs = rp__ask_dump(v);
    return ask->template_kwargs ? RP_OK
                                : rp__refuse(p, RP_ENOMEM, NULL, "out of memory for the request");
}

static rp_status take_cache_salt(rp__ask *ask, const char *name, const json_t *v, rp__problem *p) {
    if (!json_is_string(v)) return wrong_type(name, "a string", v, p);
    ask->options.cache_salt = json_string_value(v);
    if (json_string_length(v) && json_string_length(v) == strlen(ask->options.cache_salt))
        return RP_OK;
    return rp__refuse(p, RP_EINVAL, name, "%s is empty or has a zero byte", name);
}

static rp_status take_generation_prompt(rp__ask *ask, const char *name, const json_t *v,
                                        rp__problem *p) {
    ask->has_generation_prompt = true;
    return take_bool(name, v, &ask->options.add_generation_prompt, p);
}

static rp_status take_response_format(rp__ask *ask, const char *name, const json_t *v,
                                      rp__problem *p) {
    (void)ask;
    const char *type = json_string_value(json_object_get(v, "type"));
    if (type && !strcmp(type, "text")) return RP_OK;
    return rp__refuse(p, RP_EUNSUPPORTED, name,
                      "%s of type \"%.40s\" is not built yet: only \"text\" is", name,
                      type ? type : "?");
}

/* ---- the table ---- */

#define AT(member)     offsetof(rp__ask, member)
#define SAMPLING(name) offsetof(rp__ask, options.sampling.name)
/* One field, one row. */
/* clang-format off */
static const field fields[] = {
    {"model", F_TAKE, 0xff, .take = take_model},
    {"messages", F_TAKE, TEMPLATES, .take = take_messages},
    {"prompt", F_TAKE, TEXT, .take = take_prompt},
    {"prompt", F_TAKE, RP_ASK_TOKENIZE, .take = take_text},
    {"content", F_TAKE, RP_ASK_TOKENIZE, .take = take_text},
    {"tokens", F_TAKE, RP_ASK_DETOKENIZE, .take = take_tokens},
    {"add_special_tokens", F_BOOL, RP_ASK_TOKENIZE, .offset = AT(add_special)},
    {"add_special", F_BOOL, RP_ASK_TOKENIZE, .offset = AT(add_special)},
    {"parse_special", F_BOOL, RP_ASK_TOKENIZE, .offset = AT(parse_special)},
    {"return_token_strs", F_BOOL, RP_ASK_TOKENIZE, .offset = AT(with_pieces)},
    {"with_pieces", F_BOOL, RP_ASK_TOKENIZE, .offset = AT(with_pieces)},

    /* how long */
    {"max_tokens", F_TAKE, ANSWERS, .take = take_max_tokens},
    {"max_completion_tokens", F_TAKE, CHAT, .take = take_max_completion},
    {"stop", F_TAKE, ANSWERS, .take = take_stop},
    {"stop_token_ids", F_TAKE, ANSWERS, .take = take_stop_ids},
    {"include_stop_str_in_output", F_BOOL, ANSWERS, .offset = AT(include_stop)},
    {"min_tokens", F_INT, ANSWERS, 0, INT_MOST, .offset = AT(options.min_tokens)},
    {"ignore_eos", F_BOOL, ANSWERS, .offset = AT(options.ignore_eos)},

    /* sampling */
    {"temperature", F_NUMBER, ANSWERS, 0, 2, .offset = SAMPLING(temperature)},
    {"top_p", F_NUMBER, ANSWERS, 1e-6, 1, .offset = SAMPLING(top_p)},
    {"top_k", F_TAKE, ANSWERS, .take = take_top_k},
    {"min_p", F_NUMBER, ANSWERS, 0, 1, .offset = SAMPLING(min_p)},
    {"presence_penalty", F_NUMBER, ANSWERS, -2, 2, .offset = SAMPLING(presence_penalty)},
    {"frequency_penalty", F_NUMBER, ANSWERS, -2, 2, .offset = SAMPLING(frequency_penalty)},
    {"repetition_penalty", F_NUMBER, ANSWERS, 0.01, 100, .offset = SAMPLING(repetition_penalty)},
    {"repeat_penalty", F_NUMBER, ANSWERS, 0.01, 100, .offset = SAMPLING(repetition_penalty)},
    {"repeat_last_n", F_INT, ANSWERS, -1, INT_MOST, .offset = SAMPLING(penalty_last_n)},
    {"logit_bias", F_TAKE, ANSWERS, .take = take_logit_bias},
    {"seed", F_TAKE, ANSWERS, .take = take_seed},
    {"n", F_INT, ANSWERS, 1, 128, .offset = AT(n)},

    /* what comes back */
    {"stream", F_BOOL, ANSWERS, .offset = AT(stream)},
    {"stream_options", F_TAKE, ANSWERS, .take = take_stream_options},
    {"logprobs", F_BOOL, CHAT, .offset = AT(has_logprobs)},
    {"top_logprobs", F_INT, CHAT, 0, 20, .offset = AT(n_top)},
    {"logprobs", F_INT, TEXT, 0, 5, .offset = AT(options.n_logprobs)},
    {"return_tokens_as_token_ids", F_BOOL, ANSWERS, .offset = AT(with_token_ids)},
    {"echo", F_BOOL, TEXT, .offset = AT(echo)},
    {"skip_special_tokens", F_BOOL, ANSWERS, .offset = AT(options.skip_special_tokens)},
    {"response_format", F_TAKE, ANSWERS, .take = take_response_format},

    /* when */
    {"priority", F_INT, ANSWERS, -1e6, 1e6, .offset = AT(options.priority)},
    {"cache_salt", F_TAKE, ANSWERS, .take = take_cache_salt},
    {"cache_prompt", F_BOOL, ANSWERS, .offset = AT(options.use_prefix_cache)},

    /* the template */
    {"add_generation_prompt", F_TAKE, TEMPLATES, .take = take_generation_prompt},
    {"continue_final_message", F_BOOL, TEMPLATES, .offset = AT(options.continue_final_message)},
    {"chat_template_kwargs", F_TAKE, TEMPLATES, .take = take_kwargs},

    /* change nothing here by what they mean: notes for the provider's books, his choice of
     * machines, hints to a cache that needs none */
    {"user", F_IGNORED, .asks = ANSWERS}, {"metadata", F_IGNORED, .asks = ANSWERS},
    {"safety_identifier", F_IGNORED, .asks = ANSWERS}, {"service_tier", F_IGNORED, .asks = ANSWERS},
    {"prompt_cache_key", F_IGNORED, .asks = ANSWERS}, {"prompt_cache_retention", F_IGNORED, .asks = ANSWERS},
    {"parallel_tool_calls", F_IGNORED, .asks = CHAT}, {"request_id", F_IGNORED, .asks = ANSWERS},
    {"session_id", F_IGNORED, .asks = ANSWERS}, {"keep_alive", F_IGNORED, .asks = ANSWERS},

    /* known elsewhere, not here: refused unless they ask for what happens anyway */
    {"store", F_REFUSED, ANSWERS, .neutral = "false", .why = "answers are not stored"},
    {"tools", F_REFUSED, CHAT | RP_ASK_TEMPLATE, .neutral = "[]", .why = "tools are not built yet"},
    {"tool_choice", F_REFUSED, CHAT, .neutral = "\"none\"", .why = "tools are not built yet"},
    {"functions", F_REFUSED, CHAT, .neutral = "[]", .why = "tools are not built yet"},
    {"function_call", F_REFUSED, CHAT, .neutral = "\"none\"", .why = "tools are not built yet"},
    {"reasoning_effort", F_REFUSED, ANSWERS,
        .why = "a template's own variable can be set by chat_template_kwargs"},
    {"verbosity", F_REFUSED, CHAT, .neutral = "\"medium\"", .why = "it is not supported"},
    {"modalities", F_REFUSED, CHAT, .neutral = "[\"text\"]", .why = "only text is supported"},
    {"audio", F_REFUSED, CHAT, .why = "only text is supported"},
    {"prediction", F_REFUSED, CHAT, .why = "it is not supported"},
    {"web_search_options", F_REFUSED, CHAT, .why = "it is not supported"},
    {"suffix", F_REFUSED, TEXT, .neutral = "\"\"", .why = "inserting text is not supported"},
    {"best_of", F_REFUSED, TEXT, .neutral = "1", .why = "ask for n answers and choose"},
};
/* clang-format on */

static const field *find_field(const char *name, unsigned asks) {
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if ((fields[i].asks & asks) && !strcmp(fields[i].name, name)) return &fields[i];
    return NULL;
}

static bool is_neutral(const field *f, const json_t *v) {
    if (!f->neutral) return false;
    json_t *neutral = json_loads(f->neutral, JSON_DECODE_ANY, NULL);
    bool is_equal = neutral && json_equal(neutral, v);
    json_decref(neutral);
    return is_equal;
}

static rp_status take_field(rp__ask *ask, const field *f, const json_t *v, rp__problem *p) {
    char *at = (char *)ask + f->offset;
    int64_t whole;
    double number;
    switch ((field_kind)f->kind) {
    case F_INT:
        RP_TRY(take_whole(f->name, v, f->min, f->max, &whole, p));
        *(int *)(void *)at = (int)whole;
        return RP_OK;
    case F_NUMBER:
        RP_TRY(take_number(f->name, v, f->min, f->max, &number, p));
        *(float *)(void *)at = (float)number;
        return RP_OK;
    case F_BOOL:
        return take_bool(f->name, v, (bool *)at, p);
    case F_TAKE:
        return f->take(ask, f->name, v, p);
    case F_IGNORED:
        return RP_OK;
    case F_REFUSED:
        break;
    }
    if (is_neutral(f, v)) return RP_OK;
    return rp__refuse(p, RP_EUNSUPPORTED, f->name, "%s is refused: %s", f->name, f->why);
}

static rp_status fail_unknown(const rp__ask *ask, const char *name, rp__problem *p) {
    const field *other = find_field(name, ANSWERS);
    if (other && ask->kind & ANSWERS)
        return rp__refuse(p, RP_EINVAL, name, "%s is a field of the other kind of completion",
                          name);
    return rp__refuse(p, RP_EINVAL, name, "%.60s is not a field of this request", name);
}

/* In the order of the table, so that what wins over what does not hang on the client's order. */
rp_status rp__ask_take_fields(rp__ask *ask, const rp__ask_limits *limits, rp__problem *p) {
    const char *key;
    json_t *value;
    json_object_foreach(ask->root, key, value) {
        if (!json_is_null(value) && !limits->ignore_unknown && !find_field(key, ask->kind))
            return fail_unknown(ask, key, p);
    }
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const field *f = &fields[i];
        if (!(f->asks & ask->kind)) continue;
        value = json_object_get(ask->root, f->name);
        if (value && !json_is_null(value)) RP_TRY(take_field(ask, f, value, p));
    }
    if (ask->n_prompts * (size_t)ask->n <= MOST_CHOICES) return RP_OK;
    return rp__refuse(p, RP_EINVAL, "n", "%zu prompts with n %d are %zu answers, at most %d",
                      ask->n_prompts, ask->n, ask->n_prompts * (size_t)ask->n, MOST_CHOICES);
}
