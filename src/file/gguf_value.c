/* Typed access to GGUF values. Values are unaligned in the mapping; everything was bounds-checked
 * by the parser. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "file/gguf_impl.h"

static const struct {
    const char *name;
    size_t bytes;
} types[] = {
    [RP_GGUF_U8] = {"uint8", 1},    [RP_GGUF_I8] = {"int8", 1},    [RP_GGUF_U16] = {"uint16", 2},
    [RP_GGUF_I16] = {"int16", 2},   [RP_GGUF_U32] = {"uint32", 4}, [RP_GGUF_I32] = {"int32", 4},
    [RP_GGUF_F32] = {"float32", 4}, [RP_GGUF_BOOL] = {"bool", 1},  [RP_GGUF_STRING] = {"string", 0},
    [RP_GGUF_ARRAY] = {"array", 0}, [RP_GGUF_U64] = {"uint64", 8}, [RP_GGUF_I64] = {"int64", 8},
    [RP_GGUF_F64] = {"float64", 8},
};

const char *rp__gguf_type_name(rp__gguf_type t) {
    return (unsigned)t < sizeof types / sizeof *types ? types[t].name : "unknown";
}

size_t rp__gguf_type_bytes(rp__gguf_type t) {
    return types[t].bytes;
}

static uint64_t load_u64(const unsigned char *p, size_t bytes) {
    uint64_t v = 0;
    memcpy(&v, p, bytes); /* the host is little-endian: the rest stays zero */
    return v;
}

static double load_f32(const unsigned char *p) {
    float v;
    memcpy(&v, p, sizeof v);
    return (double)v;
}

static double load_f64(const unsigned char *p) {
    double v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* Item p of an integer type; false for other types and for what int64_t cannot hold. */
static bool load_int(rp__gguf_type t, const unsigned char *p, int64_t *out) {
    uint64_t u;
    switch (t) {
    case RP_GGUF_U8:
    case RP_GGUF_U16:
    case RP_GGUF_U32:
        *out = (int64_t)load_u64(p, types[t].bytes);
        return true;
    case RP_GGUF_I8:
        *out = (int8_t)*p;
        return true;
    case RP_GGUF_I16:
        *out = (int16_t)load_u64(p, 2);
        return true;
    case RP_GGUF_I32:
        *out = (int32_t)load_u64(p, 4);
        return true;
    case RP_GGUF_I64:
        *out = (int64_t)load_u64(p, 8);
        return true;
    case RP_GGUF_U64:
        u = load_u64(p, 8);
        *out = (int64_t)u;
        return u <= INT64_MAX;
    default:
        return false;
    }
}

bool rp__gguf_kv_int(const rp__gguf_kv *kv, int64_t *out) {
    return load_int(kv->type, kv->data, out);
}

double rp__gguf_item_number(const rp__gguf_kv *kv, uint64_t i) {
    rp__gguf_type t = kv->item_type;
    size_t bytes = rp__gguf_type_bytes(t);
    rp__assert(bytes && i < kv->n, "item %" PRIu64 " of %" PRIu64 " of type %s", i, kv->n,
               rp__gguf_type_name(t));
    const unsigned char *p = kv->data + (size_t)i * bytes;
    int64_t v;
    if (t == RP_GGUF_F32) return load_f32(p);
    if (t == RP_GGUF_F64) return load_f64(p);
    if (t == RP_GGUF_BOOL) return *p;
    if (t == RP_GGUF_U64) return (double)load_u64(p, 8);
    load_int(t, p, &v);
    return (double)v;
}

/* ---- by key ---- */

static rp_status find(const rp__gguf *g, const char *key, const rp__gguf_kv **out, rp_error *err) {
    *out = rp__gguf_find(g, key);
    if (*out) return RP_OK;
    return rp__fail(err, RP_ENOTFOUND, "%s: key \"%s\" is missing", rp__path_tail(rp__gguf_path(g)),
                    key);
}

static rp_status fail_type(const rp__gguf *g, const rp__gguf_kv *kv, const char *key,
                           const char *wanted, rp_error *err) {
    bool is_array = kv->type == RP_GGUF_ARRAY;
    return rp__fail(err, RP_EFORMAT, "%s: key \"%s\" is of type %s%s, %s is wanted",
                    rp__path_tail(rp__gguf_path(g)), key, is_array ? "array of " : "",
                    rp__gguf_type_name(kv->item_type), wanted);
}

rp_status rp__gguf_int(const rp__gguf *g, const char *key, int64_t *out, rp_error *err) {
    const rp__gguf_kv *kv;
    int64_t v;
    RP_TRY(find(g, key, &kv, err));
    if (!rp__gguf_kv_int(kv, &v)) {
        if (kv->type == RP_GGUF_U64)
            return rp__fail(err, RP_EFORMAT,
                            "%s: key \"%s\" is %" PRIu64 ", more than fits an integer here",
                            rp__path_tail(rp__gguf_path(g)), key, load_u64(kv->data, 8));
        return fail_type(g, kv, key, "an integer", err);
    }
    *out = v;
    return RP_OK;
}

rp_status rp__gguf_float(const rp__gguf *g, const char *key, double *out, rp_error *err) {
    const rp__gguf_kv *kv;
    RP_TRY(find(g, key, &kv, err));
    if (kv->type == RP_GGUF_BOOL || !rp__gguf_type_bytes(kv->type))
        return fail_type(g, kv, key, "a number", err);
    *out = rp__gguf_item_number(kv, 0);
    return RP_OK;
}

rp_status rp__gguf_bool(const rp__gguf *g, const char *key, bool *out, rp_error *err) {
    const rp__gguf_kv *kv;
    RP_TRY(find(g, key, &kv, err));
    if (kv->type != RP_GGUF_BOOL) return fail_type(g, kv, key, "bool", err);
    *out = *kv->data != 0;
    return RP_OK;
}

/* A string at p: its length, then its bytes. */
static rp__str load_str(const unsigned char *p) {
    return (rp__str){(const char *)p + 8, (size_t)load_u64(p, 8)};
}

rp_status rp__gguf_str(const rp__gguf *g, const char *key, rp__str *out, rp_error *err) {
    const rp__gguf_kv *kv;
    RP_TRY(find(g, key, &kv, err));
    if (kv->type != RP_GGUF_STRING) return fail_type(g, kv, key, "string", err);
    *out = load_str(kv->data);
    return RP_OK;
}

rp_status rp__gguf_array(const rp__gguf *g, const char *key, rp__gguf_type wanted,
                         const rp__gguf_kv **out, rp_error *err) {
    const rp__gguf_kv *kv;
    RP_TRY(find(g, key, &kv, err));
    bool fits = kv->item_type == wanted || (wanted == RP_GGUF_I32 && kv->item_type == RP_GGUF_U32);
    if (kv->type != RP_GGUF_ARRAY || !fits) {
        char text[32];
        snprintf(text, sizeof text, "array of %s", rp__gguf_type_name(wanted));
        return fail_type(g, kv, key, text, err);
    }
    *out = kv;
    return RP_OK;
}

rp_status rp__gguf_strings(const rp__gguf *g, const char *key, rp__str **out, size_t *n,
                           rp_error *err) {
    const rp__gguf_kv *kv;
    *out = NULL;
    *n = 0;
    RP_TRY(rp__gguf_array(g, key, RP_GGUF_STRING, &kv, err));
    /* Each string has eight bytes of length in the file, so this is at most twice the array's
     * bytes. */
    rp__str *s = rp__calloc((size_t)kv->n, sizeof *s);
    if (!s)
        return rp__fail(err, RP_ENOMEM, "%s: out of memory for the strings of key \"%s\"",
                        rp__path_tail(rp__gguf_path(g)), key);
    const unsigned char *p = kv->data;
    for (uint64_t i = 0; i < kv->n; i++) {
        s[i] = load_str(p);
        p += 8 + s[i].n;
    }
    *out = s;
    *n = (size_t)kv->n;
    return RP_OK;
}
