#include "file/bad.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

void rp_test_refuse(rp_test_open_fn open, const char *name, const void *p, size_t n, rp_status code,
                    const char *part) {
    rp_error err = {0};
    assert_true(n <= 4096);
    void *copy = malloc(n ? n : 1);
    memcpy(copy, p, n);
    rp__alloc_stats before = rp__alloc_get_stats();
    double start = now_ms();
    rp_status status = open(copy, n, &err);
    double ms = now_ms() - start;
    rp__alloc_stats after = rp__alloc_get_stats();
    free(copy);
    if (status != code)
        fail_msg("%s where %s \"%s\" was wanted: %s", rp_status_name(status), rp_status_name(code),
                 part, err.message);
    assert_message(err, part);
    if (strncmp(err.message, name, strlen(name)))
        fail_msg("\"%s\" does not begin with %s", err.message, name);
    assert_null(strchr(err.message, '\n'));
    assert_int_equal(after.n_allocs - before.n_allocs, after.n_frees - before.n_frees);
    assert_true(ms < 100);
}

/* A line of /proc/self/status, in KiB; -1 when it cannot be read. */
static long status_kib(const char *field) {
    FILE *f = fopen("/proc/self/status", "r");
    char line[256];
    long kib = -1;
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, field, strlen(field))) kib = strtol(line + strlen(field), NULL, 10);
    if (f) fclose(f);
    return kib;
}

/* Sets the peak of resident memory back to what is resident now. */
static bool reset_peak(void) {
    FILE *f = fopen("/proc/self/clear_refs", "w");
    return f && fputs("5", f) >= 0 && !fclose(f);
}

void rp_test_bounded(rp_test_open_fn open, const void *p, size_t n, rp_status code) {
    rp_error err = {0};
    assert_int_equal(open(p, n, &err),
                     code); /* once before: what the process needs only once is there then */
    bool can_measure = reset_peak();
    long before = status_kib("VmRSS:");
    assert_int_equal(open(p, n, &err), code);
    long peak = status_kib("VmHWM:");
    if (!can_measure || before < 0 || peak < 0)
        RP_SKIP("the kernel does not tell the peak of resident memory");
    assert_true(peak - before <= (long)(4 * n / 1024) + 1024);
}
