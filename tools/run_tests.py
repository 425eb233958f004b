#!/usr/bin/env python3
"""Runs the C tests, the replay of the fuzz corpora and the Python tests; prints one closing line
of totals.

    tools/run_tests.py [--build build] [--filter PART] [--arm64 build-arm64]

With --arm64, tests of a build for arm64 come last, under qemu-user; with it alone, only they run.

Each runner's own output and closing line come first; the last line is "N passed, N failed, N
skipped" over all of them, and the exit status is 0 only when nothing failed. A runner that dies or
does not close counts as one failure."""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CLOSING = re.compile(rb"^(\d+) passed, (\d+) failed, (\d+) skipped$", re.M)


class Totals:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0

    def add(self, passed, failed, skipped):
        self.passed += passed
        self.failed += failed
        self.skipped += skipped


def say(text):
    print(text, flush=True)


def fetch():
    """Tests that need real vocabularies or the small real model skip, and say so, where they cannot be had."""
    for arguments in (["fetch_vocab.py"], ["fetch_model.py", "smollm2"]):
        command = [sys.executable, ROOT / "tools" / arguments[0], *arguments[1:]]
        if subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL).returncode:
            say(f"{arguments[0]} failed: the tests that need it skip")


def run_c(command):
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=ROOT,
    )


def count_c(done, totals):
    """The runner's cases; only the lines that tell more than "it ran and passed" are shown."""
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        if not re.match(r"\[ RUN      \]|\[       OK \]|\[  SKIPPED \]", line):
            say(line)
    closing = CLOSING.findall(done.stdout)
    if not closing:
        say(f"the C runner ended with status {done.returncode} and no closing line")
        totals.add(0, 1, 0)
        return
    passed, failed, skipped = map(int, closing[-1])
    if done.returncode != 0 and failed == 0:
        say(f"the C runner ended with status {done.returncode}")
        failed = 1
    totals.add(passed, failed, skipped)


def run_corpora(build, totals, emulator=()):
    """Each parser reads its whole corpus once; a crash, a sanitizer finding or a hang is a
    failure."""
    replays = sorted((build / "fuzz").glob("*_replay"))
    if not replays:
        return
    say("== fuzz corpora")
    passed = 0
    for replay in replays:
        corpus = ROOT / "fuzz" / "corpus" / replay.name.removesuffix("_replay")
        if not corpus.is_dir():
            continue
        files = sorted(str(p) for p in corpus.rglob("*") if p.is_file())
        try:
            done = subprocess.run(
                [*emulator, replay, *files],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=300,
            )
            why = f"status {done.returncode}"
        except subprocess.TimeoutExpired as late:
            done, why = late, "no end after 300 s"
        if getattr(done, "returncode", 1) == 0:
            passed += 1
            continue
        say(f"{replay.name}: {why}\n{(done.stdout or b'').decode('utf-8', 'replace')[-2000:]}")
        totals.add(0, 1, 0)
    say(f"{passed} corpora replayed")
    totals.add(passed, 0, 0)


# What qemu-user, about fifteen times as slow as the machine, does in a minute or two.
QUICK = "api. bad_ base. cpu. cpu_panel. cpu_script. row. sample. -cpu.corpus".split()
# Processors that qemu-user plays, and filters of the C tests there: the first has all instructions,
# the others are for the choice of bodies.
CHOICE = ["corpus.products", "cpu.every_machine", "cpu.options"]
ARM64 = [
    ("max", ["corpus.every_set"]),
    ("max", QUICK),
    ("neoverse-n1", CHOICE),  # sdot, no smmla
    ("cortex-a53", CHOICE),  # neither
]


def run_arm64(build, totals):
    sysroot = subprocess.run(
        [ROOT / "tools" / "sysroot_arm64.sh"], stdout=subprocess.PIPE, text=True, check=True
    ).stdout.strip()
    emulator = ["qemu-aarch64", "-L", sysroot, "-cpu"]
    commands = [[*emulator, cpu, build / "reprise-tests", *filters] for cpu, filters in ARM64]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for (processor, _), done in zip(ARM64, pool.map(run_c, commands)):
            say(f"== arm64: C tests as {processor}")
            count_c(done, totals)
    run_corpora(build, totals, [*emulator, "max"])


def run_python(build, totals):
    say("== Python tests")
    made = subprocess.run(
        [ROOT / "tools" / "venv.sh"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    )
    if made.returncode != 0:
        say("the Python environment could not be made")
        totals.add(0, 1, 0)
        return
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.xml"
        env = dict(os.environ, REPRISE_BUILD=str(build), PYTHONDONTWRITEBYTECODE="1")
        done = subprocess.run(
            [made.stdout.strip(), "-m", "pytest", "tests", f"--junitxml={report}"],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env=env,
        )
        if not report.exists():
            say(f"pytest ended with status {done.returncode} and no report")
            totals.add(0, 1, 0)
            return
        suites = list(ET.parse(report).getroot().iter("testsuite"))
    count = {
        k: sum(int(s.get(k, 0)) for s in suites) for k in ("tests", "failures", "errors", "skipped")
    }
    failed = count["failures"] + count["errors"]
    if done.returncode not in (0, 5) and failed == 0:  # 5: no test was collected
        say(f"pytest ended with status {done.returncode}")
        failed = 1
    totals.add(
        max(0, count["tests"] - count["failures"] - count["errors"] - count["skipped"]),
        failed,
        count["skipped"],
    )


def run_native(build, name_part, totals):
    fetch()
    say("== C tests")
    count_c(run_c([build / "reprise-tests", *([name_part] if name_part else [])]), totals)
    if not name_part:
        run_corpora(build, totals)
        run_python(build, totals)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--build", type=Path, help="build, unless --arm64 is given")
    parser.add_argument("--arm64", type=Path, help="a build for arm64, tested under qemu-user")
    parser.add_argument(
        "--filter", default="", help="part of a C test's name; the other runners are left out"
    )
    args = parser.parse_args()
    totals = Totals()
    if args.build or not args.arm64:
        run_native((args.build or Path("build")).resolve(), args.filter, totals)
    if args.arm64:
        run_arm64(args.arm64.resolve(), totals)
    print(f"{totals.passed} passed, {totals.failed} failed, {totals.skipped} skipped", flush=True)
    return 1 if totals.failed or not totals.passed else 0


if __name__ == "__main__":
    sys.exit(main())
