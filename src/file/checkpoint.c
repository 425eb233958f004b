#include "file/checkpoint.h"

#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "file/json.h"
#include "file/mapping.h"

enum { /* bytes that are read at most; real files are far smaller */
       MOST_CONFIG = 16 << 20,
       MOST_TOKENIZER = 256 << 20,
       MOST_TEMPLATE = 4 << 20,
};

static bool ends_with(const char *s, const char *end) {
    size_t n = strlen(s), n_end = strlen(end);
    return n >= n_end && !strcmp(s + n - n_end, end);
}

static bool is_file(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

static bool is_folder(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static rp_status fail_memory(const char *path, rp_error *err) {
    return rp__fail(err, RP_ENOMEM, "%s: out of memory", rp__path_tail(path));
}

/* ---- a folder ---- */

/* A JSON file that may be absent; *out stays NULL then. */
static rp_status read_optional_json(const char *dir, const char *name, json_t **out,
                                    rp_error *err) {
    char *path = rp__path_join(dir, name);
    if (!path) return fail_memory(dir, err);
    rp_status status = is_file(path) ? rp__json_read(path, MOST_CONFIG, out, err) : RP_OK;
    rp__free(path);
    return status;
}

static rp_status read_optional_text(const char *dir, const char *name, size_t limit, rp__bytes *out,
                                    rp_error *err) {
    char *path = rp__path_join(dir, name);
    if (!path) return fail_memory(dir, err);
    rp_status status = is_file(path) ? rp__file_read(path, limit, out, err) : RP_OK;
    rp__free(path);
    return status;
}

static rp_status read_texts(rp__checkpoint *c, const char *dir, rp_error *err) {
    RP_TRY(read_optional_json(dir, "config.json", &c->config, err));
    if (!c->config)
        return rp__fail(err, RP_ENOTFOUND,
                        "%s: no config.json there: a folder in Hugging Face's form is wanted",
                        rp__path_tail(dir));
    RP_TRY(read_optional_json(dir, "generation_config.json", &c->generation_config, err));
    RP_TRY(read_optional_json(dir, "tokenizer_config.json", &c->tokenizer_config, err));
    RP_TRY(read_optional_text(dir, "tokenizer.json", MOST_TOKENIZER, &c->tokenizer_json, err));
    return read_optional_text(dir, "chat_template.jinja", MOST_TEMPLATE, &c->chat_template, err);
}

/* Opens `name` of the folder when it is there; RP_END otherwise. */
static rp_status try_weights(rp__checkpoint *c, const char *dir, const char *name, rp_error *err) {
    char *path = rp__path_join(dir, name);
    if (!path) return fail_memory(dir, err);
    rp_status status = is_file(path) ? rp__safetensors_open(path, &c->safetensors, err) : RP_END;
    rp__free(path);
    return status;
}

/* Says what is missing, or that what is there is of a kind that is not read. */
static rp_status fail_no_weights(const char *dir, rp_error *err) {
    static const char *const pickles[] = {"pytorch_model.bin", "pytorch_model.bin.index.json"};
    for (size_t i = 0; i < sizeof pickles / sizeof *pickles; i++) {
        char *path = rp__path_join(dir, pickles[i]);
        if (!path) return fail_memory(dir, err);
        bool found = is_file(path);
        rp__free(path);
        if (found)
            return rp__fail(
                err, RP_EUNSUPPORTED,
                "%s: weights in pickle form (%s) are not supported; save them as safetensors",
                rp__path_tail(dir), pickles[i]);
    }
    return rp__fail(
        err, RP_ENOTFOUND,
        "%s: no weights there: model.safetensors or model.safetensors.index.json is wanted",
        rp__path_tail(dir));
}

static rp_status open_folder(rp__checkpoint *c, const char *dir, rp_error *err) {
    static const char *const names[] = {"model.safetensors", "model.safetensors.index.json"};
    RP_TRY(read_texts(c, dir, err));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        rp_status status = try_weights(c, dir, names[i], err);
        if (status != RP_END) return status;
    }
    return fail_no_weights(dir, err);
}

/* ---- a file ---- */

/* One shard of a set stands for the set, when its index is there. */
static rp_status open_weights(rp__checkpoint *c, const char *path, rp_error *err) {
    char *index = rp__path_beside(path, "model.safetensors.index.json");
    if (!index) return fail_memory(path, err);
    const char *slash = strrchr(path, '/');
    bool is_shard = strstr(slash ? slash : path, "-of-") && is_file(index);
    rp_status status = rp__safetensors_open(is_shard ? index : path, &c->safetensors, err);
    rp__free(index);
    return status;
}

static rp_status open_beside(rp__checkpoint *c, const char *path, rp_error *err) {
    char *dir = rp__path_beside(path, ".");
    if (!dir) return fail_memory(path, err);
    rp_status status = read_texts(c, dir, err);
    rp__free(dir);
    if (status == RP_OK) status = open_weights(c, path, err);
    return status;
}

static rp_status open_any(rp__checkpoint *c, const char *path, rp_error *err) {
    if (is_folder(path)) return open_folder(c, path, err);
    if (ends_with(path, ".safetensors") || ends_with(path, ".safetensors.index.json"))
        return open_beside(c, path, err);
    return rp__gguf_open(path, &c->gguf, err); /* whatever its name: the first bytes decide */
}

rp_status rp__checkpoint_open(const char *path, rp__checkpoint **out, rp_error *err) {
    *out = NULL;
    rp__checkpoint *c = rp__calloc(1, sizeof *c);
    if (!c) return fail_memory(path, err);
    c->path = rp__strdup(path);
    rp_status status = c->path ? open_any(c, path, err) : fail_memory(path, err);
    if (status < 0)
        rp__checkpoint_close(c);
    else
        *out = c;
    return status;
}

void rp__checkpoint_close(rp__checkpoint *c) {
    if (!c) return;
    rp__gguf_close(c->gguf);
    rp__safetensors_close(c->safetensors);
    json_decref(c->config);
    json_decref(c->generation_config);
    json_decref(c->tokenizer_config);
    rp__bytes_clear(&c->tokenizer_json);
    rp__bytes_clear(&c->chat_template);
    rp__free(c->path);
    rp__free(c);
}

/* ---- tensors ---- */

static bool from_gguf(const rp__gguf_tensor *t, rp__checkpoint_tensor *out) {
    if (!t) return false;
    *out = (rp__checkpoint_tensor){t->name, t->dtype, t->n_dims, {0}, t->data, t->bytes};
    memcpy(out->dim, t->dim, sizeof out->dim);
    return true;
}

static bool from_safetensors(const rp__safetensors_tensor *t, rp__checkpoint_tensor *out) {
    if (!t) return false;
    *out = (rp__checkpoint_tensor){t->name, t->dtype, t->n_dims, {0}, t->data, t->bytes};
    memcpy(out->dim, t->dim, sizeof out->dim);
    return true;
}

size_t rp__checkpoint_n_tensors(const rp__checkpoint *c) {
    return c->gguf ? rp__gguf_n_tensors(c->gguf) : rp__safetensors_n_tensors(c->safetensors);
}

bool rp__checkpoint_tensor_at(const rp__checkpoint *c, size_t i, rp__checkpoint_tensor *out) {
    return c->gguf ? from_gguf(rp__gguf_tensor_at(c->gguf, i), out)
                   : from_safetensors(rp__safetensors_at(c->safetensors, i), out);
}

bool rp__checkpoint_find(const rp__checkpoint *c, const char *name, rp__checkpoint_tensor *out) {
    return c->gguf ? from_gguf(rp__gguf_tensor_find(c->gguf, name), out)
                   : from_safetensors(rp__safetensors_find(c->safetensors, name), out);
}

void rp__checkpoint_drop_pages(const rp__checkpoint *c, const rp__checkpoint_tensor *t) {
    if (c->gguf)
        rp__gguf_drop_pages(c->gguf, &(rp__gguf_tensor){.data = t->data, .bytes = t->bytes});
    else
        rp__safetensors_drop_pages(c->safetensors,
                                   &(rp__safetensors_tensor){.data = t->data, .bytes = t->bytes});
}
