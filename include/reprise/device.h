/* What a device must provide.
 *
 * A device is a table of functions (rp_device_api) over an opaque `self`. The engine's device layer
 * owns every check: shapes, bounds, the capture contract and its errors stand above this table, so
 * an implementation may trust its arguments. A device outside the tree includes only this header,
 * is built as a shared object, and exports
 *
 *     const rp_device_api *reprise_device(void);
 *
 * Threads: one thread calls a device at a time. A device may run its queue on threads of its own.
 * Letters in shapes: B sequences, T tokens, H heads, K kv heads, D head dim, E model dim, F ffn
 * dim, V vocab, P blocks, S positions per block, X experts, R gathered rows. Activations are F32
 * unless a row says otherwise. A device may leave out what it does not run: `supports` sees the
 * dtypes, those of rounded activations too. */
#ifndef REPRISE_DEVICE_H
#define REPRISE_DEVICE_H

#include "reprise/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

#define RP_DEVICE_ABI 1u /* changes whenever a struct below changes its meaning */

/* ---- ops ---- */

/* X(code, name). Operands by position; [..]? is optional (buffer == NULL when absent).
 *
 * EMBED          in  table [V,E] weight, ids [T] I32;  out y [T,E];  y = scale * table[ids]
 * RMS_NORM       in  x [..,E], w [E], r [..,E]?;  out y [..,E], sum [..,E]?
 *                s = x (+ r), sum = s, y = s / sqrt(mean(s^2) + eps) * (w + (add_one ? 1 : 0));
 *                norm over the last dimension
 * LAYER_NORM     in  x [..,E], w [E], b [E]?;  out y;  y = (x - mean) / sqrt(var + eps) * w + b
 * MATMUL         in  x [T,K], w [N,K] weight, bias [N]?, add [T,N]?;  out y [T,N]
 *                y = x w^T + bias + add; x is F32, Q16, or the 8-bit type of w's dtype (below)
 * ROPE           in  x [T,H,D], cs [T,R] (R/2 cosines then R/2 sines), R <= D;  out y [T,H,D]
 *                half: pairs (i, i+R/2); interleaved: pairs (2i, 2i+1); dims from R on are copied
 * KV_WRITE       in  k [T,K,D], v [T,K,D], slots [T]? I32 (block * S + offset), or in their place
 *                table [B,M]?, seq [T]?, pos [T]? as in ATTENTION (slot = table[seq][pos / S] * S +
 *                pos % S);  out kc [P,K,S,D], vc [P,K,S,D]
 * ATTENTION      in  q [T,H,D], kc [P,K,S,D], vc [P,K,S,D], table [B,M] I32 (block ids),
 *                seq [T] I32 (row of table), pos [T] I32, sinks [H]?;  out y [T,H,D]
 *                token t sees positions 0..pos[t] of its sequence (the last `window` of them when
 *                window > 0); scores = softcap(scale * q.k); a sink adds exp(sink) to the
 *                softmax denominator only
 * GATED          in  gate [T,F], up [T,F];  out y [T,F];  y = act(gate) * up
 * ACT            in  x;  out y;  y = act(x)
 * ADD, MUL       in  a [T,E], b [T,E] or [E];  out y [T,E]
 * SCALE          in  x;  out y;  y = value * x
 * SOFTCAP        in  x;  out y;  y = value * tanh(x / value)
 * GATHER_ROWS    in  x [T,E], rows [R] I32;  out y [R,E]
 * CONVERT        in  x;  out y of another plain float dtype or the same (a copy); round to nearest
 *                even. From F32, with two dimensions or more, also to the types of activations
 *                Q8_0, Q8_1, Q8_K, Q16 (below)
 * ROUTER_TOPK    in  logits [T,X];  out ids [T,k] I32, weights [T,k]
 *                the k largest (ties: lower index first); weights = softmax over all X (normalise:
 *                then divided by their sum), or sigmoid; times `scale`
 * EXPERT_MATMUL  in  x [T,K] or [T,k,K] as for MATMUL, w [X,N,K] weight, ids [T,k] I32;
 *                out y [T,k,N]
 * EXPERT_SUM     in  x [T,k,N], weights [T,k];  out y [T,N];  y = sum over k in order
 * ARGMAX         in  x [R,V];  out ids [R] I32;  ties: lowest index; NaN never wins unless all are
 *                NaN (then 0)
 * TOPK           in  x [R,V];  out values [R,k], ids [R,k] I32
 *                descending; ties: lower index first
 * SAMPLE         in  x [R,V], u [R] in [0,1), temperature [R] > 0;  out ids [R] I32
 *                the first index at which the running sum of softmax(x / temperature) exceeds u
 * ADVANCE        in  x [T] I32;  out y [T] I32;  y = x + step
 * FEED           in  x [T] I32, past [W,T] I32;  out ids [T] I32, past' [W,T] I32 (may be past)
 *                ids = x; the rows of past move up by one, the first is gone, x is the last
 *
 * Absent operands have n_dims 0 and buffer NULL; trailing ones may be left out of n_in and n_out.
 * In place (the very memory of an operand of the same shape and dtype): y of ROPE, ACT, SCALE,
 * SOFTCAP, CONVERT, LAYER_NORM and ADVANCE may be x; of GATED, ADD and MUL either operand; of
 * MATMUL `add`; y and sum of RMS_NORM may be x and r, one each, either way round. No other output
 * shares memory with an operand. `normalise` divides sigmoid weights by their sum as well. NaN
 * stands behind everything in TOPK and ROUTER_TOPK.
 *
 * Rounded activations: CONVERT rounds x block by block of its last dimension, in F32, to 8 bits as
 * ggml quantises activations, or to 16:
 *
 *   Q8_0  amax = max |x|;  d = amax / 127, stored as F16;
 *         q = round to nearest even(x * (127 / amax))
 *   Q8_1  the same d and q;  s = F16(d * sum of q), with d before it was rounded to F16
 *   Q8_K  m = the first x of the largest |x|;  i = -127 / m;  q = round to nearest even(i * x);
 *         d = 1 / i in F32;  sums[j] = sum of q[16 j .. 16 j + 15]
 *   Q16   d = amax / 32639 in F32;  r = round to nearest even(x * (32639 / amax));
 *         high = round to nearest even(r / 256);  low = r - 256 high, but +-127 for +-128, so that
 *         no digit is -128, whose products instruction sets disagree about;  q = 256 high + low;
 *         sums[j] as Q8_K, in 32 bits
 *
 * A block whose 127 / amax (32639 / amax) overflows has q = 0 (and Q8_K d = 0); one with a NaN or
 * infinity has d = s = NaN, q = 0. Weights Q4_0, Q5_0, Q8_0 and IQ4_NL take Q8_0; Q4_1 and Q5_1
 * take Q8_1; Q2_K .. Q6_K take Q8_K; all of these take Q16. With w = scale * q + min in groups of 32
 * or 16 columns (q with its zero point taken off), a product is then, group by group,
 *
 *   y = sum of (scale * d) * (sum of w.q * x.q) + min * (Q8_1: s; Q8_K, Q16: d * the group's sums)
 *
 * where the inner sum is one of whole numbers, exact; the outer one is F32 over groups in order. */
#define RP_OP_TABLE(X)                                                                             \
    X(RP_OP_EMBED, "embed")                                                                        \
    X(RP_OP_RMS_NORM, "rms_norm")                                                                  \
    X(RP_OP_LAYER_NORM, "layer_norm")                                                              \
    X(RP_OP_MATMUL, "matmul")                                                                      \
    X(RP_OP_ROPE, "rope")                                                                          \
    X(RP_OP_KV_WRITE, "kv_write")                                                                  \
    X(RP_OP_ATTENTION, "attention")                                                                \
    X(RP_OP_GATED, "gated")                                                                        \
    X(RP_OP_ACT, "act")                                                                            \
    X(RP_OP_ADD, "add")                                                                            \
    X(RP_OP_MUL, "mul")                                                                            \
    X(RP_OP_SCALE, "scale")                                                                        \
    X(RP_OP_SOFTCAP, "softcap")                                                                    \
    X(RP_OP_GATHER_ROWS, "gather_rows")                                                            \
    X(RP_OP_CONVERT, "convert")                                                                    \
    X(RP_OP_ROUTER_TOPK, "router_topk")                                                            \
    X(RP_OP_EXPERT_MATMUL, "expert_matmul")                                                        \
    X(RP_OP_EXPERT_SUM, "expert_sum")                                                              \
    X(RP_OP_ARGMAX, "argmax")                                                                      \
    X(RP_OP_TOPK, "topk")                                                                          \
    X(RP_OP_SAMPLE, "sample")                                                                      \
    X(RP_OP_ADVANCE, "advance")                                                                    \
    X(RP_OP_FEED, "feed")

typedef enum rp_op_kind {
#define RP_X(code, name) code,
    RP_OP_TABLE(RP_X)
#undef RP_X
        RP_N_OPS
} rp_op_kind;

typedef enum rp_act { RP_ACT_SILU, RP_ACT_GELU, RP_ACT_GELU_TANH, RP_ACT_RELU, RP_N_ACTS } rp_act;
typedef enum rp_rope_style { RP_ROPE_HALF, RP_ROPE_INTERLEAVED } rp_rope_style;

/* What is known beforehand of the T tokens of KV_WRITE and ATTENTION. It is in their operands too:
 * a device may make use of it or not. */
typedef enum rp_rows {
    RP_ROWS_MIXED,
    RP_ROWS_SINGLE, /* no two in one KV block, padding aside, which is in block 0 */
    RP_ROWS_PROMPT  /* consecutive positions of the sequence of token 0, from a multiple of S on,
                       which divides T; padding stands behind them */
} rp_rows;

enum { RP_OP_MAX_IN = 8, RP_OP_MAX_OUT = 2 };

typedef struct rp_op {
    rp_op_kind kind;
    uint8_t n_in, n_out;
    const char *label; /* what the model calls it ("blk.3.attn_q"); borrowed; may be NULL */
    rp_tensor in[RP_OP_MAX_IN], out[RP_OP_MAX_OUT];
    /* How many leading items of dim[0] of the output (KV_WRITE: of k) are live: an I32 [1] in
     * device memory, read when the op runs (also in a replay). buffer == NULL: all. A device
     * without `has_live_rows` may ignore it and compute all. */
    rp_tensor live;
    union {
        struct {
            float scale;
        } embed;
        struct {
            float eps;
            bool add_one;
        } norm;
        struct {
            rp_rope_style style;
        } rope;
        struct {
            rp_rows rows;
        } kv_write;
        struct {
            float scale, softcap;
            int32_t window;
            rp_rows rows;
        } attention; /* softcap, window: 0 is off */
        struct {
            rp_act kind;
        } act; /* GATED, ACT */
        struct {
            float value;
        } scalar; /* SCALE, SOFTCAP */
        struct {
            bool sigmoid, normalise;
            float scale;
        } router;
        struct {
            int32_t step;
        } advance;
    } p;
} rp_op;

/* ---- memory ---- */

/* Device memory as the device layer hands it to ops: `handle` is what alloc gave. Read only for
 * devices. */
typedef struct rp_buffer {
    void *handle;
    size_t bytes;
    const char *name; /* what it holds, for messages */
    struct rp_device *owner;
    uint64_t id;         /* unique in the process, never reused */
    uint64_t generation; /* grows with every write, by host, op or replay: a host copy of an older
                            one is stale */
    bool is_pinned;      /* stays at its place as long as it lives: ops being captured may use it */
    uint32_t n_graphs;   /* live graphs that use it: it cannot be freed while this is not 0 */
} rp_buffer;

typedef struct rp_device_config {
    uint32_t bytes;      /* sizeof(rp_device_config) */
    int n_threads;       /* cpu: worker threads, 0 chooses */
    const char *options; /* "key=value,key=value" for this device alone, or NULL */
    bool is_reopen; /* opened again after it was lost: a device that needs a reset does it now */
} rp_device_config;

typedef struct rp_device_properties {
    char description[128];   /* "AMD EPYC, 2 threads, avx512" */
    size_t memory_bytes;     /* what alloc could give in all; 0: unknown */
    size_t alignment;        /* of every buffer and of tensors inside it, a power of two */
    uint32_t n_queues;       /* 1: one queue; 2: a second one for copies */
    bool has_live_rows;      /* honours rp_op.live */
    bool has_capture;        /* the capture functions are there */
    bool records_only;       /* ops issued during capture are recorded, not run */
    bool is_simulated;       /* times are not real */
    bool is_host_memory;     /* handles are host pointers that the host may read between syncs */
    bool hides_temporaries;  /* what a live graph uses besides its operands counts as free to alloc:
                              * the device layer  then allocates and frees nothing on the device
                              * beside a live graph */
    size_t graph_base_bytes; /* a graph of n ops takes at most graph_base_bytes + n * graph_op_bytes
                                of memory_bytes, */
    size_t graph_op_bytes;   /* so that memory can be planned before anything is captured; both 0:
                                none, or unknown */
    size_t graph_region_bytes; /* graphs live in a region of their own of this size; 0: they take
                                  memory_bytes */
    double watchdog_us; /* one submit (an op that runs eagerly, a replay) that takes longer loses
                           the device; 0: none. With estimate_us, submits are kept shorter */
    bool advances_positions; /* a decode step ends with an op that advances its positions in place,
                                so that they are not written again while sequences just go on */
    uint32_t prompt_align; /* not 0: prompts are steps of their own, one sequence each, that start at
                              multiples of this many positions and of a KV block (RP_ROWS_PROMPT);
                              all other steps have one token of each sequence (RP_ROWS_SINGLE). 0: a
                              step may be any mixture */
    bool picks_tokens; /* a step ends with the argmax of its logits, so that of greedy ones only
                          that is read */
    /* What is faster on the host, transfers included, when ops run one by one: placement rules like
     * "norm:rows<32=host rope:rows<64=host" (docs/devices.md), good while the device is open. NULL:
     * nothing. */
    const char *host_rules;
} rp_device_properties;

/* What a device can do at most in one respect. */
typedef struct rp_device_limit {
    const char *what; /* "read" (bytes), "f32", "bf16", "int8" (products and sums, 2 each) */
    const char *how;  /* pages, or the instruction set */
    int n_threads;
    double per_second;
} rp_device_limit;
/* True: enough. Strings are borrowed until it returns. */
typedef bool (*rp_device_limit_fn)(void *user, const rp_device_limit *row);

/* ---- the table ---- */

typedef struct rp_device_api {
    uint32_t abi;     /* RP_DEVICE_ABI */
    uint32_t bytes;   /* sizeof(rp_device_api) of the build; a table may end at clock_us or later:
                         what it leaves out is not there */
    const char *name; /* "cpu" */

    /* required */
    rp_status (*open)(const rp_device_config *config, void **self, rp_error *err);
    void (*close)(void *self); /* all buffers and graphs are gone before */
    void (*properties)(void *self, rp_device_properties *out);
    rp_status (*alloc)(void *self, size_t bytes, void **handle,
                       rp_error *err); /* contents undefined */
    void (*free)(void *self, void *handle);
    /* write: `src` may be reused on return. read: waits until everything issued before has run.
     * copy: in queue order. */
    rp_status (*write)(void *self, uint32_t queue, void *handle, size_t offset, const void *src,
                       size_t n, rp_error *err);
    rp_status (*read)(void *self, uint32_t queue, void *handle, size_t offset, void *dst, size_t n,
                      rp_error *err);
    rp_status (*copy)(void *self, uint32_t queue, void *dst, size_t dst_offset, void *src,
                      size_t src_offset, size_t n, rp_error *err);
    bool (*supports)(void *self, const rp_op *op);
    /* prepare: everything run(op) would have to compile or allocate once for these shapes and
     * dtypes. */
    rp_status (*prepare)(void *self, const rp_op *op, rp_error *err);
    rp_status (*run)(void *self, uint32_t queue, const rp_op *op,
                     rp_error *err); /* may return before it has run */
    rp_status (*sync)(void *self, uint32_t queue, rp_error *err);

    /* optional; default: weights are stored row-major as in the file */
    size_t (*weight_bytes)(
        void *self, const rp_tensor *desc); /* device bytes for a weight; buffer is NULL in desc */
    /* Writes rows [row, row + n_rows) of weight `w` from `src` (row-major, dtype w->dtype, as in
     * the file). Rows are items of all dimensions but the last, flattened. Callers write whole
     * weights, in order. */
    rp_status (*weight_write)(void *self, const rp_tensor *w, int64_t row, int64_t n_rows,
                              const void *src, rp_error *err);

    /* optional, all or none: capture */
    rp_status (*capture_begin)(void *self, uint32_t queue, rp_error *err);
    rp_status (*capture_end)(void *self, uint32_t queue, void **graph, rp_error *err);
    void (*capture_abort)(void *self,
                          uint32_t queue); /* drops what was recorded; the queue is usable */
    rp_status (*replay)(void *self, uint32_t queue, void *graph,
                        rp_error *err);             /* may return before it has run */
    void (*graph_destroy)(void *self, void *graph); /* the device is synced before */
    size_t (*graph_bytes)(void *self, void *graph); /* device memory the graph holds */

    /* optional, all or none: events order the second queue against the first */
    rp_status (*event_record)(void *self, uint32_t queue, uint64_t *event, rp_error *err);
    rp_status (*event_wait)(void *self, uint32_t queue, uint64_t event, rp_error *err);

    /* optional, all or none: a device whose times are simulated (is_simulated) tells its own time
     */
    double (*clock_us)(void *self); /* of the host thread that drives the device */
    void (*clock_host_op)(void *self, const rp_op *op); /* this op ran on the host: charge it */

    /* optional: about how long the op takes on the device, at most: what depends on run-time values
     * counts at its largest. Buffers may be NULL. 0: unknown */
    double (*estimate_us)(void *self, const rp_op *op);

    /* optional: measures what the device can do at most, some tenths of a second per row. Reads are
     * of `read_bytes` of memory. */
    rp_status (*limits)(void *self, size_t read_bytes, rp_device_limit_fn on_row, void *user,
                        rp_error *err);
} rp_device_api;

#ifdef __cplusplus
}
#endif
#endif
