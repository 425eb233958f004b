/* What this machine can do at most: memory read by 1 to all threads, products and sums of each
 * instruction set that runs here. */
#ifndef RP_DEVICE_CPU_LIMITS_H
#define RP_DEVICE_CPU_LIMITS_H

#include "device/cpu/body.h"

/* rp_device_api.limits over pools of its own. */
rp_status rp__cpu_limits(int n_threads, size_t read_bytes, rp_device_limit_fn on_row, void *user,
                         rp_error *err);

#endif
