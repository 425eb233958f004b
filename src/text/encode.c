/* Text to ids: cuts special tokens out, normalises and splits what lies between, and merges each
 * word. */
#include "text/tokenizer_impl.h"

#include <string.h>
#include <utf8proc.h>

#include "base/utf8.h"

/* Symbols and candidates count bytes in 32 bits, and the numbers of symbols must stay positive. */
enum { MAX_TEXT_BYTES = 1 << 30 };

typedef struct job {
    const rp__tokenizer *t;
    const rp__encode_options *o;
    rp__ids *out;
    rp__merger merger;
    rp__bytes buffer[4]; /* two for the normaliser, two for the prefix */
} job;

static rp_status no_memory(rp_error *err) {
    return rp__fail(err, RP_ENOMEM, "out of memory while encoding a text");
}

/* ---- words ---- */

static rp_status put_word(void *user, rp__str word, rp_error *err) {
    job *j = user;
    return rp__merge_word(j->t, &j->merger, word, j->out) ? RP_OK : no_memory(err);
}

/* Splits text whose bytes may be ill-formed: such bytes belong to no word and become one id each.
 */
static rp_status encode_words(job *j, rp__str text, rp_error *err) {
    if (!j->t->splitter.general &&
        j->t->model != RP_MERGE_BYTES) /* no regex that would need well-formed text */
        return rp__splitter_run(&j->t->splitter, text, put_word, j, err);
    size_t run = 0; /* where the well-formed run begins that ends at i */
    for (size_t i = 0; i < text.n;) {
        uint32_t cp;
        size_t n = rp__utf8_decode(text.p + i, text.n - i, &cp);
        if (cp == RP_UTF8_BAD) {
            RP_TRY(rp__splitter_run(&j->t->splitter, (rp__str){text.p + run, i - run}, put_word, j,
                                    err));
            for (size_t k = 0; k < n; k++)
                if (!rp__merge_byte(j->t, (unsigned char)text.p[i + k], j->out))
                    return no_memory(err);
            run = i + n;
        }
        i += n;
    }
    return rp__splitter_run(&j->t->splitter, (rp__str){text.p + run, text.n - run}, put_word, j,
                            err);
}

/* ---- special tokens ---- */

static bool is_word_char(uint32_t cp) {
    if (cp == '_') return true;
    if (cp == RP_UTF8_BAD) return false;
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    return (c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_NO) || c == UTF8PROC_CATEGORY_PC;
}

/* The code point that ends at `end` > 0, and where it begins. */
static uint32_t char_before(rp__str text, size_t end, size_t *begin) {
    size_t i = end - 1;
    while (i > 0 && end - i < 4 && ((unsigned char)text.p[i] & 0xC0) == 0x80) i--;
    uint32_t cp;
    size_t n = rp__utf8_decode(text.p + i, end - i, &cp);
    *begin = i;
    return i + n == end ? cp : RP_UTF8_BAD;
}

static bool stands_alone(rp__str text, size_t begin, size_t end) {
    uint32_t cp;
    size_t at;
    if (begin > 0 && is_word_char(char_before(text, begin, &at))) return false;
    if (end == text.n) return true;
    rp__utf8_decode(text.p + end, text.n - end, &cp);
    return !is_word_char(cp);
}

/* White space before `end`, not beyond `least`: where it begins. */
static size_t strip_left(rp__str text, size_t least, size_t end) {
    size_t begin;
    while (end > least && rp__is_white_space(char_before(text, end, &begin)) && begin >= least)
        end = begin;
    return end;
}

static size_t strip_right(rp__str text, size_t begin) {
    while (begin < text.n) {
        uint32_t cp;
        size_t n = rp__utf8_decode(text.p + begin, text.n - begin, &cp);
        if (!rp__is_white_space(cp)) break;
        begin += n;
    }
    return begin;
}

/* Walks along the literal spans: how far a control token that begins at a place may reach. */
typedef struct literal_walk {
    const rp__encode_options *o; /* NULL: control tokens are not looked for */
    size_t next;                 /* first span that does not end before the place */
} literal_walk;

static size_t control_end(literal_walk *w, size_t at, size_t text_end) {
    if (!w->o || !w->o->parse_special) return 0;
    const rp__span *s = w->o->literal;
    while (w->next < w->o->n_literal &&
           (s[w->next].end <= at || s[w->next].end == s[w->next].begin))
        w->next++;
    if (w->next == w->o->n_literal) return text_end;
    return s[w->next].begin <= at ? 0 : s[w->next].begin;
}

typedef rp_status gap_fn(job *j, rp__str gap, bool is_first, rp_error *err);

/* Gives what lies between special tokens to `gap`, and puts the tokens themselves. */
static rp_status cut(job *j, const rp__specials *s, rp__str text, bool is_first, literal_walk w,
                     gap_fn *gap, rp_error *err) {
    size_t from = 0;
    for (size_t at = 0; at < text.n;) {
        unsigned char c = (unsigned char)text.p[at];
        const rp__special *found = NULL;
        if (s->first[c] != s->first[c + 1])
            found = rp__specials_match(s, text, at, control_end(&w, at, text.n));
        if (!found) {
            at++;
            continue;
        }
        const rp__piece *p = &j->t->pieces.p[found->id];
        size_t end = at + found->text.n;
        if ((p->flags & RP_PIECE_SINGLE_WORD) && !stands_alone(text, at, end)) {
            at = end;
            continue;
        }
        size_t stop = p->flags & RP_PIECE_LSTRIP ? strip_left(text, from, at) : at;
        if (stop > from)
            RP_TRY(gap(j, (rp__str){text.p + from, stop - from}, is_first && from == 0, err));
        if (!rp__ids_add(j->out, found->id)) return no_memory(err);
        at = from = p->flags & RP_PIECE_RSTRIP ? strip_right(text, end) : end;
    }
    if (from == text.n) return RP_OK;
    return gap(j, (rp__str){text.p + from, text.n - from}, is_first && from == 0, err);
}

static rp_status encode_normalised_gap(job *j, rp__str text, bool is_first, rp_error *err) {
    if (!rp__normalizer_run(&j->t->prefix, is_first, &text, j->buffer + 2)) return no_memory(err);
    return encode_words(j, text, err);
}

static rp_status encode_gap(job *j, rp__str text, bool is_first, rp_error *err) {
    if (!rp__normalizer_run(&j->t->normalizer, is_first, &text, j->buffer)) return no_memory(err);
    if (j->t->normalized.n == 0) return encode_normalised_gap(j, text, is_first, err);
    return cut(j, &j->t->normalized, text, is_first, (literal_walk){0}, encode_normalised_gap, err);
}

/* ---- the whole text ---- */

static bool insert_ids(rp__ids *v, size_t at, const int32_t *ids, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!rp__ids_add(v, 0)) return false;
    memmove(v->p + at + n, v->p + at, (v->n - at - n) * sizeof *v->p);
    memcpy(v->p + at, ids, n * sizeof *v->p);
    return true;
}

static bool add_frame(const rp__tokenizer *t, rp__ids *out, size_t begin) {
    bool is_there = t->n_prefix && out->n > begin && out->p[begin] == t->prefix_ids[0];
    if (t->n_prefix && !is_there && !insert_ids(out, begin, t->prefix_ids, t->n_prefix))
        return false;
    return t->n_suffix == 0 || insert_ids(out, out->n, t->suffix_ids, t->n_suffix);
}

rp_status rp__tokenizer_encode(const rp__tokenizer *t, rp__str text, const rp__encode_options *o,
                               rp__ids *out, rp_error *err) {
    if (text.n > MAX_TEXT_BYTES)
        return rp__fail(err, RP_ELIMIT, "a text of %zu bytes is longer than %d", text.n,
                        MAX_TEXT_BYTES);
    job j = {.t = t, .o = o, .out = out};
    size_t begin = out->n;
    rp_status status = cut(&j, &t->raw, text, true, (literal_walk){o, 0}, encode_gap, err);
    if (status == RP_OK && o->add_special && !add_frame(t, out, begin)) status = no_memory(err);
    if (status < 0) out->n = begin;
    rp__merger_clear(&j.merger);
    for (size_t i = 0; i < sizeof j.buffer / sizeof *j.buffer; i++) rp__bytes_clear(&j.buffer[i]);
    return status;
}
