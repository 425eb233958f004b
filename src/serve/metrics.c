#include "serve/metrics.h"

#include "base/json_writer.h"

/* vLLM's bounds, so that its dashboards fit. */
static const double first_token_bounds[] = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,
                                            0.25,  0.5,   0.75, 1,    2.5,  5,    7.5,  10,
                                            20,    40,    80,   160,  640,  2560};
static const double gap_bounds[] = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5,
                                    0.75, 1,     2.5,  5,     7.5, 10,   20,  40,  80};
static const double whole_bounds[] = {0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                      30,  40,  50,  60, 120, 240, 480, 960, 1920, 7680};

#define BOUNDS(b)                                                                                  \
    { .bounds = (b), .n_bounds = sizeof(b) / sizeof *(b) }

void rp__metrics_init(rp__metrics *m) {
    *m = (rp__metrics){.first_token = BOUNDS(first_token_bounds),
                       .gap = BOUNDS(gap_bounds),
                       .whole = BOUNDS(whole_bounds)};
    pthread_mutex_init(&m->lock, NULL);
}

void rp__metrics_clear(rp__metrics *m) {
    pthread_mutex_destroy(&m->lock);
}

static void observe(rp__metrics *m, rp__histogram *h, double seconds) {
    size_t i = 0;
    while (i < h->n_bounds && seconds > h->bounds[i]) i++;
    pthread_mutex_lock(&m->lock);
    h->counts[i]++;
    h->sum += seconds;
    pthread_mutex_unlock(&m->lock);
}

void rp__metrics_first_token(rp__metrics *m, double seconds) {
    observe(m, &m->first_token, seconds);
}
void rp__metrics_gap(rp__metrics *m, double seconds) {
    observe(m, &m->gap, seconds);
}

void rp__metrics_done(rp__metrics *m, rp_finish finish, double seconds) {
    observe(m, &m->whole, seconds);
    pthread_mutex_lock(&m->lock);
    if ((unsigned)finish < RP_N_FINISHES) m->n_finished[finish]++;
    pthread_mutex_unlock(&m->lock);
}

void rp__metrics_http(rp__metrics *m, int status) {
    pthread_mutex_lock(&m->lock);
    if (status >= 100 && status < 600) m->n_http[status / 100]++;
    pthread_mutex_unlock(&m->lock);
}

/* ---- the text ---- */

typedef struct page {
    rp__bytes *out;
    const char *model;
} page;

static void begin(const page *p, const char *name, const char *type, const char *help) {
    rp__bytes_printf(p->out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* A label's value has JSON's escapes but for those of control bytes, which no name here has. */
static void add_labels(const page *p, const char *key, const char *value) {
    rp__bytes_add_str(p->out, "{model_name=");
    rp__json_add_text(p->out, p->model, rp__str_of(p->model).n);
    if (key) {
        rp__bytes_printf(p->out, ",%s=", key);
        rp__json_add_text(p->out, value, rp__str_of(value).n);
    }
    rp__bytes_add_char(p->out, '}');
}

static void add_value(const page *p, const char *name, const char *key, const char *label,
                      double value) {
    rp__bytes_add_str(p->out, name);
    add_labels(p, key, label);
    rp__bytes_printf(p->out, " %.17g\n", value);
}

static void add_count(const page *p, const char *name, const char *help, uint64_t value) {
    begin(p, name, "counter", help);
    add_value(p, name, NULL, NULL, (double)value);
}

static void add_gauge(const page *p, const char *name, const char *help, double value) {
    begin(p, name, "gauge", help);
    add_value(p, name, NULL, NULL, value);
}

static void add_bucket(const page *p, const char *name, const char *bound, uint64_t n) {
    rp__bytes_printf(p->out, "%s_bucket", name);
    add_labels(p, "le", bound);
    rp__bytes_printf(p->out, " %llu\n", (unsigned long long)n);
}

static void add_histogram(const page *p, const char *name, const char *help,
                          const rp__histogram *h) {
    uint64_t n = 0;
    begin(p, name, "histogram", help);
    for (size_t i = 0; i < h->n_bounds; i++) {
        rp__bytes bound = {0};
        rp__bytes_printf(&bound, "%g", h->bounds[i]);
        n += h->counts[i];
        if (bound.p) add_bucket(p, name, bound.p, n);
        rp__bytes_clear(&bound);
    }
    n += h->counts[h->n_bounds];
    add_bucket(p, name, "+Inf", n);
    rp__bytes_printf(p->out, "%s_sum", name);
    add_labels(p, NULL, NULL);
    rp__bytes_printf(p->out, " %.9g\n%s_count", h->sum, name);
    add_labels(p, NULL, NULL);
    rp__bytes_printf(p->out, " %llu\n", (unsigned long long)n);
}

static void add_server(const page *p, rp__metrics *m) {
    static const char *const hundreds[] = {"", "1xx", "2xx", "3xx", "4xx", "5xx"};
    pthread_mutex_lock(&m->lock);
    add_histogram(p, "vllm:time_to_first_token_seconds", "From the request to its first token.",
                  &m->first_token);
    add_histogram(p, "vllm:inter_token_latency_seconds", "Between two tokens of an answer.",
                  &m->gap);
    add_histogram(p, "vllm:e2e_request_latency_seconds", "From the request to its last token.",
                  &m->whole);
    begin(p, "vllm:request_success_total", "counter", "Answers by the reason of their end.");
    for (unsigned f = RP_FINISH_STOP; f < RP_N_FINISHES; f++)
        add_value(p, "vllm:request_success_total", "finished_reason", rp_finish_name((rp_finish)f),
                  (double)m->n_finished[f]);
    begin(p, "reprise_http_responses_total", "counter", "Replies by the hundreds of their status.");
    for (size_t i = 1; i < sizeof hundreds / sizeof *hundreds; i++)
        add_value(p, "reprise_http_responses_total", "status", hundreds[i], (double)m->n_http[i]);
    pthread_mutex_unlock(&m->lock);
}

static void add_blocks(const page *p, const rp_engine_stats *s) {
    static const char name[] = "reprise_kv_blocks";
    double all = (double)(s->blocks_live + s->blocks_cached + s->blocks_free);
    add_gauge(p, "vllm:kv_cache_usage_perc", "Share of KV blocks that sequences hold, 0 to 1.",
              all > 0 ? (double)s->blocks_live / all : 0);
    begin(p, name, "gauge", "KV blocks: held by sequences, kept for their prefix, free.");
    add_value(p, name, "state", "live", (double)s->blocks_live);
    add_value(p, name, "state", "cached", (double)s->blocks_cached);
    add_value(p, name, "state", "free", (double)s->blocks_free);
}

static void add_queue(const page *p, const rp_engine_stats *s) {
    add_gauge(p, "vllm:num_requests_running", "Answers being generated.", (double)s->n_running);
    add_gauge(p, "vllm:num_requests_waiting", "Requests in the queue.", (double)s->n_waiting);
    add_count(p, "vllm:num_preemptions_total", "Requests put back as KV blocks ran out.",
              s->n_preemptions);
    add_count(p, "vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.",
              s->n_prefix_queries);
    add_count(p, "vllm:prefix_cache_hits_total", "Prompt tokens found there.", s->n_prefix_hits);
    add_count(p, "reprise_queue_refusals_total", "Requests refused as the queue was full.",
              s->n_queue_full);
}

static void add_steps(const page *p, const rp_engine_stats *s) {
    static const char name[] = "reprise_eager_steps_total", placed[] = "reprise_placed_steps_total";
    add_count(p, "reprise_steps_total", "Steps of the model.", s->n_steps);
    add_count(p, "reprise_captures_total", "Steps recorded.", s->n_captures);
    add_count(p, "reprise_recaptures_total", "Steps recorded again.", s->n_recaptures);
    add_count(p, "reprise_replays_total", "Steps replayed.", s->n_replays);
    add_count(p, "reprise_graph_evictions_total", "Graphs dropped for others.", s->n_evictions);
    add_count(p, "reprise_graph_refusals_total", "Captures the device refused.", s->n_refusals);
    begin(p, name, "counter", "Steps run op by op, by the reason.");
    for (uint32_t i = 0; i < s->n_eager_reasons; i++)
        add_value(p, name, "reason", s->eager_reasons[i].reason, (double)s->eager_reasons[i].count);
    begin(p, placed, "counter", "Steps by placement, and why it was taken.");
    for (uint32_t i = 0; i < s->n_placements; i++)
        add_value(p, placed, "reason", s->placements[i].reason, (double)s->placements[i].count);
    add_count(p, "reprise_host_ops_total", "Ops of steps run on the host.", s->n_host_ops);
    add_count(p, "reprise_transfers_total", "Transfers for ops on the host.", s->n_transfers);
    add_gauge(p, "reprise_graphs", "Graphs held.", (double)s->n_graphs);
    add_gauge(p, "reprise_graph_bytes", "Memory of graphs.", (double)s->graph_bytes);
    add_gauge(p, "reprise_device_bytes", "Memory on the device.", (double)s->device_bytes);
    add_count(p, "reprise_device_allocations_total", "Allocations on the device.",
              s->device_allocs);
    add_count(p, "reprise_heap_allocations_total", "Allocations by the library.", s->heap_allocs);
    add_count(p, "reprise_device_losses_total", "Times the device was lost and opened again.",
              s->n_device_losses);
}

static void add_engine(const page *p, rp_engine *engine) {
    rp_engine_stats s = {.bytes = sizeof s};
    rp_engine_get_stats(engine, &s);
    add_count(p, "vllm:prompt_tokens_total", "Prompt tokens computed.", s.n_prompt_tokens);
    add_count(p, "vllm:generation_tokens_total", "Tokens generated.", s.n_generated_tokens);
    add_queue(p, &s);
    add_blocks(p, &s);
    add_steps(p, &s);
}

void rp__metrics_write(rp__metrics *m, rp_engine *engine, const char *model, rp__bytes *out) {
    page p = {out, model};
    if (engine) add_engine(&p, engine);
    add_server(&p, m);
}
