/* The HTTP server: an OpenAI-compatible face of one engine.
 *
 * Owns: the listening socket, its threads, every exchange (a request and its answer), counters.
 * Leaves to others: loading the model (the server listens meanwhile and answers 503), signals, the
 * end of the process. Uses the public header of the library and base only.
 *
 * Threads: one for sockets (libmicrohttpd's), a few workers that parse and submit, one that watches
 * (clients that left, pings, deadlines, freeing). The functions here may be called from any thread;
 * open and close from one. */
#ifndef RP_SERVE_SERVE_H
#define RP_SERVE_SERVE_H

#include <stdbool.h>

#include "reprise/reprise.h"

typedef struct rp__server rp__server;

/* Strings are borrowed for the server's life. */
typedef struct rp__server_config {
    const char *host; /* a name, an address, or the path of a Unix socket (it has a slash) */
    int port;         /* 0: any free one */
    const char *const *names; /* of the model in the API, the first is shown; at least one */
    size_t n_names;
    const char *model_path;
    const char *const *api_keys; /* none: nobody is asked for one */
    size_t n_api_keys;
    const char *tls_key, *tls_cert; /* PEM text; NULL: plain HTTP */
    const char *const *origins; /* web pages that may call, "*" for all; none: no CORS headers */
    size_t n_origins;
    double timeout_seconds;      /* of a request, waiting included; 0: none */
    double idle_seconds;         /* a connection may take so long to send its next request */
    double ping_seconds;         /* silence after which a stream gets a comment; 0: never */
    double summary_seconds;      /* between lines of figures in the log; 0: never */
    size_t max_body, max_header; /* bytes of a request */
    size_t max_depth;            /* of JSON */
    size_t max_connections;
    size_t stream_buffer; /* bytes of an answer that may wait for a slow reader */
    int max_seqs;         /* of the engine, for /props */
    bool ignore_unknown;  /* fields of requests that nobody knows are ignored, not refused */
    bool is_quiet;        /* no line per request */
} rp__server_config;
rp__server_config rp__server_config_default(void);

/* Listens; requests are answered with 503 until there is an engine. */
rp_status rp__server_open(const rp__server_config *config, rp__server **out, rp_error *err);
/* Where it listens: "http://127.0.0.1:8080". */
const char *rp__server_url(const rp__server *server);
/* From now on requests are served. The engine must outlive the server. */
void rp__server_set_engine(rp__server *server, rp_engine *engine);

/* Accepts no connections and no requests any more, and waits until those under way are answered:
 * RP_OK, or RP_AGAIN after timeout_ms (-1: no limit). */
rp_status rp__server_drain(rp__server *server, int timeout_ms);
/* Cancels what is under way, closes every connection, frees. NULL is fine. */
void rp__server_close(rp__server *server);

#endif
