/* Filters of sequences. What is lazy in Python (map, select, batch, ...) is computed at once here
 * and handed out as an iterator, which can be read once, has no length and is always true, as
 * there. */
#include <string.h>

#include "text/jinja_impl.h"

static bool is_given(jvalue v) {
    return v.type != J_MISSING;
}
static bool is_set(jvalue v) {
    return is_given(v) && rp__jinja_truth(v);
}
static jvalue missing(void) {
    return (jvalue){.type = J_MISSING};
}

static rp_status need_integer(jrun *r, jvalue v, int64_t *out) {
    *out = 0;
    if (!jis_integer(v))
        return rp__jinja_fail(r, RP_EFORMAT, "an integer is needed, not %s",
                              rp__jinja_type_name(v));
    return *out = jinteger(v), RP_OK;
}

/* ---- whole sequences ---- */

JINJA_BODY(filter_length) {
    *out = jint(0);
    return rp__jinja_length(r, self, &out->i);
}

JINJA_BODY(filter_list) {
    jvalue *items;
    size_t n;
    RP_TRY(rp__jinja_items(r, self, &items, &n));
    RP_TRY(rp__jinja_list(r, J_LIST, n, out));
    if (n) memcpy(out->list->p, items, n * sizeof *items);
    return RP_OK;
}

JINJA_BODY(filter_first) {
    if (self.type == J_ITER) { /* takes one, leaves the rest */
        jiter *it = self.iter;
        return *out = it->at < it->n ? it->p[it->at++] : jundefined(NULL), RP_OK;
    }
    if (self.type == J_TEXT) {
        uint32_t cp;
        size_t took = rp__jinja_next(self.text->p, self.text->n, &cp);
        if (!took) return *out = jundefined(NULL), RP_OK;
        return rp__jinja_part(r, self.text, 0, took, out);
    }
    jvalue *items;
    size_t n;
    RP_TRY(rp__jinja_items(r, self, &items, &n));
    return *out = n ? items[0] : jundefined(NULL), RP_OK;
}

static rp_status need_reversible(jrun *r, jvalue v) {
    if (v.type != J_ITER && rp__jinja_is_iterable(v)) return RP_OK;
    return rp__jinja_fail(r, RP_EFORMAT, "%s cannot be reversed", rp__jinja_type_name(v));
}

JINJA_BODY(filter_last) {
    jvalue *items;
    size_t n;
    RP_TRY(need_reversible(r, self));
    RP_TRY(rp__jinja_items(r, self, &items, &n));
    return *out = n ? items[n - 1] : jundefined(NULL), RP_OK;
}

JINJA_BODY(filter_reverse) {
    jvalue *items, made;
    size_t n;
    if (self.type == J_TEXT) return rp__jinja_slice(r, self, missing(), missing(), jint(-1), out);
    RP_TRY(rp__jinja_items(r, self, &items, &n));
    RP_TRY(rp__jinja_list(r, J_LIST, n, &made));
    for (size_t i = 0; i < n; i++) made.list->p[i] = items[n - 1 - i];
    if (self.type == J_ITER) return *out = made, RP_OK;
    return rp__jinja_iter(r, made.list->p, n, out);
}

JINJA_BODY(filter_join) {
    static const jtext none = {.p = ""};
    const jtext *separator = &none;
    jvalue *items;
    size_t n;
    jbuilder b = {0};
    if (is_given(arg[0])) RP_TRY(rp__jinja_to_text(r, arg[0], &separator));
    RP_TRY(rp__jinja_items(r, self, &items, &n));
    for (size_t i = 0; i < n; i++) {
        jvalue v = items[i];
        if (is_given(arg[1])) RP_TRY(rp__jinja_path(r, v, arg[1], missing(), &v));
        if (i) RP_TRY(rp__jinja_put_text(r, &b, separator));
        RP_TRY(rp__jinja_write(r, &b, v));
    }
    return rp__jinja_build(r, &b, out);
}

JINJA_BODY(filter_sum) {
    jvalue *items, total = is_given(arg[1]) ? arg[1] : jint(0);
    size_t n;
    if (total.type == J_TEXT) return rp__jinja_fail(r, RP_EFORMAT, "sum cannot add strings");
    RP_TRY(rp__jinja_items(r, self, &items, &n));
    for (size_t i = 0; i < n; i++) {
        jvalue v = items[i];
        if (is_given(arg[0])) RP_TRY(rp__jinja_path(r, v, arg[0], missing(), &v));
        RP_TRY(rp__jinja_binary(r, OP_ADD, total, v, &total));
    }
    return *out = total, RP_OK;
}

JINJA_BODY(filter_items) {
    if (self.type != J_UNDEFINED && self.type != J_DICT)
        return rp__jinja_fail(r, RP_EFORMAT, "items needs a mapping, not %s",
                              rp__jinja_type_name(self));
    jview view = {self.dict, VIEW_ITEMS};
    jvalue *items = NULL;
    size_t n = 0;
    if (self.type == J_DICT)
        RP_TRY(rp__jinja_items(r, (jvalue){.type = J_VIEW, .view = &view}, &items, &n));
    return rp__jinja_iter(r, items, n, out);
}

/* ---- sorting ---- */

/* The key of sort, unique, min and max: the attribute, in lower case unless `case_sensitive`. */
static rp_status sort_key(jrun *r, jvalue v, jvalue path, bool case_sensitive, jvalue *out) {
    RP_TRY(rp__jinja_path(r, v, path, missing(), out));
    if (case_sensitive || out->type != J_TEXT) return RP_OK;
    return rp__jinja_recase(r, out->text, CASE_LOWER, out);
}

/* sort takes several attributes with commas: the key is the list of their values. */
static rp_status sort_keys(jrun *r, jvalue v, jvalue path, bool case_sensitive, jvalue *out) {
    if (path.type != J_TEXT) return sort_key(r, v, path, case_sensitive, out);
    const jtext *t = path.text;
    size_t n = 1, k = 0;
    for (size_t i = 0; i < t->n; i++) n += t->p[i] == ',';
    RP_TRY(rp__jinja_list(r, J_LIST, n, out));
    for (size_t begin = 0, end; begin <= t->n; begin = end + 1) {
        jvalue part;
        if (!rp__jinja_find(t, RP_STR(","), begin, t->n, &end)) end = t->n;
        RP_TRY(rp__jinja_part(r, t, begin, end, &part));
        RP_TRY(sort_key(r, v, part, case_sensitive, &out->list->p[k++]));
    }
    return RP_OK;
}

JINJA_BODY(filter_sort) {
    jvalue keys;
    RP_TRY(filter_list(r, self, NULL, NULL, out));
    size_t n = out->list->n;
    RP_TRY(rp__jinja_list(r, J_LIST, n, &keys));
    for (size_t i = 0; i < n; i++)
        RP_TRY(sort_keys(r, out->list->p[i], arg[2], is_set(arg[1]), &keys.list->p[i]));
    return rp__jinja_sort(r, out->list->p, keys.list->p, n, is_set(arg[0]));
}

JINJA_BODY(filter_dictsort) {
    rp__str by = arg[1].type == J_TEXT ? jview_of(arg[1].text) : RP_STR("key");
    RP_TRY(rp__jinja_need_defined(r, self));
    if (self.type != J_DICT)
        return rp__jinja_fail(r, RP_EFORMAT, "dictsort needs a dict, not %s",
                              rp__jinja_type_name(self));
    bool by_value = rp__str_is(by, "value");
    if (!by_value && !rp__str_is(by, "key"))
        return rp__jinja_fail(r, RP_EFORMAT, "dictsort sorts by key or value");
    jview view = {self.dict, VIEW_ITEMS};
    jvalue keys;
    RP_TRY(filter_list(r, (jvalue){.type = J_VIEW, .view = &view}, NULL, NULL, out));
    size_t n = out->list->n;
    RP_TRY(rp__jinja_list(r, J_LIST, n, &keys));
    for (size_t i = 0; i < n; i++) {
        jvalue key = out->list->p[i].list->p[by_value];
        RP_TRY(sort_key(r, key, missing(), is_set(arg[0]), &keys.list->p[i]));
    }
    return rp__jinja_sort(r, out->list->p, keys.list->p, n, is_set(arg[2]));
}

static rp_status extreme(jrun *r, jvalue self, const jvalue *arg, int wanted, jvalue *out) {
    jvalue *items, best, key;
    size_t n;
    RP_TRY(rp__jinja_items(r, self, &items, &n));
    *out = jundefined(NULL);
    for (size_t i = 0; i < n; i++) {
        int c = wanted;
        RP_TRY(sort_key(r, items[i], arg[1], is_set(arg[0]), &key));
        if (i) RP_TRY(rp__jinja_order(r, key, best, &c));
        if (c == wanted) *out = items[i], best = key;
    }
    return RP_OK;
}

JINJA_BODY(filter_min) {
    return extreme(r, self, arg, -1, out);
}
JINJA_BODY(filter_max) {
    return extreme(r, self, arg, 1, out);
}

JINJA_BODY(filter_unique) {
    jvalue *items, kept, keys;
    size_t n, n_kept = 0;
    RP_TRY(rp__jinja_items(r, self, &items, &n));
    RP_TRY(rp__jinja_list(r, J_LIST, n, &kept));
    RP_TRY(rp__jinja_list(r, J_LIST, n, &keys));
    for (size_t i = 0; i < n; i++) {
        jvalue key;
        bool seen = false;
        RP_TRY(sort_key(r, items[i], arg[1], is_set(arg[0]), &key));
        RP_TRY(rp__jinja_need_hashable(r, key));
        for (size_t k = 0; !seen && k < n_kept; k++)
            RP_TRY(rp__jinja_equal(r, keys.list->p[k], key, &seen));
        if (seen) continue;
        keys.list->p[n_kept] = key;
        kept.list->p[n_kept++] = items[i];
    }
    return rp__jinja_iter(r, kept.list->p, n_kept, out);
}

/* Sorts by the key, then makes a pair (key, items) of each run of equal ones. */
JINJA_BODY(filter_groupby) {
    jvalue list, keys, groups;
    RP_TRY(filter_list(r, self, NULL, NULL, &list));
    size_t n = list.list->n, n_groups = 0;
    RP_TRY(rp__jinja_list(r, J_LIST, n, &keys));
    RP_TRY(rp__jinja_list(r, J_LIST, n, &groups));
    for (size_t i = 0; i < n; i++) {
        jvalue *key = &keys.list->p[i];
        RP_TRY(rp__jinja_path(r, list.list->p[i], arg[0], arg[1], key));
        if (!is_set(arg[2]) && key->type == J_TEXT)
            RP_TRY(rp__jinja_recase(r, key->text, CASE_LOWER, key));
    }
    RP_TRY(rp__jinja_sort(r, list.list->p, keys.list->p, n, false));
    for (size_t i = 0, end; i < n; i = end) {
        bool equal = true;
        for (end = i + 1; end < n; end++) {
            RP_TRY(rp__jinja_equal(r, keys.list->p[i], keys.list->p[end], &equal));
            if (!equal) break;
        }
        jvalue *pair = &groups.list->p[n_groups++], *items;
        RP_TRY(rp__jinja_list(r, J_TUPLE, 2, pair));
        RP_TRY(rp__jinja_path(r, list.list->p[i], arg[0], arg[1], &pair->list->p[0]));
        items = &pair->list->p[1];
        RP_TRY(rp__jinja_list(r, J_LIST, end - i, items));
        memcpy(items->list->p, list.list->p + i, (end - i) * sizeof *items->list->p);
    }
    groups.list->n = n_groups;
    return *out = groups, RP_OK;
}

/* ---- cutting ---- */

/* A list of items[begin..end) and, when it is given, one `fill` repeated `n_fill` times. */
static rp_status piece(jrun *r, const jvalue *items, size_t begin, size_t end, jvalue fill,
                       size_t n_fill, jvalue *out) {
    size_t n = end - begin;
    if (!is_given(fill) || fill.type == J_NONE) n_fill = 0;
    RP_TRY(rp__jinja_list(r, J_LIST, n + n_fill, out));
    if (n) memcpy(out->list->p, items + begin, n * sizeof *items);
    for (size_t i = 0; i < n_fill; i++) out->list->p[n + i] = fill;
    return RP_OK;
}

JINJA_BODY(filter_batch) {
    jvalue *items, made;
    size_t n, k = 0;
    int64_t width;
    RP_TRY(need_integer(r, arg[0], &width));
    RP_TRY(rp__jinja_items(r, self, &items, &n));
    if (width <= 0)
        return rp__jinja_fail(r, RP_EUNSUPPORTED, "batch needs a positive number, not %lld",
                              (long long)width);
    size_t w = (size_t)width;
    RP_TRY(rp__jinja_list(r, J_LIST, n / w + 1, &made));
    for (size_t i = 0; i < n; i += w) {
        size_t end = n - i < w ? n : i + w;
        RP_TRY(piece(r, items, i, end, arg[1], w - (end - i), &made.list->p[k++]));
        if (end == n) break;
    }
    return rp__jinja_iter(r, made.list->p, k, out);
}

JINJA_BODY(filter_slice) {
    jvalue *items, made;
    size_t n;
    int64_t slices;
    RP_TRY(need_integer(r, arg[0], &slices));
    RP_TRY(rp__jinja_items(r, self, &items, &n));
    if (slices == 0) return rp__jinja_fail(r, RP_EFORMAT, "slice needs a number that is not zero");
    if (slices < 0) return rp__jinja_iter(r, NULL, 0, out);
    if (slices > JINJA_MAX_RANGE)
        return rp__jinja_fail(r, RP_ELIMIT, "slice makes at most %d slices", JINJA_MAX_RANGE);
    size_t s = (size_t)slices, each = n / s, longer = n % s, at = 0;
    RP_TRY(rp__jinja_list(r, J_LIST, s, &made));
    for (size_t i = 0; i < s; i++) {
        size_t end = at + each + (i < longer);
        RP_TRY(piece(r, items, at, end, arg[1], i >= longer, &made.list->p[i]));
        at = end;
    }
    return rp__jinja_iter(r, made.list->p, s, out);
}

/* ---- map, select ---- */

static rp_status need_name(jrun *r, const jargs *all, size_t at, const char *filter, rp__str *out) {
    if (all->n <= at || all->p[at].type != J_TEXT)
        return rp__jinja_fail(r, RP_EFORMAT, "%s needs the name of a filter or test", filter);
    return *out = jview_of(all->p[at].text), RP_OK;
}

static rp_status map_attribute(jrun *r, const jvalue *items, size_t n, const jargs *all,
                               jvalue *made) {
    jvalue path = missing(), fallback = missing();
    for (size_t i = 0; i < all->n_kw; i++) {
        rp__str name = jview_of(all->kw[i].name);
        if (rp__str_is(name, "attribute"))
            path = all->kw[i].value;
        else if (rp__str_is(name, "default"))
            fallback = all->kw[i].value;
        else
            return rp__jinja_fail(r, RP_EFORMAT, "map has no argument \"%.*s\"", (int)name.n,
                                  name.p);
    }
    if (!is_given(path)) return rp__jinja_fail(r, RP_EFORMAT, "map needs a filter or an attribute");
    for (size_t i = 0; i < n; i++) RP_TRY(rp__jinja_path(r, items[i], path, fallback, &made[i]));
    return RP_OK;
}

static rp_status map_filter(jrun *r, const jvalue *items, size_t n, const jargs *all,
                            jvalue *made) {
    rp__str name;
    RP_TRY(need_name(r, all, 0, "map", &name));
    const jrow *row = rp__jinja_find_filter(name);
    if (!row)
        return rp__jinja_fail(r, RP_EUNSUPPORTED, "the filter \"%.*s\" is not known", (int)name.n,
                              name.p);
    jargs rest = {all->p + 1, all->n - 1, all->kw, all->n_kw};
    for (size_t i = 0; i < n; i++)
        RP_TRY(rp__jinja_apply(r, "filter", row, items[i], &rest, &made[i]));
    return RP_OK;
}

JINJA_BODY(filter_map) {
    jvalue *items, made;
    size_t n;
    if (!rp__jinja_truth(self)) return rp__jinja_iter(r, NULL, 0, out); /* None too */
    RP_TRY(rp__jinja_items(r, self, &items, &n));
    RP_TRY(rp__jinja_list(r, J_LIST, n, &made));
    RP_TRY(all->n ? map_filter(r, items, n, all, made.list->p)
                  : map_attribute(r, items, n, all, made.list->p));
    return rp__jinja_iter(r, made.list->p, n, out);
}

static rp_status passes(jrun *r, jvalue v, const jrow *test, const jargs *args, bool *out) {
    jvalue result = v;
    if (test) RP_TRY(rp__jinja_apply(r, "test", test, v, args, &result));
    return *out = rp__jinja_truth(result), RP_OK;
}

static rp_status pick(jrun *r, jvalue self, const jargs *all, bool by_attribute, bool wanted,
                      jvalue *out) {
    jvalue *items, made, path = missing();
    size_t n, n_made = 0, at = by_attribute;
    const jrow *test = NULL;
    if (!rp__jinja_truth(self)) return rp__jinja_iter(r, NULL, 0, out);
    RP_TRY(rp__jinja_items(r, self, &items, &n));
    if (by_attribute) {
        if (!all->n)
            return rp__jinja_fail(r, RP_EFORMAT, "selectattr and rejectattr need an attribute");
        path = all->p[0];
    }
    if (all->n > at) {
        rp__str name;
        RP_TRY(need_name(r, all, at, "select", &name));
        test = rp__jinja_find_row(rp__jinja_tests, name);
        if (!test)
            return rp__jinja_fail(r, RP_EUNSUPPORTED, "the test \"%.*s\" is not known", (int)name.n,
                                  name.p);
    }
    jargs rest = {all->p + at + 1, all->n > at ? all->n - at - 1 : 0, all->kw, all->n_kw};
    RP_TRY(rp__jinja_list(r, J_LIST, n, &made));
    for (size_t i = 0; i < n; i++) {
        jvalue v = items[i];
        bool is;
        if (by_attribute) RP_TRY(rp__jinja_path(r, v, path, missing(), &v));
        RP_TRY(passes(r, v, test, &rest, &is));
        if (is == wanted) made.list->p[n_made++] = items[i];
    }
    return rp__jinja_iter(r, made.list->p, n_made, out);
}

JINJA_BODY(filter_select) {
    return pick(r, self, all, false, true, out);
}
JINJA_BODY(filter_reject) {
    return pick(r, self, all, false, false, out);
}
JINJA_BODY(filter_selectattr) {
    return pick(r, self, all, true, true, out);
}
JINJA_BODY(filter_rejectattr) {
    return pick(r, self, all, true, false, out);
}

const jrow rp__jinja_sequence_filters[] = {
    {"length", "", filter_length},
    {"count", "", filter_length},
    {"list", "", filter_list},
    {"first", "", filter_first},
    {"last", "", filter_last},
    {"reverse", "", filter_reverse},
    {"join", "d? attribute?", filter_join},
    {"sum", "attribute? start?", filter_sum},
    {"items", "", filter_items},
    {"sort", "reverse? case_sensitive? attribute?", filter_sort},
    {"dictsort", "case_sensitive? by? reverse?", filter_dictsort},
    {"min", "case_sensitive? attribute?", filter_min},
    {"max", "case_sensitive? attribute?", filter_max},
    {"unique", "case_sensitive? attribute?", filter_unique},
    {"groupby", "attribute default? case_sensitive?", filter_groupby},
    {"batch", "linecount fill_with?", filter_batch},
    {"slice", "slices fill_with?", filter_slice},
    {"map", "*", filter_map},
    {"select", "*", filter_select},
    {"reject", "*", filter_reject},
    {"selectattr", "*", filter_selectattr},
    {"rejectattr", "*", filter_rejectattr},
    {0},
};
