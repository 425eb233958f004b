/* Attention over the paged cache. Part of kernels.h.
 *
 * Positions go in blocks of 256, counted from position 0 of the sequence, whatever the cache's own
 * block size. In a block: scores, their largest value, exponentials and their sum, and the weighted
 * sum of V rows (a chain over positions). Blocks are then merged in order. None of this depends on
 * other tokens, so one token alone and a chunk of a prompt give the same bits.
 *
 * A score is the sum of 16 chains, over the dimensions c, c + 16, c + 32 and so on, added up in
 * order of c. A lane of a vector that walks a row of K makes such a chain, so K and V need no
 * turning over for few rows: a lone token's heads take them as they lie in the cache.
 *
 * More rows are a tile: the heads that share a kv head, and neighbouring tokens of a sequence. K
 * and V are read and turned into columns once for all of them. */

/* ---- K and V of some positions as panels ---- */

/* One vector of 16 positions' rows, as columns `stride` floats apart. */
V16_INLINE void take_k_square(rp_dtype dtype, const kv_rows *k, int64_t i, int64_t d, float *dst,
                              int64_t stride) {
    v16 m[16];
    UNROLL for (int j = 0; j < 16; j++) m[j] = kv_load(dtype, k->row[j], i, d);
    v16_transpose(m);
    UNROLL for (int j = 0; j < 16; j++) v16_store(dst + j * stride, m[j]);
}

/* Positions [from, from + n) of K: panel p holds, per dimension and chain by chain, positions from +
 * 16 p and on. */
V16_INLINE void take_k(rp_dtype dtype, const attention *at, const span *s, int64_t from,
                       int64_t n) {
    for (int64_t j = 0; j < n; j += KV_ROWS) {
        kv_rows k = rows_from(at, s, 1, from + j);
        for (int64_t i = 0; i < at->d_pad; i += 16)
            take_k_square(dtype, &k, i, at->d, at->kv + j * at->d_pad + i, at->d_pad);
    }
}

/* Positions [from, from + n) of V: panel p holds, per position, dimensions 16 p and on. Adds zero
 * times everything to `zeros`: NaN when not all are numbers. */
V16_INLINE void take_v(rp_dtype dtype, const attention *at, const span *s, int64_t from, int64_t n,
                       v16 *zeros) {
    for (int64_t j = 0; j < n; j += KV_ROWS) {
        kv_rows v = rows_from(at, s, 2, from + j);
        for (int64_t p = 0; p < min_i64(KV_ROWS, n - j); p++)
            for (int64_t i = 0; i < at->d_pad; i += 16) {
                v16 x = kv_load(dtype, v.row[p], i, at->d);
                v16_store(at->kv + i * AT_STEP + (j + p) * 16, x);
                *zeros = v16_fma(x, v16_zero(), *zeros);
            }
    }
}

/* ---- one block of positions ---- */

/* Half the rows of a tile, as each has the sum of the chains so far beside its chain. */
enum { CHAIN_ROWS = TILE_ROWS / 2 };

/* c [rows][..] = the sums of 16 chains of n columns of TILE_PANELS panels. */
V16_INLINE void chains_n(int rows, const tile_args *a) {
    v16 sum[TILE_ROWS][TILE_PANELS];
    tile_at at = tile_start(rows, a);
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int p = 0; p < TILE_PANELS; p++) sum[r][p] =
        v16_zero();
    for (int c = 0; c < 16; c++) {
        v16 chain[TILE_ROWS][TILE_PANELS];
        UNROLL for (int r = 0; r < rows; r++) UNROLL for (int p = 0; p < TILE_PANELS; p++)
            chain[r][p] = v16_zero();
        tile_columns(rows, a->n, 16, &at, chain);
        UNROLL for (int b = 0; b < (rows + 2) / 3; b++) at.base[b] += 1 - 16 * a->n;
        UNROLL for (int r = 0; r < rows; r++) UNROLL for (int p = 0; p < TILE_PANELS; p++)
            sum[r][p] = v16_add(sum[r][p], chain[r][p]);
    }
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int p = 0; p < TILE_PANELS; p++)
        v16_store(a->c + (size_t)r * a->c_stride + p * RP__PANEL_ROWS, sum[r][p]);
}

static void chains(int rows, const tile_args *a) {
    switch (rows) {
#if TILE_ROWS > 6
    case 7:
        chains_n(7, a);
        break;
    case 6:
        chains_n(6, a);
        break;
    case 5:
        chains_n(5, a);
        break;
    case 4:
        chains_n(4, a);
        break;
#endif
#if TILE_ROWS > 2
    case 3:
        chains_n(3, a);
        break;
    case 2:
        chains_n(2, a);
        break;
#endif
    default:
        chains_n(1, a);
        break;
    }
}

/* Sums of tiles over panels `panel_stride` floats apart, `n_panels` of them. */
static void tile_panels(int64_t n_rows, tile_args a, const float *w, int64_t panel_stride,
                        int64_t n_panels) {
    float *c = a.c;
    for (int64_t p = 0; p < n_panels; p += TILE_PANELS) {
        if (n_panels - p <
            TILE_PANELS) { /* one panel of a pair is left: its neighbour goes to waste */
            float rest[TILE_ROWS * TILE_PANELS * 16];
            for (int64_t r = 0; r < n_rows; r += TILE_ROWS) {
                int64_t n = min_i64(TILE_ROWS, n_rows - r);
                tile_args one = a;
                for (int i = 0; i < TILE_PANELS; i++) one.w[i] = w + p * panel_stride;
                one.x = a.x + (size_t)r * a.x_stride;
                one.c = rest, one.c_stride = TILE_PANELS * 16;
                for (int64_t i = 0; i < n; i++)
                    v16_store(rest + i * TILE_PANELS * 16,
                              v16_load(c + (r + i) * (int64_t)a.c_stride + p * 16));
                tile((int)n, &one);
                for (int64_t i = 0; i < n; i++)
                    v16_store(c + (r + i) * (int64_t)a.c_stride + p * 16,
                              v16_load(rest + i * TILE_PANELS * 16));
            }
            return;
        }
        for (int i = 0; i < TILE_PANELS; i++) a.w[i] = w + (p + i) * panel_stride;
        a.c = c + p * 16;
        tile_rows(n_rows, a);
    }
}

/* score[r][j] = q[r] . k[block + j] for first <= j < n */
static void block_scores(const attention *at, const span *s, int64_t block, int64_t first,
                         int64_t n) {
    int64_t n_rows = s->n_tokens * at->group;
    for (int64_t j = first / AT_STEP * AT_STEP; j < n; j += AT_STEP) {
        const int64_t n_step = min_i64(AT_STEP, n - j);
        KV_CALL(take_k, at->op->in[1].dtype, at, s, block + j, n_step)
        tile_args a = {.x = at->q, .x_stride = (size_t)at->d_pad, .n = at->d_pad / 16};
        for (int p = 0; p * 16 < n_step; p += TILE_PANELS) {
            for (int i = 0; i < TILE_PANELS; i++) a.w[i] = at->kv + (p + i) * 16 * at->d_pad;
            a.c = at->score + j + p * 16, a.c_stride = AT_BLOCK;
            even_tiles(chains, CHAIN_ROWS, n_rows, a);
        }
    }
}

/* Scores [from, to) of a row become weights exp(score - largest); the others in their vectors
 * become 0. */
static void block_softmax(const attention *at, float *score, int64_t from, int64_t to, float *top,
                          float *sum) {
    float cap = at->op->p.attention.softcap;
    v16 scale = v16_set1(at->op->p.attention.scale), lowest = v16_set1(-INFINITY), largest = lowest;
    for (int64_t i = from / 16 * 16; i < to; i += 16) {
        v16 s = v16_mul(scale, v16_load(score + i));
        if (cap > 0) s = v16_mul(v16_set1(cap), v16_tanh(v16_div(s, v16_set1(cap))));
        if (to - i < 16) s = v16_keep_n(s, to - i, lowest);
        if (i < from) s = v16_keep_n(lowest, from - i, s);
        v16_store(score + i, s);
        largest = v16_max(largest, s);
    }
    *top = v16_top(largest);
    v16 total = v16_zero(), shift = v16_set1(*top);
    for (int64_t i = from / 16 * 16; i < to; i += 16) {
        v16 w = v16_exp(v16_sub(v16_load(score + i), shift));
        if (to - i < 16) w = v16_keep_n(w, to - i, v16_zero());
        if (i < from) w = v16_keep_n(v16_zero(), from - i, w);
        v16_store(score + i, w);
        total = v16_add(total, w);
    }
    *sum = v16_sum(total);
}

/* Where token i of the span sees inside the block that starts at `block`: [from, to), empty when
 * from >= to. */
static void seen_in(const attention *at, const span *s, int64_t i, int64_t block, int64_t *from,
                    int64_t *to) {
    int64_t pos = at->pos[s->t + i];
    *from = max_i64(0, first_seen(at, pos) - block);
    *to = min_i64(AT_BLOCK, pos + 1 - block);
}

/* part[r] += weight[r][j] v[block + j] for from <= j < to and the rows of tokens [i, i + n); V of
 * start is the first in scratch. */
static void add_values(const attention *at, int64_t i, int64_t n, int64_t start, int64_t from,
                       int64_t to) {
    tile_args a = {.x = at->score + i * at->group * AT_BLOCK + from,
                   .x_stride = AT_BLOCK,
                   .n = to - from,
                   .c = at->part + i * at->group * at->d_pad,
                   .c_stride = (size_t)at->d_pad};
    if (to > from)
        tile_panels(n * at->group, a, at->kv + (from - start) * 16, AT_STEP * 16, at->d_pad / 16);
}

/* part[r] += weight[r][j] v[block + j] for first <= j < n, in order. Weights of positions that a row
 * must not see are 0 and add nothing, as sums begin with +0; but 0 * NaN is NaN: where V is not all
 * numbers, each token goes over what it sees. */
static void block_values(const attention *at, const span *s, int64_t block, int64_t first,
                         int64_t n) {
    for (int64_t start = first, end; start < n; start = end) {
        v16 zeros = v16_zero();
        end = min_i64(n, start / AT_STEP * AT_STEP + AT_STEP);
        KV_CALL(take_v, at->op->in[2].dtype, at, s, block + start, end - start, &zeros)
        if (v16_sum(zeros) == 0) {
            add_values(at, 0, s->n_tokens, start, start, end);
            continue;
        }
        for (int64_t i = 0; i < s->n_tokens; i++) {
            int64_t from, to;
            seen_in(at, s, i, block, &from, &to);
            add_values(at, i, 1, start, max_i64(from, start), min_i64(to, end));
        }
    }
}

/* ---- merging blocks, in order ---- */

static void merge_row(float *total, float *top, float *sum, const float *part, float part_top,
                      float part_sum, int64_t d_pad) {
    if (*sum == 0.0f) { /* nothing seen before */
        memcpy(total, part, (size_t)d_pad * sizeof *total);
        *top = part_top, *sum = part_sum;
        return;
    }
    float largest = *top > part_top ? *top : part_top;
    float keep = s_exp(*top - largest), take = s_exp(part_top - largest);
    v16 k = v16_set1(keep), t = v16_set1(take);
    for (int64_t i = 0; i < d_pad; i += 16)
        v16_store(total + i, v16_fma(v16_load(total + i), k, v16_mul(v16_load(part + i), t)));
    *sum = s_fma(*sum, keep, part_sum * take);
    *top = largest;
}

static void finish_row(const attention *at, int64_t t, int64_t h, const float *total, float top,
                       float sum) {
    float *y = (float *)ref_item_out(&at->op->out[0], at->args->out[0], t) + h * at->d, keep = 1;
    if (at->sinks) {
        float largest = top > at->sinks[h] ? top : at->sinks[h];
        keep = s_exp(top - largest);
        sum = s_fma(sum, keep, s_exp(at->sinks[h] - largest));
    }
    v16 by = v16_set1(keep / sum);
    for (int64_t i = 0; i < at->d; i += 16)
        v16_store_n(y + i, v16_mul(v16_load(total + i), by), min_i64(16, at->d - i));
}

static void take_queries(const attention *at, const span *s) {
    const rp_tensor *tq = &at->op->in[0];
    float *dst = at->q;
    for (int64_t i = 0; i < s->n_tokens; i++) {
        const float *q =
            (const float *)ref_item(tq, at->args->in[0], s->t + i) + s->kv * at->group * at->d;
        for (int64_t h = 0; h < at->group; h++, q += at->d, dst += at->d_pad) {
            memcpy(dst, q, (size_t)at->d * sizeof *q);
            memset(dst + at->d, 0, (size_t)(at->d_pad - at->d) * sizeof *q);
        }
    }
}

/* Zeros where [first, n) of a row's weights lie outside what block_softmax wrote. */
static void clear_unseen(float *weight, int64_t from, int64_t to, int64_t first, int64_t n) {
    const int64_t head = max_i64(first, min_i64(from / 16 * 16, n));
    const int64_t tail = to > from ? min_i64((to + 15) / 16 * 16, n) : head;
    memset(weight + first, 0, (size_t)(head - first) * sizeof *weight);
    memset(weight + tail, 0, (size_t)(n - tail) * sizeof *weight);
}

/* part, part_top and part_sum of every row of the span for the positions of one block; a part_sum
 * of 0: nothing seen. */
static void attend_block(const attention *at, const span *s, int64_t block) {
    int64_t n_rows = s->n_tokens * at->group;
    int64_t n = min_i64(AT_BLOCK, s->last + 1 - block), first = max_i64(0, s->first - block);
    memset(at->part, 0, (size_t)(n_rows * at->d_pad) * sizeof(float));
    if (is_lone(at, s))
        lone_block_scores(at, s, block, first, n);
    else
        block_scores(at, s, block, first, n);
    for (int64_t r = 0; r < n_rows; r++) {
        int64_t from, to;
        seen_in(at, s, r / at->group, block, &from, &to);
        at->part_sum[r] = 0;
        if (to > from)
            block_softmax(at, at->score + r * AT_BLOCK, from, to, &at->part_top[r],
                          &at->part_sum[r]);
        clear_unseen(at->score + r * AT_BLOCK, from, to, first, n);
    }
    if (is_lone(at, s))
        lone_block_values(at, s, block, first, n);
    else
        block_values(at, s, block, first, n);
}

static void attend(const attention *at, const span *s) {
    int64_t n_rows = s->n_tokens * at->group;
    take_queries(at, s);
    for (int64_t r = 0; r < n_rows; r++) at->sum[r] = 0;
    for (int64_t block = first_block(s); block <= s->last; block += AT_BLOCK) {
        attend_block(at, s, block);
        for (int64_t r = 0; r < n_rows; r++)
            if (at->part_sum[r] != 0)
                merge_row(at->total + r * at->d_pad, &at->top[r], &at->sum[r],
                          at->part + r * at->d_pad, at->part_top[r], at->part_sum[r], at->d_pad);
    }
    for (int64_t r = 0; r < n_rows; r++)
        finish_row(at, s->t + r / at->group, s->kv * at->group + r % at->group,
                   at->total + r * at->d_pad, at->top[r], at->sum[r]);
}

/* ---- in two phases: blocks shared out over workers, then rows merged ---- */

/* The block's result of one row, kept for the second phase: top, sum, and from 16 on the sums. */
static float *kept_part(const attention *at, int64_t t, int64_t h, int64_t block) {
    int64_t n_blocks = (at->op->in[3].dim[1] * at->op->in[1].dim[2] + AT_BLOCK - 1) / AT_BLOCK;
    int64_t i = (t * at->n_heads + h) * n_blocks + block / AT_BLOCK;
    return (float *)at->args->shared + i * (at->d_pad + 16);
}

static void attend_and_keep(const attention *at, const span *s, int64_t block) {
    take_queries(at, s);
    attend_block(at, s, block);
    for (int64_t r = 0; r < s->n_tokens * at->group; r++) {
        float *kept = kept_part(at, s->t + r / at->group, s->kv * at->group + r % at->group, block);
        kept[0] = at->part_top[r], kept[1] = at->part_sum[r];
        memcpy(kept + 16, at->part + r * at->d_pad, (size_t)at->d_pad * sizeof *kept);
    }
}

/* The longest span from token t on that fits a tile. */
static span span_at(const attention *at, int64_t t) {
    const rp_tensor *table = &at->op->in[3];
    int64_t most = min_i64(tokens_per_tile(at->group), at->args->n_live - t);
    span s = {.t = t, .n_tokens = 1};
    while (s.n_tokens < most && at->seq[t + s.n_tokens] == at->seq[t] &&
           at->pos[t + s.n_tokens] == at->pos[t] + s.n_tokens)
        s.n_tokens++;
    s.first = first_seen(at, at->pos[t]);
    s.last = at->pos[t + s.n_tokens - 1];
    rp__assert(at->seq[t] >= 0 && at->seq[t] < table->dim[0], "sequence %d", (int)at->seq[t]);
    rp__assert(at->pos[t] >= 0 && s.last < table->dim[1] * at->op->in[1].dim[2], "position %lld",
               (long long)s.last);
    s.table = ref_item(table, at->args->in[3], at->seq[t]);
    return s;
}

static int64_t blocks_of(const span *s) {
    return (s->last - first_block(s)) / AT_BLOCK + 1;
}

/* The blocks of all spans and kv heads, when there are too few spans for the workers and some are
 * long; else 0. Every worker finds the same, in both phases. */
static int64_t shared_items(const attention *at) {
    int64_t n_spans = 0, n_items = 0, longest = 0;
    if (!at->args->shared) return 0;
    for (int64_t t = 0; t < at->args->n_live;) {
        span s = span_at(at, t);
        n_spans += at->n_kv, n_items += at->n_kv * blocks_of(&s);
        longest = max_i64(longest, s.last - first_block(&s));
        t += s.n_tokens;
    }
    return n_spans < 4 * at->args->n_workers && longest >= AT_BLOCK ? n_items : 0;
}

/* A run of blocks for each worker: the next block is the one that was asked for. */
static void attend_shared(const attention *at, int64_t n_items) {
    ref_share share = ref_split(at->args, n_items);
    int64_t i = 0;
    for (int64_t t = 0; t < at->args->n_live;) {
        span s = span_at(at, t);
        for (s.kv = 0; s.kv < at->n_kv; s.kv++)
            for (int64_t block = first_block(&s); block <= s.last; block += AT_BLOCK, i++)
                if (i >= share.from && i < share.to) attend_and_keep(at, &s, block);
        t += s.n_tokens;
    }
}

/* Spans are dealt out in turn: later ones of a prompt see more positions and take longer. */
static void fast_attention(const rp__body_args *a) {
    attention at = attention_of(a);
    int64_t turn = 0, n_items = shared_items(&at);
    if (n_items) {
        attend_shared(&at, n_items);
        return;
    }
    for (int64_t t = 0; t < a->n_live;) {
        span s = span_at(&at, t);
        for (s.kv = 0; s.kv < at.n_kv; s.kv++, turn++)
            if (turn % a->of >= a->from && turn % a->of < a->to) attend(&at, &s);
        t += s.n_tokens;
    }
}

static void fast_attention_finish(const rp__body_args *a) {
    attention at = attention_of(a);
    if (!shared_items(&at)) return;
    ref_share rows = ref_split(a, a->n_live * at.n_heads);
    for (int64_t r = rows.from; r < rows.to; r++) {
        int64_t t = r / at.n_heads, h = r % at.n_heads, pos = at.pos[t];
        float top = 0, sum = 0;
        for (int64_t block = first_seen(&at, pos) / AT_BLOCK * AT_BLOCK; block <= pos;
             block += AT_BLOCK) {
            const float *kept = kept_part(&at, t, h, block);
            if (kept[1] != 0)
                merge_row(at.total, &top, &sum, kept + 16, kept[0], kept[1], at.d_pad);
        }
        finish_row(&at, t, h, at.total, top, sum);
    }
}
