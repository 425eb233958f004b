/* Invariants: running tasks and waiting tasks are in order of rank; a waiting task holds no blocks;
 * a follower waits, behind its leader in rank and never let in before it is set free. */
#include "engine/sched.h"

#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"

rp_status rp__sched_init(rp__sched *s, const rp__sched_config *config, rp__kv *kv, rp_error *err) {
    *s = (rp__sched){.config = *config, .kv = kv, .next_deadline_ns = UINT64_MAX};
    if (s->config.prompt_align < 1) s->config.prompt_align = 1;
    size_t n = (size_t)config->max_seqs;
    s->running = rp__calloc(n, sizeof *s->running);
    s->plan.items = rp__calloc(n, sizeof *s->plan.items);
    s->plan.copies = rp__calloc(n, sizeof *s->plan.copies);
    if (s->running && s->plan.items && s->plan.copies) return RP_OK;
    rp__sched_clear(s);
    return rp__fail(err, RP_ENOMEM, "out of memory for the plan of %d sequences", (int)n);
}

void rp__sched_clear(rp__sched *s) {
    rp__free(s->running);
    rp__free(s->plan.items);
    rp__free(s->plan.copies);
    *s = (rp__sched){0};
}

/* ---- lists ---- */

static bool ranks_before(const rp__task *a, const rp__task *b) {
    return a->rank != b->rank ? a->rank < b->rank : a->number < b->number;
}

static void put_waiting(rp__sched *s, rp__task *t) {
    rp__task *after = s->last_waiting; /* newcomers mostly belong at the end */
    while (after && ranks_before(t, after)) after = after->prev;
    t->prev = after;
    t->next = after ? after->next : s->first_waiting;
    *(t->next ? &t->next->prev : &s->last_waiting) = t;
    *(after ? &after->next : &s->first_waiting) = t;
    t->phase = RP_TASK_WAITING;
    s->n_waiting++;
}

static void take_waiting(rp__sched *s, rp__task *t) {
    *(t->next ? &t->next->prev : &s->last_waiting) = t->prev;
    *(t->prev ? &t->prev->next : &s->first_waiting) = t->next;
    s->n_waiting--;
}

static void put_running(rp__sched *s, rp__task *t) {
    int32_t i = s->n_running++;
    for (; i > 0 && ranks_before(t, s->running[i - 1]); i--) s->running[i] = s->running[i - 1];
    s->running[i] = t;
    t->phase = RP_TASK_RUNNING;
}

static void take_running(rp__sched *s, const rp__task *t) {
    int32_t i = 0;
    while (s->running[i] != t) i++;
    s->n_running--;
    memmove(&s->running[i], &s->running[i + 1], (size_t)(s->n_running - i) * sizeof *s->running);
}

/* ---- tasks of one prompt ---- */

void rp__task_follow(rp__task *leader, rp__task *follower) {
    rp__task **link = &leader->first;
    while (*link) link = &(*link)->also;
    *link = follower;
    follower->leader = leader;
}

static rp__task *take_follower(rp__task *leader) {
    rp__task *t = leader->first;
    if (!t) return NULL;
    leader->first = t->also;
    t->also = t->leader = NULL;
    return t;
}

static void leave_leader(rp__task *t) {
    rp__task **link = &t->leader->first;
    while (*link != t) link = &(*link)->also;
    *link = t->also;
    t->also = t->leader = NULL;
}

/* The first follower leads the others. */
static void hand_over(rp__task *leader) {
    rp__task *next = take_follower(leader);
    if (!next) return;
    next->first = leader->first;
    leader->first = NULL;
    for (rp__task *t = next->first; t; t = t->also) t->leader = next;
}

rp__task *rp__sched_fork(rp__sched *s, rp__task *leader, uint64_t now_ns) {
    rp__assert(leader->n_computed == leader->n_tokens, "%lld of %lld tokens are computed",
               (long long)leader->n_computed, (long long)leader->n_tokens);
    if (s->n_running == s->config.max_seqs)
        while (take_follower(leader)) continue;
    rp__task *t = take_follower(leader);
    if (!t) return NULL;
    take_waiting(s, t);
    rp__kv_fork(s->kv, &leader->seq, &t->seq);
    t->n_computed = leader->n_computed;
    t->n_cached = leader->n_cached;
    t->started_ns = now_ns;
    put_running(s, t);
    return t;
}

/* ---- coming and going ---- */

void rp__sched_add(rp__sched *s, rp__task *t) {
    t->number = ++s->last_number;
    t->rank = (int64_t)t->arrival_ns + t->priority * RP_SCHED_AGING_NS;
    if (t->deadline_ns && t->deadline_ns < s->next_deadline_ns)
        s->next_deadline_ns = t->deadline_ns;
    put_waiting(s, t);
}

void rp__sched_remove(rp__sched *s, rp__task *t) {
    if (t->leader) leave_leader(t);
    hand_over(t);
    if (t->phase == RP_TASK_RUNNING)
        take_running(s, t);
    else if (t->phase == RP_TASK_WAITING)
        take_waiting(s, t);
    rp__kv_release(s->kv, &t->seq);
    t->phase = RP_TASK_NEW;
    for (int32_t i = 0; i < s->plan.n_items; i++)
        if (s->plan.items[i].task == t) s->plan.items[i].task = NULL;
}

rp__task *rp__sched_any(const rp__sched *s) {
    return s->n_running ? s->running[0] : s->first_waiting;
}

rp__task *rp__sched_expired(rp__sched *s, uint64_t now_ns) {
    if (now_ns < s->next_deadline_ns) return NULL;
    uint64_t next = UINT64_MAX;
    for (int32_t i = 0; i < s->n_running; i++) {
        rp__task *t = s->running[i];
        if (t->deadline_ns && t->deadline_ns <= now_ns) return t;
        if (t->deadline_ns && t->deadline_ns < next) next = t->deadline_ns;
    }
    for (rp__task *t = s->first_waiting; t; t = t->next) {
        if (t->deadline_ns && t->deadline_ns <= now_ns) return t;
        if (t->deadline_ns && t->deadline_ns < next) next = t->deadline_ns;
    }
    s->next_deadline_ns = next;
    return NULL;
}

/* ---- blocks ---- */

static void preempt_last(rp__sched *s) {
    rp__assert(s->n_running > 1, "a task alone finds no blocks");
    rp__task *t = s->running[s->n_running - 1];
    take_running(s, t);
    rp__kv_release(s->kv, &t->seq);
    t->n_computed = 0;
    t->n_planned = 0;
    t->n_preemptions++;
    s->stats.n_preemptions++;
    put_waiting(s, t);
}

/* Blocks that a task still needs for the tokens there are and one more. */
static int32_t n_missing(const rp__sched *s, const rp__task *t) {
    int32_t n = rp__kv_blocks_for(s->kv, t->n_tokens + 1);
    if (n > t->seq.cap) n = t->seq.cap; /* the last token of an answer is never computed */
    return n > t->seq.n_blocks ? n - t->seq.n_blocks : 0;
}

static bool may_match(const rp__sched *s, const rp__task *t) {
    bool needs_logits = t->wants_all_rows && t->n_tokens == t->n_prompt;
    return s->kv->config.has_cache && !t->seq.is_private && !needs_logits;
}

/* Looks for what comes next in the cache; returns the tokens that need not be computed. */
static int64_t match(rp__sched *s, rp__task *t) {
    int64_t had = t->n_computed;
    if (!may_match(s, t) || had != (int64_t)t->seq.n_blocks * s->kv->block_size) return 0;
    t->n_computed = rp__kv_match(s->kv, &t->seq, t->tokens, t->n_tokens);
    return t->n_computed - had;
}

/* Counted once for a request: what is found after it was put back is its own. */
static void count_hits(rp__sched *s, rp__task *t, int64_t n_found) {
    if (t->n_preemptions) return;
    t->n_cached += n_found;
    s->stats.n_prefix_hits += (uint64_t)n_found;
}

/* ---- letting in ---- */

static bool is_answering(const rp__task *t) {
    return t->n_computed + 1 == t->n_tokens && t->n_tokens > t->n_prompt;
}

/* What running tasks are sure to need soon: the rest of their tokens, and a block each for those
 * that grow, so that a newcomer is not put back at once. */
static int32_t n_promised(const rp__sched *s) {
    int32_t n = 0;
    for (int32_t i = 0; i < s->n_running; i++)
        n += n_missing(s, s->running[i]) + is_answering(s->running[i]);
    return n;
}

static void let_in(rp__sched *s) {
    int32_t promised = n_promised(s);
    rp__task *t = s->first_waiting, *next;
    for (; t && s->n_running < s->config.max_seqs; t = next) {
        next = t->next;
        if (t->leader) continue;
        int64_t n_found = match(s, t);
        int32_t need = n_missing(s, t);
        if (s->n_running && need + promised > rp__kv_available(s->kv)) {
            rp__kv_release(s->kv, &t->seq);
            t->n_computed = 0;
            return; /* those behind it would keep it out for ever */
        }
        promised += need;
        if (may_match(s, t) && !t->n_preemptions)
            s->stats.n_prefix_queries += (uint64_t)t->n_prompt;
        count_hits(s, t, n_found);
        take_waiting(s, t);
        put_running(s, t);
    }
}

/* ---- the plan ---- */

static void add_item(rp__sched *s, rp__task *t, int32_t n, int32_t n_rows, uint64_t now_ns) {
    rp__plan *p = &s->plan;
    p->items[p->n_items++] = (rp__plan_item){t, n, n_rows};
    p->n_tokens += n;
    p->n_rows += n_rows;
    if (!t->started_ns) t->started_ns = now_ns;
}

static rp_status reserve(rp__sched *s, rp__task *t, int32_t n) {
    rp__kv_copy copy;
    rp_status st = rp__kv_reserve(s->kv, &t->seq, t->n_computed, t->n_computed + n, &copy);
    if (st == RP_OK && copy.to != RP_KV_SINK) s->plan.copies[s->plan.n_copies++] = copy;
    return st;
}

/* A token of every answer. One that finds no block takes those of the last in rank, which is
 * perhaps itself: never of one that is planned already. */
static void plan_answers(rp__sched *s, uint64_t now_ns) {
    for (int32_t i = 0; i < s->n_running; i++) {
        rp__task *t = s->running[i];
        if (!is_answering(t)) continue;
        while (t->phase == RP_TASK_RUNNING && reserve(s, t, 1) != RP_OK) preempt_last(s);
        if (t->phase == RP_TASK_RUNNING) add_item(s, t, 1, 1, now_ns);
    }
}

static int32_t least(int64_t a, int64_t b) {
    return (int32_t)(a < b ? a : b);
}

static int64_t n_pending(const rp__task *t) {
    return t->n_tokens - t->n_computed;
}

/* The prompt with least left, when it is not the first in rank that has any. */
static rp__task *shortest_prompt(const rp__sched *s) {
    rp__task *first = NULL, *best = NULL;
    for (int32_t i = 0; i < s->n_running; i++) {
        rp__task *t = s->running[i];
        if (is_answering(t)) continue;
        if (!first) first = t;
        if (!best || n_pending(t) < n_pending(best)) best = t;
    }
    return best == first ? NULL : best;
}

/* Parts the chunk among prompts: task->n_planned. */
static void share_chunk(rp__sched *s) {
    bool has_answers = s->plan.n_items > 0;
    int32_t left = s->config.max_tokens - s->plan.n_tokens;
    if (has_answers) left = least(left, s->config.prefill_chunk);
    for (int32_t i = 0; i < s->n_running; i++) s->running[i]->n_planned = 0;
    rp__task *shortest = shortest_prompt(s);
    if (shortest) {
        shortest->n_planned = least(n_pending(shortest), left / 4);
        left -= shortest->n_planned;
    }
    for (int32_t i = 0; i < s->n_running && left > 0; i++) {
        rp__task *t = s->running[i];
        if (is_answering(t)) continue;
        int32_t more = least(n_pending(t) - t->n_planned, left);
        t->n_planned += more;
        left -= more;
    }
}

/* How many rows of logits the next n tokens give. */
static int32_t rows_of(const rp__task *t, int32_t n) {
    if (t->wants_all_rows && t->n_tokens == t->n_prompt) return n;
    return t->n_computed + n == t->n_tokens;
}

/* So many of n tokens as there are blocks and rows for. */
static int32_t cut_to_fit(const rp__sched *s, const rp__task *t, int32_t n) {
    int64_t room = ((int64_t)t->seq.n_blocks + rp__kv_available(s->kv)) * s->kv->block_size;
    n = least(n, room - t->n_computed);
    int32_t excess = rows_of(t, n) - (s->config.max_seqs - s->plan.n_rows);
    if (excess > 0) n -= excess;
    int64_t end = t->n_computed + n, over = end % s->config.prompt_align;
    return end < t->n_tokens && over < n ? n - (int32_t)over : n;
}

static void plan_prompts(rp__sched *s, uint64_t now_ns) {
    share_chunk(s);
    for (int32_t i = 0; i < s->n_running; i++) {
        rp__task *t = s->running[i];
        int32_t n = cut_to_fit(s, t, t->n_planned);
        if (n <= 0) continue;
        rp_status st = reserve(s, t, n);
        rp__assert(st == RP_OK, "%d tokens find no blocks after they were counted", (int)n);
        add_item(s, t, n, rows_of(t, n), now_ns);
        s->plan.n_prompt_tokens += n;
    }
}

const rp__plan *rp__sched_plan(rp__sched *s, uint64_t now_ns) {
    rp__plan *p = &s->plan;
    let_in(s);
    /* What a neighbour computed meanwhile is found, too. */
    for (int32_t i = 0; i < s->n_running; i++)
        count_hits(s, s->running[i], match(s, s->running[i]));
    for (;;) {
        p->n_items = p->n_copies = p->n_tokens = p->n_rows = p->n_prompt_tokens = 0;
        plan_answers(s, now_ns);
        plan_prompts(s, now_ns);
        if (p->n_items || !s->n_running) return p;
        /* Only prompts run, and not one finds a block: the first goes on with those of the last. */
        preempt_last(s);
    }
}

int32_t rp__sched_extend(rp__sched *s, int32_t n_steps) {
    for (int32_t i = 0; i < s->plan.n_items; i++) {
        rp__task *t = s->plan.items[i].task;
        while (rp__kv_reserve(s->kv, &t->seq, t->n_computed, t->n_computed + n_steps, NULL) !=
               RP_OK)
            n_steps--; /* down to 1, for which the plan has them */
    }
    return n_steps;
}

void rp__sched_commit(rp__sched *s) {
    for (int32_t i = 0; i < s->plan.n_items; i++) {
        rp__task *t = s->plan.items[i].task;
        if (!t) continue;
        t->n_computed += s->plan.items[i].n_tokens;
        rp__kv_file(s->kv, &t->seq, t->tokens, t->n_computed);
    }
}
