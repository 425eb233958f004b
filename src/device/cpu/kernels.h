/* The fast bodies, written once over simd.h. Included by kernels_<set>.c after it has defined
 *     KERNEL_SET            the rp__body_set to define
 *     KERNEL_NAME           its name
 *     KERNEL_IS_AVAILABLE   the CPUID check
 *     TILE_ROWS             rows of x whose sums one tile keeps in registers
 *     TILE_PANELS           and panels of weights
 *     GEMV_PANELS           panels that one row of x walks side by side, to hide the latency of a
 *                           chain
 *
 * The contract on bits: an output element is one fixed sequence of operations, whatever the number
 * of rows in the op, of workers, and however the work is tiled. */
#ifndef RP_DEVICE_CPU_KERNELS_H
#define RP_DEVICE_CPU_KERNELS_H

#include "base/fail.h"
#include "device/cpu/body.h"
#include "device/cpu/isa.h"
#include "device/cpu/panel.h"
#include "device/cpu/ref.h"
#include "device/cpu/simd.h"
#include "device/cpu/simd_dot.h"
#include "tensor/blocks.h"
#include "tensor/dtype.h"
#include "tensor/view.h"

/* Loops of a constant few turns over arrays of vectors: unrolled whole, the arrays become
 * registers. */
#if defined(__clang__)
#define UNROLL      _Pragma("unroll")
#define UNROLL_FOUR _Pragma("unroll(4)")
#else
#define UNROLL _Pragma("GCC unroll 32")
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define UNROLL_FOUR /* compiling the instrumented loops takes minutes otherwise */
#else
#define UNROLL_FOUR _Pragma("GCC unroll 4")
#endif
#endif

static inline bool has_in(const rp__body_args *a, int i) {
    return i < a->op->n_in && a->op->in[i].n_dims > 0;
}
static inline bool has_out(const rp__body_args *a, int i) {
    return i < a->op->n_out && a->op->out[i].n_dims > 0;
}
static inline int64_t min_i64(int64_t x, int64_t y) {
    return x < y ? x : y;
}
static inline int64_t max_i64(int64_t x, int64_t y) {
    return x > y ? x : y;
}

/* ---- asking for memory before it is wanted ---- */

/* A row of x walks some panels side by side, each a stream of a few pages; the processor's own
 * prefetchers start anew at every page. So lines are asked for this many bytes before they are
 * read, past a panel's end in the panel that is walked after it. Far enough to hide a memory access
 * at full rate, near enough to stay in the first cache. */
enum { FETCH_AHEAD = 4096, LINE = 64 };

V16_INLINE void fetch(const void *p, size_t n) {
    UNROLL for (size_t i = 0; i < n; i += LINE) __builtin_prefetch((const char *)p + i);
}

/* From where a panel stands after `done` of its bytes: where its stream goes on, when n panels are
 * walked at a time. May point behind the weight: asking for that is harmless. */
V16_INLINE size_t fetch_offset(size_t done, size_t panel_bytes, int n) {
    return FETCH_AHEAD + (done + FETCH_AHEAD < panel_bytes ? 0 : (size_t)(n - 1) * panel_bytes);
}

#include "device/cpu/kernel_tile.h"
#include "device/cpu/kernel_matmul.h"
#include "device/cpu/kernel_q8_x.h"
#include "device/cpu/kernel_q8_tile.h"
#include "device/cpu/kernel_q8.h"
#include "device/cpu/kernel_rows.h"
#include "device/cpu/kernel_attention_kv.h"
#include "device/cpu/kernel_attention_lone.h"
#include "device/cpu/kernel_attention.h"
#include "device/cpu/kernel_peak.h"

const rp__body_set KERNEL_SET = {
    .name = KERNEL_NAME,
    .is_available = KERNEL_IS_AVAILABLE,
    .fn = {[RP_OP_EMBED] = fast_embed,
           [RP_OP_RMS_NORM] = fast_rms_norm,
           [RP_OP_LAYER_NORM] = fast_layer_norm,
           [RP_OP_MATMUL] = fast_matmul,
           [RP_OP_ROPE] = fast_rope,
           [RP_OP_KV_WRITE] = fast_kv_write,
           [RP_OP_ATTENTION] = fast_attention,
           [RP_OP_GATED] = fast_gated,
           [RP_OP_ACT] = fast_act,
           [RP_OP_ADD] = fast_add,
           [RP_OP_MUL] = fast_mul,
           [RP_OP_SCALE] = fast_scale,
           [RP_OP_SOFTCAP] = fast_softcap,
           [RP_OP_CONVERT] = fast_convert,
           [RP_OP_EXPERT_MATMUL] = fast_expert_matmul,
           [RP_OP_ARGMAX] = fast_argmax},
    .finish = {[RP_OP_ATTENTION] = fast_attention_finish},
    .peak = {[RP__PEAK_F32] = peak_f32, [RP__PEAK_INT8] = peak_int8},
    .read = read_memory,
};

#endif
