/* Measures matmuls of the cpu device alone: GB/s of weights and GOP/s (2 T N K per call), with
 * activations in F32, in Q16 and in the 8-bit type of the weight's dtype, and what making those
 * takes.
 *
 *     bench-matmul [-w DTYPE] [-n N] [-k K] [-t T] [-i ISA] [-j THREADS] [-r REPETITIONS]
 *
 * The best of the repetitions is shown: on a busy machine it is the one that nobody disturbed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "device/device.h"
#include "tensor/dtype.h"
#include "tensor/view.h"

typedef struct config {
    rp_dtype w;
    int64_t n, k, t;
    const char *isa;
    int n_threads, n_rounds;
} config;

static void must(rp_status status, const rp_error *err) {
    if (status >= 0) return;
    fprintf(stderr, "%s\n", err->message);
    exit(1);
}

/* No scale and no float may be subnormal or infinite: both are slow. 0x3B: small scales. */
static void fill(rp_dtype dtype, uint8_t *bytes, size_t n) {
    uint32_t seed = 1;
    for (size_t i = 0; i < n; i++) {
        bytes[i] = (uint8_t)((seed = seed * 1664525u + 1013904223u) >> 24);
        if (rp__dtype_is_block(dtype)) bytes[i] &= 0x3B;
        if (rp__dtype_is_float(dtype) && i % rp__dtype_block_bytes(dtype) == 0 && i)
            bytes[i - 1] = 0x3C;
    }
}

static rp_tensor filled(rp_device *dev, rp_dtype dtype, bool is_weight, int64_t rows,
                        int64_t last) {
    rp_error err = {0};
    rp_tensor t = rp__tensor_make(NULL, 0, dtype, 2, (int64_t[]){rows, last});
    size_t span = rp__tensor_span(&t);
    t.is_weight = is_weight;
    must(rp__buffer_create(dev, "bench", is_weight ? rp__weight_bytes(dev, &t) : span, true,
                           &t.buffer, &err),
         &err);
    uint8_t *bytes = malloc(span);
    if (!bytes) abort();
    fill(dtype, bytes, span);
    must(is_weight ? rp__weight_write(&t, 0, rows, bytes, &err)
                   : rp__buffer_write(t.buffer, 0, bytes, span, &err),
         &err);
    free(bytes);
    return t;
}

/* Seconds of the fastest round. */
static double fastest(rp_device *dev, const rp_op *op, int n_rounds) {
    rp_error err = {0};
    double best = 1e9;
    must(rp__device_prepare(dev, op, &err), &err);
    for (int i = 0; i < n_rounds; i++) {
        uint64_t start = rp__clock_ns();
        must(rp__device_run(dev, op, &err), &err);
        must(rp__device_sync(dev, &err), &err);
        double s = (double)(rp__clock_ns() - start) * 1e-9;
        if (s < best) best = s;
    }
    return best;
}

static void show(const char *what, const config *c, double weight_bytes, double s) {
    double ops = 2.0 * (double)c->t * (double)c->n * (double)c->k;
    printf("  %-8s %9.1f us %8.2f GB/s %8.1f GOP/s\n", what, s * 1e6, weight_bytes / s * 1e-9,
           ops / s * 1e-9);
}

static void measure(rp_device *dev, const config *c) {
    rp_op op = {.kind = RP_OP_MATMUL, .n_in = 2, .n_out = 1};
    op.in[0] = filled(dev, RP_F32, false, c->t, c->k);
    op.in[1] = filled(dev, c->w, true, c->n, c->k);
    op.out[0] = filled(dev, RP_F32, false, c->t, c->n);
    double bytes = (double)rp__weight_bytes(dev, &op.in[1]);
    printf("%s [%lld, %lld], T=%lld\n", rp__dtype_name(c->w), (long long)c->n, (long long)c->k,
           (long long)c->t);
    show("F32", c, bytes, fastest(dev, &op, c->n_rounds));
    for (int bits = 16; bits >= 8; bits -= 8) {
        rp_op convert = {.kind = RP_OP_CONVERT, .n_in = 1, .n_out = 1}, rounded = op;
        rp_dtype to;
        if (!rp__dtype_activation(c->w, bits, &to)) break;
        convert.in[0] = op.in[0];
        convert.out[0] = rounded.in[0] = filled(dev, to, false, c->t, c->k);
        printf("  convert  %9.1f us\n", fastest(dev, &convert, c->n_rounds) * 1e6);
        show(rp__dtype_name(to), c, bytes, fastest(dev, &rounded, c->n_rounds));
        must(rp__buffer_destroy(rounded.in[0].buffer, NULL), NULL);
    }
    for (int i = 0; i < 2; i++) rp__buffer_destroy(op.in[i].buffer, NULL);
    rp__buffer_destroy(op.out[0].buffer, NULL);
}

static config parse(int argc, char **argv) {
    config c = {.w = RP_Q4_1, .n = 4096, .k = 4096, .t = 0, .n_threads = 1, .n_rounds = 20};
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *value = argv[i + 1];
        switch (argv[i][0] == '-' ? argv[i][1] : 0) {
        case 'w':
            if (rp__dtype_from_name(value, &c.w)) continue;
            break;
        case 'i':
            c.isa = value;
            continue;
        case 'n':
            if ((c.n = atoll(value)) > 0) continue;
            break;
        case 'k':
            if ((c.k = atoll(value)) > 0 && c.k % 256 == 0) continue;
            break;
        case 't':
            if ((c.t = atoll(value)) > 0) continue;
            break;
        case 'j':
            if ((c.n_threads = atoi(value)) > 0) continue;
            break;
        case 'r':
            if ((c.n_rounds = atoi(value)) > 0) continue;
            break;
        }
        fprintf(stderr, "bench-matmul: %s %s is not understood (K must fill blocks of 256)\n",
                argv[i], value);
        exit(2);
    }
    return c;
}

int main(int argc, char **argv) {
    config c = parse(argc, argv);
    rp_error err = {0};
    char options[64] = "";
    rp_device *dev;
    if (c.isa) snprintf(options, sizeof options, "isa=%s", c.isa);
    rp_device_config dc = {.bytes = sizeof dc, .n_threads = c.n_threads, .options = options};
    must(rp__device_open("cpu", &dc, &dev, &err), &err);
    printf("%s\n", rp__device_props(dev)->description);
    if (c.t) {
        measure(dev, &c);
    } else {
        static const int64_t rows[] = {1, 4, 512};
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) c.t = rows[i], measure(dev, &c);
    }
    rp__device_close(dev);
    return 0;
}
