"""Log probabilities in both shapes: the model's own distribution, whatever the sampling
settings."""

import math

import pytest

from server import joined

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
P = {"b": math.log(0.7), "c": math.log(0.2), "d": math.log(0.1)}
CONTINUE = {"messages": [{"role": "assistant", "content": "a"}], "continue_final_message": True}


def close(got, wanted):
    return abs(got - wanted) < 1e-4


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": 0},
        {"temperature": 0.5},
        {"temperature": 2},
        {"top_p": 0.1},
        {"top_k": 1},
        {"logit_bias": {"6": 100}},
        {"presence_penalty": 2},
    ],
)
def test_values_do_not_hang_on_sampling(server, settings):
    body = CONTINUE | {"logprobs": True, "top_logprobs": 3, "max_tokens": 1, "seed": 1} | settings
    (entry,) = server.post(CHAT, body)["choices"][0]["logprobs"]["content"]
    assert close(entry["logprob"], P[entry["token"]])
    assert [t["token"] for t in entry["top_logprobs"]] == ["b", "c", "d"]
    for top in entry["top_logprobs"]:
        assert (
            close(top["logprob"], P[top["token"]]) and bytes(top["bytes"]) == top["token"].encode()
        )
    assert (entry["token"] == "d") == ("logit_bias" in settings) or "temperature" in settings


def test_no_top_without_asking(server):
    answer = server.chat(logprobs=True)["choices"][0]["logprobs"]
    assert [e["token"] for e in answer["content"]] == ["o", "k", "."]
    assert all(e["top_logprobs"] == [] for e in answer["content"]) and answer["refusal"] is None
    assert server.chat(logprobs=True, top_logprobs=0)["choices"][0]["logprobs"] == answer
    assert server.chat()["choices"][0]["logprobs"] is None
    assert server.chat(logprobs=False)["choices"][0]["logprobs"] is None


def test_stream_is_the_whole(server):
    body = CONTINUE | {"logprobs": True, "top_logprobs": 2, "max_tokens": 40, "seed": 2, "n": 2}
    whole = server.post(CHAT, body)["choices"]
    events = server.stream(CHAT, body)
    for i in range(2):
        parts = [c for e in events for c in e["choices"] if c["index"] == i]
        streamed = [x for c in parts if c["logprobs"] for x in c["logprobs"]["content"]]
        assert streamed == whole[i]["logprobs"]["content"]
        assert joined(events, i)[0] == whole[i]["message"]["content"]


def test_completions_have_four_lists(server):
    body = {"prompt": "a", "max_tokens": 3, "logprobs": 2, "temperature": 0}
    got = server.post(TEXT, body)["choices"][0]["logprobs"]
    assert got["tokens"] == ["b", "a", "b"] and got["text_offset"] == [0, 1, 2]
    assert close(got["token_logprobs"][0], P["b"]) and close(got["token_logprobs"][1], 0)
    assert list(got["top_logprobs"][0]) == ["b", "c"] and close(got["top_logprobs"][0]["c"], P["c"])


def test_the_chosen_token_is_always_there(server):
    for n in (0, 1):
        body = {"prompt": "a", "max_tokens": 1, "logprobs": n, "logit_bias": {"6": 100}}
        (top,) = server.post(TEXT, body)["choices"][0]["logprobs"]["top_logprobs"]
        assert close(top["d"], P["d"]) and len(top) == n + 1


def test_tokens_by_number(server):
    """Two tokens may have one text; their numbers differ."""
    ids = {t: server.post("/tokenize", {"prompt": t})["tokens"][-1] for t in "abc"}
    name = {t: f"token_id:{i}" for t, i in ids.items()}
    body = {"temperature": 0, "max_tokens": 2, "return_tokens_as_token_ids": True}
    got = server.post(TEXT, body | {"prompt": "a", "logprobs": 2, "echo": True})["choices"][0]
    assert got["logprobs"]["tokens"] == [name[t] for t in "aba"] and got["text"] == "aba"
    assert list(got["logprobs"]["top_logprobs"][1]) == [name["b"], name["c"]]
    assert got["logprobs"]["text_offset"] == [0, 1, 2]
    got = server.post(CHAT, body | CONTINUE | {"logprobs": True, "top_logprobs": 2})["choices"][0]
    first = got["logprobs"]["content"][0]
    assert [t["token"] for t in first["top_logprobs"]] == [name["b"], name["c"]]
    assert first["token"] == name["b"] and bytes(first["bytes"]) == b"b"


def test_offsets_count_characters(teller):
    got = teller.post(TEXT, {"prompt": "\n", "max_tokens": 200, "logprobs": 0})["choices"][0]
    tokens, offsets = got["logprobs"]["tokens"], got["logprobs"]["text_offset"]
    assert offsets[0] == 0 and offsets == sorted(offsets)
    for token, offset in zip(tokens, offsets):
        if "\ufffd" not in token:  # a part of a character stands where the character will
            assert got["text"][offset : offset + len(token)] == token
    assert any("\ufffd" in t for t in tokens)


def test_an_echoed_prompt_has_its_own(server):
    """a -> b (0.7) -> a (1) -> c (0.2), then the answer; nothing comes before the first token."""
    body = {"prompt": "abac", "max_tokens": 1, "logprobs": 2, "echo": True, "temperature": 0}
    choice = server.post(TEXT, body)["choices"][0]
    got = choice["logprobs"]
    assert choice["text"] == "abaca"
    assert got["tokens"] == ["a", "b", "a", "c", "a"]
    assert got["text_offset"] == [0, 1, 2, 3, 4]
    assert got["token_logprobs"][0] is None and got["top_logprobs"][0] is None
    wanted = [P["b"], 0, P["c"], 0]
    assert all(close(g, w) for g, w in zip(got["token_logprobs"][1:], wanted))
    assert close(got["top_logprobs"][3]["b"], P["b"]) and close(got["top_logprobs"][3]["c"], P["c"])
    alone = server.post(TEXT, body | {"max_tokens": 0})["choices"][0]
    assert alone["text"] == "abac"
    assert alone["logprobs"]["token_logprobs"] == got["token_logprobs"][:4]
    assert joined(server.stream(TEXT, body))[0] == "abaca"
