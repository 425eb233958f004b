#include "model/weights.h"

#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "tensor/dtype.h"
#include "tensor/view.h"

rp_status rp__weights_init(rp__weights *w, rp_device *device, const rp__checkpoint *c,
                           rp_error *err) {
    *w = (rp__weights){.device = device, .checkpoint = c};
    w->is_used = rp__calloc(rp__checkpoint_n_tensors(c) + 1, sizeof *w->is_used);
    return w->is_used ? RP_OK : rp__fail(err, RP_ENOMEM, "out of memory for the weight table");
}

void rp__weights_clear(rp__weights *w) {
    rp__buffer_destroy(w->buffer, NULL);
    rp__buffer_destroy(w->host_buffer, NULL);
    rp__free(w->jobs);
    rp__free(w->is_used);
    rp__arena_clear(&w->arena);
    *w = (rp__weights){0};
}

static rp_status no_memory(const char *label, rp_error *err) {
    return rp__fail(err, RP_ENOMEM, "out of memory while declaring weight %s", label);
}

bool rp__weights_has(const rp__weights *w, const char *name) {
    rp__checkpoint_tensor t;
    return rp__checkpoint_find(w->checkpoint, name, &t);
}

static void mark_used(rp__weights *w, const char *name) {
    rp__checkpoint_tensor t;
    size_t n = rp__checkpoint_n_tensors(w->checkpoint);
    for (size_t i = 0; i < n; i++) {
        if (!rp__checkpoint_tensor_at(w->checkpoint, i, &t) || !rp__str_is(t.name, name)) continue;
        if (!w->is_used[i]) {
            int64_t elems = 1;
            for (int d = 0; d < t.n_dims; d++) elems *= t.dim[d];
            w->n_params += elems;
        }
        w->is_used[i] = true;
        return;
    }
}

void rp__weights_ignore(rp__weights *w, const char *name) {
    int64_t n = w->n_params;
    mark_used(w, name);
    w->n_params = n;
}

rp_status rp__weights_check_all_used(const rp__weights *w, const char *architecture,
                                     rp_error *err) {
    rp__checkpoint_tensor t;
    size_t n = rp__checkpoint_n_tensors(w->checkpoint);
    for (size_t i = 0; i < n; i++)
        if (!w->is_used[i] && rp__checkpoint_tensor_at(w->checkpoint, i, &t))
            return rp__fail(err, RP_EUNSUPPORTED,
                            "%s: tensor %.*s is not part of architecture %s as it is known here",
                            w->checkpoint->path, (int)t.name.n, t.name.p, architecture);
    return RP_OK;
}

static rp_status find(rp__weights *w, const char *name, rp__checkpoint_tensor *t, rp_error *err) {
    if (!rp__checkpoint_find(w->checkpoint, name, t))
        return rp__fail(err, RP_ENOTFOUND, "%s: tensor %s is missing", w->checkpoint->path, name);
    mark_used(w, name);
    return RP_OK;
}

static rp_status add_job(rp__weights *w, rp_tensor *dst, const char *label, rp__weight_job **out,
                         rp_error *err) {
    if (w->n_jobs == w->jobs_cap) {
        int32_t cap = w->jobs_cap ? w->jobs_cap * 2 : 128;
        rp__weight_job *jobs = rp__realloc_array(w->jobs, (size_t)cap, sizeof *jobs);
        if (!jobs) return no_memory(label, err);
        w->jobs = jobs;
        w->jobs_cap = cap;
    }
    rp__weight_job *j = &w->jobs[w->n_jobs];
    *j = (rp__weight_job){.dst = dst, .name = rp__arena_strndup(&w->arena, label, strlen(label))};
    if (!j->name) return no_memory(label, err);
    w->n_jobs++;
    *out = j;
    return RP_OK;
}

/* Bytes of a weight on a device, and where the next one may begin. */
static size_t tensor_bytes(rp_device *device, const rp_tensor *t, size_t *taken) {
    size_t align = rp__device_props(device)->alignment;
    size_t bytes = t->is_weight ? rp__weight_bytes(device, t) : rp__tensor_span(t);
    *taken = (bytes + align - 1) & ~(align - 1);
    return bytes;
}

static void place_job(rp__weights *w, rp__weight_job *j) {
    size_t taken;
    j->bytes = tensor_bytes(w->device, j->dst, &taken);
    j->place = w->bytes;
    w->bytes += taken;
}

const rp_tensor *rp__weights_copy(rp__weights *w, const rp_tensor *weight, rp_device *host) {
    rp__weight_job *j = w->jobs;
    while (j < w->jobs + w->n_jobs && j->dst != weight) j++;
    rp__assert(j < w->jobs + w->n_jobs, "a weight that was not declared");
    if (j->copy) return j->copy;
    rp__assert(!w->host_buffer, "weight %s is wanted on the host after loading", j->name);
    if (!(j->copy = rp__arena_alloc(&w->arena, sizeof *j->copy))) return NULL;
    size_t taken;
    *j->copy = *j->dst;
    tensor_bytes(host, j->copy, &taken);
    w->host = host;
    j->copy_place = w->host_bytes;
    w->host_bytes += taken;
    return j->copy;
}

/* Rows that a part takes, appended to the job's pieces; `k` is the row length wanted. */
static rp_status add_part(rp__weights *w, rp__weight_job *j, const rp__weight_part *part, int64_t k,
                          bool is_vector, int64_t *n_rows, rp_error *err) {
    rp__checkpoint_tensor t;
    RP_TRY(find(w, part->name, &t, err));
    bool fits = is_vector ? t.n_dims == 1 || (t.n_dims == 2 && t.dim[0] == 1)
                          : t.n_dims == 2 && t.dim[1] == k;
    int64_t rows = is_vector ? t.dim[t.n_dims - 1] : t.dim[0];
    if (!fits || (part->group_rows && rows % part->group_rows))
        return rp__fail(
            err, RP_EFORMAT,
            "%s: tensor %s has shape [%lld, %lld] with %d dimensions, expected rows of %lld",
            w->checkpoint->path, part->name, (long long)t.dim[0],
            (long long)(t.n_dims > 1 ? t.dim[1] : 1), t.n_dims, (long long)k);
    if (is_vector && !rp__dtype_is_float(t.dtype))
        return rp__fail(err, RP_EFORMAT, "%s: vector %s has dtype %s, expected a plain float",
                        w->checkpoint->path, part->name, rp__dtype_name(t.dtype));
    if (j->n_pieces && t.dtype != j->source_dtype)
        return rp__fail(err, RP_EFORMAT, "%s: tensor %s has dtype %s, its neighbours have %s",
                        w->checkpoint->path, part->name, rp__dtype_name(t.dtype),
                        rp__dtype_name(j->source_dtype));
    j->source_dtype = t.dtype;
    size_t row_bytes;
    if (!rp__dtype_bytes(t.dtype, is_vector ? 1 : k, &row_bytes))
        return rp__fail(err, RP_EFORMAT,
                        "%s: rows of %lld elements do not fill whole %s blocks in %s",
                        w->checkpoint->path, (long long)k, rp__dtype_name(t.dtype), part->name);
    int64_t group = part->group_rows ? part->group_rows : rows,
            take = part->group_rows ? part->n_rows : rows;
    for (int64_t g = 0; g < rows; g += group) {
        const unsigned char *data =
            (const unsigned char *)t.data + (size_t)(g + part->first) * row_bytes;
        j->pieces[j->n_pieces++] = (rp__weight_piece){data, take, t};
        *n_rows += take;
    }
    return RP_OK;
}

static rp_status add_parts(rp__weights *w, rp__weight_job *j, int n_parts,
                           const rp__weight_part *parts, int64_t n, int64_t k, bool is_vector,
                           rp_error *err) {
    size_t n_pieces = 0;
    for (int i = 0; i < n_parts; i++) {
        rp__checkpoint_tensor t;
        RP_TRY(find(w, parts[i].name, &t, err));
        n_pieces += parts[i].group_rows ? (size_t)(t.dim[0] / parts[i].group_rows) + 1 : 1;
    }
    j->pieces = rp__arena_calloc(&w->arena, n_pieces, sizeof *j->pieces);
    if (!j->pieces) return no_memory(j->name, err);
    int64_t n_rows = 0;
    for (int i = 0; i < n_parts; i++) RP_TRY(add_part(w, j, &parts[i], k, is_vector, &n_rows, err));
    if (n_rows != n)
        return rp__fail(err, RP_EFORMAT, "%s: tensor %s has %lld rows, expected %lld",
                        w->checkpoint->path, parts[0].name, (long long)n_rows, (long long)n);
    return RP_OK;
}

bool rp__weights_same_dtype(const rp__weights *w, int n_parts, const rp__weight_part *parts) {
    rp__checkpoint_tensor first, t;
    if (!rp__checkpoint_find(w->checkpoint, parts[0].name, &first)) return false;
    for (int i = 1; i < n_parts; i++)
        if (!rp__checkpoint_find(w->checkpoint, parts[i].name, &t) || t.dtype != first.dtype)
            return false;
    return true;
}

rp_status rp__weights_matrix(rp__weights *w, rp_tensor *dst, const char *label, int n_parts,
                             const rp__weight_part *parts, int64_t n, int64_t k, rp_error *err) {
    rp__weight_job *j;
    RP_TRY(add_job(w, dst, label, &j, err));
    RP_TRY(add_parts(w, j, n_parts, parts, n, k, false, err));
    if (!rp__dtype_is_float(j->source_dtype) && !rp__dtype_is_block(j->source_dtype))
        return rp__fail(err, RP_EUNSUPPORTED,
                        "%s: tensor %s has dtype %s, which weights cannot have",
                        w->checkpoint->path, parts[0].name, rp__dtype_name(j->source_dtype));
    *dst = rp__tensor_make(NULL, 0, j->source_dtype, 2, (int64_t[]){n, k});
    dst->is_weight = 1;
    place_job(w, j);
    return RP_OK;
}

rp_status rp__weights_vector(rp__weights *w, rp_tensor *dst, const char *label, int n_parts,
                             const rp__weight_part *parts, int64_t n, rp_error *err) {
    rp__weight_job *j;
    RP_TRY(add_job(w, dst, label, &j, err));
    RP_TRY(add_parts(w, j, n_parts, parts, n, 1, true, err));
    *dst = rp__tensor_make(NULL, 0, RP_F32, 1, &n);
    place_job(w, j);
    return RP_OK;
}

rp_status rp__weights_values(rp__weights *w, rp_tensor *dst, const char *label, int64_t n,
                             int64_t k, rp_error *err) {
    rp__weight_job *j;
    RP_TRY(add_job(w, dst, label, &j, err));
    j->is_made = true;
    *dst = rp__tensor_make(NULL, 0, RP_F32, 2, (int64_t[]){n, k});
    place_job(w, j);
    return RP_OK;
}

void rp__weights_set_values(rp__weights *w, const rp_tensor *dst, const float *values) {
    for (int32_t i = 0; i < w->n_jobs; i++)
        if (w->jobs[i].dst == dst) w->jobs[i].values = values;
}

/* ---- loading ---- */

enum { WRITE_CHUNK = 32 << 20 }; /* bytes between two reports of progress */

typedef struct load_state {
    rp_progress_fn progress;
    void *user;
    size_t done, total;
    bool makes_copies;
} load_state;

static rp_status report(load_state *s, size_t bytes, const char *name, rp_error *err) {
    s->done += bytes;
    double fraction = s->done < s->total ? (double)s->done / (double)s->total : 1;
    if (s->progress && s->progress(s->user, fraction, name))
        return rp__fail(err, RP_ECANCELLED, "loading was cancelled");
    return RP_OK;
}

/* Writes the rows at `data`, a chunk at a time; chunks end on multiples of 64 rows, a border of any
 * panel layout. */
static rp_status write_rows(load_state *s, const rp__weight_job *j, const unsigned char *data,
                            int64_t n, size_t row_bytes, rp_error *err) {
    int64_t step = (int64_t)(WRITE_CHUNK / (row_bytes ? row_bytes : 1)) / 64 * 64;
    if (step < 64) step = 64;
    for (int64_t row = 0; row < n; row += step) {
        int64_t take = n - row < step ? n - row : step;
        const unsigned char *from = data + (size_t)row * row_bytes;
        RP_TRY(rp__weight_write(j->dst, row, take, from, err));
        if (j->copy && s->makes_copies) RP_TRY(rp__weight_write(j->copy, row, take, from, err));
        RP_TRY(report(s, (size_t)take * row_bytes, j->name, err));
    }
    return RP_OK;
}

static rp_status load_matrix(load_state *s, const rp__weight_job *j, rp_error *err) {
    size_t row_bytes;
    if (!rp__dtype_bytes(j->source_dtype, j->dst->dim[1], &row_bytes)) return RP_EINTERNAL;
    if (j->n_pieces == 1)
        return write_rows(s, j, j->pieces[0].data, j->dst->dim[0], row_bytes, err);
    unsigned char *whole = rp__alloc((size_t)j->dst->dim[0] * row_bytes), *at = whole;
    if (!whole)
        return rp__fail(err, RP_ENOMEM, "out of memory while joining the rows of %s", j->name);
    for (int32_t i = 0; i < j->n_pieces; i++) {
        memcpy(at, j->pieces[i].data, (size_t)j->pieces[i].n_rows * row_bytes);
        at += (size_t)j->pieces[i].n_rows * row_bytes;
    }
    rp_status st = write_rows(s, j, whole, j->dst->dim[0], row_bytes, err);
    rp__free(whole);
    return st;
}

static rp_status write_plain(load_state *s, const rp__weight_job *j, const float *values, size_t n,
                             rp_error *err) {
    RP_TRY(rp__buffer_write(j->dst->buffer, j->dst->offset, values, n * sizeof *values, err));
    if (j->copy && s->makes_copies)
        RP_TRY(rp__buffer_write(j->copy->buffer, j->copy->offset, values, n * sizeof *values, err));
    return report(s, n * sizeof *values, j->name, err);
}

static rp_status load_vector(load_state *s, const rp__weight_job *j, rp_error *err) {
    int64_t n = rp__tensor_elems(j->dst);
    float *values = rp__alloc((size_t)n * sizeof *values), *at = values;
    if (!values) return rp__fail(err, RP_ENOMEM, "out of memory while converting %s", j->name);
    for (int32_t i = 0; i < j->n_pieces; i++) {
        rp__dtype_to_f32(j->source_dtype, j->pieces[i].data, at, j->pieces[i].n_rows);
        at += j->pieces[i].n_rows;
    }
    rp_status st = write_plain(s, j, values, (size_t)n, err);
    rp__free(values);
    return st;
}

static rp_status load_job(load_state *s, const rp__weights *w, const rp__weight_job *j,
                          rp_error *err) {
    j->dst->buffer = w->buffer;
    j->dst->offset = j->place;
    if (j->copy) {
        j->copy->buffer = w->host_buffer;
        j->copy->offset = j->copy_place;
    }
    if (j->is_made) return write_plain(s, j, j->values, j->bytes / sizeof *j->values, err);
    return j->dst->is_weight ? load_matrix(s, j, err) : load_vector(s, j, err);
}

rp_status rp__weights_load(rp__weights *w, rp_progress_fn progress, void *user, rp_error *err) {
    bool makes_copies = w->host_bytes && !w->host_buffer;
    if (!w->buffer)
        RP_TRY(rp__buffer_create(w->device, "weights", w->bytes, true, &w->buffer, err));
    if (makes_copies)
        RP_TRY(rp__buffer_create(w->host, "weights on the host", w->host_bytes, true,
                                 &w->host_buffer, err));
    load_state s = {
        .progress = progress, .user = user, .total = w->bytes, .makes_copies = makes_copies};
    for (int32_t i = 0; i < w->n_jobs; i++) {
        rp__weight_job *j = &w->jobs[i];
        RP_TRY(load_job(&s, w, j, err));
        for (int32_t k = 0; k < j->n_pieces; k++)
            rp__checkpoint_drop_pages(w->checkpoint, &j->pieces[k].from);
    }
    return RP_OK;
}
