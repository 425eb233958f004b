/* Tokenizers from the text of tokenizer.json (the format of Hugging Face's tokenizers library) and
 * the few answers of tokenizer_config.json.
 *
 * Owns: reading. What is read goes into the same structures that GGUF fills.
 * Refuses: every model, normaliser, pre-tokeniser, post-processor and decoder that is not
 * understood, by name; a tokenizer that would split texts a little differently is worse than none.
 */
#include "text/tokenizer_impl.h"

#include <jansson.h>
#include <string.h>
#include <utf8proc.h>

#include "base/alloc.h"

/* Ids may leave holes, so a table by id is larger than the vocabulary; this bounds what one stray
 * id can cost. */
enum { ID_SLACK = 1 << 16 };

#define METASPACE "\xE2\x96\x81"

typedef struct reader {
    const char *source;
    rp__tokenizer *t;
    const json_t *root, *model;
    rp__str *texts; /* by id */
    int32_t *types;
    size_t n;
    bool is_byte_level, has_byte_fallback;
    bool has_split;    /* a stage was added: a prefix space can no longer be put before the text */
    bool strips_space; /* the decoder drops the first space */
} reader;

static rp_status no_memory(const reader *r, rp_error *err) {
    return rp__fail(err, RP_ENOMEM, "%s: out of memory", r->source);
}

static rp_status refuse(const reader *r, const char *what, const char *name, rp_error *err) {
    return rp__fail(err, RP_EUNSUPPORTED, "%s: %s \"%.80s\" is not supported", r->source, what,
                    name);
}

/* ---- JSON in short ---- */

static rp__str str_of(const json_t *v) {
    if (!json_is_string(v)) return (rp__str){0};
    return (rp__str){json_string_value(v), json_string_length(v)};
}

static rp__str str_at(const json_t *object, const char *key) {
    return str_of(json_object_get(object, key));
}

static bool is_null(const json_t *v) {
    return !v || json_is_null(v);
}

static bool bool_at(const json_t *object, const char *key, bool otherwise) {
    const json_t *v = json_object_get(object, key);
    return json_is_boolean(v) ? json_is_true(v) : otherwise;
}

/* The "type" of a step, for choosing and for messages. */
static const char *type_of(const json_t *step) {
    const char *type = json_string_value(json_object_get(step, "type"));
    return type ? type : "?";
}

static bool is_type(const json_t *step, const char *type) {
    return !strcmp(type_of(step), type);
}

static rp_status bad(const reader *r, const char *what, rp_error *err) {
    return rp__fail(err, RP_EFORMAT, "%s: %s", r->source, what);
}

static rp_status parse(const reader *r, rp__str text, const char *what, json_t **out,
                       rp_error *err) {
    json_error_t e;
    *out = json_loadb(text.n ? text.p : "", text.n, JSON_ALLOW_NUL, &e);
    if (*out) return json_is_object(*out) ? RP_OK : bad(r, "not a JSON object", err);
    if (json_error_code(&e) == json_error_out_of_memory) return no_memory(r, err);
    return rp__fail(err, RP_EFORMAT, "%s: %s is not JSON: line %d: %s", r->source, what, e.line,
                    e.text);
}

/* ---- vocabulary ---- */

/* Makes room for an id, which is below `limit`. */
static rp_status count_id(reader *r, const json_t *v, rp__str text, size_t limit, rp_error *err) {
    json_int_t id = json_is_integer(v) ? json_integer_value(v) : -1;
    if (id < 0 || (uint64_t)id >= limit)
        return rp__fail(err, RP_EFORMAT, "%s: token \"%.*s\" has no id below %zu", r->source,
                        (int)(text.n < 40 ? text.n : 40), text.p ? text.p : "", limit);
    if ((size_t)id + 1 > r->n) r->n = (size_t)id + 1;
    return RP_OK;
}

static rp_status find_size(reader *r, const json_t *vocab, const json_t *added, rp_error *err) {
    const char *key;
    size_t i, limit = 2 * (json_object_size(vocab) + json_array_size(added)) + ID_SLACK;
    json_t *v;
    json_object_foreach((json_t *)vocab, key, v)
        RP_TRY(count_id(r, v, rp__str_of(key), limit, err));
    json_array_foreach(added, i, v)
        RP_TRY(count_id(r, json_object_get(v, "id"), str_at(v, "content"), limit, err));
    return r->n ? RP_OK : bad(r, "the vocabulary has no tokens", err);
}

static rp_status put_text(reader *r, size_t id, rp__str text, int32_t type, rp_error *err) {
    if (r->texts[id].n && !rp__str_eq(r->texts[id], text))
        return rp__fail(err, RP_EFORMAT, "%s: tokens \"%.*s\" and \"%.*s\" have the same id %zu",
                        r->source, (int)(r->texts[id].n < 40 ? r->texts[id].n : 40), r->texts[id].p,
                        (int)(text.n < 40 ? text.n : 40), text.p, id);
    r->texts[id] = text;
    r->types[id] = type;
    return RP_OK;
}

static bool is_byte_piece(rp__str s) {
    static const char hex[] = "0123456789ABCDEF";
    return s.n == 6 && !memcmp(s.p, "<0x", 3) && s.p[5] == '>' && memchr(hex, s.p[3], 16) &&
           memchr(hex, s.p[4], 16);
}

static rp_status read_texts(reader *r, const json_t *vocab, const json_t *added, rp_error *err) {
    r->texts = rp__calloc(r->n, sizeof *r->texts);
    r->types = rp__calloc(r->n, sizeof *r->types);
    if (!r->texts || !r->types) return no_memory(r, err);
    for (size_t i = 0; i < r->n; i++) r->types[i] = RP_TOKEN_UNUSED;
    const char *key;
    size_t i;
    json_t *v;
    json_object_foreach((json_t *)vocab, key, v) {
        rp__str text = rp__str_of(key);
        bool is_byte = r->has_byte_fallback && is_byte_piece(text);
        RP_TRY(put_text(r, (size_t)json_integer_value(v), text,
                        is_byte ? RP_TOKEN_BYTE : RP_TOKEN_NORMAL, err));
    }
    json_array_foreach(added, i, v) {
        int32_t type = bool_at(v, "special", false) ? RP_TOKEN_CONTROL : RP_TOKEN_USER_DEFINED;
        rp__str text = str_at(v, "content");
        if (text.n == 0) return bad(r, "an added token has no content", err);
        RP_TRY(put_text(r, (size_t)json_integer_value(json_object_get(v, "id")), text, type, err));
    }
    return RP_OK;
}

/* Special tokens are looked for in the raw text whatever they say, so that spans of literal text
 * stay exact. */
static void set_flags(const reader *r, const json_t *added) {
    size_t i;
    json_t *v;
    json_array_foreach(added, i, v) {
        rp__piece *p = &r->t->pieces.p[json_integer_value(json_object_get(v, "id"))];
        if (bool_at(v, "lstrip", false)) p->flags |= RP_PIECE_LSTRIP;
        if (bool_at(v, "rstrip", false)) p->flags |= RP_PIECE_RSTRIP;
        if (bool_at(v, "single_word", false)) p->flags |= RP_PIECE_SINGLE_WORD;
        bool is_changed = !rp__normalizer_is_empty(&r->t->normalizer);
        if (is_changed && p->type == RP_TOKEN_USER_DEFINED && bool_at(v, "normalized", true))
            p->flags |= RP_PIECE_NORMALIZED;
    }
}

static rp_status read_vocabulary(reader *r, rp_error *err) {
    const json_t *vocab = json_object_get(r->model, "vocab"),
                 *added = json_object_get(r->root, "added_tokens");
    if (!json_is_object(vocab)) return bad(r, "model.vocab is missing or no object", err);
    if (!is_null(added) && !json_is_array(added)) return bad(r, "added_tokens is no list", err);
    RP_TRY(find_size(r, vocab, added, err));
    RP_TRY(read_texts(r, vocab, added, err));
    rp__piece_form form = r->is_byte_level ? RP_FORM_BYTE_LEVEL : RP_FORM_METASPACE_ALL;
    RP_TRY(rp__pieces_init(&r->t->pieces, r->source, r->texts, r->n, r->types, NULL, form, err));
    set_flags(r, added);
    return RP_OK;
}

/* A merge is "left right" or ["left", "right"]. */
static rp_status read_merge(const reader *r, size_t i, const json_t *v, rp_error *err) {
    rp__str left = str_of(json_array_get(v, 0)), right = str_of(json_array_get(v, 1)),
            line = str_of(v);
    const char *space = line.n > 1 ? memchr(line.p + 1, ' ', line.n - 1) : NULL;
    if (space) {
        left = (rp__str){line.p, (size_t)(space - line.p)};
        right = (rp__str){space + 1, line.n - left.n - 1};
    }
    if (!left.n || !right.n)
        return rp__fail(err, RP_EFORMAT, "%s: merge %zu is not two parts", r->source, i);
    return rp__merges_add(&r->t->merges, &r->t->pieces, r->source, i, left, right, err);
}

static rp_status read_merges(reader *r, rp_error *err) {
    const json_t *merges = json_object_get(r->model, "merges");
    size_t n = json_array_size(merges), i;
    if (n == 0) return bad(r, "model.merges is missing, empty or no list", err);
    if (n > UINT32_MAX || !rp__merges_reserve(&r->t->merges, n)) return no_memory(r, err);
    json_t *v;
    json_array_foreach(merges, i, v) RP_TRY(read_merge(r, i, v, err));
    return RP_OK;
}

/* ---- normalisers ---- */

static rp_status read_replace(const reader *r, const json_t *step, rp_error *err) {
    rp__str from = str_at(json_object_get(step, "pattern"), "String"), to = str_at(step, "content");
    if (from.n == 0) return refuse(r, "normaliser", "Replace without a String", err);
    return rp__normalizer_add(&r->t->normalizer, RP_NORM_REPLACE, from, to, 0, err);
}

static rp_status read_normalizer(const reader *r, const json_t *step, rp_error *err) {
    static const struct {
        const char *name;
        int form;
    } forms[] = {
        {"NFC", UTF8PROC_STABLE | UTF8PROC_COMPOSE},
        {"NFD", UTF8PROC_STABLE | UTF8PROC_DECOMPOSE},
        {"NFKC", UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT},
        {"NFKD", UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT},
    };
    rp__normalizer *z = &r->t->normalizer;
    rp__str none = {0};
    if (is_null(step)) return RP_OK;
    if (is_type(step, "Sequence")) {
        size_t i;
        json_t *v;
        json_array_foreach(json_object_get(step, "normalizers"), i, v) {
            if (is_type(v, "Sequence"))
                return refuse(r, "normaliser", "Sequence in a Sequence", err);
            RP_TRY(read_normalizer(r, v, err));
        }
        return RP_OK;
    }
    if (is_type(step, "Prepend"))
        return rp__normalizer_add(z, RP_NORM_PREPEND, none, str_at(step, "prepend"), 0, err);
    if (is_type(step, "Replace")) return read_replace(r, step, err);
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (is_type(step, forms[i].name))
            return rp__normalizer_add(z, RP_NORM_UNICODE, none, none, forms[i].form, err);
    return refuse(r, "normaliser", type_of(step), err);
}

/* ---- pre-tokenisers ---- */

static rp_status add_regex(reader *r, const char *pattern, rp_error *err) {
    r->has_split = true;
    return rp__splitter_add_regex(&r->t->splitter, pattern, err);
}

static bool replaces_spaces(const rp__normalizer *z) {
    for (size_t i = 0; i < z->n; i++)
        if (z->op[i].kind == RP_NORM_REPLACE && !strcmp(z->op[i].from, " ")) return true;
    return false;
}

static rp_status read_split(reader *r, const json_t *step, rp_error *err) {
    rp__str behavior = str_at(step, "behavior"),
            regex = str_at(json_object_get(step, "pattern"), "Regex");
    rp__str text = str_at(json_object_get(step, "pattern"), "String");
    bool invert = bool_at(step, "invert", false), failed;
    /* Gemma splits at spaces that its normaliser has replaced: nothing is split. */
    if (rp__str_is(text, " ") && replaces_spaces(&r->t->normalizer)) return RP_OK;
    if (regex.n == 0) return refuse(r, "pre-tokeniser", "Split by a string", err);
    const char *pattern = rp__pretokenizer_pattern(regex, &failed);
    if (failed) return no_memory(r, err);
    if (!pattern)
        return rp__fail(err, RP_EUNSUPPORTED, "%s: the pre-tokeniser's regex is not known: %.*s",
                        r->source, (int)(regex.n < 200 ? regex.n : 200), regex.p);
    bool isolates = rp__str_is(behavior, "Isolated") && !invert;
    bool keeps_matches =
        rp__str_is(behavior, "Removed") && invert && rp__pattern_covers_all(pattern);
    if (!isolates && !keeps_matches)
        return refuse(r, "Split with behavior", behavior.n ? behavior.p : "?", err);
    return add_regex(r, pattern, err);
}

static rp_status read_metaspace(reader *r, const json_t *step, rp_error *err) {
    rp__normalizer *z = &r->t->prefix;
    rp__str bar = RP_STR(METASPACE), scheme = str_at(step, "prepend_scheme");
    if (!rp__str_eq(str_at(step, "replacement"), bar))
        return refuse(r, "Metaspace with", "another replacement", err);
    if (r->has_split) return refuse(r, "pre-tokeniser", "Metaspace after another", err);
    if (scheme.n == 0)
        scheme = bool_at(step, "add_prefix_space", true) ? RP_STR("always") : RP_STR("never");
    RP_TRY(rp__normalizer_add(z, RP_NORM_REPLACE, RP_STR(" "), bar, 0, err));
    rp__str none = {0};
    if (rp__str_is(scheme, "always"))
        RP_TRY(rp__normalizer_add(z, RP_NORM_PREPEND_UNLESS, none, bar, 0, err));
    else if (rp__str_is(scheme, "first"))
        RP_TRY(rp__normalizer_add(z, RP_NORM_PREPEND_FIRST, none, bar, 0, err));
    else if (!rp__str_is(scheme, "never"))
        return refuse(r, "Metaspace with prepend_scheme", scheme.p, err);
    if (!bool_at(step, "split", true)) return RP_OK;
    r->has_split = true;
    return rp__splitter_add_metaspace(&r->t->splitter, err);
}

static rp_status read_byte_level(reader *r, const json_t *step, rp_error *err) {
    if (bool_at(step, "add_prefix_space", true)) {
        if (r->has_split)
            return refuse(r, "pre-tokeniser", "ByteLevel with add_prefix_space after another", err);
        rp__str none = {0};
        RP_TRY(
            rp__normalizer_add(&r->t->prefix, RP_NORM_PREPEND_UNLESS, none, RP_STR(" "), 0, err));
    }
    r->is_byte_level = true;
    return bool_at(step, "use_regex", true) ? add_regex(r, rp__pattern_gpt2, err) : RP_OK;
}

static rp_status read_pretokenizer(reader *r, const json_t *step, rp_error *err) {
    if (is_null(step)) return RP_OK;
    if (r->is_byte_level) return refuse(r, "pre-tokeniser after ByteLevel:", type_of(step), err);
    if (is_type(step, "Sequence")) {
        size_t i;
        json_t *v;
        json_array_foreach(json_object_get(step, "pretokenizers"), i, v) {
            if (is_type(v, "Sequence"))
                return refuse(r, "pre-tokeniser", "Sequence in a Sequence", err);
            RP_TRY(read_pretokenizer(r, v, err));
        }
        return RP_OK;
    }
    if (is_type(step, "Digits"))
        return add_regex(
            r, bool_at(step, "individual_digits", false) ? rp__pattern_digit : rp__pattern_digits,
            err);
    if (is_type(step, "Split")) return read_split(r, step, err);
    if (is_type(step, "ByteLevel")) return read_byte_level(r, step, err);
    if (is_type(step, "Metaspace")) return read_metaspace(r, step, err);
    if (is_type(step, "Punctuation") && rp__str_is(str_at(step, "behavior"), "Contiguous"))
        return add_regex(r, rp__pattern_punctuation, err);
    return refuse(r, "pre-tokeniser", type_of(step), err);
}

/* ---- decoders ---- */

static bool is_space_replace(const json_t *step) {
    return rp__str_is(str_at(json_object_get(step, "pattern"), "String"), METASPACE) &&
           rp__str_is(str_at(step, "content"), " ");
}

/* SentencePiece's decoders: U+2581 is a space, <0xXX> a byte, and the first space may go. */
static rp_status read_metaspace_decoder(reader *r, const json_t *step, bool *has_space,
                                        rp_error *err) {
    if (is_type(step, "ByteFallback") || is_type(step, "Fuse")) return RP_OK;
    if (is_type(step, "Replace") && is_space_replace(step)) return *has_space = true, RP_OK;
    if (is_type(step, "Metaspace")) {
        rp__str scheme = str_at(step, "prepend_scheme");
        r->strips_space = !rp__str_is(scheme, "never") && bool_at(step, "add_prefix_space", true);
        return *has_space = true, RP_OK;
    }
    bool strips_one = is_type(step, "Strip") && rp__str_is(str_at(step, "content"), " ") &&
                      json_integer_value(json_object_get(step, "start")) == 1 &&
                      json_integer_value(json_object_get(step, "stop")) == 0;
    if (!strips_one) return refuse(r, "decoder", type_of(step), err);
    r->strips_space = true;
    return RP_OK;
}

static rp_status read_decoder(reader *r, rp_error *err) {
    const json_t *step = json_object_get(r->root, "decoder");
    bool has_space = false;
    if (is_null(step)) return refuse(r, "decoder", "null", err);
    if (r->is_byte_level)
        return is_type(step, "ByteLevel") ? RP_OK : refuse(r, "decoder", type_of(step), err);
    if (!is_type(step, "Sequence")) {
        RP_TRY(read_metaspace_decoder(r, step, &has_space, err));
    } else {
        size_t i;
        json_t *v;
        json_array_foreach(json_object_get(step, "decoders"), i, v)
            RP_TRY(read_metaspace_decoder(r, v, &has_space, err));
    }
    r->t->strips_space = r->strips_space;
    return has_space ? RP_OK : refuse(r, "decoder", "without U+2581 for a space", err);
}

/* ---- post-processors: what stands around a text ---- */

static rp_status add_frame_id(const reader *r, bool is_before, json_int_t id, rp_error *err) {
    int32_t *ids = is_before ? r->t->prefix_ids : r->t->suffix_ids;
    size_t *n = is_before ? &r->t->n_prefix : &r->t->n_suffix;
    if (id < 0 || (size_t)id >= r->t->pieces.n)
        return rp__fail(err, RP_EFORMAT,
                        "%s: the post-processor's id %lld is outside the vocabulary of %zu",
                        r->source, (long long)id, r->t->pieces.n);
    if (*n == RP_MAX_FRAME_IDS)
        return rp__fail(err, RP_ELIMIT, "%s: too many tokens around a text", r->source);
    ids[(*n)++] = (int32_t)id;
    return RP_OK;
}

static rp_status read_template(const reader *r, const json_t *step, rp_error *err) {
    const json_t *table = json_object_get(step, "special_tokens"), *token;
    bool is_before = true;
    size_t i, k;
    json_t *v, *id;
    r->t->n_prefix = r->t->n_suffix = 0;
    json_array_foreach(json_object_get(step, "single"), i, v) {
        if (json_object_get(v, "Sequence")) is_before = false;
        if (!(token = json_object_get(v, "SpecialToken"))) continue;
        const char *name = json_string_value(json_object_get(token, "id"));
        const json_t *ids = name ? json_object_get(json_object_get(table, name), "ids") : NULL;
        if (!json_is_array(ids))
            return bad(r, "the post-processor names a special token without ids", err);
        json_array_foreach(ids, k, id) RP_TRY(
            add_frame_id(r, is_before, json_is_integer(id) ? json_integer_value(id) : -1, err));
    }
    return RP_OK;
}

static rp_status read_postprocessor(const reader *r, const json_t *step, rp_error *err) {
    if (is_null(step) || is_type(step, "ByteLevel")) return RP_OK;
    if (is_type(step, "TemplateProcessing")) return read_template(r, step, err);
    if (!is_type(step, "Sequence")) return refuse(r, "post-processor", type_of(step), err);
    size_t i;
    json_t *v;
    json_array_foreach(json_object_get(step, "processors"), i, v) {
        if (is_type(v, "Sequence"))
            return refuse(r, "post-processor", "Sequence in a Sequence", err);
        RP_TRY(read_postprocessor(r, v, err));
    }
    return RP_OK;
}

/* ---- tokenizer_config.json ---- */

/* A token is named by its text, or by an object with its content; -1: none. */
static int32_t named_token(const reader *r, const json_t *config, const char *key) {
    const json_t *v = json_object_get(config, key);
    rp__str text = json_is_object(v) ? str_at(v, "content") : str_of(v);
    return text.n ? rp__pieces_find(&r->t->pieces, text) : -1;
}

/* What the configuration says outright wins over the post-processor, as in transformers. */
static void read_config(const reader *r, const json_t *config) {
    rp__tokenizer *t = r->t;
    t->bos = named_token(r, config, "bos_token");
    t->eos = named_token(r, config, "eos_token");
    if (t->bos < 0 && t->n_prefix) t->bos = t->prefix_ids[0];
    const json_t *adds_bos = json_object_get(config, "add_bos_token"),
                 *adds_eos = json_object_get(config, "add_eos_token");
    if (json_is_boolean(adds_bos) && t->bos >= 0) {
        t->n_prefix = json_is_true(adds_bos);
        t->prefix_ids[0] = t->bos;
    }
    if (json_is_boolean(adds_eos) && t->eos >= 0) {
        t->n_suffix = json_is_true(adds_eos);
        t->suffix_ids[0] = t->eos;
    }
}

/* ---- the whole ---- */

static bool is_empty_option(const json_t *v) {
    return is_null(v) || (json_is_string(v) && !json_string_length(v));
}

static rp_status read_model(reader *r, rp_error *err) {
    r->model = json_object_get(r->root, "model");
    if (!json_is_object(r->model)) return bad(r, "model is missing or no object", err);
    const json_t *type = json_object_get(r->model, "type");
    if (type && !is_type(r->model, "BPE"))
        return refuse(r, "tokenizer model", type_of(r->model), err);
    if (!is_null(json_object_get(r->model, "dropout"))) return refuse(r, "option", "dropout", err);
    static const char *const options[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (!is_empty_option(json_object_get(r->model, options[i])))
            return refuse(r, "option", options[i], err);
    r->has_byte_fallback = bool_at(r->model, "byte_fallback", false);
    r->t->fuse_unk = bool_at(r->model, "fuse_unk", false);
    r->t->ignore_merges = bool_at(r->model, "ignore_merges", false);
    return RP_OK;
}

static rp_status read_unknown(const reader *r, rp_error *err) {
    rp__str text = str_at(r->model, "unk_token");
    if (text.n == 0) return RP_OK;
    r->t->unk = rp__pieces_find(&r->t->pieces, text);
    if (r->t->unk < 0)
        return rp__fail(err, RP_EFORMAT, "%s: unk_token \"%.*s\" is not in the vocabulary",
                        r->source, (int)(text.n < 40 ? text.n : 40), text.p);
    return RP_OK;
}

static rp_status read_all(reader *r, const json_t *config, rp_error *err) {
    RP_TRY(read_model(r, err));
    RP_TRY(read_normalizer(r, json_object_get(r->root, "normalizer"), err));
    RP_TRY(read_pretokenizer(r, json_object_get(r->root, "pre_tokenizer"), err));
    RP_TRY(read_decoder(r, err));
    r->t->model = r->is_byte_level ? RP_MERGE_BYTES : RP_MERGE_CHARS;
    RP_TRY(read_vocabulary(r, err));
    RP_TRY(read_unknown(r, err));
    RP_TRY(read_merges(r, err));
    RP_TRY(read_postprocessor(r, json_object_get(r->root, "post_processor"), err));
    read_config(r, config);
    return rp__tokenizer_finish(r->t, -1, err);
}

rp_status rp__tokenizer_create_json(const char *source, rp__str tokenizer_json,
                                    rp__str tokenizer_config, rp__tokenizer **out, rp_error *err) {
    reader r = {.source = source, .t = rp__calloc(1, sizeof *r.t)};
    json_t *root = NULL, *config = NULL;
    *out = NULL;
    if (!r.t) return no_memory(&r, err);
    r.t->bos = r.t->eos = r.t->unk = -1;
    rp_status status = parse(&r, tokenizer_json, "tokenizer.json", &root, err);
    if (status == RP_OK && tokenizer_config.n)
        status = parse(&r, tokenizer_config, "tokenizer_config.json", &config, err);
    r.root = root;
    if (status == RP_OK) status = read_all(&r, config, err);
    if (status == RP_OK)
        *out = r.t;
    else
        rp__tokenizer_destroy(r.t);
    json_decref(config);
    json_decref(root);
    rp__free(r.texts);
    rp__free(r.types);
    return status;
}
