/* The Llama family: pre-norm decoder, RMS norm, RoPE, grouped-query attention, gated SiLU MLP.
 *
 * Members and where they differ:
 *   llama      Llama 2 and 3, SmolLM2, Mistral: no biases unless the file has them; Mistral may
 *              have a sliding window
 *   mistral    config.json's name for Mistral; its GGUF says llama
 *   qwen2      biases on q, k, v; NeoX-style rope in GGUF too; window from max_window_layers on, if
 *              switched on
 *   qwen3      no biases, RMS norm on each head of q and k before rope; head_dim independent of
 *              n_embd / n_heads
 *   internlm2  a folder has wqkv fused by kv head: for each, its q heads, then k, then v; its GGUF
 *              has them apart
 *
 * GGUF files of llama and internlm2 have q and k rows reordered for the interleaved rope; folders
 * use halves. The head is the embedding when there is no head tensor. */
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "model/families.h"
#include "model/layers.h"
#include "tensor/dtype.h"

typedef enum bias_rule { BIAS_IF_THERE, BIAS_REQUIRED, BIAS_NONE } bias_rule;

typedef struct variant {
    const char *gguf, *folder; /* architecture names; NULL: no such form */
    rp_rope_style gguf_rope;
    bias_rule qkv_bias;
    bool has_qk_norm;
    bool has_fused_folder; /* folder: wqkv and InternLM2's names */
} variant;

static const variant variants[] = {
    {"llama", "llama", RP_ROPE_INTERLEAVED, BIAS_IF_THERE, false, false},
    {NULL, "mistral", RP_ROPE_INTERLEAVED, BIAS_NONE, false, false},
    {"qwen2", "qwen2", RP_ROPE_HALF, BIAS_REQUIRED, false, false},
    {"qwen3", "qwen3", RP_ROPE_HALF, BIAS_IF_THERE, true, false},
    {"internlm2", "internlm2", RP_ROPE_INTERLEAVED, BIAS_IF_THERE, false, true},
};

static const variant *find_variant(const char *architecture, bool is_gguf) {
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        const char *name = is_gguf ? variants[i].gguf : variants[i].folder;
        if (name && !strcmp(name, architecture)) return &variants[i];
    }
    return NULL;
}

static const variant *variant_of(const rp__model *m) {
    return find_variant(m->architecture, rp__model_is_gguf(m));
}

static bool knows(const char *architecture, bool is_gguf) {
    return find_variant(architecture, is_gguf) != NULL;
}

/* ---- names ---- */

typedef enum role {
    EMBED,
    OUTPUT_NORM,
    HEAD,
    ATTN_NORM,
    Q,
    K,
    V,
    QKV,
    O,
    Q_NORM,
    K_NORM,
    FFN_NORM,
    GATE,
    UP,
    DOWN,
    N_ROLES
} role;

static const char *const gguf_names[N_ROLES] = {[EMBED] = "token_embd",
                                                [OUTPUT_NORM] = "output_norm",
                                                [HEAD] = "output",
                                                [ATTN_NORM] = "blk.%d.attn_norm",
                                                [Q] = "blk.%d.attn_q",
                                                [K] = "blk.%d.attn_k",
                                                [V] = "blk.%d.attn_v",
                                                [QKV] = "blk.%d.attn_qkv",
                                                [O] = "blk.%d.attn_output",
                                                [Q_NORM] = "blk.%d.attn_q_norm",
                                                [K_NORM] = "blk.%d.attn_k_norm",
                                                [FFN_NORM] = "blk.%d.ffn_norm",
                                                [GATE] = "blk.%d.ffn_gate",
                                                [UP] = "blk.%d.ffn_up",
                                                [DOWN] = "blk.%d.ffn_down"};

static const char *const folder_names[N_ROLES] = {[EMBED] = "model.embed_tokens",
                                                  [OUTPUT_NORM] = "model.norm",
                                                  [HEAD] = "lm_head",
                                                  [ATTN_NORM] = "model.layers.%d.input_layernorm",
                                                  [Q] = "model.layers.%d.self_attn.q_proj",
                                                  [K] = "model.layers.%d.self_attn.k_proj",
                                                  [V] = "model.layers.%d.self_attn.v_proj",
                                                  [QKV] = "model.layers.%d.self_attn.qkv_proj",
                                                  [O] = "model.layers.%d.self_attn.o_proj",
                                                  [Q_NORM] = "model.layers.%d.self_attn.q_norm",
                                                  [K_NORM] = "model.layers.%d.self_attn.k_norm",
                                                  [FFN_NORM] =
                                                      "model.layers.%d.post_attention_layernorm",
                                                  [GATE] = "model.layers.%d.mlp.gate_proj",
                                                  [UP] = "model.layers.%d.mlp.up_proj",
                                                  [DOWN] = "model.layers.%d.mlp.down_proj"};

static const char *const internlm2_names[N_ROLES] = {[EMBED] = "model.tok_embeddings",
                                                     [OUTPUT_NORM] = "model.norm",
                                                     [HEAD] = "output",
                                                     [ATTN_NORM] = "model.layers.%d.attention_norm",
                                                     [Q] = "",
                                                     [K] = "",
                                                     [V] = "",
                                                     [QKV] = "model.layers.%d.attention.wqkv",
                                                     [O] = "model.layers.%d.attention.wo",
                                                     [Q_NORM] = "",
                                                     [K_NORM] = "",
                                                     [FFN_NORM] = "model.layers.%d.ffn_norm",
                                                     [GATE] = "model.layers.%d.feed_forward.w1",
                                                     [UP] = "model.layers.%d.feed_forward.w3",
                                                     [DOWN] = "model.layers.%d.feed_forward.w2"};

typedef struct tensor_name {
    char text[128];
} tensor_name;

static tensor_name name_of(const rp__model *m, role r, int64_t layer, const char *suffix) {
    const char *const *names = rp__model_is_gguf(m)              ? gguf_names
                               : variant_of(m)->has_fused_folder ? internlm2_names
                                                                 : folder_names;
    tensor_name n;
    char base[96];
    const char *hole = strstr(names[r], "%d");
    if (hole)
        snprintf(base, sizeof base, "%.*s%d%s", (int)(hole - names[r]), names[r], (int)layer,
                 hole + 2);
    else
        snprintf(base, sizeof base, "%s", names[r]);
    snprintf(n.text, sizeof n.text, "%s.%s", base, suffix);
    return n;
}

/* ---- hyperparameters ---- */

static rp_status gguf_rope_scaling(rp__model *m, rp_error *err) {
    rp__rope_params *r = &m->h.rope;
    const rp__gguf *g = m->checkpoint->gguf;
    char key[128];
    rp__str type = RP_STR("none");
    double linear = 0;
    snprintf(key, sizeof key, "%s.rope.scaling.type", m->architecture);
    if (rp__gguf_find(g, key))
        RP_TRY(rp__gguf_str(g, key, &type, err));
    else if (rp__model_gguf_float(m, "rope.scale_linear", &linear, NULL) == RP_OK && linear > 0)
        type = RP_STR("linear");
    r->factor = linear > 0 ? linear : 1;
    rp__model_gguf_float(m, "rope.scaling.factor", &r->factor, NULL);
    rp__model_gguf_float(m, "rope.scaling.original_context_length", &r->original_ctx, NULL);
    if (rp__str_is(type, "none")) return RP_OK;
    if (rp__str_is(type, "linear")) return r->scaling = RP_ROPE_LINEAR, RP_OK;
    if (!rp__str_is(type, "yarn"))
        return rp__fail(err, RP_EUNSUPPORTED, "%s: key %s: rope scaling \"%.*s\" is not supported",
                        m->checkpoint->path, key, (int)type.n, type.p);
    r->scaling = RP_ROPE_YARN;
    double attn = 1, log_multiplier = 0;
    rp__model_gguf_float(m, "rope.scaling.attn_factor", &attn, NULL);
    rp__model_gguf_float(m, "rope.scaling.yarn_attn_factor", &attn, NULL);
    rp__model_gguf_float(m, "rope.scaling.yarn_log_multiplier", &log_multiplier, NULL);
    rp__model_gguf_float(m, "rope.scaling.yarn_beta_fast", &r->beta_fast, NULL);
    rp__model_gguf_float(m, "rope.scaling.yarn_beta_slow", &r->beta_slow, NULL);
    /* The log multiplier is config.json's mscale_all_dim, with mscale 1. */
    r->attn_factor = attn * rp__rope_mscale(r->factor, 1.0);
    if (log_multiplier != 0) r->attn_factor /= rp__rope_mscale(r->factor, log_multiplier);
    return RP_OK;
}

static rp_status gguf_hparams(rp__model *m, rp_error *err) {
    rp__hparams *h = &m->h;
    double eps, theta = 10000;
    int64_t experts = 0, rot, value_dim;
    RP_TRY(rp__model_gguf_int(m, "block_count", &h->n_layers, err));
    RP_TRY(rp__model_gguf_int(m, "embedding_length", &h->n_embd, err));
    RP_TRY(rp__model_gguf_int(m, "feed_forward_length", &h->n_ff, err));
    RP_TRY(rp__model_gguf_int(m, "context_length", &h->n_ctx_train, err));
    RP_TRY(rp__model_gguf_int(m, "attention.head_count", &h->n_heads, err));
    h->n_kv_heads = h->n_heads;
    rp__model_gguf_int(m, "attention.head_count_kv", &h->n_kv_heads, NULL);
    RP_TRY(rp__model_gguf_float(m, "attention.layer_norm_rms_epsilon", &eps, err));
    h->norm_eps = (float)eps;
    h->head_dim = h->n_heads > 0 ? h->n_embd / h->n_heads : 0;
    rp__model_gguf_int(m, "attention.key_length", &h->head_dim, NULL);
    value_dim = h->head_dim;
    rp__model_gguf_int(m, "attention.value_length", &value_dim, NULL);
    rp__model_gguf_int(m, "attention.sliding_window", &h->window, NULL);
    rp__model_gguf_int(m, "expert_count", &experts, NULL);
    rp__model_gguf_float(m, "rope.freq_base", &theta, NULL);
    rot = h->head_dim;
    rp__model_gguf_int(m, "rope.dimension_count", &rot, NULL);
    if (experts > 0)
        return rp__fail(err, RP_EUNSUPPORTED, "%s: %s with %lld experts is not supported",
                        m->checkpoint->path, m->architecture, (long long)experts);
    if (value_dim != h->head_dim)
        return rp__fail(err, RP_EUNSUPPORTED,
                        "%s: key heads of %lld and value heads of %lld are not supported together",
                        m->checkpoint->path, (long long)h->head_dim, (long long)value_dim);
    h->rope.theta = theta;
    h->rope.n_rot = rot;
    h->rope.style = variant_of(m)->gguf_rope;
    h->rope.original_ctx = (double)h->n_ctx_train;
    return gguf_rope_scaling(m, err);
}

/* YaRN's factor on cosines and sines, as config.json gives it: directly, or through mscale and
 * mscale_all_dim. */
static rp_status folder_yarn(rp__model *m, const json_t *s, rp_error *err) {
    rp__rope_params *r = &m->h.rope;
    double given, mscale, mscale_all;
    RP_TRY(rp__model_json_float(m, s, "attention_factor", 0, &given, err));
    RP_TRY(rp__model_json_float(m, s, "mscale", 0, &mscale, err));
    RP_TRY(rp__model_json_float(m, s, "mscale_all_dim", 0, &mscale_all, err));
    RP_TRY(rp__model_json_float(m, s, "beta_fast", 32, &r->beta_fast, err));
    RP_TRY(rp__model_json_float(m, s, "beta_slow", 1, &r->beta_slow, err));
    r->truncate = !json_is_false(json_object_get(s, "truncate"));
    if (given > 0)
        r->attn_factor = given;
    else if (mscale != 0 && mscale_all != 0)
        r->attn_factor =
            rp__rope_mscale(r->factor, mscale) / rp__rope_mscale(r->factor, mscale_all);
    else
        r->attn_factor = rp__rope_mscale(r->factor, 1.0);
    return RP_OK;
}

static rp_status folder_rope(rp__model *m, const json_t *config, rp_error *err) {
    rp__rope_params *r = &m->h.rope;
    const json_t *s =
        json_object_get(config, "rope_parameters"); /* newer files; older ones: rope_scaling */
    if (!json_is_object(s)) s = json_object_get(config, "rope_scaling");
    RP_TRY(rp__model_json_float(m, config, "rope_theta", 10000, &r->theta, err));
    if (!json_is_object(s)) return RP_OK;
    RP_TRY(rp__model_json_float(m, s, "rope_theta", r->theta, &r->theta, err));
    const char *type = json_string_value(json_object_get(s, "rope_type"));
    if (!type) type = json_string_value(json_object_get(s, "type"));
    if (!type) type = "default";
    RP_TRY(rp__model_json_float(m, s, "factor", 1, &r->factor, err));
    RP_TRY(rp__model_json_float(m, s, "original_max_position_embeddings", r->original_ctx,
                                &r->original_ctx, err));
    if (!strcmp(type, "default")) return RP_OK;
    if (!strcmp(type, "linear")) return r->scaling = RP_ROPE_LINEAR, RP_OK;
    if (!strcmp(type, "dynamic")) return r->scaling = RP_ROPE_DYNAMIC_NTK, RP_OK;
    if (!strcmp(type, "yarn")) return r->scaling = RP_ROPE_YARN, folder_yarn(m, s, err);
    if (strcmp(type, "llama3"))
        return rp__fail(err, RP_EUNSUPPORTED, "%s: config.json: rope type \"%s\" is not supported",
                        m->checkpoint->path, type);
    r->scaling = RP_ROPE_LLAMA3;
    RP_TRY(rp__model_json_float(m, s, "low_freq_factor", 1, &r->low_freq, err));
    return rp__model_json_float(m, s, "high_freq_factor", 4, &r->high_freq, err);
}

static rp_status folder_window(rp__model *m, const json_t *config, rp_error *err) {
    rp__hparams *h = &m->h;
    const json_t *use = json_object_get(config, "use_sliding_window"),
                 *types = json_object_get(config, "layer_types");
    RP_TRY(rp__model_json_int(m, config, "sliding_window", 0, &h->window, err));
    if (json_is_false(use)) h->window = 0;
    if (json_is_true(use))
        RP_TRY(rp__model_json_int(m, config, "max_window_layers", 0, &h->window_from_layer, err));
    if (!h->window || !json_is_array(types)) return RP_OK;
    if (json_array_size(types) != (size_t)h->n_layers)
        return rp__fail(err, RP_EFORMAT,
                        "%s: config.json: field \"layer_types\" has %zu entries for %lld layers",
                        m->checkpoint->path, json_array_size(types), (long long)h->n_layers);
    bool *windows = rp__arena_calloc(&m->arena, (size_t)h->n_layers, sizeof *windows);
    if (!windows) return rp__fail(err, RP_ENOMEM, "out of memory for the layer types");
    for (int64_t l = 0; l < h->n_layers; l++) {
        const char *type = json_string_value(json_array_get(types, (size_t)l));
        if (!type || (strcmp(type, "sliding_attention") && strcmp(type, "full_attention")))
            return rp__fail(err, RP_EUNSUPPORTED,
                            "%s: config.json: layer type \"%s\" is not supported",
                            m->checkpoint->path, type ? type : "?");
        windows[l] = !strcmp(type, "sliding_attention");
    }
    h->layer_windows = windows;
    return RP_OK;
}

static rp_status folder_hparams(rp__model *m, rp_error *err) {
    rp__hparams *h = &m->h;
    const json_t *c = m->checkpoint->config;
    double eps, partial;
    RP_TRY(rp__model_json_int(m, c, "num_hidden_layers", 0, &h->n_layers, err));
    RP_TRY(rp__model_json_int(m, c, "hidden_size", 0, &h->n_embd, err));
    RP_TRY(rp__model_json_int(m, c, "intermediate_size", 0, &h->n_ff, err));
    RP_TRY(rp__model_json_int(m, c, "max_position_embeddings", 2048, &h->n_ctx_train, err));
    RP_TRY(rp__model_json_int(m, c, "num_attention_heads", 0, &h->n_heads, err));
    RP_TRY(rp__model_json_int(m, c, "num_key_value_heads", h->n_heads, &h->n_kv_heads, err));
    RP_TRY(rp__model_json_int(m, c, "head_dim", h->n_heads > 0 ? h->n_embd / h->n_heads : 0,
                              &h->head_dim, err));
    RP_TRY(rp__model_json_float(m, c, "rms_norm_eps", 1e-6, &eps, err));
    RP_TRY(rp__model_json_float(m, c, "partial_rotary_factor", 1, &partial, err));
    h->norm_eps = (float)eps;
    h->rope.style = RP_ROPE_HALF;
    h->rope.n_rot = (int64_t)((double)h->head_dim * partial);
    h->rope.original_ctx = (double)h->n_ctx_train;
    const char *act = json_string_value(json_object_get(c, "hidden_act"));
    if (act && strcmp(act, "silu"))
        return rp__fail(err, RP_EUNSUPPORTED,
                        "%s: config.json: field \"hidden_act\": \"%s\" is not supported",
                        m->checkpoint->path, act);
    RP_TRY(folder_rope(m, c, err));
    return folder_window(m, c, err);
}

/* Sizes come from a file: each is held to a range that no real model leaves and no product of them
 * can wrap. */
static rp_status check_hparams(const rp__model *m, rp_error *err) {
    const rp__hparams *h = &m->h;
    const struct {
        const char *name;
        int64_t value, max;
    } ranges[] = {{"number of layers", h->n_layers, 1024},
                  {"embedding length", h->n_embd, 1 << 20},
                  {"feed-forward length", h->n_ff, 1 << 22},
                  {"number of heads", h->n_heads, 4096},
                  {"number of kv heads", h->n_kv_heads, 4096},
                  {"head dimension", h->head_dim, 1024},
                  {"context length", h->n_ctx_train, 1 << 27},
                  {"rope dimensions", h->rope.n_rot, h->head_dim}};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (ranges[i].value < 1 || ranges[i].value > ranges[i].max)
            return rp__fail(err, RP_EFORMAT, "%s: %s is %lld, expected 1 to %lld",
                            m->checkpoint->path, ranges[i].name, (long long)ranges[i].value,
                            (long long)ranges[i].max);
    if (h->n_heads % h->n_kv_heads || h->rope.n_rot % 2)
        return rp__fail(err, RP_EFORMAT,
                        "%s: %lld heads over %lld kv heads with %lld rope dimensions do not divide",
                        m->checkpoint->path, (long long)h->n_heads, (long long)h->n_kv_heads,
                        (long long)h->rope.n_rot);
    if (!(h->rope.theta > 0) || !(h->rope.factor > 0) || !(h->rope.original_ctx > 0) ||
        !(h->norm_eps >= 0) || h->window < 0)
        return rp__fail(
            err, RP_EFORMAT,
            "%s: rope theta %g, rope factor %g, original context %g, norm epsilon %g or "
            "window %lld is out of range",
            m->checkpoint->path, h->rope.theta, h->rope.factor, h->rope.original_ctx,
            (double)h->norm_eps, (long long)h->window);
    return RP_OK;
}

static rp_status read_hparams(rp__model *m, rp_error *err) {
    m->h.act = RP_ACT_SILU;
    m->h.rope = (rp__rope_params){.theta = 10000,
                                  .factor = 1,
                                  .beta_fast = 32,
                                  .beta_slow = 1,
                                  .attn_factor = 1,
                                  .low_freq = 1,
                                  .high_freq = 4,
                                  .truncate = true};
    RP_TRY(rp__model_is_gguf(m) ? gguf_hparams(m, err) : folder_hparams(m, err));
    return check_hparams(m, err);
}

/* ---- weights ---- */

typedef struct linear_part {
    role role;
    int64_t n; /* rows it contributes */
    int64_t group_rows, first, n_rows;
} linear_part;

/* One linear layer made of the rows of up to three tensors, with the biases that the rule asks for.
 */
static rp_status add_linear(rp__model *m, rp__linear *l, int64_t layer, int n_parts,
                            const linear_part *parts, int64_t k, bias_rule rule, rp_error *err) {
    tensor_name names[3], biases[3];
    rp__weight_part w[3], b[3];
    int64_t n = 0;
    for (int i = 0; i < n_parts; i++) {
        names[i] = name_of(m, parts[i].role, layer, "weight");
        biases[i] = name_of(m, parts[i].role, layer, "bias");
        w[i] =
            (rp__weight_part){names[i].text, parts[i].group_rows, parts[i].first, parts[i].n_rows};
        b[i] =
            (rp__weight_part){biases[i].text, parts[i].group_rows, parts[i].first, parts[i].n_rows};
        n += parts[i].n;
    }
    RP_TRY(rp__weights_matrix(&m->weights, &l->w, names[0].text, n_parts, w, n, k, err));
    if (rule == BIAS_NONE ||
        (rule == BIAS_IF_THERE && !rp__weights_has(&m->weights, biases[0].text)))
        return RP_OK;
    return rp__weights_vector(&m->weights, &l->b, biases[0].text, n_parts, b, n, err);
}

static rp_status add_vector(rp__model *m, rp_tensor *dst, role r, int64_t layer, int64_t n,
                            rp_error *err) {
    tensor_name name = name_of(m, r, layer, "weight");
    return rp__weights_vector(&m->weights, dst, name.text, 1, &(rp__weight_part){.name = name.text},
                              n, err);
}

/* Can these be one matrix? They can when they have one dtype. */
static bool can_fuse(const rp__model *m, int64_t layer, int n_parts, const linear_part *parts) {
    tensor_name names[3];
    rp__weight_part w[3];
    for (int i = 0; i < n_parts; i++) {
        names[i] = name_of(m, parts[i].role, layer, "weight");
        w[i] = (rp__weight_part){.name = names[i].text};
    }
    return rp__weights_same_dtype(&m->weights, n_parts, w);
}

static rp_status add_qkv(rp__model *m, rp__layer *l, int64_t layer, rp_error *err) {
    const rp__hparams *h = &m->h;
    const variant *v = variant_of(m);
    int64_t q = h->n_heads * h->head_dim, kv = h->n_kv_heads * h->head_dim;
    if (v->has_fused_folder && !rp__model_is_gguf(m)) {
        int64_t per_kv = h->n_heads / h->n_kv_heads, group = (per_kv + 2) * h->head_dim,
                d = h->head_dim;
        const linear_part parts[] = {{QKV, q, group, 0, per_kv * d},
                                     {QKV, kv, group, per_kv * d, d},
                                     {QKV, kv, group, (per_kv + 1) * d, d}};
        return add_linear(m, &l->qkv, layer, 3, parts, h->n_embd, v->qkv_bias, err);
    }
    const linear_part parts[] = {{.role = Q, .n = q}, {.role = K, .n = kv}, {.role = V, .n = kv}};
    if (can_fuse(m, layer, 3, parts))
        return add_linear(m, &l->qkv, layer, 3, parts, h->n_embd, v->qkv_bias, err);
    RP_TRY(add_linear(m, &l->q, layer, 1, &parts[0], h->n_embd, v->qkv_bias, err));
    RP_TRY(add_linear(m, &l->k, layer, 1, &parts[1], h->n_embd, v->qkv_bias, err));
    return add_linear(m, &l->v, layer, 1, &parts[2], h->n_embd, v->qkv_bias, err);
}

static rp_status add_mlp(rp__model *m, rp__layer *l, int64_t layer, rp_error *err) {
    const rp__hparams *h = &m->h;
    const linear_part parts[] = {{.role = GATE, .n = h->n_ff}, {.role = UP, .n = h->n_ff}};
    if (can_fuse(m, layer, 2, parts)) {
        RP_TRY(add_linear(m, &l->gate_up, layer, 2, parts, h->n_embd, BIAS_IF_THERE, err));
    } else {
        RP_TRY(add_linear(m, &l->gate, layer, 1, &parts[0], h->n_embd, BIAS_IF_THERE, err));
        RP_TRY(add_linear(m, &l->up, layer, 1, &parts[1], h->n_embd, BIAS_IF_THERE, err));
    }
    return add_linear(m, &l->down, layer, 1, &(linear_part){.role = DOWN, .n = h->n_embd}, h->n_ff,
                      BIAS_IF_THERE, err);
}

static rp_status add_layer(rp__model *m, int64_t i, rp_error *err) {
    const rp__hparams *h = &m->h;
    rp__layer *l = &m->layers[i];
    RP_TRY(add_vector(m, &l->attn_norm, ATTN_NORM, i, h->n_embd, err));
    RP_TRY(add_qkv(m, l, i, err));
    if (variant_of(m)->has_qk_norm) {
        RP_TRY(add_vector(m, &l->q_norm, Q_NORM, i, h->head_dim, err));
        RP_TRY(add_vector(m, &l->k_norm, K_NORM, i, h->head_dim, err));
    }
    const linear_part o = {.role = O, .n = h->n_embd};
    RP_TRY(add_linear(m, &l->o, i, 1, &o, h->n_heads * h->head_dim, BIAS_IF_THERE, err));
    RP_TRY(add_vector(m, &l->ffn_norm, FFN_NORM, i, h->n_embd, err));
    return add_mlp(m, l, i, err);
}

/* GGUF carries Llama 3's scaling as divisors per frequency, in one tensor (or one per layer in old
 * files). */
static rp_status read_rope_freqs(rp__model *m, rp_error *err) {
    rp__checkpoint_tensor t;
    if (!rp__checkpoint_find(m->checkpoint, "rope_freqs.weight", &t)) return RP_OK;
    int64_t n = m->h.rope.n_rot / 2;
    if (t.n_dims != 1 || t.dim[0] != n || t.dtype != RP_F32)
        return rp__fail(err, RP_EFORMAT, "%s: tensor rope_freqs.weight is not [%lld] F32",
                        m->checkpoint->path, (long long)n);
    float *divisors = rp__arena_alloc(&m->arena, (size_t)n * sizeof *divisors);
    if (!divisors) return rp__fail(err, RP_ENOMEM, "out of memory for rope_freqs.weight");
    memcpy(divisors, t.data, (size_t)n * sizeof *divisors);
    m->h.rope.freq_divisors = divisors;
    rp__weights_ignore(&m->weights, "rope_freqs.weight");
    return RP_OK;
}

static rp_status declare_weights(rp__model *m, rp_error *err) {
    rp__hparams *h = &m->h;
    rp__checkpoint_tensor t;
    tensor_name embed = name_of(m, EMBED, 0, "weight"), head = name_of(m, HEAD, 0, "weight");
    if (!rp__checkpoint_find(m->checkpoint, embed.text, &t))
        return rp__fail(err, RP_ENOTFOUND, "%s: tensor %s is missing", m->checkpoint->path,
                        embed.text);
    h->n_vocab = t.dim[0];
    const rp__weight_part table = {.name = embed.text};
    RP_TRY(rp__weights_matrix(&m->weights, &m->embed, embed.text, 1, &table, h->n_vocab, h->n_embd,
                              err));
    for (int64_t i = 0; i < h->n_layers; i++) RP_TRY(add_layer(m, i, err));
    RP_TRY(add_vector(m, &m->output_norm, OUTPUT_NORM, 0, h->n_embd, err));
    const linear_part rows = {.role = HEAD, .n = h->n_vocab};
    bool is_tied = !rp__weights_has(&m->weights, head.text) ||
                   json_is_true(json_object_get(m->checkpoint->config, "tie_word_embeddings"));
    if (is_tied)
        rp__weights_ignore(&m->weights, head.text); /* rp__layer_head then takes the embedding */
    else
        RP_TRY(add_linear(m, &m->head, 0, 1, &rows, h->n_embd, BIAS_IF_THERE, err));
    for (int64_t i = 0; i < h->n_layers;
         i++) { /* frequencies that old files store and everybody computes */
        char name[96];
        snprintf(name, sizeof name, "model.layers.%d.self_attn.rotary_emb.inv_freq", (int)i);
        rp__weights_ignore(&m->weights, name);
        snprintf(name, sizeof name, "blk.%d.attn_rot_embd", (int)i);
        rp__weights_ignore(&m->weights, name);
    }
    return read_rope_freqs(m, err);
}

/* ---- the step ---- */

typedef struct qkv_slots {
    rp__slot q, k, v;
    rp__slot qk; /* q and k as the heads of one tensor, where they lie side by side */
} qkv_slots;

static rp__slot heads(rp__program *p, rp__slot x, int64_t n_heads, int64_t head_dim) {
    return rp__program_reshape(p, x, 3, (int64_t[]){p->bucket.n_tokens, n_heads, head_dim});
}

/* q, k and v of the rows of one matrix, in this order. */
static void part_qkv(const rp__model *m, rp__program *p, rp__slot y, qkv_slots *s) {
    const rp__hparams *h = &m->h;
    int64_t d = h->head_dim, q = h->n_heads * d, kv = h->n_kv_heads * d;
    s->q = rp__program_columns(p, y, 0, q, h->n_heads);
    s->k = rp__program_columns(p, y, q, kv, h->n_kv_heads);
    s->qk = rp__program_columns(p, y, 0, q + kv, h->n_heads + h->n_kv_heads);
}

static qkv_slots build_qkv(const rp__model *m, rp__program *p, int64_t i, rp__slot x) {
    const rp__hparams *h = &m->h;
    const rp__layer *l = &m->layers[i];
    int64_t d = h->head_dim, q = h->n_heads * d, kv = h->n_kv_heads * d;
    char label[64];
    qkv_slots s = {.qk = RP_NO_SLOT};
    if (l->qkv.w.n_dims) {
        snprintf(label, sizeof label, "blk.%d.attn_qkv", (int)i);
        rp__slot y = rp__layer_linear(p, m, label, x, &l->qkv, RP_NO_SLOT);
        part_qkv(m, p, y, &s);
        s.v = rp__program_columns(p, y, q + kv, kv, h->n_kv_heads);
        return s;
    }
    snprintf(label, sizeof label, "blk.%d.attn_q", (int)i);
    s.q = heads(p, rp__layer_linear(p, m, label, x, &l->q, RP_NO_SLOT), h->n_heads, d);
    snprintf(label, sizeof label, "blk.%d.attn_k", (int)i);
    s.k = heads(p, rp__layer_linear(p, m, label, x, &l->k, RP_NO_SLOT), h->n_kv_heads, d);
    snprintf(label, sizeof label, "blk.%d.attn_v", (int)i);
    s.v = heads(p, rp__layer_linear(p, m, label, x, &l->v, RP_NO_SLOT), h->n_kv_heads, d);
    return s;
}

/* Norm over each head, side by side again. */
static void build_qk_norm(const rp__model *m, rp__program *p, int64_t i, qkv_slots *s) {
    const rp__hparams *h = &m->h;
    const rp__layer *l = &m->layers[i];
    char label[64];
    qkv_slots x = *s;
    int64_t n = (h->n_heads + h->n_kv_heads) * h->head_dim;
    snprintf(label, sizeof label, "blk.%d.attn_qk_normed", (int)i);
    rp__slot y = rp__program_temp(p, label, RP_F32, 2, (int64_t[]){p->bucket.n_tokens, n});
    part_qkv(m, p, y, s);
    snprintf(label, sizeof label, "blk.%d.attn_q_norm", (int)i);
    rp__layer_rms_norm_into(p, label, x.q, &l->q_norm, h->norm_eps, s->q);
    snprintf(label, sizeof label, "blk.%d.attn_k_norm", (int)i);
    rp__layer_rms_norm_into(p, label, x.k, &l->k_norm, h->norm_eps, s->k);
}

/* One op where q and k lie side by side: every op launched is paid for. */
static void build_rope(const rp__model *m, rp__program *p, int64_t i, const qkv_slots *s,
                       rp__slot cs) {
    char label[64];
    if (s->qk != RP_NO_SLOT) {
        snprintf(label, sizeof label, "blk.%d.rope_qk", (int)i);
        rp__layer_rope(p, label, s->qk, cs, m->h.rope.style);
        return;
    }
    snprintf(label, sizeof label, "blk.%d.rope_q", (int)i);
    rp__layer_rope(p, label, s->q, cs, m->h.rope.style);
    snprintf(label, sizeof label, "blk.%d.rope_k", (int)i);
    rp__layer_rope(p, label, s->k, cs, m->h.rope.style);
}

static rp__slot build_attention(const rp__model *m, rp__program *p, int64_t i,
                                const rp__step_slots *in, rp__slot cs, rp__slot x) {
    const rp__layer *l = &m->layers[i];
    char label[64];
    snprintf(label, sizeof label, "blk.%d.attn_norm", (int)i);
    qkv_slots s = build_qkv(m, p, i, rp__layer_rms_norm(p, label, x, &l->attn_norm, m->h.norm_eps));
    if (l->q_norm.n_dims) build_qk_norm(m, p, i, &s);
    build_rope(m, p, i, &s, cs);
    rp__slot y = rp__layer_attention(p, m, i, in, s.q, s.k, s.v);
    snprintf(label, sizeof label, "blk.%d.attn_output", (int)i);
    return rp__layer_linear(p, m, label, y, &l->o, x);
}

static rp__slot build_mlp(const rp__model *m, rp__program *p, int64_t i, rp__slot x) {
    const rp__layer *l = &m->layers[i];
    char label[64];
    snprintf(label, sizeof label, "blk.%d.ffn_norm", (int)i);
    rp__slot h = rp__layer_rms_norm(p, label, x, &l->ffn_norm, m->h.norm_eps), gate, up;
    if (l->gate_up.w.n_dims) {
        snprintf(label, sizeof label, "blk.%d.ffn_gate_up", (int)i);
        rp__slot y = rp__layer_linear(p, m, label, h, &l->gate_up, RP_NO_SLOT);
        gate = rp__program_columns(p, y, 0, m->h.n_ff, 0);
        up = rp__program_columns(p, y, m->h.n_ff, m->h.n_ff, 0);
    } else {
        snprintf(label, sizeof label, "blk.%d.ffn_gate", (int)i);
        gate = rp__layer_linear(p, m, label, h, &l->gate, RP_NO_SLOT);
        snprintf(label, sizeof label, "blk.%d.ffn_up", (int)i);
        up = rp__layer_linear(p, m, label, h, &l->up, RP_NO_SLOT);
    }
    snprintf(label, sizeof label, "blk.%d.ffn_act", (int)i);
    rp__slot g = rp__layer_gated(p, label, gate, up, m->h.act);
    snprintf(label, sizeof label, "blk.%d.ffn_down", (int)i);
    return rp__layer_linear(p, m, label, g, &l->down, x);
}

static void build(const rp__model *m, rp__program *p) {
    rp__step_slots in = rp__layer_inputs(p, m);
    rp__program_live(p, in.live_tokens);
    rp__slot x = rp__layer_embed(p, &m->embed, "token_embd", in.ids, 1.0f);
    rp__slot cs = rp__layer_embed(p, &m->rope_table, "rope_table", in.pos, 1.0f);
    for (int64_t i = 0; i < m->h.n_layers; i++) {
        x = build_attention(m, p, i, &in, cs, x);
        x = build_mlp(m, p, i, x);
    }
    rp__layer_head(p, m, &in, x);
}

const rp__family rp__family_llama = {"llama", knows, read_hparams, declare_weights, build};
