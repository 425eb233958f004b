#include "engine/fit.h"

#include "base/fail.h"
#include "tensor/dtype.h"

/* ---- planning ---- */

static rp_status cache_type(const char *parameter, const char *name, rp_dtype *out, rp_error *err) {
    *out = RP_F16;
    if (!name) return RP_OK;
    if (rp__dtype_from_name(name, out) && (*out == RP_F32 || *out == RP_F16 || *out == RP_BF16))
        return RP_OK;
    return rp__fail(err, RP_EUNSUPPORTED, "%s \"%s\" is not supported, expected f32, f16 or bf16",
                    parameter, name);
}

static rp_status plan_steps(rp__model *m, const rp_engine_options *o, rp__stepper *s,
                            rp_error *err) {
    rp__stepper_config c = {.max_seqs = o->max_seqs, .block_size = o->block_size};
    int64_t per_seq = (m->n_ctx + o->block_size - 1) / o->block_size;
    int64_t n_blocks = (o->n_blocks ? o->n_blocks : per_seq * o->max_seqs) + 1; /* and the sink */
    if (n_blocks < 2 || n_blocks > INT32_MAX / o->block_size - 1)
        return rp__fail(err, RP_EINVAL, "the number of KV blocks is %lld, expected 2 to %d",
                        (long long)n_blocks, (int)(INT32_MAX / o->block_size - 1));
    c.n_blocks = (int32_t)n_blocks;
    c.max_tokens = o->max_batch_tokens > o->max_seqs ? o->max_batch_tokens : o->max_seqs;
    RP_TRY(cache_type("cache_type_k", o->cache_type_k, &c.k_type, err));
    RP_TRY(cache_type("cache_type_v", o->cache_type_v, &c.v_type, err));
    c.replay = (rp__replay_config){.mode = o->capture, .max_graphs = o->max_graphs};
    return rp__stepper_plan(s, m, &c, err);
}

rp_status rp__plan_engine(const rp__checkpoint *c, rp_device *device, const rp_engine_options *o,
                          rp__model **model, rp__stepper *stepper, rp_error *err) {
    *stepper = (rp__stepper){0};
    RP_TRY(rp__model_declare(c, device, o->n_ctx, RP_DEFAULT_CTX, model, err));
    rp_status st = rp__model_set_activations(*model, o->activations, err);
    if (st >= 0) st = plan_steps(*model, o, stepper, err);
    if (st >= 0) return RP_OK;
    rp__model_destroy(*model);
    *model = NULL;
    return st;
}

/* ---- fitting ---- */

/* Every bucket is captured sooner or later, as far as the store has places. */
static size_t graph_bytes(const rp__stepper *s) {
    const rp__replay_config *c = &s->config.replay;
    size_t largest = 0, n = (size_t)(c->max_graphs < s->n_buckets ? c->max_graphs : s->n_buckets);
    for (int i = 0; i < s->n_buckets; i++) {
        size_t bytes = rp__graph_bytes_bound(s->device, (size_t)s->programs[i].n_ops);
        if (bytes > largest) largest = bytes;
    }
    return c->mode == RP_CAPTURE_OFF ? 0 : n * largest;
}

rp__fit rp__fit_of(const rp__model *m, const rp__stepper *s) {
    rp__fit f = {.weights = m->weights.bytes,
                 .kv_cache = s->cache_bytes,
                 .arena = s->arena_bytes,
                 .inputs_outputs = s->input_bytes + s->output_bytes,
                 .graphs = graph_bytes(s),
                 .available = rp__device_props(s->device)->memory_bytes,
                 .n_ctx = m->n_ctx,
                 .n_seqs = s->config.max_seqs};
    f.need = f.weights + rp__stepper_bytes(s) + f.graphs;
    f.fits = !f.available || f.need <= f.available;
    return f;
}

/* Bytes needed with this context; SIZE_MAX when that cannot be planned. */
static size_t need_with(const rp__checkpoint *c, rp_device *device, rp_engine_options o,
                        int64_t n_ctx) {
    rp__model *m;
    rp__stepper s;
    o.n_ctx = (int)n_ctx;
    if (rp__plan_engine(c, device, &o, &m, &s, NULL) < 0) return SIZE_MAX;
    size_t need = rp__fit_of(m, &s).need;
    rp__stepper_clear(&s);
    rp__model_destroy(m);
    return need;
}

static int64_t context_limit(const rp__checkpoint *c, rp_device *device, const rp_engine_options *o,
                             const rp__fit *fit) {
    rp__model *m;
    int64_t limit = fit->n_ctx;
    if (rp__model_declare(c, device, o->block_size, RP_DEFAULT_CTX, &m, NULL) < 0) return limit;
    if (m->h.n_ctx_train > limit) limit = m->h.n_ctx_train;
    rp__model_destroy(m);
    return limit;
}

/* The need grows by the same amount with every block of the context, but for rounding: two plans
 * give the line, and a third finds out whether the block it points at fits. */
int64_t rp__fit_largest_ctx(const rp__checkpoint *c, rp_device *device, const rp_engine_options *o,
                            const rp__fit *fit) {
    enum { MAX_TRIES = 4 };
    int64_t block = o->block_size, limit = context_limit(c, device, o, fit);
    if (!fit->available) return limit;
    size_t least = need_with(c, device, *o, block), most = need_with(c, device, *o, limit);
    if (most <= fit->available) return limit;
    if (least > fit->available || limit <= block) return 0;
    double slope = (double)(most - least) / (double)(limit - block);
    int64_t n = (block + (int64_t)((double)(fit->available - least) / slope)) / block * block;
    for (int i = 0; i < MAX_TRIES && n > block; i++, n -= block)
        if (need_with(c, device, *o, n) <= fit->available) return n;
    return block;
}

rp_status rp__fit_check(const rp__checkpoint *c, rp_device *device, const rp_engine_options *o,
                        const rp__fit *fit, rp_error *err) {
    if (fit->fits) return RP_OK;
    return rp__fail(
        err, RP_ENOMEM,
        "the model needs %zu bytes on %s (weights %zu, KV cache %zu, arena %zu, step "
        "inputs and outputs %zu, graphs %zu) and %zu are available; the largest context that fits "
        "with %d sequence%s is %lld",
        fit->need, rp__device_name(device), fit->weights, fit->kv_cache, fit->arena,
        fit->inputs_outputs, fit->graphs, fit->available, (int)fit->n_seqs,
        fit->n_seqs == 1 ? "" : "s", (long long)rp__fit_largest_ctx(c, device, o, fit));
}
