"""A stand-in for ttnn on numpy, with ttnn's rules, for tests without card or simulator.

It has the calls that the tenstorrent device makes and no others, computes in float32 and rounds
what is BF16 or block float, and is stricter than the real one where that shows mistakes:

- During capture a read, a write, a synchronise or a program that was not run before is fatal.
- Capture records and does not run: a tensor made in it holds NaN until the first replay.
- Memory has addresses, lowest first. What a trace freed while it was recorded counts as free, and
  every replay overwrites whoever has been given it since.
- A trace whose inputs were freed is fatal at replay.
- Attention reads whole tiles of positions and weighs by an approximate exponential.
- Cores that update one tile side by side lose all updates of it but one.
- A tensor fresh from the allocator holds NaN.
"""

import math
import weakref
from enum import Enum
from types import SimpleNamespace

import numpy as np

from .memory import Allocator, block_float, round_bf16

IS_FAKE = True
__version__ = "fake"
TILE = 32

bfloat16, float32, uint32, int32 = "bfloat16", "float32", "uint32", "int32"
bfloat8_b, bfloat4_b = "bfloat8_b", "bfloat4_b"
TILE_LAYOUT, ROW_MAJOR_LAYOUT = "tile", "row_major"
DRAM_MEMORY_CONFIG = "dram"
INTEGERS = (uint32, int32)


class BufferType(Enum):
    DRAM = 0
    TRACE = 1


class MathFidelity(Enum):
    HiFi4 = 4


class GeluVariant(Enum):
    Accurate = 0
    Tanh = 2


class UnaryOpType(Enum):
    SILU = 0


class ShardStrategy(Enum):
    HEIGHT = 0


class ShardOrientation(Enum):
    ROW_MAJOR = 0


def fatal(text):
    raise RuntimeError(f"TT_FATAL: {text}")


def check(condition, text):
    if not condition:
        fatal(text)


# ---- tensors and the device ----


class Tensor:
    def __init__(self, data, *rest):
        if isinstance(data, list):
            shape, dtype, layout = rest
            data = np.array(data, dtype=np.uint32 if dtype == uint32 else np.int32)
            data = data.reshape(shape)
        else:
            (dtype,), layout = rest, ROW_MAJOR_LAYOUT
            check(data.flags.writeable and data.flags.c_contiguous, "a read-only or strided array")
        self._set(as_stored(data, dtype), dtype, layout, None, "dram")

    def _set(self, data, dtype, layout, device, memory):
        self.data, self.dtype, self.layout = data, dtype, layout
        self.device, self.memory = device, memory
        self.address = None
        if device and memory == "dram":
            self.address = device.allocator.take(self.bytes())
            device.live[self.address] = weakref.ref(self)
            # A trace may go on using the contents after the tensor is gone; its place is free.
            weakref.finalize(self, device.give_back, self.address)

    def bytes(self):
        shape = list(self.data.shape) or [1]
        if self.layout == TILE_LAYOUT:
            shape = [1] * (2 - len(shape)) + shape
            shape[-2:] = [-(-n // TILE) * TILE for n in shape[-2:]]
        return math.prod(shape) * (4 if self.dtype in (float32, *INTEGERS) else 2)

    @property
    def shape(self):
        return list(self.data.shape)

    def to_numpy(self):
        check(self.device is None, "to_numpy of a device tensor")
        return self.data


def as_stored(data, dtype):
    if dtype in INTEGERS:
        return np.ascontiguousarray(data)
    data = np.ascontiguousarray(data, dtype=np.float32)
    if dtype == bfloat16:
        return round_bf16(data)
    return block_float(data, dtype) if dtype in (bfloat8_b, bfloat4_b) else data


def new(data, dtype, layout, device, memory="dram"):
    t = Tensor.__new__(Tensor)
    t._set(data, dtype, layout, device, memory)
    return t


class Trace:
    def __init__(self):
        self.steps = []  # functions that run one op on what its tensors hold then
        self.made = set()  # arrays made in it
        self.inputs = []  # weak references to tensors from outside
        self.hidden = []  # address ranges it used and gave back
        self.n_bytes = 0


class Device:
    def __init__(self, trace_region_size):
        self.allocator = Allocator()
        self.live = {}  # address -> weak reference
        self.trace_region = trace_region_size
        self.programs = set()
        self.traces, self.capturing, self.last_trace = {}, None, 0
        self.is_open = True

    def give_back(self, address):
        size = self.allocator.give(address)
        self.live.pop(address, None)
        if self.capturing and address in self.capturing.made:
            self.capturing.hidden.append((address, size))

    def arch(self):
        return "Arch.FAKE"

    def compute_with_storage_grid_size(self):
        return SimpleNamespace(x=8, y=8)

    def host_access(self, what):
        check(self.is_open, f"{what} on a closed device")
        check(self.capturing is None, f"{what} during trace capture")


_device = None


def open_device(device_id, trace_region_size=0):
    global _device
    check(_device is None or not _device.is_open, "the device is open already")
    _device = Device(trace_region_size)
    return _device


def close_device(device):
    device.host_access("close")
    check(not device.traces, "the device is closed with traces alive")
    device.is_open = False


def synchronize_device(device):
    device.host_access("synchronize")


def get_memory_view(device, buffer_type):
    traces = sum(t.n_bytes for t in device.traces.values())
    return SimpleNamespace(
        num_banks=8,
        total_bytes_per_bank=1 << 30,
        total_bytes_allocated_per_bank=traces // 8 if buffer_type is BufferType.TRACE else 0,
    )


def init_device_compute_kernel_config(arch, **options):
    return tuple(sorted((k, str(v)) for k, v in options.items()))


# ---- moving ----


def to_device(t, device, memory_config=None):
    device.host_access("to_device")
    return new(t.data.copy(), t.dtype, t.layout, device)


def from_device(t):
    t.device.host_access("from_device")
    return new(t.data.copy(), t.dtype, t.layout, None)


def copy_host_to_device_tensor(host, t):
    t.device.host_access("copy_host_to_device_tensor")
    check(host.shape == t.shape, f"copy of {host.shape} to {t.shape}")
    check((host.dtype, host.layout) == (t.dtype, t.layout), "copy between dtypes or layouts")
    t.data[...] = host.data


def to_dtype(t, dtype):
    check(t.device is None, "to_dtype of a device tensor")
    return new(as_stored(t.data, dtype), dtype, t.layout, None)


def to_layout(t, layout):
    if t.device is None:
        return new(t.data.copy(), t.dtype, layout, None)
    return op("to_layout", [t], lambda x: x, layout=layout, key=layout)


# ---- traces ----


def begin_trace_capture(device, cq_id):
    device.host_access("begin_trace_capture")
    device.capturing = Trace()
    device.last_trace += 1
    return device.last_trace


def end_trace_capture(device, trace_id, cq_id):
    check(device.capturing is not None, "end_trace_capture without begin")
    trace, device.capturing = device.capturing, None
    trace.n_bytes = 4096 * (1 + len(trace.steps))
    used = trace.n_bytes + sum(t.n_bytes for t in device.traces.values())
    if device.trace_region and used > device.trace_region:
        fatal(f"a trace region of {device.trace_region} bytes is too small for {used}")
    device.traces[trace_id] = trace


def execute_trace(device, trace_id, cq_id, blocking):
    device.host_access("execute_trace")
    trace = device.traces[trace_id]
    for reference in trace.inputs:
        check(reference() is not None, "a trace reads a tensor that was freed")
    for begin, size in trace.hidden:
        for other, reference in list(device.live.items()):
            t = reference()
            is_hit = t is not None and other < begin + size and begin < other + t.bytes()
            if is_hit and id(t.data) not in trace.made:
                poison(t.data)
    for step in trace.steps:
        step()


def release_trace(device, trace_id):
    device.host_access("release_trace")
    del device.traces[trace_id]


def poison(data):
    data.fill(np.nan if data.dtype == np.float32 else -(2**30) % 2**31)


# ---- ops ----


def warm(device, name, tensors, key):
    parts = tuple((tuple(t.shape), t.dtype, t.layout, t.memory) for t in tensors if t is not None)
    program = (name, key, parts)
    if device.capturing is not None and program not in device.programs:
        fatal(f"{name} {key} {parts} is a new program during trace capture")
    device.programs.add(program)


def note_inputs(trace, tensors):
    for t in tensors:
        if t is not None and id(t.data) not in trace.made:
            trace.inputs.append(weakref.ref(t))


def op(name, tensors, compute, dtype=None, layout=None, memory="dram", key=(), is_like=False):
    """Runs or records one op: `compute` makes an array from those of the tensors. With is_like it
    has the shape of the first, so that numbers which a trace has yet to make are not looked at."""
    first = tensors[0]
    device = first.device
    check(device is not None, f"{name} of a host tensor")
    warm(device, name, tensors, key)
    dtype, layout = dtype or first.dtype, layout or first.layout
    arrays = [None if t is None else t.data for t in tensors]
    trace = device.capturing
    is_unknown = is_like and trace is not None
    result = np.empty_like(first.data) if is_unknown else as_stored(compute(*arrays), dtype)
    if result.base is not None or any(result is a for a in arrays):
        result = result.copy()
    if trace is None:
        return new(result, dtype, layout, device, memory)
    note_inputs(trace, tensors)
    poison(result)
    out = new(result, dtype, layout, device, memory)
    trace.made.update((id(result), out.address))
    trace.steps.append(lambda: np.copyto(result, as_stored(compute(*arrays), dtype)))
    return out


def op_in_place(name, tensors, change, key=()):
    device = tensors[0].device
    warm(device, name, tensors, key)
    arrays = [None if t is None else t.data for t in tensors]
    if device.capturing is None:
        change(*arrays)
        return
    note_inputs(device.capturing, tensors)
    device.capturing.steps.append(lambda: change(*arrays))


def tiles(*tensors):
    for t in tensors:
        check(t is None or t.layout == TILE_LAYOUT, "the operand is not in tiles")


def embedding(ids, table, layout=ROW_MAJOR_LAYOUT):
    check(ids.dtype == uint32 and ids.layout == ROW_MAJOR_LAYOUT, "ids are UINT32, row major")
    check(table.layout == ROW_MAJOR_LAYOUT and table.dtype == bfloat16, "the table is BF16 rows")
    device = table.device

    def compute(w, i):  # while it is recorded the ids may be those of another step
        return w[i % len(w)] if device.capturing is not None else w[i]

    return op("embedding", [table, ids], compute, layout=layout, key=layout)


def rms_norm(x, epsilon, weight, compute_kernel_config=None):
    tiles(x, weight)

    def compute(a, w):
        return a / np.sqrt(np.mean(a * a, -1, keepdims=True) + epsilon) * w

    return op("rms_norm", [x, weight], compute, key=epsilon)


def layer_norm(x, epsilon, weight, bias=None, compute_kernel_config=None):
    tiles(x, weight, bias)

    def compute(a, w, b):
        y = (a - a.mean(-1, keepdims=True)) / np.sqrt(a.var(-1, keepdims=True) + epsilon) * w
        return y if b is None else y + b

    return op("layer_norm", [x, weight, bias], compute, key=epsilon)


def linear(x, w, bias=None, compute_kernel_config=None):
    tiles(x, w, bias)
    check(x.shape[-1] == w.shape[-2], f"linear of {x.shape} and {w.shape}")

    def compute(a, m, b):
        y = a @ m
        return y if b is None else y + b

    return op("linear", [x, w, bias], compute)


def sigmoid_times(a):
    with np.errstate(over="ignore"):
        return a / (1 + np.exp(-a))


def binary(name, a, b, compute):
    if not isinstance(b, Tensor):
        return op(name, [a], lambda x: compute(x, np.float32(b)), key=b)
    tiles(a, b)
    return op(name, [a, b], compute)


def add(a, b):
    return binary("add", a, b, np.add)


def mul(a, b, input_tensor_a_activations=None):
    if input_tensor_a_activations:
        return binary("mul_silu", a, b, lambda x, y: sigmoid_times(x) * y)
    return binary("mul", a, b, np.multiply)


def eq(a, b):
    return binary("eq", a, b, np.equal)


def maximum(a, b):
    return binary("maximum", a, b, np.maximum)


def clamp(x, least, most):
    def compute(a):
        return np.where(np.isnan(a), np.float32(most), a.clip(least, most))

    return op("clamp", [x], compute, key=(least, most))


def where(condition, a, otherwise):
    return op("where", [condition, a], lambda c, x: np.where(c, x, np.float32(otherwise)))


def silu(x):
    return op("silu", [x], sigmoid_times)


def relu(x):
    return op("relu", [x], lambda a: np.maximum(a, 0))


def tanh(x):
    return op("tanh", [x], np.tanh)


def gelu(x, variant):
    def accurate(a):
        return a * 0.5 * (1 + np.vectorize(math.erf)(a / math.sqrt(2)))

    def approximate(a):
        return a * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (a + 0.044715 * a**3)))

    is_tanh = variant is GeluVariant.Tanh
    return op("gelu", [x], approximate if is_tanh else accurate, key=variant)


def clone(x):
    return op("clone", [x], lambda a: a)


def typecast(x, dtype):
    kind = np.uint32 if dtype == uint32 else np.int32
    return op("typecast", [x], lambda a: a.astype(kind), dtype=dtype, key=dtype)


def reshape(x, shape):
    check(math.prod(shape) == x.data.size, f"reshape of {x.shape} to {shape}")
    return op("reshape", [x], lambda a: a.reshape(shape), key=tuple(shape))


def transpose(x, a, b):
    return op("transpose", [x], lambda v: np.swapaxes(v, a, b), key=(a, b))


def slice(x, begin, end):
    cut = tuple(range_of(b, e) for b, e in zip(begin, end))
    return op("slice", [x], lambda a: a[cut], key=(tuple(begin), tuple(end)))


def range_of(begin, end):
    return np.s_[begin:end]


def concat(tensors, dim):
    return op("concat", tensors, lambda *a: np.concatenate(a, dim), key=dim)


def argmax(x, dim):
    check(x.layout == ROW_MAJOR_LAYOUT and dim == -1, "argmax of rows, over the last dimension")
    return op("argmax", [x], lambda a: np.argmax(a, -1).astype(np.uint32), dtype=uint32)


def copy(source, target):
    check(source.shape == target.shape, f"copy of {source.shape} to {target.shape}")
    check((source.dtype, source.layout) == (target.dtype, target.layout), "copy between dtypes")
    op_in_place("copy", [target, source], lambda to, a: np.copyto(to, a))


def plus_one(x):
    check(x.dtype in INTEGERS and x.layout == ROW_MAJOR_LAYOUT, "plus_one of integers in rows")
    op_in_place("plus_one", [x], lambda a: np.add(a, 1, out=a, casting="unsafe"))


# ---- shards ----


def CoreCoord(x, y):
    return (x, y)


def num_cores_to_corerangeset(n, grid, row_wise):
    check(n <= grid[0] * grid[1], f"{n} cores of a grid of {grid}")
    return n


def create_sharded_memory_config(shape, core_grid, **_):
    return ("shard", core_grid, *shape)


def to_memory_config(x, memory):
    tiles(x)
    if memory != "dram":
        _, n_cores, height, width = memory
        rows = -(-x.shape[-2] // TILE) * TILE * math.prod(x.shape[:-2])
        check(rows == n_cores * height, f"{rows} rows on {n_cores} cores of {height}")
        check(width >= x.shape[-1], f"shards of {width} for {x.shape}")
    return op("to_memory_config", [x], lambda a: a, memory=memory, key=memory)


def SDPAProgramConfig(compute_with_storage_grid_size, q_chunk_size, k_chunk_size):
    return (tuple(compute_with_storage_grid_size), q_chunk_size, k_chunk_size)


def check_pages(pages, indices, n_rows, is_any_width=False):
    check(pages.dtype == int32 and pages.shape[0] == n_rows, "page table is INT32 [B, M]")
    check(pages.shape[1] % 8 == 0 or is_any_width, "page table stick size must be a multiple of 32")
    check(indices.dtype == int32 and indices.shape == [n_rows], "positions are INT32 [B]")


def _paged_update_cache(cache, x, update_idxs_tensor, page_table):
    check(x.memory != "dram", "paged_update_cache takes shards")
    check(cache.shape[2] % TILE == 0, "blocks are whole tiles")
    n_users, size = x.shape[1], cache.shape[2]
    check_pages(page_table, update_idxs_tensor, n_users, True)
    check(page_table.shape[1] <= cache.shape[0], "max_num_blocks_per_seq must be less")

    def change(c, rows, at, pages):
        before = c.copy()
        for user in range(n_users):
            if at[user] < 0:
                continue
            block, offset = pages[user, at[user] // size], at[user] % size
            first = offset // TILE * TILE
            # Each core reads its tile, changes a row, and writes the tile back.
            c[block, :, first : first + TILE] = before[block, :, first : first + TILE]
            c[block, :, offset] = rows[0, user]

    op_in_place("paged_update_cache", [cache, x, update_idxs_tensor, page_table], change)


def _paged_fill_cache(cache, x, page_table, batch_idx):
    tiles(cache, x)
    check(cache.shape[2] % TILE == 0, "blocks are whole tiles")
    check(page_table.dtype == int32 and len(page_table.shape) == 2, "page table is INT32 [B, M]")
    check(x.shape[0] == 1 and x.shape[1] == cache.shape[1], f"rows are (1, K, S, D), not {x.shape}")
    size = cache.shape[2]
    check(x.shape[2] <= page_table.shape[1] * size, "more rows than pages")

    def change(c, rows, pages):
        for first in range(0, rows.shape[2], size):
            block, part = pages[batch_idx, first // size], rows[0, :, first : first + size]
            if block >= 0:
                c[block, :, : part.shape[1]] = part

    op_in_place("paged_fill_cache", [cache, x, page_table], change, key=batch_idx)


def _approximate_exp(x):
    """Schraudolph's, which is off by up to 3%: that of ttnn's attention kernels."""
    bits = np.maximum(np.rint(x * np.float32(256 / math.log(2)) + np.float32(32500.818)), 0)
    y = (np.nan_to_num(bits).astype(np.uint32) << 15).view(np.float32)
    return np.where(np.isnan(x), x, y)


def _attend(q, caches, pages, first, last, scale):
    """One row over positions first to last, in whole tiles: what it may not see has -infinity added
    to its scores, so that it shows where they are infinite or NaN."""
    at = np.arange(first // TILE * TILE, (last // TILE + 1) * TILE)
    size = caches[0].shape[2]
    is_seen = (at >= first) & (at <= last)
    # [S, K, D] -> [H, S, D]
    keys, values = (c[pages[at // size], :, at % size].transpose(1, 0, 2) for c in caches)
    keys, values = (np.repeat(a, q.shape[0] // a.shape[0], 0) for a in (keys, values))
    with np.errstate(invalid="ignore", over="ignore"):
        scores = np.einsum("hd,hsd->hs", q, keys) * scale
        scores += np.where(is_seen, 0, -np.inf).astype(np.float32)
        weights = _approximate_exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    # The matrix unit knows no NaN: 0 times anything is 0.
    return np.einsum("hs,hsd->hd", weights, np.where(is_seen[:, None], values, 0))


def _paged_attention(
    q,
    k,
    v,
    page_table,
    cur_pos_tensor,
    scale,
    sliding_window_size=None,
    program_config=None,
    compute_kernel_config=None,
):
    tiles(q, k, v)
    check(k.shape[2] % TILE == 0, "blocks are whole tiles")
    if "('fp32_dest_acc_en', 'True')" in str(compute_kernel_config):
        fatal("attention with sums in float32 is wrong where cores share a head")
    check(q.shape[1] <= 64, "at most 64 rows at once")
    check_pages(page_table, cur_pos_tensor, q.shape[1])

    def compute(a, keys, values, pages, pos):
        y = np.empty_like(a)
        for b, last in enumerate(pos):
            first = max(0, last + 1 - sliding_window_size) if sliding_window_size else 0
            y[0, b] = _attend(a[0, b], (keys, values), pages[b], first, last, scale)
        return y

    tensors = [q, k, v, page_table, cur_pos_tensor]
    key = (scale, sliding_window_size, program_config)
    return op("attention", tensors, compute, key=key, is_like=True)


def _chunked_attention(
    q, k, v, page_table, chunk_start_idx_tensor, scale, program_config, compute_kernel_config
):
    tiles(q, k, v)
    check(q.shape[0] == 1 and q.shape[2] % TILE == 0, f"whole tiles of one prompt, not {q.shape}")
    check(scale == np.float32(scale), "a scale that is not a float32")
    check(q.shape[3] % TILE == 0, "Padding is not supported on the head_dim dimension")
    check(chunk_start_idx_tensor.shape == [1], "the start is one number")
    check_pages(page_table, chunk_start_idx_tensor, 1)
    _, q_chunk, k_chunk = program_config

    def compute(a, keys, values, pages, start):
        check(start[0] % q_chunk == 0 and start[0] % k_chunk == 0, "a chunk starts at a chunk")
        y = np.empty_like(a)
        for i in range(a.shape[2]):
            # Padding may stand behind the table.
            last = min(start[0] + i, pages.shape[1] * keys.shape[2] - 1)
            y[0, :, i] = _attend(a[0, :, i], (keys, values), pages[0], 0, last, scale)
        return y

    tensors = [q, k, v, page_table, chunk_start_idx_tensor]
    return op("chunked_attention", tensors, compute, key=(scale, program_config), is_like=True)


experimental = SimpleNamespace(
    paged_update_cache=_paged_update_cache, paged_fill_cache=_paged_fill_cache
)
transformer = SimpleNamespace(
    paged_scaled_dot_product_attention_decode=_paged_attention,
    chunked_scaled_dot_product_attention=_chunked_attention,
)
