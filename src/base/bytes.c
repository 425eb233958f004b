#include "base/bytes.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

rp__str rp__str_of(const char *s) {
    return (rp__str){s, s ? strlen(s) : 0};
}
bool rp__str_eq(rp__str a, rp__str b) {
    return a.n == b.n && (a.n == 0 || !memcmp(a.p, b.p, a.n));
}
bool rp__str_is(rp__str a, const char *s) {
    return rp__str_eq(a, rp__str_of(s));
}
bool rp__str_starts(rp__str a, rp__str prefix) {
    return a.n >= prefix.n && (prefix.n == 0 || !memcmp(a.p, prefix.p, prefix.n));
}

bool rp__bytes_reserve(rp__bytes *b, size_t extra) {
    size_t need;
    if (!rp__add_ok(b->n, extra, &need) || !rp__add_ok(need, 1, &need)) return !(b->failed = true);
    if (need <= b->cap) return true;
    size_t cap = b->cap ? b->cap : 64;
    while (cap < need)
        cap = cap > SIZE_MAX / 2 ? need : cap * 2; /* doubling keeps appends linear */
    char *p = rp__realloc(b->p, cap);
    if (!p) return !(b->failed = true);
    b->p = p;
    b->cap = cap;
    return true;
}

bool rp__bytes_add(rp__bytes *b, const void *p, size_t n) {
    if (!rp__bytes_reserve(b, n)) return false;
    if (n) memcpy(b->p + b->n, p, n);
    b->n += n;
    b->p[b->n] = 0;
    return true;
}

bool rp__bytes_add_str(rp__bytes *b, const char *s) {
    return rp__bytes_add(b, s, strlen(s));
}
bool rp__bytes_add_char(rp__bytes *b, char c) {
    return rp__bytes_add(b, &c, 1);
}

bool rp__bytes_printf(rp__bytes *b, const char *fmt, ...) {
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    bool ok = n >= 0 && rp__bytes_reserve(b, (size_t)n);
    if (ok) {
        vsnprintf(b->p + b->n, (size_t)n + 1, fmt, again);
        b->n += (size_t)n;
    } else {
        b->failed = true;
    }
    va_end(again);
    return ok;
}

void rp__bytes_reset(rp__bytes *b) {
    b->n = 0;
    b->failed = false;
    if (b->p) b->p[0] = 0;
}

void rp__bytes_clear(rp__bytes *b) {
    rp__free(b->p);
    *b = (rp__bytes){0};
}

char *rp__bytes_take(rp__bytes *b) {
    char *p = b->p ? b->p : rp__calloc(1, 1);
    *b = (rp__bytes){0};
    return p;
}
