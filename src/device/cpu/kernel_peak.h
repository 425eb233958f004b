/* What a set's instructions can do at most, with nothing to load: the limits that kernels are held
 * against. Part of kernels.h. */

enum {
    PEAK_CHAINS = TILE_ROWS > 6 ? 12 : 4, /* sums side by side: as many as hide a latency */
    PEAK_STEPS = 8,
};

/* Makes a value that the compiler cannot know. */
static float unknown_float(float f) {
    volatile float v = f;
    return v;
}

static uint64_t peak_f32(int64_t rounds) {
    v16 sum[PEAK_CHAINS], x = v16_set1(unknown_float(0.5f)), y = v16_set1(unknown_float(1));
    UNROLL for (int c = 0; c < PEAK_CHAINS; c++) sum[c] = v16_set1((float)c);
    for (int64_t i = 0; i < rounds; i++)
        UNROLL for (int c = 0; c < PEAK_CHAINS; c++) sum[c] = v16_fma(sum[c], x, y);
    for (int c = 1; c < PEAK_CHAINS; c++) sum[0] = v16_add(sum[0], sum[c]);
    (void)unknown_float(v16_sum(sum[0]));
    return (uint64_t)rounds * PEAK_CHAINS * 32;
}

/* Nibbles times bytes, PEAK_STEPS cells per group: what Q4 weights take. */
static uint64_t peak_int8(int64_t rounds) {
    uint8_t cells[PEAK_CHAINS][RP__PANEL_CELL];
    d16 sum[PEAK_CHAINS];
    const int32_t x = (int32_t)unknown_float(16909060);
    memset(cells, (int)unknown_float(3), sizeof cells);
    UNROLL for (int c = 0; c < PEAK_CHAINS; c++) sum[c] = d16_set1(c);
    for (int64_t i = 0; i < rounds / PEAK_STEPS; i++) {
        d16 run[PEAK_CHAINS];
        UNROLL for (int c = 0; c < PEAK_CHAINS; c++) run[c] = dot_begin(sum[c]);
        for (int s = 0; s < PEAK_STEPS; s++) {
            UNROLL for (int c = 0; c < PEAK_CHAINS; c++) run[c] =
                dot_small(run[c], w64_load(cells[c]), x);
            MEMORY_CHANGES();
        }
        UNROLL for (int c = 0; c < PEAK_CHAINS; c++) sum[c] = dot_end(sum[c], run[c]);
    }
    v16 total = v16_zero();
    for (int c = 0; c < PEAK_CHAINS; c++) total = v16_add(total, d16_to_v16(sum[c]));
    (void)unknown_float(v16_sum(total));
    return (uint64_t)(rounds / PEAK_STEPS) * PEAK_STEPS * PEAK_CHAINS * 128;
}

/* Reads n bytes, a multiple of 1024. */
static void read_memory(const void *p, size_t n) {
    const float *f = p;
    v16 sum[4] = {v16_zero(), v16_zero(), v16_zero(), v16_zero()};
    for (size_t i = 0; i < n / sizeof *f; i += 64)
        UNROLL for (int c = 0; c < 4; c++) sum[c] = v16_max(sum[c], v16_load(f + i + 16 * c));
    (void)unknown_float(v16_sum(v16_add(v16_add(sum[0], sum[1]), v16_add(sum[2], sum[3]))));
}
