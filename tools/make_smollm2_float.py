#!/usr/bin/env python3
"""Makes tests/fixtures/golden/smollm2_float32.json: along the ids of smollm2_greedy.json (llama.cpp's greedy answers), the
best token of transformers in float32 on the same file's dequantised weights, and the gap of its two best log
probabilities. Needs torch, transformers, accelerate and gguf; deterministic.

    tools/make_smollm2_float.py ~/.cache/reprise/models/smollm2.gguf
"""
import json
import pathlib
import sys

import torch
import transformers
from transformers import AutoModelForCausalLM

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "tests/fixtures/golden"


def main():
    path = pathlib.Path(sys.argv[1])
    model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
    model.eval()
    cases = []
    for case in json.loads((GOLDEN / "smollm2_greedy.json").read_text())["cases"]:
        ids = case["prompt_ids"] + case["ids"][:-1]
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0, len(case["prompt_ids"]) - 1 :]
        two = torch.log_softmax(logits.double(), -1).topk(2, dim=-1)
        gaps = (two.values[:, 0] - two.values[:, 1]).tolist()
        cases.append({"best": two.indices[:, 0].tolist(), "gap": [round(gap, 4) for gap in gaps]})
    out = {
        "reference": f"transformers {transformers.__version__}, float32, weights dequantised from the same file",
        "cases": cases,
    }
    text = json.dumps(out).replace("{\"best\"", "\n{\"best\"")
    (GOLDEN / "smollm2_float32.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
