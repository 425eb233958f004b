/* The cpu device: host memory, a pool of worker threads, weights in panels, and the thread script
 * as its graph. */
#ifndef RP_DEVICE_CPU_CPU_H
#define RP_DEVICE_CPU_CPU_H

#include "reprise/device.h"

/* rp_device_config.options: "isa=avx512|avx2|generic|reference" (default: the best this machine
 * runs). */
extern const rp_device_api rp__cpu_api;

#endif
