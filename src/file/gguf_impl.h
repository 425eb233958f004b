/* What the files of the gguf module share. */
#ifndef RP_FILE_GGUF_IMPL_H
#define RP_FILE_GGUF_IMPL_H

#include "base/map.h"
#include "file/gguf.h"
#include "file/mapping.h"

typedef struct rp__gguf_kvs {
    rp__gguf_kv *at;
    size_t n, cap;
    rp__map by_key; /* index into `at` */
} rp__gguf_kvs;

struct rp__gguf {
    rp__mapping *parts; /* in order of split.no */
    uint32_t n_parts;
    rp__gguf_kvs kvs; /* of the first part; the others have only their place in the split */
    rp__gguf_tensor *tensors;
    size_t n_tensors, tensors_cap;
    rp__map by_name; /* index into `tensors` */
};

/* As rp__gguf_open on a file with these bytes (borrowed until close). A part of a split is refused.
 */
rp_status rp__gguf_open_memory(const char *name, const void *p, size_t n, rp__gguf **out,
                               rp_error *err);

/* Parses the mapping `part` of `g`: its key-values into `kvs`, its tensors onto g->tensors. */
rp_status rp__gguf_parse(rp__gguf *g, uint32_t part, rp__gguf_kvs *kvs, rp_error *err);

const rp__gguf_kv *rp__gguf_kvs_find(const rp__gguf_kvs *kvs, const char *key);
void rp__gguf_kvs_clear(rp__gguf_kvs *kvs);

size_t rp__gguf_type_bytes(rp__gguf_type t); /* 0: of no fixed size (string, array) */
bool rp__gguf_kv_int(const rp__gguf_kv *kv,
                     int64_t *out); /* false: no integer, or it does not fit */

#endif
