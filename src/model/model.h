/* A model on a device: hyperparameters, weights, KV cache tensors, and the program of any bucket.
 *
 * Models say what to compute. They never capture, replay, synchronise, place or pick a kernel.
 * Order of use: declare (reads the file, allocates nothing on the device) -> plan programs -> load
 * -> bind. */
#ifndef RP_MODEL_MODEL_H
#define RP_MODEL_MODEL_H

#include "model/hparams.h"
#include "model/weights.h"
#include "plan/program.h"

typedef struct rp__model rp__model;

/* What a family provides: one file, one row in the table of model.c. */
typedef struct rp__family {
    const char *name;
    /* True when the family runs this architecture: GGUF's general.architecture or config.json's
     * model_type. */
    bool (*knows)(const char *architecture, bool is_gguf);
    rp_status (*read_hparams)(rp__model *m, rp_error *err);
    rp_status (*declare_weights)(rp__model *m, rp_error *err);
    void (*build)(const rp__model *m, rp__program *p);
} rp__family;

/* A linear layer: y = x w^T + b. b.n_dims is 0 without bias; w.n_dims is 0 when the layer is
 * absent. */
typedef struct rp__linear {
    rp_tensor w, b;
} rp__linear;

typedef struct rp__layer {
    rp_tensor attn_norm, ffn_norm, q_norm, k_norm; /* n_dims 0: absent */
    rp__linear qkv; /* fused when the three have one dtype; else absent and: */
    rp__linear q, k, v;
    rp__linear o;
    rp__linear gate_up; /* fused likewise; else: */
    rp__linear gate, up;
    rp__linear down;
    rp_tensor k_cache, v_cache; /* [P, K, S, D] */
} rp__layer;

struct rp__model {
    const rp__family *family;
    const rp__checkpoint *checkpoint;
    rp_device *device;
    rp__host host; /* for ops that stand there; its config may be set before programs are built */
    char architecture[64];
    int64_t n_ctx; /* the engine's context: length of the rope table */
    rp__hparams h;
    rp__weights weights;
    rp_tensor embed, rope_table, output_norm;
    rp__linear head;
    rp__layer *layers;
    float *rope_values;      /* host copy of the table until loaded */
    int32_t n_fed;           /* > 1: decode steps feed their best tokens to the next one, and keep
                                the last so many in "past"; said before programs are built */
    int activation_bits;     /* that matmuls with block-quantised weights round to; 0: F32 */
    rp__arena arena;
};

/* Finds the family, reads hyperparameters, declares weights. n_ctx: positions wanted, 0 for the
 * model's own up to n_ctx_default. The checkpoint and device must outlive the model. */
rp_status rp__model_declare(const rp__checkpoint *c, rp_device *device, int64_t n_ctx,
                            int64_t n_ctx_default, rp__model **out, rp_error *err);
void rp__model_destroy(rp__model *m);

/* Declares the KV cache's tensors; n_blocks counts the sink block 0 too. Their buffer is given with
 * set_cache. */
void rp__model_declare_cache(rp__model *m, rp_dtype k_type, rp_dtype v_type, int64_t n_blocks,
                             int64_t block_size);
size_t rp__model_cache_bytes(const rp__model *m, const rp_device *on);
/* At least cache_bytes, pinned; on the device, or on the host when its ops stand there. */
void rp__model_set_cache(rp__model *m, rp_buffer *buffer);

/* Decides to what matmuls round their activations: before programs are built. RP_EUNSUPPORTED when
 * Q16 or Q8 is asked for and the device cannot. */
rp_status rp__model_set_activations(rp__model *m, rp_activations mode, rp_error *err);

/* Says the ops of a step of the program's bucket. Inputs: "ids" [T], "pos" [T], "seq" [T], "slots"
 * [T], "table" [B + 1, M], "rows" [R], "live_tokens" [1], "live_rows" [1], all I32; output:
 * "logits" [R, V], and on devices that pick tokens "best" [R]. M = blocks of n_ctx positions. Decode
 * steps that feed themselves have "past" [n_fed, T], newest last, for "slots" and "best". */
void rp__model_build(const rp__model *m, rp__program *p);

/* A key over what a decode step of one token computes, in order: ops, their widths, types of
 * weights; not the sizes of contexts and batches. After a cache was declared. */
rp_status rp__model_fingerprint(const rp__model *m, uint64_t *out, rp_error *err);

/* Loads the weights; again, after the device was reopened. */
rp_status rp__model_load(rp__model *m, rp_progress_fn progress, void *user, rp_error *err);

/* ---- reading metadata of either form, for families ---- */

bool rp__model_is_gguf(const rp__model *m);
/* GGUF: key "{architecture}.{key}". RP_ENOTFOUND when absent (and no error is written when err is
 * NULL). */
rp_status rp__model_gguf_int(const rp__model *m, const char *key, int64_t *out, rp_error *err);
rp_status rp__model_gguf_float(const rp__model *m, const char *key, double *out, rp_error *err);
/* config.json: a field, with the default used when it is absent or null; a wrong type is an error
 * that names it. */
rp_status rp__model_json_int(const rp__model *m, const json_t *object, const char *field,
                             int64_t fallback, int64_t *out, rp_error *err);
rp_status rp__model_json_float(const rp__model *m, const json_t *object, const char *field,
                               double fallback, double *out, rp_error *err);

#endif
