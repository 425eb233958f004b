/* Reference bodies of the norms. The residual sum s = x + r is one F32 addition, so that y is the
 * same whether or not the sum is also an output. */
#include <math.h>

#include "device/cpu/ref.h"

void rp__ref_rms_norm(const rp__body_args *a) {
    const rp_op *op = a->op;
    int64_t n = rp__tensor_last(&op->in[0]);
    const float *w = a->in[1];
    bool has_r = op->n_in > 2 && op->in[2].n_dims, has_sum = op->n_out > 1 && op->out[1].n_dims;
    ref_share rows = ref_split(a, ref_live_rows(&op->out[0], a->n_live));
    for (int64_t i = rows.from; i < rows.to; i++) {
        const float *x = ref_row(&op->in[0], a->in[0], i);
        const float *r = has_r ? ref_row(&op->in[2], a->in[2], i) : NULL;
        float *y = ref_row_out(&op->out[0], a->out[0], i);
        float *sum = has_sum ? ref_row_out(&op->out[1], a->out[1], i) : NULL;
        double squares = 0;
        for (int64_t e = 0; e < n; e++) {
            float s = r ? x[e] + r[e] : x[e];
            squares += (double)s * s;
        }
        double inverse = 1 / sqrt(squares / (double)n + (double)op->p.norm.eps);
        /* y and sum may be x and r: each element is read before either is written. */
        for (int64_t e = 0; e < n; e++) {
            float s = r ? x[e] + r[e] : x[e];
            if (sum) sum[e] = s;
            y[e] = (float)(s * inverse * ((double)w[e] + (op->p.norm.add_one ? 1 : 0)));
        }
    }
}

void rp__ref_layer_norm(const rp__body_args *a) {
    const rp_op *op = a->op;
    int64_t n = rp__tensor_last(&op->in[0]);
    const float *w = a->in[1];
    const float *b = op->n_in > 2 && op->in[2].n_dims ? a->in[2] : NULL;
    double one = op->p.norm.add_one ? 1 : 0;
    ref_share rows = ref_split(a, ref_live_rows(&op->out[0], a->n_live));
    for (int64_t i = rows.from; i < rows.to; i++) {
        const float *x = ref_row(&op->in[0], a->in[0], i);
        float *y = ref_row_out(&op->out[0], a->out[0], i);
        double sum = 0, squares = 0;
        for (int64_t e = 0; e < n; e++) sum += x[e];
        double mean = sum / (double)n;
        for (int64_t e = 0; e < n; e++) squares += (x[e] - mean) * (x[e] - mean);
        double inverse = 1 / sqrt(squares / (double)n + (double)op->p.norm.eps);
        for (int64_t e = 0; e < n; e++)
            y[e] = (float)((x[e] - mean) * inverse * (w[e] + one) + (b ? (double)b[e] : 0));
    }
}
