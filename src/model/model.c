#include "model/model.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/map.h"
#include "model/families.h"
#include "tensor/dtype.h"
#include "tensor/view.h"

static const rp__family *const families[] = {&rp__family_llama};

bool rp__model_is_gguf(const rp__model *m) {
    return m->checkpoint->gguf != NULL;
}

/* ---- metadata ---- */

static const char *full_key(const rp__model *m, const char *key, char *out, size_t cap) {
    snprintf(out, cap, "%s.%s", m->architecture, key);
    return out;
}

rp_status rp__model_gguf_int(const rp__model *m, const char *key, int64_t *out, rp_error *err) {
    char full[160];
    return rp__gguf_int(m->checkpoint->gguf, full_key(m, key, full, sizeof full), out, err);
}

rp_status rp__model_gguf_float(const rp__model *m, const char *key, double *out, rp_error *err) {
    char full[160];
    return rp__gguf_float(m->checkpoint->gguf, full_key(m, key, full, sizeof full), out, err);
}

rp_status rp__model_json_int(const rp__model *m, const json_t *object, const char *field,
                             int64_t fallback, int64_t *out, rp_error *err) {
    const json_t *v = json_object_get(object, field);
    *out = fallback;
    if (!v || json_is_null(v)) return RP_OK;
    if (!json_is_integer(v))
        return rp__fail(err, RP_EFORMAT, "%s: config.json: field \"%s\" is not an integer",
                        m->checkpoint->path, field);
    *out = (int64_t)json_integer_value(v);
    return RP_OK;
}

rp_status rp__model_json_float(const rp__model *m, const json_t *object, const char *field,
                               double fallback, double *out, rp_error *err) {
    const json_t *v = json_object_get(object, field);
    *out = fallback;
    if (!v || json_is_null(v)) return RP_OK;
    if (!json_is_number(v))
        return rp__fail(err, RP_EFORMAT, "%s: config.json: field \"%s\" is not a number",
                        m->checkpoint->path, field);
    *out = json_number_value(v);
    return RP_OK;
}

static rp_status read_architecture(rp__model *m, rp_error *err) {
    rp__str name = {0};
    if (rp__model_is_gguf(m)) {
        RP_TRY(rp__gguf_str(m->checkpoint->gguf, "general.architecture", &name, err));
    } else {
        const json_t *v = json_object_get(m->checkpoint->config, "model_type");
        if (!json_is_string(v))
            return rp__fail(err, RP_EFORMAT, "%s: config.json: field \"model_type\" is missing",
                            m->checkpoint->path);
        name = (rp__str){json_string_value(v), json_string_length(v)};
    }
    snprintf(m->architecture, sizeof m->architecture, "%.*s", (int)(name.n < 63 ? name.n : 63),
             name.p);
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (families[i]->knows(m->architecture, rp__model_is_gguf(m))) m->family = families[i];
    if (m->family) return RP_OK;
    return rp__fail(
        err, RP_EUNSUPPORTED,
        "%s: architecture \"%s\" is not supported (docs/models.md lists those that are)",
        m->checkpoint->path, m->architecture);
}

/* ---- rope table ---- */

static rp_status make_rope_values(rp__model *m, rp_error *err) {
    const rp__rope_params *p = &m->h.rope;
    double *inv_freq = rp__calloc((size_t)(p->n_rot / 2), sizeof *inv_freq);
    size_t n;
    if (!inv_freq || !rp__mul_ok((size_t)m->n_ctx, (size_t)p->n_rot, &n) ||
        !(m->rope_values = rp__realloc_array(NULL, n, sizeof *m->rope_values))) {
        rp__free(inv_freq);
        return rp__fail(err, RP_ENOMEM, "out of memory for the rope table of %lld positions",
                        (long long)m->n_ctx);
    }
    double factor = rp__rope_frequencies(p, inv_freq);
    rp__rope_table(inv_freq, p->n_rot, factor, 0, m->n_ctx, m->rope_values);
    rp__free(inv_freq);
    return RP_OK;
}

/* ---- life ---- */

static rp_status declare(rp__model *m, int64_t n_ctx, int64_t n_ctx_default, rp_error *err) {
    RP_TRY(rp__weights_init(&m->weights, m->device, m->checkpoint, err));
    RP_TRY(read_architecture(m, err));
    RP_TRY(m->family->read_hparams(m, err));
    if (n_ctx == 0) n_ctx = m->h.n_ctx_train < n_ctx_default ? m->h.n_ctx_train : n_ctx_default;
    m->n_ctx = n_ctx;
    m->layers = rp__arena_calloc(&m->arena, (size_t)m->h.n_layers, sizeof *m->layers);
    if (!m->layers)
        return rp__fail(err, RP_ENOMEM, "out of memory for %lld layers", (long long)m->h.n_layers);
    RP_TRY(m->family->declare_weights(m, err));
    RP_TRY(rp__weights_check_all_used(&m->weights, m->architecture, err));
    /* Its values are made at load, after the memory for them was found to be there. */
    return rp__weights_values(&m->weights, &m->rope_table, "rope_table", n_ctx, m->h.rope.n_rot,
                              err);
}

static const rp_tensor *copy_of(void *user, const rp_tensor *weight, rp_device *host) {
    rp__model *m = user;
    return rp__weights_copy(&m->weights, weight, host);
}

rp_status rp__model_declare(const rp__checkpoint *c, rp_device *device, int64_t n_ctx,
                            int64_t n_ctx_default, rp__model **out, rp_error *err) {
    rp__model *m = rp__calloc(1, sizeof *m);
    *out = NULL;
    if (!m) return rp__fail(err, RP_ENOMEM, "out of memory for a model");
    m->checkpoint = c;
    m->device = device;
    m->host = (rp__host){.config = {.bytes = sizeof m->host.config}, .copy_of = copy_of, .user = m};
    rp_status st = declare(m, n_ctx, n_ctx_default, err);
    if (st < 0) {
        rp__model_destroy(m);
        return st;
    }
    *out = m;
    return RP_OK;
}

void rp__model_destroy(rp__model *m) {
    if (!m) return;
    rp__weights_clear(&m->weights);
    rp__host_close(&m->host);
    rp__arena_clear(&m->arena);
    rp__free(m);
}

rp_status rp__model_load(rp__model *m, rp_progress_fn progress, void *user, rp_error *err) {
    RP_TRY(make_rope_values(m, err));
    rp__weights_set_values(&m->weights, &m->rope_table, m->rope_values);
    rp_status st = rp__weights_load(&m->weights, progress, user, err);
    rp__free(m->rope_values);
    m->rope_values = NULL;
    return st;
}

/* ---- activations ---- */

static bool device_rounds_to(rp_device *device, int bits) {
    const int64_t dim[2] = {1, 256};
    rp_op op = {.kind = RP_OP_CONVERT, .n_in = 1, .n_out = 1};
    op.in[0] = rp__tensor_make(NULL, 0, RP_F32, 2, dim);
    op.out[0] = rp__tensor_make(NULL, 0, bits == 16 ? RP_Q16 : RP_Q8_K, 2, dim);
    return rp__device_supports(device, &op);
}

rp_status rp__model_set_activations(rp__model *m, rp_activations mode, rp_error *err) {
    int bits = mode == RP_ACTIVATIONS_F32 ? 0 : mode == RP_ACTIVATIONS_Q8 ? 8 : 16;
    m->activation_bits = bits && device_rounds_to(m->device, bits) ? bits : 0;
    if (m->activation_bits == bits || mode == RP_ACTIVATIONS_AUTO) return RP_OK;
    return rp__fail(err, RP_EUNSUPPORTED, "device %s does not round activations to %d bits",
                    rp__device_name(m->device), bits);
}

/* ---- KV cache ---- */

void rp__model_declare_cache(rp__model *m, rp_dtype k_type, rp_dtype v_type, int64_t n_blocks,
                             int64_t block_size) {
    const int64_t dim[4] = {n_blocks, m->h.n_kv_heads, block_size, m->h.head_dim};
    for (int64_t l = 0; l < m->h.n_layers; l++) {
        m->layers[l].k_cache = rp__tensor_make(NULL, 0, k_type, 4, dim);
        m->layers[l].v_cache = rp__tensor_make(NULL, 0, v_type, 4, dim);
    }
}

static size_t place_cache(rp_tensor *t, rp_buffer *buffer, size_t at, size_t align) {
    if (buffer) {
        t->buffer = buffer;
        t->offset = at;
    }
    return at + ((rp__tensor_span(t) + align - 1) & ~(align - 1));
}

static size_t walk_cache(const rp__model *m, const rp_device *on, rp_buffer *buffer) {
    size_t at = 0, align = rp__device_props(on)->alignment;
    for (int64_t l = 0; l < m->h.n_layers; l++) {
        at = place_cache(&m->layers[l].k_cache, buffer, at, align);
        at = place_cache(&m->layers[l].v_cache, buffer, at, align);
    }
    return at;
}

size_t rp__model_cache_bytes(const rp__model *m, const rp_device *on) {
    return walk_cache(m, on, NULL);
}
void rp__model_set_cache(rp__model *m, rp_buffer *buffer) {
    walk_cache(m, buffer->owner, buffer);
}

void rp__model_build(const rp__model *m, rp__program *p) {
    m->family->build(m, p);
}

/* ---- fingerprint ---- */

static uint64_t hash_op(uint64_t h, const rp_op *op) {
    uint64_t words[5] = {op->kind, (uint64_t)rp__place_width(op)};
    words[2] = (uint64_t)rp__tensor_last(&op->in[0]);
    words[3] = op->in[0].dtype;
    words[4] = op->n_in > 1 && op->in[1].is_weight ? op->in[1].dtype : RP_N_DTYPES;
    return rp__hash_bytes(words, sizeof words, h);
}

rp_status rp__model_fingerprint(const rp__model *m, uint64_t *out, rp_error *err) {
    rp__program p;
    rp__program_init(&p, m->device, &(rp__bucket){RP_BUCKET_DECODE, 1, 1, 1});
    rp__model_build(m, &p);
    *out = 0;
    for (int32_t i = 0; i < p.n_ops; i++) *out = hash_op(*out, &p.ops[i]);
    rp_status st = p.error.code;
    if (st < 0 && err) *err = p.error;
    rp__program_clear(&p);
    return st;
}
