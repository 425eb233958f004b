/* Walks expressions. */
#include <string.h>

#include "text/jinja_impl.h"

/* ---- names ---- */

/* Strings of these came from whoever sends requests: they are marked. */
static bool is_marked_source(rp__str name) {
    return rp__str_is(name, "messages") || rp__str_is(name, "tools") ||
           rp__str_is(name, "documents");
}

static rp_status read_global(jrun *r, uint32_t id, jvalue *out) {
    rp__str name = jview_of(r->t->names[id]);
    const json_t *json = json_object_getn(r->context, name.p, name.n);
    const jrow *row = json ? NULL : rp__jinja_find_row(rp__jinja_globals, name);
    if (json)
        RP_TRY(rp__jinja_from_json(r, json, is_marked_source(name), out));
    else if (row)
        *out = (jvalue){.type = J_BUILTIN, .row = row};
    else
        *out = jundefined(r->t->names[id]);
    r->globals[id] = *out;
    r->is_read[id] = true;
    return RP_OK;
}

static rp_status eval_name(jrun *r, uint32_t id, jvalue *out) {
    for (const jscope *s = r->scope; s; s = s->parent)
        for (uint32_t i = 0; i < s->n; i++)
            if (s->p[i].name == id) return *out = s->p[i].value, RP_OK;
    if (r->is_read[id]) return *out = r->globals[id], RP_OK;
    return read_global(r, id, out);
}

/* ---- literals of containers ---- */

static rp_status eval_list(jrun *r, const jnode *n, jvalue *out) {
    jvalue made;
    RP_TRY(rp__jinja_list(r, n->kind == N_LIST ? J_LIST : J_TUPLE, n->list.n, &made));
    for (size_t i = 0; i < n->list.n; i++)
        RP_TRY(rp__jinja_eval(r, n->list.p[i], &made.list->p[i]));
    return *out = made, RP_OK;
}

static rp_status eval_dict(jrun *r, const jnode *n, jvalue *out) {
    jvalue made, key, value;
    RP_TRY(rp__jinja_dict(r, n->list.n / 2, J_DICT, &made));
    for (size_t i = 0; i < n->list.n; i += 2) {
        RP_TRY(rp__jinja_eval(r, n->list.p[i], &key));
        RP_TRY(rp__jinja_eval(r, n->list.p[i + 1], &value));
        RP_TRY(rp__jinja_need_hashable(r, key));
        RP_TRY(rp__jinja_dict_put(r, made.dict, key, value));
    }
    return *out = made, RP_OK;
}

/* ---- operators ---- */

static rp_status eval_logic(jrun *r, const jnode *n, jvalue *out) {
    RP_TRY(rp__jinja_eval(r, n->binary.left, out));
    bool decided = rp__jinja_truth(*out) == (n->kind == N_OR);
    return decided ? RP_OK : rp__jinja_eval(r, n->binary.right, out);
}

static rp_status eval_binary(jrun *r, const jnode *n, jvalue *out) {
    jvalue a, b;
    RP_TRY(rp__jinja_eval(r, n->binary.left, &a));
    RP_TRY(rp__jinja_eval(r, n->binary.right, &b));
    r->line = n->line;
    return rp__jinja_binary(r, n->binary.op, a, b, out);
}

static rp_status eval_concat(jrun *r, const jnode *n, jvalue *out) {
    jbuilder b = {0};
    for (size_t i = 0; i < n->list.n; i++) {
        jvalue v;
        RP_TRY(rp__jinja_eval(r, n->list.p[i], &v));
        RP_TRY(rp__jinja_write(r, &b, v));
    }
    return rp__jinja_build(r, &b, out);
}

static rp_status compare(jrun *r, jop op, jvalue a, jvalue b, bool *out) {
    int c;
    switch (op) {
    case OP_EQ:
        return rp__jinja_equal(r, a, b, out);
    case OP_NE:
        RP_TRY(rp__jinja_equal(r, a, b, out));
        return *out = !*out, RP_OK;
    case OP_IN:
        return rp__jinja_contains(r, b, a, out);
    case OP_NOT_IN:
        RP_TRY(rp__jinja_contains(r, b, a, out));
        return *out = !*out, RP_OK;
    default:
        break;
    }
    RP_TRY(rp__jinja_order(r, a, b, &c));
    if (op == OP_LT)
        *out = c == -1;
    else if (op == OP_LE)
        *out = c == -1 || c == 0;
    else if (op == OP_GT)
        *out = c == 1;
    else
        *out = c == 1 || c == 0;
    return RP_OK;
}

/* a < b < c is (a < b) and (b < c), with b evaluated once. */
static rp_status eval_compare(jrun *r, const jnode *n, jvalue *out) {
    jvalue left, right;
    bool holds = true;
    RP_TRY(rp__jinja_eval(r, n->compare.first, &left));
    for (size_t i = 0; holds && i < n->compare.n; i++) {
        RP_TRY(rp__jinja_eval(r, n->compare.p[i].value, &right));
        r->line = n->line;
        RP_TRY(compare(r, n->compare.p[i].op, left, right, &holds));
        left = right;
    }
    return *out = jbool(holds), RP_OK;
}

static rp_status eval_choice(jrun *r, const jnode *n, jvalue *out) {
    jvalue test;
    RP_TRY(rp__jinja_eval(r, n->choice.test, &test));
    if (rp__jinja_truth(test)) return rp__jinja_eval(r, n->choice.yes, out);
    if (n->choice.no) return rp__jinja_eval(r, n->choice.no, out);
    return *out = jundefined(NULL), RP_OK;
}

static rp_status eval_sign(jrun *r, const jnode *n, jvalue *out) {
    RP_TRY(rp__jinja_eval(r, n->operand, out));
    if (n->kind == N_NOT) return *out = jbool(!rp__jinja_truth(*out)), RP_OK;
    return rp__jinja_negate(r, *out, n->kind == N_NEG, out);
}

/* ---- access ---- */

static rp_status eval_attr(jrun *r, const jnode *n, jvalue *out) {
    jvalue object;
    RP_TRY(rp__jinja_eval(r, n->attr.object, &object));
    r->line = n->line;
    return rp__jinja_attr(r, object, n->attr.name, out);
}

static rp_status eval_item(jrun *r, const jnode *n, jvalue *out) {
    jvalue object, key;
    RP_TRY(rp__jinja_eval(r, n->item.object, &object));
    RP_TRY(rp__jinja_eval(r, n->item.index, &key));
    r->line = n->line;
    return rp__jinja_item(r, object, key, out);
}

static rp_status eval_bound(jrun *r, const jnode *n, jvalue *out) {
    out->type = J_MISSING;
    return n ? rp__jinja_eval(r, n, out) : RP_OK;
}

static rp_status eval_slice(jrun *r, const jnode *n, jvalue *out) {
    jvalue object, from, to, step;
    RP_TRY(rp__jinja_eval(r, n->slice.object, &object));
    RP_TRY(eval_bound(r, n->slice.from, &from));
    RP_TRY(eval_bound(r, n->slice.to, &to));
    RP_TRY(eval_bound(r, n->slice.step, &step));
    r->line = n->line;
    return rp__jinja_slice(r, object, from, to, step, out);
}

/* ---- calls ---- */

static rp_status count_args(jrun *r, const jarg_list *list, const jvalue *values, size_t *n,
                            size_t *n_kw) {
    for (size_t i = 0; i < list->n; i++) {
        if (list->p[i].kind == ARG_STAR_STAR) {
            if (values[i].type != J_DICT)
                return rp__jinja_fail(r, RP_EFORMAT, "what follows \"**\" must be a dict, not %s",
                                      rp__jinja_type_name(values[i]));
            *n_kw += values[i].dict->n;
        } else if (list->p[i].kind == ARG_STAR) {
            int64_t length;
            if (!rp__jinja_is_iterable(values[i]) || values[i].type == J_ITER)
                return rp__jinja_fail(r, RP_EFORMAT,
                                      "what follows \"*\" must be a sequence, not %s",
                                      rp__jinja_type_name(values[i]));
            RP_TRY(rp__jinja_length(r, values[i], &length));
            *n += (size_t)length;
        } else if (list->p[i].name) {
            ++*n_kw;
        } else {
            ++*n;
        }
    }
    return RP_OK;
}

static rp_status add_keyword(jrun *r, jkeyword *kw, size_t *n, jvalue name, jvalue value) {
    if (name.type != J_TEXT)
        return rp__jinja_fail(r, RP_EFORMAT, "the name of an argument must be a string");
    for (size_t i = 0; i < *n; i++)
        if (rp__str_eq(jview_of(kw[i].name), jview_of(name.text)))
            return rp__jinja_fail(r, RP_EFORMAT, "the argument \"%.*s\" is given twice",
                                  (int)name.text->n, name.text->p);
    kw[(*n)++] = (jkeyword){name.text, value};
    return rp__jinja_charge(r, *n * 16);
}

static rp_status spread_arg(jrun *r, const jarg *a, jvalue v, jvalue *p, size_t *n, jkeyword *kw,
                            size_t *n_kw) {
    if (a->kind == ARG_STAR_STAR) {
        for (size_t i = 0; i < v.dict->n; i++)
            RP_TRY(add_keyword(r, kw, n_kw, v.dict->p[i].key, v.dict->p[i].value));
        return RP_OK;
    }
    if (a->name) return add_keyword(r, kw, n_kw, jstr(a->name), v);
    if (a->kind == ARG_PLAIN) return p[(*n)++] = v, RP_OK;
    jvalue *items;
    size_t n_items;
    RP_TRY(rp__jinja_items(r, v, &items, &n_items));
    if (n_items) memcpy(p + *n, items, n_items * sizeof *items);
    *n += n_items;
    return RP_OK;
}

/* `extra`: one keyword more (the caller of a call block), or NULL. */
rp_status rp__jinja_eval_args(jrun *r, const jarg_list *list, const jkeyword *extra, jargs *out) {
    *out = (jargs){0};
    if (!list->n && !extra) return RP_OK;
    jvalue *values = rp__jinja_alloc(r, list->n, sizeof *values);
    if (!values) return r->status;
    for (size_t i = 0; i < list->n; i++) RP_TRY(rp__jinja_eval(r, list->p[i].value, &values[i]));
    size_t n = 0, n_kw = extra != NULL;
    RP_TRY(count_args(r, list, values, &n, &n_kw));
    jvalue *p = rp__jinja_alloc(r, n, sizeof *p);
    jkeyword *kw = p ? rp__jinja_alloc(r, n_kw, sizeof *kw) : NULL;
    if (!kw) return r->status;
    n = n_kw = 0;
    for (size_t i = 0; i < list->n; i++)
        RP_TRY(spread_arg(r, &list->p[i], values[i], p, &n, kw, &n_kw));
    if (extra) RP_TRY(add_keyword(r, kw, &n_kw, jstr(extra->name), extra->value));
    *out = (jargs){p, n, kw, n_kw};
    return RP_OK;
}

static rp_status eval_call(jrun *r, const jnode *n, jvalue *out) {
    jvalue callee;
    jargs args;
    RP_TRY(rp__jinja_eval(r, n->call.callee, &callee));
    RP_TRY(rp__jinja_eval_args(r, &n->call.args, NULL, &args));
    r->line = n->line;
    return rp__jinja_call(r, callee, &args, out);
}

rp_status rp__jinja_eval_filter(jrun *r, const jnode *n, jvalue block, jvalue *out) {
    jvalue input = block;
    jargs args;
    if (n->apply.input) {
        RP_TRY(rp__jinja_descend(r));
        RP_TRY(n->apply.input->kind == N_FILTER
                   ? rp__jinja_eval_filter(r, n->apply.input, block, &input)
                   : rp__jinja_eval(r, n->apply.input, &input));
        jascend(r);
    }
    RP_TRY(rp__jinja_eval_args(r, &n->apply.args, NULL, &args));
    r->line = n->line;
    return rp__jinja_apply(r, "filter", n->apply.row, input, &args, out);
}

static rp_status eval_test(jrun *r, const jnode *n, jvalue *out) {
    jvalue input;
    jargs args;
    RP_TRY(rp__jinja_eval(r, n->apply.input, &input));
    RP_TRY(rp__jinja_eval_args(r, &n->apply.args, NULL, &args));
    r->line = n->line;
    return rp__jinja_apply(r, "test", n->apply.row, input, &args, out);
}

static rp_status eval_node(jrun *r, const jnode *n, jvalue *out) {
    switch (n->kind) {
    case N_LITERAL:
        return *out = n->literal, RP_OK;
    case N_NAME:
        return eval_name(r, n->name, out);
    case N_LIST:
    case N_TUPLE:
        return eval_list(r, n, out);
    case N_DICT:
        return eval_dict(r, n, out);
    case N_NOT:
    case N_NEG:
    case N_POS:
        return eval_sign(r, n, out);
    case N_AND:
    case N_OR:
        return eval_logic(r, n, out);
    case N_BINARY:
        return eval_binary(r, n, out);
    case N_CONCAT:
        return eval_concat(r, n, out);
    case N_COMPARE:
        return eval_compare(r, n, out);
    case N_CHOICE:
        return eval_choice(r, n, out);
    case N_ATTR:
        return eval_attr(r, n, out);
    case N_ITEM:
        return eval_item(r, n, out);
    case N_SLICE:
        return eval_slice(r, n, out);
    case N_CALL:
        return eval_call(r, n, out);
    case N_FILTER:
        return rp__jinja_eval_filter(r, n, jnone(), out);
    case N_TEST:
        return eval_test(r, n, out);
    default:
        rp__assert(false, "node %d is no expression", (int)n->kind);
    }
    return RP_EINTERNAL;
}

rp_status rp__jinja_eval(jrun *r, const jnode *n, jvalue *out) {
    r->line = n->line;
    RP_TRY(rp__jinja_charge(r, 64));
    RP_TRY(rp__jinja_descend(r));
    RP_TRY(eval_node(r, n, out));
    jascend(r);
    return RP_OK;
}
