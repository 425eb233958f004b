/* Right files, shards, and out of memory. */
#include "test.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "file/safetensors_impl.h"
#include "file/writer.h"

static const char two_tensors[] =
    "{\"__metadata__\":{\"format\":\"pt\"},"
    "\"model.b\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[8,20]},"
    "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}";

static rp__safetensors *open_ok(const char *header, size_t n_data, rp_writer *w) {
    rp_error err = {0};
    rp__safetensors *s;
    rp_safetensors_make(w, header, n_data);
    assert_ok(rp__safetensors_open_memory("m.safetensors", w->out.p, w->out.n, &s, &err), err);
    return s;
}

RP_TEST(file, safetensors_tensors) {
    rp_writer w = {0};
    rp__safetensors *s = open_ok(two_tensors, 20, &w);
    assert_int_equal(rp__safetensors_n_tensors(s), 2);
    const rp__safetensors_tensor *b = rp__safetensors_find(s, "model.b"),
                                 *a = rp__safetensors_find(s, "a");
    assert_ptr_equal(b, rp__safetensors_at(s, 0)); /* in the header's order */
    assert_ptr_equal(a, rp__safetensors_at(s, 1));
    assert_null(rp__safetensors_at(s, 2));
    assert_null(rp__safetensors_find(s, "__metadata__"));
    assert_int_equal(b->dtype, RP_BF16);
    assert_int_equal(b->n_dims, 2);
    assert_int_equal(b->dim[0], 2);
    assert_int_equal(b->dim[1], 3);
    assert_int_equal(b->bytes, 12);
    assert_int_equal(*(const unsigned char *)b->data, 8); /* the data are 0, 1, 2, ... */
    assert_int_equal(*(const unsigned char *)a->data, 0);
    rp__safetensors_close(s);
    rp_writer_clear(&w);
}

RP_TEST(file, safetensors_every_dtype) {
    static const struct {
        const char *name;
        size_t bytes;
        rp_dtype dtype;
    } rows[] = {{"F64", 8, RP_F64}, {"F32", 4, RP_F32}, {"F16", 2, RP_F16}, {"BF16", 2, RP_BF16},
                {"I64", 8, RP_I64}, {"I32", 4, RP_I32}, {"I16", 2, RP_I16}, {"I8", 1, RP_I8},
                {"U8", 1, RP_U8},   {"BOOL", 1, RP_U8}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        rp_writer w = {0};
        char header[128];
        snprintf(header, sizeof header,
                 "{\"x\":{\"dtype\":\"%s\",\"shape\":[3],\"data_offsets\":[0,%zu]}}", rows[i].name,
                 3 * rows[i].bytes);
        rp__safetensors *s = open_ok(header, 3 * rows[i].bytes, &w);
        assert_int_equal(rp__safetensors_at(s, 0)->dtype, rows[i].dtype);
        assert_int_equal(rp__safetensors_at(s, 0)->bytes, 3 * rows[i].bytes);
        rp__safetensors_close(s);
        rp_writer_clear(&w);
    }
}

RP_TEST(file, safetensors_odd_but_legal) {
    rp_writer w = {0};
    rp__safetensors *s = open_ok("{\"__metadata__\":{\"only\":\"this\"}}", 0, &w);
    assert_int_equal(rp__safetensors_n_tensors(s), 0);
    rp__safetensors_close(s);
    rp_writer_clear(&w);

    s = open_ok("{}      \n  ", 0, &w); /* padded to a multiple of eight by some writers */
    assert_int_equal(rp__safetensors_n_tensors(s), 0);
    rp__safetensors_close(s);
    rp_writer_clear(&w);

    s = open_ok("{\"s\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}   ", 4,
                &w); /* a scalar */
    assert_int_equal(rp__safetensors_at(s, 0)->n_dims, 0);
    assert_int_equal(rp__safetensors_at(s, 0)->bytes, 4);
    rp__safetensors_close(s);
    rp_writer_clear(&w);

    s = open_ok("{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
                "\"e\":{\"dtype\":\"F32\",\"shape\":[0,7],\"data_offsets\":[4,4]},"
                "\"f\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}",
                4, &w); /* nothing in them */
    assert_int_equal(rp__safetensors_find(s, "e")->bytes, 0);
    assert_int_equal(rp__safetensors_find(s, "e")->dim[1], 7);
    rp__safetensors_close(s);
    rp_writer_clear(&w);

    /* an escaped name, and a field from some future */
    s = open_ok(
        "{\"\\u0061\\n\":{\"new\":[1],\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
        &w);
    assert_non_null(rp__safetensors_find(s, "a\n"));
    rp__safetensors_close(s);
    rp_writer_clear(&w);
}

/* ---- shards ---- */

static void save_shard(const char *dir, const char *name, const char *tensor) {
    rp_writer w = {0};
    char header[160];
    snprintf(header, sizeof header,
             "{\"%s\":{\"dtype\":\"U8\",\"shape\":[2,2],\"data_offsets\":[0,4]}}", tensor);
    rp_safetensors_make(&w, header, 4);
    rp_writer_save(&w, rp_temp_path(dir, name));
    rp_writer_clear(&w);
}

static const char index_name[] = "model.safetensors.index.json";

static void save_index(const char *dir, const char *text) {
    rp_temp_write(rp_temp_path(dir, index_name), text, strlen(text));
}

static void save_set(const char *dir) {
    save_shard(dir, "1.safetensors", "a");
    save_shard(dir, "2.safetensors", "b");
    save_index(dir, "{\"metadata\":{\"total_size\":8},"
                    "\"weight_map\":{\"b\":\"2.safetensors\",\"a\":\"1.safetensors\"}}");
}

RP_TEST(file, safetensors_shards) {
    const char *dir = rp_temp_dir();
    save_set(dir);
    rp_error err = {0};
    rp__safetensors *s;
    assert_ok(rp__safetensors_open(rp_temp_path(dir, index_name), &s, &err), err);
    assert_int_equal(rp__safetensors_n_tensors(s), 2);
    assert_non_null(rp__safetensors_find(s, "a"));
    const rp__safetensors_tensor *b = rp__safetensors_find(s, "b");
    rp__safetensors_drop_pages(s, b);
    assert_int_equal(((const unsigned char *)b->data)[3], 3);
    rp__safetensors_close(s);
    rp_temp_remove(dir);
}

static void refuse_index(const char *dir, const char *text, rp_status code, const char *part) {
    rp_error err = {0};
    rp__safetensors *s = (rp__safetensors *)1;
    save_index(dir, text);
    assert_int_equal(rp__safetensors_open(rp_temp_path(dir, index_name), &s, &err), code);
    assert_null(s);
    assert_message(err, part);
}

RP_TEST(file, safetensors_index_names_what_is_wrong) {
    const char *dir = rp_temp_dir();
    save_set(dir);
    refuse_index(dir, "{\"weight_map\":{\"a\":\"3.safetensors\"}}", RP_ENOTFOUND,
                 "3.safetensors is missing");
    refuse_index(dir, "{\"weight_map\":{\"c\":\"1.safetensors\"}}", RP_EFORMAT,
                 "puts tensor \"c\" into 1.safetensors, it is not there");
    refuse_index(dir, "{\"weight_map\":{\"a\":\"2.safetensors\",\"b\":\"1.safetensors\"}}",
                 RP_EFORMAT, "it is not there");
    refuse_index(dir, "{\"weight_map\":{\"a\":\"../1.safetensors\"}}", RP_EFORMAT,
                 "the same folder");
    refuse_index(dir, "{\"weight_map\":{\"a\":\"/etc/passwd\"}}", RP_EFORMAT, "the same folder");
    refuse_index(dir, "{\"weight_map\":{\"a\":\"\"}}", RP_EFORMAT, "the same folder");
    refuse_index(dir, "{\"weight_map\":{\"a\":7}}", RP_EFORMAT, "the same folder");
    refuse_index(dir, "{\"weight_map\":{}}", RP_EFORMAT, "\"weight_map\" is missing or empty");
    refuse_index(dir, "{}", RP_EFORMAT, "\"weight_map\" is missing or empty");
    refuse_index(dir, "[]", RP_EFORMAT, "a JSON object is wanted");
    refuse_index(dir, "{\"weight_map\":", RP_EFORMAT, "offset 14");
    save_shard(dir, "2.safetensors", "a"); /* the same tensor in both */
    refuse_index(dir, "{\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"2.safetensors\"}}",
                 RP_EFORMAT, "tensor \"a\": is in another file of the set too");
    rp_temp_remove(dir);
}

/* ---- out of memory ---- */

static void open_with_failures(const char *path, bool sticky) {
    rp_error err = {0};
    for (uint64_t n = 1;; n++) {
        assert_true(n < 1000);
        rp__alloc_stats before = rp__alloc_get_stats();
        rp__safetensors *s;
        rp__alloc_fail_at(n, sticky);
        rp_status status = rp__safetensors_open(path, &s, &err);
        rp__alloc_fail_at(0, false);
        rp__alloc_stats after = rp__alloc_get_stats();
        if (status == RP_OK) {
            rp__safetensors_close(s);
            assert_true(n > 5);
            return;
        }
        assert_int_equal(status, RP_ENOMEM);
        assert_null(s);
        assert_message(err, "out of memory");
        assert_int_equal(after.n_allocs - before.n_allocs, after.n_frees - before.n_frees);
    }
}

RP_TEST(file, safetensors_out_of_memory_at_every_allocation) {
    const char *dir = rp_temp_dir();
    save_set(dir);
    for (int sticky = 0; sticky < 2; sticky++) {
        open_with_failures(rp_temp_path(dir, "1.safetensors"), sticky);
        open_with_failures(rp_temp_path(dir, index_name), sticky);
    }
    rp_temp_remove(dir);
}
