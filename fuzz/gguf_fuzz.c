/* Fuzzes the GGUF reader: whatever the bytes, it opens or refuses; and what it opened can be read
 * whole.
 *
 *     clang -g -O1 -fsanitize=fuzzer,address,undefined -Iinclude -Isrc fuzz/gguf_fuzz.c
 * src/base/[a-z]*.c \ src/tensor/[a-z]*.c src/file/[a-z]*.c -ljansson -lpthread -o gguf_fuzz &&
 * ./gguf_fuzz fuzz/corpus/gguf
 *
 * Without clang, fuzz/driver.c in place of `fuzzer` replays files. */
#include <stdint.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "file/gguf_impl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned sum; /* what is read goes here, so that no read is optimised away */

static void read_bytes(const void *p, size_t n) {
    const unsigned char *b = p;
    for (size_t i = 0; i < n; i++) sum += b[i];
}

/* Every accessor on a key; each may refuse. Keys have no NUL (the parser's promise), so they make C
 * strings. */
static void read_kv(const rp__gguf *g, const rp__gguf_kv *kv) {
    rp_error err;
    int64_t i;
    double d;
    bool b;
    rp__str s, *strings;
    const rp__gguf_kv *array;
    size_t n;
    read_bytes(kv->data, kv->bytes);
    char *key = rp__strndup(kv->key.p, kv->key.n);
    if (!key) return;
    rp__assert(rp__gguf_find(g, key) == kv, "a key is not found by its name");
    rp__gguf_int(g, key, &i, &err);
    rp__gguf_float(g, key, &d, &err);
    rp__gguf_bool(g, key, &b, &err);
    if (rp__gguf_str(g, key, &s, &err) == RP_OK) read_bytes(s.p, s.n);
    if (rp__gguf_array(g, key, RP_GGUF_I32, &array, &err) == RP_OK)
        for (uint64_t k = 0; k < array->n; k++) d = rp__gguf_item_number(array, k);
    if (rp__gguf_strings(g, key, &strings, &n, &err) == RP_OK)
        for (size_t k = 0; k < n; k++) read_bytes(strings[k].p, strings[k].n);
    else
        strings = NULL;
    rp__free(strings);
    rp__free(key);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    rp__gguf *g;
    rp_error err = {0};
    rp_status status = rp__gguf_open_memory("fuzz.gguf", data, size, &g, &err);
    if (status != RP_OK) {
        rp__assert(!g && err.message[0] && err.code == status, "a refusal without a sentence");
        return 0;
    }
    for (size_t i = 0; i < rp__gguf_n_kv(g); i++) read_kv(g, rp__gguf_kv_at(g, i));
    size_t bytes = 0;
    for (size_t i = 0; i < rp__gguf_n_tensors(g); i++) {
        const rp__gguf_tensor *t = rp__gguf_tensor_at(g, i);
        read_bytes(t->data, t->bytes);
        bytes += t->bytes;
    }
    rp__assert(bytes <= size, "tensors share bytes");
    rp__gguf_close(g);
    return 0;
}
