/* Blocks that families share: each says ops on a program and returns the slot of its result.
 * Letters as in device.h. */
#ifndef RP_MODEL_LAYERS_H
#define RP_MODEL_LAYERS_H

#include "model/model.h"

/* The declared inputs of a step, the same for every family. */
typedef struct rp__step_slots {
    rp__slot ids, pos, seq, slots, table, rows, live_tokens, live_rows;
    rp__slot past; /* of decode steps that feed themselves; these have no slots */
} rp__step_slots;
rp__step_slots rp__layer_inputs(rp__program *p, const rp__model *m);

rp__slot rp__layer_embed(rp__program *p, const rp_tensor *table, const char *name, rp__slot ids,
                         float scale);
/* x [T, E] or [T, H, D]; norm over the last dimension. */
rp__slot rp__layer_rms_norm(rp__program *p, const char *label, rp__slot x, const rp_tensor *w,
                            float eps);
void rp__layer_rms_norm_into(rp__program *p, const char *label, rp__slot x, const rp_tensor *w,
                             float eps, rp__slot y); /* y: as x */
/* x [T, K] to [T, N]; add: a residual [T, N] or RP_NO_SLOT. */
rp__slot rp__layer_linear(rp__program *p, const rp__model *m, const char *label, rp__slot x,
                          const rp__linear *l, rp__slot add);
void rp__layer_rope(rp__program *p, const char *label, rp__slot x, rp__slot cs,
                    rp_rope_style style); /* in place */
rp__slot rp__layer_gated(rp__program *p, const char *label, rp__slot gate, rp__slot up, rp_act act);
rp__slot rp__layer_gather(rp__program *p, rp__slot x, rp__slot rows);

/* KV write and attention of one layer: q [T,H,D], k and v [T,K,D] already rotated; to [T, H*D]. */
rp__slot rp__layer_attention(rp__program *p, const rp__model *m, int64_t layer,
                             const rp__step_slots *in, rp__slot q, rp__slot k, rp__slot v);

/* The end of a step: final norm and head on the rows asked for, output "logits" [R, V]; then the
 * positions advance, on devices that want it, and where steps feed themselves (rp__model.n_fed) the
 * best tokens become the next ids. */
void rp__layer_head(rp__program *p, const rp__model *m, const rp__step_slots *in, rp__slot x);

#endif
