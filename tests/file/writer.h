/* Makes GGUF and safetensors files in memory, right or with one defect, and saves them below a
 * temporary folder. For any test that needs a model file. Failing to allocate or write ends the
 * test run: there is nothing to test then.
 *
 * GGUF: begin, keys, tensors, end. Counts and offsets are right unless a test overwrites them:
 *
 *     rp_writer w = {0};
 *     rp_gguf_begin(&w, 3);
 *     rp_gguf_str(&w, "general.architecture", "llama");
 *     rp_gguf_tensor(&w, "a", RP_F32, 2, (int64_t[]){3, 4}, data, bytes);
 *     rp_gguf_end(&w);
 *     rp_writer_save(&w, path);
 *     rp_writer_clear(&w); */
#ifndef RP_TESTS_FILE_WRITER_H
#define RP_TESTS_FILE_WRITER_H

#include "base/bytes.h"
#include "file/gguf.h"
#include "reprise/tensor.h"

typedef struct rp_writer {
    rp__bytes out;  /* the file so far; whole after the end call */
    rp__bytes data; /* tensor data, appended by the end call */
    uint64_t n_kv, n_tensors;
    size_t alignment; /* 32 unless set before the first tensor */
    size_t infos_at;  /* where the first tensor info begins, once there is one */
    size_t info_at;   /* where the latest tensor info begins */
} rp_writer;

void rp_writer_clear(rp_writer *w);
void rp_writer_save(const rp_writer *w, const char *path);

/* Little-endian numbers; put appends, set overwrites. */
void rp_put_u32(rp__bytes *b, uint32_t v);
void rp_put_u64(rp__bytes *b, uint64_t v);
void rp_set_u32(rp__bytes *b, size_t at, uint32_t v);
void rp_set_u64(rp__bytes *b, size_t at, uint64_t v);

/* ---- GGUF ---- */

void rp_gguf_begin(rp_writer *w, uint32_t version);
void rp_gguf_u32(rp_writer *w, const char *key, uint32_t v);
void rp_gguf_f32(rp_writer *w, const char *key, float v);
void rp_gguf_bool(rp_writer *w, const char *key, bool v);
void rp_gguf_str(rp_writer *w, const char *key, const char *v);
/* n values of a type with a fixed size, as bytes; rp_gguf_scalar one, without the array's head. */
void rp_gguf_scalar(rp_writer *w, const char *key, rp__gguf_type type, const void *value,
                    size_t bytes);
void rp_gguf_array(rp_writer *w, const char *key, rp__gguf_type item, uint64_t n,
                   const void *values, size_t bytes);
void rp_gguf_strings(rp_writer *w, const char *key, size_t n, const char *const *values);
/* Dims in C order (the file gets them reversed). The data follow the previous tensor's, aligned. */
void rp_gguf_tensor(rp_writer *w, const char *name, rp_dtype dtype, int n_dims, const int64_t *dim,
                    const void *data, size_t bytes);
void rp_gguf_end(rp_writer *w);

/* Places inside the latest tensor info, for defects: its number of dimensions, dimension i (file
 * order), type, offset. */
size_t rp_gguf_at_n_dims(const rp_writer *w);
size_t rp_gguf_at_dim(const rp_writer *w, int i);
size_t rp_gguf_at_type(const rp_writer *w);
size_t rp_gguf_at_offset(const rp_writer *w);

/* ---- safetensors ---- */

/* A whole file: the header's length, the header, n_data bytes of data (0, 1, 2, ...). */
void rp_safetensors_make(rp_writer *w, const char *header, size_t n_data);

/* ---- temporary files ---- */

/* A new folder, and a path inside it; both in static buffers of the calling thread (two paths at a
 * time). The folder is removed with what is in it. */
const char *rp_temp_dir(void);
const char *rp_temp_path(const char *dir, const char *name);
void rp_temp_remove(const char *dir);
void rp_temp_write(const char *path, const void *p, size_t n);

#endif
