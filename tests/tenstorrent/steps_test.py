"""What a replayed step calls and moves, and what a lost ttnn process does, seen from outside: the
device writes every call of ttnn to standard error when REPRISE_TTNN_LOG is set."""

import importlib.util
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cli import REPRISE
from project import FIXTURES

FAKE = Path(__file__).parent / "fake"
GLUE = Path(__file__).parents[2] / "src" / "device" / "tenstorrent" / "tenstorrent_glue.py"
PROMPT = ["--raw", "-p", "Hello there", "--ignore-eos", "--temperature", "0"]
PICKING = ["--device", "tenstorrent", "--device-options", "pick=1"]
SIZES = ["-c", "128", "-np", "1", "--max-num-batched-tokens", "16"]

pytestmark = pytest.mark.skipif(not REPRISE.exists(), reason=f"{REPRISE} is not built")


def environment(**more):
    return {
        **os.environ,
        "REPRISE_TTNN_PYTHON": sys.executable,
        "PYTHONPATH": str(FAKE),
        "PYTHONDONTWRITEBYTECODE": "1",
        "REPRISE_TTNN_LOG": "1",
        **more,
    }


def run(*options, model="llama3", **more):
    command = [REPRISE, "run", "-m", FIXTURES / "tiny" / model, *PROMPT, *SIZES, *options]
    return subprocess.run(command, env=environment(**more), capture_output=True, text=True)


def calls(stderr):
    return [json.loads(line[6:]) for line in stderr.splitlines() if line.startswith("ttnn: [")]


def steps(stderr):
    """The calls of each replayed step: what was sent after the step before it."""
    found, step = [], []
    for call in calls(stderr):
        step.append(call)
        if call[0] == "read":
            found.append(step)
            step = []
    return [s for s in found if any(c[0] == "replay" for c in s)]


def test_a_replayed_step_calls_nothing_but_its_inputs_the_trace_and_one_read():
    answer = run("-n", "70", *PICKING, "--capture", "on")
    assert answer.returncode == 0, answer.stderr
    replayed = steps(answer.stderr)[2:]
    assert len(replayed) > 60
    for step in replayed:
        names = [c[0] for c in step]
        assert set(names[:-2]) <= {"refresh"} and names[-2:] == ["replay", "read"], names
    # Slot, and token when it is another; positions advance on the device. When a block is added,
    # its table, and positions with it in the one range that changed.
    sizes = [[c[6] for c in step[:-2]] for step in replayed]  # bytes
    assert all(sum(s) < 64 for s in sizes), sizes
    assert sum(s not in ([4], [4, 4]) for s in sizes) <= 3
    # Greedy: the token that the device picked is read, and no logits.
    assert all(step[-1][5] == "u32" for step in replayed)


def test_a_visit_of_four_steps_is_four_replays_and_one_read():
    answer = run("-n", "70", *PICKING, "--capture", "on", "--num-scheduler-steps", "4")
    assert answer.returncode == 0, answer.stderr
    visits = steps(answer.stderr)[1:-1]  # in the first it is captured, the last has what is left
    assert len(visits) == 16
    for visit in visits:
        names = [c[0] for c in visit]
        assert names[-5:] == ["replay"] * 4 + ["read"] and set(names[:-5]) <= {"refresh"}, names
    # The host writes nothing but a table, when a block is added to it.
    assert sum(len(v) != 5 for v in visits) <= 3
    assert run("-n", "70", *PICKING, "--capture", "on").stdout == answer.stdout != ""


@pytest.mark.parametrize("options", [["--device", "tenstorrent"], ["--device", "cpu"]])
def test_several_steps_per_visit_are_refused_where_the_device_does_not_feed_itself(options):
    answer = run("-n", "4", *options, "--num-scheduler-steps", "4")
    assert answer.returncode != 0
    assert f"scheduler_steps is 4, but device {options[1]} as it was opened" in answer.stderr


def test_logits_are_read_where_they_are_wanted():
    for options in (["--temperature", "1", *PICKING], ["--device", "tenstorrent"]):
        answer = run("-n", "8", *options, "--capture", "on")
        assert answer.returncode == 0, answer.stderr
        assert all(step[-1][5] == "tile" for step in steps(answer.stderr))


def test_the_tokens_are_those_of_the_processor():
    on_processor = run("-n", "24").stdout
    for options in (PICKING, ["--device", "tenstorrent"]):
        assert run("-n", "24", *options, "--capture", "on").stdout == on_processor != ""


def test_a_trace_region_that_is_too_small_leaves_steps_eager():
    small = [*PICKING[:2], "--device-options", "trace_region=8192"]
    answer = run("-n", "8", *small, "--capture", "on")
    assert answer.returncode == 0, answer.stderr
    assert "a step stays eager, its capture was refused" in answer.stderr
    assert "a trace region of 8192 bytes is too small" in answer.stderr
    assert answer.stdout == run("-n", "8").stdout != ""


def test_explain_shows_what_crosses_for_ops_on_the_host():
    def explain(*options):
        command = [REPRISE, "explain", "-m", FIXTURES / "tiny" / "llama3", "--device", "tenstorrent"]
        text = subprocess.run(
            [*command, *SIZES, *options], env=environment(), capture_output=True, text=True
        )
        assert text.returncode == 0, text.stderr
        return text.stdout

    alone, both = explain(), explain("--device-options", "hybrid=1")
    assert "prompt 32" in alone and "hybrid" not in alone and "transfers down" not in alone
    assert "decode 1, host-free" in both and "decode 1, hybrid" in both
    assert "on the host: 7 ops; per step 8 transfers down" in both
    visits = explain("--device-options", "pick=1", "--num-scheduler-steps", "4")
    assert "or, where only the best tokens are wanted: past [4, 1] I32\n" in visits
    assert "best tokens" not in alone


def test_a_lost_process_is_an_error_of_the_request():
    command = [REPRISE, "run", "-m", FIXTURES / "tiny" / "llama3", *PROMPT, *SIZES]
    command += ["-n", "100", "--device", "tenstorrent", "--capture", "on"]
    process = subprocess.Popen(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    lines = []
    for line in process.stderr:
        lines.append(line)
        if '"replay"' in line:
            break
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    if not children:  # it was started by another thread
        tasks = Path(f"/proc/{process.pid}/task").iterdir()
        children = [c for t in tasks for c in (t / "children").read_text().split()]
    os.kill(int(children[0]), signal.SIGKILL)
    process.stdout.read()
    rest = process.stderr.read()
    assert process.wait() != 0
    assert "the ttnn process was ended by signal 9" in rest


@pytest.mark.parametrize("options", [["--device-options", "weights=bfloat8_b"], []])
def test_devices_tells_the_state(options):
    text = subprocess.run([REPRISE, "devices"], env=environment(), capture_output=True, text=True)
    row = next(r for r in text.stdout.splitlines() if r.startswith("tenstorrent"))
    assert "usable" in row and "grid 8x8" in row and "ttnn fake" in row


def test_devices_tells_what_is_missing():
    for more, wanted in (
        ({"REPRISE_TTNN_PYTHON": "/nowhere/python"}, "cannot be started"),
        ({"PYTHONPATH": ""}, "has no ttnn"),
    ):
        text = subprocess.run(
            [REPRISE, "devices"], env=environment(**more), capture_output=True, text=True
        )
        row = next(r for r in text.stdout.splitlines() if r.startswith("tenstorrent"))
        assert "not usable" in row and wanted in row


class Stream(io.BytesIO):
    """Requests to read; `answers` has what is written."""

    def __init__(self, *requests):
        super().__init__(b"".join(json.dumps(r).encode() + b"\n" for r in requests))
        self.answers = b""

    def write(self, data):
        self.answers += data


def test_what_was_never_made_can_be_dropped():
    """A capture that an op ends: the numbers of all its results are dropped afterwards."""
    spec = importlib.util.spec_from_file_location("glue", GLUE)
    glue = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(glue)
    fails = ["argmax", [7], [8], [1], [], "", 0, False]
    abort, drop = ["abort", [], [], [], [], "", 0, True], ["drop", [8, 7], [], [], [], "", 0, False]
    stream = Stream(fails, abort, drop, abort)
    glue.Glue().serve(stream)
    assert stream.answers == b"error 9\nargmax: 7ok 0\n"
