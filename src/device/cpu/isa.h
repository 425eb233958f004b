/* Which instruction sets this machine and its system run. The checks are compiled for the lowest
 * set. */
#ifndef RP_DEVICE_CPU_ISA_H
#define RP_DEVICE_CPU_ISA_H

#include "device/cpu/body.h"

bool rp__isa_has_generic(void);
bool rp__isa_has_avx2(void);   /* AVX2, FMA, F16C, BMI2 */
bool rp__isa_has_avx512(void); /* the above and AVX-512 F, BW, VL, DQ */
bool rp__isa_has_avx512vnni(void);

extern const rp__body_set rp__body_generic;
#if defined(__x86_64__)
extern const rp__body_set rp__body_avx2, rp__body_avx512, rp__body_avx512vnni;
#endif

#endif
