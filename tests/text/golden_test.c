/* Ids that Hugging Face's `tokenizers` gives (tools/make_token_golden.py), for small tokenizers of
 * every kind and for whole vocabularies; and text out of ids, streamed and whole. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "test.h"
#include "text/vocab_files.h"

static json_t *load(const char *path) {
    json_error_t e;
    json_t *v = path ? json_load_file(path, JSON_ALLOW_NUL, &e) : NULL;
    if (path && !v) fail_msg("%s: %s", path, e.text);
    return v;
}

static json_t *fixture(const char *name, const char *end) {
    char file[128];
    snprintf(file, sizeof file, "fixtures/tokens/%s%s", name, end);
    return load(rp_test_path(file));
}

static rp__bytes stream(const rp__tokenizer *t, const rp__ids *ids) {
    rp__bytes out = {0};
    rp__detokenizer d = {.tokenizer = t, .show_special = true, .at_start = true};
    for (size_t i = 0; i < ids->n; i++) {
        assert_true(rp__detokenizer_add(&d, ids->p[i], &out));
        assert_true(rp__utf8_valid(out.p, out.n));
    }
    assert_true(rp__detokenizer_finish(&d, &out));
    return out;
}

/* Whole and streamed decoding agree where the bytes are well-formed. */
static rp__bytes decode(const rp__tokenizer *t, const rp__ids *ids) {
    rp__bytes whole = {0}, streamed = stream(t, ids);
    assert_true(rp__tokenizer_decode(t, ids->p, ids->n, true, &whole));
    if (rp__utf8_valid(whole.p, whole.n)) {
        assert_int_equal(whole.n, streamed.n);
        if (whole.n) assert_memory_equal(whole.p, streamed.p, whole.n);
    }
    rp__bytes_clear(&streamed);
    return whole;
}

typedef enum keeps { LOSSY, EXACT } keeps; /* EXACT: decoding gives the text back */

static void check_text(const rp__tokenizer *t, const char *name, rp__str text,
                       const json_t *expected, keeps k) {
    rp__ids ids = vocab_encode(t, text, true, true);
    bool same = ids.n == json_array_size(expected);
    for (size_t i = 0; i < ids.n && same; i++)
        same = json_integer_value(json_array_get(expected, i)) == ids.p[i];
    if (!same) {
        char *wanted = json_dumps(expected, JSON_COMPACT);
        fail_msg("%s: \"%.*s\": ids %s, expected %s", name, (int)text.n, text.p,
                 vocab_ids_text(&ids), wanted);
    }
    rp__bytes whole = decode(t, &ids);
    if (k == EXACT) {
        assert_int_equal(whole.n, text.n);
        if (text.n) assert_memory_equal(whole.p, text.p, text.n);
    }
    rp__bytes_clear(&whole);
    rp__ids_clear(&ids);
}

static void check_all(const rp__tokenizer *t, const char *name, const json_t *texts,
                      const json_t *ids, keeps k) {
    assert_true(json_array_size(texts) >= 190);
    assert_int_equal(json_array_size(texts), json_array_size(ids));
    for (size_t i = 0; i < json_array_size(texts); i++) {
        const json_t *v = json_array_get(texts, i);
        rp__str text = {json_string_value(v), json_string_length(v)};
        check_text(t, name, text, json_array_get(ids, i), k);
    }
}

static void check_fixture(const char *name) {
    char file[128];
    snprintf(file, sizeof file, "fixtures/tokens/%s.json", name);
    rp__bytes text = vocab_read(rp_test_path(file));
    rp_error err = {0};
    rp__tokenizer *t;
    assert_ok(rp__tokenizer_create_json(name, (rp__str){text.p, text.n}, (rp__str){0}, &t, &err),
              err);
    rp__bytes_clear(&text);
    json_t *texts = fixture("texts", ".json"), *ids = fixture(name, ".ids.json");
    check_all(t, name, texts, ids, LOSSY);
    json_decref(texts);
    json_decref(ids);
    rp__tokenizer_destroy(t);
}

RP_TEST(tokens, json_gpt2_prefix_space) {
    check_fixture("gpt2-prefix-space");
}
RP_TEST(tokens, json_smollm) {
    check_fixture("smollm");
}
RP_TEST(tokens, json_llama3) {
    check_fixture("llama3");
}
RP_TEST(tokens, json_qwen2_nfc) {
    check_fixture("qwen2-nfc");
}
RP_TEST(tokens, json_qwen35) {
    check_fixture("qwen35");
}
RP_TEST(tokens, json_tekken) {
    check_fixture("tekken");
}
RP_TEST(tokens, json_gpt4o) {
    check_fixture("gpt-4o");
}
RP_TEST(tokens, json_deepseek_v3) {
    check_fixture("deepseek-v3");
}
RP_TEST(tokens, json_llama2) {
    check_fixture("llama2");
}
RP_TEST(tokens, json_metaspace_first) {
    check_fixture("metaspace-first");
}
RP_TEST(tokens, json_metaspace_nfkc_unk) {
    check_fixture("metaspace-nfkc-unk");
}
RP_TEST(tokens, json_gemma) {
    check_fixture("gemma");
}

static json_t *cached(const char *name) {
    const char *path = vocab_file("vocab", name);
    if (!path) RP_SKIP("the expected ids are not in the cache; tools/fetch_vocab.py makes them");
    return load(path);
}

static void check_random(const char *folder, const char *stem, keeps k) {
    char file[128];
    snprintf(file, sizeof file, "%s.random.json", stem);
    json_t *texts = cached("random.json"), *ids = cached(file);
    snprintf(file, sizeof file, "%s.gguf", stem);
    rp__tokenizer *t = vocab_open(folder, file);
    for (size_t i = 0; i < json_array_size(texts); i++) {
        const json_t *v = json_array_get(texts, i);
        rp__ids without = {0};
        rp_error err = {0};
        rp__encode_options o = {.parse_special = true};
        rp__str text = {json_string_value(v), json_string_length(v)};
        assert_ok(rp__tokenizer_encode(t, text, &o, &without, &err), err);
        bool same = without.n == json_array_size(json_array_get(ids, i));
        for (size_t j = 0; j < without.n && same; j++)
            same = without.p[j] == json_integer_value(json_array_get(json_array_get(ids, i), j));
        if (!same) fail_msg("%s: text %zu: ids %s", stem, i, vocab_ids_text(&without));
        rp__bytes whole = decode(t, &without);
        if (k == EXACT && (whole.n != text.n || memcmp(whole.p, text.p, text.n)))
            fail_msg("%s: text %zu", stem, i);
        rp__bytes_clear(&whole);
        rp__ids_clear(&without);
    }
    assert_int_equal(json_array_size(texts), 2000);
    json_decref(texts);
    json_decref(ids);
    rp__tokenizer_destroy(t);
}

/* SmolLM2 and Falcon have no piece for some control bytes and leave them out; SentencePiece reads
 * U+2581 as a space. */
RP_TEST(vocab, random_smollm2) {
    check_random("models", "smollm2", LOSSY);
}
RP_TEST(vocab, random_falcon) {
    check_random("vocab", "ggml-vocab-falcon", LOSSY);
}
RP_TEST(vocab, random_llama_bpe) {
    check_random("vocab", "ggml-vocab-llama-bpe", EXACT);
}
RP_TEST(vocab, random_qwen2) {
    check_random("vocab", "ggml-vocab-qwen2", EXACT);
}
RP_TEST(vocab, random_gpt2) {
    check_random("vocab", "ggml-vocab-gpt-2", EXACT);
}
RP_TEST(vocab, random_llama_spm) {
    check_random("vocab", "ggml-vocab-llama-spm", LOSSY);
}
