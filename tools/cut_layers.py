#!/usr/bin/env python3
"""The first layers of a GGUF model as a model of its own, with the same weights: what a slow simulator can run of a
real one. Needs gguf.

    tools/cut_layers.py ~/.cache/reprise/models/smollm2.gguf 4 OUT.gguf
"""
import argparse

import gguf


def copy_fields(reader, writer, arch, n_layers):
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        kind = field.types[0]
        value = n_layers if field.name == f"{arch}.block_count" else field.contents()
        sub = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, value, kind, sub_type=sub)


def is_kept(name, n_layers):
    parts = name.split(".")
    return parts[0] != "blk" or int(parts[1]) < n_layers


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("layers", type=int)
    parser.add_argument("out")
    args = parser.parse_args()
    reader = gguf.GGUFReader(args.model)
    arch = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(args.out, arch)
    copy_fields(reader, writer, arch, args.layers)
    for t in reader.tensors:
        if is_kept(t.name, args.layers):
            writer.add_tensor(t.name, t.data, raw_dtype=t.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
