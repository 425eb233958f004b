/* Passes over a whole row of logits, four lanes at a time: the largest of every few, exponentials
 * and their sums. Plain products and sums in a fixed order, so that every machine has the same
 * bits. NaN counts as never. */
#ifndef RP_ENGINE_ROW_H
#define RP_ENGINE_ROW_H

#include <stdint.h>

enum { RP__ROW_CHUNK = 64 }; /* logits that have one maximum and one sum; the last may have fewer */

/* Chunks of a row of n. */
int32_t rp__row_chunks(int32_t n);

/* top [chunks] = the largest of each, -INFINITY without any; returns the largest of all. */
float rp__row_tops(const float *v, int32_t n, float *top);

/* The first place of the largest; when all are NaN some place. */
int32_t rp__row_argmax(const float *v, int32_t n);

/* w [n], n <= RP__ROW_CHUNK: exp((v - max) * by), within 3e-7 of it; 0 below e^-87. v <= max. */
void rp__row_weights(const float *v, int32_t n, float max, float by, float *w);

/* The sum of all weights; `sums` [chunks], unless NULL, gets those of the chunks. */
double rp__row_sum(const float *v, int32_t n, float max, float by, double *sums);

#endif
