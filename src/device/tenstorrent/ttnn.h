/* ttnn as the rest of this device sees it: tensors by number, functions by name.
 *
 * Owns: the process that runs ttnn, and what goes to and fro. Knows nothing of buffers, views or
 * graphs. This is the seam: a build on tt-metal's C++ interface would stand behind the same
 * functions, and nothing else of the device would change.
 *
 * The caller gives the numbers: a result can be named before the call has run, so calls are sent
 * without waiting. One thread at a time. */
#ifndef RP_DEVICE_TENSTORRENT_TTNN_H
#define RP_DEVICE_TENSTORRENT_TTNN_H

#include <stdbool.h>

#include "reprise/status.h"

typedef struct rp__ttnn rp__ttnn;
typedef uint32_t rp__ttnn_id; /* of a tensor there; 0: none */

enum { RP_TTNN_MAX_TENSORS = 8, RP_TTNN_MAX_INTS = 16, RP_TTNN_MAX_FLOATS = 4 };

typedef struct rp__ttnn_call {
    const char *function; /* of the glue: "linear", "make" */
    const char *text;     /* a word of its parameters, or NULL */
    rp__ttnn_id in[RP_TTNN_MAX_TENSORS], out[RP_TTNN_MAX_TENSORS]; /* 0: absent */
    int64_t ints[RP_TTNN_MAX_INTS];
    double floats[RP_TTNN_MAX_FLOATS];
    int n_in, n_out, n_ints, n_floats;
    const void *data; /* sent along */
    size_t bytes;
} rp__ttnn_call;

typedef struct rp__ttnn_config {
    const char *python;        /* the interpreter that has ttnn; NULL: python3 on the PATH */
    size_t trace_region_bytes; /* 0: as much as traces turn out to need */
} rp__ttnn_config;

typedef struct rp__ttnn_info {
    char arch[32], grid[32], kind[32]; /* kind: "card", "simulator" or "fake" */
    char ttnn[32], python[32];
    size_t memory_bytes;
} rp__ttnn_info;

/* Starts the interpreter, imports ttnn and opens its first device. RP_ENOTFOUND when there is no
 * interpreter; RP_EDEVICE with one sentence about what is missing there. */
rp_status rp__ttnn_open(const rp__ttnn_config *config, rp__ttnn **out, rp__ttnn_info *info,
                        rp_error *err);
void rp__ttnn_close(rp__ttnn *t); /* NULL is fine; a process that does not answer is ended */

/* Sends a call and does not wait. A failure there shows at the next ask; what was sent in between
 * was skipped. */
rp_status rp__ttnn_send(rp__ttnn *t, const rp__ttnn_call *call, rp_error *err);
/* What was sent leaves now, so that it runs while the host goes on. */
rp_status rp__ttnn_flush(rp__ttnn *t, rp_error *err);
/* Sends, waits, and copies the answer, which must have `n` bytes, to `answer`. RP_EDEVICE: this
 * call or one before it failed; RP_EDEVICE_LOST: the process is gone. */
rp_status rp__ttnn_ask(rp__ttnn *t, const rp__ttnn_call *call, void *answer, size_t n,
                       rp_error *err);
/* As above; the answer is a text of at most cap - 1 bytes. */
rp_status rp__ttnn_ask_text(rp__ttnn *t, const rp__ttnn_call *call, char *answer, size_t cap,
                            rp_error *err);

#endif
