/* The op table: one row per op with its name, shape rule and cost. Pure functions. */
#ifndef RP_DEVICE_OP_H
#define RP_DEVICE_OP_H

#include "reprise/device.h"

const char *rp__op_name(rp_op_kind kind);

/* Checks operand count, dtypes, shapes, optional operands and scalars against the op's row; one
 * sentence names the op, its label, the operand and what was wanted and found. Buffers may be NULL
 * (a plan checks before it has memory): operand presence is told by n_dims > 0. */
rp_status rp__op_check(const rp_op *op, rp_error *err);

typedef struct rp__op_cost {
    double flops;
    double bytes; /* moved between memory and the op: operands read plus results written */
} rp__op_cost;
rp__op_cost rp__op_cost_of(const rp_op *op);

/* Which operands an op writes in place or reads and writes (KV caches): bit i of the mask for
 * out[i]. Whole-tensor outputs are simply written; "partial" ones keep the rest of their contents.
 */
uint32_t rp__op_partial_outputs(const rp_op *op);

/* How many rows an op has, which op->live cuts: dim[0] of out[0], or of k for KV_WRITE, whose
 * outputs are caches. */
int64_t rp__op_rows(const rp_op *op);

/* True when out[out] may be the very memory of in[in] (same place, stride and dtype): the body
 * reads an element before it writes it. Any other overlap of an output with an operand is refused
 * by rp__op_check once buffers are known. */
bool rp__op_may_alias(const rp_op *op, int out, int in);
rp_status rp__op_check_overlap(const rp_op *op,
                               rp_error *err); /* that part of rp__op_check alone */

/* A key over kind, scalars, dtypes, shapes, strides, never addresses or memory state: equal keys
 * mean the same kernel. */
uint64_t rp__op_key(const rp_op *op);

/* The first thing in which two ops of one kind have different keys: "input 0 is [3, 64] F32, not
 * [1, 64] F32"; returns out. */
char *rp__op_difference(const rp_op *op, const rp_op *other, char *out, size_t cap);

/* "matmul blk.0.attn_q [1, 64] F32 x [64, 64] Q4_0 -> [1, 64] F32" into out; returns out. */
char *rp__op_text(const rp_op *op, char *out, size_t cap);

#endif
