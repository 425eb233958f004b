/* Programs: the ops of one step for one bucket, with planned memory and declared inputs.
 *
 * A model builds a program by saying ops in order over *slots*. Finishing checks every op, lays
 * temporaries out in one arena by lifetime, and cuts segments. Binding gives the slots their device
 * memory. After that a program is only run (replay.h): nothing in it allocates. Owns: the op list.
 * Borrows: weights and state tensors (they are looked up again at bind). Threads: one at a time. */
#ifndef RP_PLAN_PROGRAM_H
#define RP_PLAN_PROGRAM_H

#include "base/arena.h"
#include "base/bytes.h"
#include "device/device.h"
#include "device/op.h"

typedef enum rp__bucket_kind { RP_BUCKET_DECODE, RP_BUCKET_PREFILL } rp__bucket_kind;

/* The padded size a program is built for. */
typedef struct rp__bucket {
    rp__bucket_kind kind;
    int32_t n_tokens; /* T: tokens computed */
    int32_t n_seqs;   /* B: rows of the block table */
    int32_t n_rows;   /* R: tokens whose logits come out */
} rp__bucket;

enum { RP_MAX_BUCKETS = 40 };

/* Decode in powers of two up to max_seqs, which is always there; prefill in powers of two from 16
 * up to max_tokens, which is always there. Smallest first within a kind. Returns how many. */
int rp__bucket_list(int32_t max_seqs, int32_t max_tokens, rp__bucket out[RP_MAX_BUCKETS]);
/* Index of the smallest bucket that holds this step, -1 when none does. Decode: one token per
 * sequence, all rows out. */
int rp__bucket_find(const rp__bucket *list, int n, int32_t n_tokens, int32_t n_seqs,
                    int32_t n_rows);
char *rp__bucket_text(const rp__bucket *b, char *out, size_t cap); /* "decode 4", "prefill 512" */

typedef int32_t rp__slot; /* index of a value in a program; RP_NO_SLOT: absent */
#define RP_NO_SLOT ((rp__slot)-1)

typedef enum rp__slot_kind {
    RP_SLOT_INPUT,
    RP_SLOT_CONST,
    RP_SLOT_TEMP,
    RP_SLOT_OUTPUT,
    RP_SLOT_VIEW
} rp__slot_kind;

typedef struct rp__slot_info {
    rp__slot_kind kind;
    rp__slot root;         /* VIEW: the slot it looks into; else itself */
    rp_tensor tensor;      /* shape; the offset is relative to the root's place */
    const rp_tensor *bind; /* CONST: where the bound tensor stands */
    const char *name;
    int32_t first_op, last_op; /* roots: lifetime in op order; -1 before use */
    size_t place;              /* offset in the arena, input or output buffer */
} rp__slot_info;

enum { RP_REPLAY_PAIRS = 7 };

/* X(code, text): why a segment runs as it does. The first RP_N_RUN_WHYS - 2 keep it eager. */
#define RP_RUN_WHYS(X)                                                                             \
    X(RP_WHY_WARMING, "warming: kernels are being compiled")                                       \
    X(RP_WHY_OFF, "capture is off")                                                                \
    X(RP_WHY_NO_CAPTURE, "the device cannot capture")                                              \
    X(RP_WHY_MEASURING, "eager and replay are being measured")                                     \
    X(RP_WHY_EAGER_FASTER, "eager was measured to be faster")                                      \
    X(RP_WHY_EVICTED, "its graph made room for others")                                            \
    X(RP_WHY_REFUSED, "its capture was refused")                                                   \
    X(RP_WHY_ON, "capture is on")                                                                  \
    X(RP_WHY_REPLAY_FASTER, "replay was measured to be faster")

typedef enum rp__run_why {
#define RP_X(code, text) code,
    RP_RUN_WHYS(RP_X)
#undef RP_X
        RP_N_RUN_WHYS
} rp__run_why;

const char *rp__run_why_text(rp__run_why why); /* static */

typedef struct rp__replay_pair {
    double eager_us, replay_us;
} rp__replay_pair;

/* A longest run of ops with no host op between, and short enough for the device's watchdog as one
 * submit: the unit of capture. Everything after n_ops belongs to replay.c. */
typedef struct rp__segment {
    int32_t first_op, n_ops;
    rp__run_why why;   /* of its last run */
    rp_status refusal; /* of its capture, which is not tried again; 0: none */
    rp_graph *graph;
    uint32_t epoch, n_losses; /* losses of the device while its graph ran */
    uint32_t n_warm;          /* eager steps since cold or since its graph was dropped */
    uint32_t wait;            /* so many are wanted before the next capture */
    uint64_t n_unearned;      /* replays its graph has yet to make to have been worth waiting for */
    uint64_t n_eager, n_replays, n_captures;
    uint64_t last_used;

    rp__replay_pair pairs[RP_REPLAY_PAIRS];
    uint32_t n_pairs, n_uneven;
    bool has_half; /* the first step of a pair is done */
    double half_us;
    int32_t half_live;

    bool is_decided, is_replay_faster;
    double decided_eager_us, decided_replay_us; /* medians the decision was made from */
    uint64_t remeasure_at;                      /* runs of this segment */
} rp__segment;

/* Which slot each operand of an op is. */
typedef struct rp__op_slots {
    rp__slot in[RP_OP_MAX_IN], out[RP_OP_MAX_OUT], live;
} rp__op_slots;

typedef struct rp__program {
    rp__bucket bucket;
    rp_device *device;
    rp_op *ops; /* with buffers once bound */
    rp__op_slots *op_slots;
    int32_t n_ops, ops_cap;
    rp__slot_info *slots;
    int32_t n_slots, slots_cap;
    rp__segment *segments;
    int32_t n_segments;
    size_t arena_bytes, input_bytes, output_bytes; /* what bind needs at least */
    size_t temp_bytes;                             /* sum of all temporaries, were nothing shared */
    double longest_op_us;                          /* as the device estimates; 0: it does not say */
    rp__slot live;                                 /* attached to the ops that follow */
    rp__slot rounded,
        rounded_from; /* the last CONVERT said: matmuls that read the same slot share it */
    bool is_bound;
    rp__arena names;
    rp_error error; /* the first failure while building */
} rp__program;

/* ---- building ---- */

void rp__program_init(rp__program *p, rp_device *device, const rp__bucket *bucket);
void rp__program_clear(rp__program *p);

rp__slot rp__program_input(rp__program *p, const char *name, rp_dtype dtype, int n_dims,
                           const int64_t *dim);
/* A weight or state tensor: `t` must outlive the program; it is read again at bind. n_dims 0 gives
 * RP_NO_SLOT. */
rp__slot rp__program_const(rp__program *p, const char *name, const rp_tensor *t);
rp__slot rp__program_temp(rp__program *p, const char *name, rp_dtype dtype, int n_dims,
                          const int64_t *dim);
rp__slot rp__program_output(rp__program *p, const char *name, rp_dtype dtype, int n_dims,
                            const int64_t *dim);
/* The same bytes of a dense slot seen with other dimensions. */
rp__slot rp__program_reshape(rp__program *p, rp__slot s, int n_dims, const int64_t *dim);
/* Columns [first, first + n) of every row of a [T, N] slot, as [T, n]; n_heads > 0: as [T, n_heads,
 * n / n_heads]. */
rp__slot rp__program_columns(rp__program *p, rp__slot s, int64_t first, int64_t n, int64_t n_heads);

/* The count of live rows attached to the ops that follow (RP_NO_SLOT: none). */
void rp__program_live(rp__program *p, rp__slot live);

/* `x` [T, K] F32 as blocks of dtype `to`, converted once for all that ask in a row. */
rp__slot rp__program_round(rp__program *p, rp__slot x, rp_dtype to);

/* Appends an op: kind, scalars and label are in *op, operands are slots (RP_NO_SLOT: absent). */
void rp__program_op(rp__program *p, const rp_op *op, int n_in, const rp__slot *in, int n_out,
                    const rp__slot *out);

/* Checks, lays out, cuts. The first error of the building calls comes out here. */
rp_status rp__program_finish(rp__program *p, rp_error *err);

/* ---- binding ---- */

/* Gives every slot its memory: arena, inputs and outputs are pinned buffers of at least the planned
 * sizes. */
rp_status rp__program_bind(rp__program *p, rp_buffer *arena, rp_buffer *inputs, rp_buffer *outputs,
                           rp_error *err);

/* An input or output by name; RP_NO_SLOT when there is none. */
rp__slot rp__program_find(const rp__program *p, const char *name);

/* ---- looking ---- */

/* Ops with their memory, segments, inputs and outputs, bytes by purpose. all_ops false: what
 * repeats per layer is shown for the first layer only. false when out of memory. */
bool rp__program_explain(const rp__program *p, bool all_ops, rp__bytes *out);

#endif
