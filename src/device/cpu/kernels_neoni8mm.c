/* The fast bodies for arm64 with products of small matrices of bytes (smmla), which tiles of 8-bit
 * activations take. Everything else is as in kernels_neondot.c. */
#define KERNEL_SET          rp__body_neoni8mm
#define KERNEL_NAME         "neoni8mm"
#define KERNEL_IS_AVAILABLE rp__isa_has_neoni8mm
#define TILE_ROWS           6
#define TILE_PANELS         1
#define GEMV_PANELS         2
#define Q8_ROWS             4
#if defined(__ARM_FEATURE_MATMUL_INT8)
#include "device/cpu/kernels.h"
#else
typedef int rp__no_neoni8mm;
#endif
