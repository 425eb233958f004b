#include "serve/answer.h"

#include <stdio.h>
#include <sys/random.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fail.h"
#include "serve/server_impl.h"

rp__answer *rp__answer_create(rp__exchange *x, rp__ask *take) {
    rp__answer *a = rp__calloc(1, sizeof *a);
    size_t n_prompts = take->kind == RP_ASK_CHAT ? 1 : take->n_prompts;
    size_t n = n_prompts * (size_t)take->n; /* both bounded by the table of fields */
    if (a) {
        a->choices = rp__calloc(n, sizeof *a->choices);
        a->requests = rp__calloc(n, sizeof(rp_request *));
    }
    if (!a || !a->choices || !a->requests) {
        rp__ask_clear(take);
        rp__answer_destroy(a);
        return NULL;
    }
    a->exchange = x;
    a->ask = *take;
    *take = (rp__ask){0};
    a->n_choices = n;
    a->created = (int64_t)time(NULL);
    a->first_token_seconds = -1;
    snprintf(a->id, sizeof a->id, "%s-%s", a->ask.kind == RP_ASK_CHAT ? "chatcmpl" : "cmpl",
             x->name);
    for (size_t i = 0; i < n; i++) {
        a->choices[i].answer = a;
        a->choices[i].index = (int)i;
    }
    return a;
}

void rp__answer_destroy(rp__answer *a) {
    if (!a) return;
    for (size_t i = 0; i < a->n_choices; i++) {
        rp__choice *c = &a->choices[i];
        rp_request_release(a->requests[i]);
        rp__bytes_clear(&c->text);
        for (size_t k = 0; k < RP_LOGPROB_LISTS; k++) rp__bytes_clear(&c->logprobs[k]);
    }
    rp__free(a->choices);
    rp__free(a->requests);
    rp__bytes_clear(&a->out);
    rp__ask_clear(&a->ask);
    rp__free(a);
}

void rp__answer_cancel(rp__answer *a) {
    for (size_t i = 0; i < a->n_submitted; i++)
        if (!a->choices[i].is_done) rp_request_cancel(a->requests[i]);
}

bool rp__answer_is_streaming(const rp__answer *a) {
    return a->ask.stream && a->is_started;
}

bool rp__answer_is_whole(const rp__answer *a) {
    return !a->ask.stream && a->is_started && !a->n_open;
}

rp_usage rp__answer_usage(const rp__answer *a) {
    rp_usage all = {0};
    for (size_t i = 0; i < a->n_choices; i++) {
        const rp_usage *u = &a->choices[i].usage;
        all.n_generated += u->n_generated;
        if (i % (size_t)a->ask.n) continue;
        all.n_prompt += u->n_prompt;
        all.n_cached += u->n_cached;
    }
    return all;
}

const char *rp__answer_finish(const rp__answer *a) {
    const rp__choice *c = &a->choices[0];
    return c->is_done ? rp_finish_name(c->finish) : "";
}

/* ---- what comes from the engine ---- */

static void count_token(rp__choice *c) {
    rp__answer *a = c->answer;
    rp__metrics *m = &a->exchange->server->metrics;
    uint64_t now = rp__clock_ns();
    if (c->token_ns) {
        rp__metrics_gap(m, (double)(now - c->token_ns) * 1e-9);
    } else {
        double seconds = (double)(now - a->exchange->began_ns) * 1e-9;
        rp__metrics_first_token(m, seconds);
        if (a->first_token_seconds < 0) a->first_token_seconds = seconds;
    }
    c->token_ns = now;
}

static size_t n_waiting_bytes(const rp__choice *c) {
    size_t n = c->text.n;
    for (size_t k = 0; k < RP_LOGPROB_LISTS; k++) n += c->logprobs[k].n;
    return n;
}

/* The answer cannot be given: the first reason counts, and the other choices end too. */
static void fail(rp__answer *a, const rp__problem *p) {
    if (!a->failure.http) a->failure = *p;
    rp__answer_cancel(a);
}

/* What was added to a choice must be there, and no more than may wait for its reader. */
static void check_choice(rp__choice *c) {
    rp__answer *a = c->answer;
    size_t most = a->exchange->server->config.stream_buffer;
    bool is_whole = !c->text.failed;
    rp__problem p;
    for (size_t k = 0; k < RP_LOGPROB_LISTS; k++) is_whole &= !c->logprobs[k].failed;
    if (a->failure.http) return;
    if (!is_whole)
        rp__refuse(&p, RP_ENOMEM, NULL, "out of memory for the answer");
    else if (a->ask.stream && n_waiting_bytes(c) > most)
        rp__refuse(&p, RP_ELIMIT, NULL,
                   "the stream was read too slowly: more than %zu bytes waited", most);
    else
        return;
    fail(a, &p);
}

static void take_token(rp__choice *c, rp_request *request, const rp_event *ev) {
    rp__answer *a = c->answer;
    rp_engine *engine = rp__exchange_engine(a->exchange);
    bool has_logprobs = a->ask.options.n_logprobs >= 0;
    if (has_logprobs && a->ask.echo && !c->has_token) rp__logprob_add_prompt(c, engine, request);
    c->has_token = true;
    if (a->ask.prompt_only) return;
    rp__bytes_add(&c->text, ev->text, ev->text_bytes);
    if (has_logprobs) rp__logprob_add(c, engine, ev);
    check_choice(c);
}

/* An end that is none of the answer's own. */
static void check_end(rp__choice *c, const rp_error *error) {
    rp__problem p;
    if (c->finish == RP_FINISH_STOP || c->finish == RP_FINISH_LENGTH) return;
    if (c->finish == RP_FINISH_CANCELLED)
        rp__refuse(&p, RP_ECANCELLED, NULL, "the answer was cancelled");
    else
        rp__refuse_error(&p, error, NULL);
    fail(c->answer, &p);
}

static void take_end(rp__choice *c, const rp_event *ev) {
    rp__answer *a = c->answer;
    if (!a->ask.prompt_only) rp__bytes_add(&c->text, ev->text, ev->text_bytes);
    if (a->ask.include_stop && ev->stop) rp__bytes_add_str(&c->text, ev->stop);
    c->finish = ev->finish;
    c->usage = ev->usage;
    if (a->ask.prompt_only) c->usage.n_generated = 0;
    c->is_done = true;
    a->n_open--;
    check_choice(c);
    check_end(c, &ev->error);
    rp__metrics_done(&a->exchange->server->metrics, ev->finish,
                     (double)(rp__clock_ns() - a->exchange->began_ns) * 1e-9);
}

/* All choices of a prompt share `user`; which of them it is tells the request. The engine fills the
 * list before it begins with a request. */
static rp__choice *find_choice(rp__answer *a, const rp_request *request) {
    size_t i = 0;
    while (a->requests[i] != request) i++;
    return &a->choices[i];
}

static void on_event(void *user, rp_request *request, const rp_event *ev) {
    rp__answer *a = user;
    rp__choice *c = find_choice(a, request);
    rp__exchange *x = a->exchange;
    if (ev->kind == RP_EVENT_TOKEN) count_token(c);
    pthread_mutex_lock(&x->lock);
    if (ev->kind == RP_EVENT_TOKEN)
        take_token(c, request, ev);
    else
        take_end(c, ev);
    if (a->is_started && (a->ask.stream || !a->n_open)) rp__exchange_wake(x);
    pthread_mutex_unlock(&x->lock);
    if (ev->kind == RP_EVENT_DONE) rp__exchange_let_go(x);
}

/* ---- submitting ---- */

static rp_request_options options_of(rp__answer *a, size_t i_prompt) {
    rp_request_options o = a->ask.options;
    const rp__prompt *p = a->ask.n_prompts ? &a->ask.prompts[i_prompt] : NULL;
    o.on_event = on_event;
    o.user = a;
    o.timeout_seconds = a->exchange->server->config.timeout_seconds;
    if (a->ask.echo) o.n_prompt_logprobs = o.n_logprobs;
    if (!p) {
        o.messages = a->ask.messages;
        o.template_kwargs = a->ask.template_kwargs;
    } else if (p->text.p) {
        o.prompt = p->text.p;
        o.prompt_bytes = p->text.n;
    } else {
        o.prompt_ids = p->ids;
        o.n_prompt_ids = p->n_ids;
    }
    return o;
}

/* Holds and counts come first: a choice may be done before the call returns. */
static void expect(rp__answer *a, size_t n) {
    pthread_mutex_lock(&a->exchange->lock);
    a->n_open += n;
    pthread_mutex_unlock(&a->exchange->lock);
    for (size_t i = 0; i < n; i++) rp__exchange_hold(a->exchange);
}

/* Nothing comes for these choices any more, and their requests are gone. */
static void forget(rp__answer *a, size_t first, size_t n) {
    size_t n_missing = 0;
    pthread_mutex_lock(&a->exchange->lock);
    for (size_t i = first; i < first + n; i++) {
        n_missing += !a->choices[i].is_done;
        a->choices[i].is_done = true;
        a->requests[i] = NULL;
    }
    a->n_open -= n_missing;
    pthread_mutex_unlock(&a->exchange->lock);
    for (size_t i = 0; i < n_missing; i++) rp__exchange_let_go(a->exchange);
}

static rp_status submit_prompt(rp__answer *a, rp_engine *engine, size_t i_prompt, rp_error *err) {
    rp_request_options o = options_of(a, i_prompt);
    size_t n = (size_t)a->ask.n, first = i_prompt * n;
    expect(a, n);
    rp_status st = rp_engine_submit_n(engine, &o, a->ask.n, a->requests + first, err);
    if (st < 0) {
        forget(a, first, n);
        return st;
    }
    pthread_mutex_lock(&a->exchange->lock);
    a->n_submitted = first + n;
    if (a->exchange->is_gone) rp__answer_cancel(a); /* the client left meanwhile */
    pthread_mutex_unlock(&a->exchange->lock);
    return st;
}

/* The prompt's own text comes first in each of its choices. */
static rp_status set_echo(rp__answer *a, rp_engine *engine, size_t i_prompt, rp_error *err) {
    const rp__prompt *p = &a->ask.prompts[i_prompt];
    rp__str text = p->text;
    if (!text.p) {
        char *decoded;
        RP_TRY(rp_engine_detokenize(engine, p->ids, p->n_ids, true, &decoded, &text.n, err));
        text.p = rp__arena_strndup(&a->ask.arena, decoded, text.n);
        rp_free(decoded);
        if (!text.p) return rp__fail(err, RP_ENOMEM, "out of memory for the prompt");
    }
    for (int k = 0; k < a->ask.n; k++)
        a->choices[i_prompt * (size_t)a->ask.n + (size_t)k].echo = text;
    return RP_OK;
}

static uint64_t new_seed(void) {
    uint64_t seed;
    return getentropy(&seed, sizeof seed) ? rp__clock_ns() : seed;
}

rp_status rp__answer_start(rp__answer *a, rp_engine *engine, rp__problem *p) {
    rp__exchange *x = a->exchange;
    rp_error err = {0};
    rp_status st = RP_OK;
    if (!a->ask.has_seed) a->ask.options.sampling.seed = new_seed();
    for (size_t i = 0; i * (size_t)a->ask.n < a->n_choices && st >= 0; i++) {
        if (a->ask.echo) st = set_echo(a, engine, i, &err);
        if (st >= 0) st = submit_prompt(a, engine, i, &err);
    }
    pthread_mutex_lock(&x->lock);
    a->is_started = st >= 0;
    if (st < 0) rp__answer_cancel(a);
    if (st >= 0) rp__exchange_wake(x);
    pthread_mutex_unlock(&x->lock);
    if (st < 0) rp__refuse_error(p, &err, a->ask.kind == RP_ASK_CHAT ? "messages" : "prompt");
    return st;
}

/* ---- a whole answer ---- */

void rp__answer_write(rp__answer *a, rp__bytes *out, rp__problem *p) {
    if (a->failure.http)
        *p = a->failure;
    else
        rp__reply_write(a, out);
}
