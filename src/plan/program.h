/* Programs: the ops of one step for one bucket, with planned memory and declared inputs.
 *
 * A model builds a program by saying ops in order over *slots*. Finishing checks every op, puts it
 * on the device or on the host (placement.h), adds the transfers that this implies (residency.c),
 * lays temporaries out in one arena per side by lifetime, and cuts segments. Binding gives the
 * slots their memory. After that a program is only run (replay.h): nothing in it allocates. Owns:
 * the op list. Borrows: weights and state tensors (they are looked up again at bind), the
 * placement, the host. Threads: one at a time. */
#ifndef RP_PLAN_PROGRAM_H
#define RP_PLAN_PROGRAM_H

#include "base/arena.h"
#include "base/bytes.h"
#include "device/device.h"
#include "device/op.h"
#include "plan/duel.h"
#include "plan/placement.h"

typedef enum rp__bucket_kind {
    RP_BUCKET_DECODE,  /* one token of each sequence */
    RP_BUCKET_PREFILL, /* any mixture of prompts and single tokens */
    RP_BUCKET_PROMPT   /* consecutive tokens of one sequence from a block's beginning on */
} rp__bucket_kind;

/* The padded size a program is built for. */
typedef struct rp__bucket {
    rp__bucket_kind kind;
    int32_t n_tokens; /* T: tokens computed */
    int32_t n_seqs;   /* B: rows of the block table */
    int32_t n_rows;   /* R: tokens whose logits come out */
} rp__bucket;

enum { RP_MAX_BUCKETS = 40 };

/* Decode in powers of two up to max_seqs, which is always there; prefill in powers of two from 16
 * up to max_tokens, which is always there. With prompt_align > 0 prompts instead, which are that
 * times a power of two, up to the first that holds max_tokens. Smallest first within a kind.
 * Returns how many. */
int rp__bucket_list(int32_t max_seqs, int32_t max_tokens, int32_t prompt_align,
                    rp__bucket out[RP_MAX_BUCKETS]);
/* Index of the smallest bucket that holds this step, -1 when none does. Decode: one token per
 * sequence, all rows out. Where there are buckets for prompts, every other step is one. */
int rp__bucket_find(const rp__bucket *list, int n, int32_t n_tokens, int32_t n_seqs,
                    int32_t n_rows);
char *rp__bucket_text(const rp__bucket *b, char *out, size_t cap); /* "decode 4", "prefill 512" */

typedef int32_t rp__slot; /* index of a value in a program; RP_NO_SLOT: absent */
#define RP_NO_SLOT ((rp__slot)-1)

typedef enum rp__slot_kind {
    RP_SLOT_INPUT, /* written before a step, on every side that reads it */
    RP_SLOT_CONST, /* a weight: on the device, and on the host when an op there reads it */
    RP_SLOT_STATE, /* kept from step to step (the KV cache): on one side, for all programs alike */
    RP_SLOT_TEMP,
    RP_SLOT_OUTPUT,
    RP_SLOT_VIEW
} rp__slot_kind;

/* A root slot on one side. */
typedef struct rp__slot_home {
    int32_t first_op, last_op; /* lifetime in op order; -1: not there */
    size_t place;              /* offset in the side's arena, input or output buffer */
    const rp_tensor *bind;     /* CONST, STATE: where the bound tensor stands */
} rp__slot_home;

typedef struct rp__slot_info {
    rp__slot_kind kind;
    rp__slot root;    /* VIEW: the slot it looks into; else itself */
    rp_tensor tensor; /* shape; the offset is relative to the root's place */
    const char *name;
    rp__slot_home home[RP_N_SIDES];
    rp__side result; /* OUTPUT: the side to read it from */
} rp__slot_info;

/* The host beside a device: where ops stand that a placement takes off the device. One for all
 * programs of a model. */
typedef struct rp__host {
    rp_device *device;       /* opened by the first op that is placed here; NULL before */
    rp_device_config config; /* to open it with */
    /* A weight's copy in the host's memory, which is there once weights are loaded; its shape is
     * known now. NULL: out of memory. */
    const rp_tensor *(*copy_of)(void *user, const rp_tensor *weight, rp_device *host);
    void *user;
    bool has_state; /* the KV cache is in the host's memory, and so the ops on it */
} rp__host;
rp_status rp__host_open(rp__host *host, rp_error *err); /* unless it is open */
void rp__host_close(rp__host *host); /* closes its device; every buffer there is gone before */

/* X(code, text): why a segment runs as it does. All up to RP_WHY_REFUSED keep it eager. */
#define RP_RUN_WHYS(X)                                                                             \
    X(RP_WHY_WARMING, "warming: kernels are being compiled")                                       \
    X(RP_WHY_OFF, "capture is off")                                                                \
    X(RP_WHY_NO_CAPTURE, "the device cannot capture")                                              \
    X(RP_WHY_MEASURING, "eager and replay are being measured")                                     \
    X(RP_WHY_EAGER_FASTER, "eager was measured to be faster")                                      \
    X(RP_WHY_EVICTED, "its graph made room for others")                                            \
    X(RP_WHY_HOST, "its ops are on the host")                                                      \
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

/* The two ways of a segment's duel. */
enum { RP_EAGER, RP_REPLAY };

/* A longest run of ops on one side. On the device: the unit of capture, short enough for the
 * device's watchdog as one submit. On the host: host ops and the transfers around them, which
 * always run one by one. Everything after n_ops belongs to replay.c. */
typedef struct rp__segment {
    rp__side side;
    int32_t first_op, n_ops;
    rp__run_why why;   /* of its last run */
    rp_status refusal; /* of its capture, which is not tried again; 0: none */
    rp_graph *graph;
    uint32_t epoch, n_losses; /* losses of the device while its graph ran */
    uint32_t n_warm;          /* eager steps since cold or since its graph was dropped */
    uint32_t wait;            /* so many are wanted before the next capture */
    uint64_t n_unearned;      /* replays its graph has yet to make to have been worth waiting for */
    uint64_t n_eager, n_replays, n_captures;
    uint64_t last_used; /* its graph */

    rp__duel duel;         /* RP_EAGER against RP_REPLAY */
    uint64_t remeasure_at; /* runs of this segment */
} rp__segment;

/* Which slot each operand of an op is. */
typedef struct rp__op_slots {
    rp__slot in[RP_OP_MAX_IN], out[RP_OP_MAX_OUT], live;
} rp__op_slots;

/* Where an op stands, and why. A transfer is a copy (a CONVERT to the same dtype) of a whole slot
 * to this side from the other one. */
typedef struct rp__op_place {
    rp__side side;
    bool is_transfer;
    rp__place_why why;
    const rp__place_rule *rule; /* the rule that decided; NULL: none */
} rp__op_place;

typedef struct rp__side_bytes {
    size_t arena, inputs, outputs;
} rp__side_bytes;

/* What the placement makes cross in a step, besides the inputs and the outputs that are asked for.
 */
typedef struct rp__traffic {
    int32_t n_host_ops, n_uploads, n_downloads;
    size_t upload_bytes, download_bytes;
} rp__traffic;

typedef struct rp__program {
    rp__bucket bucket;
    rp_device *device;
    const rp__placement *placement; /* NULL: no rules */
    rp__host *host;                 /* NULL: everything is on the device */
    rp_op *ops;                     /* with buffers once bound */
    rp__op_slots *op_slots;
    rp__op_place *places; /* from finish on */
    int32_t n_ops, ops_cap;
    rp__slot_info *slots;
    int32_t n_slots, slots_cap;
    rp__segment *segments;
    int32_t n_segments;
    int32_t n_graphs; /* of its segments; replay.c's, like last_used */
    uint64_t last_used;
    rp__side_bytes bytes[RP_N_SIDES]; /* what bind needs at least */
    size_t temp_bytes;                /* of the device's temporaries, were nothing shared */
    rp__traffic traffic;
    int32_t advance_op;   /* the op that advances an input in place; -1: none */
    int32_t feed_op;      /* the op that puts the next step's tokens in place; -1: none */
    double longest_op_us; /* on the device, as it estimates; 0: it does not say */
    rp__slot live;        /* attached to the ops that follow */
    rp__slot rounded,
        rounded_from; /* the last CONVERT said: matmuls that read the same slot share it */
    bool is_bound;
    rp__arena names;
    rp_error error; /* the first failure while building */
} rp__program;

/* ---- building ---- */

void rp__program_init(rp__program *p, rp_device *device, const rp__bucket *bucket);
void rp__program_clear(rp__program *p);

/* Lets ops stand on the host: where `placement` says so, and where the device does not run them.
 * Both are borrowed until clear. Without this every op must run on the device. */
void rp__program_place(rp__program *p, const rp__placement *placement, rp__host *host);

rp__slot rp__program_input(rp__program *p, const char *name, rp_dtype dtype, int n_dims,
                           const int64_t *dim);
/* A weight: `t` must outlive the program; it is read again at bind. n_dims 0 gives RP_NO_SLOT. */
rp__slot rp__program_const(rp__program *p, const char *name, const rp_tensor *t);
/* What is kept from step to step, likewise. */
rp__slot rp__program_state(rp__program *p, const char *name, const rp_tensor *t);
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

/* Checks, places, lays out, cuts. The first error of the building calls comes out here. RP_AGAIN:
 * an op on the KV cache has to stand on the host, so the cache does from now on (host->has_state):
 * every program of the model is to be built again. */
rp_status rp__program_finish(rp__program *p, rp_error *err);

/* ---- binding ---- */

/* The pinned buffers of one side, of at least the planned sizes; NULL where none is needed. */
typedef struct rp__side_memory {
    rp_buffer *arena, *inputs, *outputs;
} rp__side_memory;

/* Gives every slot its memory. */
rp_status rp__program_bind(rp__program *p, const rp__side_memory memory[RP_N_SIDES], rp_error *err);

/* Compiles and reserves what its ops need, so that no step does. Bound or not. */
rp_status rp__program_prepare(const rp__program *p, rp_error *err);

/* An input or output by name; RP_NO_SLOT when there is none. */
rp__slot rp__program_find(const rp__program *p, const char *name);

/* ---- looking ---- */

/* Ops with where they stand and why, segments, transfers, inputs and outputs, bytes by purpose.
 * all_ops false: what repeats per layer is shown for the first layer only. false when out of
 * memory. */
bool rp__program_explain(const rp__program *p, bool all_ops, rp__bytes *out);

#endif
