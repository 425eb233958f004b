#!/usr/bin/env python3
"""How far logits are from float32: the mean Kullback-Leibler divergence over a text.

    bench/divergence.py MODEL.gguf TEXT [--tokens 2000] [--llama SOURCE]

The reference is transformers in float32 on the file's own weights, dequantised. Held against it:
reprise with f32, q16 and q8 activations (build/bench-logits: `ninja -C build bench-logits`) and,
with --llama, llama.cpp: SOURCE is its source folder, built in SOURCE/build. Needs torch,
transformers, accelerate, gguf and numpy. Logits are kept in a folder under the cache; each takes
tokens x vocabulary x 4 bytes.
"""

import argparse
import json
import os
import subprocess
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
CACHE = Path(os.environ.get("REPRISE_CACHE", Path.home() / ".cache" / "reprise"))


def run(*command):
    return subprocess.run([str(c) for c in command], check=True, stdout=subprocess.PIPE).stdout


def reference(model, ids, out):
    import torch
    from transformers import AutoModelForCausalLM

    exact = AutoModelForCausalLM.from_pretrained(
        model.parent, gguf_file=model.name, dtype=torch.float32
    )
    with torch.no_grad():
        exact.eval()(torch.tensor([ids])).logits[0].numpy().astype(np.float32).tofile(out)


def llama_tool(source, folder):
    tool, libraries = folder / "llama-logits", source / "build" / "bin"
    includes = [f"-I{source / part / 'include'}" for part in ("", "ggml")]
    links = [f"-L{libraries}", "-lllama", "-lggml", "-lggml-base", f"-Wl,-rpath,{libraries}"]
    run("cc", "-O1", ROOT / "bench" / "llama_logits.c", *includes, *links, "-o", tool)
    return tool


def log_softmax(x):
    x = x.astype(np.float64)
    x -= x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def divergence(exact, other, n):
    """Per position, and the share of positions with the same best token."""
    p, q = (np.memmap(f, np.float32).reshape(n, -1) for f in (exact, other))
    parts, n_same = [], 0
    for i in range(0, n, 50):
        a, b = log_softmax(p[i : i + 50]), log_softmax(q[i : i + 50])
        parts.append((np.exp(a) * (a - b)).sum(-1))
        n_same += int((a.argmax(-1) == b.argmax(-1)).sum())
    return np.concatenate(parts), n_same / n


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("text", type=Path)
    parser.add_argument("--tokens", type=int, default=2000)
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--llama", type=Path, help="source folder of llama.cpp, built")
    args = parser.parse_args()
    folder = CACHE / "logits"
    folder.mkdir(parents=True, exist_ok=True)
    tokenize = [args.build / "reprise", "tokenize", args.model, "-f", args.text]
    ids = json.loads(run(*tokenize, "--no-bos", "--json"))[: args.tokens]
    list_of_ids, exact = folder / "ids.txt", folder / "exact.bin"
    list_of_ids.write_text(" ".join(map(str, ids)) + "\n")
    reference(args.model, ids, exact)
    made = {}
    for mode in ("f32", "q16", "q8"):
        made[f"reprise {mode}"] = out = folder / f"{mode}.bin"
        run(args.build / "bench-logits", args.model, list_of_ids, mode, out)
    if args.llama:
        made["llama.cpp"] = out = folder / "llama.bin"
        run(llama_tool(args.llama, folder), args.model, list_of_ids, out)
    print(f"{args.model.stem}, {len(ids)} tokens of {args.text.name}\n")
    print("| engine      | mean KL  | median   | 99%      | largest  | same best token |")
    print("|-------------|---------:|---------:|---------:|---------:|----------------:|")
    for name, out in made.items():
        kl, same = divergence(exact, out, len(ids))
        figures = (kl.mean(), np.median(kl), np.percentile(kl, 99), kl.max())
        print(f"| {name:11} | {' | '.join(f'{x:.2e}' for x in figures)} | {same:15.1%} |")


if __name__ == "__main__":
    main()
