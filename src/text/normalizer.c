/* Normalising a stretch of text before it is split: prefixes, replacements, Unicode's normalisation
 * forms.
 *
 * Ill-formed bytes go through unchanged, wherever they stand. */
#define _GNU_SOURCE /* memmem */
#include "text/tokenizer_impl.h"

#include <string.h>
#include <utf8proc.h>

#include "base/alloc.h"
#include "base/utf8.h"

bool rp__is_white_space(uint32_t cp) {
    if (cp < 0x80) return cp == ' ' || (cp >= '\t' && cp <= '\r');
    return cp == 0x85 || cp == 0xA0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200A) ||
           cp == 0x2028 || cp == 0x2029 || cp == 0x202F || cp == 0x205F || cp == 0x3000;
}

rp_status rp__normalizer_add(rp__normalizer *z, rp__normalizer_kind kind, rp__str from, rp__str to,
                             int form, rp_error *err) {
    if (z->n == RP_MAX_NORMALIZERS)
        return rp__fail(err, RP_ELIMIT, "more than %d normalisers are not supported",
                        RP_MAX_NORMALIZERS);
    if (from.n >= sizeof z->op[0].from || to.n >= sizeof z->op[0].to)
        return rp__fail(err, RP_ELIMIT, "a normaliser's text of %zu bytes is too long",
                        from.n > to.n ? from.n : to.n);
    if (memchr(from.n ? from.p : "", 0, from.n) || memchr(to.n ? to.p : "", 0, to.n))
        return rp__fail(err, RP_EUNSUPPORTED, "a normaliser's text with NUL is not supported");
    z->op[z->n].kind = kind;
    if (from.n) memcpy(z->op[z->n].from, from.p, from.n);
    if (to.n) memcpy(z->op[z->n].to, to.p, to.n);
    z->op[z->n++].form = form;
    return RP_OK;
}

bool rp__normalizer_is_empty(const rp__normalizer *z) {
    return z->n == 0;
}

static void replace(rp__str text, rp__str from, rp__str to, rp__bytes *out) {
    for (size_t at = 0; at < text.n;) {
        const char *p = memmem(text.p + at, text.n - at, from.p, from.n);
        size_t n = p ? (size_t)(p - text.p) - at : text.n - at;
        rp__bytes_add(out, text.p + at, n);
        if (p) rp__bytes_add(out, to.p, to.n);
        at += n + (p ? from.n : 0);
    }
}

/* Normalises well-formed text; false when out of memory. */
static bool add_normalised(rp__str text, int form, rp__bytes *out) {
    utf8proc_option_t how = (utf8proc_option_t)form;
    const utf8proc_uint8_t *p = (const utf8proc_uint8_t *)text.p;
    utf8proc_ssize_t n = utf8proc_decompose(p, (utf8proc_ssize_t)text.n, NULL, 0, how);
    if (n < 0) return false; /* a text too large to count */
    utf8proc_int32_t *cps = rp__realloc_array(NULL, (size_t)n + 1, sizeof *cps);
    if (!cps) return false;
    n = utf8proc_decompose(p, (utf8proc_ssize_t)text.n, cps, n, how);
    if (n > 0) n = utf8proc_normalize_utf32(cps, n, how);
    for (utf8proc_ssize_t i = 0; i < n; i++) {
        char c[4];
        rp__bytes_add(out, c, rp__utf8_encode((uint32_t)cps[i], c));
    }
    rp__free(cps);
    return n >= 0 && !out->failed;
}

static bool is_ascii(rp__str s) {
    for (size_t i = 0; i < s.n; i++)
        if ((unsigned char)s.p[i] >= 0x80) return false;
    return true;
}

static bool normalise_unicode(rp__str text, int form, rp__bytes *out) {
    size_t run = 0; /* where the well-formed run begins that ends at i */
    for (size_t i = 0; i <= text.n;) {
        uint32_t cp = RP_UTF8_BAD;
        size_t n = i < text.n ? rp__utf8_decode(text.p + i, text.n - i, &cp) : 1;
        if (cp == RP_UTF8_BAD) {
            if (i > run && !add_normalised((rp__str){text.p + run, i - run}, form, out))
                return false;
            if (i < text.n) rp__bytes_add(out, text.p + i, n);
            run = i + n;
        }
        i += n;
    }
    return !out->failed;
}

static bool needs_prefix(rp__normalizer_kind kind, bool is_first, rp__str text, rp__str prefix) {
    if (kind == RP_NORM_PREPEND) return true;
    return !rp__str_starts(text, prefix) && (kind == RP_NORM_PREPEND_UNLESS || is_first);
}

bool rp__normalizer_run(const rp__normalizer *z, bool is_first, rp__str *text,
                        rp__bytes buffer[2]) {
    for (size_t i = 0; i < z->n && text->n; i++) {
        rp__str from = rp__str_of(z->op[i].from), to = rp__str_of(z->op[i].to);
        rp__bytes *out = &buffer[i & 1]; /* the text may lie in the other one */
        rp__bytes_reset(out);
        if (z->op[i].kind == RP_NORM_UNICODE) {
            if (is_ascii(*text)) { /* already in every form; moved all the same, as the buffers take
                                      turns */
                rp__bytes_add(out, text->p, text->n);
            } else if (!normalise_unicode(*text, z->op[i].form, out)) {
                return false;
            }
        } else if (z->op[i].kind == RP_NORM_REPLACE) {
            replace(*text, from, to, out);
        } else {
            if (needs_prefix(z->op[i].kind, is_first, *text, to)) rp__bytes_add(out, to.p, to.n);
            rp__bytes_add(out, text->p, text->n);
        }
        if (out->failed) return false;
        *text = (rp__str){out->p, out->n};
    }
    return true;
}
