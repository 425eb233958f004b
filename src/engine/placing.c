#include "engine/placing.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"

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

static rp_status choose(const char *mode, const rp_engine_options *o, rp_device *device,
                        rp__stepper_config *c, rp_error *err) {
    const char *rules = rp__device_props(device)->host_rules;
    bool has_rules = rules && *rules, is_auto = !strcmp(mode, "auto");
    if (is_auto || !strcmp(mode, "host-free"))
        RP_TRY(begin(&c->placements[c->n_placements++], "host-free", NULL, RP_PLACE_NO_RULE,
                     o->place, err));
    if (!strcmp(mode, "hybrid") && !has_rules)
        return rp__fail(err, RP_EINVAL, "device %s has no rules for a hybrid placement",
                        rp__device_name(device));
    if (!strcmp(mode, "hybrid") || (is_auto && has_rules))
        RP_TRY(begin(&c->placements[c->n_placements++], "hybrid", rules, RP_PLACE_DEVICE_RULE,
                     o->place, err));
    if (c->n_placements) return RP_OK;
    return rp__fail(err, RP_EINVAL, "placement \"%s\" is not known: auto, host-free or hybrid",
                    mode);
}

rp_status rp__placing_choose(const rp_engine_options *o, rp_device *device, rp__stepper_config *c,
                             rp_error *err) {
    RP_TRY(choose(o->placement ? o->placement : "auto", o, device, c, err));
    return check_sides(c, device, err);
}
