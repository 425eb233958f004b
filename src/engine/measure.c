/* Eager against replay for every bucket and placement of an engine, on sequences of its own. */
#include <stdio.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "engine/engine_impl.h"

rp_bench_capture_options rp_bench_capture_options_default(void) {
    return (rp_bench_capture_options){.bytes = sizeof(rp_bench_capture_options), .n_pairs = 15};
}

typedef struct bench {
    const rp_bench_capture_options *options;
    double *samples;       /* [3 * n_pairs] */
    rp__kv_seq *seqs;      /* [max_seqs] */
    int32_t *blocks;       /* [max_seqs, blocks of n_ctx] */
    int32_t n_ctx, n_seqs; /* sequences of this bucket */
    int n_reported;
} bench;

/* ---- sequences ---- */

static void release(rp_engine *e, bench *b) {
    for (int32_t i = 0; i < b->n_seqs; i++) rp__kv_release(&e->kv, &b->seqs[i]);
    b->n_seqs = 0;
}

/* n tokens from position 0 on: what a step reads from the cache it wrote itself. */
static rp_status add_sequence(rp_engine *e, bench *b, int32_t n, rp_error *err) {
    rp__batch *t = &e->stepper.batch;
    rp__kv_seq *seq = &b->seqs[b->n_seqs];
    if (rp__kv_reserve(&e->kv, seq, 0, n, NULL) != RP_OK)
        return rp__fail(err, RP_ENOMEM, "%d KV blocks are too few to measure %d sequences",
                        (int)e->kv.n_blocks - 1, (int)b->n_seqs + 1);
    t->tables[b->n_seqs] = seq->blocks;
    t->n_blocks[b->n_seqs] = seq->n_blocks;
    for (int32_t pos = 0; pos < n; pos++) {
        int32_t i = t->n_tokens++;
        t->ids[i] = i % e->sampler.n_vocab;
        t->pos[i] = pos;
        t->seq[i] = b->n_seqs;
        t->slots[i] = rp__kv_slot(&e->kv, seq, pos);
    }
    t->rows[t->n_rows++] = t->n_tokens - 1;
    t->n_seqs = ++b->n_seqs;
    return RP_OK;
}

/* Decode: a token of each sequence. Prefill: a prompt as long as the context allows, and more of
 * them while the bucket has room. */
static rp_status fill_batch(rp_engine *e, bench *b, const rp__bucket *bucket, rp_error *err) {
    rp__batch *t = &e->stepper.batch;
    t->n_tokens = t->n_seqs = t->n_rows = 0;
    while (t->n_tokens < bucket->n_tokens && b->n_seqs < bucket->n_seqs) {
        int32_t n = bucket->kind == RP_BUCKET_DECODE ? 1 : bucket->n_tokens - t->n_tokens;
        if (n > e->stepper.config.max_tokens) n = e->stepper.config.max_tokens;
        RP_TRY(add_sequence(e, b, n < b->n_ctx ? n : b->n_ctx, err));
    }
    return RP_OK;
}

/* ---- measuring ---- */

static rp_capture_row row_of(rp_engine *e, rp__choice *c, int way, const rp__replay_report *r) {
    const rp__program *p = c->ways[way];
    rp_capture_row row = {.is_chosen = rp__choice_next(c, &e->stepper.replay) == p,
                          .is_prefill = p->bucket.kind != RP_BUCKET_DECODE,
                          .n_tokens = p->bucket.n_tokens,
                          .n_ops = p->n_ops - p->traffic.n_uploads - p->traffic.n_downloads,
                          .n_host_ops = p->traffic.n_host_ops,
                          .n_transfers = p->traffic.n_uploads + p->traffic.n_downloads,
                          .eager_us = r->eager_us,
                          .replay_us = r->replay_us,
                          .ratio = r->ratio.median,
                          .ratio_low = r->ratio.low,
                          .ratio_high = r->ratio.high,
                          .is_replay = r->is_replay_faster,
                          .is_simulated = rp__device_props(e->device)->is_simulated,
                          .graph_bytes = r->graph_bytes};
    rp__bucket_text(&p->bucket, row.bucket, sizeof row.bucket);
    snprintf(row.placement, sizeof row.placement, "%s", p->placement->name);
    if (r->refusal)
        snprintf(row.reason, sizeof row.reason, "%s: %s", rp__run_why_text(r->why),
                 rp_status_text(r->refusal));
    else
        snprintf(row.reason, sizeof row.reason, "%s", rp__run_why_text(r->why));
    return row;
}

static int n_rows(const rp_engine *e) {
    int n = 0;
    for (int i = 0; i < e->stepper.n_buckets; i++) n += e->stepper.choices[i].ways[1] ? 2 : 1;
    return n;
}

static rp_status report_rows(rp_engine *e, bench *b, rp__choice *c,
                             const rp__replay_report *reports, rp_error *err) {
    for (int way = 0; way < 2; way++) {
        if (!c->ways[way]) continue;
        rp_capture_row row = row_of(e, c, way, &reports[way]);
        int i = b->n_reported++;
        if (b->options->on_row && b->options->on_row(b->options->user, &row, i, n_rows(e)))
            return rp__fail(err, RP_ECANCELLED, "measuring was stopped");
    }
    return RP_OK;
}

static rp_status measure_bucket(rp_engine *e, bench *b, int i, rp_error *err) {
    rp__replay_report reports[2];
    rp_status st = fill_batch(e, b, &e->stepper.buckets[i], err);
    if (st >= 0)
        st = rp__stepper_measure(&e->stepper, i, b->options->n_pairs, b->samples, reports, err);
    release(e, b);
    RP_TRY(st);
    return report_rows(e, b, &e->stepper.choices[i], reports, err);
}

static rp_status measure_all(rp_engine *e, void *arg, rp_error *err) {
    for (int i = 0; i < e->stepper.n_buckets; i++) RP_TRY(measure_bucket(e, arg, i, err));
    return RP_OK;
}

static rp_status reserve(rp_engine *e, bench *b, rp_error *err) {
    size_t n = (size_t)e->max_seqs, per_seq = (size_t)rp__kv_blocks_for(&e->kv, e->model->n_ctx);
    b->n_ctx = (int32_t)e->model->n_ctx;
    b->samples = rp__calloc((size_t)b->options->n_pairs * 3, sizeof *b->samples);
    b->seqs = rp__calloc(n, sizeof *b->seqs);
    b->blocks = rp__calloc(n * per_seq, sizeof *b->blocks);
    if (!b->samples || !b->seqs || !b->blocks)
        return rp__fail(err, RP_ENOMEM, "out of memory for %d pairs of measurements",
                        b->options->n_pairs);
    for (size_t i = 0; i < n; i++)
        b->seqs[i] = (rp__kv_seq){.blocks = b->blocks + i * per_seq, .cap = (int32_t)per_seq};
    return RP_OK;
}

rp_status rp_engine_bench_capture(rp_engine *e, const rp_bench_capture_options *o, rp_error *err) {
    bench b = {.options = o};
    if (o->n_pairs < 1 || o->n_pairs > 100000)
        return rp__fail(err, RP_EINVAL, "n_pairs is %d, expected 1 to 100000", o->n_pairs);
    rp_status st = reserve(e, &b, err);
    if (st >= 0) st = rp__engine_do(e, measure_all, &b, err);
    rp__free(b.samples);
    rp__free(b.seqs);
    rp__free(b.blocks);
    return st;
}
