/* Cases of attention. Wanted: keys and values of each sequence in one contiguous run, all weights
 * of a row by one softmax over the visible ones (and the sink), no blocks. What no token may see,
 * in used blocks and in free ones, is NaN: to touch it is to show it. */
#include <stdlib.h>
#include <string.h>

#include "op/corpus_build.h"

enum { MAX_SEQS = 5 };

typedef struct attention_spec {
    int64_t h, k, d, s;        /* heads, kv heads, head dim, block size */
    int64_t context[MAX_SEQS]; /* positions per sequence; 0 ends the list */
    int64_t n_new[MAX_SEQS];   /* of which the last are this op's tokens; 0: one */
    rp_dtype k_dtype, v_dtype;
    int32_t window;
    float softcap;
    bool has_sinks, is_strided;
    int live; /* n + 1 */
    rp_rows rows;
} attention_spec;

#define F16S  .k_dtype = RP_F16, .v_dtype = RP_F16
#define BF16S .k_dtype = RP_BF16, .v_dtype = RP_BF16
static const attention_spec specs[] = {
    /* decode */
    {1, 1, 16, 1, {1}},
    {1, 1, 64, 16, {5}},
    {9, 3, 64, 16, {33}, F16S},
    {4, 4, 40, 16, {17, 1}, F16S},
    {8, 2, 80, 32, {100, 3, 31}, BF16S},
    {6, 1, 96, 16, {7, 16, 17, 33, 2}},
    {4, 2, 128, 16, {40, 70}, F16S},
    {4, 1, 256, 16, {50}, F16S},
    {16, 2, 64, 1, {20, 9}, F16S},
    {3, 3, 10, 4, {9, 6}},
    {4, 2, 64, 16, {300}, F16S},
    {32, 8, 64, 32, {130, 65}, BF16S},
    {2, 1, 64, 16, {2100}, F16S},
    {12, 1, 40, 16, {33, 5}, F16S},
    /* prefill, whole and in chunks, mixed with decode */
    {2, 1, 16, 4, {7}, {7}},
    {4, 2, 64, 16, {33}, {33}, F16S},
    {9, 3, 64, 16, {50, 20}, {17, 1}, F16S},
    {4, 2, 80, 32, {40, 33, 5}, {7, 1, 5}, BF16S},
    {2, 2, 128, 16, {20}, {2}, F16S},
    {4, 1, 256, 16, {17}, {3}},
    {2, 2, 96, 1, {12}, {12}, F16S},
    {3, 1, 64, 16, {150}, {130}, F16S},
    /* windows, soft caps, sinks */
    {4, 2, 64, 16, {40, 3}, {9, 3}, F16S, .window = 5},
    {4, 2, 64, 16, {40}, {1}, F16S, .window = 16},
    {4, 2, 64, 16, {40}, {40}, .window = 1},
    {4, 2, 64, 16, {40}, {3}, .window = 1000},
    {2, 1, 256, 16, {70}, {2}, F16S, .window = 33, .softcap = 2},
    {4, 4, 64, 16, {20, 9}, {5, 9}, .softcap = 0.5f},
    {8, 2, 64, 16, {20, 9}, {5, 9}, BF16S, .has_sinks = true},
    {8, 1, 64, 32, {50}, {7}, F16S, .has_sinks = true, .window = 8},
    /* mixed dtypes, strides, live rows */
    {4, 2, 64, 16, {19}, {3}, .k_dtype = RP_F16, .v_dtype = RP_BF16},
    {4, 2, 64, 16, {19}, {3}, .k_dtype = RP_F32, .v_dtype = RP_F16},
    {4, 2, 64, 16, {19}, {3}, .k_dtype = RP_BF16, .v_dtype = RP_F32},
    {9, 3, 64, 16, {19, 40}, {3, 1}, F16S, .is_strided = true},
    {4, 2, 40, 4, {19, 40}, {3, 1}, .is_strided = true},
    {4, 2, 64, 16, {19, 40, 7}, {3, 1, 2}, F16S, .live = 1 + 4},
    {4, 2, 64, 16, {19, 40, 7}, F16S, .live = 1 + 1},
    {4, 2, 64, 16, {19, 40, 7}, F16S, .live = 1 + 0},
    /* what is known of the rows */
    {4, 2, 64, 32, {19, 40}, F16S, .rows = RP_ROWS_SINGLE},
    {4, 2, 64, 32, {32}, {32}, F16S, .rows = RP_ROWS_PROMPT},
    {9, 3, 64, 32, {160}, {96}, BF16S, .rows = RP_ROWS_PROMPT},
    {3, 1, 16, 32, {64}, {32}, .rows = RP_ROWS_PROMPT},
    {4, 2, 32, 64, {128}, {64}, .window = 40, .rows = RP_ROWS_PROMPT},
    /* blocks of whole tiles: a window that begins inside one, many blocks, many rows */
    {4, 2, 64, 32, {70, 40}, {9, 1}, BF16S, .window = 37},
    {2, 1, 128, 64, {700}, BF16S, .rows = RP_ROWS_SINGLE},
    {3, 1, 96, 32, {40}, {40}, BF16S},
};
enum { N_HAND = 5, N_SPECS = sizeof specs / sizeof *specs };

static int64_t largest(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* A sequence laid out straight: k and v [context][K][D]. */
typedef struct straight {
    double *k, *v;
} straight;

static int n_seqs_of(const attention_spec *p) {
    int n = 0;
    while (n < MAX_SEQS && p->context[n]) n++;
    return n;
}

static double *random_run(corpus_case *c, rp_dtype dtype, int64_t n) {
    double *x = malloc((size_t)n * sizeof *x);
    if (!x) abort();
    for (int64_t i = 0; i < n; i++) x[i] = rp_case_round(dtype, 2 * rp_case_randf(c));
    return x;
}

/* Gives each sequence blocks from a shuffled pool; a table row is as long as the longest sequence
 * wants, plus one; entries past a sequence's end name a block that is nobody's. Returns the table
 * [B, M]. */
static int32_t *make_table(corpus_case *c, const attention_spec *p, int n_seqs, int64_t *m,
                           int64_t *n_blocks) {
    int64_t used = 0;
    *m = 0;
    for (int b = 0; b < n_seqs; b++) {
        int64_t n = (p->context[b] + p->s - 1) / p->s;
        used += n, *m = largest(*m, n + 1);
    }
    *n_blocks = used + 3;
    int32_t *pool = malloc((size_t)*n_blocks * sizeof *pool);
    int32_t *table = malloc((size_t)(n_seqs * *m) * sizeof *table);
    if (!pool || !table) abort();
    rp_case_shuffle(c, pool, *n_blocks);
    int64_t next = 0;
    for (int b = 0; b < n_seqs; b++)
        for (int64_t j = 0; j < *m; j++)
            table[b * *m + j] = j * p->s < p->context[b] ? pool[next++] : pool[*n_blocks - 1];
    free(pool);
    return table;
}

static void fill_cache(corpus_case *c, int which, const attention_spec *p, const int32_t *table,
                       int64_t m, const straight *seqs, int n_seqs) {
    double *cache = c->in[which].value;
    int64_t n = rp__tensor_elems(&c->op.in[which]), row = p->k * p->d;
    for (int64_t e = 0; e < n; e++) cache[e] = NAN;
    for (int b = 0; b < n_seqs; b++)
        for (int64_t e = 0; e < p->context[b] * row; e++) {
            int64_t pos = e / row, head = table[b * m + pos / p->s] * p->k + e % row / p->d;
            cache[(head * p->s + pos % p->s) * p->d + e % p->d] =
                which == 1 ? seqs[b].k[e] : seqs[b].v[e];
        }
    rp_case_store(c, &c->in[which], &c->op.in[which]);
}

/* One head of one token over its straight sequence. */
static void want_head(corpus_case *c, const attention_spec *p, const straight *seq, int64_t t,
                      int64_t h, int64_t pos) {
    int64_t kv = h * p->k / p->h;
    const double *q = c->in[0].value + (t * p->h + h) * p->d;
    double *y = c->out[0].value + (t * p->h + h) * p->d,
           *mag = c->out[0].mag + (y - c->out[0].value);
    double *w = malloc((size_t)(pos + 1) * sizeof *w), scale = c->op.p.attention.scale;
    if (!w) abort();
    double sink = p->has_sinks ? c->in[6].value[h] : -INFINITY, top = sink;
    for (int64_t j = 0; j <= pos; j++) {
        w[j] = 0;
        for (int64_t i = 0; i < p->d; i++) w[j] += q[i] * seq->k[(j * p->k + kv) * p->d + i];
        w[j] *= scale;
        if (p->softcap > 0) w[j] = (double)p->softcap * tanh(w[j] / (double)p->softcap);
        if (p->window > 0 && j <= pos - p->window) w[j] = -INFINITY;
        top = fmax(top, w[j]);
    }
    double total = exp(sink - top);
    for (int64_t j = 0; j <= pos; j++) total += exp(w[j] - top);
    for (int64_t j = 0; j <= pos; j++) {
        double weight = exp(w[j] - top) / total;
        for (int64_t i = 0; i < p->d; i++) {
            double v = seq->v[(j * p->k + kv) * p->d + i];
            y[i] += weight * v;
            mag[i] = fmax(mag[i], fabs(v));
        }
    }
    free(w);
}

/* q = 1, keys 0 and ln 3, values 4 and 8: weights 1/4 and 3/4. */
static void make_hand(size_t i, corpus_case *c) {
    static const float one = 1, cache_k[] = {0, 1.09861228866811f}, cache_v[] = {4, 8};
    static const float sink = 1.38629436111989f; /* ln 4: the sum is 1 + 3 + 4 */
    static const double y[N_HAND] = {7, 8, 4, 3.5, 6};
    rp_case_begin(c, RP_OP_ATTENTION, i, "by hand %zu", i);
    rp_case_in_f32(c, 0, S3(1, 1, 1), &one);
    rp_case_in_f32(c, 1, S4(2, 1, 1, 1), cache_k);
    rp_case_in_f32(c, 2, S4(2, 1, 1, 1), cache_v);
    rp_case_in_i32(c, 3, S2(1, 2), (int32_t[]){0, 1});
    rp_case_in_i32(c, 4, S1(1), (int32_t[]){0});
    rp_case_in_i32(c, 5, S1(1), (int32_t[]){i == 2 ? 0 : 1});
    if (i == 3) rp_case_in_f32(c, 6, S1(1), &sink);
    c->op.p.attention.scale = i == 4 ? 0 : 1; /* 4: all scores equal, the plain mean */
    c->op.p.attention.window = i == 1;        /* 1: the last position alone */
    rp_case_out(c, 0, RP_F32, S3(1, 1, 1), TOL_ATTENTION);
    rp_case_want(c, 0, &y[i]);
}

static void name_case(corpus_case *c, const attention_spec *p, int n_seqs, size_t i) {
    rp_case_begin(c, RP_OP_ATTENTION, i, "H=%lld K=%lld D=%lld S=%lld %s %s window=%d cap=%g%s%s",
                  (long long)p->h, (long long)p->k, (long long)p->d, (long long)p->s,
                  rp__dtype_name(p->k_dtype), rp__dtype_name(p->v_dtype), p->window,
                  (double)p->softcap, p->has_sinks ? " sinks" : "",
                  p->is_strided ? " strided" : "");
    for (int b = 0; b < n_seqs; b++)
        rp_case_name(c, " %lld/%lld", (long long)largest(p->n_new[b], 1), (long long)p->context[b]);
    rp_case_name(c, " live=%d", p->live - 1);
}

static void add_inputs(corpus_case *c, const attention_spec *p, int n_seqs, const straight *seqs,
                       int32_t *seq, int32_t *pos, int64_t n_tokens) {
    int64_t m, n_blocks;
    int32_t *table = make_table(c, p, n_seqs, &m, &n_blocks);
    rp_case_in_f32(c, 0, S3(n_tokens, p->h, p->d), NULL);
    rp_case_in_random(c, 1, p->k_dtype, S4(n_blocks, p->k, p->s, p->d));
    rp_case_in_random(c, 2, p->v_dtype, S4(n_blocks, p->k, p->s, p->d));
    fill_cache(c, 1, p, table, m, seqs, n_seqs);
    fill_cache(c, 2, p, table, m, seqs, n_seqs);
    rp_case_in_i32(c, 3, S2(n_seqs, m), table);
    rp_case_in_i32(c, 4, S1(n_tokens), seq);
    rp_case_in_i32(c, 5, S1(n_tokens), pos);
    if (p->has_sinks) rp_case_in_f32(c, 6, S1(p->h), NULL);
    free(table);
}

static void make_spec(size_t i, corpus_case *c) {
    const attention_spec *p = &specs[i];
    int n_seqs = n_seqs_of(p);
    straight seqs[MAX_SEQS];
    int32_t seq[256], pos[256];
    int64_t n_tokens = 0, row = p->k * p->d;
    name_case(c, p, n_seqs, i);
    for (int b = 0; b < n_seqs; b++) {
        seqs[b].k = random_run(c, p->k_dtype, p->context[b] * row);
        seqs[b].v = random_run(c, p->v_dtype, p->context[b] * row);
        for (int64_t j = p->context[b] - largest(p->n_new[b], 1); j < p->context[b]; j++)
            seq[n_tokens] = b, pos[n_tokens++] = (int32_t)j;
    }
    add_inputs(c, p, n_seqs, seqs, seq, pos, n_tokens);
    c->op.p.attention.scale = (float)(1 / sqrt((double)p->d));
    c->op.p.attention.window = p->window;
    c->op.p.attention.softcap = p->softcap;
    c->op.p.attention.rows = p->rows;
    rp_case_out(c, 0, RP_F32, S3(n_tokens, p->h, p->d), TOL_ATTENTION);
    for (int64_t t = 0; t < n_tokens; t++)
        for (int64_t h = 0; h < p->h; h++) want_head(c, p, &seqs[seq[t]], t, h, pos[t]);
    for (int b = 0; b < n_seqs; b++) free(seqs[b].k), free(seqs[b].v);
    rp_case_rows(c, 1 << 0 | 1 << 4 | 1 << 5, 1);
    rp_case_live(c, p->live - 1);
    if (p->is_strided) rp_case_strided(c, 1 << 0 | 1 << 1 | 1 << 2 | 1 << 3, 1);
}

/* ---- twins ---- */

/* Input j of a twin: that of the case, with room for more items of dim[0]. */
static void copy_input(const corpus_case *c, corpus_case *twin, int j, int64_t n_items) {
    rp_tensor *t = &twin->op.in[j];
    size_t item = rp__tensor_item_bytes(t);
    twin->in[j].bytes = calloc((size_t)n_items, item);
    if (!twin->in[j].bytes) abort();
    memcpy(twin->in[j].bytes, c->in[j].bytes, (size_t)t->dim[0] * item);
    t->dim[0] = n_items;
}

/* Moves every block of a cache to its new place among more of them. */
static void move_blocks(const corpus_case *c, corpus_case *twin, int j, const int32_t *place,
                        int64_t n_more) {
    int64_t n = c->op.in[j].dim[0];
    size_t item = rp__tensor_item_bytes(&c->op.in[j]);
    copy_input(c, twin, j, n + n_more);
    memset(twin->in[j].bytes, 0xFF, (size_t)(n + n_more) * item); /* NaN in every float dtype */
    for (int64_t b = 0; b < n; b++)
        memcpy((char *)twin->in[j].bytes + (size_t)place[b] * item,
               (const char *)c->in[j].bytes + (size_t)b * item, item);
}

/* Table rows in reverse order behind a row of nobody's, two columns longer. */
static void widen_table(const corpus_case *c, corpus_case *twin, const int32_t *place) {
    const rp_tensor *t = &c->op.in[3];
    int64_t n_seqs = t->dim[0], m = t->dim[1];
    int32_t *to = calloc((size_t)((n_seqs + 1) * (m + 2)), sizeof *to);
    if (!to) abort();
    for (int64_t b = 0; b < n_seqs; b++)
        for (int64_t i = 0; i < m; i++)
            to[(n_seqs - b) * (m + 2) + i] = place[((int32_t *)c->in[3].bytes)[b * m + i]];
    twin->in[3].bytes = to;
    twin->op.in[3] = rp__tensor_make(NULL, 0, RP_I32, 2, (int64_t[]){n_seqs + 1, m + 2});
    copy_input(c, twin, 4, twin->op.in[4].dim[0]);
    int32_t *seq = twin->in[4].bytes;
    for (int64_t i = 0; i < twin->op.in[4].dim[0]; i++) seq[i] = (int32_t)n_seqs - seq[i];
}

bool rp_corpus_twin(const corpus_case *c, corpus_case *twin) {
    enum { N_MORE = 5 };
    if (c->op.kind != RP_OP_ATTENTION) return false;
    *twin = *c;
    int64_t n = c->op.in[1].dim[0];
    int32_t *place = malloc((size_t)(n + N_MORE) * sizeof *place);
    if (!place) abort();
    rp_case_shuffle(twin, place, n + N_MORE);
    for (int j = 0; j < RP_OP_MAX_IN; j++) twin->in[j].bytes = twin->in[j].value = NULL;
    for (int i = 0; i < RP_OP_MAX_OUT; i++) twin->out[i].value = twin->out[i].mag = NULL;
    copy_input(c, twin, 0, c->op.in[0].dim[0]);
    move_blocks(c, twin, 1, place, N_MORE);
    move_blocks(c, twin, 2, place, N_MORE);
    widen_table(c, twin, place);
    copy_input(c, twin, 5, c->op.in[5].dim[0]);
    if (c->op.n_in > 6) copy_input(c, twin, 6, c->op.in[6].dim[0]);
    size_t y_bytes = rp__tensor_span(&c->op.out[0]);
    twin->out[0].bytes = malloc(y_bytes);
    if (!twin->out[0].bytes) abort();
    memcpy(twin->out[0].bytes, c->out[0].bytes, y_bytes);
    free(place);
    return true;
}

static void make(size_t i, corpus_case *c) {
    if (i < N_HAND)
        make_hand(i, c);
    else
        make_spec(i - N_HAND, c);
}

const corpus_group rp_corpus_attention = {N_HAND + N_SPECS, make};
