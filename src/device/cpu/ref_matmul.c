/* Reference bodies of all ops that read weights, and of the sum over experts.
 * A weight row is decoded once per worker and used for every row of x: to F32, or for rounded
 * activations into whole numbers. */
#include <string.h>

#include "device/cpu/panel.h"
#include "device/cpu/ref.h"
#include "tensor/blocks.h"

void rp__ref_weight_row(const rp_tensor *w, const void *data, int64_t row, float *dst) {
    size_t row_bytes = rp__tensor_item_bytes(w);
    for (int i = 1; i + 1 < w->n_dims; i++) row_bytes /= (size_t)w->dim[i];
    rp__dtype_to_f32(w->dtype, (const char *)data + (size_t)row * row_bytes, dst,
                     rp__tensor_last(w));
}

static double dot(const float *x, const float *w, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)x[i] * w[i];
    return sum;
}

/* ---- a weight row against rows of x ---- */

static float f16_at(const uint8_t *p) {
    return rp__f16_to_f32((uint16_t)(p[0] | p[1] << 8));
}

/* 32 columns of a row of rounded activations. */
typedef struct ref_factor {
    const int8_t *q, *high; /* digits; high: NULL where there is one per number */
    double d;
    double sum[2]; /* what the min of columns 0..15 and 16..31 multiplies; Q8_1: of all, and 0 */
} ref_factor;

static int16_t i16_at(const uint8_t *p) {
    return (int16_t)(p[0] | p[1] << 8);
}

static ref_factor factor_of(rp_dtype dtype, const uint8_t *x, int64_t chunk) {
    float d;
    if (dtype == RP_Q16) {
        const uint8_t *b = x + chunk * (int64_t)rp__dtype_block_bytes(dtype);
        int32_t sums[2];
        memcpy(&d, b, sizeof d);
        memcpy(sums, b + RP__Q16_SUMS, sizeof sums);
        return (ref_factor){(const int8_t *)b + RP__Q16_LOW,
                            (const int8_t *)b + RP__Q16_HIGH,
                            (double)d,
                            {(double)d * sums[0], (double)d * sums[1]}};
    }
    if (dtype == RP_Q8_K) {
        const uint8_t *b = x + chunk / 8 * (int64_t)rp__dtype_block_bytes(dtype);
        const uint8_t *sums = b + RP__Q8_K_SUMS + chunk % 8 * 4;
        memcpy(&d, b, sizeof d);
        return (ref_factor){(const int8_t *)b + RP__Q8_K_Q + chunk % 8 * 32,
                            NULL,
                            (double)d,
                            {(double)d * i16_at(sums), (double)d * i16_at(sums + 2)}};
    }
    const uint8_t *b = x + chunk * (int64_t)rp__dtype_block_bytes(dtype);
    if (dtype == RP_Q8_0)
        return (ref_factor){(const int8_t *)b + RP__Q8_0_Q, NULL, (double)f16_at(b), {0, 0}};
    return (ref_factor){(const int8_t *)b + RP__Q8_1_Q,
                        NULL,
                        (double)f16_at(b),
                        {(double)f16_at(b + RP__Q8_1_S), 0}};
}

/* The weight's q with its zero point taken off. */
static int whole(rp__panel_traits t, const rp__panel_piece *w, int i) {
    return t.bits == 8 ? (int8_t)w->q[i] : w->q[i] - t.zero;
}

static double dot_group(rp__panel_traits t, const rp__panel_piece *w, const ref_factor *x, int g) {
    double scale = (double)rp__f16_to_f32(w->head[0]), min = (double)rp__f16_to_f32(w->head[1]);
    if (t.is_k) scale *= w->scale[g], min *= w->min[g];
    int sum = 0;
    for (int i = g * t.group; i < (g + 1) * t.group; i++) {
        int q = x->q[i] + (x->high ? RP__Q16_BASE * x->high[i] : 0);
        sum += whole(t, w, i) * q;
    }
    double y = scale * x->d * sum;
    if (!t.has_min) return y;
    return y + min * (t.group == 16 ? x->sum[g] : x->sum[0] + x->sum[1]);
}

static double dot_blocks(rp_dtype w_dtype, const rp__panel_piece *w, rp_dtype x_dtype,
                         const void *x, int64_t k) {
    rp__panel_traits t = rp__panel_traits_of(rp__panel_format_of(w_dtype));
    double y = 0;
    for (int64_t c = 0; c < k / RP__PANEL_CHUNK; c++) {
        ref_factor f = factor_of(x_dtype, x, c);
        for (int g = 0; g < RP__PANEL_CHUNK / t.group; g++) y += dot_group(t, &w[c], &f, g);
    }
    return y;
}

/* Row `row` of a weight in the form that rows of x of this dtype want. */
static void take_row(const rp_tensor *w, const void *data, int64_t row, rp_dtype x_dtype,
                     void *scratch) {
    if (x_dtype == RP_F32) {
        rp__ref_weight_row(w, data, row, scratch);
        return;
    }
    int64_t k = rp__tensor_last(w);
    int64_t row_bytes =
        k / rp__dtype_block_elems(w->dtype) * (int64_t)rp__dtype_block_bytes(w->dtype);
    rp__panel_piece *pieces = scratch;
    for (int64_t c = 0; c < k / RP__PANEL_CHUNK; c++)
        rp__panel_take_piece(w->dtype, (const uint8_t *)data + row * row_bytes, c, &pieces[c]);
}

static double dot_row(const rp_tensor *w, const void *row, rp_dtype x_dtype, const void *x) {
    int64_t k = rp__tensor_last(w);
    return x_dtype == RP_F32 ? dot(x, row, k) : dot_blocks(w->dtype, row, x_dtype, x, k);
}

_Static_assert(sizeof(rp__panel_piece) <= RP__PANEL_CHUNK * sizeof(float),
               "scratch for a row of F32 holds its pieces");

/* ---- bodies ---- */

void rp__ref_embed(const rp__body_args *a) {
    const rp_op *op = a->op;
    int64_t n = op->in[0].dim[1];
    const int32_t *ids = a->in[1];
    float *row = a->scratch;
    double scale = op->p.embed.scale;
    ref_share tokens = ref_split(a, a->n_live);
    for (int64_t t = tokens.from; t < tokens.to; t++) {
        rp__assert(ids[t] >= 0 && ids[t] < op->in[0].dim[0], "id %d of %lld", ids[t],
                   (long long)op->in[0].dim[0]);
        rp__ref_weight_row(&op->in[0], a->in[0], ids[t], row);
        float *y = ref_item_out(&op->out[0], a->out[0], t);
        for (int64_t e = 0; e < n; e++) y[e] = (float)(scale * row[e]);
    }
}

void rp__ref_matmul(const rp__body_args *a) {
    const rp_op *op = a->op;
    rp_dtype x_dtype = op->in[0].dtype;
    const float *bias = op->n_in > 2 && op->in[2].n_dims ? a->in[2] : NULL;
    bool has_add = op->n_in > 3 && op->in[3].n_dims;
    ref_share columns = ref_split(a, op->in[1].dim[0]);
    for (int64_t n = columns.from; n < columns.to; n++) {
        take_row(&op->in[1], a->in[1], n, x_dtype, a->scratch);
        for (int64_t t = 0; t < a->n_live; t++) {
            const void *x = ref_item(&op->in[0], a->in[0], t);
            double y = dot_row(&op->in[1], a->scratch, x_dtype, x);
            if (bias) y += bias[n];
            if (has_add) y += ((const float *)ref_item(&op->in[3], a->in[3], t))[n];
            ((float *)ref_item_out(&op->out[0], a->out[0], t))[n] = (float)y;
        }
    }
}

/* x has one row per token, or one per token and choice. */
void rp__ref_expert_matmul(const rp__body_args *a) {
    const rp_op *op = a->op;
    const rp_tensor *tx = &op->in[0], *tw = &op->in[1], *tids = &op->in[2];
    int64_t n_choices = tids->dim[1], n_rows = tw->dim[1];
    size_t row_bytes = rp__tensor_item_bytes(tx) / (size_t)(tx->n_dims == 3 ? n_choices : 1);
    ref_share columns = ref_split(a, n_rows);
    for (int64_t t = 0; t < a->n_live; t++) {
        const int32_t *ids = ref_item(tids, a->in[2], t);
        const char *x = ref_item(tx, a->in[0], t);
        float *y = ref_item_out(&op->out[0], a->out[0], t);
        for (int64_t c = 0; c < n_choices; c++) {
            rp__assert(ids[c] >= 0 && ids[c] < tw->dim[0], "expert %d of %lld", ids[c],
                       (long long)tw->dim[0]);
            for (int64_t n = columns.from; n < columns.to; n++) {
                take_row(tw, a->in[1], ids[c] * n_rows + n, tx->dtype, a->scratch);
                y[c * n_rows + n] = (float)dot_row(tw, a->scratch, tx->dtype, x);
            }
            if (tx->n_dims == 3) x += row_bytes;
        }
    }
}

void rp__ref_expert_sum(const rp__body_args *a) {
    const rp_op *op = a->op;
    int64_t n_choices = op->in[0].dim[1], n = op->in[0].dim[2];
    ref_share tokens = ref_split(a, a->n_live);
    for (int64_t t = tokens.from; t < tokens.to; t++) {
        const float *x = ref_item(&op->in[0], a->in[0], t);
        const float *weights = ref_item(&op->in[1], a->in[1], t);
        float *y = ref_item_out(&op->out[0], a->out[0], t);
        for (int64_t e = 0; e < n; e++) {
            double sum = 0;
            for (int64_t c = 0; c < n_choices; c++) sum += (double)weights[c] * x[c * n + e];
            y[e] = (float)sum;
        }
    }
}
