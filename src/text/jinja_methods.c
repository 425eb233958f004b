/* Methods of strings, dictionaries, lists and numbers. Rows without a body exist in Python and are
 * refused here. */
#include <string.h>

#include "base/utf8.h"
#include "text/jinja_impl.h"

/* ---- arguments ---- */

static rp_status need_text(jrun *r, jvalue v, const jtext **out) {
    *out = NULL;
    RP_TRY(rp__jinja_need_defined(r, v));
    if (v.type != J_TEXT)
        return rp__jinja_fail(r, RP_EFORMAT, "a string is needed, not %s", rp__jinja_type_name(v));
    return *out = v.text, RP_OK;
}

static rp_status integer_or(jrun *r, jvalue v, int64_t fallback, int64_t *out) {
    *out = fallback;
    if (v.type == J_MISSING) return RP_OK;
    RP_TRY(rp__jinja_need_defined(r, v));
    if (!jis_integer(v))
        return rp__jinja_fail(r, RP_EFORMAT, "an integer is needed, not %s",
                              rp__jinja_type_name(v));
    return *out = jinteger(v), RP_OK;
}

/* Optional start and end, in characters and possibly negative, as bytes. false in *ok: start lies
 * behind the end. */
static rp_status byte_bounds(jrun *r, const jtext *t, jvalue start, jvalue end, size_t *from,
                             size_t *to, bool *ok) {
    int64_t n = (int64_t)rp__jinja_n_chars(t), a, b;
    RP_TRY(integer_or(r, start.type == J_NONE ? (jvalue){.type = J_MISSING} : start, 0, &a));
    RP_TRY(integer_or(r, end.type == J_NONE ? (jvalue){.type = J_MISSING} : end, n, &b));
    if (a < 0) a = a + n < 0 ? 0 : a + n;
    if (b < 0) b = b + n < 0 ? 0 : b + n;
    *ok = a <= n && a <= b;
    *from = rp__jinja_char_at(t, (size_t)(a > n ? n : a));
    *to = rp__jinja_char_at(t, (size_t)(b > n ? n : b));
    return rp__jinja_charge(r, t->n);
}

static int64_t chars_before(const jtext *t, size_t at) {
    jtext head = {.p = t->p, .n = at};
    return (int64_t)rp__jinja_n_chars(&head);
}

/* ---- case and classes ---- */

JINJA_BODY(text_upper) {
    return rp__jinja_recase(r, self.text, CASE_UPPER, out);
}
JINJA_BODY(text_lower) {
    return rp__jinja_recase(r, self.text, CASE_LOWER, out);
}
JINJA_BODY(text_capitalize) {
    return rp__jinja_recase(r, self.text, CASE_CAPITALIZE, out);
}
JINJA_BODY(text_title) {
    return rp__jinja_recase(r, self.text, CASE_TITLE, out);
}
JINJA_BODY(text_swapcase) {
    return rp__jinja_recase(r, self.text, CASE_SWAP, out);
}
JINJA_BODY(text_isalnum) {
    return *out = jbool(rp__jinja_all_are(self.text, CLASS_ALNUM)), RP_OK;
}
JINJA_BODY(text_isalpha) {
    return *out = jbool(rp__jinja_all_are(self.text, CLASS_ALPHA)), RP_OK;
}
JINJA_BODY(text_isascii) {
    return *out = jbool(rp__jinja_all_are(self.text, CLASS_ASCII)), RP_OK;
}
JINJA_BODY(text_isdecimal) {
    return *out = jbool(rp__jinja_all_are(self.text, CLASS_DECIMAL)), RP_OK;
}
JINJA_BODY(text_isdigit) {
    return *out = jbool(rp__jinja_all_are(self.text, CLASS_DIGIT)), RP_OK;
}
JINJA_BODY(text_isnumeric) {
    return *out = jbool(rp__jinja_all_are(self.text, CLASS_NUMERIC)), RP_OK;
}
JINJA_BODY(text_isspace) {
    return *out = jbool(rp__jinja_all_are(self.text, CLASS_SPACE)), RP_OK;
}
JINJA_BODY(text_islower) {
    return *out = jbool(rp__jinja_all_are(self.text, CLASS_LOWER)), RP_OK;
}
JINJA_BODY(text_isupper) {
    return *out = jbool(rp__jinja_all_are(self.text, CLASS_UPPER)), RP_OK;
}
JINJA_BODY(text_istitle) {
    return *out = jbool(rp__jinja_all_are(self.text, CLASS_TITLE)), RP_OK;
}

/* ---- trimming ---- */

JINJA_BODY(text_strip) {
    return rp__jinja_trim(r, self.text, arg[0], true, true, out);
}
JINJA_BODY(text_lstrip) {
    return rp__jinja_trim(r, self.text, arg[0], true, false, out);
}
JINJA_BODY(text_rstrip) {
    return rp__jinja_trim(r, self.text, arg[0], false, true, out);
}

JINJA_BODY(text_removeprefix) {
    const jtext *t;
    RP_TRY(need_text(r, arg[0], &t));
    bool has = rp__str_starts(jview_of(self.text), jview_of(t));
    return rp__jinja_part(r, self.text, has ? t->n : 0, self.text->n, out);
}

static bool ends_with(rp__str s, rp__str end) {
    return s.n >= end.n && !memcmp(s.p + s.n - end.n, end.p, end.n);
}

JINJA_BODY(text_removesuffix) {
    const jtext *t;
    RP_TRY(need_text(r, arg[0], &t));
    bool has = ends_with(jview_of(self.text), jview_of(t));
    return rp__jinja_part(r, self.text, 0, self.text->n - (has ? t->n : 0), out);
}

/* ---- searching ---- */

static rp_status affix(jrun *r, const jtext *t, const jvalue *arg, bool at_end, jvalue *out) {
    size_t from, to;
    bool ok, found = false;
    jlist one = {(jvalue *)arg, 1};
    const jlist *wanted = arg[0].type == J_TUPLE ? arg[0].list : &one;
    RP_TRY(byte_bounds(r, t, arg[1], arg[2], &from, &to, &ok));
    for (size_t i = 0; i < wanted->n; i++) {
        const jtext *w;
        RP_TRY(need_text(r, wanted->p[i], &w));
        rp__str s = {t->p + from, to > from ? to - from : 0};
        found |= ok && (at_end ? ends_with(s, jview_of(w)) : rp__str_starts(s, jview_of(w)));
    }
    return *out = jbool(found), RP_OK;
}

JINJA_BODY(text_startswith) {
    return affix(r, self.text, arg, false, out);
}
JINJA_BODY(text_endswith) {
    return affix(r, self.text, arg, true, out);
}

static rp_status find(jrun *r, const jtext *t, const jvalue *arg, bool last, int64_t *out) {
    const jtext *w;
    size_t from, to, at;
    bool ok;
    RP_TRY(need_text(r, arg[0], &w));
    RP_TRY(byte_bounds(r, t, arg[1], arg[2], &from, &to, &ok));
    ok = ok && (last ? rp__jinja_find_last(t, jview_of(w), from, to, &at)
                     : rp__jinja_find(t, jview_of(w), from, to, &at));
    return *out = ok ? chars_before(t, at) : -1, RP_OK;
}

static rp_status find_or_fail(jrun *r, const jtext *t, const jvalue *arg, bool last, jvalue *out) {
    int64_t at;
    RP_TRY(find(r, t, arg, last, &at));
    if (at < 0) return rp__jinja_fail(r, RP_EFORMAT, "the string to find is not there");
    return *out = jint(at), RP_OK;
}

JINJA_BODY(text_find) {
    *out = jint(0);
    return find(r, self.text, arg, false, &out->i);
}
JINJA_BODY(text_rfind) {
    *out = jint(0);
    return find(r, self.text, arg, true, &out->i);
}
JINJA_BODY(text_index) {
    return find_or_fail(r, self.text, arg, false, out);
}
JINJA_BODY(text_rindex) {
    return find_or_fail(r, self.text, arg, true, out);
}

JINJA_BODY(text_count) {
    const jtext *w;
    size_t from, to, at;
    bool ok;
    int64_t n = 0;
    RP_TRY(need_text(r, arg[0], &w));
    RP_TRY(byte_bounds(r, self.text, arg[1], arg[2], &from, &to, &ok));
    if (ok && !w->n) n = chars_before(self.text, to) - chars_before(self.text, from) + 1;
    while (ok && w->n && rp__jinja_find(self.text, jview_of(w), from, to, &at))
        n++, from = at + w->n;
    return *out = jint(n), RP_OK;
}

/* ---- splitting ---- */

/* Parts are collected here; the list is made at the end. */
typedef struct parts {
    jvalue *p;
    size_t n, cap;
} parts;

static rp_status add_part(jrun *r, parts *v, const jtext *t, size_t begin, size_t end) {
    if (v->n == v->cap) {
        size_t cap = v->cap ? v->cap * 2 : 8;
        jvalue *p = rp__jinja_alloc(r, cap, sizeof *p);
        if (!p) return r->status;
        if (v->n) memcpy(p, v->p, v->n * sizeof *p);
        v->p = p, v->cap = cap;
    }
    RP_TRY(rp__jinja_charge(r, 32));
    return rp__jinja_part(r, t, begin, end, &v->p[v->n++]);
}

static rp_status finish_parts(jrun *r, parts *v, bool reversed, jvalue *out) {
    RP_TRY(rp__jinja_list(r, J_LIST, v->n, out));
    for (size_t i = 0; i < v->n; i++) out->list->p[i] = v->p[reversed ? v->n - 1 - i : i];
    return RP_OK;
}

static size_t skip_spaces(const jtext *t, size_t at, bool spaces) {
    uint32_t cp;
    while (at < t->n) {
        size_t took = rp__jinja_next(t->p + at, t->n - at, &cp);
        if (rp__jinja_is_space(cp) != spaces) break;
        at += took;
    }
    return at;
}

/* The same from the right: where the run that ends at `end` begins. */
static size_t skip_spaces_back(const jtext *t, size_t end, bool spaces) {
    uint32_t cp;
    while (end > 0) {
        size_t at = end - 1;
        while (at > 0 && ((unsigned char)t->p[at] & 0xC0) == 0x80) at--;
        rp__jinja_next(t->p + at, end - at, &cp);
        if (rp__jinja_is_space(cp) != spaces) break;
        end = at;
    }
    return end;
}

static rp_status split_spaces(jrun *r, const jtext *t, int64_t most, parts *v) {
    size_t at = skip_spaces(t, 0, true);
    for (; at < t->n; at = skip_spaces(t, at, true)) {
        size_t end = skip_spaces(t, at, false);
        if (most-- == 0) end = t->n; /* the rest keeps the spaces at its end */
        RP_TRY(add_part(r, v, t, at, end));
        at = end;
    }
    return RP_OK;
}

static rp_status rsplit_spaces(jrun *r, const jtext *t, int64_t most, parts *v) {
    size_t end = skip_spaces_back(t, t->n, true);
    for (; end > 0; end = skip_spaces_back(t, end, true)) {
        size_t begin = skip_spaces_back(t, end, false);
        if (most-- == 0) begin = 0;
        RP_TRY(add_part(r, v, t, begin, end));
        end = begin;
    }
    return RP_OK;
}

static rp_status split_at(jrun *r, const jtext *t, rp__str by, int64_t most, parts *v) {
    size_t at = 0, found;
    while (most-- != 0 && rp__jinja_find(t, by, at, t->n, &found)) {
        RP_TRY(add_part(r, v, t, at, found));
        at = found + by.n;
    }
    return add_part(r, v, t, at, t->n);
}

static rp_status rsplit_at(jrun *r, const jtext *t, rp__str by, int64_t most, parts *v) {
    size_t end = t->n, found;
    while (most-- != 0 && rp__jinja_find_last(t, by, 0, end, &found)) {
        RP_TRY(add_part(r, v, t, found + by.n, end));
        end = found;
    }
    return add_part(r, v, t, 0, end);
}

static rp_status split(jrun *r, const jtext *t, const jvalue *arg, bool from_right, jvalue *out) {
    parts v = {0};
    int64_t most;
    RP_TRY(integer_or(r, arg[1], -1, &most));
    if (arg[0].type == J_MISSING || arg[0].type == J_NONE) {
        RP_TRY(from_right ? rsplit_spaces(r, t, most, &v) : split_spaces(r, t, most, &v));
        return finish_parts(r, &v, from_right, out);
    }
    const jtext *by;
    RP_TRY(need_text(r, arg[0], &by));
    if (!by->n) return rp__jinja_fail(r, RP_EFORMAT, "the separator is empty");
    RP_TRY(from_right ? rsplit_at(r, t, jview_of(by), most, &v)
                      : split_at(r, t, jview_of(by), most, &v));
    return finish_parts(r, &v, from_right, out);
}

JINJA_BODY(text_split) {
    return split(r, self.text, arg, false, out);
}
JINJA_BODY(text_rsplit) {
    return split(r, self.text, arg, true, out);
}

JINJA_BODY(text_splitlines) {
    parts v = {0};
    bool keep = arg[0].type != J_MISSING && rp__jinja_truth(arg[0]);
    for (size_t at = 0, end, next; rp__jinja_line(self.text, at, &end, &next); at = next)
        RP_TRY(add_part(r, &v, self.text, at, keep ? next : end));
    return finish_parts(r, &v, false, out);
}

static rp_status partition(jrun *r, const jtext *t, jvalue by, bool last, jvalue *out) {
    const jtext *w;
    size_t at;
    RP_TRY(need_text(r, by, &w));
    if (!w->n) return rp__jinja_fail(r, RP_EFORMAT, "the separator is empty");
    bool found = last ? rp__jinja_find_last(t, jview_of(w), 0, t->n, &at)
                      : rp__jinja_find(t, jview_of(w), 0, t->n, &at);
    size_t a = found ? at : last ? 0 : t->n, b = found ? at + w->n : a;
    RP_TRY(rp__jinja_list(r, J_TUPLE, 3, out));
    RP_TRY(rp__jinja_part(r, t, 0, a, &out->list->p[0]));
    RP_TRY(rp__jinja_part(r, t, a, b, &out->list->p[1]));
    return rp__jinja_part(r, t, b, t->n, &out->list->p[2]);
}

JINJA_BODY(text_partition) {
    return partition(r, self.text, arg[0], false, out);
}
JINJA_BODY(text_rpartition) {
    return partition(r, self.text, arg[0], true, out);
}

/* ---- building ---- */

JINJA_BODY(text_join) {
    jvalue *items;
    size_t n;
    jbuilder b = {0};
    RP_TRY(rp__jinja_items(r, arg[0], &items, &n));
    for (size_t i = 0; i < n; i++) {
        const jtext *t;
        RP_TRY(need_text(r, items[i], &t));
        if (i) RP_TRY(rp__jinja_put_text(r, &b, self.text));
        RP_TRY(rp__jinja_put_text(r, &b, t));
    }
    return rp__jinja_build(r, &b, out);
}

JINJA_BODY(text_replace) {
    const jtext *old, *new_;
    int64_t count;
    RP_TRY(need_text(r, arg[0], &old));
    RP_TRY(need_text(r, arg[1], &new_));
    RP_TRY(integer_or(r, arg[2], -1, &count));
    return rp__jinja_replace(r, self.text, old, new_, count, out);
}

JINJA_BODY(text_format) {
    return rp__jinja_format(r, self.text, all, out);
}

static rp_status pad(jrun *r, const jtext *t, const jvalue *arg, int how, jvalue *out) {
    int64_t width, n = (int64_t)rp__jinja_n_chars(t);
    uint32_t fill = ' ';
    RP_TRY(integer_or(r, arg[0], 0, &width));
    if (arg[1].type != J_MISSING) {
        const jtext *f;
        RP_TRY(need_text(r, arg[1], &f));
        if (!f->n || rp__jinja_next(f->p, f->n, &fill) != f->n)
            return rp__jinja_fail(r, RP_EFORMAT,
                                  "the character to fill with must be one character");
    }
    int64_t missing = width > n ? width - n : 0;
    /* Python centres with the odd space on the left when the width is odd. */
    int64_t left = how < 0 ? 0 : how > 0 ? missing : missing / 2 + (missing & width & 1);
    jbuilder b = {0};
    RP_TRY(rp__jinja_put_fill(r, &b, fill, left));
    RP_TRY(rp__jinja_put_text(r, &b, t));
    RP_TRY(rp__jinja_put_fill(r, &b, fill, missing - left));
    return rp__jinja_build(r, &b, out);
}

JINJA_BODY(text_ljust) {
    return pad(r, self.text, arg, -1, out);
}
JINJA_BODY(text_rjust) {
    return pad(r, self.text, arg, 1, out);
}
JINJA_BODY(text_center) {
    return pad(r, self.text, arg, 0, out);
}

JINJA_BODY(text_zfill) {
    int64_t width, n = (int64_t)rp__jinja_n_chars(self.text);
    RP_TRY(integer_or(r, arg[0], 0, &width));
    size_t sign = self.text->n && strchr("+-", self.text->p[0]) && self.text->p[0] ? 1 : 0;
    jbuilder b = {0};
    RP_TRY(rp__jinja_put_part(r, &b, self.text, 0, sign));
    RP_TRY(rp__jinja_put_fill(r, &b, '0', width - n));
    RP_TRY(rp__jinja_put_part(r, &b, self.text, sign, self.text->n));
    return rp__jinja_build(r, &b, out);
}

const jrow rp__jinja_text_methods[] = {
    {"capitalize", "", text_capitalize},
    {"center", "/ width fill?", text_center},
    {"count", "/ sub start? end?", text_count},
    {"endswith", "/ suffix start? end?", text_endswith},
    {"find", "/ sub start? end?", text_find},
    {"format", "*", text_format},
    {"index", "/ sub start? end?", text_index},
    {"isalnum", "", text_isalnum},
    {"isalpha", "", text_isalpha},
    {"isascii", "", text_isascii},
    {"isdecimal", "", text_isdecimal},
    {"isdigit", "", text_isdigit},
    {"islower", "", text_islower},
    {"isnumeric", "", text_isnumeric},
    {"isspace", "", text_isspace},
    {"istitle", "", text_istitle},
    {"isupper", "", text_isupper},
    {"join", "/ iterable", text_join},
    {"ljust", "/ width fill?", text_ljust},
    {"lower", "", text_lower},
    {"lstrip", "/ chars?", text_lstrip},
    {"partition", "/ sep", text_partition},
    {"removeprefix", "/ prefix", text_removeprefix},
    {"removesuffix", "/ suffix", text_removesuffix},
    {"replace", "/ old new count?", text_replace},
    {"rfind", "/ sub start? end?", text_rfind},
    {"rindex", "/ sub start? end?", text_rindex},
    {"rjust", "/ width fill?", text_rjust},
    {"rpartition", "/ sep", text_rpartition},
    {"rsplit", "sep? maxsplit?", text_rsplit},
    {"rstrip", "/ chars?", text_rstrip},
    {"split", "sep? maxsplit?", text_split},
    {"splitlines", "keepends?", text_splitlines},
    {"startswith", "/ prefix start? end?", text_startswith},
    {"strip", "/ chars?", text_strip},
    {"swapcase", "", text_swapcase},
    {"title", "", text_title},
    {"upper", "", text_upper},
    {"zfill", "/ width", text_zfill},
    {"casefold", "", NULL},
    {"encode", "", NULL},
    {"expandtabs", "", NULL},
    {"format_map", "", NULL},
    {"isidentifier", "", NULL},
    {"isprintable", "", NULL},
    {"maketrans", "", NULL},
    {"translate", "", NULL},
    {0},
};

/* ---- dictionaries ---- */

JINJA_BODY(dict_get) {
    RP_TRY(rp__jinja_need_hashable(r, arg[0]));
    RP_TRY(rp__jinja_dict_get(r, self.dict, arg[0], out));
    if (out->type == J_MISSING) *out = arg[1].type == J_MISSING ? jnone() : arg[1];
    return RP_OK;
}

static rp_status make_view(jrun *r, jdict *d, jview_kind kind, jvalue *out) {
    jview *v = rp__jinja_alloc(r, 1, sizeof *v);
    if (!v) return r->status;
    *v = (jview){d, kind};
    *out = (jvalue){.type = J_VIEW, .view = v};
    return RP_OK;
}

JINJA_BODY(dict_keys) {
    return make_view(r, self.dict, VIEW_KEYS, out);
}
JINJA_BODY(dict_values) {
    return make_view(r, self.dict, VIEW_VALUES, out);
}
JINJA_BODY(dict_items) {
    return make_view(r, self.dict, VIEW_ITEMS, out);
}
JINJA_BODY(copy) {
    return *out = self, RP_OK;
} /* nothing can change either of them */

const jrow rp__jinja_dict_methods[] = {
    {"get", "/ key default?", dict_get},
    {"keys", "", dict_keys},
    {"values", "", dict_values},
    {"items", "", dict_items},
    {"copy", "", copy},
    {"fromkeys", "*", NULL},
    {0},
};

/* ---- lists and tuples ---- */

JINJA_BODY(list_count) {
    int64_t n = 0;
    for (size_t i = 0; i < self.list->n; i++) {
        bool equal;
        RP_TRY(rp__jinja_equal(r, self.list->p[i], arg[0], &equal));
        n += equal;
    }
    return *out = jint(n), RP_OK;
}

JINJA_BODY(list_index) {
    int64_t n = (int64_t)self.list->n, start, end;
    RP_TRY(integer_or(r, arg[1], 0, &start));
    RP_TRY(integer_or(r, arg[2], n, &end));
    if (start < 0) start = start + n < 0 ? 0 : start + n;
    if (end < 0) end += n;
    for (int64_t i = start; i < end && i < n; i++) {
        bool equal;
        RP_TRY(rp__jinja_equal(r, self.list->p[i], arg[0], &equal));
        if (equal) return *out = jint(i), RP_OK;
    }
    return rp__jinja_fail(r, RP_EFORMAT, "the value to find is not in the list");
}

const jrow rp__jinja_list_methods[] = {
    {"count", "/ value", list_count},
    {"index", "/ value start? end?", list_index},
    {"copy", "", copy},
    {0},
};

const jrow rp__jinja_number_methods[] = {
    {"real", "", NULL},       {"imag", "", NULL},
    {"numerator", "", NULL},  {"denominator", "", NULL},
    {"conjugate", "", NULL},  {"bit_length", "", NULL},
    {"bit_count", "", NULL},  {"to_bytes", "", NULL},
    {"from_bytes", "", NULL}, {"as_integer_ratio", "", NULL},
    {"is_integer", "", NULL}, {"hex", "", NULL},
    {"fromhex", "", NULL},    {0},
};
