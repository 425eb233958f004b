#!/usr/bin/env python3
"""Makes tests/fixtures/tiny: a tiny random checkpoint per member of the Llama family, with its
logits.

    VENV/bin/python tools/make_tiny.py [NAME...]

Needs torch, transformers, tokenizers, safetensors and gguf.

Per NAME: NAME/ (a Hugging Face folder as transformers writes it), NAME.gguf (tensor names, row
order and keys as llama.cpp's conversion gives them), NAME.json (token ids) and NAME.bin: the
logits of transformers in float32 with eager attention, little-endian float32 [50, vocab]. Row i
follows token i of `ids`; ids[40:] are the greedy choices of rows 39..48. The same versions of the
packages give the same files to the byte: every seed is fixed."""

import argparse
import copy
import json
import os
import shutil
import sys
import zlib
from pathlib import Path

import numpy as np
import tokenizers
import torch
import transformers
from safetensors.torch import save_file

import tiny_gguf
from tiny_vocab import CHATML, IM_END, IM_START, END, SPECIALS

OUT = Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "tiny"
N_PROMPT, N_DECODE = 40, 10
VOCAB = 272
SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "bos_token_id": IM_START,
    "eos_token_id": IM_END,
    "pad_token_id": END,
    "tie_word_embeddings": False,
    "attention_dropout": 0.0,
}


def plain(theta):
    return {"rope_type": "default", "rope_theta": theta}


# Small enough that, with 16 rotated dimensions, several pairs are scaled within 50 positions.
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 32,
}
LINEAR = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}

# name: transformers' config class, what differs from SIZES, options
#   weights: the checkpoint whose safetensors file this one shares; seed defaults to the name's
CASES = {
    "llama2": ("Llama", {"num_key_value_heads": 4, "rope_parameters": plain(10000.0)}, {}),
    "llama3": ("Llama", {"rope_parameters": LLAMA3_ROPE}, {}),
    "llama3-bf16": ("Llama", {"rope_parameters": LLAMA3_ROPE}, {"seed": "llama3", "bf16": True}),
    "smollm2": ("Llama", {"tie_word_embeddings": True, "rope_parameters": plain(100000.0)}, {}),
    "mistral": ("Mistral", {"sliding_window": 16, "rope_parameters": plain(10000.0)}, {}),
    "qwen2": (
        "Qwen2",
        {"tie_word_embeddings": True, "rms_norm_eps": 1e-6, "rope_parameters": plain(1000000.0)},
        {},
    ),
    "qwen3": (
        "Qwen3",
        {
            "head_dim": 32,
            "tie_word_embeddings": True,
            "rms_norm_eps": 1e-6,
            "rope_parameters": plain(1000000.0),
        },
        {},
    ),
    "internlm2": ("Llama", {"rope_parameters": plain(1000000.0)}, {"fused": True}),
    "rope-linear": (
        "Llama",
        {"tie_word_embeddings": True, "rope_parameters": LINEAR},
        {"seed": "rope"},
    ),
    "rope-dynamic": (
        "Llama",
        {"tie_word_embeddings": True, "max_position_embeddings": 32, "rope_parameters": DYNAMIC},
        {"seed": "rope", "weights": "rope-linear", "gguf": False},
    ),
    "rope-yarn": (
        "Llama",
        {"tie_word_embeddings": True, "max_position_embeddings": 128, "rope_parameters": YARN},
        {"seed": "rope", "weights": "rope-linear"},
    ),
    "rope-yarn-mscale": (
        "Llama",
        {
            "tie_word_embeddings": True,
            "max_position_embeddings": 256,
            "rope_parameters": dict(
                YARN, original_max_position_embeddings=64, beta_fast=8.0, beta_slow=1.5,
                mscale=1.0, mscale_all_dim=0.5,
            ),
        },
        {"seed": "rope", "weights": "rope-linear"},
    ),
}  # fmt: skip
CASES["qwen3-bf16"] = (*CASES["qwen3"][:2], {"seed": "qwen3", "bf16": True})


def generator(*words):
    return np.random.default_rng([zlib.crc32(str(w).encode()) for w in words])


def make_weight(seed, name, shape, tied):
    """Scales at which attention is peaked, each layer moves the residual, and logits have a
    deviation of 1 to 3."""
    noise = generator(seed, name).standard_normal(shape)
    if "norm" in name:
        return 1 + 0.2 * noise
    if name.endswith("bias"):
        return 0.5 * noise
    if "lm_head" in name or (tied and "embed_tokens" in name):
        return 0.25 * noise
    if "embed_tokens" in name:
        return noise
    gain = 1.6 if "q_proj" in name or "k_proj" in name else 1.0
    return gain / np.sqrt(shape[1]) * noise


def make_model(kind, changes, options, name):
    config = getattr(transformers, f"{kind}Config")(**copy.deepcopy({**SIZES, **changes}))
    config._attn_implementation = "eager"
    model = getattr(transformers, f"{kind}ForCausalLM")(config).float().eval()
    tied = config.tie_word_embeddings
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            value = make_weight(options.get("seed", name), key, tuple(parameter.shape), tied)
            value = torch.from_numpy(value.astype(np.float32))
            if options.get("bf16"):
                value = value.to(torch.bfloat16).float()
            parameter.copy_(value)
    return model


def logits_of(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids]), use_cache=False).logits[0].float()


def decode_greedily(model, prompt):
    """Ids and logits; None when a step is nearly a tie, which another order of summation could
    turn. Each step runs the whole text again, so no cache can hide or add a difference."""
    ids = list(prompt)
    for _ in range(N_DECODE):
        best = torch.topk(logits_of(model, ids)[-1], 2)
        if best.values[0] - best.values[1] < 0.02:
            return None
        ids.append(int(best.indices[0]))
    return ids, logits_of(model, ids)


def choose_text(model):
    """The first of a fixed row of random prompts without a near tie."""
    for attempt in range(20):
        prompt = generator("prompt", attempt).integers(len(SPECIALS), VOCAB, N_PROMPT)
        done = decode_greedily(model, [int(i) for i in prompt])
        if done:
            return done
    raise AssertionError("no prompt without a near tie")


def decode_with_cache(model, ids):
    """The rows of a model whose frequencies depend on the length so far: what a cache holds keeps
    its old angles."""
    with torch.no_grad():
        out = model(torch.tensor([ids[:N_PROMPT]]), use_cache=True)
        rows = [out.logits[0]]
        for i in range(N_PROMPT, len(ids)):
            out = model(
                torch.tensor([[ids[i]]]), past_key_values=out.past_key_values, use_cache=True
            )
            rows.append(out.logits[0])
    return torch.cat(rows)


def write_golden(name, ids, rows, **more):
    rows = rows.numpy().astype("<f4")
    assert rows.shape == (N_PROMPT + N_DECODE, VOCAB) and np.isfinite(rows).all()
    (OUT / f"{name}.bin").write_bytes(rows.tobytes())
    about = {
        "logits": f"{name}.bin",
        "n_prompt": N_PROMPT,
        "n_rows": len(rows),
        "n_vocab": VOCAB,
        "reference": f"transformers {transformers.__version__}, float32, eager attention",
        **more,
        "ids": ids,
    }
    text = json.dumps(about, indent=1)
    (OUT / f"{name}.json").write_text(text.replace("\n  ", " ").replace("\n ]", " ]") + "\n")


# ---- the Hugging Face folder ----


def write_tokenizer():
    """Bytes, specials and merges learnt from one sentence; the same for every checkpoint."""
    bpe = tokenizers.Tokenizer(tokenizers.models.BPE())
    bpe.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    bpe.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=VOCAB,
        special_tokens=list(SPECIALS),
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    text = "a step is recorded once and replayed for ever after, "
    text += "the same step at the same place each time"
    bpe.train_from_iterator(
        [text, text, "the other the one there and then, recorded and replayed"], trainer
    )
    assert bpe.get_vocab_size() == VOCAB
    bpe.save(str(OUT / "tokenizer.json"))
    about = {
        "add_bos_token": False,
        "bos_token": SPECIALS[IM_START],
        "eos_token": SPECIALS[IM_END],
        "pad_token": SPECIALS[END],
        "chat_template": CHATML,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 512,
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    (OUT / "tokenizer_config.json").write_text(json.dumps(about, indent=2) + "\n")
    return bpe


def write_folder(name, model, options):
    folder = OUT / name
    shutil.rmtree(folder, ignore_errors=True)
    model.generation_config.save_pretrained(folder)
    config = model.config
    dtype = "bfloat16" if options.get("bf16") else "float32"
    config.dtype = dtype
    config.architectures = [type(model).__name__]
    config.save_pretrained(folder)
    if options.get("fused"):
        write_json(folder / "config.json", internlm2_config(config))
    elif config.rope_parameters["rope_type"] != "default":
        write_json(folder / "config-older.json", older_config(folder / "config.json"))
    for shared in ("tokenizer.json", "tokenizer_config.json"):
        (folder / shared).symlink_to(f"../{shared}")
    if "weights" in options:
        (folder / "model.safetensors").symlink_to(f"../{options['weights']}/model.safetensors")
    else:
        save_weights(
            folder / "model.safetensors", tensors_of(model, options), getattr(torch, dtype)
        )


def tensors_of(model, options):
    """What the checkpoint stores: tied tensors once, and fused ones fused."""
    tensors = {k: v.detach() for k, v in model.named_parameters()}
    return fuse(tensors, model.config) if options.get("fused") else tensors


def save_weights(path, tensors, dtype):
    save_file(
        {k: v.to(dtype).contiguous().clone() for k, v in tensors.items()}, path, {"format": "pt"}
    )


def write_json(path, value):
    path.write_text(json.dumps(value, indent=2) + "\n")


def older_config(path):
    """The same in the spelling of transformers 4: rope_theta beside a rope_scaling that says
    `type`."""
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    rope["type"] = rope.pop("rope_type")
    config["rope_scaling"] = rope
    config["torch_dtype"] = config.pop("dtype")
    return config


# ---- InternLM2: a Llama whose q, k and v rows lie together, under names of its own ----

INTERNLM2_NAMES = {
    "model.embed_tokens": "model.tok_embeddings",
    "lm_head": "output",
    "self_attn.o_proj": "attention.wo",
    "mlp.gate_proj": "feed_forward.w1",
    "mlp.up_proj": "feed_forward.w3",
    "mlp.down_proj": "feed_forward.w2",
    "input_layernorm": "attention_norm",
    "post_attention_layernorm": "ffn_norm",
}


def fuse(tensors, config):
    """Per kv head: its query heads, then its key head, then its value head."""
    n_kv, n_q, d = config.num_key_value_heads, config.num_attention_heads, config.head_dim
    out = {}
    for key, value in tensors.items():
        if "q_proj" in key:
            k, v = (tensors[key.replace("q_proj", f"{x}_proj")].view(n_kv, 1, d, -1) for x in "kv")
            wqkv = torch.cat([value.view(n_kv, n_q // n_kv, d, -1), k, v], dim=1)
            out[key.replace("self_attn.q_proj", "attention.wqkv")] = wqkv.reshape(
                -1, wqkv.shape[-1]
            )
        elif "k_proj" not in key and "v_proj" not in key:
            for old, new in INTERNLM2_NAMES.items():
                if f"{old}.weight" in key:
                    key = key.replace(old, new)
                    break
            out[key] = value
    return out


def internlm2_config(config):
    keys = (
        "bos_token_id eos_token_id hidden_act hidden_size initializer_range intermediate_size "
        "max_position_embeddings num_attention_heads num_hidden_layers num_key_value_heads "
        "pad_token_id rms_norm_eps tie_word_embeddings use_cache vocab_size"
    )
    return {
        "architectures": ["InternLM2ForCausalLM"],
        "attn_implementation": "eager",
        "bias": False,
        "model_type": "internlm2",
        "rope_scaling": None,
        "rope_theta": config.rope_parameters["rope_theta"],
        "torch_dtype": "float32",
        **{k: getattr(config, k) for k in keys.split()},
    }


def unfuse_equals(model, tensors):
    """The fused rows, taken apart with index arithmetic, are the q, k and v rows they were made
    from."""
    config, own = model.config, dict(model.named_parameters())
    d, per_kv = config.head_dim, config.num_attention_heads // config.num_key_value_heads
    for layer in range(config.num_hidden_layers):
        wqkv = tensors[f"model.layers.{layer}.attention.wqkv.weight"]
        for head in range(config.num_attention_heads):
            kv, place = divmod(head, per_kv)
            at = (kv * (per_kv + 2) + place) * d
            q = own[f"model.layers.{layer}.self_attn.q_proj.weight"]
            assert torch.equal(wqkv[at : at + d], q[head * d : head * d + d])
        for kv in range(config.num_key_value_heads):
            for offset, which in ((per_kv, "k"), (per_kv + 1, "v")):
                at = (kv * (per_kv + 2) + offset) * d
                w = own[f"model.layers.{layer}.self_attn.{which}_proj.weight"]
                assert torch.equal(wqkv[at : at + d], w[kv * d : kv * d + d])


# ---- all of it ----


def make(name):
    kind, changes, options = CASES[name]
    model = make_model(kind, changes, options, name)
    ids, rows = choose_text(model)
    if options.get("fused"):
        unfuse_equals(model, tensors_of(model, options))
    write_folder(name, model, options)
    if options.get("gguf", True):
        arch = "internlm2" if options.get("fused") else None
        tiny_gguf.write(OUT / f"{name}.gguf", OUT, name, model, arch, options.get("bf16", False))
    if name == "rope-dynamic":
        make_dynamic(name, kind, changes, options, ids)
    else:
        write_golden(name, ids, rows)
    print(f"{name}: logits deviate by {rows.std():.2f}")


def make_dynamic(name, kind, changes, options, ids):
    """Dynamic NTK has two readings. transformers widens the base with the length of each forward
    pass; engines that keep keys in a cache take the base of the longest text (factor x
    max_position_embeddings) for every position."""
    rows = decode_with_cache(make_model(kind, changes, options, name), ids)
    write_golden(
        name, ids, rows, steps="prompt in one forward pass, then one token each with a cache"
    )
    rope, longest = changes["rope_parameters"], changes["rope_parameters"]["factor"]
    d = SIZES["hidden_size"] // SIZES["num_attention_heads"]
    # (factor * length / max_position_embeddings - (factor - 1)) ** (d / (d - 2)) at length =
    # factor * max
    base = rope["rope_theta"] * (rope["factor"] * longest - (rope["factor"] - 1)) ** (d / (d - 2))
    fixed = dict(changes, rope_parameters=plain(base))
    rows = logits_of(make_model(kind, fixed, options, name), ids)
    write_golden(f"{name}-fixed", ids, rows, steps=f"every position with the base {base:.3f}")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", nargs="*", choices=[[], *CASES], default=[])
    names = parser.parse_args().name or list(CASES)
    torch.set_num_threads(1)  # one order of summation on every machine
    OUT.mkdir(parents=True, exist_ok=True)
    write_tokenizer()
    for name in names:
        make(name)
    return 0


if __name__ == "__main__":
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    sys.exit(main())
