#include "model/tiny.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/stress.h"
#include "file/mapping.h"
#include "test.h"

rp_tiny_config rp_tiny_default(const char *path) {
    return (rp_tiny_config){.path = path,
                            .device = "cpu",
                            .n_threads = 2,
                            .max_seqs = 64,
                            .max_tokens = 64,
                            .block_size = RP_STRESSED(8, 1),
                            .n_ctx = 64,
                            .kv_type = RP_F32,
                            .capture = RP_CAPTURE_ON,
                            .max_graphs = 32};
}

static void add_placement(rp__stepper_config *sc, const char *name, const char *rules) {
    rp_error err = {0};
    rp__placement *p = &sc->placements[sc->n_placements++];
    snprintf(p->name, sizeof p->name, "%s", name);
    assert_ok(rp__placement_add(p, rules, RP_PLACE_DEVICE_RULE, &err), err);
}

void rp_tiny_open(rp_tiny *t, const rp_tiny_config *c) {
    rp_error err = {0};
    *t = (rp_tiny){0};
    rp_device_config dc = {
        .bytes = sizeof dc, .n_threads = c->n_threads, .options = c->device_options};
    assert_ok(rp__checkpoint_open(c->path[0] == '/' ? c->path : rp_test_path(c->path),
                                  &t->checkpoint, &err),
              err);
    if (c->api)
        assert_ok(rp__device_open_api(c->api, &dc, &t->device, &err), err);
    else
        assert_ok(rp__device_open(c->device, &dc, &t->device, &err), err);
    assert_ok(rp__model_declare(t->checkpoint, t->device, c->n_ctx, 64, &t->model, &err), err);
    assert_ok(rp__model_set_activations(t->model, c->activations, &err), err);
    int32_t per_seq = (c->n_ctx + c->block_size - 1) / c->block_size;
    rp__stepper_config sc = {.max_seqs = c->max_seqs,
                             .max_tokens = c->max_tokens,
                             .block_size = c->block_size,
                             .n_blocks = c->n_blocks ? c->n_blocks : per_seq * 8 + 1,
                             .k_type = c->kv_type,
                             .v_type = c->kv_type,
                             .replay = {.mode = c->capture, .max_graphs = c->max_graphs}};
    t->model->host.config.n_threads = c->n_threads;
    if (c->hybrid && !c->is_hybrid_only) add_placement(&sc, "host-free", "");
    if (c->hybrid) add_placement(&sc, "hybrid", c->hybrid);
    assert_ok(rp__stepper_plan(&t->stepper, t->model, &sc, &err), err);
    assert_ok(rp__model_load(t->model, NULL, NULL, &err), err);
    assert_ok(rp__stepper_load(&t->stepper, &err), err);
    rp__kv_config kv = {.n_blocks = sc.n_blocks, .block_size = sc.block_size};
    assert_ok(rp__kv_init(&t->kv, &kv, &err), err);
    t->n_vocab = (int32_t)t->model->h.n_vocab;
}

void rp_tiny_close(rp_tiny *t) {
    rp__kv_clear(&t->kv);
    rp__stepper_clear(&t->stepper);
    rp__model_destroy(t->model);
    rp__device_close(t->device);
    rp__checkpoint_close(t->checkpoint);
    *t = (rp_tiny){0};
}

static void add_chunk(rp_tiny *t, rp__kv_seq *seq, const int32_t *ids, int first, int n) {
    rp__batch *b = &t->stepper.batch;
    b->tables[b->n_seqs] = seq->blocks;
    b->n_blocks[b->n_seqs] = seq->n_blocks;
    for (int k = first; k < first + n; k++) {
        int i = b->n_tokens++;
        b->ids[i] = ids[k];
        b->pos[i] = k;
        b->seq[i] = b->n_seqs;
        b->slots[i] = rp__kv_slot(&t->kv, seq, k);
        if (b->n_rows < t->stepper.config.max_seqs) b->rows[b->n_rows++] = i;
    }
    b->n_seqs++;
}

/* Sequences at most, and blocks of one: those of the stress build hold one position. */
enum { SEQS = 32, TABLE = 256 };

void rp_tiny_feed(rp_tiny *t, int n_seqs, const int32_t *const *ids, int n, int chunk,
                  float *const *out) {
    rp__kv_seq seqs[SEQS] = {{0}};
    int32_t blocks[SEQS][TABLE];
    rp_error err = {0};
    for (int s = 0; s < n_seqs; s++) {
        seqs[s] = (rp__kv_seq){.blocks = blocks[s], .cap = TABLE};
        assert_ok(rp__kv_reserve(&t->kv, &seqs[s], 0, n, NULL), err);
    }
    rp__batch *b = &t->stepper.batch;
    for (int first = 0; first < n; first += chunk) {
        int take = n - first < chunk ? n - first : chunk;
        b->n_tokens = b->n_seqs = b->n_rows = 0;
        for (int s = 0; s < n_seqs; s++) add_chunk(t, &seqs[s], ids[s], first, take);
        assert_ok(rp__stepper_run(&t->stepper, &err), err);
        size_t bytes = (size_t)take * (size_t)t->n_vocab * sizeof(float);
        for (int s = 0; s < n_seqs; s++)
            memcpy(out[s] + (size_t)first * (size_t)t->n_vocab,
                   (char *)t->stepper.logits + (size_t)s * bytes, bytes);
    }
    for (int s = 0; s < n_seqs; s++) rp__kv_release(&t->kv, &seqs[s]);
}

void rp_tiny_answer(rp_tiny *t, const int32_t *ids, int n_prompt, int n, int chunk, float *out) {
    int32_t blocks[TABLE];
    rp__kv_seq seq = {.blocks = blocks, .cap = TABLE};
    rp__batch *b = &t->stepper.batch;
    rp_error err = {0};
    assert_ok(rp__kv_reserve(&t->kv, &seq, 0, n, NULL), err);
    for (int first = 0, take; first < n; first += take) {
        take = first >= n_prompt ? 1 : n_prompt - first < chunk ? n_prompt - first : chunk;
        b->n_tokens = b->n_seqs = b->n_rows = 0;
        add_chunk(t, &seq, ids, first, take);
        b->n_rows = first + take >= n_prompt;
        b->rows[0] = take - 1;
        assert_ok(rp__stepper_run(&t->stepper, &err), err);
        if (!b->n_rows) continue;
        memcpy(out, t->stepper.logits, (size_t)t->n_vocab * sizeof *out);
        out += t->n_vocab;
    }
    rp__kv_release(&t->kv, &seq);
}

void rp_golden_open(rp_golden *g, const char *name) {
    char path[256];
    rp_error err = {0};
    rp__bytes text = {0}, bin = {0};
    snprintf(path, sizeof path, "%s.json", name);
    assert_ok(rp__file_read(rp_test_path(path), 1 << 20, &text, &err), err);
    json_t *j = json_loads(text.p, 0, NULL), *ids = json_object_get(j, "ids");
    *g = (rp_golden){.n = (int)json_array_size(ids),
                     .n_prompt = (int)json_integer_value(json_object_get(j, "n_prompt")),
                     .n_vocab = (int)json_integer_value(json_object_get(j, "n_vocab"))};
    assert_in_range(g->n, 1, 128);
    for (int i = 0; i < g->n; i++)
        g->ids[i] = (int32_t)json_integer_value(json_array_get(ids, (size_t)i));
    json_decref(j);
    snprintf(path, sizeof path, "%s.bin", name);
    assert_ok(rp__file_read(rp_test_path(path), 8 << 20, &bin, &err), err);
    assert_int_equal(bin.n, (size_t)g->n * (size_t)g->n_vocab * sizeof(float));
    g->logits = (float *)(void *)rp__bytes_take(&bin);
    rp__bytes_clear(&text);
}

const char *rp_test_smollm2(void) {
    static char path[512];
    const char *cache = getenv("REPRISE_CACHE"), *home = getenv("HOME");
    if (cache && *cache)
        snprintf(path, sizeof path, "%s/models/smollm2.gguf", cache);
    else
        snprintf(path, sizeof path, "%s/.cache/reprise/models/smollm2.gguf", home ? home : ".");
    return path;
}
