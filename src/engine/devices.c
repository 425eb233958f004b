/* The devices there are, as callers of the library see them. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/log.h"
#include "base/options.h"
#include "engine/engine_impl.h"

static void set_path(void) {
    rp_error err = {0};
    if (rp__device_set_path(rp__options_env("REPRISE_DEVICE_PATH"), &err) < 0)
        rp__log(RP_LOG_ERROR, "REPRISE_DEVICE_PATH: %s", err.message);
}

void rp__devices_prepare(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, set_path);
}

rp_status rp_device_selftest(const char *name, const char *options, uint32_t n_rounds,
                             rp_error *err) {
    rp_device_config config = {.bytes = sizeof config, .options = options};
    rp_device *device;
    rp__devices_prepare();
    RP_TRY(rp__device_open(name, &config, &device, err));
    rp_status status = rp__device_selftest(device, n_rounds, err);
    rp__device_close(device);
    return status;
}

bool rp_device_info_at(size_t i, rp_device_info *out) {
    rp__devices_prepare();
    const char *name = rp__device_name_at(i);
    if (!name) return false;
    rp_device_info full = {.bytes = out->bytes};
    rp_error err = {0};
    rp_device *device = NULL;
    snprintf(full.name, sizeof full.name, "%s", name);
    if (rp__device_open(name, NULL, &device, &err) == RP_OK) {
        const rp_device_properties *p = rp__device_props(device);
        full.usable = true;
        full.has_capture = p->has_capture;
        full.is_simulated = p->is_simulated;
        full.memory_bytes = p->memory_bytes;
        snprintf(full.description, sizeof full.description, "%s", p->description);
        rp__device_close(device);
    } else {
        snprintf(full.note, sizeof full.note, "%.255s", err.message);
    }
    memcpy(out, &full, out->bytes < sizeof full ? out->bytes : sizeof full);
    return true;
}
