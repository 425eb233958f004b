/* The device layer: opening, buffers, ops, counters.
 *
 * Owns: every check of arguments before a device table sees them; the life of buffers; which ops
 * are warm; the state "lost". The rules of capture are asked of capture.c, which alone knows them.
 *
 * Invariants: a device function is never called while `lost` is set, but for free, graph_destroy
 * and close; a buffer's generation grows before the write that it counts is issued. */
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "device/device_impl.h"
#include "device/keys.h"
#include "device/op.h"
#include "tensor/dtype.h"
#include "tensor/view.h"

enum {
    OP_TEXT = 320,
    LEAST_BYTES = offsetof(rp_device_api, clock_us), /* of a table: all that follows is optional */
    WATCHDOG_SHARE = 2 /* submits are cut at this part of the watchdog: estimates are estimates */
};

static rp__buffer_box *box_of(rp_buffer *buf) {
    return (rp__buffer_box *)(void *)buf;
}

/* ---- opening and closing ---- */

static bool has_required(const rp_device_api *api) {
    return api->open && api->close && api->properties && api->alloc && api->free && api->write &&
           api->read && api->copy && api->supports && api->prepare && api->run && api->sync;
}

static bool all_or_none(size_t n_there, size_t n_all) {
    return n_there == 0 || n_there == n_all;
}

static size_t n_capture(const rp_device_api *a) {
    return (size_t) !!a->capture_begin + !!a->capture_end + !!a->capture_abort + !!a->replay +
           !!a->graph_destroy + !!a->graph_bytes;
}

/* Tables may be shorter than this build's. */
static bool has_clock(const rp_device_api *api) {
    return api->bytes >= offsetof(rp_device_api, estimate_us) && api->clock_us;
}

static bool has_estimate(const rp_device_api *api) {
    return api->bytes >= offsetof(rp_device_api, limits) && api->estimate_us;
}

static rp_status check_api(const rp_device_api *api, rp_error *err) {
    if (api->abi != RP_DEVICE_ABI)
        return rp__fail(err, RP_EVERSION,
                        "the device speaks interface version %u, this build speaks %u", api->abi,
                        RP_DEVICE_ABI);
    if (api->bytes < LEAST_BYTES || api->bytes > sizeof *api)
        return rp__fail(err, RP_EVERSION,
                        "the device table \"%s\" has %u bytes, this build's has %zu",
                        api->name ? api->name : "?", api->bytes, sizeof *api);
    if (!api->name || !has_required(api))
        return rp__fail(err, RP_EVERSION, "the device table \"%s\" lacks a required function",
                        api->name ? api->name : "?");
    if (!all_or_none(n_capture(api), 6) ||
        !all_or_none((size_t) !!api->event_record + !!api->event_wait, 2) ||
        !all_or_none((size_t) !!api->weight_bytes + !!api->weight_write, 2) ||
        (has_clock(api) && !api->clock_host_op))
        return rp__fail(err, RP_EVERSION,
                        "the device table \"%s\" has only a part of an optional group", api->name);
    return RP_OK;
}

static rp_status open_self(rp_device *dev, rp_error *err) {
    RP_TRY(dev->api->open(&dev->config, &dev->self, err));
    dev->props = (rp_device_properties){.alignment = 1, .n_queues = 1};
    dev->api->properties(dev->self, &dev->props);
    if (!dev->props.alignment) dev->props.alignment = 1;
    if (dev->props.has_capture && !dev->api->capture_begin)
        return rp__fail(err, RP_EVERSION,
                        "device \"%s\" says has_capture and has no capture functions",
                        dev->api->name);
    return RP_OK;
}

static void device_free(rp_device *dev) {
    if (dev->self) dev->api->close(dev->self);
    rp__keys_clear(&dev->warm);
    rp__free(dev->capture.uses);
    rp__free(dev->options);
    rp__free(dev);
}

rp_status rp__device_open_api(const rp_device_api *api, const rp_device_config *config,
                              rp_device **out, rp_error *err) {
    *out = NULL;
    RP_TRY(check_api(api, err));
    if (config && config->bytes != sizeof *config)
        return rp__fail(err, RP_EVERSION,
                        "the device configuration has %u bytes, this build's has %zu",
                        config->bytes, sizeof *config);
    rp_device *dev = rp__calloc(1, sizeof *dev);
    if (!dev) return rp__fail(err, RP_ENOMEM, "no memory to open device \"%s\"", api->name);
    dev->api = api;
    dev->config = config ? *config : (rp_device_config){.bytes = sizeof *config};
    rp_status status = RP_OK;
    if (dev->config.options) {
        dev->options = rp__strdup(dev->config.options);
        if (!dev->options)
            status = rp__fail(err, RP_ENOMEM, "no memory to open device \"%s\"", api->name);
        dev->config.options = dev->options;
    }
    if (status == RP_OK) status = open_self(dev, err);
    if (status < 0) {
        device_free(dev);
        return status;
    }
    *out = dev;
    return RP_OK;
}

void rp__device_close(rp_device *dev) {
    if (!dev) return;
    rp__capture_abort(dev);
    rp__capture_drop(dev);
    rp__assert(!dev->graphs, "device %s closed with graph \"%s\" alive", dev->api->name,
               dev->graphs->name);
    rp__assert(!dev->buffers, "device %s closed with buffer \"%s\" alive", dev->api->name,
               dev->buffers->buf.name);
    rp__device_unpark(dev);
    void *library = dev->library;
    device_free(dev);
    rp__plugin_unload(library);
}

const char *rp__device_name(const rp_device *dev) {
    return dev->api->name;
}
const rp_device_properties *rp__device_props(const rp_device *dev) {
    return &dev->props;
}
bool rp__device_has_capture(const rp_device *dev) {
    return dev->props.has_capture;
}
rp__device_stats rp__device_get_stats(const rp_device *dev) {
    return dev->stats;
}

/* ---- loss ---- */

bool rp__device_is_lost(const rp_device *dev) {
    return dev->lost.code != 0;
}

rp_status rp__device_usable(const rp_device *dev, rp_error *err) {
    if (!dev->lost.code) return RP_OK;
    if (err) *err = dev->lost;
    return dev->lost.code;
}

rp_status rp__device_note(rp_device *dev, rp_status status, rp_error *err) {
    if (status == RP_EDEVICE_LOST && !dev->lost.code) {
        dev->lost = *err;
        dev->lost.code = RP_EDEVICE_LOST;
    }
    return status;
}

static rp_status reopen_buffers(rp_device *dev, rp_error *err) {
    for (rp__buffer_box *b = dev->buffers; b; b = b->next) {
        RP_TRY(dev->api->alloc(dev->self, b->buf.bytes, &b->buf.handle, err));
        b->handle_bytes = b->buf.bytes;
        b->buf.generation++;
    }
    return RP_OK;
}

rp_status rp__device_reopen(rp_device *dev, rp_error *err) {
    rp_error local;
    if (!err) err = &local;
    rp__capture_abort(dev);
    rp__capture_drop(dev);
    if (dev->graphs)
        return rp__fail(err, RP_EBUSY, "device %s cannot be reopened while graph \"%s\" is alive",
                        dev->api->name, dev->graphs->name);
    rp__device_unpark(dev);
    for (rp__buffer_box *b = dev->buffers; b; b = b->next) {
        if (b->buf.handle) dev->api->free(dev->self, b->buf.handle);
        b->buf.handle = NULL;
    }
    if (dev->self) dev->api->close(dev->self);
    dev->self = NULL;
    rp__keys_clear(&dev->warm);
    memset(dev->last_prepared, 0, sizeof dev->last_prepared);
    dev->config.is_reopen = true;
    rp_status status = open_self(dev, err);
    if (status == RP_OK) status = reopen_buffers(dev, err);
    if (status == RP_OK) {
        dev->lost = (rp_error){0};
        return RP_OK;
    }
    rp__fail(&dev->lost, RP_EDEVICE_LOST, "device %s could not be reopened: %s", dev->api->name,
             err->message);
    return status;
}

/* ---- clock ---- */

double rp__device_clock_us(rp_device *dev) {
    if (has_clock(dev->api) && dev->props.is_simulated && dev->self)
        return dev->api->clock_us(dev->self);
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

void rp__device_clock_host_op(rp_device *dev, const rp_op *op) {
    if (has_clock(dev->api) && dev->props.is_simulated && dev->self)
        dev->api->clock_host_op(dev->self, op);
}

/* ---- estimates ---- */

rp_status rp__device_limits(rp_device *dev, size_t read_bytes, rp_device_limit_fn on_row,
                            void *user, rp_error *err) {
    if (dev->api->bytes < sizeof *dev->api || !dev->api->limits)
        return rp__fail(err, RP_EUNSUPPORTED, "device %s does not measure its limits",
                        rp__device_name(dev));
    return dev->api->limits(dev->self, read_bytes, on_row, user, err);
}

double rp__device_estimate_us(rp_device *dev, const rp_op *op) {
    return has_estimate(dev->api) && dev->self ? dev->api->estimate_us(dev->self, op) : 0;
}

double rp__device_submit_limit_us(const rp_device *dev) {
    return has_estimate(dev->api) ? dev->props.watchdog_us / WATCHDOG_SHARE : 0;
}

/* ---- buffers ---- */

static void box_link(rp__buffer_box **list, rp__buffer_box *box) {
    box->prev = NULL;
    box->next = *list;
    if (*list) (*list)->prev = box;
    *list = box;
}

static void box_unlink(rp__buffer_box **list, rp__buffer_box *box) {
    if (box->prev)
        box->prev->next = box->next;
    else
        *list = box->next;
    if (box->next) box->next->prev = box->prev;
}

/* True when neither alloc nor free may reach the device now (see hides_temporaries). */
static bool is_memory_frozen(const rp_device *dev) {
    return dev->props.hides_temporaries && dev->graphs && !dev->is_unprotected && !dev->lost.code;
}

void rp__device_unpark(rp_device *dev) {
    if (is_memory_frozen(dev)) return;
    while (dev->parked) {
        rp__buffer_box *box = dev->parked;
        box_unlink(&dev->parked, box);
        dev->api->free(dev->self, box->buf.handle);
        rp__free(box);
    }
}

static rp__buffer_box *find_parked(rp_device *dev, size_t bytes) {
    rp__buffer_box *best = NULL;
    for (rp__buffer_box *b = dev->parked; b; b = b->next)
        if (b->handle_bytes >= bytes && (!best || b->handle_bytes < best->handle_bytes)) best = b;
    return best;
}

/* Device memory for a new buffer: a parked handle while memory is frozen, else fresh. */
static rp_status get_memory(rp_device *dev, const char *name, size_t bytes, void **handle,
                            size_t *handle_bytes, rp_error *err) {
    *handle_bytes = bytes;
    if (!is_memory_frozen(dev)) {
        rp_status status =
            rp__device_note(dev, dev->api->alloc(dev->self, bytes, handle, err), err);
        return status < 0
                   ? rp__fail_context(err, status, "buffer \"%s\" on %s", name, dev->api->name)
                   : RP_OK;
    }
    rp__buffer_box *box = find_parked(dev, bytes);
    if (!box)
        return rp__fail(
            err, RP_EBUSY,
            "buffer \"%s\" of %zu bytes cannot be allocated on %s beside live graph \"%s\": the "
            "memory the graph uses counts as free there",
            name, bytes, dev->api->name, dev->graphs->name);
    box_unlink(&dev->parked, box);
    *handle = box->buf.handle;
    *handle_bytes = box->handle_bytes;
    rp__free(box);
    return RP_OK;
}

rp_status rp__buffer_create(rp_device *dev, const char *name, size_t bytes, bool is_pinned,
                            rp_buffer **out, rp_error *err) {
    static _Atomic uint64_t last_id;
    rp_error local;
    if (!err) err = &local;
    *out = NULL;
    RP_TRY(rp__device_usable(dev, err));
    RP_TRY(rp__capture_check_memory(dev, "allocating", name, bytes, err));
    if (!bytes) return rp__fail(err, RP_EINVAL, "buffer \"%s\" of 0 bytes", name);
    rp__buffer_box *box = rp__calloc(1, sizeof *box);
    char *copy = rp__strdup(name);
    rp_status status = RP_OK;
    if (!box || !copy) status = rp__fail(err, RP_ENOMEM, "no memory for buffer \"%s\"", name);
    if (status == RP_OK)
        status = get_memory(dev, name, bytes, &box->buf.handle, &box->handle_bytes, err);
    if (status < 0) {
        rp__free(copy);
        rp__free(box);
        return status;
    }
    box->name = copy;
    box->buf.bytes = bytes;
    box->buf.name = copy;
    box->buf.owner = dev;
    box->buf.id = atomic_fetch_add(&last_id, 1) + 1;
    box->buf.generation = 1;
    box->buf.is_pinned = is_pinned;
    box_link(&dev->buffers, box);
    dev->stats.n_allocs++;
    dev->stats.live_buffers++;
    dev->stats.live_bytes += bytes;
    *out = &box->buf;
    return RP_OK;
}

rp_status rp__buffer_destroy(rp_buffer *buf, rp_error *err) {
    if (!buf) return RP_OK;
    rp_error local;
    if (!err) err = &local;
    rp_device *dev = buf->owner;
    rp__buffer_box *box = box_of(buf);
    RP_TRY(rp__capture_check_memory(dev, "freeing", buf->name, buf->bytes, err));
    RP_TRY(rp__capture_check_free(buf, err));
    box_unlink(&dev->buffers, box);
    dev->stats.n_frees++;
    dev->stats.live_buffers--;
    dev->stats.live_bytes -= buf->bytes;
    rp__free(box->name);
    if (buf->handle && is_memory_frozen(dev)) {
        box_link(&dev->parked, box);
        return RP_OK;
    }
    if (buf->handle) dev->api->free(dev->self, buf->handle);
    rp__free(box);
    return RP_OK;
}

/* ---- host access ---- */

static rp_status check_range(const rp_buffer *buf, const char *what, size_t offset, size_t n,
                             rp_error *err) {
    if (offset <= buf->bytes && n <= buf->bytes - offset) return RP_OK;
    return rp__fail(err, RP_EINVAL, "%s of %zu bytes at %zu is outside buffer \"%s\" of %zu bytes",
                    what, n, offset, buf->name, buf->bytes);
}

/* What every host access and every event asks first. */
static rp_status check_queue(rp_device *dev, uint32_t queue, const char *what, const rp_buffer *buf,
                             rp_error *err) {
    RP_TRY(rp__device_usable(dev, err));
    if (queue >= dev->props.n_queues)
        return rp__fail(err, RP_EINVAL, "queue %u on %s, which has %u", queue, dev->api->name,
                        dev->props.n_queues);
    return queue == 0 ? rp__capture_check_host(dev, what, buf, err) : RP_OK;
}

rp_status rp__queue_write(rp_buffer *buf, uint32_t queue, size_t offset, const void *src, size_t n,
                          rp_error *err) {
    rp_error local;
    if (!err) err = &local;
    rp_device *dev = buf->owner;
    RP_TRY(check_queue(dev, queue, "write to", buf, err));
    RP_TRY(check_range(buf, "write", offset, n, err));
    buf->generation++;
    dev->stats.n_writes++;
    dev->stats.bytes_written += n;
    return rp__device_note(dev, dev->api->write(dev->self, queue, buf->handle, offset, src, n, err),
                           err);
}

rp_status rp__queue_read(rp_buffer *buf, uint32_t queue, size_t offset, void *dst, size_t n,
                         rp_error *err) {
    rp_error local;
    if (!err) err = &local;
    rp_device *dev = buf->owner;
    RP_TRY(check_queue(dev, queue, "read of", buf, err));
    RP_TRY(check_range(buf, "read", offset, n, err));
    dev->stats.n_reads++;
    dev->stats.bytes_read += n;
    return rp__device_note(dev, dev->api->read(dev->self, queue, buf->handle, offset, dst, n, err),
                           err);
}

rp_status rp__queue_copy(rp_buffer *dst, uint32_t queue, size_t dst_offset, rp_buffer *src,
                         size_t src_offset, size_t n, rp_error *err) {
    rp_error local;
    if (!err) err = &local;
    rp_device *dev = dst->owner;
    RP_TRY(check_queue(dev, queue, "copy to", dst, err));
    if (src->owner != dev)
        return rp__fail(err, RP_EINVAL, "copy from buffer \"%s\" on %s to \"%s\" on another device",
                        src->name, src->owner->api->name, dst->name);
    RP_TRY(check_range(dst, "copy", dst_offset, n, err));
    RP_TRY(check_range(src, "copy", src_offset, n, err));
    dst->generation++;
    rp_status status =
        dev->api->copy(dev->self, queue, dst->handle, dst_offset, src->handle, src_offset, n, err);
    return rp__device_note(dev, status, err);
}

rp_status rp__queue_sync(rp_device *dev, uint32_t queue, rp_error *err) {
    rp_error local;
    if (!err) err = &local;
    RP_TRY(check_queue(dev, queue, "sync of", NULL, err));
    dev->stats.n_syncs++;
    return rp__device_note(dev, dev->api->sync(dev->self, queue, err), err);
}

rp_status rp__buffer_write(rp_buffer *buf, size_t offset, const void *src, size_t n,
                           rp_error *err) {
    return rp__queue_write(buf, 0, offset, src, n, err);
}

rp_status rp__buffer_read(rp_buffer *buf, size_t offset, void *dst, size_t n, rp_error *err) {
    return rp__queue_read(buf, 0, offset, dst, n, err);
}

rp_status rp__buffer_copy(rp_buffer *dst, size_t dst_offset, rp_buffer *src, size_t src_offset,
                          size_t n, rp_error *err) {
    return rp__queue_copy(dst, 0, dst_offset, src, src_offset, n, err);
}

static char *host_address(const rp_buffer *buf, size_t offset) {
    return (char *)buf->handle + offset;
}

rp_status rp__buffer_view(rp_buffer *buf, size_t offset, size_t n, const void **at, rp_error *err) {
    *at = NULL;
    RP_TRY(check_queue(buf->owner, 0, "read of", buf, err));
    RP_TRY(check_range(buf, "read", offset, n, err));
    if (!buf->owner->props.is_host_memory)
        return rp__fail(err, RP_EINVAL, "buffer \"%s\" on %s is not in the host's memory", buf->name,
                        buf->owner->api->name);
    RP_TRY(rp__queue_sync(buf->owner, 0, err));
    *at = host_address(buf, offset);
    return RP_OK;
}

rp_status rp__buffer_transfer(rp_buffer *dst, size_t dst_offset, rp_buffer *src, size_t src_offset,
                              size_t n, rp_error *err) {
    RP_TRY(check_range(dst, "transfer", dst_offset, n, err));
    RP_TRY(check_range(src, "transfer", src_offset, n, err));
    if (src->owner->props.is_host_memory)
        return rp__buffer_write(dst, dst_offset, host_address(src, src_offset), n, err);
    if (!dst->owner->props.is_host_memory)
        return rp__fail(err, RP_EINVAL,
                        "transfer from buffer \"%s\" on %s to \"%s\" on %s: "
                        "neither is in the host's memory",
                        src->name, src->owner->api->name, dst->name, dst->owner->api->name);
    dst->generation++;
    return rp__buffer_read(src, src_offset, host_address(dst, dst_offset), n, err);
}

rp_status rp__device_sync(rp_device *dev, rp_error *err) {
    return rp__queue_sync(dev, 0, err);
}

static rp_status check_events(rp_device *dev, rp_error *err) {
    if (dev->api->event_record) return RP_OK;
    return rp__fail(err, RP_EUNSUPPORTED, "device %s has no events", dev->api->name);
}

rp_status rp__event_record(rp_device *dev, uint32_t queue, uint64_t *event, rp_error *err) {
    rp_error local;
    if (!err) err = &local;
    RP_TRY(check_queue(dev, queue, "event on", NULL, err));
    RP_TRY(check_events(dev, err));
    return rp__device_note(dev, dev->api->event_record(dev->self, queue, event, err), err);
}

rp_status rp__event_wait(rp_device *dev, uint32_t queue, uint64_t event, rp_error *err) {
    rp_error local;
    if (!err) err = &local;
    RP_TRY(check_queue(dev, queue, "wait for an event on", NULL, err));
    RP_TRY(check_events(dev, err));
    return rp__device_note(dev, dev->api->event_wait(dev->self, queue, event, err), err);
}

/* ---- mirrors ---- */

rp_status rp__mirror_init(rp__mirror *m, rp_buffer *buf, size_t offset, size_t bytes,
                          rp_error *err) {
    *m = (rp__mirror){.buf = buf, .offset = offset, .bytes = bytes};
    RP_TRY(check_range(buf, "mirror", offset, bytes, err));
    m->data = rp__alloc(bytes);
    return m->data ? RP_OK
                   : rp__fail(err, RP_ENOMEM, "no memory to mirror %zu bytes of \"%s\"", bytes,
                              buf->name);
}

rp_status rp__mirror_get(rp__mirror *m, const void **data, rp_error *err) {
    uint64_t now = m->buf->generation;
    if (m->generation != now) {
        m->generation = 0;
        RP_TRY(rp__buffer_read(m->buf, m->offset, m->data, m->bytes, err));
        m->generation = now;
    }
    *data = m->data;
    return RP_OK;
}

void rp__mirror_clear(rp__mirror *m) {
    rp__free(m->data);
    *m = (rp__mirror){0};
}

/* ---- weights ---- */

static size_t dense_bytes(const rp_tensor *t) {
    size_t n;
    return rp__dtype_bytes(t->dtype, rp__tensor_elems(t), &n) ? n : 0;
}

size_t rp__weight_bytes(rp_device *dev, const rp_tensor *desc) {
    rp_tensor plain = *desc;
    plain.buffer = NULL;
    if (!desc->is_weight || !dev->api->weight_bytes || !dev->self) return dense_bytes(desc);
    return dev->api->weight_bytes(dev->self, &plain);
}

/* Bytes from the tensor's first to past its last one in its buffer. */
static size_t tensor_span(rp_device *dev, const rp_tensor *t) {
    return t->is_weight ? rp__weight_bytes(dev, t) : rp__tensor_span(t);
}

rp_status rp__weight_write(const rp_tensor *w, int64_t row, int64_t n_rows, const void *src,
                           rp_error *err) {
    rp_error local;
    if (!err) err = &local;
    rp_buffer *buf = w->buffer;
    rp_device *dev = buf->owner;
    RP_TRY(rp__device_usable(dev, err));
    RP_TRY(rp__capture_check_host(dev, "weight write to", buf, err));
    int64_t rows = rp__tensor_rows(w);
    if (row < 0 || n_rows < 0 || row > rows || n_rows > rows - row)
        return rp__fail(err, RP_EINVAL, "rows %lld to %lld of weight \"%s\", which has %lld",
                        (long long)row, (long long)row + (long long)n_rows, buf->name,
                        (long long)rows);
    size_t bytes = tensor_span(dev, w);
    if (!bytes) return rp__fail(err, RP_EINVAL, "weight \"%s\" of no size", buf->name);
    RP_TRY(check_range(buf, "weight", w->offset, bytes, err));
    if (!n_rows) return RP_OK;
    size_t row_bytes = dense_bytes(w) / (size_t)rows;
    buf->generation++;
    dev->stats.n_writes++;
    dev->stats.bytes_written += row_bytes * (size_t)n_rows;
    if (w->is_weight && dev->api->weight_write)
        return rp__device_note(dev, dev->api->weight_write(dev->self, w, row, n_rows, src, err),
                               err);
    return rp__device_note(dev,
                           dev->api->write(dev->self, 0, buf->handle,
                                           w->offset + (size_t)row * row_bytes, src,
                                           (size_t)n_rows * row_bytes, err),
                           err);
}

/* ---- ops ---- */

/* What must hold before rp__op_key may look at an op. */
static rp_status check_counts(const rp_op *op, rp_error *err) {
    if ((unsigned)op->kind < RP_N_OPS && op->n_in <= RP_OP_MAX_IN && op->n_out <= RP_OP_MAX_OUT)
        return RP_OK;
    return rp__fail(err, RP_EINVAL, "op of kind %d with %d operands and %d results", (int)op->kind,
                    op->n_in, op->n_out);
}

static rp_status fail_operand(const rp_op *op, const char *name, int i, const char *why,
                              rp_error *err) {
    char text[OP_TEXT];
    return rp__fail(err, RP_EINVAL, "%s: %s %d %s", rp__op_text(op, text, sizeof text), name, i,
                    why);
}

static rp_status check_operand(rp_device *dev, const rp_op *op, const char *name, int i,
                               const rp_tensor *t, rp_error *err) {
    if (t->n_dims == 0) return RP_OK;
    if (!t->buffer) return fail_operand(op, name, i, "has no buffer", err);
    if (t->buffer->owner != dev) return fail_operand(op, name, i, "is on another device", err);
    size_t span = tensor_span(dev, t),
           align = rp__dtype_is_block(t->dtype) ? 1 : rp__dtype_block_bytes(t->dtype);
    if (t->offset > t->buffer->bytes || span > t->buffer->bytes - t->offset)
        return rp__fail_context(err, check_range(t->buffer, name, t->offset, span, err),
                                "%s %d of %s", rp__op_name(op->kind), i,
                                op->label ? op->label : "an op");
    if (t->offset % align) return fail_operand(op, name, i, "is not aligned to its elements", err);
    return RP_OK;
}

static rp_status check_operands(rp_device *dev, const rp_op *op, rp_error *err) {
    for (int i = 0; i < op->n_in; i++) RP_TRY(check_operand(dev, op, "input", i, &op->in[i], err));
    for (int i = 0; i < op->n_out; i++)
        RP_TRY(check_operand(dev, op, "output", i, &op->out[i], err));
    return check_operand(dev, op, "live count", 0, &op->live, err);
}

bool rp__device_supports(rp_device *dev, const rp_op *op) {
    if (!dev->self || check_counts(op, NULL) < 0 || rp__op_check(op, NULL) < 0) return false;
    return dev->api->supports(dev->self, op);
}

static rp_status prepare(rp_device *dev, const rp_op *op, uint64_t key, rp_error *err) {
    if (!dev->api->supports(dev->self, op)) {
        char text[OP_TEXT];
        return rp__fail(err, RP_EUNSUPPORTED, "device %s does not run %s", dev->api->name,
                        rp__op_text(op, text, sizeof text));
    }
    RP_TRY(rp__device_note(dev, dev->api->prepare(dev->self, op, err), err));
    dev->last_prepared[op->kind] = *op;
    dev->last_prepared[op->kind].label = NULL; /* borrowed for the call */
    return rp__keys_add(&dev->warm, key)
               ? RP_OK
               : rp__fail(err, RP_ENOMEM, "no memory to remember a prepared op");
}

static rp_status check_and_prepare(rp_device *dev, const rp_op *op, rp_error *err) {
    RP_TRY(rp__device_usable(dev, err));
    RP_TRY(rp__capture_check_open(dev, err));
    RP_TRY(check_counts(op, err));
    uint64_t key = rp__op_key(op);
    bool is_warm = rp__keys_has(&dev->warm, key);
    RP_TRY(rp__capture_check_prepare(dev, op, is_warm, err));
    if (is_warm) return RP_OK;
    RP_TRY(rp__op_check(op, err));
    return prepare(dev, op, key, err);
}

rp_status rp__device_prepare(rp_device *dev, const rp_op *op, rp_error *err) {
    rp_error local;
    if (!err) err = &local;
    return rp__capture_poison(dev, check_and_prepare(dev, op, err), err);
}

static rp_status run(rp_device *dev, const rp_op *op, rp_error *err) {
    RP_TRY(rp__device_usable(dev, err));
    RP_TRY(rp__capture_check_open(dev, err));
    RP_TRY(check_counts(op, err));
    uint64_t key = rp__op_key(op);
    /* Equal keys have equal shapes, so one check of them is enough; where operands lie is checked
     * each time. */
    bool is_warm = rp__keys_has(&dev->warm, key);
    RP_TRY(is_warm ? rp__op_check_overlap(op, err) : rp__op_check(op, err));
    RP_TRY(check_operands(dev, op, err));
    RP_TRY(rp__capture_check_op(dev, op, is_warm, err));
    if (!is_warm) RP_TRY(prepare(dev, op, key, err));
    RP_TRY(rp__capture_record(dev, op, err));
    for (int i = 0; i < op->n_out; i++)
        if (op->out[i].n_dims) op->out[i].buffer->generation++;
    dev->stats.n_ops++;
    return rp__device_note(dev, dev->api->run(dev->self, 0, op, err), err);
}

rp_status rp__device_run(rp_device *dev, const rp_op *op, rp_error *err) {
    rp_error local;
    if (!err) err = &local;
    return rp__capture_poison(dev, run(dev, op, err), err);
}
