/* Why a request is refused, as OpenAI's error object says it: a status, one sentence, the parameter
 * and a code. Values and pure functions. */
#ifndef RP_SERVE_PROBLEM_H
#define RP_SERVE_PROBLEM_H

#include "base/bytes.h"
#include "reprise/status.h"

typedef struct rp__problem {
    int http;         /* 0: there is none */
    char param[96];   /* "messages[2].content"; empty: null */
    const char *code; /* static; NULL: made from the status */
    rp_error error;
    int retry_after; /* seconds; 0: no such header */
} rp__problem;

/* Writes the problem and returns `code`, so that callers can `return rp__refuse(...)`. `param` may
 * be NULL. The HTTP status comes from the one status table. */
rp_status rp__refuse(rp__problem *p, rp_status code, const char *param, const char *fmt, ...)
    RP_PRINTF(4, 5);
/* The same for what only HTTP knows: 401, 404 for a route, 405, ... */
void rp__refuse_http(rp__problem *p, int http, const char *code, const char *fmt, ...)
    RP_PRINTF(4, 5);
/* From what the library said. */
void rp__refuse_error(rp__problem *p, const rp_error *error, const char *param);

/* {"error": {"message", "type", "param", "code"}} */
void rp__problem_write(rp__bytes *out, const rp__problem *p);

#endif
