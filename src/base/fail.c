#include "base/fail.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    rp_status code;
    int http;
    const char *name, *text;
} status_rows[] = {
#define RP_X(code, value, http, text) {code, http, #code, text},
    RP_STATUS_TABLE(RP_X)
#undef RP_X
};

static size_t status_row(rp_status code) {
    size_t n = sizeof status_rows / sizeof *status_rows;
    for (size_t i = 0; i < n; i++)
        if (status_rows[i].code == code) return i;
    return n - 1; /* the table ends with RP_EINTERNAL */
}

const char *rp_status_name(rp_status code) {
    return status_rows[status_row(code)].name;
}
const char *rp_status_text(rp_status code) {
    return status_rows[status_row(code)].text;
}
int rp_status_http(rp_status code) {
    return status_rows[status_row(code)].http;
}

/* Makes one printable line: control bytes become '?', and no UTF-8 sequence is left cut at the end.
 */
static void tidy_message(char *s, size_t cap) {
    size_t n = strlen(s);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] < 0x20 || s[i] == 0x7f) s[i] = '?';
    if (n + 1 < cap) return;
    size_t i = n;
    while (i > 0 && ((unsigned char)s[i - 1] & 0xC0) == 0x80) i--;
    if (i == 0) return;
    unsigned char lead = (unsigned char)s[i - 1];
    size_t want = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
    if (n - (i - 1) < want) s[i - 1] = 0;
}

rp_status rp__fail(rp_error *err, rp_status code, const char *fmt, ...) {
    if (!err) return code;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err->message, sizeof err->message, fmt, ap);
    va_end(ap);
    tidy_message(err->message, sizeof err->message);
    err->code = code;
    return code;
}

rp_status rp__fail_context(rp_error *err, rp_status code, const char *fmt, ...) {
    if (!err) return code;
    char old[sizeof err->message];
    memcpy(old, err->message, sizeof old);
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(err->message, sizeof err->message, fmt, ap);
    va_end(ap);
    size_t at = n < 0 ? 0 : (size_t)n;
    if (at < sizeof err->message)
        snprintf(err->message + at, sizeof err->message - at, ": %s", old);
    tidy_message(err->message, sizeof err->message);
    return err->code ? err->code : (err->code = code);
}

_Noreturn void rp__panic(const char *file, int line, const char *cond, const char *fmt, ...) {
    fprintf(stderr, "reprise: bug at %s:%d: %s ", file, line, cond);
    va_list ap;
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    abort();
}
