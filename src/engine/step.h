/* Steps: one forward pass of a model for one batch, through the program of the smallest bucket that
 * holds it.
 *
 * Owns: the programs (one per bucket and placement), their shared arenas, input and output buffers,
 * the KV cache's memory, the replay policy, and the host staging of inputs and logits. All of it is
 * planned by create and allocated by load; a step allocates nothing. Threads: the engine's one. */
#ifndef RP_ENGINE_STEP_H
#define RP_ENGINE_STEP_H

#include "engine/parts.h"
#include "model/model.h"
#include "plan/choice.h"
#include "plan/replay.h"

typedef struct rp__stepper_config {
    int32_t max_seqs, max_tokens; /* largest batch; planning lowers max_tokens, to max_seqs at the
                                     least, where a device's watchdog asks for shorter ops */
    int32_t n_steps; /* most steps of a visit (rp__batch.n_steps); 0 is 1 */
    int32_t n_blocks, block_size; /* KV cache, with the sink block */
    rp_dtype k_type, v_type;
    rp__replay_config replay;
    /* Given: cleared with the stepper. None: everything on the device that it runs. Two: the second
     * one puts more on the host, and which is used is decided per bucket. */
    rp__placement placements[2];
    int n_placements;
} rp__stepper_config;

typedef struct rp__stepper {
    rp__stepper_config config;
    rp__model *model;
    rp_device *device;
    rp__bucket buckets[RP_MAX_BUCKETS];
    int n_buckets;
    rp__program *programs; /* [placements, buckets] */
    rp__choice *choices;   /* per bucket */
    rp__side_memory memory[RP_N_SIDES];
    rp__side_bytes bytes[RP_N_SIDES];
    rp_buffer *cache;
    size_t cache_bytes;
    rp__replayer replay;
    rp__batch batch;        /* filled by the caller between steps */
    rp__parts parts;        /* of it, where prompts are steps of their own */
    unsigned char *staging; /* the inputs of a step as the device gets them */
    unsigned char *known;   /* as they stand on the device: what is the same is not written again */
    size_t n_known;         /* bytes of it; 0: nothing is known */
    const float *logits;    /* [n_rows, V] of the last step */
    float *read_logits;     /* [max_seqs, V], where the device's memory is not the host's */
    int32_t n_steps;        /* that the last visit made, of those that were wanted */
    int32_t *best;          /* [n_steps, n_rows] the best token of each row, when has_best */
    float *part_logits;     /* [max_seqs, V] of a part of it */
    int32_t *part_best;
    bool has_best; /* the last step was greedy, on a device that picks tokens: no logits */
} rp__stepper;

/* Dry run: builds every bucket's program and knows all bytes. Nothing is allocated on the device
 * yet. The model must be declared, and outlives the stepper. */
rp_status rp__stepper_plan(rp__stepper *s, rp__model *model, const rp__stepper_config *config,
                           rp_error *err);
/* Bytes on one side besides the weights. */
size_t rp__stepper_bytes(const rp__stepper *s, rp__side side);

/* Allocates and binds; the weights must be loaded. */
rp_status rp__stepper_load(rp__stepper *s, rp_error *err);
/* Prompts are best cut at multiples of so many positions: 1 where it does not matter. */
int32_t rp__stepper_prompt_align(const rp__stepper *s);
void rp__stepper_clear(rp__stepper *s);

/* Copies a KV block, before the step that is run next. */
rp_status rp__stepper_copy_block(rp__stepper *s, int32_t from, int32_t to, rp_error *err);

/* Runs s->batch. On success s->logits has n_rows rows of V, until the next step, or s->best as many
 * tokens. n_tokens <= max_tokens, n_seqs and n_rows <= max_seqs.
 *
 * With batch.n_steps > 1, which wants one token of every sequence, all rows, is_greedy, and KV
 * blocks for as many positions: that step and those after it, each with the tokens that the one
 * before it picked, in one visit of the host. s->n_steps says how many it made: one alone where the
 * placement in use has ops on the host. */
rp_status rp__stepper_run(rp__stepper *s, rp_error *err);

/* After the device was lost: destroys the graphs, opens the device again, and writes everything
 * that a step needs. The KV cache is empty. Afterwards the next step runs; on failure the device is
 * still lost, and this may be tried again. */
rp_status rp__stepper_reopen(rp__stepper *s, rp_error *err);

/* Measures s->batch in the programs of one bucket, which must hold it: n_pairs pairs of eager and
 * replay for each placement there is (out[1] is left alone when there is one), and chooses between
 * placements by that. `samples` has room for 3 * n_pairs. */
rp_status rp__stepper_measure(rp__stepper *s, int bucket, int32_t n_pairs, double *samples,
                              rp__replay_report out[2], rp_error *err);

/* Captures every bucket now, on padding. */
rp_status rp__stepper_capture_all(rp__stepper *s, rp_error *err);

#endif
