"""Streams: whole characters, stop strings held back exactly, usage, pings; and the same bytes as
the
whole answer."""

import json

import pytest

from models import TableModel, byte_vocab, scripted
from server import Raw, Server, joined, parse_events

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
LLAMA, FAMILY = "\U0001f999", "\U0001f468\u200d\U0001f469\u200d\U0001f467"


def serve_script(tmp_path_factory, pieces):
    path = tmp_path_factory.mktemp("models") / "script.gguf"
    return Server(scripted(b"".join(pieces), pieces=list(pieces)).write(path))


def both_ways(server, **fields):
    """(text, finish) of a chat, the same streamed and whole; and the stream's parts."""
    body = {"messages": [{"role": "user", "content": "hi"}], **fields}
    events = server.stream(CHAT, body)
    whole = server.post(CHAT, body)["choices"][0]
    got = (whole["message"]["content"], whole["finish_reason"])
    assert joined(events) == got
    parts = [c["delta"].get("content", "") for e in events for c in e["choices"]]
    return *got, [p for p in parts if p]


# Distinct pieces, as a table model's successor hangs on the last token alone.
@pytest.mark.parametrize(
    "pieces, text",
    [
        ([b"a", b"\xf0\x9f", b"\xa6\x99", b"b"], f"a{LLAMA}b"),
        ([b"a", b"\xf0", b"\x9f\xa6", b"\x99", b"b"], f"a{LLAMA}b"),
        ([b"a", b"\xf0", b"\x9f", b"\xa6", b"\x99", b"b"], f"a{LLAMA}b"),
        ([b"\xf0\x9f\x91\xa8\xe2", b"\x80\x8d\xf0", b"\x9f\x91\xa9", b"\xe2\x80\x8d", b"\xf0\x9f\x91",
          b"\xa7"], FAMILY),
        ([b"a", b"\xbf", b"b"], "a\ufffdb"),
        ([b"a", b"\xf0\x9f", b"b"], "a\ufffdb"),
        ([b"a", b"\xe4\xbd"], "a\ufffd"),
        ([b"\xff", b"\xfe"], "\ufffd\ufffd"),
    ],
)  # fmt: skip
def test_characters_come_whole(tmp_path_factory, pieces, text):
    with serve_script(tmp_path_factory, pieces) as s:
        got, finish, parts = both_ways(s)
        assert (got, finish) == (text, "stop")
        assert all(p in text for p in parts), "a part of a character came alone"
        entries = s.chat(logprobs=True)["choices"][0]["logprobs"]["content"]
        assert [bytes(e["bytes"]) for e in entries] == pieces


def test_a_character_cut_at_the_end(tmp_path_factory):
    with serve_script(tmp_path_factory, [b"a", b"\xf0\x9f", b"\xa6\x99"]) as s:
        assert both_ways(s, max_tokens=2)[:2] == ("a\ufffd", "length")


@pytest.fixture(scope="module")
def alphabet(tmp_path_factory):
    with serve_script(tmp_path_factory, [b"ABC", b"DE", b"FG", b"HI", b"J K"]) as s:
        yield s


@pytest.mark.parametrize(
    "stop, text, finish",
    [
        (["DEFGHIJ"], "ABC", "stop"),
        (["DEX"], "ABCDEFGHIJ K", "stop"),
        (["FG", "EFGH"], "ABCD", "stop"),
        (["BC"], "A", "stop"),
        (["K"], "ABCDEFGHIJ ", "stop"),
        (["ABC"], "", "stop"),
        ("HI", "ABCDEFG", "stop"),
        (["x", "y", "z", "w", "J"], "ABCDEFGHI", "stop"),
    ],
)
def test_stop_strings(alphabet, stop, text, finish):
    got, why, parts = both_ways(alphabet, stop=stop)
    assert (got, why) == (text, finish)
    if text == "ABC":
        assert not any("D" in p for p in parts)
    one = stop if isinstance(stop, str) else None
    if one:
        assert both_ways(alphabet, stop=stop, include_stop_str_in_output=True)[0] == text + one


def test_usage_counts_what_was_generated(alphabet):
    """The tokens of a stop string were generated too."""
    whole = alphabet.chat(stop=["DEFGHIJ"])["usage"]
    body = {
        "messages": [{"role": "user", "content": "hi"}],
        "stop": ["DEFGHIJ"],
        "stream_options": {"include_usage": True},
    }
    *events, last = alphabet.stream(CHAT, body)
    assert whole["completion_tokens"] == 5
    assert last["choices"] == [] and last["usage"] == whole
    assert all(e["usage"] is None for e in events)
    assert all("usage" not in e for e in alphabet.stream(CHAT, {k: v for k, v in body.items() if k != "stream_options"}))  # fmt: skip


def test_usage_counts_every_choice(alphabet):
    body = {"messages": [{"role": "user", "content": "hi"}], "n": 3}
    one, three = alphabet.chat()["usage"], alphabet.post(CHAT, body)["usage"]
    assert one["completion_tokens"] == 6 and three["completion_tokens"] == 3 * 6
    assert one["prompt_tokens"] == three["prompt_tokens"]
    shown = alphabet.post("/tokenize", {"messages": body["messages"]})["count"]
    assert one["prompt_tokens"] == shown
    assert one["total_tokens"] == one["prompt_tokens"] + one["completion_tokens"]
    *_, last = alphabet.stream(CHAT, body | {"stream_options": {"include_usage": True}})
    assert last["usage"]["completion_tokens"] == 3 * 6


def test_stop_across_a_split_character(tmp_path_factory):
    with serve_script(tmp_path_factory, [b"a", b"\xf0\x9f", b"\xa6\x99b", b"c"]) as s:
        assert both_ways(s, stop=[LLAMA])[0] == "a"
        assert both_ways(s, stop=[LLAMA + "b"])[0] == "a"
        assert both_ways(s, stop=["b"])[0] == "a" + LLAMA


def test_order_of_events(teller):
    body = {"messages": [{"role": "user", "content": "hi"}], "n": 3}
    events = teller.stream(CHAT, body)
    for i in range(3):
        own = [c for e in events for c in e["choices"] if c["index"] == i]
        assert own[0]["delta"] == {"role": "assistant", "content": ""}
        assert all("role" not in c["delta"] for c in own[1:])
        assert own[-1]["delta"] == {} and own[-1]["finish_reason"] == "stop"
        assert all(c["finish_reason"] is None for c in own[:-1])
    first_end = next(i for i, e in enumerate(events) if e["choices"][0]["finish_reason"])
    assert len({e["choices"][0]["index"] for e in events[:first_end]}) == 3, "choices take turns"


def test_text_stream_is_the_whole_text(server):
    body = {"prompt": "a", "max_tokens": 50, "seed": 3, "logprobs": 3}
    whole = server.post(TEXT, body)["choices"][0]
    events = server.stream(TEXT, body)
    assert joined(events) == (whole["text"], whole["finish_reason"])
    parts = [c["logprobs"] for e in events for c in e["choices"] if c["logprobs"]]
    assert {k: [x for p in parts for x in p[k]] for k in parts[0]} == whole["logprobs"]


def test_a_split_request_and_http_1_0(teller):
    body = json.dumps({"messages": [{"role": "user", "content": "hi"}], "stream": True}).encode()
    with Raw(teller) as raw:
        request = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        for byte in request + body:
            raw.send(bytes([byte]))
        assert b"Transfer-Encoding: chunked" in raw.take(b"[DONE]")
    with Raw(teller) as raw:
        raw.send(f"POST {CHAT} HTTP/1.0\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        head, events = raw.take_rest().split(b"\r\n\r\n", 1)
        assert b"chunked" not in head
        parse_events(events)


def test_pipelined_requests_are_answered_in_order(server):
    ask = {"prompt": "\n", "max_tokens": 1}
    with Raw(server) as raw:
        for i in range(3):
            raw.post(TEXT, ask, f"x-request-id: number-{i}\r\n")
        got = b""
        while got.count(b'"usage"') < 3:
            got += raw.socket.recv(4096)
        ids = [line for line in got.decode().splitlines() if line.startswith("x-request-id")]
        assert ids == [f"x-request-id: number-{i}" for i in range(3)]


def test_pings_keep_a_silent_stream(tmp_path):
    """The only sequence is taken by another request, so that the stream has nothing to say."""
    model = TableModel(byte_vocab())
    model.follow("\n", "b")
    model.follow("b", "\n")
    path = model.write(tmp_path / "long.gguf", context=1 << 20)
    with Server(path, "-np", 1, "-c", 1 << 20, "--sse-ping-interval", 0.2) as s:
        with Raw(s) as busy, Raw(s) as waiting:
            busy.post(TEXT, {"prompt": "\n", "max_tokens": 1 << 20, "stream": True})
            busy.take(b"data: ")
            waiting.post(TEXT, {"prompt": "\n", "max_tokens": 3, "stream": True})
            assert b"data: " not in waiting.take(b": still working")
            busy.reset()
            waiting.take(b"[DONE]")
