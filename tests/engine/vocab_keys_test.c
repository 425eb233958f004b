/* The tokenizer keys of GGUF: types and lengths are checked, and the sentence names the key. */
#include <string.h>

#include "base/alloc.h"
#include "engine/vocab.h"
#include "file/writer.h"
#include "test.h"

static const char *const pieces[] = {"<unk>", "<s>", "</s>", "a", "b", "ab"};
enum { N = 6 };
static const float scores[N] = {0, 0, 0, -1, -2, -3};
static const int32_t types[N] = {2, 3, 3, 1, 1, 1};

typedef enum defect {
    NONE,
    NO_MODEL,
    SCORES_U8,
    SCORES_SHORT,
    TYPES_STRING,
    TYPES_LONG,
    TOKENS_I32,
    NO_TOKENS,
    BOS_FAR,
    BOS_STRING,
    BOS_NONE,
    ADD_BOS_INT,
    MERGES_I32,
    GPT2_NO_MERGES
} defect;

static void put_tokens(rp_writer *w, defect d) {
    if (d == TOKENS_I32)
        rp_gguf_array(w, "tokenizer.ggml.tokens", RP_GGUF_I32, N, types, sizeof types);
    else if (d != NO_TOKENS)
        rp_gguf_strings(w, "tokenizer.ggml.tokens", N, pieces);
}

static void put_scores(rp_writer *w, defect d) {
    size_t n = d == SCORES_SHORT ? N - 1 : N;
    if (d == SCORES_U8)
        rp_gguf_array(w, "tokenizer.ggml.scores", RP_GGUF_U8, N, "abcdef", N);
    else
        rp_gguf_array(w, "tokenizer.ggml.scores", RP_GGUF_F32, n, scores, n * sizeof *scores);
}

static void put_types(rp_writer *w, defect d) {
    static const int32_t more[N + 1] = {2, 3, 3, 1, 1, 1, 1};
    if (d == TYPES_STRING)
        rp_gguf_strings(w, "tokenizer.ggml.token_type", N, pieces);
    else if (d == TYPES_LONG)
        rp_gguf_array(w, "tokenizer.ggml.token_type", RP_GGUF_I32, N + 1, more, sizeof more);
    else
        rp_gguf_array(w, "tokenizer.ggml.token_type", RP_GGUF_I32, N, types, sizeof types);
}

static rp_status open_with(defect d, rp__tokenizer **t, rp_error *err) {
    rp_writer w = {0};
    rp_gguf_begin(&w, 3);
    if (d != NO_MODEL)
        rp_gguf_str(&w, "tokenizer.ggml.model", d == GPT2_NO_MERGES ? "gpt2" : "llama");
    if (d == GPT2_NO_MERGES) rp_gguf_str(&w, "tokenizer.ggml.pre", "qwen2");
    put_tokens(&w, d);
    put_scores(&w, d);
    put_types(&w, d);
    if (d == MERGES_I32)
        rp_gguf_array(&w, "tokenizer.ggml.merges", RP_GGUF_I32, N, types, sizeof types);
    if (d == BOS_STRING)
        rp_gguf_str(&w, "tokenizer.ggml.bos_token_id", "1");
    else
        rp_gguf_u32(&w, "tokenizer.ggml.bos_token_id",
                    d == BOS_FAR    ? N
                    : d == BOS_NONE ? UINT32_MAX
                                    : 1);
    rp_gguf_u32(&w, "tokenizer.ggml.eos_token_id", 2);
    rp_gguf_u32(&w, "tokenizer.ggml.unknown_token_id", 0);
    if (d == ADD_BOS_INT) rp_gguf_f32(&w, "tokenizer.ggml.add_bos_token", 1);
    rp_gguf_bool(&w, "tokenizer.ggml.add_space_prefix", false);
    rp_gguf_end(&w);
    const char *dir = rp_temp_dir(), *path = rp_temp_path(dir, "vocab.gguf");
    rp_writer_save(&w, path);
    rp_writer_clear(&w);
    rp__gguf *g;
    assert_ok(rp__gguf_open(path, &g, err), *err);
    rp__checkpoint c = {.gguf = g};
    rp_status status = rp__vocab_from_checkpoint(&c, t, err);
    rp__gguf_close(g);
    rp_temp_remove(dir);
    return status;
}

RP_TEST(vocab, keys_are_checked) {
    static const struct {
        defect d;
        const char *part;
    } wanted[] = {
        {NO_MODEL, "tokenizer.ggml.model"},
        {SCORES_U8, "tokenizer.ggml.scores"},
        {SCORES_SHORT, "tokenizer.ggml.scores has 5 items for 6 tokens"},
        {TYPES_STRING, "tokenizer.ggml.token_type"},
        {TYPES_LONG, "tokenizer.ggml.token_type has 7 items for 6 tokens"},
        {TOKENS_I32, "tokenizer.ggml.tokens"},
        {NO_TOKENS, "tokenizer.ggml.tokens"},
        {BOS_FAR, "BOS token is 6"},
        {BOS_STRING, "tokenizer.ggml.bos_token_id"},
        {ADD_BOS_INT, "tokenizer.ggml.add_bos_token"},
        {MERGES_I32, "tokenizer.ggml.merges"},
        {GPT2_NO_MERGES, "merges"},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        rp_error err = {0};
        rp__tokenizer *t = NULL;
        rp_status status = open_with(wanted[i].d, &t, &err);
        if (status >= 0) fail_msg("defect %d was taken", wanted[i].d);
        assert_null(t);
        assert_message(err, wanted[i].part);
    }
}

RP_TEST(vocab, keys_make_a_tokenizer) {
    rp_error err = {0};
    rp__tokenizer *t = NULL;
    assert_ok(open_with(NONE, &t, &err), err);
    rp__ids ids = {0};
    rp__encode_options o = {.add_special = true};
    assert_ok(rp__tokenizer_encode(t, RP_STR("aba"), &o, &ids, &err), err);
    assert_int_equal(ids.n, 3);
    assert_memory_equal(ids.p, ((int32_t[]){1, 5, 3}), 12);
    rp__ids_clear(&ids);
    rp__tokenizer_destroy(t);
    assert_ok(open_with(BOS_NONE, &t, &err), err);
    assert_int_equal(rp__tokenizer_bos(t), -1);
    assert_false(rp__tokenizer_adds_bos(t));
    rp__tokenizer_destroy(t);
}
