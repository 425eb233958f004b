#include "engine/sample.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"

rp_sampling rp_sampling_default(void) {
    return (rp_sampling){.temperature = 0.8f,
                         .top_k = 40,
                         .top_p = 0.95f,
                         .min_p = 0.05f,
                         .repetition_penalty = 1.0f,
                         .penalty_last_n = 64};
}

rp_status rp__sampler_init(rp__sampler *s, int32_t n_vocab, rp_error *err) {
    *s = (rp__sampler){.n_vocab = n_vocab};
    s->logits = rp__calloc((size_t)n_vocab, sizeof *s->logits);
    s->candidates = rp__calloc((size_t)n_vocab, sizeof *s->candidates);
    s->counts = rp__calloc((size_t)n_vocab, sizeof *s->counts);
    if (s->logits && s->candidates && s->counts) return RP_OK;
    rp__sampler_clear(s);
    return rp__fail(err, RP_ENOMEM, "out of memory for a sampler over %d tokens", (int)n_vocab);
}

void rp__sampler_clear(rp__sampler *s) {
    rp__free(s->logits);
    rp__free(s->candidates);
    rp__free(s->counts);
    *s = (rp__sampler){0};
}

rp_status rp__sampling_check(const rp_sampling *p, int32_t n_vocab, rp_error *err) {
    const struct {
        const char *name;
        double value, min, max;
    } ranges[] = {{"temperature", (double)p->temperature, 0, 100},
                  {"top_k", p->top_k, 0, 1e9},
                  {"top_p", (double)p->top_p, 0, 1},
                  {"min_p", (double)p->min_p, 0, 1},
                  {"repetition_penalty", (double)p->repetition_penalty, 1e-3, 100},
                  {"presence_penalty", (double)p->presence_penalty, -100, 100},
                  {"frequency_penalty", (double)p->frequency_penalty, -100, 100},
                  {"penalty_last_n", p->penalty_last_n, -1, 1e9}};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (!(ranges[i].value >= ranges[i].min &&
              ranges[i].value <= ranges[i].max)) /* NaN fails too */
            return rp__fail(err, RP_EINVAL, "%s is %g, expected %g to %g", ranges[i].name,
                            ranges[i].value, ranges[i].min, ranges[i].max);
    if (!(p->top_p > 0))
        return rp__fail(err, RP_EINVAL, "top_p is 0, expected more than 0, up to 1");
    for (size_t i = 0; i < p->n_logit_bias; i++)
        if (p->logit_bias[i].id < 0 || p->logit_bias[i].id >= n_vocab ||
            isnan(p->logit_bias[i].bias))
            return rp__fail(
                err, RP_EINVAL, "logit_bias names token %d with bias %g; tokens are 0 to %d",
                (int)p->logit_bias[i].id, (double)p->logit_bias[i].bias, (int)n_vocab - 1);
    return RP_OK;
}

/* ---- random numbers ---- */

double rp__random_uniform(uint64_t seed, uint64_t index) {
    uint32_t c[4] = {(uint32_t)index, (uint32_t)(index >> 32), 0, 0},
             k[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xD2511F53u * c[0], b = (uint64_t)0xCD9E8D57u * c[2];
        uint32_t next[4] = {(uint32_t)(b >> 32) ^ c[1] ^ k[0], (uint32_t)b,
                            (uint32_t)(a >> 32) ^ c[3] ^ k[1], (uint32_t)a};
        memcpy(c, next, sizeof c);
        k[0] += 0x9E3779B9u;
        k[1] += 0xBB67AE85u;
    }
    uint64_t bits = ((uint64_t)c[0] << 32 | c[1]) >> 11;
    return (double)bits * 0x1p-53;
}

/* ---- bias and penalties ---- */

static void add_penalties(rp__sampler *s, const rp_sampling *p, const int32_t *history, size_t n,
                          size_t n_prompt) {
    if (p->repetition_penalty != 1.0f) {
        size_t window =
            p->penalty_last_n < 0 || (size_t)p->penalty_last_n > n ? n : (size_t)p->penalty_last_n;
        for (size_t i = n - window; i < n; i++) {
            if (s->counts[history[i]]++) continue; /* once per token */
            float *l = &s->logits[history[i]];
            *l = *l > 0 ? *l / p->repetition_penalty : *l * p->repetition_penalty;
        }
        for (size_t i = n - window; i < n; i++) s->counts[history[i]] = 0;
    }
    if (p->presence_penalty == 0 && p->frequency_penalty == 0) return;
    for (size_t i = n_prompt; i < n; i++) s->counts[history[i]]++;
    for (size_t i = n_prompt; i < n; i++) {
        int32_t *count = &s->counts[history[i]];
        if (!*count) continue; /* already taken off */
        s->logits[history[i]] -= p->presence_penalty + p->frequency_penalty * (float)*count;
        *count = 0;
    }
}

static bool has_adjustments(const rp_sampling *p) {
    return p->n_logit_bias || p->repetition_penalty != 1.0f || p->presence_penalty != 0 ||
           p->frequency_penalty != 0;
}

bool rp__sampling_is_greedy(const rp_sampling *p) {
    return p->temperature == 0 && !has_adjustments(p);
}

static const float *adjust(rp__sampler *s, const float *logits, const rp_sampling *p,
                           const int32_t *history, size_t n, size_t n_prompt) {
    if (!has_adjustments(p)) return logits;
    memcpy(s->logits, logits, (size_t)s->n_vocab * sizeof *logits);
    for (size_t i = 0; i < p->n_logit_bias; i++) {
        float *l = &s->logits[p->logit_bias[i].id];
        *l = p->logit_bias[i].bias <= -100 ? -INFINITY : *l + p->logit_bias[i].bias;
    }
    add_penalties(s, p, history, n, n_prompt);
    return s->logits;
}

/* ---- candidates in descending order ---- */

static int32_t argmax(const float *v, int32_t n) {
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++)
        if (v[i] > v[best] || isnan(v[best])) best = i;
    return best;
}

static bool comes_before(rp__candidate a, rp__candidate b) {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

static void sift_down(rp__candidate *heap, size_t n, size_t i) {
    rp__candidate item = heap[i];
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && comes_before(heap[child + 1], heap[child])) child++;
        if (!comes_before(heap[child], item)) break;
        heap[i] = heap[child];
    }
    heap[i] = item;
}

/* A heap of all tokens that can be drawn; NaN counts as never. Returns how many. */
static size_t make_heap(rp__sampler *s, const float *logits) {
    size_t n = 0;
    for (int32_t i = 0; i < s->n_vocab; i++)
        if (logits[i] > -INFINITY) s->candidates[n++] = (rp__candidate){logits[i], i};
    for (size_t i = n / 2; i-- > 0;) sift_down(s->candidates, n, i);
    return n;
}

/* Takes the best out of the heap of n; it lands at index n - 1. */
static rp__candidate pop(rp__candidate *heap, size_t n) {
    rp__candidate best = heap[0];
    heap[0] = heap[n - 1];
    sift_down(heap, n - 1, 0);
    return heap[n - 1] = best;
}

static double weight(float logit, float max, float temperature) {
    return exp(((double)logit - (double)max) / (double)temperature);
}

/* Nothing cuts the distribution: no order is needed, the sum runs over the vocabulary. */
static int32_t draw_from_all(const rp__sampler *s, const float *logits, float max,
                             float temperature, double u) {
    double all = 0, sum = 0;
    for (int32_t i = 0; i < s->n_vocab; i++)
        if (logits[i] > -INFINITY) all += weight(logits[i], max, temperature);
    int32_t last = 0;
    for (int32_t i = 0; i < s->n_vocab; i++) {
        if (!(logits[i] > -INFINITY)) continue;
        last = i;
        sum += weight(logits[i], max, temperature);
        if (sum > u * all) return i;
    }
    return last;
}

static int32_t draw(rp__sampler *s, const float *logits, const rp_sampling *p, double u) {
    size_t n = make_heap(s, logits), n_heap = n;
    if (!n)
        return argmax(
            logits, s->n_vocab); /* nothing can be drawn: the first token stands for a broken row */
    size_t limit = p->top_k > 0 && (size_t)p->top_k < n ? (size_t)p->top_k : n;
    rp__candidate *c = s->candidates;
    float max = c[0].logit;
    if (limit == n && p->top_p >= 1 && p->min_p == 0)
        return draw_from_all(s, logits, max, p->temperature, u);
    double all = 0;
    if (limit == n)
        for (size_t i = 0; i < n; i++) all += weight(c[i].logit, max, p->temperature);
    else
        for (; n_heap > n - limit; n_heap--)
            all += weight(pop(c, n_heap).logit, max, p->temperature);
    double kept = 0; /* mass of the candidates that stay, in descending order */
    size_t n_kept = 0;
    for (; n_kept < limit; n_kept++) {
        if (n_kept && kept >= (double)p->top_p * all && p->top_p < 1) break;
        size_t at = n - 1 - n_kept;
        if (n_heap > at) pop(c, n_heap--);
        double w = weight(c[at].logit, max, p->temperature);
        if (w < (double)p->min_p) break;
        kept += w;
    }
    double target = u * kept, sum = 0;
    for (size_t i = 0; i < n_kept; i++) {
        sum += weight(c[n - 1 - i].logit, max, p->temperature);
        if (sum > target) return c[n - 1 - i].id;
    }
    return c[n - n_kept].id; /* rounding: the last one kept */
}

int32_t rp__sampler_choose(rp__sampler *s, const float *logits, const rp_sampling *p,
                           const int32_t *history, size_t n_history, size_t n_prompt) {
    const float *adjusted = adjust(s, logits, p, history, n_history, n_prompt);
    if (p->temperature == 0) return argmax(adjusted, s->n_vocab);
    return draw(s, adjusted, p, rp__random_uniform(p->seed, n_history - n_prompt));
}

float rp__sampler_logprobs(rp__sampler *s, const float *logits, int32_t id, rp_top_logprob *top,
                           size_t n_top) {
    float max = logits[argmax(logits, s->n_vocab)];
    double sum = 0;
    for (int32_t i = 0; i < s->n_vocab; i++) sum += exp((double)logits[i] - (double)max);
    double norm = (double)max + log(sum);
    size_t n = n_top ? make_heap(s, logits) : 0;
    for (size_t i = 0; i < n_top; i++) {
        rp__candidate c = i < n ? pop(s->candidates, n - i) : (rp__candidate){-INFINITY, 0};
        top[i] = (rp_top_logprob){c.id, (float)((double)c.logit - norm)};
    }
    return (float)((double)logits[id] - norm);
}
