/* Looking at a model file without loading it: metadata, tensors, memory by purpose. As text or
 * JSON. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/utf8.h"
#include "engine/engine_impl.h"
#include "engine/fit.h"
#include "tensor/dtype.h"

rp_inspect_options rp_inspect_options_default(void) {
    return (rp_inspect_options){.bytes = sizeof(rp_inspect_options), .max_seqs = 1};
}

enum { ARRAY_SHOWN = 6 }; /* items of a long array that are shown */

/* ---- metadata ---- */

static json_t *number_json(const rp__gguf_kv *kv, rp__gguf_type type, uint64_t i) {
    double v = rp__gguf_item_number(kv, i);
    if (type == RP_GGUF_BOOL) return json_boolean(v != 0);
    if (type == RP_GGUF_F32 || type == RP_GGUF_F64) return json_real(v);
    return json_integer((json_int_t)v);
}

static json_t *array_json(const rp__gguf *g, const rp__gguf_kv *kv, bool whole) {
    json_t *out = json_array();
    uint64_t n = whole || kv->n <= ARRAY_SHOWN ? kv->n : ARRAY_SHOWN;
    char key[256];
    snprintf(key, sizeof key, "%.*s", (int)(kv->key.n < 255 ? kv->key.n : 255), kv->key.p);
    if (kv->item_type == RP_GGUF_STRING) {
        rp__str *strings = NULL;
        size_t n_strings = 0;
        if (rp__gguf_strings(g, key, &strings, &n_strings, NULL) == RP_OK)
            for (uint64_t i = 0; i < n && i < n_strings; i++) {
                json_t *s = json_stringn(strings[i].p, strings[i].n);
                json_array_append_new(out, s ? s : json_string("(not UTF-8)"));
            }
        rp__free(strings);
    } else if (kv->item_type != RP_GGUF_ARRAY) {
        for (uint64_t i = 0; i < n; i++)
            json_array_append_new(out, number_json(kv, kv->item_type, i));
    }
    if (n < kv->n) {
        char more[48];
        snprintf(more, sizeof more, "... %llu in all", (unsigned long long)kv->n);
        json_array_append_new(out, json_string(more));
    }
    return out;
}

static json_t *value_json(const rp__gguf *g, const rp__gguf_kv *kv, bool whole) {
    if (kv->type == RP_GGUF_ARRAY) return array_json(g, kv, whole);
    if (kv->type != RP_GGUF_STRING) return number_json(kv, kv->type, 0);
    char key[256];
    rp__str s;
    snprintf(key, sizeof key, "%.*s", (int)(kv->key.n < 255 ? kv->key.n : 255), kv->key.p);
    if (rp__gguf_str(g, key, &s, NULL) != RP_OK) return json_null();
    json_t *v = json_stringn(s.p, s.n);
    return v ? v : json_string("(not UTF-8)");
}

static json_t *metadata_json(const rp__checkpoint *c, bool show_vocab) {
    if (!c->gguf) return json_deep_copy(c->config);
    json_t *out = json_object();
    for (size_t i = 0; i < rp__gguf_n_kv(c->gguf); i++) {
        const rp__gguf_kv *kv = rp__gguf_kv_at(c->gguf, i);
        json_object_setn_new(out, kv->key.p, kv->key.n, value_json(c->gguf, kv, show_vocab));
    }
    return out;
}

static json_t *tensors_json(const rp__checkpoint *c) {
    json_t *out = json_array();
    rp__checkpoint_tensor t;
    for (size_t i = 0; i < rp__checkpoint_n_tensors(c); i++) {
        if (!rp__checkpoint_tensor_at(c, i, &t)) continue;
        json_t *dims = json_array();
        for (int d = 0; d < t.n_dims; d++) json_array_append_new(dims, json_integer(t.dim[d]));
        json_array_append_new(out, json_pack("{s:o, s:s, s:o, s:I}", "name",
                                             json_stringn(t.name.p, t.name.n), "dtype",
                                             rp__dtype_name(t.dtype), "shape", dims, "bytes",
                                             (json_int_t)t.bytes));
    }
    return out;
}

/* ---- memory ---- */

static rp_engine_options engine_options(const rp_inspect_options *o) {
    rp_engine_options e = rp_engine_options_default();
    e.n_ctx = o->n_ctx;
    e.max_seqs = o->max_seqs > 0 ? o->max_seqs : 1;
    e.cache_type_k = o->cache_type_k;
    e.cache_type_v = o->cache_type_v;
    return e;
}

static json_t *memory_json(const rp__fit *f) {
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "context",
                     (json_int_t)f->n_ctx, "sequences", (json_int_t)f->n_seqs, "weights",
                     (json_int_t)f->weights, "kv_cache", (json_int_t)f->kv_cache, "arena",
                     (json_int_t)f->arena, "inputs_outputs", (json_int_t)f->inputs_outputs,
                     "graphs", (json_int_t)f->graphs, "total", (json_int_t)f->need, "available",
                     (json_int_t)f->available, "host", (json_int_t)f->host);
}

static rp_status plan_memory(const rp__checkpoint *c, rp_device *device,
                             const rp_inspect_options *o, json_t *out, rp_error *err) {
    rp__model *m = NULL;
    rp__stepper s;
    rp_engine_options e = engine_options(o);
    RP_TRY(rp__plan_engine(c, device, &e, &m, &s, err));
    rp__fit fit = rp__fit_of(m, &s);
    json_object_set_new(out, "parameters", json_integer(m->weights.n_params));
    json_t *memory = memory_json(&fit);
    if (o->show_fit) {
        json_object_set_new(memory, "device", json_string(rp__device_name(device)));
        json_object_set_new(memory, "fits", json_boolean(fit.fits));
        json_object_set_new(memory, "largest_context",
                            json_integer(rp__fit_largest_ctx(c, device, &e, &fit)));
    }
    json_object_set_new(out, "memory", memory);
    rp__stepper_clear(&s);
    rp__model_destroy(m);
    return RP_OK;
}

/* An architecture that cannot run is still worth looking at: its reason stands where its memory
 * would. */
static rp_status add_memory(const rp__checkpoint *c, const rp_inspect_options *o, json_t *out,
                            rp_error *err) {
    rp_device *device = NULL;
    rp_error why = {0};
    rp_device_config config = {.bytes = sizeof config, .options = o->device_options};
    RP_TRY(rp__device_open(o->device ? o->device : rp__device_name_at(0), &config, &device, err));
    rp_status st = plan_memory(c, device, o, out, &why);
    rp__device_close(device);
    if (st == RP_ENOMEM) {
        if (err) *err = why;
        return st;
    }
    if (st < 0) json_object_set_new(out, "cannot_run", json_string(why.message));
    return RP_OK;
}

/* ---- text ---- */

static int add_dumped(const char *text, size_t n, void *out) {
    return rp__bytes_add(out, text, n) ? 0 : -1;
}

/* A JSON value in one line of at most `max` bytes. */
static void print_value(const json_t *v, size_t max, rp__bytes *out) {
    size_t from = out->n;
    if (json_dump_callback(v, add_dumped, out, JSON_ENCODE_ANY | JSON_COMPACT)) out->failed = true;
    if (out->n <= from + max) return;
    out->n = from + rp__utf8_complete(out->p + from, max);
    rp__bytes_add_str(out, "...");
}

static void print_metadata(const json_t *metadata, rp__bytes *out) {
    const char *key;
    json_t *v;
    rp__bytes_add_str(out, "metadata\n");
    json_object_foreach((json_t *)metadata, key, v) {
        rp__bytes_printf(out, "  %-44s ", key);
        print_value(v, 160, out);
        rp__bytes_add_char(out, '\n');
    }
}

static void print_tensors(const json_t *tensors, rp__bytes *out) {
    json_t *t;
    size_t i;
    rp__bytes_add_str(out, "tensors\n");
    json_array_foreach(tensors, i, t) {
        rp__bytes_printf(out, "  %-44s %-8s %12lld bytes  ",
                         json_string_value(json_object_get(t, "name")),
                         json_string_value(json_object_get(t, "dtype")),
                         (long long)json_integer_value(json_object_get(t, "bytes")));
        print_value(json_object_get(t, "shape"), 160, out);
        rp__bytes_add_char(out, '\n');
    }
}

static void print_fit(const json_t *memory, rp__bytes *out) {
    const json_t *fits = json_object_get(memory, "fits");
    if (!fits) return;
    rp__bytes_printf(out, "%s on %s: needs %lld bytes, %lld are available\n",
                     json_is_true(fits) ? "fits" : "does not fit",
                     json_string_value(json_object_get(memory, "device")),
                     (long long)json_integer_value(json_object_get(memory, "total")),
                     (long long)json_integer_value(json_object_get(memory, "available")));
    rp__bytes_printf(out, "largest context that fits with %lld sequence(s): %lld\n",
                     (long long)json_integer_value(json_object_get(memory, "sequences")),
                     (long long)json_integer_value(json_object_get(memory, "largest_context")));
}

static void print_memory(const json_t *report, rp__bytes *out) {
    const json_t *memory = json_object_get(report, "memory"),
                 *cannot = json_object_get(report, "cannot_run");
    if (cannot) rp__bytes_printf(out, "cannot run: %s\n", json_string_value(cannot));
    if (!memory) return;
    static const struct {
        const char *key, *label;
    } rows[] = {{"weights", "weights"},    {"kv_cache", "KV cache"},
                {"arena", "arena"},        {"inputs_outputs", "step inputs, outputs"},
                {"graphs", "graphs"},      {"total", "total"},
                {"available", "available"},
                {"host", "beside it, on the host"}};
    rp__bytes_printf(out, "parameters  %lld\nmemory for %lld sequence(s) of %lld positions\n",
                     (long long)json_integer_value(json_object_get(report, "parameters")),
                     (long long)json_integer_value(json_object_get(memory, "sequences")),
                     (long long)json_integer_value(json_object_get(memory, "context")));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        json_int_t bytes = json_integer_value(json_object_get(memory, rows[i].key));
        if (!bytes && !strcmp(rows[i].key, "host")) continue; /* no op stands there */
        rp__bytes_printf(out, "  %-22s %10.1f MiB\n", rows[i].label, (double)bytes / (1 << 20));
    }
    print_fit(memory, out);
}

static void print_report(const json_t *report, bool show_tensors, rp__bytes *out) {
    rp__bytes_printf(out, "file        %s\nformat      %s\ntensors     %lld, %.1f MiB\n",
                     json_string_value(json_object_get(report, "path")),
                     json_string_value(json_object_get(report, "format")),
                     (long long)json_integer_value(json_object_get(report, "n_tensors")),
                     (double)json_integer_value(json_object_get(report, "tensor_bytes")) /
                         (1 << 20));
    print_memory(report, out);
    print_metadata(json_object_get(report, "metadata"), out);
    if (show_tensors) print_tensors(json_object_get(report, "tensors"), out);
}

/* ---- putting together ---- */

static rp_status make_report(const rp__checkpoint *c, const rp_inspect_options *o, json_t *out,
                             rp_error *err) {
    json_int_t bytes = 0;
    rp__checkpoint_tensor t;
    for (size_t i = 0; i < rp__checkpoint_n_tensors(c); i++)
        if (rp__checkpoint_tensor_at(c, i, &t)) bytes += (json_int_t)t.bytes;
    json_object_set_new(out, "path", json_string(c->path));
    json_object_set_new(out, "format", json_string(c->gguf ? "GGUF" : "Hugging Face folder"));
    json_object_set_new(out, "n_tensors", json_integer((json_int_t)rp__checkpoint_n_tensors(c)));
    json_object_set_new(out, "tensor_bytes", json_integer(bytes));
    RP_TRY(add_memory(c, o, out, err));
    json_object_set_new(out, "metadata", metadata_json(c, o->show_vocab));
    if (o->show_tensors) json_object_set_new(out, "tensors", tensors_json(c));
    return RP_OK;
}

static rp_status report_text(const json_t *report, const rp_inspect_options *o, char **text,
                             rp_error *err) {
    rp__bytes out = {0};
    if (o->as_json) {
        if (json_dump_callback(report, add_dumped, &out, JSON_INDENT(2))) out.failed = true;
        rp__bytes_add_char(&out, '\n');
    } else {
        print_report(report, o->show_tensors, &out);
    }
    *text = out.failed ? NULL : rp__bytes_take(&out);
    rp__bytes_clear(&out);
    return *text ? RP_OK : rp__fail(err, RP_ENOMEM, "out of memory for the report");
}

rp_status rp_inspect(const rp_inspect_options *o, char **text, rp_error *err) {
    char *path;
    rp__checkpoint *c = NULL;
    *text = NULL;
    if (!o->model) return rp__fail(err, RP_EINVAL, "no model was given");
    RP_TRY(rp__model_path(o->model, &path, err));
    rp_status st = rp__checkpoint_open(path, &c, err);
    rp__free(path);
    RP_TRY(st);
    json_t *report = json_object();
    st = report ? make_report(c, o, report, err)
                : rp__fail(err, RP_ENOMEM, "out of memory for the report");
    if (st >= 0) st = report_text(report, o, text, err);
    json_decref(report);
    rp__checkpoint_close(c);
    return st;
}
