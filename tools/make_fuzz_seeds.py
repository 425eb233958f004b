"""Makes the seeds of the file fuzzers, fuzz/corpus/{gguf,safetensors}: small right files.

    python tools/make_fuzz_seeds.py
"""

import json
import pathlib
import struct
import tempfile

import gguf
import numpy as np

CORPUS = pathlib.Path(__file__).resolve().parent.parent / "fuzz" / "corpus"


def save_gguf(name, fill):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "seed.gguf"
        writer = gguf.GGUFWriter(path, "llama")
        fill(writer)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        data = path.read_bytes()
    assert len(data) < 4096, name
    (CORPUS / "gguf" / name).write_bytes(data)


def values(w):
    w.add_uint8("u8", 1)
    w.add_int8("i8", -1)
    w.add_uint16("u16", 2)
    w.add_int16("i16", -2)
    w.add_uint32("u32", 3)
    w.add_int32("i32", -3)
    w.add_uint64("u64", 4)
    w.add_int64("i64", -4)
    w.add_float32("f32", 0.5)
    w.add_float64("f64", 0.25)
    w.add_bool("yes", True)
    w.add_string("text", "hello")


def vocabulary(w):
    w.add_tokenizer_model("llama")
    w.add_token_list(["<s>", "a", "b", "ab"])
    w.add_token_scores([0.0, -1.0, -2.0, -3.0])
    w.add_token_types([3, 1, 1, 1])
    w.add_token_merges(["a b"])


def tensors(w):
    w.add_tensor("a", np.arange(12, dtype=np.float32).reshape(3, 4))
    w.add_tensor("h", np.arange(8, dtype=np.float16))
    w.add_tensor("q", np.zeros((2, 18), np.uint8), raw_dtype=gguf.GGMLQuantizationType.Q4_0)
    w.add_tensor("k", np.zeros((1, 144), np.uint8), raw_dtype=gguf.GGMLQuantizationType.Q4_K)


def aligned(w):
    w.add_custom_alignment(64)
    tensors(w)


def split(w):
    w.add_uint16("split.no", 0)
    w.add_uint16("split.count", 2)
    w.add_int32("split.tensors.count", 8)
    tensors(w)


def save_safetensors(name, header, n_data):
    text = (header if isinstance(header, str) else json.dumps(header)).encode()
    (CORPUS / "safetensors" / name).write_bytes(struct.pack("<Q", len(text)) + text + bytes(n_data))


def entry(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def main():
    for kind in ("gguf", "safetensors"):
        (CORPUS / kind).mkdir(parents=True, exist_ok=True)
    for fill in (values, vocabulary, tensors, aligned, split):
        save_gguf(fill.__name__, fill)
    save_safetensors("one", {"x": entry("F32", [2, 3], 0, 24)}, 24)
    dtypes = {
        "__metadata__": {"format": "pt"},
        "b": entry("BF16", [4], 0, 8),
        "i": entry("I64", [1], 8, 16),
        "u": entry("U8", [3], 16, 19),
        "t": entry("BOOL", [1, 1], 19, 20),
    }
    save_safetensors("dtypes", dtypes, 20)
    save_safetensors("not_supported", {**dtypes, "f": entry("F8_E4M3", [4], 20, 24)}, 24)
    empty = {"s": entry("F16", [], 0, 2), "e": entry("F64", [0, 9], 2, 2)}
    save_safetensors("scalar_and_empty", empty, 2)
    swapped = {"b": entry("I8", [4], 4, 8), "a": entry("I8", [4], 0, 4)}
    save_safetensors("out_of_order", swapped, 8)
    save_safetensors("only_metadata", '{"__metadata__":{"a":"[{\\"\\\\"}}   ', 0)


if __name__ == "__main__":
    main()
