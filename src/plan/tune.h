/* Tuned profiles: what ops of a model take on a device and on the host beside it, as a small text.
 *
 *     reprise-tune 1
 *     build 0.1.0
 *     device emu
 *     identity emulated accelerator, ...
 *     host Intel(R) Xeon(R) ..., 2 threads, ISA avx512vnni
 *     model 85c1a1f0b2c3d4e5
 *     row rms_norm rows 1 width 576 device_us 372.000 host_us 95.400 place host
 *     end 1
 *
 * A row is one size of an op. Sizes between two rows take the place of the smaller one. The text
 * holds for one build, device, host and shape of model: anything else is refused, since it was
 * measured elsewhere. Pure functions; times may be simulated ones, which `identity` says. */
#ifndef RP_PLAN_TUNE_H
#define RP_PLAN_TUNE_H

#include "base/bytes.h"
#include "plan/placement.h"

/* What a profile holds for. Borrowed strings, one line each. */
typedef struct rp__tune_about {
    const char *build;    /* version of this library */
    const char *device;   /* name */
    const char *identity; /* the device's description of itself */
    const char *host;     /* the host's */
    uint64_t model;       /* fingerprint of its ops and their widths */
} rp__tune_about;

typedef struct rp__tune_row {
    rp_op_kind kind;
    int64_t rows, width;
    double device_us, host_us; /* host: with the transfers that the op would need */
} rp__tune_row;

/* Whether ops of this kind can be placed by their size: those on the KV cache and on the step's own
 * inputs cannot. */
bool rp__tune_takes(rp_op_kind kind);

/* Where a row's op is placed. */
rp__side rp__tune_side(const rp__tune_row *row);

/* In the order of rp__tune_sort. False when out of memory. */
bool rp__tune_write(const rp__tune_about *about, const rp__tune_row *rows, size_t n,
                    rp__bytes *out);
void rp__tune_sort(rp__tune_row *rows, size_t n); /* by op, width, rows */

/* Adds the rules that the text makes to `out`. RP_EFORMAT, one sentence: `source`, line, field,
 * what was found and what was expected. */
rp_status rp__tune_read(const char *source, rp__str text, const rp__tune_about *expected,
                        rp__placement *out, rp_error *err);

#endif
