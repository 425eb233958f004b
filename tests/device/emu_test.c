/* The emulated accelerator itself: its memory, its strictness, its faults and its clock. */
#define _GNU_SOURCE /* mkstemp */
#include "device/fixture.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/device_impl.h"
#include "device/emu/emu_impl.h"
#include "device/op.h"
#include "tensor/view.h"

/* ---- memory ---- */

/* The signal by which a child dies that reads (or writes) one byte of a device buffer from the
 * host. */
static int touch(const rp_buffer *buf, bool writes) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL); /* a sanitizer's handler would report and exit */
        volatile char *p = buf->handle;
        if (writes)
            *p = 1;
        else
            (void)*p;
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

RP_TEST(emu, stray_host_touch_faults) {
    rp_device *dev = open_emu("bodies=reference");
    rp_buffer *buf = make_buffer(dev, "secret", 100, true);
    fill_i32(buf, 1);
    assert_int_equal(touch(buf, false), SIGSEGV);
    assert_int_equal(touch(buf, true), SIGSEGV);
    assert_int_equal(get_i32(buf), 1);
    assert_false(rp__device_props(dev)->is_host_memory);
    drop_buffer(buf);
    close_clean(dev);
}

static void *free_and_take(rp_device *dev, rp_buffer *old, size_t bytes, rp_buffer **next) {
    void *place = old->handle;
    drop_buffer(old);
    *next = make_buffer(dev, "next", bytes, true);
    return place;
}

RP_TEST(emu, addresses_are_reused_as_asked) {
    rp_buffer *next;
    rp_device *dev = open_emu("bodies=reference,reuse=always");
    rp_buffer *first = make_buffer(dev, "first", 4096, true),
              *second = make_buffer(dev, "second", 4096, true);
    rp_buffer *third = make_buffer(dev, "third", 64, true);
    drop_buffer(first);
    void *place =
        free_and_take(dev, second, 1024, &next); /* the last one freed, not the first that fits */
    assert_ptr_equal(next->handle, place);
    drop_buffer(next);
    drop_buffer(third);
    close_clean(dev);

    dev = open_emu("bodies=reference,reuse=never");
    first = make_buffer(dev, "first", 4096, true);
    place = free_and_take(dev, first, 4096, &next);
    assert_ptr_not_equal(next->handle, place);
    drop_buffer(next);
    close_clean(dev);
}

RP_TEST(emu, fill_makes_every_byte_ff) {
    rp_device *dev = open_emu("bodies=reference,fill=ff,reuse=always");
    rp_buffer *buf = make_buffer(dev, "a", 1000, true);
    unsigned char data[1000];
    get(buf, data, sizeof data);
    for (size_t i = 0; i < sizeof data; i++) assert_int_equal(data[i], 0xFF);
    fill_i32(buf, 5);
    rp__emu *emu = dev->self;
    const unsigned char *inside =
        (unsigned char *)emu->space.kernel + ((char *)buf->handle - emu->space.base);
    drop_buffer(buf);
    assert_int_equal(inside[0], 0xFF);
    assert_int_equal(inside[999], 0xFF);
    close_clean(dev);
}

RP_TEST(emu, memory_cap_and_graph_region) {
    rp_error err = {0};
    rp_device *dev = open_emu("bodies=reference,memory=1K,graph_region=512");
    assert_int_equal(rp__device_props(dev)->memory_bytes,
                     512); /* the region is taken from memory */
    rp_buffer *x = make_buffer(dev, "x", 500, true), *none;
    assert_int_equal(rp__buffer_create(dev, "y", 13, true, &none, &err), RP_ENOMEM);
    assert_message(err, "13 bytes wanted, 12 of 512 free");
    rp_op op = op_advance(x, x, 1, 1);
    fill_i32(x, 0);
    assert_ok(rp__device_run(dev, &op, &err), err);
    rp_graph *graph = capture_ops(dev, "fits", &op, 1), *refused;
    assert_int_equal(rp__graph_bytes(graph), 384);
    assert_int_equal(rp__graph_bytes_bound(dev, 1), 384); /* known before */
    assert_ok(rp__capture_begin(dev, &err), err);
    assert_ok(rp__device_run(dev, &op, &err), err);
    assert_int_equal(rp__capture_end_graph(dev, "too much", &refused, &err), RP_ENOMEM);
    assert_message(err, "needs 384 bytes, 128 of the graph region of 512 are free");
    assert_null(refused);
    assert_int_equal(get_i32(x), 2); /* recorded, never run */
    rp__graph_destroy(graph);
    graph = capture_ops(dev, "fits again", &op, 1);
    assert_int_equal(get_i32(x), 3);
    rp__graph_destroy(graph);
    drop_buffer(x);
    close_clean(dev);
}

RP_TEST(emu, write_past_a_buffer_is_seen) {
    rp_device *dev = open_emu("bodies=reference");
    rp_buffer *x = make_buffer(dev, "x", 4, true);
    rp__emu *emu = dev->self;
    emu->space.kernel[(char *)x->handle - emu->space.base + 4] = 1; /* as a broken kernel would */
    drop_buffer(x);
    rp__emu_report r = rp__emu_get_report(dev);
    assert_int_equal(r.n_violations, 1);
    assert_string_equal(r.violation, "a kernel wrote past the end of a buffer");
    rp__device_close(dev);
}

/* ---- strictness: what the layer refuses, emu would have answered with an error ---- */

RP_TEST(emu, unprotected_calls_are_violations) {
    rp_error err = {0};
    rp_device *dev = open_emu("bodies=reference");
    const rp_device_api *api = &rp__emu_api;
    rp__emu *emu = dev->self;
    rp_buffer *x = make_buffer(dev, "x", 64, true);
    rp_op op = op_advance(x, x, 16, 1), cold = op_advance(x, x, 8, 1);
    int32_t v = 0;
    void *handle;
    assert_ok(rp__device_run(dev, &op, &err), err);
    rp_graph *graph = capture_ops(dev, "g", &op, 1);

    assert_ok(api->capture_begin(emu, 0, &err), err);
    assert_int_equal(api->read(emu, 0, x->handle, 0, &v, 4, &err), RP_EDEVICE);
    assert_message(err, "the device layer should have refused this");
    assert_int_equal(api->write(emu, 0, x->handle, 0, &v, 4, &err), RP_EDEVICE);
    assert_int_equal(api->sync(emu, 0, &err), RP_EDEVICE);
    assert_int_equal(api->alloc(emu, 64, &handle, &err), RP_EDEVICE);
    assert_int_equal(api->run(emu, 0, &cold, &err), RP_EDEVICE);
    assert_int_equal(api->replay(emu, 0, graph->handle, &err), RP_EDEVICE);
    assert_int_equal(api->capture_begin(emu, 0, &err), RP_EDEVICE);
    api->capture_abort(emu, 0);
    assert_int_equal(api->capture_end(emu, 0, &handle, &err), RP_EDEVICE);
    assert_int_equal(api->read(emu, 0, x->handle, 61, &v, 4, &err), RP_EDEVICE);
    assert_int_equal(rp__emu_get_report(dev).n_violations, 9);

    /* A buffer freed under a graph: the address is taken by another one, and the replay is stopped.
     */
    size_t offset;
    assert_true(rp__emu_space_free(&emu->space, (size_t)((char *)x->handle - emu->space.base)));
    assert_ok(rp__emu_space_alloc(&emu->space, 64, &offset, &err), err);
    assert_int_equal((char *)x->handle - emu->space.base, offset);
    assert_int_equal(rp__graph_replay(graph, &err), RP_EDEVICE);
    assert_message(err, "buffer is gone");
    rp__graph_destroy(graph);
    drop_buffer(x);
    rp__device_close(dev);
}

RP_TEST(emu, options_are_checked) {
    static const struct {
        const char *options, *part;
    } rows[] = {
        {"colour=red", "unknown option \"colour\""},
        {"memory", "option \"memory\" has no value"},
        {"memory=12X", "\"12X\" is not a size"},
        {"memory=99999999999999999999", "not a size"},
        {"reuse=sometimes", "normal, always or never"},
        {"fill=00", "none or ff"},
        {"record=both", "only or run"},
        {"live_rows=yes", "0 or 1"},
        {"lost_at=-1", "\"-1\" is not a number"},
        {"queues=3", "1 or 2"},
        {"graph_region=2G,memory=1G",
         "a graph region of 2147483648 bytes in a memory of 1073741824"},
        {"profile=abacus", "no profile \"abacus\"; there are: none, discrete-gpu"},
        {"profile=/nowhere.txt", "no profile file /nowhere.txt"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        rp_error err = {0};
        rp_device *dev;
        rp_device_config config = {.bytes = sizeof config, .options = rows[i].options};
        assert_true(rp__device_open("emu", &config, &dev, &err) < 0);
        assert_null(dev);
        assert_message(err, rows[i].part);
    }
}

/* ---- the queue ---- */

RP_TEST(emu, queue_keeps_order_beyond_its_ring) {
    rp_error err = {0};
    rp_device *dev = open_emu("bodies=reference");
    rp_buffer *x = make_buffer(dev, "x", 4, true), *y = make_buffer(dev, "y", 4, true);
    rp_op op = op_advance(x, x, 1, 1);
    for (int round = 0; round < 3; round++) {
        int32_t v = round * 10;
        put(x, &v, sizeof v);
        v = -1; /* the source may be reused at once */
        for (int i = 0; i < 700; i++) assert_ok(rp__device_run(dev, &op, &err), err);
        assert_ok(rp__buffer_copy(y, 0, x, 0, 4, &err), err);
        fill_i32(x, 0);
        assert_int_equal(get_i32(y), round * 10 + 700);
    }
    drop_buffer(x);
    drop_buffer(y);
    close_clean(dev);
}

RP_TEST(emu, events_order_the_second_queue) {
    rp_error err = {0};
    rp_device *dev = open_emu("bodies=reference,queues=2");
    rp_buffer *x = make_buffer(dev, "x", 4, true), *staged = make_buffer(dev, "staged", 4, true);
    rp_op op = op_advance(x, x, 1, 1);
    uint64_t event;
    int32_t v;
    assert_int_equal(rp__device_props(dev)->n_queues, 2);
    for (int32_t i = 0; i < 200; i++) {
        fill_i32(x, i * 100);
        for (int k = 0; k < 50; k++) assert_ok(rp__device_run(dev, &op, &err), err);
        assert_ok(rp__event_record(dev, 0, &event, &err), err);
        assert_ok(rp__event_wait(dev, 1, event, &err), err);
        assert_ok(rp__queue_copy(staged, 1, 0, x, 0, 4, &err), err);
        assert_ok(rp__event_record(dev, 1, &event, &err), err);
        assert_ok(rp__event_wait(dev, 0, event, &err), err); /* the next write waits for the copy */
        fill_i32(x, -1);
        assert_ok(rp__queue_read(staged, 1, 0, &v, 4, &err), err);
        assert_int_equal(v, i * 100 + 50);
    }
    assert_ok(rp__queue_sync(dev, 1, &err), err);
    assert_int_equal(rp__queue_sync(dev, 2, &err), RP_EINVAL);

    /* A capture is queue 0's: the other one works on, and events with it are refused. */
    assert_ok(rp__capture_begin(dev, &err), err);
    assert_ok(rp__device_run(dev, &op, &err), err);
    assert_ok(rp__queue_write(staged, 1, 0, &v, 4, &err), err);
    assert_ok(rp__queue_read(staged, 1, 0, &v, 4, &err), err);
    assert_int_equal(rp__event_wait(dev, 0, event, &err), RP_ECAPTURE_HOST);
    rp__capture_abort(dev);
    drop_buffer(x);
    drop_buffer(staged);
    close_clean(dev);
}

RP_TEST(emu, live_rows_are_honoured_or_padding_is_computed) {
    for (int honoured = 0; honoured < 2; honoured++) {
        rp_error err = {0};
        rp_device *dev = open_emu(honoured ? "bodies=reference,live_rows=1" : "bodies=reference");
        rp_buffer *x = make_buffer(dev, "x", 16, true), *y = make_buffer(dev, "y", 16, true);
        rp_buffer *n = make_buffer(dev, "n", 4, true);
        rp_op op = op_advance(x, y, 4, 1);
        op.live = i32_vector(n, 1);
        assert_int_equal(rp__device_props(dev)->has_live_rows, honoured);
        fill_i32(x, 5);
        fill_i32(y, 0);
        fill_i32(n, 2);
        int32_t found[4];
        assert_ok(rp__device_run(dev, &op, &err), err);
        get(y, found, sizeof found);
        int32_t eager[4] = {6, 6, honoured ? 0 : 6, honoured ? 0 : 6};
        assert_memory_equal(found, eager, sizeof found);
        rp_graph *graph = capture_ops(dev, "g", &op, 1);
        fill_i32(n, 3); /* read again by each replay */
        fill_i32(y, 0);
        assert_ok(rp__graph_replay(graph, &err), err);
        get(y, found, sizeof found);
        assert_int_equal(found[2], 6);
        assert_int_equal(found[3], honoured ? 0 : 6);
        rp__graph_destroy(graph);
        drop_buffer(x);
        drop_buffer(y);
        drop_buffer(n);
        close_clean(dev);
    }
}

/* ---- faults ---- */

RP_TEST(emu, failed_launch_leaves_the_device_usable) {
    rp_error err = {0};
    rp_device *dev = open_emu("bodies=reference,launch_fail_at=2");
    rp_buffer *x = make_buffer(dev, "x", 4, true);
    rp_op op = op_advance(x, x, 1, 1);
    fill_i32(x, 0);
    assert_ok(rp__device_run(dev, &op, &err), err);
    rp_graph *graph;
    assert_ok(rp__capture_begin(dev, &err), err);
    assert_int_equal(rp__device_run(dev, &op, &err), RP_EDEVICE);
    assert_int_equal(rp__capture_end_graph(dev, "g", &graph, &err), RP_EDEVICE);
    assert_message(err, "launch 2 fails");
    assert_false(rp__device_is_lost(dev));
    graph = capture_ops(dev, "g", &op, 1);
    assert_int_equal(get_i32(x), 2);
    rp__graph_destroy(graph);
    drop_buffer(x);
    close_clean(dev);
}

RP_TEST(emu, long_submit_trips_the_watchdog) {
    rp_error err = {0};
    rp_device *dev = open_emu("bodies=reference,profile=pcie-accelerator,watchdog_us=100");
    rp_buffer *x = make_buffer(dev, "x", 4, true);
    rp_op op = op_advance(x, x, 1, 1), ops[30];
    for (int i = 0; i < 30; i++) ops[i] = op; /* 4 us each: 24 of them fit into one submit */
    int32_t v;
    rp_graph *graph;
    fill_i32(x, 0);
    assert_ok(rp__device_run(dev, &op, &err), err);
    graph = capture_ops(dev, "short", ops, 24);
    assert_int_equal(get_i32(x), 25);
    rp__graph_destroy(graph);
    graph = capture_ops(dev, "long", ops, 30); /* its first replay is issued, and fails later */
    assert_int_equal(rp__buffer_read(x, 0, &v, 4, &err), RP_EDEVICE_LOST);
    assert_message(err, "watchdog");
    rp__graph_destroy(graph);
    assert_ok(rp__device_reopen(dev, &err), err);
    fill_i32(x, 3);
    assert_ok(rp__device_run(dev, &op, &err), err);
    assert_int_equal(get_i32(x), 4);
    drop_buffer(x);
    close_clean(dev);
}

/* ---- the virtual clock ---- */

/* A profile in a file of its own, and a device on it. */
static rp_device *open_with_profile(const char *text) {
    char path[] = "/tmp/reprise-profile-XXXXXX", options[96];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    snprintf(options, sizeof options, "bodies=reference,profile=%s", path);
    rp_device *dev = open_emu(options);
    unlink(path);
    return dev;
}

static const char round_costs[] =
    "launch_us 10\nop_us 3\ngraph_op_us 2\nreplay_us 7\nreplay_op_us 0.5\n"
    "capture_us 100\ncapture_op_us 4\ncompile_us 1000\nsync_us 20\n"
    "write_us 5 # and 4 bytes at 0.001 GB/s: 4 us\nwrite_gbps 0.001\nread_us 6\n"
    "launch_us advance 11\n";

RP_TEST(emu, clock_adds_up) {
    rp_error err = {0};
    rp_device *dev = open_with_profile(round_costs);
    rp_buffer *x = make_buffer(dev, "x", 4, true);
    rp_op op = op_advance(x, x, 1, 1);
    assert_true(rp__device_props(dev)->is_simulated);
    assert_float_equal(rp__device_clock_us(dev), 0, 0);
    fill_i32(x, 0);
    assert_float_equal(rp__device_clock_us(dev), 9, 1e-9);
    assert_ok(rp__device_run(dev, &op, &err), err); /* compiles, then launches */
    assert_float_equal(rp__device_clock_us(dev), 9 + 1000 + 11, 1e-9);
    assert_float_equal(rp__emu_get_report(dev).device_us, 9 + 1000 + 11 + 3, 1e-9);
    get_i32(x); /* waits for the device, 20 to know, 6 to read */
    assert_float_equal(rp__device_clock_us(dev), 1023 + 26, 1e-9);
    rp__emu_clock_reset(dev);
    for (int i = 0; i < 4; i++) assert_ok(rp__device_run(dev, &op, &err), err);
    assert_ok(rp__device_sync(dev, &err), err);
    assert_float_equal(rp__device_clock_us(dev), 4 * 11 + 3 + 20,
                       1e-9); /* host bound: 3 of the last op remain */
    rp_op ops[4] = {op, op, op, op};
    rp__emu_clock_reset(dev);
    rp_graph *graph = capture_ops(dev, "g", ops, 4);
    assert_float_equal(rp__device_clock_us(dev), 4 * 4 + 100 + 7 + 4 * 0.5, 1e-9);
    assert_ok(rp__device_sync(dev, &err), err);
    rp__emu_clock_reset(dev);
    assert_ok(rp__graph_replay(graph, &err), err);
    assert_ok(rp__device_sync(dev, &err), err);
    assert_float_equal(rp__device_clock_us(dev), 9 + 4 * 2 + 20, 1e-9);
    rp__emu_report r = rp__emu_get_report(dev);
    assert_int_equal(r.n_launches, 5);
    assert_int_equal(r.n_compiles, 1);
    assert_int_equal(r.n_replays, 2);
    assert_int_equal(r.n_replayed_ops, 8);
    rp__graph_destroy(graph);
    drop_buffer(x);
    close_clean(dev);
}

RP_TEST(emu, clock_counts_work_and_tiles) {
    rp_error err = {0};
    rp_device *dev =
        open_with_profile("device_gflops 1\ndevice_gbps 1000\ntile_rows matmul 32\nhost_us 1\n"
                          "host_row_us matmul 2\nhost_gflops 0.5\n");
    rp_buffer *x = make_buffer(dev, "x", 64 * 10 * 4, true),
              *w = make_buffer(dev, "w", 50 * 10 * 4, true);
    rp_buffer *y = make_buffer(dev, "y", 64 * 50 * 4, true);
    static const struct {
        int64_t rows;
        double us; /* 2 * rows * 10 * 50 flops at 1 GFLOP/s, rows rounded up to 32 */
    } cases[] = {{1, 32}, {32, 32}, {33, 64}, {64, 64}};
    for (int i = 0; i < 4; i++) {
        rp_op op = op_matmul(x, w, y, cases[i].rows, 50, 10);
        rp__emu_clock_reset(dev);
        assert_ok(rp__device_run(dev, &op, &err), err);
        assert_ok(rp__device_sync(dev, &err), err);
        assert_float_equal(rp__device_clock_us(dev), cases[i].us, 1e-6);
        rp__emu_clock_reset(dev);
        rp__device_clock_host_op(dev, &op); /* 1 + 2 per row + flops at half the rate, untiled */
        assert_float_equal(rp__device_clock_us(dev),
                           1 + 2 * (double)cases[i].rows + 2 * (double)cases[i].rows, 1e-6);
    }
    drop_buffer(x);
    drop_buffer(w);
    drop_buffer(y);
    close_clean(dev);
}

RP_TEST(emu, profiles_are_checked) {
    static const struct {
        const char *text, *part;
    } rows[] = {
        {"launch_us 1\nlunch_us 2\n", "profile t, line 2: unknown key \"lunch_us\""},
        {"launch_us", "line 1: \"launch_us\" has no value"},
        {"\n\nlaunch_us -1", "line 3: \"-1\" is not a number from 0 on"},
        {"launch_us nan", "is not a number"},
        {"launch_us matmull 4", "unknown op \"matmull\""},
        {"launch_us matmul 4 5", "more than \"key op value\""},
    };
    rp__emu_profile p;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        rp_error err = {0};
        assert_int_equal(rp__emu_profile_parse("t", rows[i].text, &p, &err), RP_EFORMAT);
        assert_message(err, rows[i].part);
    }
}

RP_TEST(emu, shipped_profiles_open) {
    const char *name;
    size_t n = 0;
    for (; (name = rp__emu_profile_at(n, NULL)); n++) {
        char options[96];
        snprintf(options, sizeof options, "bodies=reference,profile=%s", name);
        rp_device *dev = open_emu(options);
        if (!strstr(rp__device_props(dev)->description, name))
            fail_msg("%s is not described", name);
        if (!strstr(rp__device_props(dev)->description, "simulated"))
            fail_msg("%s is not labelled", name);
        assert_int_equal(rp__device_has_capture(dev), strcmp(name, "no-capture") != 0);
        close_clean(dev);
    }
    assert_int_equal(n, 5);
}

/* Simulated host time that one op costs, eagerly, in the midst of others on the device: launched
 * there, or fetched, run on the host and sent back. */
static double on_device_us(rp_device *dev, const rp_op *op) {
    rp_error err = {0};
    assert_ok(rp__device_prepare(dev, op, &err), err);
    rp__emu_clock_reset(dev);
    assert_ok(rp__device_run(dev, op, &err), err);
    return rp__device_clock_us(dev);
}

static double on_host_us(rp_device *dev, const rp_op *op, size_t bytes) {
    rp_error err = {0};
    static char data[1 << 20];
    assert_true(bytes <= sizeof data);
    assert_ok(rp__device_sync(dev, &err), err);
    rp__emu_clock_reset(dev);
    assert_ok(rp__buffer_read(op->in[0].buffer, 0, data, bytes, &err), err);
    rp__device_clock_host_op(dev, op);
    assert_ok(rp__buffer_write(op->out[0].buffer, 0, data, bytes, &err), err);
    return rp__device_clock_us(dev);
}

static rp_op op_norm(rp_buffer *x, rp_buffer *w, rp_buffer *y, int64_t rows, int64_t e) {
    rp_op op = {.kind = RP_OP_RMS_NORM, .n_in = 2, .n_out = 1, .label = "norm"};
    op.in[0] = f32_matrix(x, rows, e);
    op.in[1] = rp__tensor_make(w, 0, RP_F32, 1, &e);
    op.out[0] = f32_matrix(y, rows, e);
    op.p.norm.eps = 1e-6f;
    return op;
}

static rp_op op_rope(rp_buffer *x, rp_buffer *cs, rp_buffer *y, int64_t t, int64_t h, int64_t d) {
    rp_op op = {.kind = RP_OP_ROPE, .n_in = 2, .n_out = 1, .label = "rope"};
    op.in[0] = rp__tensor_make(x, 0, RP_F32, 3, (int64_t[]){t, h, d});
    op.in[1] = f32_matrix(cs, t, d);
    op.out[0] = rp__tensor_make(y, 0, RP_F32, 3, (int64_t[]){t, h, d});
    return op;
}

/* The thresholds that were found on a P150: norm is faster on the host below 32 rows, rope below 64
 * tokens x heads. */
RP_TEST(emu, p150_profile_has_the_known_thresholds) {
    rp_device *dev = open_emu("bodies=reference,profile=p150-hybrid");
    assert_true(rp__device_props(dev)->hides_temporaries);
    enum { E = 1024, D = 128 };
    rp_buffer *x = make_buffer(dev, "x", 64 * E * 4, true),
              *y = make_buffer(dev, "y", 64 * E * 4, true);
    rp_buffer *w = make_buffer(dev, "w", 64 * D * 4, true);
    static const int64_t rows[] = {1, 8, 16, 31, 32, 48, 64};
    for (int i = 0; i < 7; i++) {
        rp_op op = op_norm(x, w, y, rows[i], E);
        size_t bytes = (size_t)rows[i] * E * 4;
        assert_int_equal(on_host_us(dev, &op, bytes) < on_device_us(dev, &op), rows[i] < 32);
    }
    static const int64_t tokens[] = {1, 2, 3, 4, 8};
    for (int i = 0; i < 5; i++) {
        rp_op op = op_rope(x, w, y, tokens[i], 16, D);
        size_t bytes = (size_t)tokens[i] * 16 * D * 4;
        assert_int_equal(on_host_us(dev, &op, bytes) < on_device_us(dev, &op), tokens[i] * 16 < 64);
    }
    drop_buffer(x);
    drop_buffer(y);
    drop_buffer(w);
    close_clean(dev);
}

/* ---- memory beside live graphs ---- */

RP_TEST(emu, parked_memory_is_taken_over) {
    rp_error err = {0};
    rp_device *dev = open_emu("hidden_temporaries=1");
    rp_buffer *x = make_buffer(dev, "x", 4, true), *large = make_buffer(dev, "large", 4096, true);
    rp_buffer *small = make_buffer(dev, "small", 256, true), *next;
    rp_op op = op_advance(x, x, 1, 1);
    fill_i32(x, 0);
    assert_ok(rp__device_run(dev, &op, &err), err);
    rp_graph *graph = capture_ops(dev, "decode-1", &op, 1);
    void *large_place = large->handle, *small_place = small->handle;
    drop_buffer(large);
    drop_buffer(small);
    assert_int_equal(rp__emu_get_report(dev).live_bytes,
                     4 + 4096 + 256 + rp__graph_bytes(graph)); /* kept aside */
    assert_int_equal(rp__device_get_stats(dev).live_bytes, 4);
    assert_int_equal(rp__buffer_create(dev, "larger", 4097, true, &next, &err), RP_EBUSY);
    assert_message(err, "buffer \"larger\" of 4097 bytes cannot be allocated on emu beside live "
                        "graph \"decode-1\"");
    next = make_buffer(dev, "next", 200, true);
    assert_ptr_equal(next->handle, small_place); /* the smallest that fits */
    rp_buffer *other = make_buffer(dev, "other", 200, true);
    assert_ptr_equal(other->handle, large_place);
    assert_int_equal(rp__buffer_create(dev, "third", 1, true, &large, &err), RP_EBUSY);
    drop_buffer(other);
    other =
        make_buffer(dev, "again", 4096, true); /* all of it, though the buffer before was smaller */
    assert_ptr_equal(other->handle, large_place);
    drop_buffer(other);
    rp__graph_destroy(graph);
    assert_int_equal(rp__emu_get_report(dev).live_bytes,
                     4 + 256); /* given back with the last graph */
    drop_buffer(next);
    drop_buffer(x);
    assert_int_equal(rp__emu_get_report(dev).live_bytes, 0);
    close_clean(dev);
}
