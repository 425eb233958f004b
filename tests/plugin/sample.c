/* A device outside the tree, in one file that includes the public header and nothing else of
 * Reprise.
 *
 * It runs a few ops on F32, row-major, in host memory, and captures by keeping a list of ops. What
 * it does not run, it says it does not support. Arguments are not checked here: the device layer
 * did.
 *
 * Its option lost_at=N loses it for good at the N-th op. SAMPLE_ABI and SAMPLE_BYTES build broken
 * variants for the tests of loading. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reprise/device.h"

#ifndef SAMPLE_ABI
#define SAMPLE_ABI RP_DEVICE_ABI
#endif
#ifndef SAMPLE_BYTES
#define SAMPLE_BYTES sizeof(rp_device_api)
#endif

enum { MAX_OPS = 1024 };

/* A recorded op. Buffers stay alive and in place as long as the graph does, so their handles may be
 * kept. */
typedef struct graph {
    size_t n;
    rp_op ops[MAX_OPS];
} graph;

typedef struct sample {
    graph *recording;    /* NULL: not capturing */
    long n_ops, lost_at; /* the op with this number loses the device, for good; 0: none */
} sample;

static rp_status fail(rp_error *err, rp_status code, const char *text) {
    if (err) {
        err->code = code;
        snprintf(err->message, sizeof err->message, "sample: %s", text);
    }
    return code;
}

/* ---- ops ---- */

static void *at(const rp_tensor *t) {
    return t->n_dims ? (char *)t->buffer->handle + t->offset : NULL;
}

/* Row i of dim[0]. */
static float *row(const rp_tensor *t, int64_t i) {
    return (float *)((char *)at(t) + (size_t)i * t->stride);
}

static int64_t item(const rp_tensor *t) {
    int64_t n = 1;
    for (int i = 1; i < t->n_dims; i++) n *= t->dim[i];
    return n;
}

static void run_matmul(const rp_op *op) {
    int64_t k = op->in[0].dim[1];
    const float *bias = at(&op->in[2]);
    for (int64_t t = 0; t < op->out[0].dim[0]; t++)
        for (int64_t n = 0; n < op->out[0].dim[1]; n++) {
            const float *x = row(&op->in[0], t), *w = row(&op->in[1], n);
            double sum = 0;
            for (int64_t i = 0; i < k; i++) sum += (double)x[i] * w[i];
            if (bias) sum += bias[n];
            if (op->n_in > 3 && op->in[3].n_dims) sum += row(&op->in[3], t)[n];
            row(&op->out[0], t)[n] = (float)sum;
        }
}

static void run_rms_norm(const rp_op *op) {
    int64_t e = op->in[0].dim[1];
    const float *w = at(&op->in[1]);
    for (int64_t t = 0; t < op->in[0].dim[0]; t++) {
        const float *x = row(&op->in[0], t);
        float *y = row(&op->out[0], t);
        double squares = 0;
        for (int64_t i = 0; i < e; i++) squares += (double)x[i] * x[i];
        double scale = 1 / sqrt(squares / (double)e + op->p.norm.eps);
        for (int64_t i = 0; i < e; i++)
            y[i] = (float)(x[i] * scale * (w[i] + (op->p.norm.add_one ? 1.0 : 0.0)));
    }
}

static void run_add_or_mul(const rp_op *op) {
    int64_t n = item(&op->out[0]);
    for (int64_t t = 0; t < op->out[0].dim[0]; t++) {
        const float *a = row(&op->in[0], t),
                    *b = op->in[1].n_dims == 1 ? at(&op->in[1]) : row(&op->in[1], t);
        float *y = row(&op->out[0], t);
        for (int64_t i = 0; i < n; i++) y[i] = op->kind == RP_OP_ADD ? a[i] + b[i] : a[i] * b[i];
    }
}

static void run_argmax(const rp_op *op) {
    int32_t *ids = at(&op->out[0]);
    for (int64_t r = 0; r < op->in[0].dim[0]; r++) {
        const float *x = row(&op->in[0], r);
        int32_t best = 0;
        for (int64_t i = 1; i < op->in[0].dim[1]; i++)
            if (x[i] > x[best] || (isnan(x[best]) && !isnan(x[i]))) best = (int32_t)i;
        ids[r] = best;
    }
}

static void run_advance(const rp_op *op) {
    const int32_t *x = at(&op->in[0]);
    int32_t *y = at(&op->out[0]);
    for (int64_t i = 0; i < op->in[0].dim[0]; i++)
        y[i] = (int32_t)((uint32_t)x[i] + (uint32_t)op->p.advance.step);
}

static void run_now(const rp_op *op) {
    switch (op->kind) {
    case RP_OP_MATMUL:
        run_matmul(op);
        break;
    case RP_OP_RMS_NORM:
        run_rms_norm(op);
        break;
    case RP_OP_ADD:
    case RP_OP_MUL:
        run_add_or_mul(op);
        break;
    case RP_OP_ARGMAX:
        run_argmax(op);
        break;
    case RP_OP_ADVANCE:
        run_advance(op);
        break;
    default:
        break; /* supports() said no */
    }
}

static bool sample_supports(void *self, const rp_op *op) {
    (void)self;
    switch (op->kind) {
    case RP_OP_MATMUL:
        return op->in[1].dtype == RP_F32;
    case RP_OP_RMS_NORM:
        return op->in[0].n_dims == 2 && (op->n_in < 3 || !op->in[2].n_dims) &&
               (op->n_out < 2 || !op->out[1].n_dims);
    case RP_OP_ADD:
    case RP_OP_MUL:
    case RP_OP_ARGMAX:
    case RP_OP_ADVANCE:
        return true;
    default:
        return false;
    }
}

static rp_status sample_prepare(void *self, const rp_op *op, rp_error *err) {
    (void)self, (void)op, (void)err; /* nothing to compile */
    return RP_OK;
}

/* Counts ops that run. */
static bool is_lost(sample *s, size_t n) {
    s->n_ops += (long)n;
    return s->lost_at && s->n_ops >= s->lost_at;
}

static rp_status sample_run(void *self, uint32_t queue, const rp_op *op, rp_error *err) {
    sample *s = self;
    graph *g = s->recording;
    (void)queue;
    if (is_lost(s, 1)) return fail(err, RP_EDEVICE_LOST, "lost, as it was asked to be");
    if (g && g->n == MAX_OPS) return fail(err, RP_ELIMIT, "a graph holds 1024 ops");
    if (g)
        g->ops[g->n++] = *op;
    else
        run_now(op);
    return RP_OK;
}

/* ---- memory ---- */

static rp_status sample_alloc(void *self, size_t bytes, void **handle, rp_error *err) {
    (void)self;
    *handle = malloc(bytes);
    return *handle ? RP_OK : fail(err, RP_ENOMEM, "out of memory");
}

static void sample_free(void *self, void *handle) {
    (void)self;
    free(handle);
}

static rp_status sample_write(void *self, uint32_t queue, void *handle, size_t offset,
                              const void *src, size_t n, rp_error *err) {
    (void)self, (void)queue, (void)err;
    memcpy((char *)handle + offset, src, n);
    return RP_OK;
}

static rp_status sample_read(void *self, uint32_t queue, void *handle, size_t offset, void *dst,
                             size_t n, rp_error *err) {
    (void)self, (void)queue, (void)err;
    memcpy(dst, (char *)handle + offset, n);
    return RP_OK;
}

static rp_status sample_copy(void *self, uint32_t queue, void *dst, size_t dst_offset, void *src,
                             size_t src_offset, size_t n, rp_error *err) {
    (void)self, (void)queue, (void)err;
    memmove((char *)dst + dst_offset, (char *)src + src_offset, n);
    return RP_OK;
}

static rp_status sample_sync(void *self, uint32_t queue, rp_error *err) {
    (void)self, (void)queue, (void)err; /* everything runs at once */
    return RP_OK;
}

/* ---- capture ---- */

static rp_status sample_capture_begin(void *self, uint32_t queue, rp_error *err) {
    sample *s = self;
    (void)queue;
    s->recording = malloc(sizeof *s->recording);
    if (!s->recording) return fail(err, RP_ENOMEM, "out of memory");
    s->recording->n = 0;
    return RP_OK;
}

static rp_status sample_capture_end(void *self, uint32_t queue, void **out, rp_error *err) {
    sample *s = self;
    (void)queue, (void)err;
    *out = s->recording;
    s->recording = NULL;
    return RP_OK;
}

static void sample_capture_abort(void *self, uint32_t queue) {
    sample *s = self;
    (void)queue;
    free(s->recording);
    s->recording = NULL;
}

static rp_status sample_replay(void *self, uint32_t queue, void *handle, rp_error *err) {
    const graph *g = handle;
    (void)queue;
    if (is_lost(self, g->n)) return fail(err, RP_EDEVICE_LOST, "lost, as it was asked to be");
    for (size_t i = 0; i < g->n; i++) run_now(&g->ops[i]);
    return RP_OK;
}

static void sample_graph_destroy(void *self, void *handle) {
    (void)self;
    free(handle);
}

static size_t sample_graph_bytes(void *self, void *handle) {
    (void)self, (void)handle;
    return sizeof(graph);
}

/* ---- the table ---- */

static rp_status sample_open(const rp_device_config *config, void **self, rp_error *err) {
    static const char key[] = "lost_at=";
    sample *s;
    if (config->is_reopen) return fail(err, RP_EDEVICE_LOST, "it stays lost");
    *self = s = calloc(1, sizeof *s);
    if (!s) return fail(err, RP_ENOMEM, "out of memory");
    if (config->options && !strncmp(config->options, key, sizeof key - 1))
        s->lost_at = strtol(config->options + sizeof key - 1, NULL, 10);
    return RP_OK;
}

static void sample_close(void *self) {
    free(self);
}

static void sample_properties(void *self, rp_device_properties *out) {
    (void)self;
    snprintf(out->description, sizeof out->description, "sample device");
    out->alignment = 16;
    out->n_queues = 1;
    out->has_capture = true;
    out->records_only = true;
}

static const rp_device_api api = {
    .abi = SAMPLE_ABI,
    .bytes = SAMPLE_BYTES,
    .name = "sample",
    .open = sample_open,
    .close = sample_close,
    .properties = sample_properties,
    .alloc = sample_alloc,
    .free = sample_free,
    .write = sample_write,
    .read = sample_read,
    .copy = sample_copy,
    .supports = sample_supports,
    .prepare = sample_prepare,
    .run = sample_run,
    .sync = sample_sync,
    .capture_begin = sample_capture_begin,
    .capture_end = sample_capture_end,
    .capture_abort = sample_capture_abort,
    .replay = sample_replay,
    .graph_destroy = sample_graph_destroy,
    .graph_bytes = sample_graph_bytes,
};

RP_API const rp_device_api *reprise_device(void);
const rp_device_api *reprise_device(void) {
    return &api;
}
