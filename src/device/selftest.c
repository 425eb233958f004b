/* The conformance check of a device: an input written just before a replay is the one the replay
 * sees. Platforms have been found on which it is not, now and then. */
#include "base/fail.h"
#include "device/device.h"
#include "tensor/view.h"

enum { MAX_INTS = 513 }; /* more than a cache line, and no round number */

typedef struct selftest {
    rp_device *dev;
    rp_buffer *in, *out;
    rp_graph *graph; /* NULL: eager */
    rp_op op;
    int64_t n;
    int32_t data[MAX_INTS];
} selftest;

static rp_status check_round(selftest *t, int32_t value, rp_error *err) {
    size_t bytes = (size_t)t->n * sizeof *t->data;
    for (int64_t i = 0; i < t->n; i++) t->data[i] = value;
    RP_TRY(rp__buffer_write(t->in, 0, t->data, bytes, err));
    RP_TRY(t->graph ? rp__graph_replay(t->graph, err) : rp__device_run(t->dev, &t->op, err));
    RP_TRY(rp__buffer_read(t->out, 0, t->data, bytes, err));
    for (int64_t i = 0; i < t->n; i++)
        if (t->data[i] != value)
            return rp__fail(
                err, RP_EDEVICE,
                "device %s fails its self-test: round %d wrote %d, integer %lld of %lld reads %d",
                rp__device_name(t->dev), value, value, (long long)i, (long long)t->n, t->data[i]);
    return RP_OK;
}

static rp_status capture(selftest *t, rp_error *err) {
    if (!rp__device_has_capture(t->dev)) return RP_OK;
    RP_TRY(rp__capture_begin(t->dev, err));
    rp_status status = rp__device_run(t->dev, &t->op, err);
    if (status == RP_OK) return rp__capture_end_graph(t->dev, "self-test", &t->graph, err);
    rp__capture_abort(t->dev);
    return status;
}

static rp_status run_rounds(selftest *t, uint32_t n_rounds, rp_error *err) {
    RP_TRY(rp__buffer_create(t->dev, "self-test in", (size_t)t->n * sizeof *t->data, true, &t->in,
                             err));
    RP_TRY(rp__buffer_create(t->dev, "self-test out", (size_t)t->n * sizeof *t->data, true, &t->out,
                             err));
    t->op = (rp_op){
        .kind = RP_OP_ADVANCE, .n_in = 1, .n_out = 1, .label = "self-test"}; /* by 0: a copy */
    t->op.in[0] = rp__tensor_make(t->in, 0, RP_I32, 1, &t->n);
    t->op.out[0] = rp__tensor_make(t->out, 0, RP_I32, 1, &t->n);
    RP_TRY(check_round(t, -1, err));
    RP_TRY(capture(t, err));
    for (uint32_t i = 0; i < n_rounds; i++) RP_TRY(check_round(t, (int32_t)i, err));
    return RP_OK;
}

static rp_status test_ints(rp_device *dev, int64_t n, uint32_t n_rounds, rp_error *err) {
    selftest t = {.dev = dev, .n = n};
    rp_status status = run_rounds(&t, n_rounds, err);
    rp__graph_destroy(t.graph);
    rp__buffer_destroy(t.in, NULL);
    rp__buffer_destroy(t.out, NULL);
    return status;
}

rp_status rp__device_selftest(rp_device *dev, uint32_t n_rounds, rp_error *err) {
    RP_TRY(test_ints(dev, 1, n_rounds, err));
    return test_ints(dev, MAX_INTS, n_rounds, err);
}
