/* Small vocabularies written here, so that every expected id can be checked by hand. */
#include <string.h>

#include "base/alloc.h"
#include "test.h"
#include "text/vocab_files.h"

/* ---- a SentencePiece vocabulary ---- */

#define BAR "\xE2\x96\x81"
enum { UNK, BOS, EOS, BYTES = 3, SPM_FIRST = BYTES + 256 };
static const char *const spm_pieces[] = {BAR, "a",  "b",  "ab",     BAR "a", BAR "ab", "<",
                                         "/", "s",  ">",  "</",     "s>",    "0",      "x",
                                         "A", "<0", "x0", "<user>", "</s"};
enum { N_SPM = SPM_FIRST + sizeof spm_pieces / sizeof *spm_pieces };

typedef struct vocabulary { /* what a spec points to */
    rp__str tokens[N_SPM + 600];
    char text[512][8];
    float scores[N_SPM + 600];
    int32_t types[N_SPM + 600];
    rp__tokenizer_spec spec;
} vocabulary;

static int32_t spm_id(const char *piece) {
    for (size_t i = 0; i < sizeof spm_pieces / sizeof *spm_pieces; i++)
        if (!strcmp(spm_pieces[i], piece)) return SPM_FIRST + (int32_t)i;
    fail_msg("no piece %s", piece);
    return -1;
}

static void make_spm(vocabulary *v) {
    static const char hex[] = "0123456789ABCDEF";
    memset(v, 0, sizeof *v);
    const char *const named[] = {"<unk>", "<s>", "</s>"};
    const int32_t types[] = {RP_TOKEN_UNKNOWN, RP_TOKEN_CONTROL, RP_TOKEN_CONTROL};
    for (size_t i = 0; i < 3; i++) v->tokens[i] = rp__str_of(named[i]), v->types[i] = types[i];
    for (size_t b = 0; b < 256; b++) {
        memcpy(v->text[b], (char[]){'<', '0', 'x', hex[b >> 4], hex[b & 15], '>', 0}, 7);
        v->tokens[BYTES + b] = rp__str_of(v->text[b]);
        v->types[BYTES + b] = RP_TOKEN_BYTE;
    }
    for (size_t i = SPM_FIRST; i < N_SPM; i++) {
        v->tokens[i] = rp__str_of(spm_pieces[i - SPM_FIRST]);
        v->types[i] = RP_TOKEN_NORMAL;
        v->scores[i] = -(float)(i - SPM_FIRST); /* earlier pieces are joined first */
    }
    v->types[spm_id("<user>")] = RP_TOKEN_USER_DEFINED;
    v->spec = (rp__tokenizer_spec){.source = "test",
                                   .model = RP_STR("llama"),
                                   .tokens = v->tokens,
                                   .n_tokens = N_SPM,
                                   .scores = v->scores,
                                   .types = v->types,
                                   .bos = BOS,
                                   .eos = EOS,
                                   .eot = -1,
                                   .unk = UNK,
                                   .pad = -1,
                                   .add_bos = -1,
                                   .add_eos = -1,
                                   .add_space_prefix = -1};
}

static rp__tokenizer *create(const vocabulary *v) {
    rp_error err = {0};
    rp__tokenizer *t;
    assert_ok(rp__tokenizer_create(&v->spec, &t, &err), err);
    return t;
}

/* Encodes and compares; `o` NULL: nothing special. */
static void check_ids(const rp__tokenizer *t, rp__str text, const rp__encode_options *o,
                      const int32_t *ids, size_t n) {
    rp_error err = {0};
    rp__ids got = {0};
    rp__encode_options plain = {0};
    assert_ok(rp__tokenizer_encode(t, text, o ? o : &plain, &got, &err), err);
    if (got.n != n || (n && memcmp(got.p, ids, n * sizeof *ids)))
        fail_msg("\"%.*s\" gives %s", (int)text.n, text.p, vocab_ids_text(&got));
    rp__ids_clear(&got);
}
#define CHECK_IDS(t, text, o, ...)                                                                 \
    check_ids(t, RP_STR(text), o, (const int32_t[]){__VA_ARGS__},                                  \
              sizeof((const int32_t[]){__VA_ARGS__}) / 4)

static void check_decoded(const rp__tokenizer *t, const int32_t *ids, size_t n, bool show,
                          rp__str wanted) {
    rp__bytes out = {0};
    assert_true(rp__tokenizer_decode(t, ids, n, show, &out));
    assert_int_equal(out.n, wanted.n);
    if (wanted.n) assert_memory_equal(out.p, wanted.p, wanted.n);
    rp__bytes_clear(&out);
}

RP_TEST(tokenizer, scores_join_the_best_pair_first) {
    static vocabulary v;
    make_spm(&v);
    rp__tokenizer *t = create(&v);
    /* Of the pairs in _ab, "ab" (score -3) goes before "_a" (-4); then "_ab". */
    CHECK_IDS(t, "ab", NULL, spm_id(BAR "ab"));
    CHECK_IDS(t, "b a", NULL, spm_id(BAR), spm_id("b"), spm_id(BAR "a"));
    CHECK_IDS(t, "aab", NULL, spm_id(BAR "a"), spm_id("ab"));
    rp__encode_options o = {.add_special = true};
    CHECK_IDS(t, "ab", &o, BOS, spm_id(BAR "ab"));
    check_ids(t, RP_STR(""), &o, (int32_t[]){BOS}, 1);
    check_ids(t, RP_STR(""), NULL, NULL, 0);
    rp__tokenizer_destroy(t);
}

RP_TEST(tokenizer, bytes_where_no_piece_is) {
    static vocabulary v;
    make_spm(&v);
    v.spec.add_space_prefix = 0;
    rp__tokenizer *t = create(&v);
    /* U+1F999 is F0 9F A6 99, U+AE70 is EA B9 B0; a newline and an ill-formed byte too. */
    CHECK_IDS(t, "\xF0\x9F\xA6\x99", NULL, BYTES + 0xF0, BYTES + 0x9F, BYTES + 0xA6, BYTES + 0x99);
    CHECK_IDS(t, "\xEA\xB9\xB0\n", NULL, BYTES + 0xEA, BYTES + 0xB9, BYTES + 0xB0, BYTES + 10);
    CHECK_IDS(t,
              "a\xFF\xF0\x9F"
              "a",
              NULL, spm_id("a"), BYTES + 0xFF, BYTES + 0xF0, BYTES + 0x9F, spm_id("a"));
    check_decoded(t, (int32_t[]){BYTES + 0xEA, BYTES + 0xB9, BYTES + 0xB0, BYTES + 10}, 4, false,
                  RP_STR("\xEA\xB9\xB0\n"));
    /* The six characters are not the byte they name. */
    CHECK_IDS(t, "<0x0A>", NULL, spm_id("<0"), spm_id("x0"), spm_id("A"), spm_id(">"));
    check_decoded(t, (int32_t[]){spm_id("<0"), spm_id("x0"), spm_id("A"), spm_id(">")}, 4, false,
                  RP_STR("<0x0A>"));
    rp__tokenizer_destroy(t);
}

RP_TEST(tokenizer, text_never_becomes_a_control_token) {
    static vocabulary v;
    make_spm(&v);
    v.spec.add_space_prefix = 0;
    rp__tokenizer *t = create(&v);
    /* "</" and "s>" could be joined to "</s>", "<" and "s>" to nothing. */
    CHECK_IDS(t, "</s>", NULL, spm_id("</"), spm_id("s>"));
    rp__encode_options parse = {.parse_special = true};
    CHECK_IDS(t, "</s>", &parse, EOS);
    CHECK_IDS(t, "a</s>b<s>", &parse, spm_id("a"), EOS, spm_id("b"), BOS);
    /* A user-defined token is text, so it is found either way. */
    CHECK_IDS(t, "a<user>b", NULL, spm_id("a"), spm_id("<user>"), spm_id("b"));
    /* The second of three is what a user wrote; so are all places a token would reach into. */
    rp__span literal[] = {{5, 9}};
    parse.literal = literal, parse.n_literal = 1;
    CHECK_IDS(t, "a</s></s></s>", &parse, spm_id("a"), EOS, spm_id("</"), spm_id("s>"), EOS);
    literal[0] = (rp__span){2, 3};
    CHECK_IDS(t, "a</s>", &parse, spm_id("a"), spm_id("</"), spm_id("s>"));
    /* A span does not cut: "ab" is one piece across its border. */
    literal[0] = (rp__span){1, 2};
    CHECK_IDS(t, "ab", &parse, spm_id("ab"));
    /* An empty span is nothing. */
    literal[0] = (rp__span){2, 2};
    CHECK_IDS(t, "a</s>", &parse, spm_id("a"), EOS);
    rp__tokenizer_destroy(t);
}

RP_TEST(tokenizer, bos_exactly_once) {
    static vocabulary v;
    make_spm(&v);
    v.spec.add_eos = 1;
    rp__tokenizer *t = create(&v);
    rp__encode_options o = {.add_special = true, .parse_special = true};
    assert_true(rp__tokenizer_adds_bos(t));
    CHECK_IDS(t, "a", &o, BOS, spm_id(BAR "a"), EOS);
    CHECK_IDS(t, "<s>a", &o, BOS, spm_id(BAR "a"), EOS);
    o.parse_special = false; /* now it is text, and BOS is still due */
    rp__ids ids = vocab_encode(t, RP_STR("<s>a"), false, true);
    assert_int_equal(ids.p[0], BOS);
    assert_int_not_equal(ids.p[1], BOS);
    /* What was in the list stays in front. */
    rp_error err = {0};
    assert_ok(rp__tokenizer_encode(t, RP_STR("a"), &o, &ids, &err), err);
    assert_int_equal(ids.p[ids.n - 3], BOS);
    assert_int_equal(ids.p[0], BOS);
    rp__ids_clear(&ids);
    rp__tokenizer_destroy(t);
}

RP_TEST(tokenizer, the_first_space_comes_and_goes) {
    static vocabulary v;
    make_spm(&v);
    rp__tokenizer *t = create(&v);
    const int32_t ids[] = {BOS, spm_id(BAR "ab"), spm_id(BAR "a")};
    check_decoded(t, ids, 3, false, RP_STR("ab a"));
    check_decoded(t, ids, 3, true, RP_STR("<s> ab a"));
    rp__detokenizer d = {.tokenizer = t}; /* in the middle of a text */
    rp__bytes out = {0};
    assert_true(rp__detokenizer_add(&d, ids[1], &out));
    assert_string_equal(out.p, " ab");
    rp__bytes_clear(&out);
    rp__tokenizer_destroy(t);
}

RP_TEST(tokenizer, ids_outside_the_vocabulary) {
    static vocabulary v;
    make_spm(&v);
    rp__tokenizer *t = create(&v);
    const int32_t outside[] = {-1, N_SPM, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(rp__tokenizer_text(t, outside[i]).n, 0);
        assert_int_equal(rp__tokenizer_bytes(t, outside[i]).n, 0);
        assert_false(rp__tokenizer_is_eog(t, outside[i]) ||
                     rp__tokenizer_is_special(t, outside[i]));
        assert_false(rp__tokenizer_add_eog(t, outside[i]));
    }
    check_decoded(t, outside, 4, true, (rp__str){"", 0});
    assert_int_equal(rp__tokenizer_size(t), N_SPM);
    assert_true(rp__tokenizer_is_eog(t, EOS) && rp__tokenizer_is_special(t, UNK));
    assert_false(rp__tokenizer_is_eog(t, BOS));
    assert_true(rp__tokenizer_add_eog(t, BOS) && rp__tokenizer_is_eog(t, BOS));
    assert_int_equal(rp__tokenizer_find(t, RP_STR("ab")), spm_id("ab"));
    assert_int_equal(rp__tokenizer_find(t, RP_STR("zz")), -1);
    assert_true(rp__str_is(rp__tokenizer_text(t, BYTES + 10), "<0x0A>"));
    assert_true(rp__str_is(rp__tokenizer_bytes(t, BYTES + 10), "\n"));
    rp__tokenizer_destroy(t);
}

RP_TEST(tokenizer, white_space_after_phi3_tokens) {
    static vocabulary v;
    make_spm(&v);
    v.spec.strip_after_special = true;
    v.spec.add_space_prefix = 0;
    rp__tokenizer *t = create(&v);
    rp__encode_options o = {.parse_special = true};
    CHECK_IDS(t,
              "<user> \n\xC2\xA0"
              "a</s> b",
              &o, spm_id("<user>"), spm_id("a"), EOS, spm_id("b"));
    CHECK_IDS(t, "<s> a", &o, BOS, spm_id(BAR "a"));
    rp__tokenizer_destroy(t);
}

/* ---- a byte-level vocabulary ---- */

/* 256 bytes in order of value, then the pieces of two merges, then an end. */
enum { AB = 256, ABC, SPACE_A, BYTE_EOS, N_BYTE_LEVEL };

static size_t shown(unsigned b, char out[8]) { /* GPT-2's table, written out anew */
    unsigned cp = b;
    if (b <= 0x20)
        cp = 0x100 + b;
    else if (b >= 0x7F && b <= 0xA0)
        cp = 0x121 + b - 0x7F;
    else if (b == 0xAD)
        cp = 0x143;
    if (cp < 0x80) return out[0] = (char)cp, 1;
    out[0] = (char)(0xC0 | cp >> 6), out[1] = (char)(0x80 | (cp & 63));
    return 2;
}

static void make_byte_level(vocabulary *v) {
    static const rp__str merges[] = {{"a b", 3}, {"ab c", 4}, {"\xC4\xA0 a", 4}};
    memset(v, 0, sizeof *v);
    for (unsigned b = 0; b < 256; b++) v->tokens[b] = (rp__str){v->text[b], shown(b, v->text[b])};
    v->tokens[AB] = RP_STR("ab"), v->tokens[ABC] = RP_STR("abc"),
    v->tokens[SPACE_A] = RP_STR("\xC4\xA0"
                                "a");
    v->tokens[BYTE_EOS] = RP_STR("<|im_end|>");
    for (size_t i = 0; i < N_BYTE_LEVEL; i++) v->types[i] = RP_TOKEN_NORMAL;
    v->spec = (rp__tokenizer_spec){.source = "test",
                                   .model = RP_STR("gpt2"),
                                   .pre = RP_STR("qwen2"),
                                   .tokens = v->tokens,
                                   .n_tokens = N_BYTE_LEVEL,
                                   .types = v->types,
                                   .merges = merges,
                                   .n_merges = 3,
                                   .bos = -1,
                                   .eos = -1,
                                   .eot = -1,
                                   .unk = -1,
                                   .pad = -1,
                                   .add_bos = -1,
                                   .add_eos = -1,
                                   .add_space_prefix = -1};
}

RP_TEST(tokenizer, byte_level_joins_by_rank) {
    static vocabulary v;
    make_byte_level(&v);
    rp__tokenizer *t = create(&v);
    CHECK_IDS(t, "abcab ab", NULL, ABC, AB, ' ', AB); /* " ab": "a b" has the better rank */
    CHECK_IDS(t, "a a", NULL, 'a', SPACE_A);
    CHECK_IDS(t,
              "a\xFF"
              "b\xE2\x82",
              NULL, 'a', 0xFF, 'b', 0xE2, 0x82); /* ill-formed: byte by byte */
    CHECK_IDS(t, "\0", NULL, 0);
    /* Typed as text in the file, yet an end: only where special tokens are looked for. */
    assert_true(rp__tokenizer_is_eog(t, BYTE_EOS) && rp__tokenizer_is_special(t, BYTE_EOS));
    rp__encode_options o = {.parse_special = true};
    CHECK_IDS(t, "<|im_end|>", &o, BYTE_EOS);
    CHECK_IDS(t, "<|im", NULL, '<', '|', 'i', 'm');
    rp__tokenizer_destroy(t);
}

RP_TEST(tokenizer, any_bytes_come_back) {
    static vocabulary v;
    make_byte_level(&v);
    rp__tokenizer *t = create(&v);
    uint64_t seed = 31;
    for (int round = 0; round < 300; round++) {
        char text[64];
        size_t n = rp_test_rand(&seed) % sizeof text;
        for (size_t i = 0; i < n; i++)
            text[i] = (char)(rp_test_rand(&seed) >> (round % 3 ? 56 : 59));
        rp__ids ids = vocab_encode(t, (rp__str){text, n}, false, false);
        check_decoded(t, ids.p, ids.n, true, (rp__str){text, n});
        rp__ids_clear(&ids);
    }
    rp__tokenizer_destroy(t);
}

static void check_stream(const rp__tokenizer *t, rp__str bytes, const char *steps) {
    rp__detokenizer d = {.tokenizer = t};
    rp__bytes all = {0};
    for (size_t i = 0; i < bytes.n; i++) {
        assert_true(rp__detokenizer_add(&d, (unsigned char)bytes.p[i], &all));
        assert_true(rp__bytes_add_char(&all, '|'));
    }
    assert_true(rp__detokenizer_finish(&d, &all));
    assert_string_equal(all.p, steps);
    rp__bytes_clear(&all);
}

RP_TEST(tokenizer, streams_whole_characters) {
    static vocabulary v;
    make_byte_level(&v);
    rp__tokenizer *t = create(&v);
    check_stream(t, RP_STR("a\xF0\x9F\xA6\x99z"), "a||||\xF0\x9F\xA6\x99|z|");
    check_stream(t, RP_STR("\x80z"), "\xEF\xBF\xBD|z|"); /* can never be one */
    check_stream(t,
                 RP_STR("\xF0\x9F"
                        "a"),
                 "||\xEF\xBF\xBD"
                 "a|"); /* a cut one is one U+FFFD */
    check_stream(t, RP_STR("\xE2\xF0\x9F\xA6\x99"), "|\xEF\xBF\xBD|||\xF0\x9F\xA6\x99|");
    check_stream(t, RP_STR("\xE0\x80"), "|\xEF\xBF\xBD\xEF\xBF\xBD|"); /* overlong: two bad bytes */
    check_stream(t, RP_STR("\xF0\x9F\xA6"), "|||\xEF\xBF\xBD");        /* cut at the end */
    check_stream(t, RP_STR("\0"), "");
    rp__tokenizer_destroy(t);
}

/* One word of a hundred thousand letters: with a quadratic merge the runner would not come back. */
RP_TEST(tokenizer, a_long_word_is_not_quadratic) {
    static vocabulary v;
    enum { N = 300000 };
    char *text = rp__alloc(N);
    const char *const units[] = {"abc", "ab", "a", " ", "\n", "!", "1", "a\xCC\x81"};
    for (int spm = 0; spm < 2; spm++) {
        if (spm)
            make_spm(&v);
        else
            make_byte_level(&v);
        rp__tokenizer *t = create(&v);
        for (size_t k = 0; k < sizeof units / sizeof *units; k++) {
            size_t unit = strlen(units[k]), n = N / unit * unit;
            for (size_t i = 0; i < n; i++) text[i] = units[k][i % unit];
            rp__ids ids = vocab_encode(t, (rp__str){text, n}, true, false);
            check_decoded(t, ids.p, ids.n, true, (rp__str){text, n});
            rp__ids_clear(&ids);
        }
        rp__tokenizer_destroy(t);
    }
    rp__free(text);
}

/* ---- refusals ---- */

static void check_refused(const vocabulary *v, rp_status code, const char *part) {
    rp_error err = {0};
    rp__tokenizer *t;
    assert_int_equal(rp__tokenizer_create(&v->spec, &t, &err), code);
    assert_null(t);
    assert_message(err, part);
}

RP_TEST(tokenizer, refuses_bad_vocabularies) {
    static vocabulary v;
    const char *const models[] = {"t5", "bert", "rwkv", ""};
    for (size_t i = 0; i < 4; i++) {
        make_byte_level(&v);
        v.spec.model = rp__str_of(models[i]);
        check_refused(&v, RP_EUNSUPPORTED, models[i]);
    }
    make_byte_level(&v), v.spec.pre = RP_STR("no-such");
    check_refused(&v, RP_EUNSUPPORTED, "pre-tokeniser \"no-such\"");
    make_byte_level(&v), v.spec.n_merges = 0;
    check_refused(&v, RP_EFORMAT, "needs merges");
    make_byte_level(&v), v.spec.merges = (rp__str[]){{"ab", 2}}, v.spec.n_merges = 1;
    check_refused(&v, RP_EFORMAT, "merge 0 is \"ab\"");
    make_byte_level(&v), v.spec.merges = (rp__str[]){{"a z", 3}}, v.spec.n_merges = 1;
    check_refused(&v, RP_EFORMAT, "merge 0 (\"a\" and \"z\")");
    make_byte_level(&v), v.tokens[5] = RP_STR("abc");
    check_refused(&v, RP_EFORMAT, "tokens 5 and 257 are both \"abc\"");
    make_byte_level(&v), v.types[7] = 9;
    check_refused(&v, RP_EFORMAT, "token 7 has type 9");
    make_byte_level(&v), v.spec.eos = N_BYTE_LEVEL;
    check_refused(&v, RP_EFORMAT, "the EOS token is 260");
    make_byte_level(&v), v.spec.bos = -2;
    check_refused(&v, RP_EFORMAT, "the BOS token is -2");
    make_byte_level(&v), v.spec.n_tokens = 0;
    check_refused(&v, RP_EFORMAT, "no tokens");
    make_spm(&v), v.spec.scores = NULL;
    check_refused(&v, RP_EFORMAT, "needs scores");
    make_spm(&v), v.scores[300 - 30] = 0.0f / 0.0f;
    check_refused(&v, RP_EFORMAT, "the score of token 270 is not a number");
    make_spm(&v), v.types[spm_id("ab")] = RP_TOKEN_BYTE;
    check_refused(&v, RP_EFORMAT, "is a byte but is written \"ab\"");
}

/* ---- out of memory ---- */

static bool all_works(const vocabulary *v) {
    rp_error err = {0};
    rp__tokenizer *t;
    rp_status status = rp__tokenizer_create(&v->spec, &t, &err);
    rp__ids ids = {0};
    rp__bytes out = {0};
    rp__encode_options o = {.parse_special = true, .add_special = true};
    if (status == RP_OK)
        status = rp__tokenizer_encode(t, RP_STR("ab a</s> \xF0\x9F\xA6\x99<|im_end|> cab"), &o,
                                      &ids, &err);
    bool ok = status == RP_OK;
    if (!ok) assert_int_equal(status, RP_ENOMEM);
    rp__detokenizer d = {.tokenizer = t, .at_start = true};
    for (size_t i = 0; i < ids.n && ok; i++) ok = rp__detokenizer_add(&d, ids.p[i], &out);
    ok =
        ok && rp__detokenizer_finish(&d, &out) && rp__tokenizer_decode(t, ids.p, ids.n, true, &out);
    rp__ids_clear(&ids);
    rp__bytes_clear(&out);
    rp__tokenizer_destroy(t);
    return ok;
}

RP_TEST(tokenizer, every_allocation_may_fail) {
    static vocabulary v;
    for (int spm = 0; spm < 2; spm++) {
        if (spm)
            make_spm(&v);
        else
            make_byte_level(&v);
        bool ok = false;
        uint64_t n = 0;
        while (!ok) {
            rp__alloc_stats before = rp__alloc_get_stats();
            n++;
            rp__alloc_fail_at(n, n & 1);
            ok = all_works(&v);
            rp__alloc_fail_at(0, false);
            rp__alloc_stats after = rp__alloc_get_stats();
            assert_int_equal(after.n_allocs - before.n_allocs, after.n_frees - before.n_frees);
            assert_true(n < 500);
        }
        assert_true(n > 10);
    }
}
