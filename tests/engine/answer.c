#include "engine/answer.h"

#include <stdio.h>
#include <string.h>

#include "test.h"

rp_engine *rp_answer_engine(rp_engine_options o) {
    rp_engine *e = NULL;
    rp_error err = {0};
    char path[512];
    snprintf(path, sizeof path, "%s",
             rp_test_path(o.model ? o.model : "fixtures/tiny/llama3.gguf"));
    o.model = path;
    if (!o.n_threads) o.n_threads = 2;
    assert_ok(rp_engine_create(&o, &e, &err), err);
    return e;
}

rp_request *rp_answer_submit(rp_engine *e, const rp_request_options *o) {
    rp_request *r;
    rp_error err = {0};
    assert_ok(rp_engine_submit(e, o, &r, &err), err);
    return r;
}

static void take_token(const rp_event *ev, rp_answer *a) {
    assert_true(a->n < RP_ANSWER_MOST);
    a->ids[a->n] = ev->id;
    a->logprobs[a->n] = ev->logprob;
    for (size_t i = 0; i < ev->n_top && i < 3; i++) a->tops[a->n][i] = ev->top[i];
    a->n++;
}

void rp_answer_take(rp_request *r, rp_answer *a) {
    rp_event ev;
    rp_status st;
    memset(a, 0, sizeof *a);
    while ((st = rp_request_next(r, -1, &ev)) == RP_OK) {
        assert_true(a->n_text + ev.text_bytes < sizeof a->text);
        memcpy(a->text + a->n_text, ev.text, ev.text_bytes);
        a->n_text += ev.text_bytes;
        if (ev.kind == RP_EVENT_TOKEN) {
            take_token(&ev, a);
            continue;
        }
        a->finish = ev.finish;
        a->usage = ev.usage;
        a->error = ev.error;
    }
    assert_int_equal(st, RP_END);
}

void rp_answer_of(rp_engine *e, const rp_request_options *o, rp_answer *a) {
    rp_request *r = rp_answer_submit(e, o);
    rp_answer_take(r, a);
    rp_request_release(r);
}

void rp_answer_assert_same(const rp_answer *a, const rp_answer *b) {
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->ids, b->ids, sizeof a->ids);
    assert_memory_equal(a->logprobs, b->logprobs, sizeof a->logprobs);
    assert_memory_equal(a->tops, b->tops, sizeof a->tops);
    assert_string_equal(a->text, b->text);
}

rp_engine_stats rp_answer_stats(rp_engine *e) {
    rp_engine_stats s = {.bytes = sizeof s};
    rp_engine_get_stats(e, &s);
    return s;
}

/* ---- a gate ---- */

static void stop_at_gate(void *user, rp_request *request, const rp_event *event) {
    (void)request, (void)event;
    rp_gate *g = user;
    pthread_mutex_lock(&g->lock);
    g->n_seen++;
    pthread_cond_broadcast(&g->changed);
    while (g->n_seen > g->allowed) pthread_cond_wait(&g->changed, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

void rp_gate_put(rp_gate *g, rp_request_options *o) {
    *g = (rp_gate){.n_seen = 0};
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->changed, NULL);
    o->on_event = stop_at_gate;
    o->user = g;
}

void rp_gate_allow(rp_gate *g, int n) {
    pthread_mutex_lock(&g->lock);
    g->allowed = n;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

void rp_gate_wait(rp_gate *g, int n_seen) {
    pthread_mutex_lock(&g->lock);
    while (g->n_seen < n_seen) pthread_cond_wait(&g->changed, &g->lock);
    pthread_mutex_unlock(&g->lock);
}
