/* Who computes what in the next step: continuous batching over the paged KV cache.
 *
 * Owns: the lists of waiting and running tasks, and the plan of a step. Knows no device, no text
 * and no clock: time is an argument. The caller plans, runs the step, commits it, and appends to
 * its tasks the tokens that came out.
 *
 * Order: a task ranks by when it arrived, a step of priority counting as RP_SCHED_AGING_NS of
 * waiting. The order of two tasks never changes, so that each is overtaken only by those that came
 * within that time of it: nobody starves.
 *
 * A step computes one token of every task that is answering, then prompts in order of rank up to
 * what is left of max_tokens, and up to prefill_chunk when anybody is answering: no stream waits
 * for more than that. A quarter of it goes first to the prompt that has least left, so that short
 * ones need not wait for a long one.
 *
 * A task is let in when a place among max_seqs is free and the blocks for all of its tokens so far
 * are; the one that ranks first is waited for. Blocks are taken as they are needed. When they run
 * out, the running task that ranks last goes back to the waiting ones and is computed again later,
 * the same tokens to the bit. The first in rank is never put back, so work always gets done. */
#ifndef RP_ENGINE_SCHED_H
#define RP_ENGINE_SCHED_H

#include "engine/kv.h"

#define RP_SCHED_AGING_NS     INT64_C(10000000000)
#define RP_SCHED_MAX_PRIORITY 1000000 /* either way: ranks stay far from overflow */

typedef enum rp__task_phase { RP_TASK_NEW, RP_TASK_WAITING, RP_TASK_RUNNING } rp__task_phase;

typedef struct rp__task rp__task;
struct rp__task {
    /* The caller's. */
    const int32_t *tokens; /* prompt, then the answer so far */
    int64_t n_tokens, n_prompt;
    int32_t priority;
    bool wants_all_rows; /* logits of every prompt position, so nothing is found cached */
    uint64_t arrival_ns, deadline_ns; /* 0: no deadline */
    rp__kv_seq seq;                   /* initialised, with room for all tokens there may be */

    /* The scheduler's; may be read. */
    rp__task_phase phase;
    int64_t n_computed;
    int64_t n_cached; /* prompt tokens that were found when they were first wanted */
    uint32_t n_preemptions;
    uint64_t started_ns; /* when it was first part of a plan; 0: not yet */

    /* The scheduler's alone. */
    int64_t rank;
    uint64_t number; /* among equal ranks */
    int32_t n_planned;
    rp__task *prev, *next;           /* waiting */
    rp__task *leader, *first, *also; /* of one prompt: who computes it; the first and the next of
                                        those that wait for it */
};

typedef struct rp__sched_config {
    int32_t max_seqs;      /* tasks running, and rows of logits in a step */
    int32_t max_tokens;    /* of a step, >= max_seqs */
    int32_t prefill_chunk; /* >= 1 */
    int32_t prompt_align;  /* prompts are cut at multiples of so many positions where they can be;
                              0 is 1 */
} rp__sched_config;

/* The next n_tokens tokens of a task. The last n_rows of them give logits. */
typedef struct rp__plan_item {
    rp__task *task; /* NULL: it was removed since */
    int32_t n_tokens, n_rows;
} rp__plan_item;

typedef struct rp__plan {
    rp__plan_item *items; /* [n_items] at most max_seqs */
    rp__kv_copy *copies;  /* [n_copies] to be made in this order, before the step */
    int32_t n_items, n_copies;
    int32_t n_tokens, n_rows; /* sums */
    int32_t n_prompt_tokens;  /* of n_tokens: not of answering tasks */
} rp__plan;

typedef struct rp__sched_stats {
    uint64_t n_preemptions, n_prefix_queries, n_prefix_hits; /* the latter two in tokens */
} rp__sched_stats;

typedef struct rp__sched {
    rp__sched_config config;
    rp__kv *kv;
    rp__task **running; /* [max_seqs] in order of rank */
    int32_t n_running, n_waiting;
    rp__task *first_waiting, *last_waiting;
    rp__plan plan;
    uint64_t last_number;
    uint64_t next_deadline_ns; /* no deadline is earlier; UINT64_MAX: there is none */
    rp__sched_stats stats;
} rp__sched;

rp_status rp__sched_init(rp__sched *s, const rp__sched_config *config, rp__kv *kv, rp_error *err);
void rp__sched_clear(rp__sched *s);

/* The task waits. Its memory is the caller's, and stays until it is removed. */
void rp__sched_add(rp__sched *s, rp__task *task);
/* Before both are added, the leader first: tasks of one prompt, of which the followers wait until
 * their leader has computed it, see fork. */
void rp__task_follow(rp__task *leader, rp__task *follower);
/* In any phase; its blocks are given back. */
void rp__sched_remove(rp__sched *s, rp__task *task);

/* A task whose deadline is over, NULL when there is none. The caller removes it and asks again. */
rp__task *rp__sched_expired(rp__sched *s, uint64_t now_ns);

/* What the next step computes; valid until the next call of plan. Nothing (n_items 0) only when
 * there is no task. */
const rp__plan *rp__sched_plan(rp__sched *s, uint64_t now_ns);
/* When all tasks of the plan are answering: blocks for n_steps steps of theirs in a row, of which
 * the plan is the first, as far as there are blocks without taking those of others. Returns for how
 * many steps. */
int32_t rp__sched_extend(rp__sched *s, int32_t n_steps);
/* The step was run: its tokens are computed. Before tokens are appended. Once more for each step
 * that followed, when the tokens of the one before it are. */
void rp__sched_commit(rp__sched *s);

/* After commit, when the whole prompt of `leader` is computed and nothing was appended yet: the
 * next follower that finds a place, now as far as its leader; the same logits are its. NULL: no
 * more, and those that found no place are tasks like any other. */
rp__task *rp__sched_fork(rp__sched *s, rp__task *leader, uint64_t now_ns);

/* Some task there is, running or waiting; NULL: none. */
rp__task *rp__sched_any(const rp__sched *s);

#endif
