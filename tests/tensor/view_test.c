#include "test.h"

#include <string.h>

#include "tensor/view.h"

RP_TEST(tensor, view_counts) {
    rp_tensor t = rp__tensor_make(NULL, 96, RP_F32, 3, (int64_t[]){2, 3, 8});
    assert_int_equal(rp__tensor_elems(&t), 48);
    assert_int_equal(rp__tensor_rows(&t), 6);
    assert_int_equal(rp__tensor_last(&t), 8);
    assert_int_equal(rp__tensor_item_bytes(&t), 96);
    assert_int_equal(t.stride, 96);
    assert_int_equal(t.offset, 96);
    assert_int_equal(rp__tensor_span(&t), 192);
    assert_true(rp__tensor_is_dense(&t));
    t.stride = 128; /* items of a wider matrix */
    assert_false(rp__tensor_is_dense(&t));
    assert_int_equal(rp__tensor_span(&t), 128 + 96);
}

RP_TEST(tensor, view_of_blocks) {
    rp_tensor t = rp__tensor_make(NULL, 0, RP_Q4_0, 2, (int64_t[]){3, 64});
    assert_int_equal(t.stride, 36);
    assert_int_equal(rp__tensor_span(&t), 108);
    rp_tensor v = rp__tensor_make(NULL, 0, RP_Q4_0, 1, (int64_t[]){64});
    assert_int_equal(v.stride, 18); /* one block: a vector of blocks is dense */
    assert_int_equal(rp__tensor_span(&v), 36);
    assert_int_equal(rp__tensor_rows(&v), 1);
    assert_true(rp__tensor_is_dense(&v));
}

RP_TEST(tensor, view_of_nothing_spans_nothing) {
    rp_tensor t = rp__tensor_make(NULL, 0, RP_F16, 2, (int64_t[]){0, 8});
    assert_int_equal(rp__tensor_span(&t), 0);
    assert_int_equal(rp__tensor_elems(&t), 0);
    assert_int_equal(rp__tensor_item_bytes(&t), 16);
}

RP_TEST(tensor, view_text_and_shape) {
    char text[64], little[6];
    rp_tensor t = rp__tensor_make(NULL, 0, RP_F32, 2, (int64_t[]){3, 64});
    assert_string_equal(rp__tensor_text(&t, text, sizeof text), "[3, 64] F32");
    assert_string_equal(rp__tensor_text(&t, little, sizeof little), "[3, 6"); /* cut, terminated */
    rp_tensor same = rp__tensor_make(NULL, 8, RP_F16, 2, (int64_t[]){3, 64});
    rp_tensor other = rp__tensor_make(NULL, 0, RP_F32, 1, (int64_t[]){192});
    assert_true(rp__tensor_same_shape(&t, &same));
    assert_false(rp__tensor_same_shape(&t, &other));
}
