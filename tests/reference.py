"""A second implementation of the Llama family, in numpy and double precision: slow, short and
plain.

`from_gguf` and `from_folder` read a checkpoint each in its own way, so that agreement between
them, and with the stored logits of transformers, checks the files too."""

import json
import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np


@dataclass
class Config:
    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    eps: float
    window: int = 0  # 0: all positions
    frequencies: np.ndarray = None  # [head_dim / 2], angle per position
    magnitude: float = 1.0  # of cosine and sine
    neighbours: bool = False  # rotate dimensions 2i and 2i + 1; else i and i + head_dim / 2


@dataclass
class Layer:
    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    o: np.ndarray
    gate: np.ndarray
    up: np.ndarray
    down: np.ndarray
    attn_norm: np.ndarray
    ffn_norm: np.ndarray
    q_bias: np.ndarray = 0.0
    k_bias: np.ndarray = 0.0
    v_bias: np.ndarray = 0.0
    q_norm: np.ndarray = None
    k_norm: np.ndarray = None


@dataclass
class Model:
    config: Config
    embed: np.ndarray
    norm: np.ndarray
    head: np.ndarray
    layers: list = field(default_factory=list)


# ---- the forward pass ----


def rms_norm(x, weight, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def rotate(x, config):
    """x [T, heads, D], position t in row t."""
    angle = np.arange(len(x))[:, None] * config.frequencies
    cos = (np.cos(angle) * config.magnitude)[:, None, :]
    sin = (np.sin(angle) * config.magnitude)[:, None, :]
    half = config.head_dim // 2
    a, b = (x[..., 0::2], x[..., 1::2]) if config.neighbours else (x[..., :half], x[..., half:])
    turned = np.empty_like(x)
    first, second = a * cos - b * sin, b * cos + a * sin
    if config.neighbours:
        turned[..., 0::2], turned[..., 1::2] = first, second
    else:
        turned[..., :half], turned[..., half:] = first, second
    return turned


def attend(q, k, v, config):
    """Causal; position t sees the `window` last positions up to itself."""
    n, group = len(q), config.n_heads // config.n_kv_heads
    distance = np.arange(n)[:, None] - np.arange(n)[None, :]
    visible = (distance >= 0) & ((distance < config.window) if config.window else True)
    out = np.empty_like(q)
    for h in range(config.n_heads):
        scores = q[:, h] @ k[:, h // group].T / math.sqrt(config.head_dim)
        scores = np.where(visible, scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        out[:, h] = weights / weights.sum(-1, keepdims=True) @ v[:, h // group]
    return out.reshape(n, -1)


def forward(model, ids):
    """Logits [T, V] after each of the ids."""
    c = model.config
    x = model.embed[ids]
    for w in model.layers:
        y = rms_norm(x, w.attn_norm, c.eps)
        q = (y @ w.q.T + w.q_bias).reshape(len(ids), c.n_heads, c.head_dim)
        k = (y @ w.k.T + w.k_bias).reshape(len(ids), c.n_kv_heads, c.head_dim)
        v = (y @ w.v.T + w.v_bias).reshape(len(ids), c.n_kv_heads, c.head_dim)
        if w.q_norm is not None:
            q, k = rms_norm(q, w.q_norm, c.eps), rms_norm(k, w.k_norm, c.eps)
        x = x + attend(rotate(q, c), rotate(k, c), v, c) @ w.o.T
        y = rms_norm(x, w.ffn_norm, c.eps)
        gate = y @ w.gate.T
        x = x + (gate / (1 + np.exp(-gate)) * (y @ w.up.T)) @ w.down.T
    return rms_norm(x, model.norm, c.eps) @ model.head.T


# ---- frequencies ----


def plain_frequencies(theta, dim):
    return theta ** (-np.arange(0, dim, 2) / dim)


def yarn(theta, dim, factor, original, beta_fast, beta_slow, mscale, mscale_all_dim):
    """Frequencies and magnitude (arXiv 2309.00071): slow pairs are interpolated, fast ones kept, a
    ramp between."""

    def pair_with(turns):  # which makes so many turns within the original context
        return dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low = max(math.floor(pair_with(beta_fast)), 0)
    high = min(math.ceil(pair_with(beta_slow)), dim - 1)
    ramp = np.clip((np.arange(dim // 2) - low) / max(high - low, 0.001), 0, 1)
    own = plain_frequencies(theta, dim)

    def grown(m):
        return 1.0 if factor <= 1 else 0.1 * m * math.log(factor) + 1

    magnitude = grown(mscale) / grown(mscale_all_dim) if mscale_all_dim else grown(1)
    return own * (1 - ramp) + own / factor * ramp, magnitude


def llama3(theta, dim, factor, low, high, original):
    own = plain_frequencies(theta, dim)
    turns = original * own / (2 * math.pi)
    smooth = np.clip((turns - low) / (high - low), 0, 1)
    return own * ((1 - smooth) / factor + smooth)


# ---- GGUF ----


def bf16_to_float(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def from_gguf(path):
    import gguf

    reader = gguf.GGUFReader(path)
    keys = {k: f.contents() for k, f in reader.fields.items() if not k.startswith("tokenizer.")}
    arch = keys["general.architecture"]

    def key(name, otherwise=None):
        return keys.get(f"{arch}.{name}", otherwise)

    tensors = {}
    for t in reader.tensors:
        data = bf16_to_float(t.data.view(np.uint16)) if t.tensor_type.name == "BF16" else t.data
        tensors[t.name] = data.reshape(tuple(int(n) for n in reversed(t.shape))).astype(np.float64)

    heads = key("attention.head_count")
    dim = key("attention.key_length", key("embedding_length") // heads)
    config = Config(
        key("block_count"),
        heads,
        key("attention.head_count_kv", heads),
        dim,
        key("attention.layer_norm_rms_epsilon"),
        key("attention.sliding_window", 0),
    )
    config.neighbours = arch in ("llama", "internlm2")
    theta, factor = key("rope.freq_base", 10000.0), key("rope.scaling.factor", 1.0)
    config.frequencies = plain_frequencies(theta, dim) / tensors.get("rope_freqs.weight", 1.0)
    kind = key("rope.scaling.type", "none")
    if kind == "linear":
        config.frequencies = config.frequencies / factor
    elif kind == "yarn":
        config.frequencies, config.magnitude = yarn(
            theta,
            dim,
            factor,
            key("rope.scaling.original_context_length"),
            key("rope.scaling.yarn_beta_fast", 32.0),
            key("rope.scaling.yarn_beta_slow", 1.0),
            1.0,
            key("rope.scaling.yarn_log_multiplier"),
        )

    names = {
        "q": "attn_q",
        "k": "attn_k",
        "v": "attn_v",
        "o": "attn_output",
        "gate": "ffn_gate",
        "up": "ffn_up",
        "down": "ffn_down",
        "attn_norm": "attn_norm",
        "ffn_norm": "ffn_norm",
    }
    model = Model(
        config,
        tensors["token_embd.weight"],
        tensors["output_norm.weight"],
        tensors.get("output.weight", tensors["token_embd.weight"]),
    )
    for i in range(config.n_layers):
        layer = Layer(**{k: tensors[f"blk.{i}.{n}.weight"] for k, n in names.items()})
        for which in "qkv":
            setattr(layer, f"{which}_bias", tensors.get(f"blk.{i}.attn_{which}.bias", 0.0))
        layer.q_norm = tensors.get(f"blk.{i}.attn_q_norm.weight")
        layer.k_norm = tensors.get(f"blk.{i}.attn_k_norm.weight")
        model.layers.append(layer)
    return model


# ---- Hugging Face folder ----


def read_safetensors(path):
    raw = Path(path).read_bytes()
    size = int.from_bytes(raw[:8], "little")
    tensors = {}
    for name, about in json.loads(raw[8 : 8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = about["data_offsets"]
        data = raw[8 + size + begin : 8 + size + end]
        values = (
            bf16_to_float(np.frombuffer(data, "<u2"))
            if about["dtype"] == "BF16"
            else np.frombuffer(data, {"F32": "<f4", "F16": "<f2"}[about["dtype"]])
        )
        tensors[name] = values.reshape(about["shape"]).astype(np.float64)
    return tensors


def frequencies_of(config, dim):
    """Of either spelling: rope_parameters, or rope_theta beside rope_scaling."""
    rope = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    theta = rope.get("rope_theta", config.get("rope_theta"))
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return plain_frequencies(theta, dim), 1.0
    factor, original = rope["factor"], rope.get("original_max_position_embeddings")
    if kind == "linear":
        return plain_frequencies(theta, dim) / factor, 1.0
    if kind == "dynamic":  # the base of the longest text, see tools/make_tiny.py
        return (
            plain_frequencies(theta * (factor * factor - (factor - 1)) ** (dim / (dim - 2)), dim),
            1.0,
        )
    if kind == "llama3":
        return (
            llama3(theta, dim, factor, rope["low_freq_factor"], rope["high_freq_factor"], original),
            1.0,
        )
    assert kind == "yarn", kind
    return yarn(
        theta,
        dim,
        factor,
        original,
        rope.get("beta_fast", 32),
        rope.get("beta_slow", 1),
        rope.get("mscale"),
        rope.get("mscale_all_dim"),
    )


def from_folder(folder, config_name="config.json"):
    folder = Path(folder)
    about = json.loads((folder / config_name).read_text())
    tensors = read_safetensors(folder / "model.safetensors")
    heads = about["num_attention_heads"]
    dim = about.get("head_dim") or about["hidden_size"] // heads
    config = Config(
        about["num_hidden_layers"],
        heads,
        about.get("num_key_value_heads", heads),
        dim,
        about["rms_norm_eps"],
        about.get("sliding_window") or 0,
    )
    config.frequencies, config.magnitude = frequencies_of(about, dim)
    if about["model_type"] == "internlm2":
        return internlm2(config, tensors)
    embed = tensors["model.embed_tokens.weight"]
    model = Model(config, embed, tensors["model.norm.weight"], tensors.get("lm_head.weight", embed))
    names = {
        "q": "self_attn.q_proj",
        "k": "self_attn.k_proj",
        "v": "self_attn.v_proj",
        "o": "self_attn.o_proj",
        "gate": "mlp.gate_proj",
        "up": "mlp.up_proj",
        "down": "mlp.down_proj",
        "attn_norm": "input_layernorm",
        "ffn_norm": "post_attention_layernorm",
    }
    for i in range(config.n_layers):
        at = f"model.layers.{i}."
        layer = Layer(**{k: tensors[f"{at}{n}.weight"] for k, n in names.items()})
        for which in "qkv":
            setattr(layer, f"{which}_bias", tensors.get(f"{at}self_attn.{which}_proj.bias", 0.0))
        layer.q_norm = tensors.get(f"{at}self_attn.q_norm.weight")
        layer.k_norm = tensors.get(f"{at}self_attn.k_norm.weight")
        model.layers.append(layer)
    return model


def internlm2(config, tensors):
    model = Model(
        config,
        tensors["model.tok_embeddings.weight"],
        tensors["model.norm.weight"],
        tensors["output.weight"],
    )
    per_kv, d = config.n_heads // config.n_kv_heads, config.head_dim
    names = {
        "o": "attention.wo",
        "gate": "feed_forward.w1",
        "up": "feed_forward.w3",
        "down": "feed_forward.w2",
        "attn_norm": "attention_norm",
        "ffn_norm": "ffn_norm",
    }
    for i in range(config.n_layers):
        at = f"model.layers.{i}."
        rows = tensors[f"{at}attention.wqkv.weight"].reshape(config.n_kv_heads, per_kv + 2, d, -1)
        width = rows.shape[-1]
        q, k, v = (
            rows[:, part].reshape(-1, width) for part in (slice(0, per_kv), per_kv, per_kv + 1)
        )
        model.layers.append(
            Layer(q, k, v, **{n: tensors[f"{at}{t}.weight"] for n, t in names.items()})
        )
    return model
