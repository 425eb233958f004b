/* Tensor views: making them, counting, slicing. Pure functions. */
#ifndef RP_TENSOR_VIEW_H
#define RP_TENSOR_VIEW_H

#include "reprise/tensor.h"

/* A dense view with these dimensions (C order) at `offset`. Dimensions must be >= 0 and fill whole
 * blocks. A vector in a block format cannot be cut between elements: it is always dense, its stride
 * is the bytes of one block. */
rp_tensor rp__tensor_make(struct rp_buffer *buffer, size_t offset, rp_dtype dtype, int n_dims,
                          const int64_t *dim);

int64_t rp__tensor_elems(const rp_tensor *t); /* product of dimensions */
int64_t
rp__tensor_rows(const rp_tensor *t); /* product of all dimensions but the last (1 for n_dims 1) */
int64_t rp__tensor_last(const rp_tensor *t);      /* last dimension */
size_t rp__tensor_item_bytes(const rp_tensor *t); /* bytes of one item of dim[0], dense inside */
size_t rp__tensor_span(const rp_tensor *t); /* bytes from its first to past its last element */
bool rp__tensor_is_dense(const rp_tensor *t);
bool rp__tensor_same_shape(const rp_tensor *a, const rp_tensor *b);

/* "[3, 64] F32" into out; returns out. */
char *rp__tensor_text(const rp_tensor *t, char *out, size_t cap);

#endif
