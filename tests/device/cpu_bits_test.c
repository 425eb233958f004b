/* The cpu device's promise on bits: a row's result does not depend on the rows beside it, on
 * threads, on eager or replayed, nor on the instruction set if it fuses products and sums. And the
 * op corpus on every instruction set of this machine. */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/isa.h"
#include "device/device.h"
#include "op/corpus.h"
#include "tensor/blocks.h"
#include "tensor/dtype.h"
#include "tensor/view.h"

/* The n-th fast set that this machine runs; NULL past the last. */
static const char *isa_at(int n) {
    const rp__body_set *set;
    for (int i = 0; (set = rp__body_at(i)) != &rp__body_reference; i++)
        if (set->is_available() && n-- == 0) return set->name;
    return NULL;
}

static bool fuses(const char *isa) {
    return strcmp(isa, "generic") != 0;
}

static rp_device *open_cpu(const char *isa, int n_threads) {
    char options[32];
    rp_error err = {0};
    rp_device *dev;
    snprintf(options, sizeof options, "isa=%s", isa);
    rp_device_config config = {.bytes = sizeof config, .n_threads = n_threads, .options = options};
    assert_ok(rp__device_open("cpu", &config, &dev, &err), err);
    return dev;
}

RP_TEST(cpu, corpus_on_every_instruction_set) {
    const char *isa;
    for (int i = 0; (isa = isa_at(i)); i++) {
        rp_device *dev = open_cpu(isa, 3);
        rp_corpus_result r;
        rp_corpus_run(dev, NULL, &r);
        assert_int_equal(r.n_failed, 0);
        assert_true(r.n_run > 100);
        rp__device_close(dev);
    }
}

RP_TEST(cpu, options_and_threads_are_checked) {
    rp_error err = {0};
    rp_device *dev;
    rp_device_config config = {.bytes = sizeof config, .options = "isa=z80"};
    assert_int_equal(rp__device_open("cpu", &config, &dev, &err), RP_EINVAL);
    assert_message(err, "z80");
    assert_message(err, "generic");
    config.options = "colour=red";
    assert_int_equal(rp__device_open("cpu", &config, &dev, &err), RP_EINVAL);
    assert_message(err, "colour=red");
    config.options = NULL;
    config.n_threads = -1;
    assert_int_equal(rp__device_open("cpu", &config, &dev, &err), RP_EINVAL);
    assert_message(err, "-1");
}

/* ---- an op with its buffers ---- */

typedef struct rig {
    rp_device *dev;
    rp_op op;
    rp_buffer *bufs[12];
    int n_bufs;
} rig;

static rp_buffer *rig_buffer(rig *r, const void *src, size_t n) {
    rp_error err = {0};
    rp_buffer *b;
    assert_ok(rp__buffer_create(r->dev, "operand", n, true, &b, &err), err);
    if (src) assert_ok(rp__buffer_write(b, 0, src, n, &err), err);
    r->bufs[r->n_bufs++] = b;
    return b;
}

static rp_tensor rig_tensor(rig *r, rp_dtype dtype, const void *src, int n_dims,
                            const int64_t *dim) {
    rp_tensor t = rp__tensor_make(NULL, 0, dtype, n_dims, dim);
    t.buffer = rig_buffer(r, src, rp__tensor_span(&t));
    return t;
}

static rp_tensor rig_weight(rig *r, rp_dtype dtype, const void *src, int n_dims,
                            const int64_t *dim) {
    rp_error err = {0};
    rp_tensor t = rp__tensor_make(NULL, 0, dtype, n_dims, dim);
    t.is_weight = 1;
    t.buffer = rig_buffer(r, NULL, rp__weight_bytes(r->dev, &t));
    assert_ok(rp__weight_write(&t, 0, rp__tensor_rows(&t), src, &err), err);
    return t;
}

/* Runs eagerly, or captures and replays; the output into `out`. */
static void rig_run(rig *r, bool captured, void *out, size_t n) {
    rp_error err = {0};
    rp_buffer *y = r->op.out[0].buffer;
    void *poison = malloc(n);
    memset(poison, 0xFF, n);
    assert_ok(rp__device_prepare(r->dev, &r->op, &err), err);
    if (captured) {
        rp_graph *graph;
        assert_ok(rp__capture_begin(r->dev, &err), err);
        assert_ok(rp__device_run(r->dev, &r->op, &err), err);
        assert_ok(rp__capture_end_graph(r->dev, "g", &graph, &err), err);
        assert_ok(rp__buffer_write(y, 0, poison, n, &err), err);
        assert_ok(rp__graph_replay(graph, &err), err);
        rp__graph_destroy(graph);
    } else {
        assert_ok(rp__device_run(r->dev, &r->op, &err), err);
    }
    assert_ok(rp__buffer_read(y, 0, out, n, &err), err);
    free(poison);
}

static void rig_clear(rig *r) {
    rp_error err = {0};
    while (r->n_bufs) assert_ok(rp__buffer_destroy(r->bufs[--r->n_bufs], &err), err);
}

static float *random_floats(size_t n, uint64_t seed) {
    float *f = malloc(n * sizeof *f);
    for (size_t i = 0; i < n; i++) f[i] = rp_test_randf(&seed);
    return f;
}

static void same_bits(const float *want, const float *got, size_t n, const char *what,
                      const char *isa, int64_t t) {
    for (size_t i = 0; i < n; i++)
        if (memcmp(&want[i], &got[i], sizeof(float)))
            fail_msg("%s on %s, T=%lld, element %zu: %a, and %a among others", what, isa,
                     (long long)t, i, (double)got[i], (double)want[i]);
}

/* ---- matmul: rows alone and together, wide and narrow ---- */

enum { MOST_ROWS = 33, N = 72, K = 512 };

static void matmul(rp_device *dev, rp_dtype dtype, const uint8_t *file, const float *x, int64_t t,
                   bool captured, float *y) {
    rig r = {.dev = dev, .op = {.kind = RP_OP_MATMUL, .n_in = 2, .n_out = 1}};
    r.op.in[0] = rig_tensor(&r, RP_F32, x, 2, (int64_t[]){t, K});
    r.op.in[1] = rig_weight(&r, dtype, file, 2, (int64_t[]){N, K});
    r.op.out[0] = rig_tensor(&r, RP_F32, NULL, 2, (int64_t[]){t, N});
    rig_run(&r, captured, y, (size_t)t * N * sizeof *y);
    rig_clear(&r);
}

/* Bytes below 0x40 give small finite scales in every block format. */
static uint8_t *small_weights(rp_dtype dtype, uint64_t seed) {
    size_t n;
    rp__dtype_bytes(dtype, (int64_t)N * K, &n);
    uint8_t *file = malloc(n);
    for (size_t i = 0; i < n; i++) file[i] = (uint8_t)(rp_test_rand(&seed) >> 40) & 0x3B;
    return file;
}

/* `all` [MOST_ROWS, N] is the result of all rows at once. */
static void matmul_alone_and_together(const char *isa, rp_dtype dtype, const uint8_t *file,
                                      const float *x, float *all) {
    float *some = malloc(sizeof(float) * MOST_ROWS * N);
    for (int n_threads = 1; n_threads <= 4; n_threads++) {
        rp_device *dev = open_cpu(isa, n_threads);
        if (n_threads == 1) matmul(dev, dtype, file, x, MOST_ROWS, false, all);
        for (int64_t t = 1; t <= MOST_ROWS; t += n_threads == 2 ? 1 : 7) {
            matmul(dev, dtype, file, x + (MOST_ROWS - t) * K, t, t % 2, some);
            same_bits(all + (MOST_ROWS - t) * N, some, (size_t)t * N, rp__dtype_name(dtype), isa,
                      t);
        }
        rp__device_close(dev);
    }
    free(some);
}

RP_TEST(cpu, matmul_rows_have_the_same_bits_alone_and_together) {
    static const rp_dtype dtypes[] = {RP_F32,  RP_F16,  RP_BF16, RP_Q4_0,  RP_Q4_1,
                                      RP_Q5_0, RP_Q5_1, RP_Q8_0, RP_Q2_K,  RP_Q3_K,
                                      RP_Q4_K, RP_Q5_K, RP_Q6_K, RP_IQ4_NL};
    const char *isa;
    float *x = random_floats(MOST_ROWS * K, 5);
    float *all = malloc(sizeof(float) * MOST_ROWS * N),
          *wider = malloc(sizeof(float) * MOST_ROWS * N);
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        uint8_t *file = small_weights(dtypes[d], 100 + d);
        bool has_wider = false;
        for (int i = 0; (isa = isa_at(i)); i++) {
            matmul_alone_and_together(isa, dtypes[d], file, x, all);
            if (fuses(isa) && has_wider)
                same_bits(wider, all, MOST_ROWS * N, "another set", isa, MOST_ROWS);
            memcpy(wider, all, sizeof(float) * MOST_ROWS * N);
            has_wider = true;
        }
        free(file);
    }
    free(x), free(all), free(wider);
}

/* ---- the same with rounded activations, in more rows than one go of a kernel takes ---- */

enum { MANY_ROWS = 300 };

static void matmul_rounded(rp_device *dev, rp_dtype dtype, const uint8_t *file, rp_dtype x_dtype,
                           const uint8_t *x, int64_t t, bool captured, float *y) {
    rig r = {.dev = dev, .op = {.kind = RP_OP_MATMUL, .n_in = 2, .n_out = 1}};
    r.op.in[0] = rig_tensor(&r, x_dtype, x, 2, (int64_t[]){t, K});
    r.op.in[1] = rig_weight(&r, dtype, file, 2, (int64_t[]){N, K});
    r.op.out[0] = rig_tensor(&r, RP_F32, NULL, 2, (int64_t[]){t, N});
    rig_run(&r, captured, y, (size_t)t * N * sizeof *y);
    rig_clear(&r);
}

static void check_rounded_rows(rp_dtype dtype, const uint8_t *file, rp_dtype x_dtype,
                               const uint8_t *x, size_t x_bytes) {
    static const int64_t rows[] = {1, 2, 7, 12, 13, 72, 263, 264, 265};
    const char *isa;
    float *all = malloc(sizeof(float) * MANY_ROWS * N);
    float *some = malloc(sizeof(float) * MANY_ROWS * N);
    for (int i = 0; (isa = isa_at(i)); i++) {
        for (int n_threads = 1; n_threads <= 4; n_threads *= 2) {
            rp_device *dev = open_cpu(isa, n_threads);
            if (n_threads == 1)
                matmul_rounded(dev, dtype, file, x_dtype, x, MANY_ROWS, false, all);
            for (size_t j = 0; j < sizeof rows / sizeof *rows; j++) {
                int64_t t = rows[j], from = MANY_ROWS - t;
                matmul_rounded(dev, dtype, file, x_dtype, x + (size_t)from * x_bytes, t, j % 2,
                               some);
                same_bits(all + from * N, some, (size_t)t * N, rp__dtype_name(dtype), isa, t);
            }
            rp__device_close(dev);
        }
    }
    free(all), free(some);
}

RP_TEST(cpu, matmul_of_rounded_rows_has_the_same_bits_in_any_number) {
    static const rp_dtype dtypes[] = {RP_Q4_0, RP_Q4_1, RP_Q8_0, RP_Q4_K, RP_Q6_K};
    float *x = random_floats(MANY_ROWS * K, 9);
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        uint8_t *file = small_weights(dtypes[d], 200 + d);
        for (int bits = 8; bits <= 16; bits += 8) {
            rp_dtype x_dtype;
            size_t x_bytes;
            assert_true(rp__dtype_activation(dtypes[d], bits, &x_dtype));
            assert_true(rp__dtype_bytes(x_dtype, K, &x_bytes));
            uint8_t *rounded = malloc(MANY_ROWS * x_bytes);
            rp__blocks_encode(x_dtype, x, rounded, MANY_ROWS * K / rp__dtype_block_elems(x_dtype));
            check_rounded_rows(dtypes[d], file, x_dtype, rounded, x_bytes);
            free(rounded);
        }
        free(file);
    }
    free(x);
}

/* The sum itself, in double precision from the decoded weights. */
RP_TEST(cpu, matmul_of_every_dtype_is_right) {
    const char *isa;
    float *x = random_floats(2 * K, 9), *w = malloc(sizeof(float) * N * K), y[2 * N];
    for (int d = 0; d < RP_N_DTYPES; d++) {
        if (!rp__dtype_is_block((rp_dtype)d) || !rp__dtype_is_weight((rp_dtype)d)) continue;
        uint8_t *file = small_weights((rp_dtype)d, 200 + (uint64_t)d);
        rp__dtype_to_f32((rp_dtype)d, file, w, (int64_t)N * K);
        for (int i = 0; (isa = isa_at(i)); i++) {
            rp_device *dev = open_cpu(isa, 2);
            for (int64_t t = 1; t <= 2; t++) {
                matmul(dev, (rp_dtype)d, file, x, t, false, y);
                for (int64_t o = 0; o < t * N; o++) {
                    double sum = 0, size = 0;
                    for (int64_t k = 0; k < K; k++) {
                        double p = (double)x[o / N * K + k] * w[o % N * K + k];
                        sum += p, size += p < 0 ? -p : p;
                    }
                    double off = sum - y[o];
                    if (!(off < 1e-5 * size && off > -1e-5 * size))
                        fail_msg("%s on %s: %g, wanted %g", rp__dtype_name((rp_dtype)d), isa,
                                 (double)y[o], sum);
                }
            }
            rp__device_close(dev);
        }
        free(file);
    }
    free(x), free(w);
}

/* ---- attention: a prompt whole, in chunks and token by token, over different block tables ---- */

enum { CONTEXT = 700, HEADS = 6, KV_HEADS = 2, DIM = 40 /* not whole vectors */ };

/* The last n of CONTEXT positions as queries; blocks of `block` positions, stored backwards when
 * asked. */
static void attend(rp_device *dev, const float *q, const uint16_t *kv, int64_t first, int64_t n,
                   int64_t block, bool backwards, int window, float *y) {
    rig r = {.dev = dev, .op = {.kind = RP_OP_ATTENTION, .n_in = 6, .n_out = 1}};
    int64_t n_blocks = (CONTEXT + block - 1) / block;
    size_t cache_bytes = (size_t)(n_blocks * KV_HEADS * block * DIM) * sizeof *kv;
    uint16_t *cache[2];
    int32_t table[CONTEXT], seq[CONTEXT] = {0}, pos[CONTEXT];
    for (int side = 0; side < 2; side++) {
        cache[side] = malloc(cache_bytes);
        memset(cache[side], 0xFF, cache_bytes); /* NaN wherever nothing is written */
        for (int64_t p = 0; p < first + n; p++)
            for (int64_t h = 0; h < KV_HEADS; h++) {
                int64_t b = backwards ? n_blocks - 1 - p / block : p / block;
                memcpy(cache[side] + ((b * KV_HEADS + h) * block + p % block) * DIM,
                       kv + ((side * CONTEXT + p) * KV_HEADS + h) * DIM, DIM * sizeof *kv);
            }
    }
    for (int64_t b = 0; b < n_blocks; b++) table[b] = (int32_t)(backwards ? n_blocks - 1 - b : b);
    for (int64_t t = 0; t < n; t++) pos[t] = (int32_t)(first + t);
    r.op.p.attention.scale = 0.25f;
    r.op.p.attention.window = window;
    r.op.in[0] = rig_tensor(&r, RP_F32, q + first * HEADS * DIM, 3, (int64_t[]){n, HEADS, DIM});
    for (int i = 0; i < 2; i++)
        r.op.in[1 + i] =
            rig_tensor(&r, RP_F16, cache[i], 4, (int64_t[]){n_blocks, KV_HEADS, block, DIM});
    r.op.in[3] = rig_tensor(&r, RP_I32, table, 2, (int64_t[]){1, n_blocks});
    r.op.in[4] = rig_tensor(&r, RP_I32, seq, 1, &n);
    r.op.in[5] = rig_tensor(&r, RP_I32, pos, 1, &n);
    r.op.out[0] = rig_tensor(&r, RP_F32, NULL, 3, (int64_t[]){n, HEADS, DIM});
    rig_run(&r, n % 2, y, (size_t)(n * HEADS * DIM) * sizeof *y);
    rig_clear(&r);
    free(cache[0]), free(cache[1]);
}

static void attention_whole_and_in_parts(const char *isa, int window, const float *q,
                                         const uint16_t *kv, float *all) {
    enum { ROW = HEADS * DIM };
    static const struct {
        int64_t first, n, block;
    } parts[] = {{0, 1, 16},   {1, 31, 16}, {250, 13, 32},  {255, 2, 1}, {256, 1, 16},
                 {511, 1, 64}, {512, 1, 7}, {600, 100, 16}, {699, 1, 16}};
    float *some = malloc(sizeof(float) * CONTEXT * ROW);
    rp_device *dev = open_cpu(isa, 1);
    attend(dev, q, kv, 0, CONTEXT, 16, false, window, all);
    rp__device_close(dev);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        dev = open_cpu(isa, 1 + (int)i % 4);
        attend(dev, q, kv, parts[i].first, parts[i].n, parts[i].block, i % 2, window, some);
        same_bits(all + parts[i].first * ROW, some, (size_t)parts[i].n * ROW, "attention", isa,
                  parts[i].first);
        rp__device_close(dev);
    }
    free(some);
}

RP_TEST(cpu, attention_has_the_same_bits_whole_in_chunks_and_token_by_token) {
    const char *isa;
    size_t n = (size_t)CONTEXT * HEADS * DIM, n_kv = 2 * (size_t)CONTEXT * KV_HEADS * DIM;
    float *q = random_floats(n, 21), *f = random_floats(n_kv, 22), *all = malloc(n * sizeof *all);
    float *wider = malloc(n * sizeof *wider);
    uint16_t *kv = malloc(n_kv * sizeof *kv);
    rp__dtype_from_f32(RP_F16, f, kv, (int64_t)n_kv);
    for (int window = 0; window <= 300; window += 300) {
        bool has_wider = false;
        for (int i = 0; (isa = isa_at(i)); i++) {
            attention_whole_and_in_parts(isa, window, q, kv, all);
            if (fuses(isa) && has_wider)
                same_bits(wider, all, n, "attention in another set", isa, 0);
            memcpy(wider, all, n * sizeof *all);
            has_wider = true;
        }
    }
    free(q), free(f), free(all), free(wider), free(kv);
}

/* A weight of 0 must not bring a later position's NaN to rows that come before it. */
RP_TEST(cpu, attention_keeps_a_later_position_out_of_earlier_rows) {
    enum { ROW = HEADS * DIM, LOST = 500 };
    const char *isa;
    size_t n = (size_t)CONTEXT * ROW, n_kv = 2 * (size_t)CONTEXT * KV_HEADS * DIM;
    float *q = random_floats(n, 23), *f = random_floats(n_kv, 24);
    float *want = malloc(n * sizeof *want), *got = malloc(n * sizeof *got);
    uint16_t *kv = malloc(n_kv * sizeof *kv);
    for (int i = 0; (isa = isa_at(i)); i++) {
        rp_device *dev = open_cpu(isa, 2);
        rp__dtype_from_f32(RP_F16, f, kv, (int64_t)n_kv);
        attend(dev, q, kv, 0, CONTEXT, 16, false, 0, want);
        uint16_t *v = kv + (size_t)(CONTEXT + LOST) * KV_HEADS * DIM;
        for (int e = 0; e < KV_HEADS * DIM; e++) v[e] = 0x7E00; /* NaN */
        attend(dev, q, kv, 0, CONTEXT, 16, false, 0, got);
        rp__device_close(dev);
        same_bits(want, got, (size_t)LOST * ROW, "attention before a NaN", isa, 0);
        for (size_t e = (size_t)LOST * ROW; e < n; e++) assert_true(got[e] != got[e]);
    }
    free(q), free(f), free(want), free(got), free(kv);
}

/* ---- the same bits on another machine ---- */

static uint64_t digest(const void *p, size_t n) { /* FNV-1a */
    uint64_t h = 0xCBF29CE484222325;
    for (size_t i = 0; i < n; i++) h = (h ^ ((const uint8_t *)p)[i]) * 0x100000001B3;
    return h;
}

static uint64_t digest_of_matmul(rp_device *dev, rp_dtype dtype) {
    float *x = random_floats(MOST_ROWS * K, 31), y[MOST_ROWS * N];
    uint8_t *file = small_weights(dtype, 32);
    matmul(dev, dtype, file, x, MOST_ROWS, false, y);
    free(x), free(file);
    return digest(y, sizeof y);
}

static uint64_t digest_of_rounded(rp_device *dev, rp_dtype x_dtype) {
    float *x = random_floats(MOST_ROWS * K, 33), y[MOST_ROWS * N];
    uint8_t rounded[MOST_ROWS * K / 32 * 76], *file = small_weights(RP_Q4_1, 34);
    rp__blocks_encode(x_dtype, x, rounded, MOST_ROWS * K / 32);
    matmul_rounded(dev, RP_Q4_1, file, x_dtype, rounded, MOST_ROWS, false, y);
    free(x), free(file);
    return digest(y, sizeof y);
}

static uint64_t digest_of_attention(rp_device *dev) {
    enum { ROW = HEADS * DIM, N_KV = 2 * CONTEXT * KV_HEADS * DIM };
    float *q = random_floats(CONTEXT * ROW, 35), *f = random_floats(N_KV, 36);
    uint16_t *kv = malloc(N_KV * sizeof *kv);
    float y[33 * ROW];
    rp__dtype_from_f32(RP_F16, f, kv, N_KV);
    attend(dev, q, kv, CONTEXT - 33, 33, 16, false, 0, y);
    free(q), free(f), free(kv);
    return digest(y, sizeof y);
}

/* Whatever the architecture. Another order of operations is another number here. */
RP_TEST(cpu, every_machine_that_fuses_has_these_bits) {
    static const unsigned long long want[] = {0x16268B8E55070744, 0x6553E82733B6F86E,
                                              0xA991C894A15AD0FE, 0xFB8C54B05BB9EDD8,
                                              0xB025470DC5A9B282};
    const char *isa;
    for (int i = 0; (isa = isa_at(i)) && fuses(isa); i++) {
        rp_device *dev = open_cpu(isa, 2);
        unsigned long long got[] = {digest_of_matmul(dev, RP_BF16), digest_of_matmul(dev, RP_Q4_0),
                                    digest_of_rounded(dev, RP_Q8_1), digest_of_rounded(dev, RP_Q16),
                                    digest_of_attention(dev)};
        rp__device_close(dev);
        if (memcmp(got, want, sizeof want))
            fail_msg("%s has 0x%llX, 0x%llX, 0x%llX, 0x%llX, 0x%llX", isa, got[0], got[1], got[2],
                     got[3], got[4]);
    }
    if (!fuses(isa_at(0))) RP_SKIP("this machine has no set that fuses");
}
