/* What the files of the template interpreter share; template.h is the face for everybody else.
 *
 * How it works: jinja_lexer.c cuts the source into tokens, jinja_parser.c (statements) and
 * jinja_expr.c (expressions) make a tree in the template's arena, jinja_exec.c and jinja_eval.c
 * walk it. A rendering (jrun) owns one arena in which every value lives; nothing is freed before
 * the rendering ends, so values are shared by plain pointers. Values never change once made, but
 * for namespaces, loops, cyclers, joiners and iterators.
 *
 * Python's jinja2 is the model: where a comment here says "Python", the behaviour is copied from
 * there.
 *
 * Marks: a text knows which of its bytes came from the context's messages, tools or documents
 * (sorted, disjoint spans). Operations that keep parts of a text keep their marks; those that
 * rebuild it mark the whole result when any input was marked. The marks of the output become
 * rp__rendered.literal.
 *
 * The types of this module have short names (jvalue, jtext, ...): they have no linkage and appear
 * in every line. */
#ifndef RP_TEXT_JINJA_IMPL_H
#define RP_TEXT_JINJA_IMPL_H

#include "base/alloc.h"
#include "base/arena.h"
#include "base/fail.h"
#include "base/map.h"
#include "text/template.h"

/* Limits: far above what chat templates take, low enough that a hostile one ends within seconds,
 * and within a stack of 1 MiB. */
#define JINJA_MAX_SOURCE ((size_t)4 << 20)
#define JINJA_MAX_STEPS  ((uint64_t)20000000) /* nodes visited, plus bytes handled / 64 */
#define JINJA_MAX_MEMORY ((size_t)512 << 20)
#define JINJA_MAX_OUTPUT ((size_t)64 << 20)
#define JINJA_MAX_RANGE  100000 /* the sandbox's MAX_RANGE */
enum {
    JINJA_MAX_NESTING = 200, /* of the source: parentheses, statements */
    JINJA_MAX_DEPTH = 1500,  /* of the walk: nodes inside nodes, macros and values inside values */
    JINJA_MAX_WIDTH = 10000, /* of one formatted field */
    JINJA_MAX_PARAMS = 8     /* of a filter, test or method */
};

/* ---- values ---- */

typedef struct jrun jrun; /* one rendering */

typedef struct jtext {
    const char *p; /* well-formed UTF-8 */
    size_t n;
    const rp__span *marks; /* bytes from messages, tools or documents */
    size_t n_marks;
    bool markup; /* came from `safe` or `escape`: "+" escapes what is added to it */
} jtext;

typedef enum jtype {
    J_MISSING, /* an argument that was not given, a variable that is not set */
    J_UNDEFINED,
    J_NONE,
    J_BOOL,
    J_INT,
    J_FLOAT,
    J_TEXT,
    J_LIST,
    J_TUPLE,
    J_DICT,
    J_VIEW, /* dict.keys(), values(), items() */
    J_RANGE,
    J_ITER, /* J_ITER: Python's generators and iterators: used up by reading */
    J_NAMESPACE,
    J_LOOP,
    J_MACRO,
    J_BUILTIN,
    J_METHOD,
    J_CYCLER,
    J_JOINER
} jtype;

typedef struct jvalue {
    jtype type;
    union {
        bool b;
        int64_t i;
        double f;
        const jtext *text;  /* J_TEXT; for J_UNDEFINED the name that was not found, or NULL */
        struct jlist *list; /* also J_TUPLE */
        struct jdict *dict; /* also J_NAMESPACE */
        struct jview *view;
        struct jrange *range;
        struct jiter *iter; /* also J_CYCLER */
        struct jloop *loop;
        struct jmacro *macro;
        struct jmethod *method;
        const struct jrow *row; /* J_BUILTIN */
        struct jjoiner *joiner;
    };
} jvalue;

typedef struct jlist {
    jvalue *p;
    size_t n;
} jlist;
typedef struct jpair {
    jvalue key, value;
} jpair;
typedef struct jdict {
    jpair *p;
    size_t n, cap;
} jdict; /* in order of insertion */
typedef enum jview_kind { VIEW_KEYS, VIEW_VALUES, VIEW_ITEMS } jview_kind;
typedef struct jview {
    jdict *dict;
    jview_kind kind;
} jview;
typedef struct jrange {
    int64_t start, stop, step, n;
} jrange;
typedef struct jiter {
    jvalue *p;
    size_t n, at;
} jiter;
typedef struct jjoiner {
    bool used;
    const jtext *separator;
} jjoiner;
typedef struct jmethod {
    jvalue self;
    const struct jrow *row;
} jmethod;
typedef struct jloop {
    const jvalue *items;
    size_t n, index0;
    bool has_changed; /* `changed` was called before, with these: */
    jlist changed;
} jloop;

static inline jvalue jnone(void) {
    return (jvalue){.type = J_NONE};
}
static inline jvalue jbool(bool b) {
    return (jvalue){.type = J_BOOL, .b = b};
}
static inline jvalue jint(int64_t i) {
    return (jvalue){.type = J_INT, .i = i};
}
static inline jvalue jfloat(double f) {
    return (jvalue){.type = J_FLOAT, .f = f};
}
static inline jvalue jstr(const jtext *t) {
    return (jvalue){.type = J_TEXT, .text = t};
}
static inline jvalue jundefined(const jtext *name) {
    return (jvalue){.type = J_UNDEFINED, .text = name};
}
static inline bool jis_number(jvalue v) {
    return v.type == J_BOOL || v.type == J_INT || v.type == J_FLOAT;
}
static inline bool jis_integer(jvalue v) {
    return v.type == J_BOOL || v.type == J_INT;
}
static inline int64_t jinteger(jvalue v) {
    return v.type == J_BOOL ? v.b : v.i;
}
static inline double jdouble(jvalue v) {
    return v.type == J_FLOAT ? v.f : (double)jinteger(v);
}
static inline rp__str jview_of(const jtext *t) {
    return (rp__str){t->p, t->n};
}

/* ---- rows: filters, tests, methods and functions are one kind of thing ---- */

typedef struct jkeyword {
    const jtext *name;
    jvalue value;
} jkeyword;
typedef struct jargs {
    const jvalue *p; /* by position */
    size_t n;
    const jkeyword *kw; /* by name */
    size_t n_kw;
} jargs;

/* `arg` has one value per parameter of the row (J_MISSING: not given); `all` is what was written
 * in the call. */
typedef rp_status (*jbody)(jrun *r, jvalue self, const jvalue *arg, const jargs *all, jvalue *out);
typedef struct jrow {
    const char *name;
    /* "old new count?": names, "?" may be left out; "/" first: by position only; "*": takes all */
    const char *params;
    jbody body; /* NULL: known to Python, not implemented here */
} jrow;

/* The head of a body. */
#define JINJA_BODY(name)                                                                           \
    static rp_status name(__attribute__((unused)) jrun *r, __attribute__((unused)) jvalue self,    \
                          __attribute__((unused)) const jvalue *arg,                               \
                          __attribute__((unused)) const jargs *all,                                \
                          __attribute__((unused)) jvalue *out)

extern const jrow rp__jinja_filters[], rp__jinja_sequence_filters[], rp__jinja_tests[],
    rp__jinja_globals[];
extern const jrow rp__jinja_text_methods[], rp__jinja_dict_methods[], rp__jinja_list_methods[];
extern const jrow rp__jinja_loop_methods[], rp__jinja_cycler_methods[], rp__jinja_number_methods[];
/* rows end with a NULL name; NULL: none */
const jrow *rp__jinja_find_row(const jrow *rows, rp__str name);
const jrow *rp__jinja_find_filter(rp__str name);
/* Binds the arguments and runs the row. `what` is "filter", "test", "method" or "function". */
rp_status rp__jinja_apply(jrun *r, const char *what, const jrow *row, jvalue self,
                          const jargs *args, jvalue *out);

/* ---- the tree ---- */

typedef enum jkind {
    /* expressions */
    N_LITERAL,
    N_NAME,
    N_LIST,
    N_TUPLE,
    N_DICT,
    N_NOT,
    N_NEG,
    N_POS,
    N_AND,
    N_OR,
    N_BINARY,
    N_CONCAT,
    N_COMPARE,
    N_CHOICE,
    N_ATTR,
    N_ITEM,
    N_SLICE,
    N_CALL,
    N_FILTER,
    N_TEST,
    /* statements */
    N_DATA,
    N_PRINT,
    N_BLOCK,
    N_IF,
    N_FOR,
    N_SET,
    N_SET_BLOCK,
    N_MACRO,
    N_CALL_BLOCK,
    N_FILTER_BLOCK,
    N_WITH,
    N_SCOPE,
    N_BREAK,
    N_CONTINUE
} jkind;

typedef enum jop { /* operators: N_BINARY and N_COMPARE */
                   OP_ADD,
                   OP_SUB,
                   OP_MUL,
                   OP_DIV,
                   OP_FLOORDIV,
                   OP_MOD,
                   OP_POW,
                   OP_EQ,
                   OP_NE,
                   OP_LT,
                   OP_LE,
                   OP_GT,
                   OP_GE,
                   OP_IN,
                   OP_NOT_IN
} jop;

typedef struct jnode jnode;
typedef struct jnodes {
    jnode **p;
    size_t n, cap;
} jnodes;
typedef enum jarg_kind { ARG_PLAIN, ARG_STAR, ARG_STAR_STAR } jarg_kind;
typedef struct jarg {
    jarg_kind kind;
    const jtext *name; /* NULL: by position */
    jnode *value;
} jarg;
typedef struct jarg_list {
    jarg *p;
    size_t n, cap;
} jarg_list;
typedef struct joperand {
    jop op;
    jnode *value;
} joperand;

/* Ids of the names that have a meaning; the other names follow. */
enum { NAME_LOOP, NAME_CALLER, NAME_VARARGS, NAME_KWARGS, N_SPECIAL_NAMES };

typedef struct jmacro_def {
    struct jmacro_def *outer; /* the definition around this one, while parsing */
    const jtext *title;
    uint32_t *params; /* name ids */
    jnode **defaults; /* NULL: none */
    size_t n_params;
    bool takes_caller, takes_varargs, takes_kwargs; /* the body mentions these names */
    bool names_caller;                              /* `caller` is among the parameters */
    jnode *body;
} jmacro_def;

struct jnode {
    jkind kind;
    uint32_t line;
    union {
        jvalue literal;
        const jtext *data;
        uint32_t name;
        /* N_LIST, N_TUPLE, N_DICT (key, value, key, ...), N_CONCAT, N_BLOCK, N_SCOPE */
        jnodes list;
        jnode *operand; /* N_NOT, N_NEG, N_POS, N_PRINT */
        struct {
            jop op;
            jnode *left, *right;
        } binary; /* also N_AND, N_OR */
        struct {
            jnode *first;
            joperand *p;
            size_t n, cap;
        } compare;
        /* also N_IF: `no` is the else branch or the next elif; may be NULL */
        struct {
            jnode *test, *yes, *no;
        } choice;
        struct {
            jnode *object;
            const jtext *name;
        } attr;
        struct {
            jnode *object, *index;
        } item;
        struct {
            jnode *object, *from, *to, *step;
        } slice;
        struct {
            jnode *callee;
            jarg_list args;
        } call;
        /* N_FILTER, N_TEST; input NULL: the block's text */
        struct {
            jnode *input;
            const jrow *row;
            jarg_list args;
        } apply;
        struct {
            jnode *target, *iter, *test, *body, *other;
        } loop;
        /* N_SET: value; N_SET_BLOCK: body, value is a filter or NULL */
        struct {
            jnode *target, *value, *body;
        } set;
        struct {
            uint32_t name;
            jmacro_def *def;
        } macro;
        struct {
            jnode *call;
            jmacro_def *def;
        } call_block;
        struct {
            jnode *filter, *body;
        } filter_block;
        struct {
            jnodes targets, values;
            jnode *body;
        } with;
    };
};

struct rp__template {
    rp__arena arena;
    const char *name;
    jnode *root;
    const jtext **names; /* by id */
    uint32_t n_names;
};

/* ---- parsing ---- */

typedef enum jtoken_type {
    T_END,
    T_DATA,
    T_BLOCK_BEGIN,
    T_BLOCK_END,
    T_PRINT_BEGIN,
    T_PRINT_END,
    T_NAME,
    T_STRING,
    T_INT,
    T_FLOAT,
    T_OP
} jtoken_type;

/* Operators of one character are that character. */
enum { TOK_FLOORDIV = 256, TOK_POW, TOK_EQ, TOK_NE, TOK_LE, TOK_GE };

typedef struct jtoken {
    jtoken_type type;
    int op;
    uint32_t line;
    rp__str text; /* data, name; a string's unescaped value */
    int64_t i;
    double f;
} jtoken;

typedef struct jparser {
    rp__template *t;
    rp_error *err;
    rp_status status; /* the first failure */
    jtoken *tokens;   /* ends with T_END */
    size_t n_tokens, cap_tokens, at;
    rp__map names; /* name -> id */
    uint32_t cap_names;
    int nesting, n_loops; /* n_loops: loops around, inside the macro */
    bool is_soft;      /* inside an `if`: what is unknown to Python too fails when it is reached */
    jmacro_def *macro; /* the innermost one around */
} jparser;

rp_status rp__jinja_lex(jparser *p, rp__str source);
rp_status rp__jinja_parse(jparser *p); /* tokens -> p->t->root */

rp_status rp__jinja_parse_fail(jparser *p, rp_status code, uint32_t line, const char *fmt, ...)
    RP_PRINTF(4, 5);
/* zeroed, in the template's arena; NULL: p->status is set */
void *rp__jinja_parse_alloc(jparser *p, size_t bytes);
const jtext *rp__jinja_parse_text(jparser *p, rp__str s); /* copies */
bool rp__jinja_name_id(jparser *p, rp__str name, uint32_t *id);
jnode *rp__jinja_node(jparser *p, jkind kind, uint32_t line);
bool rp__jinja_nodes_add(jparser *p, jnodes *v, jnode *n);

/* Tokens. */
static inline const jtoken *jpeek(const jparser *p, size_t ahead) {
    size_t i = p->at + ahead;
    return &p->tokens[i < p->n_tokens ? i : p->n_tokens - 1];
}
static inline bool jsees(const jparser *p, jtoken_type type) {
    return jpeek(p, 0)->type == type;
}
static inline bool jsees_op(const jparser *p, int op) {
    return jsees(p, T_OP) && jpeek(p, 0)->op == op;
}
bool rp__jinja_sees_name(const jparser *p, size_t ahead, const char *name);
bool rp__jinja_skip_op(jparser *p, int op);
bool rp__jinja_skip_name(jparser *p, const char *name);
bool rp__jinja_expect_op(jparser *p, int op);
bool rp__jinja_expect(jparser *p, jtoken_type type, const char *what);
rp_status rp__jinja_unexpected(jparser *p, const char *wanted);

/* Expressions. NULL: failed, p->status is set. */
typedef enum jtuple_mode { TUPLE_FULL, TUPLE_NO_CHOICE, TUPLE_PARENS } jtuple_mode;
jnode *rp__jinja_parse_expr(jparser *p);
/* an expression, or several with commas */
jnode *rp__jinja_parse_tuple(jparser *p, jtuple_mode mode);
jnode *rp__jinja_parse_primary(jparser *p);
/* `begun`: the first "|" is not written */
jnode *rp__jinja_parse_filters(jparser *p, jnode *input, bool begun);
bool rp__jinja_enter(jparser *p); /* counts the nesting; false: too deep */
static inline void jleave(jparser *p) {
    p->nesting--;
}

/* ---- rendering ---- */

/* Text being written, with its marks. Zeroed is ready; memory is the rendering's. */
typedef struct jbuilder {
    char *p;
    size_t n, cap;
    rp__span *marks;
    size_t n_marks, cap_marks;
} jbuilder;

typedef struct jbinding {
    uint32_t name;
    jvalue value;
} jbinding;
typedef struct jscope {
    struct jscope *parent;
    jbinding *p;
    uint32_t n, cap;
} jscope;

typedef struct jmacro {
    const jmacro_def *def;
    jscope *scope;
} jmacro;

typedef enum jflow { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE } jflow;

struct jrun {
    const rp__template *t;
    const json_t *context;
    rp__arena arena;
    rp_error *err;
    rp_status status; /* the first failure */
    uint32_t line;    /* of the node being walked */
    uint64_t steps;
    int depth;
    int64_t now;
    jbuilder *out;
    /* by name id: the context's value, converted when first read, or a built-in function */
    jvalue *globals;
    bool *is_read; /* by name id */
    jscope *scope;
    jflow flow;
    uint64_t n_closures; /* macros made so far: a scope that one captured is not used again */
};

rp_status rp__jinja_fail(jrun *r, rp_status code, const char *fmt, ...) RP_PRINTF(3, 4);
void *rp__jinja_alloc(jrun *r, size_t n, size_t bytes); /* n * bytes; NULL: r->status says why */
rp_status rp__jinja_charge(jrun *r, size_t bytes);      /* the work of handling so many bytes */
rp_status rp__jinja_descend(jrun *r);                   /* one level deeper; pairs with jascend */
static inline void jascend(jrun *r) {
    r->depth--;
}

/* jinja_text.c: builder */
rp_status rp__jinja_put(jrun *r, jbuilder *b, const char *p, size_t n);
rp_status rp__jinja_put_str(jrun *r, jbuilder *b, const char *zero_terminated);
rp_status rp__jinja_put_char(jrun *r, jbuilder *b, uint32_t cp);
/* n times; none when n <= 0 */
rp_status rp__jinja_put_fill(jrun *r, jbuilder *b, uint32_t cp, int64_t n);
rp_status rp__jinja_put_text(jrun *r, jbuilder *b, const jtext *t);
/* bytes */
rp_status rp__jinja_put_part(jrun *r, jbuilder *b, const jtext *t, size_t begin, size_t end);
/* marks [begin, end of the text) */
rp_status rp__jinja_mark(jrun *r, jbuilder *b, size_t begin);
/* the same, if a byte there is marked */
rp_status rp__jinja_mark_if_any(jrun *r, jbuilder *b, size_t begin);
rp_status rp__jinja_build(jrun *r, jbuilder *b, jvalue *out);
rp_status rp__jinja_text(jrun *r, const char *p, size_t n, jvalue *out); /* a copy, without marks */

/* jinja_text.c: parts and places; all positions are bytes unless they say characters */
rp_status rp__jinja_part(jrun *r, const jtext *t, size_t begin, size_t end, jvalue *out);
size_t rp__jinja_n_chars(const jtext *t);
/* byte where character n begins; t->n past the end */
size_t rp__jinja_char_at(const jtext *t, size_t n_chars);
/* within [from, to) */
bool rp__jinja_find(const jtext *t, rp__str needle, size_t from, size_t to, size_t *at);
bool rp__jinja_find_last(const jtext *t, rp__str needle, size_t from, size_t to, size_t *at);
/* as rp__utf8_decode, n == 0 gives 0 */
size_t rp__jinja_next(const char *p, size_t n, uint32_t *cp);
rp_status rp__jinja_trim(jrun *r, const jtext *t, jvalue chars, bool left, bool right, jvalue *out);
/* one of splitlines; false: no more */
bool rp__jinja_line(const jtext *t, size_t at, size_t *end, size_t *next);
rp_status rp__jinja_replace(jrun *r, const jtext *t, const jtext *old, const jtext *new_,
                            int64_t count, jvalue *out);
rp_status rp__jinja_escape(jrun *r, jbuilder *b, const jtext *t); /* &, <, >, ', " as entities */

/* jinja_unicode.c: Python's notions */
bool rp__jinja_is_space(uint32_t cp);
bool rp__jinja_is_word(uint32_t cp);      /* isalnum() or "_" */
bool rp__jinja_is_printable(uint32_t cp); /* as repr() decides */
typedef enum jcase {
    CASE_UPPER,
    CASE_LOWER,
    CASE_CAPITALIZE,
    CASE_TITLE,
    CASE_SWAP,
    CASE_TITLE_WORDS
} jcase;
rp_status rp__jinja_recase(jrun *r, const jtext *t, jcase how, jvalue *out);
typedef enum jclass {
    CLASS_ALNUM,
    CLASS_ALPHA,
    CLASS_ASCII,
    CLASS_DECIMAL,
    CLASS_DIGIT,
    CLASS_NUMERIC,
    CLASS_SPACE,
    CLASS_LOWER,
    CLASS_UPPER,
    CLASS_TITLE
} jclass;
bool rp__jinja_all_are(const jtext *t, jclass c); /* isalnum(), ... */

/* jinja_value.c */
const char *rp__jinja_type_name(jvalue v); /* as Python calls it */
/* using an undefined value is an error: "'x' is undefined" */
rp_status rp__jinja_need_defined(jrun *r, jvalue v);
bool rp__jinja_truth(jvalue v);
rp_status rp__jinja_equal(jrun *r, jvalue a, jvalue b, bool *out);
/* -1, 0, 1; 2: not comparable (nan) */
rp_status rp__jinja_order(jrun *r, jvalue a, jvalue b, int *out);
bool rp__jinja_same(jvalue a, jvalue b); /* Python's `is` */
rp_status rp__jinja_contains(jrun *r, jvalue container, jvalue v, bool *out);
rp_status rp__jinja_length(jrun *r, jvalue v, int64_t *out);
bool rp__jinja_is_iterable(jvalue v);
/* what a `for` sees; uses up a J_ITER */
rp_status rp__jinja_items(jrun *r, jvalue v, jvalue **items, size_t *n);
/* J_LIST or J_TUPLE of n unset values */
rp_status rp__jinja_list(jrun *r, jtype type, size_t n, jvalue *out);
rp_status rp__jinja_iter(jrun *r, jvalue *items, size_t n, jvalue *out); /* keeps `items` */
rp_status rp__jinja_dict(jrun *r, size_t cap, jtype type, jvalue *out);
rp_status rp__jinja_dict_put(jrun *r, jdict *d, jvalue key, jvalue value);
/* J_MISSING when absent */
rp_status rp__jinja_dict_get(jrun *r, const jdict *d, jvalue key, jvalue *out);
bool rp__jinja_dict_find(const jdict *d, rp__str key, jvalue *out);
rp_status rp__jinja_need_hashable(jrun *r, jvalue v);

/* jinja_access.c */
rp_status rp__jinja_attr(jrun *r, jvalue object, const jtext *name, jvalue *out);
rp_status rp__jinja_item(jrun *r, jvalue object, jvalue key, jvalue *out);
rp_status rp__jinja_slice(jrun *r, jvalue object, jvalue from, jvalue to, jvalue step, jvalue *out);
/* The "a.b.0" of attribute= parameters. `fallback` (J_MISSING: none) stands for what is undefined
 * on the way. */
rp_status rp__jinja_path(jrun *r, jvalue object, jvalue path, jvalue fallback, jvalue *out);

/* jinja_print.c */
rp_status rp__jinja_write(jrun *r, jbuilder *b, jvalue v);         /* str(v) */
rp_status rp__jinja_write_repr(jrun *r, jbuilder *b, jvalue v);    /* repr(v) */
rp_status rp__jinja_to_text(jrun *r, jvalue v, const jtext **out); /* str(v) */
void rp__jinja_float_repr(double f, char out[40]);

/* jinja_number.c */
rp_status rp__jinja_binary(jrun *r, jop op, jvalue a, jvalue b, jvalue *out);
rp_status rp__jinja_negate(jrun *r, jvalue a, bool negative, jvalue *out);
/* The text of a number as Python's int() and float() read it; *ok says whether it is one. */
rp_status rp__jinja_parse_int(jrun *r, rp__str s, int base, bool *ok, int64_t *out);
bool rp__jinja_parse_float(rp__str s, double *out);
bool rp__jinja_double_to_int(double f, int64_t *out);  /* truncates; false: not in range */
int rp__jinja_compare_int_double(int64_t i, double f); /* exact; 2: nan */

/* jinja_format.c */
/* format % args */
rp_status rp__jinja_percent(jrun *r, const jtext *format, jvalue args, jvalue *out);
/* format.format(...) */
rp_status rp__jinja_format(jrun *r, const jtext *format, const jargs *args, jvalue *out);

/* jinja_json.c */
rp_status rp__jinja_from_json(jrun *r, const json_t *json, bool mark, jvalue *out);
typedef struct jdump {
    const jtext *indent; /* NULL: one line */
    const jtext *item_separator, *key_separator;
    bool ensure_ascii, sort_keys;
} jdump;
rp_status rp__jinja_to_json(jrun *r, jbuilder *b, jvalue v, const jdump *how);

/* jinja_sort.c: stable; `keys[i]` belongs to items[i]; both are permuted. */
rp_status rp__jinja_sort(jrun *r, jvalue *items, jvalue *keys, size_t n, bool reverse);

/* jinja_eval.c, jinja_exec.c */
rp_status rp__jinja_eval(jrun *r, const jnode *n, jvalue *out);
/* `block`: input of the innermost */
rp_status rp__jinja_eval_filter(jrun *r, const jnode *n, jvalue block, jvalue *out);
rp_status rp__jinja_eval_args(jrun *r, const jarg_list *list, const jkeyword *extra, jargs *out);
rp_status rp__jinja_call(jrun *r, jvalue callee, const jargs *args, jvalue *out);
rp_status rp__jinja_exec(jrun *r, const jnode *n);
rp_status rp__jinja_call_macro(jrun *r, const jmacro *m, const jargs *args, jvalue *out);

#endif
