/* Runs cases on a machine: placing, comparing, and the table of tolerances. */
#include "op/corpus.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/map.h"
#include "device/op.h"
#include "tensor/dtype.h"
#include "tensor/view.h"
#include "test.h"

/* Allowed |found - wanted| as a part of `mag`. Columns: F32 throughout; double accumulation, where
 * 2^-24 is the one rounding of a result; activations rounded by matmuls. */
static const double tolerance[N_TOLS][N_PRECISIONS] = {
    [TOL_BITS] = {0, 0, 0},
    [TOL_ROUNDED] = {1.2e-7, 6.0e-8, 1.2e-7},
    /* F32 exp and tanh by polynomials: a few units of the last place of the larger operand */
    [TOL_FUNCTION] = {1.0e-6, 6.0e-8, 1.0e-6},
    /* the sum of squares in F32, in a few interleaved partial sums; the double column has the
     * rounded sum x + r as well */
    [TOL_NORM] = {1.0e-6, 1.3e-7, 1.0e-6},
    /* scores in F32, whose absolute error exp turns into a relative one */
    [TOL_ATTENTION] = {4.0e-6, 6.0e-8, 4.0e-6},
    /* mag is |w| max|x| (cases_weights.c): F32 partial sums of up to 4096 terms */
    [TOL_MATMUL_FLOAT] = {4.0e-6, 6.0e-8, 4.0e-6},
    /* x to BF16: 2^-9 each, evenly spread: 7e-4 of mag in the mean; six times that */
    [TOL_MATMUL_BF16] = {4.0e-6, 6.0e-8, 4.0e-3},
    /* x to 8 bits of the row's largest: steps of max|x| / 127, an error of a step / sqrt(12) in the
     * mean, 2.3e-3 of mag; six times that */
    [TOL_MATMUL_BLOCK] = {4.0e-6, 6.0e-8, 1.4e-2},
    /* mag is the sum of the sizes of all groups' parts (cases_q8.c), which no partial sum exceeds:
     * three roundings of 2^-24 per part, each of a partial sum much smaller than all */
    [TOL_MATMUL_WHOLE] = {5.0e-7, 6.0e-8, 5.0e-7},
};

enum { N_SHOWN = 8, GAP_FILL = 0xA5 };

static void RP_PRINTF(3, 4)
    complain(const corpus_machine *m, const corpus_case *c, const char *fmt, ...) {
    char why[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    if (!m->is_quiet) print_error("%s: %s: %s\n", m->name, c->name, why);
}

/* ---- placing ---- */

/* Items [from, from + n) of an operand by rows (n < 0, or not by rows: all), dense or with gaps, as
 * the contents of a buffer. */
static corpus_image place_operand(const corpus_operand *o, rp_tensor *t, int64_t from, int64_t n,
                                  size_t alignment) {
    size_t item = rp__tensor_item_bytes(t);
    if (rp__dtype_is_block(t->dtype) && t->n_dims == 1) abort(); /* no such operand */
    if (o->is_rows && n >= 0)
        t->dim[0] = n;
    else
        from = 0;
    if (o->is_strided) {
        t->stride = item + 5 * rp__dtype_block_bytes(t->dtype);
        t->offset = alignment;
    }
    corpus_image image = {.n = t->offset + rp__tensor_span(t)};
    image.bytes = aligned_alloc(64, (image.n + 64) / 64 * 64); /* also when there is nothing */
    if (!image.bytes) abort();
    memset(image.bytes, GAP_FILL, image.n);
    for (int64_t i = 0; i < t->dim[0]; i++)
        memcpy(image.bytes + t->offset + (size_t)i * t->stride,
               (const char *)o->bytes + (size_t)(from + i) * item, item);
    return image;
}

static void place(const corpus_case *c, int64_t from, int64_t n, size_t alignment,
                  corpus_placed *p) {
    *p = (corpus_placed){.op = c->op, .of = c, .n_live = (int32_t)c->n_live, .first = from};
    for (int j = 0; j < c->op.n_in; j++)
        if (c->op.in[j].n_dims)
            p->in[j] = place_operand(&c->in[j], &p->op.in[j], from, n, alignment);
    for (int i = 0; i < c->op.n_out; i++) {
        int alias = c->out[i].alias;
        if (!c->op.out[i].n_dims) continue;
        if (alias >= 0)
            p->out[i] = p->in[alias], p->op.out[i] = p->op.in[alias];
        else
            p->out[i] = place_operand(&c->out[i], &p->op.out[i], from, n, alignment);
    }
}

static void unplace(corpus_placed *p) {
    for (int i = 0; i < p->op.n_out; i++)
        if (p->of->out[i].alias < 0) free(p->out[i].bytes);
    for (int j = 0; j < p->op.n_in; j++) free(p->in[j].bytes);
}

static const uint8_t *item_at(const corpus_placed *p, int i, int64_t item) {
    return p->out[i].bytes + p->op.out[i].offset + (size_t)item * p->op.out[i].stride;
}

/* ---- comparing ---- */

/* Items of output i that have a meaning: the live ones of outputs by rows, else all. */
static int64_t live_items(const corpus_placed *p, int i) {
    bool is_cut = p->of->out[i].is_rows && p->of->n_live >= 0;
    return is_cut ? p->of->n_live : p->op.out[i].dim[0];
}

static double error_of(double found, double wanted, double mag) {
    if (isnan(wanted)) return isnan(found) ? 0 : INFINITY;
    if (found == wanted) return 0;
    double error = fabs(found - wanted) / mag;
    return isnan(error) ? INFINITY : error;
}

static double decode_one(rp_dtype dtype, const uint8_t *p) {
    if (dtype == RP_I32) {
        int32_t v;
        memcpy(&v, p, sizeof v);
        return v;
    }
    float f;
    rp__dtype_to_f32(dtype, p, &f, 1);
    return f;
}

static bool compare_bytes(corpus_machine *m, const corpus_placed *p, int i) {
    size_t item = rp__tensor_item_bytes(&p->op.out[i]);
    for (int64_t r = 0; r < live_items(p, i); r++) {
        const uint8_t *found = item_at(p, i, r), *want = p->of->out[i].want + (size_t)r * item;
        for (size_t b = 0; b < item; b++)
            if (found[b] != want[b]) {
                complain(m, p->of, "output %d item %lld byte %zu: found %02x, wanted %02x", i,
                         (long long)r, b, found[b], want[b]);
                return false;
            }
    }
    return true;
}

static double allowed_error(const corpus_machine *m, corpus_tol tol) {
    double allowed = tolerance[tol][m->precision];
    if (tol != TOL_BITS) allowed = fmax(allowed, m->coarse.eps);
    return tol == TOL_ATTENTION ? fmax(allowed, m->coarse.attention_eps) : allowed;
}

static bool compare_output(corpus_machine *m, const corpus_placed *p, int i,
                           rp_corpus_result *result) {
    const corpus_case *c = p->of;
    const corpus_operand *o = &c->out[i];
    const rp_tensor *t = &c->op.out[i];
    if (o->want) return compare_bytes(m, p, i);
    double allowed = allowed_error(m, o->tol);
    int64_t n_items = live_items(p, i), n_inner = t->dim[0] ? rp__tensor_elems(t) / t->dim[0] : 0;
    int64_t first = c->has_sink_block && !m->honours_live ? 1 : 0;
    size_t elem = rp__dtype_block_bytes(t->dtype);
    for (int64_t item = first; item < n_items; item++) {
        for (int64_t e = 0; e < n_inner; e++) {
            int64_t at = (p->first + item) * n_inner + e;
            double found = decode_one(t->dtype, item_at(p, i, item) + (size_t)e * elem);
            double error = error_of(found, o->value[at], o->mag ? o->mag[at] : 0);
            double part = error > 0 ? error / allowed : 0;
            if (part > result->worst[o->tol]) result->worst[o->tol] = part;
            if (part <= 1) continue;
            complain(m, c,
                     "output %d item %lld element %lld: found %.9g, wanted %.9g (error %.3g of "
                     "%.3g, allowed %.3g)",
                     i, (long long)item, (long long)e, found, o->value[at], error,
                     o->mag ? o->mag[at] : 0, allowed);
            return false;
        }
    }
    return true;
}

/* Gaps keep their fill, and so do items that are not live where the machine leaves them alone. */
static bool check_untouched(corpus_machine *m, const corpus_placed *p, int i) {
    const corpus_case *c = p->of;
    const rp_tensor *t = &p->op.out[i];
    const corpus_operand *before = c->out[i].alias < 0 ? &c->out[i] : &c->in[c->out[i].alias];
    size_t item = rp__tensor_item_bytes(t);
    for (int64_t r = 0; r < t->dim[0]; r++) {
        const uint8_t *gap = item_at(p, i, r) + item;
        for (size_t b = 0; r + 1 < t->dim[0] && b < t->stride - item; b++)
            if (gap[b] != GAP_FILL) {
                complain(m, c, "output %d: byte %zu behind item %lld was written", i, b,
                         (long long)r);
                return false;
            }
        if (!m->honours_live || r < live_items(p, i)) continue;
        if (memcmp(gap - item, (const char *)before->bytes + (size_t)r * item, item)) {
            complain(m, c, "output %d: item %lld is not live and was written", i, (long long)r);
            return false;
        }
    }
    return true;
}

/* The bits of the live items, one after the other; the caller frees. */
static uint8_t *live_bits(corpus_machine *m, const corpus_placed *p, size_t *n) {
    size_t cap = 0;
    for (int i = 0; i < p->op.n_out; i++) cap += rp__tensor_span(&p->op.out[i]);
    uint8_t *bits = malloc(cap + 1);
    if (!bits) abort();
    *n = 0;
    for (int i = 0; i < p->op.n_out; i++) {
        size_t item = rp__tensor_item_bytes(&p->op.out[i]);
        bool skips_sink = p->of->has_sink_block && !m->honours_live;
        int64_t n_items = p->op.out[i].dim[0], n_live = live_items(p, i);
        for (int64_t r = skips_sink; r < n_items && r < n_live; r++, *n += item)
            memcpy(bits + *n, item_at(p, i, r), item);
    }
    return bits;
}

/* ---- one case ---- */

static bool run_placed(corpus_machine *m, corpus_placed *p, int variant) {
    rp_error err = {0};
    if (m->run(m, p, variant, &err) >= 0) return true;
    complain(m, p->of, "%s: %s", rp_status_name(err.code), err.message);
    return false;
}

static bool same_bits(corpus_machine *m, const corpus_case *c, const void *a, const void *b,
                      size_t n, const char *what, int64_t which) {
    if (!memcmp(a, b, n)) return true;
    complain(m, c, "other bits %s %lld", what, (long long)which);
    return false;
}

/* Row `from` computed alone has the bits it has among all rows, or is right where it may have
 * others. Outputs that are not by rows (caches) must show the row as well, but hold the others'
 * too: they are left to the comparison of the whole. */
static bool run_row(corpus_machine *m, const corpus_case *c, const corpus_placed *all, int64_t from,
                    rp_corpus_result *result) {
    corpus_placed one;
    bool varies = c->op.kind == RP_OP_ATTENTION && m->coarse.attention_varies;
    place(c, from, 1, m->alignment, &one);
    bool ok = run_placed(m, &one, 0);
    for (int i = 0; ok && i < c->op.n_out; i++) {
        if (!c->op.out[i].n_dims || !c->out[i].is_rows) continue;
        ok = varies
                 ? compare_output(m, &one, i, result)
                 : same_bits(m, c, item_at(&one, i, 0), item_at(all, i, from),
                             rp__tensor_item_bytes(&one.op.out[i]), "for a row alone, row", from);
    }
    unplace(&one);
    return ok;
}

/* All rows of few, else the first, a middle one and the last. */
static bool run_rows(corpus_machine *m, const corpus_case *c, const corpus_placed *all,
                     rp_corpus_result *result) {
    int64_t n = c->op.out[0].dim[0];
    if (!c->out[0].is_rows || c->n_live >= 0) return true;
    for (int64_t r = 0; r < n; r++) {
        if (n > 8 && r != 0 && r != n / 2 && r != n - 1) continue;
        if (!run_row(m, c, all, r, result)) return false;
    }
    return true;
}

/* The same sequences laid out elsewhere: `bits` again. */
static bool run_twin(corpus_machine *m, const corpus_case *c, const uint8_t *bits) {
    corpus_case twin;
    if (!rp_corpus_twin(c, &twin)) return true;
    corpus_placed p;
    size_t n;
    place(&twin, 0, -1, m->alignment, &p);
    bool ok = run_placed(m, &p, 0);
    uint8_t *other = live_bits(m, &p, &n);
    ok = ok && same_bits(m, c, bits, other, n, "in other blocks, twin", 0);
    free(other);
    unplace(&p);
    rp_corpus_clear(&twin);
    return ok;
}

/* The first variant is right, and the later ones agree with it. */
bool rp_corpus_run_case(corpus_machine *m, const corpus_case *c, rp_corpus_result *result) {
    corpus_placed p;
    place(c, 0, -1, m->alignment, &p);
    bool ok = run_placed(m, &p, 0);
    for (int i = 0; ok && i < c->op.n_out; i++)
        if (c->op.out[i].n_dims) ok = compare_output(m, &p, i, result) && check_untouched(m, &p, i);
    size_t n;
    uint8_t *bits = live_bits(m, &p, &n);
    if (ok) result->digest = rp__hash_bytes(bits, n, result->digest);
    ok = ok && run_rows(m, c, &p, result) && run_twin(m, c, bits);
    unplace(&p);
    for (int v = 1; ok && v < m->n_variants; v++) {
        place(c, 0, -1, m->alignment, &p);
        ok = run_placed(m, &p, v);
        uint8_t *other = live_bits(m, &p, &n);
        ok = ok && same_bits(m, c, bits, other, n, "from variant", v);
        free(other);
        unplace(&p);
    }
    free(bits);
    return ok;
}

void rp_corpus_run_machine(corpus_machine *m, const char *filter, rp_corpus_result *out) {
    *out = (rp_corpus_result){0};
    for (size_t i = 0; i < rp_corpus_count() && out->n_failed < N_SHOWN; i++) {
        corpus_case c;
        rp_error err = {0};
        rp_corpus_make(i, &c);
        if (!filter || strstr(c.name, filter)) {
            rp__assert(rp__op_check(&c.op, &err) == RP_OK, "%s: %s", c.name, err.message);
            if (!m->supports(m, &c.op))
                out->n_unsupported++;
            else
                out->n_run++, out->n_failed += !rp_corpus_run_case(m, &c, out);
        }
        rp_corpus_clear(&c);
    }
}
