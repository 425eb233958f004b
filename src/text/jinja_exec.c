/* Walks statements; calls macros.
 *
 * Scopes: a loop's body, a macro, a call block and `with` have one of their own; `if` has none. An
 * assignment goes to the innermost scope, so that what a loop sets is gone after it (namespaces
 * exist to get round that). */
#include <string.h>

#include "text/jinja_impl.h"

/* ---- scopes ---- */

static jscope *push_scope(jrun *r, jscope *parent) {
    jscope *s = rp__jinja_alloc(r, 1, sizeof *s);
    if (s) *s = (jscope){.parent = parent}, r->scope = s;
    return s;
}

static rp_status bind(jrun *r, jscope *s, uint32_t name, jvalue v) {
    RP_TRY(rp__jinja_charge(r, s->n));
    for (uint32_t i = 0; i < s->n; i++)
        if (s->p[i].name == name) return s->p[i].value = v, RP_OK;
    if (s->n == s->cap) {
        uint32_t cap = s->cap ? s->cap * 2 : 4;
        jbinding *p = rp__jinja_alloc(r, cap, sizeof *p);
        if (!p) return r->status;
        if (s->n) memcpy(p, s->p, s->n * sizeof *p);
        s->p = p, s->cap = cap;
    }
    s->p[s->n++] = (jbinding){name, v};
    return RP_OK;
}

/* ---- assignment ---- */

static rp_status assign(jrun *r, const jnode *target, jvalue v);

static rp_status assign_attr(jrun *r, const jnode *target, jvalue v) {
    jvalue object;
    RP_TRY(rp__jinja_eval(r, target->attr.object, &object));
    r->line = target->line;
    if (object.type != J_NAMESPACE)
        return rp__jinja_fail(r, RP_EFORMAT, "only a namespace has attributes to assign to, not %s",
                              rp__jinja_type_name(object));
    const jtext *name = target->attr.name;
    if (name->n && name->p[0] == '_')
        return rp__jinja_fail(r, RP_EFORMAT, "a namespace has no names with \"_\" first: \"%.*s\"",
                              (int)name->n, name->p);
    return rp__jinja_dict_put(r, object.dict, jstr(name), v);
}

static rp_status assign_tuple(jrun *r, const jnode *target, jvalue v) {
    jvalue *items;
    size_t n;
    RP_TRY(rp__jinja_items(r, v, &items, &n));
    if (n != target->list.n)
        return rp__jinja_fail(r, RP_EFORMAT, "%zu values cannot be unpacked into %zu names", n,
                              target->list.n);
    for (size_t i = 0; i < n; i++) RP_TRY(assign(r, target->list.p[i], items[i]));
    return RP_OK;
}

static rp_status assign(jrun *r, const jnode *target, jvalue v) {
    if (target->kind == N_ATTR) return assign_attr(r, target, v);
    if (target->kind == N_TUPLE) return assign_tuple(r, target, v);
    return bind(r, r->scope, target->name, v);
}

/* Runs a body with its output going to a text of its own; a break or continue loses that text, as
 * in Python. */
static rp_status capture(jrun *r, const jnode *body, jvalue *out) {
    jbuilder b = {0}, *around = r->out;
    r->out = &b;
    rp_status status = rp__jinja_exec(r, body);
    r->out = around;
    RP_TRY(status);
    return rp__jinja_build(r, &b, out);
}

static rp_status exec_set_block(jrun *r, const jnode *n) {
    jvalue text;
    jscope *around = r->scope;
    if (!push_scope(r, around)) return r->status;
    RP_TRY(capture(r, n->set.body, &text));
    r->scope = around;
    if (r->flow != FLOW_NEXT) return RP_OK;
    if (n->set.value) RP_TRY(rp__jinja_eval_filter(r, n->set.value, text, &text));
    return assign(r, n->set.target, text);
}

static rp_status exec_set(jrun *r, const jnode *n) {
    jvalue v;
    RP_TRY(rp__jinja_eval(r, n->set.value, &v));
    return assign(r, n->set.target, v);
}

/* ---- loops ---- */

static rp_status filter_items(jrun *r, const jnode *n, jvalue **items, size_t *n_items) {
    jvalue *kept = rp__jinja_alloc(r, *n_items, sizeof *kept);
    if (!kept) return r->status;
    jscope *around = r->scope;
    size_t n_kept = 0;
    for (size_t i = 0; i < *n_items; i++) {
        jvalue test;
        if (!push_scope(r, around)) return r->status;
        RP_TRY(assign(r, n->loop.target, (*items)[i]));
        RP_TRY(rp__jinja_eval(r, n->loop.test, &test));
        if (rp__jinja_truth(test)) kept[n_kept++] = (*items)[i];
    }
    r->scope = around;
    *items = kept, *n_items = n_kept;
    return RP_OK;
}

static rp_status exec_iterations(jrun *r, const jnode *n, jloop *loop) {
    jscope *around = r->scope;
    jvalue self = {.type = J_LOOP, .loop = loop};
    uint64_t n_closures = r->n_closures;
    for (size_t i = 0; i < loop->n; i++) {
        if (i && n_closures == r->n_closures)
            r->scope->n = 0; /* nobody kept it */
        else if (!push_scope(r, around))
            return r->status;
        n_closures = r->n_closures;
        loop->index0 = i;
        RP_TRY(bind(r, r->scope, NAME_LOOP, self));
        RP_TRY(assign(r, n->loop.target, loop->items[i]));
        RP_TRY(rp__jinja_exec(r, n->loop.body));
        bool leaves = r->flow == FLOW_BREAK;
        r->flow = FLOW_NEXT;
        if (leaves) break;
    }
    r->scope = around;
    return RP_OK;
}

static rp_status exec_in_scope(jrun *r, const jnode *body) {
    jscope *around = r->scope;
    if (!push_scope(r, around)) return r->status;
    RP_TRY(rp__jinja_exec(r, body));
    r->scope = around;
    return RP_OK;
}

static rp_status exec_for(jrun *r, const jnode *n) {
    jvalue iter, *items;
    size_t n_items;
    RP_TRY(rp__jinja_eval(r, n->loop.iter, &iter));
    r->line = n->line;
    RP_TRY(rp__jinja_items(r, iter, &items, &n_items));
    if (n->loop.test) RP_TRY(filter_items(r, n, &items, &n_items));
    if (!n_items) return n->loop.other ? exec_in_scope(r, n->loop.other) : RP_OK;
    jloop *loop = rp__jinja_alloc(r, 1, sizeof *loop);
    if (!loop) return r->status;
    *loop = (jloop){.items = items, .n = n_items};
    return exec_iterations(r, n, loop);
}

/* ---- macros ---- */

static rp_status make_macro(jrun *r, const jmacro_def *def, jvalue *out) {
    jmacro *m = rp__jinja_alloc(r, 1, sizeof *m);
    if (!m) return r->status;
    *m = (jmacro){def, r->scope};
    r->n_closures++;
    *out = (jvalue){.type = J_MACRO, .macro = m};
    return RP_OK;
}

static const jkeyword *find_keyword(const jargs *args, const jtext *name) {
    for (size_t i = 0; i < args->n_kw; i++)
        if (rp__str_eq(jview_of(args->kw[i].name), jview_of(name))) return &args->kw[i];
    return NULL;
}

static rp_status macro_error(jrun *r, const jmacro_def *d, const char *what, const jtext *name) {
    return rp__jinja_fail(r, RP_EFORMAT, "macro \"%.*s\" %s \"%.*s\"", (int)d->title->n,
                          d->title->p, what, (int)name->n, name->p);
}

/* Whether a keyword fills a parameter that no positional argument has filled. */
static bool fills_param(const jrun *r, const jmacro_def *d, const jargs *args, const jtext *name) {
    for (size_t i = args->n; i < d->n_params; i++)
        if (rp__str_eq(jview_of(r->t->names[d->params[i]]), jview_of(name))) return true;
    return false;
}

/* What is left over goes to `kwargs`, `caller` and `varargs` where the body mentions them, and is
 * an error else. */
static rp_status bind_rest(jrun *r, const jmacro_def *d, jscope *s, const jargs *args) {
    jvalue kwargs, varargs, caller = jundefined(d->title);
    RP_TRY(rp__jinja_dict(r, args->n_kw, J_DICT, &kwargs));
    for (size_t i = 0; i < args->n_kw; i++) {
        const jkeyword *k = &args->kw[i];
        if (fills_param(r, d, args, k->name)) continue;
        if (d->takes_caller && rp__str_is(jview_of(k->name), "caller"))
            caller = k->value;
        else if (d->takes_kwargs)
            RP_TRY(rp__jinja_dict_put(r, kwargs.dict, jstr(k->name), k->value));
        else
            return macro_error(r, d, "has no parameter", k->name);
    }
    if (args->n > d->n_params && !d->takes_varargs)
        return rp__jinja_fail(r, RP_EFORMAT, "macro \"%.*s\" takes %zu arguments, not %zu",
                              (int)d->title->n, d->title->p, d->n_params, args->n);
    size_t n_rest = args->n > d->n_params ? args->n - d->n_params : 0;
    RP_TRY(rp__jinja_list(r, J_TUPLE, n_rest, &varargs));
    for (size_t i = 0; i < n_rest; i++) varargs.list->p[i] = args->p[d->n_params + i];
    if (d->takes_caller) RP_TRY(bind(r, s, NAME_CALLER, caller));
    if (d->takes_kwargs) RP_TRY(bind(r, s, NAME_KWARGS, kwargs));
    if (d->takes_varargs) RP_TRY(bind(r, s, NAME_VARARGS, varargs));
    return RP_OK;
}

static rp_status bind_params(jrun *r, const jmacro_def *d, jscope *s, const jargs *args) {
    for (size_t i = 0; i < d->n_params; i++) {
        const jtext *name = r->t->names[d->params[i]];
        const jkeyword *k = i < args->n ? NULL : find_keyword(args, name);
        jvalue v = i < args->n ? args->p[i] : k ? k->value : jundefined(name);
        if (i >= args->n && !k && d->defaults[i]) RP_TRY(rp__jinja_eval(r, d->defaults[i], &v));
        RP_TRY(bind(r, s, d->params[i], v));
    }
    return bind_rest(r, d, s, args);
}

rp_status rp__jinja_call_macro(jrun *r, const jmacro *m, const jargs *args, jvalue *out) {
    RP_TRY(rp__jinja_descend(r));
    jscope *around = r->scope, *s = push_scope(r, m->scope);
    if (!s) return r->status;
    RP_TRY(bind_params(r, m->def, s, args));
    RP_TRY(capture(r, m->def->body, out));
    r->scope = around;
    jascend(r);
    return RP_OK;
}

static rp_status exec_call_block(jrun *r, const jnode *n) {
    static const jtext caller_name = {.p = "caller", .n = 6};
    const jnode *call = n->call_block.call;
    jkeyword caller = {.name = &caller_name};
    jvalue callee, out;
    jargs args;
    RP_TRY(make_macro(r, n->call_block.def, &caller.value));
    RP_TRY(rp__jinja_eval(r, call->call.callee, &callee));
    RP_TRY(rp__jinja_eval_args(r, &call->call.args, &caller, &args));
    r->line = n->line;
    RP_TRY(rp__jinja_call(r, callee, &args, &out));
    return rp__jinja_write(r, r->out, out);
}

/* ---- the rest ---- */

static rp_status exec_if(jrun *r, const jnode *n) {
    for (; n && n->kind == N_IF; n = n->choice.no) {
        jvalue test;
        RP_TRY(rp__jinja_eval(r, n->choice.test, &test));
        if (rp__jinja_truth(test)) return rp__jinja_exec(r, n->choice.yes);
    }
    return n ? rp__jinja_exec(r, n) : RP_OK;
}

static rp_status exec_print(jrun *r, const jnode *n) {
    jvalue v;
    RP_TRY(rp__jinja_eval(r, n->operand, &v));
    r->line = n->line;
    return rp__jinja_write(r, r->out, v);
}

static rp_status exec_filter_block(jrun *r, const jnode *n) {
    jvalue text;
    jscope *around = r->scope;
    if (!push_scope(r, around)) return r->status;
    RP_TRY(capture(r, n->filter_block.body, &text));
    r->scope = around;
    if (r->flow != FLOW_NEXT) return RP_OK;
    RP_TRY(rp__jinja_eval_filter(r, n->filter_block.filter, text, &text));
    return rp__jinja_write(r, r->out, text);
}

/* The values see the outer scope only. */
static rp_status exec_with(jrun *r, const jnode *n) {
    size_t count = n->with.targets.n;
    jvalue *values = rp__jinja_alloc(r, count, sizeof *values);
    if (!values) return r->status;
    for (size_t i = 0; i < count; i++) RP_TRY(rp__jinja_eval(r, n->with.values.p[i], &values[i]));
    jscope *around = r->scope;
    if (!push_scope(r, around)) return r->status;
    for (size_t i = 0; i < count; i++) RP_TRY(assign(r, n->with.targets.p[i], values[i]));
    RP_TRY(rp__jinja_exec(r, n->with.body));
    r->scope = around;
    return RP_OK;
}

static rp_status exec_block(jrun *r, const jnode *n) {
    for (size_t i = 0; i < n->list.n && r->flow == FLOW_NEXT; i++)
        RP_TRY(rp__jinja_exec(r, n->list.p[i]));
    return RP_OK;
}

static rp_status exec_macro(jrun *r, const jnode *n) {
    jvalue m;
    RP_TRY(make_macro(r, n->macro.def, &m));
    return bind(r, r->scope, n->macro.name, m);
}

static rp_status exec_node(jrun *r, const jnode *n) {
    switch (n->kind) {
    case N_DATA:
        return rp__jinja_put_text(r, r->out, n->data);
    case N_PRINT:
        return exec_print(r, n);
    case N_BLOCK:
        return exec_block(r, n);
    case N_IF:
        return exec_if(r, n);
    case N_FOR:
        return exec_for(r, n);
    case N_SET:
        return exec_set(r, n);
    case N_SET_BLOCK:
        return exec_set_block(r, n);
    case N_MACRO:
        return exec_macro(r, n);
    case N_CALL_BLOCK:
        return exec_call_block(r, n);
    case N_FILTER_BLOCK:
        return exec_filter_block(r, n);
    case N_WITH:
        return exec_with(r, n);
    case N_SCOPE:
        return exec_in_scope(r, n->list.p[0]);
    case N_BREAK:
        r->flow = FLOW_BREAK;
        return RP_OK;
    case N_CONTINUE:
        r->flow = FLOW_CONTINUE;
        return RP_OK;
    default:
        rp__assert(false, "node %d is no statement", (int)n->kind);
    }
    return RP_EINTERNAL;
}

rp_status rp__jinja_exec(jrun *r, const jnode *n) {
    r->line = n->line;
    RP_TRY(rp__jinja_charge(r, 64));
    RP_TRY(rp__jinja_descend(r));
    RP_TRY(exec_node(r, n));
    jascend(r);
    return RP_OK;
}
