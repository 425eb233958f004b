/* Statements: tokens to tree. Expressions are in jinja_expr.c.
 *
 * Refuses, by name and line: include, import, from, extends, block, autoescape, trans and recursive
 * loops, and every tag that is not known. break and continue outside a loop, and unknown filters
 * and tests, are errors here too. */
#include <string.h>

#include "text/jinja_impl.h"

/* ---- tokens ---- */

bool rp__jinja_sees_name(const jparser *p, size_t ahead, const char *name) {
    const jtoken *t = jpeek(p, ahead);
    return t->type == T_NAME && rp__str_is(t->text, name);
}

bool rp__jinja_skip_op(jparser *p, int op) {
    if (!jsees_op(p, op)) return false;
    p->at++;
    return true;
}

bool rp__jinja_skip_name(jparser *p, const char *name) {
    if (!rp__jinja_sees_name(p, 0, name)) return false;
    p->at++;
    return true;
}

static const char *op_text(int op, char one[2]) {
    static const char *const two[] = {"//", "**", "==", "!=", "<=", ">="};
    if (op >= TOK_FLOORDIV) return two[op - TOK_FLOORDIV];
    one[0] = (char)op, one[1] = 0;
    return one;
}

rp_status rp__jinja_unexpected(jparser *p, const char *wanted) {
    const jtoken *t = jpeek(p, 0);
    char one[2];
    rp__str s = t->text;
    switch (t->type) {
    case T_NAME:
    case T_STRING:
        break;
    case T_INT:
    case T_FLOAT:
        s = RP_STR("a number");
        break;
    case T_OP:
        s = rp__str_of(op_text(t->op, one));
        break;
    case T_BLOCK_END:
        s = RP_STR("%}");
        break;
    case T_PRINT_END:
        s = RP_STR("}}");
        break;
    default:
        s = RP_STR("the end of the template");
        break;
    }
    return rp__jinja_parse_fail(p, RP_EFORMAT, t->line, "found \"%.*s\" where %s is needed",
                                (int)(s.n < 60 ? s.n : 60), s.p, wanted);
}

bool rp__jinja_expect(jparser *p, jtoken_type type, const char *what) {
    if (jsees(p, type)) {
        p->at++;
        return true;
    }
    rp__jinja_unexpected(p, what);
    return false;
}

bool rp__jinja_expect_op(jparser *p, int op) {
    if (rp__jinja_skip_op(p, op)) return true;
    char one[2], what[8];
    const char *text = op_text(op, one);
    size_t n = strlen(text);
    what[0] = '"';
    memcpy(what + 1, text, n);
    memcpy(what + 1 + n, "\"", 2);
    rp__jinja_unexpected(p, what);
    return false;
}

static bool expect_block_end(jparser *p) {
    return rp__jinja_expect(p, T_BLOCK_END, "\"%}\"");
}

/* ---- building ---- */

void *rp__jinja_parse_alloc(jparser *p, size_t bytes) {
    void *q = rp__arena_calloc(&p->t->arena, 1, bytes);
    if (!q) rp__jinja_parse_fail(p, RP_ENOMEM, 0, "out of memory while reading the template");
    return q;
}

const jtext *rp__jinja_parse_text(jparser *p, rp__str s) {
    jtext *t = rp__jinja_parse_alloc(p, sizeof *t);
    char *copy = t ? rp__jinja_parse_alloc(p, s.n + 1) : NULL;
    if (!copy) return NULL;
    if (s.n) memcpy(copy, s.p, s.n);
    *t = (jtext){.p = copy, .n = s.n};
    return t;
}

jnode *rp__jinja_node(jparser *p, jkind kind, uint32_t line) {
    jnode *n = rp__jinja_parse_alloc(p, sizeof *n);
    if (n) n->kind = kind, n->line = line;
    return n;
}

bool rp__jinja_nodes_add(jparser *p, jnodes *v, jnode *n) {
    if (!n) return false;
    if (v->n == v->cap) {
        size_t cap = v->cap ? v->cap * 2 : 4;
        jnode **q = rp__jinja_parse_alloc(p, cap * sizeof *q);
        if (!q) return false;
        if (v->n) memcpy(q, v->p, v->n * sizeof *q);
        v->p = q, v->cap = cap;
    }
    v->p[v->n++] = n;
    return true;
}

static bool add_name(jparser *p, rp__str name, uint32_t *id) {
    rp__template *t = p->t;
    const jtext *text = rp__jinja_parse_text(p, name);
    if (!text) return false;
    if (t->n_names == p->cap_names) {
        uint32_t cap = p->cap_names ? p->cap_names * 2 : 32;
        const jtext **q = rp__jinja_parse_alloc(p, cap * sizeof *q);
        if (!q) return false;
        if (t->n_names) memcpy(q, t->names, t->n_names * sizeof *q);
        t->names = q, p->cap_names = cap;
    }
    if (!rp__map_put(&p->names, jview_of(text), t->n_names)) {
        rp__jinja_parse_fail(p, RP_ENOMEM, 0, "out of memory while reading the template");
        return false;
    }
    *id = t->n_names;
    t->names[t->n_names++] = text;
    return true;
}

bool rp__jinja_name_id(jparser *p, rp__str name, uint32_t *id) {
    uint64_t known;
    if (!rp__map_get(&p->names, name, &known)) return add_name(p, name, id);
    *id = (uint32_t)known;
    return true;
}

/* ---- targets of assignments ---- */

static jnode *parse_namespace_target(jparser *p) {
    jnode *object = rp__jinja_parse_primary(p), *n = rp__jinja_node(p, N_ATTR, jpeek(p, 0)->line);
    if (!object || !n || !rp__jinja_expect_op(p, '.')) return NULL;
    const jtoken *t = jpeek(p, 0);
    if (!rp__jinja_expect(p, T_NAME, "the name of an attribute")) return NULL;
    n->attr.object = object;
    n->attr.name = rp__jinja_parse_text(p, t->text);
    return n->attr.name ? n : NULL;
}

static bool is_reserved(rp__str s) {
    static const char *const words[] = {"true", "false", "none", "True", "False", "None"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (rp__str_is(s, words[i])) return true;
    return false;
}

static jnode *parse_target_list(jparser *p, bool with_namespace);

static jnode *parse_one_target(jparser *p, bool with_namespace) {
    const jtoken *t = jpeek(p, 0);
    if (rp__jinja_skip_op(p, '(')) {
        if (!rp__jinja_enter(p)) return NULL;
        jnode *n = parse_target_list(p, with_namespace);
        jleave(p);
        return n && rp__jinja_expect_op(p, ')') ? n : NULL;
    }
    if (t->type != T_NAME || is_reserved(t->text)) {
        rp__jinja_unexpected(p, "a name to assign to");
        return NULL;
    }
    if (with_namespace && jpeek(p, 1)->type == T_OP && jpeek(p, 1)->op == '.')
        return parse_namespace_target(p);
    p->at++;
    jnode *n = rp__jinja_node(p, N_NAME, t->line);
    return n && rp__jinja_name_id(p, t->text, &n->name) ? n : NULL;
}

static bool at_target_end(const jparser *p) {
    return jsees(p, T_BLOCK_END) || jsees_op(p, ')') || jsees_op(p, '=') ||
           rp__jinja_sees_name(p, 0, "in");
}

static jnode *parse_target_list(jparser *p, bool with_namespace) {
    jnode *first = parse_one_target(p, with_namespace);
    if (!first || !jsees_op(p, ',')) return first;
    jnode *n = rp__jinja_node(p, N_TUPLE, first->line);
    if (!n || !rp__jinja_nodes_add(p, &n->list, first)) return NULL;
    while (rp__jinja_skip_op(p, ',') && !at_target_end(p))
        if (!rp__jinja_nodes_add(p, &n->list, parse_one_target(p, with_namespace))) return NULL;
    return n;
}

/* ---- bodies ---- */

static jnode *parse_statement(jparser *p);

static bool ends_here(const jparser *p, const char *const *ends) {
    for (; ends && *ends; ends++)
        if (rp__jinja_sees_name(p, 1, *ends)) return true;
    return false;
}

static bool add_piece(jparser *p, jnode *block) {
    const jtoken *t = jpeek(p, 0);
    p->at++;
    if (t->type == T_DATA) {
        jnode *n = rp__jinja_node(p, N_DATA, t->line);
        jtext *text = n ? rp__jinja_parse_alloc(p, sizeof *text) : NULL;
        if (!text) return false;
        *text = (jtext){.p = t->text.p, .n = t->text.n};
        n->data = text;
        return rp__jinja_nodes_add(p, &block->list, n);
    }
    if (t->type == T_PRINT_BEGIN) {
        jnode *n = rp__jinja_node(p, N_PRINT, t->line);
        if (!n || !(n->operand = rp__jinja_parse_tuple(p, TUPLE_FULL))) return false;
        return rp__jinja_nodes_add(p, &block->list, n) &&
               rp__jinja_expect(p, T_PRINT_END, "\"}}\"");
    }
    jnode *n = parse_statement(p); /* T_BLOCK_BEGIN */
    return rp__jinja_nodes_add(p, &block->list, n) && expect_block_end(p);
}

/* Everything until one of the `ends`; the cursor stays on the name of that one. NULL `ends`: until
 * the end. */
static jnode *parse_until(jparser *p, const char *const *ends, const char *what, uint32_t line) {
    jnode *block = rp__jinja_node(p, N_BLOCK, jpeek(p, 0)->line);
    while (block && !jsees(p, T_END)) {
        if (jsees(p, T_BLOCK_BEGIN) && ends_here(p, ends)) {
            p->at++;
            return block;
        }
        if (!add_piece(p, block)) return NULL;
    }
    if (block && ends) {
        rp__jinja_parse_fail(p, RP_EFORMAT, line, "\"%s\" has no \"%s\"", what, ends[0]);
        return NULL;
    }
    return block;
}

/* The body of a statement; the tag that ends it is the cursor's. */
static jnode *parse_body(jparser *p, const char *const *ends, const char *what, uint32_t line) {
    rp__jinja_skip_op(p, ':');
    return expect_block_end(p) ? parse_until(p, ends, what, line) : NULL;
}

/* The same with one possible end, which is skipped. */
static jnode *parse_whole_body(jparser *p, const char *end, const char *what, uint32_t line) {
    const char *const ends[] = {end, NULL};
    jnode *body = parse_body(p, ends, what, line);
    if (body) p->at++;
    return body;
}

/* ---- statements; the cursor is behind the tag's name, and is left at its "%}" ---- */

/* Python compiles the branches of an `if` with filters and tests that it does not know; they fail
 * when reached. */
static jnode *parse_if(jparser *p, uint32_t line) {
    static const char *const ends[] = {"endif", "elif", "else", NULL};
    jnode *first = NULL, **link = &first;
    p->is_soft = true;
    for (;;) {
        jnode *n = *link = rp__jinja_node(p, N_IF, line);
        if (!n || !(n->choice.test = rp__jinja_parse_tuple(p, TUPLE_NO_CHOICE))) return NULL;
        if (!(n->choice.yes = parse_body(p, ends, "if", line))) return NULL;
        line = jpeek(p, 0)->line;
        link = &n->choice.no;
        if (rp__jinja_skip_name(p, "elif")) continue;
        if (rp__jinja_skip_name(p, "endif")) return first;
        p->at++; /* else */
        *link = parse_whole_body(p, "endif", "else", line);
        return *link ? first : NULL;
    }
}

static bool parse_for_bodies(jparser *p, jnode *n) {
    static const char *const ends[] = {"endfor", "else", NULL};
    p->n_loops++;
    p->is_soft = false;
    n->loop.body = parse_body(p, ends, "for", n->line);
    p->n_loops--;
    if (!n->loop.body) return false;
    if (rp__jinja_skip_name(p, "endfor")) return true;
    p->at++; /* else */
    n->loop.other = parse_whole_body(p, "endfor", "else", n->line);
    return n->loop.other != NULL;
}

static jnode *parse_for(jparser *p, uint32_t line) {
    jnode *n = rp__jinja_node(p, N_FOR, line);
    if (!n || !(n->loop.target = parse_target_list(p, false))) return NULL;
    if (!rp__jinja_skip_name(p, "in")) {
        rp__jinja_unexpected(p, "\"in\"");
        return NULL;
    }
    if (!(n->loop.iter = rp__jinja_parse_tuple(p, TUPLE_NO_CHOICE))) return NULL;
    if (rp__jinja_skip_name(p, "if") && !(n->loop.test = rp__jinja_parse_expr(p))) return NULL;
    if (rp__jinja_sees_name(p, 0, "recursive")) {
        rp__jinja_parse_fail(p, RP_EUNSUPPORTED, line, "\"for ... recursive\" is not implemented");
        return NULL;
    }
    return parse_for_bodies(p, n) ? n : NULL;
}

static jnode *parse_set(jparser *p, uint32_t line) {
    jnode *n = rp__jinja_node(p, N_SET, line);
    if (!n || !(n->set.target = parse_target_list(p, true))) return NULL;
    if (rp__jinja_skip_op(p, '='))
        return (n->set.value = rp__jinja_parse_tuple(p, TUPLE_FULL)) ? n : NULL;
    n->kind = N_SET_BLOCK;
    if (jsees_op(p, '|') && !(n->set.value = rp__jinja_parse_filters(p, NULL, false))) return NULL;
    p->is_soft = false;
    n->set.body = parse_whole_body(p, "endset", "set", line);
    return n->set.body ? n : NULL;
}

static bool parse_param(jparser *p, jmacro_def *def, size_t *cap) {
    const jtoken *t = jpeek(p, 0);
    if (!rp__jinja_expect(p, T_NAME, "the name of a parameter")) return false;
    if (def->n_params == *cap) {
        *cap = *cap ? *cap * 2 : 4;
        uint32_t *params = rp__jinja_parse_alloc(p, *cap * sizeof *params);
        jnode **defaults = rp__jinja_parse_alloc(p, *cap * sizeof *defaults);
        if (!params || !defaults) return false;
        if (def->n_params) memcpy(params, def->params, def->n_params * sizeof *params);
        if (def->n_params) memcpy(defaults, def->defaults, def->n_params * sizeof *defaults);
        def->params = params, def->defaults = defaults;
    }
    size_t i = def->n_params++;
    if (!rp__jinja_name_id(p, t->text, &def->params[i])) return false;
    bool is_caller = rp__str_is(t->text, "caller");
    def->names_caller |= is_caller;
    if (rp__jinja_skip_op(p, '=')) return (def->defaults[i] = rp__jinja_parse_expr(p)) != NULL;
    if (!is_caller && (!i || !def->defaults[i - 1])) return true;
    rp__jinja_parse_fail(p, RP_EFORMAT, t->line, "the parameter \"%.*s\" needs a default",
                         (int)t->text.n, t->text.p);
    return false;
}

static bool parse_params(jparser *p, jmacro_def *def) {
    size_t cap = 0;
    if (!rp__jinja_expect_op(p, '(')) return false;
    while (!jsees_op(p, ')')) {
        if (def->n_params && !rp__jinja_expect_op(p, ',')) return false;
        if (!parse_param(p, def, &cap)) return false;
    }
    return rp__jinja_expect_op(p, ')');
}

/* Bodies of macros are functions of their own: a break in them does not reach a loop around. */
static bool parse_macro_body(jparser *p, jmacro_def *def, const char *end, const char *what,
                             uint32_t line) {
    int n_loops = p->n_loops;
    def->outer = p->macro;
    p->macro = def, p->n_loops = 0, p->is_soft = false;
    def->body = parse_whole_body(p, end, what, line);
    p->macro = def->outer, p->n_loops = n_loops;
    if (def->names_caller) def->takes_caller = false;
    return def->body != NULL;
}

static jnode *parse_macro(jparser *p, uint32_t line) {
    jnode *n = rp__jinja_node(p, N_MACRO, line);
    jmacro_def *def = n ? rp__jinja_parse_alloc(p, sizeof *def) : NULL;
    const jtoken *t = jpeek(p, 0);
    if (!def || !rp__jinja_expect(p, T_NAME, "the name of a macro")) return NULL;
    n->macro.def = def;
    def->title = rp__jinja_parse_text(p, t->text);
    if (!def->title || !rp__jinja_name_id(p, t->text, &n->macro.name) || !parse_params(p, def))
        return NULL;
    return parse_macro_body(p, def, "endmacro", "macro", line) ? n : NULL;
}

static jnode *parse_call_block(jparser *p, uint32_t line) {
    jnode *n = rp__jinja_node(p, N_CALL_BLOCK, line);
    jmacro_def *def = n ? rp__jinja_parse_alloc(p, sizeof *def) : NULL;
    if (!def || !(def->title = rp__jinja_parse_text(p, RP_STR("caller")))) return NULL;
    if (jsees_op(p, '(') && !parse_params(p, def)) return NULL;
    n->call_block.def = def;
    n->call_block.call = rp__jinja_parse_expr(p);
    if (!n->call_block.call) return NULL;
    if (n->call_block.call->kind != N_CALL) {
        rp__jinja_parse_fail(p, RP_EFORMAT, line, "\"call\" needs a call");
        return NULL;
    }
    return parse_macro_body(p, def, "endcall", "call", line) ? n : NULL;
}

static jnode *parse_filter_block(jparser *p, uint32_t line) {
    jnode *n = rp__jinja_node(p, N_FILTER_BLOCK, line);
    if (!n || !(n->filter_block.filter = rp__jinja_parse_filters(p, NULL, true))) return NULL;
    p->is_soft = false;
    n->filter_block.body = parse_whole_body(p, "endfilter", "filter", line);
    return n->filter_block.body ? n : NULL;
}

static jnode *parse_with(jparser *p, uint32_t line) {
    jnode *n = rp__jinja_node(p, N_WITH, line);
    while (n && !jsees(p, T_BLOCK_END) && !jsees_op(p, ':')) {
        if (n->with.targets.n && !rp__jinja_expect_op(p, ',')) return NULL;
        if (!rp__jinja_nodes_add(p, &n->with.targets, parse_target_list(p, false))) return NULL;
        if (!rp__jinja_expect_op(p, '=')) return NULL;
        if (!rp__jinja_nodes_add(p, &n->with.values, rp__jinja_parse_expr(p))) return NULL;
    }
    p->is_soft = false;
    if (!n || !(n->with.body = parse_whole_body(p, "endwith", "with", line))) return NULL;
    return n;
}

static jnode *parse_print(jparser *p, uint32_t line) {
    jnode *block = rp__jinja_node(p, N_BLOCK, line);
    while (block && !jsees(p, T_BLOCK_END)) {
        if (block->list.n && !rp__jinja_expect_op(p, ',')) return NULL;
        jnode *n = rp__jinja_node(p, N_PRINT, line);
        if (!n || !(n->operand = rp__jinja_parse_expr(p))) return NULL;
        if (!rp__jinja_nodes_add(p, &block->list, n)) return NULL;
    }
    return block;
}

/* transformers marks what the model generates; here the tag only opens a scope, as it does there.
 */
static jnode *parse_generation(jparser *p, uint32_t line) {
    jnode *n = rp__jinja_node(p, N_SCOPE, line);
    int n_loops = p->n_loops;
    p->n_loops = 0, p->is_soft = false;
    jnode *body = n ? parse_whole_body(p, "endgeneration", "generation", line) : NULL;
    p->n_loops = n_loops;
    return body && rp__jinja_nodes_add(p, &n->list, body) ? n : NULL;
}

static jnode *parse_jump(jparser *p, uint32_t line, bool is_break) {
    if (p->n_loops) return rp__jinja_node(p, is_break ? N_BREAK : N_CONTINUE, line);
    rp__jinja_parse_fail(p, RP_EFORMAT, line, "\"%s\" is outside a loop",
                         is_break ? "break" : "continue");
    return NULL;
}

static jnode *parse_break(jparser *p, uint32_t line) {
    return parse_jump(p, line, true);
}
static jnode *parse_continue(jparser *p, uint32_t line) {
    return parse_jump(p, line, false);
}

static const struct tag {
    const char *name;
    jnode *(*parse)(jparser *p, uint32_t line); /* NULL: known to Jinja, not implemented */
} tags[] = {
    {"if", parse_if},
    {"for", parse_for},
    {"set", parse_set},
    {"macro", parse_macro},
    {"call", parse_call_block},
    {"filter", parse_filter_block},
    {"with", parse_with},
    {"print", parse_print},
    {"generation", parse_generation},
    {"break", parse_break},
    {"continue", parse_continue},
    {"include", NULL},
    {"import", NULL},
    {"from", NULL},
    {"extends", NULL},
    {"block", NULL},
    {"autoescape", NULL},
    {"trans", NULL},
    {"do", NULL},
};

static jnode *parse_tag(jparser *p) {
    const jtoken *t = jpeek(p, 0);
    if (!rp__jinja_expect(p, T_NAME, "the name of a tag")) return NULL;
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++) {
        if (!rp__str_is(t->text, tags[i].name)) continue;
        if (tags[i].parse) return tags[i].parse(p, t->line);
        rp__jinja_parse_fail(p, RP_EUNSUPPORTED, t->line, "the tag \"%s\" is not implemented",
                             tags[i].name);
        return NULL;
    }
    rp__jinja_parse_fail(p, RP_EFORMAT, t->line,
                         "the tag \"%.*s\" is not known or does not belong here",
                         (int)(t->text.n < 60 ? t->text.n : 60), t->text.p);
    return NULL;
}

static jnode *parse_statement(jparser *p) {
    if (!rp__jinja_enter(p)) return NULL;
    bool is_soft = p->is_soft;
    jnode *n = parse_tag(p);
    p->is_soft = is_soft;
    jleave(p);
    return n;
}

/* In the order of the enum. */
static bool intern_special_names(jparser *p) {
    static const char *const names[N_SPECIAL_NAMES] = {"loop", "caller", "varargs", "kwargs"};
    uint32_t id;
    for (size_t i = 0; i < N_SPECIAL_NAMES; i++)
        if (!rp__jinja_name_id(p, rp__str_of(names[i]), &id)) return false;
    return true;
}

rp_status rp__jinja_parse(jparser *p) {
    if (!intern_special_names(p)) return p->status;
    p->t->root = parse_until(p, NULL, NULL, 0);
    return p->t->root ? RP_OK : p->status;
}
