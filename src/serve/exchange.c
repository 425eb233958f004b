#include "serve/exchange.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "serve/answer.h"
#include "serve/server_impl.h"

static void name_exchange(rp__exchange *x) {
    uint64_t random[2] = {rp__clock_ns(), (uint64_t)(uintptr_t)x};
    if (getentropy(random, sizeof random)) random[0]++;
    snprintf(x->name, sizeof x->name, "%016llx%08llx", (unsigned long long)random[0],
             (unsigned long long)random[1] & 0xffffffff);
}

static bool enlist(rp__server *s, rp__exchange *x) {
    pthread_mutex_lock(&s->lock);
    bool is_open = atomic_load(&s->state) != RP_SERVER_CLOSING;
    if (is_open) {
        x->next = s->live;
        if (s->live) s->live->prev = x;
        s->live = x;
        s->n_live++;
    }
    pthread_mutex_unlock(&s->lock);
    return is_open;
}

rp__exchange *rp__exchange_create(rp__server *s, const char *method, const char *path) {
    rp__exchange *x = rp__calloc(1, sizeof *x);
    if (!x) return NULL;
    x->server = s;
    x->began_ns = rp__clock_ns();
    atomic_init(&x->n_holders, 1);
    pthread_mutex_init(&x->lock, NULL);
    snprintf(x->method, sizeof x->method, "%s", method);
    x->path = rp__strdup(path);
    if (!x->path || !enlist(s, x)) {
        rp__free(x->path);
        pthread_mutex_destroy(&x->lock);
        rp__free(x);
        return NULL;
    }
    name_exchange(x);
    return x;
}

void rp__exchange_hold(rp__exchange *x) {
    atomic_fetch_add(&x->n_holders, 1);
}

/* Freed by the watcher: releasing an engine's request waits for it, which no other thread may. */
void rp__exchange_let_go(rp__exchange *x) {
    rp__server *s = x->server;
    if (atomic_fetch_sub(&x->n_holders, 1) > 1) return;
    pthread_mutex_lock(&s->lock);
    x->next_listed = s->done;
    s->done = x;
    pthread_mutex_unlock(&s->lock);
    rp__watch_wake(s);
}

void rp__exchange_free(rp__exchange *x) {
    rp__answer_destroy(x->answer);
    rp__bytes_clear(&x->body);
    rp__bytes_clear(&x->reply);
    pthread_mutex_destroy(&x->lock);
    rp__free(x->path);
    rp__free(x);
}

void rp__exchange_wake(rp__exchange *x) {
    if (!x->is_suspended) return;
    x->is_suspended = false;
    MHD_resume_connection(x->connection);
}

void rp__exchange_reply(rp__exchange *x, int http, const char *content_type, rp__bytes *take) {
    pthread_mutex_lock(&x->lock);
    x->reply = *take;
    *take = (rp__bytes){0};
    x->http = http;
    x->content_type = content_type;
    x->has_reply = true;
    rp__exchange_wake(x);
    pthread_mutex_unlock(&x->lock);
}

void rp__exchange_refuse(rp__exchange *x, const rp__problem *p) {
    rp__bytes text = {0};
    rp__problem_write(&text, p);
    x->retry_after = p->retry_after;
    rp__exchange_reply(x, p->http, "application/json", &text);
}

void rp__exchange_reply_json(rp__exchange *x, rp__bytes *take) {
    if (!take->failed) {
        rp__exchange_reply(x, 200, "application/json", take);
        return;
    }
    rp__problem p;
    rp__refuse(&p, RP_ENOMEM, NULL, "out of memory for the answer");
    rp__exchange_refuse(x, &p);
    rp__bytes_clear(take);
}

void rp__exchange_abandon(rp__exchange *x) {
    pthread_mutex_lock(&x->lock);
    x->is_gone = true;
    if (x->answer) rp__answer_cancel(x->answer);
    rp__exchange_wake(x);
    pthread_mutex_unlock(&x->lock);
}

rp_engine *rp__exchange_engine(const rp__exchange *x) {
    return atomic_load(&x->server->engine);
}
