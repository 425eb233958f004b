/* Stop strings over streamed text: holds back what could still become one, cuts at the earliest
 * start. Not thread safe; owned by a request. */
#ifndef RP_ENGINE_STOP_H
#define RP_ENGINE_STOP_H

#include "base/bytes.h"

typedef struct rp__stops {
    const rp__str *strings; /* none empty; the caller's memory */
    size_t n;
    rp__bytes held; /* text that arrived and is not yet released */
} rp__stops;

/* Adds text and appends to `out` what is certainly no part of a stop string. Returns the index of
 * the stop string that was found (earliest start; of several at one place, the first that is
 * complete), or -1. After that nothing more is released. -2 when out of memory. */
int rp__stops_add(rp__stops *s, rp__str text, rp__bytes *out);
/* The answer ended: releases what is held, up to a stop string that is complete in it. Returns as
 * rp__stops_add does. */
int rp__stops_finish(rp__stops *s, rp__bytes *out);
void rp__stops_clear(rp__stops *s);

#endif
