/* The device layer: opens devices by name and stands between the engine and the vendor tables.
 *
 * Owns: buffers and their life, every argument check, the capture contract (capture.c), the single slot.
 * Leaves to devices: memory and running ops. Leaves to plan: what runs when.
 * Threads: one thread at a time per device. */
#ifndef RP_DEVICE_DEVICE_H
#define RP_DEVICE_DEVICE_H

#include "reprise/device.h"

typedef struct rp_device rp_device;
typedef struct rp_graph rp_graph;

/* ---- registry ---- */

/* Names built in ("cpu", "emu"), and paths in REPRISE_DEVICE_PATH (shared objects). NULL past the end. */
const char *rp__device_name_at(size_t i);

/* Opens by name; RP_ENOTFOUND lists the names there are; RP_EUNSUPPORTED for a device that is known and not built.
 * `config` NULL: defaults. Also usable with a table of one's own. */
rp_status rp__device_open(const char *name, const rp_device_config *config, rp_device **out, rp_error *err);
rp_status rp__device_open_api(const rp_device_api *api, const rp_device_config *config, rp_device **out, rp_error *err);
void rp__device_close(rp_device *dev); /* buffers and graphs still alive are a bug; NULL is fine */

const char *rp__device_name(const rp_device *dev);
const rp_device_properties *rp__device_props(const rp_device *dev);

/* ---- memory ---- */

/* `name` is copied. Pinned buffers may be used by captured ops. Refused while capturing: RP_ECAPTURE_ALLOC. */
rp_status rp__buffer_create(rp_device *dev, const char *name, size_t bytes, bool is_pinned, rp_buffer **out, rp_error *err);
/* RP_EBUSY, naming the graph, when a live graph uses it (the buffer stays); RP_ECAPTURE_ALLOC while capturing. */
rp_status rp__buffer_destroy(rp_buffer *buf, rp_error *err);

/* Host access. Refused while that queue captures: RP_ECAPTURE_HOST. Ranges are checked. */
rp_status rp__buffer_write(rp_buffer *buf, size_t offset, const void *src, size_t n, rp_error *err);
rp_status rp__buffer_read(rp_buffer *buf, size_t offset, void *dst, size_t n, rp_error *err);
rp_status rp__buffer_copy(rp_buffer *dst, size_t dst_offset, rp_buffer *src, size_t src_offset, size_t n, rp_error *err);

/* Weights: device bytes that a weight of this dtype and shape takes (desc->buffer NULL), and writing its rows. */
size_t rp__weight_bytes(rp_device *dev, const rp_tensor *desc);
rp_status rp__weight_write(const rp_tensor *w, int64_t row, int64_t n_rows, const void *src, rp_error *err);

/* ---- ops ---- */

bool rp__device_supports(rp_device *dev, const rp_op *op);
rp_status rp__device_prepare(rp_device *dev, const rp_op *op, rp_error *err);
rp_status rp__device_run(rp_device *dev, const rp_op *op, rp_error *err); /* queue 0 */
rp_status rp__device_sync(rp_device *dev, rp_error *err);

/* ---- capture: the contract of docs/capture.md, enforced here for every device ---- */

bool rp__device_has_capture(const rp_device *dev);
rp_status rp__capture_begin(rp_device *dev, rp_error *err);
/* Ends and gives a graph. After a refusal in between: that refusal again, no graph. On a device that records without
 * running, the graph is replayed once, so that the captured step has its result too. `name` is copied. */
rp_status rp__capture_end_graph(rp_device *dev, const char *name, rp_graph **out, rp_error *err);
void rp__capture_abort(rp_device *dev); /* no-op when not capturing */
rp_status rp__graph_replay(rp_graph *graph, rp_error *err);
void rp__graph_destroy(rp_graph *graph); /* syncs first; NULL is fine */
size_t rp__graph_bytes(const rp_graph *graph);

/* The single slot: one graph kept by the device layer, replaced by the next capture_end. */
rp_status rp__capture_end(rp_device *dev, rp_error *err);
rp_status rp__replay(rp_device *dev, rp_error *err); /* RP_ESTATE when nothing was captured */
void rp__capture_drop(rp_device *dev);

typedef struct rp__device_stats { /* since open */
    uint64_t n_allocs, n_frees, n_writes, n_reads, n_ops, n_syncs, n_captures, n_replays, n_refusals;
    uint64_t bytes_written, bytes_read, live_bytes, live_buffers, live_graphs, graph_bytes;
} rp__device_stats;
rp__device_stats rp__device_get_stats(const rp_device *dev);

#endif
