#include "engine/stop.h"

#include <string.h>

/* Index of the stop string that is complete at p, -1 when none is. */
static int complete_at(const rp__stops *s, const char *p, size_t n) {
    for (size_t k = 0; k < s->n; k++)
        if (s->strings[k].n <= n && !memcmp(p, s->strings[k].p, s->strings[k].n)) return (int)k;
    return -1;
}

/* True when the n bytes at p begin a stop string that is longer than them. */
static bool may_begin_at(const rp__stops *s, const char *p, size_t n) {
    for (size_t k = 0; k < s->n; k++)
        if (s->strings[k].n > n && !memcmp(p, s->strings[k].p, n)) return true;
    return false;
}

int rp__stops_add(rp__stops *s, rp__str text, rp__bytes *out) {
    if (!s->n) return rp__bytes_add(out, text.p, text.n) ? -1 : -2;
    if (!rp__bytes_add(&s->held, text.p, text.n)) return -2;
    size_t i = 0;
    int found = -1;
    for (; i < s->held.n; i++) {
        found = complete_at(s, s->held.p + i, s->held.n - i);
        if (found >= 0 || may_begin_at(s, s->held.p + i, s->held.n - i)) break;
    }
    if (!rp__bytes_add(out, s->held.p, i)) return -2;
    s->held.n -= i;
    memmove(s->held.p, s->held.p + i, s->held.n);
    if (found >= 0) s->held.n = 0;
    return found;
}

int rp__stops_finish(rp__stops *s, rp__bytes *out) {
    size_t i = 0;
    int found = -1;
    for (; i < s->held.n && found < 0; i++) found = complete_at(s, s->held.p + i, s->held.n - i);
    if (found >= 0) i--;
    s->held.n = 0;
    return rp__bytes_add(out, s->held.p, i) ? found : -2;
}

void rp__stops_clear(rp__stops *s) {
    rp__bytes_clear(&s->held);
}
