/* A batch in parts, where a device wants prompts as steps of their own: each part is either a token
 * of some sequences, or consecutive tokens of one from a multiple of `align` positions on.
 *
 * Single tokens come first, and so do those that stand before a prompt's next multiple, one of each
 * sequence per part; then prompts, one after the other. Owns: the arrays of the part. Pure. */
#ifndef RP_ENGINE_PARTS_H
#define RP_ENGINE_PARTS_H

#include <stdbool.h>
#include <stdint.h>

#include "reprise/status.h"

/* What a step computes. Tokens of a sequence stand together, in order. */
typedef struct rp__batch {
    int32_t n_tokens, n_seqs, n_rows;
    int32_t *ids, *pos, *seq, *slots; /* [n_tokens] token, position, row of `tables`, KV slot */
    int32_t *rows;                    /* [n_rows] tokens whose logits are wanted, in order */
    const int32_t **tables;           /* [n_seqs] block numbers in order of position */
    int32_t *n_blocks;                /* [n_seqs] entries of each table */
    bool is_greedy;                   /* of each row only the best token is wanted */
    int32_t n_steps;                  /* that and those after it, of one visit; 0 is 1 */
} rp__batch;

rp_status rp__batch_init(rp__batch *b, int32_t max_tokens, int32_t max_seqs, rp_error *err);
void rp__batch_clear(rp__batch *b);

typedef struct rp__parts {
    int32_t align;
    rp__batch part;
    int32_t *from;       /* [rows of part] which row of the batch each is */
    int32_t *next, *end; /* [seqs] tokens of the batch that are not computed yet */
    int32_t *row;        /* [tokens] the row of the batch's token; -1: none */
} rp__parts;

rp_status rp__parts_init(rp__parts *p, int32_t align, int32_t max_tokens, int32_t max_seqs,
                         rp_error *err);
void rp__parts_clear(rp__parts *p);

void rp__parts_begin(rp__parts *p, const rp__batch *whole);
/* Makes p->part and p->from; false when nothing is left of the batch. */
bool rp__parts_next(rp__parts *p, const rp__batch *whole);

#endif
