/* Placement rules: on which side an op stands, the device or the host.
 *
 * A rule is text, so that a device, a person and a measured profile say it alike:
 *
 *     OP[:CONDITION[,CONDITION...]]=PLACE      "norm:rows<32=host", "rope:rows<64,width>=128=host"
 *
 * OP is an op's name, "norm" (both norms) or "*"; a condition compares `rows` (the product of all
 * dimensions but the last of what the op makes: tokens, or tokens x heads) or `width` (the last
 * one) by < <= = >= >; PLACE is "host" or "device". Blanks or semicolons part rules; of those that
 * match, the last one said counts. Ops on the KV cache stand where the cache is, so their rules
 * have no conditions, and "*" with conditions leaves them out.
 *
 * Owns: the list of rules. Leaves to residency.c: what cannot be where a rule wants it, and what
 * has to be moved. Pure but for the list. */
#ifndef RP_PLAN_PLACEMENT_H
#define RP_PLAN_PLACEMENT_H

#include "device/device.h"

typedef enum rp__side { RP_SIDE_DEVICE, RP_SIDE_HOST, RP_N_SIDES } rp__side;

/* X(code, text): why an op stands where it stands. */
#define RP_PLACE_WHYS(X)                                                                           \
    X(RP_PLACE_NO_RULE, "")                                                                        \
    X(RP_PLACE_DEVICE_RULE, "the device's rule")                                                   \
    X(RP_PLACE_OVERRIDE, "override")                                                               \
    X(RP_PLACE_TUNED, "tuned")                                                                     \
    X(RP_PLACE_UNSUPPORTED, "the device does not run it")                                          \
    X(RP_PLACE_STATE, "the KV cache is there")

typedef enum rp__place_why {
#define RP_X(code, text) code,
    RP_PLACE_WHYS(RP_X)
#undef RP_X
        RP_N_PLACE_WHYS
} rp__place_why;

const char *rp__place_why_text(rp__place_why why); /* static */
const char *rp__side_name(rp__side side);          /* "device", "host" */

typedef struct rp__place_range {
    int64_t least, most; /* both included */
} rp__place_range;

typedef struct rp__place_rule {
    uint64_t kinds; /* bit of each rp_op_kind it is for */
    rp__place_range rows, width;
    rp__side side;
    rp__place_why why; /* who said it */
    char text[80];
} rp__place_rule;

enum { RP_PLACEMENT_NAME = 32 };

typedef struct rp__placement {
    char name[RP_PLACEMENT_NAME]; /* "host-free", "hybrid", "tuned" */
    rp__place_rule *rules;
    size_t n_rules, rules_cap;
} rp__placement;

void rp__placement_clear(rp__placement *p);

/* Appends the rules of `text`, said by `why`. RP_EINVAL names the rule and what is wrong with it;
 * what stood before stays. */
rp_status rp__placement_add(rp__placement *p, const char *text, rp__place_why why, rp_error *err);

/* The rule that counts for an op, by its shapes; NULL: none does. */
const rp__place_rule *rp__placement_find(const rp__placement *p, const rp_op *op);

bool rp__placement_has_host(const rp__placement *p); /* some rule puts something on the host */

/* What conditions compare. */
int64_t rp__place_rows(const rp_op *op);
int64_t rp__place_width(const rp_op *op);

#endif
