/* What the bad-file kits share: opening a spoilt file and looking at how it was refused. */
#ifndef RP_TESTS_FILE_BAD_H
#define RP_TESTS_FILE_BAD_H

#include "test.h"

/* Opens and closes a file of these bytes. */
typedef rp_status (*rp_test_open_fn)(const void *p, size_t n, rp_error *err);

/* A file of at most 4 KiB must be refused with `code`, within 100 ms, without a leak, in one line
 * that begins with `name` and contains `part`. Opened from a copy of its exact size, so that a
 * sanitizer sees any read past the end. */
void rp_test_refuse(rp_test_open_fn open, const char *name, const void *p, size_t n, rp_status code,
                    const char *part);

/* Refusing it must not raise the peak of resident memory by more than 4 times the file and 1 MiB.
 */
void rp_test_bounded(rp_test_open_fn open, const void *p, size_t n, rp_status code);

#endif
