/* Buffers as names for tensors: what ops made (values), and the copy on the host. tt.h says how.
 *
 * Invariants: a value's view lies inside its buffer; of two values that share bytes the later one
 * in the list is the newer; the host's copy of a byte is the truth unless a value, or a resident
 * that the device wrote in place, lies over it. */
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "device/tenstorrent/tt.h"
#include "tensor/dtype.h"
#include "tensor/view.h"

/* ---- views ---- */

/* Where row 0 of `b` begins in the columns of `a`, both cut into rows of one stride. */
static size_t column_of(const rp_tensor *a, const rp_tensor *b) {
    size_t s = a->stride;
    return (b->offset % s + s - a->offset % s) % s;
}

static bool ranges_meet(size_t a, size_t n_a, size_t b, size_t n_b) {
    return a < b + n_b && b < a + n_a;
}

static bool share_bytes(const rp_tensor *a, const rp_tensor *b) {
    if (!ranges_meet(a->offset, rp__tensor_span(a), b->offset, rp__tensor_span(b))) return false;
    if (a->stride != b->stride || a->dim[0] < 2 || b->dim[0] < 2) return true;
    size_t at = column_of(a, b);
    return at < rp__tensor_item_bytes(a) || at + rp__tensor_item_bytes(b) > a->stride;
}

bool rp__tt_same_bytes(const rp_tensor *a, const rp_tensor *b) {
    if (a->offset != b->offset || rp__tensor_elems(a) != rp__tensor_elems(b) ||
        a->dtype != b->dtype)
        return false;
    if (rp__tensor_is_dense(a) && rp__tensor_is_dense(b)) return true;
    return a->dim[0] == b->dim[0] && (a->dim[0] == 1 || a->stride == b->stride);
}

/* True when every byte of `part` is one of `whole`, which is cut into rows or dense. */
static bool contains(const rp_tensor *whole, const rp_tensor *part) {
    size_t begin = part->offset, end = begin + rp__tensor_span(part);
    if (begin < whole->offset || end > whole->offset + rp__tensor_span(whole)) return false;
    if (rp__tensor_is_dense(whole)) return true;
    return part->stride == whole->stride &&
           begin % whole->stride >= whole->offset % whole->stride &&
           column_of(whole, part) + rp__tensor_item_bytes(part) <= rp__tensor_item_bytes(whole);
}

/* ---- values ---- */

rp__tt_value *rp__tt_find_value(const rp_tensor *t) {
    rp__tt_buffer *b = rp__tt_buffer_of(t);
    for (int i = b ? b->n_values : 0; i-- > 0;)
        if (share_bytes(&b->values[i].view, t)) return &b->values[i];
    return NULL;
}

void rp__tt_unbind(rp__tt *d, rp__tt_buffer *b, int i) {
    rp__tt_value *v = &b->values[i];
    d->bound = NULL;
    if (!v->owner) {
        rp__tt_drop(d, v->id);
        rp__tt_drop(d, v->cos);
        rp__tt_drop(d, v->sin);
    }
    memmove(v, v + 1, (size_t)(b->n_values - i - 1) * sizeof *v);
    b->n_values--;
}

/* What a new result leaves of an older one: nothing, unless it lies inside it, as q and k that were
 * turned in place lie inside the columns of qkv. Programs never read the rest of a value that
 * another lies over in part: it is memory whose time is over. */
static void clear_place(rp__tt *d, rp__tt_buffer *b, const rp_tensor *t) {
    for (int i = b->n_values; i-- > 0;) {
        const rp_tensor *old = &b->values[i].view;
        bool stays = !share_bytes(old, t) || (contains(old, t) && !rp__tt_same_bytes(old, t));
        if (!stays) rp__tt_unbind(d, b, i);
    }
}

static rp_status add_value(rp__tt_buffer *b, const rp__tt_value *v, rp_error *err) {
    if (b->n_values == b->values_cap) {
        int cap = b->values_cap ? b->values_cap * 2 : 16;
        rp__tt_value *values = rp__realloc_array(b->values, (size_t)cap, sizeof *values);
        if (!values) return rp__fail(err, RP_ENOMEM, "out of memory for results on the device");
        b->values = values;
        b->values_cap = cap;
    }
    b->values[b->n_values++] = *v;
    return RP_OK;
}

rp_status rp__tt_bind(rp__tt *d, const rp_tensor *t, rp__tt_form form, rp__ttnn_id id,
                      rp_error *err) {
    rp__tt_buffer *b = rp__tt_buffer_of(t);
    d->bound = NULL;
    clear_place(d, b, t);
    rp__tt_value v = {.view = *t,
                      .form = form,
                      .id = id,
                      .owner = d->recording,
                      .is_late = !d->recording && d->n_graphs};
    return add_value(b, &v, err);
}

/* ---- to the host ---- */

static void note_dirty(rp__tt_buffer *b, size_t offset, size_t n) {
    if (b->dirty_end == 0 || offset < b->dirty_begin) b->dirty_begin = offset;
    if (offset + n > b->dirty_end) b->dirty_end = offset + n;
}

/* Rows of F32 or I32 as they come from the device, into the host's copy at `t`. */
static void store_rows(rp__tt_buffer *b, const rp_tensor *t, const unsigned char *from) {
    size_t n = rp__tensor_item_bytes(t), elems = (size_t)(rp__tensor_elems(t) / t->dim[0]);
    for (int64_t i = 0; i < t->dim[0]; i++) {
        unsigned char *to = b->host + t->offset + (size_t)i * t->stride;
        const unsigned char *row = from + (size_t)i * elems * sizeof(float);
        if (t->dtype == RP_I32)
            memcpy(to, row, n);
        else
            rp__dtype_from_f32(t->dtype, (const float *)(const void *)row, to, (int64_t)elems);
    }
    note_dirty(b, t->offset, rp__tensor_span(t));
}

static rp_status fetch(rp__tt *d, rp__tt_buffer *b, const rp_tensor *t, rp__ttnn_id id,
                       rp__tt_form form, rp_error *err) {
    size_t n = (size_t)rp__tensor_elems(t) * sizeof(float);
    if (!n) return RP_OK;
    void *rows = rp__tt_scratch(d, n);
    if (!rows) return rp__fail(err, RP_ENOMEM, "out of memory to read %zu bytes", n);
    rp__ttnn_call c = {.function = "read", .text = rp__tt_form_name(form), .in = {id}, .n_in = 1};
    RP_TRY(rp__ttnn_ask(d->ttnn, &c, rows, n, err));
    store_rows(b, t, rows);
    return RP_OK;
}

static rp_status fetch_value(rp__tt *d, rp__tt_buffer *b, rp__tt_value *v, rp_error *err) {
    if (v->is_on_host) return RP_OK;
    RP_TRY(fetch(d, b, &v->view, v->id, v->form, err));
    v->is_on_host = true;
    return RP_OK;
}

static bool is_within(const rp_tensor *t, size_t offset, size_t n) {
    return ranges_meet(t->offset, rp__tensor_span(t), offset, n);
}

/* Older values first: the newer ones lie over them. A newer one that is on the host already is
 * stored again when an older one came after it. */
static rp_status fetch_values(rp__tt *d, rp__tt_buffer *b, size_t offset, size_t n, rp_error *err) {
    bool is_any = false;
    for (int i = 0; i < b->n_values; i++) {
        rp__tt_value *v = &b->values[i];
        if (!is_within(&v->view, offset, n)) continue;
        if (is_any) v->is_on_host = false;
        is_any |= !v->is_on_host;
        RP_TRY(fetch_value(d, b, v, err));
    }
    return RP_OK;
}

static rp_status fetch_residents(rp__tt *d, rp__tt_buffer *b, size_t offset, size_t n,
                                 rp_error *err) {
    for (rp__tt_resident *r = b->residents; r; r = r->next) {
        if (!r->is_device_newer || !is_within(&r->view, offset, n)) continue;
        RP_TRY(fetch(d, b, &r->view, r->id, r->form, err));
        r->is_device_newer = false;
        rp__tt_resident_remember(r, d->scratch, (size_t)rp__tensor_elems(&r->view) * sizeof(float));
        r->serial = ++b->serial; /* other forms of these bytes are stale now, this one is not */
    }
    return RP_OK;
}

rp_status rp__tt_settle(rp__tt *d, rp__tt_buffer *b, size_t offset, size_t n, rp_error *err) {
    RP_TRY(fetch_residents(d, b, offset, n, err));
    return fetch_values(d, b, offset, n, err);
}

rp_status rp__tt_settle_late(rp__tt *d, rp_error *err) {
    for (rp__tt_buffer *b = d->buffers; b; b = b->next)
        for (int i = b->n_values; i-- > 0;) {
            if (!b->values[i].is_late) continue;
            const rp_tensor v = b->values[i].view;
            RP_TRY(fetch_values(d, b, v.offset, rp__tensor_span(&v), err));
            rp__tt_unbind(d, b, i);
            b->serial++;
        }
    rp__tt_send_garbage(d);
    return RP_OK;
}

/* ---- the table's functions ---- */

rp_status rp__tt_alloc(void *self, size_t bytes, void **handle, rp_error *err) {
    rp__tt *d = self;
    rp__tt_buffer *b = rp__calloc(1, sizeof *b);
    if (b) b->host = rp__calloc(bytes, 1);
    if (!b || !b->host) {
        rp__free(b);
        return rp__fail(err, RP_ENOMEM, "out of memory for the host's copy of %zu bytes", bytes);
    }
    b->bytes = bytes;
    b->serial = 1;
    b->next = d->buffers;
    if (b->next) b->next->prev = b;
    d->buffers = b;
    *handle = b;
    return RP_OK;
}

void rp__tt_free(void *self, void *handle) {
    rp__tt *d = self;
    rp__tt_buffer *b = handle;
    while (b->n_values) rp__tt_unbind(d, b, b->n_values - 1);
    rp__tt_residents_clear(d, b);
    rp__tt_send_garbage(d);
    if (b->prev)
        b->prev->next = b->next;
    else
        d->buffers = b->next;
    if (b->next) b->next->prev = b->prev;
    rp__free(b->values);
    rp__free(b->host);
    rp__free(b);
}

static bool is_zero(const unsigned char *p, size_t n) {
    return !n || (!p[0] && !memcmp(p, p + 1, n - 1));
}

static bool is_inside(const rp_tensor *t, size_t offset, size_t n) {
    return t->offset >= offset && t->offset + rp__tensor_span(t) <= offset + n;
}

/* The host is about to write [offset, offset + n): what the device has of it goes, what it has
 * beside it in the same tensors comes to the host first. */
static rp_status make_way(rp__tt *d, rp__tt_buffer *b, size_t offset, size_t n, rp_error *err) {
    for (int i = b->n_values; i-- > 0;) {
        const rp_tensor v = b->values[i].view;
        if (!is_within(&v, offset, n)) continue;
        if (!is_inside(&v, offset, n))
            RP_TRY(fetch_values(d, b, v.offset, rp__tensor_span(&v), err));
        rp__tt_unbind(d, b, i);
    }
    rp__tt_send_garbage(d);
    for (rp__tt_resident *r = b->residents; r; r = r->next) {
        if (!r->is_device_newer || !is_within(&r->view, offset, n)) continue;
        if (is_inside(&r->view, offset, n)) {
            r->is_device_newer = false;
            r->serial = 0;
        }
        RP_TRY(fetch_residents(d, b, r->view.offset, rp__tensor_span(&r->view), err));
    }
    return RP_OK;
}

rp_status rp__tt_write(void *self, uint32_t queue, void *handle, size_t offset, const void *src,
                       size_t n, rp_error *err) {
    rp__tt *d = self;
    rp__tt_buffer *b = handle;
    (void)queue;
    RP_TRY(make_way(d, b, offset, n, err));
    bool was_clean = !ranges_meet(b->dirty_begin, b->dirty_end - b->dirty_begin, offset, n);
    if (was_clean && is_zero(src, n)) return RP_OK; /* as it is already */
    memcpy(b->host + offset, src, n);
    note_dirty(b, offset, n);
    b->serial++;
    return RP_OK;
}

rp_status rp__tt_read(void *self, uint32_t queue, void *handle, size_t offset, void *dst, size_t n,
                      rp_error *err) {
    rp__tt *d = self;
    rp__tt_buffer *b = handle;
    (void)queue;
    RP_TRY(rp__tt_settle(d, b, offset, n, err));
    memcpy(dst, b->host + offset, n);
    return RP_OK;
}

/* The source comes to the host and the destination makes way, whole: then it is a move there. */
rp_status rp__tt_copy(void *self, uint32_t queue, void *dst, size_t dst_offset, void *src,
                      size_t src_offset, size_t n, rp_error *err) {
    rp__tt *d = self;
    rp__tt_buffer *from = src, *to = dst;
    (void)queue;
    RP_TRY(rp__tt_settle(d, from, src_offset, n, err));
    RP_TRY(make_way(d, to, dst_offset, n, err));
    memmove(to->host + dst_offset, from->host + src_offset, n);
    note_dirty(to, dst_offset, n);
    to->serial++;
    return RP_OK;
}
