/* Splitting a text into words with PCRE2, stage after stage: each stage splits the words of the one
 * before.
 *
 * The patterns say white space and the like by code point (pretokenizer.c), as PCRE2's \s differs
 * from Unicode's White_Space. Texts are well-formed UTF-8 here, so PCRE2 need not check them again
 * for every match. */
#define _GNU_SOURCE /* memmem */
#include "text/tokenizer_impl.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>

#include "base/alloc.h"

enum {
    /* Bounds of the interpreting matcher, which is used where no code can be generated. A pattern
     * backtracks over one run of characters at most, so both grow with the longest run. */
    MATCH_LIMIT = 100 * 1000 * 1000,
    HEAP_LIMIT_KIB = 512 * 1024
};

static void *pcre_alloc(size_t n, void *user) {
    (void)user;
    return rp__alloc(n);
}

static void pcre_free(void *p, void *user) {
    (void)user;
    rp__free(p);
}

static rp_status make_contexts(rp__splitter *s, rp_error *err) {
    if (!s->general) s->general = pcre2_general_context_create(pcre_alloc, pcre_free, NULL);
    if (s->general && !s->limits) s->limits = pcre2_match_context_create(s->general);
    if (!s->limits) return rp__fail(err, RP_ENOMEM, "out of memory for a pre-tokeniser");
    pcre2_set_match_limit(s->limits, MATCH_LIMIT);
    pcre2_set_heap_limit(s->limits, HEAP_LIMIT_KIB);
    return RP_OK;
}

static rp_status no_room(rp_error *err) {
    return rp__fail(err, RP_ELIMIT, "a pre-tokeniser of more than %d stages is not supported",
                    RP_MAX_STAGES);
}

rp_status rp__splitter_add_regex(rp__splitter *s, const char *pattern, rp_error *err) {
    if (s->n_stages == RP_MAX_STAGES) return no_room(err);
    RP_TRY(make_contexts(s, err));
    pcre2_compile_context *cc = pcre2_compile_context_create(s->general);
    if (!cc) return rp__fail(err, RP_ENOMEM, "out of memory for a pre-tokeniser");
    int code;
    PCRE2_SIZE at;
    pcre2_code *re = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                                   PCRE2_UTF | PCRE2_UCP, &code, &at, cc);
    pcre2_compile_context_free(cc);
    if (!re && code == PCRE2_ERROR_HEAP_FAILED)
        return rp__fail(err, RP_ENOMEM, "out of memory for a pre-tokeniser");
    if (!re)
        return rp__fail(err, RP_EINTERNAL, "pattern \"%s\" fails at %zu with code %d", pattern,
                        (size_t)at, code);
    pcre2_jit_compile(
        re, PCRE2_JIT_COMPLETE); /* where it fails, matching interprets: slower, same result */
    s->stage[s->n_stages].kind = RP_STAGE_REGEX;
    s->stage[s->n_stages++].code = re;
    return RP_OK;
}

rp_status rp__splitter_add_metaspace(rp__splitter *s, rp_error *err) {
    if (s->n_stages == RP_MAX_STAGES) return no_room(err);
    s->stage[s->n_stages++].kind = RP_STAGE_METASPACE;
    return RP_OK;
}

void rp__splitter_clear(rp__splitter *s) {
    for (size_t i = 0; i < s->n_stages; i++)
        if (s->stage[i].code) pcre2_code_free(s->stage[i].code);
    if (s->limits) pcre2_match_context_free(s->limits);
    if (s->general) pcre2_general_context_free(s->general);
    *s = (rp__splitter){0};
}

/* ---- one run ---- */

typedef struct run {
    const rp__splitter *s;
    pcre2_match_data *match;
    rp__word_fn *fn;
    void *user;
    rp_error *err;
} run;

static rp_status split(run *r, size_t stage, rp__str text);

/* Next match at or after `at`; *begin == text.n when there is none. */
static rp_status next_match(run *r, size_t stage, rp__str text, size_t at, size_t *begin,
                            size_t *end) {
    const pcre2_code *re = r->s->stage[stage].code;
    int rc =
        pcre2_match(re, (PCRE2_SPTR)text.p, text.n, at, PCRE2_NO_UTF_CHECK, r->match, r->s->limits);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(re, (PCRE2_SPTR)text.p, text.n, at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                         r->match, r->s->limits);
    *begin = *end = text.n;
    if (rc == PCRE2_ERROR_NOMATCH) return RP_OK;
    if (rc == PCRE2_ERROR_NOMEMORY)
        return rp__fail(r->err, RP_ENOMEM, "out of memory while splitting a text");
    if (rc < 0)
        return rp__fail(r->err, RP_ELIMIT, "the text cannot be split into words within limits (%d)",
                        rc);
    const PCRE2_SIZE *v = pcre2_get_ovector_pointer(r->match);
    *begin = v[0], *end = v[1];
    return RP_OK;
}

static rp_status split_regex(run *r, size_t stage, rp__str text) {
    for (size_t at = 0; at < text.n;) {
        size_t begin, end;
        RP_TRY(next_match(r, stage, text, at, &begin, &end));
        if (begin > at) RP_TRY(split(r, stage + 1, (rp__str){text.p + at, begin - at}));
        if (end > begin) RP_TRY(split(r, stage + 1, (rp__str){text.p + begin, end - begin}));
        if (end == at) return rp__fail(r->err, RP_EINTERNAL, "a pre-tokeniser matched nothing");
        at = end;
    }
    return RP_OK;
}

static rp_status split_metaspace(run *r, size_t stage, rp__str text) {
    for (size_t at = 0; at < text.n;) {
        size_t left = text.n - at;
        const char *p = left > 1 ? memmem(text.p + at + 1, left - 1, "\xE2\x96\x81", 3) : NULL;
        size_t n = p ? (size_t)(p - text.p) - at : left;
        RP_TRY(split(r, stage + 1, (rp__str){text.p + at, n}));
        at += n;
    }
    return RP_OK;
}

static rp_status split(run *r, size_t stage, rp__str text) {
    if (stage == r->s->n_stages) return r->fn(r->user, text, r->err);
    if (r->s->stage[stage].kind == RP_STAGE_REGEX) return split_regex(r, stage, text);
    return split_metaspace(r, stage, text);
}

rp_status rp__splitter_run(const rp__splitter *s, rp__str text, rp__word_fn *fn, void *user,
                           rp_error *err) {
    run r = {s, NULL, fn, user, err};
    if (s->general && !(r.match = pcre2_match_data_create(1, s->general)))
        return rp__fail(err, RP_ENOMEM, "out of memory while splitting a text");
    rp_status status = text.n ? split(&r, 0, text) : RP_OK;
    if (r.match) pcre2_match_data_free(r.match);
    return status;
}
