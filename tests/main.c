/* The C test runner: runs every registered case, prints cmocka's lines and one closing line of
 * totals. */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef RP_TESTS_DIR
#define RP_TESTS_DIR "tests"
#endif

typedef struct test_case {
    const char *suite, *name;
    void (*fn)(void **);
} test_case;

static test_case *cases;
static size_t n_cases, n_skipped;

void rp_test_register(const char *suite, const char *name, void (*fn)(void **)) {
    if ((n_cases & (n_cases - 1)) == 0) {
        cases = realloc(cases, (n_cases ? n_cases * 2 : 1) * sizeof *cases);
        if (!cases) abort();
    }
    cases[n_cases++] = (test_case){suite, name, fn};
}

void rp_test_skip(const char *why) {
    fprintf(stderr, "[  SKIP    ] why: %s\n", why);
    n_skipped++;
    skip();
}

const char *rp_test_path(const char *relative) {
    static _Thread_local char path[1024];
    snprintf(path, sizeof path, "%s/%s", RP_TESTS_DIR, relative);
    return path;
}

void rp_test_message(const rp_error *err, const char *part, const char *file, int line) {
    if (strstr(err->message, part)) return;
    print_error("the error \"%s\" does not contain \"%s\"\n", err->message, part);
    _fail(file, line);
}

static int by_name(const void *a, const void *b) {
    const test_case *x = a, *y = b;
    int c = strcmp(x->suite, y->suite);
    return c ? c : strcmp(x->name, y->name);
}

/* Any of the filters is a part of the name, or there are none, but none that starts with '-'. */
static bool is_wanted(const char *name, char *const *filters) {
    bool has_any = false, has_match = false;
    for (; *filters; filters++) {
        if (**filters == '-') {
            if (strstr(name, *filters + 1)) return false;
            continue;
        }
        has_any = true;
        has_match = has_match || strstr(name, *filters);
    }
    return has_match || !has_any;
}

int main(int argc, char **argv) {
    bool list = argc > 1 && !strcmp(argv[1], "--list");
    qsort(cases, n_cases, sizeof *cases, by_name);
    size_t n_run = 0;
    struct CMUnitTest *tests = calloc(n_cases ? n_cases : 1, sizeof *tests);
    char(*names)[160] = calloc(n_cases ? n_cases : 1, sizeof *names);
    if (!tests || !names) return 2;
    for (size_t i = 0; i < n_cases; i++) {
        snprintf(names[n_run], sizeof *names, "%s.%s", cases[i].suite, cases[i].name);
        if (list) puts(names[n_run]);
        if (list || !is_wanted(names[n_run], argv + 1)) continue;
        tests[n_run] = (struct CMUnitTest){.name = names[n_run], .test_func = cases[i].fn};
        n_run++;
    }
    if (list) return 0;
    if (!n_run) {
        fprintf(stderr, "no test matches \"%s\"; --list shows them all\n", argv[1]);
        return 2;
    }
    int failed = _cmocka_run_group_tests("reprise", tests, n_run, NULL, NULL);
    fflush(NULL);
    printf("%zu passed, %d failed, %zu skipped\n", n_run - (size_t)failed - n_skipped, failed,
           n_skipped);
    return failed ? 1 : 0;
}
