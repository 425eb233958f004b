/* The op corpus: one list of op cases with wanted results, for every device and every set of
 * bodies.
 *
 * A case is an op with its operands' contents on the host and, per output element, the wanted value
 * (double precision, by formulas written apart from the bodies) and the size `mag` its error is
 * measured against. A machine is anything that runs a placed op: a set of bodies on host memory, or
 * a device behind the device layer.
 *
 * What a run checks, per case: every element within tolerance; gaps between strided items
 * untouched; the same bits from every variant of the machine (worker counts, eager and replayed);
 * the same bits for a row alone as among all rows. Fixed seeds: the same cases everywhere. */
#ifndef RP_TESTS_OP_CORPUS_H
#define RP_TESTS_OP_CORPUS_H

#include "device/device.h"
#include "reprise/device.h"

/* ---- cases ---- */

/* Rows of the tolerance table in corpus.c. */
typedef enum corpus_tol {
    TOL_BITS,     /* the very value (integers, copies, conversions) */
    TOL_ROUNDED,  /* one operation, one rounding */
    TOL_FUNCTION, /* exp, tanh and friends */
    TOL_NORM,
    TOL_ATTENTION,
    TOL_MATMUL_FLOAT, /* products of F32 activations with weights that F32 holds exactly */
    TOL_MATMUL_BF16,
    TOL_MATMUL_BLOCK,
    TOL_MATMUL_WHOLE, /* products of rounded activations: exact but for adding up groups */
    N_TOLS
} corpus_tol;

typedef struct corpus_operand {
    void *bytes;     /* dense contents; of an output: what was there before */
    double *value;   /* inputs: decoded; outputs: wanted */
    double *mag;     /* outputs: error = |found - wanted| / mag */
    uint8_t *want;   /* outputs of a block dtype: the wanted bytes, and `value` is not used */
    corpus_tol tol;  /* outputs */
    bool is_rows;    /* dim[0] are the op's rows: row t makes row t of the result, whoever else is
                        there */
    bool is_strided; /* placed with gaps between items and not at the start of its buffer */
    int alias;       /* outputs: the input whose memory it shares, or -1 */
} corpus_operand;

typedef struct corpus_case {
    char name[160];
    rp_op op; /* dense views without buffers */
    corpus_operand in[RP_OP_MAX_IN], out[RP_OP_MAX_OUT];
    int64_t n_live;      /* -1: op.live is absent */
    bool has_sink_block; /* dead rows of KV_WRITE go to block 0: not looked at where live rows are
                            not honoured */
    uint64_t seed;
} corpus_case;

/* Random contents are numbers that BF16 holds: for machines whose activations are that, so that
 * what they round is what an op makes. Set while cases are made. */
extern bool rp_corpus_is_bf16;

size_t rp_corpus_count(void);
void rp_corpus_make(size_t i, corpus_case *c); /* rp_corpus_clear afterwards */
void rp_corpus_clear(corpus_case *c);

/* Makes another case that must have the same bits: the same sequences in other blocks of a larger
 * cache, with a longer table (ATTENTION). False: there is none for this op. */
bool rp_corpus_twin(const corpus_case *c, corpus_case *twin);

/* ---- placed ops ---- */

typedef struct corpus_image {
    uint8_t *bytes;
    size_t n;
} corpus_image;

/* An op with its operands in images of the buffers to be: op.in[j].offset and stride are set,
 * buffers are not. An output in place has its input's image. */
typedef struct corpus_placed {
    rp_op op;
    corpus_image in[RP_OP_MAX_IN], out[RP_OP_MAX_OUT];
    int32_t n_live; /* for op.live when present */
    int64_t first;  /* row of the case that is row 0 here */
    const corpus_case *of;
} corpus_placed;

/* ---- machines ---- */

/* Columns of the tolerance table. */
typedef enum corpus_precision {
    CORPUS_FLOAT,  /* F32 throughout */
    CORPUS_DOUBLE, /* double accumulation, one rounding of a result */
    CORPUS_ROUNDS, /* matmuls may round activations: to BF16 for BF16 weights, to 8 bits for blocks
                    */
    N_PRECISIONS
} corpus_precision;

/* What a machine of coarse activations adds to the table. */
typedef struct corpus_coarse {
    double eps;            /* relative precision of its results; 0: as the table says */
    double attention_eps;  /* and of attention's, where that is coarser */
    bool attention_varies; /* in its last bits with how many rows there are: a row alone is right,
                              but may have other bits */
} corpus_coarse;

typedef struct corpus_machine corpus_machine;
struct corpus_machine {
    const char *name;
    void *user;
    corpus_precision precision;
    bool honours_live; /* rows past the live ones are left alone */
    corpus_coarse coarse;
    size_t alignment; /* of offsets */
    int n_variants;   /* ways to run that must agree to the bit; at least 1 */
    bool is_quiet;    /* failures are not printed */
    bool (*supports)(corpus_machine *m, const rp_op *op);
    /* Runs one variant and leaves the outputs in their images. */
    rp_status (*run)(corpus_machine *m, corpus_placed *p, int variant, rp_error *err);
};

typedef struct rp_corpus_result {
    size_t n_run, n_unsupported, n_failed;
    double worst[N_TOLS]; /* largest error met, as a part of the tolerance */
    uint64_t digest;      /* over the bits of all live results, in order */
} rp_corpus_result;

/* Runs one case that the machine supports; false when anything was wrong. Adds to `result`. */
bool rp_corpus_run_case(corpus_machine *m, const corpus_case *c, rp_corpus_result *result);

/* Runs the cases whose name contains `filter` (NULL: all). Failures are printed, the first few in
 * full, and counted. */
void rp_corpus_run_machine(corpus_machine *m, const char *filter, rp_corpus_result *out);

typedef struct rp_corpus_options {
    const char *filter;
    corpus_precision precision; /* and coarse: of corpus_machine */
    corpus_coarse coarse;
} rp_corpus_options;

/* On an open device, through the device layer, eager and (where the device can) captured and
 * replayed. */
void rp_corpus_run(rp_device *dev, const rp_corpus_options *options, rp_corpus_result *out);

#endif
