/* What tokenizer.json and tokenizer_config.json may say, and what is refused. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "test.h"
#include "text/vocab_files.h"

/* A whole tokenizer.json in which a test replaces one value. */
static const char whole[] =
    "{'added_tokens':[{'id':5,'content':'<s>','special':true},{'id':6,'content':'</"
    "s>','special':true}],"
    "'normalizer':{'type':'Replace','pattern':{'String':' '},'content':'\xE2\x96\x81'},"
    "'pre_tokenizer':null,'post_processor':null,"
    "'decoder':{'type':'Replace','pattern':{'String':'\xE2\x96\x81'},'content':' '},"
    "'model':{'type':'BPE','unk_token':'<u>','byte_fallback':false,"
    "'vocab':{'<u>':0,'a':1,'b':2,'ab':3,'\xE2\x96\x81':4},'merges':['a b']}}";

/* `whole` with double quotes, and with `value` (JSON, single quotes) put at "section" or
 * "section.key". */
static char *with(const char *path, const char *value) {
    json_error_t e;
    char *base = rp__strdup(whole), *put = rp__strdup(value);
    for (char *p = base; *p; p++) *p = *p == '\'' ? '"' : *p;
    for (char *p = put; *p; p++) *p = *p == '\'' ? '"' : *p;
    json_t *root = json_loads(base, 0, &e), *v = json_loads(put, JSON_DECODE_ANY, &e);
    assert_non_null(root);
    assert_non_null(v);
    const char *dot = strchr(path, '.');
    if (dot)
        json_object_set_new(json_object_get(root, "model"), dot + 1, v);
    else
        json_object_set_new(root, path, v);
    char *text = json_dumps(root, 0);
    json_decref(root);
    rp__free(base);
    rp__free(put);
    return text;
}

static rp_status create(const char *path, const char *value, const char *config, rp__tokenizer **t,
                        rp_error *err) {
    char *text = with(path, value);
    rp_status status =
        rp__tokenizer_create_json("folder", rp__str_of(text), rp__str_of(config), t, err);
    free(text);
    return status;
}

static void check_refused(const char *path, const char *value, rp_status code, const char *part) {
    rp_error err = {0};
    rp__tokenizer *t;
    rp_status status = create(path, value, "", &t, &err);
    if (status != code)
        fail_msg("%s = %s: %s: %s", path, value, rp_status_name(status), err.message);
    assert_null(t);
    assert_message(err, "folder: ");
    assert_message(err, part);
}

RP_TEST(tokens, json_refuses_by_name) {
    const char *const steps[] = {"normalizer", "pre_tokenizer", "post_processor", "decoder"};
    for (size_t i = 0; i < 4; i++) {
        check_refused(steps[i], "{'type':'NoSuch'}", RP_EUNSUPPORTED, "\"NoSuch\"");
        check_refused(steps[i], "{'type':5}", RP_EUNSUPPORTED, "\"?\"");
    }
    check_refused("model.type", "'Unigram'", RP_EUNSUPPORTED, "tokenizer model \"Unigram\"");
    check_refused("model.type", "'WordPiece'", RP_EUNSUPPORTED, "tokenizer model \"WordPiece\"");
    check_refused("model.dropout", "0.1", RP_EUNSUPPORTED, "dropout");
    check_refused("model.end_of_word_suffix", "'</w>'", RP_EUNSUPPORTED, "end_of_word_suffix");
    check_refused("model.unk_token", "'zzz'", RP_EFORMAT, "unk_token \"zzz\"");
    check_refused("model.merges", "[]", RP_EFORMAT, "model.merges is missing");
    check_refused("model.merges", "['ab']", RP_EFORMAT, "merge 0 is not two parts");
    check_refused("model.merges", "[['a',5]]", RP_EFORMAT, "merge 0 is not two parts");
    check_refused("model.merges", "['a b','b b']", RP_EFORMAT, "merge 1 (\"b\" and \"b\")");
    check_refused("model.vocab", "{'a':0,'b':0}", RP_EFORMAT, "have the same id 0");
    check_refused("model.vocab", "{'a':4294967296}", RP_EFORMAT, "token \"a\" has no id below");
    check_refused("model.vocab", "{'a':-1}", RP_EFORMAT, "token \"a\" has no id below");
    check_refused("model.vocab", "{'a':'0'}", RP_EFORMAT, "token \"a\" has no id below");
    check_refused("model.vocab", "[]", RP_EFORMAT, "model.vocab");
    check_refused("model", "5", RP_EFORMAT, "model is missing");
    check_refused("added_tokens", "[{'id':1}]", RP_EFORMAT, "no content");
    check_refused("added_tokens", "[{'content':'x'}]", RP_EFORMAT, "token \"x\" has no id");
    check_refused("added_tokens", "[{'id':7,'content':'a'}]", RP_EFORMAT, "both \"a\"");
    check_refused("added_tokens", "{}", RP_EFORMAT, "added_tokens is no list");
    check_refused("decoder", "null", RP_EUNSUPPORTED, "decoder \"null\"");
    check_refused("pre_tokenizer",
                  "{'type':'Split','pattern':{'Regex':'x+'},'behavior':'Isolated'}",
                  RP_EUNSUPPORTED, "regex is not known: x+");
    check_refused(
        "pre_tokenizer",
        "{'type':'Split','pattern':{'Regex':'\\\\p{N}'},'behavior':'Removed','invert':true}",
        RP_EUNSUPPORTED, "Split with behavior \"Removed\"");
    check_refused("pre_tokenizer", "{'type':'ByteLevel'}", RP_EUNSUPPORTED, "decoder \"Replace\"");
    check_refused("post_processor",
                  "{'type':'TemplateProcessing','single':[{'SpecialToken':{'id':'<s>'}}],"
                  "'special_tokens':{'<s>':{'ids':[99]}}}",
                  RP_EFORMAT, "id 99 is outside the vocabulary of 7");
}

RP_TEST(tokens, json_refuses_other_texts) {
    const char *const bad[] = {"", "[]", "{", "{\"model\":1}", "{\"a\":\"\xFF\"}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        rp_error err = {0};
        rp__tokenizer *t;
        assert_int_equal(
            rp__tokenizer_create_json("folder", rp__str_of(bad[i]), (rp__str){0}, &t, &err),
            RP_EFORMAT);
        assert_message(err, "folder: ");
    }
    rp_error err = {0};
    rp__tokenizer *t;
    assert_int_equal(create("normalizer", "null", "{", &t, &err), RP_EFORMAT);
    assert_message(err, "tokenizer_config.json");
}

RP_TEST(tokens, json_configuration) {
    static const char template[] =
        "{'type':'TemplateProcessing','single':[{'SpecialToken':{'id':'<s>'}},{'Sequence':"
        "{'id':'A'}}],'special_tokens':{'<s>':{'ids':[5]}}}";
    rp_error err = {0};
    rp__tokenizer *t;
    /* The configuration names the tokens; what it says about BOS goes before the post-processor. */
    assert_ok(
        create(
            "post_processor", template,
            "{\"bos_token\":\"<s>\",\"eos_token\":{\"content\":\"</s>\"},\"add_bos_token\":false,"
            "\"add_eos_token\":true}",
            &t, &err),
        err);
    assert_int_equal(rp__tokenizer_bos(t), 5);
    assert_int_equal(rp__tokenizer_eos(t), 6);
    assert_false(rp__tokenizer_adds_bos(t));
    assert_true(rp__tokenizer_is_eog(t, 6) && !rp__tokenizer_is_eog(t, 5));
    rp__ids ids = vocab_encode(t, RP_STR("ab b"), true, true);
    assert_string_equal(vocab_ids_text(&ids), "3 4 2 6");
    rp__ids_clear(&ids);
    rp__tokenizer_destroy(t);
    /* Without one, the post-processor's first token is BOS. */
    assert_ok(create("post_processor", template, "", &t, &err), err);
    assert_int_equal(rp__tokenizer_bos(t), 5);
    assert_int_equal(rp__tokenizer_eos(t), -1);
    ids = vocab_encode(t, RP_STR("<s>abz"), true, true);
    assert_string_equal(vocab_ids_text(&ids), "5 3 0");
    rp__ids_clear(&ids);
    rp__tokenizer_destroy(t);
}

RP_TEST(tokens, json_every_allocation_may_fail) {
    static const char *const values[] = {
        "null",
        "{'type':'Metaspace','replacement':'\xE2\x96\x81','prepend_scheme':'first','split':true}",
        "{'type':'Digits','individual_digits':true}"};
    for (size_t k = 0; k < 3; k++) {
        char *text = with("pre_tokenizer", values[k]);
        rp_status status = RP_ENOMEM;
        for (uint64_t n = 1; status != RP_OK; n++) {
            rp_error err = {0};
            rp__tokenizer *t = NULL;
            rp__ids ids = {0};
            rp__encode_options o = {.parse_special = true, .add_special = true};
            rp__alloc_stats before = rp__alloc_get_stats();
            rp__alloc_fail_at(n, n & 1);
            status = rp__tokenizer_create_json("folder", rp__str_of(text), (rp__str){0}, &t, &err);
            if (status == RP_OK)
                status = rp__tokenizer_encode(t, RP_STR("ab 12 <s>b"), &o, &ids, &err);
            rp__alloc_fail_at(0, false);
            if (status != RP_OK) assert_int_equal(status, RP_ENOMEM);
            rp__ids_clear(&ids);
            rp__tokenizer_destroy(t);
            rp__alloc_stats after = rp__alloc_get_stats();
            assert_int_equal(after.n_allocs - before.n_allocs, after.n_frees - before.n_frees);
        }
        free(text);
    }
}
