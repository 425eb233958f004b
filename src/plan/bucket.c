#include "plan/program.h"

#include <stdio.h>

enum { SMALLEST_PREFILL = 16 };

static int add_sizes(rp__bucket_kind kind, int32_t first, int32_t max, int32_t max_seqs, int n,
                     rp__bucket *out) {
    for (int64_t size = first; n < RP_MAX_BUCKETS; size *= 2) {
        int32_t t = size < max ? (int32_t)size : max;
        int32_t seqs = kind == RP_BUCKET_DECODE ? t : max_seqs;
        out[n++] = (rp__bucket){kind, t, seqs, seqs};
        if (t == max) break;
    }
    return n;
}

int rp__bucket_list(int32_t max_seqs, int32_t max_tokens, rp__bucket out[RP_MAX_BUCKETS]) {
    int n = add_sizes(RP_BUCKET_DECODE, 1, max_seqs, max_seqs, 0, out);
    return add_sizes(RP_BUCKET_PREFILL, SMALLEST_PREFILL, max_tokens, max_seqs, n, out);
}

int rp__bucket_find(const rp__bucket *list, int n, int32_t n_tokens, int32_t n_seqs,
                    int32_t n_rows) {
    bool is_decode = n_tokens == n_seqs && n_rows == n_seqs;
    for (int i = 0; i < n; i++) {
        if (list[i].kind == RP_BUCKET_DECODE && !is_decode) continue;
        if (list[i].n_tokens >= n_tokens && list[i].n_seqs >= n_seqs && list[i].n_rows >= n_rows)
            return i;
    }
    return -1;
}

char *rp__bucket_text(const rp__bucket *b, char *out, size_t cap) {
    snprintf(out, cap, "%s %d", b->kind == RP_BUCKET_DECODE ? "decode" : "prefill",
             (int)b->n_tokens);
    return out;
}
