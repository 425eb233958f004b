#include "file/json.h"

#include "base/fail.h"
#include "base/json_scan.h"
#include "file/mapping.h"

/* Deep enough for any configuration; jansson's own bound (2048) costs more stack than a small
 * thread has. */
enum { CONFIG_DEPTH = 128 };

/* Depth is looked at before jansson sees the text: its parser calls itself once per level. */
static rp_status check_depth(const rp__json_source *src, rp__str text, rp_error *err) {
    size_t at = rp__json_too_deep(text, src->max_depth);
    if (at == text.n) return RP_OK;
    return rp__fail(err, RP_EFORMAT, "%s: offset %zu: JSON nested deeper than %zu levels",
                    rp__path_tail(src->name), src->offset + at, src->max_depth);
}

rp_status rp__json_parse(const rp__json_source *src, rp__str text, json_t **out, rp_error *err) {
    *out = NULL;
    RP_TRY(check_depth(src, text, err));
    json_error_t e;
    size_t flags = JSON_ALLOW_NUL | (src->unique_keys ? JSON_REJECT_DUPLICATES : 0);
    json_t *root = json_loadb(text.p ? text.p : "", text.n, flags, &e);
    if (!root) {
        bool no_memory = json_error_code(&e) == json_error_out_of_memory;
        return rp__fail(err, no_memory ? RP_ENOMEM : RP_EFORMAT, "%s: offset %zu: %s (JSON)",
                        rp__path_tail(src->name),
                        src->offset + (size_t)(e.position > 0 ? e.position : 0), e.text);
    }
    if (!json_is_object(root)) {
        json_decref(root);
        return rp__fail(err, RP_EFORMAT, "%s: offset %zu: a JSON object is wanted",
                        rp__path_tail(src->name), src->offset);
    }
    *out = root;
    return RP_OK;
}

rp_status rp__json_read(const char *path, size_t limit, json_t **out, rp_error *err) {
    *out = NULL;
    rp__bytes text;
    RP_TRY(rp__file_read(path, limit, &text, err));
    rp__json_soften_integers(text.p, text.n);
    rp__json_source src = {.name = path, .max_depth = CONFIG_DEPTH};
    rp_status status = rp__json_parse(&src, (rp__str){text.p, text.n}, out, err);
    rp__bytes_clear(&text);
    return status;
}
