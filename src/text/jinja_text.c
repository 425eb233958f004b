/* Texts with marks: building, cutting, searching.
 *
 * Invariants: marks are sorted, disjoint, not adjacent, inside the text, never empty. Texts are
 * well-formed UTF-8 and are only cut between characters. */
#define _GNU_SOURCE /* memmem */
#include <string.h>

#include "base/utf8.h"
#include "text/jinja_impl.h"

/* ---- builder ---- */

static rp_status reserve(jrun *r, jbuilder *b, size_t extra) {
    if (b->cap - b->n >= extra && b->p) return RP_OK;
    size_t need, cap = b->cap ? b->cap * 2 : 64;
    if (!rp__add_ok(b->n, extra, &need)) return rp__jinja_fail(r, RP_ELIMIT, "a text is too long");
    if (cap < need) cap = need;
    char *p = rp__jinja_alloc(r, cap, 1);
    if (!p) return r->status;
    if (b->n) memcpy(p, b->p, b->n);
    b->p = p, b->cap = cap;
    return rp__jinja_charge(r, b->n);
}

static rp_status add_mark(jrun *r, jbuilder *b, size_t begin, size_t end) {
    if (begin == end) return RP_OK;
    if (b->n_marks && b->marks[b->n_marks - 1].end >= begin) {
        b->marks[b->n_marks - 1].end = end;
        return RP_OK;
    }
    if (b->n_marks == b->cap_marks) {
        size_t cap = b->cap_marks ? b->cap_marks * 2 : 4;
        rp__span *p = rp__jinja_alloc(r, cap, sizeof *p);
        if (!p) return r->status;
        if (b->n_marks) memcpy(p, b->marks, b->n_marks * sizeof *p);
        b->marks = p, b->cap_marks = cap;
    }
    b->marks[b->n_marks++] = (rp__span){begin, end};
    return RP_OK;
}

rp_status rp__jinja_put(jrun *r, jbuilder *b, const char *p, size_t n) {
    RP_TRY(reserve(r, b, n));
    RP_TRY(rp__jinja_charge(r, n));
    if (n) memcpy(b->p + b->n, p, n);
    b->n += n;
    if (b == r->out && b->n > JINJA_MAX_OUTPUT)
        return rp__jinja_fail(r, RP_ELIMIT, "the output is longer than %zu bytes",
                              JINJA_MAX_OUTPUT);
    return RP_OK;
}

rp_status rp__jinja_put_str(jrun *r, jbuilder *b, const char *s) {
    return rp__jinja_put(r, b, s, strlen(s));
}

rp_status rp__jinja_put_char(jrun *r, jbuilder *b, uint32_t cp) {
    char s[4];
    return rp__jinja_put(r, b, s, rp__utf8_encode(cp, s));
}

rp_status rp__jinja_put_fill(jrun *r, jbuilder *b, uint32_t cp, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        if (!(i & 63)) RP_TRY(rp__jinja_charge(r, 64)); /* huge fills end at the limit */
        RP_TRY(rp__jinja_put_char(r, b, cp));
    }
    return RP_OK;
}

/* Index of the first mark that ends behind byte `at`. */
static size_t first_mark_after(const jtext *t, size_t at) {
    size_t lo = 0, hi = t->n_marks;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (t->marks[mid].end > at)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

rp_status rp__jinja_put_part(jrun *r, jbuilder *b, const jtext *t, size_t begin, size_t end) {
    size_t at = b->n;
    RP_TRY(rp__jinja_put(r, b, t->p + begin, end - begin));
    for (size_t i = first_mark_after(t, begin); i < t->n_marks && t->marks[i].begin < end; i++) {
        size_t from = t->marks[i].begin > begin ? t->marks[i].begin - begin : 0;
        size_t to = (t->marks[i].end < end ? t->marks[i].end : end) - begin;
        RP_TRY(add_mark(r, b, at + from, at + to));
    }
    return RP_OK;
}

rp_status rp__jinja_put_text(jrun *r, jbuilder *b, const jtext *t) {
    return rp__jinja_put_part(r, b, t, 0, t->n);
}

rp_status rp__jinja_mark(jrun *r, jbuilder *b, size_t begin) {
    while (b->n_marks && b->marks[b->n_marks - 1].begin >= begin) b->n_marks--;
    return add_mark(r, b, begin, b->n);
}

rp_status rp__jinja_mark_if_any(jrun *r, jbuilder *b, size_t begin) {
    if (!b->n_marks || b->marks[b->n_marks - 1].end <= begin) return RP_OK;
    return rp__jinja_mark(r, b, begin);
}

rp_status rp__jinja_build(jrun *r, jbuilder *b, jvalue *out) {
    jtext *t = rp__jinja_alloc(r, 1, sizeof *t);
    if (!t) return r->status;
    *t = (jtext){.p = b->p ? b->p : "", .n = b->n, .marks = b->marks, .n_marks = b->n_marks};
    *out = jstr(t);
    return RP_OK;
}

rp_status rp__jinja_text(jrun *r, const char *p, size_t n, jvalue *out) {
    jbuilder b = {0};
    RP_TRY(rp__jinja_put(r, &b, p, n));
    return rp__jinja_build(r, &b, out);
}

/* ---- parts ---- */

rp_status rp__jinja_part(jrun *r, const jtext *t, size_t begin, size_t end, jvalue *out) {
    jtext *part = rp__jinja_alloc(r, 1, sizeof *part);
    if (!part) return r->status;
    *part = (jtext){.p = t->p + begin, .n = end - begin};
    *out = jstr(part);
    if (begin == 0 && end == t->n) {
        part->marks = t->marks, part->n_marks = t->n_marks;
        return RP_OK;
    }
    size_t first = first_mark_after(t, begin), last = first;
    while (last < t->n_marks && t->marks[last].begin < end) last++;
    if (first == last || begin == end) return RP_OK;
    RP_TRY(rp__jinja_charge(r, (last - first) * sizeof(rp__span)));
    rp__span *marks = rp__jinja_alloc(r, last - first, sizeof *marks);
    if (!marks) return r->status;
    for (size_t i = first; i < last; i++) {
        marks[i - first].begin = t->marks[i].begin > begin ? t->marks[i].begin - begin : 0;
        marks[i - first].end = (t->marks[i].end < end ? t->marks[i].end : end) - begin;
    }
    part->marks = marks, part->n_marks = last - first;
    return RP_OK;
}

size_t rp__jinja_next(const char *p, size_t n, uint32_t *cp) {
    *cp = 0;
    return n ? rp__utf8_decode(p, n, cp) : 0;
}

size_t rp__jinja_n_chars(const jtext *t) {
    size_t n = 0;
    for (size_t i = 0; i < t->n; i++) n += ((unsigned char)t->p[i] & 0xC0) != 0x80;
    return n;
}

size_t rp__jinja_char_at(const jtext *t, size_t n_chars) {
    size_t i = 0;
    while (i < t->n) {
        if (((unsigned char)t->p[i] & 0xC0) != 0x80 && n_chars-- == 0) return i;
        i++;
    }
    return t->n;
}

bool rp__jinja_find(const jtext *t, rp__str needle, size_t from, size_t to, size_t *at) {
    if (from > to || to - from < needle.n) return false;
    if (!needle.n) return *at = from, true;
    const char *p = memmem(t->p + from, to - from, needle.p, needle.n);
    if (p) *at = (size_t)(p - t->p);
    return p != NULL;
}

bool rp__jinja_find_last(const jtext *t, rp__str needle, size_t from, size_t to, size_t *at) {
    if (from > to || to - from < needle.n) return false;
    for (size_t i = to - needle.n + 1; i-- > from;) {
        if (needle.n && memcmp(t->p + i, needle.p, needle.n)) continue;
        *at = i;
        return true;
    }
    return false;
}

static bool is_trimmed(uint32_t cp, const jtext *chars) {
    if (!chars) return rp__jinja_is_space(cp);
    uint32_t c;
    for (size_t i = 0; i < chars->n;) {
        i += rp__jinja_next(chars->p + i, chars->n - i, &c);
        if (c == cp) return true;
    }
    return false;
}

rp_status rp__jinja_trim(jrun *r, const jtext *t, jvalue chars, bool left, bool right,
                         jvalue *out) {
    if (chars.type != J_MISSING && chars.type != J_NONE && chars.type != J_TEXT)
        return rp__jinja_fail(r, RP_EFORMAT, "what is to be stripped must be a string, not %s",
                              rp__jinja_type_name(chars));
    const jtext *set = chars.type == J_TEXT ? chars.text : NULL;
    size_t begin = 0, end = t->n;
    uint32_t cp;
    size_t took;
    while (left && begin < end) {
        took = rp__jinja_next(t->p + begin, end - begin, &cp);
        if (!is_trimmed(cp, set)) break;
        begin += took;
    }
    while (right && end > begin) {
        size_t at = end - 1;
        while (at > begin && ((unsigned char)t->p[at] & 0xC0) == 0x80) at--;
        rp__jinja_next(t->p + at, end - at, &cp);
        if (!is_trimmed(cp, set)) break;
        end = at;
    }
    RP_TRY(rp__jinja_charge(r, (t->n - (end - begin)) * (set ? set->n + 1 : 1)));
    return rp__jinja_part(r, t, begin, end, out);
}

/* Python's line ends: \n, \r, \r\n, \v, \f, \x1c-\x1e, U+0085, U+2028, U+2029. */
static bool is_line_end(uint32_t cp) {
    return (cp >= 0x0A && cp <= 0x0D) || (cp >= 0x1C && cp <= 0x1E) || cp == 0x85 || cp == 0x2028 ||
           cp == 0x2029;
}

bool rp__jinja_line(const jtext *t, size_t at, size_t *end, size_t *next) {
    if (at >= t->n) return false;
    uint32_t cp;
    for (size_t i = at, took; i < t->n; i += took) {
        took = rp__jinja_next(t->p + i, t->n - i, &cp);
        if (!is_line_end(cp)) continue;
        *end = i, *next = i + took;
        if (cp == '\r' && *next < t->n && t->p[*next] == '\n') ++*next;
        return true;
    }
    *end = *next = t->n;
    return true;
}

/* An empty `old` stands between all characters, and before and behind them. */
static rp_status replace_empty(jrun *r, const jtext *t, const jtext *new_, int64_t count,
                               jbuilder *b) {
    uint32_t cp;
    for (size_t i = 0; i <= t->n && count != 0; count--) {
        RP_TRY(rp__jinja_put_text(r, b, new_));
        size_t took = rp__jinja_next(t->p + i, t->n - i, &cp);
        if (!took) return RP_OK;
        RP_TRY(rp__jinja_put_part(r, b, t, i, i + took));
        i += took;
        if (count == 1) return rp__jinja_put_part(r, b, t, i, t->n);
    }
    return RP_OK;
}

rp_status rp__jinja_replace(jrun *r, const jtext *t, const jtext *old, const jtext *new_,
                            int64_t count, jvalue *out) {
    jbuilder b = {0};
    size_t at = 0, found;
    if (count == 0) return rp__jinja_part(r, t, 0, t->n, out);
    if (!old->n) {
        RP_TRY(replace_empty(r, t, new_, count, &b));
        return rp__jinja_build(r, &b, out);
    }
    while (count-- != 0 && rp__jinja_find(t, jview_of(old), at, t->n, &found)) {
        RP_TRY(rp__jinja_put_part(r, &b, t, at, found));
        RP_TRY(rp__jinja_put_text(r, &b, new_));
        at = found + old->n;
    }
    if (!at) return rp__jinja_part(r, t, 0, t->n, out);
    RP_TRY(rp__jinja_put_part(r, &b, t, at, t->n));
    return rp__jinja_build(r, &b, out);
}

rp_status rp__jinja_escape(jrun *r, jbuilder *b, const jtext *t) {
    static const char from[] = "&<>'\"";
    static const char *const to[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    size_t begin = b->n, at = 0;
    for (size_t i = 0; i < t->n; i++) {
        const char *c = t->p[i] ? strchr(from, t->p[i]) : NULL;
        if (!c) continue;
        RP_TRY(rp__jinja_put_part(r, b, t, at, i));
        RP_TRY(rp__jinja_put_str(r, b, to[c - from]));
        at = i + 1;
    }
    RP_TRY(rp__jinja_put_part(r, b, t, at, t->n));
    return t->n_marks ? rp__jinja_mark(r, b, begin) : RP_OK;
}
