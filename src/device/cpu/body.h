/* Op bodies on host memory: the plain reference ones, and the fast ones per instruction set. Used
 * by the cpu device, and by emu, which runs them on its own memory. Pure functions of the operands;
 * no allocation.
 *
 * A body is called for each of some parts, one after the other on one thread or on several at once;
 * together they write every output exactly once. Bits do not depend on how an op is parted: each
 * output element is made in one part, in one fixed order. */
#ifndef RP_DEVICE_CPU_BODY_H
#define RP_DEVICE_CPU_BODY_H

#include "reprise/device.h"

/* Where an op's operands are on the host: in[i], out[i], live point at the first element. */
typedef struct rp__body_args {
    const rp_op *op;
    const void *in[RP_OP_MAX_IN];
    void *out[RP_OP_MAX_OUT];
    int64_t n_live; /* live rows: at most rp__op_rows(op), and that when op->live is absent */
    void *scratch;  /* this worker's own, rp__body_scratch bytes, 64-byte aligned */
    void *shared; /* all workers' common scratch, rp__body_shared bytes, 64-byte aligned; NULL: one
                     phase only */
    int from, to, of; /* this part: units [from, to) of that many */
    int n_workers;    /* that the op is shared out among; any of them may run several parts */
    bool is_again;    /* scratch is as an earlier part of this very run of the op left it */
} rp__body_args;

typedef void (*rp__body_fn)(const rp__body_args *a);

/* What limits.h measures of a set's arithmetic. */
typedef enum rp__peak { RP__PEAK_F32, RP__PEAK_BF16, RP__PEAK_INT8, RP__N_PEAKS } rp__peak;

/* A set of bodies: NULL rows fall back to the reference set. */
typedef struct rp__body_set {
    const char *name; /* "reference", "generic", "avx2", ... (isa.h) */
    bool (*is_available)(void);
    rp__body_fn fn[RP_N_OPS];
    /* A second phase, or NULL: run by all workers after all have left fn, when they were given
     * `shared`. */
    rp__body_fn finish[RP_N_OPS];
    /* For limits.h: so many rounds of its best instruction (NULL: it has none), the operations
     * done; reading memory. */
    uint64_t (*peak[RP__N_PEAKS])(int64_t rounds);
    void (*read)(const void *p, size_t n);
} rp__body_set;

extern const rp__body_set
    rp__body_reference; /* double accumulation, every op, every dtype, no layout but row-major */

/* Best set this machine runs; REPRISE_ISA names a lower one (RP_EINVAL lists them when unknown or
 * not available). */
rp_status rp__body_choose(const char *isa, const rp__body_set **out, rp_error *err);

/* The sets compiled in, best first, the last two generic and reference; NULL past the end. */
const rp__body_set *rp__body_at(int i);

/* Scratch bytes per worker that any set needs for this op. */
size_t rp__body_scratch(const rp_op *op);
/* Bytes of `shared` with which workers can share this op out more evenly in two phases; 0: nothing
 * to gain. */
size_t rp__body_shared(const rp_op *op);

/* Decodes row `row` (over all dimensions but the last, flattened) of a row-major weight to F32: the
 * one place where the reference set reads weights. */
void rp__ref_weight_row(const rp_tensor *w, const void *data, int64_t row, float *dst);

/* Weights in the fast sets' own layout ("panels"): device bytes for a weight, and converting rows
 * into it. `desc` gives dtype and dims. A row range starts and ends on a panel border or the
 * weight's end (rp__panel_rows). */
size_t rp__panel_bytes(const rp_tensor *desc);
int64_t rp__panel_rows(void);
void rp__panel_write(const rp_tensor *desc, void *dst, int64_t row, int64_t n_rows,
                     const void *src);
/* Decodes one row of a panelled weight to F32: the same values as the file's. */
void rp__panel_row(const rp_tensor *desc, const void *weight, int64_t row, float *dst);

#endif
