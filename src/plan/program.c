/* Building and binding programs. Invariants: slots are made before the ops that use them; a view's
 * root is never a view; after finish every temporary has, on each side where it lives, a place in
 * that side's arena that no other live temporary shares. */
#include "plan/program.h"

#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "plan/layout.h"
#include "plan/residency.h"
#include "tensor/dtype.h"
#include "tensor/view.h"

void rp__program_init(rp__program *p, rp_device *device, const rp__bucket *bucket) {
    *p = (rp__program){.bucket = *bucket,
                       .device = device,
                       .live = RP_NO_SLOT,
                       .rounded_from = RP_NO_SLOT,
                       .advance_op = -1,
                       .feed_op = -1};
}

void rp__program_clear(rp__program *p) {
    rp__free(p->ops);
    rp__free(p->op_slots);
    rp__free(p->places);
    rp__free(p->slots);
    rp__free(p->segments);
    rp__arena_clear(&p->names);
    *p = (rp__program){0};
}

void rp__program_place(rp__program *p, const rp__placement *placement, rp__host *host) {
    p->placement = placement;
    p->host = host;
}

static void out_of_memory(rp__program *p) {
    if (!p->error.code) rp__fail(&p->error, RP_ENOMEM, "out of memory while building a program");
}

static const char *keep_name(rp__program *p, const char *name) {
    if (!name) return "";
    const char *s = rp__arena_strndup(&p->names, name, strlen(name));
    if (!s) out_of_memory(p);
    return s ? s : "";
}

static rp__slot add_slot(rp__program *p, rp__slot_info info) {
    if (p->error.code) return RP_NO_SLOT;
    if (p->n_slots == p->slots_cap) {
        int32_t cap = p->slots_cap ? p->slots_cap * 2 : 128;
        rp__slot_info *slots = rp__realloc_array(p->slots, (size_t)cap, sizeof *slots);
        if (!slots) return out_of_memory(p), RP_NO_SLOT;
        p->slots = slots;
        p->slots_cap = cap;
    }
    if (info.kind != RP_SLOT_VIEW) info.root = p->n_slots;
    info.name = keep_name(p, info.name);
    for (int side = 0; side < RP_N_SIDES; side++)
        info.home[side].first_op = info.home[side].last_op = -1;
    p->slots[p->n_slots] = info;
    return p->n_slots++;
}

static rp__slot add_dense(rp__program *p, rp__slot_kind kind, const char *name, rp_dtype dtype,
                          int n_dims, const int64_t *dim) {
    return add_slot(p, (rp__slot_info){.kind = kind,
                                       .name = name,
                                       .tensor = rp__tensor_make(NULL, 0, dtype, n_dims, dim)});
}

rp__slot rp__program_input(rp__program *p, const char *name, rp_dtype dtype, int n_dims,
                           const int64_t *dim) {
    return add_dense(p, RP_SLOT_INPUT, name, dtype, n_dims, dim);
}

rp__slot rp__program_temp(rp__program *p, const char *name, rp_dtype dtype, int n_dims,
                          const int64_t *dim) {
    return add_dense(p, RP_SLOT_TEMP, name, dtype, n_dims, dim);
}

rp__slot rp__program_output(rp__program *p, const char *name, rp_dtype dtype, int n_dims,
                            const int64_t *dim) {
    return add_dense(p, RP_SLOT_OUTPUT, name, dtype, n_dims, dim);
}

static rp__slot add_bound(rp__program *p, rp__slot_kind kind, const char *name,
                          const rp_tensor *t) {
    if (!t->n_dims) return RP_NO_SLOT;
    rp__slot_info info = {.kind = kind, .name = name, .tensor = *t};
    info.tensor.buffer = NULL;
    info.tensor.offset = 0;
    info.home[RP_SIDE_DEVICE].bind = t;
    if (kind == RP_SLOT_STATE) info.home[RP_SIDE_HOST].bind = t; /* it is on one side only */
    return add_slot(p, info);
}

rp__slot rp__program_const(rp__program *p, const char *name, const rp_tensor *t) {
    return add_bound(p, RP_SLOT_CONST, name, t);
}

rp__slot rp__program_state(rp__program *p, const char *name, const rp_tensor *t) {
    return add_bound(p, RP_SLOT_STATE, name, t);
}

static rp__slot add_view(rp__program *p, rp__slot s, rp_tensor t) {
    return add_slot(p, (rp__slot_info){.kind = RP_SLOT_VIEW,
                                       .root = p->slots[s].root,
                                       .name = p->slots[s].name,
                                       .tensor = t});
}

rp__slot rp__program_reshape(rp__program *p, rp__slot s, int n_dims, const int64_t *dim) {
    if (p->error.code) return RP_NO_SLOT;
    const rp_tensor *t = &p->slots[s].tensor;
    rp_tensor v = rp__tensor_make(NULL, t->offset, t->dtype, n_dims, dim);
    rp__assert(rp__tensor_is_dense(t) && rp__tensor_elems(t) == rp__tensor_elems(&v),
               "reshape of %s", p->slots[s].name);
    return add_view(p, s, v);
}

rp__slot rp__program_columns(rp__program *p, rp__slot s, int64_t first, int64_t n,
                             int64_t n_heads) {
    if (p->error.code) return RP_NO_SLOT;
    const rp_tensor *t = &p->slots[s].tensor;
    rp__assert(t->n_dims == 2 && first + n <= t->dim[1], "columns of %s", p->slots[s].name);
    const int64_t dim[3] = {t->dim[0], n_heads > 0 ? n_heads : n, n_heads > 0 ? n / n_heads : 0};
    rp_tensor v = rp__tensor_make(NULL, t->offset, t->dtype, n_heads > 0 ? 3 : 2, dim);
    v.offset += (size_t)first * rp__dtype_block_bytes(t->dtype);
    v.stride = t->stride;
    return add_view(p, s, v);
}

void rp__program_live(rp__program *p, rp__slot live) {
    p->live = live;
}

static rp_tensor operand(const rp__program *p, rp__slot s) {
    return s == RP_NO_SLOT ? (rp_tensor){0} : p->slots[s].tensor;
}

static bool grow_ops(rp__program *p) {
    if (p->n_ops < p->ops_cap) return true;
    int32_t cap = p->ops_cap ? p->ops_cap * 2 : 64;
    rp_op *ops = rp__realloc_array(p->ops, (size_t)cap, sizeof *ops);
    if (ops) p->ops = ops;
    rp__op_slots *slots = rp__realloc_array(p->op_slots, (size_t)cap, sizeof *slots);
    if (slots) p->op_slots = slots;
    if (!ops || !slots) return out_of_memory(p), false;
    p->ops_cap = cap;
    return true;
}

void rp__program_op(rp__program *p, const rp_op *op, int n_in, const rp__slot *in, int n_out,
                    const rp__slot *out) {
    if (p->error.code || !grow_ops(p)) return;
    rp_op *o = &p->ops[p->n_ops];
    rp__op_slots *s = &p->op_slots[p->n_ops];
    *o = *op;
    o->label = keep_name(p, op->label);
    o->n_in = (uint8_t)n_in;
    o->n_out = (uint8_t)n_out;
    s->live = p->live;
    for (int i = 0; i < n_in; i++) o->in[i] = operand(p, s->in[i] = in[i]);
    for (int i = 0; i < n_out; i++) o->out[i] = operand(p, s->out[i] = out[i]);
    o->live = operand(p, p->live);
    p->n_ops++;
}

rp__slot rp__program_round(rp__program *p, rp__slot x, rp_dtype to) {
    if (p->error.code) return RP_NO_SLOT;
    if (p->rounded_from == x && p->slots[p->rounded].tensor.dtype == to) return p->rounded;
    const rp_tensor *t = &p->slots[x].tensor;
    rp__slot y = rp__program_temp(p, p->slots[x].name, to, t->n_dims, t->dim);
    rp_op op = {.kind = RP_OP_CONVERT, .label = p->slots[x].name};
    rp__program_op(p, &op, 1, &x, 1, &y);
    p->rounded_from = x;
    return p->rounded = y;
}

/* ---- finishing ---- */

/* Inputs and outputs stand one after the other in their buffers, at the same offsets on both sides:
 * one transfer moves them all. */
static size_t place_in_order(rp__program *p, rp__slot_kind kind, size_t align) {
    size_t at = 0;
    for (int32_t i = 0; i < p->n_slots; i++) {
        rp__slot_info *s = &p->slots[i];
        if (s->kind != kind) continue;
        for (int side = 0; side < RP_N_SIDES; side++) s->home[side].place = at;
        at += (rp__tensor_span(&s->tensor) + align - 1) & ~(align - 1);
    }
    return at;
}

static void note_life(rp__program *p, rp__slot slot, rp__side side, int32_t op) {
    if (slot == RP_NO_SLOT) return;
    rp__slot_home *h = &p->slots[p->slots[slot].root].home[side];
    if (h->first_op < 0) h->first_op = op;
    h->last_op = op;
}

static void note_lives(rp__program *p) {
    for (int32_t i = 0; i < p->n_ops; i++) {
        const rp__op_slots *s = &p->op_slots[i];
        rp__side side = p->places[i].side, from = rp__op_source(&p->places[i]);
        for (int k = 0; k < p->ops[i].n_in; k++) note_life(p, s->in[k], from, i);
        for (int k = 0; k < p->ops[i].n_out; k++) note_life(p, s->out[k], side, i);
        note_life(p, s->live, side, i);
    }
}

/* Small temporaries keep their bytes for some ops after their last use: else a worker or a kernel
 * waits for another only because of where things lie. */
static int32_t kept_until(const rp__slot_home *h, size_t bytes) {
    enum { SMALL = 1 << 16, OPS = 8 };
    return h->last_op + (bytes <= SMALL ? OPS : 0);
}

static rp_status place_temps(rp__program *p, rp__side side, size_t align, rp_error *err) {
    rp__layout_item *items = rp__calloc((size_t)p->n_slots + 1, sizeof *items);
    if (!items)
        return rp__fail(err, RP_ENOMEM, "out of memory while laying out %d temporaries",
                        (int)p->n_slots);
    size_t n = 0, total = 0;
    for (int32_t i = 0; i < p->n_slots; i++) {
        const rp__slot_info *s = &p->slots[i];
        const rp__slot_home *h = &s->home[side];
        if (s->kind != RP_SLOT_TEMP || h->first_op < 0) continue;
        size_t bytes = rp__tensor_span(&s->tensor);
        items[n++] = (rp__layout_item){
            .id = i, .bytes = bytes, .first = h->first_op, .last = kept_until(h, bytes)};
        total += bytes;
    }
    p->bytes[side].arena = rp__layout_place(items, n, align);
    for (size_t i = 0; i < n; i++) p->slots[items[i].id].home[side].place = items[i].place;
    if (side == RP_SIDE_DEVICE) p->temp_bytes = total;
    rp__free(items);
    return RP_OK;
}

static rp_status layout(rp__program *p, rp_error *err) {
    const rp_device *host = p->host ? p->host->device : NULL;
    size_t align = rp__device_props(p->device)->alignment,
           host_align = host ? rp__device_props(host)->alignment : 1,
           both = align > host_align ? align : host_align;
    size_t inputs = place_in_order(p, RP_SLOT_INPUT, both),
           outputs = place_in_order(p, RP_SLOT_OUTPUT, both);
    bool has_host = p->traffic.n_host_ops > 0;
    p->bytes[RP_SIDE_DEVICE] = (rp__side_bytes){.inputs = inputs, .outputs = outputs};
    if (has_host) p->bytes[RP_SIDE_HOST] = p->bytes[RP_SIDE_DEVICE];
    note_lives(p);
    RP_TRY(place_temps(p, RP_SIDE_DEVICE, align, err));
    return has_host ? place_temps(p, RP_SIDE_HOST, host_align, err) : RP_OK;
}

static rp__side segment_side(const rp__op_place *place) {
    return place->is_transfer ? RP_SIDE_HOST : place->side;
}

static bool begin_segment(rp__program *p, int32_t first) {
    size_t n = (size_t)p->n_segments;
    rp__segment *segments = rp__realloc_array(p->segments, n + 1, sizeof *segments);
    if (!segments) return false;
    p->segments = segments;
    segments[n] = (rp__segment){.side = segment_side(&p->places[first]), .first_op = first};
    p->n_segments++;
    return true;
}

/* Where the side changes; and on the device where the watchdog asks for it: no segment is estimated
 * to take longer than one submit may, unless it is a single op. */
static rp_status cut_segments(rp__program *p, rp_error *err) {
    double limit = rp__device_submit_limit_us(p->device), sum = 0;
    for (int32_t i = 0; i < p->n_ops; i++) {
        rp__side side = segment_side(&p->places[i]);
        double us = side == RP_SIDE_DEVICE ? rp__device_estimate_us(p->device, &p->ops[i]) : 0;
        if (us > p->longest_op_us) p->longest_op_us = us;
        bool is_first = i == 0 || side != p->segments[p->n_segments - 1].side ||
                        (limit > 0 && sum + us > limit);
        if (is_first && !begin_segment(p, i))
            return rp__fail(err, RP_ENOMEM, "out of memory while cutting segments");
        sum = is_first ? us : sum + us;
        p->segments[p->n_segments - 1].n_ops++;
    }
    return RP_OK;
}

rp_status rp__program_finish(rp__program *p, rp_error *err) {
    if (p->error.code) {
        if (err) *err = p->error;
        return p->error.code;
    }
    for (int32_t i = 0; i < p->n_ops; i++) RP_TRY(rp__op_check(&p->ops[i], err));
    rp_status st = rp__residency_plan(p, err);
    if (st != RP_OK) return st;
    for (int32_t i = 0; i < p->n_ops; i++) {
        if (p->slots[p->op_slots[i].out[0]].kind != RP_SLOT_INPUT) continue;
        if (p->ops[i].kind == RP_OP_ADVANCE) p->advance_op = i;
        if (p->ops[i].kind == RP_OP_FEED) p->feed_op = i;
    }
    RP_TRY(layout(p, err));
    return cut_segments(p, err);
}

/* ---- binding ---- */

static void bind_operand(const rp__program *p, rp__slot slot, rp_tensor *t, rp__side side,
                         const rp__side_memory *m) {
    if (slot == RP_NO_SLOT || !t->n_dims) return;
    const rp__slot_info *s = &p->slots[slot], *root = &p->slots[s->root];
    const rp__slot_home *h = &root->home[side];
    if (h->bind) {
        t->buffer = h->bind->buffer;
        t->offset = h->bind->offset + s->tensor.offset;
        return;
    }
    t->buffer = root->kind == RP_SLOT_INPUT    ? m[side].inputs
                : root->kind == RP_SLOT_OUTPUT ? m[side].outputs
                                               : m[side].arena;
    t->offset = h->place + s->tensor.offset;
}

static bool is_enough(const rp_buffer *b, size_t bytes) {
    return !bytes || (b && b->bytes >= bytes);
}

rp_status rp__program_bind(rp__program *p, const rp__side_memory memory[RP_N_SIDES],
                           rp_error *err) {
    rp__assert(!p->is_bound, "a program is bound once");
    for (int side = 0; side < RP_N_SIDES; side++)
        if (!is_enough(memory[side].arena, p->bytes[side].arena) ||
            !is_enough(memory[side].inputs, p->bytes[side].inputs) ||
            !is_enough(memory[side].outputs, p->bytes[side].outputs))
            return rp__fail(err, RP_EINTERNAL, "a program's buffers are smaller than planned");
    for (int32_t i = 0; i < p->n_ops; i++) {
        rp_op *o = &p->ops[i];
        const rp__op_slots *s = &p->op_slots[i];
        rp__side side = p->places[i].side, from = rp__op_source(&p->places[i]);
        for (int k = 0; k < o->n_in; k++) bind_operand(p, s->in[k], &o->in[k], from, memory);
        for (int k = 0; k < o->n_out; k++) bind_operand(p, s->out[k], &o->out[k], side, memory);
        bind_operand(p, s->live, &o->live, side, memory);
    }
    p->is_bound = true;
    return RP_OK;
}

rp_status rp__program_prepare(const rp__program *p, rp_error *err) {
    for (int32_t i = 0; i < p->n_ops; i++) {
        const rp__op_place *place = &p->places[i];
        if (place->is_transfer) continue;
        rp_device *on = place->side == RP_SIDE_HOST ? p->host->device : p->device;
        RP_TRY(rp__device_prepare(on, &p->ops[i], err));
    }
    return RP_OK;
}

rp__slot rp__program_find(const rp__program *p, const char *name) {
    for (int32_t i = 0; i < p->n_slots; i++) {
        rp__slot_kind k = p->slots[i].kind;
        if ((k == RP_SLOT_INPUT || k == RP_SLOT_OUTPUT) && !strcmp(p->slots[i].name, name))
            return i;
    }
    return RP_NO_SLOT;
}
