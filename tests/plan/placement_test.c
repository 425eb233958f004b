/* Placement rules as text, and what they decide. */
#include "plan/placement.h"

#include <string.h>

#include "base/alloc.h"
#include "tensor/view.h"
#include "test.h"

static rp_op op_of(rp_op_kind kind, int n_dims, const int64_t *dim) {
    rp_op op = {.kind = kind, .n_in = 1, .n_out = 1};
    op.in[0] = op.out[0] = rp__tensor_make(NULL, 0, RP_F32, n_dims, dim);
    return op;
}

static rp_op norm_of(int64_t rows, int64_t width) {
    return op_of(RP_OP_RMS_NORM, 2, (int64_t[]){rows, width});
}

static rp__placement rules(const char *text) {
    rp__placement p = {0};
    rp_error err = {0};
    assert_ok(rp__placement_add(&p, text, RP_PLACE_OVERRIDE, &err), err);
    return p;
}

/* 'h' or 'd' by the rule that counts, '-' when none does. */
static char side_of(const rp__placement *p, rp_op op) {
    const rp__place_rule *r = rp__placement_find(p, &op);
    return !r ? '-' : r->side == RP_SIDE_HOST ? 'h' : 'd';
}

RP_TEST(placement, rules_by_hand) {
    rp__placement p = rules("norm:rows<32=host rope:rows<64,width>=128=host");
    assert_int_equal(p.n_rules, 2);
    assert_int_equal(side_of(&p, norm_of(31, 1024)), 'h');
    assert_int_equal(side_of(&p, norm_of(32, 1024)), '-');
    assert_int_equal(side_of(&p, op_of(RP_OP_LAYER_NORM, 2, (int64_t[]){1, 8})), 'h');
    /* rows are tokens x heads */
    assert_int_equal(side_of(&p, op_of(RP_OP_ROPE, 3, (int64_t[]){3, 21, 128})), 'h');
    assert_int_equal(side_of(&p, op_of(RP_OP_ROPE, 3, (int64_t[]){4, 16, 128})), '-');
    assert_int_equal(side_of(&p, op_of(RP_OP_ROPE, 3, (int64_t[]){1, 1, 127})), '-');
    assert_int_equal(side_of(&p, op_of(RP_OP_ACT, 2, (int64_t[]){1, 8})), '-');
    rp__placement_clear(&p);
}

RP_TEST(placement, the_last_rule_counts) {
    rp__placement p = rules("*=host;rms_norm:rows>=2=device\n rms_norm:rows=4=host");
    assert_int_equal(side_of(&p, norm_of(1, 8)), 'h');
    assert_int_equal(side_of(&p, norm_of(2, 8)), 'd');
    assert_int_equal(side_of(&p, norm_of(4, 8)), 'h');
    assert_int_equal(side_of(&p, norm_of(5, 8)), 'd');
    assert_int_equal(side_of(&p, op_of(RP_OP_ATTENTION, 3, (int64_t[]){1, 1, 8})), 'h');
    rp__placement_clear(&p);
}

RP_TEST(placement, every_comparison) {
    static const struct {
        const char *rule, *sides; /* of 6, 7 and 8 rows */
    } cases[] = {{"act:rows<7=host", "h--"},  {"act:rows<=7=host", "hh-"},
                 {"act:rows=7=host", "-h-"},  {"act:rows>=7=host", "-hh"},
                 {"act:rows>7=host", "--h"},  {"act:rows>6,rows<8=host", "-h-"},
                 {"act:width<7=host", "---"}, {"act:width=64=device", "ddd"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rp__placement p = rules(cases[i].rule);
        for (int64_t rows = 6; rows <= 8; rows++) {
            char side = side_of(&p, op_of(RP_OP_ACT, 2, (int64_t[]){rows, 64}));
            if (side != cases[i].sides[rows - 6])
                fail_msg("%s: %d rows: %c", cases[i].rule, (int)rows, side);
        }
        rp__placement_clear(&p);
    }
}

/* A cache is on one side for steps of all sizes: "*" with conditions does not reach ops on it. */
RP_TEST(placement, ops_on_the_cache_have_no_conditions) {
    rp__placement p = rules("*:rows<1000=host");
    assert_int_equal(side_of(&p, op_of(RP_OP_ATTENTION, 3, (int64_t[]){1, 1, 8})), '-');
    assert_int_equal(side_of(&p, norm_of(1, 8)), 'h');
    rp__placement_clear(&p);
    rp_error err = {0};
    assert_int_equal(rp__placement_add(&p, "attention:rows<4=host", RP_PLACE_OVERRIDE, &err),
                     RP_EINVAL);
    assert_message(err, "stands where the cache is");
    rp__placement_clear(&p);
}

RP_TEST(placement, what_is_refused_and_how) {
    static const struct {
        const char *rule, *message;
    } cases[] = {
        {"norm", "expected OP:CONDITIONS=PLACE, found \"norm\""},
        {"nrom:rows<32=host", "unknown op \"nrom\""},
        {"=host", "unknown op \"\""},
        {"norm=card", "expected the place host or device, found \"card\""},
        {"norm:rows<32", "expected OP:CONDITIONS=PLACE, found \"norm:rows<32\""},
        {"norm:rows<=32", "expected the place host or device, found \"32\""},
        {"norm:rows<32=", "expected the place host or device, found \"\""},
        {"norm:=host", "expected a condition like rows<32 or width>=128, found \"\""},
        {"norm:rows<32,=host", "found \"\""},
        {"norm:cols<32=host", "found \"cols<32\""},
        {"norm:rows<>32=host", "found \"rows<>32\""},
        {"norm:rows<-1=host", "found \"rows<-1\""},
        {"norm:rows<32x=host", "found \"rows<32x\""},
        {"norm:rows<99999999999999999999=host", "found \"rows<99999999999999999999\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rp__placement p = rules("act=host");
        rp_error err = {0};
        assert_int_equal(rp__placement_add(&p, cases[i].rule, RP_PLACE_OVERRIDE, &err), RP_EINVAL);
        assert_message(err, cases[i].rule);
        assert_message(err, cases[i].message);
        assert_int_equal(p.n_rules, 1);
        rp__placement_clear(&p);
    }
}

RP_TEST(placement, a_long_rule_is_refused) {
    char text[400] = "norm:";
    for (int i = 0; i < 40; i++) strcat(text, "rows<9,");
    strcat(text, "rows<9=host");
    rp__placement p = {0};
    rp_error err = {0};
    assert_int_equal(rp__placement_add(&p, text, RP_PLACE_OVERRIDE, &err), RP_EINVAL);
    assert_message(err, "longer than a rule may be");
    rp__placement_clear(&p);
}

RP_TEST(placement, out_of_memory_is_said) {
    rp_error err = {0};
    for (uint64_t n = 1;; n++) {
        rp__placement p = {0};
        rp__alloc_fail_at(n, false);
        rp_status st = rp__placement_add(&p, "act=host norm=host", RP_PLACE_OVERRIDE, &err);
        rp__alloc_fail_at(0, false);
        rp__placement_clear(&p);
        if (st == RP_OK) break;
        assert_int_equal(st, RP_ENOMEM);
    }
}
