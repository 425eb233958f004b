/* The fast bodies for AVX2 with AVX-VNNI, the integer dot products of machines without AVX-512.
 * Everything else is as in kernels_avx2.c. */
#define KERNEL_SET          rp__body_avxvnni
#define KERNEL_NAME         "avxvnni"
#define KERNEL_IS_AVAILABLE rp__isa_has_avxvnni
#define TILE_ROWS           6
#define TILE_PANELS         1
#define GEMV_PANELS         2
#define Q8_ROWS             4
#if defined(__AVXVNNI__)
#include "device/cpu/kernels.h"
#else
typedef int rp__no_avxvnni;
#endif
