"""`reprise tokenize`, `inspect`, `explain` and `bench`: the shape of what they print, and values known by hand."""

import csv
import io
import json

import pytest

from cli import FAILED, answer, needs_reprise, refusal
from models import scripted

pytestmark = needs_reprise

# Ids of the table model: "a" is 3, the digits start at 29, the line end is 40, "<>" is 63.


def test_tokenize(table):
    assert answer("tokenize", "-m", table, "-p", "abc<>") == "3 4 5 63\n"
    assert answer("tokenize", table, "ab") == "3 4\n"
    assert answer("tokenize", table, stdin=b"a\n") == "3 40\n"
    assert json.loads(answer("tokenize", table, "a<|im_end|>", "--json")) == [3, 2]
    assert answer("tokenize", table, "<|im_end|>", "--no-parse-special").count(" ") == 9


def test_tokenize_pieces(table):
    assert answer("tokenize", table, "a1", "--pieces") == '3\t"a"\n30\t"1"\n'
    said = json.loads(answer("tokenize", table, "a1", "--pieces", "--json"))
    assert said == [
        {"id": 3, "piece": "a", "bytes": [97]},
        {"id": 30, "piece": "1", "bytes": [49]},
    ]


def test_pieces_show_text_and_the_bytes_of_cut_characters(tmp_path):
    """In the byte vocabulary a byte's id is the byte and the three special tokens before it."""
    path = scripted("x").write(tmp_path / "bytes.gguf")
    text = answer("tokenize", path, ' "\u00e9\n', "--pieces")
    assert text == '35\t" "\n37\t"\\""\n198\t"\\xC3"\n172\t"\\xA9"\n13\t"\\n"\n'
    said = json.loads(answer("tokenize", path, "\u00e9", "--pieces", "--json"))
    assert [t["bytes"] for t in said] == [[0xC3], [0xA9]]
    assert [t["piece"] for t in said] == ["\u00c3", "\u00a9"]


def test_detokenize(table):
    for ids in ("3 40 63", "[3, 40, 63]", "3,40,63\n"):
        assert answer("tokenize", table, "--detokenize", "-p", ids) == "a\n<>"
    assert json.loads(answer("tokenize", table, "-d", "--json", "3 2")) == "a<|im_end|>"
    assert answer("tokenize", table, "-d", "--no-parse-special", "3 2") == "a"
    assert "99" in refusal("tokenize", table, "-d", "3 99", status=FAILED)
    assert '"x"' in refusal("tokenize", table, "-d", "3 x", status=FAILED)


def test_inspect(table):
    text = answer("inspect", table)
    assert "llama" in text and "token_embd.weight" not in text
    assert "token_embd.weight" in answer("inspect", table, "--tensors")
    json.loads(answer("inspect", table, "--json"))


def test_explain(table):
    text = answer("explain", table, "-q")
    assert "decode" in text
    assert len(answer("explain", table, "-q", "--all")) >= len(text)


BENCH = ["-p", "16,8", "-n", "4", "-r", "3", "-q"]


def test_bench_json(table):
    rows = json.loads(answer("bench", table, *BENCH, "--json"))
    tests = [(row["test"], row["capture"]) for row in rows]
    assert tests == [(t, c) for t in ("pp16", "pp8", "tg4") for c in ("off", "on")]
    for row in rows:
        assert len(row["samples"]) == 3
        assert row["tokens_per_second"] == pytest.approx(sorted(row["samples"])[1])
        assert row["lowest"] <= row["tokens_per_second"] <= row["highest"]
        assert row["replays"] == 0 if row["capture"] == "off" else row["replays"] > 0
    generation = {row["capture"]: row for row in rows if row["test"] == "tg4"}
    assert generation["off"]["eager_steps"] == 3 * 5  # the prompt's step and four more
    assert generation["on"]["eager_steps"] == 0


def test_bench_forms(table):
    text = answer("bench", table, *BENCH, "-o", "csv", "--capture", "off")
    assert [row["test"] for row in csv.DictReader(io.StringIO(text))] == ["pp16", "pp8", "tg4"]
    text = answer("bench", table, *BENCH, "--enforce-eager")
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len(lines) == 5 and len(set(map(len, lines))) == 1
