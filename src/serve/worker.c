/* The workers: parsing, tokenising and submitting, away from the thread that moves bytes. */
#include "base/fail.h"
#include "serve/server_impl.h"

void rp__workers_add(rp__server *s, rp__exchange *x) {
    rp__exchange_hold(x);
    pthread_mutex_lock(&s->lock);
    x->next_listed = NULL;
    *s->work_end = x;
    s->work_end = &x->next_listed;
    pthread_cond_signal(&s->has_work);
    pthread_mutex_unlock(&s->lock);
}

/* The next exchange, in order of arrival; NULL when the server stops. */
static rp__exchange *take(rp__server *s) {
    pthread_mutex_lock(&s->lock);
    while (!s->work && !s->is_stopping) pthread_cond_wait(&s->has_work, &s->lock);
    rp__exchange *x = s->work;
    if (x) s->work = x->next_listed;
    if (!s->work) s->work_end = &s->work;
    pthread_mutex_unlock(&s->lock);
    return x;
}

static void *run(void *server) {
    rp__exchange *x;
    while ((x = take(server))) {
        x->route->handle(x);
        rp__exchange_let_go(x);
    }
    return NULL;
}

rp_status rp__workers_start(rp__server *s, rp_error *err) {
    for (; s->n_workers < RP_SERVE_WORKERS; s->n_workers++)
        if (pthread_create(&s->workers[s->n_workers], NULL, run, s))
            return rp__fail(err, RP_ENOMEM, "cannot start a worker thread");
    return RP_OK;
}

void rp__workers_stop(rp__server *s) {
    pthread_mutex_lock(&s->lock);
    s->is_stopping = true;
    pthread_cond_broadcast(&s->has_work);
    pthread_mutex_unlock(&s->lock);
    for (int i = 0; i < s->n_workers; i++) pthread_join(s->workers[i], NULL);
    s->n_workers = 0;
}
