/* What a device can do at most, for those who compare speeds with it. */
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "engine/engine_impl.h"

rp_bench_machine_options rp_bench_machine_options_default(void) {
    return (rp_bench_machine_options){.bytes = sizeof(rp_bench_machine_options),
                                      .read_bytes = (size_t)512 << 20};
}

static bool pass_on(void *user, const rp_device_limit *limit) {
    const rp_bench_machine_options *o = user;
    rp_machine_row row = {.n_threads = limit->n_threads, .per_second = limit->per_second};
    snprintf(row.what, sizeof row.what, "%s", limit->what);
    snprintf(row.how, sizeof row.how, "%s", limit->how);
    return o->on_row && o->on_row(o->user, &row);
}

rp_status rp_bench_machine(const rp_bench_machine_options *options, rp_error *err) {
    rp_bench_machine_options o = rp_bench_machine_options_default();
    memcpy(&o, options, options->bytes < sizeof o ? options->bytes : sizeof o);
    rp_device_config config = {
        .bytes = sizeof config, .n_threads = o.n_threads, .options = o.device_options};
    rp_device *device = NULL;
    rp__devices_prepare();
    if (!o.read_bytes) return rp__fail(err, RP_EINVAL, "read_bytes is 0");
    RP_TRY(rp__device_open(o.device ? o.device : rp__device_name_at(0), &config, &device, err));
    rp_status status = rp__device_limits(device, o.read_bytes, pass_on, &o, err);
    rp__device_close(device);
    return status;
}
