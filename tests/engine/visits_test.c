/* Several steps of greedy answers in one visit of the host: the answers are those of step by step,
 * wherever they end, and tokens cross once per visit. */
#include "device/device.h"
#include "engine/answer.h"
#include "engine/engine_impl.h"
#include "test.h"

enum { N_NEW = 23, VISIT = 4 };

static rp_engine_options visiting(const char *options, int steps) {
    rp_engine_options o = rp_engine_options_default();
    o.device = "emu";
    o.device_options = options;
    o.scheduler_steps = steps;
    o.max_seqs = 3;
    o.max_batch_tokens = 32;
    o.block_size = 8; /* several per answer */
    o.n_ctx = 64;
    return o;
}

/* Each with a prompt and a length of its own; memory for the ids is the caller's. */
static rp_request_options greedy(int i, int32_t ids[8]) {
    rp_request_options o = rp_request_options_default();
    for (int k = 0; k < 8; k++) ids[k] = (i * 31 + k * 7) % 250;
    o.prompt_ids = ids;
    o.n_prompt_ids = 3 + (size_t)i;
    o.max_tokens = N_NEW - 3 * i;
    o.ignore_eos = true;
    o.sampling.temperature = 0;
    return o;
}

static void answer_one(rp_engine *e, rp_request_options o, rp_answer *a) {
    int32_t ids[8];
    rp_request_options whole = greedy(0, ids);
    o.prompt_ids = ids;
    o.n_prompt_ids = whole.n_prompt_ids;
    rp_answer_of(e, &o, a);
}

static void answer_together(rp_engine *e, int n, rp_answer *a) {
    rp_request *r[3];
    int32_t ids[3][8];
    for (int i = 0; i < n; i++) {
        rp_request_options o = greedy(i, ids[i]);
        r[i] = rp_answer_submit(e, &o);
    }
    for (int i = 0; i < n; i++) {
        rp_answer_take(r[i], &a[i]);
        rp_request_release(r[i]);
    }
}

static const char *const devices[] = {
    "picks=1,advance=1",
    "picks=1,advance=1,live_rows=0,fill=ff",
    "picks=1,advance=1,prompt_align=16,record=only",
    "picks=1,advance=1,capture=0",
};
enum { N_DEVICES = sizeof devices / sizeof *devices };

RP_TEST(visits, answers_are_those_of_step_by_step) {
    static rp_answer plain[3], found[3];
    rp_engine *e = rp_answer_engine(visiting("", 1));
    answer_together(e, 3, plain);
    rp_engine_destroy(e);
    for (int i = 0; i < N_DEVICES; i++)
        for (int steps = 2; steps <= 64; steps *= 2) {
            rp_engine_options o = visiting(devices[i], steps);
            o.capture = i % 2 ? RP_CAPTURE_AUTO : RP_CAPTURE_ON;
            e = rp_answer_engine(o);
            for (int round = 0; round < 2; round++) {
                answer_together(e, 3, found);
                for (int k = 0; k < 3; k++) {
                    rp_answer_assert_same(&found[k], &plain[k]);
                    assert_int_equal(found[k].finish, RP_FINISH_LENGTH);
                    assert_int_equal(found[k].usage.n_generated, N_NEW - 3 * k);
                }
            }
            rp_engine_destroy(e);
        }
}

/* Whatever stands on the host, which does not have what the device fed itself. */
RP_TEST(visits, ops_on_the_host_make_visits_of_one) {
    static const char *const rules[] = {"norm=host", "feed=host", "argmax=host advance=host",
                                        "embed=host", "kv_write=host"};
    static rp_answer plain[3], found[3];
    rp_engine *e = rp_answer_engine(visiting("", 1));
    answer_together(e, 3, plain);
    rp_engine_destroy(e);
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        rp_engine_options o = visiting(devices[i % 2], VISIT);
        o.place = rules[i];
        o.capture = RP_CAPTURE_ON;
        e = rp_answer_engine(o);
        answer_together(e, 3, found);
        for (int k = 0; k < 3; k++) rp_answer_assert_same(&found[k], &plain[k]);
        assert_int_equal(e->stepper.n_steps, 1);
        rp_engine_destroy(e);
    }
}

static void check_same_end(rp_engine *one, rp_engine *e, const rp_request_options *o) {
    static rp_answer wanted, found;
    answer_one(one, *o, &wanted);
    answer_one(e, *o, &found);
    rp_answer_assert_same(&found, &wanted);
    assert_int_equal(found.finish, wanted.finish);
    assert_int_equal(found.usage.n_generated, wanted.usage.n_generated);
    if (o->n_stop_ids) assert_int_equal(found.finish, RP_FINISH_STOP);
}

/* An end in the middle of a visit: what the device picked after it is dropped. */
RP_TEST(visits, an_answer_ends_where_it_ends) {
    static rp_answer plain;
    rp_engine *one = rp_answer_engine(visiting("", 1)),
              *e = rp_answer_engine(visiting(devices[0], VISIT));
    int32_t ids[8];
    rp_request_options o = greedy(0, ids);
    answer_one(one, o, &plain);
    for (int at = 1; at < 11; at++) {
        int32_t stop = plain.ids[at];
        o = greedy(0, ids);
        o.stop_ids = &stop;
        o.n_stop_ids = 1;
        check_same_end(one, e, &o);
    }
    for (size_t at = 2; at + 3 < plain.n_text; at += 3) {
        char text[3] = {plain.text[at], plain.text[at + 1], 0};
        const char *stop = text;
        o = greedy(0, ids);
        o.stop = &stop;
        o.n_stop = 1;
        check_same_end(one, e, &o);
    }
    rp_engine_destroy(one);
    rp_engine_destroy(e);
}

/* A neighbour who draws, or wants log probabilities, makes the host look at every step. */
RP_TEST(visits, others_are_served_step_by_step) {
    static rp_answer wanted[3], found[3];
    for (int way = 0; way < 2; way++) {
        rp_engine *e = rp_answer_engine(way ? visiting(devices[0], VISIT) : visiting("picks=0", 1));
        rp_request *r[3];
        int32_t ids[3][8];
        for (int i = 0; i < 3; i++) {
            rp_request_options o = greedy(i, ids[i]);
            o.sampling.seed = 3;
            if (i == 1) o.sampling.temperature = 1, o.max_tokens = 9;
            if (i == 2) o.n_logprobs = 2, o.max_tokens = 12;
            r[i] = rp_answer_submit(e, &o);
        }
        for (int i = 0; i < 3; i++) {
            rp_answer_take(r[i], way ? &found[i] : &wanted[i]);
            rp_request_release(r[i]);
        }
        rp_engine_destroy(e);
    }
    for (int i = 0; i < 3; i++) rp_answer_assert_same(&found[i], &wanted[i]);
}

/* Blocks for a whole visit are not there: as many steps as there are blocks for, and putting back
 * works as ever. */
RP_TEST(visits, few_blocks_make_visits_shorter) {
    static rp_answer plain[3], found[3];
    rp_engine *e = rp_answer_engine(visiting("", 1));
    answer_together(e, 3, plain);
    rp_engine_destroy(e);
    for (int n_blocks = 4; n_blocks < 10; n_blocks++) {
        rp_engine_options o = visiting(devices[0], 16);
        o.n_blocks = n_blocks;
        e = rp_answer_engine(o);
        answer_together(e, 3, found);
        for (int k = 0; k < 3; k++) rp_answer_assert_same(&found[k], &plain[k]);
        rp_engine_destroy(e);
    }
}

/* One read for the prompt's step and one per visit, of a few tokens; and nothing is written but a
 * table when a block is added to it. */
RP_TEST(visits, tokens_cross_once_per_visit) {
    RP_NEEDS_COUNTS();
    static rp_answer a;
    rp_engine_options eo = visiting(devices[0], VISIT);
    eo.max_seqs = 1;
    eo.capture = RP_CAPTURE_ON;
    eo.prefix_cache = false; /* its blocks would be put in the place of equal new ones */
    rp_engine *e = rp_answer_engine(eo);
    int32_t ids[8];
    rp_request_options o = greedy(0, ids);
    answer_one(e, o, &a);
    rp__device_stats before = rp__device_get_stats(e->device);
    answer_one(e, o, &a);
    rp__device_stats after = rp__device_get_stats(e->device);
    assert_int_equal(a.n, N_NEW);
    assert_int_equal(after.n_reads - before.n_reads, 1 + (N_NEW - 1 + VISIT - 1) / VISIT);
    assert_true(after.n_writes - before.n_writes <= 2 + (3 + N_NEW) / 8);
    assert_true(after.n_replays - before.n_replays >= N_NEW - 1);
    rp_engine_destroy(e);
}

/* Writes of three answers side by side, in steps of four or of three, from the first one on. */
static uint64_t count_writes(const char *options, rp_answer *a) {
    rp_engine_options eo = visiting(options, VISIT);
    int32_t ids[4][8];
    rp_gate gate; /* of one that holds the engine until all are there */
    rp_request *r[4];
    eo.max_seqs = 4;
    eo.block_size = 32; /* nobody comes to its end */
    eo.capture = RP_CAPTURE_ON;
    eo.prefix_cache = false;
    rp_engine *e = rp_answer_engine(eo);
    for (int i = 0; i < 4; i++) {
        rp_request_options o = greedy(i ? 0 : 1, ids[i]);
        if (!i) rp_gate_put(&gate, &o);
        r[i] = rp_answer_submit(e, &o);
        if (!i) rp_gate_wait(&gate, 1);
    }
    rp_request_cancel(r[0]);
    rp_gate_allow(&gate, RP_GATE_ALL);
    for (int i = 0; i < 4; i++) {
        if (i) rp_answer_take(r[i], &a[i - 1]);
        rp_request_release(r[i]);
    }
    uint64_t n = rp__device_get_stats(e->device).n_writes;
    rp_engine_destroy(e);
    return n;
}

/* A device that computes padding as if it were alive moves that on too, which is left at that. */
RP_TEST(visits, padding_is_not_written_in_every_one) {
    RP_NEEDS_COUNTS();
    static rp_answer live[3], padded[3];
    uint64_t n = count_writes("picks=1,advance=1,live_rows=1", live);
    assert_int_equal(count_writes("picks=1,advance=1,live_rows=0", padded), n);
    for (int i = 0; i < 3; i++) rp_answer_assert_same(&padded[i], &live[i]);
}

/* Cancelled while a visit's tokens are handed out: they are told, and no more. */
RP_TEST(visits, cancelling_ends_with_the_visit) {
    RP_NEEDS_COUNTS();
    static rp_gate gate;
    rp_engine *e = rp_answer_engine(visiting(devices[0], VISIT));
    int32_t ids[8];
    rp_request_options o = greedy(0, ids);
    rp_gate_put(&gate, &o);
    rp_request *r = rp_answer_submit(e, &o);
    rp_gate_allow(&gate, 2);
    rp_gate_wait(&gate, 3); /* the prompt's token, and two of the first visit */
    rp_request_cancel(r);
    rp_gate_allow(&gate, RP_GATE_ALL);
    rp_usage usage;
    rp_error err = {0};
    rp_request_wait(r, NULL, &usage, &err);
    assert_int_equal(usage.n_generated, 1 + VISIT);
    rp_request_release(r);
    rp_engine_destroy(e);
}

/* Lost in the middle of a visit: an error of who is in it, and the next one is answered. */
RP_TEST(visits, a_loss_ends_those_in_the_visit) {
    static rp_answer plain, found;
    rp_engine *one = rp_answer_engine(visiting("", 1)),
              *e = rp_answer_engine(visiting("picks=1,advance=1,lost_at=280", VISIT));
    int32_t ids[8];
    rp_request_options o = greedy(0, ids);
    answer_one(one, o, &plain);
    answer_one(e, o, &found);
    assert_int_equal(found.finish, RP_FINISH_ERROR);
    assert_int_equal(found.error.code, RP_EDEVICE_LOST);
    assert_true(found.n > 1 && found.n < plain.n);
    answer_one(e, o, &found);
    rp_answer_assert_same(&found, &plain);
    rp_engine_destroy(one);
    rp_engine_destroy(e);
}

RP_TEST(visits, a_device_that_cannot_is_refused) {
    static const char *const lacking[] = {"picks=1", "advance=1", ""};
    char path[512];
    snprintf(path, sizeof path, "%s", rp_test_path("fixtures/tiny/llama3.gguf"));
    for (int i = 0; i < 3; i++) {
        rp_engine_options o = visiting(lacking[i], VISIT);
        rp_engine *e;
        rp_error err = {0};
        o.model = path;
        assert_int_equal(rp_engine_create(&o, &e, &err), RP_EUNSUPPORTED);
        assert_message(err, "scheduler_steps is 4, but device emu as it was opened does not pick "
                            "tokens and advance positions itself");
        o.device_options = devices[0];
        o.scheduler_steps = 65;
        assert_int_equal(rp_engine_create(&o, &e, &err), RP_EINVAL);
        assert_message(err, "scheduler_steps is 65, expected 0 to 64");
    }
}
