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

static int add_prompts(int32_t align, int32_t max_tokens, int32_t max_rows, int n,
                       rp__bucket *out) {
    for (int64_t size = align; n < RP_MAX_BUCKETS && size <= INT32_MAX; size *= 2) {
        out[n++] = (rp__bucket){RP_BUCKET_PROMPT, (int32_t)size, 1, max_rows};
        if (size >= max_tokens) break;
    }
    return n;
}

int rp__bucket_list(int32_t max_seqs, int32_t max_tokens, int32_t prompt_align,
                    rp__bucket out[RP_MAX_BUCKETS]) {
    int n = add_sizes(RP_BUCKET_DECODE, 1, max_seqs, max_seqs, 0, out);
    if (!prompt_align)
        return add_sizes(RP_BUCKET_PREFILL, SMALLEST_PREFILL, max_tokens, max_seqs, n, out);
    return max_tokens > 1 ? add_prompts(prompt_align, max_tokens, max_seqs, n, out) : n;
}

int rp__bucket_find(const rp__bucket *list, int n, int32_t n_tokens, int32_t n_seqs,
                    int32_t n_rows) {
    bool is_mixed = list[n - 1].kind == RP_BUCKET_PREFILL;
    bool is_decode = n_tokens == n_seqs && (n_rows == n_seqs || !is_mixed);
    for (int i = 0; i < n; i++) {
        if (list[i].kind == RP_BUCKET_DECODE && !is_decode) continue;
        if (list[i].n_tokens >= n_tokens && list[i].n_seqs >= n_seqs && list[i].n_rows >= n_rows)
            return i;
    }
    return -1;
}

char *rp__bucket_text(const rp__bucket *b, char *out, size_t cap) {
    static const char *const kinds[] = {"decode", "prefill", "prompt"};
    snprintf(out, cap, "%s %d", kinds[b->kind], (int)b->n_tokens);
    return out;
}
