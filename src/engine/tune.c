/* Measuring ops on the device and on the host, on zeros: what they take does not depend on values.
 *
 * The device's time is that of an op among others (several in a row between two syncs); the host's
 * is that of fetching its operands, running it and sending its results, one after the other, as a
 * step would. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "device/op.h"
#include "engine/engine_impl.h"
#include "engine/placing.h"
#include "tensor/view.h"

enum {
    IN_A_ROW = 8,    /* runs on the device between two syncs, */
    LONG_US = 10000, /* or one, of an op that takes longer than this */
    MOST_PAIRS = 10000,
};

rp_tune_options rp_tune_options_default(void) {
    return (rp_tune_options){.bytes = sizeof(rp_tune_options), .n_pairs = 5};
}

typedef struct tuner {
    const rp_tune_options *options;
    rp_engine *engine;
    rp_device *device, *host;
    rp__tune_row *rows;
    const rp_op **ops;            /* [n]: the bound op that each row measures */
    const rp__program **programs; /* [n]: that it is of */
    size_t n, cap;
    double *samples;   /* [2 * n_pairs] */
    rp_buffer *memory; /* on the host, for the operands of any op */
    rp__bytes profile;
} tuner;

/* ---- what there is to measure ---- */

static bool is_known(const tuner *t, const rp__tune_row *row) {
    for (size_t i = 0; i < t->n; i++)
        if (t->rows[i].kind == row->kind && t->rows[i].rows == row->rows &&
            t->rows[i].width == row->width)
            return true;
    return false;
}

static void add_op(tuner *t, const rp__program *p, int32_t i) {
    const rp_op *op = &p->ops[i];
    rp__tune_row row = {.kind = op->kind, .rows = rp__place_rows(op), .width = rp__place_width(op)};
    bool is_on_device = p->places[i].side == RP_SIDE_DEVICE && !p->places[i].is_transfer;
    if (!is_on_device || !rp__tune_takes(op->kind) || is_known(t, &row)) return;
    if (!rp__device_supports(t->host, op)) return;
    t->rows[t->n] = row;
    t->ops[t->n] = op;
    t->programs[t->n++] = p;
}

static rp_status list_ops(tuner *t, rp_error *err) {
    const rp__stepper *s = &t->engine->stepper;
    for (int i = 0; i < s->n_buckets; i++) t->cap += (size_t)s->choices[i].ways[0]->n_ops;
    t->rows = rp__calloc(t->cap, sizeof *t->rows);
    t->ops = rp__calloc(t->cap, sizeof *t->ops);
    t->programs = rp__calloc(t->cap, sizeof *t->programs);
    t->samples = rp__calloc(2 * (size_t)t->options->n_pairs, sizeof *t->samples);
    if (!t->rows || !t->ops || !t->programs || !t->samples)
        return rp__fail(err, RP_ENOMEM, "out of memory for a list of %zu ops", t->cap);
    for (int i = 0; i < s->n_buckets; i++) {
        const rp__program *p = s->choices[i].ways[0];
        for (int32_t k = 0; k < p->n_ops; k++) add_op(t, p, k);
    }
    return RP_OK;
}

/* ---- memory ---- */

static size_t host_bytes(const tuner *t, const rp_tensor *x) {
    if (!x->n_dims) return 0;
    size_t align = rp__device_props(t->host)->alignment;
    size_t n = x->is_weight ? rp__weight_bytes(t->host, x) : rp__tensor_span(x);
    return (n + align - 1) & ~(align - 1);
}

static size_t put_operand(const tuner *t, rp_tensor *x, size_t at) {
    size_t n = host_bytes(t, x);
    if (!n) return at;
    x->buffer = t->memory;
    x->offset = at;
    return at + n;
}

/* The op over operands of its own on the host, all rows live. Returns the bytes they take. */
static size_t host_op_of(const tuner *t, const rp_op *op, rp_op *out) {
    size_t at = 0;
    *out = *op;
    out->live = (rp_tensor){0};
    for (int i = 0; i < op->n_in; i++) at = put_operand(t, &out->in[i], at);
    for (int i = 0; i < op->n_out; i++) at = put_operand(t, &out->out[i], at);
    return at;
}

static rp_status write_zeros(rp_buffer *b, rp_error *err) {
    static const char none[1 << 16];
    for (size_t at = 0; b && at < b->bytes; at += sizeof none)
        RP_TRY(rp__buffer_write(b, at, none,
                                b->bytes - at < sizeof none ? b->bytes - at : sizeof none, err));
    return RP_OK;
}

static rp_status make_memory(tuner *t, rp_error *err) {
    size_t most = 1;
    rp_op op;
    for (size_t i = 0; i < t->n; i++) {
        size_t n = host_op_of(t, t->ops[i], &op);
        if (n > most) most = n;
    }
    RP_TRY(rp__buffer_create(t->host, "operands to tune with", most, true, &t->memory, err));
    RP_TRY(write_zeros(t->memory, err));
    return write_zeros(t->engine->stepper.memory[RP_SIDE_DEVICE].arena, err);
}

/* Inputs of zeros stand for token 0 at the sink; all rows are live. */
static rp_status write_inputs(const tuner *t, const rp__program *p, rp_error *err) {
    rp_buffer *inputs = t->engine->stepper.memory[RP_SIDE_DEVICE].inputs;
    const int32_t live[] = {p->bucket.n_tokens, p->bucket.n_rows};
    static const char *const names[] = {"live_tokens", "live_rows"};
    RP_TRY(write_zeros(inputs, err));
    for (int i = 0; i < 2; i++) {
        size_t place = p->slots[rp__program_find(p, names[i])].home[RP_SIDE_DEVICE].place;
        RP_TRY(rp__buffer_write(inputs, place, &live[i], sizeof live[i], err));
    }
    return RP_OK;
}

/* ---- measuring ---- */

static rp_status time_device(const tuner *t, const rp_op *op, int n, double *us, rp_error *err) {
    RP_TRY(rp__device_sync(t->device, err));
    double start = rp__device_clock_us(t->device);
    for (int i = 0; i < n; i++) RP_TRY(rp__device_run(t->device, op, err));
    RP_TRY(rp__device_sync(t->device, err));
    *us = (rp__device_clock_us(t->device) - start) / n;
    return RP_OK;
}

/* Weights are on both sides, and so are inputs. */
static bool is_moved(const tuner *t, const rp_tensor *x) {
    return x->n_dims && x->buffer == t->engine->stepper.memory[RP_SIDE_DEVICE].arena;
}

static rp_status time_host(const tuner *t, const rp_op *op, const rp_op *host, double *us,
                           rp_error *err) {
    RP_TRY(rp__device_sync(t->device, err));
    double start = rp__device_clock_us(t->device);
    for (int i = 0; i < op->n_in; i++)
        if (is_moved(t, &op->in[i]))
            RP_TRY(rp__buffer_transfer(t->memory, host->in[i].offset, op->in[i].buffer,
                                       op->in[i].offset, rp__tensor_span(&op->in[i]), err));
    RP_TRY(rp__device_run(t->host, host, err));
    RP_TRY(rp__device_sync(t->host, err));
    rp__device_clock_host_op(t->device, host);
    for (int i = 0; i < op->n_out; i++)
        if (op->out[i].n_dims)
            RP_TRY(rp__buffer_transfer(op->out[i].buffer, op->out[i].offset, t->memory,
                                       host->out[i].offset, rp__tensor_span(&op->out[i]), err));
    RP_TRY(rp__device_sync(t->device, err));
    *us = rp__device_clock_us(t->device) - start;
    return RP_OK;
}

static rp_status measure_row(const tuner *t, size_t i, rp_error *err) {
    uint32_t n = (uint32_t)t->options->n_pairs;
    double *device = t->samples, *host = t->samples + n, us;
    rp_op on_host;
    host_op_of(t, t->ops[i], &on_host);
    RP_TRY(time_device(t, t->ops[i], 1, &us, err)); /* compiles */
    RP_TRY(time_host(t, t->ops[i], &on_host, &us, err));
    RP_TRY(time_device(t, t->ops[i], 1, &us, err));
    int in_a_row = us > LONG_US ? 1 : IN_A_ROW;
    for (uint32_t k = 0; k < n; k++) {
        RP_TRY(time_device(t, t->ops[i], in_a_row, &device[k], err));
        RP_TRY(time_host(t, t->ops[i], &on_host, &host[k], err));
    }
    t->rows[i].device_us = rp__duel_median(device, n);
    t->rows[i].host_us = rp__duel_median(host, n);
    return RP_OK;
}

static rp_status report(const tuner *t, size_t i, rp_error *err) {
    const rp__tune_row *r = &t->rows[i];
    rp_tune_row row = {.rows = r->rows,
                       .width = r->width,
                       .device_us = r->device_us,
                       .host_us = r->host_us,
                       .is_host = rp__tune_side(r) == RP_SIDE_HOST,
                       .is_simulated = rp__device_props(t->device)->is_simulated};
    snprintf(row.op, sizeof row.op, "%s", rp__op_name(r->kind));
    if (t->options->on_row && t->options->on_row(t->options->user, &row, (int)i, (int)t->n))
        return rp__fail(err, RP_ECANCELLED, "tuning was stopped");
    return RP_OK;
}

static rp_status tune(tuner *t, rp_error *err) {
    rp__tune_about about;
    RP_TRY(rp__placing_about(t->engine->model, &about, err));
    t->host = t->engine->model->host.device;
    RP_TRY(list_ops(t, err));
    RP_TRY(make_memory(t, err));
    for (size_t i = 0; i < t->n; i++) {
        if (!i || t->programs[i] != t->programs[i - 1])
            RP_TRY(write_inputs(t, t->programs[i], err));
        RP_TRY(measure_row(t, i, err));
        RP_TRY(report(t, i, err));
    }
    rp__tune_sort(t->rows, t->n);
    if (rp__tune_write(&about, t->rows, t->n, &t->profile)) return RP_OK;
    return rp__fail(err, RP_ENOMEM, "out of memory for a profile");
}

static rp_status run_job(rp_engine *e, void *arg, rp_error *err) {
    tuner *t = arg;
    rp_status st = tune(t, err);
    e->stepper.n_known = 0; /* the inputs on the device are not a step's any more */
    rp__buffer_destroy(t->memory, NULL);
    return st;
}

rp_status rp_engine_tune(rp_engine *e, const rp_tune_options *o, char **profile, rp_error *err) {
    tuner t = {.options = o, .engine = e, .device = e->device};
    *profile = NULL;
    if (o->n_pairs < 1 || o->n_pairs > MOST_PAIRS)
        return rp__fail(err, RP_EINVAL, "n_pairs is %d, expected 1 to %d", o->n_pairs, MOST_PAIRS);
    if (rp__device_props(e->device)->is_host_memory)
        return rp__fail(err, RP_EUNSUPPORTED,
                        "device %s works in the host's memory: there is nothing to place beside it",
                        rp__device_name(e->device));
    rp_status st = rp__engine_do(e, run_job, &t, err);
    if (st >= 0 && !(*profile = rp__bytes_take(&t.profile)))
        st = rp__fail(err, RP_ENOMEM, "out of memory for a profile");
    rp__bytes_clear(&t.profile);
    rp__free(t.rows);
    rp__free(t.ops);
    rp__free(t.programs);
    rp__free(t.samples);
    return st;
}

/* ---- where it is ---- */

static rp_status find_path(rp_engine *e, void *arg, rp_error *err) {
    rp__tune_about about;
    RP_TRY(rp__placing_about(e->model, &about, err));
    return rp__placing_path(&about, arg) ? RP_OK
                                         : rp__fail(err, RP_ENOMEM, "out of memory for a path");
}

rp_status rp_engine_tune_path(rp_engine *e, char **path, rp_error *err) {
    rp__bytes out = {0};
    rp_status st = rp__engine_do(e, find_path, &out, err);
    *path = st < 0 ? NULL : rp__bytes_take(&out);
    rp__bytes_clear(&out);
    return st;
}
