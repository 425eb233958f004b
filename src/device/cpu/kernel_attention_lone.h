/* Attention of a lone token: its heads go over K and V as they lie in the cache, at the speed of
 * memory. Part of kernels.h. */

enum {
    LONE_MOST_HEADS = 8, /* of a kv head: with more, columns made once are faster */
    LONE_HEADS = 4,      /* that go over a row together, so that it is converted once for all */
    LONE_WIDTH = 8,      /* at most so many vectors of sums for each */
    LONE_AHEAD = 3,      /* turns of 16 positions between asking for rows and going over them */
#if defined(V16_AVX512)
    LONE_SUMS = 16, /* vectors of sums that stay in registers */
#else
    LONE_SUMS = 4,
#endif
};

static bool is_lone(const attention *at, const span *s) {
    return s->n_tokens == 1 && at->group <= LONE_MOST_HEADS;
}

/* The largest power of two of vectors whose sums for so many heads stay in registers. */
V16_INLINE int lone_width(int n_heads) {
    int n = 1;
    while (2 * n * n_heads <= LONE_SUMS) n *= 2;
    return n < LONE_WIDTH ? n : LONE_WIDTH;
}

/* Calls one instance of an inline function per dtype and number of heads, at most LONE_HEADS. */
#define LONE_CALL(function, dtype, n_heads, ...)                                                   \
    switch (n_heads) {                                                                             \
    case 1:                                                                                        \
        KV_CALL(function, dtype, 1, __VA_ARGS__)                                                   \
        break;                                                                                     \
    case 2:                                                                                        \
        KV_CALL(function, dtype, 2, __VA_ARGS__)                                                   \
        break;                                                                                     \
    case 3:                                                                                        \
        KV_CALL(function, dtype, 3, __VA_ARGS__)                                                   \
        break;                                                                                     \
    default:                                                                                       \
        KV_CALL(function, dtype, LONE_HEADS, __VA_ARGS__)                                          \
        break;                                                                                     \
    }

/* Positions of a block in the order in which they are wanted: those of K, of V, then of the next
 * block's K, 16 at a time. */
typedef struct lone_walk {
    int64_t block, begin, n_groups;
} lone_walk;

static lone_walk lone_walk_of(int64_t block, int64_t first, int64_t n) {
    const int64_t begin = first / KV_ROWS * KV_ROWS;
    return (lone_walk){block, begin, (n - begin + KV_ROWS - 1) / KV_ROWS};
}

/* Asks for the rows of a turn of the walk, in the second cache: few lines can be on their way to
 * the first one at a time. Not a function of its own, as fetch_sink. */
V16_INLINE void fetch_turn(const attention *at, const span *s, const lone_walk *w, int64_t turn) {
    const int which = turn / w->n_groups == 1 ? 2 : 1;
    int64_t from = w->block + w->begin + turn % w->n_groups * KV_ROWS;
    if (turn >= 2 * w->n_groups) from = w->block + AT_BLOCK + (turn - 2 * w->n_groups) * KV_ROWS;
    const kv_rows rows = rows_from(at, s, which, from);
    const size_t n = (size_t)at->d * rp__dtype_block_bytes(at->op->in[which].dtype);
    for (int p = 0; p < KV_ROWS; p++)
        for (size_t i = 0; i < n; i += LINE) __builtin_prefetch(rows.row[p] + i, 0, 2);
}

/* ---- scores ---- */

/* sum[h][p] += row p of K times q of head h at dimensions [i, i + 16): lane c of it is chain c. */
V16_INLINE void lone_products(rp_dtype dtype, int n_heads, int n, const attention *at,
                              const float *q, const char *const *row, int64_t i, int64_t d,
                              v16 sum[LONE_HEADS][LONE_WIDTH]) {
    v16 k[LONE_WIDTH];
    UNROLL for (int p = 0; p < n; p++) k[p] = kv_load(dtype, row[p], i, d);
    UNROLL for (int h = 0; h < n_heads; h++) {
        v16 qi = v16_load(q + h * at->d_pad + i);
        UNROLL for (int p = 0; p < n; p++) sum[h][p] = v16_fma(k[p], qi, sum[h][p]);
    }
}

/* chain [h][p]: the chains of position p and head h. */
V16_INLINE void lone_chains(rp_dtype dtype, int n_heads, const attention *at, const float *q,
                            const kv_rows *k, float chain[LONE_HEADS][KV_ROWS][16]) {
    const int n = lone_width(n_heads);
    const int64_t whole = at->d / 16 * 16;
    for (int p = 0; p < KV_ROWS; p += n) {
        v16 sum[LONE_HEADS][LONE_WIDTH];
        UNROLL for (int h = 0; h < n_heads; h++) UNROLL for (int j = 0; j < n; j++) sum[h][j] =
            v16_zero();
        for (int64_t i = 0; i < whole; i += 16)
            lone_products(dtype, n_heads, n, at, q, k->row + p, i, i + 16, sum);
        if (whole < at->d) lone_products(dtype, n_heads, n, at, q, k->row + p, whole, at->d, sum);
        UNROLL for (int h = 0; h < n_heads; h++) UNROLL for (int j = 0; j < n; j++)
            v16_store(chain[h][p + j], sum[h][j]);
    }
}

/* Scores of 16 positions. */
V16_INLINE void lone_scores(rp_dtype dtype, int n_heads, const attention *at, const float *q,
                            const kv_rows *k, float *score) {
    float chain[LONE_HEADS][KV_ROWS][16];
    lone_chains(dtype, n_heads, at, q, k, chain);
    for (int h = 0; h < n_heads; h++) {
        v16 m[16], sum = v16_zero();
        UNROLL for (int p = 0; p < 16; p++) m[p] = v16_load(chain[h][p]);
        v16_transpose(m);
        UNROLL for (int c = 0; c < 16; c++) sum = v16_add(sum, m[c]);
        v16_store(score + h * AT_BLOCK, sum);
    }
}

/* score[h][j] for first <= j < n */
static void lone_block_scores(const attention *at, const span *s, int64_t block, int64_t first,
                              int64_t n) {
    const rp_dtype dtype = at->op->in[1].dtype;
    const lone_walk w = lone_walk_of(block, first, n);
    for (int64_t i = 0; block == first_block(s) && i < LONE_AHEAD; i++) fetch_turn(at, s, &w, i);
    for (int64_t i = 0; i < w.n_groups; i++) {
        const int64_t j = w.begin + i * KV_ROWS;
        const kv_rows k = rows_from(at, s, 1, block + j);
        fetch_turn(at, s, &w, i + LONE_AHEAD);
        for (int64_t h = 0; h < at->group; h += LONE_HEADS)
            LONE_CALL(lone_scores, dtype, at->group - h, at, at->q + h * at->d_pad, &k,
                    at->score + h * AT_BLOCK + j)
    }
}

/* ---- values ---- */

/* part[h][i, i + 16 n) += the weighted sum of V rows [from, to), in order. */
V16_INLINE void lone_columns(rp_dtype dtype, int n_heads, int n, const attention *at,
                             const kv_rows *v, const float *weight, int64_t from, int64_t to,
                             int64_t i, int64_t d, float *part) {
    v16 sum[LONE_HEADS][LONE_WIDTH];
    UNROLL for (int h = 0; h < n_heads; h++) UNROLL for (int x = 0; x < n; x++) sum[h][x] =
        v16_load(part + h * at->d_pad + i + 16 * x);
    for (int64_t p = from; p < to; p++) {
        v16 row[LONE_WIDTH];
        UNROLL for (int x = 0; x < n; x++) row[x] = kv_load(dtype, v->row[p], i + 16 * x, d);
        UNROLL for (int h = 0; h < n_heads; h++) {
            v16 w = v16_set1(weight[h * AT_BLOCK + p]);
            UNROLL for (int x = 0; x < n; x++) sum[h][x] = v16_fma(row[x], w, sum[h][x]);
        }
    }
    UNROLL for (int h = 0; h < n_heads; h++) UNROLL for (int x = 0; x < n; x++)
        v16_store(part + h * at->d_pad + i + 16 * x, sum[h][x]);
}

/* part[h] += the weighted sum of V rows [from, to) */
V16_INLINE void lone_values(rp_dtype dtype, int n_heads, const attention *at, const kv_rows *v,
                            const float *weight, int64_t from, int64_t to, float *part) {
    const int n = lone_width(n_heads);
    int64_t i = 0;
    for (; i + 16 * n <= at->d; i += 16 * n)
        lone_columns(dtype, n_heads, n, at, v, weight, from, to, i, i + 16 * n, part);
    for (; i < at->d; i += 16)
        lone_columns(dtype, n_heads, 1, at, v, weight, from, to, i, at->d, part);
}

/* part[h] += the weighted sum of V rows first <= j < n */
static void lone_block_values(const attention *at, const span *s, int64_t block, int64_t first,
                              int64_t n) {
    const rp_dtype dtype = at->op->in[2].dtype;
    const lone_walk w = lone_walk_of(block, first, n);
    for (int64_t i = 0; i < w.n_groups; i++) {
        const int64_t j = w.begin + i * KV_ROWS;
        const kv_rows v = rows_from(at, s, 2, block + j);
        fetch_turn(at, s, &w, w.n_groups + i + LONE_AHEAD);
        for (int64_t h = 0; h < at->group; h += LONE_HEADS)
            LONE_CALL(lone_values, dtype, at->group - h, at, &v, at->score + h * AT_BLOCK + j,
                    max_i64(0, first - j), min_i64(KV_ROWS, n - j), at->part + h * at->d_pad)
    }
}
