/* From bytes to the tables of one GGUF file.
 *
 * Owns: every check of what the file says against the bytes that are there. Strings and values stay
 * in the mapping; the tables grow with what was really parsed, never by a count that the file
 * claims. Layout: "GGUF", version u32, n_tensors u64, n_kv u64; the key-values; the tensor infos;
 * padding to the alignment; the data, to which the tensors' offsets are relative. All
 * little-endian. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/utf8.h"
#include "file/gguf_impl.h"
#include "tensor/dtype.h"

enum {
    DEFAULT_ALIGNMENT = 32,
    LONGEST_KEY = 65535, /* both from the format's description */
    LONGEST_TENSOR_NAME = 64,
    SHOWN = 80,        /* bytes of a name that a sentence shows */
    LEAST_KV = 14,     /* key length, a key of one byte, type, value of one byte */
    LEAST_TENSOR = 33, /* name length, a name of one byte, n_dims, one dim, type, offset */
};

/* A place in the mapped bytes. Every take checks what is left. */
typedef struct cursor {
    const rp__mapping *file;
    size_t at;
} cursor;

#define RP_AT(c) rp__path_tail((c)->file->path), (c)->at

static int shown(rp__str s) {
    return s.n < SHOWN ? (int)s.n : SHOWN;
}
static size_t left(const cursor *c) {
    return c->file->n - c->at;
}

static rp_status fail_cut(const cursor *c, const char *what, uint64_t need, rp_error *err) {
    return rp__fail(err, RP_EFORMAT,
                    "%s: offset %zu: the file ends inside %s: %" PRIu64 " bytes needed, %zu left",
                    RP_AT(c), what, need, left(c));
}

static rp_status take(cursor *c, void *out, size_t n, const char *what, rp_error *err) {
    if (n > left(c)) return fail_cut(c, what, n, err);
    memcpy(out, c->file->p + c->at, n);
    c->at += n;
    return RP_OK;
}

static rp_status take_u32(cursor *c, uint32_t *out, const char *what, rp_error *err) {
    return take(c, out, sizeof *out, what, err);
}

static rp_status take_u64(cursor *c, uint64_t *out, const char *what, rp_error *err) {
    return take(c, out, sizeof *out, what, err);
}

/* A length and that many bytes. */
static rp_status take_str(cursor *c, rp__str *out, const char *what, rp_error *err) {
    uint64_t n = 0;
    RP_TRY(take_u64(c, &n, what, err));
    if (n > left(c)) return fail_cut(c, what, n, err);
    *out = (rp__str){(const char *)c->file->p + c->at, (size_t)n};
    c->at += (size_t)n;
    return RP_OK;
}

/* A string that names something: not empty, not too long, readable. */
static rp_status take_name(cursor *c, rp__str *out, size_t longest, const char *what,
                           rp_error *err) {
    cursor start = *c;
    RP_TRY(take_str(c, out, what, err));
    if (!out->n)
        return rp__fail(err, RP_EFORMAT, "%s: offset %zu: %s is empty", RP_AT(&start), what);
    if (out->n > longest)
        return rp__fail(err, RP_EFORMAT,
                        "%s: offset %zu: %s has %zu bytes, at most %zu are allowed", RP_AT(&start),
                        what, out->n, longest);
    if (!rp__utf8_valid(out->p, out->n) || memchr(out->p, 0, out->n))
        return rp__fail(err, RP_EFORMAT, "%s: offset %zu: %s is not readable text", RP_AT(&start),
                        what);
    return RP_OK;
}

/* Makes room for one more item; the table doubles. */
static bool grow(void **items, size_t n, size_t *cap, size_t item_bytes) {
    if (n < *cap) return true;
    size_t want = *cap ? *cap * 2 : 16;
    void *p = rp__realloc_array(*items, want, item_bytes);
    if (!p) return false;
    *items = p;
    *cap = want;
    return true;
}

static rp_status fail_memory(const cursor *c, rp_error *err) {
    return rp__fail(err, RP_ENOMEM, "%s: out of memory at offset %zu", RP_AT(c));
}

/* ---- header ---- */

static rp_status take_version(cursor *c, rp_error *err) {
    uint32_t version;
    RP_TRY(take_u32(c, &version, "the version", err));
    const char *path = rp__path_tail(c->file->path);
    if (version == 2 || version == 3) return RP_OK;
    if (version == 1)
        return rp__fail(
            err, RP_EUNSUPPORTED,
            "%s: offset 4: GGUF version 1 is not supported (2 and 3 are); convert the model again",
            path);
    if ((version & 0xFFFF) == 0 && version)
        return rp__fail(err, RP_EUNSUPPORTED, "%s: offset 4: big-endian GGUF is not supported",
                        path);
    return rp__fail(err, RP_EUNSUPPORTED,
                    "%s: offset 4: GGUF version %" PRIu32 " is not supported (2 and 3 are)", path,
                    version);
}

static rp_status take_header(cursor *c, uint64_t *n_tensors, uint64_t *n_kv, rp_error *err) {
    char magic[4];
    RP_TRY(take(c, magic, sizeof magic, "the magic", err));
    if (memcmp(magic, "GGUF", 4))
        return rp__fail(
            err, RP_EFORMAT,
            "%s: offset 0: not a GGUF file: it begins with %02x %02x %02x %02x, not with \"GGUF\"",
            rp__path_tail(c->file->path), (unsigned char)magic[0], (unsigned char)magic[1],
            (unsigned char)magic[2], (unsigned char)magic[3]);
    RP_TRY(take_version(c, err));
    RP_TRY(take_u64(c, n_tensors, "the number of tensors", err));
    RP_TRY(take_u64(c, n_kv, "the number of keys", err));
    if (*n_tensors > left(c) / LEAST_TENSOR)
        return rp__fail(err, RP_EFORMAT,
                        "%s: offset 8: %" PRIu64
                        " tensors cannot be described in the %zu bytes left",
                        rp__path_tail(c->file->path), *n_tensors, left(c));
    if (*n_kv > left(c) / LEAST_KV)
        return rp__fail(err, RP_EFORMAT,
                        "%s: offset 16: %" PRIu64 " keys cannot stand in the %zu bytes left",
                        rp__path_tail(c->file->path), *n_kv, left(c));
    return RP_OK;
}

/* ---- key-values ---- */

static rp_status fail_kv(const cursor *c, const rp__gguf_kv *kv, rp_status code, const char *what,
                         uint64_t value, rp_error *err) {
    return rp__fail(err, code, "%s: offset %zu: key \"%.*s\": %s %" PRIu64, RP_AT(c),
                    shown(kv->key), kv->key.p, what, value);
}

static rp_status take_strings(cursor *c, const rp__gguf_kv *kv, rp_error *err) {
    if (kv->n > left(c) / 8) /* each has a length of eight bytes */
        return fail_kv(c, kv, RP_EFORMAT,
                       "the file is too short for an array of this many strings:", kv->n, err);
    for (uint64_t i = 0; i < kv->n; i++) {
        rp__str s;
        RP_TRY(take_str(c, &s, "a string of an array", err));
    }
    return RP_OK;
}

static rp_status check_bools(const cursor *c, const rp__gguf_kv *kv, rp_error *err) {
    for (uint64_t i = 0; i < kv->n; i++)
        if (kv->data[i] > 1)
            return fail_kv(c, kv, RP_EFORMAT, "a bool must be 0 or 1, found", kv->data[i], err);
    return RP_OK;
}

/* n values of one type, from where the cursor stands. */
static rp_status take_values(cursor *c, rp__gguf_kv *kv, rp__gguf_type type, rp_error *err) {
    size_t start = c->at, item = rp__gguf_type_bytes(type), bytes;
    kv->data = c->file->p + c->at;
    if (type == RP_GGUF_STRING) {
        RP_TRY(take_strings(c, kv, err));
    } else {
        if (kv->n > SIZE_MAX || !rp__mul_ok((size_t)kv->n, item, &bytes) || bytes > left(c))
            return fail_kv(c, kv, RP_EFORMAT,
                           "the file is too short for an array of this many values:", kv->n, err);
        if (type == RP_GGUF_BOOL) RP_TRY(check_bools(c, kv, err));
        c->at += bytes;
    }
    kv->bytes = c->at - start;
    return RP_OK;
}

static rp_status take_type(cursor *c, const rp__gguf_kv *kv, rp__gguf_type *out, rp_error *err) {
    cursor start = *c;
    uint32_t type = 0;
    RP_TRY(take_u32(c, &type, "the type of a value", err));
    if (type > RP_GGUF_F64)
        return fail_kv(&start, kv, RP_EFORMAT, "no value has the type number", type, err);
    *out = (rp__gguf_type)type;
    return RP_OK;
}

static rp_status take_kv(cursor *c, rp__gguf_kv *kv, rp_error *err) {
    *kv = (rp__gguf_kv){.n = 1};
    RP_TRY(take_name(c, &kv->key, LONGEST_KEY, "a key", err));
    RP_TRY(take_type(c, kv, &kv->type, err));
    kv->item_type = kv->type;
    if (kv->type == RP_GGUF_ARRAY) {
        RP_TRY(take_type(c, kv, &kv->item_type, err));
        RP_TRY(take_u64(c, &kv->n, "the length of an array", err));
        if (kv->item_type == RP_GGUF_ARRAY)
            return rp__fail(err, RP_EUNSUPPORTED,
                            "%s: offset %zu: key \"%.*s\": arrays of arrays are not supported",
                            RP_AT(c), shown(kv->key), kv->key.p);
    }
    return take_values(c, kv, kv->item_type, err);
}

static rp_status take_kvs(cursor *c, uint64_t n, rp__gguf_kvs *kvs, rp_error *err) {
    for (uint64_t i = 0; i < n; i++) {
        cursor start = *c;
        rp__gguf_kv kv;
        RP_TRY(take_kv(c, &kv, err));
        if (rp__map_get(&kvs->by_key, kv.key, NULL))
            return rp__fail(err, RP_EFORMAT, "%s: offset %zu: key \"%.*s\" is there twice",
                            RP_AT(&start), shown(kv.key), kv.key.p);
        if (!grow((void **)&kvs->at, kvs->n, &kvs->cap, sizeof kv)) return fail_memory(c, err);
        if (!rp__map_put(&kvs->by_key, kv.key, kvs->n)) return fail_memory(c, err);
        kvs->at[kvs->n++] = kv;
    }
    return RP_OK;
}

static rp_status find_alignment(const cursor *c, const rp__gguf_kvs *kvs, size_t *out,
                                rp_error *err) {
    const rp__gguf_kv *kv = rp__gguf_kvs_find(kvs, "general.alignment");
    *out = DEFAULT_ALIGNMENT;
    if (!kv) return RP_OK;
    const char *path = rp__path_tail(c->file->path);
    if (kv->type != RP_GGUF_U32)
        return rp__fail(err, RP_EFORMAT,
                        "%s: key \"general.alignment\" is of type %s, uint32 is wanted", path,
                        rp__gguf_type_name(kv->type));
    uint32_t v;
    memcpy(&v, kv->data, sizeof v);
    if (!v || (v & (v - 1)))
        return rp__fail(err, RP_EFORMAT,
                        "%s: key \"general.alignment\" is %" PRIu32 ", not a power of two", path,
                        v);
    *out = v;
    return RP_OK;
}

/* ---- tensors ---- */

/* What a tensor info says before it is known where the data begin. */
typedef struct info {
    rp__gguf_tensor t;
    size_t at;       /* of the info in the file, for messages */
    uint64_t offset; /* relative to the data */
} info;

static rp_status fail_info(const cursor *c, const info *in, rp_status code, const char *what,
                           uint64_t value, rp_error *err) {
    return rp__fail(err, code, "%s: offset %zu: tensor \"%.*s\": %s %" PRIu64,
                    rp__path_tail(c->file->path), in->at, shown(in->t.name), in->t.name.p, what,
                    value);
}

/* The file has the innermost dimension first. */
static rp_status take_dims(cursor *c, info *in, rp_error *err) {
    uint32_t n;
    RP_TRY(take_u32(c, &n, "a number of dimensions", err));
    if (n < 1 || n > RP_MAX_DIMS)
        return fail_info(c, in, RP_EFORMAT, "1 to 4 dimensions are wanted, found", n, err);
    in->t.n_dims = (uint8_t)n;
    int64_t elems = 1;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t d;
        RP_TRY(take_u64(c, &d, "a dimension", err));
        if (!d) return fail_info(c, in, RP_EFORMAT, "it is empty: 0 stands in dimension", i, err);
        if (d > INT64_MAX || __builtin_mul_overflow(elems, (int64_t)d, &elems))
            return fail_info(c, in, RP_EFORMAT,
                             "the number of elements overflows at a dimension of", d, err);
        in->t.dim[n - 1 - i] = (int64_t)d;
    }
    return RP_OK;
}

static rp_status take_dtype(cursor *c, info *in, rp_error *err) {
    uint32_t type = 0;
    const char *known;
    RP_TRY(take_u32(c, &type, "the type of a tensor", err));
    if (rp__dtype_from_gguf(type, &in->t.dtype, &known)) return RP_OK;
    if (!known) return fail_info(c, in, RP_EFORMAT, "no format has the type number", type, err);
    return rp__fail(err, RP_EUNSUPPORTED,
                    "%s: offset %zu: tensor \"%.*s\": %s is not supported yet",
                    rp__path_tail(c->file->path), in->at, shown(in->t.name), in->t.name.p, known);
}

/* Rows must fill whole blocks, and the bytes must be countable. */
static rp_status count_bytes(const cursor *c, info *in, rp_error *err) {
    int64_t last = in->t.dim[in->t.n_dims - 1], elems = 1,
            block = rp__dtype_block_elems(in->t.dtype);
    for (int i = 0; i < in->t.n_dims; i++) elems *= in->t.dim[i]; /* checked by take_dims */
    if (last % block)
        return rp__fail(err, RP_EFORMAT,
                        "%s: offset %zu: tensor \"%.*s\": a row of %" PRId64
                        " elements does not fill whole blocks of "
                        "%" PRId64 " (%s)",
                        rp__path_tail(c->file->path), in->at, shown(in->t.name), in->t.name.p, last,
                        block, rp__dtype_name(in->t.dtype));
    if (!rp__dtype_bytes(in->t.dtype, elems, &in->t.bytes))
        return fail_info(c, in, RP_EFORMAT, "the number of bytes overflows: elements",
                         (uint64_t)elems, err);
    return RP_OK;
}

static rp_status take_info(cursor *c, info *in, rp_error *err) {
    *in = (info){.at = c->at};
    RP_TRY(take_name(c, &in->t.name, LONGEST_TENSOR_NAME, "a tensor's name", err));
    RP_TRY(take_dims(c, in, err));
    RP_TRY(take_dtype(c, in, err));
    RP_TRY(take_u64(c, &in->offset, "the offset of a tensor", err));
    return count_bytes(c, in, err);
}

/* Turns an info's offset into an address; everything is compared in ways that cannot wrap. */
static rp_status place(const cursor *c, info *in, size_t data_at, size_t alignment, rp_error *err) {
    if (in->offset % alignment)
        return rp__fail(err, RP_EFORMAT,
                        "%s: offset %zu: tensor \"%.*s\": its offset %" PRIu64
                        " is not a multiple of the alignment %zu",
                        rp__path_tail(c->file->path), in->at, shown(in->t.name), in->t.name.p,
                        in->offset, alignment);
    size_t room = c->file->n > data_at ? c->file->n - data_at : 0;
    if (in->offset > room || in->t.bytes > room - (size_t)in->offset)
        return rp__fail(err, RP_EFORMAT,
                        "%s: offset %zu: tensor \"%.*s\" lies outside the file: offset %" PRIu64
                        " and %zu bytes, but the "
                        "data are %zu bytes of a file of %zu",
                        rp__path_tail(c->file->path), in->at, shown(in->t.name), in->t.name.p,
                        in->offset, in->t.bytes, room, c->file->n);
    in->t.data = c->file->p + data_at + (size_t)in->offset;
    return RP_OK;
}

static rp_status add_tensor(const cursor *c, rp__gguf *g, const info *in, rp_error *err) {
    uint64_t twin;
    if (rp__map_get(&g->by_name, in->t.name, &twin)) {
        const rp__gguf_tensor *other = &g->tensors[twin];
        return rp__fail(err, RP_EFORMAT,
                        "%s: offset %zu: tensor \"%.*s\" is there twice (first in %s)",
                        rp__path_tail(c->file->path), in->at, shown(in->t.name), in->t.name.p,
                        rp__path_tail(g->parts[other->part].path));
    }
    if (!grow((void **)&g->tensors, g->n_tensors, &g->tensors_cap, sizeof in->t))
        return fail_memory(c, err);
    if (!rp__map_put(&g->by_name, in->t.name, g->n_tensors)) return fail_memory(c, err);
    g->tensors[g->n_tensors++] = in->t;
    return RP_OK;
}

static int by_address(const void *a, const void *b) {
    const rp__gguf_tensor *x = *(const rp__gguf_tensor *const *)a,
                          *y = *(const rp__gguf_tensor *const *)b;
    return x->data < y->data ? -1 : x->data > y->data;
}

/* No two tensors may share bytes. Writers put tensors in order, so that sorting finds them sorted.
 */
static rp_status check_overlap(const cursor *c, const rp__gguf *g, size_t first, size_t data_at,
                               rp_error *err) {
    size_t n = g->n_tensors - first;
    if (n < 2) return RP_OK;
    const rp__gguf_tensor **order =
        rp__alloc(n * sizeof *order); /* n items of more bytes are in memory already */
    if (!order) return fail_memory(c, err);
    for (size_t i = 0; i < n; i++) order[i] = &g->tensors[first + i];
    qsort(order, n, sizeof *order, by_address);
    rp_status status = RP_OK;
    for (size_t i = 1; i < n && status == RP_OK; i++) {
        const rp__gguf_tensor *a = order[i - 1], *b = order[i];
        const unsigned char *data = c->file->p + data_at;
        size_t a_at = (size_t)((const unsigned char *)a->data - data);
        size_t b_at = (size_t)((const unsigned char *)b->data - data);
        if (a_at + a->bytes > b_at)
            status = rp__fail(
                err, RP_EFORMAT,
                "%s: tensors \"%.*s\" (offset %zu, %zu bytes) and \"%.*s\" (offset %zu) overlap",
                rp__path_tail(c->file->path), shown(a->name), a->name.p, a_at, a->bytes,
                shown(b->name), b->name.p, b_at);
    }
    rp__free(order);
    return status;
}

/* Where the data begin is known only behind the last info: a first walk finds it, a second fills
 * the table. Both take the same bytes, so the second cannot fail where the first did not. */
static rp_status take_tensors(cursor *c, uint64_t n, size_t alignment, uint32_t part, rp__gguf *g,
                              rp_error *err) {
    cursor walk = *c;
    info in;
    for (uint64_t i = 0; i < n; i++) RP_TRY(take_info(&walk, &in, err));
    size_t data_at;
    if (!rp__add_ok(walk.at, alignment - 1, &data_at))
        return rp__fail(err, RP_EFORMAT, "%s: offset %zu: the alignment %zu wraps", RP_AT(&walk),
                        alignment);
    data_at &= ~(alignment - 1);
    size_t first = g->n_tensors;
    for (uint64_t i = 0; i < n; i++) {
        RP_TRY(take_info(c, &in, err));
        RP_TRY(place(c, &in, data_at, alignment, err));
        in.t.part = part;
        RP_TRY(add_tensor(c, g, &in, err));
    }
    return check_overlap(c, g, first, data_at, err);
}

rp_status rp__gguf_parse(rp__gguf *g, uint32_t part, rp__gguf_kvs *kvs, rp_error *err) {
    cursor c = {.file = &g->parts[part]};
    uint64_t n_tensors, n_kv;
    size_t alignment;
    RP_TRY(take_header(&c, &n_tensors, &n_kv, err));
    RP_TRY(take_kvs(&c, n_kv, kvs, err));
    RP_TRY(find_alignment(&c, kvs, &alignment, err));
    return take_tensors(&c, n_tensors, alignment, part, g, err);
}
