#!/usr/bin/env python3
"""Mixed load at twice what a server can hold, for minutes; every answer is compared with the one
that was given alone.

    make soak                          # ten minutes under the address sanitizer, and ten without
    "$(tools/venv.sh)" bench/soak.py --build build --minutes 10

The model is SmolLM2 (`make run` fetches it); under a sanitizer a tiny one gets more done in the
time.

Clients are twice as many as answers and places in the queue together. They ask known questions of
all shapes (`questions.py`), as streams and whole, leave in the middle, read slowly, and send what
is refused. It fails

  - when an answer differs from the one the same question got from an idle server,
  - when a status is none of 200, 429 and 503 (400 for what must be refused), or a connection
    breaks,
  - when memory grows: the highest of the last third of the time against that of the third before
    it,
  - when blocks are held in the end, or the server's exit status is not 0 (leaks, with a sanitizer).
"""

import argparse
import collections
import contextlib
import json
import os
import random
import socket
import sys
import threading
import time
from pathlib import Path

from questions import CHAT, MODEL, TEXT, Server, ask, environment, mixed

SEQS, QUEUE, BLOCKS = 8, 8, 32  # so few blocks that requests are put back and computed again
REFUSED = [
    (TEXT, {"prompt": "a", "temperature": 9}),
    (TEXT, {"prompt": "a", "nonsense": 1}),
    (TEXT, {"prompt": [1] * 5000}),
    (CHAT, {"messages": []}),
]
GROWTH = 0.02, 2  # part of resident memory, and MiB, that allocators may take for themselves


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--build", type=Path, default=Path("build"))
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--questions", type=int, default=48)
    parser.add_argument("-t", "--threads", type=int, default=os.cpu_count())
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


class Soak:
    def __init__(self, a, server):
        self.server, self.end = server, 0
        self.lock = threading.Lock()
        self.counts = collections.Counter()
        self.wrong = []
        self.memory = []  # MiB, one a second
        self.questions = mixed(a.questions, int(server.props["n_vocab"]), a.seed)
        self.known = []
        for i, q in enumerate(self.questions):
            status, answer = ask(server, q, stream=i % 3 == 0)
            assert status == 200, (q, status, answer)
            self.known.append(answer)

    def count(self, what):
        with self.lock:
            self.counts[what] += 1

    def fail(self, what):
        with self.lock:
            self.wrong.append(what)

    # -- what a client does --

    def known_question(self, r):
        i = r.randrange(len(self.questions))
        status, answer = ask(self.server, self.questions[i], stream=r.random() < 0.5)
        self.count(status)
        if status == 200 and answer != self.known[i]:
            self.fail(f"question {i} {self.questions[i]}: {answer} instead of {self.known[i]}")
        elif status not in (200, 429, 503):
            self.fail(f"question {i}: {status} {answer}")
        return status

    def refused(self, r):
        status, body = ask(self.server, r.choice(REFUSED), stream=False)
        self.count(f"{status} (refused)")
        if status != 400:
            self.fail(f"{status} {body} for what must be refused")
        return status

    def leave(self, r):
        """Asks, waits a little, and goes: by closing, a reset or the end of its own direction."""
        path, body = r.choice(self.questions)
        how = r.choice(["close", "reset", "half"])
        with contextlib.closing(self.server.connect()) as c:
            c.request(
                "POST", path, json.dumps(body | {"stream": r.random() < 0.7, "max_tokens": 400})
            )
            time.sleep(r.random() * 0.5)
            if how == "reset":
                c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            if how == "half":
                c.sock.shutdown(socket.SHUT_WR)
                with contextlib.suppress(OSError):
                    while c.sock.recv(65536):
                        pass
        self.count(f"left ({how})")
        return 200

    def slow(self, r):
        """Takes a stream a few bytes at a time."""
        i = r.randrange(len(self.questions))
        status, answer = ask(SlowServer(self.server), self.questions[i], stream=True)
        self.count(f"{status} (slow)")
        if status == 200 and answer != self.known[i]:
            self.fail(f"question {i}, read slowly: {answer} instead of {self.known[i]}")
        elif status not in (200, 429, 503):
            self.fail(f"question {i}, read slowly: {status} {answer}")
        return status

    def client(self, seed):
        r = random.Random(seed)
        doings = [self.known_question] * 15 + [self.leave] * 2 + [self.slow, self.refused]
        while time.monotonic() < self.end and not self.wrong:
            try:
                status = r.choice(doings)(r)
            except Exception as e:  # a connection that broke, an answer that is no JSON
                self.fail(f"{type(e).__name__}: {e}")
                return
            if status in (429, 503):
                time.sleep(0.2 + 0.4 * r.random())

    # -- all of it --

    def watch(self):
        status = Path(f"/proc/{self.server.process.pid}/status")
        while time.monotonic() < self.end and not self.wrong:
            rss = [x for x in status.read_text().splitlines() if x.startswith("VmRSS:")]
            self.memory.append(int(rss[0].split()[1]) / 1024)
            before = time.monotonic()
            time.sleep(1)
            late = time.monotonic() - before - 1
            self.end += late if late > 5 else 0  # all was stopped: such time does not count

    def run(self, minutes, n_clients):
        self.end = time.monotonic() + 60 * minutes
        threads = [threading.Thread(target=self.client, args=(i,)) for i in range(n_clients)]
        threads += [threading.Thread(target=self.watch)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()

    def check_memory(self):
        third = len(self.memory) // 3
        before, last = max(self.memory[third : 2 * third], default=0), max(
            self.memory[2 * third :], default=0
        )
        if last > before * (1 + GROWTH[0]) + GROWTH[1]:
            self.fail(f"memory grew from {before:.1f} to {last:.1f} MiB")
        return before, last


class SlowServer:
    """The server to a reader that lags."""

    def __init__(self, server):
        self.server, self.connect = server, server.connect

    def request(self, method, path, body, connection):
        connection.request(method, path, json.dumps(body).encode())
        r = connection.getresponse()
        raw = b""
        while part := r.read1(512):
            raw += part
            time.sleep(0.02)
        return r.status, dict(r.getheaders()), raw


def free_blocks(server):
    m = server.metrics()
    return m['reprise_kv_blocks{state="free"}'] + m['reprise_kv_blocks{state="cached"}']


def main():
    a = arguments()
    began = time.monotonic()
    options = ["-t", a.threads, "-np", SEQS, "--max-queue", QUEUE, "--num-blocks", BLOCKS,
               "-c", 1024, "--timeout", 600, "--no-log-requests"]  # fmt: skip
    # What a sanitizer keeps of freed memory grows for long, and would hide what does not end.
    env = environment(ASAN_OPTIONS="quarantine_size_mb=8:" + os.environ.get("ASAN_OPTIONS", ""))
    server = Server(a.model, *options, binary=a.build / "reprise", env=env)
    soak = None
    try:
        server.props = json.loads(server.get("/props"))
        free = free_blocks(server)
        soak = Soak(a, server)
        print(f"{len(soak.known)} answers known after {time.monotonic() - began:.0f} s", flush=True)
        soak.run(a.minutes, 2 * (SEQS + QUEUE))
        before, last = soak.check_memory()
        m = server.wait_until_idle(free) if not soak.wrong else server.metrics()
    finally:
        status = server.stop()
    if status:
        soak.fail(f"exit status {status}: {server.log[-40:]}")
    print(f"answers and refusals: {dict(sorted(soak.counts.items(), key=str))}")
    print(f"memory: {before:.1f} MiB at most in the second third, {last:.1f} in the last; in turn:",
          *(f"{m:.0f}" for m in soak.memory[:: max(1, len(soak.memory) // 12)]))  # fmt: skip
    for name in [
        "vllm:prompt_tokens_total",
        "vllm:generation_tokens_total",
        "vllm:prefix_cache_hits_total",
        "vllm:num_preemptions_total",
        "reprise_captures_total",
        "reprise_replays_total",
    ]:
        print(f"{name}: {m[name]:.0f}")
    for what in soak.wrong[:5]:
        print(f"WRONG: {what[:2000]}")
    print("failed" if soak.wrong else f"passed: {a.minutes:g} minutes, {a.build}")
    return 1 if soak.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
