/* "..." % args and "...".format(args), as Python formats. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/jinja_impl.h"

/* One field's wishes; -1: not given. */
typedef struct spec {
    uint32_t fill;
    char align; /* '<', '>', '^', '=', 0: the type's own */
    char sign;  /* '+', ' ', 0 */
    bool alternate, comma;
    int64_t width, precision;
    char type; /* 0: none */
} spec;

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static rp_status read_number(jrun *r, const jtext *f, size_t *at, int64_t *out) {
    *out = 0;
    while (*at < f->n && is_digit(f->p[*at])) {
        *out = *out * 10 + (f->p[(*at)++] - '0');
        if (*out > JINJA_MAX_WIDTH)
            return rp__jinja_fail(r, RP_ELIMIT, "a format is wider than %d", JINJA_MAX_WIDTH);
    }
    return RP_OK;
}

/* ---- laying out ---- */

/* The body of a number, its sign apart: padding may go between them. */
static rp_status put_padded(jrun *r, jbuilder *b, const spec *s, char align, const char *sign,
                            const jtext *body) {
    int64_t n = (int64_t)(strlen(sign) + rp__jinja_n_chars(body)),
            missing = s->width > n ? s->width - n : 0;
    int64_t left = align == '>' ? missing : align == '^' ? missing / 2 : 0;
    RP_TRY(rp__jinja_put_fill(r, b, s->fill, left));
    RP_TRY(rp__jinja_put_str(r, b, sign));
    if (align == '=') RP_TRY(rp__jinja_put_fill(r, b, s->fill, missing));
    RP_TRY(rp__jinja_put_text(r, b, body));
    return align == '=' ? RP_OK : rp__jinja_put_fill(r, b, s->fill, missing - left);
}

static rp_status put_text_field(jrun *r, jbuilder *b, const spec *s, const jtext *t, char align) {
    jvalue part = jstr(t);
    if (s->precision >= 0)
        RP_TRY(rp__jinja_part(r, t, 0, rp__jinja_char_at(t, (size_t)s->precision), &part));
    return put_padded(r, b, s, s->align ? s->align : align, "", part.text);
}

/* Commas between thousands of the digits before the point. */
static void add_commas(const char *from, char *to) {
    size_t whole = strspn(from, "0123456789"), k = 0;
    for (size_t i = 0; i < whole; i++) {
        if (i && (whole - i) % 3 == 0) to[k++] = ',';
        to[k++] = from[i];
    }
    memcpy(to + k, from + whole, strlen(from + whole) + 1);
}

static rp_status put_number(jrun *r, jbuilder *b, const spec *s, bool negative, const char *prefix,
                            const char *digits) {
    char sign[8], commas[1400];
    snprintf(sign, sizeof sign, "%s%s",
             negative         ? "-"
             : s->sign == '+' ? "+"
             : s->sign == ' ' ? " "
                              : "",
             prefix);
    if (s->comma) add_commas(digits, commas);
    const char *body = s->comma ? commas : digits;
    return put_padded(r, b, s, s->align ? s->align : '>', sign,
                      &(jtext){.p = body, .n = strlen(body)});
}

static rp_status put_integer(jrun *r, jbuilder *b, const spec *s, int64_t i,
                             bool precision_is_digits) {
    char digits[80], padded[1000];
    uint64_t u = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
    const char *prefix = !s->alternate    ? ""
                         : s->type == 'x' ? "0x"
                         : s->type == 'X' ? "0X"
                         : s->type == 'o' ? "0o"
                                          : "";
    if (s->type == 'b') {
        int n = 0;
        for (int bit = 63; bit >= 0; bit--)
            if (u >> bit || !bit) digits[n++] = (char)('0' + (u >> bit & 1));
        digits[n] = 0;
        if (s->alternate) prefix = "0b";
    } else {
        snprintf(digits, sizeof digits,
                 s->type == 'x'   ? "%llx"
                 : s->type == 'X' ? "%llX"
                 : s->type == 'o' ? "%llo"
                                  : "%llu",
                 (unsigned long long)u);
    }
    size_t n = strlen(digits),
           want = precision_is_digits && s->precision > (int64_t)n ? (size_t)s->precision : n;
    if (want >= sizeof padded)
        return rp__jinja_fail(r, RP_ELIMIT, "a precision of %zu is too much", want);
    memset(padded, '0', want - n);
    memcpy(padded + want - n, digits, n + 1);
    return put_number(r, b, s, i < 0, prefix, padded);
}

static rp_status put_float(jrun *r, jbuilder *b, const spec *s, double f) {
    char format[16], digits[1100];
    char type = s->type == '%' ? 'f' : s->type;
    if (s->type == '%') f *= 100;
    if (s->precision > 500)
        return rp__jinja_fail(r, RP_ELIMIT, "a precision of %lld is too much",
                              (long long)s->precision);
    if (isnan(f) || isinf(f)) {
        bool upper = type == 'E' || type == 'F' || type == 'G';
        snprintf(digits, sizeof digits, "%s",
                 isnan(f) ? (upper ? "NAN" : "nan") : (upper ? "INF" : "inf"));
    } else {
        snprintf(format, sizeof format, "%%%s.*%c", s->alternate ? "#" : "", type);
        snprintf(digits, sizeof digits, format, (int)(s->precision < 0 ? 6 : s->precision),
                 fabs(f));
    }
    if (s->type == '%') snprintf(digits + strlen(digits), sizeof digits - strlen(digits), "%%");
    return put_number(r, b, s, signbit(f) && !isnan(f), "", digits);
}

/* ---- % ---- */

typedef struct percent {
    jrun *r;
    const jtext *f;
    size_t at, next; /* place in the format; next argument */
    jvalue args;     /* the tuple, or the one value */
    jbuilder b;
    bool tainted;
} percent;

static rp_status next_arg(percent *p, jvalue *out) {
    bool is_tuple = p->args.type == J_TUPLE;
    size_t n = is_tuple ? p->args.list->n : 1;
    if (p->next >= n)
        return rp__jinja_fail(p->r, RP_EFORMAT, "there are too few arguments for the format");
    *out = is_tuple ? p->args.list->p[p->next] : p->args;
    p->next++;
    return RP_OK;
}

/* %(name)s takes its argument from a dict. */
static rp_status named_arg(percent *p, jvalue *out) {
    size_t end;
    if (p->args.type != J_DICT)
        return rp__jinja_fail(p->r, RP_EFORMAT, "the format needs a mapping");
    if (!rp__jinja_find(p->f, RP_STR(")"), p->at, p->f->n, &end))
        return rp__jinja_fail(p->r, RP_EFORMAT, "the format has a name without \")\"");
    rp__str name = {p->f->p + p->at + 1, end - p->at - 1};
    if (!rp__jinja_dict_find(p->args.dict, name, out))
        return rp__jinja_fail(p->r, RP_EFORMAT, "the format names a key that is not there");
    p->at = end + 1;
    return RP_OK;
}

static rp_status read_star_or_number(percent *p, int64_t *out) {
    if (p->at >= p->f->n || p->f->p[p->at] != '*') return read_number(p->r, p->f, &p->at, out);
    jvalue v;
    p->at++;
    RP_TRY(next_arg(p, &v));
    if (!jis_integer(v) || jinteger(v) > JINJA_MAX_WIDTH || jinteger(v) < -JINJA_MAX_WIDTH)
        return rp__jinja_fail(p->r, RP_EFORMAT, "\"*\" in a format needs a small integer");
    return *out = jinteger(v), RP_OK;
}

static rp_status read_percent_spec(percent *p, spec *s) {
    const jtext *f = p->f;
    bool zero = false, left = false;
    *s = (spec){.fill = ' ', .width = -1, .precision = -1};
    for (; p->at < f->n && f->p[p->at] && strchr("-+ 0#", f->p[p->at]); p->at++) {
        char c = f->p[p->at];
        if (c == '-')
            left = true;
        else if (c == '0')
            zero = true;
        else if (c == '#')
            s->alternate = true;
        else if (s->sign != '+')
            s->sign = c;
    }
    RP_TRY(read_star_or_number(p, &s->width));
    if (s->width < 0) left = true, s->width = -s->width;
    if (p->at < f->n && f->p[p->at] == '.') {
        p->at++;
        RP_TRY(read_star_or_number(p, &s->precision));
        if (s->precision < 0) s->precision = 0;
    }
    while (p->at < f->n && f->p[p->at] && strchr("hlL", f->p[p->at])) p->at++;
    if (p->at >= f->n) return rp__jinja_fail(p->r, RP_EFORMAT, "the format is incomplete");
    s->type = f->p[p->at++];
    s->align = left ? '<' : zero && strchr("diuoxXeEfFgG", s->type) ? '=' : '>';
    if (s->align == '=') s->fill = '0';
    return RP_OK;
}

static rp_status put_percent_text(percent *p, const spec *s, jvalue v) {
    jbuilder b = {0};
    if (s->type == 'a')
        return rp__jinja_fail(p->r, RP_EUNSUPPORTED, "the format %%a is not implemented");
    RP_TRY(s->type == 'r' ? rp__jinja_write_repr(p->r, &b, v) : rp__jinja_write(p->r, &b, v));
    RP_TRY(rp__jinja_build(p->r, &b, &v));
    p->tainted |= v.text->n_marks > 0;
    return put_text_field(p->r, &p->b, s, v.text, '>');
}

static rp_status put_character(percent *p, const spec *s, jvalue v) {
    jbuilder b = {0};
    if (v.type == J_TEXT && rp__jinja_n_chars(v.text) == 1) return put_percent_text(p, s, v);
    bool valid = jis_integer(v) && jinteger(v) >= 0 && jinteger(v) <= 0x10FFFF &&
                 !(jinteger(v) >= 0xD800 && jinteger(v) <= 0xDFFF);
    if (!valid) return rp__jinja_fail(p->r, RP_EFORMAT, "the format %%c needs a character");
    RP_TRY(rp__jinja_put_char(p->r, &b, (uint32_t)jinteger(v)));
    RP_TRY(rp__jinja_build(p->r, &b, &v));
    return put_text_field(p->r, &p->b, s, v.text, '>');
}

static rp_status put_percent_integer(percent *p, spec *s, jvalue v) {
    int64_t i;
    bool is_decimal = strchr("diu", s->type) != NULL;
    if (v.type == J_FLOAT && is_decimal) {
        if (!rp__jinja_double_to_int(v.f, &i))
            return rp__jinja_fail(p->r, RP_EUNSUPPORTED, "an integer needs more than 64 bits");
    } else if (jis_integer(v)) {
        i = jinteger(v);
    } else {
        return rp__jinja_fail(p->r, RP_EFORMAT, "the format %%%c needs a number, not %s", s->type,
                              rp__jinja_type_name(v));
    }
    if (is_decimal) s->type = 'd';
    return put_integer(p->r, &p->b, s, i, true);
}

static rp_status put_percent_field(percent *p) {
    jvalue v = {.type = J_MISSING};
    spec s;
    if (p->at < p->f->n && p->f->p[p->at] == '(') RP_TRY(named_arg(p, &v));
    RP_TRY(read_percent_spec(p, &s));
    if (s.type == '%') return rp__jinja_put_str(p->r, &p->b, "%");
    if (v.type == J_MISSING) RP_TRY(next_arg(p, &v));
    if (s.type == 's' || s.type == 'r' || s.type == 'a') return put_percent_text(p, &s, v);
    RP_TRY(rp__jinja_need_defined(p->r, v));
    if (s.type == 'c') return put_character(p, &s, v);
    if (s.type && strchr("diuoxX", s.type)) return put_percent_integer(p, &s, v);
    if (!s.type || !strchr("eEfFgG", s.type))
        return rp__jinja_fail(p->r, RP_EFORMAT, "the format has an unknown conversion");
    if (!jis_number(v))
        return rp__jinja_fail(p->r, RP_EFORMAT, "the format %%%c needs a number", s.type);
    return put_float(p->r, &p->b, &s, jdouble(v));
}

rp_status rp__jinja_percent(jrun *r, const jtext *format, jvalue args, jvalue *out) {
    percent p = {.r = r, .f = format, .args = args, .tainted = format->n_marks > 0};
    size_t sign;
    while (rp__jinja_find(format, RP_STR("%"), p.at, format->n, &sign)) {
        RP_TRY(rp__jinja_put_part(r, &p.b, format, p.at, sign));
        p.at = sign + 1;
        RP_TRY(put_percent_field(&p));
    }
    RP_TRY(rp__jinja_put_part(r, &p.b, format, p.at, format->n));
    bool may_stay = args.type == J_DICT || args.type == J_LIST || args.type == J_UNDEFINED;
    size_t n =
        args.type == J_TUPLE ? args.list->n : !may_stay; /* what has subscripts may be left over */
    if (p.next < n)
        return rp__jinja_fail(r, RP_EFORMAT, "there are too many arguments for the format");
    if (p.tainted) RP_TRY(rp__jinja_mark(r, &p.b, 0));
    return rp__jinja_build(r, &p.b, out);
}

/* ---- format() ---- */

typedef struct braces {
    jrun *r;
    const jtext *f;
    const jargs *args;
    size_t next;
    bool counts, names_numbers; /* "{}" and "{0}" do not mix */
    jbuilder b;
    bool tainted;
} braces;

static rp_status keyed_arg(braces *p, rp__str name, jvalue *out) {
    for (size_t i = 0; i < p->args->n_kw; i++)
        if (rp__str_eq(jview_of(p->args->kw[i].name), name))
            return *out = p->args->kw[i].value, RP_OK;
    return rp__jinja_fail(p->r, RP_EFORMAT, "the format names an argument that is not there");
}

static rp_status first_arg(braces *p, rp__str name, jvalue *out) {
    int64_t i = (int64_t)p->next;
    bool ok = true;
    if (name.n && !is_digit(name.p[0])) return keyed_arg(p, name, out);
    if (name.n) {
        p->names_numbers = true;
        RP_TRY(rp__jinja_parse_int(p->r, name, 10, &ok, &i));
    } else {
        p->counts = true;
        p->next++;
    }
    if (p->counts && p->names_numbers)
        return rp__jinja_fail(p->r, RP_EFORMAT, "the format mixes numbered and plain fields");
    if (!ok || i < 0 || i >= (int64_t)p->args->n)
        return rp__jinja_fail(p->r, RP_EFORMAT, "the format names an argument that is not there");
    return *out = p->args->p[i], RP_OK;
}

/* The ".name" and "[key]" behind the first part of a field. */
static rp_status follow_path(braces *p, rp__str path, jvalue *v) {
    for (size_t at = 0; at < path.n;) {
        bool is_attr = path.p[at] == '.';
        size_t begin = ++at, end;
        while (at < path.n &&
               (is_attr ? path.p[at] != '.' && path.p[at] != '[' : path.p[at] != ']'))
            at++;
        end = at;
        if (!is_attr && at++ >= path.n)
            return rp__jinja_fail(p->r, RP_EFORMAT, "the format has a \"[\" without \"]\"");
        jvalue key;
        RP_TRY(rp__jinja_text(p->r, path.p + begin, end - begin, &key));
        if (is_attr) {
            RP_TRY(rp__jinja_attr(p->r, *v, key.text, v));
            continue;
        }
        bool ok = false;
        int64_t i = 0;
        if (end > begin && is_digit(path.p[begin]))
            RP_TRY(rp__jinja_parse_int(p->r, jview_of(key.text), 10, &ok, &i));
        RP_TRY(rp__jinja_item(p->r, *v, ok ? jint(i) : key, v));
    }
    return RP_OK;
}

static rp_status read_brace_spec(braces *p, const jtext *f, spec *s) {
    size_t at = 0;
    uint32_t cp;
    *s = (spec){.fill = ' ', .width = -1, .precision = -1};
    size_t took = rp__jinja_next(f->p, f->n, &cp);
    if (took && took < f->n && strchr("<>=^", f->p[took]))
        s->fill = cp, s->align = f->p[took], at = took + 1;
    else if (f->n && strchr("<>=^", f->p[0]))
        s->align = f->p[at++];
    if (at < f->n && strchr("+- ", f->p[at])) s->sign = f->p[at] == '-' ? 0 : f->p[at], at++;
    if (at < f->n && f->p[at] == '#') s->alternate = true, at++;
    if (at < f->n && f->p[at] == '0') {
        if (!s->align) s->align = '=', s->fill = '0';
        at++;
    }
    RP_TRY(read_number(p->r, f, &at, &s->width));
    if (at < f->n && f->p[at] == ',') s->comma = true, at++;
    if (at < f->n && f->p[at] == '.') {
        at++;
        RP_TRY(read_number(p->r, f, &at, &s->precision));
    }
    if (at < f->n) s->type = f->p[at++];
    bool known = !s->type || strchr("sdxXobeEfFgG%", s->type);
    if (at < f->n || !known)
        return rp__jinja_fail(p->r, RP_EUNSUPPORTED, "this format of a field is not implemented");
    return RP_OK;
}

static rp_status put_brace_value(braces *p, jvalue v, const jtext *format) {
    spec s;
    RP_TRY(read_brace_spec(p, format, &s));
    bool plain = format->n == 0;
    if (!plain && jis_integer(v) && v.type != J_BOOL && (!s.type || strchr("dxXob", s.type)))
        return put_integer(p->r, &p->b, &s, jinteger(v), false);
    if (!plain && jis_number(v) && s.type && strchr("eEfFgG%", s.type))
        return put_float(p->r, &p->b, &s, jdouble(v));
    if (!plain && jis_number(v))
        return rp__jinja_fail(p->r, RP_EUNSUPPORTED, "this format of a number is not implemented");
    if ((s.type && s.type != 's') || s.align == '=' || (!plain && v.type != J_TEXT))
        return rp__jinja_fail(p->r, RP_EFORMAT, "%s cannot be formatted so",
                              rp__jinja_type_name(v));
    const jtext *t;
    RP_TRY(rp__jinja_to_text(p->r, v, &t));
    p->tainted |= t->n_marks > 0;
    return put_text_field(p->r, &p->b, &s, t, '<');
}

static rp_status put_brace_field(braces *p, rp__str field) {
    const char *colon = memchr(field.p, ':', field.n);
    rp__str name = {field.p, colon ? (size_t)(colon - field.p) : field.n};
    jtext format = {.p = colon ? colon + 1 : "", .n = colon ? field.n - name.n - 1 : 0};
    char conversion = 0;
    if (name.n >= 2 && name.p[name.n - 2] == '!') conversion = name.p[name.n - 1], name.n -= 2;
    if (conversion && conversion != 's' && conversion != 'r')
        return rp__jinja_fail(p->r, RP_EUNSUPPORTED,
                              "this conversion of a field is not implemented");
    size_t first = 0;
    while (first < name.n && name.p[first] != '.' && name.p[first] != '[') first++;
    jvalue v;
    RP_TRY(first_arg(p, (rp__str){name.p, first}, &v));
    RP_TRY(follow_path(p, (rp__str){name.p + first, name.n - first}, &v));
    if (conversion) {
        jbuilder b = {0};
        RP_TRY(conversion == 'r' ? rp__jinja_write_repr(p->r, &b, v)
                                 : rp__jinja_write(p->r, &b, v));
        RP_TRY(rp__jinja_build(p->r, &b, &v));
    }
    return put_brace_value(p, v, &format);
}

/* One "{...}", "{{" or "}}" at `at`; returns where the text goes on. */
static rp_status put_brace(braces *p, size_t at, size_t *next) {
    const jtext *f = p->f;
    if (at + 1 < f->n && f->p[at + 1] == f->p[at]) {
        *next = at + 2;
        return rp__jinja_put(p->r, &p->b, f->p + at, 1);
    }
    size_t end = at + 1;
    while (end < f->n && f->p[end] != '}' && f->p[end] != '{') end++;
    if (f->p[at] == '}' || end >= f->n)
        return rp__jinja_fail(p->r, RP_EFORMAT, "the format has a single brace");
    if (f->p[end] == '{')
        return rp__jinja_fail(p->r, RP_EUNSUPPORTED, "fields inside fields are not implemented");
    *next = end + 1;
    return put_brace_field(p, (rp__str){f->p + at + 1, end - at - 1});
}

rp_status rp__jinja_format(jrun *r, const jtext *format, const jargs *args, jvalue *out) {
    braces p = {.r = r, .f = format, .args = args, .tainted = format->n_marks > 0};
    size_t plain = 0;
    for (size_t at = 0; at < format->n;) {
        if (format->p[at] != '{' && format->p[at] != '}') {
            at++;
            continue;
        }
        RP_TRY(rp__jinja_put_part(r, &p.b, format, plain, at));
        RP_TRY(put_brace(&p, at, &at));
        plain = at;
    }
    RP_TRY(rp__jinja_put_part(r, &p.b, format, plain, format->n));
    if (p.tainted) RP_TRY(rp__jinja_mark(r, &p.b, 0));
    return rp__jinja_build(r, &p.b, out);
}
