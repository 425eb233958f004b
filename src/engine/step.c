#include "engine/step.h"

#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/log.h"
#include "engine/kv.h"
#include "tensor/view.h"

/* ---- planning ---- */

static size_t max_size(size_t a, size_t b) {
    return a > b ? a : b;
}

static void grow_bytes(rp__side_bytes *all, const rp__side_bytes *one) {
    all->arena = max_size(all->arena, one->arena);
    all->inputs = max_size(all->inputs, one->inputs);
    all->outputs = max_size(all->outputs, one->outputs);
}

static void build_program(rp__stepper *s, rp__program *p, int way) {
    rp__program_place(p, s->config.n_placements ? &s->config.placements[way] : NULL,
                      &s->model->host);
    rp__model_build(s->model, p);
}

static rp_status plan_program(rp__stepper *s, int bucket, int way, rp_error *err) {
    rp__program *p = &s->programs[way * s->n_buckets + bucket];
    rp__choice *c = &s->choices[bucket];
    rp__program_init(p, s->device, &s->buckets[bucket]);
    build_program(s, p, way);
    rp_status st = rp__program_finish(p, err);
    if (st != RP_OK) return st;
    if (way && p->traffic.n_host_ops == c->ways[0]->traffic.n_host_ops) return RP_OK;
    c->ways[way] = p;
    for (int side = 0; side < RP_N_SIDES; side++) grow_bytes(&s->bytes[side], &p->bytes[side]);
    return RP_OK;
}

static rp_status longest_op_us(rp__stepper *s, int32_t n_tokens, double *us, rp_error *err) {
    rp__bucket bucket = {RP_BUCKET_PREFILL, n_tokens, s->config.max_seqs, s->config.max_seqs};
    rp__program p;
    rp_status st;
    do {
        rp__program_init(&p, s->device, &bucket);
        build_program(s, &p, 0);
        st = rp__program_finish(&p, err);
        *us = p.longest_op_us;
        rp__program_clear(&p);
    } while (st == RP_AGAIN);
    return st;
}

/* Segments are cut between ops; what makes a single op shorter is fewer tokens at once. */
static rp_status shorten_ops(rp__stepper *s, rp_error *err) {
    double limit = rp__device_submit_limit_us(s->device), us;
    int32_t *n = &s->config.max_tokens, least = s->config.max_seqs;
    while (limit > 0 && *n > least) {
        RP_TRY(longest_op_us(s, *n, &us, err));
        if (us <= limit) break;
        *n = *n / 2 > least ? *n / 2 : least;
    }
    return RP_OK;
}

static int n_programs(const rp__stepper *s) {
    return s->n_buckets * (s->config.n_placements > 1 ? 2 : 1);
}

static rp_status plan_programs(rp__stepper *s, rp_error *err) {
    for (int i = 0; i < n_programs(s); i++) {
        rp_status st = plan_program(s, i % s->n_buckets, i / s->n_buckets, err);
        if (st != RP_OK) return st;
    }
    return RP_OK;
}

static void clear_programs(rp__stepper *s) {
    for (int i = 0; i < n_programs(s) && s->programs; i++) rp__program_clear(&s->programs[i]);
    for (int i = 0; i < s->n_buckets && s->choices; i++) s->choices[i] = (rp__choice){0};
    for (int side = 0; side < RP_N_SIDES; side++) s->bytes[side] = (rp__side_bytes){0};
}

static rp_device *cache_device(const rp__stepper *s) {
    return s->model->host.has_state ? s->model->host.device : s->device;
}

/* 0: a step may be any mixture. */
static int32_t parts_align(const rp__stepper *s) {
    int32_t wanted = (int32_t)rp__device_props(s->device)->prompt_align,
            block = s->config.block_size;
    return wanted ? (wanted + block - 1) / block * block : 0;
}

int32_t rp__stepper_prompt_align(const rp__stepper *s) {
    return parts_align(s) ? parts_align(s) : 1;
}

/* A visit of several steps: the device must do between them what the host does otherwise. */
static rp_status plan_visits(rp__stepper *s, rp_error *err) {
    const rp_device_properties *props = rp__device_props(s->device);
    int32_t n = s->config.n_steps;
    if (n < 1) n = s->config.n_steps = 1;
    if (n > s->model->n_ctx)
        return rp__fail(err, RP_EINVAL, "scheduler_steps is %d, more than the context of %lld", n,
                        (long long)s->model->n_ctx);
    if (n > 1 && !(props->picks_tokens && props->advances_positions))
        return rp__fail(err, RP_EUNSUPPORTED,
                        "scheduler_steps is %d, but device %s as it was opened does not pick "
                        "tokens and advance positions itself",
                        n, rp__device_name(s->device));
    s->model->n_fed = n;
    return RP_OK;
}

static rp_status plan(rp__stepper *s, rp_error *err) {
    rp_status st;
    RP_TRY(plan_visits(s, err));
    rp__model_declare_cache(s->model, s->config.k_type, s->config.v_type, s->config.n_blocks,
                            s->config.block_size);
    RP_TRY(shorten_ops(s, err));
    s->n_buckets =
        rp__bucket_list(s->config.max_seqs, s->config.max_tokens, parts_align(s), s->buckets);
    s->programs = rp__calloc((size_t)n_programs(s), sizeof *s->programs);
    s->choices = rp__calloc((size_t)s->n_buckets, sizeof *s->choices);
    if (!s->programs || !s->choices)
        return rp__fail(err, RP_ENOMEM, "out of memory for %d programs", n_programs(s));
    while ((st = plan_programs(s, err)) == RP_AGAIN) clear_programs(s); /* once at most */
    RP_TRY(st);
    s->cache_bytes = rp__model_cache_bytes(s->model, cache_device(s));
    return RP_OK;
}

rp_status rp__stepper_plan(rp__stepper *s, rp__model *model, const rp__stepper_config *config,
                           rp_error *err) {
    *s = (rp__stepper){.config = *config, .model = model, .device = model->device};
    rp_status st = plan(s, err);
    if (st < 0) rp__stepper_clear(s);
    return st;
}

size_t rp__stepper_bytes(const rp__stepper *s, rp__side side) {
    const rp__side_bytes *b = &s->bytes[side];
    rp__side cache_side = s->model->host.has_state ? RP_SIDE_HOST : RP_SIDE_DEVICE;
    return b->arena + b->inputs + b->outputs + (side == cache_side ? s->cache_bytes : 0);
}

void rp__stepper_clear(rp__stepper *s) {
    rp__replayer_clear(&s->replay);
    clear_programs(s);
    rp__free(s->programs);
    rp__free(s->choices);
    for (int i = 0; i < 2; i++) rp__placement_clear(&s->config.placements[i]);
    for (int side = 0; side < RP_N_SIDES; side++) {
        rp__buffer_destroy(s->memory[side].arena, NULL);
        rp__buffer_destroy(s->memory[side].inputs, NULL);
        rp__buffer_destroy(s->memory[side].outputs, NULL);
    }
    rp__buffer_destroy(s->cache, NULL);
    rp__batch_clear(&s->batch);
    rp__parts_clear(&s->parts);
    void *memory[] = {s->staging,     s->known, s->read_logits,
                      s->part_logits, s->best,  s->part_best};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++) rp__free(memory[i]);
    *s = (rp__stepper){0};
}

/* ---- allocating ---- */

static rp_status alloc_host(rp__stepper *s, rp_error *err) {
    const rp__stepper_config *c = &s->config;
    size_t n = (size_t)c->max_seqs, row = (size_t)s->model->h.n_vocab * sizeof *s->logits;
    int32_t align = parts_align(s);
    RP_TRY(rp__batch_init(&s->batch, c->max_tokens, c->max_seqs, err));
    if (align) RP_TRY(rp__parts_init(&s->parts, align, c->max_tokens, c->max_seqs, err));
    s->staging = rp__calloc(1, s->bytes[RP_SIDE_DEVICE].inputs);
    s->known = rp__calloc(1, s->bytes[RP_SIDE_DEVICE].inputs);
    bool is_read = align || !rp__device_props(s->device)->is_host_memory;
    s->read_logits = is_read ? rp__calloc(n, row) : NULL;
    s->best = rp__calloc(n * (size_t)c->n_steps, sizeof *s->best);
    s->part_logits = align ? rp__calloc(n, row) : NULL;
    s->part_best = align ? rp__calloc(n, sizeof *s->best) : NULL;
    bool has_parts = !align || (s->part_logits && s->part_best);
    if (s->staging && s->known && (s->read_logits || !is_read) && s->best && has_parts)
        return RP_OK;
    return rp__fail(err, RP_ENOMEM, "out of memory for the inputs and logits of a step");
}

/* The sink block is read by padding before anybody wrote it: it starts as zeros. Every other
 * position is written before it is read. */
static rp_status clear_sink(rp__stepper *s, rp_error *err) {
    static const unsigned char zeros[1 << 12];
    for (int64_t l = 0; l < s->model->h.n_layers; l++) {
        const rp_tensor *caches[] = {&s->model->layers[l].k_cache, &s->model->layers[l].v_cache};
        for (int c = 0; c < 2; c++) {
            size_t n = rp__tensor_item_bytes(caches[c]), step = sizeof zeros;
            for (size_t at = 0; at < n; at += step)
                RP_TRY(rp__buffer_write(s->cache, caches[c]->offset + at, zeros,
                                        n - at < step ? n - at : step, err));
        }
    }
    return RP_OK;
}

static void warn_of_long_ops(const rp__stepper *s) {
    double limit = rp__device_submit_limit_us(s->device), us = 0;
    for (int i = 0; i < n_programs(s); i++)
        if (s->programs[i].longest_op_us > us) us = s->programs[i].longest_op_us;
    if (limit > 0 && us > limit)
        rp__log(RP_LOG_WARN,
                "an op of the largest step may take %.0f us on %s, whose watchdog ends a submit "
                "after %.0f: a shorter context or fewer sequences make it shorter",
                us, rp__device_name(s->device), rp__device_props(s->device)->watchdog_us);
}

static rp_status rewind_inputs(void *user, const rp__program *p, rp_error *err);

static rp_status alloc_side(rp__stepper *s, rp__side side, rp_error *err) {
    const rp__side_bytes *b = &s->bytes[side];
    rp__side_memory *m = &s->memory[side];
    rp_device *on = side == RP_SIDE_HOST ? s->model->host.device : s->device;
    if (b->arena) RP_TRY(rp__buffer_create(on, "arena", b->arena, true, &m->arena, err));
    if (b->inputs) RP_TRY(rp__buffer_create(on, "step inputs", b->inputs, true, &m->inputs, err));
    if (!b->outputs) return RP_OK;
    return rp__buffer_create(on, "step outputs", b->outputs, true, &m->outputs, err);
}

/* ---- inputs ---- */

/* Where an input begins, in the staging as on the device. */
static size_t place_of(const rp__program *p, const char *name) {
    return p->slots[rp__program_find(p, name)].home[RP_SIDE_DEVICE].place;
}

static int32_t *staged(rp__stepper *s, const rp__program *p, const char *name) {
    return (int32_t *)(s->staging + place_of(p, name));
}

/* Copies n live values and pads up to the declared size. */
static void stage(rp__stepper *s, const rp__program *p, const char *name, const int32_t *values,
                  int32_t n, int32_t total, int32_t padding) {
    int32_t *dst = staged(s, p, name);
    if (n) memcpy(dst, values, (size_t)n * sizeof *dst);
    for (int32_t i = n; i < total; i++) dst[i] = padding;
}

/* What the steps before this one picked is the device's: it stays as it is. */
static void keep_past(rp__stepper *s, const rp__program *p) {
    const rp_tensor *past = &p->slots[rp__program_find(p, "past")].tensor;
    size_t at = place_of(p, "past");
    memcpy(s->staging + at, s->known + at, rp__tensor_span(past));
}

/* The op when it changes inputs on the device, and of how many tokens; NULL: it does not. */
static const rp_op *changing_op(const rp__stepper *s, const rp__program *p, int32_t i, int64_t *n) {
    if (i < 0 || p->places[i].side != RP_SIDE_DEVICE) return NULL;
    bool is_live = rp__device_props(s->device)->has_live_rows;
    *n = is_live ? s->batch.n_tokens : p->ops[i].out[0].dim[0];
    return &p->ops[i];
}

/* A device that moves padding on with the rest goes on from what it has: its tokens, at positions
 * within one block of the sink. Otherwise it would be written anew in every visit. */
static void keep_padding(rp__stepper *s, const rp__program *p) {
    int64_t n = 0;
    int32_t last = s->config.block_size - (s->batch.n_steps ? s->batch.n_steps : 1);
    bool is_known = s->n_known >= p->bytes[RP_SIDE_DEVICE].inputs;
    if (!is_known || !changing_op(s, p, p->advance_op, &n)) return;
    const int32_t *pos = (int32_t *)(s->known + place_of(p, "pos")),
                  *ids = (int32_t *)(s->known + place_of(p, "ids"));
    for (int64_t i = s->batch.n_tokens; i < n; i++) {
        if (pos[i] < 0 || pos[i] > last) continue;
        staged(s, p, "pos")[i] = pos[i];
        if (p->feed_op >= 0 && ids[i] >= 0 && ids[i] < s->model->h.n_vocab)
            staged(s, p, "ids")[i] = ids[i];
    }
}

/* Padding tokens are token 0 at position 0, at first, of the table's last row, which holds the sink
 * block only: they read and write nothing but the sink. */
static void stage_inputs(rp__stepper *s, const rp__program *p) {
    const rp__batch *b = &s->batch;
    int32_t t = p->bucket.n_tokens;
    stage(s, p, "live_tokens", &b->n_tokens, 1, 1, 0);
    stage(s, p, "live_rows", &b->n_rows, 1, 1, 0);
    stage(s, p, "ids", b->ids, b->n_tokens, t, 0);
    stage(s, p, "pos", b->pos, b->n_tokens, t, 0);
    stage(s, p, "seq", b->seq, b->n_tokens, t, p->bucket.n_seqs);
    if (p->feed_op < 0)
        stage(s, p, "slots", b->slots, b->n_tokens, t, RP_KV_SINK * s->config.block_size);
    else
        keep_past(s, p);
    stage(s, p, "rows", b->rows, b->n_rows, p->bucket.n_rows, 0);
    const rp_tensor *table = &p->slots[rp__program_find(p, "table")].tensor;
    int32_t *dst = staged(s, p, "table");
    for (int64_t i = 0; i < table->dim[0]; i++, dst += table->dim[1]) {
        int32_t n = i < b->n_seqs ? b->n_blocks[i] : 0;
        if (n) memcpy(dst, b->tables[i], (size_t)n * sizeof *dst);
        for (int64_t k = n; k < table->dim[1]; k++) dst[k] = RP_KV_SINK;
    }
    keep_padding(s, p);
}

static bool is_known(const rp__stepper *s, size_t at, size_t n) {
    return !memcmp(s->staging + at, s->known + at, n);
}

/* Narrows [*first, *end) to what differs from what is on the device, by whole chunks: an alignment
 * that most devices have. */
static void find_changes(const rp__stepper *s, size_t *first, size_t *end) {
    enum { CHUNK = 64 };
    if (s->n_known < *end) return;
    while (*end - *first >= CHUNK && is_known(s, *first, CHUNK)) *first += CHUNK;
    while (*end - *first >= CHUNK && is_known(s, *end - CHUNK, CHUNK)) *end -= CHUNK;
    if (is_known(s, *first, *end - *first)) *first = *end;
}

/* The device gets the range that changed in one transfer; the host, where ops read inputs, all. */
static rp_status write_inputs(rp__stepper *s, const rp__program *p, rp_error *err) {
    size_t n = p->bytes[RP_SIDE_DEVICE].inputs, first = 0, end = n;
    find_changes(s, &first, &end);
    if (first < end) {
        size_t n_known = s->n_known;
        s->n_known = 0; /* until it is written */
        RP_TRY(rp__buffer_write(s->memory[RP_SIDE_DEVICE].inputs, first, s->staging + first,
                                end - first, err));
        memcpy(s->known + first, s->staging + first, end - first);
        s->n_known = n_known > n ? n_known : n;
    }
    if (!p->traffic.n_host_ops) return RP_OK;
    return rp__buffer_write(s->memory[RP_SIDE_HOST].inputs, 0, s->staging, n, err);
}

static rp_status rewrite_inputs(rp__stepper *s, const rp__program *p, rp_error *err) {
    s->n_known = 0;
    return write_inputs(s, p, err);
}

static rp_status rewind_inputs(void *user, const rp__program *p, rp_error *err) {
    return rewrite_inputs(user, p, err);
}

/* What the steps that ran changed in their inputs on the device. The tokens they picked are known
 * when they are read: until then, what no input ever is. */
static void note_changes(rp__stepper *s, const rp__program *p) {
    int64_t n;
    const rp_op *op = changing_op(s, p, p->advance_op, &n);
    if (op) {
        int32_t *pos = (int32_t *)(s->known + op->out[0].offset);
        for (int64_t i = 0; i < n; i++) pos[i] += op->p.advance.step * s->n_steps;
    }
    op = changing_op(s, p, p->feed_op, &n);
    if (!op) return;
    memset(s->known + op->out[0].offset, -1, (size_t)n * sizeof(int32_t));
    memset(s->known + op->out[1].offset, -1, rp__tensor_span(&op->out[1]));
}

/* ---- loading ---- */

/* Once on padding, op by op. With ops on the host only the kernels are compiled. */
static rp_status warm_program(rp__stepper *s, const rp__program *p, rp_error *err) {
    RP_TRY(rp__program_prepare(p, err));
    if (p->traffic.n_host_ops) return RP_OK;
    stage_inputs(s, p);
    RP_TRY(rewrite_inputs(s, p, err));
    for (int32_t i = 0; i < p->n_ops; i++) RP_TRY(rp__device_run(s->device, &p->ops[i], err));
    return rp__device_sync(s->device, err);
}

/* Where a graph hides the memory it uses, nothing may come to the device beside one: neither a
 * kernel's code nor what an op allocates the first time. So every step size is run before the first
 * capture. */
static rp_status warm_all(rp__stepper *s, rp_error *err) {
    if (!rp__device_props(s->device)->hides_temporaries) return RP_OK;
    rp_status st = RP_OK;
    rp__batch batch = s->batch;
    s->batch.n_tokens = s->batch.n_seqs = s->batch.n_rows = 0;
    for (int i = 0; st >= 0 && i < 2 * s->n_buckets; i++) {
        const rp__program *p = s->choices[i / 2].ways[i % 2];
        if (p) st = warm_program(s, p, err);
    }
    s->batch = batch;
    s->n_known = 0;
    return st;
}

rp_status rp__stepper_load(rp__stepper *s, rp_error *err) {
    warn_of_long_ops(s);
    RP_TRY(rp__buffer_create(cache_device(s), "KV cache", s->cache_bytes, true, &s->cache, err));
    for (int side = 0; side < RP_N_SIDES; side++) RP_TRY(alloc_side(s, (rp__side)side, err));
    rp__model_set_cache(s->model, s->cache);
    RP_TRY(clear_sink(s, err));
    for (int i = 0; i < s->n_buckets; i++)
        for (int way = 0; way < 2; way++)
            if (s->choices[i].ways[way])
                RP_TRY(rp__program_bind(s->choices[i].ways[way], s->memory, err));
    RP_TRY(alloc_host(s, err));
    RP_TRY(warm_all(s, err));
    s->config.replay.rewind = rewind_inputs;
    s->config.replay.user = s;
    return rp__replayer_init(&s->replay, s->device, &s->config.replay, err);
}

/* ---- running ---- */

/* As many steps as are wanted, each going on from what the one before it left. Ops on the host see
 * none of that: such a program makes one step. */
static rp_status run_steps(rp__stepper *s, rp__choice *c, rp_error *err) {
    bool is_alone = false;
    for (s->n_steps = 0; s->n_steps < s->batch.n_steps || !s->n_steps; s->n_steps++) {
        const rp__program *p = rp__choice_next(c, &s->replay);
        is_alone |= p->traffic.n_host_ops > 0;
        if (is_alone && s->n_steps) break;
        rp_status st = rp__choice_run(c, &s->replay, s->batch.n_tokens, err);
        if (st != RP_OK) return st;
    }
    return RP_OK;
}

/* A capture is refused once for each segment at most, and once for each program whose graphs make
 * room; what it wrote is undefined, so all inputs are written again and all steps made again. A
 * failure leaves them unknown too. */
static rp_status run_bucket(rp__stepper *s, rp__choice *c, const rp__program *p, rp_error *err) {
    stage_inputs(s, p);
    RP_TRY(write_inputs(s, p, err));
    rp_status st = run_steps(s, c, err);
    while (st == RP_AGAIN) {
        RP_TRY(rewrite_inputs(s, p, err));
        st = run_steps(s, c, err);
    }
    if (st == RP_OK)
        note_changes(s, p);
    else
        s->n_known = 0;
    return st;
}

rp_status rp__stepper_copy_block(rp__stepper *s, int32_t from, int32_t to, rp_error *err) {
    for (int64_t l = 0; l < s->model->h.n_layers; l++) {
        const rp_tensor *caches[] = {&s->model->layers[l].k_cache, &s->model->layers[l].v_cache};
        for (int c = 0; c < 2; c++) {
            size_t n = rp__tensor_item_bytes(caches[c]), at = caches[c]->offset;
            RP_TRY(rp__buffer_copy(s->cache, at + (size_t)to * n, s->cache, at + (size_t)from * n,
                                   n, err));
        }
    }
    return RP_OK;
}

static size_t row_bytes(const rp__stepper *s) {
    return (size_t)s->model->h.n_vocab * sizeof *s->logits;
}

static rp_status read_output(rp__stepper *s, const rp__program *p, rp__slot slot, void *to,
                             size_t bytes, rp_error *err) {
    const rp__slot_info *out = &p->slots[slot];
    return rp__buffer_read(s->memory[out->result].outputs, out->home[out->result].place, to, bytes,
                           err);
}

/* The tokens that this visit picked, newest last: what is in "past" is in "ids" too. */
static rp_status read_past(rp__stepper *s, const rp__program *p, int32_t *best, rp_error *err) {
    const rp__slot_info *past = &p->slots[rp__program_find(p, "past")];
    rp__side side = past->result;
    size_t t = (size_t)past->tensor.dim[1], n = (size_t)s->n_steps,
           n_rows = (size_t)s->batch.n_rows,
           at = past->home[side].place + ((size_t)past->tensor.dim[0] - n) * t * sizeof *best;
    int32_t *picked = (int32_t *)(s->known + at);
    RP_TRY(rp__buffer_read(s->memory[side].inputs, at, picked, n * t * sizeof *best, err));
    for (size_t k = 0; k < n; k++) memcpy(best + k * n_rows, picked + k * t, n_rows * sizeof *best);
    int64_t n_live;
    if (changing_op(s, p, p->feed_op, &n_live))
        memcpy(s->known + place_of(p, "ids"), picked + (n - 1) * t, (size_t)n_live * sizeof *best);
    return RP_OK;
}

/* Into `to`, or without it left where they are. */
static rp_status read_logits(rp__stepper *s, const rp__program *p, float *to, rp_error *err) {
    const rp__slot_info *out = &p->slots[rp__program_find(p, "logits")];
    rp_buffer *from = s->memory[out->result].outputs;
    size_t at = out->home[out->result].place, n = (size_t)s->batch.n_rows * row_bytes(s);
    const void *home;
    s->logits = to;
    if (to) return rp__buffer_read(from, at, to, n, err);
    RP_TRY(rp__buffer_view(from, at, n, &home, err));
    s->logits = home;
    return RP_OK;
}

/* The rows of logits, or of greedy steps the best tokens alone where the device picked them. */
static rp_status read_results(rp__stepper *s, const rp__program *p, float *logits, int32_t *best,
                              rp_error *err) {
    size_t n = (size_t)s->batch.n_rows;
    rp__slot picked = s->batch.is_greedy ? rp__program_find(p, "best") : RP_NO_SLOT;
    s->has_best = picked != RP_NO_SLOT || (s->batch.is_greedy && p->feed_op >= 0);
    if (picked != RP_NO_SLOT) return read_output(s, p, picked, best, n * sizeof *best, err);
    if (s->has_best) return read_past(s, p, best, err);
    return read_logits(s, p, logits, err);
}

static rp_status run_batch(rp__stepper *s, float *logits, int32_t *best, rp_error *err) {
    const rp__batch *b = &s->batch;
    int i = rp__bucket_find(s->buckets, s->n_buckets, b->n_tokens, b->n_seqs, b->n_rows);
    rp__assert(i >= 0 && b->n_tokens > 0, "no bucket holds %d tokens of %d sequences",
               (int)b->n_tokens, (int)b->n_seqs);
    const rp__program *p = rp__choice_next(&s->choices[i], &s->replay);
    RP_TRY(run_bucket(s, &s->choices[i], p, err));
    return b->n_rows ? read_results(s, p, logits, best, err) : RP_OK;
}

static void take_part_results(rp__stepper *s) {
    size_t n = row_bytes(s);
    for (int32_t i = 0; i < s->parts.part.n_rows; i++) {
        size_t row = (size_t)s->parts.from[i];
        if (s->has_best)
            s->best[row] = s->part_best[i];
        else
            memcpy((char *)s->read_logits + row * n, (char *)s->part_logits + (size_t)i * n, n);
    }
}

static rp_status run_parts(rp__stepper *s, rp_error *err) {
    const rp__batch whole = s->batch;
    rp_status st = RP_OK;
    rp__parts_begin(&s->parts, &whole);
    while (st >= 0 && rp__parts_next(&s->parts, &whole)) {
        s->batch = s->parts.part;
        st = run_batch(s, s->part_logits, s->part_best, err);
        if (st >= 0) take_part_results(s);
    }
    s->batch = whole;
    s->logits = s->read_logits;
    return st;
}

rp_status rp__stepper_run(rp__stepper *s, rp_error *err) {
    bool is_one = !s->parts.align || s->batch.n_tokens == s->batch.n_seqs;
    return is_one ? run_batch(s, s->read_logits, s->best, err) : run_parts(s, err);
}

static rp_status measure_program(rp__stepper *s, rp__program *p, int32_t n_pairs, double *samples,
                                 rp__replay_report *out, rp_error *err) {
    rp_status st;
    stage_inputs(s, p);
    do {
        RP_TRY(rewrite_inputs(s, p, err));
        st = rp__replayer_measure(&s->replay, p, n_pairs, samples, out, err);
    } while (st == RP_AGAIN);
    s->n_known = 0;
    return st;
}

static double best_us(const rp__replay_report *r) {
    return r->is_replay_faster ? r->replay_us : r->eager_us;
}

rp_status rp__stepper_measure(rp__stepper *s, int bucket, int32_t n_pairs, double *samples,
                              rp__replay_report out[2], rp_error *err) {
    rp__choice *c = &s->choices[bucket];
    for (int way = 0; way < 2; way++)
        if (c->ways[way])
            RP_TRY(measure_program(s, c->ways[way], n_pairs, samples, &out[way], err));
    if (c->ways[1]) rp__choice_settle(c, &s->replay, best_us(&out[0]), best_us(&out[1]));
    return RP_OK;
}

rp_status rp__stepper_reopen(rp__stepper *s, rp_error *err) {
    rp__replayer_reset(&s->replay);
    s->n_known = 0;
    RP_TRY(rp__device_reopen(s->device, err));
    RP_TRY(rp__model_load(s->model, NULL, NULL, err));
    RP_TRY(clear_sink(s, err));
    return warm_all(s, err);
}

static rp_status capture_program(rp__stepper *s, rp__program *p, rp_error *err) {
    rp_status st;
    stage_inputs(s, p);
    do {
        RP_TRY(rewrite_inputs(s, p, err));
        st = rp__replayer_capture_now(&s->replay, p, err);
    } while (st == RP_AGAIN);
    s->n_known = 0;
    return st;
}

rp_status rp__stepper_capture_all(rp__stepper *s, rp_error *err) {
    s->batch.n_tokens = s->batch.n_seqs = s->batch.n_rows = 0;
    for (int i = 0; i < s->n_buckets; i++) {
        rp_status st = capture_program(s, rp__choice_next(&s->choices[i], &s->replay), err);
        RP_TRY(st);
        if (st != RP_END) continue;
        rp__log(RP_LOG_WARN,
                "%d of %d step sizes are captured: that is all the graphs kept at once", i,
                s->n_buckets);
        break;
    }
    return RP_OK;
}
