/* The bad-file kit for safetensors: see bad_gguf_test.c. */
#include "test.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "file/bad.h"
#include "file/safetensors_impl.h"
#include "file/writer.h"

static rp_status open_bytes(const void *p, size_t n, rp_error *err) {
    rp__safetensors *s;
    rp_status status = rp__safetensors_open_memory("bad.safetensors", p, n, &s, err);
    if (status == RP_OK) rp__safetensors_close(s);
    return status;
}

static void refuse(const rp_writer *w, rp_status code, const char *part) {
    rp_test_refuse(open_bytes, "bad.safetensors: ", w->out.p, w->out.n, code, part);
}

#define X(dtype, shape, offsets)                                                                   \
    "{\"x\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}}"
#define A          "\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}"
#define B(offsets) "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":" offsets "}"

RP_TEST(bad_safetensors, headers) {
    static const struct {
        const char *header;
        size_t n_data;
        rp_status code;
        const char *message;
    } rows[] = {
        {"[]", 0, RP_EFORMAT, "offset 8: the header begins with byte 0x5b, not with \"{\""},
        {" {}", 0, RP_EFORMAT, "offset 8: the header begins with byte 0x20"},
        {"{}}", 0, RP_EFORMAT, "end of file expected near '}' (JSON)"},
        {"{\"x\":", 0, RP_EFORMAT, "(JSON)"},
        {"{\"x\xFF\":1}", 0, RP_EFORMAT, "unable to decode byte 0xff"},
        {"{" A "," A "}", 4, RP_EFORMAT, "duplicate object key near '\"a\"'"},
        {"{\"a\\u0000b\":{}}", 0, RP_EFORMAT, "NUL byte in object key"},
        {"{\"x\":7}", 0, RP_EFORMAT, "tensor \"x\": is not described by an object"},
        {"{\"\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4, RP_EFORMAT,
         "the name is empty"},
        {"{\"__metadata__\":[]}", 0, RP_EFORMAT, "\"__metadata__\" is not an object"},
        {"{\"__metadata__\":{\"n\":1}}", 0, RP_EFORMAT, "\"__metadata__\".\"n\" is not a string"},
        /* dtype */
        {"{\"x\":{\"shape\":[4],\"data_offsets\":[0,4]}}", 4, RP_EFORMAT,
         "\"dtype\" is missing or not a string"},
        {"{\"x\":{\"dtype\":3,\"shape\":[4],\"data_offsets\":[0,4]}}", 4, RP_EFORMAT,
         "\"dtype\" is missing"},
        {X("F33", "[1]", "[0,4]"), 4, RP_EFORMAT, "tensor \"x\": unknown dtype \"F33\""},
        {X("f32", "[1]", "[0,4]"), 4, RP_EFORMAT, "unknown dtype \"f32\""},
        {X("F8_E4M3", "[4]", "[0,4]"), 4, RP_EUNSUPPORTED,
         "tensor \"x\": dtype F8_E4M3 is not supported yet"},
        {X("U64", "[1]", "[0,8]"), 8, RP_EUNSUPPORTED, "dtype U64 is not supported yet"},
        /* shape */
        {"{\"x\":{\"dtype\":\"U8\",\"data_offsets\":[0,4]}}", 4, RP_EFORMAT,
         "\"shape\" is missing or not an array"},
        {X("U8", "4", "[0,4]"), 4, RP_EFORMAT, "\"shape\" is missing or not an array"},
        {X("U8", "[-4]", "[0,4]"), 4, RP_EFORMAT, "\"shape\"[0] is not an integer from 0 on"},
        {X("U8", "[2,2.0]", "[0,4]"), 4, RP_EFORMAT, "\"shape\"[1] is not an integer from 0 on"},
        {X("U8", "[1,1,1,1,4]", "[0,4]"), 4, RP_EUNSUPPORTED,
         "5 dimensions, at most 4 are supported"},
        {X("U8", "[4611686018427387904,4]", "[0,4]"), 4, RP_EFORMAT,
         "elements overflows at \"shape\"[1] of 4"},
        {X("F64", "[4398046511105,1048576]", "[0,4]"), 4, RP_EFORMAT,
         "the number of bytes overflows"},
        {X("U8", "[9223372036854775808]", "[0,4]"), 4, RP_EFORMAT, "too big integer"},
        {X("F32", "[2]", "[0,4]"), 4, RP_EFORMAT,
         "[0, 4] hold 4 bytes, dtype F32 and shape need 8"},
        {X("F32", "[0]", "[0,4]"), 4, RP_EFORMAT,
         "[0, 4] hold 4 bytes, dtype F32 and shape need 0"},
        /* offsets */
        {"{\"x\":{\"dtype\":\"U8\",\"shape\":[4]}}", 4, RP_EFORMAT,
         "\"data_offsets\" must be two integers"},
        {X("U8", "[4]", "[0]"), 4, RP_EFORMAT, "\"data_offsets\" must be two integers"},
        {X("U8", "[4]", "[0,4,8]"), 4, RP_EFORMAT, "\"data_offsets\" must be two integers"},
        {X("U8", "[4]", "[-4,0]"), 4, RP_EFORMAT,
         "\"data_offsets\" must be two integers from 0 on"},
        {X("U8", "[4]", "[\"0\",4]"), 4, RP_EFORMAT, "\"data_offsets\" must be two integers"},
        {X("U8", "[4]", "[4,0]"), 4, RP_EFORMAT, "\"data_offsets\" [4, 0] are reversed"},
        {X("U8", "[5]", "[0,5]"), 4, RP_EFORMAT,
         "lies outside the file: \"data_offsets\" [0, 5], but the data are 4"},
        {X("U8", "[4]", "[9223372036854775803,9223372036854775807]"), 4, RP_EFORMAT,
         "lies outside the file"},
        {"{" A "," B("[3,7]") "}", 8, RP_EFORMAT, "tensor \"b\": overlaps \"a\": it begins at 3"},
        {"{" A "," B("[0,4]") "}", 4, RP_EFORMAT, "tensor \"b\": overlaps \"a\": it begins at 0"},
        {"{" A "," B("[5,9]") "}", 9, RP_EFORMAT,
         "tensor \"b\": a hole of 1 bytes lies before it, at 4"},
        {"{" B("[2,6]") "}", 6, RP_EFORMAT, "tensor \"b\": a hole of 2 bytes lies before it, at 0"},
        {"{" A "}", 5, RP_EFORMAT,
         "the tensors end at 4, the data at 5: bytes that belong to no tensor"},
        {"{}", 3, RP_EFORMAT, "the tensors end at 0, the data at 3"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        rp_writer w = {0};
        rp_safetensors_make(&w, rows[i].header, rows[i].n_data);
        refuse(&w, rows[i].code, rows[i].message);
        rp_writer_clear(&w);
    }
}

RP_TEST(bad_safetensors, header_lengths) {
    static const struct {
        uint64_t n;
        rp_status code;
        const char *message;
    } rows[] = {
        {0, RP_EFORMAT, "offset 0: a header of 0 bytes is too short"},
        {1, RP_EFORMAT, "offset 0: a header of 1 bytes is too short"},
        {3, RP_EFORMAT, "offset 0: a header of 3 bytes in a file of 10"},
        {100000000, RP_EFORMAT, "offset 0: a header of 100000000 bytes in a file of 10"},
        {100000001, RP_ELIMIT, "a header of 100000001 bytes, at most 100000000 are allowed"},
        {(uint64_t)1 << 63, RP_ELIMIT, "a header of 9223372036854775808 bytes"},
        {UINT64_MAX, RP_ELIMIT, "a header of 18446744073709551615 bytes"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        rp_writer w = {0};
        rp_safetensors_make(&w, "{}", 0);
        rp_set_u64(&w.out, 0, rows[i].n);
        refuse(&w, rows[i].code, rows[i].message);
        rp_test_bounded(open_bytes, w.out.p, w.out.n, rows[i].code);
        rp_writer_clear(&w);
    }
    for (size_t n = 0; n < 8; n++)
        rp_test_refuse(open_bytes, "bad.safetensors: ", "\2\0\0\0\0\0\0", n, RP_EFORMAT,
                       "the header's length takes 8");
}

/* A file that is really as large as its header says, without taking the disk space. */
RP_TEST(bad_safetensors, header_of_126_mb) {
    const char *dir = rp_temp_dir(), *path = rp_temp_path(dir, "large.safetensors");
    int fd = open(path, O_CREAT | O_RDWR, 0600);
    uint64_t n = 126000000;
    assert_int_equal(pwrite(fd, &n, sizeof n, 0), sizeof n);
    assert_int_equal(pwrite(fd, "{", 1, 8), 1);
    assert_int_equal(ftruncate(fd, 126000100), 0);
    close(fd);
    rp_error err = {0};
    rp__safetensors *s;
    assert_int_equal(rp__safetensors_open(path, &s, &err), RP_ELIMIT);
    assert_message(
        err,
        "large.safetensors: offset 0: a header of 126000000 bytes, at most 100000000 are allowed");
    rp_temp_remove(dir);
}

/* Nesting is refused before a parser calls itself that deep. */
RP_TEST(bad_safetensors, nesting) {
    enum { DEPTH = 100000 };
    static const char *const opens[] = {"[", "{\"a\":"};
    for (int k = 0; k < 2; k++) {
        rp_writer w = {0};
        rp__bytes header = {0};
        rp__bytes_add_str(&header, "{\"x\":");
        for (int i = 0; i < DEPTH; i++) rp__bytes_add_str(&header, opens[k]);
        assert_false(header.failed);
        rp_safetensors_make(&w, header.p, 0);
        rp_error err = {0};
        assert_int_equal(open_bytes(w.out.p, w.out.n, &err), RP_EFORMAT);
        assert_message(err, "JSON nested deeper than 16 levels");
        rp__bytes_clear(&header);
        rp_writer_clear(&w);
    }
    /* Brackets inside strings are text. */
    rp_writer w = {0};
    rp_error err = {0};
    rp_safetensors_make(&w, "{\"__metadata__\":{\"k\":\"[[[[[[[[[[[[[[[[[[[[[[\\\"{{{{\"}}", 0);
    assert_ok(open_bytes(w.out.p, w.out.n, &err), err);
    rp_writer_clear(&w);
}

RP_TEST(bad_safetensors, cut_anywhere_and_any_byte_changed) {
    rp_writer w = {0};
    rp_error err = {0};
    rp_safetensors_make(&w, "{" A "," B("[4,8]") "}", 8);
    assert_ok(open_bytes(w.out.p, w.out.n, &err), err);
    for (size_t n = 0; n < w.out.n; n++) {
        void *copy = malloc(n ? n : 1);
        memcpy(copy, w.out.p, n);
        assert_int_equal(open_bytes(copy, n, &err), RP_EFORMAT);
        free(copy);
    }
    for (size_t i = 0; i < w.out.n; i++) {
        char old = w.out.p[i];
        for (int v = 0; v < 256; v += 5) {
            w.out.p[i] = (char)v;
            rp_status status = open_bytes(w.out.p, w.out.n, &err);
            assert_true(status == RP_OK || status == RP_EFORMAT || status == RP_EUNSUPPORTED ||
                        status == RP_ELIMIT);
        }
        w.out.p[i] = old;
    }
    rp_writer_clear(&w);
}
