/* Where a program is cut, and what its ops' keys depend on. */
#include <stdio.h>

#include "device/op.h"
#include "model/tiny.h"
#include "test.h"

static void open_on(rp_tiny *t, const char *options) {
    rp_tiny_config c = rp_tiny_default("fixtures/tiny/llama3.gguf");
    c.device = "emu";
    c.device_options = options;
    rp_tiny_open(t, &c);
}

/* T18: segments hold every op once, in order, and none is estimated to take longer than half of the
 * watchdog. */
RP_TEST(segments, t18_no_submit_reaches_the_watchdog) {
    static const int watchdogs[] = {30, 60, 100, 1000};
    for (size_t i = 0; i < sizeof watchdogs / sizeof *watchdogs; i++) {
        rp_tiny t;
        char options[96];
        snprintf(options, sizeof options, "profile=pcie-accelerator,watchdog_us=%d", watchdogs[i]);
        open_on(&t, options);
        int32_t most = 0;
        for (int b = 0; b < t.stepper.n_buckets; b++) {
            const rp__program *p = &t.stepper.programs[b];
            int32_t next = 0;
            for (int32_t k = 0; k < p->n_segments; k++) {
                const rp__segment *s = &p->segments[k];
                assert_int_equal(s->first_op, next);
                assert_true(s->n_ops > 0);
                next += s->n_ops;
                double us = 0;
                for (int32_t j = s->first_op; j < next; j++)
                    us += rp__device_estimate_us(t.device, &p->ops[j]);
                assert_true(us > 0 && us <= watchdogs[i] / 2.0);
            }
            assert_int_equal(next, p->n_ops);
            if (p->n_segments > most) most = p->n_segments;
        }
        assert_int_equal(most == 1, watchdogs[i] == 1000); /* nothing is cut without need */
        rp_tiny_close(&t);
    }
}

/* T11: the key of every op of every step is the same however much memory is in use. */
RP_TEST(segments, t11_keys_ignore_memory) {
    rp_tiny empty, full;
    rp_error err = {0};
    rp_buffer *ballast;
    open_on(&empty, NULL);
    open_on(&full, "memory=64M,reuse=never");
    assert_ok(rp__buffer_create(full.device, "ballast", 60 << 20, true, &ballast, &err), err);
    int n_compared = 0;
    for (int b = 0; b < empty.stepper.n_buckets; b++) {
        const rp__program *p = &empty.stepper.programs[b], *q = &full.stepper.programs[b];
        assert_int_equal(p->n_ops, q->n_ops);
        for (int32_t i = 0; i < p->n_ops; i++, n_compared++)
            assert_true(rp__op_key(&p->ops[i]) == rp__op_key(&q->ops[i]));
    }
    assert_true(n_compared > 100);
    rp_tiny_close(&empty);
    assert_ok(rp__buffer_destroy(ballast, &err), err);
    rp_tiny_close(&full);
}
