/* Finding special tokens in a text: the longest one at a place, by narrowing a sorted list byte by
 * byte. */
#include "text/tokenizer_impl.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

static int by_text(const void *a, const void *b) {
    const rp__special *x = a, *y = b;
    size_t n = x->text.n < y->text.n ? x->text.n : y->text.n;
    int c = memcmp(x->text.p, y->text.p, n);
    return c ? c : (x->text.n > y->text.n) - (x->text.n < y->text.n);
}

static bool is_wanted(const rp__piece *p, bool normalized) {
    if (p->text.n == 0 || (!rp__piece_is_control(p) && p->type != RP_TOKEN_USER_DEFINED))
        return false;
    return normalized == !!(p->flags & RP_PIECE_NORMALIZED);
}

/* Normalises every text into the pool. */
static bool normalise_all(rp__specials *s, const rp__normalizer *z) {
    rp__bytes buffer[2] = {{0}, {0}};
    bool ok = true;
    for (size_t i = 0; i < s->n && ok; i++) {
        rp__str text = s->p[i].text;
        ok = rp__normalizer_run(z, true, &text, buffer) && rp__bytes_add(&s->pool, text.p, text.n);
        s->p[i].text.n = text.n;
    }
    size_t at = 0; /* the pool no longer moves */
    for (size_t i = 0; i < s->n && ok; at += s->p[i++].text.n) s->p[i].text.p = s->pool.p + at;
    rp__bytes_clear(&buffer[0]);
    rp__bytes_clear(&buffer[1]);
    return ok;
}

static void sort(rp__specials *s) {
    size_t n = 0; /* a text may become empty when it is normalised */
    for (size_t i = 0; i < s->n; i++)
        if (s->p[i].text.n) s->p[n++] = s->p[i];
    s->n = n;
    qsort(s->p, n, sizeof *s->p, by_text);
    for (size_t i = 0; i < n; i++) s->first[(unsigned char)s->p[i].text.p[0] + 1]++;
    for (size_t b = 0; b < 256; b++) s->first[b + 1] += s->first[b];
}

rp_status rp__specials_init(rp__specials *s, const rp__pieces *v, const rp__normalizer *z,
                            rp_error *err) {
    size_t n = 0;
    for (size_t i = 0; i < v->n; i++) n += is_wanted(&v->p[i], z != NULL);
    if (n == 0) return RP_OK;
    s->p = rp__calloc(n, sizeof *s->p);
    if (!s->p) return rp__fail(err, RP_ENOMEM, "out of memory for %zu special tokens", n);
    for (size_t i = 0; i < v->n; i++)
        if (is_wanted(&v->p[i], z != NULL))
            s->p[s->n++] = (rp__special){v->p[i].text, (int32_t)i, rp__piece_is_control(&v->p[i])};
    if (z && !normalise_all(s, z))
        return rp__fail(err, RP_ENOMEM, "out of memory for %zu special tokens", n);
    sort(s);
    return RP_OK;
}

void rp__specials_clear(rp__specials *s) {
    rp__free(s->p);
    rp__bytes_clear(&s->pool);
    *s = (rp__specials){0};
}

/* First entry of [lo, hi), all equal in their first `depth` bytes, whose next byte is not below
 * `c`. */
static size_t lower_bound(const rp__specials *s, size_t lo, size_t hi, size_t depth, int c) {
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        rp__str t = s->p[mid].text;
        int byte = t.n > depth ? (unsigned char)t.p[depth] : -1;
        if (byte < c)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

const rp__special *rp__specials_match(const rp__specials *s, rp__str text, size_t at,
                                      size_t control_end) {
    const rp__special *best = NULL;
    unsigned char first = (unsigned char)text.p[at];
    size_t lo = s->first[first], hi = s->first[first + 1];
    for (size_t depth = 1; lo < hi; depth++) {
        const rp__special *p = &s->p[lo]; /* the shortest of those left is the first */
        if (p->text.n == depth && (!p->is_control || at + depth <= control_end)) best = p;
        if (at + depth >= text.n) break;
        int c = (unsigned char)text.p[at + depth];
        lo = lower_bound(s, lo, hi, depth, c);
        hi = lower_bound(s, lo, hi, depth, c + 1);
    }
    return best;
}
