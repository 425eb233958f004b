/* The fast bodies for AVX2, FMA and F16C: 6 rows by 16 lanes are 12 of the 16 registers. */
#define KERNEL_SET          rp__body_avx2
#define KERNEL_NAME         "avx2"
#define KERNEL_IS_AVAILABLE rp__isa_has_avx2
#define TILE_ROWS           6
#define TILE_PANELS         1
#define GEMV_PANELS         2
#define Q8_ROWS             4
#if defined(__AVX2__)
#include "device/cpu/kernels.h"
#else
typedef int rp__no_avx2; /* another architecture: an empty file is not C */
#endif
