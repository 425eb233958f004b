#include "serve/log_line.h"

#include <stdio.h>
#include <time.h>

#include "serve/answer.h"

static void add_time(rp__bytes *line) {
    char text[16];
    time_t now = time(NULL);
    struct tm tm;
    localtime_r(&now, &tm);
    strftime(text, sizeof text, "%H:%M:%S", &tm);
    rp__bytes_printf(line, "%s ", text);
}

/* One write per line, so that lines of several threads do not mix. */
static void write_line(rp__bytes *line) {
    rp__bytes_add_char(line, '\n');
    if (!line->failed) fputs(line->p, stderr);
    rp__bytes_clear(line);
}

static void add_path(rp__bytes *line, const char *path) {
    enum { MOST = 96 };
    for (size_t i = 0; path[i] && i < MOST; i++)
        rp__bytes_add_char(line, path[i] > ' ' && path[i] <= '~' ? path[i] : '?');
}

static void add_answer(rp__bytes *line, const rp__answer *a) {
    rp_usage u = rp__answer_usage(a);
    rp__bytes_printf(line, "  prompt %u cached %u generated %u", u.n_prompt, u.n_cached,
                     u.n_generated);
    if (a->first_token_seconds >= 0)
        rp__bytes_printf(line, "  ttft %.3f s", a->first_token_seconds);
    rp__bytes_printf(line, "  %s", rp__answer_finish(a));
}

void rp__log_exchange(const rp__exchange *x) {
    rp__bytes line = {0};
    if ((x->route && x->route->is_silent) || x->server->config.is_quiet) return;
    add_time(&line);
    rp__bytes_printf(&line, "%s %s ", x->name, x->is_head ? "HEAD" : x->method);
    add_path(&line, x->path);
    rp__bytes_printf(&line, " %d  %.3f s", x->http, (double)(x->ended_ns - x->began_ns) * 1e-9);
    if (x->answer && x->answer->is_started) add_answer(&line, x->answer);
    write_line(&line);
}

static double percent(uint64_t part, uint64_t whole) {
    return whole ? 100.0 * (double)part / (double)whole : 0;
}

void rp__log_summary(rp__server *s, double seconds) {
    rp_engine *engine = atomic_load(&s->engine);
    if (!engine || s->config.is_quiet) return;
    rp_engine_stats now = {.bytes = sizeof now}, *last = &s->last_stats;
    rp_engine_get_stats(engine, &now);
    uint64_t n_prompt = now.n_prompt_tokens - last->n_prompt_tokens,
             n_generated = now.n_generated_tokens - last->n_generated_tokens,
             n_hits = now.n_prefix_hits - last->n_prefix_hits,
             n_queries = now.n_prefix_queries - last->n_prefix_queries;
    *last = now;
    if (!n_prompt && !n_generated) return;
    uint64_t n_blocks = now.blocks_live + now.blocks_cached + now.blocks_free;
    rp__bytes line = {0};
    add_time(&line);
    rp__bytes_printf(&line,
                     "prompt %.1f tokens/s, generation %.1f tokens/s, running %llu, "
                     "waiting %llu, KV %.0f %%, prefix hits %.0f %%",
                     (double)n_prompt / seconds, (double)n_generated / seconds,
                     (unsigned long long)now.n_running, (unsigned long long)now.n_waiting,
                     percent(now.blocks_live, n_blocks), percent(n_hits, n_queries));
    write_line(&line);
}
