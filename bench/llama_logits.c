/* The same as logits.c from llama.cpp, by its C interface; built by bench/divergence.py.
 *
 *     llama-logits MODEL IDS.txt OUT.bin
 */
#include <llama.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST_IDS = 8192, CHUNK = 512 };

static int run(struct llama_context *c, int n_vocab, const llama_token *ids, int n, FILE *out) {
    for (int from = 0; from < n; from += CHUNK) {
        int take = n - from < CHUNK ? n - from : CHUNK;
        struct llama_batch b = llama_batch_init(CHUNK, 0, 1);
        b.n_tokens = take;
        for (int i = 0; i < take; i++) {
            b.token[i] = ids[from + i];
            b.pos[i] = from + i;
            b.n_seq_id[i] = 1;
            b.seq_id[i][0] = 0;
            b.logits[i] = 1;
        }
        if (llama_decode(c, b)) return 1;
        for (int i = 0; i < take; i++)
            fwrite(llama_get_logits_ith(c, i), sizeof(float), (size_t)n_vocab, out);
        llama_batch_free(b);
    }
    return 0;
}

int main(int argc, char **argv) {
    static llama_token ids[MOST_IDS];
    int n = 0;
    if (argc != 4) return 2;
    FILE *in = fopen(argv[2], "r"), *out = fopen(argv[3], "wb");
    if (!in || !out) return 1;
    while (n < MOST_IDS && fscanf(in, "%d", &ids[n]) == 1) n++;
    fclose(in);
    struct llama_context_params p = llama_context_default_params();
    p.n_ctx = MOST_IDS;
    p.n_batch = p.n_ubatch = CHUNK;
    struct llama_model *m = llama_model_load_from_file(argv[1], llama_model_default_params());
    struct llama_context *c = m ? llama_init_from_model(m, p) : NULL;
    if (!c) return 1;
    int failed = run(c, llama_vocab_n_tokens(llama_model_get_vocab(m)), ids, n, out);
    fclose(out);
    llama_free(c);
    llama_model_free(m);
    return failed;
}
