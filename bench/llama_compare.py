#!/usr/bin/env python3
"""Prompt and generation speed of reprise and of llama.cpp on the same file, in turns.

    bench/llama_compare.py MODEL.gguf [--peer-python PYTHON] [-t THREADS] [-p 512] [-n 128]

PYTHON is an interpreter that can import llama_cpp (the PyPI package llama-cpp-python); without it only reprise is
measured. Every round runs each engine once, in a process of its own; a figure is the median over all rounds.
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Runs inside PYTHON: the same tests as `reprise bench`, as lines of JSON. A prompt is taken in one step of at most 512
# tokens; generation starts from one token. One warm pass of each test is not counted.
PEER = r"""
import json, sys, time
import llama_cpp
model, threads, repetitions, prompts, gens = json.loads(sys.argv[1])
longest = max([*prompts, *gens, 1]) + 2
options = {"n_threads": threads, "n_threads_batch": threads} if threads else {}
llm = llama_cpp.Llama(model, n_ctx=longest, n_batch=512, n_ubatch=512, verbose=False, **options)
token = lambda i: 100 + i * 7919 % (llm.n_vocab() - 200)

def prompt(n):
    llm.reset()
    ids = [token(i) for i in range(n)]
    start = time.perf_counter()
    llm.eval(ids)
    return n / (time.perf_counter() - start)

def generate(n):
    llm.reset()
    llm.eval([token(0)])
    start = time.perf_counter()
    for i in range(n):
        llm.eval([token(i)])
    return n / (time.perf_counter() - start)

for prefix, measure, sizes in (("pp", prompt, prompts), ("tg", generate, gens)):
    for n in sizes:
        measure(n)
        print(json.dumps({"test": f"{prefix}{n}", "samples": [measure(n) for _ in range(repetitions)]}))
"""


def sizes(text):
    return [int(n) for n in text.split(",") if int(n)]


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("--reprise", default=ROOT / "build" / "reprise")
    parser.add_argument("--peer-python", help="an interpreter that can import llama_cpp")
    parser.add_argument("-t", "--threads", type=int, default=0, help="0: each engine's own choice")
    parser.add_argument("-p", "--n-prompt", type=sizes, default=[512])
    parser.add_argument("-n", "--n-gen", type=sizes, default=[128])
    parser.add_argument("-r", "--repetitions", type=int, default=3, help="per round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("rest", nargs="*", help="further options of `reprise bench`, after --")
    return parser.parse_args()


def output_of(command):
    done = subprocess.run(
        [str(c) for c in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    )
    if done.returncode:
        sys.exit(f"llama_compare: {command[0]} ended with status {done.returncode}")
    return done.stdout


def measure_reprise(args):
    """(test, engine) -> samples; the engine's name says how steps were run."""
    joined = [",".join(map(str, s)) or "0" for s in (args.n_prompt, args.n_gen)]
    command = [args.reprise, "bench", args.model, "--json", "-q", "-p", joined[0], "-n", joined[1]]
    command += ["-r", args.repetitions, "-t", args.threads, *args.rest]
    rows = json.loads(output_of(command))
    return {(row["test"], f"reprise, capture {row['capture']}"): row["samples"] for row in rows}


def measure_peer(args):
    wanted = [args.model, args.threads, args.repetitions, args.n_prompt, args.n_gen]
    lines = output_of([args.peer_python, "-c", PEER, json.dumps(wanted)]).splitlines()
    rows = [json.loads(line) for line in lines if line.startswith("{")]
    return {(row["test"], "llama.cpp"): row["samples"] for row in rows}


def collect(args):
    engines = [measure_reprise] + ([measure_peer] if args.peer_python else [])
    samples = {}
    for number in range(args.rounds):
        for measure in engines if number % 2 == 0 else reversed(engines):
            for key, values in measure(args).items():
                samples.setdefault(key, []).extend(values)
    return samples


def rows_of(samples):
    rows = []
    for (test, engine), values in sorted(samples.items()):
        peer = samples.get((test, "llama.cpp"))
        median = statistics.median(values)
        row = {"test": test, "engine": engine, "tokens_per_second": median}
        row |= {"lowest": min(values), "highest": max(values), "samples": values}
        row["ratio"] = median / statistics.median(peer) if peer else None
        rows.append(row)
    return rows


def print_table(rows):
    print("| test     | engine               | tokens/s |   lowest |  highest | to llama.cpp |")
    print("|----------|----------------------|---------:|---------:|---------:|-------------:|")
    for row in rows:
        ratio = f"{row['ratio']:.2f}" if row["ratio"] else "-"
        speeds = " | ".join(
            f"{row[k]:8.2f}" for k in ("tokens_per_second", "lowest", "highest")
        )
        print(f"| {row['test']:8} | {row['engine']:20} | {speeds} | {ratio:>12} |")


def main():
    args = arguments()
    rows = rows_of(collect(args))
    if args.json:
        print(json.dumps(rows, indent=1))
    else:
        print_table(rows)


if __name__ == "__main__":
    main()
