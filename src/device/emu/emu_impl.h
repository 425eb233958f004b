/* The emulated accelerator from inside: shared by the emu_*.c files. */
#ifndef RP_DEVICE_EMU_EMU_IMPL_H
#define RP_DEVICE_EMU_EMU_IMPL_H

#include <pthread.h>

#include "base/stress.h"
#include "device/cpu/body.h" /* lint-allow: cpu (its bodies run here, on memory of this device) */
#include "device/emu/emu.h"
#include "device/keys.h"

/* ---- emu_space.c: memory ----
 * Handles are addresses inside a reservation that nobody may touch, so a stray host access faults.
 * Kernels reach the same bytes through a second mapping, which only this device knows. */

enum { RP_EMU_ALIGN = 64 };

typedef enum rp__emu_reuse {
    RP_EMU_REUSE_NORMAL,
    RP_EMU_REUSE_ALWAYS,
    RP_EMU_REUSE_NEVER
} rp__emu_reuse;

typedef struct rp__emu_block {
    size_t offset, bytes;
    uint64_t serial; /* unique: another block at the same place has another one */
} rp__emu_block;

enum { RP_EMU_N_FREED = 64 };

typedef struct rp__emu_space {
    int fd;
    char *base, *kernel; /* [span] each: the reservation, and the mapping that kernels use */
    size_t span;
    size_t cap, live_bytes;
    rp__emu_reuse reuse;
    bool has_fill;
    rp__emu_block *live; /* by offset */
    size_t n_live, live_cap;
    rp__emu_block freed[RP_EMU_N_FREED]; /* the last ones freed, a ring */
    uint64_t n_freed;
    size_t high; /* past the highest byte ever given */
    uint64_t last_serial;
} rp__emu_space;

rp_status
rp__emu_space_open(rp__emu_space *s,
                   rp_error *err); /* cap, reuse, has_fill are set; clear even on failure */
void rp__emu_space_clear(rp__emu_space *s);
rp_status rp__emu_space_alloc(rp__emu_space *s, size_t bytes, size_t *offset, rp_error *err);
bool rp__emu_space_free(rp__emu_space *s,
                        size_t offset); /* false: something wrote past the block's end */
const rp__emu_block *rp__emu_space_find(const rp__emu_space *s,
                                        size_t offset); /* the live block holding it; or NULL */

/* ---- emu_profile.c: costs ---- */

/* X(key): each is one number per op; "key value" sets all, "key op value" one. */
#define RP_EMU_COSTS(X)                                                                            \
    X(launch_us)     /* host: launching one op eagerly */                                          \
    X(op_us)         /* device: an op launched eagerly, besides its work */                        \
    X(graph_op_us)   /* device: an op in a replay, besides its work */                             \
    X(replay_us)     /* host: launching a replay */                                                \
    X(replay_op_us)  /* host: for each op in a replay */                                           \
    X(capture_us)    /* host: ending a capture */                                                  \
    X(capture_op_us) /* host: recording an op */                                                   \
    X(compile_us)    /* host: preparing a kernel that is not in the program cache */               \
    X(sync_us)       /* host: learning that the device is done */                                  \
    X(write_us)      /* host: a write, besides its bytes */                                        \
    X(read_us)       /* host: a read, besides its bytes */                                         \
    X(write_gbps)    /* GB/s to the device; 0: no cost */                                          \
    X(read_gbps)     /* GB/s from the device */                                                    \
    X(device_gflops) /* the device's throughput; 0: no cost */                                     \
    X(device_gbps)                                                                                 \
    X(tile_rows)   /* rows of an op's output are rounded up to this for its work */                \
    X(host_us)     /* an op on the host, besides its work */                                       \
    X(host_row_us) /* and for each row of its output (product of all dimensions but the last) */   \
    X(host_gflops)                                                                                 \
    X(host_gbps)                                                                                   \
    X(host_below)   /* the device's placement rule: an op of fewer rows is faster on the host */   \
    X(watchdog_us)  /* longest submit; 0: any */                                                   \
    X(capture)      /* 1: can capture */                                                           \
    X(records_only) /* 1: ops issued during capture do not run */                                  \
    X(hides_temporaries) /* 1: as the option hidden_temporaries */

typedef enum rp__emu_cost {
#define RP_X(key) RP_EMU_##key,
    RP_EMU_COSTS(RP_X)
#undef RP_X
        RP_EMU_N_COSTS
} rp__emu_cost;

typedef struct rp__emu_profile {
    char name[64];
    double cost[RP_EMU_N_COSTS][RP_N_OPS];
} rp__emu_profile;

/* The shipped profiles, from profiles/NAME.txt; ends with a NULL name. Generated by the build. */
typedef struct rp__emu_profile_text {
    const char *name, *text;
} rp__emu_profile_text;
extern const rp__emu_profile_text rp__emu_profile_texts[];

/* By built-in name, or the path of a file (a name with a '/' or '.'). */
rp_status rp__emu_profile_load(const char *name, rp__emu_profile *out, rp_error *err);
/* `source` names the text in messages. */
rp_status rp__emu_profile_parse(const char *source, const char *text, rp__emu_profile *out,
                                rp_error *err);

/* ---- emu_stream.c: the queue ---- */

/* An op with its addresses baked in. */
typedef struct rp__emu_kernel {
    rp_op op;
    rp__body_fn fn;
    const char *in[RP_OP_MAX_IN];
    char *out[RP_OP_MAX_OUT];
    const char *live;
    rp__emu_block
        used[RP_OP_MAX_IN + RP_OP_MAX_OUT + 1]; /* blocks the addresses are in; serial 0: none */
    char *temporary; /* of an op in a graph, when temporaries are hidden */
    size_t temporary_bytes;
    double eager_us, graph_us; /* device time */
} rp__emu_kernel;

typedef struct rp__emu_graph {
    rp__emu_kernel *kernels;
    size_t n, cap;
    size_t bytes;
    double device_us;
} rp__emu_graph;

typedef enum rp__emu_cmd_kind {
    RP_EMU_KERNEL,
    RP_EMU_GRAPH,
    RP_EMU_WRITE,
    RP_EMU_COPY,
    RP_EMU_SIGNAL,
    RP_EMU_WAIT
} rp__emu_cmd_kind;

typedef struct rp__emu_cmd {
    rp__emu_cmd_kind kind;
    const rp__emu_graph *graph;
    char *dst;
    const char *src; /* COPY; a WRITE's bytes are staged */
    size_t n;
    uint64_t event;   /* SIGNAL, WAIT */
    bool is_too_long; /* longer than the watchdog allows */
    rp__emu_kernel kernel;
} rp__emu_cmd;

enum {
    RP_EMU_RING = RP_STRESSED(256, 2),
    RP_EMU_STAGE = RP_STRESSED(4096, 8),
    RP_EMU_MAX_QUEUES = 2
};

/* One queue: a ring of commands and the thread that runs them. Fields are guarded by rp__emu.lock.
 */
typedef struct rp__emu_stream {
    struct rp__emu *emu;
    rp__emu_cmd *ring;  /* [RP_EMU_RING] */
    char *stage;        /* [RP_EMU_RING][RP_EMU_STAGE]: bytes of writes in flight */
    uint64_t put, done; /* commands ever put, and ever done */
    pthread_t thread;
    bool is_started;
} rp__emu_stream;

rp_status rp__emu_stream_open(struct rp__emu *emu, uint32_t queue, rp_error *err);
void rp__emu_stream_close(rp__emu_stream *s); /* runs what is queued first */
/* A free slot of the ring, waited for; the caller fills it and puts it. One caller at a time. */
rp__emu_cmd *rp__emu_stream_slot(rp__emu_stream *s);
void rp__emu_stream_put(rp__emu_stream *s);
char *
rp__emu_stream_stage(rp__emu_stream *s); /* the staging bytes of the slot that is being filled */
void rp__emu_stream_drain(rp__emu_stream *s);

/* ---- emu.c ---- */

typedef struct rp__emu {
    rp__emu_profile profile;
    const rp__body_set *bodies;
    bool has_live_rows, has_capture, records_only, hides_temporaries, advances_positions,
        hides_estimates, picks_tokens;
    uint32_t n_queues, prompt_align;
    size_t graph_region; /* 0: dynamic */
    uint64_t fail_alloc_at, launch_fail_at;
    double watchdog_us;
    char host_rules[1024]; /* the profile's host_below as placement rules */

    rp__emu_space space;
    rp__emu_stream streams[RP_EMU_MAX_QUEUES];
    pthread_mutex_t lock;
    pthread_cond_t changed; /* anything guarded by `lock` changed */
    bool is_stopping;
    uint64_t n_run, lose_at; /* ops run, and the one at which the device is lost; 0: never */
    bool is_lost;
    char lost_text[128];
    uint64_t last_event, event_done[RP_EMU_MAX_QUEUES];

    rp__keys programs; /* the program cache */
    char *scratch;     /* of bodies, on the queue's thread */
    size_t scratch_bytes;
    rp__emu_graph *recording; /* not NULL while capturing */
    uint64_t n_alloc_calls, n_launch_calls;
    rp__emu_report report;
} rp__emu;

/* ---- emu_options.c ---- */

/* Reads config->options over the defaults, and the profile they name, into a zeroed emu with
 * space.cap set. */
rp_status rp__emu_configure(rp__emu *emu, const rp_device_config *config, rp_error *err);

#endif
