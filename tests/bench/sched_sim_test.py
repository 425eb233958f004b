"""The simulator drives the engine's scheduler: everything is answered, and no stream waits for more
than a chunk and a decode step."""

import re
import subprocess

import pytest

from project import BUILD

SIM = BUILD / "sched-sim"
pytestmark = pytest.mark.skipif(not SIM.exists(), reason=f"{SIM} is not built")

SEQS, CHUNK, STEP, TOKEN, ANSWER, CONTEXT = 16, 64, 5000, 20, 30, 10


def simulate(*args):
    costs = f"{STEP},{TOKEN},{ANSWER},{CONTEXT}"
    command = [SIM, "-n", 3000, "-s", SEQS, "-t", 512, "-c", CHUNK, "-k", costs, *args]
    return subprocess.run(
        [str(a) for a in command], capture_output=True, text=True, check=True
    ).stdout


def number(pattern, text):
    return float(re.search(pattern, text)[1])


def test_the_largest_gap_is_one_chunk_and_one_decode_step():
    out = simulate("-r", 5, "-p", 1500, "-x", 0)
    assert number(r"put back +(\d+) times", out) == 0
    decode = STEP + SEQS * (ANSWER + CONTEXT * 4.096)
    bound = (decode + CHUNK * TOKEN) / 1000
    largest = number(r"gap between tokens .* most +([\d.]+) ms", out)
    assert decode / 2000 < largest <= bound + 0.05


def test_a_full_queue_refuses_and_few_blocks_put_back_and_all_others_are_answered():
    out = simulate("-r", 200, "-q", 50, "-b", 140)
    answered, refused = (number(rf"(\d+) {what}", out) for what in ("answered", "refused"))
    assert answered + refused == 3000 and refused > 100
    assert number(r"put back +(\d+) times", out) > 0


def test_a_shared_prefix_is_found():
    args = ["-r", 5, "-x", 480, "-p", 100, "-f", 4]
    assert number(r"cache +([\d.]+) %", simulate(*args)) > 75
    assert number(r"cache +([\d.]+) %", simulate(*args, "-o", 0)) == 0
