/* The watcher: one thread that sees clients leave while their connections are suspended, wakes
 * silent streams for a ping, ends connections that send too slowly, writes the figures, and frees
 * exchanges that are over. */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fail.h"
#include "serve/log_line.h"
#include "serve/server_impl.h"

enum { TICK_MS = 500, WAKE_ID = 0 /* of the eventfd; connections count from 1 */ };

/* ---- connections ---- */

/* A body that keeps coming keeps its connection: a second for so many bytes. */
enum { LEAST_BYTES_PER_SECOND = 16 << 10 };

static void expect_request(const rp__server *s, rp__link *link) {
    link->is_waiting = true;
    link->exchange = NULL;
    link->until_ns = rp__clock_ns() + (uint64_t)(s->config.idle_seconds * 1e9);
}

rp__link *rp__watch_add(rp__server *s, int fd) {
    rp__link *link = rp__calloc(1, sizeof *link);
    if (!link) return NULL;
    link->fd = fd;
    pthread_mutex_lock(&s->lock);
    expect_request(s, link);
    link->id = ++s->next_id;
    link->next = s->links;
    if (s->links) s->links->prev = link;
    s->links = link;
    pthread_mutex_unlock(&s->lock);
    /* Once only: a client that has left stays away. */
    struct epoll_event e = {.events = EPOLLRDHUP | EPOLLONESHOT, .data.u64 = link->id};
    epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, fd, &e);
    return link;
}

void rp__watch_remove(rp__server *s, rp__link *link) {
    if (!link) return;
    epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, link->fd, NULL);
    pthread_mutex_lock(&s->lock);
    if (link->prev)
        link->prev->next = link->next;
    else
        s->links = link->next;
    if (link->next) link->next->prev = link->prev;
    pthread_mutex_unlock(&s->lock);
    rp__free(link);
}

void rp__watch_request(rp__server *s, rp__link *link) {
    if (!link) return;
    pthread_mutex_lock(&s->lock);
    expect_request(s, link);
    pthread_mutex_unlock(&s->lock);
}

void rp__watch_extend(rp__server *s, rp__link *link, size_t bytes) {
    if (!link) return;
    pthread_mutex_lock(&s->lock);
    link->until_ns += (uint64_t)bytes * (1000000000u / LEAST_BYTES_PER_SECOND);
    pthread_mutex_unlock(&s->lock);
}

void rp__watch_answer(rp__server *s, rp__link *link, rp__exchange *x) {
    if (!link) return;
    bool is_slow = x->route && !x->route->is_quick;
    pthread_mutex_lock(&s->lock);
    link->is_waiting = false;
    link->exchange = is_slow ? x : NULL; /* what is answered at once is answered to all */
    if (link->exchange && link->is_left) rp__exchange_abandon(x);
    pthread_mutex_unlock(&s->lock);
}

/* Reads and writes of a socket that is shut down end at once, and its connection with them. */
static void end_link(const rp__link *link) {
    shutdown(link->fd, SHUT_RDWR);
}

/* Nothing more can come of it: MHD would wait for the rest of a request. */
static bool is_over(const rp__link *link) {
    char c;
    return link->is_waiting && link->is_left && recv(link->fd, &c, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

/* A client that closes only its own direction counts as gone too: nobody can tell the two apart
 * before it is too late to save the work. */
static void see_leave(rp__server *s, uint64_t id) {
    pthread_mutex_lock(&s->lock);
    rp__link *link = s->links;
    while (link && link->id != id) link = link->next;
    if (link) {
        link->is_left = true;
        if (link->exchange) rp__exchange_abandon(link->exchange);
        if (is_over(link)) end_link(link);
    }
    pthread_mutex_unlock(&s->lock);
}

void rp__watch_end_links(rp__server *s, uint64_t now) {
    for (rp__link *l = s->links; l; l = l->next)
        if ((l->is_waiting && now >= l->until_ns) || is_over(l)) end_link(l);
}

/* ---- what is over ---- */

static void unlist(rp__server *s, rp__exchange *x) {
    if (x->prev)
        x->prev->next = x->next;
    else
        s->live = x->next;
    if (x->next) x->next->prev = x->prev;
    if (!--s->n_live) pthread_cond_broadcast(&s->is_idle);
}

static void finish(rp__server *s, rp__exchange *x) {
    rp__log_exchange(x);
    pthread_mutex_lock(&s->lock);
    unlist(s, x);
    pthread_mutex_unlock(&s->lock);
    rp__exchange_free(x);
}

static void finish_done(rp__server *s) {
    pthread_mutex_lock(&s->lock);
    rp__exchange *list = s->done;
    s->done = NULL;
    pthread_mutex_unlock(&s->lock);
    while (list) {
        rp__exchange *x = list;
        list = x->next_listed;
        finish(s, x);
    }
}

/* ---- time ---- */

static void ping(const rp__server *s, rp__exchange *x, uint64_t now) {
    uint64_t silence = (uint64_t)(s->config.ping_seconds * 1e9);
    pthread_mutex_lock(&x->lock);
    if (x->is_suspended && x->answer && now - x->sent_ns > silence) {
        x->wants_ping = true;
        rp__exchange_wake(x);
    }
    pthread_mutex_unlock(&x->lock);
}

static void tick(rp__server *s, uint64_t now, uint64_t *summary_ns) {
    pthread_mutex_lock(&s->lock);
    rp__watch_end_links(s, now);
    for (rp__exchange *x = s->config.ping_seconds > 0 ? s->live : NULL; x; x = x->next)
        ping(s, x, now);
    pthread_mutex_unlock(&s->lock);
    double since = (double)(now - *summary_ns) * 1e-9;
    if (s->config.summary_seconds <= 0 || since < s->config.summary_seconds) return;
    *summary_ns = now;
    rp__log_summary(s, since);
}

/* ---- the thread ---- */

static void see_event(rp__server *s, const struct epoll_event *e) {
    uint64_t count;
    if (e->data.u64 != WAKE_ID)
        see_leave(s, e->data.u64);
    else if (read(s->wake_fd, &count, sizeof count) < 0)
        return; /* drained already */
}

static bool must_end(rp__server *s) {
    pthread_mutex_lock(&s->lock);
    bool must = s->is_stopping && !s->n_live;
    pthread_mutex_unlock(&s->lock);
    return must;
}

static void *run(void *server) {
    enum { EVENTS = 64 };
    rp__server *s = server;
    uint64_t ticked = rp__clock_ns(), summary = ticked;
    struct epoll_event events[EVENTS];
    while (!must_end(s)) {
        int n = epoll_wait(s->epoll_fd, events, EVENTS, TICK_MS);
        for (int i = 0; i < n; i++) see_event(s, &events[i]);
        finish_done(s);
        uint64_t now = rp__clock_ns();
        if (now - ticked < (uint64_t)TICK_MS * 1000000) continue;
        ticked = now;
        tick(s, now, &summary);
    }
    return NULL;
}

void rp__watch_wake(rp__server *s) {
    uint64_t one = 1;
    if (write(s->wake_fd, &one, sizeof one) < 0) return; /* full: it will wake all the same */
}

rp_status rp__watch_start(rp__server *s, rp_error *err) {
    struct epoll_event e = {.events = EPOLLIN, .data.u64 = WAKE_ID};
    s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    s->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s->epoll_fd < 0 || s->wake_fd < 0 || epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, s->wake_fd, &e))
        return rp__fail(err, RP_EIO, "cannot watch connections: %s", strerror(errno));
    if (pthread_create(&s->watcher, NULL, run, s))
        return rp__fail(err, RP_ENOMEM, "cannot start the watcher thread");
    s->has_watcher = true;
    return RP_OK;
}

void rp__watch_stop(rp__server *s) {
    if (s->has_watcher) {
        rp__watch_wake(s);
        pthread_join(s->watcher, NULL);
    }
    s->has_watcher = false;
    if (s->wake_fd >= 0) close(s->wake_fd);
    if (s->epoll_fd >= 0) close(s->epoll_fd);
}
