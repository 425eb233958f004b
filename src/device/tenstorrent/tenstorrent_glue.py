"""The Python side of the tenstorrent device: the one place where ttnn is called.

Run by ttnn_worker.c as a process of its own, with a socket to the engine as its only argument.
Requests are a line of JSON, [function, inputs, outputs, ints, floats, text, bytes, wants_answer],
then that many bytes of data. Inputs and outputs are numbers that the engine gives to tensors; this
side keeps the table from number to tensor and decides nothing else: what lies where, what is stale
and what a trace may use is the engine's to know.

An answer is a line "ok N", "error N" or "missing N" and N bytes. A request that wants no answer says nothing;
when it fails, everything after it is skipped up to the next one that wants an answer, which gets
the failure.

Shapes: activations are tiles of BF16, [T, E] as (1, 1, T, E) and [T, H, D] as (1, T, H, D).
"""

import json
import os
import socket
import sys
import time

F32_BYTES = 4
# Rows that one call updates or attends for: each takes a core of its own.
GROUP = 32
TILE = 32
MOST = 3.3895e38  # the largest number of BF16
# Attention adds -infinity to the scores of what a row may not see. A score that has overflowed to
# infinity or is NaN stays one, and would reach the result: no key is so large, nor NaN.
MOST_OF_KEY = 1e30


class Missing(Exception):
    """Something that must be installed or plugged in, in one sentence."""


class Call:
    """One request: tensors in, numbers for the results, and parameters."""

    def __init__(self, line, stream, table):
        name, inputs, self.out, self.ints, self.floats, self.text, n, self.wants_answer = line
        self.name = name
        self.inputs = inputs
        if name != "drop":  # of what was never made, when an op before it failed
            self.tensors = [table[i] if i else None for i in inputs]
        self.data = stream.read(n) if n else b""


class Glue:
    def __init__(self):
        self.table = {}  # number -> tensor
        self.constants = {}  # small tables that ops need, made once
        self.kept = {}  # trace -> tensors that its ops made on the way
        self.trace = None  # being captured
        self.log = os.environ.get("REPRISE_TTNN_LOG")  # on standard error: "times", or every request
        self.spent = {}  # function -> calls and seconds with the reading of requests, shown at the end

    # ---- the device ----

    def open(self, c):
        """ints: trace region bytes. Answers lines "key value"."""
        os.environ.setdefault("TT_LOGGER_LEVEL", "error")
        leave_folder()
        global np, ttnn
        try:
            import numpy as np
            import ttnn
        except ImportError as e:
            raise Missing(f"{sys.executable} has no ttnn ({e}): pip install ttnn") from e
        self.simulator = os.environ.get("TT_METAL_SIMULATOR", "")
        is_fake = getattr(ttnn, "IS_FAKE", False)
        if not is_fake:
            self.check_machine()
        self.device = ttnn.open_device(device_id=0, trace_region_size=c.ints[0])
        grid = self.device.compute_with_storage_grid_size()
        self.grid = (grid.x, grid.y)
        arch = str(self.device.arch()).rpartition(".")[2].lower()
        self.exact = ttnn.init_device_compute_kernel_config(
            self.device.arch(),
            math_fidelity=ttnn.MathFidelity.HiFi4,
            math_approx_mode=False,
            fp32_dest_acc_en=True,
            packer_l1_acc=True,
        )
        # With sums in float32 the attention kernel that several cores share is wrong.
        self.attention_math = ttnn.init_device_compute_kernel_config(
            self.device.arch(),
            math_fidelity=ttnn.MathFidelity.HiFi4,
            math_approx_mode=False,
            fp32_dest_acc_en=False,
            packer_l1_acc=False,
        )
        kind = "fake" if is_fake else "simulator" if self.simulator else "card"
        dram = ttnn.get_memory_view(self.device, ttnn.BufferType.DRAM)
        return (
            f"arch {arch}\ngrid {grid.x}x{grid.y}\nkind {kind}\nttnn {version_of('ttnn')}\n"
            f"python {sys.version.split()[0]}\n"
            f"memory {dram.num_banks * dram.total_bytes_per_bank}\n"
        ).encode()

    def check_machine(self):
        """One sentence for what is missing, where ttnn itself would abort."""
        if self.simulator:
            if not os.path.exists(self.simulator):
                raise Missing(f"TT_METAL_SIMULATOR={self.simulator} does not exist")
        elif not os.path.exists("/dev/tenstorrent"):
            raise Missing(
                "there is no card (/dev/tenstorrent does not exist) and no simulator "
                "(TT_METAL_SIMULATOR is not set)"
            )
        inside = os.path.join(os.path.dirname(ttnn.__file__), "runtime", "sfpi")
        if not os.path.isdir(inside) and not os.path.isdir("/opt/tenstorrent/sfpi"):
            raise Missing(
                f"sfpi, the compiler of kernels, is neither in {inside} nor in "
                "/opt/tenstorrent/sfpi"
            )

    def close(self, _):
        self.table.clear()
        self.constants.clear()
        self.kept.clear()
        ttnn.close_device(self.device)
        for name, (n, seconds) in self.spent.items() if self.log else ():
            print(f"ttnn: {n} x {name}, {seconds / n * 1e6:.0f} us each", file=sys.stderr)

    def sync(self, _):
        ttnn.synchronize_device(self.device)

    # ---- moving ----

    def host(self, form, dims, data, dtype=""):
        """A tensor on the host in the form that the device wants."""
        if form in ("i32", "u32"):
            kind = ttnn.int32 if form == "i32" else ttnn.uint32
            values = np.frombuffer(data, "<i4")
            if form == "u32":
                values = values.view("<u4")
            return ttnn.Tensor(values.tolist(), dims, kind, ttnn.ROW_MAJOR_LAYOUT)
        a = np.frombuffer(data, "<f4").reshape(dims)
        if form == "weight":
            return self.host_weight(a, dtype)
        if form == "cache":
            a = np.nan_to_num(a.clip(-MOST_OF_KEY, MOST_OF_KEY), nan=MOST_OF_KEY)
        t = ttnn.Tensor(np.array(a, order="C"), ttnn.bfloat16)  # a copy: ttnn wants to write it
        return t if form == "table" else ttnn.to_layout(t, ttnn.TILE_LAYOUT)

    def host_weight(self, a, dtype):
        a = np.array(a.T, order="C")[None, None]
        if dtype == "bf16":
            return ttnn.to_layout(ttnn.Tensor(a, ttnn.bfloat16), ttnn.TILE_LAYOUT)
        kind = ttnn.bfloat8_b if dtype == "bfloat8_b" else ttnn.bfloat4_b
        return ttnn.to_dtype(ttnn.to_layout(ttnn.Tensor(a, ttnn.float32), ttnn.TILE_LAYOUT), kind)

    def make(self, c):
        """text: form, or "weight dtype"; without data: zeros."""
        form, _, dtype = c.text.partition(" ")
        n = 1
        for d in c.ints:
            n *= d
        data = c.data or bytes(F32_BYTES * n)
        return (ttnn.to_device(self.host(form, c.ints, data, dtype), self.device),)

    def refresh(self, c):
        form, _, dtype = c.text.partition(" ")
        host = self.host(form, c.ints, c.data, dtype)
        ttnn.copy_host_to_device_tensor(host, c.tensors[0])

    def read(self, c):
        t = ttnn.from_device(c.tensors[0])
        if t.layout != ttnn.ROW_MAJOR_LAYOUT:
            t = ttnn.to_layout(t, ttnn.ROW_MAJOR_LAYOUT)
        if c.text in ("i32", "u32"):
            return np.ascontiguousarray(t.to_numpy()).view("<i4").tobytes()
        if t.dtype != ttnn.float32:
            t = ttnn.to_dtype(t, ttnn.float32)
        a = t.to_numpy()
        if c.text == "weight":
            a = a[0, 0].T
        return np.ascontiguousarray(a, "<f4").tobytes()

    def drop(self, c):
        for i in c.inputs:
            self.table.pop(i, None)

    # ---- capture ----

    def keep(self, t):
        """What an op makes on its way stays as long as the trace that uses it."""
        if self.trace is not None:
            self.kept[self.trace].append(t)
        return t

    def begin(self, _):
        ttnn.synchronize_device(self.device)
        trace = ttnn.begin_trace_capture(self.device, cq_id=0)
        self.trace = trace
        self.kept[trace] = []

    def end(self, c):
        """ints: the number that the engine gives to the trace. Answers the bytes that it takes."""
        trace, self.trace = self.trace, None
        before = self.bytes_taken()
        ttnn.end_trace_capture(self.device, trace, cq_id=0)
        self.table[("trace", c.ints[0])] = trace
        return b"%d\n" % (self.bytes_taken() - before)

    def bytes_taken(self):
        """A trace lies in the region for traces, or without one beside the tensors."""
        kinds = ttnn.BufferType.TRACE, ttnn.BufferType.DRAM
        views = [ttnn.get_memory_view(self.device, kind) for kind in kinds]
        return sum(v.num_banks * v.total_bytes_allocated_per_bank for v in views)

    def abort(self, _):
        trace, self.trace = self.trace, None
        if trace is None:
            return
        ttnn.end_trace_capture(self.device, trace, cq_id=0)
        ttnn.release_trace(self.device, trace)
        del self.kept[trace]

    def replay(self, c):
        ttnn.execute_trace(
            self.device, self.table[("trace", c.ints[0])], cq_id=0, blocking=False
        )

    def release(self, c):
        trace = self.table.pop(("trace", c.ints[0]))
        ttnn.release_trace(self.device, trace)
        del self.kept[trace]

    # ---- constants ----

    def constant(self, key, make):
        t = self.constants.get(key)
        if t is None:
            if self.trace is not None:
                raise RuntimeError(f"the table {key} is made before a capture")
            t = self.constants[key] = make()
        return t

    def tile(self, a):
        a = np.ascontiguousarray(a, "<f4")
        return ttnn.to_device(self.host("tile", a.shape, a.tobytes()), self.device)

    def rotation(self, interleaved, r, d):
        """x @ this has at each place of a pair the other one, the first of them negated."""

        def make():
            m = np.zeros((1, 1, d, d), "<f4")
            for i in range(r // 2):
                a, b = (2 * i, 2 * i + 1) if interleaved else (i, i + r // 2)
                m[0, 0, b, a], m[0, 0, a, b] = -1, 1
            return self.tile(m)

        return self.constant(("rotation", interleaved, r, d), make)

    def spread(self, interleaved, r, d, is_sine):
        """Takes r / 2 cosines and r / 2 sines to the places where they multiply."""

        def make():
            m = np.zeros((1, 1, r, d), "<f4")
            for i in range(r // 2):
                a, b = (2 * i, 2 * i + 1) if interleaved else (i, i + r // 2)
                m[0, 0, i + (r // 2 if is_sine else 0), [a, b]] = 1
            return self.tile(m)

        return self.constant(("spread", interleaved, r, d, is_sine), make)

    def unrotated(self, r, d):
        """The cosine 1 of the dimensions from r on."""

        def make():
            m = np.zeros((1, 1, 1, d), "<f4")
            m[..., r:] = 1
            return self.tile(m)

        return self.constant(("unrotated", r, d), make)

    def identity(self, n_rows, n_blocks):
        """A page table in which block b is page b, for every row."""

        def make():
            data = np.tile(np.arange(n_blocks, dtype="<i4"), (n_rows, 1)).tobytes()
            return ttnn.to_device(self.host("i32", [n_rows, n_blocks], data), self.device)

        return self.constant(("identity", n_rows, n_blocks), make)

    # ---- ops ----

    def linear_exact(self, x, w, bias=None):
        return ttnn.linear(x, w, bias=bias, compute_kernel_config=self.exact)

    def embed(self, c):
        table, ids = c.tensors
        y = ttnn.embedding(ids, table, layout=ttnn.TILE_LAYOUT)
        y = self.keep(ttnn.reshape(y, (1, 1, ids.shape[-1], table.shape[-1])))
        return (y if c.floats[0] == 1 else ttnn.mul(y, c.floats[0]),)

    def rms_norm(self, c):
        x, w, r = c.tensors
        total = x if r is None else self.keep(ttnn.add(x, r))
        y = ttnn.rms_norm(
            total, epsilon=c.floats[0], weight=w, compute_kernel_config=self.exact
        )
        if len(c.out) < 2 or not c.out[1]:
            return (y,)
        return (y, ttnn.clone(x) if r is None else total)

    def layer_norm(self, c):
        x, w, b = c.tensors
        y = ttnn.layer_norm(
            x, epsilon=c.floats[0], weight=w, bias=b, compute_kernel_config=self.exact
        )
        return (y,)

    def linear(self, c):
        x, w, bias, add = c.tensors
        y = self.linear_exact(x, w, bias)
        return (y if add is None else ttnn.add(self.keep(y), add),)

    def rope_tables(self, c):
        """From rows of cosines and sines to (1, T, 1, D) of each."""
        (cs,), (interleaved, d) = c.tensors, c.ints
        t, r = cs.shape[-2], cs.shape[-1]
        bias = self.unrotated(r, d) if r < d else None
        cos = self.linear_exact(cs, self.spread(interleaved, r, d, False), bias)
        sin = self.linear_exact(cs, self.spread(interleaved, r, d, True))
        self.keep(cos), self.keep(sin)
        return ttnn.reshape(cos, (1, t, 1, d)), ttnn.reshape(sin, (1, t, 1, d))

    def rope(self, c):
        (x, cos, sin), (interleaved, r) = c.tensors, c.ints
        turned = self.keep(self.linear_exact(x, self.rotation(interleaved, r, x.shape[-1])))
        straight = self.keep(ttnn.mul(x, cos))
        return (ttnn.add(straight, self.keep(ttnn.mul(turned, sin))),)

    def sharded(self, n, width):
        cores = ttnn.CoreCoord(*self.grid)
        return ttnn.create_sharded_memory_config(
            (TILE, width),
            core_grid=ttnn.num_cores_to_corerangeset(n, cores, row_wise=True),
            strategy=ttnn.ShardStrategy.HEIGHT,
            orientation=ttnn.ShardOrientation.ROW_MAJOR,
            use_height_and_width_as_shard_shape=True,
        )

    def part(self, t, dim, first, n):
        """Items [first, first + n) of one dimension."""
        if n == t.shape[dim]:
            return t
        begin, end = [0] * len(t.shape), list(t.shape)
        begin[dim], end[dim] = first, first + n
        return self.keep(ttnn.slice(t, begin, end))

    def tame(self, keys):
        return self.keep(ttnn.clamp(keys, -MOST_OF_KEY, MOST_OF_KEY))

    def kv_write(self, c):
        """Rows go to positions of their rows of a page table; without one, to slots.
        ints: whether all rows lie in different blocks. Otherwise one row per call: two rows of
        one tile written side by side would lose one of them."""
        (kc, vc, k, v, at, pages), (is_scattered,) = c.tensors, c.ints
        k = self.tame(k)
        n, width = k.shape[1], -(-k.shape[3] // TILE) * TILE
        step = min(GROUP, n) if is_scattered else 1
        for first in range(0, n, step):
            rows = min(step, n - first)
            here = self.part(at, 0, first, rows)
            if pages is None:
                table = self.identity(rows, kc.shape[0])
            else:  # the kernel wants no more columns than there are blocks
                columns = min(pages.shape[1], kc.shape[0])
                table = self.part(self.part(pages, 0, first, rows), 1, 0, columns)
            for cache, x in ((kc, k), (vc, v)):
                x = ttnn.to_memory_config(self.part(x, 1, first, rows), self.sharded(rows, width))
                ttnn.experimental.paged_update_cache(
                    cache, x, update_idxs_tensor=here, page_table=table
                )
        return ()

    def kv_fill(self, c):
        """Whole blocks of one sequence: block j of the list takes rows [j S, (j + 1) S)."""
        kc, vc, k, v, blocks = c.tensors
        for cache, x in ((kc, self.tame(k)), (vc, v)):
            x = self.keep(ttnn.transpose(x, 1, 2))
            ttnn.experimental.paged_fill_cache(cache, x, blocks, batch_idx=0)
        return ()

    def prompt_attention(self, c):
        """Consecutive rows of one sequence, from the position in `start` on, which is read when it
        runs: one trace serves every chunk."""
        q, kc, vc, pages, start = c.tensors
        y = ttnn.transformer.chunked_scaled_dot_product_attention(
            self.keep(ttnn.transpose(q, 1, 2)),
            kc,
            vc,
            pages,
            chunk_start_idx_tensor=start,
            scale=float(np.float32(c.floats[0])),  # it takes no number that is not one
            program_config=self.attention_program(TILE),
            compute_kernel_config=self.attention_math,
        )
        return (ttnn.transpose(self.keep(y), 1, 2),)

    def attention(self, c):
        """Every row is a sequence of its own to the decode kernel, with its page table and
        position: any mixture of prompts and single tokens is one step."""
        (q, kc, vc, pages, pos), (window,), (scale,) = c.tensors, c.ints, c.floats
        n, parts = q.shape[1], []
        for first in range(0, n, GROUP):
            rows = min(GROUP, n - first)
            parts.append(
                ttnn.transformer.paged_scaled_dot_product_attention_decode(
                    self.part(q, 1, first, rows),
                    kc,
                    vc,
                    self.part(pages, 0, first, rows),
                    cur_pos_tensor=self.part(pos, 0, first, rows),
                    scale=scale,
                    sliding_window_size=window or None,
                    program_config=self.attention_program(0),
                    compute_kernel_config=self.attention_math,
                )
            )
        if len(parts) == 1:
            return (parts[0],)
        return (ttnn.concat([self.keep(p) for p in parts], dim=1),)

    def attention_program(self, rows):
        # At most 64 cores may share a head, fewer than the grid of a whole chip has.
        return ttnn.SDPAProgramConfig(
            compute_with_storage_grid_size=(min(8, self.grid[0]), min(4, self.grid[1])),
            q_chunk_size=rows,
            k_chunk_size=TILE,
        )

    def activation(self, kind, x):
        if kind == 0:
            return ttnn.silu(x)
        if kind == 3:
            return ttnn.relu(x)
        variant = ttnn.GeluVariant.Tanh if kind == 2 else ttnn.GeluVariant.Accurate
        return ttnn.gelu(x, variant=variant)

    def gated(self, c):
        gate, up = c.tensors
        if c.ints[0] == 0:
            silu = [ttnn.UnaryOpType.SILU]
            return (ttnn.mul(gate, up, input_tensor_a_activations=silu),)
        return (ttnn.mul(self.keep(self.activation(c.ints[0], gate)), up),)

    def act(self, c):
        return (self.activation(c.ints[0], c.tensors[0]),)

    def add(self, c):
        return (ttnn.add(*c.tensors),)

    def mul(self, c):
        return (ttnn.mul(*c.tensors),)

    def scale(self, c):
        return (ttnn.mul(c.tensors[0], c.floats[0]),)

    def softcap(self, c):
        inner = self.keep(ttnn.mul(c.tensors[0], 1 / c.floats[0]))
        return (ttnn.mul(self.keep(ttnn.tanh(inner)), c.floats[0]),)

    def gather_rows(self, c):
        x, rows = c.tensors
        table = self.keep(ttnn.to_layout(x, ttnn.ROW_MAJOR_LAYOUT))
        table = self.keep(ttnn.reshape(table, (x.shape[-2], x.shape[-1])))
        y = ttnn.embedding(rows, table, layout=ttnn.TILE_LAYOUT)
        return (self.keep(ttnn.reshape(y, (1, 1, rows.shape[-1], x.shape[-1]))),)

    def argmax(self, c):
        x = c.tensors[0]
        is_number = self.keep(ttnn.eq(x, x))  # NaN, which is not itself, never wins
        finite = self.keep(ttnn.maximum(x, -MOST))  # -infinity still beats NaN
        x = self.keep(ttnn.where(is_number, finite, float("-inf")))
        x = self.keep(ttnn.to_layout(x, ttnn.ROW_MAJOR_LAYOUT))
        y = self.keep(ttnn.argmax(x, dim=-1))
        return (ttnn.reshape(y, (1, c.ints[0])),)

    def advance(self, c):
        """ints: steps. In place without a result, else on a copy."""
        x, made = c.tensors[0], ()
        if c.out:
            x = ttnn.clone(x)
            made = (x,)
        for _ in range(c.ints[0]):
            ttnn.plus_one(x)
        return made

    def feed(self, c):
        """In place: the tokens into `ids`; `past` moved up by a row, its last row the tokens."""
        x, past, ids, moved = c.tensors
        ttnn.copy(x, ids)
        n, width = past.shape
        if n > 1:
            kept = self.keep(ttnn.slice(past, [1, 0], [n, width]))
            x = self.keep(ttnn.concat([kept, x], dim=0))
        ttnn.copy(x, moved)

    def reshape(self, c):
        return (ttnn.reshape(c.tensors[0], tuple(c.ints)),)

    def integers(self, c):
        """The other integer type, with other dimensions."""
        kind = ttnn.int32 if c.text == "i32" else ttnn.uint32
        y = self.keep(ttnn.typecast(c.tensors[0], kind))
        return (ttnn.reshape(y, tuple(c.ints)),)

    def join_heads(self, c):
        return (ttnn.concat(c.tensors, dim=2),)

    def slice(self, c):
        """ints: first and end of every dimension, then the dimensions of the result."""
        n = len(c.tensors[0].shape)
        y = ttnn.slice(c.tensors[0], c.ints[:n], c.ints[n : 2 * n])
        dims = tuple(c.ints[2 * n :])
        return (y if tuple(y.shape) == dims else ttnn.reshape(self.keep(y), dims),)

    # ---- requests ----

    def run(self, c):
        result = getattr(self, c.name)(c)
        if isinstance(result, bytes):
            return result
        if c.out:
            self.table.update((n, t) for n, t in zip(c.out, result) if n)
        return b""

    def note_time(self, name, begin):
        n, seconds = self.spent.get(name, (0, 0.0))
        self.spent[name] = n + 1, seconds + time.perf_counter() - begin

    def serve(self, stream):
        failure = None
        while text := stream.readline():
            if self.log and self.log != "times":
                print(f"ttnn: {text.decode().strip()}", file=sys.stderr, flush=True)
            begin = time.perf_counter()
            line = json.loads(text)
            name, n_bytes, wants_answer = line[0], line[6], line[7]
            answer = b""
            if failure and name not in ("abort", "close"):
                stream.read(n_bytes)
            else:
                try:
                    answer = self.run(Call(line, stream, self.table))
                except Missing as e:
                    failure = ("missing", str(e))
                except Exception as e:  # whatever ttnn raises goes to the engine
                    failure = failure or ("error", f"{name}: {describe(e)}")
            self.note_time(name, begin)
            if not wants_answer:
                continue
            word, body = (failure[0], failure[1].encode()) if failure else ("ok", answer)
            failure = None
            stream.write(b"%s %d\n" % (word.encode(), len(body)) + body)
            stream.flush()
            if name == "close":
                return


def leave_folder():
    """ttnn writes its reports into the folder it runs in, which is the user's."""
    for name in ("TT_METAL_SIMULATOR", "TT_METAL_CACHE", "TT_METAL_HOME"):
        if os.environ.get(name):
            os.environ[name] = os.path.abspath(os.environ[name])
    cache = os.environ.get("REPRISE_CACHE") or os.path.expanduser("~/.cache/reprise")
    folder = os.path.join(cache, "ttnn")
    os.makedirs(folder, exist_ok=True)
    os.chdir(folder)


def describe(e):
    """The first lines of a ttnn error say what; the rest is a C++ backtrace."""
    text = str(e).split("backtrace:")[0]
    return " ".join(text.split())[:400] or type(e).__name__


def version_of(package):
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return getattr(ttnn, "__version__", "?")


def main():
    connection = socket.socket(fileno=int(sys.argv[1]))
    Glue().serve(connection.makefile("rwb", buffering=1 << 20))
    os._exit(0)  # ttnn's own teardown at exit is known to crash


if __name__ == "__main__":
    main()
