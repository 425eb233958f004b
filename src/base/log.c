#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static rp_log_fn log_fn;
static void *log_user;
static rp_log_level log_least = RP_LOG_INFO;

void rp_log_set(rp_log_fn fn, void *user, rp_log_level least) {
    pthread_mutex_lock(&log_lock);
    log_fn = fn;
    log_user = user;
    log_least = least;
    pthread_mutex_unlock(&log_lock);
}

void rp__log(rp_log_level level, const char *fmt, ...) {
    pthread_mutex_lock(&log_lock);
    if (log_fn && level >= log_least) {
        char line[1024];
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(line, sizeof line, fmt, ap);
        va_end(ap);
        log_fn(log_user, level, line);
    }
    pthread_mutex_unlock(&log_lock);
}
