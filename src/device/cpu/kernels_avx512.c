/* The fast bodies for AVX-512 F, BW, VL and DQ: 14 rows by 32 lanes are 28 of the 32 registers. */
#define KERNEL_SET          rp__body_avx512
#define KERNEL_NAME         "avx512"
#define KERNEL_IS_AVAILABLE rp__isa_has_avx512
#define TILE_ROWS           14
#define TILE_PANELS         2
#define GEMV_PANELS         4
#define Q8_ROWS             12
#if defined(__AVX512F__)
#include "device/cpu/kernels.h"
#else
typedef int rp__no_avx512;
#endif
