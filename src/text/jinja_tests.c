/* Tests: what may stand behind "is". */
#include "text/jinja_impl.h"

JINJA_BODY(is_defined) {
    return *out = jbool(self.type != J_UNDEFINED), RP_OK;
}
JINJA_BODY(is_undefined) {
    return *out = jbool(self.type == J_UNDEFINED), RP_OK;
}
JINJA_BODY(is_none) {
    return *out = jbool(self.type == J_NONE), RP_OK;
}
JINJA_BODY(is_boolean) {
    return *out = jbool(self.type == J_BOOL), RP_OK;
}
JINJA_BODY(is_true) {
    return *out = jbool(self.type == J_BOOL && self.b), RP_OK;
}
JINJA_BODY(is_false) {
    return *out = jbool(self.type == J_BOOL && !self.b), RP_OK;
}
JINJA_BODY(is_integer) {
    return *out = jbool(self.type == J_INT), RP_OK;
}
JINJA_BODY(is_float) {
    return *out = jbool(self.type == J_FLOAT), RP_OK;
}
JINJA_BODY(is_number) {
    return *out = jbool(jis_number(self)), RP_OK;
}
JINJA_BODY(is_string) {
    return *out = jbool(self.type == J_TEXT), RP_OK;
}
JINJA_BODY(is_mapping) {
    return *out = jbool(self.type == J_DICT), RP_OK;
}
JINJA_BODY(is_iterable) {
    return *out = jbool(rp__jinja_is_iterable(self) || self.type == J_LOOP), RP_OK;
}
JINJA_BODY(is_escaped) {
    return *out = jbool(self.type == J_TEXT && self.text->markup), RP_OK;
}
JINJA_BODY(is_sameas) {
    return *out = jbool(rp__jinja_same(self, arg[0])), RP_OK;
}

/* Has a length and subscripts; an undefined value has the methods for both. */
JINJA_BODY(is_sequence) {
    bool is = self.type == J_TEXT || self.type == J_LIST || self.type == J_TUPLE ||
              self.type == J_DICT || self.type == J_RANGE || self.type == J_UNDEFINED;
    return *out = jbool(is), RP_OK;
}

JINJA_BODY(is_callable) {
    bool is = self.type == J_MACRO || self.type == J_BUILTIN || self.type == J_METHOD ||
              self.type == J_JOINER || self.type == J_LOOP || self.type == J_UNDEFINED;
    return *out = jbool(is), RP_OK;
}

static rp_status has_rest(jrun *r, jvalue v, jvalue by, int64_t rest, jvalue *out) {
    if (v.type == J_TEXT) return rp__jinja_fail(r, RP_EFORMAT, "a number is needed, not str");
    RP_TRY(rp__jinja_binary(r, OP_MOD, v, by, out));
    return *out = jbool(jis_number(*out) && jdouble(*out) == (double)rest), RP_OK;
}

JINJA_BODY(is_odd) {
    return has_rest(r, self, jint(2), 1, out);
}
JINJA_BODY(is_even) {
    return has_rest(r, self, jint(2), 0, out);
}
JINJA_BODY(is_divisibleby) {
    return has_rest(r, self, arg[0], 0, out);
}

static rp_status in_class(jrun *r, jvalue v, jclass c, jvalue *out) {
    const jtext *t;
    RP_TRY(rp__jinja_to_text(r, v, &t));
    return *out = jbool(rp__jinja_all_are(t, c)), RP_OK;
}

JINJA_BODY(is_lower) {
    return in_class(r, self, CLASS_LOWER, out);
}
JINJA_BODY(is_upper) {
    return in_class(r, self, CLASS_UPPER, out);
}

JINJA_BODY(is_filter) {
    RP_TRY(rp__jinja_need_hashable(r, self));
    const jrow *row = self.type == J_TEXT ? rp__jinja_find_filter(jview_of(self.text)) : NULL;
    return *out = jbool(row != NULL), RP_OK;
}

JINJA_BODY(is_test) {
    RP_TRY(rp__jinja_need_hashable(r, self));
    bool is = self.type == J_TEXT && rp__jinja_find_row(rp__jinja_tests, jview_of(self.text));
    return *out = jbool(is), RP_OK;
}

JINJA_BODY(is_in) {
    bool is;
    RP_TRY(rp__jinja_contains(r, arg[0], self, &is));
    return *out = jbool(is), RP_OK;
}

JINJA_BODY(is_eq) {
    bool is;
    RP_TRY(rp__jinja_equal(r, self, arg[0], &is));
    return *out = jbool(is), RP_OK;
}

JINJA_BODY(is_ne) {
    RP_TRY(is_eq(r, self, arg, all, out));
    return *out = jbool(!out->b), RP_OK;
}

static rp_status order(jrun *r, jvalue a, jvalue b, int one, int other, jvalue *out) {
    int c;
    RP_TRY(rp__jinja_order(r, a, b, &c));
    return *out = jbool(c == one || c == other), RP_OK;
}

JINJA_BODY(is_lt) {
    return order(r, self, arg[0], -1, -1, out);
}
JINJA_BODY(is_le) {
    return order(r, self, arg[0], -1, 0, out);
}
JINJA_BODY(is_gt) {
    return order(r, self, arg[0], 1, 1, out);
}
JINJA_BODY(is_ge) {
    return order(r, self, arg[0], 1, 0, out);
}

const jrow rp__jinja_tests[] = {
    {"defined", "", is_defined},
    {"undefined", "", is_undefined},
    {"none", "", is_none},
    {"boolean", "", is_boolean},
    {"true", "", is_true},
    {"false", "", is_false},
    {"integer", "", is_integer},
    {"float", "", is_float},
    {"number", "", is_number},
    {"string", "", is_string},
    {"mapping", "", is_mapping},
    {"iterable", "", is_iterable},
    {"sequence", "", is_sequence},
    {"callable", "", is_callable},
    {"escaped", "", is_escaped},
    {"odd", "", is_odd},
    {"even", "", is_even},
    {"divisibleby", "num", is_divisibleby},
    {"lower", "", is_lower},
    {"upper", "", is_upper},
    {"filter", "", is_filter},
    {"test", "", is_test},
    {"sameas", "other", is_sameas},
    {"in", "seq", is_in},
    {"==", "/ other", is_eq},
    {"eq", "/ other", is_eq},
    {"equalto", "/ other", is_eq},
    {"!=", "/ other", is_ne},
    {"ne", "/ other", is_ne},
    {"<", "/ other", is_lt},
    {"lt", "/ other", is_lt},
    {"lessthan", "/ other", is_lt},
    {"<=", "/ other", is_le},
    {"le", "/ other", is_le},
    {">", "/ other", is_gt},
    {"gt", "/ other", is_gt},
    {"greaterthan", "/ other", is_gt},
    {">=", "/ other", is_ge},
    {"ge", "/ other", is_ge},
    {0},
};
