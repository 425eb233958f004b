#include "file/json.h"

#include <ctype.h>
#include <string.h>

#include "base/fail.h"
#include "file/mapping.h"

/* Deep enough for any configuration; jansson's own bound (2048) costs more stack than a small
 * thread has. */
enum { CONFIG_DEPTH = 128 };

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

/* Depth is looked at before jansson sees the text: its parser calls itself once per level. */
static rp_status check_depth(const rp__json_source *src, rp__str text, rp_error *err) {
    size_t depth = 0;
    for (size_t i = 0; i < text.n;) {
        char c = text.p[i];
        if (c == '"') {
            i = skip_string(text, i);
            continue;
        }
        if (c == '[' || c == '{') depth++;
        if ((c == ']' || c == '}') && depth) depth--;
        if (depth > src->max_depth)
            return rp__fail(err, RP_EFORMAT, "%s: offset %zu: JSON nested deeper than %zu levels",
                            rp__path_tail(src->name), src->offset + i, src->max_depth);
        i++;
    }
    return RP_OK;
}

rp_status rp__json_parse(const rp__json_source *src, rp__str text, json_t **out, rp_error *err) {
    *out = NULL;
    RP_TRY(check_depth(src, text, err));
    json_error_t e;
    size_t flags = JSON_ALLOW_NUL | (src->unique_keys ? JSON_REJECT_DUPLICATES : 0);
    json_t *root = json_loadb(text.p ? text.p : "", text.n, flags, &e);
    if (!root) {
        bool no_memory = json_error_code(&e) == json_error_out_of_memory;
        return rp__fail(err, no_memory ? RP_ENOMEM : RP_EFORMAT, "%s: offset %zu: %s (JSON)",
                        rp__path_tail(src->name),
                        src->offset + (size_t)(e.position > 0 ? e.position : 0), e.text);
    }
    if (!json_is_object(root)) {
        json_decref(root);
        return rp__fail(err, RP_EFORMAT, "%s: offset %zu: a JSON object is wanted",
                        rp__path_tail(src->name), src->offset);
    }
    *out = root;
    return RP_OK;
}

static bool is_big(const char *digits, size_t n) {
    static const char most[] = "9223372036854775807";
    size_t n_most = sizeof most - 1;
    return n > n_most || (n == n_most && memcmp(digits, most, n) > 0);
}

/* Rewrites "1234..89" as "1234..e2" where it is an integer that 64 bits cannot hold: a real of the
 * same length, off by less than a double's rounding. */
static void soften_big_integers(rp__bytes *b) {
    rp__str text = {b->p, b->n};
    for (size_t i = 0; i < b->n;) {
        if (b->p[i] == '"') {
            i = skip_string(text, i);
            continue;
        }
        size_t begin = i;
        while (i < b->n && isdigit((unsigned char)b->p[i])) i++;
        bool goes_on = i < b->n && memchr(".eE", b->p[i], 3);
        bool is_part =
            begin > 0 && memchr(".eE+", b->p[begin - 1], 4); /* of a fraction or an exponent */
        if (!goes_on && !is_part && is_big(b->p + begin, i - begin)) memcpy(b->p + i - 2, "e2", 2);
        if (i == begin) i++;
    }
}

rp_status rp__json_read(const char *path, size_t limit, json_t **out, rp_error *err) {
    *out = NULL;
    rp__bytes text;
    RP_TRY(rp__file_read(path, limit, &text, err));
    soften_big_integers(&text);
    rp__json_source src = {.name = path, .max_depth = CONFIG_DEPTH};
    rp_status status = rp__json_parse(&src, (rp__str){text.p, text.n}, out, err);
    rp__bytes_clear(&text);
    return status;
}
