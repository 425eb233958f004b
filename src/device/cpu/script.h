/* Thread script: ops in order, each with its operands' addresses resolved, ready to be walked by
 * all workers of a pool at once. It is the cpu device's graph, and a script of one step is how it
 * runs an op eagerly: same code, same bits.
 *
 * Compiling decides three things per step. Is it split: sharing out small ops costs more than it
 * saves; every worker runs them for itself, the first on the real operands, the others on copies,
 * or worker 0 does so alone. Has each worker one part, or are there more, which workers take as
 * they come: long ops, since one core is often slower than another. Is there a barrier before it:
 * only when it touches bytes that another worker may have touched since the last one (read after
 * write, write after read, write after write).
 *
 * Addresses are baked in: buffers used by a script stay where they are as long as it lives. Live
 * row counts are read from memory when a step runs. Replay allocates nothing. */
#ifndef RP_DEVICE_CPU_SCRIPT_H
#define RP_DEVICE_CPU_SCRIPT_H

#include "device/cpu/body.h"
#include "device/cpu/pool.h"

/* Scratch: `each` bytes per worker, then `shared` bytes for all, 64-byte aligned; grows only. */
typedef struct rp__scratch {
    char *bytes;
    size_t each, shared;
    int n_workers;
} rp__scratch;

/* False: out of memory, nothing changed. */
bool rp__scratch_reserve(rp__scratch *s, size_t each, size_t shared);
void rp__scratch_clear(rp__scratch *s);

typedef struct rp__script rp__script;

rp_status rp__script_create(const rp__body_set *set, rp__script **out, rp_error *err);
void rp__script_destroy(rp__script *s); /* NULL is fine */

/* Appends an op (copied), or a copy of bytes. */
rp_status rp__script_add(rp__script *s, const rp_op *op, rp_error *err);
rp_status rp__script_add_copy(rp__script *s, void *dst, const void *src, size_t n, rp_error *err);

/* Decides splits and barriers for this many workers. */
rp_status rp__script_compile(rp__script *s, int n_workers, rp_error *err);

/* Gives back the memory for further steps. */
void rp__script_trim(rp__script *s);

/* Forgets the steps and keeps the memory. */
void rp__script_reset(rp__script *s);

void rp__script_run(rp__script *s, rp__pool *pool, const rp__scratch *scratch);

size_t rp__script_bytes(const rp__script *s);
size_t rp__script_bytes_of(size_t n_steps);     /* of one with so many steps, trimmed */
size_t rp__script_scratch(const rp__script *s); /* bytes per worker that its ops need */
size_t rp__script_shared(const rp__script *s);  /* and for all workers together */
size_t rp__script_barriers(const rp__script *s);

#endif
