#include "engine/parts.h"

#include "base/alloc.h"
#include "base/fail.h"

rp_status rp__batch_init(rp__batch *b, int32_t max_tokens, int32_t max_seqs, rp_error *err) {
    size_t t = (size_t)max_tokens, n = (size_t)max_seqs;
    *b = (rp__batch){.ids = rp__calloc(t, sizeof *b->ids),
                     .pos = rp__calloc(t, sizeof *b->pos),
                     .seq = rp__calloc(t, sizeof *b->seq),
                     .slots = rp__calloc(t, sizeof *b->slots),
                     .rows = rp__calloc(n, sizeof *b->rows),
                     .tables = rp__calloc(n, sizeof *b->tables),
                     .n_blocks = rp__calloc(n, sizeof *b->n_blocks)};
    if (b->ids && b->pos && b->seq && b->slots && b->rows && b->tables && b->n_blocks) return RP_OK;
    rp__batch_clear(b);
    return rp__fail(err, RP_ENOMEM, "out of memory for a batch of %d tokens", (int)max_tokens);
}

void rp__batch_clear(rp__batch *b) {
    void *memory[] = {b->ids, b->pos, b->seq, b->slots, b->rows, b->tables, b->n_blocks};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++) rp__free(memory[i]);
    *b = (rp__batch){0};
}

rp_status rp__parts_init(rp__parts *p, int32_t align, int32_t max_tokens, int32_t max_seqs,
                         rp_error *err) {
    *p = (rp__parts){.align = align};
    RP_TRY(rp__batch_init(&p->part, max_tokens, max_seqs, err));
    p->from = rp__calloc((size_t)max_seqs, sizeof *p->from);
    p->next = rp__calloc((size_t)max_seqs, sizeof *p->next);
    p->end = rp__calloc((size_t)max_seqs, sizeof *p->end);
    p->row = rp__calloc((size_t)max_tokens, sizeof *p->row);
    if (p->from && p->next && p->end && p->row) return RP_OK;
    rp__parts_clear(p);
    return rp__fail(err, RP_ENOMEM, "out of memory for the parts of %d tokens", (int)max_tokens);
}

void rp__parts_clear(rp__parts *p) {
    rp__batch_clear(&p->part);
    rp__free(p->from);
    rp__free(p->next);
    rp__free(p->end);
    rp__free(p->row);
    *p = (rp__parts){0};
}

void rp__parts_begin(rp__parts *p, const rp__batch *whole) {
    p->part.is_greedy = whole->is_greedy;
    for (int32_t i = 0; i < whole->n_tokens; i++) p->row[i] = -1;
    for (int32_t i = 0; i < whole->n_rows; i++) p->row[whole->rows[i]] = i;
    for (int32_t s = 0; s < whole->n_seqs; s++) p->next[s] = p->end[s] = 0;
    for (int32_t i = whole->n_tokens; i-- > 0;) {
        int32_t s = whole->seq[i];
        if (!p->end[s]) p->end[s] = i + 1;
        p->next[s] = i;
    }
}

static int32_t n_left(const rp__parts *p, int32_t s) {
    return p->end[s] - p->next[s];
}

/* The next n tokens of sequence s, as a sequence of the part. */
static void add_tokens(rp__parts *p, const rp__batch *whole, int32_t s, int32_t n) {
    rp__batch *b = &p->part;
    for (int32_t i = p->next[s]; i < p->next[s] + n; i++) {
        b->ids[b->n_tokens] = whole->ids[i];
        b->pos[b->n_tokens] = whole->pos[i];
        b->slots[b->n_tokens] = whole->slots[i];
        b->seq[b->n_tokens] = b->n_seqs;
        if (p->row[i] >= 0) {
            p->from[b->n_rows] = p->row[i];
            b->rows[b->n_rows++] = b->n_tokens;
        }
        b->n_tokens++;
    }
    b->tables[b->n_seqs] = whole->tables[s];
    b->n_blocks[b->n_seqs++] = whole->n_blocks[s];
    p->next[s] += n;
}

static bool is_prompt(const rp__parts *p, const rp__batch *whole, int32_t s) {
    return n_left(p, s) > 1 && whole->pos[p->next[s]] % p->align == 0;
}

bool rp__parts_next(rp__parts *p, const rp__batch *whole) {
    rp__batch *b = &p->part;
    b->n_tokens = b->n_seqs = b->n_rows = 0;
    for (int32_t s = 0; s < whole->n_seqs; s++)
        if (n_left(p, s) && !is_prompt(p, whole, s)) add_tokens(p, whole, s, 1);
    for (int32_t s = 0; s < whole->n_seqs && !b->n_tokens; s++)
        if (n_left(p, s)) add_tokens(p, whole, s, n_left(p, s));
    return b->n_tokens > 0;
}
