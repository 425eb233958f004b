/* The fast bodies for AVX-512 with VNNI, whose integer dot products take four bytes per lane at
 * once. Everything else is as in kernels_avx512.c. */
#define KERNEL_SET          rp__body_avx512vnni
#define KERNEL_NAME         "avx512vnni"
#define KERNEL_IS_AVAILABLE rp__isa_has_avx512vnni
#define TILE_ROWS           14
#define TILE_PANELS         2
#define GEMV_PANELS         4
#define Q8_ROWS             12
#if defined(__AVX512VNNI__)
#include "device/cpu/kernels.h"
#else
typedef int rp__no_avx512vnni;
#endif
