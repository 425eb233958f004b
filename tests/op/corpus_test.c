/* The corpus on the reference bodies, on every set of bodies of this machine, and on every device
 * there is. */
#include "op/corpus.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/isa.h"
#include "device/op.h"
#include "tensor/view.h"
#include "test.h"

/* ---- bodies on host memory ---- */

static bool body_supports(corpus_machine *m, const rp_op *op) {
    const rp__body_set *set = m->user;
    return set->fn[op->kind] != NULL;
}

static void *scratch_for(const rp_op *op) {
    size_t bytes = rp__body_scratch(op);
    void *p = aligned_alloc(64, (bytes + 64) / 64 * 64);
    if (!p) abort();
    memset(p, 0x7F, bytes); /* nothing may be expected in it: large NaNs */
    return p;
}

/* Variant v: v + 1 units, half of what is left at a time, the last first. */
static rp_status run_bodies(corpus_machine *m, corpus_placed *p, int variant, rp_error *err) {
    (void)err;
    const rp__body_set *set = m->user;
    rp__body_args a = {.op = &p->op, .of = variant + 1, .n_workers = variant + 1};
    for (int j = 0; j < p->op.n_in; j++)
        a.in[j] = p->in[j].bytes ? p->in[j].bytes + p->op.in[j].offset : NULL;
    for (int i = 0; i < p->op.n_out; i++)
        a.out[i] = p->out[i].bytes ? p->out[i].bytes + p->op.out[i].offset : NULL;
    a.n_live = p->op.live.n_dims ? p->n_live : rp__op_rows(&p->op);
    for (a.to = a.of; a.to > 0; a.to = a.from) {
        a.from = a.to - (a.to + 1) / 2;
        a.scratch = scratch_for(&p->op);
        set->fn[p->op.kind](&a);
        free(a.scratch);
    }
    return RP_OK;
}

static void report(const char *name, const rp_corpus_result *r) {
    static const char *const tol[N_TOLS] = {"bits",        "rounded",      "function",
                                            "norm",        "attention",    "matmul_float",
                                            "matmul_bf16", "matmul_block", "matmul_q8"};
    print_message("%s: %zu cases, %zu not supported; largest error as a part of what is allowed:",
                  name, r->n_run, r->n_unsupported);
    for (int i = 1; i < N_TOLS; i++) print_message(" %s %.2f", tol[i], r->worst[i]);
    print_message("\n");
    assert_int_equal(r->n_failed, 0);
}

typedef rp_status run_fn(corpus_machine *m, corpus_placed *p, int variant, rp_error *err);

static corpus_machine machine_of(const rp__body_set *set, corpus_precision precision, run_fn *run) {
    return (corpus_machine){
        .name = set->name,
        .user = (void *)(uintptr_t)set,
        .precision = precision,
        .honours_live = true,
        .alignment = 64,
        .n_variants = 3,
        .supports = body_supports,
        .run = run,
    };
}

static void run_set(const rp__body_set *set, corpus_precision precision, run_fn *run) {
    corpus_machine m = machine_of(set, precision, run);
    rp_corpus_result r;
    rp_corpus_run_machine(&m, NULL, &r);
    report(set->name, &r);
    assert_true(r.n_run > 0);
}

RP_TEST(corpus, every_op_has_cases_and_a_first_one_by_hand) {
    bool seen[RP_N_OPS] = {false};
    for (size_t i = 0; i < rp_corpus_count(); i++) {
        corpus_case c;
        rp_corpus_make(i, &c);
        if (!seen[c.op.kind]) {
            bool needs_hand = c.op.kind != RP_OP_GATED && c.op.kind != RP_OP_SCALE;
            if (needs_hand && !strstr(c.name, "by hand"))
                fail_msg("the first case of %s is not by hand: %s", rp__op_name(c.op.kind), c.name);
        }
        seen[c.op.kind] = true;
        rp_corpus_clear(&c);
    }
    for (int k = 0; k < RP_N_OPS; k++)
        if (!seen[k]) fail_msg("no case for %s", rp__op_name((rp_op_kind)k));
}

RP_TEST(corpus, reference_bodies) {
    for (int k = 0; k < RP_N_OPS; k++) assert_non_null(rp__body_reference.fn[k]);
    run_set(&rp__body_reference, CORPUS_DOUBLE, run_bodies);
}

/* ---- fast sets: weights in panels ---- */

/* Puts the weights of a placed op into panels, as weight_write does; the images are row-major again
 * never. */
static void to_panels(corpus_placed *p) {
    for (int j = 0; j < p->op.n_in; j++) {
        const rp_tensor *w = &p->op.in[j];
        if (!w->is_weight) continue;
        corpus_image panels = {.n = rp__panel_bytes(w)};
        panels.bytes = aligned_alloc(64, (panels.n + 63) / 64 * 64);
        if (!panels.bytes) abort();
        rp__panel_write(w, panels.bytes, 0, rp__tensor_rows(w), p->in[j].bytes);
        free(p->in[j].bytes);
        p->in[j] = panels;
    }
}

static rp_status run_fast(corpus_machine *m, corpus_placed *p, int variant, rp_error *err) {
    to_panels(p);
    return run_bodies(m, p, variant, err);
}

RP_TEST(corpus, every_set_of_fast_bodies_that_this_machine_runs) {
    const rp__body_set *set;
    for (int i = 0; (set = rp__body_at(i)) != &rp__body_reference; i++)
        if (set->is_available())
            run_set(set, CORPUS_FLOAT, run_fast);
        else
            print_message("%s: not on this machine\n", set->name);
}

/* Sums of whole numbers are exact, and the F32 steps around them the same. */
static void check_same_bits(const char *filter) {
    const rp__body_set *set;
    uint64_t digest = 0;
    for (int i = 0; (set = rp__body_at(i)) != &rp__body_generic; i++) {
        rp_corpus_result r;
        if (!set->is_available()) continue;
        corpus_machine m = machine_of(set, CORPUS_FLOAT, run_fast);
        m.n_variants = 1;
        rp_corpus_run_machine(&m, filter, &r);
        assert_int_equal(r.n_failed, 0);
        if (digest) assert_true(r.digest == digest);
        digest = r.digest;
    }
    if (!digest) RP_SKIP("no set of vector instructions is here");
}

RP_TEST(corpus, products_of_8_bit_activations_have_the_same_bits_in_all_sets_that_fuse) {
    check_same_bits("q8 x");
}

RP_TEST(corpus, products_of_16_bit_activations_have_the_same_bits_in_all_sets_that_fuse) {
    check_same_bits("q16 x");
}

/* ---- the corpus itself ---- */

/* A wrong result of any kind must be seen: the corpus is run over bodies that are off by a little.
 */
static rp__body_fn spoiled;
static void spoil(const rp__body_args *a) {
    spoiled(a);
    const rp_tensor *t = &a->op->out[a->op->n_out - 1];
    if (a->n_live == 0 || rp__tensor_elems(t) == 0 || a->from) return;
    uint8_t *last = (uint8_t *)a->out[a->op->n_out - 1] + rp__tensor_item_bytes(t) - 1;
    last[0] ^= 0x40; /* the exponent of a float, a high bit of an index */
}

RP_TEST(corpus, sees_a_spoiled_element_of_every_op) {
    int n_seen[RP_N_OPS] = {0};
    for (size_t i = 0; i < rp_corpus_count(); i++) {
        corpus_case c;
        rp_corpus_result r = {0};
        rp__body_set set = {.name = "spoiled"};
        corpus_machine m = {.name = "spoiled",
                            .user = &set,
                            .alignment = 64,
                            .n_variants = 1,
                            .is_quiet = true,
                            .supports = body_supports,
                            .run = run_bodies};
        rp_corpus_make(i, &c);
        spoiled = rp__body_reference.fn[c.op.kind];
        set.fn[c.op.kind] = spoil;
        if (c.n_live < 0 && n_seen[c.op.kind]++ < 3 && rp_corpus_run_case(&m, &c, &r))
            fail_msg("%s: a spoiled element went unseen", c.name);
        rp_corpus_clear(&c);
    }
}

/* ---- devices ---- */

/* The whole corpus on one device opened with so many threads (0: as it chooses). False when it is
 * not built in. */
static bool run_device(const char *name, int n_threads, rp_corpus_result *r) {
    rp_device *dev;
    rp_error err = {0};
    rp_device_config config = {.bytes = sizeof config, .n_threads = n_threads};
    rp_status st = rp__device_open(name, &config, &dev, &err);
    if (st == RP_EUNSUPPORTED || st == RP_ENOTFOUND) {
        print_message("%s\n", err.message);
        return false;
    }
    assert_ok(st, err);
    rp_corpus_run(dev, NULL, r);
    report(name, r);
    rp__device_close(dev);
    return true;
}

/* Devices that compute in F32; those that round activations have tests of their own. */
static bool is_exact(const char *device) {
    return strcmp(device, "cpu") && strcmp(device, "tenstorrent");
}

RP_TEST(corpus, every_device_but_cpu) { /* cpu: below, three times */
    size_t n_run = 0;
    rp_corpus_result r;
    for (size_t i = 0; rp__device_name_at(i); i++)
        if (is_exact(rp__device_name_at(i)) && run_device(rp__device_name_at(i), 0, &r))
            n_run += r.n_run;
    if (!n_run) RP_SKIP("no other device is here");
}

RP_TEST(corpus, cpu_has_the_same_bits_with_any_number_of_threads) {
    rp_corpus_result r[3];
    for (int n = 1; n <= 3; n++)
        if (!run_device("cpu", n, &r[n - 1])) RP_SKIP("the cpu device is not built in");
    assert_int_equal(r[0].n_run, rp_corpus_count()); /* it runs every op */
    assert_true(r[0].digest == r[1].digest);
    assert_true(r[0].digest == r[2].digest);
}
