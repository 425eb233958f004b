#include "engine/placing.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "engine/engine_impl.h"
#include "file/mapping.h"

/* A placement of its own name with the rules that hold in every one: what the caller overrides. */
static rp_status begin(rp__placement *p, const char *name, const char *rules, rp__place_why why,
                       const char *overrides, rp_error *err) {
    snprintf(p->name, sizeof p->name, "%s", name);
    if (rules) RP_TRY(rp__placement_add(p, rules, why, err));
    return overrides ? rp__placement_add(p, overrides, RP_PLACE_OVERRIDE, err) : RP_OK;
}

/* On a device in the host's memory there is no other side. */
static rp_status check_sides(const rp__stepper_config *c, rp_device *device, rp_error *err) {
    if (!rp__device_props(device)->is_host_memory) return RP_OK;
    for (int i = 0; i < c->n_placements; i++)
        if (rp__placement_has_host(&c->placements[i]))
            return rp__fail(err, RP_EINVAL,
                            "device %s works in the host's memory: nothing can be placed beside it",
                            rp__device_name(device));
    return RP_OK;
}

/* ---- tuned profiles ---- */

enum { MOST_PROFILE_BYTES = 1 << 20, SMALLEST_BLOCK = 1 };

rp_status rp__placing_about(rp__model *m, rp__tune_about *out, rp_error *err) {
    RP_TRY(rp__host_open(&m->host, err));
    *out = (rp__tune_about){.build = RP_VERSION,
                            .device = rp__device_name(m->device),
                            .identity = rp__device_props(m->device)->description,
                            .host = rp__device_props(m->host.device)->description};
    /* Steps are described over a cache: of any size, which planning declares anew. */
    if (!m->layers[0].k_cache.n_dims) rp__model_declare_cache(m, RP_F16, RP_F16, 2, SMALLEST_BLOCK);
    return rp__model_fingerprint(m, &out->model, err);
}

bool rp__placing_path(const rp__tune_about *about, rp__bytes *out) {
    char name[128];
    snprintf(name, sizeof name, "%.64s-%016" PRIx64 ".txt", about->device, about->model);
    return rp__cache_path(out, "tune", name);
}

static rp_status read_profile(const char *path, const rp__tune_about *about, rp__placement *p,
                              rp_error *err) {
    rp__bytes text = {0};
    rp_status st = rp__file_read(path, MOST_PROFILE_BYTES, &text, err);
    if (st >= 0) st = rp__tune_read(path, (rp__str){text.p, text.n}, about, p, err);
    rp__bytes_clear(&text);
    return st;
}

/* `path` NULL: where the profile of this model on this device is by default. */
static rp_status choose_tuned(const char *path, const rp_engine_options *o, rp__model *m,
                              rp__placement *p, rp_error *err) {
    rp__tune_about about;
    rp__bytes found = {0};
    RP_TRY(rp__placing_about(m, &about, err));
    if (!path && !rp__placing_path(&about, &found))
        return rp__fail(err, RP_ENOMEM, "out of memory for a path");
    rp_status st = read_profile(path ? path : found.p, &about, p, err);
    if (st == RP_ENOTFOUND && !path)
        st = rp__fail(err, st, "no tuned profile at %s: `reprise tune` makes it", found.p);
    rp__bytes_clear(&found);
    RP_TRY(st);
    return begin(p, "tuned", NULL, RP_PLACE_NO_RULE, o->place, err);
}

/* ---- choosing ---- */

static rp_status choose(const char *mode, const rp_engine_options *o, rp__model *m,
                        rp__stepper_config *c, rp_error *err) {
    const char *rules = rp__device_props(m->device)->host_rules;
    bool has_rules = rules && *rules, is_auto = !strcmp(mode, "auto");
    if (!strcmp(mode, "tuned") || strpbrk(mode, "/."))
        return choose_tuned(strcmp(mode, "tuned") ? mode : NULL, o, m,
                            &c->placements[c->n_placements++], err);
    if (is_auto || !strcmp(mode, "host-free"))
        RP_TRY(begin(&c->placements[c->n_placements++], "host-free", NULL, RP_PLACE_NO_RULE,
                     o->place, err));
    if (!strcmp(mode, "hybrid") && !has_rules)
        return rp__fail(err, RP_EINVAL, "device %s has no rules for a hybrid placement",
                        rp__device_name(m->device));
    if (!strcmp(mode, "hybrid") || (is_auto && has_rules))
        RP_TRY(begin(&c->placements[c->n_placements++], "hybrid", rules, RP_PLACE_DEVICE_RULE,
                     o->place, err));
    if (c->n_placements) return RP_OK;
    return rp__fail(err, RP_EINVAL,
                    "placement \"%s\" is not known: auto, host-free, hybrid, tuned, or the path of "
                    "a profile (with a / or . in it)",
                    mode);
}

rp_status rp__placing_choose(const rp_engine_options *o, rp__model *m, rp__stepper_config *c,
                             rp_error *err) {
    RP_TRY(choose(o->placement ? o->placement : "auto", o, m, c, err));
    return check_sides(c, m->device, err);
}
