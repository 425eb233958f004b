/* The device layer: names, buffers, checks, counters, loss; and every allocation failing once. */
#include "device/fixture.h"
#include "op/corpus.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "device/cpu/isa.h"
#include "tensor/view.h"

#define PLUGIN_DIR RP_BUILD_DIR "/plugin/"

/* ---- names ---- */

RP_TEST(device, names_and_unknown_names) {
    rp_error err = {0};
    rp_device *dev;
    assert_int_equal(rp__device_open("abacus", NULL, &dev, &err), RP_ENOTFOUND);
    assert_message(err, "\"abacus\"");
    for (size_t i = 0; rp__device_name_at(i); i++) assert_message(err, rp__device_name_at(i));
    static const char *const not_built[] = {"vulkan", "cuda", "metal"};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(rp__device_open(not_built[i], NULL, &dev, &err), RP_EUNSUPPORTED);
        assert_message(err, "not built yet");
        assert_null(dev);
    }
}

RP_TEST(device, path_adds_names) {
    rp_error err = {0};
    size_t n = 0;
    while (rp__device_name_at(n)) n++;
    assert_ok(rp__device_set_path(":/opt/a.so::./b.so:", &err), err);
    assert_string_equal(rp__device_name_at(n), "/opt/a.so");
    assert_string_equal(rp__device_name_at(n + 1), "./b.so");
    assert_null(rp__device_name_at(n + 2));
    rp__alloc_fail_at(1, false);
    assert_int_equal(rp__device_set_path("/c.so", &err), RP_ENOMEM);
    rp__alloc_fail_at(0, false);
    assert_string_equal(rp__device_name_at(n), "/opt/a.so"); /* as it was */
    assert_ok(rp__device_set_path(NULL, &err), err);
    assert_null(rp__device_name_at(n));
}

RP_TEST(device, plugin_loads_and_captures) {
    rp_error err = {0};
    rp_device *dev;
    assert_ok(rp__device_open(PLUGIN_DIR "sample.so", NULL, &dev, &err), err);
    assert_string_equal(rp__device_name(dev), "sample");
    rp_buffer *x = make_buffer(dev, "x", 4, true);
    rp_op op = op_advance(x, x, 1, 1), unknown = {.kind = RP_OP_SCALE, .n_in = 1, .n_out = 1};
    fill_i32(x, 0);
    assert_ok(rp__device_run(dev, &op, &err), err);
    rp_graph *graph = capture_ops(dev, "count", &op, 1);
    assert_ok(rp__graph_replay(graph, &err), err);
    assert_int_equal(get_i32(x), 3);
    rp__graph_destroy(graph);
    unknown.in[0] = f32_matrix(x, 1, 1);
    unknown.out[0] = unknown.in[0];
    assert_int_equal(rp__device_run(dev, &unknown, &err), RP_EUNSUPPORTED);
    assert_message(err, "sample does not run scale");
    drop_buffer(x);
    rp__device_close(dev);
}

RP_TEST(device, plugin_on_the_path_opens_by_name) {
    rp_error err = {0};
    rp_device *dev;
    assert_int_equal(rp__device_open("sample", NULL, &dev, &err), RP_ENOTFOUND);
    const char *path = "/nowhere.so:" PLUGIN_DIR "sample_abi.so:" PLUGIN_DIR "sample.so";
    assert_ok(rp__device_set_path(path, &err), err);
    assert_ok(rp__device_open("sample", NULL, &dev, &err), err);
    assert_string_equal(rp__device_name(dev), "sample");
    rp__device_close(dev);
    assert_int_equal(rp__device_open("cuda", NULL, &dev, &err), RP_EUNSUPPORTED);
    assert_ok(rp__device_set_path(NULL, &err), err);
}

RP_TEST(device, plugin_of_another_version_is_refused) {
    rp_error err = {0};
    rp_device *dev;
    assert_int_equal(rp__device_open(PLUGIN_DIR "sample_abi.so", NULL, &dev, &err), RP_EVERSION);
    assert_message(err, "version 99");
    assert_int_equal(rp__device_open(PLUGIN_DIR "sample_bytes.so", NULL, &dev, &err), RP_EVERSION);
    assert_message(err, "has 16 bytes");
    assert_int_equal(rp__device_open(PLUGIN_DIR "absent.so", NULL, &dev, &err), RP_ENOTFOUND);
    assert_message(err, "absent.so");
    assert_int_equal(rp__device_open("/lib/x86_64-linux-gnu/libm.so.6", NULL, &dev, &err),
                     access("/lib/x86_64-linux-gnu/libm.so.6", R_OK) ? RP_ENOTFOUND : RP_EVERSION);
}

RP_TEST(device, incomplete_tables_are_refused) {
    rp_error err = {0};
    rp_device *dev;
    rp_device_api api = rp__emu_api;
    api.run = NULL;
    assert_int_equal(rp__device_open_api(&api, NULL, &dev, &err), RP_EVERSION);
    assert_message(err, "lacks a required function");
    api = rp__emu_api;
    api.replay = NULL;
    assert_int_equal(rp__device_open_api(&api, NULL, &dev, &err), RP_EVERSION);
    assert_message(err, "optional group");
    api = rp__emu_api;
    api.capture_begin = NULL, api.capture_end = NULL, api.capture_abort = NULL;
    api.replay = NULL, api.graph_destroy = NULL, api.graph_bytes = NULL;
    assert_int_equal(rp__device_open_api(&api, NULL, &dev, &err),
                     RP_EVERSION); /* it says has_capture */
    assert_message(err, "has_capture");
    rp_device_config config = {.bytes = 1};
    assert_int_equal(rp__device_open("emu", &config, &dev, &err), RP_EVERSION);
}

/* A table from before devices had clocks: what stands behind its end is never looked at. */
RP_TEST(device, table_without_a_clock_is_taken) {
    rp_error err = {0};
    rp_device *dev;
    rp_device_api api = rp__emu_api;
    api.bytes = (uint32_t)offsetof(rp_device_api, clock_us);
    api.clock_us = (double (*)(void *))(uintptr_t)1;
    api.clock_host_op = NULL;
    assert_ok(rp__device_open_api(&api, NULL, &dev, &err), err);
    double first = rp__device_clock_us(dev);
    assert_true(first > 0 && rp__device_clock_us(dev) >= first); /* real time */
    rp__device_clock_host_op(dev, NULL);
    rp_op op = {.kind = RP_OP_ADVANCE};
    assert_true(rp__device_estimate_us(dev, &op) == 0 && rp__device_submit_limit_us(dev) == 0);
    rp__device_close(dev);
}

RP_TEST(device, without_capture_it_says_so) {
    rp_error err = {0};
    rp_device *dev = open_emu("bodies=reference,capture=0");
    assert_false(rp__device_has_capture(dev));
    assert_int_equal(rp__capture_begin(dev, &err), RP_EUNSUPPORTED);
    rp_buffer *x = make_buffer(dev, "x", 4, false);
    rp_op op = op_advance(x, x, 1, 5);
    fill_i32(x, 1);
    assert_ok(rp__device_run(dev, &op, &err), err);
    assert_int_equal(get_i32(x), 6);
    drop_buffer(x);
    close_clean(dev);
}

/* ---- buffers ---- */

static void ranges_are_checked(rp_device *dev) {
    rp_error err = {0};
    rp_buffer *buf = make_buffer(dev, "small", 64, false),
              *other = make_buffer(dev, "other", 32, false), *none;
    unsigned char data[128] = {1, 2, 3};
    assert_int_equal(rp__buffer_write(buf, 0, data, 65, &err), RP_EINVAL);
    assert_message(err, "write of 65 bytes at 0 is outside buffer \"small\" of 64 bytes");
    assert_int_equal(rp__buffer_write(buf, 65, data, 0, &err), RP_EINVAL);
    assert_int_equal(rp__buffer_write(buf, SIZE_MAX, data, 2, &err), RP_EINVAL);
    assert_int_equal(rp__buffer_read(buf, 60, data, 5, &err), RP_EINVAL);
    assert_int_equal(rp__buffer_copy(other, 0, buf, 0, 33, &err), RP_EINVAL);
    assert_int_equal(rp__buffer_copy(other, 0, buf, 40, 32, &err), RP_EINVAL);
    assert_ok(rp__buffer_write(buf, 61, data, 3, &err), err);
    assert_ok(rp__buffer_copy(other, 29, buf, 61, 3, &err), err);
    assert_ok(rp__buffer_read(other, 29, data + 8, 3, &err), err);
    assert_memory_equal(data, data + 8, 3);
    assert_int_equal(rp__buffer_create(dev, "empty", 0, false, &none, &err), RP_EINVAL);
    assert_null(none);
    assert_true(buf->id != other->id);
    drop_buffer(buf);
    drop_buffer(other);
    assert_ok(rp__buffer_destroy(NULL, &err), err);
}
RP_TEST(device, ranges_are_checked) {
    on_each_device(ranges_are_checked);
}

static void a_view_is_where_a_read_reads(rp_device *dev) {
    rp_error err = {0};
    rp_buffer *x = make_buffer(dev, "x", 64, false);
    const void *at = &err;
    assert_ok(rp__buffer_write(x, 8, "written", 8, &err), err);
    rp_status st = rp__buffer_view(x, 8, 8, &at, &err);
    if (rp__device_props(dev)->is_host_memory) {
        assert_ok(st, err);
        assert_string_equal(at, "written");
        assert_int_equal(rp__buffer_view(x, 60, 8, &at, &err), RP_EINVAL);
        assert_message(err, "buffer \"x\" of 64 bytes");
    } else {
        assert_int_equal(st, RP_EINVAL);
        assert_message(err, "is not in the host's memory");
    }
    assert_null(st ? at : NULL);
    drop_buffer(x);
}
RP_TEST(device, a_view_is_where_a_read_reads) {
    on_each_device(a_view_is_where_a_read_reads);
}

static void operands_are_checked(rp_device *dev) {
    rp_error err = {0};
    rp_buffer *x = make_buffer(dev, "x", 64, false), *y = make_buffer(dev, "y", 64, false);
    rp_op op = op_advance(x, y, 16, 1);
    assert_ok(rp__device_run(dev, &op, &err),
              err); /* warm: the checks below are those of every run */
    op.in[0].offset = 4;
    assert_int_equal(rp__device_run(dev, &op, &err), RP_EINVAL);
    assert_message(err, "input of 64 bytes at 4 is outside buffer \"x\" of 64 bytes");
    op.in[0].offset = SIZE_MAX - 2;
    assert_int_equal(rp__device_run(dev, &op, &err), RP_EINVAL);
    op = op_advance(x, y, 8, 1);
    assert_ok(rp__device_run(dev, &op, &err), err);
    op.in[0].offset = 2;
    assert_int_equal(rp__device_run(dev, &op, &err), RP_EINVAL);
    assert_message(err, "not aligned");
    op = op_advance(x, y, 16, 1);
    op.out[0].buffer = NULL;
    assert_int_equal(rp__device_run(dev, &op, &err), RP_EINVAL);
    assert_message(err, "no buffer");
    op = op_advance(x, x, 8, 1);
    assert_ok(rp__device_run(dev, &op, &err), err);
    op.out[0].offset = 16; /* overlaps its input by half */
    assert_int_equal(rp__device_run(dev, &op, &err), RP_EINVAL);
    op.kind = RP_N_OPS;
    assert_int_equal(rp__device_run(dev, &op, &err), RP_EINVAL);
    rp_device *elsewhere = open_emu("bodies=reference");
    rp_buffer *z = make_buffer(elsewhere, "z", 64, false);
    op = op_advance(z, y, 16, 1);
    assert_int_equal(rp__device_run(dev, &op, &err), RP_EINVAL);
    assert_message(err, "another device");
    assert_int_equal(rp__buffer_copy(x, 0, z, 0, 4, &err), RP_EINVAL);
    drop_buffer(z);
    close_clean(elsewhere);
    drop_buffer(x);
    drop_buffer(y);
}
RP_TEST(device, operands_are_checked) {
    on_each_device(operands_are_checked);
}

static void counters_count(rp_device *dev) {
    rp_error err = {0};
    rp_buffer *x = make_buffer(dev, "x", 64, true), *y = make_buffer(dev, "y", 100, true);
    rp_op op = op_advance(x, y, 16, 1);
    uint64_t x0 = x->generation, y0 = y->generation;
    fill_i32(x, 1);
    assert_ok(rp__device_run(dev, &op, &err), err);
    get_i32(y);
    assert_ok(rp__device_sync(dev, &err), err);
    assert_int_equal(x->generation, x0 + 1);
    assert_int_equal(y->generation, y0 + 1);
    rp__device_stats s = rp__device_get_stats(dev);
    assert_int_equal(s.n_allocs, 2);
    assert_int_equal(s.live_bytes, 164);
    assert_int_equal(s.n_writes, 1);
    assert_int_equal(s.bytes_written, 64);
    assert_int_equal(s.n_reads, 1);
    assert_int_equal(s.bytes_read, 4);
    assert_int_equal(s.n_ops, 1);
    assert_int_equal(s.n_syncs, 1);
    drop_buffer(x);
    drop_buffer(y);
    s = rp__device_get_stats(dev);
    assert_int_equal(s.n_frees, 2);
    assert_int_equal(s.live_buffers, 0);
    assert_int_equal(s.live_bytes, 0);
}
RP_TEST(device, counters_count) {
    on_each_device(counters_count);
}

/* ---- weights ---- */

static void weight_rows_in_parts(rp_device *dev) {
    enum { ROWS = 64, COLS = 32 };
    rp_error err = {0};
    rp_tensor desc = rp__tensor_make(NULL, 0, RP_F32, 2, (int64_t[]){ROWS, COLS});
    desc.is_weight = 1;
    size_t bytes = rp__weight_bytes(dev, &desc);
    assert_true(bytes >= ROWS * COLS * sizeof(uint16_t)); /* a device may hold it as BF16 */
    rp_buffer *w = make_buffer(dev, "w", bytes, true), *x = make_buffer(dev, "x", COLS * 4, true);
    rp_buffer *y = make_buffer(dev, "y", ROWS * 4, true);
    float rows[ROWS * COLS], one[COLS], found[ROWS];
    for (int i = 0; i < ROWS * COLS; i++) rows[i] = (float)(i / COLS);
    for (int i = 0; i < COLS; i++) one[i] = i == 3;
    rp_op op = op_matmul(x, w, y, 1, ROWS, COLS);
    put(x, one, sizeof one);
    assert_ok(rp__weight_write(&op.in[1], 0, 32, rows, &err), err);
    assert_ok(rp__weight_write(&op.in[1], 32, 32, rows + 32 * COLS, &err), err);
    assert_ok(rp__device_run(dev, &op, &err), err);
    get(y, found, sizeof found);
    for (int i = 0; i < ROWS; i++) assert_float_equal(found[i], (float)i, 0);
    assert_int_equal(rp__weight_write(&op.in[1], 32, 33, rows, &err), RP_EINVAL);
    assert_message(err, "which has 64");
    assert_int_equal(rp__weight_write(&op.in[1], -1, 1, rows, &err), RP_EINVAL);
    op.in[1].offset = 64;
    assert_int_equal(rp__weight_write(&op.in[1], 0, 1, rows, &err), RP_EINVAL);
    drop_buffer(w);
    drop_buffer(x);
    drop_buffer(y);
}
RP_TEST(device, weight_rows_in_parts) {
    on_each_device(weight_rows_in_parts);
}

/* ---- loss ---- */

RP_TEST(device, lost_device_refuses_until_reopened) {
    rp_error err = {0};
    rp_device *dev = open_emu("bodies=reference");
    rp_buffer *x = make_buffer(dev, "x", 4, true), *none;
    rp_op op = op_advance(x, x, 1, 1);
    const void *const place = x;
    int32_t v = 0;
    fill_i32(x, 0);
    assert_ok(rp__device_run(dev, &op, &err), err);
    rp_graph *graph = capture_ops(dev, "step", &op, 1);
    assert_int_equal(get_i32(x), 2);
    rp__emu_lose_at(dev, 2);
    assert_ok(rp__graph_replay(graph, &err), err);
    rp_status status = rp__graph_replay(graph, &err);
    if (status == RP_OK)
        status = rp__buffer_read(x, 0, &v, 4, &err); /* the queue is asynchronous */
    assert_int_equal(status, RP_EDEVICE_LOST);
    assert_true(rp__device_is_lost(dev));
    assert_int_equal(rp__device_run(dev, &op, &err), RP_EDEVICE_LOST);
    assert_message(err, "stopped answering");
    assert_int_equal(rp__buffer_write(x, 0, &v, 4, &err), RP_EDEVICE_LOST);
    assert_int_equal(rp__buffer_create(dev, "y", 4, true, &none, &err), RP_EDEVICE_LOST);
    assert_int_equal(rp__capture_begin(dev, &err), RP_EDEVICE_LOST);
    assert_int_equal(rp__graph_replay(graph, &err), RP_EDEVICE_LOST);
    assert_int_equal(rp__device_sync(dev, &err), RP_EDEVICE_LOST);
    assert_int_equal(rp__device_reopen(dev, &err), RP_EBUSY);
    assert_message(err, "\"step\"");
    rp__graph_destroy(graph);
    uint64_t generation = x->generation;
    assert_ok(rp__device_reopen(dev, &err), err);
    assert_ptr_equal(x, place);
    assert_true(x->generation > generation);
    fill_i32(x, 10);
    assert_ok(rp__capture_begin(dev, &err), err);
    assert_int_equal(rp__device_run(dev, &op, &err), RP_ECAPTURE_COLD); /* kernels are cold again */
    rp__capture_abort(dev);
    assert_ok(rp__device_run(dev, &op, &err), err);
    assert_int_equal(get_i32(x), 11);
    drop_buffer(x);
    close_clean(dev);
}

static rp_status step(rp_device *dev, const rp_op *op, rp_graph **graph, int i, rp_error *err) {
    if (i == 4) {
        rp_status status = rp__capture_begin(dev, err);
        if (status == RP_OK) status = rp__device_run(dev, op, err);
        return status == RP_OK ? rp__capture_end_graph(dev, "step", graph, err) : status;
    }
    return *graph ? rp__graph_replay(*graph, err) : rp__device_run(dev, op, err);
}

/* Lost at each op in turn: the steps in flight fail with RP_EDEVICE_LOST and nothing else, and the
 * reopened device counts right from a fresh start. */
RP_TEST(device, lost_at_any_op_and_back) {
    enum { STEPS = 9 };
    for (uint64_t at = 1; at <= STEPS; at++) {
        rp_error err = {0};
        rp_device *dev = open_emu("bodies=reference");
        rp_buffer *x = make_buffer(dev, "x", 4, true);
        rp_op op = op_advance(x, x, 1, 1);
        rp_graph *graph = NULL;
        int32_t v;
        fill_i32(x, 0);
        rp__emu_lose_at(dev, at);
        rp_status status = RP_OK;
        for (int i = 0; i < STEPS && status == RP_OK; i++) {
            status = step(dev, &op, &graph, i, &err);
            if (status == RP_OK) status = rp__buffer_read(x, 0, &v, 4, &err);
            if (status == RP_OK) assert_int_equal(v, i + 1);
        }
        assert_int_equal(status, RP_EDEVICE_LOST);
        rp__capture_abort(dev);
        rp__graph_destroy(graph);
        graph = NULL;
        assert_ok(rp__device_reopen(dev, &err), err);
        fill_i32(x, 0);
        for (int i = 0; i < STEPS; i++) assert_ok(step(dev, &op, &graph, i, &err), err);
        assert_int_equal(get_i32(x), STEPS);
        rp__graph_destroy(graph);
        drop_buffer(x);
        close_clean(dev);
    }
}

/* ---- out of memory ---- */

static rp_status whole_life(const char *options, rp_error *err) {
    rp_device *dev;
    rp_buffer *x = NULL, *y = NULL;
    rp_graph *graph = NULL;
    rp__mirror m = {0};
    const void *data;
    rp_device_config config = {.bytes = sizeof config, .options = options};
    rp_status status = rp__device_open("emu", &config, &dev, err);
    if (status < 0) return status;
    int32_t v = 7;
    if ((status = rp__buffer_create(dev, "x", 4, true, &x, err)) < 0) goto out;
    if ((status = rp__buffer_create(dev, "y", 4, true, &y, err)) < 0) goto out;
    rp_op op = op_advance(x, y, 1, 1);
    if ((status = rp__buffer_write(x, 0, &v, 4, err)) < 0) goto out;
    if ((status = rp__device_run(dev, &op, err)) < 0) goto out;
    if ((status = rp__capture_begin(dev, err)) < 0) goto out;
    for (int i = 0; i < 40; i++)
        if ((status = rp__device_run(dev, &op, err)) < 0) break;
    rp_status ended = rp__capture_end_graph(dev, "g", &graph, err);
    if (status < 0) assert_int_equal(ended, status);
    if ((status = ended) < 0) goto out;
    if ((status = rp__graph_replay(graph, err)) < 0) goto out;
    if ((status = rp__mirror_init(&m, y, 0, 4, err)) < 0) goto out;
    if ((status = rp__mirror_get(&m, &data, err)) < 0) goto out;
    assert_int_equal(*(const int32_t *)data, 8);
out:
    rp__mirror_clear(&m);
    rp__graph_destroy(graph);
    drop_buffer(x);
    drop_buffer(y);
    close_clean(dev);
    return status;
}

static void walk_allocations(const char *options) {
    rp_error err = {0};
    rp_status status = RP_ENOMEM;
    for (uint64_t n = 1; status == RP_ENOMEM; n++) {
        rp__alloc_stats before = rp__alloc_get_stats();
        rp__alloc_fail_at(n, false);
        status = whole_life(options, &err);
        rp__alloc_fail_at(0, false);
        rp__alloc_stats after = rp__alloc_get_stats();
        assert_int_equal(after.n_allocs - before.n_allocs, after.n_frees - before.n_frees);
        if (status < 0) assert_true(strlen(err.message) > 0);
        assert_true(n < 200);
    }
    assert_ok(status, err);
}
RP_TEST(device, every_allocation_may_fail) {
    walk_allocations("bodies=reference");
    walk_allocations("bodies=reference,record=run,hidden_temporaries=1,queues=2");
}

RP_TEST(device, device_memory_may_run_out) {
    rp_error err = {0};
    for (int at = 1; at <= 2; at++) {
        char options[64];
        snprintf(options, sizeof options, "bodies=reference,fail_alloc_at=%d", at);
        assert_int_equal(whole_life(options, &err), RP_ENOMEM);
        assert_message(err, at == 1 ? "buffer \"x\" on emu" : "buffer \"y\" on emu");
    }
}

/* ---- the op corpus, on devices that are opened with options or from outside ---- */

static void run_corpus(const char *name, const char *options) {
    rp_device *dev = open_named(name, options);
    rp_corpus_result r;
    rp_corpus_run(dev, NULL, &r);
    assert_int_equal(r.n_failed, 0);
    assert_true(r.n_run > 0);
    close_clean(dev);
}
RP_TEST(device, corpus_on_plugin_and_modes_of_emu) {
    run_corpus(PLUGIN_DIR "sample.so", NULL);
    run_corpus("emu", "bodies=reference,record=run,live_rows=1");
    run_corpus("emu", "reuse=always,fill=ff,isa=generic");
    run_corpus("emu", "bodies=reference,reuse=never,profile=p150-hybrid");
}

/* The fast bodies on emu's memory, as `--isa` asks for them. The best ones that this machine has,
 * the generic and the reference ones run elsewhere. */
RP_TEST(device, corpus_on_emu_with_lower_instruction_sets) {
    const rp__body_set *best, *set;
    int n_run = 0;
    assert_int_equal(rp__body_choose(NULL, &best, NULL), RP_OK);
    for (int i = 0; (set = rp__body_at(i)) != &rp__body_generic; i++) {
        char options[32];
        if (set == best || !set->is_available()) continue;
        snprintf(options, sizeof options, "isa=%s", set->name);
        run_corpus("emu", options);
        n_run++;
    }
    if (!n_run) RP_SKIP("there is nothing between this machine's best set and plain C");
}
