/* Template source to tokens.
 *
 * Owns: where text ends and tags begin, whitespace control (trim_blocks and lstrip_blocks are on,
 * as transformers sets them), comments, raw blocks, literals. Brackets must match: inside them "}}"
 * and "%}" are operators, so that
 * `{{ {'a': {}} }}` reads as it should. Data tokens are views of the source, which the template's
 * arena keeps. */
#include <string.h>

#include <utf8proc.h>

#include "base/utf8.h"
#include "text/jinja_impl.h"

typedef struct lexer {
    jparser *p;
    const char *s;         /* newlines are "\n" only; the one at the end is gone */
    size_t n, at, counted; /* lines are counted up to `counted` */
    uint32_t line;
    char brackets[JINJA_MAX_NESTING]; /* the closing ones that are awaited */
    size_t n_brackets;
} lexer;

static bool starts_at(const lexer *x, size_t at, const char *what) {
    size_t n = strlen(what);
    return x->n - at >= n && !memcmp(x->s + at, what, n);
}

static uint32_t line_of(lexer *x, size_t at) {
    for (; x->counted < at; x->counted++) x->line += x->s[x->counted] == '\n';
    return x->line;
}

static size_t skip_space(const lexer *x, size_t at) {
    uint32_t cp;
    while (at < x->n) {
        size_t took = rp__jinja_next(x->s + at, x->n - at, &cp);
        if (!rp__jinja_is_space(cp)) break;
        at += took;
    }
    return at;
}

/* End of [begin, end) without the white space at its end. */
static size_t trim_end(const lexer *x, size_t begin, size_t end) {
    while (end > begin) {
        size_t at = end - 1;
        uint32_t cp;
        while (at > begin && ((unsigned char)x->s[at] & 0xC0) == 0x80) at--;
        rp__utf8_decode(x->s + at, end - at, &cp);
        if (!rp__jinja_is_space(cp)) break;
        end = at;
    }
    return end;
}

static jtoken *add_token(lexer *x, jtoken_type type, size_t at) {
    jparser *p = x->p;
    if (p->n_tokens == p->cap_tokens) {
        size_t cap = p->cap_tokens ? p->cap_tokens * 2 : 256;
        jtoken *v = rp__realloc_array(p->tokens, cap, sizeof *v);
        if (!v) {
            rp__jinja_parse_fail(p, RP_ENOMEM, 0, "out of memory while reading the template");
            return NULL;
        }
        p->tokens = v, p->cap_tokens = cap;
    }
    jtoken *t = &p->tokens[p->n_tokens++];
    *t = (jtoken){.type = type, .line = line_of(x, at)};
    return t;
}

static rp_status add_data(lexer *x, size_t begin, size_t end) {
    if (begin == end) return RP_OK;
    jtoken *t = add_token(x, T_DATA, begin);
    if (!t) return x->p->status;
    t->text = (rp__str){x->s + begin, end - begin};
    return RP_OK;
}

/* Where text before a tag ends: "-" strips all white space; a tag that is not an expression and
 * stands first on its line loses the spaces before it, unless it says "+". */
static size_t data_end(const lexer *x, size_t begin, size_t tag, bool is_print) {
    char sign = tag + 2 < x->n ? x->s[tag + 2] : 0;
    if (sign == '-') return trim_end(x, begin, tag);
    if (sign == '+' || is_print) return tag;
    size_t line = tag;
    while (line > begin && x->s[line - 1] != '\n') line--;
    bool line_begins = line > begin || begin == 0 || x->s[begin - 1] == '\n';
    if (line_begins && trim_end(x, line, tag) == line) return line;
    return tag;
}

/* After "%}" or "#}" one newline goes; after "-%}" all white space; after "+%}" nothing. Sees
 * whether a tag ends at `at`, and sets where the text goes on. */
static bool tag_ends(const lexer *x, size_t at, const char *end, size_t *next) {
    if (at >= x->n) return false;
    char sign = x->s[at];
    size_t close = sign == '-' || sign == '+' ? at + 1 : at;
    if (!starts_at(x, close, end)) return false;
    close += 2;
    if (sign == '-')
        close = skip_space(x, close);
    else if (sign != '+' && close < x->n && x->s[close] == '\n')
        close++;
    *next = close;
    return true;
}

static rp_status lex_comment(lexer *x, size_t tag) {
    size_t at = tag + 2, next = 0;
    if (at < x->n && (x->s[at] == '-' || x->s[at] == '+')) at++;
    while (at < x->n && !tag_ends(x, at, "#}", &next)) at++;
    if (at >= x->n)
        return rp__jinja_parse_fail(x->p, RP_EFORMAT, line_of(x, tag),
                                    "the comment has no end \"#}\"");
    x->at = next;
    return RP_OK;
}

static size_t after_sign(const lexer *x, size_t at) {
    return at < x->n && (x->s[at] == '-' || x->s[at] == '+') ? at + 1 : at;
}

/* Sees "{% raw %}" at `tag` and sets where its text begins. */
static bool raw_begins(const lexer *x, size_t tag, size_t *begin) {
    size_t at = skip_space(x, after_sign(x, tag + 2));
    if (!starts_at(x, at, "raw")) return false;
    at = skip_space(x, at + 3);
    if (starts_at(x, at, "%}"))
        *begin = at + 2;
    else if (starts_at(x, at, "-%}"))
        *begin = skip_space(x, at + 3);
    else
        return false;
    return true;
}

static rp_status lex_raw(lexer *x, size_t tag, size_t begin) {
    for (size_t at = begin; at < x->n; at++) {
        if (!starts_at(x, at, "{%")) continue;
        size_t next, word = skip_space(x, after_sign(x, at + 2));
        if (!starts_at(x, word, "endraw")) continue;
        if (!tag_ends(x, skip_space(x, word + 6), "%}", &next)) continue;
        RP_TRY(add_data(x, begin, data_end(x, begin, at, false)));
        x->at = next;
        return RP_OK;
    }
    return rp__jinja_parse_fail(x->p, RP_EFORMAT, line_of(x, tag), "\"raw\" has no \"endraw\"");
}

/* ---- inside tags ---- */

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static bool is_name_byte(const lexer *x, size_t at, size_t *took) {
    char c = x->s[at];
    *took = 1;
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '_') return true;
    if ((unsigned char)c < 0x80) return false;
    uint32_t cp;
    *took = rp__jinja_next(x->s + at, x->n - at, &cp);
    utf8proc_category_t cat = utf8proc_category((utf8proc_int32_t)cp);
    return rp__jinja_is_word(cp) || cat == UTF8PROC_CATEGORY_MN || cat == UTF8PROC_CATEGORY_MC;
}

static rp_status lex_name(lexer *x) {
    size_t begin = x->at, took;
    while (x->at < x->n && is_name_byte(x, x->at, &took)) x->at += took;
    jtoken *t = add_token(x, T_NAME, begin);
    if (!t) return x->p->status;
    t->text = (rp__str){x->s + begin, x->at - begin};
    return RP_OK;
}

/* Length of digits with single underscores between them, from `at`; 0: none. */
static size_t digits_at(const lexer *x, size_t at) {
    size_t i = at;
    while (i < x->n && (is_digit(x->s[i]) || (x->s[i] == '_' && i > at && x->s[i - 1] != '_'))) i++;
    while (i > at && x->s[i - 1] == '_') i--;
    return i - at;
}

/* Length of a floating point literal at the cursor; 0: it is none. */
static size_t float_at(const lexer *x) {
    if (x->at > 0 && x->s[x->at - 1] == '.') return 0;
    size_t at = x->at + digits_at(x, x->at);
    size_t fraction = at < x->n && x->s[at] == '.' ? digits_at(x, at + 1) : 0;
    if (fraction) at += 1 + fraction;
    size_t e = at;
    if (e < x->n && (x->s[e] == 'e' || x->s[e] == 'E')) {
        e = after_sign(x, e + 1);
        size_t exponent = digits_at(x, e);
        if (exponent) return e + exponent - x->at;
    }
    return fraction ? at - x->at : 0;
}

static int digit_value(char c) {
    if (is_digit(c)) return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return 99;
}

/* End of an integer literal at the cursor, its base and where its digits begin. */
static size_t integer_at(const lexer *x, int *base, size_t *digits) {
    size_t at = x->at;
    char kind = at + 1 < x->n && x->s[at] == '0' ? (char)(x->s[at + 1] | 0x20) : 0;
    *base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 10;
    *digits = *base == 10 ? at : at + 2;
    size_t end = *digits;
    bool zeros = *base == 10 &&
                 x->s[at] == '0'; /* "0", "000": digits after a leading zero are another token */
    while (end < x->n) {
        size_t d = end + (x->s[end] == '_' && (end > *digits || *base != 10) ? 1 : 0);
        if (d >= x->n || digit_value(x->s[d]) >= *base || (zeros && x->s[d] != '0')) break;
        end = d + 1;
    }
    if (end == *digits)
        *base = 10, *digits = at, end = at + 1; /* "0x" without digits: 0, then a name */
    return end;
}

static rp_status lex_integer(lexer *x) {
    int base;
    size_t begin = x->at, digits, end = integer_at(x, &base, &digits);
    uint64_t value = 0;
    for (size_t i = digits; i < end; i++) {
        if (x->s[i] == '_') continue;
        if (value > ((uint64_t)INT64_MAX - (uint64_t)digit_value(x->s[i])) / (uint64_t)base)
            return rp__jinja_parse_fail(x->p, RP_EUNSUPPORTED, line_of(x, begin),
                                        "the integer %.*s needs more than 64 bits",
                                        (int)(end - begin), x->s + begin);
        value = value * (uint64_t)base + (uint64_t)digit_value(x->s[i]);
    }
    jtoken *t = add_token(x, T_INT, begin);
    if (!t) return x->p->status;
    t->i = (int64_t)value;
    x->at = end;
    return RP_OK;
}

static rp_status lex_number(lexer *x) {
    size_t n = float_at(x);
    if (!n) return lex_integer(x);
    jtoken *t = add_token(x, T_FLOAT, x->at);
    if (!t) return x->p->status;
    if (!rp__jinja_parse_float((rp__str){x->s + x->at, n}, &t->f))
        return rp__jinja_parse_fail(x->p, RP_EFORMAT, t->line, "bad number %.*s", (int)n,
                                    x->s + x->at);
    x->at += n;
    return RP_OK;
}

/* Reads up to `most` digits of `base`; *got says how many there were. */
static uint32_t escape_digits(const char *s, size_t n, size_t most, int base, size_t *got) {
    uint32_t v = 0;
    size_t i = 0;
    for (; i < n && i < most && digit_value(s[i]) < base; i++)
        v = v * (uint32_t)base + (uint32_t)digit_value(s[i]);
    *got = i;
    return v;
}

/* Python decodes literals with "unicode-escape" after writing characters beyond ASCII as escapes
 * themselves: a backslash before such a character therefore yields the backslash and that escape,
 * spelled out. */
static size_t unescape_wide(const char *s, size_t n, char *out, size_t *n_out) {
    static const char hex[] = "0123456789abcdef";
    uint32_t cp;
    size_t took = rp__jinja_next(s, n, &cp);
    int digits = cp < 0x100 ? 2 : cp < 0x10000 ? 4 : 8;
    size_t k = 0;
    out[k++] = '\\';
    out[k++] = digits == 2 ? 'x' : digits == 4 ? 'u' : 'U';
    for (int i = digits - 1; i >= 0; i--) out[k++] = hex[(cp >> (4 * i)) & 15];
    *n_out = k;
    return took;
}

/* One escape at s (after the backslash): writes at most 10 bytes, returns how many bytes it took;
 * 0: malformed. */
static size_t unescape(const char *s, size_t n, char *out, size_t *n_out) {
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    const char *at = strchr(from, s[0]);
    *n_out = 0;
    if (s[0] == '\n') return 1;
    if (at && *at) {
        out[(*n_out)++] = to[at - from];
        return 1;
    }
    size_t got, want = s[0] == 'x' ? 2 : s[0] == 'u' ? 4 : s[0] == 'U' ? 8 : 0;
    if (want || (s[0] >= '0' && s[0] <= '7')) {
        uint32_t cp =
            want ? escape_digits(s + 1, n - 1, want, 16, &got) : escape_digits(s, n, 3, 8, &got);
        if ((want && got != want) || cp > 0x10FFFF || (cp >= 0xD800 && cp <= 0xDFFF)) return 0;
        *n_out = rp__utf8_encode(cp, out);
        return want ? 1 + want : got;
    }
    if (s[0] == 'N') return 0; /* names of characters: not known here */
    if ((unsigned char)s[0] >= 0x80) return unescape_wide(s, n, out, n_out);
    out[0] = '\\', out[1] = s[0], *n_out = 2;
    return 1;
}

static rp_status unescape_string(lexer *x, size_t begin, size_t end, jtoken *t) {
    /* An escape never gets longer but for "\" before a wide character: 3 bytes there become up
     * to 10. */
    char *out = rp__jinja_parse_alloc(x->p, (end - begin) * 4 + 16);
    if (!out) return x->p->status;
    size_t n = 0;
    for (size_t i = begin; i < end;) {
        if (x->s[i] != '\\') {
            out[n++] = x->s[i++];
            continue;
        }
        size_t n_out, took = unescape(x->s + i + 1, end - i - 1, out + n, &n_out);
        if (!took)
            return rp__jinja_parse_fail(x->p, RP_EFORMAT, t->line,
                                        "the string has a bad escape \"\\%c\"", x->s[i + 1]);
        n += n_out, i += 1 + took;
    }
    t->text = (rp__str){out, n};
    return RP_OK;
}

static rp_status lex_string(lexer *x) {
    char quote = x->s[x->at];
    size_t begin = x->at + 1, end = begin;
    while (end < x->n && x->s[end] != quote) end += x->s[end] == '\\' ? 2 : 1;
    uint32_t line = line_of(x, x->at);
    if (end >= x->n)
        return rp__jinja_parse_fail(x->p, RP_EFORMAT, line, "the string has no end %c", quote);
    jtoken *t = add_token(x, T_STRING, x->at);
    if (!t) return x->p->status;
    x->at = end + 1;
    if (memchr(x->s + begin, '\\', end - begin)) return unescape_string(x, begin, end, t);
    t->text = (rp__str){x->s + begin, end - begin};
    return RP_OK;
}

static rp_status balance(lexer *x, char c) {
    char closes = c == '(' ? ')' : c == '[' ? ']' : c == '{' ? '}' : 0;
    if (closes) {
        if (x->n_brackets == sizeof x->brackets)
            return rp__jinja_parse_fail(x->p, RP_ELIMIT, line_of(x, x->at),
                                        "brackets nest deeper than %d", JINJA_MAX_NESTING);
        x->brackets[x->n_brackets++] = closes;
        return RP_OK;
    }
    if (c != ')' && c != ']' && c != '}') return RP_OK;
    if (!x->n_brackets || x->brackets[--x->n_brackets] != c)
        return rp__jinja_parse_fail(x->p, RP_EFORMAT, line_of(x, x->at), "unexpected \"%c\"", c);
    return RP_OK;
}

static rp_status lex_operator(lexer *x) {
    static const struct {
        const char *text;
        int op;
    } two[] = {{"//", TOK_FLOORDIV}, {"**", TOK_POW}, {"==", TOK_EQ},
               {"!=", TOK_NE},       {"<=", TOK_LE},  {">=", TOK_GE}};
    int op = 0;
    for (size_t i = 0; i < sizeof two / sizeof *two && !op; i++)
        if (starts_at(x, x->at, two[i].text)) op = two[i].op;
    size_t n = op ? 2 : 1;
    char c = x->s[x->at];
    if (!op && c && strchr("+-*/%~[](){}<>=.:|,;", c)) op = (unsigned char)c;
    if (!op) {
        uint32_t cp;
        n = rp__jinja_next(x->s + x->at, x->n - x->at, &cp);
        return rp__jinja_parse_fail(x->p, RP_EFORMAT, line_of(x, x->at),
                                    "unexpected character \"%.*s\"", (int)n, x->s + x->at);
    }
    RP_TRY(balance(x, c));
    jtoken *t = add_token(x, T_OP, x->at);
    if (!t) return x->p->status;
    t->op = op;
    x->at += n;
    return RP_OK;
}

static rp_status lex_one(lexer *x) {
    char c = x->s[x->at];
    size_t took;
    if (is_digit(c)) return lex_number(x);
    if (c == '"' || c == '\'') return lex_string(x);
    if (is_name_byte(x, x->at, &took)) return lex_name(x);
    return lex_operator(x);
}

/* "}}" trims no newline after it, unlike "%}", and knows no "+". */
static bool print_ends(const lexer *x, size_t *next) {
    if (starts_at(x, x->at, "}}")) return *next = x->at + 2, true;
    if (starts_at(x, x->at, "-}}")) return *next = skip_space(x, x->at + 3), true;
    return false;
}

static rp_status lex_tag(lexer *x, size_t tag, bool is_print) {
    if (!add_token(x, is_print ? T_PRINT_BEGIN : T_BLOCK_BEGIN, tag)) return x->p->status;
    x->at = after_sign(x, tag + 2);
    x->n_brackets = 0;
    for (;;) {
        x->at = skip_space(x, x->at);
        if (x->at >= x->n) /* the parser says what is missing */
            return RP_OK;
        size_t next;
        if (!x->n_brackets && (is_print ? print_ends(x, &next) : tag_ends(x, x->at, "%}", &next))) {
            if (!add_token(x, is_print ? T_PRINT_END : T_BLOCK_END, x->at)) return x->p->status;
            x->at = next;
            return RP_OK;
        }
        RP_TRY(lex_one(x));
    }
}

static rp_status lex_text(lexer *x) {
    size_t begin = x->at, tag = begin;
    while (tag < x->n &&
           !(x->s[tag] == '{' && tag + 1 < x->n && strchr("{%#", x->s[tag + 1]) && x->s[tag + 1]))
        tag++;
    if (tag >= x->n) {
        x->at = x->n;
        return add_data(x, begin, x->n);
    }
    char kind = x->s[tag + 1];
    RP_TRY(add_data(x, begin, data_end(x, begin, tag, kind == '{')));
    if (kind == '#') return lex_comment(x, tag);
    size_t raw;
    if (kind == '%' && raw_begins(x, tag, &raw)) return lex_raw(x, tag, raw);
    return lex_tag(x, tag, kind == '{');
}

/* "\r\n" and "\r" are "\n"; one newline at the end does not count. */
static char *normalize(jparser *p, rp__str source, size_t *n_out) {
    char *s = rp__jinja_parse_alloc(p, source.n + 1);
    if (!s) return NULL;
    size_t n = 0;
    for (size_t i = 0; i < source.n; i++) {
        s[n++] = source.p[i] == '\r' ? '\n' : source.p[i];
        if (source.p[i] == '\r' && i + 1 < source.n && source.p[i + 1] == '\n') i++;
    }
    if (n && s[n - 1] == '\n') n--;
    *n_out = n;
    return s;
}

rp_status rp__jinja_lex(jparser *p, rp__str source) {
    if (source.n > JINJA_MAX_SOURCE)
        return rp__jinja_parse_fail(p, RP_ELIMIT, 0,
                                    "the template has %zu bytes; at most %zu are read", source.n,
                                    JINJA_MAX_SOURCE);
    if (!rp__utf8_valid(source.p, source.n))
        return rp__jinja_parse_fail(p, RP_EFORMAT, 0, "the template is not well-formed UTF-8");
    lexer x = {.p = p, .line = 1};
    x.s = normalize(p, source, &x.n);
    if (!x.s) return p->status;
    while (x.at < x.n) RP_TRY(lex_text(&x));
    return add_token(&x, T_END, x.n) ? RP_OK : p->status;
}
