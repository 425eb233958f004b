/* The op table's row, shared by op.c (the table) and op_check.c (the generic check). */
#ifndef RP_DEVICE_OP_IMPL_H
#define RP_DEVICE_OP_IMPL_H

#include "device/op.h"

/* Which dtypes an operand may have. */
typedef enum op_class {
    OP_F32,    /* activations */
    OP_I32,    /* ids, positions, slots */
    OP_WEIGHT, /* any dtype that weights have, dense; may be in the device's own layout */
    OP_FLOAT,  /* F32, F16, BF16: KV caches, CONVERT */
    OP_FACTOR, /* F32 or blocks of rounded activations: what matmuls multiply weights with */
    OP_MADE,   /* OP_FLOAT or OP_FACTOR: what CONVERT makes */
} op_class;

/* One operand. `shape` has one letter per dimension, equal letters are equal sizes; '*' stands for
 * any leading dimensions, the same ones wherever it stands; '|' parts alternatives. */
typedef struct op_operand {
    const char *name, *shape;
    op_class cls;
    bool is_optional;
} op_operand;

typedef struct op_row {
    op_operand in[RP_OP_MAX_IN], out[RP_OP_MAX_OUT];
    uint8_t alias[RP_OP_MAX_OUT]; /* bit j: out[i] may be in[j] */
    uint8_t partial;              /* bit i: out[i] keeps what is not written */
    bool norms_last; /* works over whole last dimensions: needs two of them for live rows */
    double flops;    /* per element of out[0], where `cost` is absent */
    rp_status (*check)(const rp_op *op, rp_error *err); /* what letters cannot say; may be NULL */
    rp__op_cost (*cost)(const rp_op *op);               /* NULL: all operands once */
} op_row;

extern const op_row rp__op_table[RP_N_OPS];

/* Fails with "<op> <label>: " before the sentence. */
rp_status rp__op_fail(rp_error *err, const rp_op *op, const char *fmt, ...) RP_PRINTF(3, 4);

/* Appends to the text in out[0..cap), of which *n bytes are there; what does not fit is cut. */
void rp__op_text_add(char *out, size_t cap, size_t *n, const char *fmt, ...) RP_PRINTF(4, 5);

#endif
