/* Reference bodies of rope and of the paged KV cache: write and attention.
 *
 * Position p of sequence b lies in block table[b][p / S] at offset p % S. Attention keeps all
 * scores of one head in scratch: largest score, then the softmax sums, then the weighted sum of V
 * rows, each in order of position. */
#include <math.h>
#include <string.h>

#include "device/cpu/ref.h"

void rp__ref_rope(const rp__body_args *a) {
    const rp_op *op = a->op;
    int64_t n_heads = op->in[0].dim[1], d = op->in[0].dim[2], half = op->in[1].dim[1] / 2;
    bool is_half = op->p.rope.style == RP_ROPE_HALF;
    ref_share tokens = ref_split(a, a->n_live);
    for (int64_t t = tokens.from; t < tokens.to; t++) {
        const float *cosines = ref_item(&op->in[1], a->in[1], t), *sines = cosines + half;
        for (int64_t h = 0; h < n_heads; h++) {
            const float *x = (const float *)ref_item(&op->in[0], a->in[0], t) + h * d;
            float *y = (float *)ref_item_out(&op->out[0], a->out[0], t) + h * d;
            for (int64_t i = 0; i < half; i++) {
                int64_t p = is_half ? i : 2 * i, q = is_half ? i + half : 2 * i + 1;
                double xp = x[p], xq = x[q], c = cosines[i], s = sines[i];
                y[p] = (float)(xp * c - xq * s);
                y[q] = (float)(xp * s + xq * c);
            }
            if (y != x) memcpy(y + 2 * half, x + 2 * half, (size_t)(d - 2 * half) * sizeof *y);
        }
    }
}

/* Where kv head `kv` has the D elements of position `offset` of block `block`. */
static size_t cache_offset(const rp_tensor *cache, int64_t block, int64_t kv, int64_t offset) {
    size_t row = (size_t)cache->dim[3] * rp__dtype_block_bytes(cache->dtype);
    return (size_t)block * cache->stride + (size_t)(kv * cache->dim[2] + offset) * row;
}

void rp__ref_kv_write(const rp__body_args *a) {
    const rp_op *op = a->op;
    ref_share tokens = ref_split(a, a->n_live);
    for (int64_t t = tokens.from; t < tokens.to; t++) {
        int64_t slot = ref_kv_slot(a, t);
        for (int i = 0; i < 2; i++) {
            const rp_tensor *cache = &op->out[i];
            int64_t size = cache->dim[2], d = cache->dim[3];
            rp__assert(slot >= 0 && slot / size < cache->dim[0], "slot %lld of %lld x %lld",
                       (long long)slot, (long long)cache->dim[0], (long long)size);
            const float *x = ref_item(&op->in[i], a->in[i], t);
            for (int64_t kv = 0; kv < cache->dim[1]; kv++)
                rp__dtype_from_f32(
                    cache->dtype, x + kv * d,
                    (char *)a->out[i] + cache_offset(cache, slot / size, kv, slot % size), d);
        }
    }
}

/* One head of one token. */
typedef struct head {
    const rp__body_args *args;
    const int32_t *table; /* block ids of its sequence */
    int64_t h, group, d;  /* head, heads per kv head, head dim */
    int64_t first, end;   /* visible positions [first, end) */
    double *score, *sum;  /* a score per visible position; [D] sums */
    float *row;           /* a decoded K or V row */
} head;

/* Decodes the K (which = 1) or V (which = 2) row that this head sees at a position. */
static void load_row(const head *hd, int which, int64_t position) {
    const rp_tensor *cache = &hd->args->op->in[which];
    int64_t size = cache->dim[2], block = hd->table[position / size];
    rp__assert(block >= 0 && block < cache->dim[0], "block %lld of %lld", (long long)block,
               (long long)cache->dim[0]);
    size_t at = cache_offset(cache, block, hd->h / hd->group, position % size);
    rp__dtype_to_f32(cache->dtype, (const char *)hd->args->in[which] + at, hd->row, hd->d);
}

static double softcap(double x, double cap) {
    return cap > 0 ? cap * tanh(x / cap) : x;
}

static void attend(const head *hd, const float *q, const float *sink, float *y) {
    const rp_op *op = hd->args->op;
    double largest = sink ? (double)*sink : -INFINITY, total = 0;
    for (int64_t p = hd->first; p < hd->end; p++) {
        double dot = 0;
        load_row(hd, 1, p);
        for (int64_t i = 0; i < hd->d; i++) dot += (double)q[i] * hd->row[i];
        double score = softcap((double)op->p.attention.scale * dot, op->p.attention.softcap);
        hd->score[p - hd->first] = score;
        if (score > largest) largest = score;
    }
    if (sink) total = exp((double)*sink - largest);
    for (int64_t i = 0; i < hd->d; i++) hd->sum[i] = 0;
    for (int64_t p = hd->first; p < hd->end; p++) {
        double weight = exp(hd->score[p - hd->first] - largest);
        total += weight;
        load_row(hd, 2, p);
        for (int64_t i = 0; i < hd->d; i++) hd->sum[i] += weight * hd->row[i];
    }
    for (int64_t i = 0; i < hd->d; i++) y[i] = (float)(hd->sum[i] / total);
}

void rp__ref_attention(const rp__body_args *a) {
    const rp_op *op = a->op;
    int64_t n_heads = op->in[0].dim[1], d = op->in[0].dim[2];
    int64_t context = op->in[3].dim[1] * op->in[1].dim[2];
    const int32_t *seq = a->in[4], *pos = a->in[5];
    const float *sinks = op->n_in > 6 && op->in[6].n_dims ? a->in[6] : NULL;
    double *score = a->scratch;
    head hd = {.args = a, .group = n_heads / op->in[1].dim[1], .d = d};
    hd.score = score, hd.sum = score + context, hd.row = (float *)(hd.sum + d);
    ref_share heads = ref_split(a, a->n_live * n_heads);
    for (int64_t i = heads.from; i < heads.to; i++) {
        int64_t t = i / n_heads;
        rp__assert(seq[t] >= 0 && seq[t] < op->in[3].dim[0], "sequence %d of %lld", seq[t],
                   (long long)op->in[3].dim[0]);
        rp__assert(pos[t] >= 0 && pos[t] < context, "position %d of %lld", pos[t],
                   (long long)context);
        hd.h = i % n_heads;
        hd.table = ref_item(&op->in[3], a->in[3], seq[t]);
        hd.end = (int64_t)pos[t] + 1;
        int64_t window = op->p.attention.window;
        hd.first = window > 0 && hd.end > window ? hd.end - window : 0;
        const float *q = (const float *)ref_item(&op->in[0], a->in[0], t) + hd.h * d;
        float *y = (float *)ref_item_out(&op->out[0], a->out[0], t) + hd.h * d;
        attend(&hd, q, sinks ? &sinks[hd.h] : NULL, y);
    }
}
