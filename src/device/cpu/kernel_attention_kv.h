/* What attention works on, and where it finds K and V in the paged cache. Part of kernels.h. */

enum {
    AT_BLOCK = 256, /* positions per softmax block */
    AT_STEP = 64,   /* positions whose K or V lies in scratch at a time */
    AT_ROWS = 64,   /* rows (token, head) of a tile, unless one token alone has more heads */
};

typedef struct attention {
    const rp__body_args *args;
    const rp_op *op;
    int64_t n_heads, n_kv, group, d,
        d_pad; /* group: heads per kv head; d_pad: d in whole vectors */
    const int32_t *seq, *pos;
    const float *sinks;
    /* scratch */
    float *q;                               /* [rows][d_pad] */
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

/* ---- rows of K and V ---- */

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

/* Calls one instance of an inline function per dtype that a cache may have. */
#define KV_CALL(function, dtype, ...)                                                              \
    switch (dtype) {                                                                               \
    case RP_F32:                                                                                   \
        function(RP_F32, __VA_ARGS__);                                                             \
        break;                                                                                     \
    case RP_F16:                                                                                   \
        function(RP_F16, __VA_ARGS__);                                                             \
        break;                                                                                     \
    default:                                                                                       \
        function(RP_BF16, __VA_ARGS__);                                                            \
        break;                                                                                     \
    }

enum { KV_ROWS = 16 }; /* positions whose rows are looked up at a time: a vector of scores */

typedef struct kv_rows {
    const char *row[KV_ROWS];
} kv_rows;

/* The rows of one kv head that hold K (which = 1) or V (which = 2) of positions [from, from + 16).
 * For those that nobody in the span sees, whose blocks may be gone, the nearest that somebody does.
 */
static kv_rows rows_from(const attention *at, const span *s, int which, int64_t from) {
    const rp_tensor *cache = &at->op->in[which];
    const size_t row_bytes = (size_t)at->d * rp__dtype_block_bytes(cache->dtype);
    const int64_t size = cache->dim[2];
    kv_rows rows;
    for (int64_t j = 0; j < KV_ROWS;) {
        const int64_t i = min_i64(max_i64(from + j, s->first), s->last), offset = i % size;
        const int32_t block = s->table[i / size];
        rp__assert(block >= 0 && block < cache->dim[0], "block %d of %lld", (int)block,
                   (long long)cache->dim[0]);
        const char *row = ref_item(cache, at->args->in[which], block);
        row += (size_t)(s->kv * size + offset) * row_bytes;
        const int64_t n_run = i == from + j ? min_i64(size - offset, s->last + 1 - i) : 1;
        for (int64_t end = min_i64(j + n_run, KV_ROWS); j < end; j++, row += row_bytes)
            rows.row[j] = row;
    }
    return rows;
}
