"""`reprise bench serve` against a server whose answers are known, and against `reprise serve`."""

import json
import signal
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import Counter

import pytest

from cli import FAILED, INTERRUPTED, REPRISE, USAGE, answer, environment, needs_reprise, refusal, reprise
from fake_server import FakeServer
from project import ROOT

sys.path.insert(0, str(ROOT / "tests" / "serve"))
from server import Server  # noqa: E402

pytestmark = needs_reprise


def measure(server, *args):
    return json.loads(answer("bench", "serve", server.url, "--json", "-q", *args))


def test_closed_loop():
    with FakeServer(chunks=5, first=0.03, gap=0.01, gather=3) as server:
        report = measure(server, "--requests", "12", "--concurrency", "3")
    assert (report["loop"], report["concurrency"], report["rate"]) == ("closed", 3, None)
    assert (report["done"], report["failed"], report["errors"]) == (12, 0, [])
    assert report["most_at_once"] == 3 and report["model"] == "fake"
    counts = {k: report[k]["count"] for k in ("ttft_ms", "gap_ms", "tpot_ms", "e2e_ms")}
    assert counts == {"ttft_ms": 12, "gap_ms": 12 * 4, "tpot_ms": 12, "e2e_ms": 12}
    assert report["prompt_tokens"] == 12 * 7 and report["cached_tokens"] == 12 * 2
    assert report["output_tokens"] == 12 * 10 and report["output_counted_by"] == "usage"
    total = report["total_tokens_per_second"] * report["seconds"]
    assert total == pytest.approx(12 * 17)
    for key in counts:
        s = report[key]
        assert 0 <= s["p50"] <= s["p90"] <= s["p99"] <= s["max"] and 0 <= s["mean"] <= s["max"]
    assert report["ttft_ms"]["p50"] >= 30  # what the server waits, nobody can be quicker than
    assert report["e2e_ms"]["p50"] >= 30 + 4 * 10
    assert report["seconds"] >= 4 * 0.07


def test_open_loop_does_not_wait_for_answers():
    with FakeServer(gather=20) as server:  # no answer before all have arrived
        report = measure(server, "--requests", "20", "--rate", "500")
    assert (report["loop"], report["concurrency"], report["rate"]) == ("open", None, 500)
    assert report["done"] == 20 and report["most_at_once"] == 20


def test_prompts_are_unique_and_of_the_wanted_length():
    with FakeServer(tokens=lambda word: 2 if len(word) > 4 else 1) as server:
        report = measure(server, "--requests", "9", "--prompt-tokens", "30", "--seed", "5")
        assert report["prompts"] == "tokens" and report["prompt_length"] == 30
        assert [server.count(p) for p in server.prompts] == [30] * 9
        assert len(set(server.prompts)) == 9
        first = sorted(server.prompts)
        server.bodies.clear()
        measure(server, "--requests", "9", "--prompt-tokens", "30", "--seed", "5")
        assert sorted(server.prompts) == first
        server.bodies.clear()
        measure(server, "--requests", "9", "--prompt-tokens", "30", "--seed", "6")
        assert not set(server.prompts) & set(first)


def test_words_that_cannot_make_the_length_exactly():
    with FakeServer(tokens=lambda word: 7) as server:
        assert measure(server, "--requests", "2", "--prompt-tokens", "30")["prompts"] == "about tokens"
        assert all(abs(server.count(p) - 30) < 7 for p in server.prompts)


def test_without_tokenize_a_word_is_a_token():
    with FakeServer() as server:
        report = measure(server, "--requests", "4", "--prompt-tokens", "25", "--shared-tokens", "20")
        assert report["prompts"] == "words"
        words = [p.split() for p in server.prompts]
    assert [len(w) for w in words] == [25] * 4
    assert len({tuple(w[:20]) for w in words}) == 1 and len({tuple(w[20:]) for w in words}) == 4


def test_what_is_asked_for(tmp_path):
    file = tmp_path / "prompts.txt"
    file.write_text("one\n\ntwo words\r\nthree\n")
    with FakeServer() as server:
        options = ["--requests", "7", "--concurrency", "1", "--prompts", file, "-n", "9", "--temp", "0.5"]
        measure(server, *options, "--endpoint", "completions", "--api-key", "secret", "--ignore-eos")
        assert server.prompts == ["one", "two words", "three", "one", "two words", "three", "one"]
        assert set(server.paths) == {"/v1/completions"} and server.keys == {"Bearer secret"}
        body = server.bodies[0]
        assert body.pop("prompt") == "one"
        assert body == {
            "model": "fake", "max_tokens": 9, "ignore_eos": True, "temperature": 0.5,
            "stream": True, "stream_options": {"include_usage": True},
        }  # fmt: skip
        server.bodies.clear()
        measure(server, "--requests", "1", "--model-name", "other")
        body = server.bodies[0]
        assert server.paths[-1] == "/v1/chat/completions" and body["model"] == "other"
        assert [m["role"] for m in body["messages"]] == ["user"] and "ignore_eos" not in body


def test_without_usage_chunks_are_counted():
    with FakeServer(chunks=4, usage=False) as server:
        report = measure(server, "--requests", "3")
        assert report["output_tokens"] == 12 and report["output_counted_by"] == "chunks"
        table = answer("bench", "serve", "--url", server.url + "/v1/", "--requests", "3", "-q")
        assert "answers    12 chunks" in table


def test_failures_are_part_of_the_result():
    plan = {1: 429, 2: "error", 3: "cut", 5: 429, 6: 500}
    with FakeServer(plan=plan) as server:
        report = measure(server, "--requests", "8", "--concurrency", "1")
    assert report["done"] == 3 and report["failed"] == 5
    assert report["ttft_ms"]["count"] == 3 and report["gap_ms"]["count"] == 3 * 2
    errors = Counter({(e["http"], e["message"]): e["count"] for e in report["errors"]})
    assert errors == {
        (429, "refused with 429"): 2,
        (500, "refused with 500"): 1,
        (200, "out of luck"): 1,
        (200, "the answer ended without data: [DONE]"): 1,
    }
    with FakeServer(plan={0: 503, 1: 503}) as server:
        done = reprise("bench", "serve", server.url, "--requests", "2", "-q")
    assert done.returncode == FAILED and b"failed     2 x HTTP 503: refused with 503" in done.stdout


def test_a_slow_answer_is_given_up():
    with FakeServer(plan={0: "hang"}) as server:
        report = measure(server, "--requests", "2", "--concurrency", "1", "--request-timeout", "0.3")
    assert report["done"] == 1 and report["failed"] == 1
    assert "timed out" in report["errors"][0]["message"]


def test_ctrl_c_prints_what_was_measured():
    with FakeServer(plan={3: "hang"}) as server:
        command = [REPRISE, "bench", "serve", server.url, "--requests", "9", "--concurrency", "1", "--json"]
        process = subprocess.Popen(
            list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
        )
        while len(server.bodies) < 4:
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert process.returncode == INTERRUPTED, err
    report = json.loads(out)
    assert report["interrupted"] is True and report["done"] == 3 and report["failed"] == 0


def test_plot(tmp_path):
    with FakeServer() as server:
        measure(server, "--requests", "5", "--plot", tmp_path / "load.svg")
    root = ET.parse(tmp_path / "load.svg").getroot()
    space = "{http://www.w3.org/2000/svg}"
    texts = {t.text for t in root.iter(space + "text")}
    assert {"time to first token", "between chunks", "whole answer", "50 %"} <= texts
    assert len(list(root.iter(space + "polyline"))) == 3


def test_usage():
    assert "cannot be reached" in refusal("bench", "serve", "http://127.0.0.1:9", status=FAILED)
    both = refusal("bench", "serve", "--rate", "1", "--concurrency", "2", status=USAGE)
    assert both == "give --concurrency (a closed loop) or --rate (an open loop), not both"
    assert "--shared-tokens 9" in refusal(
        "bench", "serve", "--shared-tokens", "9", "--prompt-tokens", "9", status=USAGE
    )
    assert refusal("bench", "serve", "http://x", "y", status=USAGE) == 'unexpected argument "y"'
    assert "not of this command" in refusal("bench", "serve", "--threads", "2", status=USAGE)
    for words in (["help", "bench", "serve"], ["bench", "serve", "--help"]):
        assert "usage: reprise bench serve [URL]" in answer(*words)


def test_against_the_server_itself(table):
    """The model answers a chat with "ok." and the end: four tokens, three of which bring text."""
    with Server(table, "-np", 4) as server:
        report = measure(server, "--requests", "10", "--concurrency", "4", "--temp", "0")
        assert report["done"] == 10 and report["output_tokens"] == 40
        assert report["gap_ms"]["count"] <= 20  # chunks that wait for the reader come as one
        metrics = server.metrics()
        assert report["prompt_tokens"] == metrics["vllm:prompt_tokens_total"] + report["cached_tokens"]
