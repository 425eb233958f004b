/* Attention over the paged cache. Part of kernels.h.
 *
 * Positions go in blocks of 256, counted from position 0 of the sequence, whatever the cache's own
 * block size. In a block: scores (a chain over d per score), their largest value, exponentials and
 * their sum, and the weighted sum of V rows (a chain over positions). Blocks are then merged in
 * order. None of this depends on other tokens, so one token alone and a chunk of a prompt give the
 * same bits.
 *
 * The heads that share a kv head, and neighbouring tokens of a sequence, are rows of one tile: K
 * and V are read and turned into columns once for all of them. */

enum {
    AT_BLOCK = 256, /* positions per softmax block */
    AT_STEP = 32,   /* positions whose K or V lies in scratch at a time */
    AT_ROWS = 32,   /* rows (token, head) of a tile, unless one token alone has more heads */
};

typedef struct attention {
    const rp__body_args *args;
    const rp_op *op;
    int64_t n_heads, n_kv, group, d,
        d_pad; /* group: heads per kv head; d_pad: d in whole vectors */
    const int32_t *seq, *pos;
    const float *sinks;
    /* scratch */
    float *q;                               /* [rows][d] */
    float *score;                           /* [rows][AT_BLOCK] */
    float *kv;                              /* AT_STEP positions as panels of columns */
    float *part;                            /* [rows][d_pad]: this block's sums */
    float *total;                           /* [rows][d_pad]: merged so far */
    float *top, *sum, *part_top, *part_sum; /* [rows] */
} attention;

/* Neighbouring tokens of one sequence at neighbouring positions, and one kv head. */
typedef struct span {
    int64_t t, n_tokens, kv;
    int64_t first, last; /* positions that any of them sees */
    const int32_t *table;
} span;

static int64_t tokens_per_tile(int64_t group) {
    return max_i64(1, AT_ROWS / group);
}

static attention attention_of(const rp__body_args *a) {
    const rp_op *op = a->op;
    attention at = {.args = a, .op = op, .seq = a->in[4], .pos = a->in[5]};
    at.n_heads = op->in[0].dim[1];
    at.d = op->in[0].dim[2];
    at.n_kv = op->in[1].dim[1];
    at.group = at.n_heads / at.n_kv;
    at.d_pad = (at.d + 15) / 16 * 16;
    at.sinks = has_in(a, 6) ? a->in[6] : NULL;
    int64_t rows = tokens_per_tile(at.group) * at.group;
    float *p = a->scratch;
    at.kv = p, p += AT_STEP * at.d_pad;
    at.score = p, p += rows * AT_BLOCK;
    at.q = p, p += rows * at.d_pad;
    at.part = p, p += rows * at.d_pad;
    at.total = p, p += rows * at.d_pad;
    at.top = p, at.sum = p + rows, at.part_top = p + 2 * rows, at.part_sum = p + 3 * rows;
    return at;
}

static int64_t first_seen(const attention *at, int64_t pos) {
    int64_t window = at->op->p.attention.window;
    return window > 0 ? max_i64(0, pos - window + 1) : 0;
}

static int64_t first_block(const span *s) {
    return s->first / AT_BLOCK * AT_BLOCK;
}

/* ---- K and V of some positions as panels ---- */

/* Sixteen elements from `i` on of a cache row; fewer at its end, which may be the end of the cache.
 */
V16_INLINE v16 kv_load(rp_dtype dtype, const char *row, int64_t i, int64_t d) {
    int64_t n = d - i;
    if (dtype == RP_F32)
        return n >= 16 ? v16_load((const float *)row + i) : v16_load_n((const float *)row + i, n);
    const uint16_t *p = (const uint16_t *)row + i;
    uint16_t tail[16] = {0};
    if (n < 16) {
        memcpy(tail, p, (size_t)n * sizeof *p);
        p = tail;
    }
    return dtype == RP_F16 ? v16_from_f16(p) : v16_from_bf16(p);
}

/* Rows of one cache and kv head at neighbouring positions, in order. */
typedef struct kv_walk {
    const char *base, *row; /* row: of the position at hand */
    size_t block_stride, row_stride;
    const int32_t *table; /* at the block at hand */
    int64_t size, n_left; /* positions of a block, and of this one from here on */
    int64_t n_blocks;
} kv_walk;

static void walk_block(kv_walk *w) {
    rp__assert(*w->table >= 0 && *w->table < w->n_blocks, "block %d of %lld", (int)*w->table,
               (long long)w->n_blocks);
    w->row = w->base + (size_t)*w->table * w->block_stride;
}

static kv_walk walk_from(const attention *at, const span *s, int which, int64_t position) {
    const rp_tensor *cache = &at->op->in[which];
    const size_t bytes = rp__dtype_block_bytes(cache->dtype);
    kv_walk w = {.size = cache->dim[2], .n_blocks = cache->dim[0], .block_stride = cache->stride};
    int64_t block = position / w.size, skip = position - block * w.size;
    w.row_stride = (size_t)at->d * bytes;
    w.base = (const char *)at->args->in[which] + (size_t)(s->kv * w.size) * w.row_stride;
    w.table = s->table + block;
    w.n_left = w.size - skip;
    walk_block(&w);
    w.row += (size_t)skip * w.row_stride;
    return w;
}

/* `last`: there is no further position. */
V16_INLINE const char *walk_row(kv_walk *w, bool last) {
    const char *row = w->row;
    w->row += w->row_stride;
    if (--w->n_left == 0 && !last) {
        w->table++, w->n_left = w->size;
        walk_block(w);
    }
    return row;
}

/* Asks for the rows of positions [from, from + AT_STEP) that a lone token sees: they lie apart, one
 * in n_kv, where no prefetcher looks for them. With more tokens they cost little beside the sums.
 */
static void fetch_rows(const attention *at, const span *s, int which, int64_t from) {
    int64_t to = min_i64(from + AT_STEP, s->last + 1);
    if (s->n_tokens > 1 || from < s->first || from >= to) return;
    kv_walk w = walk_from(at, s, which, from);
    const size_t n = (size_t)at->d * rp__dtype_block_bytes(at->op->in[which].dtype);
    for (int64_t i = from; i < to; i++) fetch(walk_row(&w, i == to - 1), n);
}

/* One vector of 16 positions' rows; NULL rows are zero. */
V16_INLINE void take_k_square(rp_dtype dtype, const char *const row[16], int64_t i, int64_t d,
                              float *dst) {
    v16 m[16];
    UNROLL for (int j = 0; j < 16; j++) m[j] = row[j] ? kv_load(dtype, row[j], i, d) : v16_zero();
    v16_transpose(m);
    UNROLL for (int j = 0; j < 16; j++) v16_store(dst + (i + j) * 16, m[j]);
}

/* Positions [from, from + n) of K, n <= AT_STEP: panel p holds, per dimension, positions from + 16
 * p and on. Those that nobody in the span sees are zero: their blocks may be gone. */
V16_INLINE void take_k_as(rp_dtype dtype, const attention *at, const span *s, int64_t from,
                          int64_t n) {
    const int64_t skip = max_i64(0, s->first - from);
    kv_walk walk = walk_from(at, s, 1, from + skip);
    for (int p = 0; p < AT_STEP / 16; p++) {
        const char *row[16];
        for (int j = 0; j < 16; j++) {
            int64_t i = 16 * p + j;
            row[j] = i >= skip && i < n ? walk_row(&walk, i == n - 1) : NULL;
        }
        float *dst = at->kv + (int64_t)p * 16 * at->d_pad;
        for (int64_t i = 0; i < at->d_pad; i += 16) take_k_square(dtype, row, i, at->d, dst);
    }
}

/* Positions [from, from + n) of V: panel p holds, per position, dimensions 16 p and on. */
V16_INLINE void take_v_as(rp_dtype dtype, const attention *at, const span *s, int64_t from,
                          int64_t n) {
    kv_walk walk = walk_from(at, s, 2, from);
    for (int64_t j = 0; j < n; j++) {
        const char *row = walk_row(&walk, j == n - 1);
        for (int64_t i = 0; i < at->d_pad; i += 16)
            v16_store(at->kv + i * AT_STEP + j * 16, kv_load(dtype, row, i, at->d));
    }
}

static void take_k(const attention *at, const span *s, int64_t from, int64_t n) {
    switch (at->op->in[1].dtype) {
    case RP_F32:
        take_k_as(RP_F32, at, s, from, n);
        break;
    case RP_F16:
        take_k_as(RP_F16, at, s, from, n);
        break;
    default:
        take_k_as(RP_BF16, at, s, from, n);
        break;
    }
}

static void take_v(const attention *at, const span *s, int64_t from, int64_t n) {
    switch (at->op->in[2].dtype) {
    case RP_F32:
        take_v_as(RP_F32, at, s, from, n);
        break;
    case RP_F16:
        take_v_as(RP_F16, at, s, from, n);
        break;
    default:
        take_v_as(RP_BF16, at, s, from, n);
        break;
    }
}

/* ---- one block of positions ---- */

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
        fetch_rows(at, s, 1, block + j + AT_STEP);
        fetch_rows(at, s, 2, block + j);
        take_k(at, s, block + j, min_i64(AT_STEP, n - j));
        tile_args a = {.x = at->q, .x_stride = (size_t)at->d, .n = at->d, .is_first = true};
        a.c = at->score + j, a.c_stride = AT_BLOCK;
        tile_panels(n_rows, a, at->kv, 16 * at->d_pad, AT_STEP / 16);
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

/* part[r] = sum of weight[r][j] v[block + j]. Rows that see all n positions of a step go together;
 * a token that sees some goes alone over those, so that no row's sum meets a position it must not
 * see (0 * NaN is NaN). */
static void block_values(const attention *at, const span *s, int64_t block, int64_t first,
                         int64_t n) {
    int64_t n_rows = s->n_tokens * at->group, n_panels = at->d_pad / 16;
    memset(at->part, 0, (size_t)(n_rows * at->d_pad) * sizeof(float));
    fetch_rows(at, s, 1, block + AT_BLOCK);
    for (int64_t j = first / AT_STEP * AT_STEP; j < n; j += AT_STEP) {
        int64_t step = min_i64(AT_STEP, n - j), start = max_i64(j, first);
        take_v(at, s, block + start, j + step - start);
        for (int64_t i = 0; i < s->n_tokens;) {
            int64_t from, to, n_alike = 1, from_next, to_next;
            seen_in(at, s, i, block, &from, &to);
            from = max_i64(from, start), to = min_i64(to, j + step);
            for (; i + n_alike < s->n_tokens; n_alike++) {
                seen_in(at, s, i + n_alike, block, &from_next, &to_next);
                if (max_i64(from_next, start) != from || min_i64(to_next, j + step) != to) break;
            }
            tile_args a = {.x = at->score + i * at->group * AT_BLOCK + from,
                           .x_stride = AT_BLOCK,
                           .n = to - from};
            a.c = at->part + i * at->group * at->d_pad, a.c_stride = (size_t)at->d_pad;
            if (to > from)
                tile_panels(n_alike * at->group, a, at->kv + (from - start) * 16, AT_STEP * 16,
                            n_panels);
            i += n_alike;
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
    for (int64_t i = 0; i < s->n_tokens; i++) {
        const float *q =
            (const float *)ref_item(tq, at->args->in[0], s->t + i) + s->kv * at->group * at->d;
        memcpy(at->q + i * at->group * at->d, q, (size_t)(at->group * at->d) * sizeof *q);
    }
}

/* part, part_top and part_sum of every row of the span for the positions of one block; a part_sum
 * of 0: nothing seen. */
static void attend_block(const attention *at, const span *s, int64_t block) {
    int64_t n_rows = s->n_tokens * at->group;
    int64_t n = min_i64(AT_BLOCK, s->last + 1 - block), first = max_i64(0, s->first - block);
    block_scores(at, s, block, first, n);
    for (int64_t r = 0; r < n_rows; r++) {
        int64_t from, to;
        seen_in(at, s, r / at->group, block, &from, &to);
        at->part_sum[r] = 0;
        if (to > from)
            block_softmax(at, at->score + r * AT_BLOCK, from, to, &at->part_top[r],
                          &at->part_sum[r]);
    }
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
        for (s.kv = 0; s.kv < at.n_kv; s.kv++)
            if (turn++ % a->n_workers == a->worker) attend(&at, &s);
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
