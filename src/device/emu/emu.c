/* The emulated accelerator: the device table, its options, the virtual clock, and recording.
 *
 * Owns: one device with memory of its own (emu_space.c) and queues on threads of their own
 * (emu_stream.c). It enforces the capture contract a second time, from the other side: a call that
 * the device layer should have refused is counted as a violation and answered with RP_EDEVICE,
 * where a vendor's library would abort or corrupt memory.
 *
 * Invariants: memory is touched by the caller's thread only while the queues are drained;
 * `recording` is not NULL exactly between capture_begin and capture_end or capture_abort. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "device/cpu/panel.h" /* lint-allow: cpu (the layout its fast bodies want) */
#include "device/device_impl.h"
#include "device/emu/emu_impl.h"
#include "device/op.h"
#include "tensor/dtype.h"
#include "tensor/view.h"

enum {
    GRAPH_BYTES = 256, /* of device memory that a graph takes, and each op in it */
    GRAPH_OP_BYTES = 128,
    DEFAULT_MEMORY_GIB = 16,
};

static double cost(const rp__emu *emu, rp__emu_cost c, rp_op_kind op) {
    return emu->profile.cost[c][op];
}
static double cost0(const rp__emu *emu, rp__emu_cost c) {
    return emu->profile.cost[c][0];
}

/* ---- violations and loss ---- */

static rp_status violate(rp__emu *emu, rp_error *err, const char *what) {
    if (!emu->report.n_violations++)
        snprintf(emu->report.violation, sizeof emu->report.violation, "%s", what);
    return rp__fail(err, RP_EDEVICE, "emu: %s: the device layer should have refused this", what);
}

static rp_status check_lost(rp__emu *emu, rp_error *err) {
    pthread_mutex_lock(&emu->lock);
    bool is_lost = emu->is_lost;
    pthread_mutex_unlock(&emu->lock);
    return is_lost ? rp__fail(err, RP_EDEVICE_LOST, "emu: %s", emu->lost_text) : RP_OK;
}

static void drain(rp__emu *emu) {
    for (uint32_t q = 0; q < emu->n_queues; q++) rp__emu_stream_drain(&emu->streams[q]);
}

/* ---- the virtual clock ---- */

static double divided(double amount, double rate, double unit) {
    return rate > 0 ? amount / (rate * unit) : 0;
}

/* Microseconds of an op's own work on the device. The longer of arithmetic and memory traffic; rows
 * are padded to whole tiles. */
static double work_us(const rp__emu *emu, const rp_op *op) {
    rp__op_cost c = rp__op_cost_of(op);
    double rows = (double)rp__tensor_rows(&op->out[0]),
           tile = cost(emu, RP_EMU_tile_rows, op->kind);
    double padded = 1;
    if (rows > 0 && tile > 1)
        padded = (double)(((int64_t)rows + (int64_t)tile - 1) / (int64_t)tile) * tile / rows;
    double flops = divided(c.flops * padded, cost(emu, RP_EMU_device_gflops, op->kind), 1e3);
    double bytes = divided(c.bytes, cost(emu, RP_EMU_device_gbps, op->kind), 1e3);
    return flops > bytes ? flops : bytes;
}

static void clock_submit(rp__emu *emu, double host_us, double device_us) {
    rp__emu_report *r = &emu->report;
    r->host_us += host_us;
    if (r->device_us < r->host_us) r->device_us = r->host_us;
    r->device_us += device_us;
}

static void clock_wait(rp__emu *emu) {
    rp__emu_report *r = &emu->report;
    if (r->host_us < r->device_us) r->host_us = r->device_us;
    r->host_us += cost0(emu, RP_EMU_sync_us);
    r->n_syncs++;
}

static void clock_transfer(rp__emu *emu, rp__emu_cost latency, rp__emu_cost gbps, size_t n) {
    emu->report.host_us += cost0(emu, latency) + divided((double)n, cost0(emu, gbps), 1e3);
    emu->report.n_transfers++;
}

static double emu_clock_us(void *self) {
    return ((rp__emu *)self)->report.host_us;
}

static void emu_clock_host_op(void *self, const rp_op *op) {
    rp__emu *emu = self;
    rp__op_cost c = rp__op_cost_of(op);
    double flops = divided(c.flops, cost(emu, RP_EMU_host_gflops, op->kind), 1e3);
    double bytes = divided(c.bytes, cost(emu, RP_EMU_host_gbps, op->kind), 1e3);
    emu->report.host_us +=
        cost(emu, RP_EMU_host_us, op->kind) + (flops > bytes ? flops : bytes) +
        cost(emu, RP_EMU_host_row_us, op->kind) * (double)rp__tensor_rows(&op->out[0]);
}

/* The longer of an eager run and a place in a graph. */
static double emu_estimate_us(void *self, const rp_op *op) {
    const rp__emu *emu = self;
    if (emu->hides_estimates) return 0;
    double eager = cost(emu, RP_EMU_op_us, op->kind),
           graph = cost(emu, RP_EMU_graph_op_us, op->kind);
    return work_us(emu, op) + (eager > graph ? eager : graph);
}

/* ---- memory ---- */

static size_t offset_of(const rp__emu *emu, const void *handle) {
    return (size_t)((const char *)handle - emu->space.base);
}

static char *kernel_at(const rp__emu *emu, const void *handle, size_t offset) {
    return emu->space.kernel + offset_of(emu, handle) + offset;
}

static rp_status emu_alloc(void *self, size_t bytes, void **handle, rp_error *err) {
    rp__emu *emu = self;
    RP_TRY(check_lost(emu, err));
    if (emu->recording) return violate(emu, err, "alloc during capture");
    if (++emu->n_alloc_calls == emu->fail_alloc_at)
        return rp__fail(err, RP_ENOMEM, "emu: allocation %" PRIu64 " fails, as fail_alloc_at asks",
                        emu->n_alloc_calls);
    drain(emu);
    size_t offset;
    RP_TRY(rp__emu_space_alloc(&emu->space, bytes, &offset, err));
    *handle = emu->space.base + offset;
    return RP_OK;
}

static void emu_free(void *self, void *handle) {
    rp__emu *emu = self;
    drain(emu);
    if (emu->recording) violate(emu, NULL, "free during capture");
    if (!rp__emu_space_free(&emu->space, offset_of(emu, handle)))
        violate(emu, NULL, "a kernel wrote past the end of a buffer");
}

/* The block that [offset, offset + n) of a handle is in. */
static rp_status find_block(rp__emu *emu, const void *handle, size_t offset, size_t n,
                            rp__emu_block *out, rp_error *err) {
    size_t at = offset_of(emu, handle);
    const rp__emu_block *b = rp__emu_space_find(&emu->space, at);
    if (!b || b->offset != at) return violate(emu, err, "a handle that is not allocated");
    if (offset > b->bytes || n > b->bytes - offset)
        return violate(emu, err, "an access outside its buffer");
    *out = *b;
    return RP_OK;
}

static rp_status check_host(rp__emu *emu, uint32_t queue, const char *what, const void *handle,
                            size_t offset, size_t n, rp_error *err) {
    rp__emu_block block;
    RP_TRY(check_lost(emu, err));
    if (emu->recording && queue == 0) return violate(emu, err, what);
    return find_block(emu, handle, offset, n, &block, err);
}

static rp_status emu_write(void *self, uint32_t queue, void *handle, size_t offset, const void *src,
                           size_t n, rp_error *err) {
    rp__emu *emu = self;
    RP_TRY(check_host(emu, queue, "host write during capture", handle, offset, n, err));
    clock_transfer(emu, RP_EMU_write_us, RP_EMU_write_gbps, n);
    rp__emu_stream *s = &emu->streams[queue];
    char *dst = kernel_at(emu, handle, offset);
    if (n > RP_EMU_STAGE) {
        rp__emu_stream_drain(s);
        memcpy(dst, src, n);
        return check_lost(emu, err);
    }
    rp__emu_cmd *cmd = rp__emu_stream_slot(s);
    memcpy(rp__emu_stream_stage(s), src, n);
    cmd->kind = RP_EMU_WRITE;
    cmd->dst = dst;
    cmd->n = n;
    cmd->is_too_long = false;
    rp__emu_stream_put(s);
    return RP_OK;
}

static rp_status emu_read(void *self, uint32_t queue, void *handle, size_t offset, void *dst,
                          size_t n, rp_error *err) {
    rp__emu *emu = self;
    RP_TRY(check_host(emu, queue, "host read during capture", handle, offset, n, err));
    clock_wait(emu);
    clock_transfer(emu, RP_EMU_read_us, RP_EMU_read_gbps, n);
    rp__emu_stream_drain(&emu->streams[queue]);
    RP_TRY(check_lost(emu, err));
    memcpy(dst, kernel_at(emu, handle, offset), n);
    return RP_OK;
}

static rp_status emu_copy(void *self, uint32_t queue, void *dst, size_t dst_offset, void *src,
                          size_t src_offset, size_t n, rp_error *err) {
    rp__emu *emu = self;
    RP_TRY(check_host(emu, queue, "copy during capture", dst, dst_offset, n, err));
    RP_TRY(check_host(emu, queue, "copy during capture", src, src_offset, n, err));
    clock_submit(emu, cost0(emu, RP_EMU_launch_us),
                 divided(2.0 * (double)n, cost0(emu, RP_EMU_device_gbps), 1e3));
    rp__emu_cmd *cmd = rp__emu_stream_slot(&emu->streams[queue]);
    cmd->kind = RP_EMU_COPY;
    cmd->dst = kernel_at(emu, dst, dst_offset);
    cmd->src = kernel_at(emu, src, src_offset);
    cmd->n = n;
    cmd->is_too_long = false;
    rp__emu_stream_put(&emu->streams[queue]);
    return RP_OK;
}

static rp_status emu_sync(void *self, uint32_t queue, rp_error *err) {
    rp__emu *emu = self;
    RP_TRY(check_lost(emu, err));
    if (emu->recording && queue == 0) return violate(emu, err, "sync during capture");
    clock_wait(emu);
    rp__emu_stream_drain(&emu->streams[queue]);
    return check_lost(emu, err);
}

/* ---- weights ---- */

/* The reference bodies read rows as they are in the file, every other set panels. */
static bool uses_panels(const rp__emu *emu, const rp_tensor *w) {
    return emu->bodies != &rp__body_reference && rp__panel_wants(w);
}

static size_t emu_weight_bytes(void *self, const rp_tensor *desc) {
    size_t n;
    if (uses_panels(self, desc)) return rp__panel_bytes(desc);
    return rp__dtype_bytes(desc->dtype, rp__tensor_elems(desc), &n) ? n : 0;
}

static rp_status emu_weight_write(void *self, const rp_tensor *w, int64_t row, int64_t n_rows,
                                  const void *src, rp_error *err) {
    rp__emu *emu = self;
    size_t total = emu_weight_bytes(emu, w), n;
    void *handle = w->buffer->handle;
    RP_TRY(check_host(emu, 0, "weight write during capture", handle, w->offset, total, err));
    if (!rp__dtype_bytes(w->dtype, n_rows * rp__tensor_last(w), &n))
        return violate(emu, err, "a weight of no size");
    clock_transfer(emu, RP_EMU_write_us, RP_EMU_write_gbps, n);
    rp__emu_stream_drain(&emu->streams[0]);
    char *dst = kernel_at(emu, handle, w->offset);
    if (uses_panels(emu, w))
        rp__panel_write(w, dst, row, n_rows, src);
    else
        memcpy(dst + (size_t)row * (n / (size_t)n_rows), src, n);
    return check_lost(emu, err);
}

/* ---- ops ---- */

static rp__body_fn body_of(const rp__emu *emu, const rp_op *op) {
    rp__body_fn fn = emu->bodies->fn[op->kind];
    return fn ? fn : rp__body_reference.fn[op->kind];
}

static bool emu_supports(void *self, const rp_op *op) {
    return body_of(self, op) != NULL;
}

static rp_status reserve_scratch(rp__emu *emu, size_t bytes, rp_error *err) {
    if (bytes <= emu->scratch_bytes) return RP_OK;
    char *scratch = rp__alloc_aligned(RP_EMU_ALIGN, bytes);
    if (!scratch) return rp__fail(err, RP_ENOMEM, "emu: no memory for %zu bytes of scratch", bytes);
    drain(emu);
    rp__free(emu->scratch);
    emu->scratch = scratch;
    emu->scratch_bytes = bytes;
    return RP_OK;
}

static rp_status emu_prepare(void *self, const rp_op *op, rp_error *err) {
    rp__emu *emu = self;
    uint64_t key = rp__op_key(op);
    RP_TRY(check_lost(emu, err));
    if (rp__keys_has(&emu->programs, key)) return RP_OK;
    if (emu->recording) return violate(emu, err, "compiling during capture");
    RP_TRY(reserve_scratch(emu, rp__body_scratch(op), err));
    if (!rp__keys_add(&emu->programs, key))
        return rp__fail(err, RP_ENOMEM, "emu: no memory for the program cache");
    emu->report.n_compiles++;
    emu->report.host_us += cost(emu, RP_EMU_compile_us, op->kind);
    return RP_OK;
}

/* Bakes an operand's address: the kernel no longer knows the buffer, only the place. */
static rp_status bake(rp__emu *emu, const rp_tensor *t, char **address, rp__emu_block *block,
                      rp_error *err) {
    *address = NULL;
    *block = (rp__emu_block){0};
    if (!t->n_dims) return RP_OK;
    size_t span = t->is_weight ? emu_weight_bytes(emu, t) : rp__tensor_span(t);
    RP_TRY(find_block(emu, t->buffer->handle, t->offset, span, block, err));
    *address = kernel_at(emu, t->buffer->handle, t->offset);
    return RP_OK;
}

static rp_status build_kernel(rp__emu *emu, const rp_op *op, rp__emu_kernel *k, rp_error *err) {
    char *address;
    *k = (rp__emu_kernel){.op = *op, .fn = body_of(emu, op)};
    for (int i = 0; i < op->n_in; i++) {
        RP_TRY(bake(emu, &op->in[i], &address, &k->used[i], err));
        k->in[i] = address;
    }
    for (int i = 0; i < op->n_out; i++)
        RP_TRY(bake(emu, &op->out[i], &k->out[i], &k->used[RP_OP_MAX_IN + i], err));
    if (emu->has_live_rows) {
        RP_TRY(bake(emu, &op->live, &address, &k->used[RP_OP_MAX_IN + RP_OP_MAX_OUT], err));
        k->live = address;
    }
    double work = work_us(emu, op);
    k->eager_us = work + cost(emu, RP_EMU_op_us, op->kind);
    k->graph_us = work + cost(emu, RP_EMU_graph_op_us, op->kind);
    return RP_OK;
}

static rp_status count_launch(rp__emu *emu, rp_error *err) {
    if (++emu->n_launch_calls != emu->launch_fail_at) return RP_OK;
    return rp__fail(err, RP_EDEVICE, "emu: launch %" PRIu64 " fails, as launch_fail_at asks",
                    emu->n_launch_calls);
}

static bool is_too_long(const rp__emu *emu, double device_us) {
    return emu->watchdog_us > 0 && device_us > emu->watchdog_us;
}

static rp_status emu_run_eager(rp__emu *emu, uint32_t queue, const rp_op *op, rp_error *err) {
    rp__emu_cmd *cmd = rp__emu_stream_slot(&emu->streams[queue]);
    RP_TRY(build_kernel(emu, op, &cmd->kernel, err));
    cmd->kind = RP_EMU_KERNEL;
    cmd->is_too_long = is_too_long(emu, cmd->kernel.eager_us);
    clock_submit(emu, cost(emu, RP_EMU_launch_us, op->kind), cmd->kernel.eager_us);
    emu->report.n_launches++;
    rp__emu_stream_put(&emu->streams[queue]);
    return RP_OK;
}

/* ---- recording ---- */

static rp_status grow_graph(rp__emu_graph *g, rp_error *err) {
    if (g->n < g->cap) return RP_OK;
    size_t cap = g->cap ? g->cap * 2 : 16;
    rp__emu_kernel *kernels = rp__realloc_array(g->kernels, cap, sizeof *kernels);
    if (!kernels) return rp__fail(err, RP_ENOMEM, "emu: no memory to record op %zu", g->n + 1);
    g->kernels = kernels;
    g->cap = cap;
    return RP_OK;
}

/* A temporary as large as the op's result. It counts as free again when the capture ends, while
 * every replay goes on writing to it: the trap that hides_temporaries tells the device layer of. */
static rp_status take_temporary(rp__emu *emu, rp__emu_kernel *k, rp_error *err) {
    if (!emu->hides_temporaries) return RP_OK;
    size_t bytes = rp__tensor_span(&k->op.out[0]), offset;
    if (!bytes) return RP_OK;
    RP_TRY(rp__emu_space_alloc(&emu->space, bytes, &offset, err));
    k->temporary = emu->space.kernel + offset;
    k->temporary_bytes = bytes;
    return RP_OK;
}

static void drop_temporaries(rp__emu *emu, const rp__emu_graph *g) {
    for (size_t i = 0; i < g->n; i++) {
        char *t = g->kernels[i].temporary;
        if (t) rp__emu_space_free(&emu->space, (size_t)(t - emu->space.kernel));
    }
}

static rp_status record(rp__emu *emu, const rp_op *op, rp_error *err) {
    rp__emu_graph *g = emu->recording;
    if (!rp__keys_has(&emu->programs, rp__op_key(op)))
        return violate(emu, err, "compiling during capture");
    RP_TRY(grow_graph(g, err));
    rp__emu_kernel *k = &g->kernels[g->n];
    RP_TRY(build_kernel(emu, op, k, err));
    if (emu->hides_temporaries) drain(emu);
    RP_TRY(take_temporary(emu, k, err));
    g->n++;
    g->device_us += k->graph_us;
    emu->report.host_us += cost(emu, RP_EMU_capture_op_us, op->kind);
    return RP_OK;
}

static rp_status emu_run(void *self, uint32_t queue, const rp_op *op, rp_error *err) {
    rp__emu *emu = self;
    RP_TRY(check_lost(emu, err));
    if (queue != 0) return rp__fail(err, RP_EUNSUPPORTED, "emu: queue %u is for copies", queue);
    RP_TRY(count_launch(emu, err));
    RP_TRY(emu_prepare(emu, op, err));
    if (emu->recording) RP_TRY(record(emu, op, err));
    return emu->recording && emu->records_only ? RP_OK : emu_run_eager(emu, queue, op, err);
}

static rp_status emu_capture_begin(void *self, uint32_t queue, rp_error *err) {
    rp__emu *emu = self;
    (void)queue;
    RP_TRY(check_lost(emu, err));
    if (emu->recording) return violate(emu, err, "capture inside capture");
    emu->recording = rp__calloc(1, sizeof *emu->recording);
    return emu->recording ? RP_OK : rp__fail(err, RP_ENOMEM, "emu: no memory to capture");
}

static void graph_free(rp__emu_graph *g) {
    rp__free(g->kernels);
    rp__free(g);
}

static void emu_capture_abort(void *self, uint32_t queue) {
    rp__emu *emu = self;
    (void)queue;
    if (!emu->recording) return;
    drain(emu);
    drop_temporaries(emu, emu->recording);
    graph_free(emu->recording);
    emu->recording = NULL;
}

static rp_status reserve_graph(rp__emu *emu, size_t bytes, rp_error *err) {
    size_t used = emu->report.graph_bytes;
    if (emu->graph_region) {
        if (bytes > emu->graph_region - used)
            return rp__fail(err, RP_ENOMEM,
                            "emu: a graph needs %zu bytes, %zu of the graph region of %zu are free",
                            bytes, emu->graph_region - used, emu->graph_region);
    } else {
        if (bytes > emu->space.cap - emu->space.live_bytes)
            return rp__fail(err, RP_ENOMEM, "emu: a graph needs %zu bytes, %zu of %zu are free",
                            bytes, emu->space.cap - emu->space.live_bytes, emu->space.cap);
        emu->space.live_bytes += bytes;
    }
    emu->report.graph_bytes += bytes;
    return RP_OK;
}

static rp_status emu_capture_end(void *self, uint32_t queue, void **graph, rp_error *err) {
    rp__emu *emu = self;
    (void)queue;
    if (!emu->recording) return violate(emu, err, "capture ends without a begin");
    rp__emu_graph *g = emu->recording;
    drain(emu);
    drop_temporaries(emu, g);
    emu->recording = NULL;
    rp_status status = check_lost(emu, err);
    size_t bytes = GRAPH_BYTES + g->n * GRAPH_OP_BYTES;
    if (status == RP_OK) status = reserve_graph(emu, bytes, err);
    if (status < 0) {
        graph_free(g);
        return status;
    }
    g->bytes = bytes;
    emu->report.host_us += cost0(emu, RP_EMU_capture_us);
    *graph = g;
    return RP_OK;
}

static bool is_same_block(const rp__emu *emu, const rp__emu_block *used) {
    if (!used->serial) return true;
    const rp__emu_block *b = rp__emu_space_find(&emu->space, used->offset);
    return b && b->serial == used->serial;
}

/* Every address in the graph must still be in the block it was baked from. */
static rp_status check_graph(rp__emu *emu, const rp__emu_graph *g, rp_error *err) {
    for (size_t i = 0; i < g->n; i++) {
        const rp__emu_kernel *k = &g->kernels[i];
        for (size_t j = 0; j < sizeof k->used / sizeof *k->used; j++)
            if (!is_same_block(emu, &k->used[j]))
                return violate(emu, err, "replay of a graph whose buffer is gone");
    }
    return RP_OK;
}

static rp_status emu_replay(void *self, uint32_t queue, void *graph, rp_error *err) {
    rp__emu *emu = self;
    const rp__emu_graph *g = graph;
    RP_TRY(check_lost(emu, err));
    if (emu->recording) return violate(emu, err, "replay during capture");
    RP_TRY(count_launch(emu, err));
    RP_TRY(check_graph(emu, g, err));
    rp__emu_cmd *cmd = rp__emu_stream_slot(&emu->streams[queue]);
    cmd->kind = RP_EMU_GRAPH;
    cmd->graph = g;
    cmd->is_too_long = is_too_long(emu, g->device_us);
    clock_submit(emu, cost0(emu, RP_EMU_replay_us) + (double)g->n * cost0(emu, RP_EMU_replay_op_us),
                 g->device_us);
    emu->report.n_replays++;
    emu->report.n_replayed_ops += g->n;
    rp__emu_stream_put(&emu->streams[queue]);
    return RP_OK;
}

static void emu_graph_destroy(void *self, void *graph) {
    rp__emu *emu = self;
    rp__emu_graph *g = graph;
    drain(emu);
    emu->report.graph_bytes -= g->bytes;
    if (!emu->graph_region) emu->space.live_bytes -= g->bytes;
    graph_free(g);
}

static size_t emu_graph_bytes(void *self, void *graph) {
    (void)self;
    return ((rp__emu_graph *)graph)->bytes;
}

/* ---- events ---- */

static rp_status emu_event_record(void *self, uint32_t queue, uint64_t *event, rp_error *err) {
    rp__emu *emu = self;
    RP_TRY(check_lost(emu, err));
    if (emu->recording && queue == 0) return violate(emu, err, "recording an event during capture");
    /* An event's number modulo the number of queues is the queue that signals it. */
    emu->last_event += RP_EMU_MAX_QUEUES;
    *event = emu->last_event + queue;
    rp__emu_cmd *cmd = rp__emu_stream_slot(&emu->streams[queue]);
    cmd->kind = RP_EMU_SIGNAL;
    cmd->event = *event;
    cmd->is_too_long = false;
    rp__emu_stream_put(&emu->streams[queue]);
    return RP_OK;
}

static rp_status emu_event_wait(void *self, uint32_t queue, uint64_t event, rp_error *err) {
    rp__emu *emu = self;
    RP_TRY(check_lost(emu, err));
    if (emu->recording && queue == 0)
        return violate(emu, err, "waiting for an event during capture");
    rp__emu_cmd *cmd = rp__emu_stream_slot(&emu->streams[queue]);
    cmd->kind = RP_EMU_WAIT;
    cmd->event = event;
    cmd->is_too_long = false;
    rp__emu_stream_put(&emu->streams[queue]);
    return RP_OK;
}

/* ---- open and close ---- */

static void emu_close(void *self) {
    rp__emu *emu = self;
    emu_capture_abort(emu, 0);
    pthread_mutex_lock(&emu->lock);
    emu->is_stopping = true;
    pthread_cond_broadcast(&emu->changed);
    pthread_mutex_unlock(&emu->lock);
    for (uint32_t q = 0; q < RP_EMU_MAX_QUEUES; q++) rp__emu_stream_close(&emu->streams[q]);
    rp__emu_space_clear(&emu->space);
    rp__keys_clear(&emu->programs);
    rp__free(emu->scratch);
    pthread_cond_destroy(&emu->changed);
    pthread_mutex_destroy(&emu->lock);
    rp__free(emu);
}

static rp_status emu_start(rp__emu *emu, const rp_device_config *config, rp_error *err) {
    RP_TRY(rp__emu_configure(emu, config, err));
    if (emu->graph_region >= emu->space.cap)
        return rp__fail(err, RP_EINVAL, "emu: a graph region of %zu bytes in a memory of %zu",
                        emu->graph_region, emu->space.cap);
    emu->space.cap -= emu->graph_region;
    RP_TRY(rp__emu_space_open(&emu->space, err));
    for (uint32_t q = 0; q < emu->n_queues; q++) RP_TRY(rp__emu_stream_open(emu, q, err));
    return RP_OK;
}

static rp_status emu_open(const rp_device_config *config, void **self, rp_error *err) {
    rp__emu *emu = rp__calloc(1, sizeof *emu);
    if (!emu) return rp__fail(err, RP_ENOMEM, "emu: no memory to open");
    pthread_mutex_init(&emu->lock, NULL);
    pthread_cond_init(&emu->changed, NULL);
    emu->space.fd = -1;
    emu->space.cap = (size_t)DEFAULT_MEMORY_GIB << 30;
    rp_status status = emu_start(emu, config, err);
    if (status < 0) {
        emu_close(emu);
        return status;
    }
    *self = emu;
    return RP_OK;
}

static void emu_properties(void *self, rp_device_properties *out) {
    rp__emu *emu = self;
    snprintf(out->description, sizeof out->description,
             "emulated accelerator, %s bodies, profile %s, simulated times", emu->bodies->name,
             emu->profile.name);
    out->memory_bytes = emu->space.cap;
    out->alignment = RP_EMU_ALIGN;
    out->n_queues = emu->n_queues;
    out->has_live_rows = emu->has_live_rows;
    out->has_capture = emu->has_capture;
    out->records_only = emu->records_only;
    out->is_simulated = true;
    out->is_host_memory = false;
    out->hides_temporaries = emu->hides_temporaries;
    out->graph_base_bytes = GRAPH_BYTES;
    out->graph_op_bytes = GRAPH_OP_BYTES;
    out->graph_region_bytes = emu->graph_region;
    out->watchdog_us = emu->watchdog_us;
    out->advances_positions = emu->advances_positions;
    out->prompt_align = emu->prompt_align;
    out->picks_tokens = emu->picks_tokens;
    out->host_rules = emu->host_rules;
}

const rp_device_api rp__emu_api = {
    .abi = RP_DEVICE_ABI,
    .bytes = sizeof(rp_device_api),
    .name = "emu",
    .open = emu_open,
    .close = emu_close,
    .properties = emu_properties,
    .alloc = emu_alloc,
    .free = emu_free,
    .write = emu_write,
    .read = emu_read,
    .copy = emu_copy,
    .supports = emu_supports,
    .prepare = emu_prepare,
    .run = emu_run,
    .sync = emu_sync,
    .weight_bytes = emu_weight_bytes,
    .weight_write = emu_weight_write,
    .capture_begin = emu_capture_begin,
    .capture_end = emu_capture_end,
    .capture_abort = emu_capture_abort,
    .replay = emu_replay,
    .graph_destroy = emu_graph_destroy,
    .graph_bytes = emu_graph_bytes,
    .event_record = emu_event_record,
    .event_wait = emu_event_wait,
    .clock_us = emu_clock_us,
    .clock_host_op = emu_clock_host_op,
    .estimate_us = emu_estimate_us,
};

/* ---- emu.h ---- */

static rp__emu *emu_of(const rp_device *dev) {
    rp__assert(dev->api == &rp__emu_api && dev->self, "device %s is no open emu", dev->api->name);
    return dev->self;
}

rp__emu_report rp__emu_get_report(rp_device *dev) {
    rp__emu *emu = emu_of(dev);
    emu->report.live_bytes = emu->space.live_bytes;
    return emu->report;
}

void rp__emu_clock_reset(rp_device *dev) {
    rp__emu *emu = emu_of(dev);
    emu->report.host_us = emu->report.device_us = 0;
}

void rp__emu_lose_at(rp_device *dev, uint64_t n) {
    rp__emu *emu = emu_of(dev);
    pthread_mutex_lock(&emu->lock);
    emu->lose_at = n ? emu->n_run + n : 0;
    pthread_mutex_unlock(&emu->lock);
}
