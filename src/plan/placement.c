#include "plan/placement.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/fail.h"
#include "base/options.h"
#include "device/op.h"
#include "tensor/view.h"

const char *rp__place_why_text(rp__place_why why) {
    static const char *const texts[] = {
#define RP_X(code, text) text,
        RP_PLACE_WHYS(RP_X)
#undef RP_X
    };
    return (unsigned)why < RP_N_PLACE_WHYS ? texts[why] : "?";
}

const char *rp__side_name(rp__side side) {
    return side == RP_SIDE_HOST ? "host" : "device";
}

void rp__placement_clear(rp__placement *p) {
    rp__free(p->rules);
    *p = (rp__placement){0};
}

/* ---- what conditions compare ---- */

/* KV_WRITE makes caches; its rows are those it writes. */
static const rp_tensor *measured_of(const rp_op *op) {
    return op->kind == RP_OP_KV_WRITE ? &op->in[0] : &op->out[0];
}

int64_t rp__place_rows(const rp_op *op) {
    return rp__tensor_rows(measured_of(op));
}

int64_t rp__place_width(const rp_op *op) {
    return rp__tensor_last(measured_of(op));
}

/* ---- reading a rule ---- */

static const uint64_t state_kinds = 1u << RP_OP_KV_WRITE | 1u << RP_OP_ATTENTION;

static bool read_kinds(rp__str name, uint64_t *kinds) {
    *kinds = 0;
    if (rp__str_is(name, "norm")) *kinds = 1u << RP_OP_RMS_NORM | 1u << RP_OP_LAYER_NORM;
    for (int i = 0; i < RP_N_OPS; i++)
        if (rp__str_is(name, "*") || rp__str_is(name, rp__op_name((rp_op_kind)i)))
            *kinds |= (uint64_t)1 << i;
    return *kinds != 0;
}

static void narrow(rp__place_range *r, int64_t least, int64_t most) {
    if (least > r->least) r->least = least;
    if (most < r->most) r->most = most;
}

/* "rows<32": a name, a comparison, a number. */
static bool read_condition(rp__str text, rp__place_rule *rule) {
    char copy[48] = "", number[32];
    if (text.n >= sizeof copy) return false;
    memcpy(copy, text.p, text.n);
    size_t n = strcspn(copy, "<=>"), n_op = strspn(copy + n, "<=>");
    snprintf(number, sizeof number, "%s", copy + n + n_op);
    rp__str name = {copy, n}, cmp = {copy + n, n_op};
    rp__place_range *r = rp__str_is(name, "rows")    ? &rule->rows
                         : rp__str_is(name, "width") ? &rule->width
                                                     : NULL;
    int64_t v;
    if (!r || rp__parse_int("", number, 0, 9e15, &v, NULL) < 0) return false;
    if (rp__str_is(cmp, "<"))
        narrow(r, 0, v - 1);
    else if (rp__str_is(cmp, "<="))
        narrow(r, 0, v);
    else if (rp__str_is(cmp, "="))
        narrow(r, v, v);
    else if (rp__str_is(cmp, ">="))
        narrow(r, v, INT64_MAX);
    else if (rp__str_is(cmp, ">"))
        narrow(r, v + 1, INT64_MAX);
    else
        return false;
    return true;
}

static rp_status fail_rule(rp__str text, const char *what, rp__str part, rp_error *err) {
    return rp__fail(err, RP_EINVAL, "placement rule \"%.*s\": %s \"%.*s\"",
                    (int)(text.n < 100 ? text.n : 100), text.p, what,
                    (int)(part.n < 60 ? part.n : 60), part.p);
}

static rp_status read_conditions(rp__str text, rp__str list, rp__place_rule *rule, rp_error *err) {
    for (size_t at = 0; at <= list.n;) {
        const char *comma = memchr(list.p + at, ',', list.n - at);
        rp__str each = {list.p + at, comma ? (size_t)(comma - list.p) - at : list.n - at};
        if (!read_condition(each, rule))
            return fail_rule(text, "expected a condition like rows<32 or width>=128, found", each,
                             err);
        at += each.n + 1;
    }
    return RP_OK;
}

static const char *last_equals(rp__str text) {
    for (size_t i = text.n; i--;)
        if (text.p[i] == '=') return text.p + i;
    return NULL;
}

static rp_status read_rule(rp__str text, rp__place_why why, rp__place_rule *rule, rp_error *err) {
    const char *equals = last_equals(text), *colon = memchr(text.p, ':', text.n);
    *rule = (rp__place_rule){.rows = {0, INT64_MAX}, .width = {0, INT64_MAX}, .why = why};
    if (text.n >= sizeof rule->text)
        return fail_rule(text, "longer than a rule may be, at", (rp__str){text.p, 20}, err);
    memcpy(rule->text, text.p, text.n);
    if (!equals) return fail_rule(text, "expected OP:CONDITIONS=PLACE, found", text, err);
    rp__str place = {equals + 1, (size_t)(text.p + text.n - equals) - 1};
    if (!rp__str_is(place, "host") && !rp__str_is(place, "device"))
        return fail_rule(text, "expected the place host or device, found", place, err);
    rule->side = rp__str_is(place, "host") ? RP_SIDE_HOST : RP_SIDE_DEVICE;
    rp__str name = {text.p, (size_t)((colon ? colon : equals) - text.p)};
    if (!read_kinds(name, &rule->kinds)) return fail_rule(text, "unknown op", name, err);
    if (!colon) return RP_OK;
    rp__str list = {colon + 1, (size_t)(equals - colon) - 1};
    if (rp__str_is(name, "*")) rule->kinds &= ~state_kinds;
    if (rule->kinds & state_kinds)
        return fail_rule(text,
                         "an op on the KV cache stands where the cache is, whatever its size:"
                         " take away",
                         list, err);
    return read_conditions(text, list, rule, err);
}

rp_status rp__placement_add(rp__placement *p, const char *text, rp__place_why why, rp_error *err) {
    static const char blanks[] = " \t\r\n;";
    for (const char *at = text + strspn(text, blanks); *at; at += strspn(at, blanks)) {
        rp__str each = {at, strcspn(at, blanks)};
        if (p->n_rules == p->rules_cap) {
            size_t cap = p->rules_cap ? p->rules_cap * 2 : 8;
            rp__place_rule *rules = rp__realloc_array(p->rules, cap, sizeof *rules);
            if (!rules) return rp__fail(err, RP_ENOMEM, "out of memory for placement rules");
            p->rules = rules;
            p->rules_cap = cap;
        }
        RP_TRY(read_rule(each, why, &p->rules[p->n_rules], err));
        p->n_rules++;
        at += each.n;
    }
    return RP_OK;
}

/* ---- asking ---- */

static bool is_in(const rp__place_range *r, int64_t v) {
    return v >= r->least && v <= r->most;
}

const rp__place_rule *rp__placement_find(const rp__placement *p, const rp_op *op) {
    int64_t rows = rp__place_rows(op), width = rp__place_width(op);
    for (size_t i = p->n_rules; i--;) {
        const rp__place_rule *r = &p->rules[i];
        if (r->kinds >> op->kind & 1 && is_in(&r->rows, rows) && is_in(&r->width, width)) return r;
    }
    return NULL;
}

bool rp__placement_has_host(const rp__placement *p) {
    for (size_t i = 0; i < p->n_rules; i++)
        if (p->rules[i].side == RP_SIDE_HOST) return true;
    return false;
}
