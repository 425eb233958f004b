"""Clients that leave in every phase, read slowly or not at all, or only sit there: what they held
is
free again, and nobody else notices. REPRISE_LONG=1 does it a thousand times."""

import os
import socket
import time

import pytest

from server import PATIENCE, Raw, Server

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
ROUNDS = 1000 if os.environ.get("REPRISE_LONG") else 100
ENDLESS = {"prompt": "a", "max_tokens": 100_000, "temperature": 0}
LONG_PROMPT = {"prompt": [3] * 60_000, "max_tokens": 100_000}


@pytest.fixture(scope="module")
def busy(endless):
    """Two sequences of 131,072 positions; a prompt of 60,000 tokens is many steps."""
    with Server(endless, "-np", 2, "-c", 1 << 17, "-b", 64, "--no-log-requests") as s:
        yield s


def free_blocks(server):
    m = server.metrics()
    return m['reprise_kv_blocks{state="free"}'] + m['reprise_kv_blocks{state="cached"}']


def wait_for(condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def leave(raw, how):
    if how == "reset":
        raw.reset()
    elif how == "half":
        raw.socket.shutdown(socket.SHUT_WR)
    else:
        raw.socket.close()


def started(server):
    return server.metrics()["vllm:num_requests_running"] > 0


# How a request comes into each phase, `i` of how many times; what keeps it there, if anything does.


def into_stream(server, raw, i):
    raw.post(TEXT, ENDLESS | {"stream": True})
    raw.take(b"data: ")


def into_whole(server, raw, i):
    raw.post(TEXT, ENDLESS)
    wait_for(lambda: started(server))


def into_prefill(server, raw, i):
    raw.post(TEXT, LONG_PROMPT | {"stream": i % 2 == 0})
    wait_for(lambda: started(server))


def into_queue(server, raw, i):
    others = [Raw(server) for _ in range(2)]
    for other in others:
        into_stream(server, other, i)
    raw.post(TEXT, ENDLESS | {"stream": i % 2 == 0})
    wait_for(lambda: server.metrics()["vllm:num_requests_waiting"] == 1)
    return others


def into_body(server, raw, i):
    raw.send(f"POST {TEXT} HTTP/1.1\r\nHost: x\r\nContent-Length: 500\r\n\r\n{{")


PHASES = [into_stream, into_whole, into_prefill, into_queue, into_body]


@pytest.mark.parametrize("how", ["reset", "half", "close"])
@pytest.mark.parametrize("phase", PHASES)
def test_leaving_frees_everything(busy, phase, how):
    free = free_blocks(busy)
    for i in range(-(-ROUNDS // (3 * len(PHASES)))):
        with Raw(busy) as raw:
            others = phase(busy, raw, i) or []
            leave(raw, how)
            wait_for(lambda: busy.metrics()["vllm:num_requests_waiting"] == 0)
            for other in others:
                other.reset()
            if how == "half":  # no end of the answer is made up
                assert b"[DONE]" not in raw.take_rest()
        busy.wait_until_idle(free)
    answer = busy.post(TEXT, {"prompt": "a", "max_tokens": 4, "temperature": 0})
    assert answer["choices"][0]["text"] == "baba"


def steps_of(server, ask):
    before = server.metrics()["reprise_steps_total"]
    text = server.post(TEXT, ask)["choices"][0]["text"]
    return server.metrics()["reprise_steps_total"] - before, text


def test_idle_connections_cost_nothing(busy):
    """Counted in steps of the model: with 500 connections open nothing else is done for the
    answer."""
    ask = {"prompt": "a", "max_tokens": 50, "temperature": 0, "cache_prompt": False}
    alone = steps_of(busy, ask)
    idle = [Raw(busy) for _ in range(500)]
    for raw in idle[:250]:
        raw.send(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        raw.take(b"}")
    assert steps_of(busy, ask) == alone
    for raw in idle:
        raw.socket.close()


def test_slow_readers_are_bounded(endless):
    """Many take nothing of their streams: each is ended when too much waits for it, and somebody
    who reads gets all of his."""
    with Server(
        endless, "-np", 8, "-c", 1 << 16, "--stream-buffer", 1024, "--timeout", 10_000
    ) as s:
        free = free_blocks(s)
        slow = [Raw(s, receive_buffer=4096) for _ in range(ROUNDS // 5)]
        for raw in slow:
            raw.post(TEXT, {"prompt": "a", "max_tokens": 60_000, "stream": True, "temperature": 0})
        text = "".join(
            c["text"]
            for e in s.stream(TEXT, {"prompt": "a", "max_tokens": 300, "temperature": 0})
            for c in e["choices"]
        )
        assert text == "ba" * 150
        s.wait_until_idle(free)
        ends = [raw.take_rest_of_stream() for raw in slow[:3]]
        assert all(b"read too slowly" in e and b'"finish_reason": "' not in e for e in ends)
        for raw in slow:
            raw.socket.close()


def test_a_reader_that_takes_nothing_is_dropped(endless):
    """Even when all of the answer would fit what may wait."""
    with Server(endless, "-np", 1, "-c", 1 << 16, "--timeout", 1) as s:
        free = free_blocks(s)
        with Raw(s, receive_buffer=4096) as raw:
            raw.post(
                TEXT,
                ENDLESS | {"max_tokens": 60_000, "stream": True, "logprobs": 5},
            )
            raw.take(b"data: ")
            s.wait_until_idle(free)
            s.wait_for(r"POST /v1/completions 200 .*(cancelled|length)")
        assert s.post(TEXT, {"prompt": "a", "max_tokens": 1})["usage"]["completion_tokens"] == 1
