/* /v1/chat/completions and /v1/completions. */
#include <string.h>

#include "serve/answer.h"
#include "serve/route.h"
#include "serve/server_impl.h"

bool rp__route_parse(rp__exchange *x, rp__ask_kind kind, rp__ask *ask) {
    const rp__server *s = x->server;
    rp__problem p = {0};
    rp__ask_limits limits = {.max_depth = s->config.max_depth,
                             .n_vocab = s->info.n_vocab,
                             .ignore_unknown = s->config.ignore_unknown};
    if (rp__ask_parse(ask, kind, &x->body, &limits, &p) >= 0) return true;
    rp__exchange_refuse(x, &p);
    rp__ask_clear(ask);
    return false;
}

/* The names it is known by, and the path it was loaded from. */
static bool is_served(const rp__server *s, const char *model) {
    for (size_t i = 0; i < s->config.n_names; i++)
        if (!strcmp(s->config.names[i], model)) return true;
    return !strcmp(s->config.model_path, model);
}

static rp_status start(rp__exchange *x, rp__ask *ask, rp__problem *p) {
    rp__server *s = x->server;
    if (ask->model && !is_served(s, ask->model)) {
        rp__refuse(p, RP_ENOTFOUND, "model", "model \"%.80s\" is not served here, \"%.80s\" is",
                   ask->model, s->config.names[0]);
        p->code = "model_not_found";
        rp__ask_clear(ask);
        return RP_ENOTFOUND;
    }
    rp__answer *a = rp__answer_create(x, ask);
    if (!a) return rp__refuse(p, RP_ENOMEM, NULL, "out of memory for the answer");
    pthread_mutex_lock(&x->lock);
    x->answer = a;
    pthread_mutex_unlock(&x->lock);
    return rp__answer_start(a, rp__exchange_engine(x), p);
}

static void answer(rp__exchange *x, rp__ask_kind kind) {
    rp__ask ask;
    rp__problem p = {0};
    if (rp__route_parse(x, kind, &ask) && start(x, &ask, &p) < 0) rp__exchange_refuse(x, &p);
}

void rp__route_chat(rp__exchange *x) {
    answer(x, RP_ASK_CHAT);
}
void rp__route_completions(rp__exchange *x) {
    answer(x, RP_ASK_COMPLETION);
}
