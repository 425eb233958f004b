#!/usr/bin/env python3
"""The same request gives the same bits in any company: the whole matrix, over HTTP, on a real
model.

    "$(tools/venv.sh)" bench/same_bits.py [MODEL.gguf] [--only PART]

32 prompts, each greedy and seeded, 128 tokens: first alone, one after the other, on one thread,
eager, without a cache; then in every way of the table below. Compared are token ids and the printed
form of every log probability (nine digits: two floats that differ print differently), of the chosen
token and of the best three.
"""

import argparse
import json
import sys
import threading
import time
from pathlib import Path

from questions import MODEL, Server, ask, simple

EAGER, REPLAY = ["--capture", "off"], ["--capture", "on"]
CACHE, NO_CACHE = ["--enable-prefix-caching"], ["--no-enable-prefix-caching"]
FEW_BLOCKS = ["--block-size", 16, "--num-blocks", 48]  # too few: some are put back
CHUNKS_64, CHUNKS_512 = (["-b", n, "--prefill-chunk", n] for n in (64, 512))
# name, answers together, threads, further options, order
WAYS = [
    ("32 together", 32, 1, [*EAGER, *NO_CACHE], "given"),
    ("8 staggered, cached", 8, 1, [*EAGER, *CACHE], "staggered"),
    ("8, few blocks, replayed", 8, 1, [*FEW_BLOCKS, *REPLAY, *NO_CACHE], "given"),
    ("8, chunks of 64, two threads", 8, 2, [*CHUNKS_64, *EAGER, *NO_CACHE], "shuffled"),
    ("8 staggered, chunks of 512, replayed", 8, 1, [*CHUNKS_512, *REPLAY, *CACHE], "staggered"),
    ("32 shuffled, cached, replayed, two threads", 32, 2, [*REPLAY, *CACHE], "shuffled"),
    ("32 staggered, few blocks, cached", 32, 1, [*FEW_BLOCKS, *CACHE], "staggered"),
    ("8 shuffled, replayed", 8, 1, [*REPLAY, *NO_CACHE], "shuffled"),
    ("3, cached, replayed, two threads", 3, 2, [*REPLAY, *CACHE], "given"),
    ("2 together", 2, 1, [*EAGER, *NO_CACHE], "given"),
    ("alone, replayed", 1, 1, [*REPLAY, *NO_CACHE], "given"),
    ("alone, two threads", 1, 2, [*EAGER, *NO_CACHE], "given"),
]  # fmt: skip


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", nargs="?", default=MODEL)
    parser.add_argument("--build", type=Path, default=Path("build"))
    parser.add_argument("--prompts", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--only", default="", help="ways whose name has this in it")
    parser.add_argument("--activations", default="auto")
    return parser.parse_args()


def open_server(a, n_seqs, n_threads, options):
    common = ["-c", 512, "-np", n_seqs, "-t", n_threads, "--activations", a.activations,
              "--max-queue", 10_000, "--timeout", 600, "--no-log-requests"]  # fmt: skip
    return Server(a.model, *common, *options, binary=a.build / "reprise")


def in_order(order, n):
    """13 has no factor in common with 64 questions."""
    return [i if order == "given" else i * 13 % n for i in range(n)]


def wait_for_tokens(server, n):
    """Staggered requests come while those before are somewhere in their answers."""
    while server.metrics()["vllm:generation_tokens_total"] < n:
        time.sleep(0.01)


def ask_all(server, questions, order):
    """Every answer, asked at once (or staggered), as streams and whole in turns."""
    answers = [None] * len(questions)

    def take(i):
        answers[i] = ask(server, questions[i], stream=i % 3 == 0)

    threads = []
    for k, i in enumerate(in_order(order, len(questions))):
        if order == "staggered":
            wait_for_tokens(server, 20 * k)
        threads.append(threading.Thread(target=take, args=(i,)))
        threads[-1].start()
    for t in threads:
        t.join()
    return answers


def main():
    a = arguments()
    ways = [w for w in WAYS if a.only in w[0]]
    began = time.monotonic()
    with open_server(a, 1, 1, [*EAGER, *NO_CACHE]) as server:
        questions = simple(a.prompts, a.tokens, json.loads(server.get("/props"))["n_vocab"])
        alone = [ask(server, q, stream=False) for q in questions]
    n_tokens = sum(len(c[0][0][2]["tokens"]) for s, c in alone)
    assert all(s == 200 for s, _ in alone) and n_tokens == len(questions) * a.tokens, alone
    print(
        f"alone: {len(alone)} answers, {n_tokens} tokens, {time.monotonic() - began:.0f} s",
        flush=True,
    )
    n_wrong = 0
    for name, n_seqs, n_threads, options, order in ways:
        began = time.monotonic()
        with open_server(a, n_seqs, n_threads, options) as server:
            answers = ask_all(server, questions, order)
            m = server.metrics()
        differ = [i for i in range(len(questions)) if answers[i] != alone[i]]
        n_wrong += len(differ)
        which = f" {differ}" if differ else ""
        print(
            f"{name}: {len(differ)} of {len(questions)} differ{which}; "
            f"replays {m['reprise_replays_total']:.0f}, "
            f"put back {m['vllm:num_preemptions_total']:.0f}, "
            f"tokens from the cache {m['vllm:prefix_cache_hits_total']:.0f}, "
            f"{time.monotonic() - began:.0f} s",
            flush=True,
        )
    print(f"{'failed' if n_wrong else 'passed'}: {n_wrong} answers differ in {len(ways)} ways")
    return 1 if n_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
