#include "engine/toys.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* As tools/make_table_model.py makes it: after "a" comes most likely "b", after "b", "c" or "d"
 * comes "a", a newline starts "ok.", a full stop ends, and else the next id follows, "a" after the
 * last one. */
enum { ID_A = 3, ID_D = 6, ID_K = 13, ID_O = 17, ID_NEWLINE = 40, ID_STOP = 41, ID_END = 2 };

int32_t table_next(int32_t id) {
    if (id == ID_A) return ID_A + 1;
    if (id > ID_A && id <= ID_D) return ID_A;
    if (id == ID_NEWLINE) return ID_O;
    if (id == ID_O) return ID_K;
    if (id == ID_K) return ID_STOP;
    if (id == ID_STOP) return ID_END;
    return id + 1 < TOY_VOCAB ? id + 1 : ID_A;
}

rp_engine_options toy_options(const char *fixture) {
    static char path[512];
    rp_engine_options o = rp_engine_options_default();
    snprintf(path, sizeof path, "%s", rp_test_path(fixture));
    o.model = path;
    o.n_threads = 1;
    o.block_size = 8;
    return o;
}

rp_engine *toy_open(const rp_engine_options *o) {
    rp_error err = {0};
    rp_engine *e;
    assert_ok(rp_engine_create(o, &e, &err), err);
    return e;
}

rp_engine_stats toy_stats(rp_engine *e) {
    rp_engine_stats s = {.bytes = sizeof s};
    rp_engine_get_stats(e, &s);
    return s;
}

rp_request_options toy_question(const int32_t *prompt, size_t n_prompt, int max_tokens) {
    rp_request_options q = rp_request_options_default();
    q.prompt_ids = prompt;
    q.n_prompt_ids = n_prompt;
    q.max_tokens = max_tokens;
    q.ignore_eos = true;
    q.sampling.temperature = 0;
    q.n_logprobs = 0;
    return q;
}

rp_request *toy_submit(rp_engine *e, const rp_request_options *q, toy_answer *out) {
    rp_request *r;
    *out = (toy_answer){0};
    if (rp_engine_submit(e, q, &r, &out->error) == RP_OK) return r;
    out->finish = RP_FINISH_ERROR;
    return NULL;
}

void toy_take(rp_request *r, toy_answer *out) {
    rp_event ev;
    *out = (toy_answer){0};
    while (rp_request_next(r, -1, &ev) == RP_OK) {
        if (ev.kind == RP_EVENT_DONE) {
            out->finish = ev.finish;
            out->error = ev.error;
            continue;
        }
        assert_true(out->n < TOY_ANSWER);
        out->ids[out->n] = ev.id;
        out->logprobs[out->n++] = ev.logprob;
    }
    rp_request_release(r);
}

void toy_ask(rp_engine *e, const rp_request_options *q, toy_answer *out) {
    rp_request *r = toy_submit(e, q, out);
    if (r) toy_take(r, out);
}

void toy_ids(uint64_t seed, int32_t *ids, size_t n) {
    seed = seed * 2654435761u + 1;
    for (size_t i = 0; i < n; i++) ids[i] = 3 + (int32_t)((rp_test_rand(&seed) >> 20) % 60);
}

/* ---- what is right ---- */

void assert_table_answer(const toy_answer *a, int32_t id) {
    if (a->finish == RP_FINISH_ERROR) fail_msg("%s", a->error.message);
    for (size_t i = 0; i < a->n; i++) assert_int_equal(a->ids[i], id = table_next(id));
}

double histogram_logprob(const int32_t *ids, size_t n, int32_t id) {
    double p[TOY_VOCAB] = {0}, squares = 0, sum = 0;
    for (size_t i = 0; i < n; i++) p[ids[i]] += 1;
    for (int i = 0; i < TOY_VOCAB; i++) {
        p[i] /= (double)n;
        squares += p[i] * p[i];
    }
    double c = sqrt(128 / (1 + squares));
    for (int i = 0; i < TOY_VOCAB; i++) sum += exp(c * p[i]);
    return c * p[id] - log(sum);
}

void assert_histogram_answer(const toy_answer *a, const int32_t *prompt, size_t n_prompt) {
    enum { MOST = 4096 };
    static int32_t ids[MOST + TOY_ANSWER];
    if (a->finish == RP_FINISH_ERROR) fail_msg("%s", a->error.message);
    assert_true(n_prompt <= MOST);
    memcpy(ids, prompt, n_prompt * sizeof *ids);
    for (size_t i = 0; i < a->n; i++) {
        double right = histogram_logprob(ids, n_prompt + i, a->ids[i]);
        if (fabs(right - (double)a->logprobs[i]) > 1e-4)
            fail_msg("token %zu after %zu: ln P is %g, the histogram says %g", i, n_prompt + i,
                     (double)a->logprobs[i], right);
        ids[n_prompt + i] = a->ids[i];
    }
}
