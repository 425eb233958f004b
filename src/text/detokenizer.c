/* Ids to text: whole, byte for byte; or streamed, whole characters only. */
#include "text/tokenizer_impl.h"

#include <string.h>

#include "base/utf8.h"

#define REPLACEMENT "\xEF\xBF\xBD"

/* The bytes an id adds to a text. *at_start becomes false with the first bytes. */
static rp__str bytes_of(const rp__tokenizer *t, int32_t id, bool show_special, bool *at_start) {
    if (id < 0 || (size_t)id >= t->pieces.n) return (rp__str){0};
    const rp__piece *p = &t->pieces.p[id];
    if (rp__piece_is_control(p) && !show_special) return (rp__str){0};
    rp__str b = p->bytes;
    if (*at_start && t->strips_space && b.n && b.p[0] == ' ' && !rp__piece_is_control(p))
        b.p++, b.n--;
    if (p->bytes.n) *at_start = false;
    return b;
}

/* Moves what is decided from `pending` to `out`: whole characters, and U+FFFD for what can never be
 * one. */
static bool settle(rp__detokenizer *d, rp__bytes *out) {
    while (d->n_pending && rp__utf8_complete(d->pending, d->n_pending) > 0) {
        uint32_t cp;
        size_t n = rp__utf8_decode(d->pending, d->n_pending, &cp);
        bool ok = cp == RP_UTF8_BAD ? rp__bytes_add_str(out, REPLACEMENT)
                                    : rp__bytes_add(out, d->pending, n);
        if (!ok) return false;
        d->n_pending -= n;
        memmove(d->pending, d->pending + n, d->n_pending);
    }
    return true;
}

bool rp__detokenizer_add(rp__detokenizer *d, int32_t id, rp__bytes *out) {
    rp__str b = bytes_of(d->tokenizer, id, d->show_special, &d->at_start);
    for (size_t i = 0; i < b.n; i++) {
        if (d->n_pending == sizeof d->pending) return false; /* an earlier failure was ignored */
        d->pending[d->n_pending++] = b.p[i];
        if (!settle(d, out)) return false;
    }
    return true;
}

bool rp__detokenizer_finish(rp__detokenizer *d, rp__bytes *out) {
    bool ok = d->n_pending == 0 || rp__bytes_add_str(out, REPLACEMENT);
    d->n_pending = 0;
    return ok;
}

bool rp__tokenizer_decode(const rp__tokenizer *t, const int32_t *ids, size_t n, bool show_special,
                          rp__bytes *out) {
    bool at_start = true;
    for (size_t i = 0; i < n; i++) {
        rp__str b = bytes_of(t, ids[i], show_special, &at_start);
        if (!rp__bytes_add(out, b.p, b.n)) return false;
    }
    return true;
}
