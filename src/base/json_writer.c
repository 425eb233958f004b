#include "base/json_writer.h"

#include <math.h>

#include "base/utf8.h"

static void add_character(rp__bytes *b, const char *p, size_t n, uint32_t cp) {
    switch (cp) {
    case '"':
        rp__bytes_add_str(b, "\\\"");
        return;
    case '\\':
        rp__bytes_add_str(b, "\\\\");
        return;
    case '\n':
        rp__bytes_add_str(b, "\\n");
        return;
    case '\r':
        rp__bytes_add_str(b, "\\r");
        return;
    case '\t':
        rp__bytes_add_str(b, "\\t");
        return;
    case RP_UTF8_BAD:
        rp__bytes_add_str(b, "\\ufffd");
        return;
    default:
        break;
    }
    if (cp < 0x20 || cp == 0x7f)
        rp__bytes_printf(b, "\\u%04x", (unsigned)cp);
    else
        rp__bytes_add(b, p, n);
}

void rp__json_add_text(rp__bytes *b, const char *p, size_t n) {
    rp__bytes_add_char(b, '"');
    while (n) {
        uint32_t cp;
        size_t took = rp__utf8_decode(p, n, &cp);
        add_character(b, p, took, cp);
        p += took;
        n -= took;
    }
    rp__bytes_add_char(b, '"');
}

void rp__json_key(rp__bytes *b, const char *key) {
    char last = b->n ? b->p[b->n - 1] : '[';
    if (last != '[' && last != '{') rp__bytes_add_char(b, ',');
    if (!key) return;
    rp__json_add_text(b, key, rp__str_of(key).n);
    rp__bytes_add_char(b, ':');
}

void rp__json_strn(rp__bytes *b, const char *key, const char *p, size_t n) {
    rp__json_key(b, key);
    rp__json_add_text(b, p, n);
}

void rp__json_str(rp__bytes *b, const char *key, const char *text) {
    rp__json_key(b, key);
    if (text)
        rp__json_add_text(b, text, rp__str_of(text).n);
    else
        rp__bytes_add_str(b, "null");
}

void rp__json_int(rp__bytes *b, const char *key, int64_t v) {
    rp__json_key(b, key);
    rp__bytes_printf(b, "%lld", (long long)v);
}

void rp__json_uint(rp__bytes *b, const char *key, uint64_t v) {
    rp__json_key(b, key);
    rp__bytes_printf(b, "%llu", (unsigned long long)v);
}

void rp__json_num(rp__bytes *b, const char *key, double v) {
    rp__json_key(b, key);
    if (isfinite(v))
        rp__bytes_printf(b, "%.9g", v);
    else
        rp__bytes_add_str(b, "null");
}

void rp__json_bool(rp__bytes *b, const char *key, bool v) {
    rp__json_key(b, key);
    rp__bytes_add_str(b, v ? "true" : "false");
}

void rp__json_open(rp__bytes *b, const char *key, char bracket) {
    rp__json_key(b, key);
    rp__bytes_add_char(b, bracket);
}

void rp__json_close(rp__bytes *b, char bracket) {
    rp__bytes_add_char(b, bracket);
}
