#!/usr/bin/env python3
"""reprise and llama.cpp on the same files, in turns: speed, share of the machine's limit, memory,
start.

    bench/vs_llama_cpp.py MODEL.gguf ... [--llama FOLDER] [-t 2] [--rounds 3] [--json F] [--svg F]

FOLDER holds llama-bench, llama-completion and llama-batched-bench. Without it they are looked for
in PATH and in ~/.cache/reprise/llama.cpp, and else built there from the source that the PyPI
package llama-cpp-python carries (--build agrees to that: it takes some minutes).

Every round runs each engine once per test, in processes of their own, first one then the other, and
turns the order round in the next; a figure is the median of the rounds. Limits are measured in
every round too, and the highest counts. Both engines get the same priority (--nice). Of starts the
second of two in a row counts: neither engine then waits for memory that a virtual machine has to get
from its host.

    pp512      512 tokens of prompt                tokens/s
    tg128      128 tokens, one by one              tokens/s
    tg@1024    the same after 1,024 tokens         tokens/s
    8x tg64    8 sequences at once                 tokens/s of all
    start      process start to the first token, of a prompt of 32 tokens   s
    load       the same of a prompt of 1 token     s
    memory     peak resident memory of `start`     MiB
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tarfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = Path(os.environ.get("REPRISE_CACHE", Path.home() / ".cache" / "reprise"))
PEER_VERSION = "0.3.36"  # of llama-cpp-python
PEER_TOOLS = ("llama-bench", "llama-completion", "llama-batched-bench")
TESTS = ("pp512", "tg128", "tg@1024", "8x tg64", "start", "load", "memory")
LESS_IS_BETTER = ("start", "load", "memory")
UNITS = {"start": "s", "load": "s", "memory": "MiB"}


# ---- llama.cpp ----


def has_tools(folder):
    return all((folder / tool).exists() for tool in PEER_TOOLS)


def build_peer():
    """From the PyPI source package, for this machine."""
    home = CACHE / "llama.cpp"
    home.mkdir(parents=True, exist_ok=True)
    name = f"llama_cpp_python-{PEER_VERSION}"
    package = f"llama-cpp-python=={PEER_VERSION}"
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-build-isolation"]
    run([*pip, "--no-binary", ":all:", "-d", home, package])
    with tarfile.open(home / f"{name}.tar.gz") as archive:
        archive.extractall(home, filter="data")
    source = home / name / "vendor" / "llama.cpp"
    options = ["-DCMAKE_BUILD_TYPE=Release", "-DLLAMA_CURL=OFF", "-DLLAMA_BUILD_TESTS=OFF"]
    run(["cmake", "-S", source, "-B", home / "build", "-G", "Ninja", *options])
    run(["cmake", "--build", home / "build", "--target", *PEER_TOOLS])
    return home / "build" / "bin"


def find_peer(args):
    if args.llama:
        if not has_tools(args.llama):
            sys.exit(f"vs_llama_cpp: {args.llama} lacks one of {', '.join(PEER_TOOLS)}")
        return args.llama
    on_path = shutil.which("llama-batched-bench")
    for folder in (Path(on_path).parent if on_path else None, CACHE / "llama.cpp" / "build" / "bin"):
        if folder and has_tools(folder):
            return folder
    if not args.build:
        sys.exit("vs_llama_cpp: no llama.cpp found: give --llama FOLDER, or --build to build it")
    return build_peer()


# ---- running ----


def set_priority(nice):
    """In a session of its own, since Linux shares processors out by session first."""

    def apply():
        os.setsid()
        os.nice(nice)
        try:
            Path("/proc/self/autogroup").write_text(str(nice))
        except OSError:
            pass  # no such kernel setting

    return apply if nice else None


def run(command, nice=0):
    command = [str(c) for c in command]
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=set_priority(nice),
    )
    if done.returncode:
        tail = "\n".join(done.stderr.splitlines()[-5:])
        sys.exit(f"vs_llama_cpp: {' '.join(command)} ended with {done.returncode}\n{tail}")
    return done.stdout


def start_twice(command, nice):
    """The second of two starts: it finds memory that the first has given back."""
    start_once(command, nice)
    return start_once(command, nice)


def start_once(command, nice):
    """Seconds until the first byte of the answer, or until the end when it has no text, and the
    peak memory in MiB."""
    begin = time.perf_counter()
    child = subprocess.Popen(
        [str(c) for c in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        preexec_fn=set_priority(nice),
    )
    child.stdout.read(1)
    seconds = time.perf_counter() - begin
    while child.stdout.read(1 << 16):
        pass
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"vs_llama_cpp: {command[0]} ended with status {child.returncode}")
    return seconds, usage.ru_maxrss / 1024


def prompt_of(args, model, n):
    """A text of n tokens of this model."""
    words = ["The"]
    while True:
        text = " ".join(words)
        ids = json.loads(run([args.reprise, "tokenize", model, text, "--no-bos", "--json"]))
        if len(ids["ids"] if isinstance(ids, dict) else ids) >= n:
            return text
        words.append("sun")


class Reprise:
    name = "reprise"

    def __init__(self, args):
        self.args, self.tool = args, args.reprise
        self.common = ["-t", args.threads, "--activations", args.activations]

    def bench(self, model, *options):
        command = [self.tool, "bench", model, "--json", "-q", "-r", 1, "--capture", "auto"]
        rows = json.loads(run([*command, *self.common, *options], self.args.nice))
        return rows[0]["tokens_per_second"]

    def measure(self, test, model):
        if test == "pp512":
            return self.bench(model, "-p", 512, "-n", 0)
        if test == "tg128":
            return self.bench(model, "-p", 0, "-n", 128)
        if test == "tg@1024":
            return self.bench(model, "-p", 0, "-n", 128, "-d", 1024)
        return self.bench(model, "-p", 0, "-n", 64, "-np", 8)

    def start(self, model, prompt):
        command = [self.tool, "run", model, "-p", prompt, "-n", 1, "--temp", 0, "--raw", "-q"]
        return start_twice([*command, "-c", 512, *self.common], self.args.nice)

    def size(self):
        return stripped_size([self.tool])


class LlamaCpp:
    name = "llama.cpp"

    def __init__(self, args, folder):
        self.args, self.folder = args, folder

    def bench(self, model, *options):
        command = [self.folder / "llama-bench", "-m", model, "-t", self.args.threads]
        rows = json.loads(run([*command, "-r", 1, "-o", "json", *options], self.args.nice))
        return rows[0]["avg_ts"]

    def measure(self, test, model):
        if test == "pp512":
            return self.bench(model, "-p", 512, "-n", 0)
        if test == "tg128":
            return self.bench(model, "-p", 0, "-n", 128)
        if test == "tg@1024":
            return self.bench(model, "-p", 0, "-n", 128, "-d", 1024)
        command = [self.folder / "llama-batched-bench", "-m", model, "-t", self.args.threads]
        command += ["-npp", 1, "-ntg", 64, "-npl", 8, "-c", 1024, "--output-format", "jsonl"]
        for line in run(command, self.args.nice).splitlines():
            if line.startswith("{"):
                return json.loads(line)["speed_tg"]
        sys.exit("vs_llama_cpp: llama-batched-bench printed no figures")

    def start(self, model, prompt):
        command = [self.folder / "llama-completion", "-m", model, "-p", prompt, "-n", 1]
        command += ["--temp", 0, "-no-cnv", "--no-display-prompt", "--no-warmup", "-c", 512]
        return start_twice([*command, "-t", self.args.threads], self.args.nice)

    def size(self):
        libraries = [*self.folder.glob("lib*.so.[0-9].*.*"), *self.folder.glob("lib*.so.0")]
        needed = [p for p in set(p.resolve() for p in libraries) if "mtmd" not in p.name]
        completion = self.folder / "libllama-completion-impl.so"
        needed += [completion] if completion.exists() else []
        return stripped_size([self.folder / "llama-completion", *needed])


def stripped_size(files):
    """MiB of files as they would be installed."""
    total, copy = 0, CACHE / "stripped"
    for file in files:
        run(["strip", "-o", copy, file])
        total += copy.stat().st_size
    copy.unlink()
    return total / 2**20


# ---- limits ----


def bytes_per_token(args, model):
    """What a decode step must read: every weight, but of a token table that is not the output
    matrix too a row only."""
    about = json.loads(run([args.reprise, "inspect", model, "--json", "--tensors"]))
    tensors = {t["name"]: t for t in about["tensors"]}
    total = sum(t["bytes"] for t in about["tensors"])
    if "output.weight" in tensors:
        total -= tensors["token_embd.weight"]["bytes"]
    return total, about["parameters"]


def limits(args, n_bytes, into):
    mib = max(1, n_bytes >> 20)
    command = [args.reprise, "bench", "machine", "--json", "-q", "-t", args.threads]
    rows = json.loads(run([*command, "--read-mib", mib], args.nice))["rows"]
    for row in rows:
        if row["threads"] == args.threads:
            what = row["what"] if row["what"] == "read" else f"{row['what']} {row['how']}"
            into[what] = max(into.get(what, 0), row["per_second"])


# ---- one model ----


def measure_model(args, engines, model):
    samples = {(t, e.name): [] for t in args.tests for e in engines}
    top, n_bytes, n_params = {}, *bytes_per_token(args, model)
    prompts = {n: prompt_of(args, model, n) for n in (1, 32)}
    loads = []
    for number in range(args.rounds):
        limits(args, n_bytes, top)
        loads.append(os.getloadavg()[0])
        for test in args.tests:
            if test == "memory":
                continue
            for engine in engines if number % 2 == 0 else reversed(engines):
                print(f"{model.stem}: {number + 1}: {test}: {engine.name}   ", file=sys.stderr)
                if test in ("start", "load"):
                    value, mib = engine.start(model, prompts[32 if test == "start" else 1])
                    if test == "start" and "memory" in args.tests:
                        samples["memory", engine.name].append(mib)
                else:
                    value = engine.measure(test, model)
                samples[test, engine.name].append(value)
    return {
        "model": model.stem,
        "bytes_per_token": n_bytes,
        "parameters": n_params,
        "limits": top,
        "load_averages": loads,
        "rows": [row_of(test, samples, top, n_bytes, n_params) for test in args.tests],
    }


def row_of(test, samples, top, n_bytes, n_params):
    ours, theirs = (samples[test, name] for name in ("reprise", "llama.cpp"))
    row = {"test": test, "unit": UNITS.get(test, "tokens/s"), "ours": ours, "theirs": theirs}
    row["reprise"], row["llama.cpp"] = statistics.median(ours), statistics.median(theirs)
    ratio = row["reprise"] / row["llama.cpp"]
    row["better"] = 1 / ratio if test in LESS_IS_BETTER else ratio
    peaks = [v for k, v in top.items() if k.startswith("f32")]
    for name in ("reprise", "llama.cpp"):
        if test == "tg128":
            row[f"share {name}"] = row[name] * n_bytes / top["read"]
        elif test == "pp512":
            row[f"share {name}"] = row[name] * 2 * n_params / max(peaks)
    return row


# ---- showing ----


def print_table(result):
    top = result["limits"]
    loads = ", ".join(f"{x:.1f}" for x in result["load_averages"])
    print(f"\n{result['model']}: {result['bytes_per_token'] / 1e6:.0f} MB per token; load {loads}")
    print("limits: " + ", ".join(f"{k} {v / 1e9:.1f} G/s" for k, v in sorted(top.items())))
    print("\n| test    | reprise   | llama.cpp | better by | share of limit | its share |")
    print("|---------|----------:|----------:|----------:|---------------:|----------:|")
    for row in result["rows"]:
        digits = 2 if row["unit"] == "s" else 1
        ours, theirs = (f"{row[k]:.{digits}f}" for k in ("reprise", "llama.cpp"))
        shares = [f"{row[f'share {e}']:.0%}" if f"share {e}" in row else "" for e in
                  ("reprise", "llama.cpp")]
        print(f"| {row['test']:7} | {ours:>9} | {theirs:>9} | {row['better']:8.2f}x "
              f"| {shares[0]:>14} | {shares[1]:>9} |")


def write_svg(path, results):
    """Bars of `better by` per model and test, with a line at 1."""
    bars = [(r["model"], row["test"], row["better"]) for r in results for row in r["rows"]]
    high = max(b for *_, b in bars) * 1.1
    width, height, left, top = 40 * len(bars) + 100, 340, 50, 30
    y = lambda v: top + (height - top - 110) * (1 - v / high)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
           'font-family="sans-serif" font-size="11"><rect width="100%" height="100%" fill="#fff"/>']
    out.append(f'<text x="{left}" y="18" font-size="14">reprise against llama.cpp, times</text>')
    for i, (model, test, value) in enumerate(bars):
        x = left + 40 * i
        out.append(f'<rect x="{x}" y="{y(value):.1f}" width="28" height="{y(0) - y(value):.1f}" '
                   'fill="#3465a4"/>')
        out.append(f'<text x="{x}" y="{y(value) - 4:.1f}">{value:.2f}</text>')
        out.append(f'<text transform="translate({x + 10},{y(0) + 8}) rotate(45)">{test}</text>')
        if i == 0 or bars[i - 1][0] != model:
            out.append(f'<text x="{x}" y="{height - 12}">{model}</text>')
    out.append(f'<line x1="{left}" x2="{width - 20}" y1="{y(1):.1f}" y2="{y(1):.1f}" '
               'stroke="#cc0000" stroke-dasharray="4 3"/></svg>')
    Path(path).write_text("\n".join(out) + "\n")


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--reprise", type=Path, default=ROOT / "build" / "reprise")
    parser.add_argument("--llama", type=Path, help="folder of llama.cpp's programs")
    parser.add_argument("--build", action="store_true", help="build llama.cpp when there is none")
    parser.add_argument("--activations", default="auto", help="of reprise")
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tests", type=lambda s: s.split(","), default=list(TESTS))
    parser.add_argument("--nice", type=int, default=0, help="added to the niceness of both")
    parser.add_argument("--json", type=Path, help="file for every sample")
    parser.add_argument("--svg", type=Path, help="file for a plot of the ratios")
    args = parser.parse_args()
    if set(args.tests) - set(TESTS):
        parser.error(f"tests are {', '.join(TESTS)}")
    if "memory" in args.tests and "start" not in args.tests:
        parser.error("memory is taken from start")
    return args


def main():
    args = arguments()
    engines = [Reprise(args), LlamaCpp(args, find_peer(args))]
    sizes = {e.name: e.size() for e in engines}
    print(f"programs: reprise {sizes['reprise']:.1f} MiB, llama.cpp {sizes['llama.cpp']:.1f} MiB")
    results = []
    for model in args.models:
        results.append(measure_model(args, engines, model))
        print_table(results[-1])
        if args.json:
            about = {"threads": args.threads, "program_mib": sizes, "results": results}
            args.json.write_text(json.dumps(about, indent=1) + "\n")
    if args.svg:
        write_svg(args.svg, results)


if __name__ == "__main__":
    main()
