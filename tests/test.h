/* The test runner's face: a test file registers its cases with RP_TEST and needs no list elsewhere.
 *
 *     RP_TEST(base, arena_aligns) { ... assert_int_equal(...); }
 *
 * `reprise-tests --list`, `reprise-tests FILTER...` (parts of "suite.name"; those that start with '-'
 * leave out). A case that cannot run here calls RP_SKIP("why"). Assertions are cmocka's. */
#ifndef RP_TESTS_TEST_H
#define RP_TESTS_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdbool.h>
#include <cmocka.h>

#include "base/stress.h"
#include "reprise/status.h"

void rp_test_register(const char *suite, const char *name, void (*fn)(void **));
void rp_test_skip(const char *why); /* prints why, counts, and leaves the test */

/* Path of a file below tests/ (fixtures), in a static buffer of the calling thread. */
const char *rp_test_path(const char *relative);

#define RP_TEST(suite, name)                                                                       \
    static void test_##suite##_##name(void **);                                                    \
    __attribute__((constructor)) static void register_##suite##_##name(void) {                     \
        rp_test_register(#suite, #name, test_##suite##_##name);                                    \
    }                                                                                              \
    static void test_##suite##_##name(__attribute__((unused)) void **state)

#define RP_SKIP(why) rp_test_skip(why)

/* Instrumented builds run at a fraction of the speed: tests over large inputs take a part of them
 * there. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { RP_TEST_IS_INSTRUMENTED = 1 };
#else
enum { RP_TEST_IS_INSTRUMENTED = 0 };
#endif

/* What the stress build makes tiny or random cannot be counted there. */
#define RP_NEEDS_COUNTS()                                                                          \
    if (RP_STRESS) RP_SKIP("limits and graphs are at random in the stress build")

/* The call must succeed; prints the sentence when it does not. */
#define assert_ok(call, err)                                                                       \
    do {                                                                                           \
        rp_status status_ = (call);                                                                \
        if (status_ < 0) fail_msg("%s: %s: %s", #call, rp_status_name(status_), (err).message);    \
    } while (0)

/* The sentence must contain this part. */
void rp_test_message(const rp_error *err, const char *part, const char *file, int line);
#define assert_message(err, part) rp_test_message(&(err), part, __FILE__, __LINE__)

/* Small fixed generator for test data (xorshift64*): same numbers on every machine. */
static inline uint64_t rp_test_rand(uint64_t *s) {
    *s ^= *s >> 12, *s ^= *s << 25, *s ^= *s >> 27;
    return *s * 0x2545F4914F6CDD1DULL;
}
static inline float rp_test_randf(uint64_t *s) { /* uniform in [-1, 1) */
    return (float)(int64_t)(rp_test_rand(s) >> 40) / 8388608.0f - 1.0f;
}

#endif
