/* Drives the engine's own scheduler and block tables with a trace of arrivals against a cost model:
 * what a serving set-up would do at scales that no test machine has. All times are simulated.
 *
 *     sched-sim [-n REQUESTS] [-r ARRIVALS_PER_SECOND] [-p PROMPT] [-a ANSWER] [-x PREFIX]
 *               [-f FAMILIES] [-s SEQS] [-t TOKENS] [-c CHUNK] [-b BLOCKS] [-z BLOCK_SIZE]
 *               [-q QUEUE] [-k STEP_US,TOKEN_US,ANSWER_US,CONTEXT_US] [-o 0|1] [-e SEED]
 *
 * Arrivals are Poisson. Prompts have PREFIX tokens of one of FAMILIES and then their own, of
 * exponential length with mean PROMPT; answers likewise with mean ANSWER. A step costs STEP_US,
 * plus TOKEN_US per prompt token, ANSWER_US per answer, and CONTEXT_US per thousand positions that
 * answers look back on. The trace is a function of SEED. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "engine/sched.h"

typedef struct config {
    int64_t n_requests;
    double rate, mean_prompt, mean_answer;
    int64_t n_prefix, n_families, n_queue, longest, seed;
    int32_t n_blocks, has_cache;
    double step_us, token_us, answer_us, context_us;
    rp__kv_config kv;
    rp__sched_config sched;
} config;

typedef struct job {
    rp__task task; /* first: a task is its job */
    struct job *next_free;
    int64_t n_answer;
    uint64_t last_ns; /* when its last token came */
} job;

/* Logarithmic buckets of 1%: percentiles of any number of samples in little memory. */
enum { N_BUCKETS = 4096 };
typedef struct histogram {
    uint64_t counts[N_BUCKETS], n;
    double most;
} histogram;

typedef struct sim {
    config c;
    rp__kv kv;
    rp__sched sched;
    uint64_t random, now, next_arrival, started;
    int64_t n_arrived, n_open, n_refused, n_done, n_tokens, n_prompt, n_computed, n_steps,
        most_open;
    job *free_jobs;
    histogram first, gap, whole;
} sim;

static void die(const char *why) {
    fprintf(stderr, "sched-sim: %s\n", why);
    exit(1);
}

/* ---- numbers ---- */

static double uniform(sim *s) { /* xorshift64*, in (0, 1) */
    s->random ^= s->random >> 12, s->random ^= s->random << 25, s->random ^= s->random >> 27;
    return ((double)(s->random * 0x2545F4914F6CDD1DULL >> 11) + 0.5) * 0x1p-53;
}

static double exponential(sim *s, double mean) {
    return -mean * log(uniform(s));
}

static int64_t length(sim *s, double mean, int64_t most) {
    int64_t n = 1 + (int64_t)exponential(s, mean - 1);
    return n < most ? n : most;
}

static void sample(histogram *h, double us) {
    int i = us < 1 ? 0 : (int)(log(us) / log(1.01));
    h->counts[i < N_BUCKETS ? i : N_BUCKETS - 1]++;
    h->n++;
    if (us > h->most) h->most = us;
}

static double percentile(const histogram *h, double p) {
    uint64_t seen = 0, want = (uint64_t)ceil(p / 100 * (double)h->n);
    for (int i = 0; i < N_BUCKETS; i++)
        if ((seen += h->counts[i]) >= want) return pow(1.01, i + 0.5);
    return 0;
}

/* ---- requests ---- */

static job *new_job(sim *s) {
    job *j = s->free_jobs;
    if (j) {
        s->free_jobs = j->next_free;
        return j;
    }
    j = calloc(1, sizeof *j);
    int32_t cap = rp__kv_blocks_for(&s->kv, s->c.longest);
    if (!j) die("out of memory");
    j->task.tokens = malloc((size_t)s->c.longest * sizeof(int32_t));
    j->task.seq.blocks = malloc((size_t)cap * sizeof(int32_t));
    if (!j->task.tokens || !j->task.seq.blocks) die("out of memory");
    return j;
}

static int32_t *tokens_of(job *j) {
    return (int32_t *)(uintptr_t)j->task.tokens;
}

static void arrive(sim *s) {
    const config *c = &s->c;
    int64_t n_own = length(s, c->mean_prompt, c->longest - c->n_prefix - 2),
            n_prompt = c->n_prefix + n_own,
            n_answer = length(s, c->mean_answer, c->longest - n_prompt);
    int32_t family = (int32_t)(uniform(s) * (double)c->n_families);
    uint64_t at = s->next_arrival;
    s->next_arrival += (uint64_t)(exponential(s, 1e9 / c->rate));
    int32_t own = (int32_t)s->n_arrived++;
    if (s->n_open >= c->n_queue + c->sched.max_seqs) {
        s->n_refused++;
        return;
    }
    job *j = new_job(s);
    int32_t *tokens = tokens_of(j), *blocks = j->task.seq.blocks;
    for (int64_t i = 0; i < n_prompt; i++) tokens[i] = i < c->n_prefix ? family : own;
    j->task =
        (rp__task){.tokens = tokens, .n_tokens = n_prompt, .n_prompt = n_prompt, .arrival_ns = at};
    rp__kv_seq_init(&s->kv, &j->task.seq, blocks, rp__kv_blocks_for(&s->kv, c->longest), "", 0);
    j->n_answer = n_answer;
    s->n_prompt += n_prompt;
    if (++s->n_open > s->most_open) s->most_open = s->n_open;
    rp__sched_add(&s->sched, &j->task);
}

static void answer(sim *s, job *j) {
    if (j->task.n_tokens == j->task.n_prompt)
        sample(&s->first, (double)(s->now - j->task.arrival_ns) / 1e3);
    else
        sample(&s->gap, (double)(s->now - j->last_ns) / 1e3);
    j->last_ns = s->now;
    s->n_tokens++;
    tokens_of(j)[j->task.n_tokens++] = -1;
    if (j->task.n_tokens < j->task.n_prompt + j->n_answer) return;
    sample(&s->whole, (double)(s->now - j->task.arrival_ns) / 1e3);
    rp__sched_remove(&s->sched, &j->task);
    j->next_free = s->free_jobs;
    s->free_jobs = j;
    s->n_done++;
    s->n_open--;
}

/* ---- steps ---- */

static double cost_us(const sim *s, const rp__plan *p) {
    const config *c = &s->c;
    double us = c->step_us + c->token_us * p->n_prompt_tokens;
    for (int32_t i = 0; i < p->n_items; i++)
        if (p->items[i].n_tokens == 1)
            us += c->answer_us + c->context_us * 1e-3 * (double)p->items[i].task->n_computed;
    return us;
}

static void step(sim *s) {
    const rp__plan *p = rp__sched_plan(&s->sched, s->now);
    s->now += (uint64_t)(cost_us(s, p) * 1e3);
    s->n_steps++;
    s->n_computed += p->n_tokens;
    rp__sched_commit(&s->sched);
    for (int32_t i = 0; i < p->n_items; i++) {
        job *j = (job *)p->items[i].task;
        if (p->items[i].n_rows) answer(s, j);
    }
}

static void run(sim *s) {
    while (s->n_arrived < s->c.n_requests || rp__sched_any(&s->sched)) {
        if (!rp__sched_any(&s->sched) && s->now < s->next_arrival) s->now = s->next_arrival;
        while (s->n_arrived < s->c.n_requests && s->next_arrival <= s->now) arrive(s);
        if (rp__sched_any(&s->sched)) step(s);
    }
}

/* ---- the report ---- */

static void print_times(const char *what, const histogram *h) {
    printf("%-24s p50 %9.1f   p90 %9.1f   p99 %9.1f   most %9.1f ms (simulated)\n", what,
           percentile(h, 50) / 1e3, percentile(h, 90) / 1e3, percentile(h, 99) / 1e3,
           h->most / 1e3);
}

static void report(const sim *s, double wall) {
    double seconds = (double)s->now * 1e-9;
    const rp__sched_stats *st = &s->sched.stats;
    printf("%" PRId64 " requests in %.1f s (simulated), %" PRId64 " answered, %" PRId64
           " refused by a full queue\n",
           s->n_arrived, seconds, s->n_done, s->n_refused);
    printf("throughput               %.1f requests/s, %.1f answer tokens/s, %.1f prompt tokens/s "
           "(simulated)\n",
           (double)s->n_done / seconds, (double)s->n_tokens / seconds,
           (double)s->n_prompt / seconds);
    print_times("time to first token", &s->first);
    print_times("gap between tokens", &s->gap);
    print_times("whole answer", &s->whole);
    printf("prefix cache             %.1f %% of prompt tokens found\n",
           st->n_prefix_queries ? 100 * (double)st->n_prefix_hits / (double)st->n_prefix_queries
                                : 0.0);
    int64_t once = s->n_prompt + s->n_tokens - s->n_done - (int64_t)st->n_prefix_hits;
    printf("put back                 %" PRIu64 " times, %.1f %% of the work for it\n",
           st->n_preemptions, 100 * (double)(s->n_computed - once) / (double)s->n_computed);
    printf("at once                  %" PRId64 " requests at most, %" PRId64
           " steps of %.1f tokens\n",
           s->most_open, s->n_steps, (double)s->n_computed / (double)s->n_steps);
    printf("the scheduler itself     %.2f us per step, %.1f s in all (real)\n",
           wall / (double)s->n_steps * 1e6, wall);
}

/* ---- options ---- */

static config defaults(void) {
    return (config){.n_requests = 1000000,
                    .rate = 80,
                    .mean_prompt = 200,
                    .mean_answer = 100,
                    .n_prefix = 500,
                    .n_families = 20,
                    .n_queue = 1024,
                    .longest = 4096,
                    .step_us = 5000,
                    .token_us = 20,
                    .answer_us = 30,
                    .context_us = 10,
                    .n_blocks = 8192,
                    .has_cache = true,
                    .seed = 1,
                    .kv = {.block_size = 32, .key = {1, 2}},
                    .sched = {.max_seqs = 256, .max_tokens = 2048, .prefill_chunk = 512}};
}

static void read_costs(config *c, const char *text) {
    if (sscanf(text, "%lf,%lf,%lf,%lf", &c->step_us, &c->token_us, &c->answer_us, &c->context_us) !=
        4)
        die("-k takes four numbers");
}

static void read_option(config *c, int option, double v) {
    const struct {
        char name;
        double *number;
        int64_t *count;
        int32_t *size;
    } rows[] = {{'n', .count = &c->n_requests},
                {'r', .number = &c->rate},
                {'p', .number = &c->mean_prompt},
                {'a', .number = &c->mean_answer},
                {'x', .count = &c->n_prefix},
                {'f', .count = &c->n_families},
                {'q', .count = &c->n_queue},
                {'e', .count = &c->seed},
                {'s', .size = &c->sched.max_seqs},
                {'t', .size = &c->sched.max_tokens},
                {'c', .size = &c->sched.prefill_chunk},
                {'b', .size = &c->n_blocks},
                {'z', .size = &c->kv.block_size},
                {'o', .size = &c->has_cache}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].name != option) continue;
        if (rows[i].number) *rows[i].number = v;
        if (rows[i].count) *rows[i].count = (int64_t)v;
        if (rows[i].size) *rows[i].size = (int32_t)v;
        return;
    }
    die("the head of bench/sched_sim.c names the options");
}

static void read_options(config *c, int argc, char **argv) {
    for (int o; (o = getopt(argc, argv, "n:r:p:a:x:f:s:t:c:b:z:q:k:o:e:")) != -1;)
        if (o == 'k')
            read_costs(c, optarg);
        else
            read_option(c, o, optarg ? atof(optarg) : 0);
}

static void check_options(config *c) {
    int64_t positions = (int64_t)c->n_blocks * c->kv.block_size;
    if (c->longest > positions) c->longest = positions;
    if (c->sched.max_tokens < c->sched.max_seqs) c->sched.max_tokens = c->sched.max_seqs;
    if (c->n_blocks < 1 || c->kv.block_size < 1 || c->sched.max_seqs < 1 ||
        c->sched.prefill_chunk < 1 || c->n_families < 1 || c->rate <= 0)
        die("a size is not positive");
    if (c->n_prefix + 3 > c->longest) die("the prefix leaves no room in the KV blocks");
    c->kv.n_blocks = c->n_blocks + 1; /* and the sink */
    c->kv.has_cache = c->has_cache != 0;
}

int main(int argc, char **argv) {
    static sim s;
    rp_error err = {0};
    s.c = defaults();
    read_options(&s.c, argc, argv);
    check_options(&s.c);
    s.random = (uint64_t)s.c.seed * 0x9E3779B97F4A7C15u | 1;
    if (rp__kv_init(&s.kv, &s.c.kv, &err) < 0) die(err.message);
    if (rp__sched_init(&s.sched, &s.c.sched, &s.kv, &err) < 0) die(err.message);
    uint64_t start = rp__clock_ns();
    run(&s);
    report(&s, (double)(rp__clock_ns() - start) * 1e-9);
    return 0;
}
