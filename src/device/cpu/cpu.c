/* The device table over the pool, the bodies and the script. Ops run before `run` returns, so queue
 * order is call order and sync has nothing to do. */
#define _GNU_SOURCE
#include "device/cpu/cpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "device/cpu/limits.h"
#include "device/cpu/panel.h"
#include "device/cpu/script.h"
#include "tensor/view.h"

enum { ALIGNMENT = 64, HUGE_PAGE = 2 << 20, MAX_THREADS = 1024 };

typedef struct cpu {
    const rp__body_set *set;
    rp__pool *pool;
    rp__scratch scratch;
    rp__script *eager;     /* of one step, used again for every op */
    rp__script *recording; /* between capture_begin and its end */
    size_t memory_bytes;
    char model[64];
} cpu;

/* ---- about the machine ---- */

/* The first number on the line of `path` that starts with `key` (NULL: the first line); 0 when
 * there is none. */
static unsigned long long number_in(const char *path, const char *key) {
    char line[256];
    unsigned long long found = 0;
    FILE *f = fopen(path, "re");
    if (!f) return 0;
    while (!found && fgets(line, sizeof line, f)) {
        if (key && strncmp(line, key, strlen(key))) continue;
        found = strtoull(line + (key ? strlen(key) : 0), NULL, 10); /* "max" is 0: no limit */
        if (!key) break;
    }
    fclose(f);
    return found;
}

/* What is available now, within the cgroup's limit (v2, then v1). */
static size_t available_memory(void) {
    unsigned long long n = number_in("/proc/meminfo", "MemAvailable:") * 1024;
    unsigned long long limit = number_in("/sys/fs/cgroup/memory.max", NULL);
    unsigned long long used = number_in("/sys/fs/cgroup/memory.current", NULL);
    if (!limit) {
        limit = number_in("/sys/fs/cgroup/memory/memory.limit_in_bytes", NULL);
        used = number_in("/sys/fs/cgroup/memory/memory.usage_in_bytes", NULL);
    }
    if (limit && limit > used && (!n || limit - used < n)) n = limit - used;
    return (size_t)n;
}

static void read_model(char *out, size_t cap) {
    char line[256];
    snprintf(out, cap, "CPU");
    FILE *f = fopen("/proc/cpuinfo", "re");
    if (!f) return;
    while (fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) || !colon) continue;
        line[strcspn(line, "\n")] = 0;
        snprintf(out, cap, "%s", colon + 1 + (colon[1] == ' '));
        break;
    }
    fclose(f);
}

/* ---- open and close ---- */

/* "key=value,key=value": only isa is known. */
static rp_status parse_options(const char *options, char *isa, size_t cap, rp_error *err) {
    isa[0] = 0;
    for (const char *p = options ? options : ""; *p;) {
        size_t n = strcspn(p, ",");
        if (n > 4 && !strncmp(p, "isa=", 4) && n - 4 < cap) {
            memcpy(isa, p + 4, n - 4);
            isa[n - 4] = 0;
        } else if (n) {
            return rp__fail(err, RP_EINVAL, "cpu: option \"%.*s\" is not known (there is isa=NAME)",
                            (int)(n < 60 ? n : 60), p);
        }
        p += n + (p[n] == ',');
    }
    return RP_OK;
}

static void cpu_close(void *self) {
    cpu *c = self;
    if (!c) return;
    rp__script_destroy(c->recording);
    rp__script_destroy(c->eager);
    rp__scratch_clear(&c->scratch);
    rp__pool_destroy(c->pool);
    rp__free(c);
}

static rp_status open_parts(cpu *c, int n_threads, const char *isa, rp_error *err) {
    RP_TRY(rp__body_choose(isa[0] ? isa : NULL, &c->set, err));
    RP_TRY(rp__script_create(c->set, &c->eager, err));
    return rp__pool_create(n_threads, &c->pool, err);
}

static rp_status cpu_open(const rp_device_config *config, void **self, rp_error *err) {
    char isa[32] = "";
    int n_threads = config ? config->n_threads : 0;
    *self = NULL;
    if (n_threads < 0 || n_threads > MAX_THREADS)
        return rp__fail(err, RP_EINVAL, "cpu: %d threads (0 chooses; at most %d)", n_threads,
                        MAX_THREADS);
    if (n_threads == 0) n_threads = rp__pool_default_size();
    RP_TRY(parse_options(config ? config->options : NULL, isa, sizeof isa, err));
    cpu *c = rp__calloc(1, sizeof *c);
    if (!c) return rp__fail(err, RP_ENOMEM, "cpu: no memory to open");
    c->scratch.n_workers = n_threads;
    rp_status status = open_parts(c, n_threads, isa, err);
    if (status < 0) {
        cpu_close(c);
        return status;
    }
    c->memory_bytes = available_memory();
    read_model(c->model, sizeof c->model);
    *self = c;
    return RP_OK;
}

static void cpu_properties(void *self, rp_device_properties *out) {
    const cpu *c = self;
    int n = rp__pool_size(c->pool);
    *out =
        (rp_device_properties){.memory_bytes = c->memory_bytes,
                               .alignment = ALIGNMENT,
                               .n_queues = 1,
                               .has_live_rows = true,
                               .has_capture = true,
                               .records_only = true,
                               .is_host_memory = true,
                               .graph_base_bytes = rp__script_bytes_of(0),
                               .graph_op_bytes = rp__script_bytes_of(1) - rp__script_bytes_of(0)};
    snprintf(out->description, sizeof out->description, "%s, %d thread%s, ISA %s", c->model, n,
             n == 1 ? "" : "s", c->set->name);
}

/* ---- memory ---- */

static rp_status cpu_alloc(void *self, size_t bytes, void **handle, rp_error *err) {
    (void)self;
    bool is_big = bytes >= 2 * (size_t)HUGE_PAGE;
    *handle = rp__alloc_aligned(is_big ? HUGE_PAGE : ALIGNMENT, bytes);
    if (!*handle) return rp__fail(err, RP_ENOMEM, "cpu: no memory for %zu bytes", bytes);
#ifdef MADV_HUGEPAGE
    if (is_big)
        madvise(*handle, bytes & ~(size_t)(HUGE_PAGE - 1), MADV_HUGEPAGE); /* a hint: may fail */
#endif
    return RP_OK;
}

static void cpu_free(void *self, void *handle) {
    (void)self;
    rp__free(handle);
}

static rp_status cpu_write(void *self, uint32_t queue, void *handle, size_t offset, const void *src,
                           size_t n, rp_error *err) {
    (void)self, (void)queue, (void)err;
    if (n) memcpy((char *)handle + offset, src, n);
    return RP_OK;
}

static rp_status cpu_read(void *self, uint32_t queue, void *handle, size_t offset, void *dst,
                          size_t n, rp_error *err) {
    (void)self, (void)queue, (void)err;
    if (n) memcpy(dst, (const char *)handle + offset, n);
    return RP_OK;
}

static rp_status cpu_copy(void *self, uint32_t queue, void *dst, size_t dst_offset, void *src,
                          size_t src_offset, size_t n, rp_error *err) {
    (void)queue;
    cpu *c = self;
    char *to = (char *)dst + dst_offset, *from = (char *)src + src_offset;
    if (c->recording) return rp__script_add_copy(c->recording, to, from, n, err);
    memmove(to, from, n);
    return RP_OK;
}

/* ---- weights ---- */

/* The reference set reads rows as they are in the file, every other set panels. */
static bool uses_panels(const cpu *c, const rp_tensor *w) {
    return c->set != &rp__body_reference && rp__panel_wants(w);
}

static size_t cpu_weight_bytes(void *self, const rp_tensor *desc) {
    return uses_panels(self, desc) ? rp__panel_bytes(desc) : rp__tensor_span(desc);
}

typedef struct weight_job {
    const rp_tensor *w;
    char *dst;
    const char *src;
    int64_t row, n_rows;
    size_t row_bytes;
} weight_job;

/* Workers take whole panels (of the rows given), so that no two write into one. */
static void write_share(void *arg, int worker, int n_workers) {
    const weight_job *j = arg;
    int64_t step = rp__panel_rows(), n = (j->n_rows + step - 1) / step;
    int64_t from = n * worker / n_workers * step, to = n * (worker + 1) / n_workers * step;
    if (to > j->n_rows) to = j->n_rows;
    if (to > from)
        rp__panel_write(j->w, j->dst, j->row + from, to - from,
                        j->src + (size_t)from * j->row_bytes);
}

static rp_status cpu_weight_write(void *self, const rp_tensor *w, int64_t row, int64_t n_rows,
                                  const void *src, rp_error *err) {
    (void)err;
    cpu *c = self;
    char *dst = (char *)w->buffer->handle + w->offset;
    int64_t n_all = rp__tensor_rows(w);
    size_t row_bytes = n_all ? rp__tensor_span(w) / (size_t)n_all : 0;
    if (n_rows <= 0) return RP_OK;
    if (!uses_panels(c, w)) {
        memcpy(dst + (size_t)row * row_bytes, src, (size_t)n_rows * row_bytes);
        return RP_OK;
    }
    /* A range of rows that starts inside a panel, or an expert whose last panel is part filled, is
     * left to one worker. */
    int64_t rows_each = w->dim[w->n_dims - 2];
    bool is_aligned =
        row % rp__panel_rows() == 0 && (w->n_dims == 2 || rows_each % rp__panel_rows() == 0);
    weight_job job = {w, dst, src, row, n_rows, row_bytes};
    if (is_aligned && n_rows > 4 * rp__panel_rows())
        rp__pool_run(c->pool, write_share, &job);
    else
        write_share(&job, 0, 1);
    return RP_OK;
}

/* ---- ops ---- */

static bool cpu_supports(void *self, const rp_op *op) {
    (void)self;
    return (unsigned)op->kind < RP_N_OPS && rp__body_reference.fn[op->kind];
}

static rp_status reserve(cpu *c, size_t each, size_t shared, rp_error *err) {
    if (rp__scratch_reserve(&c->scratch, each, shared)) return RP_OK;
    return rp__fail(err, RP_ENOMEM,
                    "cpu: no memory for %zu bytes of scratch per worker and %zu for all", each,
                    shared);
}

static rp_status cpu_prepare(void *self, const rp_op *op, rp_error *err) {
    return reserve(self, rp__body_scratch(op), rp__body_shared(op), err);
}

static rp_status cpu_run(void *self, uint32_t queue, const rp_op *op, rp_error *err) {
    (void)queue;
    cpu *c = self;
    if (c->recording) return rp__script_add(c->recording, op, err);
    rp__script_reset(c->eager);
    RP_TRY(rp__script_add(c->eager, op, err));
    RP_TRY(rp__script_compile(c->eager, rp__pool_size(c->pool), err));
    RP_TRY(reserve(c, rp__script_scratch(c->eager), rp__script_shared(c->eager), err));
    rp__script_run(c->eager, c->pool, &c->scratch);
    return RP_OK;
}

static rp_status cpu_sync(void *self, uint32_t queue, rp_error *err) {
    (void)self, (void)queue, (void)err;
    return RP_OK;
}

/* ---- capture ---- */

static rp_status cpu_capture_begin(void *self, uint32_t queue, rp_error *err) {
    (void)queue;
    cpu *c = self;
    return rp__script_create(c->set, &c->recording, err);
}

static void cpu_capture_abort(void *self, uint32_t queue) {
    (void)queue;
    cpu *c = self;
    rp__script_destroy(c->recording);
    c->recording = NULL;
}

static rp_status cpu_capture_end(void *self, uint32_t queue, void **graph, rp_error *err) {
    cpu *c = self;
    *graph = NULL;
    rp_status status = rp__script_compile(c->recording, rp__pool_size(c->pool), err);
    if (status >= 0)
        status = reserve(c, rp__script_scratch(c->recording), rp__script_shared(c->recording), err);
    if (status < 0) {
        cpu_capture_abort(self, queue);
        return status;
    }
    rp__script_trim(c->recording);
    *graph = c->recording;
    c->recording = NULL;
    return RP_OK;
}

static rp_status cpu_replay(void *self, uint32_t queue, void *graph, rp_error *err) {
    (void)queue, (void)err;
    cpu *c = self;
    rp__script_run(graph, c->pool, &c->scratch);
    return RP_OK;
}

static void cpu_graph_destroy(void *self, void *graph) {
    (void)self;
    rp__script_destroy(graph);
}

static size_t cpu_graph_bytes(void *self, void *graph) {
    (void)self;
    return rp__script_bytes(graph);
}

/* ---- limits ---- */

static rp_status cpu_limits(void *self, size_t read_bytes, rp_device_limit_fn on_row, void *user,
                            rp_error *err) {
    const cpu *c = self;
    return rp__cpu_limits(rp__pool_size(c->pool), read_bytes, on_row, user, err);
}

const rp_device_api rp__cpu_api = {
    .abi = RP_DEVICE_ABI,
    .bytes = sizeof(rp_device_api),
    .name = "cpu",
    .open = cpu_open,
    .close = cpu_close,
    .properties = cpu_properties,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .write = cpu_write,
    .read = cpu_read,
    .copy = cpu_copy,
    .supports = cpu_supports,
    .prepare = cpu_prepare,
    .run = cpu_run,
    .sync = cpu_sync,
    .weight_bytes = cpu_weight_bytes,
    .weight_write = cpu_weight_write,
    .capture_begin = cpu_capture_begin,
    .capture_end = cpu_capture_end,
    .capture_abort = cpu_capture_abort,
    .replay = cpu_replay,
    .graph_destroy = cpu_graph_destroy,
    .graph_bytes = cpu_graph_bytes,
    .limits = cpu_limits,
};
