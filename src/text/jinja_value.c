/* Values: truth, equality, order, membership, iteration, dictionaries. */
#include <string.h>

#include "text/jinja_impl.h"

const char *rp__jinja_type_name(jvalue v) {
    static const char *const names[] = {[J_MISSING] = "nothing",  [J_UNDEFINED] = "Undefined",
                                        [J_NONE] = "NoneType",    [J_BOOL] = "bool",
                                        [J_INT] = "int",          [J_FLOAT] = "float",
                                        [J_TEXT] = "str",         [J_LIST] = "list",
                                        [J_TUPLE] = "tuple",      [J_DICT] = "dict",
                                        [J_VIEW] = "dict view",   [J_RANGE] = "range",
                                        [J_ITER] = "generator",   [J_NAMESPACE] = "Namespace",
                                        [J_LOOP] = "LoopContext", [J_MACRO] = "Macro",
                                        [J_BUILTIN] = "function", [J_METHOD] = "method",
                                        [J_CYCLER] = "Cycler",    [J_JOINER] = "Joiner"};
    return names[v.type];
}

rp_status rp__jinja_need_defined(jrun *r, jvalue v) {
    if (v.type != J_UNDEFINED) return RP_OK;
    /* A name that came from a request stays out of messages. */
    if (!v.text || v.text->n_marks) return rp__jinja_fail(r, RP_EFORMAT, "the value is undefined");
    return rp__jinja_fail(r, RP_EFORMAT, "\"%.*s\" is undefined",
                          (int)(v.text->n < 80 ? v.text->n : 80), v.text->p);
}

bool rp__jinja_truth(jvalue v) {
    switch (v.type) {
    case J_MISSING:
    case J_UNDEFINED:
    case J_NONE:
        return false;
    case J_BOOL:
        return v.b;
    case J_INT:
        return v.i != 0;
    case J_FLOAT:
        return v.f != 0;
    case J_TEXT:
        return v.text->n > 0;
    case J_LIST:
    case J_TUPLE:
        return v.list->n > 0;
    case J_DICT:
        return v.dict->n > 0;
    case J_VIEW:
        return v.view->dict->n > 0;
    case J_RANGE:
        return v.range->n > 0;
    case J_LOOP:
        return v.loop->n > 0;
    default:
        return true;
    }
}

/* ---- equality and order ---- */

static int compare_numbers(jvalue a, jvalue b) {
    if (jis_integer(a) && jis_integer(b))
        return (jinteger(a) > jinteger(b)) - (jinteger(a) < jinteger(b));
    if (jis_integer(a)) return rp__jinja_compare_int_double(jinteger(a), b.f);
    if (jis_integer(b)) {
        int c = rp__jinja_compare_int_double(jinteger(b), a.f);
        return c == 2 ? 2 : -c;
    }
    return a.f < b.f ? -1 : a.f > b.f ? 1 : a.f == b.f ? 0 : 2;
}

static bool text_equal(const jtext *a, const jtext *b) {
    return rp__str_eq(jview_of(a), jview_of(b));
}

/* UTF-8 sorts as its code points do. */
static int compare_texts(const jtext *a, const jtext *b) {
    size_t n = a->n < b->n ? a->n : b->n;
    int c = n ? memcmp(a->p, b->p, n) : 0;
    return c ? (c > 0) - (c < 0) : (a->n > b->n) - (a->n < b->n);
}

static bool range_equal(const jrange *a, const jrange *b) {
    if (a->n != b->n) return false;
    return !a->n || (a->start == b->start && (a->n == 1 || a->step == b->step));
}

static rp_status lists_equal(jrun *r, const jlist *a, const jlist *b, bool *out) {
    *out = a->n == b->n;
    for (size_t i = 0; *out && i < a->n; i++) RP_TRY(rp__jinja_equal(r, a->p[i], b->p[i], out));
    return RP_OK;
}

static rp_status dicts_equal(jrun *r, const jdict *a, const jdict *b, bool *out) {
    *out = a->n == b->n;
    for (size_t i = 0; *out && i < a->n; i++) {
        jvalue other;
        RP_TRY(rp__jinja_dict_get(r, b, a->p[i].key, &other));
        if (other.type == J_MISSING)
            *out = false;
        else
            RP_TRY(rp__jinja_equal(r, a->p[i].value, other, out));
    }
    return RP_OK;
}

bool rp__jinja_same(jvalue a, jvalue b) {
    if (a.type != b.type) return false;
    switch (a.type) {
    case J_MISSING:
    case J_UNDEFINED:
    case J_NONE:
        return true;
    case J_BOOL:
        return a.b == b.b;
    case J_INT:
        return a.i == b.i;
    case J_FLOAT:
        return a.f == b.f;
    case J_TEXT:
        return text_equal(a.text, b.text);
    case J_METHOD:
        return false;
    default:
        return a.dict == b.dict; /* every other kind is a pointer */
    }
}

rp_status rp__jinja_equal(jrun *r, jvalue a, jvalue b, bool *out) {
    RP_TRY(rp__jinja_charge(r, 64));
    *out = false;
    if (jis_number(a) && jis_number(b))
        *out = compare_numbers(a, b) == 0;
    else if (a.type != b.type)
        return RP_OK;
    else if (a.type == J_TEXT) {
        *out = text_equal(a.text, b.text);
        return rp__jinja_charge(r, a.text->n == b.text->n ? a.text->n : 0);
    } else if (a.type == J_RANGE)
        *out = range_equal(a.range, b.range);
    else if (a.type == J_LIST || a.type == J_TUPLE || a.type == J_DICT) {
        RP_TRY(rp__jinja_descend(r));
        RP_TRY(a.type == J_DICT ? dicts_equal(r, a.dict, b.dict, out)
                                : lists_equal(r, a.list, b.list, out));
        jascend(r);
    } else
        *out = rp__jinja_same(a, b);
    return RP_OK;
}

static rp_status order_lists(jrun *r, const jlist *a, const jlist *b, int *out) {
    for (size_t i = 0; i < a->n && i < b->n; i++) {
        bool equal;
        RP_TRY(rp__jinja_equal(r, a->p[i], b->p[i], &equal));
        if (equal) continue;
        RP_TRY(rp__jinja_descend(r));
        RP_TRY(rp__jinja_order(r, a->p[i], b->p[i], out));
        jascend(r);
        return RP_OK;
    }
    *out = (a->n > b->n) - (a->n < b->n);
    return RP_OK;
}

rp_status rp__jinja_order(jrun *r, jvalue a, jvalue b, int *out) {
    RP_TRY(rp__jinja_need_defined(r, a));
    RP_TRY(rp__jinja_need_defined(r, b));
    RP_TRY(rp__jinja_charge(r, 64));
    if (jis_number(a) && jis_number(b)) return *out = compare_numbers(a, b), RP_OK;
    if (a.type == J_TEXT && b.type == J_TEXT) return *out = compare_texts(a.text, b.text), RP_OK;
    if (a.type == b.type && (a.type == J_LIST || a.type == J_TUPLE))
        return order_lists(r, a.list, b.list, out);
    return rp__jinja_fail(r, RP_EFORMAT, "%s and %s cannot be ordered", rp__jinja_type_name(a),
                          rp__jinja_type_name(b));
}

/* ---- membership, length ---- */

static rp_status list_contains(jrun *r, const jvalue *p, size_t n, jvalue v, bool *out) {
    *out = false;
    for (size_t i = 0; !*out && i < n; i++) RP_TRY(rp__jinja_equal(r, p[i], v, out));
    return RP_OK;
}

static rp_status iter_contains(jrun *r, jiter *it, jvalue v, bool *out) {
    *out = false;
    while (!*out && it->at < it->n) RP_TRY(rp__jinja_equal(r, it->p[it->at++], v, out));
    return RP_OK;
}

static bool range_contains(const jrange *x, jvalue v) {
    int64_t i;
    if (v.type == J_FLOAT) {
        if (!rp__jinja_double_to_int(v.f, &i) || (double)i != v.f) return false;
    } else if (jis_integer(v)) {
        i = jinteger(v);
    } else {
        return false;
    }
    if (x->step > 0 ? i < x->start || i >= x->stop : i > x->start || i <= x->stop) return false;
    return ((__int128)i - x->start) % x->step == 0;
}

static rp_status text_contains(jrun *r, const jtext *t, jvalue v, bool *out) {
    RP_TRY(rp__jinja_need_defined(r, v));
    if (v.type != J_TEXT)
        return rp__jinja_fail(r, RP_EFORMAT, "\"in\" a string needs a string, not %s",
                              rp__jinja_type_name(v));
    size_t at;
    *out = rp__jinja_find(t, jview_of(v.text), 0, t->n, &at);
    return rp__jinja_charge(r, t->n);
}

static rp_status dict_contains(jrun *r, const jdict *d, jvalue v, bool *out) {
    jvalue found;
    RP_TRY(rp__jinja_need_hashable(r, v));
    RP_TRY(rp__jinja_dict_get(r, d, v, &found));
    *out = found.type != J_MISSING;
    return RP_OK;
}

rp_status rp__jinja_contains(jrun *r, jvalue c, jvalue v, bool *out) {
    *out = false;
    switch (c.type) {
    case J_UNDEFINED:
        return RP_OK;
    case J_TEXT:
        return text_contains(r, c.text, v, out);
    case J_LIST:
    case J_TUPLE:
        return list_contains(r, c.list->p, c.list->n, v, out);
    case J_DICT:
        return dict_contains(r, c.dict, v, out);
    case J_RANGE:
        return *out = range_contains(c.range, v), RP_OK;
    case J_ITER:
        return iter_contains(r, c.iter, v, out);
    case J_VIEW: {
        if (c.view->kind == VIEW_KEYS) return dict_contains(r, c.view->dict, v, out);
        jvalue *items;
        size_t n;
        RP_TRY(rp__jinja_items(r, c, &items, &n));
        return list_contains(r, items, n, v, out);
    }
    default:
        return rp__jinja_fail(r, RP_EFORMAT, "\"in\" needs something to search, not %s",
                              rp__jinja_type_name(c));
    }
}

rp_status rp__jinja_length(jrun *r, jvalue v, int64_t *out) {
    switch (v.type) {
    case J_UNDEFINED:
        return *out = 0, RP_OK;
    case J_TEXT:
        return *out = (int64_t)rp__jinja_n_chars(v.text), rp__jinja_charge(r, v.text->n);
    case J_LIST:
    case J_TUPLE:
        return *out = (int64_t)v.list->n, RP_OK;
    case J_DICT:
        return *out = (int64_t)v.dict->n, RP_OK;
    case J_VIEW:
        return *out = (int64_t)v.view->dict->n, RP_OK;
    case J_RANGE:
        return *out = v.range->n, RP_OK;
    case J_LOOP:
        return *out = (int64_t)v.loop->n, RP_OK;
    default:
        return rp__jinja_fail(r, RP_EFORMAT, "%s has no length", rp__jinja_type_name(v));
    }
}

/* ---- iteration ---- */

bool rp__jinja_is_iterable(jvalue v) {
    switch (v.type) {
    case J_UNDEFINED:
    case J_TEXT:
    case J_LIST:
    case J_TUPLE:
    case J_DICT:
    case J_VIEW:
    case J_RANGE:
    case J_ITER:
        return true;
    default:
        return false;
    }
}

static rp_status characters(jrun *r, const jtext *t, jvalue *items) {
    uint32_t cp;
    for (size_t i = 0, k = 0; i < t->n; k++) {
        size_t took = rp__jinja_next(t->p + i, t->n - i, &cp);
        RP_TRY(rp__jinja_part(r, t, i, i + took, &items[k]));
        i += took;
    }
    return RP_OK;
}

static rp_status view_items(jrun *r, const jview *v, jvalue *items) {
    for (size_t i = 0; i < v->dict->n; i++) {
        const jpair *p = &v->dict->p[i];
        if (v->kind == VIEW_ITEMS) {
            RP_TRY(rp__jinja_list(r, J_TUPLE, 2, &items[i]));
            items[i].list->p[0] = p->key, items[i].list->p[1] = p->value;
        } else {
            items[i] = v->kind == VIEW_KEYS ? p->key : p->value;
        }
    }
    return RP_OK;
}

rp_status rp__jinja_items(jrun *r, jvalue v, jvalue **items, size_t *n) {
    *items = NULL, *n = 0;
    if (v.type == J_UNDEFINED) return RP_OK;
    if (v.type == J_LIST || v.type == J_TUPLE) return *items = v.list->p, *n = v.list->n, RP_OK;
    if (v.type == J_ITER && v.iter->at == v.iter->n) return RP_OK;
    if (v.type == J_ITER) {
        *items = v.iter->p + v.iter->at, *n = v.iter->n - v.iter->at;
        v.iter->at = v.iter->n;
        return RP_OK;
    }
    if (!rp__jinja_is_iterable(v))
        return rp__jinja_fail(r, RP_EFORMAT, "%s cannot be iterated over", rp__jinja_type_name(v));
    int64_t length;
    RP_TRY(rp__jinja_length(r, v, &length));
    RP_TRY(rp__jinja_charge(r, (size_t)length * 16));
    jvalue *p = rp__jinja_alloc(r, (size_t)length, sizeof *p);
    if (!p) return r->status;
    *items = p, *n = (size_t)length;
    if (v.type == J_TEXT) return characters(r, v.text, p);
    if (v.type == J_VIEW) return view_items(r, v.view, p);
    for (size_t i = 0; i < *n; i++)
        p[i] =
            v.type == J_DICT ? v.dict->p[i].key : jint(v.range->start + (int64_t)i * v.range->step);
    return RP_OK;
}

rp_status rp__jinja_list(jrun *r, jtype type, size_t n, jvalue *out) {
    jlist *l = rp__jinja_alloc(r, 1, sizeof *l);
    jvalue *p = l ? rp__jinja_alloc(r, n, sizeof *p) : NULL;
    if (!p) return r->status;
    *l = (jlist){p, n};
    *out = (jvalue){.type = type, .list = l};
    return rp__jinja_charge(r, n * 16);
}

rp_status rp__jinja_iter(jrun *r, jvalue *items, size_t n, jvalue *out) {
    jiter *it = rp__jinja_alloc(r, 1, sizeof *it);
    if (!it) return r->status;
    *it = (jiter){.p = items, .n = n};
    *out = (jvalue){.type = J_ITER, .iter = it};
    return RP_OK;
}

/* ---- dictionaries ---- */

rp_status rp__jinja_dict(jrun *r, size_t cap, jtype type, jvalue *out) {
    jdict *d = rp__jinja_alloc(r, 1, sizeof *d);
    if (!d) return r->status;
    *d = (jdict){0};
    if (cap && !(d->p = rp__jinja_alloc(r, cap, sizeof *d->p))) return r->status;
    d->cap = cap;
    *out = (jvalue){.type = type, .dict = d};
    return RP_OK;
}

rp_status rp__jinja_need_hashable(jrun *r, jvalue v) {
    if (v.type == J_LIST || v.type == J_DICT || v.type == J_VIEW)
        return rp__jinja_fail(r, RP_EFORMAT, "%s cannot be a key", rp__jinja_type_name(v));
    if (v.type != J_TUPLE) return RP_OK;
    RP_TRY(rp__jinja_descend(r));
    for (size_t i = 0; i < v.list->n; i++) RP_TRY(rp__jinja_need_hashable(r, v.list->p[i]));
    jascend(r);
    return RP_OK;
}

/* Dictionaries of requests and templates are small, and a walk keeps their order for free. */
static rp_status find_pair(jrun *r, const jdict *d, jvalue key, jpair **out) {
    *out = NULL;
    RP_TRY(rp__jinja_charge(r, d->n * 8));
    for (size_t i = 0; i < d->n; i++) {
        bool equal;
        if (key.type == J_TEXT && d->p[i].key.type == J_TEXT)
            equal = text_equal(key.text, d->p[i].key.text);
        else
            RP_TRY(rp__jinja_equal(r, d->p[i].key, key, &equal));
        if (equal) return *out = &d->p[i], RP_OK;
    }
    return RP_OK;
}

rp_status rp__jinja_dict_put(jrun *r, jdict *d, jvalue key, jvalue value) {
    jpair *p;
    RP_TRY(find_pair(r, d, key, &p));
    if (p) return p->value = value, RP_OK;
    if (d->n == d->cap) {
        size_t cap = d->cap ? d->cap * 2 : 4;
        if (!(p = rp__jinja_alloc(r, cap, sizeof *p))) return r->status;
        if (d->n) memcpy(p, d->p, d->n * sizeof *p);
        d->p = p, d->cap = cap;
    }
    d->p[d->n++] = (jpair){key, value};
    return RP_OK;
}

rp_status rp__jinja_dict_get(jrun *r, const jdict *d, jvalue key, jvalue *out) {
    jpair *p;
    RP_TRY(find_pair(r, d, key, &p));
    *out = p ? p->value : (jvalue){.type = J_MISSING};
    return RP_OK;
}

bool rp__jinja_dict_find(const jdict *d, rp__str key, jvalue *out) {
    for (size_t i = 0; i < d->n; i++) {
        if (d->p[i].key.type != J_TEXT || !rp__str_eq(jview_of(d->p[i].key.text), key)) continue;
        *out = d->p[i].value;
        return true;
    }
    return false;
}
