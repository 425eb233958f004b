#!/usr/bin/env python3
"""What the host does for a replayed decode step on the tenstorrent device: calls of ttnn, bytes each way, time.

    bench/ttnn_host.py [-n TOKENS] [-s STEPS] [MODEL]

STEPS above 1: the device feeds its tokens back itself (--num-scheduler-steps), so many steps per
visit of the host.

Without REPRISE_TTNN_PYTHON the stand-in of the tests serves, whose "device" is numpy in the same process: what is left
when its work is taken off is the cost of Reprise, the socket and Python. The time of a step is that of the whole answer
over its tokens; the device's is what the calls that run or await a trace took.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
WAITS = ("replay", "read", "sync")


def environment():
    env = {**os.environ, "REPRISE_TTNN_LOG": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    if "REPRISE_TTNN_PYTHON" not in env:
        env["REPRISE_TTNN_PYTHON"] = sys.executable
        env["PYTHONPATH"] = str(ROOT / "tests/tenstorrent/fake")
    return env


def run(model, n_tokens, n_steps, log):
    command = [ROOT / "build/reprise", "run", "-m", model, "--raw", "-p", "H", "--no-bos", "-n", str(n_tokens)]
    command += ["--ignore-eos", "--temperature", "0", "-c", "256", "-np", "1", "--max-num-batched-tokens", "1"]
    command += ["--capture", "on", "--device", "tenstorrent", "-v"]
    if n_steps > 1:
        command += ["--device-options", "pick=1", "--num-scheduler-steps", str(n_steps)]
    env = {**environment(), "REPRISE_TTNN_LOG": log}
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr[-1000:])
    return done.stderr


def replayed_visits(text):
    """The calls of each visit with replays, from the one after the read before it."""
    step = []
    for line in re.findall(r"^ttnn: (\[.*)$", text, re.M):
        step.append(json.loads(line))
        if step[-1][0] == "read":
            if any(call[0] == "replay" for call in step):
                yield step
            step = []


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-n", type=int, default=200)
    parser.add_argument("-s", type=int, default=1)
    parser.add_argument("model", nargs="?", default=ROOT / "tests/fixtures/tiny/llama3")
    args = parser.parse_args()
    visits = list(replayed_visits(run(args.model, args.n, args.s, "calls")))[1:]
    calls = [call for visit in visits for call in visit]
    n = sum(call[0] == "replay" for call in calls)
    n_bytes = sum(call[6] for call in calls)
    print(f"{n} replayed steps: {len(calls) / n:.2f} calls each, {n_bytes / n:.1f} bytes to the device")

    text = run(args.model, args.n, args.s, "times")
    spent = {name: (int(n), float(us)) for n, name, us in re.findall(r"^ttnn: (\d+) x (\w+), (\d+) us", text, re.M)}
    seconds = float(re.search(r"^answer +\d+ tokens, ([\d.]+) s", text, re.M)[1])
    for name in ("refresh", "replay", "read"):
        print(f"  {name:8} {spent[name][0]:6} calls, {spent[name][1]:8.0f} us each in Python")
    wait = sum(spent[name][1] for name in ("replay", "read"))
    step = seconds / args.n * 1e6
    print(f"  a step   {step:8.0f} us, of which {wait:.0f} run or await the trace: {step - wait:.0f} us of host work")


if __name__ == "__main__":
    main()
