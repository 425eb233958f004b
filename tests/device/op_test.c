/* The op table by itself: what rp__op_check refuses and how it says so, in-place rules, costs, keys
 * and text. */
#include "test.h"

#include <math.h>
#include <string.h>

#include "device/op.h"
#include "tensor/view.h"

static rp_tensor tensor(rp_dtype dtype, int n_dims, int64_t d0, int64_t d1, int64_t d2,
                        int64_t d3) {
    int64_t dim[RP_MAX_DIMS] = {d0, d1, d2, d3};
    return rp__tensor_make(NULL, 0, dtype, n_dims, dim);
}
#define T1(dtype, a)          tensor(dtype, 1, a, 0, 0, 0)
#define T2(dtype, a, b)       tensor(dtype, 2, a, b, 0, 0)
#define T3(dtype, a, b, c)    tensor(dtype, 3, a, b, c, 0)
#define T4(dtype, a, b, c, d) tensor(dtype, 4, a, b, c, d)

/* A right op of each kind: T 3, E 8, H 4, K 2, D 6, P 5, S 4. */
static rp_op good_op(rp_op_kind kind) {
    rp_op op = {.kind = kind, .n_in = 1, .n_out = 1, .label = "blk.0.part"};
    rp_tensor te = T2(RP_F32, 3, 8), t_ids = T1(RP_I32, 3);
    op.in[0] = op.out[0] = te;
    switch (kind) {
    case RP_OP_EMBED:
        op.n_in = 2, op.in[0] = T2(RP_Q4_0, 7, 64), op.in[1] = t_ids;
        op.out[0] = T2(RP_F32, 3, 64);
        break;
    case RP_OP_RMS_NORM:
        op.n_in = 3, op.n_out = 2, op.in[1] = T1(RP_F32, 8), op.in[2] = op.out[1] = te;
        break;
    case RP_OP_LAYER_NORM:
        op.n_in = 3, op.in[1] = op.in[2] = T1(RP_F32, 8);
        break;
    case RP_OP_MATMUL:
        op.n_in = 4, op.in[0] = T2(RP_F32, 3, 64), op.in[1] = T2(RP_Q8_0, 8, 64);
        op.in[2] = T1(RP_F32, 8), op.in[3] = te;
        break;
    case RP_OP_ROPE:
        op.n_in = 2, op.in[0] = op.out[0] = T3(RP_F32, 3, 4, 6), op.in[1] = T2(RP_F32, 3, 4);
        break;
    case RP_OP_KV_WRITE:
        op.n_in = 3, op.n_out = 2, op.in[0] = op.in[1] = T3(RP_F32, 3, 2, 6), op.in[2] = t_ids;
        op.out[0] = T4(RP_F16, 5, 2, 4, 6), op.out[1] = T4(RP_BF16, 5, 2, 4, 6);
        break;
    case RP_OP_ATTENTION:
        op.n_in = 7, op.in[0] = op.out[0] = T3(RP_F32, 3, 4, 6);
        op.in[1] = T4(RP_F16, 5, 2, 4, 6), op.in[2] = T4(RP_BF16, 5, 2, 4, 6);
        op.in[3] = T2(RP_I32, 2, 3), op.in[4] = op.in[5] = t_ids, op.in[6] = T1(RP_F32, 4);
        op.p.attention.scale = 0.5f;
        break;
    case RP_OP_GATED:
        op.n_in = 2, op.in[1] = te;
        break;
    case RP_OP_ADD:
    case RP_OP_MUL:
        op.n_in = 2, op.in[1] = T1(RP_F32, 8);
        break;
    case RP_OP_SOFTCAP:
        op.p.scalar.value = 30;
        break;
    case RP_OP_GATHER_ROWS:
        op.n_in = 2, op.in[1] = T1(RP_I32, 2), op.out[0] = T2(RP_F32, 2, 8);
        break;
    case RP_OP_CONVERT:
        op.out[0] = T2(RP_F16, 3, 8);
        break;
    case RP_OP_ROUTER_TOPK:
        op.n_out = 2, op.out[0] = T2(RP_I32, 3, 2), op.out[1] = T2(RP_F32, 3, 2);
        break;
    case RP_OP_EXPERT_MATMUL:
        op.n_in = 3, op.in[1] = T3(RP_F16, 4, 6, 8), op.in[2] = T2(RP_I32, 3, 2);
        op.out[0] = T3(RP_F32, 3, 2, 6);
        break;
    case RP_OP_EXPERT_SUM:
        op.n_in = 2, op.in[0] = T3(RP_F32, 3, 2, 8), op.in[1] = T2(RP_F32, 3, 2);
        break;
    case RP_OP_ARGMAX:
        op.out[0] = t_ids;
        break;
    case RP_OP_TOPK:
        op.n_out = 2, op.out[0] = T2(RP_F32, 3, 8), op.out[1] = T2(RP_I32, 3, 8);
        break;
    case RP_OP_SAMPLE:
        op.n_in = 3, op.in[1] = op.in[2] = T1(RP_F32, 3), op.out[0] = t_ids;
        break;
    case RP_OP_ADVANCE:
        op.in[0] = op.out[0] = t_ids;
        break;
    case RP_OP_FEED:
        op.n_in = op.n_out = 2, op.in[0] = op.out[0] = t_ids;
        op.in[1] = op.out[1] = T2(RP_I32, 4, 3);
        break;
    default:
        break; /* ACT, SCALE: x and y alone */
    }
    return op;
}

static void assert_refused(const rp_op *op, const char *sentence) {
    rp_error err = {0};
    assert_int_equal(rp__op_check(op, &err), RP_EINVAL);
    assert_string_equal(err.message, sentence);
}

RP_TEST(op, check_takes_a_right_op_of_every_kind) {
    for (int k = 0; k < RP_N_OPS; k++) {
        rp_op op = good_op((rp_op_kind)k);
        rp_error err = {0};
        assert_ok(rp__op_check(&op, &err), err);
        op.live = T1(RP_I32, 1);
        assert_ok(rp__op_check(&op, &err), err);
        assert_int_equal(rp__op_check(&op, NULL), RP_OK);
    }
}

/* Every operand of every kind, made absent, of a wrong dtype, of a wrong rank, and one longer in
 * its last dimension: the check may only pass where the table says that the operand is optional or
 * that size is free. */
RP_TEST(op, check_names_every_operand) {
    for (int k = 0; k < RP_N_OPS; k++) {
        rp_op good = good_op((rp_op_kind)k);
        for (int i = 0; i < good.n_in + good.n_out; i++) {
            rp_op op = good;
            rp_tensor *t = i < op.n_in ? &op.in[i] : &op.out[i - op.n_in];
            rp_error err = {0};
            t->dtype = t->dtype == RP_F32 ? RP_I32 : RP_I64;
            bool is_free = i < op.n_in && (k == RP_OP_EMBED ? i == 0 : i == 1) &&
                           (k == RP_OP_EMBED || k == RP_OP_MATMUL || k == RP_OP_EXPERT_MATMUL);
            if (!is_free) {
                assert_int_equal(rp__op_check(&op, &err), RP_EINVAL);
                assert_message(err, rp__op_name((rp_op_kind)k));
                assert_message(err, " blk.0.part: ");
                assert_message(err, " wants ");
                assert_message(err, "found");
            }
            op = good;
            t->n_dims = RP_MAX_DIMS + 1;
            assert_int_equal(rp__op_check(&op, &err), RP_EINVAL);
            assert_message(err, "wants at most 4 dimensions, found 5");
            op = good;
            t->dtype = (rp_dtype)RP_N_DTYPES;
            assert_int_equal(rp__op_check(&op, &err), RP_EINVAL);
            assert_message(err, "no dtype at all");
        }
    }
}

RP_TEST(op, check_says_what_was_wanted_and_found) {
    rp_op op = good_op(RP_OP_MATMUL);
    op.in[1] = T2(RP_Q8_0, 8, 96);
    assert_refused(&op, "matmul blk.0.part: w wants [N, K = 64], found [8, 96] Q8_0");

    op = good_op(RP_OP_MATMUL);
    op.in[1].dim[1] = 65;
    assert_refused(&op, "matmul blk.0.part: w wants rows of whole blocks of 32 for Q8_0, found 65");

    op = good_op(RP_OP_MATMUL);
    op.in[2] = T1(RP_F32, 9);
    assert_refused(&op, "matmul blk.0.part: bias wants [N = 8], found [9] F32");

    op = good_op(RP_OP_MATMUL);
    op.in[0].dtype = RP_F16;
    assert_refused(&op, "matmul blk.0.part: x wants F32, Q16, Q8_0, Q8_1 or Q8_K, found F16");

    op = good_op(RP_OP_MATMUL);
    op.in[0].is_weight = 1;
    assert_refused(&op, "matmul blk.0.part: x wants plain memory, found a weight in the device's "
                        "own layout");

    op = good_op(RP_OP_MATMUL);
    op.in[1].n_dims = 0, op.label = NULL;
    assert_refused(&op, "matmul: w is missing: wants [N, K = 64] a dtype of weights");

    op = good_op(RP_OP_MATMUL);
    op.n_in = 1;
    assert_refused(&op, "matmul blk.0.part: wants 2 to 4 inputs, found 1");

    op = good_op(RP_OP_MATMUL);
    op.n_out = 2;
    assert_refused(&op, "matmul blk.0.part: wants 1 to 1 outputs, found 2");

    op = good_op(RP_OP_ADD);
    op.in[1] = T2(RP_F32, 2, 8);
    assert_refused(&op, "add blk.0.part: b wants [T = 3, E = 8] or [E = 8], found [2, 8] F32");

    op = good_op(RP_OP_RMS_NORM);
    op.in[0] = T3(RP_F32, 3, 2, 8);
    assert_refused(&op, "rms_norm blk.0.part: r wants [3, 2, E = 8], found [3, 8] F32");

    op = good_op(RP_OP_ROPE);
    op.in[1] = T2(RP_F32, 3, 8);
    assert_refused(&op, "rope blk.0.part: cs wants an even R of at most D = 6, found R = 8");
    op.in[1] = T2(RP_F32, 3, 3);
    assert_refused(&op, "rope blk.0.part: cs wants an even R of at most D = 6, found R = 3");

    op = good_op(RP_OP_ATTENTION);
    op.in[0] = op.out[0] = T3(RP_F32, 3, 5, 6), op.in[6] = T1(RP_F32, 5);
    assert_refused(&op, "attention blk.0.part: q wants H to be a multiple of K = 2, found H = 5");

    op = good_op(RP_OP_CONVERT);
    op.out[0].dtype = RP_I8;
    assert_refused(&op, "convert blk.0.part: y wants F32, F16, BF16, Q16, Q8_0, Q8_1 or Q8_K, "
                        "found I8");

    op = good_op(RP_OP_TOPK);
    op.out[0] = T2(RP_F32, 3, 9), op.out[1] = T2(RP_I32, 3, 9);
    assert_refused(&op, "topk blk.0.part: values wants k of at most 8, found 9");

    op = good_op(RP_OP_KV_WRITE);
    op.out[0].dim[0] = op.out[1].dim[0] = INT64_C(1) << 30;
    assert_refused(&op, "kv_write blk.0.part: kc wants P * S below 2^31 for I32 slots, found "
                        "1073741824 * 4");
}

RP_TEST(op, check_wants_the_activations_of_the_weight) {
    rp_error err = {0};
    rp_op op = good_op(RP_OP_MATMUL); /* beside a weight of Q8_0 */
    op.in[0] = T2(RP_Q8_0, 3, 64);
    assert_ok(rp__op_check(&op, &err), err);
    op.in[0].offset = 7, op.in[0].stride += 3; /* blocks may lie anywhere */
    assert_ok(rp__op_check(&op, &err), err);
    op.in[0] = T2(RP_Q8_1, 3, 64);
    assert_refused(&op,
                   "matmul blk.0.part: x wants F32, Q16 or Q8_0 beside a weight of Q8_0, found Q8_1");
    op.in[0] = T2(RP_Q16, 3, 64);
    assert_ok(rp__op_check(&op, &err), err);
    op.in[0] = T2(RP_Q8_0, 3, 64), op.in[1] = T2(RP_BF16, 8, 64);
    assert_refused(&op, "matmul blk.0.part: x wants F32 beside a weight of BF16, found Q8_0");
    op.in[0] = T2(RP_Q8_K, 3, 256), op.in[1] = T2(RP_Q8_K, 8, 256);
    assert_refused(&op, "matmul blk.0.part: w wants a dtype of weights, found Q8_K");

    op = good_op(RP_OP_EXPERT_MATMUL);
    op.in[1].dtype = RP_F16, op.in[0].dtype = RP_F16;
    assert_refused(&op, "expert_matmul blk.0.part: x wants F32, Q16, Q8_0, Q8_1 or Q8_K, found F16");

    op = good_op(RP_OP_CONVERT);
    op.in[0] = T2(RP_F32, 3, 64), op.out[0] = T2(RP_Q8_1, 3, 64);
    assert_ok(rp__op_check(&op, &err), err);
    op.in[0].dtype = RP_F16;
    op.in[0].stride = 128;
    assert_refused(&op, "convert blk.0.part: x wants F32 to be rounded to Q8_1, found F16");
    op.in[0] = T1(RP_F32, 64), op.out[0] = T1(RP_Q8_1, 64);
    assert_refused(&op, "convert blk.0.part: y wants two dimensions or more for Q8_1, found 1");
    op.in[0] = T2(RP_F32, 3, 48), op.out[0] = T2(RP_F32, 3, 48), op.out[0].dtype = RP_Q8_1;
    assert_refused(&op,
                   "convert blk.0.part: y wants rows of whole blocks of 32 for Q8_1, found 48");
}

RP_TEST(op, check_refuses_bad_scalars) {
    rp_op op = good_op(RP_OP_RMS_NORM);
    op.p.norm.eps = -1;
    assert_refused(&op, "rms_norm blk.0.part: eps wants a finite number >= 0, found -1");
    op = good_op(RP_OP_EMBED);
    op.p.embed.scale = INFINITY;
    assert_refused(&op, "embed blk.0.part: scale wants a finite number, found inf");
    op = good_op(RP_OP_ROPE);
    op.p.rope.style = (rp_rope_style)2;
    assert_refused(&op, "rope blk.0.part: style wants half (0) or interleaved (1), found 2");
    op = good_op(RP_OP_ATTENTION);
    op.p.attention.window = -4;
    assert_refused(&op, "attention blk.0.part: window wants a number >= 0 (0 is off), found -4");
    op = good_op(RP_OP_ATTENTION);
    op.p.attention.softcap = -1;
    assert_refused(&op,
                   "attention blk.0.part: softcap wants a finite number >= 0 (0 is off), found -1");
    op = good_op(RP_OP_GATED);
    op.p.act.kind = RP_N_ACTS;
    assert_refused(&op, "gated blk.0.part: act wants a kind below 4, found 4");
    op = good_op(RP_OP_SOFTCAP);
    op.p.scalar.value = 0;
    assert_refused(&op, "softcap blk.0.part: value wants a finite number > 0, found 0");
    op = good_op(RP_OP_ACT);
    op.kind = (rp_op_kind)RP_N_OPS;
    assert_refused(&op, "op kind wants a number below 23, found 23");
}

RP_TEST(op, check_refuses_bad_sizes_and_strides) {
    rp_op op = good_op(RP_OP_SCALE);
    op.in[0].dim[0] = -1;
    assert_refused(&op, "scale blk.0.part: x wants dimension 0 to be at least 0, found -1");
    op = good_op(RP_OP_SCALE);
    op.in[0].dim[1] = 0;
    assert_refused(&op, "scale blk.0.part: x wants dimension 1 to be at least 1, found 0");
    op = good_op(RP_OP_SCALE);
    op.in[0].dim[0] = 0, op.in[0].dim[1] = INT64_MAX / 2;
    assert_refused(&op, "scale blk.0.part: x wants fewer than 2^59 elements");
    op = good_op(RP_OP_MATMUL);
    op.in[1].stride += 34;
    assert_refused(&op, "matmul blk.0.part: w wants to be dense (stride 68), found stride 102");
    op = good_op(RP_OP_SCALE);
    op.in[0].stride = 28;
    assert_refused(&op, "scale blk.0.part: x wants a stride of at least 32 bytes, found 28");
    op.in[0].stride = 33;
    assert_refused(&op, "scale blk.0.part: x wants offset and stride in whole elements of 4 bytes, "
                        "found 0 and 33");
    op = good_op(RP_OP_ADVANCE);
    op.in[0].stride = 8;
    assert_refused(&op, "advance blk.0.part: x wants to be dense (stride 4), found stride 8");
    op = good_op(RP_OP_SCALE);
    op.live = T1(RP_I32, 2);
    assert_refused(&op, "scale blk.0.part: live wants [1] I32, found [2] I32");
    op = good_op(RP_OP_RMS_NORM);
    op.n_in = 2, op.n_out = 1, op.in[0] = op.out[0] = T1(RP_F32, 8), op.live = T1(RP_I32, 1);
    assert_refused(&op,
                   "rms_norm blk.0.part: live wants rows to count, found y with one dimension");
    op = good_op(RP_OP_SCALE); /* no rows at all are fine, and so are rows of a wider matrix */
    op.in[0].dim[0] = op.out[0].dim[0] = 0;
    assert_int_equal(rp__op_check(&op, NULL), RP_OK);
    op = good_op(RP_OP_SCALE);
    op.in[0].stride = op.out[0].stride = 64;
    assert_int_equal(rp__op_check(&op, NULL), RP_OK);
}

RP_TEST(op, check_refuses_overlap_that_is_not_in_place) {
    rp_buffer buffer = {.bytes = 1 << 20}, other = {.bytes = 1 << 20};
    rp_op op = good_op(RP_OP_SCALE);
    op.in[0].buffer = op.out[0].buffer = &buffer;
    assert_int_equal(rp__op_check(&op, NULL), RP_OK); /* in place */
    op.out[0].offset = 32;
    assert_refused(&op, "scale blk.0.part: y wants memory of its own or exactly that operand's, "
                        "found it over x");
    op.out[0].offset = 96; /* behind it */
    assert_int_equal(rp__op_check(&op, NULL), RP_OK);
    op.in[0].stride = op.out[0].stride = 64, op.out[0].offset = 32; /* columns side by side */
    assert_int_equal(rp__op_check(&op, NULL), RP_OK);
    op.out[0].offset = 28;
    assert_int_equal(rp__op_check(&op, NULL), RP_EINVAL);
    op.out[0].offset = 36;
    assert_int_equal(rp__op_check(&op, NULL), RP_EINVAL);

    op = good_op(RP_OP_MATMUL);
    for (int i = 0; i < 4; i++) op.in[i].buffer = &other, op.in[i].offset = (size_t)i << 16;
    op.out[0].buffer = &other, op.out[0].offset = 3 << 16; /* over `add` */
    assert_int_equal(rp__op_check(&op, NULL), RP_OK);
    op.out[0].offset = 0;
    assert_refused(&op, "matmul blk.0.part: y wants memory of its own, found it over x");

    op = good_op(RP_OP_RMS_NORM);
    op.out[0].buffer = op.out[1].buffer = &buffer;
    assert_refused(&op, "rms_norm blk.0.part: sum wants memory of its own, found it over y");
}

RP_TEST(op, in_place_needs_equal_shape_and_dtype) {
    rp_op op = good_op(RP_OP_ADD);
    assert_true(rp__op_may_alias(&op, 0, 0));
    assert_false(rp__op_may_alias(&op, 0, 1)); /* one row for all */
    op.in[1] = op.in[0];
    assert_true(rp__op_may_alias(&op, 0, 1));
    op = good_op(RP_OP_CONVERT);
    assert_false(rp__op_may_alias(&op, 0, 0));
    op.out[0].dtype = RP_F32;
    assert_true(rp__op_may_alias(&op, 0, 0));
    op = good_op(RP_OP_ATTENTION);
    for (int i = 0; i < op.n_in; i++) assert_false(rp__op_may_alias(&op, 0, i));
    for (int k = 0; k < RP_N_OPS; k++) {
        op = good_op((rp_op_kind)k);
        assert_int_equal(rp__op_partial_outputs(&op), k == RP_OP_KV_WRITE ? 3 : 0);
        assert_int_equal(rp__op_rows(&op), k == RP_OP_GATHER_ROWS ? 2 : 3);
    }
}

RP_TEST(op, costs_by_hand) {
    rp_op op = good_op(RP_OP_MATMUL);
    rp__op_cost c = rp__op_cost_of(&op);
    assert_float_equal(c.flops, 2 * 3 * 64 * 8, 0);
    /* x, w (2 blocks of 34 bytes a row), bias, add, y */
    assert_float_equal(c.bytes, 3 * 64 * 4 + 8 * 68 + 8 * 4 + 2 * 3 * 8 * 4, 0);
    op = good_op(RP_OP_EMBED); /* three rows of 36 bytes, not the whole table */
    assert_float_equal(rp__op_cost_of(&op).bytes, 3 * 36 + 3 * 4 + 3 * 64 * 4, 0);
    op = good_op(RP_OP_KV_WRITE);
    assert_float_equal(rp__op_cost_of(&op).bytes, 36 * (4 + 4 + 2 + 2) + 3 * 4, 0);
    op = good_op(
        RP_OP_ATTENTION); /* 12 positions a sequence; the cache of 20 is read once at most */
    c = rp__op_cost_of(&op);
    assert_float_equal(c.flops, 4 * 3 * 4 * 6 * 12, 0);
    assert_float_equal(c.bytes, 2 * 72 * 4 + 20 * 12 * 4 + 2 * 3 * 4 + 3 * 4 + 3 * 4 + 4 * 4, 0);
    op = good_op(RP_OP_EXPERT_MATMUL);
    op.in[0].dim[0] = op.in[2].dim[0] = op.out[0].dim[0] = 1; /* two of four experts */
    assert_float_equal(rp__op_cost_of(&op).bytes, 8 * 4 + 2 * 6 * 8 * 2 + 2 * 4 + 12 * 4, 0);
    for (int k = 0; k < RP_N_OPS; k++) {
        op = good_op((rp_op_kind)k);
        c = rp__op_cost_of(&op);
        assert_true(c.flops >= 0 && c.bytes > 0 && isfinite(c.flops) && isfinite(c.bytes));
    }
}

RP_TEST(op, keys_tell_kernels_apart_and_nothing_else) {
    uint64_t keys[RP_N_OPS];
    rp_buffer buffer = {.bytes = 1 << 20};
    for (int k = 0; k < RP_N_OPS; k++) {
        rp_op op = good_op((rp_op_kind)k), moved;
        memset(&moved, 0xA5, sizeof moved); /* unused bytes of the union must not matter */
        moved.kind = op.kind, moved.n_in = op.n_in, moved.n_out = op.n_out;
        moved.label = "another";
        memcpy(moved.in, op.in, sizeof op.in);
        memcpy(moved.out, op.out, sizeof op.out);
        moved.live = op.live;
        for (int i = 0; i < op.n_in; i++) moved.in[i].buffer = &buffer, moved.in[i].offset = 4096;
        if (k == RP_OP_GATHER_ROWS || k == RP_OP_ADD || k == RP_OP_ARGMAX)
            assert_true(rp__op_key(&op) == rp__op_key(&moved));
        keys[k] = rp__op_key(&op);
        for (int j = 0; j < k; j++) assert_true(keys[j] != keys[k]);
        for (int i = 0; i < op.n_in + op.n_out + 1; i++) {
            rp_op other = op;
            rp_tensor *t = i < op.n_in ? &other.in[i] : &other.out[i - op.n_in];
            if (i == op.n_in + op.n_out)
                t = &other.live, *t = T1(RP_I32, 1);
            else
                t->dim[0]++;
            assert_true(rp__op_key(&other) != keys[k]);
            other = op;
            if (t != &other.live) {
                t->stride += 4;
                assert_true(rp__op_key(&other) != keys[k]);
                t->stride -= 4, t->is_weight ^= 1;
                assert_true(rp__op_key(&other) != keys[k]);
            }
        }
    }
    rp_op a = good_op(RP_OP_ATTENTION), b = a;
    b.p.attention.window = 1;
    assert_true(rp__op_key(&a) != rp__op_key(&b));
    b = a, b.p.attention.softcap = 50;
    assert_true(rp__op_key(&a) != rp__op_key(&b));
    b = a, b.p.attention.rows = RP_ROWS_PROMPT;
    assert_true(rp__op_key(&a) != rp__op_key(&b));
    a = b = good_op(RP_OP_ROUTER_TOPK), b.p.router.normalise = true;
    assert_true(rp__op_key(&a) != rp__op_key(&b));
    a = b = good_op(RP_OP_ADVANCE), b.p.advance.step = -1;
    assert_true(rp__op_key(&a) != rp__op_key(&b));
}

/* Whatever an op holds, the check answers; what it passes has a cost, a key and a text. */
RP_TEST(op, check_survives_anything) {
    uint64_t seed = 7;
    size_t n_passed = 0;
    rp_buffer buffer = {.bytes = 1 << 20};
    static const int64_t sizes[] = {0, 1, 2, 3, 4, 6, 8, 64, -1, INT64_MAX, INT64_MIN, 1 << 30};
    for (int i = 0; i < 40000; i++) {
        rp_op op = good_op((rp_op_kind)(rp_test_rand(&seed) % RP_N_OPS));
        for (int n = (int)(rp_test_rand(&seed) % 4); n > 0; n--) {
            size_t at = rp_test_rand(&seed) % (RP_OP_MAX_IN + RP_OP_MAX_OUT + 1);
            rp_tensor *t = at < RP_OP_MAX_IN                   ? &op.in[at]
                           : at < RP_OP_MAX_IN + RP_OP_MAX_OUT ? &op.out[at - RP_OP_MAX_IN]
                                                               : &op.live;
            uint64_t v = rp_test_rand(&seed);
            switch (rp_test_rand(&seed) % 8) {
            case 0:
                t->n_dims = (uint8_t)(v % 6);
                break;
            case 1:
                t->dtype = (rp_dtype)(v % (RP_N_DTYPES + 2));
                break;
            case 2:
                t->dim[v % RP_MAX_DIMS] = sizes[v / 7 % (sizeof sizes / sizeof *sizes)];
                break;
            case 3:
                t->stride = v % 3 ? v % 300 : v;
                break;
            case 4:
                t->offset = v % 200, t->buffer = &buffer;
                break;
            case 5:
                t->is_weight ^= 1;
                break;
            case 6:
                op.n_in = (uint8_t)(v % (RP_OP_MAX_IN + 1));
                break;
            default:
                op.n_out = (uint8_t)(v % (RP_OP_MAX_OUT + 1));
                break;
            }
        }
        rp_error err = {0};
        if (rp__op_check(&op, &err) < 0) {
            assert_true(err.message[0]);
            continue;
        }
        char text[64];
        n_passed++;
        assert_true(rp__op_cost_of(&op).bytes >= 0);
        assert_true(strlen(rp__op_text(&op, text, sizeof text)) < sizeof text);
        rp__op_key(&op);
    }
    assert_true(n_passed > 1000);
}

RP_TEST(op, text_shows_all_operands) {
    rp_op op = good_op(RP_OP_MATMUL);
    char text[256];
    op.in[2].n_dims = 0;
    assert_string_equal(rp__op_text(&op, text, sizeof text),
                        "matmul blk.0.part [3, 64] F32 x [8, 64] Q8_0 x none x [3, 8] F32 -> "
                        "[3, 8] F32");
    op = good_op(RP_OP_ARGMAX), op.label = NULL;
    assert_string_equal(rp__op_text(&op, text, sizeof text), "argmax [3, 8] F32 -> [3] I32");
    assert_string_equal(rp__op_text(&op, text, 10), "argmax [3");
    assert_string_equal(rp__op_name((rp_op_kind)99), "unknown op");
}
