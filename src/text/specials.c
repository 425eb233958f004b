/* Finding special tokens in a text: the longest one at a place, by narrowing a sorted list byte by byte. */
#include "text/tokenizer_impl.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

typedef struct sorted {
    rp__str text;
    int32_t id;
} sorted;

static int by_text(const void *a, const void *b) {
    const sorted *x = a, *y = b;
    size_t n = x->text.n < y->text.n ? x->text.n : y->text.n;
    int c = memcmp(x->text.p, y->text.p, n);
    return c ? c : (x->text.n > y->text.n) - (x->text.n < y->text.n);
}

static bool is_wanted(const rp__piece *p, bool normalized) {
    if (p->text.n == 0 || (!rp__piece_is_control(p) && p->type != RP_TOKEN_USER_DEFINED)) return false;
    return normalized == !!(p->flags & RP_PIECE_NORMALIZED);
}

rp_status rp__specials_init(rp__specials *s, const rp__pieces *v, bool normalized, rp_error *err) {
    size_t n = 0;
    for (size_t i = 0; i < v->n; i++) n += is_wanted(&v->p[i], normalized);
    if (n == 0) return RP_OK;
    sorted *list = rp__calloc(n, sizeof *list);
    s->id = rp__calloc(n, sizeof *s->id);
    if (!list || !s->id) {
        rp__free(list);
        return rp__fail(err, RP_ENOMEM, "out of memory for %zu special tokens", n);
    }
    for (size_t i = 0; i < v->n; i++)
        if (is_wanted(&v->p[i], normalized)) list[s->n++] = (sorted){v->p[i].text, (int32_t)i};
    qsort(list, n, sizeof *list, by_text);
    for (size_t i = 0; i < n; i++) {
        s->id[i] = list[i].id;
        s->first[(unsigned char)list[i].text.p[0] + 1]++;
    }
    for (size_t b = 0; b < 256; b++) s->first[b + 1] += s->first[b];
    rp__free(list);
    return RP_OK;
}

void rp__specials_clear(rp__specials *s) {
    rp__free(s->id);
    *s = (rp__specials){0};
}

/* First entry of [lo, hi), all equal in their first `depth` bytes, whose next byte is not below `c`. */
static size_t lower_bound(const rp__specials *s, const rp__pieces *v, size_t lo, size_t hi, size_t depth, int c) {
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        rp__str t = v->p[s->id[mid]].text;
        int byte = t.n > depth ? (unsigned char)t.p[depth] : -1;
        if (byte < c) lo = mid + 1;
        else hi = mid;
    }
    return lo;
}

int32_t rp__specials_match(const rp__specials *s, const rp__pieces *v, rp__str text, size_t at, size_t control_end) {
    int32_t best = -1;
    unsigned char first = (unsigned char)text.p[at];
    size_t lo = s->first[first], hi = s->first[first + 1];
    for (size_t depth = 1; lo < hi; depth++) {
        const rp__piece *p = &v->p[s->id[lo]]; /* the shortest of those left is the first */
        if (p->text.n == depth && (!rp__piece_is_control(p) || at + depth <= control_end)) best = s->id[lo];
        if (at + depth >= text.n) break;
        int c = (unsigned char)text.p[at + depth];
        lo = lower_bound(s, v, lo, hi, depth, c);
        hi = lower_bound(s, v, lo, hi, depth, c + 1);
    }
    return best;
}
