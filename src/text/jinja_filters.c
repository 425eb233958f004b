/* Filters of texts, numbers and single values; those of sequences are in jinja_filters_seq.c. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/jinja_impl.h"

const jrow *rp__jinja_find_filter(rp__str name) {
    const jrow *row = rp__jinja_find_row(rp__jinja_filters, name);
    return row ? row : rp__jinja_find_row(rp__jinja_sequence_filters, name);
}

static bool is_given(jvalue v) {
    return v.type != J_MISSING;
}

/* ---- texts ---- */

static rp_status recase(jrun *r, jvalue v, jcase how, jvalue *out) {
    const jtext *t;
    RP_TRY(rp__jinja_to_text(r, v, &t));
    return rp__jinja_recase(r, t, how, out);
}

JINJA_BODY(filter_upper) {
    return recase(r, self, CASE_UPPER, out);
}
JINJA_BODY(filter_lower) {
    return recase(r, self, CASE_LOWER, out);
}
JINJA_BODY(filter_capitalize) {
    return recase(r, self, CASE_CAPITALIZE, out);
}
JINJA_BODY(filter_title) {
    return recase(r, self, CASE_TITLE_WORDS, out);
}

JINJA_BODY(filter_trim) {
    const jtext *t;
    RP_TRY(rp__jinja_to_text(r, self, &t));
    return rp__jinja_trim(r, t, arg[0], true, true, out);
}

JINJA_BODY(filter_string) {
    const jtext *t;
    RP_TRY(rp__jinja_to_text(r, self, &t));
    return *out = jstr(t), RP_OK;
}

JINJA_BODY(filter_replace) {
    const jtext *t, *old, *new_;
    RP_TRY(rp__jinja_to_text(r, self, &t));
    RP_TRY(rp__jinja_to_text(r, arg[0], &old));
    RP_TRY(rp__jinja_to_text(r, arg[1], &new_));
    int64_t count = -1;
    if (is_given(arg[2]) && arg[2].type != J_NONE) {
        if (!jis_integer(arg[2]))
            return rp__jinja_fail(r, RP_EFORMAT, "replace needs an integer as count");
        count = jinteger(arg[2]);
    }
    return rp__jinja_replace(r, t, old, new_, count, out);
}

static rp_status as_markup(jrun *r, jvalue v, jvalue *out) {
    jtext *t = rp__jinja_alloc(r, 1, sizeof *t);
    if (!t) return r->status;
    *t = *v.text;
    t->markup = true;
    return *out = jstr(t), RP_OK;
}

JINJA_BODY(filter_safe) {
    const jtext *t;
    RP_TRY(rp__jinja_to_text(r, self, &t));
    return as_markup(r, jstr(t), out);
}

JINJA_BODY(filter_forceescape) {
    const jtext *t;
    jbuilder b = {0};
    RP_TRY(rp__jinja_to_text(r, self, &t));
    RP_TRY(rp__jinja_escape(r, &b, t));
    RP_TRY(rp__jinja_build(r, &b, out));
    return as_markup(r, *out, out);
}

JINJA_BODY(filter_escape) {
    if (self.type == J_TEXT && self.text->markup) return *out = self, RP_OK;
    return filter_forceescape(r, self, arg, all, out);
}

static rp_status indent_width(jrun *r, jvalue v, const jtext **out) {
    if (v.type == J_TEXT) return *out = v.text, RP_OK;
    if (is_given(v) && !jis_integer(v))
        return rp__jinja_fail(r, RP_EFORMAT, "indent needs an integer or a string");
    jbuilder b = {0};
    RP_TRY(rp__jinja_put_fill(r, &b, ' ', is_given(v) ? jinteger(v) : 4));
    RP_TRY(rp__jinja_build(r, &b, &v));
    return *out = v.text, RP_OK;
}

/* The first line is indented with `first`, empty ones with `blank`. A line end more is put behind
 * the text before it is cut, so that an ending "\n" stays. */
JINJA_BODY(filter_indent) {
    const jtext *indent = NULL, *t;
    jbuilder whole = {0}, b = {0};
    if (self.type != J_TEXT)
        return rp__jinja_fail(r, RP_EFORMAT, "indent needs a string, not %s",
                              rp__jinja_type_name(self));
    RP_TRY(indent_width(r, arg[0], &indent));
    bool first = is_given(arg[1]) && rp__jinja_truth(arg[1]),
         blank = is_given(arg[2]) && rp__jinja_truth(arg[2]);
    RP_TRY(rp__jinja_put_text(r, &whole, self.text));
    RP_TRY(rp__jinja_put_str(r, &whole, "\n"));
    RP_TRY(rp__jinja_build(r, &whole, out));
    t = out->text;
    for (size_t at = 0, end, next; rp__jinja_line(t, at, &end, &next); at = next) {
        if (at) RP_TRY(rp__jinja_put_str(r, &b, "\n"));
        if (at ? blank || end > at : first) RP_TRY(rp__jinja_put_text(r, &b, indent));
        RP_TRY(rp__jinja_put_part(r, &b, t, at, end));
    }
    return rp__jinja_build(r, &b, out);
}

JINJA_BODY(filter_center) {
    const jrow *row = rp__jinja_find_row(rp__jinja_text_methods, RP_STR("center"));
    jvalue width = is_given(arg[0]) ? arg[0] : jint(80);
    const jtext *t;
    RP_TRY(rp__jinja_to_text(r, self, &t));
    return rp__jinja_apply(r, "filter", row, jstr(t), &(jargs){.p = &width, .n = 1}, out);
}

JINJA_BODY(filter_wordcount) {
    const jtext *t;
    int64_t n = 0;
    bool in_word = false;
    uint32_t cp;
    RP_TRY(rp__jinja_to_text(r, self, &t));
    for (size_t i = 0; i < t->n;) {
        i += rp__jinja_next(t->p + i, t->n - i, &cp);
        bool word = rp__jinja_is_word(cp);
        n += word && !in_word;
        in_word = word;
    }
    return *out = jint(n), RP_OK;
}

static rp_status truncate_args(jrun *r, const jvalue *arg, int64_t *length, int64_t *leeway,
                               const jtext **end) {
    static const jtext dots = {.p = "...", .n = 3};
    *length = is_given(arg[0]) && jis_integer(arg[0]) ? jinteger(arg[0]) : 255;
    *leeway = is_given(arg[3]) && jis_integer(arg[3]) ? jinteger(arg[3]) : 5;
    *end = arg[2].type == J_TEXT ? arg[2].text : &dots;
    if (*length < (int64_t)rp__jinja_n_chars(*end) || *leeway < 0 || *length > INT32_MAX ||
        *leeway > INT32_MAX)
        return rp__jinja_fail(r, RP_EFORMAT, "truncate cannot use this length or leeway");
    return RP_OK;
}

JINJA_BODY(filter_truncate) {
    int64_t length, leeway;
    const jtext *end, *t = self.text;
    if (self.type != J_TEXT)
        return rp__jinja_fail(r, RP_EFORMAT, "truncate needs a string, not %s",
                              rp__jinja_type_name(self));
    RP_TRY(truncate_args(r, arg, &length, &leeway, &end));
    if ((int64_t)rp__jinja_n_chars(t) <= length + leeway) return *out = self, RP_OK;
    size_t cut = rp__jinja_char_at(t, (size_t)length - rp__jinja_n_chars(end)), space;
    bool kill = is_given(arg[1]) && rp__jinja_truth(arg[1]);
    if (!kill && rp__jinja_find_last(t, RP_STR(" "), 0, cut, &space)) cut = space;
    jbuilder b = {0};
    RP_TRY(rp__jinja_put_part(r, &b, t, 0, cut));
    RP_TRY(rp__jinja_put_text(r, &b, end));
    return rp__jinja_build(r, &b, out);
}

JINJA_BODY(filter_format) {
    const jtext *t;
    jvalue args;
    RP_TRY(rp__jinja_to_text(r, self, &t));
    if (all->n && all->n_kw)
        return rp__jinja_fail(r, RP_EFORMAT,
                              "format takes arguments by position or by name, not both");
    if (all->n_kw) {
        RP_TRY(rp__jinja_dict(r, all->n_kw, J_DICT, &args));
        for (size_t i = 0; i < all->n_kw; i++)
            RP_TRY(rp__jinja_dict_put(r, args.dict, jstr(all->kw[i].name), all->kw[i].value));
    } else {
        RP_TRY(rp__jinja_list(r, J_TUPLE, all->n, &args));
        if (all->n) memcpy(args.list->p, all->p, all->n * sizeof *all->p);
    }
    return rp__jinja_percent(r, t, args, out);
}

/* ---- JSON ---- */

static rp_status json_indent(jrun *r, jvalue v, const jtext **out) {
    *out = NULL;
    if (!is_given(v) || v.type == J_NONE) return RP_OK;
    if (v.type == J_TEXT) return *out = v.text, RP_OK;
    if (!jis_integer(v))
        return rp__jinja_fail(r, RP_EFORMAT, "tojson needs an integer or a string as indent");
    if (jinteger(v) > JINJA_MAX_WIDTH)
        return rp__jinja_fail(r, RP_ELIMIT, "tojson indents by at most %d", JINJA_MAX_WIDTH);
    jbuilder b = {0};
    RP_TRY(rp__jinja_put_fill(r, &b, ' ', jinteger(v)));
    RP_TRY(rp__jinja_build(r, &b, &v));
    return *out = v.text, RP_OK;
}

JINJA_BODY(filter_tojson) {
    static const jtext comma_space = {.p = ", ", .n = 2}, comma = {.p = ",", .n = 1},
                       colon = {.p = ": ", .n = 2};
    jdump how = {.key_separator = &colon};
    jbuilder b = {0};
    how.ensure_ascii = is_given(arg[0]) && rp__jinja_truth(arg[0]);
    RP_TRY(json_indent(r, arg[1], &how.indent));
    how.item_separator = how.indent ? &comma : &comma_space;
    if (is_given(arg[2]) && arg[2].type != J_NONE) {
        jvalue *p;
        size_t n;
        RP_TRY(rp__jinja_items(r, arg[2], &p, &n));
        if (n != 2 || p[0].type != J_TEXT || p[1].type != J_TEXT)
            return rp__jinja_fail(r, RP_EFORMAT, "tojson needs two strings as separators");
        how.item_separator = p[0].text, how.key_separator = p[1].text;
    }
    how.sort_keys = is_given(arg[3]) && rp__jinja_truth(arg[3]);
    RP_TRY(rp__jinja_to_json(r, &b, self, &how));
    return rp__jinja_build(r, &b, out);
}

/* ---- numbers ---- */

JINJA_BODY(filter_abs) {
    RP_TRY(rp__jinja_need_defined(r, self));
    if (!jis_number(self))
        return rp__jinja_fail(r, RP_EFORMAT, "abs needs a number, not %s",
                              rp__jinja_type_name(self));
    if (self.type == J_FLOAT) return *out = jfloat(fabs(self.f)), RP_OK;
    return rp__jinja_negate(r, self, jinteger(self) < 0, out);
}

static rp_status double_as_int(jrun *r, double f, bool *ok, int64_t *out) {
    *ok = false;
    if (isnan(f) || isinf(f)) return RP_OK;
    if (!rp__jinja_double_to_int(f, out))
        return rp__jinja_fail(r, RP_EUNSUPPORTED, "an integer needs more than 64 bits");
    return *ok = true, RP_OK;
}

static rp_status text_as_int(jrun *r, const jtext *t, int base, bool *ok, int64_t *out) {
    double f;
    RP_TRY(rp__jinja_parse_int(r, jview_of(t), base, ok, out));
    if (*ok || !rp__jinja_parse_float(jview_of(t), &f)) return RP_OK;
    return double_as_int(r, f, ok, out);
}

JINJA_BODY(filter_int) {
    bool ok = false;
    int64_t i = 0, base = is_given(arg[1]) && jis_integer(arg[1]) ? jinteger(arg[1]) : 10;
    RP_TRY(rp__jinja_need_defined(r, self));
    if (base != 0 && (base < 2 || base > 36)) base = 10;
    if (self.type == J_TEXT)
        RP_TRY(text_as_int(r, self.text, (int)base, &ok, &i));
    else if (self.type == J_FLOAT)
        RP_TRY(double_as_int(r, self.f, &ok, &i));
    else if (jis_integer(self))
        ok = true, i = jinteger(self);
    return *out = ok ? jint(i) : is_given(arg[0]) ? arg[0] : jint(0), RP_OK;
}

JINJA_BODY(filter_float) {
    double f;
    RP_TRY(rp__jinja_need_defined(r, self));
    if (jis_number(self)) return *out = jfloat(jdouble(self)), RP_OK;
    if (self.type == J_TEXT && rp__jinja_parse_float(jview_of(self.text), &f))
        return *out = jfloat(f), RP_OK;
    return *out = is_given(arg[0]) ? arg[0] : jfloat(0), RP_OK;
}

/* Half to even, decided on the exact decimal value of the binary number, which the C library
 * prints. */
static double round_double(double f, int64_t digits) {
    char s[400];
    if (!isfinite(f) || digits > 300) return f;
    if (digits >= 0) {
        snprintf(s, sizeof s, "%.*f", (int)digits, f);
        return strtod(s, NULL);
    }
    if (digits < -308) return 0;
    double unit = pow(10, (double)-digits);
    return rint(f / unit) * unit;
}

static int64_t round_int(int64_t i, int64_t digits) {
    if (digits >= 0) return i;
    if (digits < -18) return 0;
    int64_t unit = 1;
    for (; digits < 0; digits++) unit *= 10;
    int64_t rest = i % unit, down = i - rest, half = unit / 2;
    if (rest < 0) rest += unit, down -= unit;
    bool up = rest > half || (rest == half && (down / unit) % 2 != 0);
    return up ? down + unit : down;
}

JINJA_BODY(filter_round) {
    int64_t digits = is_given(arg[0]) && jis_integer(arg[0]) ? jinteger(arg[0]) : 0;
    rp__str method = arg[1].type == J_TEXT ? jview_of(arg[1].text) : RP_STR("common");
    RP_TRY(rp__jinja_need_defined(r, self));
    if (!jis_number(self))
        return rp__jinja_fail(r, RP_EFORMAT, "round needs a number, not %s",
                              rp__jinja_type_name(self));
    if (rp__str_is(method, "common")) {
        if (self.type == J_FLOAT) return *out = jfloat(round_double(self.f, digits)), RP_OK;
        int64_t i = jinteger(self);
        if (i > INT64_MAX / 2 || i < INT64_MIN / 2) return *out = jint(i), RP_OK;
        return *out = jint(round_int(i, digits)), RP_OK;
    }
    bool ceils = rp__str_is(method, "ceil");
    if (!ceils && !rp__str_is(method, "floor"))
        return rp__jinja_fail(r, RP_EFORMAT, "round knows the methods common, ceil and floor");
    double unit = pow(10, (double)digits), scaled = jdouble(self) * unit;
    return *out = jfloat((ceils ? ceil(scaled) : floor(scaled)) / unit), RP_OK;
}

JINJA_BODY(filter_default) {
    (void)r;
    bool boolean = is_given(arg[1]) && rp__jinja_truth(arg[1]);
    static const jtext empty = {.p = ""};
    bool use = self.type == J_UNDEFINED || (boolean && !rp__jinja_truth(self));
    return *out = !use ? self : is_given(arg[0]) ? arg[0] : jstr(&empty), RP_OK;
}

JINJA_BODY(filter_attr) {
    if (arg[0].type != J_TEXT) return rp__jinja_fail(r, RP_EFORMAT, "attr needs a string");
    if (self.type == J_DICT && !rp__jinja_find_row(rp__jinja_dict_methods, jview_of(arg[0].text)))
        return *out = jundefined(arg[0].text), RP_OK; /* attributes only, no items */
    return rp__jinja_attr(r, self, arg[0].text, out);
}

const jrow rp__jinja_filters[] = {
    {"upper", "", filter_upper},
    {"lower", "", filter_lower},
    {"capitalize", "", filter_capitalize},
    {"title", "", filter_title},
    {"trim", "chars?", filter_trim},
    {"string", "", filter_string},
    {"replace", "old new count?", filter_replace},
    {"safe", "", filter_safe},
    {"escape", "", filter_escape},
    {"e", "", filter_escape},
    {"forceescape", "", filter_forceescape},
    {"indent", "width? first? blank?", filter_indent},
    {"center", "width?", filter_center},
    {"wordcount", "", filter_wordcount},
    {"truncate", "length? killwords? end? leeway?", filter_truncate},
    {"format", "*", filter_format},
    {"tojson", "ensure_ascii? indent? separators? sort_keys?", filter_tojson},
    {"abs", "", filter_abs},
    {"int", "default? base?", filter_int},
    {"float", "default?", filter_float},
    {"round", "precision? method?", filter_round},
    {"default", "default_value? boolean?", filter_default},
    {"d", "default_value? boolean?", filter_default},
    {"attr", "name", filter_attr},
    {"filesizeformat", "", NULL},
    {"pprint", "", NULL},
    {"striptags", "", NULL},
    {"urlencode", "", NULL},
    {"urlize", "", NULL},
    {"wordwrap", "", NULL},
    {"xmlattr", "", NULL},
    {"random", "", NULL},
    {0},
};
