#include "device/fixture.h"

#include <string.h>

#include "device/ttnn.h"
#include "tensor/view.h"

const device_case device_cases[] = {
    {"cpu", "cpu", NULL},
    {"emu", "emu", NULL},
    {"emu, reference bodies", "emu", "bodies=reference"},
    {"emu, runs while recording", "emu", "bodies=reference,record=run"},
    {"emu, addresses reused", "emu", "bodies=reference,reuse=always,fill=ff"},
    {"emu, hidden temporaries", "emu", "bodies=reference,hidden_temporaries=1"},
    {"tenstorrent, on a stand-in for ttnn", "tenstorrent", NULL},
    {NULL, NULL, NULL},
};


static bool is_built_in(const char *name) {
    const char *each;
    for (size_t i = 0; (each = rp__device_name_at(i)); i++)
        if (!strcmp(each, name)) return true;
    return false;
}

void on_each_device(void (*test)(rp_device *dev)) {
    for (const device_case *c = device_cases; c->label; c++) {
        bool is_tenstorrent = !strcmp(c->name, "tenstorrent");
        if (!is_built_in(c->name) || (is_tenstorrent && !rp_test_ttnn())) continue;
        rp_device *dev = open_named(c->name, is_tenstorrent ? rp_test_ttnn() : c->options);
        if (rp__device_has_capture(dev)) test(dev);
        close_clean(dev);
    }
}

rp_device *open_named(const char *name, const char *options) {
    rp_error err = {0};
    rp_device *dev;
    rp_device_config config = {.bytes = sizeof config, .n_threads = 2, .options = options};
    assert_ok(rp__device_open(name, &config, &dev, &err), err);
    return dev;
}

rp_device *open_emu(const char *options) {
    return open_named("emu", options);
}

void close_clean(rp_device *dev) {
    if (!strcmp(rp__device_name(dev), "emu")) {
        rp__emu_report r = rp__emu_get_report(dev);
        if (r.n_violations) fail_msg("emu saw a violation: %s", r.violation);
    }
    rp__device_close(dev);
}

rp_buffer *make_buffer(rp_device *dev, const char *name, size_t bytes, bool is_pinned) {
    rp_error err = {0};
    rp_buffer *buf;
    assert_ok(rp__buffer_create(dev, name, bytes, is_pinned, &buf, &err), err);
    return buf;
}

void drop_buffer(rp_buffer *buf) {
    rp_error err = {0};
    assert_ok(rp__buffer_destroy(buf, &err), err);
}

void put(rp_buffer *buf, const void *src, size_t n) {
    rp_error err = {0};
    assert_ok(rp__buffer_write(buf, 0, src, n, &err), err);
}

void get(rp_buffer *buf, void *dst, size_t n) {
    rp_error err = {0};
    assert_ok(rp__buffer_read(buf, 0, dst, n, &err), err);
}

void fill_i32(rp_buffer *buf, int32_t value) {
    rp_error err = {0};
    int32_t part[256];
    for (size_t i = 0; i < 256; i++) part[i] = value;
    for (size_t at = 0; at < buf->bytes; at += sizeof part) {
        size_t n = buf->bytes - at < sizeof part ? buf->bytes - at : sizeof part;
        assert_ok(rp__buffer_write(buf, at, part, n, &err), err);
    }
}

int32_t get_i32(rp_buffer *buf) {
    int32_t v;
    get(buf, &v, sizeof v);
    return v;
}

rp_tensor i32_vector(rp_buffer *buf, int64_t n) {
    return rp__tensor_make(buf, 0, RP_I32, 1, &n);
}

rp_tensor f32_matrix(rp_buffer *buf, int64_t rows, int64_t cols) {
    return rp__tensor_make(buf, 0, RP_F32, 2, (int64_t[]){rows, cols});
}

rp_op op_advance(rp_buffer *x, rp_buffer *y, int64_t n, int32_t step) {
    rp_op op = {.kind = RP_OP_ADVANCE, .n_in = 1, .n_out = 1, .label = "counter"};
    op.in[0] = i32_vector(x, n);
    op.out[0] = i32_vector(y, n);
    op.p.advance.step = step;
    return op;
}

rp_op op_matmul(rp_buffer *x, rp_buffer *w, rp_buffer *y, int64_t t, int64_t n, int64_t k) {
    rp_op op = {.kind = RP_OP_MATMUL, .n_in = 2, .n_out = 1, .label = "blk.0.attn_q"};
    op.in[0] = f32_matrix(x, t, k);
    op.in[1] = f32_matrix(w, n, k);
    op.in[1].is_weight = 1;
    op.out[0] = f32_matrix(y, t, n);
    return op;
}

rp_graph *capture_ops(rp_device *dev, const char *name, const rp_op *ops, size_t n) {
    rp_error err = {0};
    rp_graph *graph;
    assert_ok(rp__capture_begin(dev, &err), err);
    for (size_t i = 0; i < n; i++) assert_ok(rp__device_run(dev, &ops[i], &err), err);
    assert_ok(rp__capture_end_graph(dev, name, &graph, &err), err);
    return graph;
}
