/* The fast bodies for arm64 with dot products of bytes (sdot). Everything else is as in
 * kernels_neon.c. */
#define KERNEL_SET          rp__body_neondot
#define KERNEL_NAME         "neondot"
#define KERNEL_IS_AVAILABLE rp__isa_has_neondot
#define TILE_ROWS           6
#define TILE_PANELS         1
#define GEMV_PANELS         2
#define Q8_ROWS             4
#if defined(__ARM_FEATURE_DOTPROD)
#include "device/cpu/kernels.h"
#else
typedef int rp__no_neondot;
#endif
