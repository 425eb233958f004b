/* Joining the symbols of a word: byte-pair encoding by rank (GPT-2's way) and by score
 * (SentencePiece's way).
 *
 * Both take the best pair of neighbours, the leftmost among equals, until none can be joined. The
 * pairs wait in a heap and the symbols are a linked list, so that one long word costs n log n. A
 * pair that has changed since it was put on the heap is known by its length: symbols only ever
 * grow. */
#include "text/tokenizer_impl.h"

#include <string.h>

#include "base/alloc.h"
#include "base/map.h"
#include "base/utf8.h"

/* ---- the table of pairs ---- */

typedef struct rp__merge_slot {
    uint64_t key; /* left id << 32 | right id; NO_PAIR: empty */
    uint32_t rank;
    int32_t both;
} merge_slot;

#define NO_PAIR UINT64_MAX

static uint64_t pair_key(int32_t left, int32_t right) {
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

static merge_slot *find_pair(const rp__merges *m, uint64_t key) {
    unsigned __int128 h = (unsigned __int128)(key ^ m->seed) * 0x9E3779B97F4A7C15ULL;
    size_t i = ((uint64_t)h ^ (uint64_t)(h >> 64)) & (m->cap - 1);
    while (m->slots[i].key != key && m->slots[i].key != NO_PAIR) i = (i + 1) & (m->cap - 1);
    return &m->slots[i];
}

bool rp__merges_reserve(rp__merges *m, size_t n) {
    size_t want, cap = 16;
    if (!rp__add_ok(n, n / 2 + 1, &want)) return false;
    while (cap < want)
        if (!rp__mul_ok(cap, 2, &cap)) return false;
    m->slots = rp__realloc_array(NULL, cap, sizeof *m->slots);
    if (!m->slots) return false;
    for (size_t i = 0; i < cap; i++) m->slots[i].key = NO_PAIR;
    m->cap = cap;
    /* Where memory lies is not known to whoever wrote the file, so neither is what collides. */
    m->seed = rp__hash_bytes(&m->slots, sizeof m->slots, 0);
    return true;
}

void rp__merges_put(rp__merges *m, int32_t left, int32_t right, uint32_t rank, int32_t both) {
    merge_slot *s = find_pair(m, pair_key(left, right));
    if (s->key != NO_PAIR) return;
    rp__assert(m->n + 1 < m->cap, "%zu merges in %zu slots", m->n, m->cap);
    *s = (merge_slot){pair_key(left, right), rank, both};
    m->n++;
}

static bool is_joined(rp__str both, rp__str left, rp__str right) {
    return both.n == left.n + right.n && !memcmp(both.p, left.p, left.n) &&
           !memcmp(both.p + left.n, right.p, right.n);
}

/* The piece that left and right make; -1 when there is none, -2 when out of memory. Merges mostly
 * make pieces in the order of their ids, so that the one after the last is tried before it is
 * searched for. */
static int32_t find_joined(const rp__merges *m, const rp__pieces *v, rp__str left, rp__str right) {
    for (size_t id = (size_t)m->last; id < v->n && id <= (size_t)m->last + 1; id++)
        if (is_joined(v->p[id].text, left, right)) return (int32_t)id;
    if (left.n > v->longest || right.n > v->longest - left.n) return -1;
    rp__bytes both = {0};
    bool ok = rp__bytes_add(&both, left.p, left.n) && rp__bytes_add(&both, right.p, right.n);
    int32_t id = ok ? rp__pieces_find(v, (rp__str){both.p, both.n}) : -2;
    rp__bytes_clear(&both);
    return id;
}

rp_status rp__merges_add(rp__merges *m, const rp__pieces *v, const char *source, size_t rank,
                         rp__str left, rp__str right, rp_error *err) {
    int32_t l = rp__pieces_find(v, left), r = rp__pieces_find(v, right);
    int32_t both = find_joined(m, v, left, right);
    if (both == -2) return rp__fail(err, RP_ENOMEM, "%s: out of memory for merges", source);
    if (l < 0 || r < 0 || both < 0)
        return rp__fail(err, RP_EFORMAT,
                        "%s: merge %zu (\"%.*s\" and \"%.*s\") is not made of tokens that exist",
                        source, rank, (int)(left.n < 40 ? left.n : 40), left.p,
                        (int)(right.n < 40 ? right.n : 40), right.p);
    m->last = both;
    /* A piece of the training became a control token: text must not be joined to it. */
    bool is_text = rp__piece_is_text(&v->p[l]) && rp__piece_is_text(&v->p[r]) &&
                   rp__piece_is_text(&v->p[both]);
    if (is_text) rp__merges_put(m, l, r, (uint32_t)rank, both);
    return RP_OK;
}

void rp__merges_clear(rp__merges *m) {
    rp__free(m->slots);
    *m = (rp__merges){0};
}

/* ---- symbols and candidates ---- */

typedef struct rp__symbol {
    uint32_t begin, n; /* bytes of the word; n == 0: joined into its left neighbour */
    int32_t id;        /* -1: not looked up, or no piece */
    int32_t prev, next;
} symbol;

typedef struct rp__candidate {
    uint64_t order; /* cost << 32 | left symbol: smaller goes first */
    int32_t id;     /* what the pair becomes */
    uint32_t n;     /* bytes of both */
} candidate;

static bool grow(void **p, size_t *cap, size_t n, size_t item) {
    if (n < *cap) return true;
    size_t want = *cap ? *cap * 2 : 64;
    void *q = rp__realloc_array(*p, want, item);
    if (!q) return false;
    *p = q;
    *cap = want;
    return true;
}

static bool add_symbol(rp__merger *m, size_t begin, size_t n, int32_t id) {
    if (!grow((void **)&m->symbols, &m->symbols_cap, m->n_symbols, sizeof *m->symbols))
        return false;
    int32_t i = (int32_t)m->n_symbols++;
    m->symbols[i] = (symbol){(uint32_t)begin, (uint32_t)n, id, i - 1, -1};
    if (i > 0) m->symbols[i - 1].next = i;
    return true;
}

static bool push(rp__merger *m, candidate c) {
    if (!grow((void **)&m->heap, &m->heap_cap, m->n_heap, sizeof *m->heap)) return false;
    size_t i = m->n_heap++;
    while (i > 0 && m->heap[(i - 1) / 2].order > c.order) {
        m->heap[i] = m->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    m->heap[i] = c;
    return true;
}

static candidate pop(rp__merger *m) {
    candidate top = m->heap[0], last = m->heap[--m->n_heap];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < m->n_heap; i = child) {
        if (child + 1 < m->n_heap && m->heap[child + 1].order < m->heap[child].order) child++;
        if (m->heap[child].order >= last.order) break;
        m->heap[i] = m->heap[child];
    }
    m->heap[i] = last;
    return top;
}

/* A number that is smaller for a higher score: the bits of a float, made to sort like integers. */
static uint32_t cost_of_score(float score) {
    score += 0.0f; /* -0 becomes 0 */
    uint32_t u;
    memcpy(&u, &score, sizeof u);
    return u & 0x80000000u ? u : ~(u | 0x80000000u);
}

/* Sets cost and id of the two symbols together; false when they cannot be joined. */
static bool can_join(const rp__tokenizer *t, rp__str word, const symbol *l, const symbol *r,
                     uint32_t *cost, int32_t *id) {
    if (t->model != RP_MERGE_SCORES) {
        if (l->id < 0 || r->id < 0 || !t->merges.cap) return false;
        const merge_slot *s = find_pair(&t->merges, pair_key(l->id, r->id));
        if (s->key == NO_PAIR) return false;
        *cost = s->rank;
        *id = s->both;
        return true;
    }
    size_t n = (size_t)l->n + r->n;
    if (n > t->pieces.longest) return false;
    *id = rp__pieces_find_text(&t->pieces, (rp__str){word.p + l->begin, n});
    if (*id < 0) return false;
    *cost = cost_of_score(t->pieces.p[*id].score);
    return true;
}

static bool add_candidate(const rp__tokenizer *t, rp__merger *m, rp__str word, int32_t left,
                          int32_t right) {
    if (left < 0 || right < 0) return true;
    const symbol *l = &m->symbols[left], *r = &m->symbols[right];
    uint32_t cost;
    int32_t id;
    if (!can_join(t, word, l, r, &cost, &id)) return true;
    return push(m, (candidate){(uint64_t)cost << 32 | (uint32_t)left, id, l->n + r->n});
}

static bool join_all(const rp__tokenizer *t, rp__merger *m, rp__str word) {
    m->n_heap = 0;
    for (size_t i = 1; i < m->n_symbols; i++)
        if (!add_candidate(t, m, word, (int32_t)i - 1, (int32_t)i)) return false;
    while (m->n_heap) {
        candidate c = pop(m);
        int32_t at = (int32_t)(uint32_t)c.order;
        symbol *l = &m->symbols[at];
        if (l->n == 0 || l->next < 0 || l->n + m->symbols[l->next].n != c.n) continue;
        symbol *r = &m->symbols[l->next];
        l->n = c.n;
        l->id = c.id;
        l->next = r->next;
        r->n = 0;
        if (l->next >= 0) m->symbols[l->next].prev = at;
        if (!add_candidate(t, m, word, l->prev, at) || !add_candidate(t, m, word, at, l->next))
            return false;
    }
    return true;
}

/* ---- first symbols ---- */

static bool add_bytes(const rp__tokenizer *t, rp__merger *m, rp__str word) {
    for (size_t i = 0; i < word.n; i++) {
        int32_t id = t->pieces.byte_id[(unsigned char)word.p[i]];
        if (id < 0) id = t->unk;
        if (id >= 0 && !add_symbol(m, i, 1, id)) return false;
    }
    return true;
}

static bool has_bytes(const rp__pieces *v, rp__str s) {
    for (size_t i = 0; i < s.n; i++)
        if (v->byte_id[(unsigned char)s.p[i]] < 0) return false;
    return true;
}

/* A character that is no piece: its bytes, or else the unknown piece, one for several in a row
 * where they fuse. */
static bool add_unknown(const rp__tokenizer *t, rp__merger *m, rp__str word, size_t begin,
                        size_t n) {
    rp__str c = {word.p + begin, n};
    if (has_bytes(&t->pieces, c)) {
        for (size_t i = 0; i < n; i++)
            if (!add_symbol(m, begin + i, 1, t->pieces.byte_id[(unsigned char)c.p[i]]))
                return false;
        return true;
    }
    if (t->unk < 0) return true;
    symbol *last = m->n_symbols ? &m->symbols[m->n_symbols - 1] : NULL;
    if (t->fuse_unk && last && last->id == t->unk) {
        last->n += (uint32_t)n;
        return true;
    }
    return add_symbol(m, begin, n, t->unk);
}

static bool add_chars(const rp__tokenizer *t, rp__merger *m, rp__str word) {
    for (size_t i = 0; i < word.n;) {
        uint32_t cp;
        size_t n = rp__utf8_decode(word.p + i, word.n - i, &cp);
        if (cp == RP_UTF8_BAD) n = 1;
        /* With scores most characters are joined before their own id is asked for. */
        int32_t id = -1;
        if (t->model == RP_MERGE_CHARS)
            id = rp__pieces_find_text(&t->pieces, (rp__str){word.p + i, n});
        bool ok = id < 0 && t->model == RP_MERGE_CHARS ? add_unknown(t, m, word, i, n)
                                                       : add_symbol(m, i, n, id);
        if (!ok) return false;
        i += n;
    }
    return true;
}

/* ---- a word ---- */

/* Where merging left characters without an id: their own piece, their bytes, or the unknown piece.
 */
static bool put_rest(const rp__tokenizer *t, rp__str s, rp__ids *out, bool *was_unk) {
    int32_t id = rp__pieces_find_text(&t->pieces, s);
    *was_unk = false;
    if (id >= 0) return rp__ids_add(out, id);
    if (has_bytes(&t->pieces, s)) {
        for (size_t i = 0; i < s.n; i++)
            if (!rp__ids_add(out, t->pieces.byte_id[(unsigned char)s.p[i]])) return false;
        return true;
    }
    *was_unk = true;
    return true;
}

static bool put_symbols(const rp__tokenizer *t, const rp__merger *m, rp__str word, rp__ids *out) {
    bool after_unk = false;
    for (int32_t i = m->n_symbols ? 0 : -1; i >= 0; i = m->symbols[i].next) {
        const symbol *s = &m->symbols[i];
        bool is_unk = false;
        if (s->id >= 0) {
            if (!rp__ids_add(out, s->id)) return false;
        } else {
            if (!put_rest(t, (rp__str){word.p + s->begin, s->n}, out, &is_unk)) return false;
            bool say = is_unk && t->unk >= 0 && !(after_unk && t->fuse_unk);
            if (say && !rp__ids_add(out, t->unk)) return false;
        }
        after_unk = is_unk;
    }
    return true;
}

/* The id of a word that is a piece as it stands; -1 when it is none. Sets *failed when out of
 * memory. */
static int32_t whole_word(const rp__tokenizer *t, rp__merger *m, rp__str word, bool *failed) {
    if (word.n > t->pieces.longest) return -1;
    if (t->model != RP_MERGE_BYTES) return rp__pieces_find_text(&t->pieces, word);
    rp__bytes_reset(&m->scratch);
    for (size_t i = 0; i < word.n; i++) {
        char c[4];
        rp__bytes_add(&m->scratch, c, rp__byte_level_char((unsigned char)word.p[i], c));
    }
    *failed = m->scratch.failed;
    return *failed ? -1 : rp__pieces_find_text(&t->pieces, (rp__str){m->scratch.p, m->scratch.n});
}

bool rp__merge_word(const rp__tokenizer *t, rp__merger *m, rp__str word, rp__ids *out) {
    if (t->ignore_merges && word.n) {
        bool failed = false;
        int32_t id = whole_word(t, m, word, &failed);
        if (failed) return false;
        if (id >= 0) return rp__ids_add(out, id);
    }
    m->n_symbols = 0;
    bool ok = t->model == RP_MERGE_BYTES ? add_bytes(t, m, word) : add_chars(t, m, word);
    return ok && join_all(t, m, word) && put_symbols(t, m, word, out);
}

bool rp__merge_byte(const rp__tokenizer *t, unsigned char byte, rp__ids *out) {
    int32_t id = t->pieces.byte_id[byte];
    if (id < 0) id = t->unk;
    return id < 0 || rp__ids_add(out, id);
}

void rp__merger_clear(rp__merger *m) {
    rp__free(m->symbols);
    rp__free(m->heap);
    rp__bytes_clear(&m->scratch);
    *m = (rp__merger){0};
}
