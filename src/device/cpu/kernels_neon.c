/* The fast bodies for any arm64 machine, which has NEON with fused products: 6 rows by 16 lanes are
 * 24 of the 32 registers. */
#define KERNEL_SET          rp__body_neon
#define KERNEL_NAME         "neon"
#define KERNEL_IS_AVAILABLE rp__isa_has_neon
#define TILE_ROWS           6
#define TILE_PANELS         1
#define GEMV_PANELS         2
#define Q8_ROWS             4
#if defined(__aarch64__)
#include "device/cpu/kernels.h"
#else
typedef int rp__no_neon; /* another architecture: an empty file is not C */
#endif
