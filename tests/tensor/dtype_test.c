#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/blocks.h"
#include "tensor/dtype.h"

static uint32_t bits_of(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

/* What an F16 means, from its definition, exact in double. */
static double f16_value(uint16_t h) {
    int exponent = h >> 10 & 31, mantissa = h & 1023;
    double v = exponent == 31 ? (mantissa ? NAN : INFINITY)
               : exponent     ? ldexp(1024 + mantissa, exponent - 25)
                              : ldexp(mantissa, -24);
    return h & 0x8000 ? -v : v;
}

RP_TEST(tensor, f16_to_f32_all_values) {
    for (uint32_t h = 0; h < 65536; h++) {
        float got = rp__f16_to_f32((uint16_t)h);
        double want = f16_value((uint16_t)h);
        if (isnan(want)) {
            assert_true(isnan(got));
            assert_int_equal(signbit(got) != 0, h >> 15);
            assert_true(bits_of(got) & 0x400000); /* quiet */
        } else {
            assert_true((double)got == want && !signbit(got) == !signbit(want));
        }
    }
}

RP_TEST(tensor, f32_to_f16_rounds_to_nearest_even) {
    for (uint32_t h = 0; h < 0x7C00; h++) {
        uint16_t low = (uint16_t)h, high = (uint16_t)(h + 1), even = low & 1 ? high : low;
        float a = (float)f16_value(low);
        /* Past the largest finite value the next step up would be 65536: halfway to it rounds to
         * Inf. */
        float b = high == 0x7C00 ? 65536.0f : (float)f16_value(high);
        float middle = (a + b) / 2; /* exact: eleven bits of mantissa and one more */
        for (int sign = 0; sign < 2; sign++) {
            float s = sign ? -1.0f : 1.0f;
            uint16_t m = (uint16_t)(sign << 15);
            assert_int_equal(rp__f32_to_f16(s * a), low | m);
            assert_int_equal(rp__f32_to_f16(s * nextafterf(middle, 0)), low | m);
            assert_int_equal(rp__f32_to_f16(s * middle), even | m);
            assert_int_equal(rp__f32_to_f16(s * nextafterf(middle, INFINITY)), high | m);
        }
    }
    assert_int_equal(rp__f32_to_f16(INFINITY), 0x7C00);
    assert_int_equal(rp__f32_to_f16(-3e38f), 0xFC00);
    assert_int_equal(rp__f32_to_f16(0x1p-149f), 0);
    assert_true(isnan(rp__f16_to_f32(rp__f32_to_f16(NAN))));
    assert_true(isnan(rp__f16_to_f32(rp__f32_to_f16(-NAN))));
}

#ifdef __FLT16_MANT_DIG__
RP_TEST(tensor, f16_agrees_with_the_compiler) {
    uint64_t seed = 7;
    for (int i = 0; i < 200000; i++) {
        uint32_t u = (uint32_t)(rp_test_rand(&seed) >> 32);
        float f;
        memcpy(&f, &u, sizeof f);
        if (isnan(f)) continue;
        _Float16 want = (_Float16)f;
        uint16_t bits;
        memcpy(&bits, &want, sizeof bits);
        assert_int_equal(rp__f32_to_f16(f), bits);
    }
    for (uint32_t h = 0; h < 65536; h++) {
        uint16_t bits = (uint16_t)h;
        _Float16 v;
        memcpy(&v, &bits, sizeof v);
        if (v == v) assert_int_equal(bits_of(rp__f16_to_f32(bits)), bits_of((float)v));
    }
}
#endif

RP_TEST(tensor, bf16_both_ways_all_values) {
    for (uint32_t h = 0; h < 65536; h++) {
        float f = rp__bf16_to_f32((uint16_t)h);
        assert_int_equal(bits_of(f), h << 16);
        if (isnan(f)) {
            assert_true(isnan(rp__bf16_to_f32(rp__f32_to_bf16(f))));
            continue;
        }
        assert_int_equal(rp__f32_to_bf16(f), h);
        if (isinf(f)) continue;
        /* the 16 bits below: under half stays, half goes to even, over half goes up in magnitude */
        uint32_t rows[][2] = {{0x7FFF, h}, {0x8000, h + (h & 1)}, {0x8001, h + 1}};
        for (int i = 0; i < 3; i++) {
            uint32_t u = h << 16 | rows[i][0];
            memcpy(&f, &u, sizeof f);
            assert_int_equal(rp__f32_to_bf16(f), rows[i][1]);
        }
    }
    uint32_t low_nan = 0x7F800001; /* its payload lies wholly in the bits that are cut */
    float f;
    memcpy(&f, &low_nan, sizeof f);
    assert_true(isnan(rp__bf16_to_f32(rp__f32_to_bf16(f))));
}

/* Reads a golden file; n blocks, then their values. Returns malloc'ed bytes. */
static unsigned char *read_golden(rp_dtype t, size_t *n_blocks) {
    char name[64];
    snprintf(name, sizeof name, "fixtures/blocks/%s.bin", rp__dtype_name(t));
    FILE *f = fopen(rp_test_path(name), "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    size_t size = (size_t)ftell(f);
    rewind(f);
    unsigned char *p = malloc(size);
    assert_int_equal(fread(p, 1, size, f), size);
    fclose(f);
    size_t per_block = rp__dtype_block_bytes(t) + (size_t)rp__dtype_block_elems(t) * 4;
    assert_int_equal(size % per_block, 0);
    *n_blocks = size / per_block;
    assert_true(*n_blocks >= 24);
    return p;
}

/* Bits must be equal; of two NaNs the payload says nothing (which operand's survives is up to the
 * processor). */
static bool same(float a, float b) {
    return bits_of(a) == bits_of(b) || (isnan(a) && isnan(b));
}

static void compare_with_golden(rp_dtype t) {
    size_t n_blocks;
    unsigned char *golden = read_golden(t, &n_blocks);
    size_t block_bytes = rp__dtype_block_bytes(t), elems = (size_t)rp__dtype_block_elems(t);
    size_t n = n_blocks * elems;
    float *want = malloc(n * sizeof *want), *got = malloc((n + 1) * sizeof *got);
    memcpy(want, golden + n_blocks * block_bytes, n * sizeof *want);
    for (size_t shift = 0; shift < 2; shift++) { /* an odd address must do as well */
        unsigned char *src = malloc(n_blocks * block_bytes + shift);
        memcpy(src + shift, golden, n_blocks * block_bytes);
        got[n] = 12345.0f;
        rp__dtype_to_f32(t, src + shift, got, (int64_t)n);
        for (size_t i = 0; i < n; i++)
            if (!same(got[i], want[i]))
                fail_msg("%s element %zu: got %a, want %a", rp__dtype_name(t), i, (double)got[i],
                         (double)want[i]);
        assert_true(got[n] == 12345.0f); /* nothing is written past the end */
        free(src);
    }
    free(golden);
    free(want);
    free(got);
}

RP_TEST(tensor, block_formats_equal_the_reference) {
    int n_formats = 0;
    for (int t = 0; t < RP_N_DTYPES; t++) {
        if (!rp__dtype_is_block((rp_dtype)t) || !rp__dtype_is_weight((rp_dtype)t)) continue;
        compare_with_golden((rp_dtype)t);
        n_formats++;
    }
    assert_int_equal(n_formats, 11);
}

RP_TEST(tensor, plain_types_convert_by_value) {
    float y[3];
    unsigned char raw[32];
    rp__dtype_to_f32(RP_I8, (int8_t[]){-128, 0, 127}, y, 3);
    assert_true(y[0] == -128 && y[1] == 0 && y[2] == 127);
    rp__dtype_to_f32(RP_U8, (uint8_t[]){255, 1, 0}, y, 3);
    assert_true(y[0] == 255 && y[1] == 1 && y[2] == 0);
    rp__dtype_to_f32(RP_I16, (int16_t[]){-32768, 5}, y, 2);
    assert_true(y[0] == -32768 && y[1] == 5);
    rp__dtype_to_f32(RP_I32, (int32_t[]){16777217, -7}, y, 2);
    assert_true(y[0] == 16777216 && y[1] == -7); /* nearest F32, ties to even */
    memcpy(raw + 1, (int64_t[]){INT64_MIN, 3}, 16);
    rp__dtype_to_f32(RP_I64, raw + 1, y, 2);
    assert_true(y[0] == -0x1p63f && y[1] == 3);
    memcpy(raw + 3, (double[]){0.1, 1e300}, 16);
    rp__dtype_to_f32(RP_F64, raw + 3, y, 2);
    assert_true(y[0] == 0.1f && isinf(y[1]));
    rp__dtype_to_f32(RP_BF16, (uint16_t[]){0x3F80, 0xC000}, y, 2);
    assert_true(y[0] == 1 && y[1] == -2);
    rp__dtype_to_f32(RP_F32, (float[]){1.5f}, y, 1);
    assert_true(y[0] == 1.5f);
}

RP_TEST(tensor, encoding_goes_to_plain_floats_only) {
    float x[2] = {1.0f, -2.5f};
    uint16_t h[2];
    assert_true(rp__dtype_from_f32(RP_F16, x, h, 2));
    assert_int_equal(h[0], 0x3C00);
    assert_int_equal(h[1], 0xC100);
    assert_true(rp__dtype_from_f32(RP_BF16, x, h, 2));
    assert_int_equal(h[0], 0x3F80);
    assert_int_equal(h[1], 0xC020);
    assert_false(rp__dtype_from_f32(RP_Q8_0, x, h, 2));
    assert_false(rp__dtype_from_f32(RP_I32, x, h, 2));
}

/* What llama.cpp's tables of dot products pair (vec_dot_type of a type). */
RP_TEST(tensor, activations_of_weights) {
    static const struct {
        rp_dtype weight, wanted;
    } rows[] = {
        {RP_Q4_0, RP_Q8_0}, {RP_Q5_0, RP_Q8_0}, {RP_Q8_0, RP_Q8_0}, {RP_IQ4_NL, RP_Q8_0},
        {RP_Q4_1, RP_Q8_1}, {RP_Q5_1, RP_Q8_1}, {RP_Q2_K, RP_Q8_K}, {RP_Q3_K, RP_Q8_K},
        {RP_Q4_K, RP_Q8_K}, {RP_Q5_K, RP_Q8_K}, {RP_Q6_K, RP_Q8_K},
    };
    rp_dtype t;
    int n = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_true(rp__dtype_activation(rows[i].weight, 8, &t));
        assert_int_equal(t, rows[i].wanted);
        assert_true(rp__dtype_activation(rows[i].weight, 16, &t));
        assert_int_equal(t, RP_Q16);
    }
    for (int i = 0; i < RP_N_DTYPES; i++)
        n += rp__dtype_activation((rp_dtype)i, 8, &t) + rp__dtype_activation((rp_dtype)i, 16, &t);
    assert_int_equal(n, 2 * 11);
}

/* What encoding loses, decoding shows: at most half a step of a block's largest / 127, and half a
 * unit of F16 in the step itself; of Q16 / 32639, where a low digit of 128 loses another step, and
 * a unit of F32. */
RP_TEST(tensor, encoded_activations_decode_within_half_a_step) {
    static const rp_dtype types[] = {RP_Q8_0, RP_Q8_1, RP_Q8_K, RP_Q16};
    uint64_t seed = 5;
    for (int i = 0; i < 4; i++) {
        double most = types[i] == RP_Q16 ? 1.5 / 32639 + 1.2e-7 : 0.5 / 127 + 1.0 / 2048;
        float x[512], y[512];
        unsigned char blocks[16 * 76]; /* the largest of them */
        size_t n_blocks = 512 / (size_t)rp__dtype_block_elems(types[i]);
        for (int e = 0; e < 512; e++) x[e] = (float)rp_test_randf(&seed);
        rp__blocks_encode(types[i], x, blocks, (int64_t)n_blocks);
        rp__dtype_to_f32(types[i], blocks, y, 512);
        for (int e = 0; e < 512; e++)
            assert_true(fabs((double)x[e] - (double)y[e]) <= most);
    }
}

RP_TEST(tensor, dtype_table) {
    rp_dtype t;
    const char *known = "untouched";
    assert_true(rp__dtype_from_name("q4_k", &t));
    assert_int_equal(t, RP_Q4_K);
    assert_string_equal(rp__dtype_name(RP_Q4_K), "Q4_K");
    assert_false(rp__dtype_from_name("Q9_9", &t));
    assert_true(rp__dtype_from_gguf(30, &t, &known));
    assert_int_equal(t, RP_BF16);
    assert_int_equal(rp__dtype_to_gguf(RP_IQ4_NL), 20);
    assert_int_equal(rp__dtype_to_gguf(RP_U8), -1);
    assert_false(rp__dtype_from_gguf(16, &t, &known));
    assert_string_equal(known, "IQ2_XXS");
    assert_false(rp__dtype_from_gguf(9, &t, &known)); /* for activations only */
    assert_string_equal(known, "Q8_1");
    assert_false(rp__dtype_from_gguf(15, &t, &known));
    assert_string_equal(known, "Q8_K");
    assert_false(rp__dtype_from_gguf(42, &t, &known));
    assert_null(known);
    assert_false(rp__dtype_from_gguf(UINT32_MAX, &t, &known));

    size_t bytes;
    assert_true(rp__dtype_bytes(RP_Q4_K, 512, &bytes));
    assert_int_equal(bytes, 288);
    assert_false(rp__dtype_bytes(RP_Q4_K, 300, &bytes)); /* half a block */
    assert_false(rp__dtype_bytes(RP_F32, -1, &bytes));
    assert_false(rp__dtype_bytes(RP_F32, INT64_MAX, &bytes)); /* wraps */
    assert_true(rp__dtype_bytes(RP_F32, 0, &bytes));
    assert_int_equal(bytes, 0);
}
