/* The device layer's own state, for device.c, capture.c, registry.c and plugin.c.
 * Everybody else sees device.h. */
#ifndef RP_DEVICE_DEVICE_IMPL_H
#define RP_DEVICE_DEVICE_IMPL_H

#include "device/device.h"
#include "device/keys.h"

/* A buffer with what only the layer knows of it. The rp_buffer comes first: a pointer to it is one
 * to the box. */
typedef struct rp__buffer_box {
    rp_buffer buf;
    char *name;
    size_t handle_bytes; /* what the handle holds: more than buf.bytes when a parked handle was
                            taken over */
    struct rp__buffer_box *prev, *next;
    uint64_t use_serial; /* the capture that saw it last, and its row in that capture's list */
    size_t use_idx;
} rp__buffer_box;

/* One buffer that a graph uses. */
typedef struct rp__use {
    rp_buffer *buf;
    bool is_written;
} rp__use;

struct rp_graph {
    rp_device *dev;
    void *handle;
    char *name;
    size_t bytes;
    rp__use *uses;
    size_t n_uses;
    rp_graph *prev, *next;
};

/* A capture in progress. `refusal.code` not 0: poisoned; the device itself has left capture mode
 * already. */
typedef struct rp__capture {
    bool is_on;
    rp_error refusal;
    uint64_t serial; /* grows with every begin */
    uint64_t n_ops;
    char last_op[200]; /* text of the op issued last, for messages */
    rp__use *uses;     /* kept between captures */
    size_t n_uses, uses_cap;
} rp__capture;

struct rp_device {
    const rp_device_api *api;
    void *self;
    rp_device_config config;
    char *options; /* config.options points here */
    rp_device_properties props;
    rp__device_stats stats;
    rp_error lost; /* code not 0: refuses everything but taking it down and reopening */
    rp__buffer_box *buffers, *parked;
    rp_graph *graphs, *slot;
    rp__keys warm;                 /* ops that are prepared: their keys */
    rp_op last_prepared[RP_N_OPS]; /* the last one of each kind, for messages; n_out 0: none */
    rp__capture capture;
    void *library;       /* the shared object the table is in, closed last; or NULL */
    bool is_unprotected; /* tests only: hides_temporaries is ignored, so that the hazard can be seen
                          */
};

/* ---- device.c ---- */

/* Fails when the device was lost, with the sentence of that loss. */
rp_status rp__device_usable(const rp_device *dev, rp_error *err);

/* Passes on what a device function returned, and remembers a loss. `err` is not NULL. */
rp_status rp__device_note(rp_device *dev, rp_status status, rp_error *err);

/* Gives parked handles back to the device, once no graph is alive. */
void rp__device_unpark(rp_device *dev);

/* ---- capture.c: each returns RP_OK, or refuses; inside a capture a refusal poisons it ---- */

/* Inside a poisoned capture: the refusal that poisoned it. Ops ask this before anything else. */
rp_status rp__capture_check_open(const rp_device *dev, rp_error *err);
rp_status rp__capture_check_host(rp_device *dev, const char *what, const rp_buffer *buf,
                                 rp_error *err);
rp_status rp__capture_check_memory(rp_device *dev, const char *what, const char *name, size_t bytes,
                                   rp_error *err);
rp_status rp__capture_check_free(rp_buffer *buf, rp_error *err);
rp_status rp__capture_check_op(rp_device *dev, const rp_op *op, bool is_warm, rp_error *err);
rp_status rp__capture_check_prepare(rp_device *dev, const rp_op *op, bool is_warm, rp_error *err);

/* Any failure of a call made while capturing ends in here: the capture can give no graph any more.
 * Returns `status`. No-op outside a capture. `err` is not NULL. */
rp_status rp__capture_poison(rp_device *dev, rp_status status, const rp_error *err);

/* Remembers which buffers a captured op reads and writes. */
rp_status rp__capture_record(rp_device *dev, const rp_op *op, rp_error *err);

/* ---- plugin.c ---- */

/* Loads a shared object and gets its table. The caller closes `*library` after the device. */
rp_status rp__plugin_load(const char *path, const rp_device_api **api, void **library,
                          rp_error *err);
void rp__plugin_unload(void *library);

#endif
