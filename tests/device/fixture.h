/* What the device tests share: the devices to test on, and small ops over whole buffers. */
#ifndef RP_TESTS_DEVICE_FIXTURE_H
#define RP_TESTS_DEVICE_FIXTURE_H

#include "test.h"

#include "device/device.h"
#include "device/emu/emu.h"

typedef struct device_case {
    const char *label, *name, *options;
} device_case;

/* Every device present that can capture, emu in its several modes; label NULL past the end. */
extern const device_case device_cases[];
/* Runs `test` on each of them, opened afresh, and closes it clean. */
void on_each_device(void (*test)(rp_device *dev));

rp_device *open_emu(const char *options);
rp_device *open_named(const char *name, const char *options);
void close_clean(rp_device *dev); /* and emu saw no violation */

rp_buffer *make_buffer(rp_device *dev, const char *name, size_t bytes, bool is_pinned);
void drop_buffer(rp_buffer *buf);
void put(rp_buffer *buf, const void *src,
         size_t n); /* write and read of the first n bytes, which must succeed */
void get(rp_buffer *buf, void *dst, size_t n);
void fill_i32(rp_buffer *buf, int32_t value); /* the whole buffer */
int32_t get_i32(rp_buffer *buf);              /* its first element */

rp_tensor i32_vector(rp_buffer *buf, int64_t n);
rp_tensor f32_matrix(rp_buffer *buf, int64_t rows, int64_t cols);

/* y = x + step over n integers. */
rp_op op_advance(rp_buffer *x, rp_buffer *y, int64_t n, int32_t step);
/* y [T,N] = x [T,K] w [N,K]^T */
rp_op op_matmul(rp_buffer *x, rp_buffer *w, rp_buffer *y, int64_t t, int64_t n, int64_t k);

/* A whole capture of these ops, warm already. */
rp_graph *capture_ops(rp_device *dev, const char *name, const rp_op *ops, size_t n);

#endif
