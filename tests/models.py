"""Models whose answers are known by hand, as GGUF files that any engine loads as a small Llama.

TableModel: attention-out and FFN-down are zero, embeddings are one-hot, so after the final norm
the state is sqrt(d) at the last token's place: row i of a table gives the logits after token i.
`follow` and `script` make one token the sure successor (logit sqrt(d) against 0), `choose` gives
exact probabilities.

HistogramModel: queries are zero, so attention is the plain mean over what is visible; values carry
one-hot tokens and the head reads them back. logits = c * p with p = count / n over the n visible
positions, and c = sqrt(d / (1 + sum of p squared)). A missing, doubled, stale or foreign row of
the KV cache changes a known fraction.

    model = scripted('{"a": 1}', after="\\n")  # answers so when the prompt ends in a newline
    model.write(path)
"""

import gguf
import numpy as np

from tiny_vocab import IM_END, add_to_gguf, byte_vocab, small_vocab

__all__ = [
    "TableModel",
    "HistogramModel",
    "scripted",
    "split_distinct",
    "byte_vocab",
    "small_vocab",
]

# So small that mean(x^2) + eps is mean(x^2) in float32.
EPS = 1e-12
# The logit of what a `choose` row does not list: e^-1000 is no probability at any temperature in
# use.
NEVER = -1000.0


def log_softmax(logits):
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


class ToyLlama:
    """One layer of zeros with the shapes of a Llama; a subclass fills in what it means."""

    def __init__(self, vocab, d, n_heads, n_kv_heads, head_dim, window=0):
        self.vocab, self.d, self.window = vocab, d, window
        self.n_heads, self.n_kv_heads, self.head_dim = n_heads, n_kv_heads, head_dim
        n, ffn = len(vocab), 16
        self.n_ffn = ffn
        self.tensors = {
            "token_embd.weight": np.eye(n, d),
            "output_norm.weight": np.ones(d),
            "output.weight": np.zeros((n, d)),
            "blk.0.attn_norm.weight": np.ones(d),
            "blk.0.attn_q.weight": np.zeros((n_heads * head_dim, d)),
            "blk.0.attn_k.weight": np.zeros((n_kv_heads * head_dim, d)),
            "blk.0.attn_v.weight": np.zeros((n_kv_heads * head_dim, d)),
            "blk.0.attn_output.weight": np.zeros((d, n_heads * head_dim)),
            "blk.0.ffn_norm.weight": np.ones(d),
            "blk.0.ffn_gate.weight": np.zeros((ffn, d)),
            "blk.0.ffn_up.weight": np.zeros((ffn, d)),
            "blk.0.ffn_down.weight": np.zeros((d, ffn)),
        }

    def fill_with_noise(self, *names):
        """Weights that must not show in the result."""
        noise = np.random.default_rng(7)
        for name in names:
            tensor = self.tensors[f"blk.0.{name}.weight"]
            tensor[:] = 0.05 * noise.standard_normal(tensor.shape)

    def write(self, path, context=4096, name="toy"):
        writer = gguf.GGUFWriter(path, "llama")
        writer.add_name(name)
        writer.add_block_count(1)
        writer.add_context_length(context)
        writer.add_embedding_length(self.d)
        writer.add_feed_forward_length(self.n_ffn)
        writer.add_head_count(self.n_heads)
        writer.add_head_count_kv(self.n_kv_heads)
        writer.add_key_length(self.head_dim)
        writer.add_value_length(self.head_dim)
        writer.add_rope_dimension_count(self.head_dim)
        writer.add_rope_freq_base(10000.0)
        writer.add_layer_norm_rms_eps(EPS)
        writer.add_vocab_size(len(self.vocab))
        writer.add_file_type(gguf.LlamaFileType.ALL_F32)
        if self.window:
            writer.add_sliding_window(self.window)
        add_to_gguf(writer, self.vocab.tokens, self.vocab.types, self.vocab.merges_spelled())
        for key, value in self.tensors.items():
            writer.add_tensor(key, np.ascontiguousarray(value, dtype=np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path


class TableModel(ToyLlama):
    def __init__(self, vocab=None, d=512):
        vocab = vocab or byte_vocab()
        if d < len(vocab):
            raise ValueError(f"{len(vocab)} tokens need a hidden size of as many, not {d}")
        super().__init__(vocab, d, n_heads=2, n_kv_heads=1, head_dim=16)
        self.fill_with_noise("attn_q", "attn_k", "attn_v", "ffn_gate", "ffn_up")
        self.known = set()
        for token in range(len(vocab)):  # what nobody scripts ends the text
            self._set_row(token, {IM_END: np.sqrt(d)}, 0.0)

    def _set_row(self, token, logits, others):
        column = np.full(len(self.vocab), others)
        for successor, logit in logits.items():
            column[successor] = logit
        self.tensors["output.weight"][:, token] = column / np.sqrt(self.d)

    def _claim(self, token):
        token = self.vocab.id(token)
        if token in self.known:
            raise ValueError(f"token {token} ({self.vocab.raw[token]!r}) has a successor already")
        self.known.add(token)
        return token

    def follow(self, token, successor):
        """P(successor) is 1 but for about n_vocab * e^-sqrt(d)."""
        self._set_row(self._claim(token), {self.vocab.id(successor): np.sqrt(self.d)}, 0.0)

    def choose(self, token, probabilities):
        """{successor: probability}, summing to 1; every other token is out of reach."""
        assert abs(sum(probabilities.values()) - 1) < 1e-12
        logits = {self.vocab.id(s): np.log(p) for s, p in probabilities.items()}
        self._set_row(self._claim(token), logits, NEVER)

    def script(self, after, pieces, end=IM_END):
        """The answer to a prompt that ends in the token `after`: these pieces, then `end`. Each
        piece once only."""
        chain = [after, *pieces, end]
        for token, successor in zip(chain, chain[1:]):
            self.follow(token, successor)

    def logits(self, ids):
        """After each of the ids, in double precision: [T, V]."""
        return np.sqrt(self.d) * self.tensors["output.weight"][:, ids].T

    def logprobs(self, token):
        return log_softmax(self.logits([self.vocab.id(token)])[0])


def split_distinct(raw, least=1, taken=()):
    """Cuts bytes into pieces of at least `least` bytes, each different from all others and from
    `taken`."""
    pieces, at, seen = [], 0, set(taken)
    while at < len(raw):
        n = least
        while raw[at : at + n] in seen and at + n < len(raw):
            n += 1
        pieces.append(raw[at : at + n])
        if (
            pieces[-1] in seen and len(pieces) > 1
        ):  # the rest repeats an earlier piece: one longer piece takes it in
            rest = pieces.pop()
            pieces[-1] += rest
        seen.update(pieces)
        at += n
    return pieces


def scripted(text, after="\n", pieces=None, least=1, d=512, end=IM_END):
    """A TableModel that answers `text` (or exactly these byte `pieces`) when a prompt ends in the
    token `after`."""
    raw = text.encode() if isinstance(text, str) else text
    pieces = pieces or split_distinct(raw, least, taken=[after.encode()])
    assert b"".join(pieces) == raw
    vocab = byte_vocab(pieces=pieces)
    model = TableModel(vocab, max(d, len(vocab)))
    model.script(after, pieces, end)
    return model


class HistogramModel(ToyLlama):
    def __init__(self, vocab=None, window=0, head_dim=32):
        vocab = vocab or small_vocab()
        n = len(vocab)
        n_kv = -(-n // head_dim)
        d = -(-2 * n // 32) * 32
        super().__init__(
            vocab, d, n_heads=2 * n_kv, n_kv_heads=n_kv, head_dim=head_dim, window=window
        )
        self.fill_with_noise("attn_k", "ffn_gate", "ffn_up")
        value, out = self.tensors["blk.0.attn_v.weight"], self.tensors["blk.0.attn_output.weight"]
        for token in range(n):
            head, place = divmod(token, head_dim)
            value[token, token] = 1 / np.sqrt(d)  # the norm makes a one-hot sqrt(d) high
            for query_head in (
                2 * head,
                2 * head + 1,
            ):  # half from each of the two that share the kv head
                out[n + token, query_head * head_dim + place] = 0.5
            self.tensors["output.weight"][token, n + token] = 1

    def logits(self, ids):
        """After each of the ids, in double precision: [T, V]."""
        rows = []
        for last in range(len(ids)):
            visible = (
                ids[max(0, last + 1 - self.window) : last + 1] if self.window else ids[: last + 1]
            )
            p = np.bincount(visible, minlength=len(self.vocab)) / len(visible)
            rows.append(p * np.sqrt(self.d / (1 + (p * p).sum())))
        return np.array(rows)
