#include "engine/sample.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "engine/row.h"

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
    size_t n = (size_t)n_vocab, n_chunks = (size_t)rp__row_chunks(n_vocab);
    s->logits = rp__calloc(n, sizeof *s->logits);
    s->counts = rp__calloc(n, sizeof *s->counts);
    s->candidates = rp__calloc(n, sizeof *s->candidates);
    s->best = rp__calloc(n, sizeof *s->best);
    s->chunks = rp__calloc(n_chunks, sizeof *s->chunks);
    s->tops = rp__calloc(n_chunks, sizeof *s->tops);
    s->sums = rp__calloc(n_chunks, sizeof *s->sums);
    if (s->logits && s->counts && s->candidates && s->best && s->chunks && s->tops && s->sums)
        return RP_OK;
    rp__sampler_clear(s);
    return rp__fail(err, RP_ENOMEM, "out of memory for a sampler over %d tokens", (int)n_vocab);
}

void rp__sampler_clear(rp__sampler *s) {
    rp__free(s->logits);
    rp__free(s->counts);
    rp__free(s->candidates);
    rp__free(s->best);
    rp__free(s->chunks);
    rp__free(s->tops);
    rp__free(s->sums);
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

static void add_candidate(rp__sampler *s, rp__candidate item) {
    size_t i = s->n_candidates++;
    for (size_t up; i && comes_before(item, s->candidates[up = (i - 1) / 2]); i = up)
        s->candidates[i] = s->candidates[up];
    s->candidates[i] = item;
}

static rp__candidate pop(rp__candidate *heap, size_t *n) {
    rp__candidate best = heap[0];
    heap[0] = heap[--*n];
    if (*n) sift_down(heap, *n, 0);
    return best;
}

/* Tokens in descending order, as far as they are asked for: chunks of the row by their largest, and
 * the candidates of chunks that were opened. */
static void begin_row(rp__sampler *s, const float *logits) {
    s->row = logits;
    s->top = rp__row_tops(logits, s->n_vocab, s->tops);
    s->is_ordered = false;
}

static void begin_order(rp__sampler *s) {
    int32_t n_chunks = rp__row_chunks(s->n_vocab);
    s->is_ordered = true;
    s->n_candidates = s->n_chunks = s->n_best = 0;
    for (int32_t i = 0; i < n_chunks; i++)
        if (s->tops[i] > -INFINITY) s->chunks[s->n_chunks++] = (rp__candidate){s->tops[i], i};
    for (size_t i = s->n_chunks / 2; i-- > 0;) sift_down(s->chunks, s->n_chunks, i);
}

static void open_chunk(rp__sampler *s) {
    int32_t from = pop(s->chunks, &s->n_chunks).id * RP__ROW_CHUNK, to = from + RP__ROW_CHUNK;
    for (int32_t i = from; i < to && i < s->n_vocab; i++)
        if (s->row[i] > -INFINITY) add_candidate(s, (rp__candidate){s->row[i], i});
}

/* False when there are not more than i tokens that can be drawn; else best[i] is one. */
static bool has_best(rp__sampler *s, size_t i) {
    if (!s->is_ordered) begin_order(s);
    for (; s->n_best <= i; s->n_best++) {
        while (s->n_chunks && (!s->n_candidates || s->chunks[0].logit >= s->candidates[0].logit))
            open_chunk(s);
        if (!s->n_candidates) return false;
        s->best[s->n_best] = pop(s->candidates, &s->n_candidates);
    }
    return true;
}

/* ---- drawing ---- */

/* 1 / temperature, finite, so that the best token's weight is 1 at any temperature. */
static float coldness(float temperature) {
    float by = 1 / temperature;
    return by < FLT_MAX ? by : FLT_MAX;
}

/* Nothing cuts the distribution: no order is needed, the sums run over the vocabulary. */
static int32_t draw_from_all(rp__sampler *s, const rp_sampling *p, double u) {
    float by = coldness(p->temperature), w[RP__ROW_CHUNK];
    double target = u * rp__row_sum(s->row, s->n_vocab, s->top, by, s->sums);
    double sum = 0, before = 0; /* before: the chunk in which the sum passes the target */
    int32_t from = 0, last = 0, n_chunks = rp__row_chunks(s->n_vocab);
    for (int32_t i = 0; i < n_chunks && sum <= target; i++)
        if (s->sums[i] > 0) from = i * RP__ROW_CHUNK, before = sum, sum += s->sums[i];
    int32_t n = s->n_vocab - from < RP__ROW_CHUNK ? s->n_vocab - from : RP__ROW_CHUNK;
    rp__row_weights(s->row + from, n, s->top, by, w);
    for (int32_t i = 0; i < n && before <= target; i++) /* rounding: else the last of any weight */
        if (w[i] > 0) last = i, before += (double)w[i];
    return from + last;
}

static double weight(const rp__sampler *s, size_t i, float temperature) {
    return exp(((double)s->best[i].logit - (double)s->top) / (double)temperature);
}

/* top-k, top-p and min-p over the tokens in descending order. */
static int32_t draw_from_best(rp__sampler *s, const rp_sampling *p, size_t limit, double u) {
    const float t = p->temperature;
    double all = 0, kept = 0, sum = 0;
    if (limit == (size_t)s->n_vocab)
        all = rp__row_sum(s->row, s->n_vocab, s->top, coldness(t), NULL);
    else
        for (size_t i = 0; i < limit && has_best(s, i); i++) all += weight(s, i, t);
    size_t n = 0;
    for (; n < limit && has_best(s, n); n++) {
        if (n && kept >= (double)p->top_p * all && p->top_p < 1) break;
        double w = weight(s, n, t);
        if (w < (double)p->min_p) break;
        kept += w;
    }
    double target = u * kept;
    for (size_t i = 0; i < n; i++) {
        sum += weight(s, i, t);
        if (sum > target) return s->best[i].id;
    }
    return s->best[n - 1].id; /* rounding: the last one kept */
}

static int32_t draw(rp__sampler *s, const float *logits, const rp_sampling *p, double u) {
    begin_row(s, logits);
    if (!isfinite(s->top)) /* the first token stands for a broken row */
        return rp__row_argmax(logits, s->n_vocab);
    size_t n = (size_t)s->n_vocab;
    size_t limit = p->top_k > 0 && (size_t)p->top_k < n ? (size_t)p->top_k : n;
    if (limit == n && p->top_p >= 1 && p->min_p == 0) return draw_from_all(s, p, u);
    return draw_from_best(s, p, limit, u);
}

int32_t rp__sampler_choose(rp__sampler *s, const float *logits, const rp_sampling *p,
                           const int32_t *history, size_t n_history, size_t n_prompt) {
    const float *adjusted = adjust(s, logits, p, history, n_history, n_prompt);
    if (p->temperature == 0) return rp__row_argmax(adjusted, s->n_vocab);
    return draw(s, adjusted, p, rp__random_uniform(p->seed, n_history - n_prompt));
}

float rp__sampler_logprobs(rp__sampler *s, const float *logits, int32_t id, rp_top_logprob *top,
                           size_t n_top) {
    begin_row(s, logits);
    double norm = (double)s->top + log(rp__row_sum(logits, s->n_vocab, s->top, 1, NULL));
    for (size_t i = 0; i < n_top; i++) {
        rp__candidate c = has_best(s, i) ? s->best[i] : (rp__candidate){-INFINITY, 0};
        top[i] = (rp_top_logprob){c.id, (float)((double)c.logit - norm)};
    }
    return (float)((double)logits[id] - norm);
}
