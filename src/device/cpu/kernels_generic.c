/* The fast bodies for any machine: plain C vectors, product and sum rounded apart. */
#define SIMD_GENERIC
#define KERNEL_SET          rp__body_generic
#define KERNEL_NAME         "generic"
#define KERNEL_IS_AVAILABLE rp__isa_has_generic
#define TILE_ROWS           2
#define TILE_PANELS         1
#define GEMV_PANELS         2
#define Q8_ROWS             2
#pragma GCC diagnostic ignored "-Wpsabi" /* vectors are passed between inlined functions only */
#include "device/cpu/kernels.h"
