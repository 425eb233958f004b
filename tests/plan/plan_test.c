/* Buckets, layout and programs on their own. */
#include <string.h>

#include "plan/layout.h"
#include "plan/program.h"
#include "plan/workload.h"
#include "tensor/view.h"
#include "test.h"

RP_TEST(plan, buckets_always_hold_the_maximum) { /* T06 */
    rp__bucket list[RP_MAX_BUCKETS];
    for (int32_t max_seqs = 1; max_seqs <= 513; max_seqs++) {
        int n = rp__bucket_list(max_seqs, 512, 0, list), n_decode = 0;
        bool has_max = false;
        for (int i = 0; i < n; i++) {
            n_decode += list[i].kind == RP_BUCKET_DECODE;
            has_max |= list[i].kind == RP_BUCKET_DECODE && list[i].n_seqs == max_seqs;
            if (i && list[i].kind == list[i - 1].kind)
                assert_true(list[i].n_tokens > list[i - 1].n_tokens);
        }
        assert_true(has_max);
        for (int32_t b = 1; b <= max_seqs; b++) {
            int found = rp__bucket_find(list, n, b, b, b);
            assert_in_range(found, 0, n_decode - 1);
            assert_true(list[found].n_seqs >= b && (found == 0 || list[found - 1].n_seqs < b));
        }
    }
}

RP_TEST(plan, prefill_goes_to_the_smallest_chunk) {
    rp__bucket list[RP_MAX_BUCKETS];
    int n = rp__bucket_list(4, 100, 0, list);
    static const struct {
        int32_t tokens, bucket;
    } rows[] = {{2, 16}, {16, 16}, {17, 32}, {64, 64}, {65, 100}, {100, 100}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int b = rp__bucket_find(list, n, rows[i].tokens, 1, 1);
        assert_int_equal(list[b].kind, RP_BUCKET_PREFILL);
        assert_int_equal(list[b].n_tokens, rows[i].bucket);
    }
    assert_int_equal(rp__bucket_find(list, n, 101, 1, 1), -1);
    assert_int_equal(rp__bucket_find(list, n, 5, 5, 5), -1);
}

RP_TEST(plan, prompts_of_their_own_have_whole_blocks) {
    rp__bucket list[RP_MAX_BUCKETS];
    int n = rp__bucket_list(3, 100, 32, list);
    static const struct {
        int32_t tokens, seqs, rows, kind, size;
    } rows[] = {{1, 1, 0, RP_BUCKET_DECODE, 1},   {3, 3, 2, RP_BUCKET_DECODE, 3},
                {2, 1, 1, RP_BUCKET_PROMPT, 32},  {33, 1, 0, RP_BUCKET_PROMPT, 64},
                {100, 1, 1, RP_BUCKET_PROMPT, 128}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int b = rp__bucket_find(list, n, rows[i].tokens, rows[i].seqs, rows[i].rows);
        assert_int_equal(list[b].kind, rows[i].kind);
        assert_int_equal(list[b].n_tokens, rows[i].size);
    }
    assert_int_equal(rp__bucket_find(list, n, 33, 2, 1), -1); /* two prompts */
    assert_int_equal(rp__bucket_list(1, 1, 32, list), 1);     /* there are no prompts */
}

RP_TEST(plan, layout_by_hand) {
    /* a lives 0..1, b 1..2, c 2..3: c may take a's place. */
    rp__layout_item items[] = {{.id = 0, .bytes = 100, .first = 0, .last = 1},
                               {.id = 1, .bytes = 60, .first = 1, .last = 2},
                               {.id = 2, .bytes = 100, .first = 2, .last = 3}};
    assert_int_equal(rp__layout_place(items, 3, 64), 192);
    for (int i = 0; i < 3; i++) assert_int_equal(items[i].place, items[i].id == 1 ? 128 : 0);
}

RP_TEST(plan, layout_never_overlaps_what_lives_together) {
    uint64_t seed = 11;
    for (int round = 0; round < 200; round++) {
        rp__layout_item items[60];
        size_t n = 1 + rp_test_rand(&seed) % 60, sum = 0;
        for (size_t i = 0; i < n; i++) {
            int32_t first = (int32_t)(rp_test_rand(&seed) % 50);
            items[i] = (rp__layout_item){.id = (int32_t)i,
                                         .bytes = rp_test_rand(&seed) % 1000,
                                         .first = first,
                                         .last = first + (int32_t)(rp_test_rand(&seed) % 6)};
            sum += (items[i].bytes + 63) / 64 * 64;
        }
        size_t total = rp__layout_place(items, n, 64);
        assert_true(total <= sum);
        for (size_t i = 0; i < n; i++) {
            assert_int_equal(items[i].place % 64, 0);
            assert_true(items[i].place + items[i].bytes <= total);
            for (size_t k = 0; k < i; k++) {
                bool together = items[i].first <= items[k].last && items[k].first <= items[i].last;
                bool apart = items[i].place >= items[k].place + items[k].bytes ||
                             items[k].place >= items[i].place + items[i].bytes;
                if (together && !apart)
                    fail_msg("items %d and %d share bytes", (int)items[i].id, (int)items[k].id);
            }
        }
    }
}

/* Workers wait for each other where one writes what others may still read. */
RP_TEST(plan, small_temporaries_do_not_follow_closely_on_each_other) {
    workload w;
    workload_open(&w, "cpu", NULL, RP_CAPTURE_OFF, 0);
    const rp__program *p = w.tiny.stepper.choices[0].ways[0];
    int n_shared = 0;
    for (int32_t i = 0; i < p->n_slots; i++)
        for (int32_t k = 0; k < p->n_slots; k++) {
            const rp__slot_home *a = &p->slots[i].home[RP_SIDE_DEVICE];
            const rp__slot_home *b = &p->slots[k].home[RP_SIDE_DEVICE];
            if (p->slots[i].kind != RP_SLOT_TEMP || p->slots[k].kind != RP_SLOT_TEMP) continue;
            if (a->first_op < 0 || b->first_op <= a->last_op) continue;
            if (a->place >= b->place + rp__tensor_span(&p->slots[k].tensor)) continue;
            if (b->place >= a->place + rp__tensor_span(&p->slots[i].tensor)) continue;
            n_shared++;
            if (b->first_op - a->last_op <= 8)
                fail_msg("%s takes the bytes of %s %d ops later", p->slots[k].name,
                         p->slots[i].name, (int)(b->first_op - a->last_op));
        }
    assert_true(n_shared > 0); /* but those of one layer do on another's */
    workload_close(&w);
}
