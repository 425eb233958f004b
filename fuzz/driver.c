/* Replays files through a fuzzer's entry point, where libFuzzer is not at hand:
 *
 *     cc -g -fsanitize=address -Iinclude -Isrc fuzz/driver.c fuzz/gguf_fuzz.c ... -o replay &&
 * ./replay fuzz/corpus/gguf/[a-z]*
 *
 * Exits with 0 when every file went through, 2 when one cannot be read. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The file's bytes in a block of exactly their size, so that a sanitizer sees any read past the
 * end. */
static uint8_t *read_file(const char *path, size_t *n) {
    FILE *f = fopen(path, "rb");
    if (!f || fseek(f, 0, SEEK_END)) return NULL;
    long size = ftell(f);
    rewind(f);
    uint8_t *p = size < 0 ? NULL : malloc(size ? (size_t)size : 1);
    if (p && fread(p, 1, (size_t)size, f) != (size_t)size) {
        free(p);
        p = NULL;
    }
    fclose(f);
    *n = (size_t)size;
    return p;
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        size_t n;
        uint8_t *p = read_file(argv[i], &n);
        if (!p) {
            fprintf(stderr, "%s: cannot be read\n", argv[i]);
            return 2;
        }
        LLVMFuzzerTestOneInput(p, n);
        free(p);
    }
    printf("%d files replayed\n", argc - 1);
    return 0;
}
