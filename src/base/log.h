/* The log callback. The library never prints: it calls what the embedder gave (nothing by default).
 * Thread safe: the callback may be called from any thread. */
#ifndef RP_BASE_LOG_H
#define RP_BASE_LOG_H

#include "reprise/common.h"

void rp__log(rp_log_level level, const char *fmt, ...) RP_PRINTF(2, 3); /* one line, no newline */

#endif
