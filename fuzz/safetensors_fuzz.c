/* Fuzzes the safetensors reader: whatever the bytes, it opens or refuses; and what it opened can be
 * read whole.
 *
 *     clang -g -O1 -fsanitize=fuzzer,address,undefined -Iinclude -Isrc fuzz/safetensors_fuzz.c
 * src/base/[a-z]*.c \
 *         src/tensor/[a-z]*.c src/file/[a-z]*.c -ljansson -lpthread -o safetensors_fuzz && \
 *         ./safetensors_fuzz fuzz/corpus/safetensors
 *
 * Without clang, fuzz/driver.c in place of `fuzzer` replays files. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "file/safetensors_impl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned sum; /* what is read goes here, so that no read is optimised away */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    rp__safetensors *s;
    rp_error err = {0};
    rp_status status = rp__safetensors_open_memory("fuzz.safetensors", data, size, &s, &err);
    if (status != RP_OK) {
        rp__assert(!s && err.message[0] && err.code == status, "a refusal without a sentence");
        return 0;
    }
    uint64_t n_header;
    size_t bytes = 0;
    for (size_t i = 0; i < rp__safetensors_n_tensors(s); i++) {
        const rp__safetensors_tensor *t = rp__safetensors_at(s, i);
        const unsigned char *p = t->data;
        for (size_t k = 0; k < t->bytes; k++) sum += p[k];
        bytes += t->bytes;
        rp__assert(rp__safetensors_find(s, t->name.p) == t, "a tensor is not found by its name");
    }
    memcpy(&n_header, data, sizeof n_header);
    rp__assert(bytes == size - 8 - n_header, "the tensors do not fill the data");
    rp__safetensors_close(s);
    return 0;
}
