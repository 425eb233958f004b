/* A server's life: open, an engine comes, drain, close. */
#include "serve/serve.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "serve/server_impl.h"

rp__server_config rp__server_config_default(void) {
    return (rp__server_config){.host = "127.0.0.1",
                               .port = 8080,
                               .idle_seconds = 60,
                               .ping_seconds = 15,
                               .summary_seconds = 10,
                               .max_body = 8 << 20,
                               .max_header = 16 << 10,
                               .max_depth = 64,
                               .max_connections = 4096,
                               .stream_buffer = 1 << 20};
}

static void init(rp__server *s, const rp__server_config *config) {
    pthread_condattr_t monotonic;
    s->config = *config;
    s->listen_fd = s->epoll_fd = s->wake_fd = -1;
    s->work_end = &s->work;
    s->created = (int64_t)time(NULL);
    snprintf(s->fingerprint, sizeof s->fingerprint, "reprise-%s", rp_version());
    rp__metrics_init(&s->metrics);
    pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&s->has_work, &monotonic);
    pthread_cond_init(&s->is_idle, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

rp_status rp__server_open(const rp__server_config *config, rp__server **out, rp_error *err) {
    rp__server *s = *out = rp__calloc(1, sizeof *s);
    if (!s) return rp__fail(err, RP_ENOMEM, "out of memory for the server");
    init(s, config);
    rp_status st = rp__listen(s, err);
    if (st >= 0) st = rp__watch_start(s, err);
    if (st >= 0) st = rp__workers_start(s, err);
    if (st >= 0) st = rp__http_open(s, err);
    if (st >= 0) return RP_OK;
    rp__server_close(s);
    *out = NULL;
    return st;
}

const char *rp__server_url(const rp__server *s) {
    return s->url;
}

void rp__server_set_engine(rp__server *s, rp_engine *engine) {
    s->info.bytes = sizeof s->info;
    rp_engine_get_info(engine, &s->info);
    atomic_store(&s->engine, engine);
}

static struct timespec after(int ms) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += ms / 1000;
    t.tv_nsec += (long)(ms % 1000) * 1000000;
    if (t.tv_nsec >= 1000000000) t.tv_sec++, t.tv_nsec -= 1000000000;
    return t;
}

/* Waits until every exchange is freed. */
static rp_status wait_idle(rp__server *s, int timeout_ms) {
    struct timespec until = after(timeout_ms < 0 ? 0 : timeout_ms);
    int late = 0;
    pthread_mutex_lock(&s->lock);
    while (s->n_live && late != ETIMEDOUT)
        late = timeout_ms < 0 ? pthread_cond_wait(&s->is_idle, &s->lock)
                              : pthread_cond_timedwait(&s->is_idle, &s->lock, &until);
    rp_status st = s->n_live ? RP_AGAIN : RP_OK;
    pthread_mutex_unlock(&s->lock);
    return st;
}

rp_status rp__server_drain(rp__server *s, int timeout_ms) {
    int open = RP_SERVER_OPEN;
    if (atomic_compare_exchange_strong(&s->state, &open, RP_SERVER_DRAINING)) {
        rp__http_stop_listening(s);
        pthread_mutex_lock(&s->lock);
        rp__watch_end_links(s, UINT64_MAX); /* what they would bring would be refused */
        pthread_mutex_unlock(&s->lock);
    }
    return wait_idle(s, timeout_ms);
}

/* From here on nothing is suspended any more, as MHD wants it before it stops. */
static void abandon_all(rp__server *s) {
    pthread_mutex_lock(&s->lock);
    atomic_store(&s->state, RP_SERVER_CLOSING);
    for (rp__exchange *x = s->live; x; x = x->next) rp__exchange_abandon(x);
    pthread_mutex_unlock(&s->lock);
}

void rp__server_close(rp__server *s) {
    if (!s) return;
    abandon_all(s);
    rp__workers_stop(s);
    rp__http_close(s);
    rp__watch_stop(s);
    rp__metrics_clear(&s->metrics);
    pthread_cond_destroy(&s->has_work);
    pthread_cond_destroy(&s->is_idle);
    pthread_mutex_destroy(&s->lock);
    rp__free(s->socket_path);
    rp__free(s);
}
