/* str() and repr() of values, as Python writes them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/jinja_impl.h"

/* The fewest digits that read back as the same number; an exponent below -4 and from 16 on. */
void rp__jinja_float_repr(double f, char out[40]) {
    if (isnan(f) || isinf(f)) {
        snprintf(out, 40, "%s", isnan(f) ? "nan" : f < 0 ? "-inf" : "inf");
        return;
    }
    char s[40];
    int digits = 1;
    do snprintf(s, sizeof s, "%.*e", digits - 1, f);
    while (strtod(s, NULL) != f && digits++ < 17);
    int exponent = atoi(strchr(s, 'e') + 1);
    if (exponent < -4 || exponent >= 16) {
        memcpy(out, s, sizeof s);
        return;
    }
    int after_point = digits - 1 - exponent;
    snprintf(out, 40, "%.*f", after_point > 1 ? after_point : 1, f);
}

static rp_status write_text_repr(jrun *r, jbuilder *b, const jtext *t) {
    bool has_single = memchr(t->p, '\'', t->n) != NULL,
         has_double = memchr(t->p, '"', t->n) != NULL;
    char quote = has_single && !has_double ? '"' : '\'', s[16];
    size_t begin = b->n;
    uint32_t cp;
    RP_TRY(rp__jinja_put(r, b, &quote, 1));
    for (size_t i = 0, took; i < t->n; i += took) {
        took = rp__jinja_next(t->p + i, t->n - i, &cp);
        if (cp == '\\' || cp == (uint32_t)quote)
            snprintf(s, sizeof s, "\\%c", (char)cp);
        else if (cp == '\n')
            snprintf(s, sizeof s, "\\n");
        else if (cp == '\r')
            snprintf(s, sizeof s, "\\r");
        else if (cp == '\t')
            snprintf(s, sizeof s, "\\t");
        else if (rp__jinja_is_printable(cp)) {
            RP_TRY(rp__jinja_put(r, b, t->p + i, took));
            continue;
        } else
            snprintf(s, sizeof s,
                     cp < 0x100     ? "\\x%02x"
                     : cp < 0x10000 ? "\\u%04x"
                                    : "\\U%08x",
                     cp);
        RP_TRY(rp__jinja_put_str(r, b, s));
    }
    RP_TRY(rp__jinja_put(r, b, &quote, 1));
    return t->n_marks ? rp__jinja_mark(r, b, begin) : RP_OK;
}

static rp_status write_sequence(jrun *r, jbuilder *b, const jlist *l, const char *open,
                                const char *close) {
    RP_TRY(rp__jinja_put_str(r, b, open));
    for (size_t i = 0; i < l->n; i++) {
        if (i) RP_TRY(rp__jinja_put_str(r, b, ", "));
        RP_TRY(rp__jinja_write_repr(r, b, l->p[i]));
    }
    return rp__jinja_put_str(r, b, close);
}

static rp_status write_dict(jrun *r, jbuilder *b, const jdict *d) {
    RP_TRY(rp__jinja_put_str(r, b, "{"));
    for (size_t i = 0; i < d->n; i++) {
        if (i) RP_TRY(rp__jinja_put_str(r, b, ", "));
        RP_TRY(rp__jinja_write_repr(r, b, d->p[i].key));
        RP_TRY(rp__jinja_put_str(r, b, ": "));
        RP_TRY(rp__jinja_write_repr(r, b, d->p[i].value));
    }
    return rp__jinja_put_str(r, b, "}");
}

static rp_status write_namespace(jrun *r, jbuilder *b, const jdict *d) {
    RP_TRY(rp__jinja_put_str(r, b, "<Namespace "));
    RP_TRY(write_dict(r, b, d));
    return rp__jinja_put_str(r, b, ">");
}

static rp_status write_view(jrun *r, jbuilder *b, jvalue v) {
    static const char *const open[] = {"dict_keys([", "dict_values([", "dict_items(["};
    jlist l;
    RP_TRY(rp__jinja_items(r, v, &l.p, &l.n));
    return write_sequence(r, b, &l, open[v.view->kind], "])");
}

static rp_status write_range(jrun *r, jbuilder *b, const jrange *x) {
    char s[96];
    if (x->step == 1)
        snprintf(s, sizeof s, "range(%lld, %lld)", (long long)x->start, (long long)x->stop);
    else
        snprintf(s, sizeof s, "range(%lld, %lld, %lld)", (long long)x->start, (long long)x->stop,
                 (long long)x->step);
    return rp__jinja_put_str(r, b, s);
}

static rp_status write_container(jrun *r, jbuilder *b, jvalue v) {
    switch (v.type) {
    case J_LIST:
        return write_sequence(r, b, v.list, "[", "]");
    case J_TUPLE:
        return write_sequence(r, b, v.list, "(", v.list->n == 1 ? ",)" : ")");
    case J_DICT:
        return write_dict(r, b, v.dict);
    case J_NAMESPACE:
        return write_namespace(r, b, v.dict);
    default:
        return write_view(r, b, v);
    }
}

static rp_status write_scalar(jrun *r, jbuilder *b, jvalue v) {
    char s[64];
    switch (v.type) {
    case J_MISSING:
    case J_UNDEFINED:
        return rp__jinja_put_str(r, b, "Undefined");
    case J_NONE:
        return rp__jinja_put_str(r, b, "None");
    case J_BOOL:
        return rp__jinja_put_str(r, b, v.b ? "True" : "False");
    case J_INT:
        snprintf(s, sizeof s, "%lld", (long long)v.i);
        break;
    case J_FLOAT:
        rp__jinja_float_repr(v.f, s);
        break;
    case J_RANGE:
        return write_range(r, b, v.range);
    case J_LOOP:
        snprintf(s, sizeof s, "<LoopContext %zu/%zu>", v.loop->index0 + 1, v.loop->n);
        break;
    default: /* Python prints addresses */
        return rp__jinja_fail(r, RP_EUNSUPPORTED, "printing a value of type %s is not implemented",
                              rp__jinja_type_name(v));
    }
    return rp__jinja_put_str(r, b, s);
}

rp_status rp__jinja_write_repr(jrun *r, jbuilder *b, jvalue v) {
    if (v.type == J_TEXT) return write_text_repr(r, b, v.text);
    bool is_container = v.type == J_LIST || v.type == J_TUPLE || v.type == J_DICT ||
                        v.type == J_NAMESPACE || v.type == J_VIEW;
    if (!is_container) return write_scalar(r, b, v);
    size_t begin = b->n;
    RP_TRY(rp__jinja_descend(r));
    RP_TRY(write_container(r, b, v));
    jascend(r);
    return rp__jinja_mark_if_any(r, b, begin);
}

rp_status rp__jinja_write(jrun *r, jbuilder *b, jvalue v) {
    if (v.type == J_TEXT) return rp__jinja_put_text(r, b, v.text);
    if (v.type == J_UNDEFINED) return RP_OK;
    return rp__jinja_write_repr(r, b, v);
}

rp_status rp__jinja_to_text(jrun *r, jvalue v, const jtext **out) {
    if (v.type != J_TEXT) {
        jbuilder b = {0};
        RP_TRY(rp__jinja_write(r, &b, v));
        RP_TRY(rp__jinja_build(r, &b, &v));
    }
    *out = v.text;
    return RP_OK;
}
