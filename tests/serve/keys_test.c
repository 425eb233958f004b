#include "test.h"

#include "serve/keys.h"

RP_TEST(serve, keys_are_whole) {
    static const char *const keys[] = {"sesame", "b"};
    assert_true(rp__keys_allow(keys, 2, "Bearer sesame"));
    assert_true(rp__keys_allow(keys, 2, "bearer  b"));
    static const char *const wrong[] = {"Bearer sesam",    "Bearer sesamee", "Bearer ",
                                        "Bearer",          "sesame",         "Basic sesame",
                                        "Bearer sesame b", "Bearer Sesame",  ""};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(rp__keys_allow(keys, 2, wrong[i]));
    assert_false(rp__keys_allow(keys, 2, NULL));
    assert_true(rp__keys_allow(NULL, 0, NULL));
}
