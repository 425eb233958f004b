#include "serve/route.h"

#include <string.h>

/* One endpoint, one row. */
/* clang-format off */
static const rp__route routes[] = {
    {"POST", "/v1/chat/completions", rp__route_chat, .needs_engine = true},
    {"POST", "/v1/completions", rp__route_completions, .needs_engine = true},
    {"GET", "/v1/models", rp__route_models, .is_quick = true},
    {"GET", "/v1/models/", rp__route_model, .is_prefix = true, .is_quick = true},
    {"POST", "/tokenize", rp__route_tokenize, .needs_engine = true},
    {"POST", "/detokenize", rp__route_detokenize, .needs_engine = true},
    {"POST", "/apply-template", rp__route_apply_template, .needs_engine = true},
    {"GET", "/props", rp__route_props, .is_quick = true, .needs_engine = true},
    {"GET", "/version", rp__route_version, .is_quick = true},
    {"GET", "/metrics", rp__route_metrics, .is_quick = true, .is_silent = true},
    {"GET", "/health", rp__route_health, .is_quick = true, .is_open = true, .is_silent = true},
    {"GET", "/", rp__route_page, .is_quick = true, .is_open = true},
};
/* clang-format on */

const rp__route *rp__route_at(size_t i) {
    return i < sizeof routes / sizeof *routes ? &routes[i] : NULL;
}

static bool matches(const rp__route *r, const char *path, const char **tail) {
    size_t n = strlen(r->path);
    *tail = "";
    if (!r->is_prefix) return !strcmp(r->path, path);
    *tail = path + n;
    return !strncmp(r->path, path, n) && path[n];
}

const rp__route *rp__route_find(const char *method, const char *path, const char **tail,
                                const char **allow) {
    *allow = NULL;
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        const rp__route *r = &routes[i];
        if (!matches(r, path, tail)) continue;
        if (!strcmp(r->method, method)) {
            *allow = NULL;
            return r;
        }
        *allow = strcmp(r->method, "GET") ? r->method : "GET, HEAD";
    }
    *tail = "";
    return NULL;
}
