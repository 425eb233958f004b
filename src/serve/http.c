/* HTTP: the daemon, what a request's headers decide, bodies, and handing out replies.
 *
 * A request is read whole before anything is done for it. One that is refused by its headers is
 * still read (and forgotten), so that the client sees the answer instead of a reset connection;
 * only a client that asked first ("Expect: 100-continue") is answered at once. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/log.h"
#include "serve/answer.h"
#include "serve/keys.h"
#include "serve/route.h"
#include "serve/server_impl.h"

enum {
    STREAM_CHUNK = 16 << 10, /* most bytes of a stream given away at once */
    POOL_SLACK = 48 << 10    /* of a connection's memory, beside its headers: one such chunk, and
                                what the library keeps about each header */
};

/* ---- headers ---- */

static const char *header(const rp__exchange *x, const char *name) {
    return MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, name);
}

/* A client's own name for its request, if it is one that fits a log line and a header. */
static void take_name(rp__exchange *x) {
    const char *name = header(x, "x-request-id");
    size_t n = name ? strlen(name) : 0;
    if (!n || n >= sizeof x->name) return;
    for (size_t i = 0; i < n; i++)
        if (name[i] <= ' ' || name[i] > '~') return;
    memcpy(x->name, name, n + 1);
}

static void take_origin(rp__exchange *x) {
    const rp__server_config *c = &x->server->config;
    const char *origin = header(x, "Origin");
    for (size_t i = 0; origin && i < c->n_origins; i++) {
        if (!strcmp(c->origins[i], "*"))
            x->origin = "*";
        else if (!strcasecmp(c->origins[i], origin))
            x->origin = c->origins[i];
        if (x->origin) return;
    }
}

static bool is_preflight(const rp__exchange *x) {
    return x->origin && !strcmp(x->method, "OPTIONS") && header(x, "Access-Control-Request-Method");
}

static void check_sizes(rp__exchange *x) {
    const rp__server_config *c = &x->server->config;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(x->connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    const char *length = header(x, "Content-Length");
    if (info && info->header_size > c->max_header)
        rp__refuse_http(&x->problem, 431, "headers_too_large",
                        "the request's headers have %zu bytes, at most %zu are taken",
                        info->header_size, c->max_header);
    else if (length && strtoull(length, NULL, 10) > c->max_body)
        rp__refuse_http(&x->problem, 413, "body_too_large",
                        "the request's body has %.24s bytes, at most %zu are taken", length,
                        c->max_body);
}

/* Clients that are given the address without /v1 are the most common mistake. */
static void refuse_route(rp__exchange *x) {
    char path[64];
    const char *tail, *allow;
    snprintf(path, sizeof path, "/v1%.48s", x->path);
    bool is_there = rp__route_find(x->method, path, &tail, &allow) != NULL;
    rp__refuse_http(&x->problem, 404, "unknown_route", "there is nothing at %s %.200s%s%s",
                    x->method, x->path, is_there ? "; there is " : "", is_there ? path : "");
}

/* Keys come before routes: who has none does not learn what is here. */
static void check_headers(rp__exchange *x) {
    const rp__server_config *c = &x->server->config;
    x->route = rp__route_find(x->method, x->path, &x->tail, &x->allow);
    bool is_open = x->route && x->route->is_open;
    if (is_preflight(x)) return;
    if (!is_open && !rp__keys_allow(c->api_keys, c->n_api_keys, header(x, "Authorization")))
        rp__refuse_http(&x->problem, 401, "invalid_api_key",
                        "this server wants an API key: Authorization: Bearer KEY");
    else if (x->allow)
        rp__refuse_http(&x->problem, 405, "method_not_allowed", "%s takes %s, not %s", x->path,
                        x->allow, x->method);
    else if (!x->route)
        refuse_route(x);
    else
        check_sizes(x);
}

static rp__exchange *begin(rp__server *s, struct MHD_Connection *connection, const char *url,
                           const char *method) {
    rp__exchange *x = rp__exchange_create(s, method, url);
    if (!x) return NULL;
    x->connection = connection;
    x->link =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
    x->is_head = !strcmp(method, "HEAD");
    if (x->is_head) snprintf(x->method, sizeof x->method, "GET");
    const char *expect = header(x, "Expect");
    x->wants_continue = expect && !strcasecmp(expect, "100-continue");
    take_name(x);
    take_origin(x);
    check_headers(x);
    return x;
}

/* ---- the body ---- */

static void take_body(rp__exchange *x, const char *p, size_t n) {
    const rp__server_config *c = &x->server->config;
    rp__watch_extend(x->server, x->link, n);
    if (x->problem.http) return;
    if (n > c->max_body - x->body.n) {
        rp__refuse_http(&x->problem, 413, "body_too_large",
                        "the request's body has more than %zu bytes", c->max_body);
    } else if (!rp__bytes_add(&x->body, p, n)) {
        rp__refuse(&x->problem, RP_ENOMEM, NULL, "out of memory for the request");
    }
    if (x->problem.http) rp__bytes_clear(&x->body);
}

/* ---- handling ---- */

static bool check_server(rp__exchange *x) {
    rp__server *s = x->server;
    const rp__route *r = x->route;
    if (r->needs_engine && atomic_load(&s->state) != RP_SERVER_OPEN)
        rp__refuse_http(&x->problem, 503, "shutting_down", "the server is shutting down");
    else if (r->needs_engine && !atomic_load(&s->engine))
        rp__refuse_http(&x->problem, 503, "loading", "the model is still loading");
    return !x->problem.http;
}

/* The request is whole: it is refused, answered, or given to a worker. */
static void handle(rp__exchange *x) {
    rp__bytes none = {0};
    if (is_preflight(x) && !x->problem.http) {
        rp__exchange_reply(x, 204, NULL, &none);
    } else if (x->problem.http || !check_server(x)) {
        rp__exchange_refuse(x, &x->problem);
    } else if (x->route->is_quick) {
        x->route->handle(x);
    } else {
        rp__workers_add(x->server, x);
    }
}

/* ---- the reply ---- */

static void add_header(struct MHD_Response *r, const char *name, const char *value) {
    if (value) MHD_add_response_header(r, name, value);
}

static void add_headers(const rp__exchange *x, struct MHD_Response *r) {
    char seconds[16];
    add_header(r, "Content-Type", x->content_type);
    add_header(r, "x-request-id", x->name);
    add_header(r, "X-Content-Type-Options", "nosniff");
    add_header(r, "Content-Security-Policy", x->policy);
    add_header(r, "Referrer-Policy", x->policy ? "no-referrer" : NULL);
    add_header(r, "Allow", x->http == 405 ? x->allow : NULL);
    add_header(r, "WWW-Authenticate", x->http == 401 ? "Bearer" : NULL);
    snprintf(seconds, sizeof seconds, "%d", x->retry_after);
    add_header(r, "Retry-After", x->retry_after ? seconds : NULL);
    if (!x->origin) return;
    add_header(r, "Access-Control-Allow-Origin", x->origin);
    add_header(r, "Access-Control-Expose-Headers", "x-request-id");
    if (strcmp(x->origin, "*")) add_header(r, "Vary", "Origin");
    if (!is_preflight(x)) return;
    add_header(r, "Access-Control-Allow-Methods", "GET, POST, OPTIONS");
    const char *wanted = header(x, "Access-Control-Request-Headers");
    add_header(r, "Access-Control-Allow-Headers",
               wanted ? wanted : "Authorization, Content-Type, x-request-id");
    add_header(r, "Access-Control-Max-Age", "600");
}

static ssize_t read_stream(void *cls, uint64_t pos, char *buf, size_t cap) {
    rp__exchange *x = cls;
    (void)pos;
    pthread_mutex_lock(&x->lock);
    ssize_t n =
        x->is_gone ? MHD_CONTENT_READER_END_WITH_ERROR : rp__answer_read(x->answer, buf, cap);
    if (n > 0) x->sent_ns = rp__clock_ns();
    if (!n) {
        x->is_suspended = true;
        MHD_suspend_connection(x->connection);
    }
    pthread_mutex_unlock(&x->lock);
    return n;
}

static struct MHD_Response *make_stream(rp__exchange *x) {
    struct MHD_Response *r =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_CHUNK, read_stream, x, NULL);
    if (!r) return NULL;
    x->http = 200;
    x->content_type = "text/event-stream; charset=utf-8";
    add_header(r, "Cache-Control", "no-cache");
    add_header(r, "X-Accel-Buffering", "no"); /* a proxy that collects would defeat the stream */
    return r;
}

/* MHD frees the bytes with this. */
static void free_bytes(void *p) {
    rp__free(p);
}

static struct MHD_Response *make_whole(rp__exchange *x) {
    size_t n = x->reply.n;
    char *p = rp__bytes_take(&x->reply);
    if (!p) return NULL;
    struct MHD_Response *r = MHD_create_response_from_buffer_with_free_callback(n, p, free_bytes);
    if (!r) rp__free(p);
    return r;
}

static enum MHD_Result send_reply(rp__exchange *x) {
    struct MHD_Response *r = x->has_reply ? make_whole(x) : make_stream(x);
    if (!r) return MHD_NO;
    add_headers(x, r);
    enum MHD_Result done = MHD_queue_response(x->connection, (unsigned)x->http, r);
    MHD_destroy_response(r);
    return done;
}

/* A whole answer becomes the reply; under the lock. */
static void make_reply(rp__exchange *x) {
    rp__problem p = {0};
    x->http = 200;
    x->content_type = "application/json";
    rp__bytes_reset(&x->reply);
    rp__answer_write(x->answer, &x->reply, &p);
    if (x->reply.failed) rp__refuse(&p, RP_ENOMEM, NULL, "out of memory for the answer");
    x->has_reply = true;
    if (!p.http) return;
    x->http = p.http;
    x->retry_after = p.retry_after;
    rp__bytes_clear(&x->reply);
    rp__problem_write(&x->reply, &p);
}

static enum MHD_Result go_on(rp__exchange *x) {
    pthread_mutex_lock(&x->lock);
    bool is_gone = x->is_gone, is_stream = false;
    if (!is_gone && !x->has_reply && x->answer) {
        is_stream = rp__answer_is_streaming(x->answer);
        if (rp__answer_is_whole(x->answer)) make_reply(x);
    }
    bool must_wait = !is_gone && !x->has_reply && !is_stream;
    if (must_wait) {
        x->is_suspended = true;
        MHD_suspend_connection(x->connection);
    }
    pthread_mutex_unlock(&x->lock);
    if (is_gone) return MHD_NO;
    return must_wait ? MHD_YES : send_reply(x);
}

/* ---- MHD's callbacks, all on its thread ---- */

static enum MHD_Result on_request(void *cls, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *upload,
                                  size_t *n_upload, void **context) {
    rp__exchange *x = *context;
    (void)version;
    if (!x) {
        x = *context = begin(cls, connection, url, method);
        if (!x) return MHD_NO;
        if (!x->problem.http || !x->wants_continue) return MHD_YES;
    } else if (*n_upload) {
        take_body(x, upload, *n_upload);
        *n_upload = 0;
        return MHD_YES;
    }
    if (!x->is_whole) {
        x->is_whole = true;
        rp__watch_answer(x->server, x->link, x);
        handle(x);
    }
    return go_on(x);
}

static void on_completed(void *cls, struct MHD_Connection *connection, void **context,
                         enum MHD_RequestTerminationCode how) {
    rp__exchange *x = *context;
    (void)connection, (void)how;
    if (!x) return;
    *context = NULL;
    x->ended_ns = rp__clock_ns();
    rp__metrics_http(&x->server->metrics, x->http);
    rp__watch_request(cls, x->link);
    rp__exchange_abandon(x);
    rp__exchange_let_go(x);
}

static void on_connection(void *cls, struct MHD_Connection *connection, void **context,
                          enum MHD_ConnectionNotificationCode what) {
    rp__server *s = cls;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        *context = rp__watch_add(
            s, MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd);
    } else {
        rp__watch_remove(s, *context);
        *context = NULL;
    }
}

static void on_log(void *cls, const char *fmt, va_list ap) {
    char line[512];
    (void)cls;
    vsnprintf(line, sizeof line, fmt, ap);
    line[strcspn(line, "\n")] = 0;
    rp__log(RP_LOG_DEBUG, "http: %s", line);
}

/* ---- the daemon ---- */

rp_status rp__http_open(rp__server *s, rp_error *err) {
    const rp__server_config *c = &s->config;
    bool has_tls = c->tls_cert != NULL;
    if (has_tls && MHD_is_feature_supported(MHD_FEATURE_TLS) != MHD_YES)
        return rp__fail(err, RP_EUNSUPPORTED, "this libmicrohttpd has no TLS");
    struct MHD_OptionItem tls[] = {{MHD_OPTION_HTTPS_MEM_KEY, 0, (void *)c->tls_key},
                                   {MHD_OPTION_HTTPS_MEM_CERT, 0, (void *)c->tls_cert},
                                   {MHD_OPTION_END, 0, NULL}};
    struct MHD_OptionItem end[] = {{MHD_OPTION_END, 0, NULL}};
    s->daemon =
        MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME |
                             MHD_USE_ERROR_LOG | (has_tls ? MHD_USE_TLS : 0),
                         0, NULL, NULL, on_request, s, MHD_OPTION_EXTERNAL_LOGGER, on_log, NULL,
                         MHD_OPTION_LISTEN_SOCKET, s->listen_fd, MHD_OPTION_CONNECTION_LIMIT,
                         (unsigned)c->max_connections, MHD_OPTION_CONNECTION_TIMEOUT,
                         (unsigned)(c->idle_seconds + 0.999), MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                         c->max_header + POOL_SLACK, MHD_OPTION_NOTIFY_COMPLETED, on_completed, s,
                         MHD_OPTION_NOTIFY_CONNECTION, on_connection, s, MHD_OPTION_ARRAY,
                         has_tls ? tls : end, MHD_OPTION_END);
    if (s->daemon) return RP_OK;
    if (has_tls)
        return rp__fail(err, RP_EINVAL,
                        "cannot start: the TLS key and certificate are no matching PEM pair");
    return rp__fail(err, RP_EIO, "cannot start the HTTP server");
}

/* New connections are refused from here on: the kernel answers for a socket that was shut down,
 * which still belongs to MHD's thread. */
void rp__http_stop_listening(rp__server *s) {
    if (!s->daemon || MHD_quiesce_daemon(s->daemon) == MHD_INVALID_SOCKET) return;
    shutdown(s->listen_fd, SHUT_RDWR);
}

void rp__http_close(rp__server *s) {
    rp__http_stop_listening(s); /* or MHD would close the socket itself */
    if (s->daemon) MHD_stop_daemon(s->daemon);
    s->daemon = NULL;
    if (s->listen_fd >= 0) close(s->listen_fd);
    s->listen_fd = -1;
    if (s->socket_path) unlink(s->socket_path);
}
