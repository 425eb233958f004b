/* Expressions: tokens to tree, by recursive descent in Jinja's order of precedence (weakest first):
 *     a if b else c;  or;  and;  not;  comparisons, in;  + -;  ~;  * / // %;  **;  unary + -;  . []
 * (), | is Unlike Python's, ** binds to the left and weaker than the unary sign, and "+" binds
 * weaker than "~". Every function returns NULL after a failure, with p->status set. */
#include <string.h>

#include "text/jinja_impl.h"

bool rp__jinja_enter(jparser *p) {
    if (++p->nesting <= JINJA_MAX_NESTING) return true;
    rp__jinja_parse_fail(p, RP_ELIMIT, jpeek(p, 0)->line,
                         "expressions or statements nest deeper than %d", JINJA_MAX_NESTING);
    return false;
}

static jnode *binary_node(jparser *p, jkind kind, jop op, uint32_t line, jnode *left,
                          jnode *right) {
    if (!left || !right) return NULL;
    jnode *n = rp__jinja_node(p, kind, line);
    if (n) n->binary.op = op, n->binary.left = left, n->binary.right = right;
    return n;
}

static jnode *unary_node(jparser *p, jkind kind, uint32_t line, jnode *operand) {
    jnode *n = operand ? rp__jinja_node(p, kind, line) : NULL;
    if (n) n->operand = operand;
    return n;
}

static jnode *literal_node(jparser *p, uint32_t line, jvalue v) {
    jnode *n = rp__jinja_node(p, N_LITERAL, line);
    if (n) n->literal = v;
    return n;
}

static jnode *text_node(jparser *p, uint32_t line, rp__str s) {
    const jtext *t = rp__jinja_parse_text(p, s);
    return t ? literal_node(p, line, jstr(t)) : NULL;
}

/* ---- primaries ---- */

/* The body of a macro takes `caller`, `varargs` and `kwargs` when it, or a macro inside it,
 * mentions them. */
static void note_special_name(jparser *p, rp__str name) {
    for (jmacro_def *m = p->macro; m; m = m->outer) {
        if (rp__str_is(name, "caller")) m->takes_caller = true;
        if (rp__str_is(name, "varargs")) m->takes_varargs = true;
        if (rp__str_is(name, "kwargs")) m->takes_kwargs = true;
    }
}

static jnode *parse_name(jparser *p) {
    const jtoken *t = jpeek(p, 0);
    p->at++;
    if (rp__str_is(t->text, "true") || rp__str_is(t->text, "True"))
        return literal_node(p, t->line, jbool(true));
    if (rp__str_is(t->text, "false") || rp__str_is(t->text, "False"))
        return literal_node(p, t->line, jbool(false));
    if (rp__str_is(t->text, "none") || rp__str_is(t->text, "None"))
        return literal_node(p, t->line, jnone());
    note_special_name(p, t->text);
    jnode *n = rp__jinja_node(p, N_NAME, t->line);
    return n && rp__jinja_name_id(p, t->text, &n->name) ? n : NULL;
}

/* Neighbouring strings are one. */
static jnode *parse_string(jparser *p) {
    const jtoken *first = jpeek(p, 0);
    size_t total = 0, n_strings = 0;
    for (; jpeek(p, n_strings)->type == T_STRING; n_strings++) total += jpeek(p, n_strings)->text.n;
    if (n_strings == 1) {
        p->at++;
        return text_node(p, first->line, first->text);
    }
    char *joined = rp__jinja_parse_alloc(p, total + 1);
    if (!joined) return NULL;
    size_t at = 0;
    for (size_t i = 0; i < n_strings; i++) {
        rp__str s = jpeek(p, i)->text;
        if (s.n) memcpy(joined + at, s.p, s.n);
        at += s.n;
    }
    p->at += n_strings;
    return text_node(p, first->line, (rp__str){joined, total});
}

static jnode *parse_list(jparser *p) {
    jnode *n = rp__jinja_node(p, N_LIST, jpeek(p, 0)->line);
    p->at++;
    while (n && !jsees_op(p, ']')) {
        if (n->list.n && !rp__jinja_expect_op(p, ',')) return NULL;
        if (jsees_op(p, ']')) break;
        if (!rp__jinja_nodes_add(p, &n->list, rp__jinja_parse_expr(p))) return NULL;
    }
    return n && rp__jinja_expect_op(p, ']') ? n : NULL;
}

static jnode *parse_dict(jparser *p) {
    jnode *n = rp__jinja_node(p, N_DICT, jpeek(p, 0)->line);
    p->at++;
    while (n && !jsees_op(p, '}')) {
        if (n->list.n && !rp__jinja_expect_op(p, ',')) return NULL;
        if (jsees_op(p, '}')) break;
        if (!rp__jinja_nodes_add(p, &n->list, rp__jinja_parse_expr(p))) return NULL;
        if (!rp__jinja_expect_op(p, ':')) return NULL;
        if (!rp__jinja_nodes_add(p, &n->list, rp__jinja_parse_expr(p))) return NULL;
    }
    return n && rp__jinja_expect_op(p, '}') ? n : NULL;
}

static jnode *parse_parens(jparser *p) {
    p->at++;
    jnode *n = rp__jinja_parse_tuple(p, TUPLE_PARENS);
    return n && rp__jinja_expect_op(p, ')') ? n : NULL;
}

jnode *rp__jinja_parse_primary(jparser *p) {
    const jtoken *t = jpeek(p, 0);
    switch (t->type) {
    case T_NAME:
        return parse_name(p);
    case T_STRING:
        return parse_string(p);
    case T_INT:
        p->at++;
        return literal_node(p, t->line, jint(t->i));
    case T_FLOAT:
        p->at++;
        return literal_node(p, t->line, jfloat(t->f));
    default:
        break;
    }
    if (jsees_op(p, '(')) return parse_parens(p);
    if (jsees_op(p, '[')) return parse_list(p);
    if (jsees_op(p, '{')) return parse_dict(p);
    rp__jinja_unexpected(p, "an expression");
    return NULL;
}

/* ---- arguments ---- */

static bool add_arg(jparser *p, jarg_list *v, jarg a) {
    if (!a.value) return false;
    if (v->n == v->cap) {
        size_t cap = v->cap ? v->cap * 2 : 4;
        jarg *q = rp__jinja_parse_alloc(p, cap * sizeof *q);
        if (!q) return false;
        if (v->n) memcpy(q, v->p, v->n * sizeof *q);
        v->p = q, v->cap = cap;
    }
    v->p[v->n++] = a;
    return true;
}

static bool parse_arg(jparser *p, jarg_list *v) {
    bool after_keyword = false, after_star = false, after_double = false;
    for (size_t i = 0; i < v->n; i++) {
        after_keyword |= v->p[i].name != NULL;
        after_star |= v->p[i].kind == ARG_STAR;
        after_double |= v->p[i].kind == ARG_STAR_STAR;
    }
    jarg a = {0};
    bool ok = !after_double;
    if (rp__jinja_skip_op(p, '*')) {
        a.kind = ARG_STAR;
        ok &= !after_star;
    } else if (rp__jinja_skip_op(p, TOK_POW)) {
        a.kind = ARG_STAR_STAR;
    } else if (jsees(p, T_NAME) && jpeek(p, 1)->type == T_OP && jpeek(p, 1)->op == '=') {
        if (!(a.name = rp__jinja_parse_text(p, jpeek(p, 0)->text))) return false;
        p->at += 2;
    } else {
        ok &= !after_star && !after_keyword;
    }
    if (!ok) {
        rp__jinja_parse_fail(p, RP_EFORMAT, jpeek(p, 0)->line,
                             "the arguments of the call are in a wrong order");
        return false;
    }
    a.value = rp__jinja_parse_expr(p);
    return add_arg(p, v, a);
}

static bool parse_args(jparser *p, jarg_list *v) {
    if (!rp__jinja_expect_op(p, '(')) return false;
    while (!jsees_op(p, ')')) {
        if (v->n && !rp__jinja_expect_op(p, ',')) return false;
        if (jsees_op(p, ')')) break;
        if (!parse_arg(p, v)) return false;
    }
    return rp__jinja_expect_op(p, ')');
}

/* ---- postfix: . [] () ---- */

static jnode *parse_attr(jparser *p, jnode *object) {
    uint32_t line = jpeek(p, 0)->line;
    p->at++;
    const jtoken *t = jpeek(p, 0);
    if (t->type == T_INT) { /* x.0 is x[0] */
        p->at++;
        jnode *index = literal_node(p, line, jint(t->i)), *n = rp__jinja_node(p, N_ITEM, line);
        if (!index || !n) return NULL;
        n->item.object = object, n->item.index = index;
        return n;
    }
    if (!rp__jinja_expect(p, T_NAME, "a name or number after \".\"")) return NULL;
    jnode *n = rp__jinja_node(p, N_ATTR, line);
    if (!n) return NULL;
    n->attr.object = object;
    n->attr.name = rp__jinja_parse_text(p, t->text);
    return n->attr.name ? n : NULL;
}

static bool at_slice_end(const jparser *p) {
    return jsees_op(p, ']') || jsees_op(p, ',') || jsees_op(p, ':');
}

/* The rest of [from:to:step], after the first ":". */
static jnode *parse_slice(jparser *p, jnode *object, jnode *from, uint32_t line) {
    jnode *n = rp__jinja_node(p, N_SLICE, line);
    if (!n) return NULL;
    n->slice.object = object, n->slice.from = from;
    p->at++;
    if (!at_slice_end(p) && !(n->slice.to = rp__jinja_parse_expr(p))) return NULL;
    if (rp__jinja_skip_op(p, ':') && !at_slice_end(p) && !(n->slice.step = rp__jinja_parse_expr(p)))
        return NULL;
    if (jsees_op(p, ',')) {
        rp__jinja_parse_fail(p, RP_EUNSUPPORTED, line,
                             "several slices in one subscript are not implemented");
        return NULL;
    }
    return rp__jinja_expect_op(p, ']') ? n : NULL;
}

static jnode *parse_subscript(jparser *p, jnode *object) {
    uint32_t line = jpeek(p, 0)->line;
    p->at++;
    if (jsees_op(p, ':')) return parse_slice(p, object, NULL, line);
    jnode *index = jsees_op(p, ']') ? rp__jinja_node(p, N_TUPLE, line) : rp__jinja_parse_expr(p);
    if (!index) return NULL;
    if (jsees_op(p, ':')) return parse_slice(p, object, index, line);
    if (jsees_op(p, ',')) { /* x[a, b] looks up the tuple */
        jnode *tuple = rp__jinja_node(p, N_TUPLE, line);
        if (!tuple || !rp__jinja_nodes_add(p, &tuple->list, index)) return NULL;
        while (rp__jinja_skip_op(p, ','))
            if (!rp__jinja_nodes_add(p, &tuple->list, rp__jinja_parse_expr(p))) return NULL;
        index = tuple;
    }
    jnode *n = rp__jinja_node(p, N_ITEM, line);
    if (!n) return NULL;
    n->item.object = object, n->item.index = index;
    return rp__jinja_expect_op(p, ']') ? n : NULL;
}

static jnode *parse_call(jparser *p, jnode *callee) {
    jnode *n = rp__jinja_node(p, N_CALL, jpeek(p, 0)->line);
    if (!n) return NULL;
    n->call.callee = callee;
    return parse_args(p, &n->call.args) ? n : NULL;
}

static jnode *parse_postfix(jparser *p, jnode *n) {
    while (n) {
        if (jsees_op(p, '.'))
            n = parse_attr(p, n);
        else if (jsees_op(p, '['))
            n = parse_subscript(p, n);
        else if (jsees_op(p, '('))
            n = parse_call(p, n);
        else
            break;
    }
    return n;
}

/* ---- filters and tests ---- */

/* What Python knows and we do not is refused at once. What Python does not know either is refused
 * where Python does: at once, or inside an `if` when it is reached. */
static const jrow *find_or_defer(jparser *p, const char *what, const jrow *row,
                                 const jtoken *name) {
    if (row && row->body) return row;
    if (!row && p->is_soft) {
        jrow *later = rp__jinja_parse_alloc(p, sizeof *later);
        const jtext *copy = later ? rp__jinja_parse_text(p, name->text) : NULL;
        if (!copy) return NULL;
        *later = (jrow){.name = copy->p, .params = "*"};
        return later;
    }
    rp__jinja_parse_fail(p, RP_EUNSUPPORTED, name->line, "the %s \"%.*s\" is not %s", what,
                         (int)name->text.n, name->text.p, row ? "implemented" : "known");
    return NULL;
}

static jnode *parse_filter(jparser *p, jnode *input) {
    const jtoken *t = jpeek(p, 0);
    if (!rp__jinja_expect(p, T_NAME, "the name of a filter")) return NULL;
    jnode *n = rp__jinja_node(p, N_FILTER, t->line);
    if (!n) return NULL;
    n->apply.input = input;
    n->apply.row = find_or_defer(p, "filter", rp__jinja_find_filter(t->text), t);
    if (!n->apply.row) return NULL;
    return !jsees_op(p, '(') || parse_args(p, &n->apply.args) ? n : NULL;
}

jnode *rp__jinja_parse_filters(jparser *p, jnode *input, bool begun) {
    if (begun && !(input = parse_filter(p, input))) return NULL;
    while (rp__jinja_skip_op(p, '|'))
        if (!(input = parse_filter(p, input))) return NULL;
    return input;
}

/* `is divisibleby 3`: one argument may stand without parentheses. */
static bool test_argument_follows(const jparser *p) {
    const jtoken *t = jpeek(p, 0);
    if (t->type == T_STRING || t->type == T_INT || t->type == T_FLOAT || jsees_op(p, '[') ||
        jsees_op(p, '{'))
        return true;
    return t->type == T_NAME && !rp__str_is(t->text, "else") && !rp__str_is(t->text, "or") &&
           !rp__str_is(t->text, "and");
}

static bool parse_test_args(jparser *p, jarg_list *v) {
    if (jsees_op(p, '(')) return parse_args(p, v);
    if (!test_argument_follows(p)) return true;
    if (rp__jinja_sees_name(p, 0, "is")) {
        rp__jinja_parse_fail(p, RP_EFORMAT, jpeek(p, 0)->line,
                             "tests cannot be chained with \"is\"");
        return false;
    }
    jnode *arg = rp__jinja_parse_primary(p);
    return add_arg(p, v, (jarg){.value = arg ? parse_postfix(p, arg) : NULL});
}

static jnode *parse_test(jparser *p, jnode *input) {
    bool negated = rp__jinja_skip_name(p, "not");
    const jtoken *t = jpeek(p, 0);
    if (!rp__jinja_expect(p, T_NAME, "the name of a test")) return NULL;
    jnode *n = rp__jinja_node(p, N_TEST, t->line);
    if (!n) return NULL;
    n->apply.input = input;
    n->apply.row = find_or_defer(p, "test", rp__jinja_find_row(rp__jinja_tests, t->text), t);
    if (!n->apply.row) return NULL;
    if (!parse_test_args(p, &n->apply.args)) return NULL;
    return negated ? unary_node(p, N_NOT, t->line, n) : n;
}

static jnode *parse_filters_and_tests(jparser *p, jnode *n) {
    while (n) {
        if (jsees_op(p, '|'))
            n = rp__jinja_parse_filters(p, n, false);
        else if (rp__jinja_skip_name(p, "is"))
            n = parse_test(p, n);
        else if (jsees_op(p, '('))
            n = parse_call(p, n);
        else
            break;
    }
    return n;
}

/* ---- operators ---- */

static jnode *parse_unary(jparser *p, bool with_filters) {
    if (!rp__jinja_enter(p)) return NULL;
    uint32_t line = jpeek(p, 0)->line;
    jnode *n;
    if (rp__jinja_skip_op(p, '-'))
        n = unary_node(p, N_NEG, line, parse_unary(p, false));
    else if (rp__jinja_skip_op(p, '+'))
        n = unary_node(p, N_POS, line, parse_unary(p, false));
    else
        n = rp__jinja_parse_primary(p);
    n = parse_postfix(p, n);
    if (with_filters) n = parse_filters_and_tests(p, n);
    jleave(p);
    return n;
}

static jnode *parse_power(jparser *p) {
    jnode *left = parse_unary(p, true);
    while (left && jsees_op(p, TOK_POW)) {
        uint32_t line = jpeek(p, 0)->line;
        p->at++;
        left = binary_node(p, N_BINARY, OP_POW, line, left, parse_unary(p, true));
    }
    return left;
}

/* The operator at the cursor, if it is one of a list that ends with 0. */
typedef struct joperator {
    int token;
    jop op;
} joperator;
static bool skip_operator(jparser *p, const joperator *list, jop *op, uint32_t *line) {
    if (!jsees(p, T_OP)) return false;
    for (; list->token; list++) {
        if (jpeek(p, 0)->op != list->token) continue;
        *op = list->op, *line = jpeek(p, 0)->line;
        p->at++;
        return true;
    }
    return false;
}

static jnode *parse_product(jparser *p) {
    static const joperator ops[] = {
        {'*', OP_MUL}, {'/', OP_DIV}, {TOK_FLOORDIV, OP_FLOORDIV}, {'%', OP_MOD}, {0, 0}};
    jop op;
    uint32_t line;
    jnode *left = parse_power(p);
    while (left && skip_operator(p, ops, &op, &line))
        left = binary_node(p, N_BINARY, op, line, left, parse_power(p));
    return left;
}

static jnode *parse_concat(jparser *p) {
    jnode *first = parse_product(p);
    if (!first || !jsees_op(p, '~')) return first;
    jnode *n = rp__jinja_node(p, N_CONCAT, jpeek(p, 0)->line);
    if (!n || !rp__jinja_nodes_add(p, &n->list, first)) return NULL;
    while (rp__jinja_skip_op(p, '~'))
        if (!rp__jinja_nodes_add(p, &n->list, parse_product(p))) return NULL;
    return n;
}

static jnode *parse_sum(jparser *p) {
    static const joperator ops[] = {{'+', OP_ADD}, {'-', OP_SUB}, {0, 0}};
    jop op;
    uint32_t line;
    jnode *left = parse_concat(p);
    while (left && skip_operator(p, ops, &op, &line))
        left = binary_node(p, N_BINARY, op, line, left, parse_concat(p));
    return left;
}

static bool skip_comparison(jparser *p, jop *op) {
    static const joperator ops[] = {{TOK_EQ, OP_EQ}, {TOK_NE, OP_NE}, {'<', OP_LT}, {TOK_LE, OP_LE},
                                    {'>', OP_GT},    {TOK_GE, OP_GE}, {0, 0}};
    uint32_t line;
    if (skip_operator(p, ops, op, &line)) return true;
    if (rp__jinja_skip_name(p, "in")) return *op = OP_IN, true;
    if (!rp__jinja_sees_name(p, 0, "not") || !rp__jinja_sees_name(p, 1, "in")) return false;
    p->at += 2;
    *op = OP_NOT_IN;
    return true;
}

static bool add_operand(jparser *p, jnode *n, joperand o) {
    if (!o.value) return false;
    if (n->compare.n == n->compare.cap) {
        size_t cap = n->compare.cap ? n->compare.cap * 2 : 1;
        joperand *q = rp__jinja_parse_alloc(p, cap * sizeof *q);
        if (!q) return false;
        if (n->compare.n) memcpy(q, n->compare.p, n->compare.n * sizeof *q);
        n->compare.p = q, n->compare.cap = cap;
    }
    n->compare.p[n->compare.n++] = o;
    return true;
}

static jnode *parse_comparison(jparser *p) {
    uint32_t line = jpeek(p, 0)->line;
    jnode *first = parse_sum(p), *n = NULL;
    jop op;
    while (first && skip_comparison(p, &op)) {
        if (!n && !(n = rp__jinja_node(p, N_COMPARE, line))) return NULL;
        n->compare.first = first;
        if (!add_operand(p, n, (joperand){op, parse_sum(p)})) return NULL;
    }
    return n ? n : first;
}

static jnode *parse_not(jparser *p) {
    uint32_t line = jpeek(p, 0)->line;
    if (!rp__jinja_skip_name(p, "not")) return parse_comparison(p);
    if (!rp__jinja_enter(p)) return NULL;
    jnode *n = unary_node(p, N_NOT, line, parse_not(p));
    jleave(p);
    return n;
}

static jnode *parse_and(jparser *p) {
    jnode *left = parse_not(p);
    uint32_t line = jpeek(p, 0)->line;
    while (left && rp__jinja_skip_name(p, "and"))
        left = binary_node(p, N_AND, 0, line, left, parse_not(p));
    return left;
}

static jnode *parse_or(jparser *p) {
    jnode *left = parse_and(p);
    uint32_t line = jpeek(p, 0)->line;
    while (left && rp__jinja_skip_name(p, "or"))
        left = binary_node(p, N_OR, 0, line, left, parse_and(p));
    return left;
}

static jnode *parse_choice(jparser *p) {
    jnode *yes = parse_or(p);
    while (yes && rp__jinja_sees_name(p, 0, "if")) {
        jnode *n = rp__jinja_node(p, N_CHOICE, jpeek(p, 0)->line);
        p->at++;
        if (!n || !(n->choice.test = parse_or(p))) return NULL;
        n->choice.yes = yes;
        bool is_soft = p->is_soft;
        p->is_soft = true;
        if (rp__jinja_skip_name(p, "else") && !(n->choice.no = rp__jinja_parse_expr(p)))
            return NULL;
        p->is_soft = is_soft;
        yes = n;
    }
    return yes;
}

jnode *rp__jinja_parse_expr(jparser *p) {
    if (!rp__jinja_enter(p)) return NULL;
    jnode *n = parse_choice(p);
    jleave(p);
    return n;
}

static bool at_tuple_end(const jparser *p, jtuple_mode mode) {
    if (jsees(p, T_PRINT_END) || jsees(p, T_BLOCK_END) || jsees_op(p, ')')) return true;
    return mode == TUPLE_NO_CHOICE &&
           rp__jinja_sees_name(p, 0, "recursive"); /* `for x in 1, 2, recursive` */
}

jnode *rp__jinja_parse_tuple(jparser *p, jtuple_mode mode) {
    jnode *tuple = rp__jinja_node(p, N_TUPLE, jpeek(p, 0)->line);
    bool has_comma = false;
    while (tuple && !at_tuple_end(p, mode)) {
        jnode *item = mode == TUPLE_NO_CHOICE ? parse_or(p) : rp__jinja_parse_expr(p);
        if (!rp__jinja_nodes_add(p, &tuple->list, item)) return NULL;
        if (!rp__jinja_skip_op(p, ',')) break;
        has_comma = true;
    }
    if (!tuple || has_comma) return tuple;
    if (tuple->list.n) return tuple->list.p[0];
    if (mode == TUPLE_PARENS) return tuple;
    rp__jinja_unexpected(p, "an expression");
    return NULL;
}
