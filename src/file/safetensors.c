/* safetensors: an eight-byte length, a JSON header of that length, the tensors' bytes without a
 * gap.
 *
 * Refuses what the reference refuses (header over 100 MB, doubled keys, spans that overlap, leave
 * holes, are reversed or do not end where the file ends, spans that do not fit dtype and shape),
 * with the reason's name. */
#include "file/safetensors.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/arena.h"
#include "base/fail.h"
#include "base/map.h"
#include "file/json.h"
#include "file/mapping.h"
#include "file/safetensors_impl.h"
#include "tensor/dtype.h"

enum {
    LONGEST_HEADER = 100000000, /* the reference's bound */
    LONGEST_INDEX = 64 << 20,
    HEADER_DEPTH = 16, /* a header needs three */
    SHOWN = 80,        /* bytes of a name that a sentence shows */
};

struct rp__safetensors {
    rp__mapping *parts;
    size_t n_parts;
    rp__arena names;
    rp__safetensors_tensor *tensors;
    size_t n_tensors, tensors_cap;
    rp__map by_name; /* index into `tensors` */
};

/* The file being read. */
typedef struct part {
    const rp__mapping *file;
    const unsigned char *data;
    size_t n_data;
} part;

/* "FILE: tensor "NAME": ..." */
static RP_PRINTF(5, 6) rp_status fail_tensor(const part *p, const char *name, rp_status code,
                                             rp_error *err, const char *fmt, ...) {
    char what[300];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    return rp__fail(err, code, "%s: tensor \"%.*s\": %s", rp__path_tail(p->file->path), SHOWN, name,
                    what);
}

static rp_status fail_memory(const char *path, rp_error *err) {
    return rp__fail(err, RP_ENOMEM, "%s: out of memory", rp__path_tail(path));
}

/* ---- one entry of the header ---- */

static rp_status read_dtype(const part *p, const char *name, const json_t *entry, rp_dtype *out,
                            rp_error *err) {
    static const struct {
        const char *name;
        rp_dtype dtype;
    } ours[] = {
        {"F64", RP_F64}, {"F32", RP_F32}, {"F16", RP_F16}, {"BF16", RP_BF16}, {"I64", RP_I64},
        {"I32", RP_I32}, {"I16", RP_I16}, {"I8", RP_I8},   {"U8", RP_U8},     {"BOOL", RP_U8},
    };
    static const char *const others[] = {"U16",     "U32",     "U64",         "F8_E4M3",
                                         "F8_E5M2", "F8_E8M0", "F6_E2M3",     "F6_E3M2",
                                         "F4",      "C64",     "F8_E4M3FNUZ", "F8_E5M2FNUZ"};
    const char *text = json_string_value(json_object_get(entry, "dtype"));
    if (!text) return fail_tensor(p, name, RP_EFORMAT, err, "\"dtype\" is missing or not a string");
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        if (!strcmp(text, ours[i].name)) return *out = ours[i].dtype, RP_OK;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (!strcmp(text, others[i]))
            return fail_tensor(p, name, RP_EUNSUPPORTED, err, "dtype %s is not supported yet",
                               text);
    return fail_tensor(p, name, RP_EFORMAT, err, "unknown dtype \"%.*s\"", SHOWN, text);
}

static rp_status read_shape(const part *p, rp__safetensors_tensor *t, const json_t *entry,
                            rp_error *err) {
    const json_t *shape = json_object_get(entry, "shape");
    const char *name = t->name.p;
    if (!json_is_array(shape))
        return fail_tensor(p, name, RP_EFORMAT, err, "\"shape\" is missing or not an array");
    size_t n = json_array_size(shape);
    if (n > RP_MAX_DIMS)
        return fail_tensor(p, name, RP_EUNSUPPORTED, err,
                           "%zu dimensions, at most %d are supported", n, RP_MAX_DIMS);
    t->n_dims = (uint8_t)n;
    for (size_t i = 0; i < n; i++) {
        const json_t *d = json_array_get(shape, i);
        if (!json_is_integer(d) || json_integer_value(d) < 0)
            return fail_tensor(p, name, RP_EFORMAT, err,
                               "\"shape\"[%zu] is not an integer from 0 on", i);
        t->dim[i] = (int64_t)json_integer_value(d);
    }
    return RP_OK;
}

/* Bytes that dtype and shape ask for. */
static rp_status count_bytes(const part *p, rp__safetensors_tensor *t, rp_error *err) {
    int64_t elems = 1;
    for (int i = 0; i < t->n_dims; i++)
        if (__builtin_mul_overflow(elems, t->dim[i], &elems))
            return fail_tensor(p, t->name.p, RP_EFORMAT, err,
                               "the number of elements overflows at \"shape\"[%d] of %" PRId64, i,
                               t->dim[i]);
    if (!rp__dtype_bytes(t->dtype, elems, &t->bytes))
        return fail_tensor(p, t->name.p, RP_EFORMAT, err,
                           "the number of bytes overflows: %" PRId64 " elements of %s", elems,
                           rp__dtype_name(t->dtype));
    return RP_OK;
}

static bool offset_at(const json_t *offsets, size_t i, uint64_t *out) {
    const json_t *v = json_array_get(offsets, i);
    if (!json_is_integer(v) || json_integer_value(v) < 0) return false;
    *out = (uint64_t)json_integer_value(v);
    return true;
}

/* The span in the data, and that it is as long as dtype and shape ask. */
static rp_status read_span(const part *p, rp__safetensors_tensor *t, const json_t *entry,
                           rp_error *err) {
    const json_t *offsets = json_object_get(entry, "data_offsets");
    const char *name = t->name.p;
    uint64_t begin, end;
    if (!json_is_array(offsets) || json_array_size(offsets) != 2 ||
        !offset_at(offsets, 0, &begin) || !offset_at(offsets, 1, &end))
        return fail_tensor(p, name, RP_EFORMAT, err,
                           "\"data_offsets\" must be two integers from 0 on");
    if (end < begin)
        return fail_tensor(p, name, RP_EFORMAT, err,
                           "\"data_offsets\" [%" PRIu64 ", %" PRIu64 "] are reversed", begin, end);
    if (end > p->n_data)
        return fail_tensor(p, name, RP_EFORMAT, err,
                           "lies outside the file: \"data_offsets\" [%" PRIu64 ", %" PRIu64
                           "], but the data are %zu bytes",
                           begin, end, p->n_data);
    if (end - begin != t->bytes)
        return fail_tensor(p, name, RP_EFORMAT, err,
                           "\"data_offsets\" [%" PRIu64 ", %" PRIu64 "] hold %" PRIu64
                           " bytes, dtype %s and shape need %zu",
                           begin, end, end - begin, rp__dtype_name(t->dtype), t->bytes);
    t->data = p->data + begin;
    return RP_OK;
}

static rp_status check_metadata(const part *p, const json_t *metadata, rp_error *err) {
    const char *key;
    json_t *value;
    const char *path = rp__path_tail(p->file->path);
    if (!json_is_object(metadata))
        return rp__fail(err, RP_EFORMAT, "%s: \"__metadata__\" is not an object", path);
    json_object_foreach((json_t *)metadata, key, value) {
        if (!json_is_string(value))
            return rp__fail(err, RP_EFORMAT, "%s: \"__metadata__\".\"%.*s\" is not a string", path,
                            SHOWN, key);
    }
    return RP_OK;
}

/* ---- the table ---- */

static rp_status add_tensor(rp__safetensors *s, const part *p, rp__safetensors_tensor *t,
                            rp_error *err) {
    if (rp__map_get(&s->by_name, t->name, NULL))
        return fail_tensor(p, t->name.p, RP_EFORMAT, err, "is in another file of the set too");
    t->name.p = rp__arena_strndup(&s->names, t->name.p, t->name.n);
    if (!t->name.p) return fail_memory(p->file->path, err);
    if (s->n_tensors == s->tensors_cap) {
        size_t cap = s->tensors_cap ? s->tensors_cap * 2 : 32;
        rp__safetensors_tensor *grown = rp__realloc_array(s->tensors, cap, sizeof *grown);
        if (!grown) return fail_memory(p->file->path, err);
        s->tensors = grown;
        s->tensors_cap = cap;
    }
    if (!rp__map_put(&s->by_name, t->name, s->n_tensors)) return fail_memory(p->file->path, err);
    s->tensors[s->n_tensors++] = *t;
    return RP_OK;
}

static rp_status read_entry(rp__safetensors *s, const part *p, const char *name,
                            const json_t *entry, rp_error *err) {
    rp__safetensors_tensor t = {.name = rp__str_of(name)};
    if (!strcmp(name, "__metadata__")) return check_metadata(p, entry, err);
    if (!t.name.n) return fail_tensor(p, name, RP_EFORMAT, err, "the name is empty");
    if (!json_is_object(entry))
        return fail_tensor(p, name, RP_EFORMAT, err, "is not described by an object");
    RP_TRY(read_dtype(p, name, entry, &t.dtype, err));
    RP_TRY(read_shape(p, &t, entry, err));
    RP_TRY(count_bytes(p, &t, err));
    RP_TRY(read_span(p, &t, entry, err));
    return add_tensor(s, p, &t, err);
}

static int by_span(const void *a, const void *b) {
    const rp__safetensors_tensor *x = *(const rp__safetensors_tensor *const *)a;
    const rp__safetensors_tensor *y = *(const rp__safetensors_tensor *const *)b;
    if (x->data != y->data) return x->data < y->data ? -1 : 1;
    return x->bytes < y->bytes
               ? -1
               : x->bytes > y->bytes; /* an empty tensor stands before what begins there */
}

/* In order, every span begins where the last one ended, and the last ends with the file. */
static rp_status check_order(const part *p, const rp__safetensors_tensor **order, size_t n,
                             rp_error *err) {
    size_t end = 0;
    for (size_t i = 0; i < n; i++) {
        size_t begin = (size_t)((const unsigned char *)order[i]->data - p->data);
        if (begin < end)
            return fail_tensor(
                p, order[i]->name.p, RP_EFORMAT, err,
                "overlaps \"%.*s\": it begins at %zu, where the other has not ended (%zu)", SHOWN,
                order[i - 1]->name.p, begin, end);
        if (begin > end)
            return fail_tensor(p, order[i]->name.p, RP_EFORMAT, err,
                               "a hole of %zu bytes lies before it, at %zu", begin - end, end);
        end = begin + order[i]->bytes;
    }
    if (end != p->n_data)
        return rp__fail(
            err, RP_EFORMAT,
            "%s: the tensors end at %zu, the data at %zu: bytes that belong to no tensor",
            rp__path_tail(p->file->path), end, p->n_data);
    return RP_OK;
}

static rp_status check_spans(const rp__safetensors *s, const part *p, size_t first, rp_error *err) {
    size_t n = s->n_tensors - first;
    const rp__safetensors_tensor **order = rp__calloc(n, sizeof *order);
    if (!order) return fail_memory(p->file->path, err);
    for (size_t i = 0; i < n; i++) order[i] = &s->tensors[first + i];
    qsort(order, n, sizeof *order, by_span);
    rp_status status = check_order(p, order, n, err);
    rp__free(order);
    return status;
}

/* ---- one file ---- */

/* Finds the header's text and where the data begin. */
static rp_status split_header(part *p, rp__str *header, rp_error *err) {
    const rp__mapping *m = p->file;
    const char *path = rp__path_tail(m->path);
    uint64_t n;
    if (m->n < sizeof n)
        return rp__fail(
            err, RP_EFORMAT,
            "%s: offset 0: %zu bytes are no safetensors file: the header's length takes 8", path,
            m->n);
    memcpy(&n, m->p, sizeof n);
    if (n > LONGEST_HEADER)
        return rp__fail(err, RP_ELIMIT,
                        "%s: offset 0: a header of %" PRIu64 " bytes, at most %d are allowed", path,
                        n, LONGEST_HEADER);
    if (n > m->n - sizeof n)
        return rp__fail(err, RP_EFORMAT,
                        "%s: offset 0: a header of %" PRIu64 " bytes in a file of %zu", path, n,
                        m->n);
    if (n < 2) /* "{}" */
        return rp__fail(err, RP_EFORMAT, "%s: offset 0: a header of %" PRIu64 " bytes is too short",
                        path, n);
    *header = (rp__str){(const char *)m->p + sizeof n, (size_t)n};
    if (header->p[0] != '{')
        return rp__fail(err, RP_EFORMAT,
                        "%s: offset 8: the header begins with byte 0x%02x, not with \"{\"", path,
                        (unsigned char)header->p[0]);
    p->data = m->p + sizeof n + n;
    p->n_data = m->n - sizeof n - (size_t)n;
    return RP_OK;
}

static rp_status read_part(rp__safetensors *s, const rp__mapping *m, rp_error *err) {
    part p = {.file = m};
    rp__str header;
    json_t *root;
    RP_TRY(split_header(&p, &header, err));
    rp__json_source src = {
        .name = m->path, .offset = 8, .max_depth = HEADER_DEPTH, .unique_keys = true};
    RP_TRY(rp__json_parse(&src, header, &root, err));
    const char *name;
    json_t *entry;
    size_t first = s->n_tensors;
    rp_status status = RP_OK;
    json_object_foreach(root, name, entry) {
        status = read_entry(s, &p, name, entry, err);
        if (status < 0) break;
    }
    json_decref(root);
    return status < 0 ? status : check_spans(s, &p, first, err);
}

/* Takes the mapping, also when it fails. */
static rp_status add_part(rp__safetensors *s, rp__mapping *m, rp_error *err) {
    rp__mapping *parts = rp__realloc_array(s->parts, s->n_parts + 1, sizeof *parts);
    if (!parts) {
        rp_status status = fail_memory(m->path, err);
        rp__mapping_close(m);
        return status;
    }
    s->parts = parts;
    s->parts[s->n_parts++] = *m;
    return read_part(s, &s->parts[s->n_parts - 1], err);
}

static rp_status add_file(rp__safetensors *s, const char *path, rp_error *err) {
    rp__mapping m;
    RP_TRY(rp__mapping_open(&m, path, err));
    return add_part(s, &m, err);
}

/* ---- sharded sets ---- */

/* The name comes from a file: it must stay in the folder. */
static bool is_plain_name(const char *name) {
    return *name && !strchr(name, '/') && strcmp(name, ".") && strcmp(name, "..");
}

/* Opens `file` beside the index, unless it is open. */
static rp_status add_shard(rp__safetensors *s, const char *index, const char *file, rp__map *shards,
                           rp_error *err) {
    if (rp__map_get(shards, rp__str_of(file), NULL)) return RP_OK;
    if (!rp__map_put(shards, rp__str_of(file), s->n_parts)) return fail_memory(index, err);
    char *path = rp__path_beside(index, file);
    if (!path) return fail_memory(index, err);
    rp_status status = add_file(s, path, err);
    if (status == RP_ENOTFOUND)
        status = rp__fail(err, RP_ENOTFOUND, "%s is missing: %s names it in \"weight_map\"",
                          rp__path_tail(path), rp__path_tail(index));
    rp__free(path);
    return status;
}

static rp_status check_shard_name(const char *index, const char *tensor, const json_t *file,
                                  rp_error *err) {
    if (json_is_string(file) && is_plain_name(json_string_value(file))) return RP_OK;
    return rp__fail(err, RP_EFORMAT,
                    "%s: \"weight_map\".\"%.*s\" is not the name of a file in the same folder",
                    rp__path_tail(index), SHOWN, tensor);
}

static rp_status check_shard(const rp__safetensors *s, const char *index, const char *tensor,
                             const char *file, const rp__map *shards, rp_error *err) {
    uint64_t i = 0, at;
    rp__map_get(shards, rp__str_of(file), &i);
    const rp__mapping *m = &s->parts[i];
    if (rp__map_get(&s->by_name, rp__str_of(tensor), &at)) {
        const unsigned char *data = s->tensors[at].data;
        if (data >= m->p && data <= m->p + m->n) return RP_OK;
    }
    return rp__fail(err, RP_EFORMAT,
                    "%s: \"weight_map\" puts tensor \"%.*s\" into %.*s, it is not there",
                    rp__path_tail(index), SHOWN, tensor, SHOWN, file);
}

static rp_status add_shards(rp__safetensors *s, const char *index, const json_t *weights,
                            rp__map *shards, rp_error *err) {
    const char *tensor;
    json_t *file;
    json_object_foreach((json_t *)weights, tensor, file) {
        RP_TRY(check_shard_name(index, tensor, file, err));
        RP_TRY(add_shard(s, index, json_string_value(file), shards, err));
    }
    json_object_foreach((json_t *)weights, tensor, file) {
        RP_TRY(check_shard(s, index, tensor, json_string_value(file), shards, err));
    }
    return RP_OK;
}

static rp_status add_index(rp__safetensors *s, const char *index, rp_error *err) {
    json_t *root;
    RP_TRY(rp__json_read(index, LONGEST_INDEX, &root, err));
    const json_t *weights = json_object_get(root, "weight_map");
    rp__map shards = {0}; /* file name to index of its part */
    rp_status status;
    if (json_is_object(weights) && json_object_size(weights))
        status = add_shards(s, index, weights, &shards, err);
    else
        status = rp__fail(err, RP_EFORMAT, "%s: \"weight_map\" is missing or empty",
                          rp__path_tail(index));
    rp__map_clear(&shards);
    json_decref(root);
    return status;
}

/* ---- open ---- */

static bool is_index(const char *path) {
    static const char end[] = ".index.json";
    size_t n = strlen(path), n_end = sizeof end - 1;
    return n >= n_end && !strcmp(path + n - n_end, end);
}

/* Hands `s` over, or closes it. */
static rp_status finish_open(rp__safetensors *s, rp_status status, rp__safetensors **out) {
    *out = status < 0 ? NULL : s;
    if (status < 0) rp__safetensors_close(s);
    return status;
}

rp_status rp__safetensors_open(const char *path, rp__safetensors **out, rp_error *err) {
    *out = NULL;
    rp__safetensors *s = rp__calloc(1, sizeof *s);
    if (!s) return fail_memory(path, err);
    return finish_open(s, is_index(path) ? add_index(s, path, err) : add_file(s, path, err), out);
}

rp_status rp__safetensors_open_memory(const char *name, const void *p, size_t n,
                                      rp__safetensors **out, rp_error *err) {
    *out = NULL;
    rp__mapping m;
    rp__safetensors *s = rp__calloc(1, sizeof *s);
    if (!s) return fail_memory(name, err);
    rp_status status = rp__mapping_borrow(&m, name, p, n, err);
    if (status == RP_OK) status = add_part(s, &m, err);
    return finish_open(s, status, out);
}

void rp__safetensors_close(rp__safetensors *s) {
    if (!s) return;
    for (size_t i = 0; i < s->n_parts; i++) rp__mapping_close(&s->parts[i]);
    rp__free(s->parts);
    rp__free(s->tensors);
    rp__map_clear(&s->by_name);
    rp__arena_clear(&s->names);
    rp__free(s);
}

size_t rp__safetensors_n_tensors(const rp__safetensors *s) {
    return s->n_tensors;
}

const rp__safetensors_tensor *rp__safetensors_at(const rp__safetensors *s, size_t i) {
    return i < s->n_tensors ? &s->tensors[i] : NULL;
}

const rp__safetensors_tensor *rp__safetensors_find(const rp__safetensors *s, const char *name) {
    uint64_t i;
    return rp__map_get(&s->by_name, rp__str_of(name), &i) ? &s->tensors[i] : NULL;
}

void rp__safetensors_drop_pages(const rp__safetensors *s, const rp__safetensors_tensor *t) {
    rp__mapping_drop_at(s->parts, s->n_parts, t->data, t->bytes);
}
