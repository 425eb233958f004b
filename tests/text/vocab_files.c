#include "text/vocab_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/vocab.h"
#include "test.h"

const char *vocab_file(const char *folder, const char *name) {
    static _Thread_local char path[1024];
    const char *cache = getenv("REPRISE_CACHE"), *home = getenv("HOME");
    if (cache)
        snprintf(path, sizeof path, "%s/%s/%s", cache, folder, name);
    else
        snprintf(path, sizeof path, "%s/.cache/reprise/%s/%s", home ? home : "", folder, name);
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    fclose(f);
    return path;
}

rp__tokenizer *vocab_open(const char *folder, const char *name) {
    const char *path = vocab_file(folder, name);
    if (!path) RP_SKIP("the vocabulary is not in the cache; tools/fetch_vocab.py brings it");
    rp_error err = {0};
    rp__gguf *g;
    rp__tokenizer *t;
    assert_ok(rp__gguf_open(path, &g, &err), err);
    assert_ok(rp__vocab_from_gguf(g, &t, &err), err);
    rp__gguf_close(g);
    return t;
}

rp__ids vocab_encode(const rp__tokenizer *t, rp__str text, bool parse_special, bool add_special) {
    rp_error err = {0};
    rp__ids ids = {0};
    rp__encode_options o = {.parse_special = parse_special, .add_special = add_special};
    assert_ok(rp__tokenizer_encode(t, text, &o, &ids, &err), err);
    return ids;
}

const char *vocab_ids_text(const rp__ids *ids) {
    static _Thread_local char text[1 << 16];
    size_t n = 0;
    text[0] = 0;
    for (size_t i = 0; i < ids->n && n + 16 < sizeof text; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, i ? " %d" : "%d", ids->p[i]);
    return text;
}

rp__bytes vocab_read(const char *path) {
    rp__bytes b = {0};
    FILE *f = fopen(path, "rb");
    char block[4096];
    for (size_t n; f && (n = fread(block, 1, sizeof block, f)) > 0;) rp__bytes_add(&b, block, n);
    if (f) fclose(f);
    return b;
}
