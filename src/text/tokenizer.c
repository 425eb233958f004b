/* Tokenizers from GGUF's arrays, and the questions asked of any tokenizer.
 *
 * Refuses: models other than byte-level and SentencePiece BPE, pre-tokenisers that are not known,
 * ids outside the vocabulary, merges or scores that are missing. */
#include "text/tokenizer_impl.h"

#include <string.h>

#include "base/alloc.h"
#include "base/log.h"

/* Ids are int32 and a piece takes some 50 bytes: more tokens than any model has, few enough to
 * allocate. */
enum { MAX_TOKENS = 1 << 22 };

/* ---- lists of ids ---- */

bool rp__ids_add(rp__ids *v, int32_t id) {
    if (v->n == v->cap) {
        size_t cap = v->cap ? v->cap * 2 : 64;
        int32_t *p = rp__realloc_array(v->p, cap, sizeof *p);
        if (!p) return false;
        v->p = p;
        v->cap = cap;
    }
    v->p[v->n++] = id;
    return true;
}

void rp__ids_clear(rp__ids *v) {
    rp__free(v->p);
    *v = (rp__ids){0};
}

/* ---- building ---- */

/* Texts that end a generation wherever they are in a vocabulary: what model makers call their ends.
 */
static const char *const ends[] = {"<|eot_id|>",
                                   "<|eom_id|>",
                                   "<|im_end|>",
                                   "<|end|>",
                                   "<|return|>",
                                   "<|call|>",
                                   "<end_of_turn>",
                                   "<|endoftext|>",
                                   "<|end_of_text|>",
                                   "<EOT>",
                                   "[EOT]",
                                   "[EOS]",
                                   "<eos>",
                                   "<turn|>",
                                   "<end_of_utterance>",
                                   "<\xEF\xBD\x9C"
                                   "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>"};

static void make_control(rp__piece *p) {
    p->type = RP_TOKEN_CONTROL;
    p->bytes = p->text;
}

/* A file may have typed an end as ordinary text; a user's text must not become it. */
static void mark_ends(rp__tokenizer *t, int32_t eot) {
    rp__pieces *v = &t->pieces;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        int32_t id = rp__pieces_find(v, rp__str_of(ends[i]));
        if (id < 0) continue;
        if (!rp__piece_is_control(&v->p[id])) make_control(&v->p[id]);
        v->p[id].flags |= RP_PIECE_EOG;
    }
    /* An HTML tag in some vocabularies, hence only where it is a control token. */
    int32_t s = rp__pieces_find(v, RP_STR("</s>"));
    if (s >= 0 && rp__piece_is_control(&v->p[s])) v->p[s].flags |= RP_PIECE_EOG;
    /* In the "harmony" format <|end|> ends a message, after which the model goes on. */
    int32_t end = rp__pieces_find(v, RP_STR("<|end|>"));
    if (end >= 0 && rp__pieces_find(v, RP_STR("<|return|>")) >= 0 &&
        rp__pieces_find(v, RP_STR("<|call|>")) >= 0)
        v->p[end].flags &= (uint8_t)~RP_PIECE_EOG;
    if (t->eos >= 0) v->p[t->eos].flags |= RP_PIECE_EOG;
    if (eot >= 0) v->p[eot].flags |= RP_PIECE_EOG;
}

rp_status rp__tokenizer_finish(rp__tokenizer *t, int32_t eot, rp_error *err) {
    mark_ends(t, eot);
    RP_TRY(rp__specials_init(&t->raw, &t->pieces, NULL, err));
    return rp__specials_init(&t->normalized, &t->pieces, &t->normalizer, err);
}

static rp_status check_id(const rp__tokenizer_spec *s, const char *name, int32_t id,
                          rp_error *err) {
    if (id >= -1 && (id < 0 || (size_t)id < s->n_tokens)) return RP_OK;
    return rp__fail(err, RP_EFORMAT, "%s: the %s token is %d, outside the vocabulary of %zu",
                    s->source, name, id, s->n_tokens);
}

static rp_status check_spec(const rp__tokenizer_spec *s, rp_error *err) {
    if (s->n_tokens == 0 || !s->tokens)
        return rp__fail(err, RP_EFORMAT, "%s: the vocabulary has no tokens", s->source);
    if (s->n_tokens > MAX_TOKENS)
        return rp__fail(err, RP_ELIMIT, "%s: %zu tokens are more than %d", s->source, s->n_tokens,
                        MAX_TOKENS);
    RP_TRY(check_id(s, "BOS", s->bos, err));
    RP_TRY(check_id(s, "EOS", s->eos, err));
    RP_TRY(check_id(s, "EOT", s->eot, err));
    RP_TRY(check_id(s, "unknown", s->unk, err));
    return check_id(s, "padding", s->pad, err);
}

static rp_status add_merges(rp__tokenizer *t, const rp__tokenizer_spec *s, rp_error *err) {
    if (s->n_merges == 0 || !s->merges)
        return rp__fail(err, RP_EFORMAT,
                        "%s: a byte-level vocabulary needs merges, and there are none", s->source);
    if (s->n_merges > UINT32_MAX || !rp__merges_reserve(&t->merges, s->n_merges))
        return rp__fail(err, RP_ENOMEM, "%s: out of memory for %zu merges", s->source, s->n_merges);
    for (size_t i = 0; i < s->n_merges; i++) {
        rp__str m = s->merges[i];
        const char *space = m.n > 1 ? memchr(m.p + 1, ' ', m.n - 1) : NULL;
        if (!space)
            return rp__fail(err, RP_EFORMAT, "%s: merge %zu is \"%.*s\", not two parts", s->source,
                            i, (int)(m.n < 40 ? m.n : 40), m.p);
        size_t n = (size_t)(space - m.p);
        rp__str left = {m.p, n}, right = {space + 1, m.n - n - 1};
        RP_TRY(rp__merges_add(&t->merges, &t->pieces, s->source, i, left, right, err));
    }
    return RP_OK;
}

static rp_status build_byte_level(rp__tokenizer *t, const rp__tokenizer_spec *s, bool *adds_bos,
                                  rp_error *err) {
    rp__str name = s->pre;
    if (name.n == 0) {
        rp__log(RP_LOG_WARN,
                "%s: no pre-tokeniser is named; \"default\" is taken, which few models mean",
                s->source);
        name = RP_STR("default");
    }
    const rp__pretokenizer *pre = rp__pretokenizer_find(name);
    if (!pre)
        return rp__fail(err, RP_EUNSUPPORTED, "%s: pre-tokeniser \"%.*s\" is not known", s->source,
                        (int)(name.n < 80 ? name.n : 80), name.p);
    t->model = RP_MERGE_BYTES;
    t->ignore_merges = pre->ignore_merges;
    *adds_bos = pre->add_bos;
    RP_TRY(rp__pieces_init(&t->pieces, s->source, s->tokens, s->n_tokens, s->types, NULL,
                           RP_FORM_BYTE_LEVEL, err));
    RP_TRY(add_merges(t, s, err));
    for (size_t i = 0; i < RP_MAX_STAGES && pre->pattern[i]; i++)
        RP_TRY(rp__splitter_add_regex(&t->splitter, pre->pattern[i], err));
    return RP_OK;
}

static rp_status build_scores(rp__tokenizer *t, const rp__tokenizer_spec *s, bool *adds_bos,
                              rp_error *err) {
    if (!s->scores)
        return rp__fail(err, RP_EFORMAT,
                        "%s: a SentencePiece vocabulary needs scores, and there are none",
                        s->source);
    t->model = RP_MERGE_SCORES;
    t->unk = s->unk;
    t->fuse_unk = true;
    t->strips_space = s->add_space_prefix != 0;
    *adds_bos = true;
    RP_TRY(rp__pieces_init(&t->pieces, s->source, s->tokens, s->n_tokens, s->types, s->scores,
                           RP_FORM_METASPACE, err));
    rp__str bar = RP_STR("\xE2\x96\x81"), none = {0};
    if (t->strips_space)
        RP_TRY(rp__normalizer_add(&t->normalizer, RP_NORM_PREPEND, none, bar, 0, err));
    return rp__normalizer_add(&t->normalizer, RP_NORM_REPLACE, RP_STR(" "), bar, 0, err);
}

/* A file without types tells nothing apart: what it names as special is special. */
static void type_named(rp__tokenizer *t, const rp__tokenizer_spec *s) {
    const int32_t named[] = {s->bos, s->eos, s->eot, s->unk};
    for (size_t i = 0; i < sizeof named / sizeof *named; i++)
        if (!s->types && named[i] >= 0) make_control(&t->pieces.p[named[i]]);
}

static void set_flags(rp__tokenizer *t, const rp__tokenizer_spec *s) {
    for (size_t i = 0; i < t->pieces.n; i++) {
        rp__piece *p = &t->pieces.p[i];
        bool strips = p->type == RP_TOKEN_CONTROL || p->type == RP_TOKEN_USER_DEFINED;
        if (s->strip_after_special && strips && (int32_t)i != s->bos &&
            !rp__str_is(p->text, "<|endoftext|>"))
            p->flags |= RP_PIECE_RSTRIP;
    }
}

static rp_status build(rp__tokenizer *t, const rp__tokenizer_spec *s, rp_error *err) {
    bool adds_bos = false;
    RP_TRY(check_spec(s, err));
    if (rp__str_is(s->model, "gpt2"))
        RP_TRY(build_byte_level(t, s, &adds_bos, err));
    else if (rp__str_is(s->model, "llama"))
        RP_TRY(build_scores(t, s, &adds_bos, err));
    else
        return rp__fail(err, RP_EUNSUPPORTED,
                        "%s: tokenizer model \"%.*s\" is not implemented (gpt2 and llama are)",
                        s->source, (int)(s->model.n < 80 ? s->model.n : 80), s->model.p);
    type_named(t, s);
    set_flags(t, s);
    t->bos = s->bos;
    t->eos = s->eos;
    if (s->add_bos >= 0) adds_bos = s->add_bos;
    if (adds_bos && s->bos >= 0) t->prefix_ids[t->n_prefix++] = s->bos;
    if (s->add_eos > 0 && s->eos >= 0) t->suffix_ids[t->n_suffix++] = s->eos;
    return rp__tokenizer_finish(t, s->eot, err);
}

rp_status rp__tokenizer_create(const rp__tokenizer_spec *spec, rp__tokenizer **out, rp_error *err) {
    *out = NULL;
    rp__tokenizer *t = rp__calloc(1, sizeof *t);
    if (!t) return rp__fail(err, RP_ENOMEM, "%s: out of memory", spec->source);
    t->bos = t->eos = t->unk = -1;
    rp_status status = build(t, spec, err);
    if (status < 0)
        rp__tokenizer_destroy(t);
    else
        *out = t;
    return status;
}

void rp__tokenizer_destroy(rp__tokenizer *t) {
    if (!t) return;
    rp__specials_clear(&t->raw);
    rp__specials_clear(&t->normalized);
    rp__splitter_clear(&t->splitter);
    rp__merges_clear(&t->merges);
    rp__pieces_clear(&t->pieces);
    rp__free(t);
}

/* ---- questions ---- */

static const rp__piece *piece_at(const rp__tokenizer *t, int32_t id) {
    return id >= 0 && (size_t)id < t->pieces.n ? &t->pieces.p[id] : NULL;
}

int32_t rp__tokenizer_size(const rp__tokenizer *t) {
    return (int32_t)t->pieces.n;
}
int32_t rp__tokenizer_bos(const rp__tokenizer *t) {
    return t->bos;
}
int32_t rp__tokenizer_eos(const rp__tokenizer *t) {
    return t->eos;
}
bool rp__tokenizer_adds_bos(const rp__tokenizer *t) {
    return t->bos >= 0 && t->n_prefix && t->prefix_ids[0] == t->bos;
}

bool rp__tokenizer_is_eog(const rp__tokenizer *t, int32_t id) {
    const rp__piece *p = piece_at(t, id);
    return p && (p->flags & RP_PIECE_EOG);
}

bool rp__tokenizer_is_special(const rp__tokenizer *t, int32_t id) {
    const rp__piece *p = piece_at(t, id);
    return p && rp__piece_is_control(p);
}

int32_t rp__tokenizer_find(const rp__tokenizer *t, rp__str piece) {
    return rp__pieces_find(&t->pieces, piece);
}

rp__str rp__tokenizer_text(const rp__tokenizer *t, int32_t id) {
    const rp__piece *p = piece_at(t, id);
    return p ? p->text : (rp__str){0};
}

rp__str rp__tokenizer_bytes(const rp__tokenizer *t, int32_t id) {
    const rp__piece *p = piece_at(t, id);
    return p ? p->bytes : (rp__str){0};
}

bool rp__tokenizer_add_eog(rp__tokenizer *t, int32_t id) {
    if (!piece_at(t, id)) return false;
    t->pieces.p[id].flags |= RP_PIECE_EOG;
    return true;
}
