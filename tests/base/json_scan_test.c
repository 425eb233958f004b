#include "test.h"

#include <string.h>

#include "base/json_scan.h"

static size_t too_deep(const char *text, size_t depth) {
    return rp__json_too_deep(rp__str_of(text), depth);
}

RP_TEST(base, json_depth_counts_brackets_outside_strings) {
    assert_int_equal(too_deep("[[1]]", 2), 5);
    assert_int_equal(too_deep("[[1]]", 1), 1);
    assert_int_equal(too_deep("{\"a\": [\"[[[\\\"[[\", {}]}", 3), 22);
    assert_int_equal(too_deep("{\"a\": [1, {}]}", 2), 10);
    assert_int_equal(too_deep("]]][", 1), 4);
    assert_int_equal(too_deep("\"[[[[", 1), 5); /* a string without an end */
    assert_int_equal(too_deep("\"\\", 1), 2);
    assert_int_equal(too_deep("", 0), 0);
}

static void check_soft(const char *text, const char *wanted) {
    char copy[128];
    size_t n = strlen(text);
    memcpy(copy, text, n + 1);
    rp__json_soften_integers(copy, n);
    assert_string_equal(copy, wanted);
}

RP_TEST(base, json_integers_beyond_64_bits_become_reals) {
    check_soft("[9223372036854775807]", "[9223372036854775807]");
    check_soft("[9223372036854775808]", "[92233720368547758e2]");
    check_soft("[-10000000000000000000000]", "[-100000000000000000000e2]");
    check_soft("[1.00000000000000000000000]", "[1.00000000000000000000000]");
    check_soft("[\"10000000000000000000000\"]", "[\"10000000000000000000000\"]");
    check_soft("[1e10, 2]", "[1e10, 2]");
}

static void check_key(const char *text, const char *before, const char *wanted) {
    rp__str key = rp__json_key_at(rp__str_of(text), (size_t)(strstr(text, before) - text));
    assert_int_equal(key.n, strlen(wanted));
    assert_memory_equal(key.p, wanted, key.n);
}

RP_TEST(base, json_key_is_that_of_the_outermost_bare_word) {
    const char *text = "{\"a\": 1, \"b\": [{\"c\": X}] W, \"d\": Y, Z, \"e\": \"V\" U}";
    check_key(text, "1", "a");
    check_key(text, "X", "");
    check_key(text, "W", "");
    check_key(text, "Y", "d");
    check_key(text, "Z", "");
    check_key(text, "V", "");
    check_key(text, "U", "");
    check_key("[1, 2]", "2", "");
    check_key("{\"unended", "ended", "");
}
