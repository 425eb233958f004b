/* The first byte chooses: even, the rest is the text of a tokenizer.json (created, then tried on a
 * text); odd, the rest is a text for one of three small vocabularies. Byte-level encoding must lose
 * nothing, and a streamed text must be well-formed. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/utf8.h"
#include "text/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const rp__str sample =
    RP_STR("a ab  abc 12 caf\xC3\xA9\xFF \xF0\x9F\xA6\x99\n<s></s> <|x|>");

/* Whole and streamed decoding must agree on well-formed bytes; a stream is always well-formed. */
static void decode(const rp__tokenizer *t, const rp__ids *ids, rp__bytes *whole) {
    rp__bytes streamed = {0};
    rp__detokenizer d = {.tokenizer = t, .show_special = true, .at_start = true};
    for (size_t i = 0; i < ids->n; i++) rp__detokenizer_add(&d, ids->p[i], &streamed);
    rp__detokenizer_finish(&d, &streamed);
    rp__tokenizer_decode(t, ids->p, ids->n, true, whole);
    rp__assert(rp__utf8_valid(streamed.p, streamed.n), "%zu bytes", streamed.n);
    if (rp__utf8_valid(whole->p, whole->n))
        rp__assert(rp__str_eq((rp__str){whole->p, whole->n}, (rp__str){streamed.p, streamed.n}),
                   "%zu and %zu bytes", whole->n, streamed.n);
    rp__bytes_clear(&streamed);
}

static void encode(const rp__tokenizer *t, rp__str text, bool is_exact) {
    rp_error err = {0};
    rp__ids ids = {0};
    rp__bytes whole = {0};
    rp__span literal = {text.n / 3, text.n / 2};
    rp__encode_options o = {
        .parse_special = true, .add_special = !is_exact, .literal = &literal, .n_literal = 1};
    if (rp__tokenizer_encode(t, text, &o, &ids, &err) == RP_OK) {
        for (size_t i = 0; i < ids.n; i++)
            rp__assert(ids.p[i] >= 0 && ids.p[i] < rp__tokenizer_size(t), "id %d", ids.p[i]);
        decode(t, &ids, &whole);
        bool is_same = rp__str_eq((rp__str){whole.p, whole.n}, text);
        rp__assert(is_same || !is_exact, "%zu bytes became %zu", text.n, whole.n);
    }
    rp__ids_clear(&ids);
    rp__bytes_clear(&whole);
}

/* 256 bytes, a few merges and a control token; `pre` names the patterns. */
static rp__tokenizer *byte_level(const char *pre) {
    static const rp__str merges[] = {{"a b", 3}, {"ab c", 4}, {"\xC4\xA0 a", 4}};
    static char text[256][2];
    rp__str tokens[260];
    int32_t types[260];
    for (unsigned b = 0; b < 256; b++) {
        unsigned cp = b <= 0x20                ? 0x100 + b
                      : b >= 0x7F && b <= 0xA0 ? 0x121 + b - 0x7F
                      : b == 0xAD              ? 0x143
                                               : b;
        tokens[b] = (rp__str){text[b], cp < 0x80 ? 1 : 2};
        if (cp < 0x80)
            text[b][0] = (char)cp;
        else
            text[b][0] = (char)(0xC0 | cp >> 6), text[b][1] = (char)(0x80 | (cp & 63));
    }
    tokens[256] = RP_STR("ab"), tokens[257] = RP_STR("abc"),
    tokens[258] = RP_STR("\xC4\xA0"
                         "a");
    tokens[259] = RP_STR("<|x|>");
    for (size_t i = 0; i < 260; i++) types[i] = i < 259 ? RP_TOKEN_NORMAL : RP_TOKEN_CONTROL;
    rp__tokenizer_spec s = {.source = "fuzz",
                            .model = RP_STR("gpt2"),
                            .pre = rp__str_of(pre),
                            .tokens = tokens,
                            .n_tokens = 260,
                            .types = types,
                            .merges = merges,
                            .n_merges = 3,
                            .bos = -1,
                            .eos = 259,
                            .eot = -1,
                            .unk = -1,
                            .pad = -1,
                            .add_bos = -1,
                            .add_eos = -1,
                            .add_space_prefix = -1};
    rp__tokenizer *t;
    rp_error err = {0};
    rp__assert(rp__tokenizer_create(&s, &t, &err) == RP_OK, "%s", err.message);
    return t;
}

static rp__tokenizer *scored(void) {
    static const rp__str tokens[] = {{"<unk>", 5},
                                     {"<s>", 3},
                                     {"</s>", 4},
                                     {"\xE2\x96\x81", 3},
                                     {"a", 1},
                                     {"b", 1},
                                     {"ab", 2},
                                     {"\xE2\x96\x81"
                                      "a",
                                      4},
                                     {"<0x0A>", 6},
                                     {"\xC3\xA9", 2}};
    static const int32_t types[] = {2, 3, 3, 1, 1, 1, 1, 1, 6, 1};
    static const float scores[] = {0, 0, 0, -9, -8, -7, -2, -1, 0, -5};
    rp__tokenizer_spec s = {.source = "fuzz",
                            .model = RP_STR("llama"),
                            .tokens = tokens,
                            .n_tokens = 10,
                            .types = types,
                            .scores = scores,
                            .bos = 1,
                            .eos = 2,
                            .eot = -1,
                            .unk = 0,
                            .pad = -1,
                            .add_bos = -1,
                            .add_eos = -1,
                            .add_space_prefix = -1};
    rp__tokenizer *t;
    rp_error err = {0};
    rp__assert(rp__tokenizer_create(&s, &t, &err) == RP_OK, "%s", err.message);
    return t;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static rp__tokenizer *small[4]; /* kept: building them costs more than a run */
    static const char *const pre[] = {"default", "llama-bpe", "deepseek-v3"};
    for (size_t i = 0; i < 3 && !small[i]; i++) small[i] = byte_level(pre[i]);
    if (!small[3]) small[3] = scored();
    if (n == 0) return 0;
    rp__str rest = {(const char *)data + 1, n - 1};
    if (data[0] & 1) {
        size_t which = data[0] >> 1 & 3;
        encode(small[which], rest, which < 3);
        return 0;
    }
    rp_error err = {0};
    rp__tokenizer *t;
    if (rp__tokenizer_create_json(
            "fuzz", rest, RP_STR("{\"bos_token\":\"<s>\",\"add_bos_token\":true}"), &t, &err) < 0)
        return 0;
    encode(t, sample, false);
    rp__tokenizer_destroy(t);
    return 0;
}
