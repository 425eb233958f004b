/* The emulated accelerator: what tests and planning tools may ask of it besides the device table.
 *
 * Owns nothing: calls are for a device opened as "emu" and panic on another. Times are simulated.
 * Options (rp_device_config.options, "key=value,..."; sizes take K, M, G):
 *   profile=NAME|FILE   costs of the virtual clock, and what the device can do (default: none)
 *   bodies=reference    reference bodies and row-major weights (default: the fast ones)
 *   isa=NAME            which fast bodies, as for cpu (default: the best of this machine)
 *   memory=BYTES        what alloc gives in all (default: 16G, taken from the host when touched)
 *   reuse=normal|always|never   first fit; the block freed last first; no address twice
 *   fill=none|ff        every byte of a block is 0xFF (NaN) after alloc, and after free
 *   record=only|run     whether ops run while they are captured
 *   capture=0|1         whether the device can capture at all
 *   graph_region=BYTES|dynamic  graphs live in a region of fixed size, or in memory
 *   hidden_temporaries=0|1      ops in graphs use temporaries that count as free to alloc
 *   live_rows=0|1       honours rp_op.live; else padded rows are computed
 *   advance=0|1         asks for positions that advance on the device
 *   prompt_align=N      asks for prompts as steps of their own, cut at multiples of N positions
 *   picks=0|1           asks for the best token of each row as a result of its own
 *   queues=1|2          a second queue for copies
 *   fail_alloc_at=N     the N-th alloc fails
 *   launch_fail_at=N    the N-th run or replay fails, the device lives on
 *   lost_at=N           the device is lost when the N-th op runs (ops in a replay count)
 *   watchdog_us=T       lost when one submit (an op, a replay) takes longer by the virtual clock
 *   estimates=0|1       tells beforehand how long an op takes, so that submits can be cut (1)
 * Faults happen once: a device that was reopened after its loss has none. */
#ifndef RP_DEVICE_EMU_EMU_H
#define RP_DEVICE_EMU_EMU_H

#include "device/device.h"

extern const rp_device_api rp__emu_api;

typedef struct rp__emu_report {
    double host_us, device_us; /* simulated: when the host thread and the device are done */
    /* since open */
    uint64_t n_launches, n_replays, n_replayed_ops, n_compiles, n_syncs, n_transfers;
    size_t live_bytes, graph_bytes;
    uint64_t n_violations; /* calls the device layer should have refused */
    char violation[200];   /* the first of them */
} rp__emu_report;

rp__emu_report rp__emu_get_report(rp_device *dev);
void rp__emu_clock_reset(rp_device *dev); /* both times to 0; the device must be idle (synced) */

/* The device is lost when the n-th op from now on runs; 0: never. */
void rp__emu_lose_at(rp_device *dev, uint64_t n);

/* Profiles built in: name and text; NULL past the end. */
const char *rp__emu_profile_at(size_t i, const char **text);

#endif
