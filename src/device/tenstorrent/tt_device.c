/* The tenstorrent device: its table, options and properties. A shared object of its own, loaded by
 * name or path; the engine builds and runs without it.
 *
 * Options (--device-options key=value,...):
 *   weights=bf16|bfloat8_b|bfloat4_b   what matrices are held in (bf16)
 *   hybrid=0|1                         plan steps with small ops on the host, too (0)
 *   pick=0|1                           end steps with argmax, for greedy ones to read (0)
 *   trace_region=BYTES                 memory set apart for traces (0: ttnn makes it as needed)
 *   python=PATH                        the interpreter that has ttnn (REPRISE_TTNN_PYTHON)
 *
 * Everything that knows ttnn's Python is in ttnn_worker.c and the glue that it carries. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/options.h"
#include "device/tenstorrent/tt.h"

enum { OPTION_CAP = 4096, ALIGNMENT = 64 };

/* ---- shared by the files of this device ---- */

bool rp__tt_list_add(rp__tt_list *l, const void *item, size_t bytes) {
    if (l->n == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 32;
        void *items = rp__realloc_array(l->items, cap, bytes);
        if (!items) return false;
        l->items = items;
        l->cap = cap;
    }
    memcpy((char *)l->items + l->n++ * bytes, item, bytes);
    return true;
}

void *rp__tt_scratch(rp__tt *d, size_t n) {
    if (n <= d->scratch_bytes && d->scratch) return d->scratch;
    void *p = rp__realloc(d->scratch, n ? n : 1);
    if (!p) return NULL;
    d->scratch = p;
    d->scratch_bytes = n;
    return p;
}

rp__tt_buffer *rp__tt_buffer_of(const rp_tensor *t) {
    return t->buffer ? t->buffer->handle : NULL;
}

rp__ttnn_id rp__tt_new_id(rp__tt *d) {
    return ++d->last_id;
}

void rp__tt_send_garbage(rp__tt *d) {
    while (d->n_garbage) {
        rp__ttnn_call c = {.function = "drop"};
        while (d->n_garbage && c.n_in < RP_TTNN_MAX_TENSORS)
            c.in[c.n_in++] = d->garbage[--d->n_garbage];
        rp__ttnn_send(d->ttnn, &c, NULL); /* a lost process has dropped everything */
    }
}

void rp__tt_drop(rp__tt *d, rp__ttnn_id id) {
    if (!id) return;
    if (d->n_garbage == RP_TT_MAX_GARBAGE) rp__tt_send_garbage(d);
    d->garbage[d->n_garbage++] = id;
}

rp__ttnn_id rp__tt_temporary(rp__tt *d) {
    rp__ttnn_id id = rp__tt_new_id(d);
    if (!d->recording) {
        if (d->n_garbage == RP_TT_MAX_GARBAGE) return 0;
        d->garbage[d->n_garbage++] = id;
        return id;
    }
    return rp__tt_list_add(&d->recording->ids, &id, sizeof id) ? id : 0;
}

/* ---- options ---- */

typedef struct settings {
    rp__ttnn_config ttnn;
    const char *weight_type;
    bool is_hybrid, picks_tokens;
    char text[OPTION_CAP];
} settings;

static rp_status set_weights(settings *s, const char *value, rp_error *err) {
    static const char *const types[] = {"bf16", "bfloat8_b", "bfloat4_b"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcmp(value, types[i])) {
            s->weight_type = types[i];
            return RP_OK;
        }
    return rp__fail(err, RP_EINVAL, "weights=%s: expected bf16, bfloat8_b or bfloat4_b", value);
}

static rp_status set_switch(const char *key, const char *value, bool *to, rp_error *err) {
    *to = !strcmp(value, "1");
    if (*to || !strcmp(value, "0")) return RP_OK;
    return rp__fail(err, RP_EINVAL, "%s=%s: expected 0 or 1", key, value);
}

static rp_status set_option(settings *s, const char *key, const char *value, rp_error *err) {
    char *end;
    if (!strcmp(key, "weights")) return set_weights(s, value, err);
    if (!strcmp(key, "hybrid")) return set_switch(key, value, &s->is_hybrid, err);
    if (!strcmp(key, "pick")) return set_switch(key, value, &s->picks_tokens, err);
    if (!strcmp(key, "python")) {
        s->ttnn.python = value;
        return RP_OK;
    }
    if (strcmp(key, "trace_region"))
        return rp__fail(err, RP_EINVAL,
                        "the tenstorrent device has no option \"%s\"; there are: weights, "
                        "hybrid, pick, trace_region, python",
                        key);
    s->ttnn.trace_region_bytes = strtoull(value, &end, 10);
    return *value >= '0' && *value <= '9' && !*end
               ? RP_OK
               : rp__fail(err, RP_EINVAL, "trace_region=%s: expected a number of bytes", value);
}

static rp_status read_settings(const char *options, settings *s, rp_error *err) {
    s->weight_type = "bf16";
    s->ttnn.python = rp__options_env("REPRISE_TTNN_PYTHON");
    if (!options) return RP_OK;
    if (strlen(options) >= sizeof s->text)
        return rp__fail(err, RP_EINVAL, "device options of %zu bytes", strlen(options));
    memcpy(s->text, options, strlen(options) + 1);
    for (char *key = s->text, *next; *key; key = next) {
        next = key + strcspn(key, ",");
        if (*next) *next++ = 0;
        char *value = strchr(key, '=');
        if (!value)
            return rp__fail(err, RP_EINVAL, "device option \"%s\": expected key=value", key);
        *value++ = 0;
        RP_TRY(set_option(s, key, value, err));
    }
    return RP_OK;
}

/* ---- the table ---- */

static rp_status tt_open(const rp_device_config *config, void **self, rp_error *err) {
    settings s = {0};
    *self = NULL;
    RP_TRY(read_settings(config->options, &s, err));
    rp__tt *d = rp__calloc(1, sizeof *d);
    if (!d) return rp__fail(err, RP_ENOMEM, "out of memory for the tenstorrent device");
    rp_status st = rp__ttnn_open(&s.ttnn, &d->ttnn, &d->info, err);
    if (st < 0) {
        rp__free(d);
        return st;
    }
    d->weight_type = s.weight_type;
    d->is_hybrid = s.is_hybrid;
    d->picks_tokens = s.picks_tokens;
    *self = d;
    return RP_OK;
}

static void tt_close(void *self) {
    rp__tt *d = self;
    rp__ttnn_close(d->ttnn);
    rp__free(d->scratch);
    rp__free(d);
}

static void tt_properties(void *self, rp_device_properties *out) {
    const rp__tt *d = self;
    const rp__ttnn_info *i = &d->info;
    snprintf(out->description, sizeof out->description,
             "%.20s %.10s, grid %.10s, ttnn %.16s, Python %.12s, weights %.10s", i->arch, i->kind,
             i->grid, i->ttnn, i->python, d->weight_type);
    out->memory_bytes = i->memory_bytes;
    out->alignment = ALIGNMENT;
    out->n_queues = 1;
    out->has_capture = true;
    out->records_only = true;
    out->hides_temporaries = true;
    out->prompt_align = RP_TT_BLOCK;
    out->advances_positions = true;
    out->picks_tokens = d->picks_tokens;
    /* As others measured it on a P150 driven op by op. */
    if (d->is_hybrid) out->host_rules = "norm:rows<32=host rope:rows<64=host";
}

static rp_status tt_sync(void *self, uint32_t queue, rp_error *err) {
    rp__tt *d = self;
    (void)queue;
    return rp__ttnn_ask(d->ttnn, &(rp__ttnn_call){.function = "sync"}, NULL, 0, err);
}

static const rp_device_api api = {
    .abi = RP_DEVICE_ABI,
    .bytes = sizeof(rp_device_api),
    .name = "tenstorrent",
    .open = tt_open,
    .close = tt_close,
    .properties = tt_properties,
    .alloc = rp__tt_alloc,
    .free = rp__tt_free,
    .write = rp__tt_write,
    .read = rp__tt_read,
    .copy = rp__tt_copy,
    .supports = rp__tt_supports,
    .prepare = rp__tt_prepare,
    .run = rp__tt_run,
    .sync = tt_sync,
    .weight_bytes = rp__tt_weight_bytes,
    .weight_write = rp__tt_weight_write,
    .capture_begin = rp__tt_capture_begin,
    .capture_end = rp__tt_capture_end,
    .capture_abort = rp__tt_capture_abort,
    .replay = rp__tt_replay,
    .graph_destroy = rp__tt_graph_destroy,
    .graph_bytes = rp__tt_graph_bytes,
};

RP_API const rp_device_api *reprise_device(void);
const rp_device_api *reprise_device(void) {
    return &api;
}
