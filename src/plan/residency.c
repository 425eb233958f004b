/* The walk over a program's ops that places them and inserts transfers.
 *
 * Invariants: when an op has been walked, every slot it reads is valid on its side; a slot is valid
 * on at least one side from its first write on; the host's copy of anything the device writes is
 * invalid from that write on, so no replay can leave a stale one behind. */
#include "plan/residency.h"

#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "tensor/view.h"

enum { ON_DEVICE = 1 << RP_SIDE_DEVICE, ON_HOST = 1 << RP_SIDE_HOST };

/* ---- deciding ---- */

void rp__host_close(rp__host *host) {
    rp__device_close(host->device);
    host->device = NULL;
}

rp_status rp__host_open(rp__host *host, rp_error *err) {
    if (host->device) return RP_OK;
    return rp__device_open(rp__device_name_at(0), &host->config, &host->device, err);
}

static bool can_use_host(const rp__program *p) {
    return p->host && !rp__device_props(p->device)->is_host_memory;
}

static bool has_state(const rp__program *p, const rp_op *op, const rp__op_slots *s) {
    for (int i = 0; i < op->n_in + op->n_out; i++) {
        rp__slot slot = i < op->n_in ? s->in[i] : s->out[i - op->n_in];
        if (slot != RP_NO_SLOT && p->slots[p->slots[slot].root].kind == RP_SLOT_STATE) return true;
    }
    return false;
}

static rp_status fail_unsupported(const rp__program *p, const rp_op *op, rp_error *err) {
    char text[256];
    return rp__fail(err, RP_EUNSUPPORTED, "device %s does not run %s", rp__device_name(p->device),
                    rp__op_text(op, text, sizeof text));
}

/* Where the rules and the device's abilities put an op, the KV cache aside. */
static rp__op_place wanted_place(const rp__program *p, const rp_op *op) {
    const rp__place_rule *rule = p->placement ? rp__placement_find(p->placement, op) : NULL;
    rp__op_place place = {0};
    if (rule) place = (rp__op_place){.side = rule->side, .why = rule->why, .rule = rule};
    if (place.side == RP_SIDE_DEVICE && !rp__device_supports(p->device, op))
        place = (rp__op_place){.side = RP_SIDE_HOST, .why = RP_PLACE_UNSUPPORTED};
    return place;
}

static rp_status decide(rp__program *p, int32_t i, rp__op_place *place, rp_error *err) {
    const rp_op *op = &p->ops[i];
    *place = wanted_place(p, op);
    bool is_on_state = has_state(p, op, &p->op_slots[i]);
    if (is_on_state && p->host && p->host->has_state && place->side == RP_SIDE_DEVICE)
        *place = (rp__op_place){.side = RP_SIDE_HOST, .why = RP_PLACE_STATE};
    if (place->side == RP_SIDE_DEVICE) return RP_OK;
    if (!can_use_host(p)) return fail_unsupported(p, op, err);
    RP_TRY(rp__host_open(p->host, err)); /* by need: most programs have no op there */
    if (!rp__device_supports(p->host->device, op)) return fail_unsupported(p, op, err);
    if (!is_on_state || p->host->has_state) return RP_OK;
    p->host->has_state = true;
    return RP_AGAIN;
}

static rp_status decide_all(rp__program *p, rp_error *err) {
    p->places = rp__calloc((size_t)p->n_ops + 1, sizeof *p->places);
    if (!p->places) return rp__fail(err, RP_ENOMEM, "out of memory while placing ops");
    for (int32_t i = 0; i < p->n_ops; i++) {
        rp_status st = decide(p, i, &p->places[i], err);
        if (st != RP_OK) return st;
        p->traffic.n_host_ops += p->places[i].side == RP_SIDE_HOST;
    }
    return RP_OK;
}

/* ---- walking ---- */

/* The list that is being written, beside the program's own. */
typedef struct walk {
    rp__program *p;
    rp_op *ops;
    rp__op_slots *op_slots;
    rp__op_place *places;
    int32_t n, cap;
    uint8_t *valid;     /* per root: sides on which its bytes are; 0: nobody wrote it yet */
    int32_t *last_read; /* per root: the last op on the device that reads it; -1: none */
    rp__slot *dirty;    /* roots that this run of host ops wrote */
    int32_t n_dirty;
} walk;

static rp_status no_memory(rp_error *err) {
    return rp__fail(err, RP_ENOMEM, "out of memory while planning transfers");
}

static rp_status grow(walk *w, rp_error *err) {
    if (w->n < w->cap) return RP_OK;
    int32_t cap = w->cap ? w->cap * 2 : w->p->n_ops + 16;
    rp_op *ops = rp__realloc_array(w->ops, (size_t)cap, sizeof *ops);
    if (ops) w->ops = ops;
    rp__op_slots *slots = rp__realloc_array(w->op_slots, (size_t)cap, sizeof *slots);
    if (slots) w->op_slots = slots;
    rp__op_place *places = rp__realloc_array(w->places, (size_t)cap, sizeof *places);
    if (places) w->places = places;
    if (!ops || !slots || !places) return no_memory(err);
    w->cap = cap;
    return RP_OK;
}

static rp_status append(walk *w, const rp_op *op, const rp__op_slots *slots,
                        const rp__op_place *place, rp_error *err) {
    RP_TRY(grow(w, err));
    w->ops[w->n] = *op;
    w->op_slots[w->n] = *slots;
    w->places[w->n++] = *place;
    return RP_OK;
}

static rp_status transfer(walk *w, rp__slot root, rp__side to, rp_error *err) {
    const rp__slot_info *s = &w->p->slots[root];
    rp__traffic *t = &w->p->traffic;
    rp_op op = {.kind = RP_OP_CONVERT, .n_in = 1, .n_out = 1, .label = s->name};
    op.in[0] = op.out[0] = s->tensor;
    rp__op_slots slots = {.in = {root}, .out = {root}, .live = RP_NO_SLOT};
    size_t bytes = rp__tensor_span(&s->tensor);
    if (to == RP_SIDE_HOST) {
        t->n_downloads++;
        t->download_bytes += bytes;
    } else {
        t->n_uploads++;
        t->upload_bytes += bytes;
    }
    w->valid[root] |= (uint8_t)(1 << to);
    return append(w, &op, &slots, &(rp__op_place){.side = to, .is_transfer = true}, err);
}

/* The host's copy of a weight is made once, when weights are loaded. */
static rp_status need_copy(rp__program *p, rp__slot_info *s, rp_error *err) {
    rp__slot_home *h = &s->home[RP_SIDE_HOST];
    if (h->bind) return RP_OK;
    h->bind = p->host->copy_of
                  ? p->host->copy_of(p->host->user, s->home[RP_SIDE_DEVICE].bind, p->host->device)
                  : NULL;
    return h->bind ? RP_OK : rp__fail(err, RP_ENOMEM, "no copy of weight %s on the host", s->name);
}

static rp_status make_valid(walk *w, rp__slot slot, rp__side side, rp_error *err) {
    if (slot == RP_NO_SLOT) return RP_OK;
    rp__slot root = w->p->slots[slot].root;
    rp__slot_info *s = &w->p->slots[root];
    if (s->kind == RP_SLOT_STATE) return RP_OK;
    if (s->kind == RP_SLOT_CONST) return side == RP_SIDE_HOST ? need_copy(w->p, s, err) : RP_OK;
    uint8_t valid = w->valid[root];
    return !valid || valid >> side & 1 ? RP_OK : transfer(w, root, side, err);
}

static bool is_whole(const rp__program *p, rp__slot slot) {
    const rp__slot_info *s = &p->slots[slot];
    return rp__tensor_span(&s->tensor) == rp__tensor_span(&p->slots[s->root].tensor) &&
           rp__tensor_is_dense(&s->tensor);
}

static void note_write(walk *w, rp__slot slot, rp__side side) {
    rp__slot root = w->p->slots[slot].root;
    rp__slot_kind kind = w->p->slots[root].kind;
    if (kind == RP_SLOT_CONST || kind == RP_SLOT_STATE) return;
    bool was_dirty = w->valid[root] == ON_HOST;
    w->valid[root] = (uint8_t)(1 << side);
    if (side == RP_SIDE_HOST && !was_dirty) w->dirty[w->n_dirty++] = root;
}

/* An op that writes a part of a slot needs the rest of it to be there. */
static rp_status walk_op(walk *w, int32_t i, rp_error *err) {
    const rp__program *p = w->p;
    rp_op op = p->ops[i];
    rp__op_slots s = p->op_slots[i];
    rp__side side = p->places[i].side;
    /* A device that computes padding does so on both sides: what the host left out could be taken
     * for an index. */
    if (side == RP_SIDE_HOST && !rp__device_props(p->device)->has_live_rows) {
        op.live = (rp_tensor){0};
        s.live = RP_NO_SLOT;
    }
    for (int k = 0; k < op.n_in; k++) RP_TRY(make_valid(w, s.in[k], side, err));
    for (int k = 0; k < op.n_out; k++)
        if (s.out[k] != RP_NO_SLOT && !is_whole(p, s.out[k]))
            RP_TRY(make_valid(w, s.out[k], side, err));
    RP_TRY(make_valid(w, s.live, side, err));
    RP_TRY(append(w, &op, &s, &p->places[i], err));
    for (int k = 0; k < op.n_out; k++)
        if (s.out[k] != RP_NO_SLOT) note_write(w, s.out[k], side);
    return RP_OK;
}

/* After a run of host ops: what the device is going to read is sent there now. */
static rp_status end_run(walk *w, int32_t next, rp_error *err) {
    for (int32_t k = 0; k < w->n_dirty; k++) {
        rp__slot root = w->dirty[k];
        if (w->valid[root] == ON_HOST && w->last_read[root] >= next)
            RP_TRY(transfer(w, root, RP_SIDE_DEVICE, err));
    }
    w->n_dirty = 0;
    return RP_OK;
}

static void note_read(walk *w, rp__slot slot, int32_t op) {
    if (slot != RP_NO_SLOT) w->last_read[w->p->slots[slot].root] = op;
}

/* A partial write on the device counts as a read: it keeps the rest. */
static void note_device_reads(walk *w) {
    const rp__program *p = w->p;
    for (int32_t i = 0; i < p->n_slots; i++) {
        w->last_read[i] = -1;
        if (p->slots[i].kind == RP_SLOT_INPUT) w->valid[i] = ON_DEVICE | ON_HOST;
    }
    for (int32_t i = 0; i < p->n_ops; i++) {
        const rp__op_slots *s = &p->op_slots[i];
        if (p->places[i].side != RP_SIDE_DEVICE) continue;
        for (int k = 0; k < p->ops[i].n_in; k++) note_read(w, s->in[k], i);
        for (int k = 0; k < p->ops[i].n_out; k++)
            if (s->out[k] != RP_NO_SLOT && !is_whole(p, s->out[k])) note_read(w, s->out[k], i);
    }
}

static rp_status walk_all(walk *w, rp_error *err) {
    rp__program *p = w->p;
    note_device_reads(w);
    for (int32_t i = 0; i < p->n_ops; i++) {
        if (p->places[i].side == RP_SIDE_DEVICE) RP_TRY(end_run(w, i, err));
        RP_TRY(walk_op(w, i, err));
    }
    for (int32_t i = 0; i < p->n_slots; i++)
        p->slots[i].result = w->valid[i] == ON_HOST ? RP_SIDE_HOST : RP_SIDE_DEVICE;
    return RP_OK;
}

static rp_status begin(walk *w, rp_error *err) {
    size_t n = (size_t)w->p->n_slots + 1;
    w->valid = rp__calloc(n, sizeof *w->valid);
    w->last_read = rp__calloc(n, sizeof *w->last_read);
    w->dirty = rp__calloc(n, sizeof *w->dirty);
    return w->valid && w->last_read && w->dirty ? RP_OK : no_memory(err);
}

static void take_lists(rp__program *p, walk *w) {
    rp__free(p->ops);
    rp__free(p->op_slots);
    rp__free(p->places);
    p->ops = w->ops;
    p->op_slots = w->op_slots;
    p->places = w->places;
    p->n_ops = w->n;
    p->ops_cap = w->cap;
    w->ops = NULL;
    w->op_slots = NULL;
    w->places = NULL;
}

rp_status rp__residency_plan(rp__program *p, rp_error *err) {
    rp_status st = decide_all(p, err);
    if (st != RP_OK || !p->traffic.n_host_ops) return st;
    walk w = {.p = p};
    st = begin(&w, err);
    if (st >= 0) st = walk_all(&w, err);
    if (st >= 0) take_lists(p, &w);
    rp__free(w.ops);
    rp__free(w.op_slots);
    rp__free(w.places);
    rp__free(w.valid);
    rp__free(w.last_read);
    rp__free(w.dirty);
    return st;
}
