/* Panels against the file decoders: every dtype, odd shapes, every value, any way of writing them.
 */
#include "test.h"

#include <stdlib.h>
#include <string.h>

#include "device/cpu/panel.h"
#include "tensor/dtype.h"
#include "tensor/view.h"

/* Random blocks whose F16 scales are finite: any exponent but the last. */
static void random_blocks(rp_dtype dtype, uint8_t *p, size_t n, uint64_t *seed) {
    for (size_t i = 0; i < n; i++) p[i] = (uint8_t)(rp_test_rand(seed) >> 33);
    size_t each = rp__dtype_block_bytes(dtype);
    if (!rp__dtype_is_block(dtype)) {
        if (dtype == RP_F32 || dtype == RP_BF16 || dtype == RP_F16)
            for (size_t i = each - 1; i < n; i += each) p[i] &= 0xBB; /* no NaN, no infinity */
        if (dtype == RP_F64)
            for (size_t i = 0; i < n; i += 8) {
                double d = rp_test_randf(seed);
                memcpy(p + i, &d, 8);
            }
        return;
    }
    for (size_t b = 0; b < n; b += each) { /* clear one exponent bit of whatever may be a scale */
        static const int heads[][2] = {
            [RP_Q4_0] = {1, 1}, [RP_Q4_1] = {1, 3},   [RP_Q5_0] = {1, 1},    [RP_Q5_1] = {1, 3},
            [RP_Q8_0] = {1, 1}, [RP_IQ4_NL] = {1, 1}, [RP_Q2_K] = {81, 83},  [RP_Q3_K] = {109, 109},
            [RP_Q4_K] = {1, 3}, [RP_Q5_K] = {1, 3},   [RP_Q6_K] = {209, 209}};
        p[b + (size_t)heads[dtype][0]] &= 0xBF;
        p[b + (size_t)heads[dtype][1]] &= 0xBF;
    }
}

static void check_weight(rp_dtype dtype, int n_dims, const int64_t *dim, int64_t rows_at_a_time) {
    uint64_t seed = 77 + (uint64_t)dtype;
    rp_tensor w = rp__tensor_make(NULL, 0, dtype, n_dims, dim);
    int64_t n_rows = rp__tensor_rows(&w), k = rp__tensor_last(&w);
    size_t bytes = rp__tensor_span(&w), row_bytes = bytes / (size_t)n_rows;
    uint8_t *file = malloc(bytes), *panels = malloc(rp__panel_bytes(&w) + 64);
    float *want = malloc((size_t)k * 4), *got = malloc((size_t)k * 4);
    random_blocks(dtype, file, bytes, &seed);
    memset(panels, 0xA5, rp__panel_bytes(&w) + 64);
    for (int64_t r = 0; r < n_rows; r += rows_at_a_time) {
        int64_t n = n_rows - r < rows_at_a_time ? n_rows - r : rows_at_a_time;
        rp__panel_write(&w, panels, r, n, file + (size_t)r * row_bytes);
    }
    for (int64_t r = 0; r < n_rows; r++) {
        rp__dtype_to_f32(dtype, file + (size_t)r * row_bytes, want, k);
        rp__panel_row(&w, panels, r, got);
        for (int64_t i = 0; i < k; i++)
            if (want[i] != got[i] || want[i] != want[i])
                fail_msg("%s row %lld column %lld: file %a, panel %a", rp__dtype_name(dtype),
                         (long long)r, (long long)i, (double)want[i], (double)got[i]);
    }
    for (int i = 0; i < 64; i++) assert_int_equal(panels[rp__panel_bytes(&w) + (size_t)i], 0xA5);
    free(file), free(panels), free(want), free(got);
}

RP_TEST(cpu_panel, every_dtype_keeps_every_value) {
    for (int t = 0; t < RP_N_DTYPES; t++) {
        if (!rp__dtype_is_weight((rp_dtype)t)) continue;
        int64_t k = rp__dtype_is_block((rp_dtype)t) ? 2 * rp__dtype_block_elems((rp_dtype)t) : 37;
        check_weight((rp_dtype)t, 2, (int64_t[]){35, k}, 16);
        check_weight((rp_dtype)t, 2, (int64_t[]){16, k}, 5); /* ranges that cut panels */
        check_weight((rp_dtype)t, 3, (int64_t[]){3, 21, k}, 16);
        check_weight((rp_dtype)t, 2, (int64_t[]){1, k}, 1);
    }
}

RP_TEST(cpu_panel, panels_are_as_small_as_the_file) {
    /* A panel of Q4_1: per 32 columns 16 scales, 16 mins and 256 bytes of nibbles: 5 bits a weight.
     */
    rp_tensor w = rp__tensor_make(NULL, 0, RP_Q4_1, 2, (int64_t[]){64, 96});
    assert_int_equal(rp__panel_bytes(&w), 64 * 96 * 5 / 8);
    w.dtype = RP_Q4_0;
    assert_int_equal(rp__panel_bytes(&w), 64 * 96 * 9 / 16);
    rp_tensor k = rp__tensor_make(NULL, 0, RP_Q4_K, 2, (int64_t[]){16, 256});
    assert_int_equal(rp__panel_bytes(&k), 64 + 8 * (16 + 16 + 256)); /* 4.625 bits */
    for (int t = RP_Q5_0; t <= RP_Q6_K; t++) {
        if (!rp__dtype_is_weight((rp_dtype)t) || !rp__dtype_is_block((rp_dtype)t)) continue;
        rp_tensor w5 = rp__tensor_make(NULL, 0, (rp_dtype)t, 2, (int64_t[]){32, 512});
        if (t == RP_Q2_K || t == RP_Q3_K) continue; /* four bits for two and three */
        assert_true(rp__panel_bytes(&w5) <= rp__tensor_span(&w5) * 103 / 100);
    }
}

/* A block of Q5_0 by hand: d = 0.5, q = column number, so that weights are (i - 16) / 2. */
RP_TEST(cpu_panel, q5_0_by_hand) {
    uint8_t block[22] = {0x00, 0x38, 0x00, 0x00, 0xFF, 0xFF}, panel[RP__PANEL_ROWS * 32 * 11 / 16];
    for (int i = 0; i < 16; i++) block[6 + i] = (uint8_t)(i | i << 4);
    float row[32];
    rp_tensor w = rp__tensor_make(NULL, 0, RP_Q5_0, 2, (int64_t[]){1, 32});
    assert_int_equal(rp__panel_bytes(&w), sizeof panel);
    rp__panel_write(&w, panel, 0, 1, block);
    rp__panel_row(&w, panel, 0, row);
    for (int i = 0; i < 32; i++) assert_true(row[i] == 0.5f * (float)(i - 16));
    /* Columns 4..7 of the row: high nibbles of the first cell, bit 1 of the cell after four. */
    const uint8_t *cells = panel + RP__PANEL_ROWS * 2;
    for (int j = 0; j < 4; j++) {
        assert_int_equal(cells[j] >> 4, 4 + j);
        assert_int_equal(cells[4 * RP__PANEL_CELL + j], 0xF0); /* 16 and up from column 16 on */
    }
}

/* A hand-made block: d = 0.5, m = -1, q = 0, 1, .. 15, 0, .. */
RP_TEST(cpu_panel, q4_1_by_hand) {
    uint8_t block[20] = {0x00, 0x38, 0x00, 0xBC};
    for (int i = 0; i < 16; i++) block[4 + i] = (uint8_t)(i | i << 4);
    uint8_t panel[RP__PANEL_ROWS * 32 * 5 / 8];
    float row[32];
    rp_tensor w = rp__tensor_make(NULL, 0, RP_Q4_1, 2, (int64_t[]){1, 32});
    assert_int_equal(rp__panel_bytes(&w), sizeof panel);
    rp__panel_write(&w, panel, 0, 1, block);
    rp__panel_row(&w, panel, 0, row);
    for (int i = 0; i < 32; i++) assert_true(row[i] == 0.5f * (float)(i % 16) - 1.0f);
}
