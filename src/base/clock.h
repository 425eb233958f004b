/* Time that never goes back. */
#ifndef RP_BASE_CLOCK_H
#define RP_BASE_CLOCK_H

#include <stdint.h>

uint64_t rp__clock_ns(void);

#endif
