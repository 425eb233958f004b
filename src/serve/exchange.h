/* One HTTP request and its answer, from the first header to the last byte.
 *
 * An exchange is held by the connection (until the answer is out or the client is gone), by the
 * worker that handles it, and by each request it has in the engine. When the last of them lets go,
 * the watcher frees it. While it waits, its connection is suspended: nothing polls. */
#ifndef RP_SERVE_EXCHANGE_H
#define RP_SERVE_EXCHANGE_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/bytes.h"
#include "reprise/reprise.h"
#include "serve/problem.h"

struct MHD_Connection;
typedef struct rp__server rp__server;
typedef struct rp__exchange rp__exchange;
typedef struct rp__answer rp__answer;

/* One row per endpoint. */
typedef struct rp__route {
    const char *method, *path;
    void (*handle)(rp__exchange *x); /* ends in a reply, a refusal or a started answer */
    bool is_prefix;                  /* what follows the path is the handler's */
    bool is_open;                    /* answered without an API key */
    bool is_quick;                   /* never waits: handled on the sockets' thread */
    bool needs_engine;
    bool is_silent; /* asked by machines, again and again: not logged */
} rp__route;

struct rp__exchange {
    rp__server *server;
    rp__exchange *prev, *next; /* in server->live */
    rp__exchange *next_listed; /* in the list of work, then in that of what is done */
    atomic_int n_holders;
    char name[129]; /* x-request-id */
    char method[8];
    char *path;
    uint64_t began_ns;

    /* The sockets' thread's until the request is whole, then read only. */
    struct MHD_Connection *connection;
    const rp__route *route;
    const char *tail;   /* of the path, behind a prefix route's */
    const char *origin; /* of a page that may read the answer; NULL */
    const char *allow;  /* methods, for 405 */
    bool is_whole, is_head, wants_continue;
    rp__bytes body;
    rp__problem problem;   /* found in the headers: said once the request is whole */
    struct rp__link *link; /* its connection's, to the end of the exchange there; NULL: none */

    pthread_mutex_t lock; /* guards what follows */
    bool is_suspended;
    bool is_gone; /* nobody waits for the answer */
    bool has_reply;
    bool wants_ping;
    int http;
    const char *content_type;
    const char *policy; /* of a page: its Content-Security-Policy; NULL */
    int retry_after;
    rp__bytes reply;
    rp__answer *answer; /* set by the handler: the reply is made of it, see answer.h */
    uint64_t sent_ns;   /* when a stream last gave bytes away */
    uint64_t ended_ns;
};

/* A new one, held by its connection. NULL: out of memory, or the server takes none any more. */
rp__exchange *rp__exchange_create(rp__server *s, const char *method, const char *path);
void rp__exchange_hold(rp__exchange *x);
void rp__exchange_let_go(rp__exchange *x);
void rp__exchange_free(rp__exchange *x); /* the watcher's, out of every list */

/* Takes the bytes; the connection goes on. */
void rp__exchange_reply(rp__exchange *x, int http, const char *content_type, rp__bytes *take);
void rp__exchange_reply_json(rp__exchange *x, rp__bytes *take);
void rp__exchange_refuse(rp__exchange *x, const rp__problem *p);
/* Nobody waits any more: what runs for it is cancelled. */
void rp__exchange_abandon(rp__exchange *x);
/* Lets a suspended connection go on; under the lock. */
void rp__exchange_wake(rp__exchange *x);

rp_engine *rp__exchange_engine(const rp__exchange *x);

#endif
