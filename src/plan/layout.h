/* Arena layout by lifetime: things that never live at the same time may share bytes. Pure
 * functions. */
#ifndef RP_PLAN_LAYOUT_H
#define RP_PLAN_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

typedef struct rp__layout_item {
    int32_t id;
    size_t bytes;
    int32_t first, last; /* both ends included */
    size_t place;        /* out */
} rp__layout_item;

/* Gives each item a place (largest first, lowest gap that fits among items whose lifetimes overlap)
 * and returns the bytes of the whole. Reorders `items`; the result depends on nothing but the
 * items. align: a power of two. */
size_t rp__layout_place(rp__layout_item *items, size_t n, size_t align);

#endif
