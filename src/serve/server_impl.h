/* What the files of the server share.
 *
 * Locks: server->lock guards the lists; an exchange's own lock guards its state; the metrics have
 * theirs. Taken in this order where two are held: server, exchange, metrics. No lock is held while
 * the engine is called, but for rp_request_cancel, which never waits for a step. */
#ifndef RP_SERVE_SERVER_IMPL_H
#define RP_SERVE_SERVER_IMPL_H

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>

#include "serve/exchange.h"
#include "serve/metrics.h"
#include "serve/serve.h"

enum { RP_SERVE_WORKERS = 2 }; /* parsing and submitting is short beside a step */

typedef enum rp__server_state {
    RP_SERVER_OPEN,
    RP_SERVER_DRAINING, /* refuses requests, answers those it has */
    RP_SERVER_CLOSING   /* ends every connection */
} rp__server_state;

/* A connection. While it is there one of these is in server->links; guarded by the server's lock.
 */
typedef struct rp__link {
    struct rp__link *prev, *next;
    uint64_t id;
    int fd;
    bool is_left;    /* the client sends nothing any more */
    bool is_waiting; /* for a whole request, until then: */
    uint64_t until_ns;
    rp__exchange *exchange; /* whose answer is being made; NULL: none is */
} rp__link;

struct rp__server {
    rp__server_config config;
    char url[160];
    char fingerprint[48];
    int listen_fd;
    char *socket_path; /* of a Unix socket: removed at the end */
    struct MHD_Daemon *daemon;
    _Atomic(rp_engine *) engine; /* NULL while it loads */
    atomic_int state;            /* rp__server_state */
    rp_engine_info info;         /* set before `engine` */
    int64_t created;             /* seconds since 1970 */
    rp__metrics metrics;

    pthread_t workers[RP_SERVE_WORKERS];
    int n_workers;
    pthread_t watcher;
    bool has_watcher;
    int epoll_fd, wake_fd;

    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t has_work, is_idle;
    rp__exchange *work, **work_end;
    rp__exchange *live; /* every exchange until it is freed */
    size_t n_live;
    rp__exchange *done; /* for the watcher to free */
    rp__link *links;
    uint64_t next_id;
    rp_engine_stats last_stats; /* the watcher's: those of the last summary */
    bool is_stopping;
};

/* http.c */
rp_status rp__http_open(rp__server *s, rp_error *err);
void rp__http_stop_listening(rp__server *s);
void rp__http_close(rp__server *s);

/* worker.c: hands an exchange to a worker, which calls its route's handler. */
rp_status rp__workers_start(rp__server *s, rp_error *err);
void rp__workers_add(rp__server *s, rp__exchange *x);
void rp__workers_stop(rp__server *s);

/* watch.c: connections, from their start to their end. */
rp_status rp__watch_start(rp__server *s, rp_error *err);
rp__link *rp__watch_add(rp__server *s, int fd); /* NULL: out of memory */
void rp__watch_remove(rp__server *s, rp__link *link);
/* Between requests: it has so many seconds for the next one. */
void rp__watch_request(rp__server *s, rp__link *link);
/* An answer is being made; when the client leaves, or has left, it is abandoned. */
void rp__watch_answer(rp__server *s, rp__link *link, rp__exchange *x);
/* Part of a body came: more time for the rest. */
void rp__watch_extend(rp__server *s, rp__link *link, size_t bytes);
void rp__watch_wake(rp__server *s);
/* Ends connections that should have brought a request by `now`; under the lock. */
void rp__watch_end_links(rp__server *s, uint64_t now);
void rp__watch_stop(rp__server *s);

/* listen.c: a listening socket for config.host and port; fills url and socket_path. */
rp_status rp__listen(rp__server *s, rp_error *err);

#endif
