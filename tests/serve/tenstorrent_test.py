"""The server on the tenstorrent device, with the stand-in for ttnn: batches in visits of several
steps, and what a lost ttnn process does to requests."""

import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cli import environment
from conftest import STORY
from server import Raw, Server

TEXT = "/v1/completions"
DEVICE = ["--device", "tenstorrent", "--device-options", "pick=1", "--num-scheduler-steps", "4"]
SIZES = ["-c", "256", "-np", "4", "--max-num-batched-tokens", "32"]


def serve(model):
    fake = Path(__file__).parents[1] / "tenstorrent" / "fake"
    env = environment(
        REPRISE_TTNN_PYTHON=sys.executable, PYTHONPATH=str(fake), PYTHONDONTWRITEBYTECODE="1"
    )
    return Server(model, *DEVICE, *SIZES, env=env)


def test_answers_side_by_side_end_where_they_should(story):
    with serve(story) as s, ThreadPoolExecutor(4) as pool:
        asked = [{}, {"stop": ["w\u00f6r"]}, {"max_tokens": 7}, {"temperature": 0.01}] * 2
        got = list(pool.map(lambda fields: s.chat(**{"temperature": 0, **fields}), asked))
        texts = [g["choices"][0]["message"]["content"] for g in got]
        assert texts[0] == texts[3] == STORY and texts[1] == "Hello, "
        assert STORY.startswith(texts[2]) and got[2]["usage"]["completion_tokens"] == 7
        assert texts[4:] == texts[:4]
        assert s.metrics()["reprise_replays_total"] > 0


def children(pid):
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(c) for t in tasks for c in (t / "children").read_text().split()]


def test_a_lost_ttnn_process_fails_what_runs_and_nothing_after(endless):
    with serve(endless) as s:
        body = {"prompt": "a", "max_tokens": 200, "temperature": 0, "ignore_eos": True}
        with Raw(s) as raw:
            raw.post(TEXT, {**body, "stream": True})
            raw.take(b"data: ")
            os.kill(children(s.process.pid)[0], signal.SIGKILL)
            assert b"the ttnn process was ended by signal 9" in raw.take_rest_of_stream()
        assert s.post(TEXT, {**body, "max_tokens": 8})["choices"][0]["text"] == "babababa"
