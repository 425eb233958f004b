/* x.name, x[key], x[a:b:c].
 *
 * Python's order: x.name looks for an attribute first and for an item second, x['name'] the other
 * way round; what neither finds is undefined, and only the use of an undefined value is an error.
 * So message.items is the method even when the message has a key "items". Names of Python's own
 * internals ("__class__") and methods that change a list or dictionary (the sandbox is immutable)
 * yield undefined values. */
#include <string.h>

#include "text/jinja_impl.h"

static const jrow *methods_of(jvalue v) {
    switch (v.type) {
    case J_TEXT:
        return rp__jinja_text_methods;
    case J_DICT:
        return rp__jinja_dict_methods;
    case J_LIST:
    case J_TUPLE:
        return rp__jinja_list_methods;
    case J_LOOP:
        return rp__jinja_loop_methods;
    case J_CYCLER:
        return rp__jinja_cycler_methods;
    case J_BOOL:
    case J_INT:
    case J_FLOAT:
        return rp__jinja_number_methods;
    default:
        return NULL;
    }
}

/* A tuple has only these of a list's methods. */
static bool tuple_has(rp__str name) {
    return rp__str_is(name, "count") || rp__str_is(name, "index");
}

static bool is_mutator(jvalue v, rp__str name) {
    static const char *const list[] = {"append", "clear",   "extend", "insert", "pop",
                                       "remove", "reverse", "sort",   NULL};
    static const char *const dict[] = {"clear", "pop", "popitem", "setdefault", "update", NULL};
    const char *const *p = v.type == J_LIST ? list : v.type == J_DICT ? dict : NULL;
    for (; p && *p; p++)
        if (rp__str_is(name, *p)) return true;
    return false;
}

static bool is_internal(rp__str name) {
    return name.n > 4 && !memcmp(name.p, "__", 2) && !memcmp(name.p + name.n - 2, "__", 2);
}

static rp_status loop_attr(const jloop *l, rp__str name, const jtext *text, jvalue *out) {
    int64_t index = (int64_t)l->index0, n = (int64_t)l->n;
    if (rp__str_is(name, "index"))
        *out = jint(index + 1);
    else if (rp__str_is(name, "index0"))
        *out = jint(index);
    else if (rp__str_is(name, "revindex"))
        *out = jint(n - index);
    else if (rp__str_is(name, "revindex0"))
        *out = jint(n - index - 1);
    else if (rp__str_is(name, "first"))
        *out = jbool(index == 0);
    else if (rp__str_is(name, "last"))
        *out = jbool(index == n - 1);
    else if (rp__str_is(name, "length"))
        *out = jint(n);
    else if (rp__str_is(name, "depth"))
        *out = jint(1); /* counts recursive loops only */
    else if (rp__str_is(name, "depth0"))
        *out = jint(0);
    else if (rp__str_is(name, "previtem"))
        *out = index > 0 ? l->items[index - 1] : jundefined(text);
    else if (rp__str_is(name, "nextitem"))
        *out = index + 1 < n ? l->items[index + 1] : jundefined(text);
    else
        out->type = J_MISSING;
    return RP_OK;
}

static rp_status macro_attr(jrun *r, const jmacro *m, rp__str name, jvalue *out) {
    const jmacro_def *d = m->def;
    if (rp__str_is(name, "name"))
        *out = jstr(d->title);
    else if (rp__str_is(name, "catch_kwargs"))
        *out = jbool(d->takes_kwargs);
    else if (rp__str_is(name, "catch_varargs"))
        *out = jbool(d->takes_varargs);
    else if (rp__str_is(name, "caller"))
        *out = jbool(d->takes_caller);
    else if (rp__str_is(name, "arguments")) {
        RP_TRY(rp__jinja_list(r, J_TUPLE, d->n_params, out));
        for (size_t i = 0; i < d->n_params; i++) out->list->p[i] = jstr(r->t->names[d->params[i]]);
    } else
        out->type = J_MISSING;
    return RP_OK;
}

static rp_status range_attr(const jrange *x, rp__str name, jvalue *out) {
    if (rp__str_is(name, "start"))
        *out = jint(x->start);
    else if (rp__str_is(name, "stop"))
        *out = jint(x->stop);
    else if (rp__str_is(name, "step"))
        *out = jint(x->step);
    else
        out->type = J_MISSING;
    return RP_OK;
}

static rp_status method_attr(jrun *r, jvalue object, rp__str name, jvalue *out) {
    out->type = J_MISSING;
    const jrow *rows = methods_of(object), *row = rows ? rp__jinja_find_row(rows, name) : NULL;
    if (!row || (object.type == J_TUPLE && !tuple_has(name))) return RP_OK;
    jmethod *m = rp__jinja_alloc(r, 1, sizeof *m);
    if (!m) return r->status;
    *m = (jmethod){object, row};
    *out = (jvalue){.type = J_METHOD, .method = m};
    return RP_OK;
}

/* Python's getattr: J_MISSING when there is no such attribute. */
static rp_status get_attribute(jrun *r, jvalue object, const jtext *text, jvalue *out) {
    rp__str name = jview_of(text);
    out->type = J_MISSING;
    if (is_internal(name) || is_mutator(object, name)) return *out = jundefined(text), RP_OK;
    switch (object.type) {
    case J_NAMESPACE:
        rp__jinja_dict_find(object.dict, name, out);
        return RP_OK;
    case J_LOOP:
        RP_TRY(loop_attr(object.loop, name, text, out));
        break;
    case J_MACRO:
        return macro_attr(r, object.macro, name, out);
    case J_RANGE:
        return range_attr(object.range, name, out);
    case J_CYCLER:
        if (rp__str_is(name, "current")) return *out = object.iter->p[object.iter->at], RP_OK;
        break;
    default:
        break;
    }
    return out->type == J_MISSING ? method_attr(r, object, name, out) : RP_OK;
}

/* Python's x[key]: J_MISSING when there is no such item, or x has none at all. */
static rp_status get_subscript(jrun *r, jvalue object, jvalue key, jvalue *out) {
    out->type = J_MISSING;
    if (object.type == J_DICT) {
        if (key.type == J_LIST || key.type == J_DICT) return RP_OK; /* not hashable: no such item */
        return rp__jinja_dict_get(r, object.dict, key, out);
    }
    bool is_sequence = object.type == J_LIST || object.type == J_TUPLE || object.type == J_TEXT ||
                       object.type == J_RANGE;
    if (!is_sequence || !jis_integer(key)) return RP_OK;
    int64_t n, i = jinteger(key);
    RP_TRY(rp__jinja_length(r, object, &n));
    if (i < 0) i += n;
    if (i < 0 || i >= n) return RP_OK;
    if (object.type == J_RANGE)
        return *out = jint(object.range->start + i * object.range->step), RP_OK;
    if (object.type != J_TEXT) return *out = object.list->p[i], RP_OK;
    size_t begin = rp__jinja_char_at(object.text, (size_t)i);
    uint32_t cp;
    size_t took = rp__jinja_next(object.text->p + begin, object.text->n - begin, &cp);
    return rp__jinja_part(r, object.text, begin, begin + took, out);
}

rp_status rp__jinja_attr(jrun *r, jvalue object, const jtext *name, jvalue *out) {
    RP_TRY(rp__jinja_need_defined(r, object));
    RP_TRY(get_attribute(r, object, name, out));
    if (out->type == J_MISSING) RP_TRY(get_subscript(r, object, jstr(name), out));
    if (out->type == J_MISSING) *out = jundefined(name);
    return RP_OK;
}

rp_status rp__jinja_item(jrun *r, jvalue object, jvalue key, jvalue *out) {
    RP_TRY(rp__jinja_need_defined(r, object));
    RP_TRY(get_subscript(r, object, key, out));
    if (out->type != J_MISSING) return RP_OK;
    if (key.type == J_TEXT) RP_TRY(get_attribute(r, object, key.text, out));
    if (out->type == J_MISSING) *out = jundefined(key.type == J_TEXT ? key.text : NULL);
    return RP_OK;
}

/* ---- slices ---- */

static bool is_bound(jvalue v) {
    return v.type == J_MISSING || v.type == J_NONE || jis_integer(v);
}

/* Where a slice of `n` items begins and how many it has, by Python's rules. */
static void slice_range(int64_t n, jvalue from, jvalue to, int64_t step, int64_t *start,
                        int64_t *count) {
    int64_t low = step < 0 ? -1 : 0, high = step < 0 ? n - 1 : n;
    int64_t a = step < 0 ? high : low, b = step < 0 ? low : high;
    if (jis_integer(from)) {
        a = jinteger(from);
        if (a < 0) a += n;
        a = a < low ? low : a > high ? high : a;
    }
    if (jis_integer(to)) {
        b = jinteger(to);
        if (b < 0) b += n;
        b = b < low ? low : b > high ? high : b;
    }
    *start = a;
    uint64_t width = step > 0 ? (uint64_t)(b > a ? b - a : 0) : (uint64_t)(a > b ? a - b : 0);
    uint64_t stride = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
    *count = width ? (int64_t)((width - 1) / stride + 1) : 0;
}

static rp_status slice_text(jrun *r, const jtext *t, int64_t start, int64_t step, int64_t count,
                            jvalue *out) {
    RP_TRY(rp__jinja_charge(r, t->n));
    if (!count) return rp__jinja_part(r, t, 0, 0, out);
    if (step == 1) {
        size_t begin = rp__jinja_char_at(t, (size_t)start);
        jtext rest = {.p = t->p + begin, .n = t->n - begin};
        return rp__jinja_part(r, t, begin, begin + rp__jinja_char_at(&rest, (size_t)count), out);
    }
    jvalue *chars;
    size_t n;
    jbuilder b = {0};
    RP_TRY(rp__jinja_items(r, jstr(t), &chars, &n));
    for (int64_t i = 0; i < count; i++)
        RP_TRY(rp__jinja_put_text(r, &b, chars[start + i * step].text));
    return rp__jinja_build(r, &b, out);
}

static rp_status slice_list(jrun *r, jvalue object, int64_t start, int64_t step, int64_t count,
                            jvalue *out) {
    RP_TRY(rp__jinja_list(r, object.type, (size_t)count, out));
    for (int64_t i = 0; i < count; i++) out->list->p[i] = object.list->p[start + i * step];
    return RP_OK;
}

rp_status rp__jinja_slice(jrun *r, jvalue object, jvalue from, jvalue to, jvalue step,
                          jvalue *out) {
    RP_TRY(rp__jinja_need_defined(r, object));
    bool can = object.type == J_TEXT || object.type == J_LIST || object.type == J_TUPLE;
    if (object.type == J_RANGE)
        return rp__jinja_fail(r, RP_EUNSUPPORTED, "slicing a range is not implemented");
    if (!can)
        return rp__jinja_fail(r, RP_EFORMAT, "%s cannot be sliced", rp__jinja_type_name(object));
    if (!is_bound(from) || !is_bound(to) || !is_bound(step))
        return rp__jinja_fail(r, RP_EFORMAT, "the bounds of a slice must be integers");
    int64_t n, start, count, by = jis_integer(step) ? jinteger(step) : 1;
    if (by == 0) return rp__jinja_fail(r, RP_EFORMAT, "the step of a slice is zero");
    if (by < -INT32_MAX) by = -INT32_MAX; /* beyond any length: the same items */
    if (by > INT32_MAX) by = INT32_MAX;
    RP_TRY(rp__jinja_length(r, object, &n));
    slice_range(n, from, to, by, &start, &count);
    if (object.type == J_TEXT) return slice_text(r, object.text, start, by, count, out);
    return slice_list(r, object, start, by, count, out);
}

/* ---- paths ---- */

static rp_status path_step(jrun *r, jvalue key, jvalue fallback, jvalue *object) {
    RP_TRY(rp__jinja_item(r, *object, key, object));
    if (object->type == J_UNDEFINED && fallback.type != J_MISSING && fallback.type != J_NONE)
        *object = fallback;
    return RP_OK;
}

static rp_status text_step(jrun *r, const jtext *path, size_t begin, size_t end, jvalue fallback,
                           jvalue *object) {
    jvalue key;
    RP_TRY(rp__jinja_part(r, path, begin, end, &key));
    if (rp__jinja_all_are(key.text, CLASS_DIGIT)) {
        bool ok;
        int64_t i;
        RP_TRY(rp__jinja_parse_int(r, jview_of(key.text), 10, &ok, &i));
        if (ok) key = jint(i);
    }
    return path_step(r, key, fallback, object);
}

rp_status rp__jinja_path(jrun *r, jvalue object, jvalue path, jvalue fallback, jvalue *out) {
    *out = object;
    if (path.type == J_NONE || path.type == J_MISSING) return RP_OK;
    if (path.type != J_TEXT) return path_step(r, path, fallback, out);
    const jtext *t = path.text;
    for (size_t begin = 0, end; begin <= t->n; begin = end + 1) {
        if (!rp__jinja_find(t, RP_STR("."), begin, t->n, &end)) end = t->n;
        RP_TRY(text_step(r, t, begin, end, fallback, out));
    }
    return RP_OK;
}
