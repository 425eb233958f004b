/* An engine's life: open, plan, check the memory, load, start the thread; and the same backwards.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/log.h"
#include "engine/engine_impl.h"
#include "engine/fit.h"
#include "engine/vocab.h"
#include "tensor/dtype.h"

const char *rp_version(void) {
    return RP_VERSION;
}
void rp_free(void *p) {
    rp__free(p);
}

rp_engine_options rp_engine_options_default(void) {
    return (rp_engine_options){.bytes = sizeof(rp_engine_options),
                               .max_seqs = 8,
                               .max_batch_tokens = 512,
                               .prefill_chunk = 256,
                               .max_queue = 1024,
                               .scheduler_steps = 1,
                               .prefix_cache = true,
                               .block_size = 32,
                               .activations = RP_ACTIVATIONS_AUTO,
                               .max_graphs = 32};
}

/* ---- options ---- */

static rp_status check_range(const char *name, int64_t value, int64_t min, int64_t max,
                             rp_error *err) {
    if (value >= min && value <= max) return RP_OK;
    return rp__fail(err, RP_EINVAL, "%s is %lld, expected %lld to %lld", name, (long long)value,
                    (long long)min, (long long)max);
}

static rp_status check_options(const rp_engine_options *o, rp_error *err) {
    if (!o->model || !*o->model) return rp__fail(err, RP_EINVAL, "no model was given");
    RP_TRY(check_range("n_threads", o->n_threads, 0, 4096, err));
    RP_TRY(check_range("n_ctx", o->n_ctx, 0, 1 << 27, err));
    RP_TRY(check_range("max_seqs", o->max_seqs, 1, 4096, err));
    RP_TRY(check_range("max_batch_tokens", o->max_batch_tokens, 1, 1 << 16, err));
    RP_TRY(check_range("prefill_chunk", o->prefill_chunk, 0, 1 << 16, err));
    RP_TRY(check_range("scheduler_steps", o->scheduler_steps, 0, RP_MAX_SCHEDULER_STEPS, err));
    RP_TRY(check_range("max_queue", o->max_queue, 0, 1 << 20, err));
    RP_TRY(check_range("block_size", o->block_size, 1, 1024, err));
    RP_TRY(check_range("n_blocks", o->n_blocks, 0, INT32_MAX / 1024, err));
    RP_TRY(check_range("max_graphs", o->max_graphs, 1, 4096, err));
    RP_TRY(check_range("activations", (int)o->activations, RP_ACTIVATIONS_F32, RP_ACTIVATIONS_AUTO,
                       err));
    RP_TRY(check_range("capture", (int)o->capture, RP_CAPTURE_AUTO, RP_CAPTURE_OFF, err));
    return RP_OK;
}

/* Graphs may have what was planned for them and what the plan leaves over, within their limit. */
static void bound_graphs(rp__stepper *s, const rp__fit *fit) {
    size_t *most = &s->config.replay.max_graph_bytes;
    *most = fit->graph_limit;
    if (fit->has_region || !fit->available) return;
    size_t left = fit->available - (fit->need - fit->graphs);
    if (!left) left = 1;
    if (!*most || left < *most) *most = left;
}

static rp_status plan_engine(rp_engine *e, const rp_engine_options *o, rp_error *err) {
    RP_TRY(rp__plan_engine(e->checkpoint, e->device, o, &e->model, &e->stepper, err));
    e->max_seqs = e->stepper.config.max_seqs;
    e->max_open =
        o->max_seqs + (o->max_queue ? o->max_queue : rp_engine_options_default().max_queue);
    rp__fit fit = rp__fit_of(e->model, &e->stepper);
    RP_TRY(rp__fit_check(e->checkpoint, e->device, o, &fit, err));
    bound_graphs(&e->stepper, &fit);
    e->info.graph_bytes = fit.graphs;
    return RP_OK;
}

/* ---- opening ---- */

static rp_status open_text(rp_engine *e, const rp_engine_options *o, rp_error *err) {
    RP_TRY(rp__vocab_from_checkpoint(e->checkpoint, &e->tokenizer, err));
    char *source = NULL;
    if (o->chat_template)
        source = rp__strdup(o->chat_template);
    else
        RP_TRY(rp__chat_template_source(e->checkpoint, &source, err));
    if (!source) return RP_OK;
    rp_status st = rp__template_parse("chat template", rp__str_of(source), &e->chat_template, err);
    rp__free(source);
    if (st >= 0 || o->chat_template || st == RP_ENOMEM) return st;
    /* A model is still good for plain completion: the failure is said now, and again when a chat is
     * asked for. */
    rp__log(RP_LOG_WARN, "%s: chat is not available: %s", e->checkpoint->path,
            err ? err->message : rp_status_text(st));
    return RP_OK;
}

static rp_status open_device(rp_engine *e, const rp_engine_options *o, rp_error *err) {
    rp_device_config c = {
        .bytes = sizeof c, .n_threads = o->n_threads, .options = o->device_options};
    rp__devices_prepare();
    return rp__device_open(o->device ? o->device : rp__device_name_at(0), &c, &e->device, err);
}

static rp_status check_vocab(const rp_engine *e, rp_error *err) {
    int32_t tokens = rp__tokenizer_size(e->tokenizer);
    if (tokens <= e->model->h.n_vocab) return RP_OK; /* padded embedding rows are usual */
    return rp__fail(err, RP_EFORMAT, "%s: the tokenizer has %d tokens, the embedding %lld rows",
                    e->checkpoint->path, (int)tokens, (long long)e->model->h.n_vocab);
}

static void most_common_dtype(const rp__checkpoint *c, char *out, size_t cap) {
    size_t bytes[RP_N_DTYPES] = {0}, n = rp__checkpoint_n_tensors(c), best = 0;
    rp__checkpoint_tensor t;
    for (size_t i = 0; i < n; i++)
        if (rp__checkpoint_tensor_at(c, i, &t)) bytes[t.dtype] += t.bytes;
    for (size_t i = 1; i < RP_N_DTYPES; i++)
        if (bytes[i] > bytes[best]) best = i;
    snprintf(out, cap, "%s", rp__dtype_name((rp_dtype)best));
}

static void model_name(const rp__checkpoint *c, char *out, size_t cap) {
    rp__str name;
    if (c->gguf && rp__gguf_str(c->gguf, "general.name", &name, NULL) == RP_OK && name.n) {
        snprintf(out, cap, "%.*s", (int)(name.n < 120 ? name.n : 120), name.p);
        return;
    }
    const char *slash = strrchr(c->path, '/');
    snprintf(out, cap, "%s", slash && slash[1] ? slash + 1 : c->path);
}

static void fill_info(rp_engine *e, uint64_t start_ns) {
    rp_engine_info *i = &e->info;
    const rp__hparams *h = &e->model->h;
    *i = (rp_engine_info){.bytes = sizeof *i,
                          .n_params = e->model->weights.n_params,
                          .n_layers = (int)h->n_layers,
                          .n_embd = (int)h->n_embd,
                          .n_vocab = (int)h->n_vocab,
                          .n_ctx = (int)e->model->n_ctx,
                          .n_ctx_train = (int)h->n_ctx_train,
                          .weight_bytes = e->model->weights.bytes,
                          .kv_bytes = e->stepper.cache_bytes,
                          .arena_bytes = e->stepper.bytes[RP_SIDE_DEVICE].arena,
                          .graph_bytes = i->graph_bytes,
                          .has_chat_template = e->chat_template != NULL};
    const rp_device_properties *props = rp__device_props(e->device);
    i->is_simulated = props->is_simulated;
    model_name(e->checkpoint, i->model_name, sizeof i->model_name);
    snprintf(i->architecture, sizeof i->architecture, "%s", e->model->architecture);
    most_common_dtype(e->checkpoint, i->quantization, sizeof i->quantization);
    snprintf(i->device, sizeof i->device, "%.32s (%.127s)", rp__device_name(e->device),
             props->description);
    i->load_seconds = (double)(rp__clock_ns() - start_ns) * 1e-9;
}

static rp_status open_scheduler(rp_engine *e, const rp_engine_options *o, rp_error *err) {
    const rp__stepper_config *c = &e->stepper.config;
    rp__kv_config kv = {
        .n_blocks = c->n_blocks, .block_size = c->block_size, .has_cache = o->prefix_cache};
    if (getentropy(&kv.key, sizeof kv.key))
        return rp__fail(err, RP_EIO, "the system gives no random key for the prefix cache");
    RP_TRY(rp__kv_init(&e->kv, &kv, err));
    rp__sched_config s = {.max_seqs = e->max_seqs,
                          .max_tokens = c->max_tokens,
                          .prefill_chunk = o->prefill_chunk ? o->prefill_chunk : c->max_tokens,
                          .prompt_align = rp__stepper_prompt_align(&e->stepper)};
    return rp__sched_init(&e->sched, &s, &e->kv, err);
}

static rp_status find_ends(rp_engine *e, rp_error *err) {
    int32_t n = rp__tokenizer_size(e->tokenizer);
    for (int32_t id = 0; id < n; id++) e->n_eog += rp__tokenizer_is_eog(e->tokenizer, id);
    if (!e->n_eog) return RP_OK;
    int32_t *at = e->eog_ids = rp__calloc(e->n_eog, sizeof *at);
    if (!at) return rp__fail(err, RP_ENOMEM, "out of memory for the ids that end an answer");
    for (int32_t id = 0; id < n; id++)
        if (rp__tokenizer_is_eog(e->tokenizer, id)) *at++ = id;
    return RP_OK;
}

static rp_status start_thread(rp_engine *e, rp_error *err) {
    e->queue_end = &e->queue;
    rp__engine_copy_stats(e);
    if (pthread_create(&e->thread, NULL, rp__engine_thread, e))
        return rp__fail(err, RP_ENOMEM, "cannot start the engine thread");
    e->has_thread = true;
    return RP_OK;
}

static rp_status open_engine(rp_engine *e, const rp_engine_options *o, rp_error *err) {
    uint64_t start = rp__clock_ns();
    char *path;
    RP_TRY(check_options(o, err));
    RP_TRY(rp__model_path(o->model, &path, err));
    rp_status st = rp__checkpoint_open(path, &e->checkpoint, err);
    rp__free(path);
    RP_TRY(st);
    RP_TRY(open_text(e, o, err));
    RP_TRY(open_device(e, o, err));
    RP_TRY(plan_engine(e, o, err));
    RP_TRY(check_vocab(e, err));
    RP_TRY(rp__model_load(e->model, o->progress, o->progress_user, err));
    RP_TRY(rp__stepper_load(&e->stepper, err));
    RP_TRY(open_scheduler(e, o, err));
    RP_TRY(find_ends(e, err));
    RP_TRY(rp__sampler_init(&e->sampler, (int32_t)e->model->h.n_vocab, err));
    if (o->capture_at_start && o->capture != RP_CAPTURE_OFF)
        RP_TRY(rp__stepper_capture_all(&e->stepper, err));
    e->mode = o->capture;
    fill_info(e, start);
    rp__log(RP_LOG_INFO, "graphs: %d captured in %zu bytes, %zu planned", e->stepper.replay.n_held,
            rp__replayer_graph_bytes(&e->stepper.replay), e->info.graph_bytes);
    return start_thread(e, err);
}

/* Older callers' structs end earlier: what they do not have is as by default. */
static rp_engine_options options_of(const rp_engine_options *given) {
    rp_engine_options o = rp_engine_options_default();
    memcpy(&o, given, given->bytes < sizeof o ? given->bytes : sizeof o);
    return o;
}

rp_status rp_engine_create(const rp_engine_options *options, rp_engine **out, rp_error *err) {
    rp_error local = {0}; /* callers may pass NULL; the log still wants the sentence */
    if (!err) err = &local;
    *err = (rp_error){0};
    *out = NULL;
    rp_engine *e = rp__calloc(1, sizeof *e);
    if (!e) return rp__fail(err, RP_ENOMEM, "out of memory for an engine");
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->wake, NULL);
    pthread_cond_init(&e->job_done, NULL);
    rp__cond_init(&e->idle);
    rp_engine_options o = options_of(options);
    rp_status st = open_engine(e, &o, err);
    if (st < 0) {
        rp_engine_destroy(e);
        return st;
    }
    *out = e;
    return RP_OK;
}

void rp_engine_destroy(rp_engine *e) {
    if (!e) return;
    if (e->has_thread) {
        pthread_mutex_lock(&e->lock);
        e->is_stopping = true;
        pthread_cond_signal(&e->wake);
        pthread_mutex_unlock(&e->lock);
        pthread_join(e->thread, NULL);
    }
    rp__free(e->eog_ids);
    rp__sched_clear(&e->sched);
    rp__sampler_clear(&e->sampler);
    rp__kv_clear(&e->kv);
    rp__stepper_clear(&e->stepper);
    rp__model_destroy(e->model);
    rp__device_close(e->device);
    rp__template_destroy(e->chat_template);
    rp__tokenizer_destroy(e->tokenizer);
    rp__checkpoint_close(e->checkpoint);
    pthread_cond_destroy(&e->wake);
    pthread_cond_destroy(&e->job_done);
    pthread_cond_destroy(&e->idle);
    pthread_mutex_destroy(&e->lock);
    rp__free(e);
}

rp_status rp_engine_drain(rp_engine *e, int timeout_ms) {
    struct timespec deadline = rp__deadline_after(timeout_ms > 0 ? timeout_ms : 0);
    pthread_mutex_lock(&e->lock);
    e->is_draining = true;
    while (e->n_open && !rp__is_engine_thread(e)) {
        if (timeout_ms < 0)
            pthread_cond_wait(&e->idle, &e->lock);
        else if (pthread_cond_timedwait(&e->idle, &e->lock, &deadline))
            break;
    }
    rp_status st = e->n_open ? RP_AGAIN : RP_OK;
    pthread_mutex_unlock(&e->lock);
    return st;
}

rp_status rp_engine_health(rp_engine *e, double *step_seconds, rp_error *err) {
    pthread_mutex_lock(&e->lock);
    rp_status st = e->failure.code;
    if (st < 0 && err) *err = e->failure;
    if (!st && e->is_draining) st = rp__fail(err, RP_ESHUTDOWN, "the engine is shutting down");
    if (step_seconds)
        *step_seconds = e->step_start_ns ? (double)(rp__clock_ns() - e->step_start_ns) * 1e-9 : 0.0;
    pthread_mutex_unlock(&e->lock);
    return st;
}

/* ---- asking ---- */

void rp_engine_set_capture(rp_engine *e, rp_capture_mode mode) {
    pthread_mutex_lock(&e->lock);
    e->mode = mode;
    pthread_mutex_unlock(&e->lock);
}

/* Fills as much of a result as the caller's version of the struct has. */
static void copy_sized(void *out, uint32_t out_bytes, void *full, uint32_t bytes) {
    uint32_t n = out_bytes < bytes ? out_bytes : bytes;
    memcpy(full, &out_bytes, sizeof out_bytes); /* `bytes` stays the caller's */
    memcpy(out, full, n);
}

void rp_engine_get_info(rp_engine *e, rp_engine_info *out) {
    rp_engine_info full = e->info;
    copy_sized(out, out->bytes, &full, sizeof full);
}

void rp_engine_get_stats(rp_engine *e, rp_engine_stats *out) {
    pthread_mutex_lock(&e->lock);
    rp_engine_stats full = e->stats;
    full.n_waiting = (uint64_t)e->n_open - full.n_running; /* they come during a step, too */
    pthread_mutex_unlock(&e->lock);
    full.heap_allocs = rp__alloc_get_stats().n_allocs;
    copy_sized(out, out->bytes, &full, sizeof full);
}

rp_status rp_engine_explain(rp_engine *e, bool all_ops, char **text, rp_error *err) {
    rp__bytes out = {0};
    bool ok = rp__bytes_printf(&out, "%s on %s: %zu weight bytes, %zu KV bytes, %zu arena bytes\n",
                               e->info.model_name, e->info.device, e->info.weight_bytes,
                               e->info.kv_bytes, e->info.arena_bytes);
    for (int i = 0; i < e->stepper.n_buckets && ok; i++)
        ok = rp__choice_explain(&e->stepper.choices[i], &e->stepper.replay, all_ops, &out);
    if (ok && (*text = rp__bytes_take(&out))) return RP_OK;
    rp__bytes_clear(&out);
    return rp__fail(err, RP_ENOMEM, "out of memory for the report");
}
