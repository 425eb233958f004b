/* Residency: where each op of a program stands, and what has to be moved for that. */
#ifndef RP_PLAN_RESIDENCY_H
#define RP_PLAN_RESIDENCY_H

#include "plan/program.h"

/* Decides where each op stands, and puts the transfers into the op list: a slot is moved when an op
 * reads it on a side where its bytes are not, once, and stays valid on both sides until it is
 * written. Downloads stand just before the host op that needs them, uploads at the end of the run
 * of host ops that made their bytes, so that they cut no run of device ops. Fills places, traffic,
 * the host's binds and the side of outputs. RP_AGAIN as rp__program_finish. */
rp_status rp__residency_plan(rp__program *p, rp_error *err);

/* The side on which an op's inputs are: a transfer's are on the other one. */
static inline rp__side rp__op_source(const rp__op_place *place) {
    return place->is_transfer ? (rp__side)!place->side : place->side;
}

#endif
