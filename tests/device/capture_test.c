/* The capture contract, row by row, on every device present. */
#include "device/fixture.h"

#include <string.h>

enum { T = 3, K = 32, N = 8 };

/* A small matmul with numbers that F32 holds exactly, so that its right answer is found with
 * integers. */
typedef struct product {
    rp_buffer *x, *w, *y;
    rp_op op;
    float right[T * N];
} product;

static void write_inputs(product *p, int seed) {
    float x[T * K], w[N * K];
    for (int i = 0; i < T * K; i++) x[i] = (float)((i * 7 + seed) % 11 - 5);
    for (int i = 0; i < N * K; i++) w[i] = (float)((i * 5) % 13 - 6);
    rp_error err = {0};
    put(p->x, x, sizeof x);
    assert_ok(rp__weight_write(&p->op.in[1], 0, N, w, &err), err);
    for (int t = 0; t < T; t++)
        for (int n = 0; n < N; n++) {
            int sum = 0;
            for (int k = 0; k < K; k++) sum += (int)x[t * K + k] * (int)w[n * K + k];
            p->right[t * N + n] = (float)sum;
        }
}

static product make_product(rp_device *dev, bool is_pinned) {
    product p = {.x = NULL};
    p.x = make_buffer(dev, "x", T * K * sizeof(float), is_pinned);
    rp_tensor desc = f32_matrix(NULL, N, K);
    desc.is_weight = 1;
    p.w = make_buffer(dev, "w", rp__weight_bytes(dev, &desc), true);
    p.y = make_buffer(dev, "y", T * N * sizeof(float), true);
    p.op = op_matmul(p.x, p.w, p.y, T, N, K);
    write_inputs(&p, 0);
    return p;
}

static void drop_product(product *p) {
    drop_buffer(p->x);
    drop_buffer(p->w);
    drop_buffer(p->y);
}

static void run(rp_device *dev, const rp_op *op) {
    rp_error err = {0};
    assert_ok(rp__device_run(dev, op, &err), err);
}

static void replay(rp_graph *graph) {
    rp_error err = {0};
    assert_ok(rp__graph_replay(graph, &err), err);
}

static void begin(rp_device *dev) {
    rp_error err = {0};
    assert_ok(rp__capture_begin(dev, &err), err);
}

static void check_right(product *p) {
    float y[T * N];
    get(p->y, y, sizeof y);
    assert_memory_equal(y, p->right, sizeof y);
}

/* Ends a capture that was refused: the refusal again, no graph, and eager results as ever. */
static void end_refused(rp_device *dev, product *p, rp_status code, const char *part) {
    rp_error err = {0};
    rp_graph *graph = (rp_graph *)dev;
    assert_int_equal(rp__capture_end_graph(dev, "refused", &graph, &err), code);
    assert_null(graph);
    assert_message(err, part);
    assert_int_equal(rp__device_get_stats(dev).live_graphs, 0);
    write_inputs(p, 3);
    run(dev, &p->op);
    check_right(p);
    graph = capture_ops(dev, "after", &p->op, 1); /* and the next capture works */
    replay(graph);
    check_right(p);
    rp__graph_destroy(graph);
}

/* ---- what a graph gives ---- */

static void replays_equal_warm(rp_device *dev) {
    product p = make_product(dev, true);
    float warm[T * N], y[T * N];
    run(dev, &p.op);
    check_right(&p);
    get(p.y, warm, sizeof warm);
    rp_graph *graph = capture_ops(dev, "matmul", &p.op, 1);
    check_right(&p); /* the captured step has its result too */
    for (int i = 0; i < 3; i++) {
        fill_i32(p.y, -1);
        replay(graph);
        get(p.y, y, sizeof y);
        assert_memory_equal(y, warm, sizeof y);
    }
    write_inputs(&p, 5);
    replay(graph);
    check_right(&p);
    assert_true(rp__graph_bytes(graph) > 0);
    assert_int_equal(rp__device_get_stats(dev).graph_bytes, rp__graph_bytes(graph));
    size_t bound = rp__graph_bytes_bound(dev, 1);
    assert_true(!bound || rp__graph_bytes(graph) <= bound);
    rp__graph_destroy(graph);
    assert_int_equal(rp__device_get_stats(dev).graph_bytes, 0);
    drop_product(&p);
}
RP_TEST(capture, replays_equal_the_warm_run) {
    on_each_device(replays_equal_warm);
}

static void alternate(rp_device *dev, bool destroys_first_first) {
    rp_buffer *x = make_buffer(dev, "x", 4, true), *y = make_buffer(dev, "y", 4, true);
    rp_op one = op_advance(x, y, 1, 1), ten = op_advance(x, y, 1, 10);
    run(dev, &one);
    run(dev, &ten);
    rp_graph *a = capture_ops(dev, "one", &one, 1), *b = capture_ops(dev, "ten", &ten, 1);
    for (int32_t i = 0; i < 20; i++) {
        fill_i32(x, 100 * i);
        replay(i % 2 ? a : b);
        assert_int_equal(get_i32(y), 100 * i + (i % 2 ? 1 : 10));
    }
    rp__graph_destroy(destroys_first_first ? a : b);
    fill_i32(x, 7);
    replay(destroys_first_first ? b : a);
    assert_int_equal(get_i32(y), destroys_first_first ? 17 : 8);
    rp__graph_destroy(destroys_first_first ? b : a);
    drop_buffer(x);
    drop_buffer(y);
}
static void alternates(rp_device *dev) {
    alternate(dev, true);
    alternate(dev, false);
}
RP_TEST(capture, two_live_graphs_alternate_and_die_in_either_order) {
    on_each_device(alternates);
}

/* Ops of a captured step run exactly once for it: a counter moves by one per step, captured or
 * replayed. */
static void counts_once(rp_device *dev) {
    rp_buffer *x = make_buffer(dev, "position", 4, true);
    rp_op op = op_advance(x, x, 1, 1);
    fill_i32(x, 40);
    run(dev, &op);
    rp_graph *graph = capture_ops(dev, "step", &op, 1);
    assert_int_equal(get_i32(x), 42);
    replay(graph);
    replay(graph);
    assert_int_equal(get_i32(x), 44);
    rp__graph_destroy(graph);
    drop_buffer(x);
}
RP_TEST(capture, captured_step_counts_once) {
    on_each_device(counts_once);
}

static void slot_works(rp_device *dev) {
    rp_error err = {0};
    rp_buffer *x = make_buffer(dev, "x", 4, true);
    rp_op op = op_advance(x, x, 1, 1), other = op_advance(x, x, 1, 100);
    assert_int_equal(rp__replay(dev, &err), RP_ESTATE);
    assert_message(err, "nothing was captured");
    fill_i32(x, 0);
    run(dev, &op);
    run(dev, &other);
    begin(dev);
    run(dev, &op);
    assert_ok(rp__capture_end(dev, &err), err);
    assert_ok(rp__replay(dev, &err), err);
    assert_int_equal(get_i32(x), 103);
    begin(dev);
    run(dev, &other);
    assert_ok(rp__capture_end(dev, &err), err); /* the new one takes the old one's place */
    assert_ok(rp__replay(dev, &err), err);
    assert_int_equal(get_i32(x), 303);
    assert_int_equal(rp__device_get_stats(dev).live_graphs, 1);
    begin(dev);
    assert_int_equal(rp__device_sync(dev, &err), RP_ECAPTURE_HOST);
    assert_int_equal(rp__capture_end(dev, &err),
                     RP_ECAPTURE_HOST); /* and a refused one leaves nothing to replay */
    assert_int_equal(rp__replay(dev, &err), RP_ESTATE);
    rp__capture_drop(dev);
    drop_buffer(x);
}
RP_TEST(capture, single_slot) {
    on_each_device(slot_works);
}

/* ---- refusals ---- */

static void refuses_host(rp_device *dev) {
    rp_error err = {0};
    product p = make_product(dev, true);
    float y[T * N];
    run(dev, &p.op);

    begin(dev);
    run(dev, &p.op);
    assert_int_equal(rp__buffer_read(p.y, 0, y, sizeof y, &err), RP_ECAPTURE_HOST);
    assert_message(err, "\"y\"");
    assert_message(err, "matmul blk.0.attn_q");
    assert_int_equal(rp__device_run(dev, &p.op, &err),
                     RP_ECAPTURE_HOST); /* poisoned: no further op is recorded */
    end_refused(dev, &p, RP_ECAPTURE_HOST, "read of buffer \"y\"");

    begin(dev);
    assert_int_equal(rp__buffer_write(p.x, 0, y, sizeof y, &err), RP_ECAPTURE_HOST);
    end_refused(dev, &p, RP_ECAPTURE_HOST, "write to buffer \"x\"");

    begin(dev);
    run(dev, &p.op);
    assert_int_equal(rp__device_sync(dev, &err), RP_ECAPTURE_HOST);
    end_refused(dev, &p, RP_ECAPTURE_HOST, "sync");

    begin(dev);
    assert_int_equal(rp__weight_write(&p.op.in[1], 0, N, y, &err), RP_ECAPTURE_HOST);
    end_refused(dev, &p, RP_ECAPTURE_HOST, "\"w\"");

    begin(dev);
    assert_int_equal(rp__buffer_copy(p.y, 0, p.x, 0, 4, &err), RP_ECAPTURE_HOST);
    end_refused(dev, &p, RP_ECAPTURE_HOST, "copy to buffer \"y\"");
    drop_product(&p);
}
RP_TEST(capture, refuses_host_access) {
    on_each_device(refuses_host);
}

static void refuses_memory(rp_device *dev) {
    rp_error err = {0};
    product p = make_product(dev, true);
    rp_buffer *spare = make_buffer(dev, "spare", 64, false), *more = spare;
    run(dev, &p.op);
    begin(dev);
    run(dev, &p.op);
    assert_int_equal(rp__buffer_create(dev, "late", 4096, true, &more, &err), RP_ECAPTURE_ALLOC);
    assert_null(more);
    end_refused(dev, &p, RP_ECAPTURE_ALLOC, "allocating buffer \"late\" of 4096 bytes");
    begin(dev);
    assert_int_equal(rp__buffer_destroy(spare, &err), RP_ECAPTURE_ALLOC);
    end_refused(dev, &p, RP_ECAPTURE_ALLOC, "freeing buffer \"spare\"");
    drop_buffer(spare); /* it was not freed before */
    drop_product(&p);
}
RP_TEST(capture, refuses_alloc_and_free) {
    on_each_device(refuses_memory);
}

static void refuses_cold(rp_device *dev) {
    rp_error err = {0};
    product p = make_product(dev, true);
    rp_op other = op_matmul(p.x, p.w, p.y, T - 1, N, K);
    run(dev, &p.op);
    begin(dev);
    assert_int_equal(rp__device_run(dev, &other, &err), RP_ECAPTURE_COLD);
    assert_message(err, "[2, 32] F32");
    assert_message(err, "(input 0 is [2, 32] F32, not [3, 32] F32 as in the last one that is)");
    end_refused(dev, &p, RP_ECAPTURE_COLD, "matmul blk.0.attn_q");
    rp_op advance = op_advance(p.y, p.y, 1, 1);
    begin(dev);
    assert_int_equal(rp__device_run(dev, &advance, &err), RP_ECAPTURE_COLD);
    assert_message(err, "(none of its kind is)");
    end_refused(dev, &p, RP_ECAPTURE_COLD, "advance counter");
    begin(dev);
    assert_int_equal(rp__device_prepare(dev, &other, &err), RP_ECAPTURE_COLD);
    end_refused(dev, &p, RP_ECAPTURE_COLD, "not prepared");
    assert_ok(rp__device_prepare(dev, &other, &err), err);
    rp_graph *graph = capture_ops(dev, "other", &other, 1);
    rp__graph_destroy(graph);
    drop_product(&p);
}
RP_TEST(capture, refuses_cold_ops) {
    on_each_device(refuses_cold);
}

/* T11: what is warm depends on the op and its arguments only, never on how full memory is. */
static void warmth_ignores_memory(rp_device *dev) {
    product p = make_product(dev, true), q = make_product(dev, true);
    run(dev, &p.op);
    if (!strcmp(rp__device_name(dev), "tenstorrent")) /* it takes operands over when they are used */
        run(dev, &q.op);
    rp_buffer *ballast = make_buffer(dev, "ballast", 8 << 20, false);
    rp_graph *graph =
        capture_ops(dev, "elsewhere", &q.op, 1); /* same op, other addresses, less memory free */
    check_right(&q);
    rp__graph_destroy(graph);
    drop_buffer(ballast);
    drop_product(&p);
    drop_product(&q);
}
RP_TEST(capture, t11_warmth_is_op_and_arguments) {
    on_each_device(warmth_ignores_memory);
}

static void refuses_transient(rp_device *dev) {
    rp_error err = {0};
    product p = make_product(dev, true), scratch = make_product(dev, false);
    run(dev, &p.op);
    run(dev, &scratch.op); /* eagerly it may be used */
    check_right(&scratch);
    begin(dev);
    run(dev, &p.op);
    assert_int_equal(rp__device_run(dev, &scratch.op, &err), RP_ECAPTURE_TRANSIENT);
    assert_message(err, "input 0 is in buffer \"x\"");
    end_refused(dev, &p, RP_ECAPTURE_TRANSIENT, "matmul blk.0.attn_q");
    drop_product(&p);
    drop_product(&scratch);
}
RP_TEST(capture, t08_refuses_transient_operands) {
    on_each_device(refuses_transient);
}

static void refuses_wrong_state(rp_device *dev) {
    rp_error err = {0};
    product p = make_product(dev, true);
    rp_graph *graph;
    run(dev, &p.op);
    assert_int_equal(rp__capture_end_graph(dev, "none", &graph, &err), RP_ESTATE);
    assert_message(err, "without a begin");
    assert_int_equal(rp__capture_end(dev, &err), RP_ESTATE);
    rp__capture_abort(dev); /* a no-op here */

    begin(dev);
    run(dev, &p.op);
    assert_int_equal(rp__capture_begin(dev, &err), RP_ESTATE);
    end_refused(dev, &p, RP_ESTATE, "inside a capture, after op 1 (matmul");

    begin(dev);
    assert_int_equal(rp__replay(dev, &err), RP_ESTATE);
    end_refused(dev, &p, RP_ESTATE, "nothing was captured");

    graph = capture_ops(dev, "live", &p.op, 1);
    begin(dev);
    assert_int_equal(rp__graph_replay(graph, &err), RP_ESTATE);
    assert_message(err, "\"live\"");
    rp__capture_abort(dev);
    rp__graph_destroy(graph);

    begin(dev);
    run(dev, &p.op);
    rp__capture_abort(dev); /* drops it; the queue is usable */
    run(dev, &p.op);
    check_right(&p);
    drop_product(&p);
}
RP_TEST(capture, refuses_wrong_state) {
    on_each_device(refuses_wrong_state);
}

static void invalid_op_poisons(rp_device *dev) {
    rp_error err = {0};
    product p = make_product(dev, true);
    rp_op wrong = p.op;
    wrong.out[0].dim[0] = T + 1;
    run(dev, &p.op);
    begin(dev);
    assert_int_equal(rp__device_run(dev, &wrong, &err), RP_EINVAL);
    end_refused(dev, &p, RP_EINVAL, "matmul");
    drop_product(&p);
}
RP_TEST(capture, invalid_op_poisons) {
    on_each_device(invalid_op_poisons);
}

/* A graph destroyed inside a capture is gone, and so is the capture. */
static void destroy_inside_capture(rp_device *dev) {
    product p = make_product(dev, true);
    run(dev, &p.op);
    rp_graph *graph = capture_ops(dev, "old", &p.op, 1);
    begin(dev);
    run(dev, &p.op);
    rp__graph_destroy(graph);
    end_refused(dev, &p, RP_ECAPTURE_ALLOC, "\"old\"");
    drop_product(&p);
}
RP_TEST(capture, graph_destroyed_inside_capture) {
    on_each_device(destroy_inside_capture);
}

static void refuses_free_of_used(rp_device *dev) {
    rp_error err = {0};
    product p = make_product(dev, true);
    run(dev, &p.op);
    rp_graph *a = capture_ops(dev, "decode-4", &p.op, 1),
             *b = capture_ops(dev, "decode-8", &p.op, 1);
    assert_int_equal(p.y->n_graphs, 2);
    assert_int_equal(rp__buffer_destroy(p.y, &err), RP_EBUSY);
    assert_message(err, "buffer \"y\" of 96 bytes is used by graph \"decode-");
    rp__graph_destroy(b);
    assert_int_equal(rp__buffer_destroy(p.w, &err), RP_EBUSY);
    assert_message(err, "decode-4");
    replay(a);
    check_right(&p);
    rp__graph_destroy(a);
    drop_product(&p);
}
RP_TEST(capture, refuses_to_free_what_a_graph_uses) {
    on_each_device(refuses_free_of_used);
}

/* ---- after a replay ---- */

static void mirrors_go_stale(rp_device *dev) {
    rp_error err = {0};
    rp_buffer *x = make_buffer(dev, "x", 4, true), *y = make_buffer(dev, "logits", 8, true);
    rp_op op = op_advance(x, y, 1, 1);
    rp__mirror m;
    const void *data;
    fill_i32(x, 1);
    run(dev, &op);
    rp_graph *graph = capture_ops(dev, "step", &op, 1);
    assert_ok(rp__mirror_init(&m, y, 0, 4, &err), err);
    for (int32_t i = 0; i < 5; i++) {
        fill_i32(x, i);
        uint64_t y_before = y->generation, x_before = x->generation;
        replay(graph);
        assert_true(y->generation > y_before);
        assert_int_equal(x->generation, x_before);
        uint64_t reads = rp__device_get_stats(dev).n_reads;
        for (int again = 0; again < 3; again++) {
            assert_ok(rp__mirror_get(&m, &data, &err), err);
            assert_int_equal(*(const int32_t *)data, i + 1);
        }
        assert_int_equal(rp__device_get_stats(dev).n_reads, reads + 1); /* read once per change */
    }
    rp__mirror_clear(&m);
    rp__graph_destroy(graph);
    drop_buffer(x);
    drop_buffer(y);
}
RP_TEST(capture, host_copies_go_stale_with_a_replay) {
    on_each_device(mirrors_go_stale);
}
