/* Calls: binding arguments to rows, functions of the global scope, methods of loops and cyclers. */
#include <string.h>
#include <time.h>

#include "text/jinja_impl.h"

const jrow *rp__jinja_find_row(const jrow *rows, rp__str name) {
    for (; rows->name; rows++)
        if (rp__str_is(name, rows->name)) return rows;
    return NULL;
}

/* ---- binding ---- */

typedef struct jparam {
    rp__str name;
    bool optional;
} jparam;

/* Cuts "old new count?" into parameters. */
static size_t read_params(const char *s, jparam out[JINJA_MAX_PARAMS], bool *by_position_only) {
    size_t n = 0;
    *by_position_only = false;
    while (*s) {
        size_t length = strcspn(s, " ");
        if (s[0] == '/') {
            *by_position_only = true;
        } else {
            bool optional = s[length - 1] == '?';
            rp__assert(n < JINJA_MAX_PARAMS, "%s", s);
            out[n++] = (jparam){{s, length - optional}, optional};
        }
        s += length + (s[length] == ' ');
    }
    return n;
}

static rp_status bind_keyword(jrun *r, const char *what, const jrow *row, const jparam *params,
                              size_t n, jkeyword k, jvalue *out) {
    for (size_t i = 0; i < n; i++) {
        if (!rp__str_eq(params[i].name, jview_of(k.name)) || out[i].type != J_MISSING) continue;
        out[i] = k.value;
        return RP_OK;
    }
    return rp__jinja_fail(r, RP_EFORMAT,
                          "the %s \"%s\" has no argument \"%.*s\", or has it already", what,
                          row->name, (int)(k.name->n < 60 ? k.name->n : 60), k.name->p);
}

static rp_status bind_args(jrun *r, const char *what, const jrow *row, const jargs *args,
                           jvalue out[JINJA_MAX_PARAMS]) {
    jparam params[JINJA_MAX_PARAMS];
    bool by_position_only;
    size_t n = read_params(row->params, params, &by_position_only);
    if (args->n > n)
        return rp__jinja_fail(r, RP_EFORMAT, "the %s \"%s\" takes at most %zu arguments, not %zu",
                              what, row->name, n, args->n);
    for (size_t i = 0; i < JINJA_MAX_PARAMS; i++)
        out[i] = i < args->n ? args->p[i] : (jvalue){.type = J_MISSING};
    for (size_t i = 0; i < args->n_kw; i++)
        RP_TRY(bind_keyword(r, what, row, params, by_position_only ? 0 : n, args->kw[i], out));
    for (size_t i = 0; i < n; i++)
        if (out[i].type == J_MISSING && !params[i].optional)
            return rp__jinja_fail(r, RP_EFORMAT, "the %s \"%s\" needs the argument \"%.*s\"", what,
                                  row->name, (int)params[i].name.n, params[i].name.p);
    return RP_OK;
}

rp_status rp__jinja_apply(jrun *r, const char *what, const jrow *row, jvalue self,
                          const jargs *args, jvalue *out) {
    jvalue bound[JINJA_MAX_PARAMS];
    if (!row->body)
        return rp__jinja_fail(r, RP_EUNSUPPORTED, "the %s \"%s\" is not implemented", what,
                              row->name);
    if (row->params[0] != '*') RP_TRY(bind_args(r, what, row, args, bound));
    RP_TRY(rp__jinja_descend(r));
    jvalue made = jnone();
    RP_TRY(row->body(r, self, bound, args, &made));
    jascend(r);
    return *out = made, RP_OK;
}

static rp_status call_joiner(jrun *r, jjoiner *j, const jargs *args, jvalue *out) {
    static const jtext empty = {.p = ""};
    if (args->n || args->n_kw) return rp__jinja_fail(r, RP_EFORMAT, "a joiner takes no arguments");
    *out = jstr(j->used ? j->separator : &empty);
    j->used = true;
    return RP_OK;
}

rp_status rp__jinja_call(jrun *r, jvalue callee, const jargs *args, jvalue *out) {
    RP_TRY(rp__jinja_need_defined(r, callee));
    switch (callee.type) {
    case J_MACRO:
        return rp__jinja_call_macro(r, callee.macro, args, out);
    case J_BUILTIN:
        return rp__jinja_apply(r, "function", callee.row, jnone(), args, out);
    case J_METHOD:
        return rp__jinja_apply(r, "method", callee.method->row, callee.method->self, args, out);
    case J_JOINER:
        return call_joiner(r, callee.joiner, args, out);
    default:
        return rp__jinja_fail(r, RP_EFORMAT, "%s cannot be called", rp__jinja_type_name(callee));
    }
}

/* ---- functions of the global scope ---- */

static rp_status need_integer(jrun *r, jvalue v, int64_t *out) {
    RP_TRY(rp__jinja_need_defined(r, v));
    if (!jis_integer(v))
        return rp__jinja_fail(r, RP_EFORMAT, "an integer is needed, not %s",
                              rp__jinja_type_name(v));
    return *out = jinteger(v), RP_OK;
}

/* Numbers from start to stop, by step; more than `most` give most + 1. */
static int64_t range_length(int64_t start, int64_t stop, int64_t step, int64_t most) {
    if (step > 0 ? start >= stop : start <= stop) return 0;
    __int128 width = step > 0 ? (__int128)stop - start : (__int128)start - stop;
    __int128 n = (width - 1) / (step > 0 ? (__int128)step : -(__int128)step) + 1;
    return n > most ? most + 1 : (int64_t)n;
}

JINJA_BODY(global_range) {
    jrange *x = rp__jinja_alloc(r, 1, sizeof *x);
    if (!x) return r->status;
    *x = (jrange){.step = 1};
    bool one = arg[1].type == J_MISSING;
    RP_TRY(need_integer(r, one ? arg[0] : arg[1], &x->stop));
    if (!one) RP_TRY(need_integer(r, arg[0], &x->start));
    if (arg[2].type != J_MISSING) RP_TRY(need_integer(r, arg[2], &x->step));
    if (x->step == 0) return rp__jinja_fail(r, RP_EFORMAT, "the step of a range is zero");
    x->n = range_length(x->start, x->stop, x->step, JINJA_MAX_RANGE);
    if (x->n > JINJA_MAX_RANGE)
        return rp__jinja_fail(r, RP_ELIMIT, "a range has more than %d numbers", JINJA_MAX_RANGE);
    *out = (jvalue){.type = J_RANGE, .range = x};
    return RP_OK;
}

/* One element of dict([(key, value), ...]). */
static rp_status put_pair(jrun *r, jdict *d, jvalue pair) {
    jvalue *items;
    size_t n;
    RP_TRY(rp__jinja_items(r, pair, &items, &n));
    if (n != 2)
        return rp__jinja_fail(r, RP_EFORMAT, "a pair of key and value is needed, not %zu values",
                              n);
    RP_TRY(rp__jinja_need_hashable(r, items[0]));
    return rp__jinja_dict_put(r, d, items[0], items[1]);
}

static rp_status fill_dict(jrun *r, const jargs *all, jdict *d) {
    if (all->n > 1)
        return rp__jinja_fail(r, RP_EFORMAT, "a dict is made from one value, not %zu", all->n);
    if (all->n && (all->p[0].type == J_DICT || all->p[0].type == J_NAMESPACE)) {
        if (all->p[0].type == J_NAMESPACE)
            return rp__jinja_fail(r, RP_EFORMAT, "a namespace is no mapping");
        const jdict *from = all->p[0].dict;
        for (size_t i = 0; i < from->n; i++)
            RP_TRY(rp__jinja_dict_put(r, d, from->p[i].key, from->p[i].value));
    } else if (all->n) {
        jvalue *items;
        size_t n;
        RP_TRY(rp__jinja_items(r, all->p[0], &items, &n));
        for (size_t i = 0; i < n; i++) RP_TRY(put_pair(r, d, items[i]));
    }
    for (size_t i = 0; i < all->n_kw; i++)
        RP_TRY(rp__jinja_dict_put(r, d, jstr(all->kw[i].name), all->kw[i].value));
    return RP_OK;
}

JINJA_BODY(global_dict) {
    RP_TRY(rp__jinja_dict(r, all->n_kw, J_DICT, out));
    return fill_dict(r, all, out->dict);
}

JINJA_BODY(global_namespace) {
    RP_TRY(rp__jinja_dict(r, all->n_kw, J_NAMESPACE, out));
    RP_TRY(fill_dict(r, all, out->dict));
    for (size_t i = 0; i < out->dict->n; i++) {
        jvalue key = out->dict->p[i].key;
        if (key.type == J_TEXT && key.text->n && key.text->p[0] == '_')
            return rp__jinja_fail(r, RP_EFORMAT, "a namespace has no names with \"_\" first");
    }
    return RP_OK;
}

JINJA_BODY(global_cycler) {
    if (!all->n || all->n_kw) return rp__jinja_fail(r, RP_EFORMAT, "a cycler needs values");
    RP_TRY(rp__jinja_iter(r, (jvalue *)all->p, all->n, out));
    out->type = J_CYCLER;
    return RP_OK;
}

JINJA_BODY(global_joiner) {
    static const jtext comma = {.p = ", ", .n = 2};
    jjoiner *j = rp__jinja_alloc(r, 1, sizeof *j);
    if (!j) return r->status;
    *j = (jjoiner){.separator = &comma};
    if (arg[0].type != J_MISSING) RP_TRY(rp__jinja_to_text(r, arg[0], &j->separator));
    *out = (jvalue){.type = J_JOINER, .joiner = j};
    return RP_OK;
}

/* The template refuses the messages: its sentence goes to the user as it is. */
JINJA_BODY(global_raise_exception) {
    const jtext *t;
    RP_TRY(rp__jinja_to_text(r, arg[0], &t));
    return r->status = rp__fail(r->err, RP_ETEMPLATE, "%.*s", (int)(t->n < 400 ? t->n : 400), t->p);
}

JINJA_BODY(global_strftime_now) {
    if (arg[0].type != J_TEXT) return rp__jinja_fail(r, RP_EFORMAT, "strftime_now needs a string");
    if (!arg[0].text->n) return rp__jinja_text(r, "", 0, out);
    time_t now = (time_t)r->now;
    struct tm tm;
    char format[200], text[1000];
    if (!gmtime_r(&now, &tm) || arg[0].text->n >= sizeof format ||
        memchr(arg[0].text->p, 0, arg[0].text->n))
        return rp__jinja_fail(r, RP_EFORMAT, "strftime_now cannot use this format or time");
    memcpy(format, arg[0].text->p, arg[0].text->n);
    format[arg[0].text->n] = 0;
    size_t n = strftime(text, sizeof text, format, &tm);
    if (!n)
        return rp__jinja_fail(r, RP_ELIMIT,
                              "strftime_now gives nothing, or a text that is too long");
    return rp__jinja_text(r, text, n, out);
}

const jrow rp__jinja_globals[] = {
    {"range", "/ start stop? step?", global_range},
    {"dict", "*", global_dict},
    {"namespace", "*", global_namespace},
    {"cycler", "*", global_cycler},
    {"joiner", "sep?", global_joiner},
    {"raise_exception", "message", global_raise_exception},
    {"strftime_now", "format", global_strftime_now},
    {"lipsum", "", NULL},
    {0},
};

/* ---- methods of loops and cyclers ---- */

JINJA_BODY(loop_cycle) {
    if (!all->n || all->n_kw) return rp__jinja_fail(r, RP_EFORMAT, "loop.cycle needs values");
    return *out = all->p[self.loop->index0 % all->n], RP_OK;
}

JINJA_BODY(loop_changed) {
    jloop *l = self.loop;
    bool equal = l->has_changed && l->changed.n == all->n && !all->n_kw;
    for (size_t i = 0; equal && i < all->n; i++)
        RP_TRY(rp__jinja_equal(r, l->changed.p[i], all->p[i], &equal));
    l->has_changed = true;
    l->changed = (jlist){(jvalue *)all->p, all->n};
    return *out = jbool(!equal), RP_OK;
}

const jrow rp__jinja_loop_methods[] = {
    {"cycle", "*", loop_cycle}, {"changed", "*", loop_changed}, {0}};

JINJA_BODY(cycler_next) {
    *out = self.iter->p[self.iter->at];
    self.iter->at = (self.iter->at + 1) % self.iter->n;
    return RP_OK;
}

JINJA_BODY(cycler_reset) {
    self.iter->at = 0;
    return *out = jnone(), RP_OK;
}

const jrow rp__jinja_cycler_methods[] = {
    {"next", "", cycler_next}, {"reset", "", cycler_reset}, {0}};
