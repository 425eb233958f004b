/* Small types that several public headers and the layers below the engine share: log, progress,
 * capture mode. */
#ifndef REPRISE_COMMON_H
#define REPRISE_COMMON_H

#include <stdbool.h>

#include "reprise/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum rp_log_level { RP_LOG_DEBUG, RP_LOG_INFO, RP_LOG_WARN, RP_LOG_ERROR } rp_log_level;
typedef void (*rp_log_fn)(void *user, rp_log_level level,
                          const char *line); /* from any thread; no newline */
/* The library never prints: it calls this, for lines of at least `least`. NULL (the default):
 * silence. */
RP_API void rp_log_set(rp_log_fn fn, void *user, rp_log_level least);

typedef enum rp_capture_mode {
    RP_CAPTURE_AUTO, /* a step is replayed where replay was measured to win */
    RP_CAPTURE_ON,   /* every step that can be is replayed once it is warm */
    RP_CAPTURE_OFF   /* every step runs op by op; the same tokens, to the bit */
} rp_capture_mode;

/* What a matmul with block-quantised weights does to its activations. */
typedef enum rp_activations {
    RP_ACTIVATIONS_F32, /* nothing: the logits are those of the file's weights in float32 */
    RP_ACTIVATIONS_Q16, /* rounds them to 16-bit blocks: nearly the same logits, faster */
    RP_ACTIVATIONS_Q8,  /* rounds them to 8-bit blocks, as llama.cpp does: faster still, noisier */
    RP_ACTIVATIONS_AUTO /* Q16 on a device that rounds, else F32 */
} rp_activations;

/* Progress of loading, 0..1, from the calling thread. Returning true stops the load
 * (RP_ECANCELLED). */
typedef bool (*rp_progress_fn)(void *user, double fraction, const char *what);

#ifdef __cplusplus
}
#endif
#endif
