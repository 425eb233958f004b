/* Opening GGUF files and splits; the tables' accessors. */
#include "file/gguf.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "file/gguf_impl.h"

/* "-00001-of-00003.gguf" has five digits: no split has more parts. */
enum { MOST_PARTS = 99999 };

const rp__gguf_kv *rp__gguf_kvs_find(const rp__gguf_kvs *kvs, const char *key) {
    uint64_t i;
    return rp__map_get(&kvs->by_key, rp__str_of(key), &i) ? &kvs->at[i] : NULL;
}

void rp__gguf_kvs_clear(rp__gguf_kvs *kvs) {
    rp__free(kvs->at);
    rp__map_clear(&kvs->by_key);
    *kvs = (rp__gguf_kvs){0};
}

/* Empties the object, so that it can be filled again. */
static void clear(rp__gguf *g) {
    for (uint32_t i = 0; i < g->n_parts; i++) rp__mapping_close(&g->parts[i]);
    rp__free(g->parts);
    rp__gguf_kvs_clear(&g->kvs);
    rp__free(g->tensors);
    rp__map_clear(&g->by_name);
    *g = (rp__gguf){0};
}

void rp__gguf_close(rp__gguf *g) {
    if (!g) return;
    clear(g);
    rp__free(g);
}

/* Takes the mapping, also when it fails. */
static rp_status add_part(rp__gguf *g, rp__mapping *m, rp__gguf_kvs *kvs, rp_error *err) {
    rp__mapping *parts = rp__realloc_array(g->parts, g->n_parts + (size_t)1, sizeof *parts);
    if (!parts) {
        rp_status status = rp__fail(err, RP_ENOMEM, "%s: out of memory", rp__path_tail(m->path));
        rp__mapping_close(m);
        return status;
    }
    g->parts = parts;
    g->parts[g->n_parts++] = *m;
    return rp__gguf_parse(g, g->n_parts - 1, kvs, err);
}

static rp_status add_file(rp__gguf *g, const char *path, rp__gguf_kvs *kvs, rp_error *err) {
    rp__mapping m;
    RP_TRY(rp__mapping_open(&m, path, err));
    return add_part(g, &m, kvs, err);
}

/* ---- splits ---- */

typedef struct split {
    int64_t no, count, n_tensors; /* n_tensors: of all parts */
} split;

static rp_status split_int(const rp__gguf_kvs *kvs, const char *path, const char *key, int64_t most,
                           int64_t *out, rp_error *err) {
    const rp__gguf_kv *kv = rp__gguf_kvs_find(kvs, key);
    path = rp__path_tail(path);
    if (!kv)
        return rp__fail(err, RP_EFORMAT, "%s: a part of a split without the key \"%s\"", path, key);
    if (!rp__gguf_kv_int(kv, out))
        return rp__fail(err, RP_EFORMAT, "%s: key \"%s\" is of type %s, an integer is wanted", path,
                        key, rp__gguf_type_name(kv->type));
    if (*out < 0 || *out > most)
        return rp__fail(err, RP_EFORMAT,
                        "%s: key \"%s\" is %" PRId64 ", 0 to %" PRId64 " are possible", path, key,
                        *out, most);
    return RP_OK;
}

/* A file without split.count is a split of one. */
static rp_status read_split(const rp__gguf_kvs *kvs, const char *path, split *s, rp_error *err) {
    *s = (split){.count = 1};
    if (!rp__gguf_kvs_find(kvs, "split.count")) return RP_OK;
    RP_TRY(split_int(kvs, path, "split.count", MOST_PARTS, &s->count, err));
    if (s->count < 2) return RP_OK;
    RP_TRY(split_int(kvs, path, "split.no", s->count - 1, &s->no, err));
    return split_int(kvs, path, "split.tensors.count", INT32_MAX, &s->n_tensors, err);
}

/* "-00002-of-00003.gguf" */
static void part_suffix(char out[32], int64_t no, int64_t count) {
    snprintf(out, 32, "-%05d-of-%05d.gguf", (int)no + 1, (int)count);
}

/* Length of the name before the suffix that part `s->no` must have. */
static rp_status find_prefix(const char *path, const split *s, size_t *out, rp_error *err) {
    char suffix[32];
    part_suffix(suffix, s->no, s->count);
    size_t n = strlen(path), n_suffix = strlen(suffix);
    if (n < n_suffix || strcmp(path + n - n_suffix, suffix))
        return rp__fail(err, RP_EFORMAT,
                        "%s: is part %" PRId64 " of %" PRId64
                        " of a split, but its name does not end in \"%s\", so the "
                        "other parts cannot be found",
                        rp__path_tail(path), s->no + 1, s->count, suffix);
    *out = n - n_suffix;
    return RP_OK;
}

static rp_status check_part(const split *found, const split *wanted, int64_t no, const char *path,
                            rp_error *err) {
    path = rp__path_tail(path);
    if (found->count != wanted->count || found->no != no)
        return rp__fail(err, RP_EFORMAT,
                        "%s: says it is part %" PRId64 " of %" PRId64
                        " (split.no, split.count), part %" PRId64 " of %" PRId64 " is wanted",
                        path, found->no + 1, found->count, no + 1, wanted->count);
    if (found->n_tensors != wanted->n_tensors)
        return rp__fail(err, RP_EFORMAT,
                        "%s: key \"split.tensors.count\" is %" PRId64 ", other parts say %" PRId64,
                        path, found->n_tensors, wanted->n_tensors);
    return RP_OK;
}

/* Adds part `no`; the first one's key-values are kept, those of the others only checked. */
static rp_status add_split_part(rp__gguf *g, const char *path, const split *s, int64_t no,
                                rp_error *err) {
    rp__gguf_kvs other = {0}, *kvs = no == 0 ? &g->kvs : &other;
    split found;
    rp_status status = add_file(g, path, kvs, err);
    if (status == RP_ENOTFOUND)
        status =
            rp__fail(err, RP_ENOTFOUND, "%s is missing: part %" PRId64 " of %" PRId64 " of a split",
                     rp__path_tail(path), no + 1, s->count);
    if (status == RP_OK) status = read_split(kvs, path, &found, err);
    if (status == RP_OK) status = check_part(&found, s, no, path, err);
    rp__gguf_kvs_clear(&other);
    return status;
}

static rp_status open_split(rp__gguf *g, const char *path, const split *s, rp_error *err) {
    size_t n_prefix = 0;
    RP_TRY(find_prefix(path, s, &n_prefix, err));
    clear(g); /* the given file may be any part: begin again at the first */
    rp_status status = RP_OK;
    for (int64_t no = 0; no < s->count && status == RP_OK; no++) {
        char suffix[32];
        rp__bytes name = {0};
        part_suffix(suffix, no, s->count);
        rp__bytes_add(&name, path, n_prefix);
        rp__bytes_add_str(&name, suffix);
        status = name.failed ? rp__fail(err, RP_ENOMEM, "%s: out of memory", rp__path_tail(path))
                             : add_split_part(g, name.p, s, no, err);
        rp__bytes_clear(&name);
    }
    if (status == RP_OK && (int64_t)g->n_tensors != s->n_tensors)
        status =
            rp__fail(err, RP_EFORMAT,
                     "%s: the parts have %zu tensors, key \"split.tensors.count\" says %" PRId64,
                     rp__path_tail(path), g->n_tensors, s->n_tensors);
    return status;
}

/* ---- open ---- */

rp_status rp__gguf_open(const char *path, rp__gguf **out, rp_error *err) {
    *out = NULL;
    split s;
    rp__gguf *g = rp__calloc(1, sizeof *g);
    if (!g) return rp__fail(err, RP_ENOMEM, "%s: out of memory", rp__path_tail(path));
    rp_status status = add_file(g, path, &g->kvs, err);
    if (status == RP_OK) status = read_split(&g->kvs, path, &s, err);
    if (status == RP_OK && s.count > 1) status = open_split(g, path, &s, err);
    if (status == RP_OK)
        *out = g;
    else
        rp__gguf_close(g);
    return status;
}

rp_status rp__gguf_open_memory(const char *name, const void *p, size_t n, rp__gguf **out,
                               rp_error *err) {
    *out = NULL;
    rp__mapping m;
    split s;
    rp__gguf *g = rp__calloc(1, sizeof *g);
    if (!g) return rp__fail(err, RP_ENOMEM, "%s: out of memory", rp__path_tail(name));
    rp_status status = rp__mapping_borrow(&m, name, p, n, err);
    if (status == RP_OK) status = add_part(g, &m, &g->kvs, err);
    if (status == RP_OK) status = read_split(&g->kvs, name, &s, err);
    if (status == RP_OK && s.count > 1)
        status =
            rp__fail(err, RP_EUNSUPPORTED, "%s: a part of a split has no other parts in memory",
                     rp__path_tail(name));
    if (status == RP_OK)
        *out = g;
    else
        rp__gguf_close(g);
    return status;
}

/* ---- tables ---- */

size_t rp__gguf_n_kv(const rp__gguf *g) {
    return g->kvs.n;
}
const rp__gguf_kv *rp__gguf_kv_at(const rp__gguf *g, size_t i) {
    return i < g->kvs.n ? &g->kvs.at[i] : NULL;
}
const rp__gguf_kv *rp__gguf_find(const rp__gguf *g, const char *key) {
    return rp__gguf_kvs_find(&g->kvs, key);
}
size_t rp__gguf_n_tensors(const rp__gguf *g) {
    return g->n_tensors;
}

const rp__gguf_tensor *rp__gguf_tensor_at(const rp__gguf *g, size_t i) {
    return i < g->n_tensors ? &g->tensors[i] : NULL;
}

const rp__gguf_tensor *rp__gguf_tensor_find(const rp__gguf *g, const char *name) {
    uint64_t i;
    return rp__map_get(&g->by_name, rp__str_of(name), &i) ? &g->tensors[i] : NULL;
}

const char *rp__gguf_path(const rp__gguf *g) {
    return g->parts[0].path;
}

void rp__gguf_drop_pages(const rp__gguf *g, const rp__gguf_tensor *t) {
    rp__mapping_drop_at(g->parts, g->n_parts, t->data, t->bytes);
}
