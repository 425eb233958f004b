/* Templates against what Python's jinja2 rendered (tools/make_template_golden.py), and by hand:
 * limits, marks, messages, running out of memory. */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/utf8.h"
#include "text/template.h"

static const int64_t now = 1721995200; /* the tool's NOW */

typedef struct rendering {
    rp_status status;
    rp__rendered out;
    rp_error err;
} rendering;

static rendering render_str(rp__str source, const json_t *context) {
    rendering r = {0};
    rp__template *t;
    r.status = rp__template_parse("t", source, &t, &r.err);
    if (r.status) return r;
    r.status = rp__template_render(t, context, now, &r.out, &r.err);
    rp__template_destroy(t);
    return r;
}

static rendering render(const char *source, const char *context) {
    json_t *json = json_loads(context ? context : "{}", 0, NULL);
    assert_non_null(json);
    rendering r = render_str(rp__str_of(source), json);
    json_decref(json);
    return r;
}

static void expect(const char *source, const char *context, const char *wanted) {
    rendering r = render(source, context);
    if (r.status) fail_msg("%s: %s", source, r.err.message);
    assert_string_equal(r.out.text.p ? r.out.text.p : "", wanted);
    rp__rendered_clear(&r.out);
}

static void expect_failure(const char *source, const char *context, rp_status code,
                           const char *part) {
    rendering r = render(source, context);
    if (r.status != code)
        fail_msg("%.100s: %s (%s)", source, rp_status_name(r.status), r.err.message);
    assert_null(r.out.text.p);
    assert_message(r.err, part);
}

/* ---- goldens ---- */

static json_t *load(const char *name) {
    json_error_t e;
    json_t *json = json_load_file(rp_test_path(name), JSON_ALLOW_NUL, &e);
    if (!json) fail_msg("%s: %s", name, e.text);
    return json;
}

static bool same_outcome(const rendering *r, const json_t *wanted) {
    if (json_is_string(wanted)) {
        rp__str s = {json_string_value(wanted), json_string_length(wanted)};
        return r->status == RP_OK && rp__str_eq((rp__str){r->out.text.p, r->out.text.n}, s);
    }
    const char *raised = json_string_value(json_object_get(wanted, "raise"));
    if (raised) return r->status == RP_ETEMPLATE && !strcmp(r->err.message, raised);
    return r->status < 0;
}

/* Counts and prints what differs. */
static int compare(const char *name, size_t i, rp__str source, const json_t *context,
                   const json_t *wanted) {
    rendering r = render_str(source, context);
    bool same = same_outcome(&r, wanted);
    if (!same) {
        char *text = json_dumps(wanted, JSON_ENCODE_ANY);
        print_error("%s %zu: %.300s\n   wanted %s\n   got    %s\n", name, i, source.p, text,
                    r.status       ? r.err.message
                    : r.out.text.p ? r.out.text.p
                                   : "");
        free(text);
    }
    rp__rendered_clear(&r.out);
    return !same;
}

RP_TEST(template, cases_as_jinja2) {
    json_t *file = load("fixtures/template/cases.json"),
           *context = json_object_get(file, "context"), *row;
    int n_bad = 0;
    size_t i;
    json_array_foreach(json_object_get(file, "cases"), i, row) {
        json_t *source = json_array_get(row, 0);
        rp__str s = {json_string_value(source), json_string_length(source)};
        n_bad += compare("case", i, s, context, json_array_get(row, 1));
    }
    assert_true(i > 300);
    assert_int_equal(n_bad, 0);
    json_decref(file);
}

static char *read_file(const char *path, size_t *n) {
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    char *p = malloc(1 << 20);
    *n = fread(p, 1, (1 << 20) - 1, f);
    p[*n] = 0;
    fclose(f);
    return p;
}

RP_TEST(template, conversations_as_transformers) {
    json_t *file = load("fixtures/template/conversations.json"), *outcomes, *wanted;
    json_t *conversations = json_object_get(file, "conversations");
    const char *name;
    int n_bad = 0;
    json_object_foreach(json_object_get(file, "outcomes"), name, outcomes) {
        char path[200];
        size_t n, i;
        snprintf(path, sizeof path, "fixtures/template/%s", name);
        char *source = read_file(rp_test_path(path), &n);
        json_array_foreach(outcomes, i, wanted) n_bad +=
            compare(name, i, (rp__str){source, n}, json_array_get(conversations, i), wanted);
        free(source);
    }
    assert_int_equal(n_bad, 0);
    json_decref(file);
}

/* ---- limits ---- */

static char *repeat(const char *what, size_t times, const char *after) {
    size_t n = strlen(what);
    char *p = malloc(n * times + strlen(after) + 1);
    for (size_t i = 0; i < times; i++) memcpy(p + i * n, what, n);
    strcpy(p + n * times, after);
    return p;
}

static void expect_deep_failure(const char *what, size_t times, const char *after, rp_status code) {
    char *source = repeat(what, times, after);
    expect_failure(source, NULL, code, code == RP_ELIMIT ? "deeper" : "");
    free(source);
}

RP_TEST(template, deep_sources_are_errors) {
    expect_deep_failure("{{ (", 1, "x", RP_EFORMAT);
    char *parens = repeat("(", 60000, "1"), *source = malloc(70000);
    snprintf(source, 70000, "{{ %s }}", parens);
    expect_failure(source, NULL, RP_ELIMIT, "deeper");
    snprintf(source, 70000, "{{ %.*s1 }}", 60000, parens);
    for (char *p = source + 3; *p == '('; p++) *p = '[';
    expect_failure(source, NULL, RP_ELIMIT, "deeper");
    for (char *p = source + 3; *p == '['; p++) *p = '-';
    expect_failure(source, NULL, RP_ELIMIT, "deeper");
    free(parens);
    free(source);
    char *nots = repeat("not ", 15000, "x }}");
    source = malloc(70000);
    snprintf(source, 70000, "{{ %s", nots);
    expect_failure(source, NULL, RP_ELIMIT, "deeper");
    free(nots);
    free(source);
    expect_deep_failure("{% if x %}", 60000, "", RP_ELIMIT);
    expect_deep_failure("{% for x in y %}", 60000, "", RP_ELIMIT);
    expect_deep_failure("{{ {", 1, "", RP_EFORMAT);
}

/* Chains are trees that lean to the left: their depth is known only when they are walked. */
RP_TEST(template, long_chains_are_errors) {
    char *chain = repeat("+ 1 ", 10000, "}}"), *source = malloc(50000);
    snprintf(source, 50000, "{{ 1 %s", chain);
    expect_failure(source, NULL, RP_ELIMIT, "deeper");
    free(chain);
    chain = repeat(".a", 20000, "}}");
    snprintf(source, 50000, "{{ {}%s", chain);
    expect_failure(source, NULL, RP_ELIMIT, "deeper");
    free(chain);
    chain = repeat("|e", 20000, "}}");
    snprintf(source, 50000, "{{ 1%s", chain);
    expect_failure(source, NULL, RP_ELIMIT, "deeper");
    free(chain);
    chain = repeat("{% elif no %}", 3000, "{% else %}end{% endif %}");
    snprintf(source, 50000, "{%% if no %%}%s", chain);
    expect(source, NULL, "end");
    free(chain);
    free(source);
}

RP_TEST(template, endless_templates_stop) {
    expect_failure("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
                   NULL, RP_ELIMIT, "steps");
    expect_failure("{% for a in range(99999) %}{{ 'x' * 100000 }}{% endfor %}", NULL, RP_ELIMIT,
                   "t, line 1");
    expect_failure("{{ range(1000000000) }}", NULL, RP_ELIMIT, "range");
    expect_failure("{{ 'x' * 9223372036854775807 }}", NULL, RP_ELIMIT, "too long");
    expect_failure("{{ [1] * 100000000 }}", NULL, RP_ELIMIT, "");
    expect_failure("{% set ns = namespace(s='xxxxxxxxxxxxxxxx') %}{% for a in range(99) %}{% set "
                   "ns.s = ns.s + ns.s %}{% endfor %}",
                   NULL, RP_ELIMIT, "");
    expect_failure("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", NULL, RP_ELIMIT, "deeper");
    expect_failure("{% set ns = namespace(x=1) %}{% for a in range(9999) %}{% set ns.x = [ns.x] "
                   "%}{% endfor %}{{ ns.x }}",
                   NULL, RP_ELIMIT, "deeper");
    expect_failure("{% set ns = namespace(x=1) %}{% for a in range(9999) %}{% set ns.x = [ns.x] "
                   "%}{% endfor %}{{ ns.x|tojson }}",
                   NULL, RP_ELIMIT, "deeper");
    expect_failure("{% set ns = namespace(x=1, y=1) %}{% for a in range(9999) %}{% set ns.x = "
                   "[ns.x] %}{% set ns.y = [ns.y] %}"
                   "{% endfor %}{{ ns.x == ns.y }}",
                   NULL, RP_ELIMIT, "deeper");
    expect_failure("{% set ns = namespace() %}{% set ns.self = ns %}{{ ns }}", NULL, RP_ELIMIT,
                   "deeper");
    expect_failure("{{ '%99999999s' % 1 }}", NULL, RP_ELIMIT, "wider");
    expect_failure("{{ 'a'.center(999999999999) }}", NULL, RP_ELIMIT, "");
    expect_failure("{{ 'a'|indent(999999999999) }}", NULL, RP_ELIMIT, "");
    expect_failure("{{ strftime_now('%999999d') }}", NULL, RP_ELIMIT, "");
}

RP_TEST(template, deep_context_is_an_error) {
    json_t *json = json_array(), *context = json_object();
    for (int i = 0; i < 3000; i++) {
        json_t *outer = json_array();
        json_array_append_new(outer, json);
        json = outer;
    }
    json_object_set_new(context, "x", json);
    rendering r = render_str(RP_STR("{{ x }}"), context);
    assert_int_equal(r.status, RP_ELIMIT);
    r = render_str(RP_STR("not read: fine"), context);
    assert_int_equal(r.status, RP_OK);
    rp__rendered_clear(&r.out);
    json_decref(context);
}

RP_TEST(template, integers_beyond_64_bits_are_refused) {
    expect_failure("{{ 9223372036854775808 }}", NULL, RP_EUNSUPPORTED, "9223372036854775808");
    expect_failure("{{ 9223372036854775807 + 1 }}", NULL, RP_EUNSUPPORTED, "64 bits");
    expect_failure("{{ 2 ** 64 }}", NULL, RP_EUNSUPPORTED, "64 bits");
    expect_failure("{{ (-9223372036854775807 - 1) // -1 }}", NULL, RP_EUNSUPPORTED, "64 bits");
    expect("{{ (-9223372036854775807 - 1) % -1 }} {{ 2 ** 62 }}", NULL, "0 4611686018427387904");
    expect_failure("{{ '99999999999999999999'|int }}", NULL, RP_EUNSUPPORTED, "64 bits");
    expect_failure("{{ 1e300|int }}", NULL, RP_EUNSUPPORTED, "64 bits");
    expect("{{ range(9223372036854775806, 9223372036854775807)|list }}", NULL,
           "[9223372036854775806]");
}

/* ---- messages ---- */

RP_TEST(template, errors_name_template_line_and_construct) {
    expect_failure("a\nb\n{% include 'x' %}", NULL, RP_EUNSUPPORTED,
                   "t, line 3: the tag \"include\" is not implemented");
    expect_failure("{% import 'x' as y %}", NULL, RP_EUNSUPPORTED, "\"import\"");
    expect_failure("{% from 'x' import y %}", NULL, RP_EUNSUPPORTED, "\"from\"");
    expect_failure("{% extends 'x' %}", NULL, RP_EUNSUPPORTED, "\"extends\"");
    expect_failure("{% block x %}{% endblock %}", NULL, RP_EUNSUPPORTED, "\"block\"");
    expect_failure("{% autoescape true %}{% endautoescape %}", NULL, RP_EUNSUPPORTED,
                   "\"autoescape\"");
    expect_failure("{% for x in y recursive %}{% endfor %}", NULL, RP_EUNSUPPORTED, "recursive");
    expect_failure("\n{{ x|urlize }}", NULL, RP_EUNSUPPORTED,
                   "line 2: the filter \"urlize\" is not implemented");
    expect_failure("{{ x|frob }}", NULL, RP_EUNSUPPORTED, "\"frob\" is not known");
    expect_failure("{{ x is frob }}", NULL, RP_EUNSUPPORTED, "the test \"frob\"");
    expect_failure("{{ lipsum() }}", NULL, RP_EUNSUPPORTED, "\"lipsum\"");
    expect_failure("{{ 'a'.encode() }}", NULL, RP_EUNSUPPORTED, "\"encode\"");
    expect_failure("{% if x %}\n{% if y %}{% endif %}", NULL, RP_EFORMAT,
                   "line 1: \"if\" has no \"endif\"");
    expect_failure("\n\n{{ a b }}", NULL, RP_EFORMAT, "line 3: found \"b\" where \"}}\" is needed");
    expect_failure("{{ 1 +\n\n) }}", NULL, RP_EFORMAT, "line 3: unexpected \")\"");
    expect_failure("a\n{{ nope.x }}", NULL, RP_EFORMAT, "t, line 2: \"nope\" is undefined");
    expect_failure("{% if 1 %}\n\n{{ [1] + 'a' }}{% endif %}", NULL, RP_EFORMAT,
                   "line 3: \"+\" is not possible between list and str");
    expect_failure("{{ \xff }}", NULL, RP_EFORMAT, "UTF-8");
    expect_failure("{{ '\\ud800' }}", NULL, RP_EFORMAT, "escape");
}

RP_TEST(template, refusal_is_the_templates_own_sentence) {
    expect_failure("x{{ raise_exception('Roles must alternate!') }}", NULL, RP_ETEMPLATE,
                   "Roles must alternate!");
    rendering r = render("{{ raise_exception('No.') }}", NULL);
    assert_string_equal(r.err.message, "No.");
}

RP_TEST(template, context_must_be_an_object) {
    rp__template *t;
    rp_error err = {0};
    rp__rendered out;
    assert_ok(rp__template_parse("t", RP_STR("x"), &t, &err), err);
    assert_int_equal(rp__template_render(t, NULL, 0, &out, &err), RP_EINVAL);
    rp__template_destroy(t);
    rp__template_destroy(NULL);
    rp__rendered_clear(&out);
}

/* ---- marks ---- */

/* The output with [ and ] around what is marked. */
static void expect_marks(const char *source, const char *context, const char *wanted) {
    rendering r = render(source, context);
    if (r.status) fail_msg("%s: %s", source, r.err.message);
    rp__bytes b = {0};
    size_t at = 0;
    for (size_t i = 0; i < r.out.n_literal; i++) {
        rp__span s = r.out.literal[i];
        assert_true(s.begin >= at && s.end > s.begin && s.end <= r.out.text.n);
        assert_true(i == 0 || s.begin > at); /* neighbours are merged */
        rp__bytes_add(&b, r.out.text.p + at, s.begin - at);
        rp__bytes_add_char(&b, '[');
        rp__bytes_add(&b, r.out.text.p + s.begin, s.end - s.begin);
        rp__bytes_add_char(&b, ']');
        at = s.end;
    }
    rp__bytes_add(&b, r.out.text.p + at, r.out.text.n - at);
    assert_string_equal(b.p, wanted);
    rp__bytes_clear(&b);
    rp__rendered_clear(&r.out);
}

static const char *const marked =
    "{\"messages\": [{\"role\": \"user\", \"content\": \" Hi, you \"}], \"bos\": \"<s>\","
    " \"tools\": [{\"name\": \"f\", \"n\": 1}], \"plain\": [{\"a\": \"b\"}]}";

RP_TEST(template, marks_what_came_from_messages_and_tools) {
    expect_marks("{{ bos }}<|{{ messages[0].role }}|>{{ messages[0].content }}<e>", marked,
                 "<s><|[user]|>[ Hi, you ]<e>");
    expect_marks("{% for m in messages %}{{ '<' + m['role'] + '>' + m.content|trim }}{% endfor %}",
                 marked, "<[user]>[Hi, you]");
    expect_marks("{{ messages[0].content[1:3] }}{{ messages[0].content[::-1] }}x", marked,
                 "[Hi uoy ,iH ]x");
    expect_marks("{{ ('<' ~ messages[0].role ~ '>')[2:] }}", marked, "[ser]>");
    expect_marks("{{ ('<' ~ messages[0].role ~ '>')[:1] }}", marked, "<");
    expect_marks("{{ ('<' ~ messages[0].role ~ '>').split('s') | join('-') }}", marked,
                 "<[u]-[er]>");
    expect_marks("{{ messages[0].content.split(',') | join(';') }}", marked, "[ Hi];[ you ]");
    expect_marks("{{ messages[0].content.replace(',', '<x>') }}", marked, "[ Hi]<x>[ you ]");
    expect_marks("{{ 'a,b'.replace(',', messages[0].role) }}", marked, "a[user]b");
    expect_marks("{{ 'a' ~ messages[0].role | upper }}", marked, "a[USER]");
    expect_marks("{{ ('<' ~ messages[0].role) | upper }}", marked,
                 "[<USER]"); /* rebuilt: marked as a whole */
    expect_marks("{{ '<%s>' % messages[0].role }}", marked, "[<user>]");
    expect_marks("{{ '<{}>'.format(messages[0].role) }}", marked, "[<user>]");
    expect_marks("<{{ messages | tojson }}>", marked,
                 "<[[{\"role\": \"user\", \"content\": \" Hi, you \"}]]>");
    expect_marks("<{{ tools }}>{{ tools[0].n }}", marked, "<[[{'name': 'f', 'n': 1}]]>1");
    expect_marks("<{{ plain }}{{ plain|tojson }}>", marked, "<[{'a': 'b'}][{\"a\": \"b\"}]>");
}

RP_TEST(template, marks_survive_statements) {
    expect_marks("{% set x %}<{{ messages[0].role }}>{% endset %}{{ x }}{{ x|trim('<') }}", marked,
                 "<[user]>[user]>");
    expect_marks("{% macro m(a) %}({{ a }}){% endmacro %}{{ m(messages[0].role) }}", marked,
                 "([user])");
    expect_marks("{% filter trim %} <{{ messages[0].role }}> {% endfilter %}", marked, "<[user]>");
    expect_marks("{% for c in messages[0].role %}{{ c }}{% endfor %}", marked, "[user]");
    expect_marks("{% for k in tools[0] %}<{{ k }}>{% endfor %}", marked, "<[name]><[n]>");
    expect_marks("{{ messages|map(attribute='role')|join('<') }}{{ (tools|first).name }}", marked,
                 "[userf]");
    expect_marks("{{ ('a\n' ~ messages[0].role)|indent(1) }}", marked, "a\n [user]");
    expect_marks("{{ nope|default(messages[0].role) }}{{ messages[0].role or 'x' }}", marked,
                 "[useruser]");
    expect_marks("{{ messages[0].content|replace('Hi', 'x')|length }}", marked, "8");
}

/* ---- memory ---- */

RP_TEST(template, survives_every_failing_allocation) {
    size_t n;
    char *source = read_file(rp_test_path("fixtures/template/qwen3.jinja"), &n);
    json_t *file = load("fixtures/template/conversations.json");
    json_t *context = json_array_get(json_object_get(file, "conversations"), 6);
    rp__alloc_stats before = rp__alloc_get_stats();
    int n_failed = 0;
    for (uint64_t at = 1;; at++) {
        rp__template *t = NULL;
        rp__rendered out = {0};
        rp_error err = {0};
        rp__alloc_fail_at(at, at % 2);
        rp_status status = rp__template_parse("t", (rp__str){source, n}, &t, &err);
        if (!status) status = rp__template_render(t, context, now, &out, &err);
        rp__alloc_fail_at(0, false);
        rp__rendered_clear(&out);
        rp__template_destroy(t);
        rp__alloc_stats after = rp__alloc_get_stats();
        assert_int_equal(after.n_allocs - after.n_frees, before.n_allocs - before.n_frees);
        if (status == RP_OK) break;
        if (status != RP_ENOMEM) fail_msg("allocation %d: %s", (int)at, err.message);
        n_failed++;
    }
    assert_true(n_failed > 5);
    json_decref(file);
    free(source);
}
