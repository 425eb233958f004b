/* Arithmetic and the text of numbers, as Python does them; integers have 64 bits here, and an
 * overflow is an error. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "text/jinja_impl.h"

static rp_status overflow(jrun *r) {
    return rp__jinja_fail(r, RP_EUNSUPPORTED, "an integer needs more than 64 bits");
}

bool rp__jinja_double_to_int(double f, int64_t *out) {
    if (!(f > -9223372036854777856.0 && f < 9223372036854775808.0))
        return false; /* (-2^63 - 1 rounded out, 2^63) */
    *out = f <= -9223372036854775808.0 ? INT64_MIN : (int64_t)f;
    return true;
}

int rp__jinja_compare_int_double(int64_t i, double f) {
    if (isnan(f)) return 2;
    if (f >= 9223372036854775808.0) return -1;
    if (f < -9223372036854775808.0) return 1;
    int64_t whole = (int64_t)f;
    if (i != whole) return i < whole ? -1 : 1;
    double rest = f - (double)whole;
    return rest > 0 ? -1 : rest < 0 ? 1 : 0;
}

/* ---- integers ---- */

static int64_t floor_div(int64_t a, int64_t b) {
    int64_t q = a / b;
    return a % b != 0 && (a % b < 0) != (b < 0) ? q - 1 : q;
}

static rp_status int_power(jrun *r, int64_t base, int64_t exponent, jvalue *out) {
    if (exponent < 0) {
        if (base == 0)
            return rp__jinja_fail(r, RP_EFORMAT, "zero cannot be raised to a negative power");
        return *out = jfloat(pow((double)base, (double)exponent)), RP_OK;
    }
    int64_t result = 1;
    while (exponent > 0) {
        if (exponent & 1 && __builtin_mul_overflow(result, base, &result)) return overflow(r);
        exponent >>= 1;
        if (exponent && __builtin_mul_overflow(base, base, &base)) return overflow(r);
    }
    return *out = jint(result), RP_OK;
}

static rp_status int_binary(jrun *r, jop op, int64_t a, int64_t b, jvalue *out) {
    int64_t v = 0;
    bool over = false;
    switch (op) {
    case OP_ADD:
        over = __builtin_add_overflow(a, b, &v);
        break;
    case OP_SUB:
        over = __builtin_sub_overflow(a, b, &v);
        break;
    case OP_MUL:
        over = __builtin_mul_overflow(a, b, &v);
        break;
    case OP_POW:
        return int_power(r, a, b, out);
    default:
        if (b == 0) return rp__jinja_fail(r, RP_EFORMAT, "division by zero");
        if (op == OP_DIV) return *out = jfloat((double)a / (double)b), RP_OK;
        if (b == -1) { /* INT64_MIN / -1 traps */
            over = op == OP_FLOORDIV && __builtin_sub_overflow((int64_t)0, a, &v);
            break;
        }
        v = op == OP_FLOORDIV ? floor_div(a, b) : a - b * floor_div(a, b);
    }
    if (over) return overflow(r);
    return *out = jint(v), RP_OK;
}

/* ---- floats ---- */

/* The remainder has the divisor's sign; the quotient is made from it, so that both agree. */
static void float_divmod(double a, double b, double *quotient, double *rest) {
    double mod = fmod(a, b), div = (a - mod) / b;
    if (mod != 0) {
        if ((b < 0) != (mod < 0)) mod += b, div -= 1;
    } else {
        mod = copysign(0, b);
    }
    double whole = floor(div);
    if (div - whole > 0.5) whole += 1;
    *quotient = div != 0 ? whole : copysign(0, a / b);
    *rest = mod;
}

static rp_status float_power(jrun *r, double a, double b, jvalue *out) {
    if (a == 0 && b < 0)
        return rp__jinja_fail(r, RP_EFORMAT, "zero cannot be raised to a negative power");
    if (a < 0 && floor(b) != b && isfinite(a) && isfinite(b))
        return rp__jinja_fail(r, RP_EUNSUPPORTED, "complex numbers are not implemented");
    double v = pow(a, b);
    if (isinf(v) && isfinite(a) && isfinite(b))
        return rp__jinja_fail(r, RP_EFORMAT, "the power is out of range");
    return *out = jfloat(v), RP_OK;
}

static rp_status float_binary(jrun *r, jop op, double a, double b, jvalue *out) {
    double quotient, rest;
    switch (op) {
    case OP_ADD:
        return *out = jfloat(a + b), RP_OK;
    case OP_SUB:
        return *out = jfloat(a - b), RP_OK;
    case OP_MUL:
        return *out = jfloat(a * b), RP_OK;
    case OP_POW:
        return float_power(r, a, b, out);
    default:
        if (b == 0) return rp__jinja_fail(r, RP_EFORMAT, "division by zero");
        if (op == OP_DIV) return *out = jfloat(a / b), RP_OK;
        float_divmod(a, b, &quotient, &rest);
        return *out = jfloat(op == OP_FLOORDIV ? quotient : rest), RP_OK;
    }
}

/* ---- sequences ---- */

static rp_status escape_plain(jrun *r, jbuilder *b, const jtext *t) {
    return t->markup ? rp__jinja_put_text(r, b, t) : rp__jinja_escape(r, b, t);
}

static rp_status add_texts(jrun *r, const jtext *a, const jtext *b, jvalue *out) {
    jbuilder made = {0};
    bool markup = a->markup || b->markup;
    RP_TRY(markup ? escape_plain(r, &made, a) : rp__jinja_put_text(r, &made, a));
    RP_TRY(markup ? escape_plain(r, &made, b) : rp__jinja_put_text(r, &made, b));
    RP_TRY(rp__jinja_build(r, &made, out));
    if (markup) {
        jtext *t = rp__jinja_alloc(r, 1, sizeof *t);
        if (!t) return r->status;
        *t = *out->text;
        t->markup = true;
        *out = jstr(t);
    }
    return RP_OK;
}

static rp_status add_lists(jrun *r, jvalue a, jvalue b, jvalue *out) {
    jvalue made;
    RP_TRY(rp__jinja_list(r, a.type, a.list->n + b.list->n, &made));
    if (a.list->n) memcpy(made.list->p, a.list->p, a.list->n * sizeof *a.list->p);
    if (b.list->n) memcpy(made.list->p + a.list->n, b.list->p, b.list->n * sizeof *b.list->p);
    return *out = made, RP_OK;
}

static rp_status repeat(jrun *r, jvalue v, int64_t n, jvalue *out) {
    bool is_text = v.type == J_TEXT;
    size_t length = is_text ? v.text->n : v.list->n, total;
    if (n < 0 || !length) n = 0;
    if (!rp__mul_ok(length, (size_t)n, &total) || total > JINJA_MAX_MEMORY)
        return rp__jinja_fail(r, RP_ELIMIT, "a repetition is too long");
    if (is_text) {
        jbuilder b = {0};
        for (int64_t i = 0; i < n; i++) RP_TRY(rp__jinja_put_text(r, &b, v.text));
        return rp__jinja_build(r, &b, out);
    }
    jvalue made;
    RP_TRY(rp__jinja_list(r, v.type, total, &made));
    for (size_t i = 0; i < total; i++) made.list->p[i] = v.list->p[i % length];
    return *out = made, RP_OK;
}

static bool is_sequence(jvalue v) {
    return v.type == J_TEXT || v.type == J_LIST || v.type == J_TUPLE;
}

rp_status rp__jinja_binary(jrun *r, jop op, jvalue a, jvalue b, jvalue *out) {
    static const char *const signs[] = {"+", "-", "*", "/", "//", "%", "**"};
    if (op == OP_MOD && a.type == J_TEXT) return rp__jinja_percent(r, a.text, b, out);
    RP_TRY(rp__jinja_need_defined(r, a));
    RP_TRY(rp__jinja_need_defined(r, b));
    if (jis_integer(a) && jis_integer(b)) return int_binary(r, op, jinteger(a), jinteger(b), out);
    if (jis_number(a) && jis_number(b)) return float_binary(r, op, jdouble(a), jdouble(b), out);
    if (op == OP_ADD && a.type == J_TEXT && b.type == J_TEXT)
        return add_texts(r, a.text, b.text, out);
    if (op == OP_ADD && a.type == b.type && is_sequence(a)) return add_lists(r, a, b, out);
    if (op == OP_MUL && is_sequence(a) && jis_integer(b)) return repeat(r, a, jinteger(b), out);
    if (op == OP_MUL && jis_integer(a) && is_sequence(b)) return repeat(r, b, jinteger(a), out);
    return rp__jinja_fail(r, RP_EFORMAT, "\"%s\" is not possible between %s and %s", signs[op],
                          rp__jinja_type_name(a), rp__jinja_type_name(b));
}

rp_status rp__jinja_negate(jrun *r, jvalue a, bool negative, jvalue *out) {
    RP_TRY(rp__jinja_need_defined(r, a));
    if (!jis_number(a))
        return rp__jinja_fail(r, RP_EFORMAT, "%s has no sign", rp__jinja_type_name(a));
    if (a.type == J_FLOAT) return *out = jfloat(negative ? -a.f : a.f), RP_OK;
    if (negative) return int_binary(r, OP_SUB, 0, jinteger(a), out);
    return *out = jint(jinteger(a)), RP_OK;
}

/* ---- text to number ---- */

static rp__str strip(rp__str s) {
    while (s.n && isspace((unsigned char)s.p[0])) s.p++, s.n--;
    while (s.n && isspace((unsigned char)s.p[s.n - 1])) s.n--;
    return s;
}

static int digit_of(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'z' ? c - 'a' + 10 : 99;
}

/* "0x", "0o", "0b" before the digits: allowed where they fit the base. */
static bool skip_prefix(rp__str *s, int *base) {
    if (s->n < 2 || s->p[0] != '0') return *base = *base ? *base : 10, false;
    int kind = (s->p[1] | 0x20) == 'x'   ? 16
               : (s->p[1] | 0x20) == 'o' ? 8
               : (s->p[1] | 0x20) == 'b' ? 2
                                         : 0;
    bool fits = kind && (*base == 0 || *base == kind);
    if (fits) s->p += 2, s->n -= 2, *base = kind;
    if (!*base) *base = 10;
    return fits;
}

rp_status rp__jinja_parse_int(jrun *r, rp__str s, int base, bool *ok, int64_t *out) {
    s = strip(s);
    *ok = false;
    bool negative = s.n && s.p[0] == '-', any = false, after_underscore = false;
    if (s.n && (s.p[0] == '-' || s.p[0] == '+')) s.p++, s.n--;
    bool may_underscore = skip_prefix(&s, &base);
    uint64_t value = 0;
    bool over = false;
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] == '_' && (any || may_underscore) && !after_underscore) {
            after_underscore = true;
            continue;
        }
        int d = digit_of(s.p[i]);
        if (d >= base) return RP_OK;
        over |= __builtin_mul_overflow(value, (uint64_t)base, &value);
        over |= __builtin_add_overflow(value, (uint64_t)d, &value);
        any = true, after_underscore = false;
    }
    if (!any || after_underscore) return RP_OK;
    if (over || value > (uint64_t)INT64_MAX + negative) return overflow(r);
    *ok = true;
    *out = negative ? (int64_t)(0 - value) : (int64_t)value;
    return RP_OK;
}

static bool is_word_number(rp__str s, double *out) {
    static const struct {
        const char *word;
        double value;
    } words[] = {{"inf", INFINITY}, {"infinity", INFINITY}, {"nan", NAN}};
    bool negative = s.n && s.p[0] == '-';
    if (s.n && (s.p[0] == '-' || s.p[0] == '+')) s.p++, s.n--;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (s.n != strlen(words[i].word) || strncasecmp(s.p, words[i].word, s.n)) continue;
        *out = negative ? -words[i].value : words[i].value;
        return true;
    }
    return false;
}

bool rp__jinja_parse_float(rp__str s, double *out) {
    s = strip(s);
    if (is_word_number(s, out)) return true;
    char buffer[512];
    size_t n = 0, n_digits = 0;
    for (size_t i = 0; i < s.n; i++) {
        bool digit = isdigit((unsigned char)s.p[i]) != 0;
        if (s.p[i] == '_') { /* between digits only */
            if (!i || i + 1 == s.n || !isdigit((unsigned char)s.p[i - 1]) ||
                !isdigit((unsigned char)s.p[i + 1]))
                return false;
            continue;
        }
        if (!digit && !(s.p[i] && strchr("+-.eE", s.p[i])))
            return false; /* strtod would read hexadecimal too */
        if (n + 1 >= sizeof buffer) return false;
        buffer[n++] = s.p[i];
        n_digits += digit;
    }
    buffer[n] = 0;
    char *end;
    *out = strtod(buffer, &end);
    return n_digits && *end == 0;
}
