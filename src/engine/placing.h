/* From what the caller asked for to the placements that steps are planned with; and where tuned
 * profiles are. */
#ifndef RP_ENGINE_PLACING_H
#define RP_ENGINE_PLACING_H

#include "engine/step.h"
#include "plan/tune.h"
#include "reprise/reprise.h"

/* Fills c->placements, which are then the config's to give away or clear, also after a failure.
 * RP_EINVAL: a rule that cannot be read, or one that cannot hold on this device. RP_EFORMAT: a
 * tuned profile that cannot be read, or that was measured elsewhere. */
rp_status rp__placing_choose(const rp_engine_options *o, rp__model *m, rp__stepper_config *c,
                             rp_error *err);

/* What a profile of this model on its device holds for. Opens the host's side. */
rp_status rp__placing_about(rp__model *m, rp__tune_about *out, rp_error *err);

/* Where `reprise tune` puts a profile, and "tuned" looks for it; false: out of memory. */
bool rp__placing_path(const rp__tune_about *about, rp__bytes *out);

#endif
