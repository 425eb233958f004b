/* JSON in (the context) and out (the tojson filter, as Python's json.dumps writes it). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "text/jinja_impl.h"

/* ---- in ---- */

static rp_status text_from_json(jrun *r, const char *p, size_t n, bool mark, jvalue *out) {
    RP_TRY(rp__jinja_charge(r, n));
    jtext *t = rp__jinja_alloc(r, 1, sizeof *t);
    if (!t) return r->status;
    *t = (jtext){.p = p, .n = n}; /* the context outlives the rendering */
    if (mark && n) {
        rp__span *all = rp__jinja_alloc(r, 1, sizeof *all);
        if (!all) return r->status;
        *all = (rp__span){0, n};
        t->marks = all, t->n_marks = 1;
    }
    *out = jstr(t);
    return RP_OK;
}

static rp_status dict_from_json(jrun *r, const json_t *json, bool mark, jvalue *out) {
    const char *name;
    size_t n;
    json_t *value;
    RP_TRY(rp__jinja_dict(r, json_object_size(json), J_DICT, out));
    json_object_keylen_foreach((json_t *)json, name, n,
                               value) { /* the macro reads only, but is not const */
        jpair *p = &out->dict->p[out->dict->n];
        RP_TRY(text_from_json(r, name, n, mark, &p->key));
        RP_TRY(rp__jinja_from_json(r, value, mark, &p->value));
        out->dict->n++;
    }
    return RP_OK;
}

static rp_status list_from_json(jrun *r, const json_t *json, bool mark, jvalue *out) {
    RP_TRY(rp__jinja_list(r, J_LIST, json_array_size(json), out));
    for (size_t i = 0; i < out->list->n; i++)
        RP_TRY(rp__jinja_from_json(r, json_array_get(json, i), mark, &out->list->p[i]));
    return RP_OK;
}

rp_status rp__jinja_from_json(jrun *r, const json_t *json, bool mark, jvalue *out) {
    switch (json_typeof(json)) {
    case JSON_NULL:
        return *out = jnone(), RP_OK;
    case JSON_TRUE:
    case JSON_FALSE:
        return *out = jbool(json_is_true(json)), RP_OK;
    case JSON_INTEGER:
        return *out = jint(json_integer_value(json)), RP_OK;
    case JSON_REAL:
        return *out = jfloat(json_real_value(json)), RP_OK;
    case JSON_STRING:
        return text_from_json(r, json_string_value(json), json_string_length(json), mark, out);
    default:
        break;
    }
    RP_TRY(rp__jinja_descend(r));
    RP_TRY(json_is_object(json) ? dict_from_json(r, json, mark, out)
                                : list_from_json(r, json, mark, out));
    jascend(r);
    return RP_OK;
}

/* ---- out ---- */

static rp_status dump_escape(jrun *r, jbuilder *b, uint32_t cp) {
    char s[16];
    static const char from[] = "\"\\\n\r\t\f\b", to[] = "\"\\nrtfb";
    const char *at = cp < 0x80 && cp ? strchr(from, (int)cp) : NULL;
    if (at)
        snprintf(s, sizeof s, "\\%c", to[at - from]);
    else if (cp < 0x10000)
        snprintf(s, sizeof s, "\\u%04x", cp);
    else
        snprintf(s, sizeof s, "\\u%04x\\u%04x", 0xD800 + ((cp - 0x10000) >> 10),
                 0xDC00 + ((cp - 0x10000) & 0x3FF));
    return rp__jinja_put_str(r, b, s);
}

static rp_status dump_text(jrun *r, jbuilder *b, const jtext *t, bool ascii) {
    size_t plain = 0, took, begin = b->n;
    uint32_t cp;
    RP_TRY(rp__jinja_put_str(r, b, "\""));
    for (size_t i = 0; i < t->n; i += took) {
        took = rp__jinja_next(t->p + i, t->n - i, &cp);
        if (cp >= 0x20 && cp != '"' && cp != '\\' && (!ascii || cp < 0x7F)) continue;
        RP_TRY(rp__jinja_put(r, b, t->p + plain, i - plain));
        RP_TRY(dump_escape(r, b, cp));
        plain = i + took;
    }
    RP_TRY(rp__jinja_put(r, b, t->p + plain, t->n - plain));
    RP_TRY(rp__jinja_put_str(r, b, "\""));
    return t->n_marks ? rp__jinja_mark(r, b, begin) : RP_OK;
}

static void number_text(jvalue v, char s[40]) {
    if (v.type == J_INT)
        snprintf(s, 40, "%lld", (long long)v.i);
    else if (isnan(v.f))
        snprintf(s, 40, "NaN");
    else if (isinf(v.f))
        snprintf(s, 40, "%s", v.f < 0 ? "-Infinity" : "Infinity");
    else
        rp__jinja_float_repr(v.f, s);
}

/* Keys that are not texts are written as the texts of their JSON. */
static rp_status dump_key(jrun *r, jbuilder *b, jvalue key, const jdump *how) {
    char s[40];
    if (key.type == J_TEXT) return dump_text(r, b, key.text, how->ensure_ascii);
    if (key.type == J_NONE) return rp__jinja_put_str(r, b, "\"null\"");
    if (key.type == J_BOOL) return rp__jinja_put_str(r, b, key.b ? "\"true\"" : "\"false\"");
    if (!jis_number(key))
        return rp__jinja_fail(r, RP_EFORMAT, "tojson cannot write a key of type %s",
                              rp__jinja_type_name(key));
    number_text(key, s);
    RP_TRY(rp__jinja_put_str(r, b, "\""));
    RP_TRY(rp__jinja_put_str(r, b, s));
    return rp__jinja_put_str(r, b, "\"");
}

static rp_status dump_newline(jrun *r, jbuilder *b, const jdump *how, int level) {
    if (!how->indent) return RP_OK;
    RP_TRY(rp__jinja_put_str(r, b, "\n"));
    for (int i = 0; i < level; i++) RP_TRY(rp__jinja_put_text(r, b, how->indent));
    return RP_OK;
}

static rp_status dump(jrun *r, jbuilder *b, jvalue v, const jdump *how, int level);

static rp_status dump_list(jrun *r, jbuilder *b, const jlist *l, const jdump *how, int level) {
    RP_TRY(rp__jinja_put_str(r, b, "["));
    for (size_t i = 0; i < l->n; i++) {
        if (i) RP_TRY(rp__jinja_put_text(r, b, how->item_separator));
        RP_TRY(dump_newline(r, b, how, level + 1));
        RP_TRY(dump(r, b, l->p[i], how, level + 1));
    }
    if (l->n) RP_TRY(dump_newline(r, b, how, level));
    return rp__jinja_put_str(r, b, "]");
}

static rp_status dump_dict(jrun *r, jbuilder *b, const jdict *d, const jdump *how, int level) {
    jvalue keys, values;
    RP_TRY(rp__jinja_list(r, J_LIST, d->n, &keys));
    RP_TRY(rp__jinja_list(r, J_LIST, d->n, &values));
    for (size_t i = 0; i < d->n; i++)
        keys.list->p[i] = d->p[i].key, values.list->p[i] = d->p[i].value;
    if (how->sort_keys) RP_TRY(rp__jinja_sort(r, values.list->p, keys.list->p, d->n, false));
    RP_TRY(rp__jinja_put_str(r, b, "{"));
    for (size_t i = 0; i < d->n; i++) {
        if (i) RP_TRY(rp__jinja_put_text(r, b, how->item_separator));
        RP_TRY(dump_newline(r, b, how, level + 1));
        RP_TRY(dump_key(r, b, keys.list->p[i], how));
        RP_TRY(rp__jinja_put_text(r, b, how->key_separator));
        RP_TRY(dump(r, b, values.list->p[i], how, level + 1));
    }
    if (d->n) RP_TRY(dump_newline(r, b, how, level));
    return rp__jinja_put_str(r, b, "}");
}

static rp_status dump(jrun *r, jbuilder *b, jvalue v, const jdump *how, int level) {
    char s[40];
    switch (v.type) {
    case J_NONE:
        return rp__jinja_put_str(r, b, "null");
    case J_BOOL:
        return rp__jinja_put_str(r, b, v.b ? "true" : "false");
    case J_INT:
    case J_FLOAT:
        number_text(v, s);
        return rp__jinja_put_str(r, b, s);
    case J_TEXT:
        return dump_text(r, b, v.text, how->ensure_ascii);
    case J_LIST:
    case J_TUPLE:
    case J_DICT:
        break;
    default:
        return rp__jinja_fail(r, RP_EFORMAT, "tojson cannot write %s", rp__jinja_type_name(v));
    }
    RP_TRY(rp__jinja_descend(r));
    RP_TRY(v.type == J_DICT ? dump_dict(r, b, v.dict, how, level)
                            : dump_list(r, b, v.list, how, level));
    jascend(r);
    return RP_OK;
}

rp_status rp__jinja_to_json(jrun *r, jbuilder *b, jvalue v, const jdump *how) {
    size_t begin = b->n;
    RP_TRY(dump(r, b, v, how, 0));
    return rp__jinja_mark_if_any(r, b, begin);
}
