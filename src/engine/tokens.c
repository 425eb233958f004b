/* Text to ids and back for callers of the library: through an engine, or a vocabulary alone. And
 * model names. */
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/options.h"
#include "engine/engine_impl.h"
#include "engine/vocab.h"

/* ---- model names ---- */

bool rp__cache_path(rp__bytes *out, const char *folder, const char *name) {
    const char *cache = rp__options_env("REPRISE_CACHE"), *home = rp__options_env("HOME");
    rp__bytes_reset(out);
    if (cache)
        rp__bytes_printf(out, "%s/%s/%s", cache, folder, name);
    else
        rp__bytes_printf(out, "%s/.cache/reprise/%s/%s", home ? home : ".", folder, name);
    return !out->failed;
}

rp_status rp__model_path(const char *name, char **out, rp_error *err) {
    static const char *const endings[] = {".gguf", ""};
    rp__bytes path = {0};
    bool is_short = !strchr(name, '/') && access(name, F_OK) != 0, ok = true;
    for (size_t i = 0; is_short && ok && i < sizeof endings / sizeof *endings; i++) {
        ok = rp__cache_path(&path, "models", name) && rp__bytes_add_str(&path, endings[i]);
        if (ok && access(path.p, F_OK) == 0) is_short = false;
    }
    rp_status st = RP_OK;
    if (is_short && ok)
        st = rp__fail(err, RP_ENOTFOUND,
                      "model \"%s\": no such file, and no such name in the cache (%s)", name,
                      path.p);
    else if (ok && !path.n)
        ok = rp__bytes_add_str(&path, name);
    if (!ok) st = rp__fail(err, RP_ENOMEM, "out of memory for a path");
    *out = st < 0 ? NULL : rp__bytes_take(&path);
    rp__bytes_clear(&path);
    return st;
}

/* ---- text and ids ---- */

static rp_status tokenize(const rp__tokenizer *t, const char *text, size_t n, bool add_special,
                          bool parse_special, int32_t **ids, size_t *n_ids, rp_error *err) {
    rp__ids list = {0};
    rp__encode_options how = {.add_special = add_special, .parse_special = parse_special};
    rp_status st = rp__tokenizer_encode(t, (rp__str){text, n}, &how, &list, err);
    if (st < 0) {
        rp__ids_clear(&list);
        return st;
    }
    *ids = list.p ? list.p : rp__calloc(1, sizeof **ids);
    *n_ids = list.n;
    return *ids ? RP_OK : rp__fail(err, RP_ENOMEM, "out of memory for the ids");
}

static rp_status detokenize(const rp__tokenizer *t, const int32_t *ids, size_t n, bool show_special,
                            char **text, size_t *text_bytes, rp_error *err) {
    rp__bytes out = {0};
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= rp__tokenizer_size(t))
            return rp__fail(err, RP_EINVAL, "ids[%zu] is %d, tokens are 0 to %d", i, (int)ids[i],
                            (int)rp__tokenizer_size(t) - 1);
    bool ok = rp__tokenizer_decode(t, ids, n, show_special, &out);
    *text_bytes = out.n;
    *text = ok ? rp__bytes_take(&out) : NULL;
    rp__bytes_clear(&out);
    return *text ? RP_OK : rp__fail(err, RP_ENOMEM, "out of memory for the text");
}

rp_status rp_engine_tokenize(rp_engine *e, const char *text, size_t n, bool add_special,
                             bool parse_special, int32_t **ids, size_t *n_ids, rp_error *err) {
    return tokenize(e->tokenizer, text, n, add_special, parse_special, ids, n_ids, err);
}

rp_status rp_engine_detokenize(rp_engine *e, const int32_t *ids, size_t n, bool show_special,
                               char **text, size_t *text_bytes, rp_error *err) {
    return detokenize(e->tokenizer, ids, n, show_special, text, text_bytes, err);
}

const char *rp_engine_token_bytes(rp_engine *e, int32_t id, size_t *bytes) {
    if (id < 0 || id >= rp__tokenizer_size(e->tokenizer)) return NULL;
    rp__str s = rp__tokenizer_bytes(e->tokenizer, id);
    *bytes = s.n;
    return s.p ? s.p : "";
}

/* ---- a vocabulary alone ---- */

struct rp_vocab {
    rp__checkpoint *checkpoint;
    rp__tokenizer *tokenizer;
};

static rp_status open_vocab(rp_vocab *v, const char *model, rp_error *err) {
    char *path;
    RP_TRY(rp__model_path(model, &path, err));
    rp_status st = rp__checkpoint_open(path, &v->checkpoint, err);
    rp__free(path);
    RP_TRY(st);
    return rp__vocab_from_checkpoint(v->checkpoint, &v->tokenizer, err);
}

rp_status rp_vocab_open(const char *model, rp_vocab **out, rp_error *err) {
    *out = NULL;
    rp_vocab *v = rp__calloc(1, sizeof *v);
    if (!v) return rp__fail(err, RP_ENOMEM, "out of memory for a vocabulary");
    rp_status st = open_vocab(v, model, err);
    if (st < 0) {
        rp_vocab_close(v);
        return st;
    }
    *out = v;
    return RP_OK;
}

void rp_vocab_close(rp_vocab *v) {
    if (!v) return;
    rp__tokenizer_destroy(v->tokenizer);
    rp__checkpoint_close(v->checkpoint);
    rp__free(v);
}

rp_status rp_vocab_tokenize(rp_vocab *v, const char *text, size_t n, bool add_special,
                            bool parse_special, int32_t **ids, size_t *n_ids, rp_error *err) {
    return tokenize(v->tokenizer, text, n, add_special, parse_special, ids, n_ids, err);
}

rp_status rp_vocab_detokenize(rp_vocab *v, const int32_t *ids, size_t n, bool show_special,
                              char **text, size_t *text_bytes, rp_error *err) {
    return detokenize(v->tokenizer, ids, n, show_special, text, text_bytes, err);
}

const char *rp_vocab_piece(rp_vocab *v, int32_t id, size_t *bytes) {
    if (id < 0 || id >= rp__tokenizer_size(v->tokenizer)) return NULL;
    rp__str s = rp__tokenizer_text(v->tokenizer, id);
    *bytes = s.n;
    return s.p;
}
