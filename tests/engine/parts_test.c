/* Batches in parts, by hand: single tokens, what stands before a block's beginning, prompts. */
#include "engine/parts.h"
#include "test.h"

enum { ALIGN = 4, MAX_TOKENS = 32, MAX_SEQS = 4 };

static void add(rp__batch *b, int32_t first, int32_t n, const int32_t *blocks, bool wants_row) {
    b->tables[b->n_seqs] = blocks;
    b->n_blocks[b->n_seqs] = (first + n + ALIGN - 1) / ALIGN;
    for (int32_t k = 0; k < n; k++) {
        int32_t i = b->n_tokens++;
        b->ids[i] = 100 * b->n_seqs + first + k;
        b->pos[i] = first + k;
        b->slots[i] = 1000 + b->ids[i];
        b->seq[i] = b->n_seqs;
    }
    if (wants_row) b->rows[b->n_rows++] = b->n_tokens - 1;
    b->n_seqs++;
}

typedef struct wanted {
    int32_t first_id, n_tokens, n_seqs, n_rows, from[MAX_SEQS];
} wanted;

static void check(rp__parts *p, const rp__batch *whole, const wanted *w) {
    assert_true(rp__parts_next(p, whole));
    const rp__batch *b = &p->part;
    assert_int_equal(b->n_tokens, w->n_tokens);
    assert_int_equal(b->n_seqs, w->n_seqs);
    assert_int_equal(b->n_rows, w->n_rows);
    assert_int_equal(b->ids[0], w->first_id);
    for (int32_t i = 0; i < b->n_tokens; i++) {
        assert_int_equal(b->slots[i], 1000 + b->ids[i]);
        assert_int_equal(b->pos[i], b->ids[i] % 100);
        assert_ptr_equal(b->tables[b->seq[i]], whole->tables[b->ids[i] / 100]);
        assert_int_equal(b->n_blocks[b->seq[i]], whole->n_blocks[b->ids[i] / 100]);
    }
    for (int32_t i = 0; i < b->n_rows; i++) {
        assert_int_equal(p->from[i], w->from[i]);
        assert_int_equal(b->ids[b->rows[i]], whole->ids[whole->rows[w->from[i]]]);
    }
}

RP_TEST(parts, of_a_mixed_batch) {
    static const int32_t blocks[MAX_SEQS][8];
    rp_error err = {0};
    rp__batch b;
    rp__parts p;
    assert_ok(rp__batch_init(&b, MAX_TOKENS, MAX_SEQS, &err), err);
    assert_ok(rp__parts_init(&p, ALIGN, MAX_TOKENS, MAX_SEQS, &err), err);
    add(&b, 8, 7, blocks[0], true);  /* a prompt from a block's beginning */
    add(&b, 13, 1, blocks[1], true); /* an answer */
    add(&b, 2, 5, blocks[2], true);  /* a prompt from within a block: 2 tokens, then 3 */
    add(&b, 4, 1, blocks[3], false); /* one token of a prompt: not at its end */
    static const wanted parts[] = {
        {113, 3, 3, 1, {1}}, {203, 1, 1, 0, {0}}, {8, 7, 1, 1, {0}}, {204, 3, 1, 1, {2}}};
    for (int round = 0; round < 2; round++) {
        rp__parts_begin(&p, &b);
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) check(&p, &b, &parts[i]);
        assert_false(rp__parts_next(&p, &b));
    }
    rp__parts_clear(&p);
    rp__batch_clear(&b);
}
