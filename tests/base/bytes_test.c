#include "test.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/arena.h"
#include "base/bytes.h"
#include "base/fail.h"
#include "base/map.h"
#include "base/utf8.h"

RP_TEST(base, bytes_append_and_fail_on_demand) {
    rp__bytes b = {0};
    assert_true(rp__bytes_printf(&b, "%d-%s", 42, "x"));
    assert_true(rp__bytes_add_char(&b, '!'));
    assert_string_equal(b.p, "42-x!");
    rp__alloc_fail_at(1, false);
    assert_false(rp__bytes_reserve(&b, 1000));
    assert_true(b.failed);
    assert_string_equal(b.p, "42-x!"); /* a failed append loses nothing */
    rp__alloc_fail_at(0, false);
    rp__bytes_clear(&b);
}

RP_TEST(base, arena_aligns_and_keeps) {
    rp__arena a = {0};
    char *first = rp__arena_strndup(&a, "hello", 5);
    for (int i = 1; i < 2000; i++) {
        unsigned char *p = rp__arena_alloc(&a, (size_t)i);
        assert_int_equal((uintptr_t)p % 16, 0);
        memset(p, i, (size_t)i);
    }
    assert_string_equal(first, "hello");
    assert_null(rp__arena_calloc(&a, SIZE_MAX / 2, 3));
    rp__arena_clear(&a);
}

RP_TEST(base, map_holds_many_keys) {
    rp__map m = {0};
    static char keys[5000][8];
    for (int i = 0; i < 5000; i++) {
        snprintf(keys[i], sizeof keys[i], "k%d", i);
        assert_true(rp__map_put(&m, rp__str_of(keys[i]), (uint64_t)i));
    }
    assert_true(rp__map_put(&m, RP_STR("k7"), 70));
    uint64_t v;
    for (int i = 0; i < 5000; i++) {
        assert_true(rp__map_get(&m, rp__str_of(keys[i]), &v));
        assert_int_equal(v, i == 7 ? 70 : i);
    }
    assert_false(rp__map_get(&m, RP_STR("absent"), &v));
    assert_int_equal(m.n, 5000);
    rp__map_clear(&m);
}

RP_TEST(base, error_sentence_is_one_printable_line) {
    rp_error err = {0};
    assert_int_equal(rp__fail(&err, RP_EFORMAT, "key \"%s\" is bad", "a\nb\x01"), RP_EFORMAT);
    assert_string_equal(err.message, "key \"a?b?\" is bad");
    rp__fail_context(&err, RP_EIO, "model.gguf");
    assert_string_equal(err.message, "model.gguf: key \"a?b?\" is bad");
    assert_int_equal(err.code, RP_EFORMAT);
    char longer[2000];
    memset(longer, 0, sizeof longer);
    for (int i = 0; i < 600; i++) memcpy(longer + 2 * i, "\xC3\xA9", 2);
    rp__fail(&err, RP_EINVAL, "x%s", longer);
    assert_true(rp__utf8_valid(err.message, strlen(err.message)));
}

RP_TEST(base, status_table) {
    assert_string_equal(rp_status_name(RP_ECAPTURE_HOST), "RP_ECAPTURE_HOST");
    assert_int_equal(rp_status_http(RP_EINVAL), 400);
    assert_int_equal(rp_status_http(RP_EDEVICE_LOST), 503);
    assert_string_equal(rp_status_name((rp_status)12345), "RP_EINTERNAL");
}

RP_TEST(base, utf8_decode_follows_table_3_7) {
    static const struct {
        const char *s;
        size_t n, took;
        uint32_t cp;
    } rows[] = {
        {"A", 1, 1, 'A'},
        {"\xC3\xA9", 2, 2, 0xE9},
        {"\xE2\x82\xAC", 3, 3, 0x20AC},
        {"\xF0\x9F\xA6\x99", 4, 4, 0x1F999},
        {"\xC0\x80", 2, 1, RP_UTF8_BAD},         /* overlong */
        {"\xED\xA0\x80", 3, 1, RP_UTF8_BAD},     /* surrogate */
        {"\xF4\x90\x80\x80", 4, 1, RP_UTF8_BAD}, /* above U+10FFFF */
        {"\xE2\x82", 2, 2, RP_UTF8_BAD},         /* cut: the maximal subpart is two bytes */
        {"\xF0\x9F\x41", 3, 2, RP_UTF8_BAD},
        {"\x80", 1, 1, RP_UTF8_BAD},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint32_t cp;
        assert_int_equal(rp__utf8_decode(rows[i].s, rows[i].n, &cp), rows[i].took);
        assert_int_equal(cp, rows[i].cp);
    }
    assert_int_equal(rp__utf8_complete("ab\xF0\x9F\xA6", 5), 2);
    assert_int_equal(rp__utf8_complete("ab\xF0\x9F\xA6\x99", 6), 6);
    assert_int_equal(rp__utf8_complete("ab\xFF", 3), 3); /* never becomes a character: passes */
    assert_int_equal(rp__utf8_complete("a\xE2", 2), 1);
}

/* Appending a byte at a time must not move everything every time. */
RP_TEST(base, bytes_grow_by_doubling) {
    rp__bytes b = {0};
    uint64_t before = rp__alloc_get_stats().n_allocs;
    size_t n_moves = 0, cap = 0;
    for (size_t i = 0; i < 100000; i++) {
        assert_true(rp__bytes_add_char(&b, 'x'));
        if (b.cap != cap) n_moves++, cap = b.cap;
    }
    assert_true(n_moves < 20);
    assert_true(rp__alloc_get_stats().n_allocs - before < 20);
    rp__bytes_clear(&b);
}
