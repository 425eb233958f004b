"""The table and histogram models say what they are meant to, by a forward pass that knows nothing
of their making."""

import json
import math

import gguf
import numpy as np
import pytest
import tokenizers

import reference
from models import (
    HistogramModel,
    TableModel,
    byte_vocab,
    log_softmax,
    scripted,
    small_vocab,
    split_distinct,
)
from project import FIXTURES
from tiny_vocab import IM_END

TEXT = 'Grüße, 世界 🦙! {"name": "get", "arguments": {"x": [1, 1, 1]}}'


def tokenizer_of(path):
    """The reference tokenizer, made from what the file says."""
    fields = gguf.GGUFReader(path).fields
    tokens, merges, types = (
        fields[f"tokenizer.ggml.{k}"].contents() for k in ("tokens", "merges", "token_type")
    )
    vocab = {t: i for i, t in enumerate(tokens)}
    bpe = tokenizers.Tokenizer(tokenizers.models.BPE(vocab, [tuple(m.split(" ")) for m in merges]))
    bpe.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = tokenizers.decoders.ByteLevel()
    bpe.add_special_tokens([t for t, kind in zip(tokens, types) if kind == 3])
    return bpe


def answer(path, prompt_ids, limit=200):
    model, ids = reference.from_gguf(path), list(prompt_ids)
    for _ in range(limit):
        ids.append(int(reference.forward(model, ids)[-1].argmax()))
        if ids[-1] == IM_END:
            break
    return ids[len(prompt_ids) :]


@pytest.mark.parametrize("least", [1, 2, 5])
def test_scripted_text(tmp_path, least):
    """From a prompt of real text, through the real tokenizer and back; pieces of odd lengths cut
    characters."""
    model = scripted(TEXT, after="\n", least=least)
    path = model.write(tmp_path / "toy.gguf")
    bpe = tokenizer_of(path)
    prompt = bpe.encode("<|im_start|>user\nSay it.<|im_end|>\n<|im_start|>assistant\n").ids
    assert prompt[0] == 1 and prompt.count(IM_END) == 1
    ids = answer(path, prompt)
    assert ids[-1] == IM_END
    assert model.vocab.bytes_of(ids[:-1]).decode() == TEXT
    assert len(set(ids)) == len(ids)
    assert bpe.decode(ids) == TEXT


def test_sure_successor_has_the_stated_probability():
    """d = 512: the winning logit is sqrt(512) = 22.627 against 0."""
    model = TableModel(byte_vocab(size=512))
    model.follow("x", "y")
    logits = model.logits([model.vocab.id("x")])[0]
    assert logits.max() == pytest.approx(22.627417, abs=1e-6)
    assert model.logprobs("x").max() == pytest.approx(-7.6e-8, rel=0.01)


def test_chosen_probabilities(tmp_path):
    model = TableModel()
    model.choose("x", {"a": 0.7, "b": 0.2, "c": 0.1})
    path = model.write(tmp_path / "toy.gguf")
    ids = [model.vocab.id(c) for c in "yyx"]
    found = log_softmax(reference.forward(reference.from_gguf(path), ids)[-1])
    for letter, expected in (("a", -0.356675), ("b", -1.609438), ("c", -2.302585)):
        assert found[model.vocab.id(letter)] == pytest.approx(expected, abs=2e-6)
        assert model.logprobs("x")[model.vocab.id(letter)] == pytest.approx(expected, abs=1e-6)
    assert np.exp(np.sort(found)[:-3]).sum() == 0


def test_one_token_has_one_successor():
    model = TableModel()
    model.script("\n", [b"a", b"b"])
    with pytest.raises(ValueError, match="has a successor already"):
        model.follow("a", "c")
    with pytest.raises(KeyError, match="is no token"):
        model.follow("abc", "c")
    with pytest.raises(ValueError, match="need a hidden size"):
        TableModel(byte_vocab(), d=128)


def test_split_distinct():
    assert split_distinct(b"abab") == [b"a", b"b", b"ab"]
    assert split_distinct(b"aba") == [b"a", b"ba"]
    for raw in (b"aaaaaaaaaa", b"\n\n\n", TEXT.encode(), bytes(range(256)) * 3):
        pieces = split_distinct(raw, taken=[b"\n"])
        assert b"".join(pieces) == raw and len(set(pieces)) == len(pieces) and b"\n" not in pieces


@pytest.mark.parametrize("vocab", [small_vocab, byte_vocab])
@pytest.mark.parametrize("window", [0, 8])
def test_histogram_counts_what_is_visible(tmp_path, vocab, window):
    model = HistogramModel(vocab(), window)
    path = model.write(tmp_path / "toy.gguf")
    ids = [int(i) for i in np.random.default_rng(3).integers(3, 20, 60)]
    found = reference.forward(reference.from_gguf(path), ids)
    assert np.abs(found - model.logits(ids)).max() < 1e-4
    # The smallest fault, one position of sixty too many, is far above the tolerance.
    other = HistogramModel(vocab(), window + 1).logits(ids) if window else model.logits(ids[1:])
    assert np.abs(model.logits(ids)[-1] - other[-1]).max() > 0.03


def test_histogram_by_hand():
    """a a b with d = 128: p = 2/3 and 1/3, c = sqrt(128 / (1 + 5/9))."""
    model = HistogramModel()
    a, b = model.vocab.id("a"), model.vocab.id("b")
    c = math.sqrt(128 / (1 + 5 / 9))
    last = model.logits([a, a, b])[-1]
    assert last[a] == pytest.approx(c * 2 / 3) and last[b] == pytest.approx(c / 3)
    assert np.count_nonzero(last) == 2


# ---- the committed files ----


def test_table_fixture():
    about = json.loads((FIXTURES / "models/table64.json").read_text())
    model = reference.from_gguf(FIXTURES / "models/table64.gguf")
    tokens = about["tokens"]
    assert len(tokens) == 64 and len(model.embed) == 64
    logits = np.array([reference.forward(model, [5, 9, i])[-1] for i in range(64)])
    assert list(logits.argmax(-1)) == about["next"]
    a, b, c, d = (tokens.index(x) for x in "abcd")
    assert np.exp(log_softmax(logits[a]))[[b, c, d]] == pytest.approx([0.7, 0.2, 0.1], abs=1e-6)
    assert np.exp(log_softmax(logits[b]))[a] > 1 - 1e-7
    path = [tokens.index("Ċ")]
    while path[-1] != about["end"]:
        path.append(about["next"][path[-1]])
    assert [tokens[i] for i in path] == ["Ċ", "o", "k", ".", "<|im_end|>"]


@pytest.mark.parametrize("name, window", [("histogram64", 0), ("histogram64-window8", 8)])
def test_histogram_fixture(name, window):
    model = reference.from_gguf(FIXTURES / f"models/{name}.gguf")
    ids = [3 + i * i % 17 for i in range(40)]
    assert (
        np.abs(reference.forward(model, ids) - HistogramModel(window=window).logits(ids)).max()
        < 1e-4
    )
