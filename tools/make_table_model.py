#!/usr/bin/env python3
"""Writes a model whose answers are known by hand (tests/models.py says how they work).

    make_table_model.py script OUT.gguf --text TEXT [--after TOKEN]
                                            answers TEXT when a prompt ends in TOKEN
    make_table_model.py histogram OUT.gguf [--window N]
                                            logits count the visible tokens
    make_table_model.py fixtures            makes tests/fixtures/models again

Needs numpy and gguf: "$(tools/venv.sh)" tools/make_table_model.py ...
"""

import argparse
import json
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent / "tests"
sys.path.insert(0, str(TESTS))

from models import HistogramModel, TableModel, scripted, small_vocab  # noqa: E402
from tiny_vocab import IM_END  # noqa: E402

FIXTURES = TESTS / "fixtures" / "models"


def fixture_table():
    """64 tokens. "a" is followed by b, c or d with 0.7, 0.2 and 0.1, each of these by "a" again; a
    newline starts the text "ok."; every other token is followed by the next id, the last one by
    the first letter."""
    vocab = small_vocab()
    model = TableModel(vocab)
    model.choose("a", {"b": 0.7, "c": 0.2, "d": 0.1})
    for letter in "bcd":
        model.follow(letter, "a")
    model.script("\n", [b"o", b"k", b"."])
    for token in range(len(vocab)):
        if token not in model.known:
            model.follow(token, token + 1 if token + 1 < len(vocab) else vocab.id("a"))
    return model


def write_fixtures():
    FIXTURES.mkdir(parents=True, exist_ok=True)
    table = fixture_table()
    table.write(FIXTURES / "table64.gguf")
    logits = table.logits(list(range(len(table.vocab))))
    about = {
        "rule": " ".join(fixture_table.__doc__.split()),
        "tokens": table.vocab.tokens,
        "end": IM_END,
        "next": [int(i) for i in logits.argmax(-1)],
    }
    text = json.dumps(about, indent=1).replace("\n  ", " ").replace("\n ]", " ]")
    (FIXTURES / "table64.json").write_text(text + "\n")
    HistogramModel().write(FIXTURES / "histogram64.gguf")
    HistogramModel(window=8).write(FIXTURES / "histogram64-window8.gguf")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    script = commands.add_parser("script")
    script.add_argument("out")
    script.add_argument("--text", required=True)
    script.add_argument("--after", default="\n", help="the last token of the prompt (a newline)")
    histogram = commands.add_parser("histogram")
    histogram.add_argument("out")
    histogram.add_argument("--window", type=int, default=0, help="sliding window (0: none)")
    commands.add_parser("fixtures")
    args = parser.parse_args()
    if args.command == "script":
        scripted(args.text, args.after).write(args.out)
    elif args.command == "histogram":
        HistogramModel(window=args.window).write(args.out)
    else:
        write_fixtures()
    return 0


if __name__ == "__main__":
    sys.exit(main())
