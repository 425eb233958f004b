#include "tensor/view.h"

#include <stdio.h>

#include "base/fail.h"
#include "tensor/dtype.h"

/* Elements of dims [from, n_dims); a product that wraps is our bug: files are checked before views
 * are made. */
static int64_t product(const rp_tensor *t, int from) {
    int64_t n = 1;
    for (int i = from; i < t->n_dims; i++)
        rp__assert(!__builtin_mul_overflow(n, t->dim[i], &n), "dimension %d wraps", i);
    return n;
}

static size_t bytes_of(rp_dtype dtype, int64_t elems) {
    size_t bytes;
    bool ok = rp__dtype_bytes(dtype, elems, &bytes);
    rp__assert(ok, "%lld elements of %s", (long long)elems, rp__dtype_name(dtype));
    return bytes;
}

/* A block cannot be cut: the items of a vector in a block format are counted as whole blocks'
 * bytes. */
static bool is_block_vector(const rp_tensor *t) {
    return t->n_dims == 1 && rp__dtype_is_block(t->dtype);
}

rp_tensor rp__tensor_make(struct rp_buffer *buffer, size_t offset, rp_dtype dtype, int n_dims,
                          const int64_t *dim) {
    rp__assert(n_dims >= 1 && n_dims <= RP_MAX_DIMS, "%d dimensions", n_dims);
    rp_tensor t = {.buffer = buffer, .offset = offset, .dtype = dtype, .n_dims = (uint8_t)n_dims};
    for (int i = 0; i < n_dims; i++) {
        rp__assert(dim[i] >= 0, "dimension %d is %lld", i, (long long)dim[i]);
        t.dim[i] = dim[i];
    }
    bytes_of(dtype, t.dim[n_dims - 1]);
    bytes_of(dtype, product(&t, 0));
    t.stride = rp__tensor_item_bytes(&t);
    return t;
}

int64_t rp__tensor_elems(const rp_tensor *t) {
    return product(t, 0);
}
int64_t rp__tensor_last(const rp_tensor *t) {
    return t->dim[t->n_dims - 1];
}

int64_t rp__tensor_rows(const rp_tensor *t) {
    int64_t n = 1;
    for (int i = 0; i < t->n_dims - 1; i++) n *= t->dim[i];
    return n;
}

size_t rp__tensor_item_bytes(const rp_tensor *t) {
    if (is_block_vector(t)) return rp__dtype_block_bytes(t->dtype);
    return bytes_of(t->dtype, product(t, 1));
}

size_t rp__tensor_span(const rp_tensor *t) {
    if (product(t, 0) == 0) return 0;
    if (is_block_vector(t)) return bytes_of(t->dtype, t->dim[0]);
    return (size_t)(t->dim[0] - 1) * t->stride + rp__tensor_item_bytes(t);
}

bool rp__tensor_is_dense(const rp_tensor *t) {
    return t->stride == rp__tensor_item_bytes(t);
}

bool rp__tensor_same_shape(const rp_tensor *a, const rp_tensor *b) {
    if (a->n_dims != b->n_dims) return false;
    for (int i = 0; i < a->n_dims; i++)
        if (a->dim[i] != b->dim[i]) return false;
    return true;
}

char *rp__tensor_text(const rp_tensor *t, char *out, size_t cap) {
    size_t at = 0;
    if (cap) out[0] = 0;
    for (int i = 0; i < t->n_dims && at < cap; i++) {
        int n = snprintf(out + at, cap - at, "%s%lld", i ? ", " : "[", (long long)t->dim[i]);
        at += n > 0 ? (size_t)n : 0;
    }
    if (at < cap) snprintf(out + at, cap - at, "] %s", rp__dtype_name(t->dtype));
    return out;
}
