/* Reads tokenizer.ggml.* of GGUF, or tokenizer.json and its neighbours of a folder.
 *
 * Refuses: arrays whose lengths differ from the number of tokens. */
#include "engine/vocab.h"

#include "base/alloc.h"
#include "base/fail.h"

#define KEY(name) "tokenizer.ggml." name

typedef struct arrays { /* what a spec points to */
    rp__str *tokens, *merges;
    float *scores;
    int32_t *types;
} arrays;

static bool has(const rp__gguf *g, const char *key) {
    return rp__gguf_find(g, key) != NULL;
}

static rp_status check_count(const rp__gguf *g, const char *key, uint64_t n, size_t n_tokens,
                             rp_error *err) {
    if (n == n_tokens) return RP_OK;
    return rp__fail(err, RP_EFORMAT, "%s: %s has %llu items for %zu tokens", rp__gguf_path(g), key,
                    (unsigned long long)n, n_tokens);
}

static rp_status read_scores(const rp__gguf *g, size_t n, float **out, rp_error *err) {
    const rp__gguf_kv *kv;
    if (!has(g, KEY("scores"))) return RP_OK;
    RP_TRY(rp__gguf_array(g, KEY("scores"), RP_GGUF_F32, &kv, err));
    RP_TRY(check_count(g, KEY("scores"), kv->n, n, err));
    float *p = rp__realloc_array(NULL, n, sizeof *p);
    if (!p)
        return rp__fail(err, RP_ENOMEM, "%s: out of memory for %zu scores", rp__gguf_path(g), n);
    for (size_t i = 0; i < n; i++) p[i] = (float)rp__gguf_item_number(kv, i);
    *out = p;
    return RP_OK;
}

static rp_status read_types(const rp__gguf *g, size_t n, int32_t **out, rp_error *err) {
    const rp__gguf_kv *kv;
    if (!has(g, KEY("token_type"))) return RP_OK;
    RP_TRY(rp__gguf_array(g, KEY("token_type"), RP_GGUF_I32, &kv, err));
    RP_TRY(check_count(g, KEY("token_type"), kv->n, n, err));
    int32_t *p = rp__realloc_array(NULL, n, sizeof *p);
    if (!p)
        return rp__fail(err, RP_ENOMEM, "%s: out of memory for %zu token types", rp__gguf_path(g),
                        n);
    for (size_t i = 0; i < n; i++) p[i] = (int32_t)rp__gguf_item_number(kv, i);
    *out = p;
    return RP_OK;
}

static rp_status read_arrays(const rp__gguf *g, arrays *a, rp__tokenizer_spec *s, rp_error *err) {
    RP_TRY(rp__gguf_strings(g, KEY("tokens"), &a->tokens, &s->n_tokens, err));
    RP_TRY(read_scores(g, s->n_tokens, &a->scores, err));
    RP_TRY(read_types(g, s->n_tokens, &a->types, err));
    if (has(g, KEY("merges")))
        RP_TRY(rp__gguf_strings(g, KEY("merges"), &a->merges, &s->n_merges, err));
    s->tokens = a->tokens;
    s->scores = a->scores;
    s->types = a->types;
    s->merges = a->merges;
    return RP_OK;
}

/* -1 when the key is absent. 0xFFFFFFFF is how converters write "none". */
static rp_status read_id(const rp__gguf *g, const char *key, int32_t *out, rp_error *err) {
    int64_t id;
    *out = -1;
    if (!has(g, key)) return RP_OK;
    RP_TRY(rp__gguf_int(g, key, &id, err));
    if (id == UINT32_MAX || id == -1) return RP_OK;
    if (id < 0 || id > INT32_MAX)
        return rp__fail(err, RP_EFORMAT, "%s: %s is %lld, which is no token id", rp__gguf_path(g),
                        key, (long long)id);
    *out = (int32_t)id;
    return RP_OK;
}

static rp_status read_flag(const rp__gguf *g, const char *key, int *out, rp_error *err) {
    bool flag;
    *out = -1;
    if (!has(g, key)) return RP_OK;
    RP_TRY(rp__gguf_bool(g, key, &flag, err));
    *out = flag;
    return RP_OK;
}

static rp_status read_scalars(const rp__gguf *g, rp__tokenizer_spec *s, rp_error *err) {
    RP_TRY(rp__gguf_str(g, KEY("model"), &s->model, err));
    if (has(g, KEY("pre"))) RP_TRY(rp__gguf_str(g, KEY("pre"), &s->pre, err));
    RP_TRY(read_id(g, KEY("bos_token_id"), &s->bos, err));
    RP_TRY(read_id(g, KEY("eos_token_id"), &s->eos, err));
    RP_TRY(read_id(g, KEY("eot_token_id"), &s->eot, err));
    RP_TRY(read_id(g, KEY("unknown_token_id"), &s->unk, err));
    RP_TRY(read_id(g, KEY("padding_token_id"), &s->pad, err));
    RP_TRY(read_flag(g, KEY("add_bos_token"), &s->add_bos, err));
    RP_TRY(read_flag(g, KEY("add_eos_token"), &s->add_eos, err));
    return read_flag(g, KEY("add_space_prefix"), &s->add_space_prefix, err);
}

/* Phi-3's special tokens take the white space after them, which GGUF has no key for; its name
 * tells. */
static bool is_phi3(const rp__gguf *g) {
    rp__str arch = {0};
    return has(g, "general.architecture") &&
           rp__gguf_str(g, "general.architecture", &arch, NULL) == RP_OK &&
           rp__str_is(arch, "phi3");
}

rp_status rp__vocab_from_gguf(const rp__gguf *g, rp__tokenizer **out, rp_error *err) {
    arrays a = {0};
    rp__tokenizer_spec s = {.source = rp__gguf_path(g)};
    *out = NULL;
    rp_status status = read_scalars(g, &s, err);
    if (status == RP_OK) status = read_arrays(g, &a, &s, err);
    s.strip_after_special = is_phi3(g) && rp__str_is(s.model, "llama");
    if (status == RP_OK) status = rp__tokenizer_create(&s, out, err);
    rp__free(a.tokens);
    rp__free(a.merges);
    rp__free(a.scores);
    rp__free(a.types);
    return status;
}

/* ---- a folder ---- */

/* eos_token_id of generation_config.json or config.json: a number or a list. Ids that are not there
 * are ignored, as configurations are often copied from a larger vocabulary. */
static void add_ends(rp__tokenizer *t, const json_t *config) {
    const json_t *ids = json_object_get(config, "eos_token_id");
    if (json_is_integer(ids) && json_integer_value(ids) <= INT32_MAX &&
        json_integer_value(ids) >= 0)
        rp__tokenizer_add_eog(t, (int32_t)json_integer_value(ids));
    for (size_t i = 0; i < json_array_size(ids); i++) {
        json_int_t id = json_integer_value(json_array_get(ids, i));
        if (json_is_integer(json_array_get(ids, i)) && id >= 0 && id <= INT32_MAX)
            rp__tokenizer_add_eog(t, (int32_t)id);
    }
}

static rp_status from_folder(const rp__checkpoint *c, rp__tokenizer **out, rp_error *err) {
    if (c->tokenizer_json.n == 0)
        return rp__fail(err, RP_ENOTFOUND, "%s has no tokenizer.json", c->path);
    size_t n = c->tokenizer_config ? json_dumpb(c->tokenizer_config, NULL, 0, JSON_COMPACT) : 0;
    char *config = rp__alloc(n + 1);
    if (!config)
        return rp__fail(err, RP_ENOMEM, "%s: out of memory for the tokenizer's configuration",
                        c->path);
    if (n) n = json_dumpb(c->tokenizer_config, config, n, JSON_COMPACT);
    rp__str json = {c->tokenizer_json.p, c->tokenizer_json.n};
    rp_status status = rp__tokenizer_create_json(c->path, json, (rp__str){config, n}, out, err);
    rp__free(config);
    if (status < 0) return status;
    add_ends(*out, c->generation_config);
    add_ends(*out, c->config);
    return RP_OK;
}

rp_status rp__vocab_from_checkpoint(const rp__checkpoint *c, rp__tokenizer **out, rp_error *err) {
    *out = NULL;
    return c->gguf ? rp__vocab_from_gguf(c->gguf, out, err) : from_folder(c, out, err);
}
