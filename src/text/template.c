/* The face of the template interpreter: parse, render, and what both need (memory, limits, errors).
 */
#include "text/template.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "text/jinja_impl.h"

/* ---- errors, memory, limits ---- */

RP_PRINTF(5, 0)
static rp_status fail_at(rp_error *err, rp_status code, const char *name, uint32_t line,
                         const char *fmt, va_list ap) {
    char what[400];
    vsnprintf(what, sizeof what, fmt, ap);
    if (line) return rp__fail(err, code, "%s, line %u: %s", name, line, what);
    return rp__fail(err, code, "%s: %s", name, what);
}

rp_status rp__jinja_parse_fail(jparser *p, rp_status code, uint32_t line, const char *fmt, ...) {
    if (p->status) return p->status;
    va_list ap;
    va_start(ap, fmt);
    p->status = fail_at(p->err, code, p->t->name, line, fmt, ap);
    va_end(ap);
    return p->status;
}

rp_status rp__jinja_fail(jrun *r, rp_status code, const char *fmt, ...) {
    if (r->status) return r->status;
    va_list ap;
    va_start(ap, fmt);
    r->status = fail_at(r->err, code, r->t->name, r->line, fmt, ap);
    va_end(ap);
    return r->status;
}

void *rp__jinja_alloc(jrun *r, size_t n, size_t bytes) {
    size_t total;
    if (!rp__mul_ok(n, bytes, &total) || total > JINJA_MAX_MEMORY ||
        r->arena.n_bytes + total > JINJA_MAX_MEMORY) {
        rp__jinja_fail(r, RP_ELIMIT, "the template needs more than %zu MiB of memory",
                       JINJA_MAX_MEMORY >> 20);
        return NULL;
    }
    void *p = rp__arena_alloc(&r->arena, total);
    if (!p) rp__jinja_fail(r, RP_ENOMEM, "out of memory");
    return p;
}

rp_status rp__jinja_charge(jrun *r, size_t bytes) {
    r->steps += bytes;
    if (r->steps <= JINJA_MAX_STEPS * 64) return RP_OK;
    return rp__jinja_fail(r, RP_ELIMIT, "the template takes more than %llu steps",
                          (unsigned long long)JINJA_MAX_STEPS);
}

rp_status rp__jinja_descend(jrun *r) {
    if (++r->depth <= JINJA_MAX_DEPTH) return RP_OK;
    return rp__jinja_fail(r, RP_ELIMIT, "expressions, macros or values nest deeper than %d",
                          JINJA_MAX_DEPTH);
}

/* ---- parse ---- */

rp_status rp__template_parse(const char *name, rp__str source, rp__template **out, rp_error *err) {
    *out = NULL;
    rp__template *t = rp__calloc(1, sizeof *t);
    if (!t) return rp__fail(err, RP_ENOMEM, "%s: out of memory", name);
    jparser p = {.t = t, .err = err};
    t->name = name; /* until it is copied, for messages */
    rp_status status = RP_OK;
    char *copy = rp__arena_strndup(&t->arena, name, strlen(name));
    if (!copy)
        status = rp__fail(err, RP_ENOMEM, "%s: out of memory", name);
    else
        t->name = copy;
    if (!status) status = rp__jinja_lex(&p, source);
    if (!status) status = rp__jinja_parse(&p);
    rp__free(p.tokens);
    rp__map_clear(&p.names);
    if (status)
        rp__template_destroy(t);
    else
        *out = t;
    return status;
}

void rp__template_destroy(rp__template *t) {
    if (!t) return;
    rp__arena_clear(&t->arena);
    rp__free(t);
}

/* ---- render ---- */

void rp__rendered_clear(rp__rendered *r) {
    rp__bytes_clear(&r->text);
    rp__free(r->literal);
    *r = (rp__rendered){0};
}

/* Out of the rendering's arena, which goes. */
static rp_status keep_output(jrun *r, const jbuilder *b, rp__rendered *out) {
    if (!rp__bytes_add(&out->text, b->n ? b->p : "", b->n))
        return rp__jinja_fail(r, RP_ENOMEM, "out of memory");
    if (!b->n_marks) return RP_OK;
    out->literal = rp__alloc(b->n_marks * sizeof *out->literal);
    if (!out->literal) return rp__jinja_fail(r, RP_ENOMEM, "out of memory");
    memcpy(out->literal, b->marks, b->n_marks * sizeof *out->literal);
    out->n_literal = b->n_marks;
    return RP_OK;
}

static rp_status render(jrun *r, rp__rendered *out) {
    jbuilder b = {0};
    r->out = &b;
    r->globals = rp__jinja_alloc(r, r->t->n_names, sizeof *r->globals);
    r->is_read = r->globals ? rp__jinja_alloc(r, r->t->n_names, sizeof *r->is_read) : NULL;
    r->scope = r->is_read ? rp__jinja_alloc(r, 1, sizeof *r->scope) : NULL;
    if (!r->scope) return r->status;
    memset(r->is_read, 0, r->t->n_names * sizeof *r->is_read);
    *r->scope = (jscope){0};
    RP_TRY(rp__jinja_exec(r, r->t->root));
    return keep_output(r, &b, out);
}

rp_status rp__template_render(const rp__template *t, const json_t *context, int64_t now,
                              rp__rendered *out, rp_error *err) {
    *out = (rp__rendered){0};
    if (!json_is_object(context))
        return rp__fail(err, RP_EINVAL, "%s: the context must be an object", t->name);
    jrun r = {.t = t, .context = context, .err = err, .now = now};
    rp_status status = render(&r, out);
    rp__arena_clear(&r.arena);
    if (status < 0) rp__rendered_clear(out);
    return status;
}
