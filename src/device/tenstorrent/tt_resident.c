/* Residents and weights: what the host wrote, as persistent tensors on the device.
 *
 * A resident is made when an op first asks for it in a form, and stays until its buffer goes: a
 * trace may hold its address. It is refreshed in place, and only when bytes of it changed. While a
 * trace is recorded nothing is written: the trace notes which residents it reads, and each replay
 * refreshes those first. */
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "device/tenstorrent/tt.h"
#include "tensor/dtype.h"
#include "tensor/view.h"

/* So many bytes at most are remembered, to see whether a write changed anything. */
enum { REMEMBER_BYTES = 1 << 20 };

const char *rp__tt_form_name(rp__tt_form form) {
    static const char *const names[RP_TT_N_FORMS] = {
        [RP_TT_TILE] = "tile",    [RP_TT_TABLE] = "table", [RP_TT_U32] = "u32",
        [RP_TT_U32_ROWS] = "u32", [RP_TT_I32] = "i32",     [RP_TT_PAGES] = "i32",
        [RP_TT_BLOCKS] = "i32",   [RP_TT_CACHE] = "cache", [RP_TT_WEIGHT] = "weight"};
    return names[form];
}

/* ---- contents ---- */

static bool is_integer_form(rp__tt_form form) {
    return form == RP_TT_U32 || form == RP_TT_U32_ROWS || form == RP_TT_I32 ||
           form == RP_TT_PAGES || form == RP_TT_BLOCKS;
}

/* The attention kernels want rows of whole 32 bytes. */
int64_t rp__tt_pages_width(int64_t n_blocks) {
    return (n_blocks + 7) / 8 * 8;
}

/* Elements of the tensor in this form. */
static int64_t elems_of(const rp__tt_resident *r) {
    if (r->form == RP_TT_PAGES) return r->seq.dim[0] * rp__tt_pages_width(r->view.dim[1]);
    return r->form == RP_TT_BLOCKS ? r->view.dim[0] : rp__tensor_elems(&r->view);
}

/* The row of the table for each token; one that is not there is the last. What is behind the table
 * is block 0. */
static void gather_pages(const rp__tt_buffer *b, const rp__tt_resident *r, int32_t *out) {
    const rp__tt_buffer *seqs = rp__tt_buffer_of(&r->seq);
    size_t n = (size_t)r->view.dim[1], width = (size_t)rp__tt_pages_width(r->view.dim[1]);
    memset(out, 0, (size_t)elems_of(r) * sizeof *out);
    for (int64_t t = 0; t < r->seq.dim[0]; t++, out += width) {
        int32_t row;
        memcpy(&row, seqs->host + r->seq.offset + (size_t)t * r->seq.stride, sizeof row);
        if (row < 0 || row >= r->view.dim[0]) row = (int32_t)r->view.dim[0] - 1;
        memcpy(out, b->host + r->view.offset + (size_t)row * r->view.stride, n * sizeof *out);
    }
}

static void gather_blocks(const rp__tt_buffer *b, const rp__tt_resident *r, int32_t *out) {
    for (int64_t i = 0; i < r->view.dim[0]; i++) {
        memcpy(&out[i], b->host + r->view.offset + (size_t)i * r->view.stride, sizeof *out);
        out[i] /= (int32_t)r->view.dim[1];
    }
}

/* Dense F32 or I32 of what the host has, as the glue takes it. */
static void gather(const rp__tt_buffer *b, const rp__tt_resident *r, void *out) {
    const rp_tensor *t = &r->view;
    if (r->form == RP_TT_PAGES) {
        gather_pages(b, r, out);
        return;
    }
    if (r->form == RP_TT_BLOCKS) {
        gather_blocks(b, r, out);
        return;
    }
    size_t elems = (size_t)(rp__tensor_elems(t) / (t->dim[0] ? t->dim[0] : 1));
    for (int64_t i = 0; i < t->dim[0]; i++) {
        const unsigned char *from = b->host + t->offset + (size_t)i * t->stride;
        char *to = (char *)out + (size_t)i * elems * sizeof(float);
        if (is_integer_form(r->form))
            memcpy(to, from, elems * sizeof(int32_t));
        else
            rp__dtype_to_f32(t->dtype, from, (float *)(void *)to, (int64_t)elems);
    }
}

/* The tensor's dimensions as the glue takes them: those of the view, but for tiles, which have
 * four, and lists of row numbers. */
static void add_dims(rp__ttnn_call *c, const rp__tt_resident *r) {
    const rp_tensor *t = &r->view;
    if (r->form == RP_TT_PAGES) {
        c->ints[c->n_ints++] = r->seq.dim[0];
        c->ints[c->n_ints++] = rp__tt_pages_width(t->dim[1]);
        return;
    }
    if (r->form == RP_TT_U32 || r->form == RP_TT_BLOCKS) {
        c->ints[c->n_ints++] = 1;
        c->ints[c->n_ints++] = elems_of(r);
        return;
    }
    if (r->form == RP_TT_TILE) {
        if (t->n_dims < 4) c->ints[c->n_ints++] = 1;
        for (int i = t->n_dims; i < 3; i++) c->ints[c->n_ints++] = 1;
    }
    for (int i = 0; i < t->n_dims; i++) c->ints[c->n_ints++] = t->dim[i];
}

/* ---- writing ---- */

static bool is_untouched(const rp__tt_buffer *b, const rp__tt_resident *r) {
    size_t begin = r->view.offset, end = begin + rp__tensor_span(&r->view);
    return r->form != RP_TT_PAGES && (end <= b->dirty_begin || begin >= b->dirty_end);
}

static rp_status send_contents(rp__tt *d, rp__tt_resident *r, const void *data, size_t n,
                               rp_error *err) {
    bool is_first = !r->id;
    rp__ttnn_call c = {.function = is_first ? "make" : "refresh",
                       .text = rp__tt_form_name(r->form),
                       .data = data,
                       .bytes = n};
    if (is_first)
        c.out[c.n_out++] = r->id = rp__tt_new_id(d);
    else
        c.in[c.n_in++] = r->id;
    add_dims(&c, r);
    return rp__ttnn_send(d->ttnn, &c, err);
}

static bool is_same_as_written(const rp__tt_resident *r, const void *data, size_t n) {
    return r->id && r->is_as_written && !memcmp(r->written, data, n);
}

void rp__tt_resident_remember(rp__tt_resident *r, const void *data, size_t n) {
    if (!r->written && n <= REMEMBER_BYTES) r->written = rp__alloc(n);
    r->is_as_written = r->written != NULL; /* without memory for it, all is written */
    if (r->written) memcpy(r->written, data, n);
}

static rp_status write_contents(rp__tt *d, rp__tt_buffer *b, rp__tt_resident *r, bool is_forced,
                                rp_error *err) {
    size_t n = (size_t)elems_of(r) * sizeof(float);
    if (!r->id && is_untouched(b, r)) return send_contents(d, r, NULL, 0, err); /* zeros */
    void *data = rp__tt_scratch(d, n);
    if (!data) return rp__fail(err, RP_ENOMEM, "out of memory to write %zu bytes", n);
    gather(b, r, data);
    if (!is_forced && is_same_as_written(r, data, n)) return RP_OK;
    rp__tt_resident_remember(r, data, n);
    return send_contents(d, r, data, n, err);
}

/* The serials of both buffers that a table of pages comes from: both only grow. */
static uint64_t serial_of(const rp__tt_buffer *b, const rp__tt_resident *r) {
    const rp__tt_buffer *seqs = rp__tt_buffer_of(&r->seq);
    return b->serial + (seqs && seqs != b ? seqs->serial : 0);
}

/* ---- finding and making ---- */

static bool is_view(const rp_tensor *a, const rp_tensor *b) {
    if (a->offset != b->offset || a->stride != b->stride || a->dtype != b->dtype ||
        a->n_dims != b->n_dims)
        return false;
    for (int i = 0; i < a->n_dims; i++)
        if (a->dim[i] != b->dim[i]) return false;
    return true;
}

static rp__tt_resident *find(rp__tt_buffer *b, const rp_tensor *t, const rp_tensor *seq,
                             rp__tt_form form) {
    for (rp__tt_resident *r = b->residents; r; r = r->next)
        if (r->form == form && is_view(&r->view, t) &&
            (!seq || (r->seq.buffer == seq->buffer && is_view(&r->seq, seq))))
            return r;
    return NULL;
}

bool rp__tt_resident_is_there(const rp_tensor *t, rp__tt_form form) {
    return find(rp__tt_buffer_of(t), t, NULL, form) != NULL;
}

static rp_status add(rp__tt *d, const rp_tensor *t, const rp_tensor *seq, rp__tt_form form,
                     rp__tt_resident **out, rp_error *err) {
    rp__tt_buffer *b = rp__tt_buffer_of(t);
    rp__tt_resident *r = rp__calloc(1, sizeof *r);
    if (!r)
        return rp__fail(err, RP_ENOMEM, "out of memory for a tensor of buffer \"%s\"",
                        t->buffer->name);
    r->view = *t;
    if (seq) r->seq = *seq;
    r->form = form;
    r->is_late = d->n_graphs != 0;
    r->next = b->residents;
    b->residents = r;
    *out = r;
    return RP_OK;
}

static rp_status make(rp__tt *d, const rp_tensor *t, const rp_tensor *seq, rp__tt_form form,
                      rp__tt_resident **out, rp_error *err) {
    const char *name = t->buffer->name ? t->buffer->name : "?";
    if (d->recording)
        return rp__fail(err, RP_ECAPTURE_HOST,
                        "a part of buffer \"%s\" at %zu is used in a capture and was not on the "
                        "device before: run the step once first",
                        name, t->offset);
    if (d->n_graphs && form == RP_TT_CACHE)
        return rp__fail(err, RP_EBUSY,
                        "the KV cache in buffer \"%s\" cannot be allocated beside live traces",
                        name);
    return add(d, t, seq, form, out, err);
}

rp_status rp__tt_resident_adopt(rp__tt *d, const rp__tt_value *v, rp_error *err) {
    rp__tt_resident *r;
    RP_TRY(add(d, &v->view, NULL, v->form, &r, err));
    r->id = v->id;
    r->lender = v->owner;
    r->is_device_newer = true;
    return rp__tt_note_input(d, r, err);
}

void rp__tt_residents_keep(rp__tt *d, const rp__tt_graph *lender, rp__ttnn_id *ids, size_t n) {
    for (rp__tt_buffer *b = d->buffers; b; b = b->next)
        for (rp__tt_resident *r = b->residents; r; r = r->next) {
            if (r->lender != lender) continue;
            r->lender = NULL;
            const rp__tt_value *v = rp__tt_find_value(&r->view);
            if (v && v->id == r->id) rp__tt_resident_set_newer(r);
            for (size_t i = 0; i < n; i++)
                if (ids[i] == r->id) ids[i] = 0;
        }
}

static bool meet(const rp_tensor *a, const rp_tensor *b) {
    return a->offset < b->offset + rp__tensor_span(b) && b->offset < a->offset + rp__tensor_span(a);
}

static bool is_shared(const rp__tt_buffer *b, const rp__tt_resident *r) {
    for (const rp__tt_resident *o = b->residents; o; o = o->next)
        if (o != r && !is_view(&o->view, &r->view) && meet(&o->view, &r->view)) return true;
    return false;
}

rp_status rp__tt_residents_settle_shared(rp__tt *d, rp_error *err) {
    for (rp__tt_buffer *b = d->buffers; b; b = b->next)
        for (const rp__tt_resident *r = b->residents; r; r = r->next)
            if (r->is_device_newer && is_shared(b, r))
                RP_TRY(rp__tt_settle(d, b, r->view.offset, rp__tensor_span(&r->view), err));
    return RP_OK;
}

/* Another form of the same bytes, which the device wrote, must come by the host. */
static rp_status settle_others(rp__tt *d, rp__tt_buffer *b, const rp__tt_resident *mine,
                               const rp_tensor *t, rp_error *err) {
    for (rp__tt_resident *r = b->residents; r; r = r->next) {
        if (r == mine || !r->is_device_newer || !meet(&r->view, t)) continue;
        if (mine && mine->is_device_newer && is_view(&r->view, &mine->view)) continue;
        if (d->recording)
            return rp__fail(err, RP_ECAPTURE_HOST,
                            "a captured op reads what another one changed "
                            "in place, in another form");
        RP_TRY(rp__tt_settle(d, b, r->view.offset, rp__tensor_span(&r->view), err));
    }
    return RP_OK;
}

rp_status rp__tt_resident_refresh(rp__tt *d, rp__tt_resident *r, rp_error *err) {
    rp__tt_buffer *b = rp__tt_buffer_of(&r->view);
    RP_TRY(settle_others(d, b, r, &r->view, err));
    bool is_damaged = r->is_late && r->replays != d->n_replays;
    uint64_t serial = serial_of(b, r);
    if (r->is_device_newer || (r->serial == serial && !is_damaged)) return RP_OK;
    RP_TRY(write_contents(d, b, r, is_damaged, err));
    r->serial = serial;
    r->replays = d->n_replays;
    return RP_OK;
}

rp_status rp__tt_resident_get(rp__tt *d, const rp_tensor *t, const rp_tensor *seq, rp__tt_form form,
                              rp__ttnn_id *id, rp_error *err) {
    rp__tt_buffer *b = rp__tt_buffer_of(t);
    rp__tt_resident *r = find(b, t, seq, form);
    if (!r || d->recording) RP_TRY(settle_others(d, b, r, t, err));
    if (!r) RP_TRY(make(d, t, seq, form, &r, err));
    if (d->recording)
        RP_TRY(rp__tt_note_input(d, r, err));
    else
        RP_TRY(rp__tt_resident_refresh(d, r, err));
    *id = r->id;
    return RP_OK;
}

void rp__tt_resident_set_newer(rp__tt_resident *r) {
    r->is_device_newer = true;
    r->is_as_written = false;
}

rp_status rp__tt_resident_changed(rp__tt *d, const rp_tensor *t, rp_error *err) {
    for (rp__tt_resident *r = rp__tt_buffer_of(t)->residents; r; r = r->next) {
        if (!is_view(&r->view, t)) continue;
        if (d->recording)
            RP_TRY(rp__tt_note_changed(d, r, err));
        else
            rp__tt_resident_set_newer(r);
    }
    return RP_OK;
}

void rp__tt_residents_clear(rp__tt *d, rp__tt_buffer *b) {
    for (rp__tt_resident *r = b->residents, *next; r; r = next) {
        next = r->next;
        rp__tt_drop(d, r->id);
        rp__free(r->written);
        rp__free(r);
    }
    for (rp__tt_weight *w = b->weights, *next; w; w = next) {
        next = w->next;
        for (int i = 0; i < RP_TT_N_FORMS; i++) rp__tt_drop(d, w->id[i]);
        rp__free(w->rows);
        rp__free(w);
    }
    b->residents = NULL;
    b->weights = NULL;
}

/* ---- weights ---- */

static int64_t round_up(int64_t n) {
    return (n + RP_TT_BLOCK - 1) / RP_TT_BLOCK * RP_TT_BLOCK;
}

/* A tile of 32 x 32: 2048 bytes of BF16; block floats have an exponent for 16 values. */
size_t rp__tt_weight_bytes(void *self, const rp_tensor *desc) {
    const rp__tt *d = self;
    size_t tiles = (size_t)(round_up(rp__tensor_last(desc)) / RP_TT_BLOCK) *
                   (size_t)(round_up(rp__tensor_rows(desc)) / RP_TT_BLOCK);
    size_t tile = !strcmp(d->weight_type, "bf16") ? 2048 : 1088;
    return tiles * (!strcmp(d->weight_type, "bfloat4_b") ? 576 : tile);
}

static void drop_rows(rp__tt_weight *w) {
    rp__free(w->rows);
    w->rows = NULL;
}

void rp__tt_weights_settled(rp__tt *d) {
    for (rp__tt_buffer *b = d->buffers; b; b = b->next)
        for (rp__tt_weight *w = b->weights; w; w = w->next)
            if (w->id[RP_TT_TABLE]) drop_rows(w);
}

static rp__tt_weight *find_weight(const rp_tensor *t) {
    rp__tt_weight *w = rp__tt_buffer_of(t)->weights;
    while (w && w->view.offset != t->offset) w = w->next;
    return w;
}

static size_t row_bytes(const rp_tensor *w) {
    size_t n = 0;
    rp__dtype_bytes(w->dtype, rp__tensor_last(w), &n);
    return n;
}

static rp_status add_weight(const rp_tensor *t, rp__tt_weight **out, rp_error *err) {
    rp__tt_buffer *b = rp__tt_buffer_of(t);
    rp__tt_weight *w = rp__calloc(1, sizeof *w);
    if (!w) return rp__fail(err, RP_ENOMEM, "out of memory for a weight");
    w->view = *t;
    w->next = b->weights;
    b->weights = w;
    *out = w;
    return RP_OK;
}

static const char *text_of(const rp__tt *d, rp__tt_form form, char out[32]) {
    size_t n = strlen(rp__tt_form_name(form));
    memcpy(out, rp__tt_form_name(form), n + 1);
    if (form != RP_TT_WEIGHT) return out;
    out[n] = ' ';
    memcpy(out + n + 1, d->weight_type, strlen(d->weight_type) + 1);
    return out;
}

static rp_status send_weight(rp__tt *d, rp__tt_weight *w, rp__tt_form form, const float *values,
                             rp_error *err) {
    char text[32];
    bool is_first = !w->id[form];
    rp__ttnn_call c = {.function = is_first ? "make" : "refresh",
                       .text = text_of(d, form, text),
                       .ints = {rp__tensor_rows(&w->view), rp__tensor_last(&w->view)},
                       .n_ints = 2,
                       .data = values,
                       .bytes = (size_t)rp__tensor_elems(&w->view) * sizeof *values};
    if (is_first)
        c.out[c.n_out++] = w->id[form] = rp__tt_new_id(d);
    else
        c.in[c.n_in++] = w->id[form];
    return rp__ttnn_send(d->ttnn, &c, err);
}

/* The weight's values as F32: from the file's rows, or back from the form that there is. */
static rp_status read_weight(rp__tt *d, const rp__tt_weight *w, float *values, rp_error *err) {
    int64_t n = rp__tensor_elems(&w->view);
    if (w->rows) {
        rp__dtype_to_f32(w->view.dtype, w->rows, values, n);
        return RP_OK;
    }
    rp__tt_form form = w->id[RP_TT_TABLE] ? RP_TT_TABLE : RP_TT_WEIGHT;
    rp__ttnn_call c = {
        .function = "read", .text = rp__tt_form_name(form), .in = {w->id[form]}, .n_in = 1};
    return rp__ttnn_ask(d->ttnn, &c, values, (size_t)n * sizeof *values, err);
}

static rp_status write_form(rp__tt *d, rp__tt_weight *w, rp__tt_form form, rp_error *err) {
    float *values = rp__realloc_array(NULL, (size_t)rp__tensor_elems(&w->view), sizeof *values);
    if (!values) return rp__fail(err, RP_ENOMEM, "out of memory while decoding a weight");
    rp_status st = read_weight(d, w, values, err);
    if (st >= 0) st = send_weight(d, w, form, values, err);
    rp__free(values);
    return st;
}

/* All rows are there: forms made from earlier ones are written anew. */
static rp_status complete(rp__tt *d, rp__tt_weight *w, rp_error *err) {
    bool is_any = false;
    for (int form = 0; form < RP_TT_N_FORMS; form++) {
        if (!w->id[form]) continue;
        RP_TRY(write_form(d, w, (rp__tt_form)form, err));
        is_any = true;
    }
    if (is_any) drop_rows(w);
    return RP_OK;
}

rp_status rp__tt_weight_write(void *self, const rp_tensor *t, int64_t row, int64_t n_rows,
                              const void *src, rp_error *err) {
    rp__tt *d = self;
    rp__tt_weight *w = find_weight(t);
    size_t n = row_bytes(t);
    if (!w) RP_TRY(add_weight(t, &w, err));
    if (!w->rows) w->rows = rp__realloc_array(NULL, (size_t)rp__tensor_rows(t), n);
    if (!w->rows) return rp__fail(err, RP_ENOMEM, "out of memory for the rows of a weight");
    if (row == 0) w->n_written = 0;
    memcpy(w->rows + (size_t)row * n, src, (size_t)n_rows * n);
    w->n_written += n_rows;
    return w->n_written == rp__tensor_rows(t) ? complete(d, w, err) : RP_OK;
}

rp_status rp__tt_weight_get(rp__tt *d, const rp_tensor *t, rp__tt_form form, rp__ttnn_id *id,
                            rp_error *err) {
    rp__tt_weight *w = find_weight(t);
    if (!w) return rp__fail(err, RP_EINVAL, "a weight is used that was never written");
    if (!w->id[form]) {
        if (d->recording)
            return rp__fail(err, RP_ECAPTURE_HOST,
                            "a weight is used in a capture that was not on "
                            "the device before: run the step once first");
        RP_TRY(write_form(d, w, form, err));
        /* A table that tokens are picked from may be the matrix of the head, too. */
        if (form != RP_TT_TABLE) drop_rows(w);
    }
    *id = w->id[form];
    return RP_OK;
}
