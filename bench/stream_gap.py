#!/usr/bin/env python3
"""How long a running stream waits when a long prompt arrives, against one chunk of that prompt and
one decode step.

    "$(tools/venv.sh)" bench/stream_gap.py [MODEL.gguf] [-r ROUNDS] [--activations q8]

In every round, on one server (chunks of 256 tokens, the default):

  decode  the median gap of a stream while nobody else is there
  chunk   the time to the first token of the long prompt when all but its last 256 tokens are in
          the prefix cache and nobody else is there: its deepest chunk, which is the slowest
  gap     the largest gap of the stream from the arrival of another long prompt, of which nothing
          is cached, to the first token of that

A gap may be decode + chunk at most. Which tokens a step has is tested without a clock
(`reprise-tests serving.a_stream_waits_for_one_chunk`).
"""

import argparse
import contextlib
import json
import os
import random
import statistics
import sys
import threading
import time
from pathlib import Path

from questions import MODEL, TEXT, Server, random_ids

CHUNK = 256


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", nargs="?", default=MODEL)
    parser.add_argument("--reprise", type=Path, default=Path("build/reprise"))
    parser.add_argument("-r", "--rounds", type=int, default=3)
    parser.add_argument("-t", "--threads", type=int, default=os.cpu_count())
    parser.add_argument("--prompt", type=int, default=6000, help="tokens of the long prompt")
    parser.add_argument("--activations", default="auto")
    return parser.parse_args()


def chunks(server, ids, n):
    """The time at which each event with text came."""
    body = {"prompt": ids, "max_tokens": n, "ignore_eos": True, "temperature": 0, "stream": True}
    with contextlib.closing(server.connect()) as c:
        c.request("POST", TEXT, json.dumps(body).encode())
        answer = c.getresponse()
        assert answer.status == 200, answer.read()
        for line in answer:
            if b'"text":"' in line and b'"finish_reason":null' in line:
                yield time.perf_counter()


def first_token_seconds(server, ids):
    began = time.perf_counter()
    return next(chunks(server, ids, 1), time.perf_counter()) - began


class Stream(threading.Thread):
    """A stream that runs until the server is asked for nothing else."""

    def __init__(self, server, ids, n):
        super().__init__()
        self.server, self.ids, self.n, self.times = server, ids, n, []
        self.start()

    def run(self):
        for t in chunks(self.server, self.ids, self.n):
            self.times.append(t)

    def wait_for(self, n):
        while len(self.times) < n:
            time.sleep(0.001)

    def gaps(self, since, until):
        """Those that overlap this time."""
        pairs = zip(self.times, self.times[1:])
        return [b - a for a, b in pairs if b >= since and a <= until]


def measure(server, n_prompt, n_vocab, seed):
    r = random.Random(seed)
    old, new = (random_ids(r, n_prompt, n_vocab) for _ in range(2))
    first_token_seconds(server, old[:-CHUNK])
    chunk = first_token_seconds(server, old)
    stream = Stream(server, random_ids(r, 16, n_vocab), 80 + 2 * n_prompt // CHUNK)
    stream.wait_for(40)
    began = time.perf_counter()
    decode = statistics.median(stream.gaps(stream.times[10], began))
    first = first_token_seconds(server, new)
    gaps = stream.gaps(began, began + first)
    stream.join()
    return {"decode": decode, "chunk": chunk, "gap": max(gaps), "steps": len(gaps), "first": first}


def main():
    a = arguments()
    options = ["-t", a.threads, "-np", 4, "-c", 8192, "--activations", a.activations,
               "--no-log-requests"]  # fmt: skip
    rounds = []
    with Server(a.model, *options, binary=a.reprise) as server:
        n_vocab = json.loads(server.get("/props"))["n_vocab"]
        for i in range(a.rounds):
            m = measure(server, a.prompt, n_vocab, i)
            bound = m["decode"] + m["chunk"]
            rounds.append(m["gap"] <= bound)
            print(
                f"decode {1e3 * m['decode']:.1f} ms, chunk {1e3 * m['chunk']:.0f} ms; largest of "
                f"{m['steps']} gaps {1e3 * m['gap']:.0f} ms, {m['gap'] / bound:.2f} of their sum; "
                f"first token of the long prompt after {m['first']:.2f} s",
                flush=True,
            )
    print(f"{sum(rounds)} of {len(rounds)} rounds within chunk + decode")
    return 0 if all(rounds) else 1


if __name__ == "__main__":
    sys.exit(main())
