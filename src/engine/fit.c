#include "engine/fit.h"

#include "base/fail.h"
#include "base/stress.h"
#include "engine/placing.h"
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

/* In the stress build: sequences stepping together, and KV blocks beside those of one of them. */
enum { STRESS_SEQS = 3, STRESS_FREE = 2 };

static rp_status plan_steps(rp__model *m, const rp_engine_options *o, rp__stepper *s,
                            rp_error *err) {
    int32_t max_seqs =
        o->max_seqs > STRESS_SEQS ? RP_STRESSED(o->max_seqs, STRESS_SEQS) : o->max_seqs;
    rp__stepper_config c = {.max_seqs = max_seqs, .block_size = RP_STRESSED(o->block_size, 1)};
    int64_t per_seq = (m->n_ctx + c.block_size - 1) / c.block_size;
    int64_t n_blocks = RP_STRESSED(per_seq * max_seqs, per_seq + STRESS_FREE);
    if (o->n_blocks) n_blocks = (int64_t)o->n_blocks * o->block_size / c.block_size;
    n_blocks++; /* and the sink */
    if (n_blocks < 2 || n_blocks > INT32_MAX / c.block_size - 1)
        return rp__fail(err, RP_EINVAL, "the number of KV blocks is %lld, expected 2 to %d",
                        (long long)n_blocks, (int)(INT32_MAX / c.block_size - 1));
    c.n_blocks = (int32_t)n_blocks;
    c.n_steps = o->scheduler_steps;
    c.max_tokens = o->max_batch_tokens > max_seqs ? o->max_batch_tokens : max_seqs;
    RP_TRY(cache_type("cache_type_k", o->cache_type_k, &c.k_type, err));
    RP_TRY(cache_type("cache_type_v", o->cache_type_v, &c.v_type, err));
    c.replay = (rp__replay_config){
        .mode = o->capture, .max_graphs = o->max_graphs, .max_graph_bytes = o->max_graph_bytes};
    m->host.config.n_threads = o->n_threads;
    m->host.config.options = o->host_options;
    rp_status st = rp__placing_choose(o, m, &c, err);
    if (st >= 0) return rp__stepper_plan(s, m, &c, err);
    for (int i = 0; i < c.n_placements; i++) rp__placement_clear(&c.placements[i]);
    return st;
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

static size_t program_graph_bytes(const rp__program *p) {
    size_t bytes = 0;
    for (int32_t i = 0; i < p->n_segments; i++)
        if (p->segments[i].side == RP_SIDE_DEVICE)
            bytes += rp__graph_bytes_bound(p->device, (size_t)p->segments[i].n_ops);
    return bytes;
}

/* Every step size is captured sooner or later, the larger of its placements; where the store has
 * fewer places, any of them may be in it. */
static size_t graph_bytes(const rp__stepper *s) {
    const rp__replay_config *c = &s->config.replay;
    size_t largest = 0, all = 0;
    for (int i = 0; i < s->n_buckets; i++) {
        size_t bytes = 0;
        for (int way = 0; way < 2; way++) {
            const rp__program *p = s->choices[i].ways[way];
            size_t each = p ? program_graph_bytes(p) : 0;
            if (each > bytes) bytes = each;
        }
        all += bytes;
        if (bytes > largest) largest = bytes;
    }
    if (c->mode == RP_CAPTURE_OFF) return 0;
    return s->n_buckets <= c->max_graphs ? all : (size_t)c->max_graphs * largest;
}

static size_t graph_limit(const rp__stepper *s) {
    size_t asked = s->config.replay.max_graph_bytes,
           region = rp__device_props(s->device)->graph_region_bytes;
    return asked && region ? (asked < region ? asked : region) : asked + region;
}

rp__fit rp__fit_of(const rp__model *m, const rp__stepper *s) {
    rp__fit f = {.weights = m->weights.bytes,
                 .kv_cache = m->host.has_state ? 0 : s->cache_bytes,
                 .arena = s->bytes[RP_SIDE_DEVICE].arena,
                 .inputs_outputs =
                     s->bytes[RP_SIDE_DEVICE].inputs + s->bytes[RP_SIDE_DEVICE].outputs,
                 .graphs = graph_bytes(s),
                 .graph_limit = graph_limit(s),
                 .has_region = rp__device_props(s->device)->graph_region_bytes > 0,
                 .available = rp__device_props(s->device)->memory_bytes,
                 .host = m->weights.host_bytes + rp__stepper_bytes(s, RP_SIDE_HOST),
                 .n_ctx = m->n_ctx,
                 .n_seqs = s->config.max_seqs};
    f.need = f.weights + rp__stepper_bytes(s, RP_SIDE_DEVICE) + (f.has_region ? 0 : f.graphs);
    f.fits =
        (!f.available || f.need <= f.available) && (!f.graph_limit || f.graphs <= f.graph_limit);
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
    if (fit->graph_limit && fit->graphs > fit->graph_limit)
        return rp__fail(err, RP_ENOMEM,
                        "the graphs of recorded steps need %zu bytes on %s and %zu are there for "
                        "them; fewer graphs (max_graphs is %d) or sequences need less",
                        fit->graphs, rp__device_name(device), fit->graph_limit, o->max_graphs);
    return rp__fail(
        err, RP_ENOMEM,
        "the model needs %zu bytes on %s (weights %zu, KV cache %zu, arena %zu, step "
        "inputs and outputs %zu, graphs %zu) and %zu are available; the largest context that fits "
        "with %d sequence%s is %lld",
        fit->need, rp__device_name(device), fit->weights, fit->kv_cache, fit->arena,
        fit->inputs_outputs, fit->graphs, fit->available, (int)fit->n_seqs,
        fit->n_seqs == 1 ? "" : "s", (long long)rp__fit_largest_ctx(c, device, o, fit));
}
