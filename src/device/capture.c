/* The capture contract, in full and only here (docs/capture.md says it in prose).
 *
 * Owns: what may happen between capture_begin and capture_end, which buffers a graph uses, the life
 * of graphs, and the single slot. Devices record and replay; they never have to refuse.
 *
 * Rule of poison: the first failure of any call made inside a capture ends the device's own
 * recording at once, so that its queue is usable, and is kept; ops that follow answer with it, and
 * so does capture_end, which gives no graph.
 *
 * Invariants: a buffer's n_graphs is the number of live graphs in whose `uses` it stands; no graph
 * outlives its device; while `is_on` and no refusal is set, the device itself is recording. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "device/device_impl.h"
#include "device/op.h"

enum { OP_TEXT = 320 };

static rp__buffer_box *box_of(rp_buffer *buf) {
    return (rp__buffer_box *)(void *)buf;
}

/* ---- refusing ---- */

rp_status rp__capture_poison(rp_device *dev, rp_status status, const rp_error *err) {
    rp__capture *c = &dev->capture;
    if (status >= 0 || !c->is_on || c->refusal.code) return status;
    c->refusal = *err;
    c->refusal.code = status;
    dev->stats.n_refusals++;
    dev->api->capture_abort(dev->self, 0);
    return status;
}

rp_status rp__capture_check_open(const rp_device *dev, rp_error *err) {
    const rp__capture *c = &dev->capture;
    if (!c->is_on || !c->refusal.code) return RP_OK;
    *err = c->refusal;
    return c->refusal.code;
}

/* Where in the capture a call came: "after op 3 (matmul blk.0.attn_q ...)". */
static const char *position(const rp__capture *c, char *out, size_t cap) {
    if (c->n_ops)
        snprintf(out, cap, "after op %llu (%s)", (unsigned long long)c->n_ops, c->last_op);
    else
        snprintf(out, cap, "before its first op");
    return out;
}

rp_status rp__capture_check_host(rp_device *dev, const char *what, const rp_buffer *buf,
                                 rp_error *err) {
    rp__capture *c = &dev->capture;
    if (!c->is_on) return RP_OK;
    char at[sizeof c->last_op + 40];
    rp__fail(err, RP_ECAPTURE_HOST,
             "%s %s%s%s on %s during capture, %s: a captured step cannot touch the host", what,
             buf ? "buffer \"" : "the queue", buf ? buf->name : "", buf ? "\"" : "", dev->api->name,
             position(c, at, sizeof at));
    return rp__capture_poison(dev, RP_ECAPTURE_HOST, err);
}

rp_status rp__capture_check_memory(rp_device *dev, const char *what, const char *name, size_t bytes,
                                   rp_error *err) {
    rp__capture *c = &dev->capture;
    if (!c->is_on) return RP_OK;
    char at[sizeof c->last_op + 40];
    rp__fail(err, RP_ECAPTURE_ALLOC,
             "%s buffer \"%s\" of %zu bytes on %s during capture, %s: memory is planned before a "
             "step is captured",
             what, name, bytes, dev->api->name, position(c, at, sizeof at));
    return rp__capture_poison(dev, RP_ECAPTURE_ALLOC, err);
}

static bool graph_uses(const rp_graph *graph, const rp_buffer *buf) {
    for (size_t i = 0; i < graph->n_uses; i++)
        if (graph->uses[i].buf == buf) return true;
    return false;
}

rp_status rp__capture_check_free(rp_buffer *buf, rp_error *err) {
    if (!buf->n_graphs) return RP_OK;
    const rp_graph *graph = buf->owner->graphs;
    while (graph && !graph_uses(graph, buf)) graph = graph->next;
    rp__assert(graph, "buffer \"%s\" is used by %u graphs and no graph knows it", buf->name,
               buf->n_graphs);
    return rp__fail(err, RP_EBUSY, "buffer \"%s\" of %zu bytes is used by graph \"%s\"%s",
                    buf->name, buf->bytes, graph->name, buf->n_graphs > 1 ? " and others" : "");
}

static rp_status refuse_cold(rp_device *dev, const rp_op *op, rp_error *err) {
    char text[OP_TEXT], difference[OP_TEXT / 2] = "none of its kind is";
    const rp_op *last = &dev->last_prepared[op->kind];
    if (last->n_out) rp__op_difference(op, last, difference, sizeof difference);
    rp__fail(err, RP_ECAPTURE_COLD,
             "%s is not prepared on %s (%s%s): run or prepare it once before capturing",
             rp__op_text(op, text, sizeof text), dev->api->name, difference,
             last->n_out ? " as in the last one that is" : "");
    return rp__capture_poison(dev, RP_ECAPTURE_COLD, err);
}

static rp_status check_pinned(rp_device *dev, const rp_op *op, const char *name, int i,
                              const rp_tensor *t, rp_error *err) {
    if (!t->n_dims || t->buffer->is_pinned) return RP_OK;
    char text[OP_TEXT];
    return rp__fail(err, RP_ECAPTURE_TRANSIENT,
                    "%s: %s %d is in buffer \"%s\" on %s, which is not pinned for graphs",
                    rp__op_text(op, text, sizeof text), name, i, t->buffer->name, dev->api->name);
}

rp_status rp__capture_check_op(rp_device *dev, const rp_op *op, bool is_warm, rp_error *err) {
    if (!dev->capture.is_on) return RP_OK;
    if (!is_warm) return refuse_cold(dev, op, err);
    for (int i = 0; i < op->n_in; i++) RP_TRY(check_pinned(dev, op, "input", i, &op->in[i], err));
    for (int i = 0; i < op->n_out; i++)
        RP_TRY(check_pinned(dev, op, "output", i, &op->out[i], err));
    return check_pinned(dev, op, "live count", 0, &op->live, err);
}

rp_status rp__capture_check_prepare(rp_device *dev, const rp_op *op, bool is_warm, rp_error *err) {
    return !dev->capture.is_on || is_warm ? RP_OK : refuse_cold(dev, op, err);
}

/* ---- recording ---- */

static rp_status record_use(rp__capture *c, const rp_tensor *t, bool is_written, rp_error *err) {
    if (!t->n_dims) return RP_OK;
    rp__buffer_box *box = box_of(t->buffer);
    if (box->use_serial == c->serial) {
        c->uses[box->use_idx].is_written |= is_written;
        return RP_OK;
    }
    if (c->n_uses == c->uses_cap) {
        size_t cap = c->uses_cap ? c->uses_cap * 2 : 32;
        rp__use *uses = rp__realloc_array(c->uses, cap, sizeof *uses);
        if (!uses) return rp__fail(err, RP_ENOMEM, "no memory to note what a captured op uses");
        c->uses = uses;
        c->uses_cap = cap;
    }
    box->use_serial = c->serial;
    box->use_idx = c->n_uses;
    c->uses[c->n_uses++] = (rp__use){t->buffer, is_written};
    return RP_OK;
}

rp_status rp__capture_record(rp_device *dev, const rp_op *op, rp_error *err) {
    rp__capture *c = &dev->capture;
    if (!c->is_on) return RP_OK;
    for (int i = 0; i < op->n_in; i++) RP_TRY(record_use(c, &op->in[i], false, err));
    for (int i = 0; i < op->n_out; i++) RP_TRY(record_use(c, &op->out[i], true, err));
    RP_TRY(record_use(c, &op->live, false, err));
    c->n_ops++;
    rp__op_text(op, c->last_op, sizeof c->last_op);
    return RP_OK;
}

/* ---- begin and end ---- */

rp_status rp__capture_begin(rp_device *dev, rp_error *err) {
    rp_error local;
    if (!err) err = &local;
    rp__capture *c = &dev->capture;
    RP_TRY(rp__device_usable(dev, err));
    if (c->is_on) {
        char at[sizeof c->last_op + 40];
        rp__fail(err, RP_ESTATE, "capture begins on %s inside a capture, %s", dev->api->name,
                 position(c, at, sizeof at));
        return rp__capture_poison(dev, RP_ESTATE, err);
    }
    if (!dev->props.has_capture)
        return rp__fail(err, RP_EUNSUPPORTED, "device %s cannot capture", dev->api->name);
    RP_TRY(rp__device_note(dev, dev->api->capture_begin(dev->self, 0, err), err));
    c->is_on = true;
    c->refusal = (rp_error){0};
    c->serial++;
    c->n_ops = 0;
    c->n_uses = 0;
    return RP_OK;
}

void rp__capture_abort(rp_device *dev) {
    rp__capture *c = &dev->capture;
    if (c->is_on && !c->refusal.code) dev->api->capture_abort(dev->self, 0);
    c->is_on = false;
}

/* The graph's host side, with its own copy of the list of uses; no device graph in it yet. */
static rp_graph *graph_create(rp_device *dev, const char *name) {
    const rp__capture *c = &dev->capture;
    rp_graph *graph = rp__calloc(1, sizeof *graph);
    if (!graph) return NULL;
    graph->dev = dev;
    graph->name = rp__strdup(name);
    graph->uses = rp__calloc(c->n_uses, sizeof *graph->uses);
    if (!graph->name || !graph->uses) {
        rp__free(graph->uses);
        rp__free(graph->name);
        rp__free(graph);
        return NULL;
    }
    graph->n_uses = c->n_uses;
    if (c->n_uses) memcpy(graph->uses, c->uses, c->n_uses * sizeof *c->uses);
    return graph;
}

/* From here on the graph is alive: its buffers cannot be freed. */
static void graph_link(rp_graph *graph) {
    rp_device *dev = graph->dev;
    for (size_t i = 0; i < graph->n_uses; i++) graph->uses[i].buf->n_graphs++;
    graph->next = dev->graphs;
    if (graph->next) graph->next->prev = graph;
    dev->graphs = graph;
    graph->bytes = dev->api->graph_bytes(dev->self, graph->handle);
    dev->stats.n_captures++;
    dev->stats.live_graphs++;
    dev->stats.graph_bytes += graph->bytes;
}

static rp_status end_recording(rp_device *dev, rp_graph *graph, rp_error *err) {
    rp__capture *c = &dev->capture;
    if (!graph) {
        rp__fail(err, RP_ENOMEM, "no memory for a graph of %llu ops", (unsigned long long)c->n_ops);
        return rp__capture_poison(dev, RP_ENOMEM, err);
    }
    return rp__device_note(dev, dev->api->capture_end(dev->self, 0, &graph->handle, err), err);
}

static void graph_free(rp_graph *graph) {
    if (!graph) return;
    rp__free(graph->uses);
    rp__free(graph->name);
    rp__free(graph);
}

rp_status rp__capture_end_graph(rp_device *dev, const char *name, rp_graph **out, rp_error *err) {
    rp_error local;
    if (!err) err = &local;
    rp__capture *c = &dev->capture;
    *out = NULL;
    if (!c->is_on) {
        RP_TRY(rp__device_usable(dev, err));
        return rp__fail(err, RP_ESTATE, "capture of graph \"%s\" ends on %s without a begin", name,
                        dev->api->name);
    }
    rp_status refused = rp__capture_check_open(dev, err);
    if (refused < 0) {
        c->is_on = false;
        return refused;
    }
    rp_graph *graph = graph_create(dev, name);
    rp_status status = end_recording(dev, graph, err);
    c->is_on = false;
    if (status < 0) {
        graph_free(graph);
        return status;
    }
    graph_link(graph);
    if (dev->props.records_only) status = rp__graph_replay(graph, err);
    if (status < 0) {
        rp__graph_destroy(graph);
        return status;
    }
    *out = graph;
    return RP_OK;
}

/* ---- replay ---- */

rp_status rp__graph_replay(rp_graph *graph, rp_error *err) {
    rp_error local;
    if (!err) err = &local;
    rp_device *dev = graph->dev;
    RP_TRY(rp__device_usable(dev, err));
    if (dev->capture.is_on) {
        rp__fail(err, RP_ESTATE, "graph \"%s\" replayed on %s during capture", graph->name,
                 dev->api->name);
        return rp__capture_poison(dev, RP_ESTATE, err);
    }
    for (size_t i = 0; i < graph->n_uses; i++)
        if (graph->uses[i].is_written) graph->uses[i].buf->generation++;
    dev->stats.n_replays++;
    rp_status status =
        rp__device_note(dev, dev->api->replay(dev->self, 0, graph->handle, err), err);
    return status < 0 ? rp__fail_context(err, status, "replay of graph \"%s\"", graph->name)
                      : RP_OK;
}

void rp__graph_destroy(rp_graph *graph) {
    if (!graph) return;
    rp_device *dev = graph->dev;
    rp_error err = {0};
    /* The device frees what the graph holds, which a capture forbids: the capture ends first, and
     * says why. */
    if (dev->capture.is_on)
        rp__capture_check_memory(dev, "destroying a graph and", graph->name, graph->bytes, &err);
    if (!dev->lost.code) rp__device_note(dev, dev->api->sync(dev->self, 0, &err), &err);
    dev->api->graph_destroy(dev->self, graph->handle);
    for (size_t i = 0; i < graph->n_uses; i++) graph->uses[i].buf->n_graphs--;
    if (graph->prev)
        graph->prev->next = graph->next;
    else
        dev->graphs = graph->next;
    if (graph->next) graph->next->prev = graph->prev;
    dev->stats.live_graphs--;
    dev->stats.graph_bytes -= graph->bytes;
    graph_free(graph);
    rp__device_unpark(dev);
}

size_t rp__graph_bytes(const rp_graph *graph) {
    return graph->bytes;
}

size_t rp__graph_bytes_bound(const rp_device *dev, size_t n_ops) {
    return dev->props.graph_base_bytes + n_ops * dev->props.graph_op_bytes;
}

/* ---- the single slot ---- */

rp_status rp__capture_end(rp_device *dev, rp_error *err) {
    if (!dev->capture.is_on) return rp__capture_end_graph(dev, "slot", &(rp_graph *){NULL}, err);
    rp_graph *graph;
    rp_status status = rp__capture_end_graph(dev, "slot", &graph, err);
    /* After a failure the slot is empty: replaying what was captured before would repeat another
     * step. */
    rp__capture_drop(dev);
    dev->slot = graph;
    return status;
}

rp_status rp__replay(rp_device *dev, rp_error *err) {
    RP_TRY(rp__device_usable(dev, err));
    if (dev->slot) return rp__graph_replay(dev->slot, err);
    rp_error local;
    if (!err) err = &local;
    rp__fail(err, RP_ESTATE, "replay on %s, where nothing was captured", dev->api->name);
    return rp__capture_poison(dev, RP_ESTATE, err);
}

void rp__capture_drop(rp_device *dev) {
    rp_graph *graph = dev->slot;
    dev->slot = NULL;
    rp__graph_destroy(graph);
}
