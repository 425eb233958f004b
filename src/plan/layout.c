#include "plan/layout.h"

#include <stdbool.h>
#include <stdlib.h>

static int larger_first(const void *a, const void *b) {
    const rp__layout_item *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    return x->id < y->id ? -1 : 1;
}

static int lower_first(const void *a, const void *b) {
    const rp__layout_item *x = *(rp__layout_item *const *)a, *y = *(rp__layout_item *const *)b;
    return x->place < y->place ? -1 : x->place > y->place;
}

static bool lives_with(const rp__layout_item *a, const rp__layout_item *b) {
    return a->first <= b->last && b->first <= a->last;
}

/* Lowest place where `item` fits beside its neighbours, which are sorted by place. */
static size_t lowest_gap(const rp__layout_item *item, rp__layout_item *const *near, size_t n,
                         size_t align) {
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        if (near[i]->place >= at + item->bytes) break;
        size_t end = (near[i]->place + near[i]->bytes + align - 1) & ~(align - 1);
        if (end > at) at = end;
    }
    return at;
}

size_t rp__layout_place(rp__layout_item *items, size_t n, size_t align) {
    qsort(items, n, sizeof *items, larger_first);
    enum { NEAR_MAX = 512 }; /* temporaries alive at one op: a few dozen in any model */
    rp__layout_item *near[NEAR_MAX];
    size_t total = 0;
    for (size_t i = 0; i < n; i++) {
        size_t n_near = 0;
        for (size_t k = 0; k < i && n_near < NEAR_MAX; k++)
            if (lives_with(&items[i], &items[k])) near[n_near++] = &items[k];
        if (n_near == NEAR_MAX) { /* too crowded to search: it goes on top */
            items[i].place = (total + align - 1) & ~(align - 1);
        } else {
            qsort(near, n_near, sizeof *near, lower_first);
            items[i].place = lowest_gap(&items[i], near, n_near, align);
        }
        if (items[i].place + items[i].bytes > total) total = items[i].place + items[i].bytes;
    }
    return (total + align - 1) & ~(align - 1);
}
