/* Status codes and the error sentence: shared by every public header.
 *
 * Owns: the one table from which a code's name, text and HTTP status are made.
 * Rules: 0 is success; a negative status is a failure; a positive status is normal but "not done".
 * Thread safety: everything here is a value or a pure function. */
#ifndef REPRISE_STATUS_H
#define REPRISE_STATUS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define RP_API             __attribute__((visibility("default")))
#define RP_PRINTF(fmt, va) __attribute__((format(printf, fmt, va)))
#else
#define RP_API
#define RP_PRINTF(fmt, va)
#endif

/* X(code, value, HTTP status, text) */
#define RP_STATUS_TABLE(X)                                                                         \
    X(RP_OK, 0, 200, "ok")                                                                         \
    X(RP_END, 1, 200, "end of stream")                                                             \
    X(RP_AGAIN, 2, 503, "not now, try later")                                                      \
    X(RP_NO_BLOCKS, 3, 503, "no free KV blocks")                                                   \
    X(RP_EINVAL, -1, 400, "invalid parameter")                                                     \
    X(RP_ENOTFOUND, -2, 404, "not found")                                                          \
    X(RP_EFORMAT, -3, 400, "malformed file or text")                                               \
    X(RP_EUNSUPPORTED, -4, 400, "not implemented")                                                 \
    X(RP_EUNTESTED, -5, 400, "implemented but not tested here")                                    \
    X(RP_ECONTEXT, -6, 400, "context length exceeded")                                             \
    X(RP_ELIMIT, -7, 413, "limit exceeded")                                                        \
    X(RP_ETEMPLATE, -8, 400, "the chat template refused the messages")                             \
    X(RP_ESTATE, -9, 409, "not allowed in this state")                                             \
    X(RP_EBUSY, -10, 409, "in use")                                                                \
    X(RP_ECANCELLED, -11, 499, "cancelled")                                                        \
    X(RP_EQUEUE, -12, 429, "too many requests are waiting")                                        \
    X(RP_ETIMEOUT, -13, 504, "not done in the time given")                                         \
    X(RP_ESHUTDOWN, -14, 503, "shutting down")                                                     \
    X(RP_ENOMEM, -20, 503, "out of memory")                                                        \
    X(RP_EIO, -21, 500, "input/output error")                                                      \
    X(RP_EDEVICE, -22, 500, "device error")                                                        \
    X(RP_EDEVICE_LOST, -23, 503, "device lost")                                                    \
    X(RP_EVERSION, -24, 500, "interface version mismatch")                                         \
    X(RP_ECAPTURE_HOST, -30, 500, "host access during capture")                                    \
    X(RP_ECAPTURE_ALLOC, -31, 500, "allocation or free during capture")                            \
    X(RP_ECAPTURE_COLD, -32, 500, "kernel not prepared before capture")                            \
    X(RP_ECAPTURE_TRANSIENT, -33, 500, "operand not pinned for graphs")                            \
    X(RP_EINTERNAL, -99, 500, "internal error")

typedef enum rp_status {
#define RP_X(code, value, http, text) code = value,
    RP_STATUS_TABLE(RP_X)
#undef RP_X
} rp_status;

/* The sentence that says what went wrong, written once where it is known and passed up unchanged.
 */
typedef struct rp_error {
    rp_status code;
    char message[508];
} rp_error;

/* Name ("RP_EINVAL"), short text and HTTP status of a code; an unknown code gives RP_EINTERNAL's.
 */
RP_API const char *rp_status_name(rp_status code);
RP_API const char *rp_status_text(rp_status code);
RP_API int rp_status_http(rp_status code);

#ifdef __cplusplus
}
#endif
#endif
