/* Writes the logits of every position of a text, given as token ids, as float32 [ids, vocabulary]:
 * what bench/divergence.py compares.
 *
 *     bench-logits MODEL IDS.txt f32|q16|q8 OUT.bin [ISA]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/kv.h"
#include "engine/step.h"

enum { MOST_IDS = 8192, CHUNK = 128, BLOCK = 32, MOST_BLOCKS = MOST_IDS / BLOCK };

typedef struct text {
    int32_t ids[MOST_IDS];
    int n;
} text;

static void must(rp_status status, const rp_error *err) {
    if (status >= 0) return;
    fprintf(stderr, "bench-logits: %s\n", err->message);
    exit(1);
}

static FILE *open_file(const char *path, const char *mode) {
    FILE *f = fopen(path, mode);
    if (f) return f;
    fprintf(stderr, "bench-logits: %s cannot be opened\n", path);
    exit(1);
}

static void read_ids(const char *path, text *t) {
    FILE *f = open_file(path, "r");
    while (t->n < MOST_IDS && fscanf(f, "%d", &t->ids[t->n]) == 1) t->n++;
    fclose(f);
}

/* One step: positions [from, from + n) of the one sequence, all of whose logits are wanted. */
static void step(rp__stepper *s, const rp__kv *kv, rp__kv_seq *seq, const text *t, int from,
                 int n) {
    rp_error err = {0};
    rp__batch *b = &s->batch;
    b->n_tokens = b->n_rows = n;
    b->n_seqs = 1;
    b->tables[0] = seq->blocks;
    b->n_blocks[0] = seq->n_blocks;
    for (int i = 0; i < n; i++) {
        b->ids[i] = t->ids[from + i];
        b->pos[i] = from + i;
        b->seq[i] = 0;
        b->slots[i] = rp__kv_slot(kv, seq, from + i);
        b->rows[i] = i;
    }
    must(rp__stepper_run(s, &err), &err);
}

static void run(rp__model *m, const text *t, FILE *out) {
    rp_error err = {0};
    int32_t blocks[MOST_BLOCKS];
    rp__kv_seq seq = {.blocks = blocks, .cap = MOST_BLOCKS};
    rp__kv kv;
    rp__stepper s;
    const rp__kv_config kc = {.n_blocks = MOST_BLOCKS + 1, .block_size = BLOCK};
    const rp__stepper_config sc = {.max_seqs = CHUNK,
                                   .max_tokens = CHUNK,
                                   .block_size = BLOCK,
                                   .n_blocks = kc.n_blocks,
                                   .k_type = RP_F16,
                                   .v_type = RP_F16,
                                   .replay = {.mode = RP_CAPTURE_OFF, .max_graphs = 1}};
    must(rp__stepper_plan(&s, m, &sc, &err), &err);
    must(rp__model_load(m, NULL, NULL, &err), &err);
    must(rp__stepper_load(&s, &err), &err);
    must(rp__kv_init(&kv, &kc, &err), &err);
    must(rp__kv_reserve(&kv, &seq, 0, t->n, NULL), &err);
    for (int from = 0; from < t->n; from += CHUNK) {
        int n = t->n - from < CHUNK ? t->n - from : CHUNK;
        step(&s, &kv, &seq, t, from, n);
        fwrite(s.logits, sizeof(float), (size_t)n * (size_t)m->h.n_vocab, out);
    }
    rp__kv_release(&kv, &seq);
    rp__kv_clear(&kv);
    rp__stepper_clear(&s);
}

int main(int argc, char **argv) {
    rp_error err = {0};
    char options[64] = "";
    static text t;
    rp__checkpoint *checkpoint;
    rp_device *device;
    rp__model *model;
    if (argc < 5) {
        fprintf(stderr, "usage: bench-logits MODEL IDS.txt f32|q16|q8 OUT.bin [ISA]\n");
        return 2;
    }
    read_ids(argv[2], &t);
    if (argc > 5) snprintf(options, sizeof options, "isa=%s", argv[5]);
    const rp_device_config dc = {.bytes = sizeof dc, .options = options};
    FILE *out = open_file(argv[4], "wb");
    must(rp__checkpoint_open(argv[1], &checkpoint, &err), &err);
    must(rp__device_open("cpu", &dc, &device, &err), &err);
    must(rp__model_declare(checkpoint, device, MOST_IDS, 0, &model, &err), &err);
    rp_activations mode = !strcmp(argv[3], "q16")  ? RP_ACTIVATIONS_Q16
                          : !strcmp(argv[3], "q8") ? RP_ACTIVATIONS_Q8
                                                   : RP_ACTIVATIONS_F32;
    must(rp__model_set_activations(model, mode, &err), &err);
    run(model, &t, out);
    fclose(out);
    rp__model_destroy(model);
    rp__device_close(device);
    rp__checkpoint_close(checkpoint);
    return 0;
}
