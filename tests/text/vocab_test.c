/* Whole vocabularies of real models against expected ids: those that llama.cpp keeps beside its
 * vocabulary files (made by the models' own tokenizers), and those in tests/fixtures/tokens. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"
#include "text/vocab_files.h"

#define SEPARATOR "\n__ggml_vocab_test__\n"

/* name.inp: texts between separators. name.out: a line of ids for each. */
static void check_file(const char *name) {
    char file[128];
    snprintf(file, sizeof file, "ggml-vocab-%s.gguf", name);
    rp__tokenizer *t = vocab_open("vocab", file);
    snprintf(file, sizeof file, "ggml-vocab-%s.gguf.inp", name);
    const char *path = vocab_file("vocab", file);
    assert_non_null(path);
    rp__bytes in = vocab_read(path);
    snprintf(file, sizeof file, "ggml-vocab-%s.gguf.out", name);
    path = vocab_file("vocab", file);
    assert_non_null(path);
    rp__bytes out = vocab_read(path);
    size_t n = 0;
    for (char *text = in.p, *line = out.p; text && line && *line; n++) {
        char *end = strstr(text, SEPARATOR), *line_end = strchr(line, '\n');
        if (line_end) *line_end = 0;
        rp__str s = {text, end ? (size_t)(end - text) : strlen(text)};
        rp__ids ids = vocab_encode(t, s, false, false);
        if (strcmp(vocab_ids_text(&ids), line + (*line == ' ')))
            fail_msg("%s: text %zu \"%.*s\": ids %s, expected%s", name, n, (int)s.n, s.p,
                     vocab_ids_text(&ids), line);
        rp__ids_clear(&ids);
        line = line_end ? line_end + 1 : NULL;
        text = end ? end + strlen(SEPARATOR) : NULL;
    }
    assert_true(n > 40);
    rp__bytes_clear(&in);
    rp__bytes_clear(&out);
    rp__tokenizer_destroy(t);
}

RP_TEST(vocab, llama_bpe) {
    check_file("llama-bpe");
}
RP_TEST(vocab, llama_spm) {
    check_file("llama-spm");
}
RP_TEST(vocab, phi3) {
    check_file("phi-3");
}
RP_TEST(vocab, qwen2) {
    check_file("qwen2");
}
RP_TEST(vocab, qwen35) {
    check_file("qwen35");
}
RP_TEST(vocab, gpt2) {
    check_file("gpt-2");
}
RP_TEST(vocab, mpt) {
    check_file("mpt");
}
RP_TEST(vocab, starcoder) {
    check_file("starcoder");
}
RP_TEST(vocab, refact) {
    check_file("refact");
}
RP_TEST(vocab, command_r) {
    check_file("command-r");
}
RP_TEST(vocab, falcon) {
    check_file("falcon");
}
RP_TEST(vocab, deepseek_coder) {
    check_file("deepseek-coder");
}

/* Ids of llama.cpp for the same file. */
RP_TEST(vocab, smollm2) {
    rp__tokenizer *t = vocab_open("models", "smollm2.gguf");
    rp__ids ids = vocab_encode(t, RP_STR("The capital of France is"), true, true);
    assert_string_equal(vocab_ids_text(&ids), "504 3575 282 4649 314");
    rp__ids_clear(&ids);
    assert_int_equal(rp__tokenizer_size(t), 49152);
    assert_int_equal(rp__tokenizer_bos(t), 1);
    assert_int_equal(rp__tokenizer_eos(t), 2);
    assert_true(rp__tokenizer_is_eog(t, 2) && rp__tokenizer_is_eog(t, 0) &&
                !rp__tokenizer_is_eog(t, 1));
    assert_false(rp__tokenizer_adds_bos(t));
    rp__tokenizer_destroy(t);
}
