/* What Python's str methods know of Unicode: classes and case.
 *
 * Case mapping is one character to one (utf8proc's tables), but for the expansions listed here;
 * Python has about a hundred, nearly all of them Greek with iota subscript, which no template was
 * seen to change the case of. */
#include <string.h>

#include <utf8proc.h>

#include "base/utf8.h"
#include "text/jinja_impl.h"

bool rp__jinja_is_space(uint32_t cp) {
    return (cp >= 9 && cp <= 13) || (cp >= 0x1C && cp <= 0x20) || cp == 0x85 || cp == 0xA0 ||
           cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200A) || cp == 0x2028 || cp == 0x2029 ||
           cp == 0x202F || cp == 0x205F || cp == 0x3000;
}

static utf8proc_category_t category(uint32_t cp) {
    return utf8proc_category((utf8proc_int32_t)cp);
}

static bool is_letter(uint32_t cp) {
    utf8proc_category_t c = category(cp);
    return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
}

static bool is_decimal(uint32_t cp) {
    return category(cp) == UTF8PROC_CATEGORY_ND;
}

/* Superscripts, subscripts and circled digits count as digits, fractions and numerals only as
 * numeric. */
static bool is_digit(uint32_t cp) {
    return is_decimal(cp) || cp == 0xB2 || cp == 0xB3 || cp == 0xB9 || cp == 0x2070 ||
           (cp >= 0x2074 && cp <= 0x2079) || (cp >= 0x2080 && cp <= 0x2089) ||
           (cp >= 0x2460 && cp <= 0x2468);
}

static bool is_numeric(uint32_t cp) {
    utf8proc_category_t c = category(cp);
    return c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_NO;
}

bool rp__jinja_is_word(uint32_t cp) {
    return is_letter(cp) || is_numeric(cp) || cp == '_';
}

bool rp__jinja_is_printable(uint32_t cp) {
    if (cp == ' ') return true;
    switch (category(cp)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
        return false;
    default:
        return true;
    }
}

static bool is_upper(uint32_t cp) {
    return utf8proc_isupper((utf8proc_int32_t)cp) != 0;
}
static bool is_lower(uint32_t cp) {
    return utf8proc_islower((utf8proc_int32_t)cp) != 0;
}
static bool is_title(uint32_t cp) {
    return category(cp) == UTF8PROC_CATEGORY_LT;
}
static bool is_cased(uint32_t cp) {
    return is_upper(cp) || is_lower(cp) || is_title(cp);
}

/* ---- classes ---- */

static bool is_in_class(uint32_t cp, jclass c) {
    switch (c) {
    case CLASS_ALNUM:
        return is_letter(cp) || is_numeric(cp);
    case CLASS_ALPHA:
        return is_letter(cp);
    case CLASS_ASCII:
        return cp < 0x80;
    case CLASS_DECIMAL:
        return is_decimal(cp);
    case CLASS_DIGIT:
        return is_digit(cp);
    case CLASS_NUMERIC:
        return is_numeric(cp);
    case CLASS_SPACE:
        return rp__jinja_is_space(cp);
    case CLASS_LOWER:
        return is_lower(cp);
    case CLASS_UPPER:
        return is_upper(cp);
    default:
        return false;
    }
}

/* islower(), isupper(): some character has a case, and all that have one have this one. */
static bool all_cased_are(const jtext *t, jclass c) {
    bool any = false;
    uint32_t cp;
    for (size_t i = 0; i < t->n;) {
        i += rp__jinja_next(t->p + i, t->n - i, &cp);
        if (!is_cased(cp)) continue;
        if (!is_in_class(cp, c)) return false;
        any = true;
    }
    return any;
}

/* istitle(): upper case begins words and lower case goes on. */
static bool is_titled(const jtext *t) {
    bool any = false, in_word = false;
    uint32_t cp;
    for (size_t i = 0; i < t->n;) {
        i += rp__jinja_next(t->p + i, t->n - i, &cp);
        if (is_cased(cp) && is_lower(cp) != in_word) return false;
        in_word = is_cased(cp);
        any |= in_word;
    }
    return any;
}

bool rp__jinja_all_are(const jtext *t, jclass c) {
    if (c == CLASS_LOWER || c == CLASS_UPPER) return all_cased_are(t, c);
    if (c == CLASS_TITLE) return is_titled(t);
    uint32_t cp;
    for (size_t i = 0; i < t->n;) {
        i += rp__jinja_next(t->p + i, t->n - i, &cp);
        if (!is_in_class(cp, c)) return false;
    }
    return t->n > 0 || c == CLASS_ASCII;
}

/* ---- case ---- */

static const struct {
    uint32_t cp;
    const char *upper, *title;
} expansions[] = {
    {0xDF, "SS", "Ss"},     {0x149, "\u02BCN", "\u02BCN"}, {0x1F0, "J\u030C", "J\u030C"},
    {0xFB00, "FF", "Ff"},   {0xFB01, "FI", "Fi"},          {0xFB02, "FL", "Fl"},
    {0xFB03, "FFI", "Ffi"}, {0xFB04, "FFL", "Ffl"},        {0xFB05, "ST", "St"},
    {0xFB06, "ST", "St"},
};

static rp_status put_upper(jrun *r, jbuilder *b, uint32_t cp, bool title) {
    for (size_t i = 0; cp >= 0xDF && i < sizeof expansions / sizeof *expansions; i++)
        if (expansions[i].cp == cp)
            return rp__jinja_put_str(r, b, title ? expansions[i].title : expansions[i].upper);
    utf8proc_int32_t c = (utf8proc_int32_t)cp;
    return rp__jinja_put_char(r, b, (uint32_t)(title ? utf8proc_totitle(c) : utf8proc_toupper(c)));
}

static bool is_case_ignorable(uint32_t cp) {
    utf8proc_category_t c = category(cp);
    return c == UTF8PROC_CATEGORY_MN || c == UTF8PROC_CATEGORY_ME || c == UTF8PROC_CATEGORY_CF ||
           c == UTF8PROC_CATEGORY_LM || c == UTF8PROC_CATEGORY_SK || cp == '\'' || cp == '.' ||
           cp == ':' || cp == 0xB7 || cp == 0x2019;
}

/* A capital sigma that ends a word becomes the final form: cased before it, nothing cased behind
 * it. */
static bool is_final_sigma(const jtext *t, size_t at, bool cased_before) {
    if (!cased_before) return false;
    uint32_t cp;
    for (size_t i = at + 2; i < t->n;) {
        i += rp__jinja_next(t->p + i, t->n - i, &cp);
        if (!is_case_ignorable(cp)) return !is_cased(cp);
    }
    return true;
}

static rp_status put_lower(jrun *r, jbuilder *b, const jtext *t, size_t at, uint32_t cp,
                           bool cased_before) {
    if (cp == 0x130) return rp__jinja_put_str(r, b, "i\u0307");
    if (cp == 0x3A3 && is_final_sigma(t, at, cased_before)) return rp__jinja_put_char(r, b, 0x3C2);
    return rp__jinja_put_char(r, b, (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp));
}

/* The characters that part words for the `title` filter. */
static bool parts_words(uint32_t cp) {
    return rp__jinja_is_space(cp) || (cp < 0x80 && cp && strchr("-({[<", (int)cp) != NULL);
}

rp_status rp__jinja_recase(jrun *r, const jtext *t, jcase how, jvalue *out) {
    jbuilder b = {0};
    bool in_word = false, cased_before = false; /* in_word: as `how` sees words */
    uint32_t cp;
    for (size_t i = 0, took; i < t->n; i += took) {
        took = rp__jinja_next(t->p + i, t->n - i, &cp);
        bool up =
            how == CASE_UPPER || (how == CASE_SWAP && is_lower(cp)) ||
            (!in_word && (how == CASE_CAPITALIZE || how == CASE_TITLE || how == CASE_TITLE_WORDS));
        bool keep = how == CASE_SWAP && !is_lower(cp) && !is_upper(cp);
        if (keep)
            RP_TRY(rp__jinja_put_char(r, &b, cp));
        else if (up)
            RP_TRY(put_upper(r, &b, cp, how == CASE_CAPITALIZE || how == CASE_TITLE));
        else
            RP_TRY(put_lower(r, &b, t, i, cp, cased_before));
        if (!is_case_ignorable(cp)) cased_before = is_cased(cp);
        in_word = how == CASE_TITLE         ? is_cased(cp)
                  : how == CASE_TITLE_WORDS ? !parts_words(cp)
                                            : true;
    }
    if (t->n_marks) RP_TRY(rp__jinja_mark(r, &b, 0));
    return rp__jinja_build(r, &b, out);
}
