#include "test.h"

#include <string.h>

#include "serve/route.h"

static const rp__route *find(const char *method, const char *path, const char **tail,
                             const char **allow) {
    return rp__route_find(method, path, tail, allow);
}

RP_TEST(serve, routes_are_found_by_method_and_path) {
    const char *tail, *allow;
    for (size_t i = 0; rp__route_at(i); i++) {
        const rp__route *r = rp__route_at(i);
        char path[64];
        snprintf(path, sizeof path, "%s%s", r->path, r->is_prefix ? "x/y" : "");
        assert_ptr_equal(find(r->method, path, &tail, &allow), r);
        assert_string_equal(tail, r->is_prefix ? "x/y" : "");
        assert_null(find("PUT", path, &tail, &allow));
        assert_non_null(strstr(allow, r->method));
        assert_true(r->is_quick || r->needs_engine); /* a worker has nothing to do without one */
    }
    assert_null(find("GET", "/nothing", &tail, &allow));
    assert_null(allow);
    assert_null(find("GET", "/v1/models/", &tail, &allow));
}
