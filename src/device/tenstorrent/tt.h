/* What the files of the tenstorrent device share.
 *
 * The mismatch they bridge: Reprise's ops read and write typed views of buffers; ttnn's take
 * tensors and mostly make new ones. So a buffer here is a range of names for tensors:
 *
 *   resident  what the host wrote (weights, inputs, tables, the KV cache), as a persistent ttnn
 *             tensor. Its truth is the buffer's copy on the host, and it is refreshed in place when
 *             that changed, so that a trace which reads it sees the new contents.
 *   value     what an op made: the tensor that ttnn gave back, bound to the view that the op wrote.
 *
 * An op looks up its operands by view (the same bytes with other dimensions: reshaped; columns of a
 * wider matrix: sliced, on the device), and binds its result to its view. Nothing is copied to
 * where the plan put it. The host's copy of a buffer is brought up to date only when somebody reads
 * it.
 *
 * Memory beside live traces: residents are made before the first capture; one made later is written
 * anew after each replay, and a KV cache made later is refused. What ops make eagerly while a trace
 * lives comes to the host before the next replay. What a trace made is its own until it is
 * destroyed. */
#ifndef RP_DEVICE_TENSTORRENT_TT_H
#define RP_DEVICE_TENSTORRENT_TT_H

#include "device/tenstorrent/ttnn.h"
#include "reprise/device.h"

typedef struct rp__tt_buffer rp__tt_buffer;
typedef struct rp__tt_graph rp__tt_graph;

/* How ttnn holds a tensor. */
typedef enum rp__tt_form {
    RP_TT_TILE,     /* BF16 tiles: [T, E] as (1, 1, T, E), [T, H, D] as (1, T, H, D) */
    RP_TT_TABLE,    /* BF16 rows, to be picked by number */
    RP_TT_U32,      /* (1, n), what embedding takes */
    RP_TT_U32_ROWS, /* the view's own dimensions, what rows that are U32 go into */
    RP_TT_I32,      /* the view's own dimensions, what the paged ops take */
    RP_TT_PAGES,    /* I32 (T, rp__tt_pages_width(M)): the row of a block table for each token */
    RP_TT_BLOCKS,   /* I32 (1, T / S) of slots seen as [T / S, S]: the block of each S of them */
    RP_TT_CACHE,    /* BF16 tiles of a view [P, K, S, D], which it keeps */
    RP_TT_WEIGHT,   /* tiles of the transposed matrix, in the dtype for weights */
    RP_TT_N_FORMS
} rp__tt_form;

typedef struct rp__tt_resident {
    rp_tensor view, seq; /* seq: for PAGES, the row of each token; else absent */
    rp__tt_form form;
    rp__ttnn_id id;
    uint64_t serial;        /* of the buffer when it was written; 0: never */
    uint64_t replays;       /* of the device then, when it is late */
    bool is_late;           /* made beside a live trace */
    bool is_device_newer;   /* an op wrote it in place: the host's copy is stale */
    unsigned char *written; /* the bytes it was written from, when they are few; or NULL */
    bool is_as_written;     /* it has those bytes still */
    rp__tt_graph *lender;   /* the tensor is this trace's result, which another trace reads */
    struct rp__tt_resident *next;
} rp__tt_resident;

typedef struct rp__tt_value {
    rp_tensor view;
    rp__tt_form form; /* TILE, U32 or I32 */
    rp__ttnn_id id, cos, sin;
    bool is_interleaved; /* of cos and sin, made for rope from a row of cosines and sines, */
    int64_t rope_dim;    /* for this head dim; 0: not made */
    bool is_on_host;     /* the buffer's copy has it too */
    bool is_late;        /* made eagerly beside a live trace */
    rp__tt_graph *owner; /* whose trace made it; NULL: the value's own */
} rp__tt_value;

/* A weight: rows as in the file until they are on the device. */
typedef struct rp__tt_weight {
    rp_tensor view;
    unsigned char *rows; /* NULL: given up once a form was made */
    int64_t n_written;
    rp__ttnn_id id[RP_TT_N_FORMS]; /* TABLE, WEIGHT */
    struct rp__tt_weight *next;
} rp__tt_weight;

struct rp__tt_buffer {
    unsigned char *host; /* the copy on the host: pages never touched take no memory */
    size_t bytes;
    size_t dirty_begin, dirty_end; /* what the host ever wrote that is not zero lies in between */
    uint64_t serial;               /* grows with host writes */
    rp__tt_value *values;          /* the last one is the newest */
    int n_values, values_cap;
    rp__tt_resident *residents;
    rp__tt_weight *weights;
    rp__tt_buffer *next, *prev;
};

/* A value as a trace leaves it, bound again by every replay. */
typedef struct rp__tt_binding {
    rp__tt_buffer *buffer;
    rp__tt_value value;
} rp__tt_binding;

typedef struct rp__tt_list { /* of pointers or numbers, growing */
    void *items;
    size_t n, cap;
} rp__tt_list;

struct rp__tt_graph {
    int64_t number;
    rp__tt_list ids;      /* rp__ttnn_id: what the trace made */
    rp__tt_list inputs;   /* rp__tt_resident *: read by the trace */
    rp__tt_list changed;  /* rp__tt_resident *: written by it in place */
    rp__tt_list bindings; /* rp__tt_binding */
    size_t bytes;
};

enum { RP_TT_MAX_GARBAGE = 64, RP_TT_BLOCK = 32 };

typedef struct rp__tt {
    rp__ttnn *ttnn;
    rp__ttnn_info info;
    const char *weight_type; /* "bf16", "bfloat8_b" or "bfloat4_b" */
    bool is_hybrid;          /* asks for a placement with small ops on the host as well */
    bool picks_tokens;
    rp__ttnn_id last_id;
    int64_t last_graph;
    rp__tt_buffer *buffers;
    rp__tt_graph *recording; /* NULL: not capturing */
    rp__tt_graph *bound;     /* whose results are bound as its last replay left them; or NULL */
    rp_error failure;        /* code not 0: of the capture */
    uint32_t n_graphs;
    uint64_t n_replays;
    bool is_preparing; /* operands that hold nothing yet are zeros, results are thrown away */
    rp__ttnn_id garbage[RP_TT_MAX_GARBAGE]; /* dropped when the op has been sent */
    int n_garbage;
    void *scratch; /* kept between calls, so that a step allocates nothing */
    size_t scratch_bytes;
} rp__tt;

/* ---- tt_memory.c: the table's functions on memory ---- */

rp_status rp__tt_alloc(void *self, size_t bytes, void **handle, rp_error *err);
void rp__tt_free(void *self, void *handle);
rp_status rp__tt_write(void *self, uint32_t queue, void *handle, size_t offset, const void *src,
                       size_t n, rp_error *err);
rp_status rp__tt_read(void *self, uint32_t queue, void *handle, size_t offset, void *dst, size_t n,
                      rp_error *err);
rp_status rp__tt_copy(void *self, uint32_t queue, void *dst, size_t dst_offset, void *src,
                      size_t src_offset, size_t n, rp_error *err);

/* ---- tt_memory.c: values ---- */

/* The newest value over `t`, with which `t` shares bytes; NULL: none. */
rp__tt_value *rp__tt_find_value(const rp_tensor *t);
/* True when both views name the same bytes, with whatever dimensions. */
bool rp__tt_same_bytes(const rp_tensor *a, const rp_tensor *b);
/* Binds what an op made to the view that it wrote: what lay there before is gone. */
rp_status rp__tt_bind(rp__tt *d, const rp_tensor *t, rp__tt_form form, rp__ttnn_id id,
                      rp_error *err);
/* Takes a value out of its buffer; its tensor goes when nothing else owns it. */
void rp__tt_unbind(rp__tt *d, rp__tt_buffer *b, int i);
/* Brings everything of [offset, offset + n) to the host's copy. */
rp_status rp__tt_settle(rp__tt *d, rp__tt_buffer *b, size_t offset, size_t n, rp_error *err);
/* Brings to the host what the next replay might overwrite. */
rp_status rp__tt_settle_late(rp__tt *d, rp_error *err);

/* ---- tt_resident.c ---- */

/* The tensor of what the host wrote at `t`, made or refreshed when needed; `seq` for PAGES, else
 * NULL. */
rp_status rp__tt_resident_get(rp__tt *d, const rp_tensor *t, const rp_tensor *seq, rp__tt_form form,
                              rp__ttnn_id *id, rp_error *err);
bool rp__tt_resident_is_there(const rp_tensor *t, rp__tt_form form);
/* Writes it anew when the host's copy changed. */
rp_status rp__tt_resident_refresh(rp__tt *d, rp__tt_resident *r, rp_error *err);
/* A result that a trace reads becomes a resident, newer than the host's copy. */
rp_status rp__tt_resident_adopt(rp__tt *d, const rp__tt_value *v, rp_error *err);
/* What was borrowed from a trace is the residents' own from now on: taken out of the n numbers. */
void rp__tt_residents_keep(rp__tt *d, const rp__tt_graph *lender, rp__ttnn_id *ids, size_t n);
/* The device has these contents: the same again need not be written. */
void rp__tt_resident_remember(rp__tt_resident *r, const void *data, size_t n);
/* The device wrote it in place: it is newer than the host's copy. */
void rp__tt_resident_set_newer(rp__tt_resident *r);
/* The device wrote `t` in place, in every resident form; or the trace being recorded will. */
rp_status rp__tt_resident_changed(rp__tt *d, const rp_tensor *t, rp_error *err);
/* Before a capture, which cannot read: what the device wrote in place comes to the host where other
 * tensors, those of another step size, lie across it. */
rp_status rp__tt_residents_settle_shared(rp__tt *d, rp_error *err);
void rp__tt_residents_clear(rp__tt *d, rp__tt_buffer *b);
size_t rp__tt_weight_bytes(void *self, const rp_tensor *desc);
rp_status rp__tt_weight_write(void *self, const rp_tensor *w, int64_t row, int64_t n_rows,
                              const void *src, rp_error *err);
rp_status rp__tt_weight_get(rp__tt *d, const rp_tensor *w, rp__tt_form form, rp__ttnn_id *id,
                            rp_error *err);
/* No more forms of weights are made from now on: what is kept to make them of goes. */
void rp__tt_weights_settled(rp__tt *d);
int64_t rp__tt_pages_width(int64_t n_blocks);
const char *rp__tt_form_name(rp__tt_form form);

/* ---- tt_ops.c ---- */

bool rp__tt_supports(void *self, const rp_op *op);
rp_status rp__tt_prepare(void *self, const rp_op *op, rp_error *err);
rp_status rp__tt_run(void *self, uint32_t queue, const rp_op *op, rp_error *err);

/* ---- tt_graph.c ---- */

rp_status rp__tt_capture_begin(void *self, uint32_t queue, rp_error *err);
rp_status rp__tt_capture_end(void *self, uint32_t queue, void **graph, rp_error *err);
void rp__tt_capture_abort(void *self, uint32_t queue);
rp_status rp__tt_replay(void *self, uint32_t queue, void *graph, rp_error *err);
void rp__tt_graph_destroy(void *self, void *graph);
size_t rp__tt_graph_bytes(void *self, void *graph);
/* Notes that the trace being recorded reads or changes a resident. */
rp_status rp__tt_note_input(rp__tt *d, rp__tt_resident *r, rp_error *err);
rp_status rp__tt_note_changed(rp__tt *d, rp__tt_resident *r, rp_error *err);

/* ---- tt_device.c ---- */

rp__ttnn_id rp__tt_new_id(rp__tt *d);
/* A number for what an op makes on its way: dropped after it, or with the trace. 0: no memory. */
rp__ttnn_id rp__tt_temporary(rp__tt *d);
void rp__tt_drop(rp__tt *d, rp__ttnn_id id); /* once the op has been sent; 0 is fine */
void rp__tt_send_garbage(rp__tt *d);
/* At least n bytes for what goes to and fro, until the next call; NULL: no memory. */
void *rp__tt_scratch(rp__tt *d, size_t n);
/* Appends; false when out of memory. */
bool rp__tt_list_add(rp__tt_list *l, const void *item, size_t bytes);
rp__tt_buffer *rp__tt_buffer_of(const rp_tensor *t);

#endif
