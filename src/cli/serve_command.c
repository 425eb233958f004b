/* `reprise serve`: the server's options, its start beside the loading model, its end by a signal.
 */
#include <string.h>
#include <sys/resource.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "cli/cli.h"
#include "serve/serve.h"

typedef struct serve {
    const rp__options *o;
    const char *model;
    char *model_name; /* from the file's name */
    rp__server_config config;
    rp__bytes key_file, tls_key, tls_cert;
    const char **keys;
    rp__server *server;
    rp_engine *engine;
} serve;

/* ---- options ---- */

/* The lines of the key file become strings where they stand. */
static void split_lines(char *text, const char **out, size_t *n) {
    for (char *rest = text, *line; (line = strsep(&rest, "\r\n"));)
        if (*line) out[(*n)++] = line;
}

static int take_keys(serve *sv) {
    const rp__option_value *given = &sv->o->values[RP_OPT_API_KEY];
    const char *path = rp__options_str(sv->o, RP_OPT_API_KEY_FILE);
    rp_error err = {0};
    size_t n = 0;
    if (path && rp__cli_read_file(path, &sv->key_file, &err)) return rp__cli_fail(&err);
    sv->keys = rp__calloc(given->n_items + sv->key_file.n + 1, sizeof *sv->keys);
    if (!sv->keys) return rp__cli_out_of_memory();
    for (size_t i = 0; i < given->n_items; i++) {
        if (!*given->items[i]) return rp__cli_usage("--api-key is empty");
        sv->keys[n++] = given->items[i];
    }
    if (sv->key_file.p) split_lines(sv->key_file.p, sv->keys, &n);
    if (path && n == given->n_items) return rp__cli_usage("--api-key-file %s has no key", path);
    sv->config.api_keys = sv->keys;
    sv->config.n_api_keys = n;
    return RP_CLI_OK;
}

static int take_tls(serve *sv) {
    const char *key = rp__options_str(sv->o, RP_OPT_SSL_KEY_FILE),
               *cert = rp__options_str(sv->o, RP_OPT_SSL_CERT_FILE);
    rp_error err = {0};
    if (!key && !cert) return RP_CLI_OK;
    if (!key || !cert) return rp__cli_usage("give --ssl-key-file and --ssl-cert-file, or neither");
    if (rp__cli_read_file(key, &sv->tls_key, &err) || rp__cli_read_file(cert, &sv->tls_cert, &err))
        return rp__cli_fail(&err);
    sv->config.tls_key = sv->tls_key.p ? sv->tls_key.p : "";
    sv->config.tls_cert = sv->tls_cert.p ? sv->tls_cert.p : "";
    return RP_CLI_OK;
}

/* models/SmolLM2-Q4_1.gguf -> SmolLM2-Q4_1 */
static int take_names(serve *sv) {
    const rp__option_value *given = &sv->o->values[RP_OPT_ALIAS];
    size_t n = strlen(sv->model);
    while (n > 1 && sv->model[n - 1] == '/') n--;
    size_t begin = n;
    while (begin && sv->model[begin - 1] != '/') begin--;
    if (n - begin > 5 && !strncmp(sv->model + n - 5, ".gguf", 5)) n -= 5;
    sv->model_name = rp__strndup(sv->model + begin, n - begin);
    if (!sv->model_name) return rp__cli_out_of_memory();
    sv->config.names =
        given->n_items ? given->items : (const char *const *)(const void *)&sv->model_name;
    sv->config.n_names = given->n_items ? given->n_items : 1;
    return RP_CLI_OK;
}

static int take_config(serve *sv) {
    const rp__options *o = sv->o;
    rp__server_config *c = &sv->config;
    c->host = rp__options_str(o, RP_OPT_HOST);
    c->port = (int)rp__options_int(o, RP_OPT_PORT);
    c->model_path = sv->model;
    c->origins = o->values[RP_OPT_CORS].items;
    c->n_origins = o->values[RP_OPT_CORS].n_items;
    c->timeout_seconds = rp__options_number(o, RP_OPT_REQUEST_TIMEOUT);
    c->idle_seconds = rp__options_number(o, RP_OPT_TIMEOUT);
    c->ping_seconds = rp__options_number(o, RP_OPT_PING_INTERVAL);
    c->summary_seconds = rp__options_number(o, RP_OPT_SUMMARY_INTERVAL);
    c->max_body = (size_t)rp__options_int(o, RP_OPT_MAX_BODY);
    c->max_header = (size_t)rp__options_int(o, RP_OPT_MAX_HEADER);
    c->max_connections = (size_t)rp__options_int(o, RP_OPT_MAX_CONNECTIONS);
    c->stream_buffer = (size_t)rp__options_int(o, RP_OPT_STREAM_BUFFER);
    c->max_seqs = (int)rp__options_int(o, RP_OPT_MAX_NUM_SEQS);
    c->ignore_unknown = rp__options_on(o, RP_OPT_IGNORE_UNKNOWN);
    c->is_quiet = rp__cli_is_quiet() || !rp__options_on(o, RP_OPT_LOG_REQUESTS);
    int code = take_names(sv);
    if (!code) code = take_keys(sv);
    return code ? code : take_tls(sv);
}

/* ---- what is in effect ---- */

static void print_value(const rp__option *row, const rp__option_value *v) {
    if (row->kind == RP_OPT_STRINGS) {
        for (size_t i = 0; i < v->n_items; i++) fprintf(stderr, "%s%s", i ? ", " : "", v->items[i]);
    } else if (row->kind == RP_OPT_FLAG) {
        fputs(v->is_on ? "on" : "off", stderr);
    } else {
        fputs(v->text, stderr);
    }
}

static bool has_value(const rp__option *row, const rp__option_value *v) {
    if (row->kind == RP_OPT_STRINGS) return v->n_items > 0;
    return row->kind == RP_OPT_FLAG || v->text;
}

/* What a 0 stood for, as the engine decided; 0: it is not the engine's to decide. */
static uint64_t derived(const serve *sv, int id) {
    rp_engine_info info = {.bytes = sizeof info};
    rp_engine_stats s = {.bytes = sizeof s};
    rp_engine_get_info(sv->engine, &info);
    rp_engine_get_stats(sv->engine, &s);
    switch (id) {
    case RP_OPT_MAX_MODEL_LEN:
        return (uint64_t)info.n_ctx;
    case RP_OPT_NUM_BLOCKS:
        return s.blocks_free + s.blocks_live + s.blocks_cached;
    case RP_OPT_PREFILL_CHUNK:
        return (uint64_t)rp__options_int(sv->o, RP_OPT_MAX_BATCH_TOKENS);
    case RP_OPT_MAX_GRAPH_BYTES:
        return info.graph_bytes;
    default:
        return 0;
    }
}

static void print_option(const serve *sv, int id) {
    static const char *const origins[] = {"", "  (environment)", "  (argument)"};
    const rp__option *row = rp__option_of((rp__option_id)id);
    const rp__option_value *v = &sv->o->values[id];
    bool is_zero = row->kind == RP_OPT_INT && !v->number_int;
    uint64_t value = is_zero ? derived(sv, id) : 0;
    fprintf(stderr, "  %-24s ", row->name);
    if (id == RP_OPT_API_KEY)
        fputs("(set)", stderr);
    else if (value)
        fprintf(stderr, "%llu", (unsigned long long)value);
    else
        print_value(row, v);
    fprintf(stderr, "%s\n", origins[v->origin]);
}

/* Every option of the command with the value in effect, where it came from, and no secret. The
 * device, which chooses its threads itself, tells them in its description. */
static void print_config(const serve *sv) {
    rp_engine_info info = {.bytes = sizeof info};
    if (rp__cli_is_quiet()) return;
    rp_engine_get_info(sv->engine, &info);
    fprintf(stderr, "  %-24s %s\n", "model", sv->model);
    fprintf(stderr, "  %-24s %s\n", "device", info.device);
    for (int id = 0; id < RP_N_OPTIONS; id++) {
        const rp__option *row = rp__option_of((rp__option_id)id);
        const rp__option_value *v = &sv->o->values[id];
        bool is_shown = row->commands & RP_CMD_SERVE && row->kind != RP_OPT_ACTION,
             is_told = id == RP_OPT_MODEL || id == RP_OPT_DEVICE ||
                       (id == RP_OPT_THREADS && !v->number_int);
        if (is_shown && !is_told && has_value(row, v)) print_option(sv, id);
    }
}

/* ---- running ---- */

/* A descriptor per connection: the usual soft limit of 1024 would be the first to be met. */
static void raise_file_limit(void) {
    struct rlimit l;
    if (getrlimit(RLIMIT_NOFILE, &l)) return;
    l.rlim_cur = l.rlim_max;
    setrlimit(RLIMIT_NOFILE, &l);
}

static void say(const char *what, const char *name, const char *url) {
    if (!rp__cli_is_quiet()) fprintf(stderr, "%s %s at %s\n", what, name, url);
}

static int stop(serve *sv) {
    if (!rp__cli_is_quiet())
        fputs("stopping: what runs is finished; one more signal ends at once\n", stderr);
    rp__server_drain(sv->server, -1);
    return RP_CLI_OK;
}

/* How often the engine's health is looked at, and how long a dead one is shown by /health before
 * the process ends. */
enum { LOOK_MS = 1000, SHOW_MS = 3000 };

static bool is_dead(const serve *sv, rp_error *err) {
    rp_status st = rp_engine_health(sv->engine, NULL, err);
    return st < 0 && st != RP_ESHUTDOWN;
}

static int end_dead(const rp_error *err) {
    rp__cli_fail(err);
    rp__cli_wait_interrupt(SHOW_MS);
    return RP_CLI_FAILED;
}

static int run(serve *sv) {
    rp_error err = {0};
    const char *name = sv->config.names[0];
    if (rp__server_open(&sv->config, &sv->server, &err) < 0) return rp__cli_fail(&err);
    say("loading", name, rp__server_url(sv->server));
    int code = rp__cli_start(sv->o, sv->model, sv->config.max_seqs, &sv->engine);
    if (code) return code == RP_CLI_INTERRUPTED ? RP_CLI_OK : code; /* asked to stop, and stopped */
    print_config(sv);
    rp__server_set_engine(sv->server, sv->engine);
    say("serving", name, rp__server_url(sv->server));
    while (!rp__cli_wait_interrupt(LOOK_MS))
        if (is_dead(sv, &err)) return end_dead(&err);
    return stop(sv);
}

int rp__cli_serve(rp__options *o) {
    serve sv = {.o = o, .config = rp__server_config_default()};
    sv.model = rp__cli_take_model(o);
    if (!sv.model || !rp__cli_no_more_arguments(o)) return RP_CLI_USAGE;
    int code = take_config(&sv);
    if (!code) {
        rp__cli_interrupt_init();
        rp__cli_terminate_init();
        raise_file_limit();
        code = run(&sv);
    }
    rp__server_close(sv.server);
    rp_engine_destroy(sv.engine);
    rp__bytes_clear(&sv.key_file);
    rp__bytes_clear(&sv.tls_key);
    rp__bytes_clear(&sv.tls_cert);
    rp__free(sv.model_name);
    rp__free(sv.keys);
    return code;
}
