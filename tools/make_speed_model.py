#!/usr/bin/env python3
"""Writes a model for measuring speed: a real model's shape, random weights from a fixed seed.

    make_speed_model.py q4_0 q8_0 q4_k_m bf16 f16 [--shape qwen3-0.6b] [--layers N] [--out FOLDER]

Each format becomes FOLDER/SHAPE-FORMAT.gguf (~/.cache/reprise/models). Which tensor gets which type
is what llama.cpp's quantisation chooses for that shape: with tied embeddings the token table, which
is the output matrix too, is Q6_K in the 4-bit formats, and Q4_K_M gives half of attn_v and ffn_down
more bits. Its answers are noise, but sums and norms keep the sizes that a trained model's have.

Needs numpy and gguf: "$(tools/venv.sh)" tools/make_speed_model.py ...
"""

import argparse
import math
import os
import sys
from pathlib import Path

import gguf
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

from tiny_vocab import add_to_gguf, byte_vocab  # noqa: E402

# layers, embedding, feed-forward, heads, kv heads, head dimension, vocabulary
SHAPES = {
    "qwen3-0.6b": (28, 1024, 3072, 16, 8, 128, 151936),
    "tiny": (2, 256, 512, 4, 2, 64, 512),
}
FORMATS = ("q4_0", "q4_1", "q8_0", "q4_k_m", "bf16", "f16")
CONTEXT = 40960
SEED = 20240607


class Random:
    """Blocks of weights with mean 0 and a given deviation, as bytes [rows, row bytes]."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def normal(self, shape, deviation):
        return self.rng.standard_normal(shape, dtype=np.float32) * np.float32(deviation)

    def whole(self, shape, deviation, low, high):
        return np.clip(np.rint(self.normal(shape, deviation)), low, high).astype(np.int16)

    def scales(self, n, size):
        return (size * self.rng.uniform(0.8, 1.2, (n, 1))).astype(np.float16).view(np.uint8)

    def nibbles(self, n, bytes_each):
        q = (self.whole((n, 2 * bytes_each), 2.6, -8, 7) + 8).astype(np.uint8)
        return q[:, :bytes_each] | q[:, bytes_each:] << 4

    def q4_0(self, n, deviation):
        return np.hstack([self.scales(n, deviation / 2.6), self.nibbles(n, 16)])

    def q4_1(self, n, deviation):
        d = self.scales(n, deviation / 2.6)
        m = (d.view(np.float16) * np.float16(-8)).view(np.uint8)
        return np.hstack([d, m, self.nibbles(n, 16)])

    def q8_0(self, n, deviation):
        q = self.whole((n, 32), 42, -127, 127).astype(np.int8).view(np.uint8)
        return np.hstack([self.scales(n, deviation / 42), q])

    def q4_k(self, n, deviation):
        """Scale s and min m of each 32 are 6-bit: s, then m = 2 s, with dmin = 4 d, so that a weight
        is d s (q - 8)."""
        d = self.scales(n, deviation / 2.6 / 24)
        dmin = (d.view(np.float16) * np.float16(4)).view(np.uint8)
        s = self.rng.integers(18, 31, (n, 8), dtype=np.uint8)
        m = 2 * s
        low = np.hstack([s[:, :4] | (s[:, 4:] >> 4) << 6, m[:, :4] | (m[:, 4:] >> 4) << 6])
        return np.hstack([d, dmin, low, s[:, 4:] & 15 | (m[:, 4:] & 15) << 4, self.nibbles(n, 128)])

    def q6_k(self, n, deviation):
        q = (self.whole((n, 2, 4, 32), 10.5, -32, 31) + 32).astype(np.uint8)
        ql = (q[:, :, :2] & 15 | (q[:, :, 2:] & 15) << 4).reshape(n, 128)
        high = q >> 4
        qh = high[:, :, 0] | high[:, :, 1] << 2 | high[:, :, 2] << 4 | high[:, :, 3] << 6
        s = self.rng.integers(48, 81, (n, 16), dtype=np.uint8)
        return np.hstack([ql, qh.reshape(n, 64), s, self.scales(n, deviation / 10.5 / 64)])

    def bf16(self, n, deviation):
        return (self.normal((n, 1), deviation).view(np.uint32) >> 16).astype(np.uint16)

    def f16(self, n, deviation):
        return self.normal((n, 1), deviation).astype(np.float16)

    def matrix(self, kind, rows, columns, deviation):
        block = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind.upper()]][0]
        data = getattr(self, kind)(rows * columns // block, deviation)
        return np.ascontiguousarray(data.reshape(rows, -1)).view(np.uint8)


def has_more_bits(layer, n_layers):
    eighth = n_layers // 8
    return layer < eighth or layer >= 7 * n_layers // 8 or (layer - eighth) % 3 == 2


def kind_of(form, name, layer, n_layers):
    if form in ("q4_0", "q4_1") and name == "token_embd":
        return "q6_k"
    if form != "q4_k_m":
        return form
    if name == "token_embd":
        return "q6_k"
    return "q6_k" if name in ("attn_v", "ffn_down") and has_more_bits(layer, n_layers) else "q4_k"


def tensors(shape, n_layers):
    """name, rows, columns, layer; one row: a vector."""
    _, embd, ff, heads, kv, dim, vocab = shape
    yield "token_embd", vocab, embd, 0
    yield "output_norm", 1, embd, 0
    for i in range(n_layers):
        for name, rows, columns in (
            ("attn_norm", 1, embd),
            ("attn_q", heads * dim, embd),
            ("attn_k", kv * dim, embd),
            ("attn_v", kv * dim, embd),
            ("attn_q_norm", 1, dim),
            ("attn_k_norm", 1, dim),
            ("attn_output", embd, heads * dim),
            ("ffn_norm", 1, embd),
            ("ffn_gate", ff, embd),
            ("ffn_up", ff, embd),
            ("ffn_down", embd, ff),
        ):
            yield name, rows, columns, i


def add_parameters(writer, shape, n_layers, name):
    _, embd, ff, heads, kv, dim, _ = shape
    writer.add_name(name)
    writer.add_block_count(n_layers)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(embd)
    writer.add_feed_forward_length(ff)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv)
    writer.add_key_length(dim)
    writer.add_value_length(dim)
    writer.add_rope_freq_base(1000000.0)
    writer.add_layer_norm_rms_eps(1e-6)


def add_tensors(writer, shape, n_layers, form):
    random = Random(SEED)
    for name, rows, columns, layer in tensors(shape, n_layers):
        is_top = name in ("token_embd", "output_norm")
        full = f"{name}.weight" if is_top else f"blk.{layer}.{name}.weight"
        if rows == 1:
            writer.add_tensor(full, 1 + random.normal(columns, 0.05))
            continue
        # What is added to the residual stream is smaller the more layers add to it.
        deviation = 1 / math.sqrt(columns)
        if name in ("attn_output", "ffn_down"):
            deviation /= math.sqrt(2 * n_layers)
        kind = kind_of(form, name, layer, n_layers)
        data = random.matrix(kind, rows, columns, deviation)
        writer.add_tensor(full, data, raw_dtype=gguf.GGMLQuantizationType[kind.upper()])


def write(path, shape_name, form, n_layers):
    shape = SHAPES[shape_name]
    n_layers = n_layers or shape[0]
    part = path.with_suffix(".part")
    writer = gguf.GGUFWriter(part, "qwen3", use_temp_file=True)
    add_parameters(writer, shape, n_layers, f"{shape_name} of random weights, {form}")
    writer.add_file_type(
        gguf.LlamaFileType[f"MOSTLY_{form.upper()}"]
    )
    vocab = byte_vocab(size=shape[-1])
    add_to_gguf(writer, vocab.tokens, vocab.types, vocab.merges_spelled())
    add_tensors(writer, shape, n_layers, form)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    part.rename(path)


def default_folder():
    return Path(os.environ.get("REPRISE_CACHE", Path.home() / ".cache" / "reprise")) / "models"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("format", nargs="+", choices=FORMATS)
    parser.add_argument("--shape", default="qwen3-0.6b", choices=SHAPES)
    parser.add_argument("--layers", type=int, default=0, help="fewer than the shape has")
    parser.add_argument("--out", type=Path, default=default_folder())
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for form in args.format:
        path = args.out / f"{args.shape}-{form.replace('_', '-')}.gguf"
        write(path, args.shape, form, args.layers)
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
