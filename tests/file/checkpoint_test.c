#include "test.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "file/checkpoint.h"
#include "file/mapping.h"
#include "file/writer.h"

static void save_text(const char *dir, const char *name, const char *text) {
    rp_temp_write(rp_temp_path(dir, name), text, strlen(text));
}

static void save_weights(const char *dir, const char *name) {
    rp_writer w = {0};
    rp_safetensors_make(&w, "{\"w\":{\"dtype\":\"F16\",\"shape\":[2,3],\"data_offsets\":[0,12]}}",
                        12);
    rp_writer_save(&w, rp_temp_path(dir, name));
    rp_writer_clear(&w);
}

static void save_folder(const char *dir) {
    save_text(dir, "config.json", "{\"model_type\":\"llama\",\"hidden_size\":64}");
    save_text(dir, "generation_config.json", "{\"eos_token_id\":[1,2]}");
    save_text(dir, "tokenizer_config.json",
              "{\"model_max_length\":1000000000000000019884624838656,\"bos_token\":\"<s> "
              "99999999999999999999 \\\" 1\","
              "\"a\":9223372036854775807,\"b\":[12345678901234567890],\"c\":-1.5e3,\"d\":0."
              "12345678901234567890123}");
    save_text(dir, "tokenizer.json", "{\"version\":\"1.0\"}");
    save_text(dir, "chat_template.jinja", "{{ messages }}\n");
    save_weights(dir, "model.safetensors");
}

static rp__checkpoint *open_ok(const char *path) {
    rp_error err = {0};
    rp__checkpoint *c;
    assert_ok(rp__checkpoint_open(path, &c, &err), err);
    return c;
}

static void check_tensor(const rp__checkpoint *c) {
    rp__checkpoint_tensor t;
    assert_int_equal(rp__checkpoint_n_tensors(c), 1);
    assert_true(rp__checkpoint_tensor_at(c, 0, &t));
    assert_true(rp__str_is(t.name, "w"));
    assert_true(rp__checkpoint_find(c, "w", &t));
    assert_int_equal(t.dtype, RP_F16);
    assert_int_equal(t.n_dims, 2);
    assert_int_equal(t.dim[0], 2);
    assert_int_equal(t.dim[1], 3);
    assert_int_equal(t.bytes, 12);
    rp__checkpoint_drop_pages(c, &t);
    assert_int_equal(((const unsigned char *)t.data)[11], 11);
    assert_false(rp__checkpoint_tensor_at(c, 1, &t));
    assert_false(rp__checkpoint_find(c, "absent", &t));
}

RP_TEST(file, checkpoint_folder) {
    const char *dir = rp_temp_dir();
    save_folder(dir);
    rp__checkpoint *c = open_ok(dir);
    assert_string_equal(c->path, dir);
    assert_null(c->gguf);
    check_tensor(c);
    assert_int_equal(json_integer_value(json_object_get(c->config, "hidden_size")), 64);
    assert_int_equal(json_array_size(json_object_get(c->generation_config, "eos_token_id")), 2);
    assert_string_equal(c->tokenizer_json.p, "{\"version\":\"1.0\"}");
    assert_string_equal(c->chat_template.p, "{{ messages }}\n");
    rp__checkpoint_close(c);

    c = open_ok(rp_temp_path(dir, "model.safetensors")); /* the file stands for its folder */
    check_tensor(c);
    assert_non_null(c->config);
    rp__checkpoint_close(c);
    rp_temp_remove(dir);
}

RP_TEST(file, checkpoint_integers_beyond_64_bits_become_reals) {
    const char *dir = rp_temp_dir();
    save_folder(dir);
    rp__checkpoint *c = open_ok(dir);
    const json_t *t = c->tokenizer_config;
    double v = json_real_value(json_object_get(t, "model_max_length"));
    assert_true(v == 1e30);
    assert_string_equal(json_string_value(json_object_get(t, "bos_token")),
                        "<s> 99999999999999999999 \" 1");
    assert_true(json_integer_value(json_object_get(t, "a")) == INT64_MAX);
    assert_true(json_real_value(json_array_get(json_object_get(t, "b"), 0)) ==
                12345678901234567890.0);
    assert_true(json_real_value(json_object_get(t, "c")) == -1500.0);
    assert_true(json_real_value(json_object_get(t, "d")) == 0.12345678901234567890123);
    rp__checkpoint_close(c);
    rp_temp_remove(dir);
}

RP_TEST(file, checkpoint_needs_only_config_and_weights) {
    const char *dir = rp_temp_dir();
    save_text(dir, "config.json", "{}");
    save_weights(dir, "model-00001-of-00001.safetensors");
    save_text(dir, "model.safetensors.index.json",
              "{\"weight_map\":{\"w\":\"model-00001-of-00001.safetensors\"}}");
    const char *names[] = {".", "model.safetensors.index.json", "model-00001-of-00001.safetensors"};
    for (int i = 0; i < 3; i++) {
        rp__checkpoint *c = open_ok(rp_temp_path(dir, names[i]));
        check_tensor(c);
        assert_null(c->generation_config);
        assert_null(c->tokenizer_config);
        assert_int_equal(c->tokenizer_json.n, 0);
        assert_int_equal(c->chat_template.n, 0);
        rp__checkpoint_close(c);
    }
    rp_temp_remove(dir);
}

RP_TEST(file, checkpoint_gguf_by_its_first_bytes) {
    const char *dir = rp_temp_dir();
    rp_writer w = {0};
    unsigned char data[12] = {[11] = 11};
    rp_gguf_begin(&w, 3);
    rp_gguf_tensor(&w, "w", RP_F16, 2, (int64_t[]){2, 3}, data, sizeof data);
    rp_gguf_end(&w);
    rp_writer_save(&w, rp_temp_path(dir, "blob-without-an-ending"));
    rp_writer_clear(&w);
    rp__checkpoint *c = open_ok(rp_temp_path(dir, "blob-without-an-ending"));
    assert_non_null(c->gguf);
    assert_null(c->config);
    check_tensor(c);
    rp__checkpoint_close(c);
    rp_temp_remove(dir);
}

static void refuse(const char *path, rp_status code, const char *part) {
    rp_error err = {0};
    rp__checkpoint *c = (rp__checkpoint *)1;
    assert_int_equal(rp__checkpoint_open(path, &c, &err), code);
    assert_null(c);
    assert_message(err, part);
}

RP_TEST(file, checkpoint_says_what_is_missing) {
    const char *dir = rp_temp_dir();
    refuse(rp_temp_path(dir, "absent"), RP_ENOTFOUND, "absent: cannot open: No such file");
    refuse("", RP_ENOTFOUND, "cannot open");
    refuse(dir, RP_ENOTFOUND, "no config.json there");
    save_text(dir, "config.json", "{\"a\":1,}");
    refuse(dir, RP_EFORMAT, "config.json: offset 8:");
    save_text(dir, "config.json", "[1]");
    refuse(dir, RP_EFORMAT, "config.json: offset 0: a JSON object is wanted");
    save_text(dir, "config.json", "");
    refuse(dir, RP_EFORMAT, "config.json: offset 0:");
    save_text(dir, "config.json", "{}");
    refuse(dir, RP_ENOTFOUND,
           "no weights there: model.safetensors or model.safetensors.index.json is wanted");
    save_text(dir, "pytorch_model.bin", "x");
    refuse(dir, RP_EUNSUPPORTED, "weights in pickle form (pytorch_model.bin) are not supported");
    save_text(dir, "text.bin", "PK\x03\x04....");
    refuse(rp_temp_path(dir, "text.bin"), RP_EFORMAT,
           "not a GGUF file: it begins with 50 4b 03 04");
    save_text(dir, "empty.gguf", "");
    refuse(rp_temp_path(dir, "empty.gguf"), RP_EFORMAT, "empty.gguf: the file is empty");
    assert_int_equal(mkfifo(rp_temp_path(dir, "pipe"), 0600), 0);
    refuse(rp_temp_path(dir, "pipe"), RP_EINVAL,
           "is not a regular file"); /* and does not wait for a writer */
    refuse("/dev/zero", RP_EINVAL, "is not a regular file");
    rp_temp_remove(dir);
}

RP_TEST(file, files_have_a_limit) {
    const char *dir = rp_temp_dir();
    rp__bytes text;
    rp_error err = {0};
    save_text(dir, "t", "12345");
    assert_ok(rp__file_read(rp_temp_path(dir, "t"), 5, &text, &err), err);
    assert_string_equal(text.p, "12345");
    assert_int_equal(text.n, 5);
    rp__bytes_clear(&text);
    assert_int_equal(rp__file_read(rp_temp_path(dir, "t"), 4, &text, &err), RP_ELIMIT);
    assert_message(err, "5 bytes, at most 4");
    assert_null(text.p);
    assert_int_equal(rp__file_read(dir, 4, &text, &err), RP_EINVAL);
    assert_message(err, "is a directory");
    rp_temp_remove(dir);
}

RP_TEST(file, long_paths_keep_the_reason) {
    char path[400] = "/tmp/";
    rp_error err = {0};
    rp__mapping m;
    for (int i = 0; i < 40; i++) strcat(path, "\xC3\xA9/long/");
    assert_int_equal(rp__mapping_open(&m, path, &err), RP_ENOTFOUND);
    assert_message(err, "cannot open: No such file");
}

RP_TEST(file, checkpoint_out_of_memory_at_every_allocation) {
    const char *dir = rp_temp_dir();
    save_folder(dir);
    rp_error err = {0};
    for (int sticky = 0; sticky < 2; sticky++) {
        for (uint64_t n = 1;; n++) {
            assert_true(n < 1000);
            rp__alloc_stats before = rp__alloc_get_stats();
            rp__checkpoint *c;
            rp__alloc_fail_at(n, sticky);
            rp_status status = rp__checkpoint_open(dir, &c, &err);
            rp__alloc_fail_at(0, false);
            rp__alloc_stats after = rp__alloc_get_stats();
            if (status == RP_OK) {
                rp__checkpoint_close(c);
                assert_true(n > 15);
                break;
            }
            assert_int_equal(status, RP_ENOMEM);
            assert_null(c);
            assert_message(err, "out of memory");
            assert_int_equal(after.n_allocs - before.n_allocs, after.n_frees - before.n_frees);
        }
    }
    rp_temp_remove(dir);
}
