/* Stands where the chat template interpreter comes: any other definition wins over these. */
#include "base/fail.h"
#include "text/template.h"

#define WEAK __attribute__((weak))

WEAK rp_status rp__template_parse(const char *name, rp__str source, rp__template **out, rp_error *err) {
    (void)source;
    *out = NULL;
    return rp__fail(err, RP_EUNSUPPORTED, "%s: chat templates are not built in", name);
}
WEAK void rp__template_destroy(rp__template *t) { (void)t; }
WEAK void rp__rendered_clear(rp__rendered *r) { (void)r; }
WEAK rp_status rp__template_render(const rp__template *t, const json_t *context, int64_t now, rp__rendered *out, rp_error *err) {
    (void)t, (void)context, (void)now, (void)out;
    return rp__fail(err, RP_EUNSUPPORTED, "chat templates are not built in");
}
