#define _GNU_SOURCE
#include "file/writer.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void must(bool ok, const char *what) {
    if (ok) return;
    fprintf(stderr, "tests/file/writer.c: cannot %s\n", what);
    abort();
}

static void put(rp__bytes *b, const void *p, size_t n) {
    must(rp__bytes_add(b, p, n), "allocate");
}

void rp_writer_clear(rp_writer *w) {
    rp__bytes_clear(&w->out);
    rp__bytes_clear(&w->data);
    *w = (rp_writer){0};
}

void rp_put_u32(rp__bytes *b, uint32_t v) {
    put(b, &v, sizeof v);
}
void rp_put_u64(rp__bytes *b, uint64_t v) {
    put(b, &v, sizeof v);
}

static void set(rp__bytes *b, size_t at, const void *p, size_t n) {
    must(at + n <= b->n, "overwrite past the end");
    memcpy(b->p + at, p, n);
}

void rp_set_u32(rp__bytes *b, size_t at, uint32_t v) {
    set(b, at, &v, sizeof v);
}
void rp_set_u64(rp__bytes *b, size_t at, uint64_t v) {
    set(b, at, &v, sizeof v);
}

/* ---- GGUF ---- */

void rp_gguf_begin(rp_writer *w, uint32_t version) {
    w->alignment = 32;
    put(&w->out, "GGUF", 4);
    rp_put_u32(&w->out, version);
    rp_put_u64(&w->out, 0); /* tensors and keys: counted at the end */
    rp_put_u64(&w->out, 0);
}

static void put_str(rp__bytes *b, const char *s) {
    rp_put_u64(b, strlen(s));
    put(b, s, strlen(s));
}

static void put_key(rp_writer *w, const char *key, rp__gguf_type type) {
    w->n_kv++;
    put_str(&w->out, key);
    rp_put_u32(&w->out, type);
}

void rp_gguf_scalar(rp_writer *w, const char *key, rp__gguf_type type, const void *value,
                    size_t bytes) {
    put_key(w, key, type);
    put(&w->out, value, bytes);
}

void rp_gguf_u32(rp_writer *w, const char *key, uint32_t v) {
    rp_gguf_scalar(w, key, RP_GGUF_U32, &v, sizeof v);
}

void rp_gguf_f32(rp_writer *w, const char *key, float v) {
    rp_gguf_scalar(w, key, RP_GGUF_F32, &v, sizeof v);
}

void rp_gguf_bool(rp_writer *w, const char *key, bool v) {
    rp_gguf_scalar(w, key, RP_GGUF_BOOL, &(char){v}, 1);
}

void rp_gguf_str(rp_writer *w, const char *key, const char *v) {
    put_key(w, key, RP_GGUF_STRING);
    put_str(&w->out, v);
}

void rp_gguf_array(rp_writer *w, const char *key, rp__gguf_type item, uint64_t n,
                   const void *values, size_t bytes) {
    put_key(w, key, RP_GGUF_ARRAY);
    rp_put_u32(&w->out, item);
    rp_put_u64(&w->out, n);
    put(&w->out, values, bytes);
}

void rp_gguf_strings(rp_writer *w, const char *key, size_t n, const char *const *values) {
    rp_gguf_array(w, key, RP_GGUF_STRING, n, "", 0);
    for (size_t i = 0; i < n; i++) put_str(&w->out, values[i]);
}

static void pad(rp__bytes *b, size_t alignment) {
    while (b->n % alignment) must(rp__bytes_add_char(b, 0), "allocate");
}

/* GGUF's number of a dtype, from the public table: the module under test is not asked. */
static uint32_t gguf_number(rp_dtype dtype) {
    static const int numbers[] = {
#define RP_X(code, name, elems, bytes, gguf) gguf,
        RP_DTYPE_TABLE(RP_X)
#undef RP_X
    };
    return (uint32_t)numbers[dtype];
}

void rp_gguf_tensor(rp_writer *w, const char *name, rp_dtype dtype, int n_dims, const int64_t *dim,
                    const void *data, size_t bytes) {
    if (!w->n_tensors++) w->infos_at = w->out.n;
    w->info_at = w->out.n;
    pad(&w->data, w->alignment);
    put_str(&w->out, name);
    rp_put_u32(&w->out, (uint32_t)n_dims);
    for (int i = n_dims; i-- > 0;) rp_put_u64(&w->out, (uint64_t)dim[i]);
    rp_put_u32(&w->out, gguf_number(dtype));
    rp_put_u64(&w->out, w->data.n);
    put(&w->data, data, bytes);
}

void rp_gguf_end(rp_writer *w) {
    rp_set_u64(&w->out, 8, w->n_tensors);
    rp_set_u64(&w->out, 16, w->n_kv);
    pad(&w->out, w->alignment);
    put(&w->out, w->data.p, w->data.n);
}

size_t rp_gguf_at_n_dims(const rp_writer *w) {
    uint64_t n_name;
    memcpy(&n_name, w->out.p + w->info_at, sizeof n_name);
    return w->info_at + 8 + (size_t)n_name;
}

size_t rp_gguf_at_dim(const rp_writer *w, int i) {
    return rp_gguf_at_n_dims(w) + 4 + 8 * (size_t)i;
}

size_t rp_gguf_at_type(const rp_writer *w) {
    uint32_t n_dims;
    memcpy(&n_dims, w->out.p + rp_gguf_at_n_dims(w), sizeof n_dims);
    return rp_gguf_at_dim(w, (int)n_dims);
}

size_t rp_gguf_at_offset(const rp_writer *w) {
    return rp_gguf_at_type(w) + 4;
}

/* ---- safetensors ---- */

void rp_safetensors_make(rp_writer *w, const char *header, size_t n_data) {
    put_str(&w->out, header); /* a length and the bytes: the same form */
    for (size_t i = 0; i < n_data; i++) must(rp__bytes_add_char(&w->out, (char)i), "allocate");
}

/* ---- temporary files ---- */

const char *rp_temp_dir(void) {
    static _Thread_local char dir[128];
    const char *base = getenv("TMPDIR");
    snprintf(dir, sizeof dir, "%s/reprise-test-XXXXXX", base && strlen(base) < 90 ? base : "/tmp");
    must(mkdtemp(dir), "make a temporary folder");
    return dir;
}

const char *rp_temp_path(const char *dir, const char *name) {
    static _Thread_local char paths[2][512];
    static _Thread_local int turn;
    char *path = paths[turn ^= 1];
    snprintf(path, sizeof paths[0], "%s/%s", dir, name);
    return path;
}

void rp_temp_remove(const char *dir) {
    DIR *d = opendir(dir);
    must(d, "open a temporary folder");
    for (struct dirent *e; (e = readdir(d));)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..")) unlink(rp_temp_path(dir, e->d_name));
    closedir(d);
    rmdir(dir);
}

void rp_temp_write(const char *path, const void *p, size_t n) {
    FILE *f = fopen(path, "wb");
    must(f && fwrite(p, 1, n, f) == n && !fclose(f), "write a temporary file");
}

void rp_writer_save(const rp_writer *w, const char *path) {
    rp_temp_write(path, w->out.p, w->out.n);
}
