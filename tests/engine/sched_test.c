/* The scheduler alone: hand-made situations, and a random walk in which every step is computed on a
 * model of the cache. */
#include "engine/sched.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "engine/cache_model.h"
#include "test.h"

enum { SIZE = 4, MOST = 128, N_TASKS = 24 };
#define SECOND UINT64_C(1000000000)

typedef struct job {
    rp__task task; /* first: a task is its job */
    int32_t tokens[MOST], blocks[MOST / SIZE];
    int64_t n_answer; /* wanted */
    int64_t n_waited; /* steps since its last token */
    bool is_there, is_done;
} job;

typedef struct rig {
    rp__kv kv;
    rp__sched sched;
    rp_cache_model model;
    job jobs[N_TASKS];
    uint64_t rng, now;
    bool is_checked;
} rig;

static void open_rig(rig *g, int32_t n_blocks, int32_t max_seqs, int32_t max_tokens,
                     int32_t chunk) {
    rp_error err = {0};
    memset(g, 0, sizeof *g);
    g->now = SECOND;
    rp__kv_config kc = {.n_blocks = n_blocks, .block_size = SIZE, .has_cache = true, .key = {3, 4}};
    rp__sched_config sc = {.max_seqs = max_seqs, .max_tokens = max_tokens, .prefill_chunk = chunk};
    assert_ok(rp__kv_init(&g->kv, &kc, &err), err);
    assert_ok(rp__sched_init(&g->sched, &sc, &g->kv, &err), err);
    rp_cache_model_init(&g->model, &g->kv);
}

static void close_rig(rig *g) {
    for (int i = 0; i < N_TASKS; i++)
        if (g->jobs[i].is_there) rp__sched_remove(&g->sched, &g->jobs[i].task);
    assert_int_equal(rp__kv_available(&g->kv), g->kv.n_blocks - 1);
    assert_null(rp__sched_any(&g->sched));
    assert_int_equal(g->sched.n_waiting, 0);
    rp_cache_model_clear(&g->model);
    rp__sched_clear(&g->sched);
    rp__kv_clear(&g->kv);
}

/* Tokens that begin with `family` differ from its first one on. */
static job *prepare(rig *g, int i, int32_t family, int64_t n_prompt, int64_t n_answer) {
    job *j = &g->jobs[i];
    memset(j, 0, sizeof *j);
    for (int64_t k = 0; k < n_prompt; k++) j->tokens[k] = k ? (int32_t)k : family;
    j->n_answer = n_answer;
    j->is_there = true;
    j->task = (rp__task){
        .tokens = j->tokens, .n_tokens = n_prompt, .n_prompt = n_prompt, .arrival_ns = g->now};
    int32_t cap = rp__kv_blocks_for(&g->kv, n_prompt + n_answer);
    rp__kv_seq_init(&g->kv, &j->task.seq, j->blocks, cap, "", 0);
    return j;
}

static job *add(rig *g, int i, int32_t family, int64_t n_prompt, int64_t n_answer) {
    job *j = prepare(g, i, family, n_prompt, n_answer);
    rp__sched_add(&g->sched, &j->task);
    return j;
}

static void end(rig *g, job *j) {
    rp__sched_remove(&g->sched, &j->task);
    j->is_there = false;
    j->is_done = true;
}

/* The next token is right when every row of the cache is. */
static void answer(rig *g, job *j, uint64_t what_comes) {
    if (what_comes != rp_cache_model_expect(j->tokens, j->task.n_tokens))
        fail_msg("task %d computed from wrong rows", (int)(j - g->jobs));
    j->tokens[j->task.n_tokens++] = (int32_t)(what_comes >> 40);
    j->n_waited = 0;
    if (j->task.n_tokens == j->task.n_prompt + j->n_answer) end(g, j);
}

/* Runs a plan: copies, rows, tokens. */
static const rp__plan *step(rig *g) {
    static uint64_t comes[N_TASKS];
    const rp__plan *p = rp__sched_plan(&g->sched, g->now);
    for (int32_t i = 0; i < p->n_copies; i++) rp_cache_model_copy(&g->model, p->copies[i]);
    for (int32_t i = 0; i < p->n_items; i++) {
        const rp__task *t = p->items[i].task;
        assert_true(p->items[i].n_tokens > 0);
        comes[i] = rp_cache_model_compute(&g->model, &t->seq, t->tokens, t->n_computed,
                                          p->items[i].n_tokens);
    }
    rp__sched_commit(&g->sched);
    for (int32_t i = 0; i < p->n_items; i++) {
        job *j = (job *)p->items[i].task, *also;
        bool is_last = j->task.n_computed == j->task.n_tokens;
        assert_int_equal(is_last, p->items[i].n_rows > 0);
        if (!is_last) continue;
        while (j->task.n_tokens == j->task.n_prompt &&
               (also = (job *)rp__sched_fork(&g->sched, &j->task, g->now)))
            answer(g, also, comes[i]);
        answer(g, j, comes[i]);
    }
    return p;
}

static int run_to_end(rig *g) {
    int n = 0;
    for (; rp__sched_any(&g->sched); n++) {
        step(g);
        assert_true(n < 10000);
    }
    return n;
}

/* ---- situations ---- */

/* A 100-token prompt arrives beside a running answer, with a chunk of 16: the answer gets a token
 * in every step, and no step has more than the chunk and the answer. */
RP_TEST(sched, a_stream_waits_for_one_chunk_at_most) {
    rig g;
    open_rig(&g, 64, 4, 64, 16);
    add(&g, 0, 1, 5, 40);
    step(&g);
    add(&g, 1, 2, 100, 2);
    int n_steps = 0;
    for (; g.jobs[1].task.n_tokens == 100; n_steps++) {
        int64_t before = g.jobs[0].task.n_tokens;
        const rp__plan *p = step(&g);
        assert_int_equal(g.jobs[0].task.n_tokens, before + 1);
        assert_true(p->n_tokens <= 17);
    }
    assert_int_equal(n_steps, 7); /* 6 of 16, and 4 */
    run_to_end(&g);
    add(&g, 2, 3, 100, 1); /* nobody answers: the whole budget */
    assert_int_equal(step(&g)->n_tokens, 64);
    close_rig(&g);
}

RP_TEST(sched, a_short_prompt_passes_a_long_one) {
    rig g;
    open_rig(&g, 128, 4, 64, 16);
    add(&g, 0, 1, 5, 60);
    step(&g);
    add(&g, 1, 2, 120, 2);
    add(&g, 2, 3, 8, 2);
    step(&g);
    const rp__plan *p = step(&g);
    assert_int_equal(p->n_tokens, 17);
    assert_int_equal(g.jobs[2].task.n_tokens, 9); /* 4 + 4 of its 8 beside 12 + 12 */
    assert_int_equal(g.jobs[1].task.n_computed, 24);
    run_to_end(&g);
    close_rig(&g);
}

RP_TEST(sched, equal_prompts_go_one_after_the_other) {
    rig g;
    open_rig(&g, 128, 4, 16, 16);
    add(&g, 0, 1, 20, 2);
    add(&g, 1, 2, 20, 2);
    step(&g);
    assert_int_equal(g.jobs[0].task.n_computed, 16);
    assert_int_equal(g.jobs[1].task.n_computed, 0);
    run_to_end(&g);
    close_rig(&g);
}

/* Two with one beginning, at the same time: what the first computes the second finds. */
RP_TEST(sched, a_running_neighbours_prefix_is_found) {
    rig g;
    open_rig(&g, 64, 4, 16, 16);
    add(&g, 0, 1, 48, 1);
    add(&g, 1, 1, 50, 1);
    run_to_end(&g);
    assert_int_equal(g.jobs[0].task.n_cached, 0);
    assert_int_equal(g.jobs[1].task.n_cached, 48);
    assert_int_equal(g.sched.stats.n_prefix_queries, 98);
    assert_int_equal(g.sched.stats.n_prefix_hits, 48);
    close_rig(&g);
}

RP_TEST(sched, choices_share_a_prompt) {
    rig g;
    open_rig(&g, 64, 3, 64, 16);
    job *j[4];
    for (int i = 0; i < 4; i++) {
        j[i] = prepare(&g, i, 1, 10, 6);
        if (i) rp__task_follow(&j[0]->task, &j[i]->task);
    }
    for (int i = 0; i < 4; i++) rp__sched_add(&g.sched, &j[i]->task);
    const rp__plan *p = step(&g); /* the prompt once, and three of four find places */
    assert_int_equal(p->n_tokens, 10);
    assert_int_equal(g.sched.n_running, 3);
    for (int i = 0; i < 3; i++) assert_int_equal(j[i]->task.n_tokens, 11);
    p = step(&g);
    assert_int_equal(p->n_copies, 2); /* the half block: copied for two, the third keeps it */
    run_to_end(&g);
    for (int i = 0; i < 4; i++) {
        assert_true(j[i]->is_done);
        assert_memory_equal(j[i]->tokens, j[0]->tokens, sizeof j[0]->tokens);
    }
    assert_int_equal(j[3]->task.n_cached, 8);
    close_rig(&g);
}

RP_TEST(sched, followers_survive_their_leader) {
    rig g;
    open_rig(&g, 64, 3, 4, 4);
    job *j[4];
    for (int i = 0; i < 4; i++) {
        j[i] = prepare(&g, i, 1, 10, 6);
        if (i) rp__task_follow(&j[0]->task, &j[i]->task);
    }
    for (int i = 0; i < 4; i++) rp__sched_add(&g.sched, &j[i]->task);
    step(&g);
    end(&g, j[2]);
    end(&g, j[0]); /* in the middle of the prompt */
    run_to_end(&g);
    assert_true(j[1]->is_done && j[3]->is_done);
    close_rig(&g);
}

RP_TEST(sched, the_last_in_rank_is_put_back_and_goes_on) {
    rig g;
    open_rig(&g, 9, 2, 32, 32); /* 8 blocks: 32 positions for two of 24 */
    add(&g, 0, 1, 12, 12);
    add(&g, 1, 2, 12, 12);
    while (!g.jobs[0].is_done) step(&g);
    assert_int_equal(g.jobs[0].task.n_preemptions, 0);
    assert_int_equal(g.jobs[1].task.n_preemptions, 1);
    run_to_end(&g); /* `answer` has compared every token */
    assert_int_equal(g.sched.stats.n_preemptions, 1);
    close_rig(&g);
}

RP_TEST(sched, priority_is_worth_ten_seconds) {
    rig g;
    open_rig(&g, 64, 1, 32, 32);
    add(&g, 0, 1, 4, 8);
    step(&g);
    job *old = prepare(&g, 1, 2, 4, 1);
    rp__sched_add(&g.sched, &old->task);
    g.now += 9 * SECOND;
    job *urgent = prepare(&g, 2, 3, 4, 1);
    urgent->task.priority = -1;
    rp__sched_add(&g.sched, &urgent->task); /* passes what came 9 s before it */
    g.now += 2 * SECOND;
    job *late = prepare(&g, 3, 4, 4, 1);
    late->task.priority = -1;
    rp__sched_add(&g.sched, &late->task); /* came 11 s after the first: too late to pass it */
    assert_ptr_equal(g.sched.first_waiting, &urgent->task);
    assert_ptr_equal(urgent->task.next, &old->task);
    assert_ptr_equal(g.sched.last_waiting, &late->task);
    run_to_end(&g);
    close_rig(&g);
}

/* A large one at the head is not passed for ever by small ones that would fit. */
RP_TEST(sched, the_first_in_rank_is_waited_for) {
    rig g;
    open_rig(&g, 17, 4, 64, 64); /* 16 blocks */
    add(&g, 0, 1, 30, 10);
    step(&g);
    add(&g, 1, 2, 40, 2); /* 11 blocks beside 8 */
    add(&g, 2, 3, 4, 2);
    for (int i = 0; i < 5; i++) {
        step(&g);
        assert_int_equal(g.jobs[1].task.phase, RP_TASK_WAITING);
        assert_int_equal(g.jobs[2].task.phase, RP_TASK_WAITING);
    }
    run_to_end(&g);
    close_rig(&g);
}

RP_TEST(sched, deadlines_end_what_waits_and_what_runs) {
    rig g;
    open_rig(&g, 64, 1, 32, 32);
    for (int i = 0; i < 4; i++) {
        job *j = prepare(&g, i, i, 4, 20);
        j->task.deadline_ns = i == 3 ? 0 : g.now + (uint64_t)(i + 1) * SECOND;
        rp__sched_add(&g.sched, &j->task);
    }
    step(&g);
    assert_null(rp__sched_expired(&g.sched, g.now));
    g.now += 2 * SECOND;
    for (int i = 0; i < 2; i++) {
        job *j = (job *)rp__sched_expired(&g.sched, g.now);
        assert_ptr_equal(j, &g.jobs[i]); /* one ran, one waited */
        end(&g, j);
    }
    assert_null(rp__sched_expired(&g.sched, g.now));
    g.now += 100 * SECOND;
    assert_ptr_equal(rp__sched_expired(&g.sched, g.now), &g.jobs[2]);
    end(&g, &g.jobs[2]);
    assert_null(rp__sched_expired(&g.sched, g.now));
    run_to_end(&g);
    close_rig(&g);
}

/* Logits of every prompt position come in steps of so many tokens as there are rows. */
RP_TEST(sched, all_rows_come_in_small_steps) {
    rig g;
    open_rig(&g, 64, 4, 32, 32);
    add(&g, 0, 1, 9, 1);
    run_to_end(&g);
    job *j = prepare(&g, 1, 1, 10, 2);
    j->task.wants_all_rows = true;
    rp__sched_add(&g.sched, &j->task);
    static const int32_t want[] = {4, 4, 2};
    for (int i = 0; i < 3; i++) { /* from the first on, though eight are cached */
        const rp__plan *p = rp__sched_plan(&g.sched, g.now);
        assert_int_equal(p->n_tokens, want[i]);
        assert_int_equal(p->n_rows, want[i]);
        rp__sched_commit(&g.sched);
    }
    close_rig(&g);
}

RP_TEST(sched, every_failing_allocation_is_survived) {
    rp_error err;
    rp__sched s;
    rp__kv kv = {0};
    rp__sched_config c = {.max_seqs = 2, .max_tokens = 4, .prefill_chunk = 4};
    for (uint64_t n = 1; n <= 3; n++) {
        rp__alloc_fail_at(n, false);
        assert_int_equal(rp__sched_init(&s, &c, &kv, &err), RP_ENOMEM);
    }
    rp__alloc_fail_at(0, false);
}

/* ---- a random walk ---- */

static int64_t below(rig *g, int64_t n) {
    return (int64_t)(rp_test_rand(&g->rng) >> 11) % n;
}

/* Prompts of few families, so that they begin alike and end anywhere. */
static void add_random(rig *g) {
    int i = 0, n_choices = below(g, 4) ? 1 : 3;
    int64_t most = (int64_t)(g->kv.n_blocks - 1) * SIZE < MOST ? (g->kv.n_blocks - 1) * SIZE : MOST;
    int64_t n_prompt = 1 + below(g, most - 1), n_answer = 1 + below(g, most - n_prompt);
    if (n_answer > 20) n_answer = 1 + below(g, 20);
    int32_t family = (int32_t)below(g, 3), priority = (int32_t)below(g, 3) - 1;
    uint64_t deadline = below(g, 8) ? 0 : g->now + (uint64_t)below(g, 20) * SECOND;
    job *leader = NULL, *made[3];
    int n = 0;
    bool is_private = below(g, 8) == 0;
    for (; i < N_TASKS && n < n_choices; i++) {
        if (g->jobs[i].is_there) continue;
        job *j = made[n++] = prepare(g, i, family, n_prompt, n_answer);
        if (!leader && below(g, 2)) j->tokens[below(g, n_prompt)] = -1; /* diverges there */
        if (leader) memcpy(j->tokens, leader->tokens, sizeof j->tokens);
        j->task.priority = priority;
        j->task.deadline_ns = deadline;
        j->task.seq.is_private = is_private;
        if (leader) rp__task_follow(&leader->task, &j->task);
        if (!leader) leader = j;
    }
    for (int k = 0; k < n; k++) rp__sched_add(&g->sched, &made[k]->task);
}

static void audit(rig *g) {
    const rp__kv_seq *seqs[N_TASKS];
    int n = 0, n_running = 0, n_waiting = 0;
    for (int i = 0; i < N_TASKS; i++) {
        job *j = &g->jobs[i];
        if (!j->is_there) continue;
        seqs[n++] = &j->task.seq;
        n_running += j->task.phase == RP_TASK_RUNNING;
        n_waiting += j->task.phase == RP_TASK_WAITING;
        if (j->task.phase == RP_TASK_WAITING) assert_int_equal(j->task.seq.n_blocks, 0);
        if (j->task.leader) assert_int_equal(j->task.phase, RP_TASK_WAITING);
        rp_cache_model_check(&g->model, &j->task.seq, j->tokens, j->task.n_computed);
    }
    assert_int_equal(n_running, g->sched.n_running);
    assert_int_equal(n_waiting, g->sched.n_waiting);
    for (int32_t i = 1; i < g->sched.n_running; i++)
        assert_true(g->sched.running[i - 1]->rank <= g->sched.running[i]->rank);
    rp_cache_model_audit(&g->model, seqs, n);
}

static bool is_answering(const job *j) {
    return j->is_there && j->task.phase == RP_TASK_RUNNING && j->task.n_tokens > j->task.n_prompt &&
           j->task.n_computed + 1 == j->task.n_tokens;
}

/* A step, and that everybody who was answering got a token, or was put back, or ended. */
static void step_checked(rig *g) {
    int64_t had[N_TASKS];
    uint32_t put_back[N_TASKS];
    bool any = false;
    for (int i = 0; i < N_TASKS; i++) {
        had[i] = is_answering(&g->jobs[i]) ? g->jobs[i].task.n_tokens : -1;
        put_back[i] = g->jobs[i].task.n_preemptions;
        any |= had[i] >= 0;
    }
    const rp__task *first = rp__sched_any(&g->sched);
    const rp__plan *p = step(g);
    assert_int_equal(p->n_items > 0, first != NULL);
    assert_true(p->n_tokens <= g->sched.config.max_tokens);
    assert_true(p->n_rows <= g->sched.config.max_seqs);
    bool has_put_back = false;
    for (int i = 0; i < N_TASKS; i++) {
        const job *j = &g->jobs[i];
        has_put_back |= j->task.n_preemptions != put_back[i];
        if (had[i] >= 0 && j->task.n_tokens != had[i] + 1)
            assert_int_equal(j->task.n_preemptions, put_back[i] + 1);
    }
    if (any && !has_put_back) assert_true(p->n_prompt_tokens <= g->sched.config.prefill_chunk);
}

static void walk(uint64_t seed, int n_ops, rp__sched_stats *sum) {
    static rig g;
    uint64_t rng = seed;
    int32_t n_blocks = 6 + (int32_t)(rp_test_rand(&rng) % 40);
    int32_t max_seqs = 1 + (int32_t)(rp_test_rand(&rng) % 6);
    int32_t max_tokens = max_seqs + (int32_t)(rp_test_rand(&rng) % 40);
    open_rig(&g, n_blocks, max_seqs, max_tokens, 1 + (int32_t)(rp_test_rand(&rng) % 16));
    g.rng = rng;
    for (int op = 0; op < n_ops; op++) {
        int64_t what = below(&g, 16);
        g.now += (uint64_t)below(&g, 3) * SECOND;
        for (rp__task *t; (t = rp__sched_expired(&g.sched, g.now));) end(&g, (job *)t);
        if (what < 3)
            add_random(&g);
        else if (what == 3 && g.jobs[op % N_TASKS].is_there)
            end(&g, &g.jobs[op % N_TASKS]); /* cancelled, wherever it is */
        else
            step_checked(&g);
        audit(&g);
    }
    run_to_end(&g);
    sum->n_preemptions += g.sched.stats.n_preemptions;
    sum->n_prefix_hits += g.sched.stats.n_prefix_hits;
    close_rig(&g);
}

RP_TEST(sched, random_walk_computes_every_token_from_the_right_rows) {
    int n_seeds = RP_TEST_IS_INSTRUMENTED ? 6 : 40;
    rp__sched_stats sum = {0};
    for (uint64_t seed = 1; seed <= (uint64_t)n_seeds; seed++) walk(seed, 10000, &sum);
    assert_true(sum.n_preemptions > 20 * (uint64_t)n_seeds); /* rare elsewhere, common here */
    assert_true(sum.n_prefix_hits > 2500 * (uint64_t)n_seeds);
}
