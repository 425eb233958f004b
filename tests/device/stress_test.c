/* Capture and replay under load: long runs, hostile allocators, other threads, and random calls
 * against a model of the contract. */
#include "device/fixture.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "device/device_impl.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum {
    SLOWER = 10
}; /* sanitized builds look for races and stray accesses: fewer rounds find them as well */
#else
enum { SLOWER = 1 };
#endif

/* ---- T19: an input written just before a replay is the one that the replay sees ---- */

static void t19(const char *name, const char *options) {
    rp_error err = {0};
    rp_device *dev = open_named(name, options);
    assert_ok(rp__device_selftest(dev, 50000 / SLOWER, &err), err); /* of 1 and of 513 integers */
    assert_int_equal(rp__device_get_stats(dev).n_captures, rp__device_has_capture(dev) ? 2 : 0);
    assert_int_equal(rp__device_get_stats(dev).live_bytes, 0);
    close_clean(dev);
}
RP_TEST(stress, t19_every_input_is_seen_emu) {
    t19("emu", "bodies=reference");
}
RP_TEST(stress, t19_every_input_is_seen_cpu) {
    for (size_t i = 0; rp__device_name_at(i); i++)
        if (!strcmp(rp__device_name_at(i), "cpu")) {
            t19("cpu", NULL);
            return;
        }
    RP_SKIP("cpu is not built in");
}

/* A device that gives back an older input now and then must be found out. */
static int n_writes;
static rp_status write_late(void *self, uint32_t queue, void *handle, size_t offset,
                            const void *src, size_t n, rp_error *err) {
    if (++n_writes == 20) return RP_OK; /* this one is lost */
    return rp__emu_api.write(self, queue, handle, offset, src, n, err);
}
RP_TEST(stress, t19_selftest_sees_a_stale_input) {
    rp_error err = {0};
    rp_device_api api = rp__emu_api;
    rp_device *dev;
    api.write = write_late;
    n_writes = 0;
    assert_ok(rp__device_open_api(&api, NULL, &dev, &err), err);
    assert_int_equal(rp__device_selftest(dev, 100, &err), RP_EDEVICE);
    assert_message(err, "round 18 wrote 18, integer 0 of 1 reads 17");
    rp__device_close(dev);
    dev = open_emu("capture=0");
    assert_ok(rp__device_selftest(dev, 10, &err), err);
    close_clean(dev);
}

/* ---- T08: work of other shapes between replays, on memory that is freed and taken again ---- */

enum { K = 32, N = 16 };

static void fill_floats(rp_buffer *buf, uint64_t seed) {
    float data[64 * K];
    size_t n = buf->bytes / sizeof(float);
    for (size_t i = 0; i < n; i++) data[i] = rp_test_randf(&seed);
    put(buf, data, buf->bytes);
}

static void prefill(rp_device *dev, rp_buffer *w, int64_t rows) {
    rp_error err = {0};
    rp_buffer *x = make_buffer(dev, "prefill x", (size_t)rows * K * 4, false);
    rp_buffer *y = make_buffer(dev, "prefill y", (size_t)rows * N * 4, false);
    rp_op op = op_matmul(x, w, y, rows, N, K);
    float some[N];
    fill_floats(x, (uint64_t)rows);
    assert_ok(rp__device_run(dev, &op, &err), err);
    get(y, some, sizeof some);
    drop_buffer(x);
    drop_buffer(y);
}

static void decode_beside_prefill(rp_device *dev) {
    if (rp__device_props(dev)->hides_temporaries) return; /* allocates beside a live graph */
    rp_error err = {0};
    rp_buffer *x = make_buffer(dev, "x", K * 4, true), *y = make_buffer(dev, "y", N * 4, true);
    rp_buffer *eager = make_buffer(dev, "eager y", N * 4, true);
    float weights[N * K], right[N], found[N];
    rp_tensor desc = op_matmul(x, x, y, 1, N, K).in[1];
    desc.buffer = NULL;
    rp_buffer *w = make_buffer(dev, "w", rp__weight_bytes(dev, &desc), true);
    rp_op op = op_matmul(x, w, y, 1, N, K), check = op_matmul(x, w, eager, 1, N, K);
    uint64_t seed = 9;
    for (int i = 0; i < N * K; i++) weights[i] = rp_test_randf(&seed);
    assert_ok(rp__weight_write(&op.in[1], 0, N, weights, &err), err);
    fill_floats(x, 1);
    assert_ok(rp__device_run(dev, &op, &err), err);
    rp_graph *graph = capture_ops(dev, "decode", &op, 1);
    for (int i = 0; i < 100; i++) {
        prefill(dev, w, 1 + 2 * (i % 30)); /* odd lengths */
        fill_floats(x, (uint64_t)i + 1);
        assert_ok(rp__device_run(dev, &check, &err), err);
        assert_ok(rp__graph_replay(graph, &err), err);
        get(eager, right, sizeof right);
        get(y, found, sizeof found);
        assert_memory_equal(found, right, sizeof right);
    }
    rp__graph_destroy(graph);
    drop_buffer(x);
    drop_buffer(y);
    drop_buffer(eager);
    drop_buffer(w);
}
RP_TEST(stress, t08_decode_replays_between_prefills) {
    on_each_device(decode_beside_prefill);
}

/* ---- two live graphs, and memory that comes and goes between their replays ---- */

enum { MAX_NEIGHBOURS = 24, A_INTS = 64, B_INTS = 513 };

typedef struct neighbour {
    rp_buffer *buf;
    int32_t pattern;
} neighbour;

typedef struct town {
    rp_device *dev;
    uint64_t seed;
    rp_buffer *a, *b;
    rp_graph *step_a, *step_b;
    int32_t count_a, count_b; /* what the buffers must hold */
    neighbour near[MAX_NEIGHBOURS];
    int n_near, n_refused, n_taken;
    bool is_intact;
} town;

static void check_all(town *t, rp_buffer *buf, int32_t value) {
    int32_t data[1024];
    get(buf, data, buf->bytes);
    for (size_t i = 0; i < buf->bytes / 4; i++)
        if (data[i] != value) t->is_intact = false;
}

static void move_in(town *t) {
    rp_error err = {0};
    neighbour *n = &t->near[t->n_near];
    size_t bytes = 4 * (1 + rp_test_rand(&t->seed) % 1024);
    rp_status status =
        rp__buffer_create(t->dev, "neighbour", bytes, rp_test_rand(&t->seed) & 1, &n->buf, &err);
    if (status == RP_EBUSY && rp__device_props(t->dev)->hides_temporaries) {
        t->n_refused++;
        return;
    }
    assert_ok(status, err);
    n->pattern = (int32_t)rp_test_rand(&t->seed);
    fill_i32(n->buf, n->pattern);
    t->n_near++;
    t->n_taken++;
}

static void move_out(town *t) {
    int i = (int)(rp_test_rand(&t->seed) % (uint64_t)t->n_near);
    check_all(t, t->near[i].buf, t->near[i].pattern);
    drop_buffer(t->near[i].buf);
    t->near[i] = t->near[--t->n_near];
}

static void check_town(town *t) {
    check_all(t, t->a, t->count_a);
    check_all(t, t->b, t->count_b);
    for (int i = 0; i < t->n_near; i++) check_all(t, t->near[i].buf, t->near[i].pattern);
}

static void settle(town *t) {
    rp_error err = {0};
    t->is_intact = true;
    for (int i = 0; i < MAX_NEIGHBOURS / 2; i++) move_in(t);
    t->a = make_buffer(t->dev, "a", A_INTS * 4, true);
    t->b = make_buffer(t->dev, "b", B_INTS * 4, true);
    rp_op a = op_advance(t->a, t->a, A_INTS, 1), b = op_advance(t->b, t->b, B_INTS, 3);
    fill_i32(t->a, 0);
    fill_i32(t->b, 0);
    assert_ok(rp__device_run(t->dev, &a, &err), err);
    assert_ok(rp__device_run(t->dev, &b, &err), err);
    t->step_a = capture_ops(t->dev, "step a", &a, 1);
    t->step_b = capture_ops(t->dev, "step b", &b, 1);
    t->count_a = 2, t->count_b = 6;
}

static void leave(town *t) {
    check_town(t);
    rp__graph_destroy(t->step_a);
    rp__graph_destroy(t->step_b);
    drop_buffer(t->a);
    drop_buffer(t->b);
    while (t->n_near) drop_buffer(t->near[--t->n_near].buf);
}

static town live(rp_device *dev, uint64_t seed, int rounds) {
    rp_error err = {0};
    town t = {.dev = dev, .seed = seed};
    settle(&t);
    for (int i = 0; i < rounds; i++) {
        uint64_t dice = rp_test_rand(&t.seed) % 4;
        if (dice == 0 && t.n_near < MAX_NEIGHBOURS) move_in(&t);
        if (dice == 1 && t.n_near) move_out(&t);
        if (dice & 1) {
            assert_ok(rp__graph_replay(t.step_a, &err), err);
            t.count_a += 1;
        } else {
            assert_ok(rp__graph_replay(t.step_b, &err), err);
            t.count_b += 3;
        }
        if (i % 100 == 99) check_town(&t);
    }
    leave(&t);
    return t;
}

static void contents_stay(rp_device *dev) {
    int n_refused = 0, n_taken = 0;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        town t = live(dev, seed, 1000 / SLOWER);
        assert_true(t.is_intact);
        n_refused += t.n_refused;
        n_taken += t.n_taken;
        assert_int_equal(rp__device_get_stats(dev).live_bytes, 0);
    }
    assert_true(n_taken > 20 * MAX_NEIGHBOURS / 2); /* memory that was parked is taken over */
    assert_int_equal(n_refused > 0, rp__device_props(dev)->hides_temporaries);
}
RP_TEST(stress, two_graphs_and_moving_neighbours) {
    on_each_device(contents_stay);
}

/* The same with the layer's protection switched off: the contents must be seen to break, or the
 * test above could not fail. */
RP_TEST(stress, unprotected_neighbours_are_overwritten) {
    bool is_intact = true;
    for (uint64_t seed = 1; seed <= 20 && is_intact; seed++) {
        rp_device *dev = open_emu("bodies=reference,hidden_temporaries=1");
        dev->is_unprotected = true;
        is_intact = live(dev, seed, 1000 / SLOWER).is_intact;
        rp__device_close(dev);
    }
    assert_false(is_intact);
}

/* ---- T17: another thread works on another device meanwhile ---- */

typedef struct other_thread {
    const char *failed; /* what went wrong, or NULL */
    _Atomic bool is_done;
} other_thread;

static const char *one_life(void) {
    rp_device *dev;
    rp_buffer *x = NULL, *w = NULL;
    int32_t zero[64] = {0};
    rp_device_config config = {.bytes = sizeof config, .options = "bodies=reference"};
    if (rp__device_open("emu", &config, &dev, NULL) < 0) return "open";
    const char *failed = NULL;
    for (int i = 0; i < 10 && !failed; i++) {
        if (rp__buffer_create(dev, "x", 256, true, &x, NULL) < 0 ||
            rp__buffer_create(dev, "w", 4096, true, &w, NULL) < 0)
            failed = "alloc";
        else if (rp__buffer_write(x, 0, zero, sizeof zero, NULL) < 0)
            failed = "write";
        rp_op op = x ? op_advance(x, x, 64, 1) : (rp_op){0};
        if (!failed && rp__device_run(dev, &op, NULL) < 0) failed = "run";
        if (!failed && rp__device_sync(dev, NULL) < 0) failed = "sync";
        rp__buffer_destroy(x, NULL);
        rp__buffer_destroy(w, NULL);
    }
    rp__device_close(dev);
    return failed;
}

static void *other_main(void *arg) {
    other_thread *o = arg;
    for (int i = 0; i < 100 && !o->failed; i++) o->failed = one_life();
    o->is_done = true;
    return NULL;
}

static void capture_beside_thread(rp_device *dev) {
    rp_error err = {0};
    rp_buffer *x = make_buffer(dev, "x", 4, true);
    rp_op op = op_advance(x, x, 1, 1);
    fill_i32(x, 0);
    assert_ok(rp__device_run(dev, &op, &err), err);
    int32_t right = 1;
    other_thread other = {.failed = NULL};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, other_main, &other), 0);
    while (!other.is_done) {
        rp_op ops[3] = {op, op, op};
        rp_graph *graph = capture_ops(dev, "beside", ops, 3);
        assert_ok(rp__graph_replay(graph, &err), err);
        right += 6;
        assert_int_equal(get_i32(x), right);
        rp__graph_destroy(graph);
    }
    pthread_join(thread, NULL);
    assert_null(other.failed);
    drop_buffer(x);
}
RP_TEST(stress, t17_other_threads_do_not_break_a_capture) {
    on_each_device(capture_beside_thread);
}

/* ---- random calls against a model of the contract ---- */

typedef enum call {
    BEGIN,
    END,
    ABORT,
    RUN,
    RUN_COLD,
    RUN_TRANSIENT,
    READ,
    WRITE,
    SYNC,
    CREATE,
    FREE,
    FREE_USED,
    REPLAY,
    DESTROY,
    N_CALLS
} call;

typedef struct chaos {
    rp_device *dev;
    uint64_t seed;
    rp_buffer *pinned, *loose, *spare;
    rp_graph *graph;
    int64_t next_cold;
    /* the model: what the contract says */
    bool is_capturing;
    rp_status poison; /* 0: none */
    int n_captured;   /* ops in the capture */
    int n_graph_ops;  /* ops in the live graph; -1: none */
    int32_t value;    /* of pinned[0] */
    bool is_value_known;
} chaos;

/* What the contract answers to a call that is refused while capturing. */
static rp_status poisoned_by(chaos *c, rp_status code) {
    if (!c->is_capturing) return RP_OK;
    if (!c->poison) c->poison = code;
    return code;
}

static rp_status expect_run(chaos *c, rp_status refusal) {
    if (!c->is_capturing) return RP_OK;
    if (c->poison) return c->poison;
    if (refusal) c->poison = refusal;
    return refusal;
}

static void run_op(chaos *c, rp_op op, rp_status refusal) {
    rp_error err = {0};
    rp_status want = expect_run(c, refusal);
    assert_int_equal(rp__device_run(c->dev, &op, &err), want);
    if (want) return;
    if (c->is_capturing)
        c->n_captured++;
    else if (op.out[0].buffer == c->pinned)
        c->value++;
}

static void end_capture(chaos *c) {
    rp_error err = {0};
    rp_graph *graph;
    rp_status want = c->is_capturing ? c->poison : RP_ESTATE;
    assert_int_equal(rp__capture_end_graph(c->dev, "chaos", &graph, &err), want);
    if (!c->is_capturing) return;
    c->is_capturing = false;
    if (want) {
        c->is_value_known = false; /* a poisoned capture leaves what its ops wrote undefined */
        return;
    }
    c->value += c->n_captured;
    rp__graph_destroy(c->graph);
    c->graph = graph;
    c->n_graph_ops = c->n_captured;
}

static void replay_or_destroy(chaos *c, bool replays) {
    rp_error err = {0};
    if (!c->graph) return;
    if (replays) {
        rp_status want = poisoned_by(c, RP_ESTATE);
        assert_int_equal(rp__graph_replay(c->graph, &err), want);
        if (!want) c->value += c->n_graph_ops;
        return;
    }
    rp__graph_destroy(c->graph);
    poisoned_by(c, RP_ECAPTURE_ALLOC);
    c->graph = NULL;
    c->n_graph_ops = -1;
}

static void touch_host(chaos *c, call what) {
    rp_error err = {0};
    int32_t v = (int32_t)(rp_test_rand(&c->seed) % 1000);
    rp_status want = poisoned_by(c, RP_ECAPTURE_HOST);
    if (what == SYNC) {
        assert_int_equal(rp__device_sync(c->dev, &err), want);
    } else if (what == WRITE) {
        assert_int_equal(rp__buffer_write(c->pinned, 0, &v, 4, &err), want);
        if (!want) c->value = v, c->is_value_known = true;
    } else {
        assert_int_equal(rp__buffer_read(c->pinned, 0, &v, 4, &err), want);
        if (!want && c->is_value_known) assert_int_equal(v, c->value);
    }
}

static void touch_memory(chaos *c, call what) {
    rp_error err = {0};
    bool is_frozen = rp__device_props(c->dev)->hides_temporaries && c->graph;
    if (what == FREE_USED) {
        bool is_used = c->graph && c->n_graph_ops > 0;
        if (!c->is_capturing && !is_used) return; /* it would be freed, and is needed */
        rp_status want = c->is_capturing ? poisoned_by(c, RP_ECAPTURE_ALLOC) : RP_EBUSY;
        assert_int_equal(rp__buffer_destroy(c->pinned, &err), want);
    } else if (what == CREATE && !c->spare) {
        rp_status want = c->is_capturing ? poisoned_by(c, RP_ECAPTURE_ALLOC)
                         : is_frozen     ? RP_EBUSY
                                         : RP_OK;
        assert_int_equal(rp__buffer_create(c->dev, "spare", 4096, true, &c->spare, &err), want);
    } else if (what == FREE && c->spare) {
        rp_status want = poisoned_by(c, RP_ECAPTURE_ALLOC);
        assert_int_equal(rp__buffer_destroy(c->spare, &err), want);
        if (is_frozen && !want) {
            /* Parked: as long as the graph lives, exactly this memory can be had again. */
            assert_ok(rp__buffer_create(c->dev, "spare", 4096, true, &c->spare, &err), err);
        } else if (!want) {
            c->spare = NULL;
        }
    }
}

static void one_call(chaos *c, call what) {
    rp_error err = {0};
    switch (what) {
    case BEGIN: {
        rp_status want = poisoned_by(c, RP_ESTATE);
        assert_int_equal(rp__capture_begin(c->dev, &err), want);
        if (!c->is_capturing) c->is_capturing = true, c->poison = RP_OK, c->n_captured = 0;
        break;
    }
    case END:
        end_capture(c);
        break;
    case ABORT:
        rp__capture_abort(c->dev);
        if (c->is_capturing) c->is_value_known = false;
        c->is_capturing = false;
        break;
    case RUN:
        run_op(c, op_advance(c->pinned, c->pinned, 1, 1), RP_OK);
        break;
    case RUN_COLD:
        run_op(c, op_advance(c->loose, c->loose, c->next_cold++ % 1000 + 2, 1), RP_ECAPTURE_COLD);
        break;
    case RUN_TRANSIENT:
        run_op(c, op_advance(c->loose, c->loose, 1, 1), RP_ECAPTURE_TRANSIENT);
        break;
    case READ:
    case WRITE:
    case SYNC:
        touch_host(c, what);
        break;
    case CREATE:
    case FREE:
    case FREE_USED:
        touch_memory(c, what);
        break;
    case REPLAY:
        replay_or_destroy(c, true);
        break;
    case DESTROY:
        replay_or_destroy(c, false);
        break;
    case N_CALLS:
        break;
    }
}

static void random_calls(rp_device *dev) {
    rp_error err = {0};
    for (uint64_t seed = 1; seed <= 20; seed++) {
        chaos c = {.dev = dev, .seed = seed, .n_graph_ops = -1};
        c.pinned = make_buffer(dev, "pinned", 4, true);
        c.loose = make_buffer(dev, "loose", 4096, false);
        rp_op warm = op_advance(c.pinned, c.pinned, 1, 1);
        c.next_cold = (int64_t)(seed - 1) * 45; /* sizes that no earlier seed has warmed */
        assert_ok(rp__device_run(dev, &warm, &err), err);
        for (int i = 0; i < 800; i++) {
            call what = (call)(rp_test_rand(&c.seed) % N_CALLS);
            if (what == RUN_COLD && rp_test_rand(&c.seed) % 4) what = RUN; /* sizes run out */
            one_call(&c, what);
        }
        rp__capture_abort(dev);
        rp__graph_destroy(c.graph);
        drop_buffer(c.pinned);
        drop_buffer(c.loose);
        drop_buffer(c.spare);
    }
}
RP_TEST(stress, random_calls_follow_the_contract) {
    on_each_device(random_calls);
}
