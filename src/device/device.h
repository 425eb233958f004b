/* The device layer: opens devices by name and stands between the engine and the vendor tables.
 *
 * Owns: buffers and their life, every argument check, the capture contract (capture.c), the single
 * slot. Leaves to devices: memory and running ops. Leaves to plan: what runs when. Threads: one
 * thread at a time per device. */
#ifndef RP_DEVICE_DEVICE_H
#define RP_DEVICE_DEVICE_H

#include "reprise/device.h"

typedef struct rp_device rp_device;
typedef struct rp_graph rp_graph;

/* ---- registry ---- */

/* Names built in ("cpu", "emu"), and paths in REPRISE_DEVICE_PATH (shared objects). NULL past the
 * end. */
const char *rp__device_name_at(size_t i);

/* The shared objects that REPRISE_DEVICE_PATH lists, parted by ':'. Copied; NULL or "": none.
 * Called at start, before threads. RP_ENOMEM leaves the list as it was. */
rp_status rp__device_set_path(const char *list, rp_error *err);

/* Opens by name (built in, or of a device in REPRISE_DEVICE_PATH), or by the path of a shared
 * object (a name with a
 * '/'); RP_ENOTFOUND lists the names there are;
 * RP_EUNSUPPORTED for a device that is known and not built; RP_EVERSION for a table of another
 * interface version. `config` NULL: defaults. Also usable with a table of one's own. */
rp_status rp__device_open(const char *name, const rp_device_config *config, rp_device **out,
                          rp_error *err);
rp_status rp__device_open_api(const rp_device_api *api, const rp_device_config *config,
                              rp_device **out, rp_error *err);
void rp__device_close(rp_device *dev); /* buffers and graphs still alive are a bug; NULL is fine */

/* After RP_EDEVICE_LOST every call is refused with the sentence of the loss, but for destroying
 * buffers and graphs, closing, and this: graphs are gone before (RP_EBUSY names one that is not);
 * the device is closed and opened again with its old configuration, and every buffer gets new
 * memory at the same rp_buffer. Contents are undefined: the caller writes weights and inputs again.
 * Kernels are cold. When it fails the device stays lost; try again or close. */
rp_status rp__device_reopen(rp_device *dev, rp_error *err);
bool rp__device_is_lost(const rp_device *dev);

const char *rp__device_name(const rp_device *dev);
const rp_device_properties *rp__device_props(const rp_device *dev);

/* Microseconds on the clock that the device's costs are measured with: its own when is_simulated,
 * else the monotonic clock. host_op tells a simulated clock that an op of the step ran on the host;
 * else a no-op. */
double rp__device_clock_us(rp_device *dev);
void rp__device_clock_host_op(rp_device *dev, const rp_op *op);

/* What the device says of an op's time before it runs, in microseconds (0: unknown), and how long
 * the ops of one submit should take together, so that no watchdog ends it (0: any time). */
double rp__device_estimate_us(rp_device *dev, const rp_op *op);
double rp__device_submit_limit_us(const rp_device *dev);

/* What it can do at most, measured now. RP_EUNSUPPORTED: it does not measure that. RP_ECANCELLED:
 * on_row had enough. */
rp_status rp__device_limits(rp_device *dev, size_t read_bytes, rp_device_limit_fn on_row,
                            void *user, rp_error *err);

/* ---- memory ---- */

/* `name` is copied. Pinned buffers may be used by captured ops. Refused while capturing:
 * RP_ECAPTURE_ALLOC. On a device that hides_temporaries, refused beside live graphs (RP_EBUSY,
 * naming one) unless a buffer destroyed meanwhile was large enough: its memory stays with the layer
 * and is taken over. */
rp_status rp__buffer_create(rp_device *dev, const char *name, size_t bytes, bool is_pinned,
                            rp_buffer **out, rp_error *err);
/* RP_EBUSY, naming the graph, when a live graph uses it (the buffer stays); RP_ECAPTURE_ALLOC while
 * capturing. */
rp_status rp__buffer_destroy(rp_buffer *buf, rp_error *err);

/* Host access. Refused while that queue captures: RP_ECAPTURE_HOST. Ranges are checked. */
rp_status rp__buffer_write(rp_buffer *buf, size_t offset, const void *src, size_t n, rp_error *err);
rp_status rp__buffer_read(rp_buffer *buf, size_t offset, void *dst, size_t n, rp_error *err);
rp_status rp__buffer_copy(rp_buffer *dst, size_t dst_offset, rp_buffer *src, size_t src_offset,
                          size_t n, rp_error *err);

/* Where a range is, on a device whose memory is the host's (RP_EINVAL on others): as after a read,
 * until something writes there. */
rp_status rp__buffer_view(rp_buffer *buf, size_t offset, size_t n, const void **at, rp_error *err);

/* From a buffer of one device to one of another, in queue 0's order of both: straight from or to the
 * memory of the one of them that has is_host_memory; RP_EINVAL when neither has. */
rp_status rp__buffer_transfer(rp_buffer *dst, size_t dst_offset, rp_buffer *src, size_t src_offset,
                              size_t n, rp_error *err);

/* ---- queues: 0 runs ops and is captured; 1, where props.n_queues is 2, is for copying while
 * computing ---- The calls above are queue 0's. Work on one queue is in order; events order the
 * two: `wait` holds back what is issued on its queue afterwards until everything issued before
 * `record` on the other one has run. RP_EINVAL for a queue that is not there. Inside a capture,
 * queue 0 refuses events (RP_ECAPTURE_HOST); queue 1 works on. */
rp_status rp__queue_write(rp_buffer *buf, uint32_t queue, size_t offset, const void *src, size_t n,
                          rp_error *err);
rp_status rp__queue_read(rp_buffer *buf, uint32_t queue, size_t offset, void *dst, size_t n,
                         rp_error *err);
rp_status rp__queue_copy(rp_buffer *dst, uint32_t queue, size_t dst_offset, rp_buffer *src,
                         size_t src_offset, size_t n, rp_error *err);
rp_status rp__queue_sync(rp_device *dev, uint32_t queue, rp_error *err);
rp_status rp__event_record(rp_device *dev, uint32_t queue, uint64_t *event, rp_error *err);
rp_status rp__event_wait(rp_device *dev, uint32_t queue, uint64_t event, rp_error *err);

/* A host copy of a range of a buffer, read again only when the buffer changed: by host, op or
 * replay. `data` from rp__mirror_get is valid until the next get or clear. A zeroed mirror may be
 * cleared; init allocates `bytes`. */
typedef struct rp__mirror {
    rp_buffer *buf;
    size_t offset, bytes;
    uint64_t generation; /* of the buffer when it was read; 0: never read */
    void *data;
} rp__mirror;
rp_status rp__mirror_init(rp__mirror *m, rp_buffer *buf, size_t offset, size_t bytes,
                          rp_error *err);
rp_status rp__mirror_get(rp__mirror *m, const void **data, rp_error *err);
void rp__mirror_clear(rp__mirror *m);

/* Weights: device bytes that a weight of this dtype and shape takes (desc->buffer NULL), and
 * writing its rows. */
size_t rp__weight_bytes(rp_device *dev, const rp_tensor *desc);
rp_status rp__weight_write(const rp_tensor *w, int64_t row, int64_t n_rows, const void *src,
                           rp_error *err);

/* ---- ops ---- */

bool rp__device_supports(rp_device *dev, const rp_op *op);
rp_status rp__device_prepare(rp_device *dev, const rp_op *op,
                             rp_error *err); /* buffers may be NULL */
/* On queue 0. Eager, an op that is not prepared is prepared first: running a step once warms it for
 * capture. */
rp_status rp__device_run(rp_device *dev, const rp_op *op, rp_error *err);
rp_status rp__device_sync(rp_device *dev, rp_error *err);

/* ---- capture: the contract of docs/capture.md, enforced here for every device ----
 * Any call that fails between begin and end poisons the capture: later ops answer with that first
 * failure, and so does the end, which gives no graph. What the ops of a poisoned capture wrote is
 * undefined: write the inputs again and run the step eagerly. */

bool rp__device_has_capture(const rp_device *dev);
rp_status rp__capture_begin(rp_device *dev, rp_error *err);
/* Ends and gives a graph. After a refusal in between: that refusal again, no graph. On a device
 * that records without running, the graph is replayed once, so that the captured step has its
 * result too. `name` is copied. */
rp_status rp__capture_end_graph(rp_device *dev, const char *name, rp_graph **out, rp_error *err);
void rp__capture_abort(rp_device *dev); /* no-op when not capturing */
rp_status rp__graph_replay(rp_graph *graph, rp_error *err);
void rp__graph_destroy(rp_graph *graph); /* syncs first; NULL is fine */
size_t rp__graph_bytes(const rp_graph *graph);
/* At most this much for a graph of n ops, known before it is captured; 0 when the device cannot
 * tell. */
size_t rp__graph_bytes_bound(const rp_device *dev, size_t n_ops);

/* The single slot: one graph kept by the device layer, replaced by the next capture_end. */
rp_status rp__capture_end(rp_device *dev, rp_error *err);
rp_status rp__replay(rp_device *dev, rp_error *err); /* RP_ESTATE when nothing was captured */
void rp__capture_drop(rp_device *dev);

/* Whether this device keeps the promises that everything rests on, here and now: captures a copy of
 * integers, and for each round writes an input, replays and reads the result, for 1 and for 513
 * integers. RP_OK also on a device without capture, where the op is run eagerly. RP_EDEVICE with
 * the round, what was written and what was read. */
rp_status rp__device_selftest(rp_device *dev, uint32_t n_rounds, rp_error *err);

typedef struct rp__device_stats { /* since open */
    uint64_t n_allocs, n_frees, n_writes, n_reads, n_ops, n_syncs, n_captures, n_replays,
        n_refusals;
    uint64_t bytes_written, bytes_read, live_bytes, live_buffers, live_graphs, graph_bytes;
} rp__device_stats;
rp__device_stats rp__device_get_stats(const rp_device *dev);

#endif
