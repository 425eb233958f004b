"""A transformers model of the Llama family as GGUF, by the conventions of llama.cpp's conversion.

- The archs `llama` and `internlm2` rotate neighbouring dimensions, so the rows of q and k are
  interleaved: row i of the first half of a head goes to 2i, row i of the second half to 2i + 1.
  `qwen2` and `qwen3` keep the order.
- llama3 scaling is a tensor, rope_freqs.weight: what each frequency is divided by. The other
  scalings are keys.
- Vectors are always float32.
- The sliding window of Mistral is written as llama.attention.sliding_window, which llama.cpp's
  conversion leaves out.
"""

import json
import math

import gguf
import numpy as np

from tiny_vocab import CONTROL, NORMAL, SPECIALS, add_to_gguf

NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
ARCHS = {"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}
INTERLEAVED = ("llama", "internlm2")


def gguf_name(key):
    stem, kind = key.rsplit(".", 1)
    if stem.startswith("model.layers."):
        _, _, layer, rest = stem.split(".", 3)
        return f"blk.{layer}.{NAMES[rest]}.{kind}"
    return f"{NAMES[stem]}.{kind}"


def interleave(rows, n_head):
    halves = rows.reshape(n_head, 2, rows.shape[0] // n_head // 2, *rows.shape[1:])
    return halves.swapaxes(1, 2).reshape(rows.shape)


def llama3_factors(rope, dim):
    """1 for short waves, `factor` for long ones, a smooth blend of the frequencies between."""
    factors = []
    for i in range(0, dim, 2):
        wave = 2 * math.pi * rope["rope_theta"] ** (i / dim)
        turns = rope["original_max_position_embeddings"] / wave
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        smooth = min(1.0, max(0.0, (turns - low) / (high - low)))
        factors.append(1 / ((1 - smooth) / rope["factor"] + smooth))
    return np.array(factors, dtype=np.float32)


def add_rope(writer, rope):
    writer.add_rope_freq_base(rope["rope_theta"])
    kind = rope["rope_type"]
    if kind == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    elif kind == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        if "beta_fast" in rope:
            writer.add_rope_scaling_yarn_beta_fast(rope["beta_fast"])
            writer.add_rope_scaling_yarn_beta_slow(rope["beta_slow"])
        if "mscale" in rope:
            assert rope["mscale"] == 1.0  # the key below implies it
            writer.add_rope_scaling_yarn_log_mul(rope["mscale_all_dim"])
    else:
        assert kind in ("default", "llama3")


def add_parameters(writer, config, arch, bf16, name):
    writer.add_name(f"tiny {name}")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16 if bf16 else gguf.LlamaFileType.ALL_F32)
    if arch == "qwen3":
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)
    if arch in INTERLEAVED:
        writer.add_vocab_size(config.vocab_size)
        writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    if arch == "llama" and getattr(config, "sliding_window", None):
        writer.add_sliding_window(config.sliding_window)
    add_rope(writer, config.rope_parameters)


def add_tensor(writer, name, value, bf16):
    if bf16 and value.ndim > 1:
        kind = gguf.GGMLQuantizationType.BF16
        writer.add_tensor(name, gguf.quants.quantize(value, kind), raw_dtype=kind)
    else:
        writer.add_tensor(name, value)


def write(path, folder, name, model, arch=None, bf16=False):
    """`folder` has the tokenizer.json; `arch` when it is not the model type's own."""
    config = model.config
    arch = arch or ARCHS[config.model_type]
    writer = gguf.GGUFWriter(path, arch)
    add_parameters(writer, config, arch, bf16, name)
    bpe = json.loads((folder / "tokenizer.json").read_text())["model"]
    tokens = sorted(bpe["vocab"], key=bpe["vocab"].get)
    types = [CONTROL if t in SPECIALS else NORMAL for t in tokens]
    merges = [m if isinstance(m, str) else " ".join(m) for m in bpe["merges"]]
    add_to_gguf(writer, tokens, types, merges)
    if config.rope_parameters["rope_type"] == "llama3":
        dim = config.hidden_size // config.num_attention_heads
        writer.add_tensor("rope_freqs.weight", llama3_factors(config.rope_parameters, dim))
    for key, parameter in model.named_parameters():
        value = parameter.detach().numpy()
        if arch in INTERLEAVED and "q_proj" in key:
            value = interleave(value, config.num_attention_heads)
        if arch in INTERLEAVED and "k_proj" in key:
            value = interleave(value, config.num_key_value_heads)
        add_tensor(writer, gguf_name(key), np.ascontiguousarray(value), bf16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
