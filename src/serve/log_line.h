/* What the server writes to the standard error: a line per request, a line of figures from time to
 * time. */
#ifndef RP_SERVE_LOG_LINE_H
#define RP_SERVE_LOG_LINE_H

#include "serve/server_impl.h"

/* When the exchange is over. */
void rp__log_exchange(const rp__exchange *x);
/* The figures since the last call; nothing when nothing happened. */
void rp__log_summary(rp__server *s, double seconds);

#endif
