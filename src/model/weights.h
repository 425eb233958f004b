/* Weights: what a model needs from its checkpoint, where each goes on the device, and bringing them
 * there; and copies in the host's memory of those that ops on the host read.
 *
 * Use: declare everything (shapes are checked, nothing is allocated on the device), see the bytes,
 * then load. Owns: the one device buffer of all weights, and the one of the copies. Borrows: the
 * checkpoint, until load returns. */
#ifndef RP_MODEL_WEIGHTS_H
#define RP_MODEL_WEIGHTS_H

#include "base/arena.h"
#include "device/device.h"
#include "file/checkpoint.h"
#include "reprise/common.h"

/* Consecutive rows of one matrix (or elements of one vector) of the checkpoint. */
typedef struct rp__weight_piece {
    const unsigned char *data;
    int64_t n_rows;
    rp__checkpoint_tensor from;
} rp__weight_piece;

typedef struct rp__weight_job {
    rp_tensor *dst; /* gets its buffer and offset at load */
    const char *name;
    rp_dtype source_dtype;
    rp__weight_piece *pieces;
    int32_t n_pieces;
    bool is_made; /* not in the file: its values are given before load */
    const float *values;
    size_t place, bytes;
    rp_tensor *copy; /* on the host; NULL: none is wanted */
    size_t copy_place;
} rp__weight_job;

typedef struct rp__weights {
    rp_device *device;
    const rp__checkpoint *checkpoint;
    rp__weight_job *jobs;
    int32_t n_jobs, jobs_cap;
    bool *is_used; /* per checkpoint tensor */
    rp__arena arena;
    rp_buffer *buffer;
    size_t bytes;    /* on the device */
    rp_device *host; /* where the copies are; NULL: there are none */
    rp_buffer *host_buffer;
    size_t host_bytes;
    int64_t n_params; /* elements of the checkpoint's tensors that are used */
} rp__weights;

/* One part of a matrix made from several: all rows of a tensor, or the rows of every group: of each
 * `group_rows` rows, `n_rows` from `first`. */
typedef struct rp__weight_part {
    const char *name;
    int64_t group_rows, first, n_rows; /* group_rows 0: all */
} rp__weight_part;

rp_status rp__weights_init(rp__weights *w, rp_device *device, const rp__checkpoint *c,
                           rp_error *err);
void rp__weights_clear(rp__weights *w); /* frees the device buffer too */

/* Declares a matrix [n, k] made of the rows of its parts in order. All parts must have one dtype
 * (RP_EFORMAT names the odd one; rp__weights_same_dtype asks first). RP_ENOTFOUND names a missing
 * tensor. */
rp_status rp__weights_matrix(rp__weights *w, rp_tensor *dst, const char *label, int n_parts,
                             const rp__weight_part *parts, int64_t n, int64_t k, rp_error *err);
bool rp__weights_same_dtype(const rp__weights *w, int n_parts, const rp__weight_part *parts);
/* Declares a vector [n], stored as F32. */
rp_status rp__weights_vector(rp__weights *w, rp_tensor *dst, const char *label, int n_parts,
                             const rp__weight_part *parts, int64_t n, rp_error *err);
/* Declares a dense F32 matrix [n, k] that the file does not have. */
rp_status rp__weights_values(rp__weights *w, rp_tensor *dst, const char *label, int64_t n,
                             int64_t k, rp_error *err);
/* Its values, which must stay until load returns; before every load. */
void rp__weights_set_values(rp__weights *w, const rp_tensor *dst, const float *values);

/* The copy of a weight, by its tensor, that load makes on `host` once; loading again (after a loss
 * of the device) leaves it. Before load; the same device every time. NULL: out of memory. */
const rp_tensor *rp__weights_copy(rp__weights *w, const rp_tensor *weight, rp_device *host);

bool rp__weights_has(const rp__weights *w, const char *name);
void rp__weights_ignore(rp__weights *w, const char *name); /* a known tensor that is not needed */
/* Every tensor of the file must have been used: what a family does not know changes what it
 * computes. */
rp_status rp__weights_check_all_used(const rp__weights *w, const char *architecture, rp_error *err);

/* Allocates the buffer unless it is there, and writes everything, reporting bytes done through
 * `progress` (may be NULL). */
rp_status rp__weights_load(rp__weights *w, rp_progress_fn progress, void *user, rp_error *err);

#endif
