/* safetensors files (one, or sharded with model.safetensors.index.json) as checked tables of views.
 * Untrusted input, as in gguf.h. Read-only after open: may be shared by threads. */
#ifndef RP_FILE_SAFETENSORS_H
#define RP_FILE_SAFETENSORS_H

#include "base/bytes.h"
#include "reprise/tensor.h"

typedef struct rp__safetensors rp__safetensors;

typedef struct rp__safetensors_tensor {
    rp__str name;
    rp_dtype dtype; /* F64, F32, F16, BF16, I64, I32, I16, I8, U8 (BOOL as U8); others are refused
                       by name */
    uint8_t n_dims; /* 0 for a scalar */
    int64_t dim[RP_MAX_DIMS];
    const void *data;
    size_t bytes;
} rp__safetensors_tensor;

/* `path`: one .safetensors file, or the .index.json of a sharded set. */
rp_status rp__safetensors_open(const char *path, rp__safetensors **out, rp_error *err);
void rp__safetensors_close(rp__safetensors *s);

size_t rp__safetensors_n_tensors(const rp__safetensors *s);
const rp__safetensors_tensor *rp__safetensors_at(const rp__safetensors *s, size_t i);
const rp__safetensors_tensor *rp__safetensors_find(const rp__safetensors *s, const char *name);
void rp__safetensors_drop_pages(const rp__safetensors *s, const rp__safetensors_tensor *t);

#endif
