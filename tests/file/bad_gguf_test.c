/* The bad-file kit for GGUF: small files with one defect each. Every one is refused, in one
 * sentence that names file, place and value, quickly, and without memory for what the file only
 * claims. */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "file/bad.h"
#include "file/gguf_impl.h"
#include "file/writer.h"

static const unsigned char zeros[512];

/* A right file; `patch` spoils it. Tensors: "a" [2,4] F32 at 0, "q" [2,32] Q4_0 at 32, "z" [3,4]
 * F32 at 96. */
static void make_right(rp_writer *w) {
    rp_gguf_begin(w, 3);
    rp_gguf_str(w, "general.architecture", "llama");
    rp_gguf_tensor(w, "a", RP_F32, 2, (int64_t[]){2, 4}, zeros, 32);
    rp_gguf_tensor(w, "q", RP_Q4_0, 2, (int64_t[]){2, 32}, zeros, 36);
    rp_gguf_tensor(w, "z", RP_F32, 2, (int64_t[]){3, 4}, zeros, 48);
    rp_gguf_end(w);
}

static rp_status open_bytes(const void *p, size_t n, rp_error *err) {
    rp__gguf *g;
    rp_status status = rp__gguf_open_memory("bad.gguf", p, n, &g, err);
    if (status == RP_OK) rp__gguf_close(g);
    return status;
}

static void refuse(const rp_writer *w, rp_status code, const char *part) {
    rp_test_refuse(open_bytes, "bad.gguf: ", w->out.p, w->out.n, code, part);
}

RP_TEST(bad_gguf, the_unspoilt_file_opens) {
    rp_writer w = {0};
    rp_error err = {0};
    make_right(&w);
    assert_ok(open_bytes(w.out.p, w.out.n, &err), err);
    rp_writer_clear(&w);
}

/* ---- one number overwritten ---- */

static size_t at_file(const rp_writer *w) {
    return (void)w, 0;
}
static size_t at_dim0(const rp_writer *w) {
    return rp_gguf_at_dim(w, 0);
}
static size_t at_dim1(const rp_writer *w) {
    return rp_gguf_at_dim(w, 1);
}

typedef struct patch {
    size_t (*place)(const rp_writer *w); /* in the info of the last tensor, or the file's start */
    size_t plus;
    size_t bytes; /* 4 or 8 */
    uint64_t value;
    rp_status code;
    const char *message;
} patch;

static const patch patches[] = {
    /* header */
    {at_file, 0, 4, 0x46554746, RP_EFORMAT,
     "offset 0: not a GGUF file: it begins with 46 47 55 46"},
    {at_file, 4, 4, 0, RP_EUNSUPPORTED, "offset 4: GGUF version 0 is not supported (2 and 3 are)"},
    {at_file, 4, 4, 1, RP_EUNSUPPORTED, "offset 4: GGUF version 1 is not supported (2 and 3 are)"},
    {at_file, 4, 4, 4, RP_EUNSUPPORTED, "offset 4: GGUF version 4 is not supported (2 and 3 are)"},
    {at_file, 4, 4, 0x03000000, RP_EUNSUPPORTED, "offset 4: big-endian GGUF is not supported"},
    {at_file, 8, 8, (uint64_t)1 << 63, RP_EFORMAT,
     "offset 8: 9223372036854775808 tensors cannot be described"},
    {at_file, 8, 8, UINT64_MAX, RP_EFORMAT, "offset 8: 18446744073709551615 tensors"},
    /* the padding is read as a fourth info */
    {at_file, 8, 8, 4, RP_EFORMAT, "offset 192: a tensor's name is empty"},
    {at_file, 16, 8, (uint64_t)1 << 63, RP_EFORMAT,
     "offset 16: 9223372036854775808 keys cannot stand"},
    /* The first info is read as a uint16 key; infos then begin two bytes late: 2 << 48 is the
       dimension 2. */
    {at_file, 16, 8, 2, RP_EFORMAT,
     "offset 92: the file ends inside a tensor's name: 562949953421312 bytes needed"},
    {at_file, 24, 8, 0, RP_EFORMAT, "offset 24: a key is empty"},
    {at_file, 24, 8, 65536, RP_EFORMAT,
     "offset 32: the file ends inside a key: 65536 bytes needed"},
    {at_file, 24, 8, UINT64_MAX, RP_EFORMAT, "18446744073709551615 bytes needed"},
    {at_file, 52, 4, 13, RP_EFORMAT,
     "offset 52: key \"general.architecture\": no value has the type number 13"},
    {at_file, 52, 4, RP_GGUF_ARRAY, RP_EFORMAT, "key \"general.architecture\": "},
    {at_file, 56, 8, (uint64_t)1 << 30, RP_EFORMAT, "the file ends inside a string"},
    /* dimensions of "z" */
    {rp_gguf_at_n_dims, 0, 4, 0, RP_EFORMAT, "tensor \"z\": 1 to 4 dimensions are wanted, found 0"},
    {rp_gguf_at_n_dims, 0, 4, 5, RP_EFORMAT, "tensor \"z\": 1 to 4 dimensions are wanted, found 5"},
    {rp_gguf_at_n_dims, 0, 4, UINT32_MAX, RP_EFORMAT, "found 4294967295"},
    {at_dim0, 0, 8, 0, RP_EFORMAT, "tensor \"z\": it is empty: 0 stands in dimension 0"},
    {at_dim1, 0, 8, 0, RP_EFORMAT, "tensor \"z\": it is empty: 0 stands in dimension 1"},
    {at_dim1, 0, 8, 4, RP_EFORMAT,
     "tensor \"z\" lies outside the file: offset 96 and 64 bytes, but the data are 144"},
    {at_dim0, 0, 8, ((uint64_t)1 << 42) + 1, RP_EFORMAT, "tensor \"z\" lies outside the file"},
    {at_dim0, 0, 8, (uint64_t)1 << 61, RP_EFORMAT,
     "the number of bytes overflows: elements 6917529027641081856"},
    {at_dim0, 0, 8, (uint64_t)1 << 62, RP_EFORMAT,
     "the number of elements overflows at a dimension of 3"},
    {at_dim0, 0, 8, (uint64_t)1 << 63, RP_EFORMAT,
     "overflows at a dimension of 9223372036854775808"},
    {at_dim1, 0, 8, ((uint64_t)1 << 61) - 1, RP_EFORMAT, "the number of bytes overflows"},
    {at_dim1, 0, 8, UINT64_MAX, RP_EFORMAT, "overflows at a dimension of 18446744073709551615"},
    /* type of "z" [3,4] */
    {rp_gguf_at_type, 0, 4, 2, RP_EFORMAT,
     "a row of 4 elements does not fill whole blocks of 32 (Q4_0)"},
    {rp_gguf_at_type, 0, 4, 12, RP_EFORMAT,
     "a row of 4 elements does not fill whole blocks of 256 (Q4_K)"},
    {rp_gguf_at_type, 0, 4, 28, RP_EFORMAT,
     "tensor \"z\" lies outside the file: offset 96 and 96 bytes"},
    {rp_gguf_at_type, 0, 4, 16, RP_EUNSUPPORTED, "tensor \"z\": IQ2_XXS is not supported yet"},
    {rp_gguf_at_type, 0, 4, 39, RP_EUNSUPPORTED, "tensor \"z\": MXFP4 is not supported yet"},
    {rp_gguf_at_type, 0, 4, 4, RP_EUNSUPPORTED, "tensor \"z\": Q4_2 is not supported yet"},
    {rp_gguf_at_type, 0, 4, 1000, RP_EFORMAT, "tensor \"z\": no format has the type number 1000"},
    {rp_gguf_at_type, 0, 4, UINT32_MAX, RP_EFORMAT, "no format has the type number 4294967295"},
    /* offset of "z" */
    {rp_gguf_at_offset, 0, 8, 97, RP_EFORMAT,
     "tensor \"z\": its offset 97 is not a multiple of the alignment 32"},
    {rp_gguf_at_offset, 0, 8, 128, RP_EFORMAT,
     "tensor \"z\" lies outside the file: offset 128 and 48 bytes"},
    {rp_gguf_at_offset, 0, 8, (uint64_t)1 << 63, RP_EFORMAT,
     "lies outside the file: offset 9223372036854775808"},
    {rp_gguf_at_offset, 0, 8, UINT64_MAX - 31, RP_EFORMAT,
     "lies outside the file: offset 18446744073709551584"},
    {rp_gguf_at_offset, 0, 8, 0, RP_EFORMAT,
     "tensors \"a\" (offset 0, 32 bytes) and \"z\" (offset 0) overlap"},
    {rp_gguf_at_offset, 0, 8, 64, RP_EFORMAT,
     "tensors \"q\" (offset 32, 36 bytes) and \"z\" (offset 64) overlap"},
};

static void make_patched(rp_writer *w, const patch *p) {
    make_right(w);
    size_t at = p->place(w) + p->plus;
    if (p->bytes == 4)
        rp_set_u32(&w->out, at, (uint32_t)p->value);
    else
        rp_set_u64(&w->out, at, p->value);
}

RP_TEST(bad_gguf, one_number_wrong) {
    for (size_t i = 0; i < sizeof patches / sizeof *patches; i++) {
        rp_writer w = {0};
        make_patched(&w, &patches[i]);
        refuse(&w, patches[i].code, patches[i].message);
        rp_writer_clear(&w);
    }
}

RP_TEST(bad_gguf, one_number_wrong_takes_no_memory) {
    for (size_t i = 0; i < sizeof patches / sizeof *patches; i++) {
        rp_writer w = {0};
        make_patched(&w, &patches[i]);
        rp_test_bounded(open_bytes, w.out.p, w.out.n, patches[i].code);
        rp_writer_clear(&w);
    }
}

RP_TEST(bad_gguf, cut_anywhere) {
    rp_writer w = {0};
    make_right(&w);
    for (size_t n = 0; n < w.out.n; n++) {
        rp_error err = {0};
        void *copy = malloc(n ? n : 1); /* so that a sanitizer sees a read past the end */
        memcpy(copy, w.out.p, n);
        assert_int_equal(open_bytes(copy, n, &err), RP_EFORMAT);
        assert_message(err, "bad.gguf: offset ");
        free(copy);
    }
    rp_writer_clear(&w);
}

/* Any one byte changed: it opens or is refused, nothing else. */
RP_TEST(bad_gguf, any_byte_changed) {
    rp_writer w = {0};
    make_right(&w);
    for (size_t i = 0; i < w.out.n; i++) {
        for (int k = 0; k < 4; k++) {
            rp_error err = {0};
            char old = w.out.p[i];
            w.out.p[i] = (char)(k == 0 ? old + 1 : k == 1 ? old ^ 0x80 : k == 2 ? 0xFF : 0);
            rp_status status = open_bytes(w.out.p, w.out.n, &err);
            assert_true(status == RP_OK || status == RP_EFORMAT || status == RP_EUNSUPPORTED);
            w.out.p[i] = old;
        }
    }
    rp_writer_clear(&w);
}

/* ---- keys ---- */

RP_TEST(bad_gguf, keys) {
    rp_writer w = {0};
    rp_gguf_begin(&w, 3);
    rp_gguf_u32(&w, "twice", 1);
    rp_gguf_u32(&w, "twice", 2);
    rp_gguf_end(&w);
    refuse(&w, RP_EFORMAT, "offset 45: key \"twice\" is there twice");
    rp_writer_clear(&w);

    rp_gguf_begin(&w, 3);
    rp_gguf_u32(&w, "\xFF\xFE", 1);
    rp_gguf_end(&w);
    refuse(&w, RP_EFORMAT, "offset 24: a key is not readable text");
    rp_writer_clear(&w);

    rp_gguf_begin(&w, 3);
    rp_gguf_u32(&w, "x.x", 1);
    rp_gguf_end(&w);
    w.out.p[33] = 0;
    refuse(&w, RP_EFORMAT, "offset 24: a key is not readable text");
    rp_writer_clear(&w);

    rp_gguf_begin(&w, 3);
    rp_gguf_scalar(&w, "flag", RP_GGUF_BOOL, "\x02", 1);
    rp_gguf_end(&w);
    refuse(&w, RP_EFORMAT, "key \"flag\": a bool must be 0 or 1, found 2");
    rp_writer_clear(&w);

    static const uint32_t alignments[] = {0, 3, 33, UINT32_MAX};
    for (size_t i = 0; i < sizeof alignments / sizeof *alignments; i++) {
        rp_gguf_begin(&w, 3);
        rp_gguf_u32(&w, "general.alignment", alignments[i]);
        rp_gguf_end(&w);
        refuse(&w, RP_EFORMAT, ", not a power of two");
        rp_writer_clear(&w);
    }

    rp_gguf_begin(&w, 3);
    rp_gguf_str(&w, "general.alignment", "32");
    rp_gguf_end(&w);
    refuse(&w, RP_EFORMAT, "key \"general.alignment\" is of type string, uint32 is wanted");
    rp_writer_clear(&w);

    /* An alignment as large as the number allows moves the data beyond the file. */
    rp_gguf_begin(&w, 3);
    rp_gguf_u32(&w, "general.alignment", 0x80000000u);
    rp_gguf_tensor(&w, "a", RP_F32, 1, (int64_t[]){1}, zeros, 4);
    rp_gguf_end(&w);
    refuse(&w, RP_EFORMAT,
           "tensor \"a\" lies outside the file: offset 0 and 4 bytes, but the data are 0 bytes");
    rp_writer_clear(&w);
}

/* ---- arrays: claims of length ---- */

RP_TEST(bad_gguf, array_claims) {
    static const struct {
        rp__gguf_type item;
        uint64_t n;
        rp_status code;
        const char *message;
    } rows[] = {
        {RP_GGUF_STRING, 1 << 30, RP_EFORMAT,
         "too short for an array of this many strings: 1073741824"},
        {RP_GGUF_STRING, UINT64_MAX, RP_EFORMAT, "this many strings: 18446744073709551615"},
        {RP_GGUF_STRING, 2, RP_EFORMAT, "the file ends inside a string of an array"},
        {RP_GGUF_U8, (uint64_t)1 << 30, RP_EFORMAT,
         "too short for an array of this many values: 1073741824"},
        {RP_GGUF_F32, ((uint64_t)1 << 62) + 1, RP_EFORMAT,
         "this many values: 4611686018427387905"}, /* x 4 wraps */
        {RP_GGUF_U64, (uint64_t)1 << 61, RP_EFORMAT,
         "this many values: 2305843009213693952"}, /* x 8 wraps */
        {RP_GGUF_BOOL, 4, RP_EFORMAT, "key \"list\": a bool must be 0 or 1, found 255"},
        {RP_GGUF_ARRAY, 1, RP_EUNSUPPORTED, "key \"list\": arrays of arrays are not supported"},
        {(rp__gguf_type)99, 1, RP_EFORMAT, "key \"list\": no value has the type number 99"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        rp_writer w = {0};
        rp_gguf_begin(&w, 3);
        rp_gguf_array(&w, "list", rows[i].item, rows[i].n,
                      "\x01\0\0\0\0\0\0\0\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 16);
        if (rows[i].item == RP_GGUF_BOOL) memset(w.out.p + w.out.n - 16, 0xFF, 16);
        rp_gguf_end(&w);
        refuse(&w, rows[i].code, rows[i].message);
        rp_writer_clear(&w);
    }
}

/* The types of a vocabulary's arrays, as the loader asks for them. */
RP_TEST(bad_gguf, vocabulary_arrays_of_wrong_type) {
    rp_writer w = {0};
    rp_gguf_begin(&w, 3);
    rp_gguf_array(&w, "tokenizer.ggml.scores", RP_GGUF_U8, 4, "\1\2\3\4", 4);
    rp_gguf_strings(&w, "tokenizer.ggml.token_type", 1, (const char *[]){"1"});
    rp_gguf_array(&w, "tokenizer.ggml.tokens", RP_GGUF_I32, 1, "\1\0\0\0", 4);
    rp_gguf_end(&w);
    rp_error err = {0};
    rp__gguf *g;
    const rp__gguf_kv *kv;
    rp__str *s;
    size_t n;
    assert_ok(rp__gguf_open_memory("bad.gguf", w.out.p, w.out.n, &g, &err), err);
    assert_int_equal(rp__gguf_array(g, "tokenizer.ggml.scores", RP_GGUF_F32, &kv, &err),
                     RP_EFORMAT);
    assert_string_equal(
        err.message, "bad.gguf: key \"tokenizer.ggml.scores\" is of type array of uint8, array of "
                     "float32 is wanted");
    assert_int_equal(rp__gguf_array(g, "tokenizer.ggml.token_type", RP_GGUF_I32, &kv, &err),
                     RP_EFORMAT);
    assert_message(
        err,
        "key \"tokenizer.ggml.token_type\" is of type array of string, array of int32 is wanted");
    assert_int_equal(rp__gguf_strings(g, "tokenizer.ggml.tokens", &s, &n, &err), RP_EFORMAT);
    assert_message(
        err, "key \"tokenizer.ggml.tokens\" is of type array of int32, array of string is wanted");
    assert_int_equal(rp__gguf_strings(g, "tokenizer.ggml.merges", &s, &n, &err), RP_ENOTFOUND);
    assert_message(err, "key \"tokenizer.ggml.merges\" is missing");
    assert_null(s);
    rp__gguf_close(g);
    rp_writer_clear(&w);
}

/* ---- tensors ---- */

static void refuse_names(const char *first, const char *second, const char *part) {
    rp_writer w = {0};
    rp_gguf_begin(&w, 3);
    rp_gguf_tensor(&w, first, RP_F32, 1, (int64_t[]){8}, zeros, 32);
    rp_gguf_tensor(&w, second, RP_F32, 1, (int64_t[]){8}, zeros, 32);
    rp_gguf_end(&w);
    refuse(&w, RP_EFORMAT, part);
    rp_writer_clear(&w);
}

RP_TEST(bad_gguf, tensor_names) {
    refuse_names("same", "same", "tensor \"same\" is there twice");
    refuse_names("a", "", "a tensor's name is empty");
    refuse_names("a", "\xC3", "a tensor's name is not readable text");
    refuse_names("a", "0123456789012345678901234567890123456789012345678901234567890123X",
                 "a tensor's name has 65 bytes, at most 64 are allowed");
}

/* Many tensors whose sizes together exceed 2^64; each alone would be refused already. */
RP_TEST(bad_gguf, sum_of_sizes_wraps) {
    rp_writer w = {0};
    rp_gguf_begin(&w, 3);
    for (int i = 0; i < 16; i++) {
        char name[8];
        snprintf(name, sizeof name, "t%d", i);
        rp_gguf_tensor(&w, name, RP_F32, 1, (int64_t[]){(int64_t)1 << 58}, "", 0);
        rp_set_u64(&w.out, rp_gguf_at_offset(&w), (uint64_t)i << 60);
    }
    rp_gguf_end(&w);
    refuse(&w, RP_EFORMAT,
           "tensor \"t0\" lies outside the file: offset 0 and 1152921504606846976 bytes");
    rp_writer_clear(&w);
}

/* The data may lie in another order than the infos. */
RP_TEST(bad_gguf, tensors_out_of_order_are_legal) {
    rp_writer w = {0};
    rp_error err = {0};
    rp_gguf_begin(&w, 3);
    rp_gguf_tensor(&w, "b", RP_F32, 1, (int64_t[]){8}, zeros, 32);
    rp_set_u64(&w.out, rp_gguf_at_offset(&w), 32);
    rp_gguf_tensor(&w, "a", RP_F32, 1, (int64_t[]){8}, zeros, 32);
    rp_set_u64(&w.out, rp_gguf_at_offset(&w), 0);
    rp_gguf_end(&w);
    assert_ok(open_bytes(w.out.p, w.out.n, &err), err);
    rp_writer_clear(&w);
}

RP_TEST(bad_gguf, memory_follows_the_bytes_not_the_claims) {
    rp_writer w = {0};
    rp_gguf_begin(&w, 3);
    rp_gguf_array(&w, "list", RP_GGUF_STRING, (uint64_t)1 << 30, zeros, 100);
    rp_gguf_end(&w);
    rp_test_bounded(open_bytes, w.out.p, w.out.n, RP_EFORMAT);
    rp_writer_clear(&w);

    rp_gguf_begin(&w, 3);
    rp_gguf_str(&w, "name", "x");
    rp_set_u64(&w.out, 24 + 8 + 4 + 4, (uint64_t)1 << 30); /* a string of 1 GiB */
    rp_gguf_end(&w);
    rp_test_bounded(open_bytes, w.out.p, w.out.n, RP_EFORMAT);
    rp_writer_clear(&w);

    rp_gguf_begin(&w,
                  3); /* as many keys and tensors as the size could just hold, none of them real */
    for (int i = 0; i < 64; i++) assert_true(rp__bytes_add(&w.out, zeros, sizeof zeros));
    rp_set_u64(&w.out, 8, (w.out.n - 24) / 33);
    rp_set_u64(&w.out, 16, (w.out.n - 24) / 14);
    rp_test_bounded(open_bytes, w.out.p, w.out.n, RP_EFORMAT);
    rp_writer_clear(&w);
}
