/* Making cases: what the files of cases (cases_*.c) share. */
#ifndef RP_TESTS_OP_CORPUS_BUILD_H
#define RP_TESTS_OP_CORPUS_BUILD_H

#include <math.h>

#include "op/corpus.h"
#include "tensor/dtype.h"
#include "tensor/view.h"

/* The tables of cases name what differs from nothing; the rest of a row is zero. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

typedef struct corpus_group {
    size_t n;
    void (*make)(size_t i, corpus_case *c);
} corpus_group;

extern const corpus_group rp_corpus_norms, rp_corpus_pointwise, rp_corpus_moves, rp_corpus_weights,
    rp_corpus_experts, rp_corpus_q8, rp_corpus_caches, rp_corpus_attention, rp_corpus_choices;

/* The dtypes that weights may have: all but those that hold activations only. */
enum { N_WEIGHT_DTYPES = RP_N_DTYPES - 3 };
rp_dtype rp_case_weight_dtype(size_t i);

typedef struct shape {
    int n_dims;
    int64_t dim[RP_MAX_DIMS];
} shape;
#define S1(a)          ((shape){1, {a}})
#define S2(a, b)       ((shape){2, {a, b}})
#define S3(a, b, c)    ((shape){3, {a, b, c}})
#define S4(a, b, c, d) ((shape){4, {a, b, c, d}})

/* Starts a case: `fmt` names it behind the op's name. */
void rp_case_begin(corpus_case *c, rp_op_kind kind, uint64_t seed, const char *fmt, ...)
    RP_PRINTF(4, 5);

/* Appends to the name. */
void rp_case_name(corpus_case *c, const char *fmt, ...) RP_PRINTF(2, 3);

/* Input j with these contents; literal NULL: random, uniform in [-1, 1). The value array may be
 * changed afterwards when rp_case_store is called. Returns the values. */
double *rp_case_in_f32(corpus_case *c, int j, shape s, const float *literal);
double *rp_case_in_i32(corpus_case *c, int j, shape s, const int32_t *literal);
/* Random contents of any dtype: plain ones of small values, block formats of random blocks with
 * small scales; rounded activations of digits within +-127 and with right sums, but any s. */
double *rp_case_in_random(corpus_case *c, int j, rp_dtype dtype, shape s);
/* Makes right the sums that a block of Q8_K or Q16 keeps of its numbers; of others nothing. */
void rp_case_mend_sums(rp_dtype t, uint8_t *block);
/* Rounds the values to the dtype (to nearest even), encodes them, and leaves value == what was
 * encoded. */
void rp_case_store(corpus_case *c, corpus_operand *o, const rp_tensor *t);

/* Output i; wanted values and mags start as 0, `mag` NULL for TOL_BITS. Returns the wanted values.
 */
double *rp_case_out(corpus_case *c, int i, rp_dtype dtype, shape s, corpus_tol tol);
/* Of an output of a block dtype: the wanted bytes, zero at first. */
uint8_t *rp_case_want_bytes(corpus_case *c, int i);
void rp_case_want(corpus_case *c, int i, const double *literal); /* mag = |value| */
/* Gives the whole output's contents before the op (KV caches), from its values. */
void rp_case_out_before(corpus_case *c, int i);

void rp_case_rows(corpus_case *c, uint32_t in_mask,
                  uint32_t out_mask); /* which operands are by rows */
void rp_case_strided(corpus_case *c, uint32_t in_mask, uint32_t out_mask);
void rp_case_live(corpus_case *c, int64_t n_live);

uint64_t rp_case_rand(corpus_case *c, uint64_t below);
double rp_case_randf(corpus_case *c); /* [-1, 1) */

/* Rounds to nearest even at the precision of F32, F16 or BF16, by arithmetic on the value. */
double rp_case_round(rp_dtype dtype, double v);

/* A permutation of 0..n-1. */
void rp_case_shuffle(corpus_case *c, int32_t *ids, int64_t n);

#endif
