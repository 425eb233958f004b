/* The log callback. The library never prints: it calls what the embedder gave (nothing by default).
 * Thread safe: the callback may be called from any thread. */
#ifndef RP_BASE_LOG_H
#define RP_BASE_LOG_H

#include "reprise/status.h"

typedef enum rp_log_level { RP_LOG_DEBUG, RP_LOG_INFO, RP_LOG_WARN, RP_LOG_ERROR } rp_log_level;
typedef void (*rp_log_fn)(void *user, rp_log_level level, const char *line);

void rp__log_set(rp_log_fn fn, void *user, rp_log_level least);
void rp__log(rp_log_level level, const char *fmt, ...) RP_PRINTF(2, 3); /* one line, no newline */

#endif
