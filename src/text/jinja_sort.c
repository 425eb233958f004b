/* Stable merge sort by keys, with Python's comparison (which can fail). */
#include <string.h>

#include "text/jinja_impl.h"

typedef struct sorter {
    jrun *r;
    jvalue *items, *keys, *spare_items, *spare_keys;
    bool reverse;
} sorter;

/* Whether the right one goes before the left one; equal ones keep their order, in reverse too. */
static rp_status right_first(sorter *s, jvalue left, jvalue right, bool *out) {
    int c;
    RP_TRY(s->reverse ? rp__jinja_order(s->r, left, right, &c)
                      : rp__jinja_order(s->r, right, left, &c));
    *out = c == -1;
    return RP_OK;
}

static rp_status merge(sorter *s, size_t begin, size_t middle, size_t end) {
    size_t a = begin, b = middle, k = begin;
    while (k < end) {
        bool take_right = a == middle;
        if (a < middle && b < end) RP_TRY(right_first(s, s->keys[a], s->keys[b], &take_right));
        size_t from = take_right ? b++ : a++;
        s->spare_items[k] = s->items[from];
        s->spare_keys[k++] = s->keys[from];
    }
    memcpy(s->items + begin, s->spare_items + begin, (end - begin) * sizeof *s->items);
    memcpy(s->keys + begin, s->spare_keys + begin, (end - begin) * sizeof *s->keys);
    return RP_OK;
}

rp_status rp__jinja_sort(jrun *r, jvalue *items, jvalue *keys, size_t n, bool reverse) {
    sorter s = {.r = r, .items = items, .keys = keys, .reverse = reverse};
    s.spare_items = rp__jinja_alloc(r, n, sizeof *items);
    s.spare_keys = s.spare_items ? rp__jinja_alloc(r, n, sizeof *keys) : NULL;
    if (!s.spare_keys) return r->status;
    for (size_t width = 1; width < n; width *= 2)
        for (size_t begin = 0; begin + width < n; begin += 2 * width)
            RP_TRY(merge(&s, begin, begin + width, begin + 2 * width < n ? begin + 2 * width : n));
    return RP_OK;
}
