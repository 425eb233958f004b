/* Whether a model fits on a device: the memory plan of a dry run, before anything big is allocated.
 * The one place of this decision: the engine refuses by it, `inspect --fit` reports it.
 *
 * Graphs are part of the need where the device can tell their size beforehand. Elsewhere they are
 * made of what is left over, and where nothing is left a step stays eager. Threads: one at a time.
 */
#ifndef RP_ENGINE_FIT_H
#define RP_ENGINE_FIT_H

#include "engine/step.h"
#include "reprise/reprise.h"

enum {
    RP_DEFAULT_CTX = 8192
}; /* positions of a sequence when nobody asks: bounds the KV cache of
      models with a long context */

/* Declares the model and plans its steps as these options ask. On success the caller destroys and
 * clears both; on failure there is nothing. */
rp_status rp__plan_engine(const rp__checkpoint *c, rp_device *device, const rp_engine_options *o,
                          rp__model **model, rp__stepper *stepper, rp_error *err);

typedef struct rp__fit {
    size_t weights, kv_cache, arena, inputs_outputs, graphs; /* device bytes by purpose */
    size_t graph_limit; /* what graphs may take: as asked, or the device's region; 0: no limit */
    bool has_region;    /* graphs take nothing of `available` */
    size_t need;        /* of `available` */
    size_t available;   /* 0: the device does not say */
    size_t host;        /* of the host's memory, beside the device, for ops that stand there */
    bool fits;
    int64_t n_ctx;
    int32_t n_seqs;
} rp__fit;

rp__fit rp__fit_of(const rp__model *model, const rp__stepper *stepper);

/* The largest context, in whole KV blocks, with which these options fit: at most the model's own
 * (or what was asked for, when that is more). 0: none does. Plans anew a few times. */
int64_t rp__fit_largest_ctx(const rp__checkpoint *c, rp_device *device, const rp_engine_options *o,
                            const rp__fit *fit);

/* RP_OK when it fits; RP_ENOMEM with needed and available bytes, of graphs or of all; the latter
 * with the largest context. */
rp_status rp__fit_check(const rp__checkpoint *c, rp_device *device, const rp_engine_options *o,
                        const rp__fit *fit, rp_error *err);

#endif
