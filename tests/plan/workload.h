/* A recorded workload for tests of the policy: the same mixed steps (decode of 1 to 32 sequences,
 * prefill of 2 to 64 tokens) on a tiny model, as often as asked, with what each cost by the
 * device's clock. */
#ifndef RP_TESTS_PLAN_WORKLOAD_H
#define RP_TESTS_PLAN_WORKLOAD_H

#include "model/tiny.h"

typedef struct workload {
    rp_tiny tiny;
    uint64_t seed;
    int32_t n_live; /* sequences decoding now */
    int32_t tables[32][2];
    uint64_t bits; /* of all logits so far */
    double total_us, by_bucket_us[RP_MAX_BUCKETS], last_us[RP_MAX_BUCKETS];
    uint64_t n_by_bucket[RP_MAX_BUCKETS];
} workload;

/* Opens the tiny model and compiles every kernel, so that times are those of steps alone. */
void workload_open(workload *w, const char *device, const char *options, rp_capture_mode mode,
                   int max_graphs);
/* The same in two steps, to set more. */
rp_tiny_config workload_config(const char *device, const char *options, rp_capture_mode mode,
                               int max_graphs);
void workload_open_config(workload *w, const rp_tiny_config *config);
void workload_close(workload *w);
void workload_run(workload *w, int n_steps);
/* One step of a kind that the caller chooses: n_tokens of one sequence, or one token of each. */
void workload_step(workload *w, int32_t n_tokens, int32_t n_seqs);

#endif
