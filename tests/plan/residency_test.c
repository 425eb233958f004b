/* Which transfers a placement needs, on programs small enough to follow by hand, and that values
 * arrive. */
#include "plan/residency.h"

#include <string.h>

#include "base/alloc.h"
#include "device/emu/emu.h"
#include "plan/replay.h"
#include "tensor/view.h"
#include "test.h"

enum { N = 4, MEMORY = 4096 };

typedef struct bench {
    rp_device_api api;
    rp_device *device;
    rp__host host;
    rp__placement placement;
    rp__program program;
    rp__side_memory memory[RP_N_SIDES];
    rp__replayer replay;
} bench;

/* Emu, but it does not run SCALE. */
static bool supports_less(void *self, const rp_op *op) {
    return op->kind != RP_OP_SCALE && rp__emu_api.supports(self, op);
}

static void open_bench(bench *b, const char *rules) {
    rp_error err = {0};
    rp_device_config c = {.bytes = sizeof c, .options = "fill=ff"};
    *b = (bench){.api = rp__emu_api, .host = {.config = {.bytes = sizeof c, .n_threads = 1}}};
    b->api.supports = supports_less;
    assert_ok(rp__device_open_api(&b->api, &c, &b->device, &err), err);
    assert_ok(rp__placement_add(&b->placement, rules, RP_PLACE_DEVICE_RULE, &err), err);
    rp__program_init(&b->program, b->device, &(rp__bucket){RP_BUCKET_DECODE, 1, 1, 1});
    rp__program_place(&b->program, &b->placement, &b->host);
}

static void close_bench(bench *b) {
    rp__replayer_clear(&b->replay);
    rp__program_clear(&b->program);
    rp__placement_clear(&b->placement);
    for (int s = 0; s < RP_N_SIDES; s++) {
        rp__buffer_destroy(b->memory[s].arena, NULL);
        rp__buffer_destroy(b->memory[s].inputs, NULL);
        rp__buffer_destroy(b->memory[s].outputs, NULL);
    }
    rp__host_close(&b->host);
    rp__device_close(b->device);
}

static void bind(bench *b) {
    rp_error err = {0};
    rp__replay_config policy = {.mode = RP_CAPTURE_ON, .max_graphs = 2};
    for (int s = 0; s < RP_N_SIDES; s++) {
        rp_device *on = s ? b->host.device : b->device;
        if (!on) continue;
        rp_buffer **all[] = {&b->memory[s].arena, &b->memory[s].inputs, &b->memory[s].outputs};
        for (int i = 0; i < 3; i++)
            assert_ok(rp__buffer_create(on, "memory", MEMORY, true, all[i], &err), err);
    }
    assert_ok(rp__program_bind(&b->program, b->memory, &err), err);
    assert_ok(rp__replayer_init(&b->replay, b->device, &policy, &err), err);
}

static void run(bench *b, const float in[N], float out[N]) {
    rp_error err = {0};
    const rp__program *p = &b->program;
    for (int s = 0; s < RP_N_SIDES; s++)
        if (b->memory[s].inputs)
            assert_ok(rp__buffer_write(b->memory[s].inputs, 0, in, N * sizeof *in, &err), err);
    assert_ok(rp__replayer_run(&b->replay, &b->program, 1, &err), err);
    const rp__slot_info *y = &p->slots[rp__program_find(p, "y")];
    assert_ok(rp__buffer_read(b->memory[y->result].outputs, y->home[y->result].place, out,
                              N * sizeof *out, &err),
              err);
}

/* ---- saying programs ---- */

static const int64_t row[] = {1, N};

static rp__slot input(bench *b) {
    return rp__program_input(&b->program, "x", RP_F32, 2, row);
}

static rp__slot output(bench *b) {
    return rp__program_output(&b->program, "y", RP_F32, 2, row);
}

static rp__slot temp(bench *b, const char *name) {
    return rp__program_temp(&b->program, name, RP_F32, 2, row);
}

static void say(bench *b, rp_op op, rp__slot x, rp__slot y) {
    rp__program_op(&b->program, &op, 1, &x, 1, &y);
}

static rp_op scaled(float v) {
    return (rp_op){.kind = RP_OP_SCALE, .label = "scale", .p.scalar.value = v};
}

static const rp_op relu = {.kind = RP_OP_ACT, .label = "relu", .p.act.kind = RP_ACT_RELU},
                   copy = {.kind = RP_OP_CONVERT, .label = "copy"};

/* "d" and "h" for ops, "v" and "^" for transfers down and up. */
static void assert_ops(const bench *b, const char *want) {
    char got[64] = "";
    const rp__program *p = &b->program;
    for (int32_t i = 0; i < p->n_ops; i++)
        got[i] = p->places[i].is_transfer ? (p->places[i].side ? 'v' : '^')
                                          : (p->places[i].side ? 'h' : 'd');
    assert_string_equal(got, want);
}

static void finish(bench *b, const char *want) {
    rp_error err = {0};
    assert_ok(rp__program_finish(&b->program, &err), err);
    assert_ops(b, want);
}

/* Three runs: the second and third replay what the first two warmed, with other inputs. */
static void assert_runs(bench *b, const float in[N], const float want[N]) {
    bind(b);
    for (int i = 1; i <= 5; i++) {
        float x[N], y[N];
        for (int k = 0; k < N; k++) x[k] = in[k] * (float)i;
        run(b, x, y);
        for (int k = 0; k < N; k++) assert_float_equal(y[k], want[k] * (float)i, 1e-5);
    }
}

/* ---- tests ---- */

RP_TEST(residency, down_and_up_again) {
    bench b;
    open_bench(&b, "act=host");
    rp__slot x = input(&b), t = temp(&b, "t"), u = temp(&b, "u"), y = output(&b);
    say(&b, copy, x, t);
    say(&b, relu, t, u);
    say(&b, copy, u, y);
    finish(&b, "dvh^d");
    assert_int_equal(b.program.n_segments, 3);
    assert_int_equal(b.program.traffic.n_uploads, 1);
    assert_int_equal(b.program.traffic.upload_bytes, 16);
    assert_runs(&b, (float[]){-1, 2, -3, 4}, (float[]){0, 2, 0, 4});
    close_bench(&b);
}

/* An input is on both sides already; what is read twice is moved once. */
RP_TEST(residency, moved_once) {
    bench b;
    open_bench(&b, "act=host");
    rp__slot x = input(&b), t = temp(&b, "t"), u = temp(&b, "u"), v = temp(&b, "v"), y = output(&b);
    rp_op add = {.kind = RP_OP_ADD, .label = "add"};
    say(&b, relu, x, t);
    rp__program_op(&b.program, &add, 2, (rp__slot[]){t, x}, 1, &u);
    say(&b, relu, t, v); /* t is still good on the host */
    rp__program_op(&b.program, &add, 2, (rp__slot[]){u, v}, 1, &y);
    finish(&b, "h^dh^d");
    assert_runs(&b, (float[]){-1, 2, -3, 4}, (float[]){-1, 6, -3, 12});
    close_bench(&b);
}

/* What the host made and only the host reads stays there; uploads come after the whole run. */
RP_TEST(residency, runs_of_host_ops) {
    bench b;
    open_bench(&b, "act=host");
    rp__slot x = input(&b), t = temp(&b, "t"), u = temp(&b, "u"), y = output(&b);
    say(&b, relu, x, t);
    say(&b, relu, t, u);
    say(&b, copy, u, y);
    finish(&b, "hh^d");
    assert_runs(&b, (float[]){-1, 2, -3, 4}, (float[]){0, 2, 0, 4});
    close_bench(&b);
}

RP_TEST(residency, a_result_is_read_where_it_was_made) {
    bench b;
    open_bench(&b, "act=host");
    rp__slot x = input(&b), t = temp(&b, "t"), y = output(&b);
    say(&b, copy, x, t);
    say(&b, relu, t, y);
    finish(&b, "dvh");
    assert_int_equal(b.program.slots[y].result, RP_SIDE_HOST);
    assert_runs(&b, (float[]){-1, 2, -3, 4}, (float[]){0, 2, 0, 4});
    close_bench(&b);
}

/* Half of t is written on the host, the other half was on the device: all of it goes down before.
 */
RP_TEST(residency, a_part_keeps_the_rest) {
    bench b;
    open_bench(&b, "act=host");
    rp__slot x = input(&b), t = temp(&b, "t"), y = output(&b);
    rp__slot half = rp__program_columns(&b.program, t, 0, N / 2, 0);
    say(&b, copy, x, t);
    say(&b, relu, half, half);
    say(&b, copy, t, y);
    finish(&b, "dvh^d");
    assert_runs(&b, (float[]){-1, 2, -3, 4}, (float[]){0, 2, -3, 4});
    close_bench(&b);
}

/* The device changes an input in place: the host's copy of it is stale. */
RP_TEST(residency, an_input_changed_on_the_device_is_fetched) {
    bench b;
    open_bench(&b, "act=host");
    rp__slot x = input(&b), t = temp(&b, "t"), y = output(&b);
    say(&b, relu, x, t);
    say(&b, copy, x, x);
    say(&b, relu, x, y);
    finish(&b, "hdvh");
    assert_runs(&b, (float[]){-1, 2, -3, 4}, (float[]){0, 2, 0, 4});
    close_bench(&b);
}

RP_TEST(residency, unsupported_ops_go_to_the_host_and_say_so) {
    bench b;
    open_bench(&b, "");
    rp__slot x = input(&b), t = temp(&b, "t"), u = temp(&b, "u"), y = output(&b);
    say(&b, copy, x, t);
    say(&b, scaled(3), t, u);
    say(&b, copy, u, y);
    finish(&b, "dvh^d");
    assert_int_equal(b.program.places[2].why, RP_PLACE_UNSUPPORTED);
    rp__bytes text = {0};
    assert_true(rp__program_explain(&b.program, true, &text));
    assert_non_null(strstr(text.p, "[the device does not run it]"));
    rp__bytes_clear(&text);
    assert_runs(&b, (float[]){-1, 2, -3, 4}, (float[]){-3, 6, -9, 12});
    close_bench(&b);
}

RP_TEST(residency, without_a_host_unsupported_is_refused) {
    bench b;
    rp_error err = {0};
    open_bench(&b, "");
    rp__program_place(&b.program, NULL, NULL);
    rp__slot x = input(&b), y = output(&b);
    say(&b, scaled(3), x, y);
    assert_int_equal(rp__program_finish(&b.program, &err), RP_EUNSUPPORTED);
    assert_message(err, "device emu does not run scale");
    close_bench(&b);
}

RP_TEST(residency, every_allocation_may_fail) {
    for (uint64_t n = 1;; n++) {
        bench b;
        rp_error err = {0};
        open_bench(&b, "act=host");
        rp__alloc_fail_at(n, false);
        rp__slot x = input(&b), t = temp(&b, "t"), u = temp(&b, "u"), y = output(&b);
        say(&b, copy, x, t);
        say(&b, relu, t, u);
        say(&b, copy, u, y);
        rp_status st = rp__program_finish(&b.program, &err);
        rp__alloc_fail_at(0, false);
        close_bench(&b);
        if (st == RP_OK) break;
        assert_int_equal(st, RP_ENOMEM);
    }
}
