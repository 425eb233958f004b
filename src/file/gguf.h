/* GGUF v2 and v3, single or split, as checked tables of views into mapped files.
 *
 * Owns: the mapping and the tables. Untrusted input: every count, length and offset is checked
 * against the bytes that are really there before anything is allocated or read. Refusals name file,
 * offset, key or tensor. Read-only after open: may be shared by threads. */
#ifndef RP_FILE_GGUF_H
#define RP_FILE_GGUF_H

#include "base/bytes.h"
#include "reprise/tensor.h"

typedef struct rp__gguf rp__gguf;

/* The numbers are the format's own. */
typedef enum rp__gguf_type {
    RP_GGUF_U8,
    RP_GGUF_I8,
    RP_GGUF_U16,
    RP_GGUF_I16,
    RP_GGUF_U32,
    RP_GGUF_I32,
    RP_GGUF_F32,
    RP_GGUF_BOOL,
    RP_GGUF_STRING,
    RP_GGUF_ARRAY,
    RP_GGUF_U64,
    RP_GGUF_I64,
    RP_GGUF_F64
} rp__gguf_type;

typedef struct rp__gguf_kv {
    rp__str key;
    rp__gguf_type type, item_type; /* item_type: of an array */
    uint64_t n;                    /* array items; 1 otherwise */
    const unsigned char *data;     /* first value, as in the file (little-endian, unaligned) */
    size_t bytes;                  /* of all values */
} rp__gguf_kv;

typedef struct rp__gguf_tensor {
    rp__str name;
    rp_dtype dtype;
    uint8_t n_dims;
    int64_t dim[RP_MAX_DIMS]; /* C order (the file's order reversed): dim[n_dims-1] is contiguous */
    const void *data;
    size_t bytes;
    uint32_t part; /* which file of a split */
} rp__gguf_tensor;

/* `path`: a file, or any part of a split ("name-00001-of-00003.gguf"; the others are found beside
 * it). */
rp_status rp__gguf_open(const char *path, rp__gguf **out, rp_error *err);
void rp__gguf_close(rp__gguf *g); /* NULL is fine */

size_t rp__gguf_n_kv(const rp__gguf *g);
const rp__gguf_kv *rp__gguf_kv_at(const rp__gguf *g, size_t i);
const rp__gguf_kv *rp__gguf_find(const rp__gguf *g, const char *key); /* NULL when absent */
size_t rp__gguf_n_tensors(const rp__gguf *g);
const rp__gguf_tensor *rp__gguf_tensor_at(const rp__gguf *g, size_t i);
const rp__gguf_tensor *rp__gguf_tensor_find(const rp__gguf *g, const char *name);
const char *rp__gguf_path(const rp__gguf *g);
/* The tensor's file pages are not needed for now. */
void rp__gguf_drop_pages(const rp__gguf *g, const rp__gguf_tensor *t);

/* Typed values. RP_ENOTFOUND when the key is absent, RP_EFORMAT (key, type found and wanted) when
 * it is of another type. Any integer type is taken for an int when the value fits; any float or
 * integer for a float. */
rp_status rp__gguf_int(const rp__gguf *g, const char *key, int64_t *out, rp_error *err);
rp_status rp__gguf_float(const rp__gguf *g, const char *key, double *out, rp_error *err);
rp_status rp__gguf_bool(const rp__gguf *g, const char *key, bool *out, rp_error *err);
rp_status rp__gguf_str(const rp__gguf *g, const char *key, rp__str *out, rp_error *err);

/* Arrays, checked for item type (`wanted`; for RP_GGUF_I32 also U32 is taken). */
rp_status rp__gguf_array(const rp__gguf *g, const char *key, rp__gguf_type wanted,
                         const rp__gguf_kv **out, rp_error *err);
/* All strings of a string array as views, *out from rp__alloc (caller frees with rp__free). */
rp_status rp__gguf_strings(const rp__gguf *g, const char *key, rp__str **out, size_t *n,
                           rp_error *err);
/* Item i < kv->n of a numeric array or scalar. */
double rp__gguf_item_number(const rp__gguf_kv *kv, uint64_t i);

const char *rp__gguf_type_name(rp__gguf_type t); /* "uint32" */

#endif
