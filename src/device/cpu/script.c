#include "device/cpu/script.h"

#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "device/cpu/panel.h"
#include "device/op.h"
#include "tensor/view.h"

/* Bytes an op touches. */
typedef struct access {
    uintptr_t from, to;
    bool is_write, by_all; /* by_all: any worker may have touched it; else worker 0 */
} access;

enum { MAX_ACCESSES = RP_OP_MAX_IN + RP_OP_MAX_OUT + 2 };

/* A long step is cut into lots, one per worker where there are not more workers, and a lot into
 * pieces: who has taken all of the own lot goes on with those of others. Even pieces are for ops
 * whose parts differ; else each takes half of what is left for a worker, so that there are few, and
 * the last ones, which are what others may have to wait for, are small. */
enum { MAX_LOTS = 8, EVEN_EACH = 4, HALVED_EACH = 32, MAX_PIECES = 128 };

typedef enum cut_kind { CUT_NOT, CUT_EVEN, CUT_HALVED, N_CUTS } cut_kind;

typedef struct cut { /* of each lot */
    unsigned n_pieces;
    unsigned at[MAX_PIECES + 1]; /* piece p: units [at[p], at[p + 1]) */
} cut;

/* Where a worker but the first finds an operand: that many bytes into memory of its own. */
enum { AT_HOME = -1, OWN_BYTES = 1 << 17 };

typedef struct step {
    rp__body_fn fn; /* NULL: copy n_bytes from in[0] to out[0] */
    rp_op op;
    const void *in[RP_OP_MAX_IN];
    void *out[RP_OP_MAX_OUT];
    const int32_t *live; /* NULL: all items */
    size_t n_bytes;
    bool is_split, has_barrier;
    bool is_repeated; /* every worker runs all of it for itself */
    int32_t own_in[RP_OP_MAX_IN], own_out[RP_OP_MAX_OUT]; /* or AT_HOME */
    rp__body_fn finish; /* of a split step in two phases; a barrier parts them */
    cut_kind cut;       /* CUT_NOT: each worker has one part, its own */
    /* Grows by one for every piece taken and for every worker that finds none left: by the same in
     * every run, so that nobody needs to set it back. */
    atomic_uint n_taken[MAX_LOTS];
    size_t soon; /* where there is a barrier: the step whose weights are wanted next, or NO_STEP */
} step;

/* What workers but the first have a copy of: bytes that worker 0 has at `from`. */
typedef struct own_copy {
    uintptr_t from, to;
    int32_t at;
} own_copy;

enum { MAX_COPIES = 32 };

#define NO_STEP ((size_t)-1)

struct rp__script {
    const rp__body_set *set;
    step *steps;
    size_t n_steps, steps_cap;
    size_t scratch_each, shared, n_barriers, n_split;
    unsigned n_runs; /* since it was compiled, with the one under way */
    unsigned n_lots;
    cut cuts[N_CUTS];
    size_t own_bytes; /* of each worker, before its scratch */
    /* while compiling */
    access *seen; /* since the last barrier */
    size_t n_seen, seen_cap;
    own_copy copies[MAX_COPIES];
    int n_copies;
    size_t own_used;
};

/* ---- scratch ---- */

static bool round_up(size_t n, size_t *out) {
    if (!rp__add_ok(n, 63, out)) return false;
    *out &= ~(size_t)63;
    return true;
}

bool rp__scratch_reserve(rp__scratch *s, size_t each, size_t shared) {
    size_t total;
    if (each <= s->each && shared <= s->shared) return true;
    if (!round_up(each > s->each ? each : s->each, &each)) return false;
    if (!round_up(shared > s->shared ? shared : s->shared, &shared)) return false;
    if (!rp__mul_ok(each, (size_t)s->n_workers, &total)) return false;
    if (!rp__add_ok(total, shared, &total)) return false;
    char *bytes = rp__alloc_aligned(64, total);
    if (!bytes) return false;
    rp__free(s->bytes);
    s->bytes = bytes;
    s->each = each;
    s->shared = shared;
    return true;
}

void rp__scratch_clear(rp__scratch *s) {
    rp__free(s->bytes);
    s->bytes = NULL;
    s->each = s->shared = 0;
}

/* ---- building ---- */

rp_status rp__script_create(const rp__body_set *set, rp__script **out, rp_error *err) {
    *out = rp__calloc(1, sizeof **out);
    if (!*out) return rp__fail(err, RP_ENOMEM, "cpu: no memory for a script");
    (*out)->set = set;
    return RP_OK;
}

void rp__script_destroy(rp__script *s) {
    if (!s) return;
    rp__free(s->steps);
    rp__free(s->seen);
    rp__free(s);
}

void rp__script_reset(rp__script *s) {
    s->n_steps = s->n_barriers = s->n_split = s->scratch_each = s->shared = s->own_bytes = 0;
}

static void forget_own(step *st) {
    for (int i = 0; i < RP_OP_MAX_IN; i++) st->own_in[i] = AT_HOME;
    for (int i = 0; i < RP_OP_MAX_OUT; i++) st->own_out[i] = AT_HOME;
}

static step *add_step(rp__script *s, rp_error *err) {
    if (s->n_steps == s->steps_cap) {
        size_t cap = s->steps_cap ? s->steps_cap * 2 : 1;
        step *steps = rp__realloc_array(s->steps, cap, sizeof *steps);
        if (!steps) {
            rp__fail(err, RP_ENOMEM, "cpu: no memory for a script of %zu steps", cap);
            return NULL;
        }
        s->steps = steps;
        s->steps_cap = cap;
    }
    step *st = &s->steps[s->n_steps++];
    memset(st, 0, sizeof *st);
    forget_own(st);
    return st;
}

static void *address(const rp_tensor *t) {
    return t->buffer ? (char *)t->buffer->handle + t->offset : NULL;
}

rp_status rp__script_add(rp__script *s, const rp_op *op, rp_error *err) {
    step *st = add_step(s, err);
    if (!st) return RP_ENOMEM;
    st->op = *op;
    st->op.label = NULL; /* borrowed: not ours to keep */
    st->fn = s->set->fn[op->kind];
    if (!st->fn) st->fn = rp__body_reference.fn[op->kind];
    for (int i = 0; i < op->n_in; i++) st->in[i] = address(&op->in[i]);
    for (int i = 0; i < op->n_out; i++) st->out[i] = address(&op->out[i]);
    st->live = address(&op->live);
    size_t scratch = rp__body_scratch(op);
    if (scratch > s->scratch_each) s->scratch_each = scratch;
    return RP_OK;
}

rp_status rp__script_add_copy(rp__script *s, void *dst, const void *src, size_t n, rp_error *err) {
    step *st = add_step(s, err);
    if (!st) return RP_ENOMEM;
    st->in[0] = src;
    st->out[0] = dst;
    st->n_bytes = n;
    return RP_OK;
}

/* ---- compiling ---- */

static access access_of(const rp_tensor *t, const void *at, bool is_write, bool by_all) {
    size_t n = t->is_weight && rp__panel_wants(t) ? rp__panel_bytes(t) : rp__tensor_span(t);
    return (access){(uintptr_t)at, (uintptr_t)at + n, is_write, by_all};
}

static int accesses_of(const step *st, access *out) {
    int n = 0;
    if (!st->fn) {
        out[n++] = (access){(uintptr_t)st->in[0], (uintptr_t)st->in[0] + st->n_bytes, false, false};
        out[n++] =
            (access){(uintptr_t)st->out[0], (uintptr_t)st->out[0] + st->n_bytes, true, false};
        return n;
    }
    bool by_all = st->is_split || st->is_repeated;
    for (int i = 0; i < st->op.n_in; i++)
        if (st->in[i])
            out[n++] =
                access_of(&st->op.in[i], st->in[i], false, by_all && st->own_in[i] == AT_HOME);
    for (int i = 0; i < st->op.n_out; i++)
        if (st->out[i]) out[n++] = access_of(&st->op.out[i], st->out[i], true, st->is_split);
    if (st->live) out[n++] = access_of(&st->op.live, st->live, false, by_all);
    /* The shared scratch, wherever it may be when the script runs: at an address that nothing has.
     */
    if (st->finish) out[n++] = (access){0, 1, true, true};
    return n;
}

static bool clashes(const access *a, const access *b) {
    if (!a->by_all && !b->by_all) return false; /* both on worker 0, which keeps its own order */
    if (!a->is_write && !b->is_write) return false;
    return a->from < b->to && b->from < a->to;
}

/* Element operations from which splitting pays: a wake-up or two barriers take about as long as
 * some thousand. */
enum { SPLIT_FROM = 8192 };

static int64_t work_of(const rp_op *op) {
    const rp_tensor *out = &op->out[0];
    switch (op->kind) {
    case RP_OP_MATMUL:
        return rp__tensor_elems(&op->in[0]) * op->in[1].dim[0];
    case RP_OP_EXPERT_MATMUL:
        return rp__tensor_elems(out) * rp__tensor_last(&op->in[1]);
    case RP_OP_ATTENTION:
        return SPLIT_FROM; /* depends on positions, known only when it runs */
    case RP_OP_KV_WRITE:
        return rp__tensor_elems(&op->in[0]) * 2;
    case RP_OP_ARGMAX:
    case RP_OP_TOPK:
    case RP_OP_SAMPLE:
        return op->in[0].dim[0] > 1 ? rp__tensor_elems(&op->in[0]) : 0;
    default:
        return rp__tensor_elems(out);
    }
}

/* Cores differ in speed, and other programs take time from one of them. The first lot is a worker's
 * own so that the rows it works on stay in its cache. A step in two phases is shared out alike in
 * both. */
static cut_kind cut_of(const step *st) {
    enum { LONG_FROM = 1 << 20 }; /* element operations: some ten microseconds */
    if (!st->is_split || st->finish) return CUT_NOT;
    if (st->op.kind == RP_OP_ATTENTION) return CUT_EVEN;
    return work_of(&st->op) >= LONG_FROM ? CUT_HALVED : CUT_NOT;
}

static void make_cuts(rp__script *s, int n_workers) {
    cut *even = &s->cuts[CUT_EVEN], *halved = &s->cuts[CUT_HALVED];
    s->n_lots = n_workers < MAX_LOTS ? (unsigned)n_workers : MAX_LOTS;
    unsigned each = ((unsigned)n_workers + s->n_lots - 1) / s->n_lots; /* workers per lot */
    even->n_pieces = each * EVEN_EACH < MAX_PIECES ? each * EVEN_EACH : MAX_PIECES;
    for (unsigned p = 0; p <= even->n_pieces; p++) even->at[p] = p;
    const unsigned n = each * HALVED_EACH;
    halved->n_pieces = 0;
    for (unsigned at = 0; at < n && halved->n_pieces < MAX_PIECES;) {
        halved->at[halved->n_pieces++] = at;
        at += (n - at + 2 * each - 1) / (2 * each);
    }
    halved->at[halved->n_pieces] = n;
}

/* ---- steps that every worker repeats ----
 *
 * Between two split steps stand small ones: a norm, a rounding. When worker 0 alone runs them the
 * others wait at a barrier before and one after. When each runs them for itself, the second barrier
 * goes: worker 0 writes the real output, the others a copy of their own, and read that one as long
 * as nobody writes the real one again. */

static bool overlap(uintptr_t from, uintptr_t to, const access *a) {
    return from < a->to && a->from < to;
}

static access home_of(const rp_tensor *t, const void *at) {
    return access_of(t, at, false, false);
}

static bool is_repeatable(const step *st) {
    static const bool kinds[RP_N_OPS] = {
        [RP_OP_EMBED] = true,   [RP_OP_RMS_NORM] = true,    [RP_OP_LAYER_NORM] = true,
        [RP_OP_ROPE] = true,    [RP_OP_GATED] = true,       [RP_OP_ACT] = true,
        [RP_OP_ADD] = true,     [RP_OP_MUL] = true,         [RP_OP_SCALE] = true,
        [RP_OP_SOFTCAP] = true, [RP_OP_GATHER_ROWS] = true, [RP_OP_CONVERT] = true,
    };
    if (!st->fn || st->is_split || !kinds[st->op.kind]) return false;
    for (int o = 0; o < st->op.n_out; o++) {
        access y = home_of(&st->op.out[o], st->out[o]);
        for (int i = 0; i < st->op.n_in; i++) { /* in place: worker 0 changes what others read */
            access x = home_of(&st->op.in[i], st->in[i]);
            if (st->in[i] && st->own_in[i] == AT_HOME && overlap(x.from, x.to, &y)) return false;
        }
    }
    return true;
}

/* Inputs that workers have copies of. */
static void find_copies(const rp__script *s, step *st) {
    forget_own(st);
    for (int i = 0; st->fn && s->n_copies && i < st->op.n_in; i++) {
        access x = home_of(&st->op.in[i], st->in[i]);
        for (int c = 0; c < s->n_copies; c++)
            if (st->in[i] && s->copies[c].from == x.from && s->copies[c].to == x.to)
                st->own_in[i] = s->copies[c].at;
    }
}

/* What the step writes is in nobody's copies any more. */
static void drop_copies(rp__script *s, const access *a, int n) {
    for (int i = 0; i < n; i++)
        for (int c = 0; a[i].is_write && c < s->n_copies;)
            if (overlap(s->copies[c].from, s->copies[c].to, &a[i]))
                s->copies[c] = s->copies[--s->n_copies];
            else
                c++;
}

/* False: no room. */
static bool place_copies(rp__script *s, step *st) {
    if (s->n_copies + st->op.n_out > MAX_COPIES) return false;
    for (int o = 0; o < st->op.n_out; o++) {
        access y = home_of(&st->op.out[o], st->out[o]);
        size_t n = (y.to - y.from + 63) & ~(size_t)63;
        if (n > OWN_BYTES - s->own_used) return false;
        st->own_out[o] = (int32_t)s->own_used;
        s->own_used += n;
        s->copies[s->n_copies++] = (own_copy){y.from, y.to, st->own_out[o]};
    }
    if (s->own_used > s->own_bytes) s->own_bytes = s->own_used;
    return true;
}

/* Where there is no room worker 0 runs the step alone, and the copies so far are forgotten: a
 * worker that comes to the next is through with them. */
static void decide_repeat(rp__script *s, step *st) {
    access a[MAX_ACCESSES];
    find_copies(s, st);
    st->is_repeated = is_repeatable(st);
    drop_copies(s, a, accesses_of(st, a));
    if (!st->is_repeated || place_copies(s, st)) return;
    s->n_copies = 0, s->own_used = 0;
    st->is_repeated = false;
    forget_own(st);
}

/* The matmul that comes next, a few steps on at most: while a worker waits it asks for the weights
 * it will read first. */
static size_t find_soon(const rp__script *s, size_t i) {
    enum { STEPS = 8 };
    for (size_t j = i; j < s->n_steps && j < i + STEPS; j++) {
        const step *st = &s->steps[j];
        if (!st->fn || st->op.kind != RP_OP_MATMUL) continue;
        const rp_tensor *w = &st->op.in[1];
        if (w->is_weight && w->n_dims == 2 && rp__panel_wants(w)) return j;
    }
    return NO_STEP;
}

static bool add_seen(rp__script *s, const access *a, int n) {
    if (s->n_seen + (size_t)n > s->seen_cap) {
        size_t cap = s->seen_cap ? s->seen_cap * 2 : 64;
        access *seen = rp__realloc_array(s->seen, cap, sizeof *seen);
        if (!seen) return false;
        s->seen = seen;
        s->seen_cap = cap;
    }
    memcpy(s->seen + s->n_seen, a, (size_t)n * sizeof *a);
    s->n_seen += (size_t)n;
    return true;
}

static bool needs_barrier(const rp__script *s, const access *a, int n) {
    for (int i = 0; i < n; i++)
        for (size_t j = 0; j < s->n_seen; j++)
            if (clashes(&a[i], &s->seen[j])) return true;
    return false;
}

rp_status rp__script_compile(rp__script *s, int n_workers, rp_error *err) {
    s->n_seen = s->n_barriers = s->n_split = s->own_used = s->own_bytes = 0;
    s->n_runs = s->n_copies = 0;
    make_cuts(s, n_workers);
    for (size_t i = 0; i < s->n_steps; i++) {
        step *st = &s->steps[i];
        access a[MAX_ACCESSES];
        st->is_split = n_workers > 1 && st->fn && work_of(&st->op) >= SPLIT_FROM;
        s->n_split += st->is_split;
        st->finish = NULL;
        if (st->is_split && s->set->fn[st->op.kind] && rp__body_shared(&st->op) > 0)
            st->finish = s->set->finish[st->op.kind];
        if (st->finish && rp__body_shared(&st->op) > s->shared)
            s->shared = rp__body_shared(&st->op);
        st->cut = cut_of(st);
        st->soon = NO_STEP;
        for (int lot = 0; lot < MAX_LOTS; lot++) atomic_init(&st->n_taken[lot], 0);
        st->has_barrier = false;
        st->is_repeated = false;
        forget_own(st);
        if (n_workers == 1 || s->n_steps == 1) continue; /* nothing to wait for */
        decide_repeat(s, st);
        int n = accesses_of(st, a);
        if (needs_barrier(s, a, n)) {
            st->has_barrier = true;
            st->soon = find_soon(s, i);
            s->n_barriers++;
            s->n_seen = 0;
        }
        if (!add_seen(s, a, n))
            return rp__fail(err, RP_ENOMEM, "cpu: no memory to compile a script");
    }
    rp__free(s->seen);
    s->seen = NULL;
    s->n_seen = s->seen_cap = 0;
    return RP_OK;
}

/* ---- running ---- */

typedef struct run {
    const rp__script *script;
    rp__pool *pool;
    const rp__scratch *scratch;
    int n_workers;
} run;

static int64_t live_rows(const step *st) {
    int64_t all = rp__op_rows(&st->op);
    if (!st->live) return all;
    return *st->live < 0 ? 0 : *st->live < all ? *st->live : all;
}

static void use_copies(const step *st, char *own, rp__body_args *a) {
    for (int i = 0; i < st->op.n_in; i++)
        if (st->own_in[i] != AT_HOME) a->in[i] = own + st->own_in[i];
    for (int i = 0; i < st->op.n_out; i++)
        if (st->own_out[i] != AT_HOME) a->out[i] = own + st->own_out[i];
}

/* Units [from, to) of `of`, with the scratch of the worker that runs them. */
static void run_part(const run *r, const step *st, rp__body_fn fn, int worker, bool is_again,
                     unsigned from, unsigned to, unsigned of) {
    if (!fn) {
        memmove(st->out[0], st->in[0], st->n_bytes);
        return;
    }
    rp__body_args a = {.op = &st->op,
                       .n_live = live_rows(st),
                       .from = (int)from,
                       .to = (int)to,
                       .of = (int)of,
                       .n_workers = r->n_workers,
                       .is_again = is_again};
    memcpy(a.in, st->in, sizeof a.in);
    memcpy(a.out, st->out, sizeof a.out);
    const rp__scratch *scratch = r->scratch;
    if (scratch->bytes) {
        char *own = scratch->bytes + (size_t)worker * scratch->each;
        if (worker) use_copies(st, own, &a);
        a.scratch = own + r->script->own_bytes;
    }
    if (st->finish) a.shared = scratch->bytes + (size_t)scratch->n_workers * scratch->each;
    fn(&a);
}

static unsigned own_lot(const run *r, int worker) {
    return (unsigned)worker * r->script->n_lots / (unsigned)r->n_workers;
}

/* True when the worker had a part of the step by then. */
static bool run_lot(const run *r, step *st, unsigned lot, int worker, bool is_again) {
    const rp__script *s = r->script;
    const cut *c = &s->cuts[st->cut];
    const unsigned each = c->at[c->n_pieces], first = each * lot;
    const unsigned before = (s->n_runs - 1) * (c->n_pieces + (unsigned)r->n_workers);
    for (;;) {
        unsigned p = atomic_fetch_add_explicit(&st->n_taken[lot], 1, memory_order_relaxed) - before;
        if (p >= c->n_pieces) return is_again;
        run_part(r, st, st->fn, worker, is_again, first + c->at[p], first + c->at[p + 1],
                 each * s->n_lots);
        is_again = true;
    }
}

static void run_own_part(const run *r, const step *st, rp__body_fn fn, int worker) {
    run_part(r, st, fn, worker, false, (unsigned)worker, (unsigned)worker + 1,
             (unsigned)r->n_workers);
}

static void run_step(const run *r, step *st, int worker) {
    const unsigned n_lots = r->script->n_lots;
    bool is_again = false;
    if (st->cut)
        for (unsigned i = 0; i < n_lots; i++)
            is_again = run_lot(r, st, (own_lot(r, worker) + i) % n_lots, worker, is_again);
    else if (st->is_split)
        run_own_part(r, st, st->fn, worker);
    else if (worker == 0 || st->is_repeated)
        run_part(r, st, st->fn, worker, false, 0, 1, 1);
}

/* Where a worker will begin to read weights, up to a part of a second-level cache. */
static rp__pool_soon soon_of(const run *r, size_t i, int worker) {
    enum { MOST = 128 << 10 };
    if (i == NO_STEP) return (rp__pool_soon){0};
    const step *st = &r->script->steps[i];
    const rp_tensor *w = &st->op.in[1];
    const size_t all = rp__panel_bytes(w), n_panels = (size_t)rp__panel_count(w->dim[0]);
    size_t panel = st->cut ? n_panels * own_lot(r, worker) / r->script->n_lots
                           : n_panels * (size_t)worker / (size_t)r->n_workers;
    size_t from = panel * (all / n_panels);
    return (rp__pool_soon){(const char *)st->in[1] + from, all - from < MOST ? all - from : MOST};
}

static void walk(void *arg, int worker, int n_workers) {
    const run *r = arg;
    rp__pool_soon soon = {0};
    size_t asked_for = NO_STEP;
    (void)n_workers;
    for (size_t i = 0; i < r->script->n_steps; i++) {
        step *st = &r->script->steps[i];
        if (st->has_barrier) {
            if (st->soon != asked_for) asked_for = st->soon, soon = soon_of(r, st->soon, worker);
            rp__pool_barrier(r->pool, worker, &soon);
        }
        run_step(r, st, worker);
        if (st->finish) {
            rp__pool_barrier(r->pool, worker, &soon);
            run_own_part(r, st, st->finish, worker);
        }
    }
}

void rp__script_run(rp__script *s, rp__pool *pool, const rp__scratch *scratch) {
    run r = {s, pool, scratch, s->n_split ? rp__pool_size(pool) : 1};
    s->n_runs++;
    if (s->n_split == 0) /* nobody to wake: a barrier never stands before worker 0 alone */
        walk(&r, 0, r.n_workers);
    else
        rp__pool_run(pool, walk, &r);
}

void rp__script_trim(rp__script *s) {
    step *steps = rp__realloc_array(s->steps, s->n_steps, sizeof *steps);
    if (!steps) return; /* no step, or no smaller block: as good as it was */
    s->steps = steps;
    s->steps_cap = s->n_steps;
}

size_t rp__script_bytes_of(size_t n_steps) {
    return sizeof(rp__script) + n_steps * sizeof(step);
}
size_t rp__script_bytes(const rp__script *s) {
    return rp__script_bytes_of(s->steps_cap);
}
size_t rp__script_shared(const rp__script *s) {
    return s->shared;
}
size_t rp__script_scratch(const rp__script *s) {
    return s->own_bytes + s->scratch_each;
}
size_t rp__script_barriers(const rp__script *s) {
    return s->n_barriers;
}
