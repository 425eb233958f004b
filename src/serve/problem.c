#include "serve/problem.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/fail.h"
#include "base/json_writer.h"

/* How soon it is worth asking again: a queue moves on within a step or two, a load takes longer. */
enum { RETRY_SECONDS = 1 };

static void finish(rp__problem *p) {
    if (p->http == 429 || p->http == 503) p->retry_after = RETRY_SECONDS;
}

static void write_sentence(rp__problem *p, const char *fmt, va_list ap) {
    char sentence[sizeof p->error.message];
    vsnprintf(sentence, sizeof sentence, fmt, ap);
    rp__fail(&p->error, p->error.code, "%s", sentence);
}

rp_status rp__refuse(rp__problem *p, rp_status code, const char *param, const char *fmt, ...) {
    *p = (rp__problem){.http = rp_status_http(code), .error.code = code};
    snprintf(p->param, sizeof p->param, "%s", param ? param : "");
    va_list ap;
    va_start(ap, fmt);
    write_sentence(p, fmt, ap);
    va_end(ap);
    finish(p);
    return code;
}

void rp__refuse_http(rp__problem *p, int http, const char *code, const char *fmt, ...) {
    *p = (rp__problem){.http = http, .code = code, .error.code = RP_EINVAL};
    va_list ap;
    va_start(ap, fmt);
    write_sentence(p, fmt, ap);
    va_end(ap);
    finish(p);
}

void rp__refuse_error(rp__problem *p, const rp_error *error, const char *param) {
    rp__refuse(p, error->code, param, "%s", error->message);
}

/* OpenAI's words. */
static const char *type_of(int http) {
    if (http == 429) return "rate_limit_error";
    return http >= 500 ? "server_error" : "invalid_request_error";
}

static const char *code_of(const rp__problem *p) {
    if (p->code) return p->code;
    switch (p->error.code) {
    case RP_ECONTEXT:
        return "context_length_exceeded";
    case RP_EUNSUPPORTED:
        return "unsupported_value";
    case RP_EINVAL:
    case RP_EFORMAT:
        return "invalid_value";
    default:
        return rp_status_name(p->error.code);
    }
}

void rp__problem_write(rp__bytes *out, const rp__problem *p) {
    rp__bytes_add_char(out, '{');
    rp__json_open(out, "error", '{');
    rp__json_str(out, "message", p->error.message);
    rp__json_str(out, "type", type_of(p->http));
    rp__json_str(out, "param", *p->param ? p->param : NULL);
    rp__json_str(out, "code", code_of(p));
    rp__json_close(out, '}');
    rp__json_close(out, '}');
}
