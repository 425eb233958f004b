/* Right files: what is in them comes out. */
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "file/gguf_impl.h"
#include "file/writer.h"

static const float numbers[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};

static void make_small(rp_writer *w, uint32_t version) {
    rp_gguf_begin(w, version);
    rp_gguf_str(w, "general.architecture", "llama");
    rp_gguf_u32(w, "llama.block_count", 30);
    rp_gguf_f32(w, "llama.rope.freq_base", 10000.5f);
    rp_gguf_bool(w, "tokenizer.ggml.add_bos_token", true);
    rp_gguf_scalar(w, "a.i8", RP_GGUF_I8, &(int8_t){-5}, 1);
    rp_gguf_scalar(w, "a.u16", RP_GGUF_U16, &(uint16_t){65535}, 2);
    rp_gguf_scalar(w, "a.i16", RP_GGUF_I16, &(int16_t){-300}, 2);
    rp_gguf_scalar(w, "a.i32", RP_GGUF_I32, &(int32_t){-70000}, 4);
    rp_gguf_scalar(w, "a.i64", RP_GGUF_I64, &(int64_t){INT64_MIN}, 8);
    rp_gguf_scalar(w, "a.u64", RP_GGUF_U64, &(uint64_t){INT64_MAX}, 8);
    rp_gguf_scalar(w, "a.u64.big", RP_GGUF_U64, &(uint64_t){UINT64_MAX}, 8);
    rp_gguf_scalar(w, "a.f64", RP_GGUF_F64, &(double){0.1}, 8);
    rp_gguf_strings(w, "tokenizer.ggml.tokens", 3, (const char *[]){"<s>", "", "\xE2\x96\x81hi"});
    rp_gguf_array(w, "tokenizer.ggml.token_type", RP_GGUF_I32, 3, (int32_t[]){3, 1, -1}, 12);
    rp_gguf_array(w, "u32s", RP_GGUF_U32, 2, (uint32_t[]){7, 4000000000u}, 8);
    rp_gguf_array(w, "none", RP_GGUF_F32, 0, "", 0);
    rp_gguf_tensor(w, "a.weight", RP_F32, 2, (int64_t[]){3, 4}, numbers, sizeof numbers);
    rp_gguf_tensor(w, "b", RP_F16, 1, (int64_t[]){5}, numbers, 10);
    rp_gguf_end(w);
}

static rp__gguf *open_ok(const rp_writer *w) {
    rp_error err = {0};
    rp__gguf *g;
    assert_ok(rp__gguf_open_memory("small.gguf", w->out.p, w->out.n, &g, &err), err);
    return g;
}

RP_TEST(file, gguf_tensors_in_c_order) {
    for (uint32_t version = 2; version <= 3; version++) {
        rp_writer w = {0};
        make_small(&w, version);
        rp__gguf *g = open_ok(&w);
        assert_int_equal(rp__gguf_n_tensors(g), 2);
        const rp__gguf_tensor *t = rp__gguf_tensor_find(g, "a.weight");
        assert_non_null(t);
        assert_ptr_equal(t, rp__gguf_tensor_at(g, 0));
        assert_int_equal(t->n_dims, 2);
        assert_int_equal(t->dim[0], 3);
        assert_int_equal(t->dim[1], 4);
        assert_int_equal(t->dtype, RP_F32);
        assert_int_equal(t->bytes, sizeof numbers);
        assert_memory_equal(t->data, numbers, sizeof numbers);
        t = rp__gguf_tensor_find(g, "b");
        assert_int_equal(t->n_dims, 1);
        assert_int_equal(t->bytes, 10);
        assert_memory_equal(t->data, numbers, 10);
        assert_null(rp__gguf_tensor_find(g, "c"));
        assert_null(rp__gguf_tensor_at(g, 2));
        rp__gguf_close(g);
        rp_writer_clear(&w);
    }
}

static int64_t int_of(const rp__gguf *g, const char *key) {
    int64_t v;
    rp_error err = {0};
    assert_ok(rp__gguf_int(g, key, &v, &err), err);
    return v;
}

RP_TEST(file, gguf_values) {
    rp_writer w = {0};
    make_small(&w, 3);
    rp__gguf *g = open_ok(&w);
    rp_error err = {0};
    rp__str s;
    double d;
    bool b;
    assert_ok(rp__gguf_str(g, "general.architecture", &s, &err), err);
    assert_true(rp__str_is(s, "llama"));
    assert_int_equal(int_of(g, "llama.block_count"), 30);
    assert_int_equal(int_of(g, "a.i8"), -5);
    assert_int_equal(int_of(g, "a.u16"), 65535);
    assert_int_equal(int_of(g, "a.i16"), -300);
    assert_int_equal(int_of(g, "a.i32"), -70000);
    assert_true(int_of(g, "a.i64") == INT64_MIN);
    assert_true(int_of(g, "a.u64") == INT64_MAX);
    assert_ok(rp__gguf_float(g, "llama.rope.freq_base", &d, &err), err);
    assert_true(d == 10000.5);
    assert_ok(rp__gguf_float(g, "a.f64", &d, &err), err);
    assert_true(d == 0.1);
    assert_ok(rp__gguf_float(g, "a.i16", &d, &err), err); /* an integer is a number too */
    assert_true(d == -300);
    assert_ok(rp__gguf_float(g, "a.u64.big", &d, &err), err);
    assert_true(d == 0x1p64);
    assert_ok(rp__gguf_bool(g, "tokenizer.ggml.add_bos_token", &b, &err), err);
    assert_true(b);
    rp__gguf_close(g);
    rp_writer_clear(&w);
}

RP_TEST(file, gguf_wrong_types_name_key_found_and_wanted) {
    rp_writer w = {0};
    make_small(&w, 3);
    rp__gguf *g = open_ok(&w);
    rp_error err = {0};
    int64_t i;
    double d;
    bool b;
    rp__str s;
    const rp__gguf_kv *kv;
    assert_int_equal(rp__gguf_int(g, "absent", &i, &err), RP_ENOTFOUND);
    assert_message(err, "small.gguf: key \"absent\" is missing");
    assert_int_equal(rp__gguf_int(g, "general.architecture", &i, &err), RP_EFORMAT);
    assert_message(err, "key \"general.architecture\" is of type string, an integer is wanted");
    assert_int_equal(rp__gguf_int(g, "a.u64.big", &i, &err), RP_EFORMAT);
    assert_message(err, "18446744073709551615");
    assert_int_equal(rp__gguf_float(g, "u32s", &d, &err), RP_EFORMAT);
    assert_message(err, "key \"u32s\" is of type array of uint32, a number is wanted");
    assert_int_equal(rp__gguf_bool(g, "a.i8", &b, &err), RP_EFORMAT);
    assert_message(err, "is of type int8, bool is wanted");
    assert_int_equal(rp__gguf_str(g, "a.i8", &s, &err), RP_EFORMAT);
    assert_int_equal(rp__gguf_array(g, "a.i32", RP_GGUF_I32, &kv, &err), RP_EFORMAT);
    assert_message(err, "is of type int32, array of int32 is wanted");
    rp__gguf_close(g);
    rp_writer_clear(&w);
}

RP_TEST(file, gguf_arrays) {
    rp_writer w = {0};
    make_small(&w, 3);
    rp__gguf *g = open_ok(&w);
    rp_error err = {0};
    const rp__gguf_kv *kv;
    assert_ok(rp__gguf_array(g, "tokenizer.ggml.token_type", RP_GGUF_I32, &kv, &err), err);
    assert_int_equal(kv->n, 3);
    assert_true(rp__gguf_item_number(kv, 0) == 3 && rp__gguf_item_number(kv, 2) == -1);
    assert_ok(rp__gguf_array(g, "u32s", RP_GGUF_I32, &kv, &err), err);
    assert_true(rp__gguf_item_number(kv, 1) == 4000000000.0);
    assert_ok(rp__gguf_array(g, "none", RP_GGUF_F32, &kv, &err), err);
    assert_int_equal(kv->n, 0);
    rp__str *s;
    size_t n;
    assert_ok(rp__gguf_strings(g, "tokenizer.ggml.tokens", &s, &n, &err), err);
    assert_int_equal(n, 3);
    assert_true(rp__str_is(s[0], "<s>") && s[1].n == 0 && rp__str_is(s[2], "\xE2\x96\x81hi"));
    rp__free(s);
    rp__gguf_close(g);
    rp_writer_clear(&w);
}

RP_TEST(file, gguf_alignment_from_the_file) {
    rp_writer w = {0};
    rp_gguf_begin(&w, 3);
    w.alignment = 64;
    rp_gguf_u32(&w, "general.alignment", 64);
    rp_gguf_tensor(&w, "a", RP_F32, 1, (int64_t[]){1}, numbers + 3, 4);
    rp_gguf_tensor(&w, "b", RP_F32, 1, (int64_t[]){1}, numbers + 4, 4);
    rp_gguf_end(&w);
    rp__gguf *g = open_ok(&w);
    const rp__gguf_tensor *a = rp__gguf_tensor_at(g, 0), *b = rp__gguf_tensor_at(g, 1);
    assert_int_equal((const char *)b->data - (const char *)a->data, 64);
    assert_int_equal(((const char *)a->data - w.out.p) % 64, 0);
    assert_true(*(const float *)b->data == 4);
    rp__gguf_close(g);
    rp_writer_clear(&w);
}

RP_TEST(file, gguf_without_tensors_is_a_vocabulary) {
    rp_writer w = {0};
    rp_gguf_begin(&w, 3);
    rp_gguf_str(&w, "general.architecture", "x");
    rp_set_u64(&w.out, 16, 1); /* no padding follows: there are no data */
    rp__gguf *g = open_ok(&w);
    assert_int_equal(rp__gguf_n_tensors(g), 0);
    assert_int_equal(rp__gguf_n_kv(g), 1);
    rp__gguf_close(g);
    rp_writer_clear(&w);
}

RP_TEST(file, gguf_file_is_mapped_and_pages_can_go) {
    rp_writer w = {0};
    make_small(&w, 3);
    const char *dir = rp_temp_dir();
    char path[512];
    snprintf(path, sizeof path, "%s", rp_temp_path(dir, "small.gguf"));
    rp_writer_save(&w, path);
    rp_error err = {0};
    rp__gguf *g;
    assert_ok(rp__gguf_open(path, &g, &err), err);
    assert_string_equal(rp__gguf_path(g), path);
    const rp__gguf_tensor *t = rp__gguf_tensor_at(g, 0);
    rp__gguf_drop_pages(g, t);
    assert_memory_equal(t->data, numbers, sizeof numbers); /* they come back from the file */
    rp__gguf_close(g);
    rp_temp_remove(dir);
    rp_writer_clear(&w);
}

/* ---- splits ---- */

static void save_part(const char *dir, const char *name, int no, int count, int n_tensors) {
    rp_writer w = {0};
    char tensor[16];
    rp_gguf_begin(&w, 3);
    if (no == 0) rp_gguf_str(&w, "general.architecture", "llama");
    rp_gguf_scalar(&w, "split.no", RP_GGUF_U16, &(uint16_t){(uint16_t)no}, 2);
    rp_gguf_scalar(&w, "split.count", RP_GGUF_U16, &(uint16_t){(uint16_t)count}, 2);
    rp_gguf_scalar(&w, "split.tensors.count", RP_GGUF_I32, &n_tensors, 4);
    snprintf(tensor, sizeof tensor, "t%d", no);
    rp_gguf_tensor(&w, tensor, RP_F32, 1, (int64_t[]){1}, &numbers[no], 4);
    rp_gguf_end(&w);
    rp_writer_save(&w, rp_temp_path(dir, name));
    rp_writer_clear(&w);
}

static void save_split(const char *dir) {
    save_part(dir, "m-00001-of-00003.gguf", 0, 3, 3);
    save_part(dir, "m-00002-of-00003.gguf", 1, 3, 3);
    save_part(dir, "m-00003-of-00003.gguf", 2, 3, 3);
}

RP_TEST(file, gguf_split_opens_from_any_part) {
    const char *dir = rp_temp_dir();
    save_split(dir);
    const char *names[] = {"m-00001-of-00003.gguf", "m-00002-of-00003.gguf",
                           "m-00003-of-00003.gguf"};
    for (int i = 0; i < 3; i++) {
        rp_error err = {0};
        rp__gguf *g;
        rp__str s;
        assert_ok(rp__gguf_open(rp_temp_path(dir, names[i]), &g, &err), err);
        assert_ok(rp__gguf_str(g, "general.architecture", &s, &err), err);
        assert_int_equal(rp__gguf_n_tensors(g), 3);
        for (int k = 0; k < 3; k++) {
            const rp__gguf_tensor *t = rp__gguf_tensor_at(g, (size_t)k);
            assert_int_equal(t->part, k);
            assert_true(*(const float *)t->data == (float)k);
        }
        assert_string_equal(rp__gguf_path(g), rp_temp_path(dir, names[0]));
        rp__gguf_close(g);
    }
    rp_temp_remove(dir);
}

static void refuse_split(const char *dir, const char *name, rp_status code, const char *part) {
    rp_error err = {0};
    rp__gguf *g = (rp__gguf *)1;
    assert_int_equal(rp__gguf_open(rp_temp_path(dir, name), &g, &err), code);
    assert_null(g);
    assert_message(err, part);
}

RP_TEST(file, gguf_split_names_what_is_wrong) {
    const char *dir = rp_temp_dir();
    save_split(dir);
    unlink(rp_temp_path(dir, "m-00002-of-00003.gguf"));
    refuse_split(dir, "m-00003-of-00003.gguf", RP_ENOTFOUND,
                 "m-00002-of-00003.gguf is missing: part 2 of 3");

    save_part(dir, "m-00002-of-00003.gguf", 2, 3, 3);
    refuse_split(dir, "m-00001-of-00003.gguf", RP_EFORMAT, "says it is part 3 of 3");
    save_part(dir, "m-00002-of-00003.gguf", 1, 3, 4);
    refuse_split(dir, "m-00001-of-00003.gguf", RP_EFORMAT,
                 "\"split.tensors.count\" is 4, other parts say 3");
    save_part(dir, "m-00002-of-00003.gguf", 0, 3, 3);
    refuse_split(dir, "m-00001-of-00003.gguf", RP_EFORMAT, "\"t0\" is there twice");

    save_part(dir, "a-00001-of-00002.gguf", 0, 2, 5);
    save_part(dir, "a-00002-of-00002.gguf", 1, 2, 5);
    refuse_split(dir, "a-00001-of-00002.gguf", RP_EFORMAT,
                 "the parts have 2 tensors, key \"split.tensors.count\" says 5");
    save_part(dir, "renamed.gguf", 1, 3, 3);
    refuse_split(dir, "renamed.gguf", RP_EFORMAT,
                 "its name does not end in \"-00002-of-00003.gguf\"");
    save_part(dir, "b-00004-of-00003.gguf", 3, 3, 3);
    refuse_split(dir, "b-00004-of-00003.gguf", RP_EFORMAT,
                 "key \"split.no\" is 3, 0 to 2 are possible");
    rp_temp_remove(dir);
}

/* ---- speed and memory ---- */

RP_TEST(file, gguf_large_vocabulary_opens_without_an_allocation_per_string) {
    enum { N = 150000 };
    rp_writer w = {0};
    rp_gguf_begin(&w, 3);
    rp_gguf_array(&w, "tokenizer.ggml.tokens", RP_GGUF_STRING, N, "", 0);
    assert_true(rp__bytes_reserve(&w.out, (size_t)N * 24)); /* at most 24 bytes a token */
    for (int i = 0; i < N; i++) {
        char token[16];
        int n = snprintf(token, sizeof token, "tok%d", i);
        rp_put_u64(&w.out, (uint64_t)n);
        assert_true(rp__bytes_add(&w.out, token, (size_t)n));
    }
    rp_gguf_end(&w);
    uint64_t before = rp__alloc_get_stats().n_allocs;
    struct timespec t0, t1;
    clock_gettime(CLOCK_MONOTONIC, &t0);
    rp__gguf *g = open_ok(&w);
    clock_gettime(CLOCK_MONOTONIC, &t1);
    assert_true(rp__alloc_get_stats().n_allocs - before < 20);
    double ms = (double)(t1.tv_sec - t0.tv_sec) * 1e3 + (double)(t1.tv_nsec - t0.tv_nsec) / 1e6;
    assert_true(
        ms < 200); /* some milliseconds are usual; the rest is for sanitizers and busy machines */
    rp__gguf_close(g);
    rp_writer_clear(&w);
}

/* Fails each allocation of an open in turn: a clean status each time, and nothing left behind. */
static void open_with_failures(const char *path, bool sticky) {
    rp_error err = {0};
    for (uint64_t n = 1;; n++) {
        assert_true(n < 1000);
        rp__alloc_stats before = rp__alloc_get_stats();
        rp__gguf *g;
        rp__alloc_fail_at(n, sticky);
        rp_status status = rp__gguf_open(path, &g, &err);
        rp__alloc_fail_at(0, false);
        rp__alloc_stats after = rp__alloc_get_stats();
        if (status == RP_OK) {
            rp__gguf_close(g);
            assert_true(n > 5); /* some did fail */
            return;
        }
        assert_int_equal(status, RP_ENOMEM);
        assert_null(g);
        assert_message(err, "out of memory");
        assert_int_equal(after.n_allocs - before.n_allocs, after.n_frees - before.n_frees);
    }
}

RP_TEST(file, gguf_out_of_memory_at_every_allocation) {
    const char *dir = rp_temp_dir();
    rp_writer w = {0};
    make_small(&w, 3);
    rp_writer_save(&w, rp_temp_path(dir, "small.gguf"));
    save_split(dir);
    for (int sticky = 0; sticky < 2; sticky++) {
        open_with_failures(rp_temp_path(dir, "small.gguf"), sticky);
        open_with_failures(rp_temp_path(dir, "m-00002-of-00003.gguf"), sticky);
    }
    rp__gguf *g = open_ok(&w);
    rp_error err = {0};
    rp__str *s;
    size_t n;
    rp__alloc_fail_at(1, false);
    assert_int_equal(rp__gguf_strings(g, "tokenizer.ggml.tokens", &s, &n, &err), RP_ENOMEM);
    assert_null(s);
    rp__alloc_fail_at(0, false);
    rp__gguf_close(g);
    rp_writer_clear(&w);
    rp_temp_remove(dir);
}
