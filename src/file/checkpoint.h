/* A model on disk in either form: a GGUF file (or split), or a Hugging Face folder. One list of
 * named tensors, and the metadata of its own form. What the metadata means is the model families'
 * business. */
#ifndef RP_FILE_CHECKPOINT_H
#define RP_FILE_CHECKPOINT_H

#include <jansson.h>

#include "file/gguf.h"
#include "file/safetensors.h"

typedef struct rp__checkpoint_tensor {
    rp__str name;
    rp_dtype dtype;
    uint8_t n_dims;
    int64_t dim[RP_MAX_DIMS];
    const void *data; /* row-major, any alignment */
    size_t bytes;
} rp__checkpoint_tensor;

typedef struct rp__checkpoint {
    char *path;
    rp__gguf *gguf;               /* NULL for a folder */
    rp__safetensors *safetensors; /* NULL for GGUF */
    /* Folder only; NULL when the file is not there (config is always there). */
    json_t *config, *generation_config, *tokenizer_config;
    rp__bytes tokenizer_json; /* raw text of tokenizer.json; empty when not there */
    rp__bytes chat_template;  /* chat_template.jinja when there; else empty */
} rp__checkpoint;

/* `path`: a .gguf file, a folder with config.json, or a .safetensors file beside a config.json. */
rp_status rp__checkpoint_open(const char *path, rp__checkpoint **out, rp_error *err);
void rp__checkpoint_close(rp__checkpoint *c);

size_t rp__checkpoint_n_tensors(const rp__checkpoint *c);
bool rp__checkpoint_tensor_at(const rp__checkpoint *c, size_t i, rp__checkpoint_tensor *out);
bool rp__checkpoint_find(const rp__checkpoint *c, const char *name, rp__checkpoint_tensor *out);
void rp__checkpoint_drop_pages(const rp__checkpoint *c, const rp__checkpoint_tensor *t);

#endif
