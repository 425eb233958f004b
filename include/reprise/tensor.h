/* Element types and tensor views, as devices see them.
 *
 * Owns: the one table of dtypes (name, block size, GGUF type number), and the view struct.
 * A view never owns memory. Dimensions are in C order: dim[0] is outermost, the last one is
 * contiguous. */
#ifndef REPRISE_TENSOR_H
#define REPRISE_TENSOR_H

#include <stdbool.h>

#include "reprise/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* X(code, name, elements per block, bytes per block, GGUF type number or -1)
 * Plain types have blocks of one element. Q8_1, Q8_K and Q16 hold activations only (CONVERT in
 * device.h makes them): they are no weight formats, and files that have them are refused. */
#define RP_DTYPE_TABLE(X)                                                                          \
    X(RP_F32, "F32", 1, 4, 0)                                                                      \
    X(RP_F16, "F16", 1, 2, 1)                                                                      \
    X(RP_BF16, "BF16", 1, 2, 30)                                                                   \
    X(RP_F64, "F64", 1, 8, 28)                                                                     \
    X(RP_I8, "I8", 1, 1, 24)                                                                       \
    X(RP_I16, "I16", 1, 2, 25)                                                                     \
    X(RP_I32, "I32", 1, 4, 26)                                                                     \
    X(RP_I64, "I64", 1, 8, 27)                                                                     \
    X(RP_U8, "U8", 1, 1, -1)                                                                       \
    X(RP_Q4_0, "Q4_0", 32, 18, 2)                                                                  \
    X(RP_Q4_1, "Q4_1", 32, 20, 3)                                                                  \
    X(RP_Q5_0, "Q5_0", 32, 22, 6)                                                                  \
    X(RP_Q5_1, "Q5_1", 32, 24, 7)                                                                  \
    X(RP_Q8_0, "Q8_0", 32, 34, 8)                                                                  \
    X(RP_Q2_K, "Q2_K", 256, 84, 10)                                                                \
    X(RP_Q3_K, "Q3_K", 256, 110, 11)                                                               \
    X(RP_Q4_K, "Q4_K", 256, 144, 12)                                                               \
    X(RP_Q5_K, "Q5_K", 256, 176, 13)                                                               \
    X(RP_Q6_K, "Q6_K", 256, 210, 14)                                                               \
    X(RP_IQ4_NL, "IQ4_NL", 32, 18, 20)                                                             \
    X(RP_Q8_1, "Q8_1", 32, 36, 9)                                                                  \
    X(RP_Q8_K, "Q8_K", 256, 292, 15)                                                               \
    X(RP_Q16, "Q16", 32, 76, -1)

typedef enum rp_dtype {
#define RP_X(code, name, elems, bytes, gguf) code,
    RP_DTYPE_TABLE(RP_X)
#undef RP_X
        RP_N_DTYPES
} rp_dtype;

enum { RP_MAX_DIMS = 4 };

struct rp_buffer;

/* A view into a device buffer. Items of dim[0] lie `stride` bytes apart (rows of a wider matrix are
 * possible); everything inside an item is dense. */
typedef struct rp_tensor {
    struct rp_buffer *buffer; /* NULL: absent operand */
    size_t offset;            /* bytes from the start of the buffer */
    size_t stride;            /* bytes between items of dim[0] */
    rp_dtype dtype;
    uint8_t n_dims;    /* 1..RP_MAX_DIMS */
    uint8_t is_weight; /* 1: written by weight_write, in the device's own layout; only ops may look
                          inside */
    int64_t dim[RP_MAX_DIMS];
} rp_tensor;

#ifdef __cplusplus
}
#endif
#endif
