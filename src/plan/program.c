/* Building and binding programs. Invariants: slots are made before the ops that use them; a view's
 * root is never a view; after finish every temporary has a place in the arena that no other live
 * temporary shares. */
#include "plan/program.h"

#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "plan/layout.h"
#include "tensor/dtype.h"
#include "tensor/view.h"

void rp__program_init(rp__program *p, rp_device *device, const rp__bucket *bucket) {
    *p = (rp__program){
        .bucket = *bucket, .device = device, .live = RP_NO_SLOT, .rounded_from = RP_NO_SLOT};
}

void rp__program_clear(rp__program *p) {
    rp__free(p->ops);
    rp__free(p->op_slots);
    rp__free(p->slots);
    rp__free(p->segments);
    rp__arena_clear(&p->names);
    *p = (rp__program){0};
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
    info.first_op = info.last_op = -1;
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

rp__slot rp__program_const(rp__program *p, const char *name, const rp_tensor *t) {
    if (!t->n_dims) return RP_NO_SLOT;
    rp_tensor shape = *t;
    shape.buffer = NULL;
    shape.offset = 0;
    return add_slot(
        p, (rp__slot_info){.kind = RP_SLOT_CONST, .name = name, .tensor = shape, .bind = t});
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

static rp_tensor operand(rp__program *p, rp__slot s, int32_t op) {
    if (s == RP_NO_SLOT) return (rp_tensor){0};
    rp__slot_info *root = &p->slots[p->slots[s].root];
    if (root->first_op < 0) root->first_op = op;
    root->last_op = op;
    return p->slots[s].tensor;
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
    for (int i = 0; i < n_in; i++) o->in[i] = operand(p, s->in[i] = in[i], p->n_ops);
    for (int i = 0; i < n_out; i++) o->out[i] = operand(p, s->out[i] = out[i], p->n_ops);
    o->live = operand(p, p->live, p->n_ops);
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

/* Inputs and outputs stand one after the other in their buffers: one transfer moves them all. */
static size_t place_in_order(rp__program *p, rp__slot_kind kind, size_t align) {
    size_t at = 0;
    for (int32_t i = 0; i < p->n_slots; i++) {
        if (p->slots[i].kind != kind) continue;
        p->slots[i].place = at;
        at += (rp__tensor_span(&p->slots[i].tensor) + align - 1) & ~(align - 1);
    }
    return at;
}

static rp_status place_temps(rp__program *p, size_t align, rp_error *err) {
    rp__layout_item *items = rp__calloc((size_t)p->n_slots + 1, sizeof *items);
    if (!items)
        return rp__fail(err, RP_ENOMEM, "out of memory while laying out %d temporaries",
                        (int)p->n_slots);
    size_t n = 0;
    for (int32_t i = 0; i < p->n_slots; i++) {
        const rp__slot_info *s = &p->slots[i];
        if (s->kind != RP_SLOT_TEMP || s->first_op < 0) continue;
        items[n++] = (rp__layout_item){.id = i,
                                       .bytes = rp__tensor_span(&s->tensor),
                                       .first = s->first_op,
                                       .last = s->last_op};
        p->temp_bytes += items[n - 1].bytes;
    }
    p->arena_bytes = rp__layout_place(items, n, align);
    for (size_t i = 0; i < n; i++) p->slots[items[i].id].place = items[i].place;
    rp__free(items);
    return RP_OK;
}

static rp_status check_ops(const rp__program *p, rp_error *err) {
    for (int32_t i = 0; i < p->n_ops; i++) {
        RP_TRY(rp__op_check(&p->ops[i], err));
        if (rp__device_supports(p->device, &p->ops[i])) continue;
        char text[256];
        return rp__fail(err, RP_EUNSUPPORTED, "device %s does not run %s",
                        rp__device_name(p->device), rp__op_text(&p->ops[i], text, sizeof text));
    }
    return RP_OK;
}

static bool begin_segment(rp__program *p, int32_t first) {
    size_t n = (size_t)p->n_segments;
    rp__segment *segments = rp__realloc_array(p->segments, n + 1, sizeof *segments);
    if (!segments) return false;
    p->segments = segments;
    segments[n] = (rp__segment){.first_op = first};
    p->n_segments++;
    return true;
}

/* Every op is on the one device, so only the watchdog cuts: no segment is estimated to take longer
 * than one submit may, unless it is a single op. */
static rp_status cut_segments(rp__program *p, rp_error *err) {
    double limit = rp__device_submit_limit_us(p->device), sum = 0;
    for (int32_t i = 0; i < p->n_ops; i++) {
        double us = rp__device_estimate_us(p->device, &p->ops[i]);
        if (us > p->longest_op_us) p->longest_op_us = us;
        bool is_first = i == 0 || (limit > 0 && sum + us > limit);
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
    RP_TRY(check_ops(p, err));
    size_t align = rp__device_props(p->device)->alignment;
    p->input_bytes = place_in_order(p, RP_SLOT_INPUT, align);
    p->output_bytes = place_in_order(p, RP_SLOT_OUTPUT, align);
    RP_TRY(place_temps(p, align, err));
    return cut_segments(p, err);
}

static void bind_operand(const rp__program *p, rp__slot slot, rp_tensor *t,
                         rp_buffer *const *buffers) {
    if (slot == RP_NO_SLOT) return;
    const rp__slot_info *s = &p->slots[slot], *root = &p->slots[s->root];
    bool is_const = root->kind == RP_SLOT_CONST;
    t->buffer = is_const ? root->bind->buffer : buffers[root->kind];
    t->offset = (is_const ? root->bind->offset : root->place) + s->tensor.offset;
}

rp_status rp__program_bind(rp__program *p, rp_buffer *arena, rp_buffer *inputs, rp_buffer *outputs,
                           rp_error *err) {
    rp__assert(!p->is_bound, "a program is bound once");
    if (arena->bytes < p->arena_bytes || inputs->bytes < p->input_bytes ||
        outputs->bytes < p->output_bytes)
        return rp__fail(err, RP_EINTERNAL, "a program's buffers are smaller than planned");
    rp_buffer *buffers[] = {
        [RP_SLOT_INPUT] = inputs, [RP_SLOT_TEMP] = arena, [RP_SLOT_OUTPUT] = outputs};
    for (int32_t i = 0; i < p->n_ops; i++) {
        rp_op *o = &p->ops[i];
        const rp__op_slots *s = &p->op_slots[i];
        for (int k = 0; k < o->n_in; k++) bind_operand(p, s->in[k], &o->in[k], buffers);
        for (int k = 0; k < o->n_out; k++) bind_operand(p, s->out[k], &o->out[k], buffers);
        bind_operand(p, s->live, &o->live, buffers);
    }
    p->is_bound = true;
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
