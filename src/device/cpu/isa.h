/* Which instruction sets this machine and its system run. The checks are compiled for the lowest
 * set. */
#ifndef RP_DEVICE_CPU_ISA_H
#define RP_DEVICE_CPU_ISA_H

#include "device/cpu/body.h"

bool rp__isa_has_generic(void);
bool rp__isa_has_avx2(void);   /* AVX2, FMA, F16C, BMI2 */
bool rp__isa_has_avx512(void); /* the above and AVX-512 F, BW, VL, DQ */
bool rp__isa_has_avx512vnni(void);
bool rp__isa_has_avxvnni(void); /* as avx2, and AVX-VNNI */
bool rp__isa_has_neon(void);
bool rp__isa_has_neondot(void);  /* FEAT_DotProd */
bool rp__isa_has_neoni8mm(void); /* the above and FEAT_I8MM */

extern const rp__body_set rp__body_generic;
#if defined(__x86_64__)
extern const rp__body_set rp__body_avx2, rp__body_avxvnni, rp__body_avx512, rp__body_avx512vnni;
#elif defined(__aarch64__)
extern const rp__body_set rp__body_neon, rp__body_neondot, rp__body_neoni8mm;
#endif

#endif
