#include "cli/load.h"

#include <curl/curl.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/json_writer.h"
#include "cli/cli.h"

enum { CONNECT_SECONDS = 10, POLL_MS = 100 /* between looks for Ctrl-C */ };

/* A connection's request under way; kept for the next when it is done. */
typedef struct client {
    struct load *load;
    struct client *next_free;
    CURL *curl;
    rp__bytes body;
    rp__load_stream stream;
    rp__load_record record;
    double *gaps;
    size_t n_gaps, gaps_cap;
    bool is_busy;
    char curl_error[CURL_ERROR_SIZE];
} client;

typedef struct load {
    const rp__load_config *config;
    rp__load_result *result;
    CURLM *multi;
    struct curl_slist *headers;
    char *address;
    client **clients;
    size_t n_clients;
    client *free_clients;
    int n_sent, n_active;
    uint64_t began_ns, random;
    double next_arrival;
    bool is_out_of_memory;
} load;

static double now_of(const load *l) {
    return (double)(rp__clock_ns() - l->began_ns) * 1e-9;
}

static bool add_number(double **list, size_t *n, size_t *cap, double value) {
    if (*n == *cap) {
        size_t more = *cap ? *cap * 2 : 64;
        double *grown = rp__realloc_array(*list, more, sizeof *grown);
        if (!grown) return false;
        *list = grown;
        *cap = more;
    }
    (*list)[(*n)++] = value;
    return true;
}

/* ---- curl ---- */

static struct curl_slist *make_headers(const rp__load_config *c) {
    rp__bytes key = {0};
    /* Without the empty "Expect" a long body would wait for the server's leave. */
    struct curl_slist *list = curl_slist_append(NULL, "Content-Type: application/json");
    if (list) curl_slist_append(list, "Expect:");
    if (c->api_key && rp__bytes_printf(&key, "Authorization: Bearer %s", c->api_key))
        curl_slist_append(list, key.p);
    rp__bytes_clear(&key);
    return list;
}

static size_t collect(char *p, size_t one, size_t n, void *user) {
    enum { MOST = 64 << 20 };
    rp__bytes *out = user;
    return out->n + n <= MOST && rp__bytes_add(out, p, one * n) ? n : 0;
}

rp_status rp__load_fetch(const rp__load_config *c, const char *path, const char *body,
                         rp__bytes *out, rp_error *err) {
    rp__bytes address = {0};
    char curl_error[CURL_ERROR_SIZE] = "", sentence[RP_LOAD_ERROR_CAP];
    long http = 0;
    CURL *curl = curl_easy_init();
    struct curl_slist *headers = make_headers(c);
    rp__bytes_printf(&address, "%s%s", c->url, path);
    rp_status s = RP_OK;
    if (!curl || !headers || address.failed) {
        s = rp__fail(err, RP_ENOMEM, "out of memory for a request to %s", c->url);
        goto out;
    }
    curl_easy_setopt(curl, CURLOPT_URL, address.p);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_SECONDS);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, curl_error);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, collect);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, out);
    if (body) curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body);
    CURLcode done = curl_easy_perform(curl);
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &http);
    rp__load_sentence(out->p, out->n, sentence);
    if (done)
        s = rp__fail(err, RP_EIO, "%s cannot be reached: %s", address.p,
                     *curl_error ? curl_error : curl_easy_strerror(done));
    else if (http >= 400)
        s = rp__fail(err, http == 404 ? RP_ENOTFOUND : RP_EIO, "%s answered %ld: %s", address.p,
                     http, sentence);
out:
    curl_slist_free_all(headers);
    curl_easy_cleanup(curl);
    rp__bytes_clear(&address);
    return s;
}

/* ---- one request ---- */

static void write_body(const rp__load_config *c, const char *prompt, rp__bytes *out) {
    rp__bytes_reset(out);
    rp__json_open(out, NULL, '{');
    rp__json_str(out, "model", c->model);
    if (c->is_chat) {
        rp__json_open(out, "messages", '[');
        rp__json_open(out, NULL, '{');
        rp__json_str(out, "role", "user");
        rp__json_str(out, "content", prompt);
        rp__json_close(out, '}');
        rp__json_close(out, ']');
    } else {
        rp__json_str(out, "prompt", prompt);
    }
    rp__json_int(out, "max_tokens", c->max_tokens);
    if (c->ignore_eos) rp__json_bool(out, "ignore_eos", true);
    rp__json_num(out, "temperature", c->temperature);
    rp__json_bool(out, "stream", true);
    rp__json_open(out, "stream_options", '{');
    rp__json_bool(out, "include_usage", true);
    rp__json_close(out, '}');
    rp__json_close(out, '}');
}

/* curl's callback: what came of an answer. */
static size_t on_bytes(char *p, size_t one, size_t n, void *user) {
    client *k = user;
    double now = now_of(k->load);
    long http = 0;
    curl_easy_getinfo(k->curl, CURLINFO_RESPONSE_CODE, &http);
    bool is_whole = http == 200 ? rp__load_stream_take(&k->stream, p, one * n)
                                : rp__bytes_add(&k->stream.rest, p, one * n);
    if (is_whole && http == 200 && k->stream.brought_text) {
        if (k->record.n_chunks++ == 0)
            k->record.first = now;
        else
            is_whole = add_number(&k->gaps, &k->n_gaps, &k->gaps_cap, now - k->record.last);
        k->record.last = now;
    }
    if (!is_whole) k->load->is_out_of_memory = true;
    return is_whole ? one * n : 0;
}

static client *add_client(load *l) {
    client **grown = rp__realloc_array(l->clients, l->n_clients + 1, sizeof *grown);
    if (grown) l->clients = grown;
    client *k = rp__calloc(1, sizeof *k);
    if (k) k->curl = curl_easy_init();
    if (!grown || !k || !k->curl) {
        rp__free(k);
        return NULL;
    }
    l->clients[l->n_clients++] = k;
    k->load = l;
    curl_easy_setopt(k->curl, CURLOPT_URL, l->address);
    curl_easy_setopt(k->curl, CURLOPT_HTTPHEADER, l->headers);
    curl_easy_setopt(k->curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(k->curl, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_SECONDS);
    curl_easy_setopt(k->curl, CURLOPT_TIMEOUT_MS, lround(l->config->timeout_seconds * 1e3));
    curl_easy_setopt(k->curl, CURLOPT_ERRORBUFFER, k->curl_error);
    curl_easy_setopt(k->curl, CURLOPT_WRITEFUNCTION, on_bytes);
    curl_easy_setopt(k->curl, CURLOPT_WRITEDATA, k);
    curl_easy_setopt(k->curl, CURLOPT_PRIVATE, k);
    return k;
}

static bool send_next(load *l, double began) {
    const rp__load_config *c = l->config;
    client *k = l->free_clients;
    if (k)
        l->free_clients = k->next_free;
    else
        k = add_client(l);
    if (!k) return false;
    k->record = (rp__load_record){.began = began, .first = -1};
    k->n_gaps = 0;
    k->curl_error[0] = 0;
    rp__load_stream_begin(&k->stream, &k->record);
    write_body(c, c->prompts[(size_t)l->n_sent % c->n_prompts], &k->body);
    if (k->body.failed) return false;
    curl_easy_setopt(k->curl, CURLOPT_POSTFIELDS, k->body.p);
    curl_easy_setopt(k->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)k->body.n);
    if (curl_multi_add_handle(l->multi, k->curl)) return false;
    k->is_busy = true;
    l->n_sent++;
    if (++l->n_active > l->result->most_at_once) l->result->most_at_once = l->n_active;
    return true;
}

/* Why a request that ended is not done; empty when it is. */
static void judge(client *k, CURLcode code) {
    rp__load_record *r = &k->record;
    long http = 0;
    curl_easy_getinfo(k->curl, CURLINFO_RESPONSE_CODE, &http);
    r->http = (int)http;
    if (http && http != 200)
        rp__load_sentence(k->stream.rest.p, k->stream.rest.n, r->error);
    else if (code)
        snprintf(r->error, sizeof r->error, "%s",
                 *k->curl_error ? k->curl_error : curl_easy_strerror(code));
    else if (!k->stream.is_ended && !k->stream.has_failed)
        snprintf(r->error, sizeof r->error, "the answer ended without data: [DONE]");
    r->is_done = http == 200 && !code && k->stream.is_ended && !k->stream.has_failed;
}

static bool end_request(load *l, client *k, CURLcode code) {
    rp__load_result *out = l->result;
    k->record.ended = now_of(l);
    judge(k, code);
    curl_multi_remove_handle(l->multi, k->curl);
    l->n_active--;
    k->is_busy = false;
    k->next_free = l->free_clients;
    l->free_clients = k;
    out->records[out->n_records++] = k->record;
    for (size_t i = 0; k->record.is_done && i < k->n_gaps; i++)
        if (!add_number(&out->gaps, &out->n_gaps, &out->gaps_cap, k->gaps[i])) return false;
    return true;
}

/* ---- the run ---- */

/* An exponential wait between arrivals makes them a Poisson process. */
static double next_wait(load *l) {
    double uniform = (double)(rp__load_random(&l->random) >> 11) * 0x1p-53; /* [0, 1) */
    return -log1p(-uniform) / l->config->rate;
}

static bool send_due(load *l) {
    const rp__load_config *c = l->config;
    while (l->n_sent < c->n_requests) {
        if (!(c->rate > 0)) {
            if (l->n_active >= c->concurrency) break;
            if (!send_next(l, now_of(l))) return false;
            continue;
        }
        if (l->next_arrival > now_of(l)) break;
        if (!send_next(l, l->next_arrival)) return false;
        l->next_arrival += next_wait(l);
    }
    return true;
}

static int wait_ms(const load *l) {
    if (!(l->config->rate > 0) || l->n_sent >= l->config->n_requests) return POLL_MS;
    double ms = ceil((l->next_arrival - now_of(l)) * 1e3);
    return ms < 0 ? 0 : ms < POLL_MS ? (int)ms : POLL_MS;
}

static bool end_requests(load *l) {
    int n_left = 0;
    for (CURLMsg *m; (m = curl_multi_info_read(l->multi, &n_left)) != NULL;) {
        if (m->msg != CURLMSG_DONE) continue;
        CURLcode code = m->data.result; /* gone once the handle is removed */
        client *k = NULL;
        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&k);
        if (!end_request(l, k, code)) return false;
    }
    return true;
}

static void show_progress(const load *l) {
    if (rp__cli_is_quiet()) return;
    rp__cli_status_line("%zu of %d requests, %d under way, %.0f s", l->result->n_records,
                        l->config->n_requests, l->n_active, now_of(l));
}

static bool drive(load *l) {
    int n_running = 0;
    while (l->result->n_records < (size_t)l->config->n_requests && !rp__cli_interrupted()) {
        if (!send_due(l) || curl_multi_perform(l->multi, &n_running)) return false;
        if (l->is_out_of_memory || !end_requests(l)) return false;
        show_progress(l);
        if (l->result->n_records < (size_t)l->config->n_requests)
            curl_multi_poll(l->multi, NULL, 0, wait_ms(l), NULL);
    }
    return true;
}

static bool open_load(load *l) {
    const rp__load_config *c = l->config;
    rp__bytes address = {0};
    rp__bytes_printf(&address, "%s%s", c->url,
                     c->is_chat ? "/v1/chat/completions" : "/v1/completions");
    l->address = rp__bytes_take(&address);
    l->headers = make_headers(c);
    l->multi = curl_multi_init();
    l->result->records = rp__calloc((size_t)c->n_requests, sizeof *l->result->records);
    l->random = c->seed;
    l->began_ns = rp__clock_ns();
    if (c->rate > 0) l->next_arrival = next_wait(l);
    return l->address && l->headers && l->multi && l->result->records;
}

static void close_load(load *l) {
    for (size_t i = 0; i < l->n_clients; i++) {
        client *k = l->clients[i];
        if (k->is_busy) curl_multi_remove_handle(l->multi, k->curl);
        curl_easy_cleanup(k->curl);
        rp__bytes_clear(&k->body);
        rp__bytes_clear(&k->stream.rest);
        rp__free(k->gaps);
        rp__free(k);
    }
    rp__free(l->clients);
    if (l->multi) curl_multi_cleanup(l->multi);
    curl_slist_free_all(l->headers);
    rp__free(l->address);
}

rp_status rp__load_run(const rp__load_config *config, rp__load_result *out, rp_error *err) {
    load l = {.config = config, .result = out};
    bool is_whole = open_load(&l) && drive(&l);
    out->seconds = now_of(&l);
    out->is_interrupted = out->n_records < (size_t)config->n_requests;
    rp__cli_status_line(NULL);
    close_load(&l);
    return is_whole ? RP_OK : rp__fail(err, RP_ENOMEM, "out of memory for the requests");
}

void rp__load_result_clear(rp__load_result *r) {
    rp__free(r->records);
    rp__free(r->gaps);
    *r = (rp__load_result){0};
}
