/* From what the caller asked for to the placements that steps are planned with. */
#ifndef RP_ENGINE_PLACING_H
#define RP_ENGINE_PLACING_H

#include "engine/step.h"
#include "reprise/reprise.h"

/* Fills c->placements, which are then the config's to give away or clear, also after a failure.
 * RP_EINVAL: a rule that cannot be read, or one that cannot hold on this device. */
rp_status rp__placing_choose(const rp_engine_options *o, rp_device *device, rp__stepper_config *c,
                             rp_error *err);

#endif
