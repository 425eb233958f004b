/* From options to a running engine, and the closing figures. */
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "cli/cli.h"

/* ---- progress ---- */

typedef struct progress {
    const char *model;
    bool on_terminal, is_quiet;
    double started, shown_at;
    int n_dots; /* -1: nothing printed yet */
} progress;

static double now_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

static void show_percent(progress *p, double fraction, const char *what) {
    double now = now_seconds();
    if (now - p->shown_at < 0.05) return;
    p->shown_at = now;
    rp__cli_status_line("loading %s  %3.0f %%  %s", base_name(p->model), fraction * 100,
                        what ? what : "");
}

/* In a log file: nothing for a quick load, then a dot per 5 percent. */
static void show_dots(progress *p, double fraction) {
    enum { ALL_DOTS = 20 };
    if (now_seconds() - p->started < 1) return;
    if (p->n_dots < 0) {
        fprintf(stderr, "loading %s ", base_name(p->model));
        p->n_dots = 0;
    }
    while (p->n_dots < (int)(fraction * ALL_DOTS)) {
        fputc('.', stderr);
        p->n_dots++;
    }
}

static bool on_progress(void *user, double fraction, const char *what) {
    progress *p = user;
    if (p->is_quiet) return rp__cli_interrupted();
    if (p->on_terminal)
        show_percent(p, fraction, what);
    else
        show_dots(p, fraction);
    return rp__cli_interrupted();
}

static void end_progress(progress *p) {
    if (!p->is_quiet) rp__cli_status_line(NULL);
    if (!p->on_terminal && p->n_dots >= 0) fputc('\n', stderr);
}

/* ---- options ---- */

static int fill_capture(const rp__options *o, rp_engine_options *e) {
    const char *mode = rp__options_str(o, RP_OPT_CAPTURE);
    e->capture = !strcmp(mode, "on")    ? RP_CAPTURE_ON
                 : !strcmp(mode, "off") ? RP_CAPTURE_OFF
                                        : RP_CAPTURE_AUTO;
    const rp__option_value *capture = &o->values[RP_OPT_CAPTURE],
                           *eager = &o->values[RP_OPT_ENFORCE_EAGER];
    if (eager->is_on && eager->origin == capture->origin && e->capture != RP_CAPTURE_OFF)
        return rp__cli_usage("--enforce-eager is --capture off, but --capture %s was given too",
                             mode);
    if (eager->is_on && eager->origin > capture->origin) e->capture = RP_CAPTURE_OFF;
    e->capture_at_start = rp__options_on(o, RP_OPT_CAPTURE_AT_START);
    e->max_graphs = (int)rp__options_int(o, RP_OPT_MAX_GRAPHS);
    e->max_graph_bytes = (size_t)rp__options_int(o, RP_OPT_MAX_GRAPH_BYTES);
    return RP_CLI_OK;
}

static void fill_types(const rp__options *o, rp_engine_options *e) {
    const char *both = rp__options_str(o, RP_OPT_KV_CACHE_DTYPE);
    e->cache_type_k = rp__options_str(o, RP_OPT_CACHE_TYPE_K);
    e->cache_type_v = rp__options_str(o, RP_OPT_CACHE_TYPE_V);
    const char *activations = rp__options_str(o, RP_OPT_ACTIVATIONS);
    e->activations = !strcmp(activations, "f32")   ? RP_ACTIVATIONS_F32
                     : !strcmp(activations, "q16") ? RP_ACTIVATIONS_Q16
                     : !strcmp(activations, "q8")  ? RP_ACTIVATIONS_Q8
                                                   : RP_ACTIVATIONS_AUTO;
    if (!strcmp(both, "auto")) return;
    if (!rp__options_given(o, RP_OPT_CACHE_TYPE_K)) e->cache_type_k = both;
    if (!rp__options_given(o, RP_OPT_CACHE_TYPE_V)) e->cache_type_v = both;
}

/* The Jinja text of --chat-template or of --chat-template-file, which goes into `file`. */
static int fill_template(const rp__options *o, rp__bytes *file, rp_engine_options *e) {
    const rp__option_value *text = &o->values[RP_OPT_CHAT_TEMPLATE],
                           *path = &o->values[RP_OPT_CHAT_TEMPLATE_FILE];
    if (text->text && path->text && text->origin == path->origin)
        return rp__cli_usage("give --chat-template or --chat-template-file, not both");
    e->chat_template = text->text;
    if (!path->text || text->origin > path->origin) return RP_CLI_OK;
    rp_error err = {0};
    if (rp__cli_read_file(path->text, file, &err)) return rp__cli_fail(&err);
    if (rp__cli_check_utf8(path->text, file->p, file->n, &err)) return rp__cli_fail(&err);
    e->chat_template = file->p ? file->p : "";
    return RP_CLI_OK;
}

/* Texts made here that the engine's options borrow. */
typedef struct made_texts {
    rp__bytes device, host, rules, template;
} made_texts;

static void clear_texts(made_texts *t) {
    rp__bytes_clear(&t->device);
    rp__bytes_clear(&t->host);
    rp__bytes_clear(&t->rules);
    rp__bytes_clear(&t->template);
}

/* --isa is the device option of that name, on the device and beside it; what --device-options says
 * about it comes last and wins. */
static bool fill_device(const rp__options *o, made_texts *t, rp_engine_options *e) {
    const char *isa = rp__options_str(o, RP_OPT_ISA),
               *more = rp__options_str(o, RP_OPT_DEVICE_OPTIONS);
    e->device = rp__options_str(o, RP_OPT_DEVICE);
    e->device_options = more;
    if (!isa) return true;
    rp__bytes_printf(&t->host, "isa=%s", isa);
    rp__bytes_printf(&t->device, "isa=%s", isa);
    if (more && *more) rp__bytes_printf(&t->device, ",%s", more);
    e->host_options = t->host.p;
    e->device_options = t->device.p;
    return !t->host.failed && !t->device.failed;
}

/* --place may be given several times; the environment's one value may have several rules too. Ops
 * are tuned where they all are on the device. */
static bool fill_placement(const rp__options *o, made_texts *t, rp_engine_options *e) {
    const rp__option_value *rules = &o->values[RP_OPT_PLACE];
    e->placement = o->command == RP_CMD_TUNE ? "host-free" : rp__options_str(o, RP_OPT_PLACEMENT);
    for (size_t i = 0; i < rules->n_items; i++) {
        rp__bytes_add_str(&t->rules, rules->items[i]);
        rp__bytes_add_char(&t->rules, ' ');
    }
    e->place = t->rules.p;
    return !t->rules.failed;
}

static int fill_options(const rp__options *o, rp_engine_options *e, made_texts *t) {
    int64_t threads = rp__options_int(o, RP_OPT_THREADS);
    e->n_threads = threads > 0 ? (int)threads : 0;
    e->n_ctx = (int)rp__options_int(o, RP_OPT_MAX_MODEL_LEN);
    e->max_batch_tokens = (int)rp__options_int(o, RP_OPT_MAX_BATCH_TOKENS);
    e->prefill_chunk = (int)rp__options_int(o, RP_OPT_PREFILL_CHUNK);
    e->scheduler_steps = (int)rp__options_int(o, RP_OPT_SCHEDULER_STEPS);
    e->max_queue = (int)rp__options_int(o, RP_OPT_MAX_QUEUE);
    e->prefix_cache = rp__options_on(o, RP_OPT_PREFIX_CACHE);
    e->block_size = (int)rp__options_int(o, RP_OPT_BLOCK_SIZE);
    e->n_blocks = (int)rp__options_int(o, RP_OPT_NUM_BLOCKS);
    if (rp__options_given(o, RP_OPT_MAX_NUM_SEQS))
        e->max_seqs = (int)rp__options_int(o, RP_OPT_MAX_NUM_SEQS);
    fill_types(o, e);
    if (!fill_device(o, t, e) || !fill_placement(o, t, e)) return rp__cli_out_of_memory();
    int code = fill_capture(o, e);
    return code ? code : fill_template(o, &t->template, e);
}

static int start_engine(rp_engine_options *e, rp_engine **out) {
    rp_error err = {0};
    progress p = {.model = e->model,
                  .on_terminal = isatty(STDERR_FILENO),
                  .is_quiet = rp__cli_is_quiet(),
                  .started = now_seconds(),
                  .n_dots = -1};
    if (!p.is_quiet) rp__cli_status_line("loading %s", base_name(p.model));
    e->progress = on_progress;
    e->progress_user = &p;
    rp_status s = rp_engine_create(e, out, &err);
    end_progress(&p);
    if (rp__cli_interrupted()) {
        if (!s) rp_engine_destroy(*out);
        *out = NULL;
        return RP_CLI_INTERRUPTED;
    }
    return s < 0 ? rp__cli_fail(&err) : RP_CLI_OK;
}

int rp__cli_start(const rp__options *o, const char *model, int default_seqs, rp_engine **out) {
    rp_engine_options e = rp_engine_options_default();
    made_texts texts = {0};
    *out = NULL;
    e.model = model;
    e.max_seqs = default_seqs;
    int code = fill_options(o, &e, &texts);
    if (!code) code = start_engine(&e, out);
    clear_texts(&texts);
    return code;
}

/* ---- request ---- */

/* 32 bits are enough to tell answers apart. */
uint64_t rp__cli_new_seed(void) {
    uint32_t seed = 0;
    if (getentropy(&seed, sizeof seed)) seed = (uint32_t)time(NULL);
    return seed;
}

rp_request_options rp__cli_request_options(const rp__options *o) {
    rp_request_options r = rp_request_options_default();
    int64_t top_k = rp__options_int(o, RP_OPT_TOP_K), seed = rp__options_int(o, RP_OPT_SEED);
    r.max_tokens = (int)rp__options_int(o, RP_OPT_MAX_TOKENS);
    r.ignore_eos = rp__options_on(o, RP_OPT_IGNORE_EOS);
    r.stop = o->values[RP_OPT_STOP].items;
    r.n_stop = o->values[RP_OPT_STOP].n_items;
    r.sampling.temperature = (float)rp__options_number(o, RP_OPT_TEMPERATURE);
    r.sampling.top_k = top_k > 0 ? (int)top_k : 0;
    r.sampling.top_p = (float)rp__options_number(o, RP_OPT_TOP_P);
    r.sampling.min_p = (float)rp__options_number(o, RP_OPT_MIN_P);
    r.sampling.repetition_penalty = (float)rp__options_number(o, RP_OPT_REPEAT_PENALTY);
    r.sampling.penalty_last_n = (int)rp__options_int(o, RP_OPT_REPEAT_LAST_N);
    r.sampling.presence_penalty = (float)rp__options_number(o, RP_OPT_PRESENCE_PENALTY);
    r.sampling.frequency_penalty = (float)rp__options_number(o, RP_OPT_FREQUENCY_PENALTY);
    r.sampling.seed = seed >= 0 ? (uint64_t)seed : rp__cli_new_seed();
    return r;
}

/* ---- figures ---- */

static void print_speed(const char *what, uint32_t n_tokens, double n_timed, double seconds) {
    fprintf(stderr, "%-8s %u tokens", what, n_tokens);
    if (seconds > 0 && n_timed > 0)
        fprintf(stderr, ", %.2f s, %.1f tokens/s", seconds, n_timed / seconds);
}

static void print_counts(const char *what, const rp_reason_count *counts, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        fprintf(stderr, "%-8s %llu: %s\n", i ? "" : what, (unsigned long long)counts[i].count,
                counts[i].reason);
}

static void print_reasons(const rp_engine_stats *s) {
    fprintf(stderr, "%-8s captured again %llu, dropped for others %llu, refused %llu\n", "graphs",
            (unsigned long long)s->n_recaptures, (unsigned long long)s->n_evictions,
            (unsigned long long)s->n_refusals);
    print_counts("eager", s->eager_reasons, s->n_eager_reasons);
    print_counts("placed", s->placements, s->n_placements);
    if (s->n_host_ops)
        fprintf(stderr, "%-8s ops %llu, transfers for them %llu\n", "host",
                (unsigned long long)s->n_host_ops, (unsigned long long)s->n_transfers);
}

void rp__cli_print_figures(rp_engine *engine, const rp_usage *u, rp_finish finish, uint64_t seed) {
    if (rp__cli_is_quiet()) return;
    rp_engine_info info = {.bytes = sizeof info};
    rp_engine_stats stats = {.bytes = sizeof stats};
    rp_engine_get_info(engine, &info);
    rp_engine_get_stats(engine, &stats);
    fprintf(stderr, "%s\n", rp__cli_dim(false));
    fprintf(stderr, "%-8s %s, %s, on %s%s\n", "model", info.model_name, info.quantization,
            info.device, rp__cli_simulated(info.device, info.is_simulated));
    fprintf(stderr, "%-8s %.2f s\n", "load", info.load_seconds);
    print_speed("prompt", u->n_prompt, (double)u->n_prompt - u->n_cached, u->prefill_seconds);
    if (u->n_cached) fprintf(stderr, " (%u cached)", u->n_cached);
    fputc('\n', stderr);
    /* The first token comes out of the prompt's last step. */
    print_speed("answer", u->n_generated, (double)u->n_generated - 1, u->decode_seconds);
    fprintf(stderr, " (%s, seed %llu)\n", rp_finish_name(finish), (unsigned long long)seed);
    fprintf(stderr, "%-8s captures %llu, replays %llu, eager steps %llu\n", "steps",
            (unsigned long long)stats.n_captures, (unsigned long long)stats.n_replays,
            (unsigned long long)stats.n_eager_steps);
    if (rp__cli_is_verbose()) print_reasons(&stats);
    fprintf(stderr, "%s", rp__cli_plain(false));
}
