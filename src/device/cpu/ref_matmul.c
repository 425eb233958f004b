/* Reference bodies of all ops that read weights, and of the sum over experts.
 * A weight row is decoded to F32 once per worker and used for every row of x. */
#include "device/cpu/ref.h"

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
    int64_t k = op->in[1].dim[1];
    const float *bias = op->n_in > 2 && op->in[2].n_dims ? a->in[2] : NULL;
    bool has_add = op->n_in > 3 && op->in[3].n_dims;
    float *w = a->scratch;
    ref_share columns = ref_split(a, op->in[1].dim[0]);
    for (int64_t n = columns.from; n < columns.to; n++) {
        rp__ref_weight_row(&op->in[1], a->in[1], n, w);
        for (int64_t t = 0; t < a->n_live; t++) {
            double y = dot(ref_item(&op->in[0], a->in[0], t), w, k);
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
    int64_t n_choices = tids->dim[1], n_rows = tw->dim[1], k = tw->dim[2];
    float *w = a->scratch;
    ref_share columns = ref_split(a, n_rows);
    for (int64_t t = 0; t < a->n_live; t++) {
        const int32_t *ids = ref_item(tids, a->in[2], t);
        const float *x = ref_item(tx, a->in[0], t);
        float *y = ref_item_out(&op->out[0], a->out[0], t);
        for (int64_t c = 0; c < n_choices; c++) {
            rp__assert(ids[c] >= 0 && ids[c] < tw->dim[0], "expert %d of %lld", ids[c],
                       (long long)tw->dim[0]);
            const float *row = tx->n_dims == 3 ? x + c * k : x;
            for (int64_t n = columns.from; n < columns.to; n++) {
                rp__ref_weight_row(tw, a->in[1], ids[c] * n_rows + n, w);
                y[c * n_rows + n] = (float)dot(row, w, k);
            }
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
