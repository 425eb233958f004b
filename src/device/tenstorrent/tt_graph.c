/* Capture as ttnn's mesh trace.
 *
 * A trace records and does not run. While it records, ops bind their results to views as always;
 * those tensors belong to the trace and stay until it is destroyed. At the end what is bound is
 * noted, and every replay binds it again: the views then hold what this replay makes. Before it, a
 * replay refreshes the residents that the trace reads, where the host changed them. */
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "device/tenstorrent/tt.h"
#include "tensor/view.h"

static void graph_free(rp__tt_graph *g) {
    rp__free(g->ids.items);
    rp__free(g->inputs.items);
    rp__free(g->changed.items);
    rp__free(g->bindings.items);
    rp__free(g);
}

static rp_status note(rp__tt_list *list, rp__tt_resident *r, rp_error *err) {
    rp__tt_resident **items = list->items;
    for (size_t i = 0; i < list->n; i++)
        if (items[i] == r) return RP_OK;
    return rp__tt_list_add(list, &r, sizeof r)
               ? RP_OK
               : rp__fail(err, RP_ENOMEM, "out of memory to note what a trace uses");
}

rp_status rp__tt_note_input(rp__tt *d, rp__tt_resident *r, rp_error *err) {
    return note(&d->recording->inputs, r, err);
}

rp_status rp__tt_note_changed(rp__tt *d, rp__tt_resident *r, rp_error *err) {
    return note(&d->recording->changed, r, err);
}

/* ---- recording ---- */

rp_status rp__tt_capture_begin(void *self, uint32_t queue, rp_error *err) {
    rp__tt *d = self;
    (void)queue;
    RP_TRY(rp__tt_residents_settle_shared(d, err));
    rp__tt_graph *g = rp__calloc(1, sizeof *g);
    if (!g) return rp__fail(err, RP_ENOMEM, "out of memory for a trace");
    rp_status st = rp__ttnn_ask(d->ttnn, &(rp__ttnn_call){.function = "begin"}, NULL, 0, err);
    if (st < 0) {
        rp__free(g);
        return st;
    }
    rp__tt_weights_settled(d);
    g->number = ++d->last_graph;
    d->recording = g;
    return RP_OK;
}

/* Results that the trace owns leave their views. */
static void unbind_all(rp__tt *d, const rp__tt_graph *g) {
    for (rp__tt_buffer *b = d->buffers; b; b = b->next)
        for (int i = b->n_values; i-- > 0;)
            if (b->values[i].owner == g) rp__tt_unbind(d, b, i);
}

static void drop_ids(rp__tt *d, rp__tt_graph *g) {
    rp__ttnn_id *ids = g->ids.items;
    for (size_t i = 0; i < g->ids.n; i++) rp__tt_drop(d, ids[i]);
    rp__tt_send_garbage(d);
}

static void discard(rp__tt *d) {
    rp__tt_graph *g = d->recording;
    unbind_all(d, g);
    d->recording = NULL;
    drop_ids(d, g);
    graph_free(g);
}

void rp__tt_capture_abort(void *self, uint32_t queue) {
    rp__tt *d = self;
    (void)queue;
    if (!d->recording) return;
    rp__ttnn_ask(d->ttnn, &(rp__ttnn_call){.function = "abort"}, NULL, 0, NULL);
    discard(d);
}

static rp_status note_bindings(rp__tt *d, rp__tt_graph *g, rp_error *err) {
    for (rp__tt_buffer *b = d->buffers; b; b = b->next)
        for (int i = 0; i < b->n_values; i++) {
            rp__tt_binding binding = {b, b->values[i]};
            if (b->values[i].owner != g) continue;
            if (!rp__tt_list_add(&g->bindings, &binding, sizeof binding))
                return rp__fail(err, RP_ENOMEM, "out of memory to note what a trace makes");
        }
    return RP_OK;
}

rp_status rp__tt_capture_end(void *self, uint32_t queue, void **graph, rp_error *err) {
    rp__tt *d = self;
    rp__tt_graph *g = d->recording;
    (void)queue;
    char text[32];
    rp__ttnn_call end = {.function = "end", .ints = {g->number}, .n_ints = 1};
    rp_status st = note_bindings(d, g, err);
    if (st >= 0) st = rp__ttnn_ask_text(d->ttnn, &end, text, sizeof text, err);
    if (st < 0) {
        rp__tt_capture_abort(d, 0);
        return st;
    }
    for (const char *p = text; *p >= '0' && *p <= '9'; p++)
        g->bytes = g->bytes * 10 + (size_t)(*p - '0');
    unbind_all(d, g); /* nothing has run yet: the first replay binds */
    d->recording = NULL;
    d->n_graphs++;
    *graph = g;
    return RP_OK;
}

/* ---- replaying ---- */

/* A result that was put over an input meanwhile goes into it, by way of the host: the trace reads
 * the input's own tensor. */
static rp_status take_results(rp__tt *d, rp__tt_resident *r, rp_error *err) {
    rp__tt_buffer *b = rp__tt_buffer_of(&r->view);
    rp__tt_value *v = rp__tt_find_value(&r->view);
    if (!v) return RP_OK;
    if (v->id == r->id) { /* it is the very tensor, as another trace left it */
        rp__tt_resident_set_newer(r);
        return RP_OK;
    }
    RP_TRY(rp__tt_settle(d, b, r->view.offset, rp__tensor_span(&r->view), err));
    while ((v = rp__tt_find_value(&r->view))) rp__tt_unbind(d, b, (int)(v - b->values));
    b->serial++;
    return RP_OK;
}

static rp_status refresh_inputs(rp__tt *d, const rp__tt_graph *g, rp_error *err) {
    rp__tt_resident *const *inputs = g->inputs.items;
    for (size_t i = 0; i < g->inputs.n; i++) {
        RP_TRY(take_results(d, inputs[i], err));
        RP_TRY(rp__tt_resident_refresh(d, inputs[i], err));
    }
    return RP_OK;
}

/* In the order in which the trace made them: columns that were written in place lie over the result
 * that they are part of. After the first of several replays in a row they are bound still. */
static rp_status bind_results(rp__tt *d, rp__tt_graph *g, rp_error *err) {
    const rp__tt_binding *bindings = g->bindings.items;
    bool is_bound = d->bound == g;
    if (!is_bound) unbind_all(d, g);
    for (size_t i = 0; i < g->bindings.n && !is_bound; i++) {
        const rp__tt_value *v = &bindings[i].value;
        rp__tt_buffer *b = bindings[i].buffer;
        RP_TRY(rp__tt_bind(d, &v->view, v->form, v->id, err));
        b->values[b->n_values - 1] = *v;
    }
    for (rp__tt_buffer *b = d->buffers; b; b = b->next)
        for (int i = 0; i < b->n_values; i++)
            if (b->values[i].owner == g) b->values[i].is_on_host = false;
    d->bound = g;
    rp__tt_send_garbage(d);
    return RP_OK;
}

rp_status rp__tt_replay(void *self, uint32_t queue, void *graph, rp_error *err) {
    rp__tt *d = self;
    rp__tt_graph *g = graph;
    rp__tt_resident *const *changed = g->changed.items;
    (void)queue;
    RP_TRY(rp__tt_settle_late(d, err));
    RP_TRY(refresh_inputs(d, g, err));
    d->n_replays++;
    rp__ttnn_call c = {.function = "replay", .ints = {g->number}, .n_ints = 1};
    RP_TRY(rp__ttnn_send(d->ttnn, &c, err));
    RP_TRY(rp__ttnn_flush(d->ttnn, err));
    for (size_t i = 0; i < g->changed.n; i++) rp__tt_resident_set_newer(changed[i]);
    return bind_results(d, g, err);
}

/* ---- the end ---- */

static bool take_id(rp__tt_graph *g, rp__ttnn_id id) {
    rp__ttnn_id *ids = g->ids.items;
    for (size_t k = 0; k < g->ids.n; k++)
        if (ids[k] == id) {
            ids[k] = 0;
            return true;
        }
    return false;
}

/* What is bound still stays readable: it becomes the values' own, unless it is a resident's. */
static void hand_over(rp__tt *d, rp__tt_graph *g) {
    for (rp__tt_buffer *b = d->buffers; b; b = b->next)
        for (int i = b->n_values; i-- > 0;) {
            rp__tt_value *v = &b->values[i];
            if (v->owner != g) continue;
            if (!take_id(g, v->id)) {
                rp__tt_unbind(d, b, i);
                continue;
            }
            v->owner = NULL;
            v->cos = v->sin = 0; /* dropped with the rest of the trace's */
            v->rope_dim = 0;
        }
}

void rp__tt_graph_destroy(void *self, void *graph) {
    rp__tt *d = self;
    rp__tt_graph *g = graph;
    rp__ttnn_call c = {.function = "release", .ints = {g->number}, .n_ints = 1};
    rp__ttnn_send(d->ttnn, &c, NULL);
    if (d->bound == g) d->bound = NULL;
    rp__tt_residents_keep(d, g, g->ids.items, g->ids.n);
    hand_over(d, g);
    drop_ids(d, g);
    d->n_graphs--;
    graph_free(g);
}

size_t rp__tt_graph_bytes(void *self, void *graph) {
    const rp__tt_graph *g = graph;
    (void)self;
    return g->bytes;
}
