/* Writing an error sentence, and the check macros that pass a failure up.
 * The sentence names the file, field or parameter and the offending value. */
#ifndef RP_BASE_FAIL_H
#define RP_BASE_FAIL_H

#include <stdarg.h>

#include "reprise/status.h"

/* Writes the sentence into `err` (may be NULL) and returns `code`, so that callers can `return
 * rp__fail(...)`. A sentence longer than the buffer is cut at a UTF-8 boundary; control bytes
 * become '?'. */
rp_status rp__fail(rp_error *err, rp_status code, const char *fmt, ...) RP_PRINTF(3, 4);

/* Puts "context: " before a sentence already in `err`; returns err->code (or `code` when err is
 * NULL). */
rp_status rp__fail_context(rp_error *err, rp_status code, const char *fmt, ...) RP_PRINTF(3, 4);

/* Our own bug: prints the values and aborts, in every build. */
#define rp__assert(cond, ...)                                                                      \
    do {                                                                                           \
        if (__builtin_expect(!(cond), 0)) rp__panic(__FILE__, __LINE__, #cond, "" __VA_ARGS__);    \
    } while (0)
_Noreturn void rp__panic(const char *file, int line, const char *cond, const char *fmt, ...)
    RP_PRINTF(4, 5);

/* Passes a negative status up; a positive one is left to the caller. */
#define RP_TRY(expr)                                                                               \
    do {                                                                                           \
        rp_status rp_try_status_ = (expr);                                                         \
        if (rp_try_status_ < 0) return rp_try_status_;                                             \
    } while (0)

#endif
