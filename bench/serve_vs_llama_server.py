#!/usr/bin/env python3
"""`reprise serve` and `llama-server` on the same file under the same load, in turns.

    bench/serve_vs_llama_server.py MODEL.gguf --llama-server PATH [-r ROUNDS] [-t THREADS]

Both run with 8 parallel sequences and their prefix caches on, and `reprise bench serve` asks both. In every round each
server is started alone, asked, and ended:

  load     unique prompts of 120 tokens, 64 tokens out, 8 at a time
  prefix   prompts of 1,020 tokens one after the other: one that nothing of is cached, then some that share its first
           1,000

A figure is the median over the rounds; the load of the machine beside each round is shown, as a busy machine makes
figures of different rounds incomparable.
"""

import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PARALLEL, CONTEXT = 8, 2048
PATIENCE = 120  # seconds for a model to load


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("--reprise", default=ROOT / "build" / "reprise")
    parser.add_argument("--llama-server", help="without it only reprise is measured")
    parser.add_argument("-r", "--rounds", type=int, default=3)
    parser.add_argument("-t", "--threads", type=int, default=os.cpu_count())
    parser.add_argument("--requests", type=int, default=32, help="of the load, per round")
    parser.add_argument("--hits", type=int, default=4, help="prompts that share a prefix, per round")
    parser.add_argument("--reprise-args", default="", help="further options of `reprise serve`")
    parser.add_argument("--llama-args", default="", help="further options of llama-server")
    parser.add_argument("--json", action="store_true", help="print every round as JSON")
    return parser.parse_args()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def command(a, engine, port):
    common = ["-m", a.model, "--port", port, "-t", a.threads, "-np", PARALLEL]
    if engine == "reprise":
        return [a.reprise, "serve", *common, "-c", CONTEXT, "--no-log-requests", *a.reprise_args.split()]
    # llama-server shares its context among the slots.
    return [a.llama_server, *common, "-c", CONTEXT * PARALLEL, "--no-webui", *a.llama_args.split()]


def wait_until_ready(url, process):
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and process.poll() is None:
        try:
            urllib.request.urlopen(url + "/health").close()
            return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.1)
    sys.exit(f"{url} did not become ready")


def ask(a, url, *options):
    done = subprocess.run(
        list(map(str, [a.reprise, "bench", "serve", url, "--endpoint", "completions", "--temp", 0,
                       "--ignore-eos", "--json", "-q", *options])),
        stdout=subprocess.PIPE, check=True,
    )  # fmt: skip
    report = json.loads(done.stdout)
    if report["failed"]:
        sys.exit(f"{url}: {report['errors']}")
    return report


def peak_memory(process):
    for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0


def measure(a, engine, seed):
    """The figures of one start of one server."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    process = subprocess.Popen(
        list(map(str, command(a, engine, port))), stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait_until_ready(url, process)
        # Kernels, graphs and pages are warm before anything counts.
        ask(a, url, "--requests", PARALLEL, "--concurrency", PARALLEL, "--prompt-tokens", 120, "-n", 16)
        load = ask(a, url, "--requests", a.requests, "--concurrency", PARALLEL, "--prompt-tokens", 120,
                   "-n", 64, "--seed", seed)  # fmt: skip
        # One at a time: the first prompt finds nothing of itself, the others its shared beginning.
        prefix = ["--concurrency", 1, "--prompt-tokens", 1020, "--shared-tokens", 1000, "-n", 1, "--seed", seed]
        miss = ask(a, url, "--requests", 1, *prefix)
        hits = ask(a, url, "--requests", 1 + a.hits, *prefix)  # the first of these is the miss again
        return {
            "tokens/s": load["total_tokens_per_second"],
            "TTFT p50, ms": load["ttft_ms"]["p50"],
            "TTFT p99, ms": load["ttft_ms"]["p99"],
            "gap p50, ms": load["gap_ms"]["p50"],
            "gap p99, ms": load["gap_ms"]["p99"],
            "per later token p50, ms": load["tpot_ms"]["p50"],
            "miss TTFT, ms": miss["ttft_ms"]["p50"],
            "hit TTFT p50, ms": hits["ttft_ms"]["p50"],
            "memory, MiB": peak_memory(process),
        }
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()


def main():
    a = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # the server ends too
    engines = ["reprise"] + (["llama-server"] if a.llama_server else [])
    rounds = {e: [] for e in engines}
    for i in range(a.rounds):
        for engine in engines[:: 1 if i % 2 else -1]:
            figures = measure(a, engine, seed=1000 + i)
            figures["machine load"] = os.getloadavg()[0]
            rounds[engine].append(figures)
            print(f"round {i + 1}, {engine}: {figures['tokens/s']:.1f} tokens/s, load {figures['machine load']:.1f}",
                  file=sys.stderr)  # fmt: skip
    if a.json:
        print(json.dumps(rounds, indent=1))
        return
    print(f"| | {' | '.join(engines)} | ratio |\n|---|{'---:|' * (len(engines) + 1)}")
    for name in rounds["reprise"][0]:
        medians = [statistics.median(r[name] for r in rounds[e]) for e in engines]
        ratio = f"{medians[0] / medians[1]:.2f}" if len(medians) > 1 and medians[1] else "-"
        print(f"| {name} | {' | '.join(f'{m:,.1f}' for m in medians)} | {ratio} |")


if __name__ == "__main__":
    main()
