#include "base/json_scan.h"

#include <ctype.h>
#include <string.h>

/* Index of the byte behind the string that begins at `at` (a quote); n when it does not end. */
static size_t skip_string(rp__str text, size_t at) {
    for (size_t i = at + 1; i < text.n; i++) {
        if (text.p[i] == '\\')
            i++;
        else if (text.p[i] == '"')
            return i + 1;
    }
    return text.n;
}

size_t rp__json_too_deep(rp__str text, size_t max_depth) {
    size_t depth = 0;
    for (size_t i = 0; i < text.n;) {
        char c = text.p[i];
        if (c == '"') {
            i = skip_string(text, i);
            continue;
        }
        if (c == '[' || c == '{') depth++;
        if ((c == ']' || c == '}') && depth) depth--;
        if (depth > max_depth) return i;
        i++;
    }
    return text.n;
}

static bool is_big(const char *digits, size_t n) {
    static const char most[] = "9223372036854775807";
    size_t n_most = sizeof most - 1;
    return n > n_most || (n == n_most && memcmp(digits, most, n) > 0);
}

void rp__json_soften_integers(char *p, size_t n) {
    rp__str text = {p, n};
    for (size_t i = 0; i < n;) {
        if (p[i] == '"') {
            i = skip_string(text, i);
            continue;
        }
        size_t begin = i;
        while (i < n && isdigit((unsigned char)p[i])) i++;
        bool goes_on = i < n && memchr(".eE", p[i], 3);
        bool is_part = begin > 0 && memchr(".eE+", p[begin - 1], 4); /* of a fraction or an
                                                                        exponent */
        if (!goes_on && !is_part && is_big(p + begin, i - begin)) memcpy(p + i - 2, "e2", 2);
        if (i == begin) i++;
    }
}

rp__str rp__json_key_at(rp__str text, size_t at) {
    rp__str last = {"", 0}, key = {"", 0};
    size_t depth = 0;
    for (size_t i = 0; i < text.n && i < at;) {
        char c = text.p[i];
        if (c == '"') {
            size_t end = skip_string(text, i);
            key = (rp__str){"", 0};
            last = end < text.n ? (rp__str){text.p + i + 1, end - i - 2} : (rp__str){"", 0};
            i = end;
            continue;
        }
        if (c == '[' || c == '{') depth++;
        if ((c == ']' || c == '}') && depth) depth--;
        if (strchr("[]{},", c)) key = (rp__str){"", 0};
        if (depth == 1 && c == ':') key = last;
        i++;
    }
    return key;
}
