/* The corpus on a device, through the device layer. Variant 0 runs the op eagerly; variant 1
 * captures it, writes the operands anew and replays, so that only the replay can have made the
 * results. */
#include "op/corpus.h"
#include "tensor/view.h"

typedef struct device_buffers {
    rp_buffer *in[RP_OP_MAX_IN], *out[RP_OP_MAX_OUT], *live;
} device_buffers;

static rp_device *device_of(const corpus_machine *m) {
    return m->user;
}

static rp_status write_operand(rp_device *dev, const corpus_image *image, rp_tensor *t,
                               rp_buffer **buf, rp_error *err) {
    rp_status st = RP_OK;
    if (!t->is_weight) {
        if (!*buf) st = rp__buffer_create(dev, "corpus operand", image->n, true, buf, err);
        t->buffer = *buf;
        return st < 0 ? st : rp__buffer_write(*buf, 0, image->bytes, image->n, err);
    }
    t->buffer = NULL;
    size_t bytes = rp__weight_bytes(dev, t);
    if (!*buf) st = rp__buffer_create(dev, "corpus weight", bytes, true, buf, err);
    t->buffer = *buf;
    return st < 0 ? st : rp__weight_write(t, 0, rp__tensor_rows(t), image->bytes, err);
}

/* Makes the buffers that are not there yet and fills all: an op in place has one buffer for both.
 */
static rp_status write_operands(rp_device *dev, corpus_placed *p, device_buffers *b,
                                rp_error *err) {
    rp_status st = RP_OK;
    for (int j = 0; st >= 0 && j < p->op.n_in; j++)
        if (p->op.in[j].n_dims) st = write_operand(dev, &p->in[j], &p->op.in[j], &b->in[j], err);
    for (int i = 0; st >= 0 && i < p->op.n_out; i++) {
        int alias = p->of->out[i].alias;
        if (alias >= 0)
            p->op.out[i].buffer = b->in[alias];
        else if (p->op.out[i].n_dims)
            st = write_operand(dev, &p->out[i], &p->op.out[i], &b->out[i], err);
    }
    if (st < 0 || !p->op.live.n_dims) return st;
    if (!b->live) st = rp__buffer_create(dev, "corpus live", sizeof p->n_live, true, &b->live, err);
    p->op.live.buffer = b->live;
    return st < 0 ? st : rp__buffer_write(b->live, 0, &p->n_live, sizeof p->n_live, err);
}

static rp_status read_outputs(corpus_placed *p, rp_error *err) {
    rp_status st = RP_OK;
    for (int i = 0; st >= 0 && i < p->op.n_out; i++)
        if (p->op.out[i].n_dims)
            st = rp__buffer_read(p->op.out[i].buffer, 0, p->out[i].bytes, p->out[i].n, err);
    return st;
}

static rp_status capture(rp_device *dev, const rp_op *op, rp_graph **graph, rp_error *err) {
    rp_status st = rp__capture_begin(dev, err);
    if (st < 0) return st;
    st = rp__device_run(dev, op, err);
    if (st >= 0) return rp__capture_end_graph(dev, "corpus", graph, err);
    rp__capture_abort(dev);
    return st;
}

static rp_status run_on_device(corpus_machine *m, corpus_placed *p, int variant, rp_error *err) {
    rp_device *dev = device_of(m);
    device_buffers b = {0};
    rp_graph *graph = NULL;
    rp_status st = write_operands(dev, p, &b, err);
    if (st >= 0) st = rp__device_prepare(dev, &p->op, err);
    if (variant == 0) {
        if (st >= 0) st = rp__device_run(dev, &p->op, err);
    } else {
        /* Where nothing may be allocated beside graphs, operands come to the device before one. */
        if (st >= 0 && rp__device_props(dev)->hides_temporaries)
            st = rp__device_run(dev, &p->op, err);
        if (st >= 0) st = capture(dev, &p->op, &graph, err);
        if (st >= 0) st = write_operands(dev, p, &b, err);
        if (st >= 0) st = rp__graph_replay(graph, err);
    }
    if (st >= 0) st = read_outputs(p, err);
    rp__graph_destroy(graph);
    for (int j = 0; j < RP_OP_MAX_IN; j++) rp__buffer_destroy(b.in[j], NULL);
    for (int i = 0; i < RP_OP_MAX_OUT; i++) rp__buffer_destroy(b.out[i], NULL);
    rp__buffer_destroy(b.live, NULL);
    return st;
}

static bool device_supports(corpus_machine *m, const rp_op *op) {
    return rp__device_supports(device_of(m), op);
}

void rp_corpus_run(rp_device *dev, const rp_corpus_options *options, rp_corpus_result *out) {
    const rp_device_properties *props = rp__device_props(dev);
    corpus_machine m = {
        .name = rp__device_name(dev),
        .user = dev,
        .precision = options ? options->precision : CORPUS_FLOAT,
        .coarse = options ? options->coarse : (corpus_coarse){0},
        .honours_live = props->has_live_rows,
        .alignment = props->alignment,
        .n_variants = rp__device_has_capture(dev) ? 2 : 1,
        .supports = device_supports,
        .run = run_on_device,
    };
    rp_corpus_run_machine(&m, options ? options->filter : NULL, out);
}
