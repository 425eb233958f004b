"""Every row of the field table: right values are taken and change what they are for, wrong ones are
refused with the field's name."""

import json
import math

import pytest

from server import Server, joined

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
MESSAGES = [{"role": "user", "content": "hi"}]
INT = 2147483647
NUMBERS = [-(10**30), "1", "NaN", [], {}, True]

# field: (right values, wrong values) of both kinds of completion
BOTH = {
    "temperature": ([0, 0.5, 2, 2.0], [-0.1, 2.1, 1e308, 2**63, *NUMBERS]),
    "top_p": ([0.1, 1, 1.0], [0, -1, 1.5, 1e308, *NUMBERS]),
    "top_k": ([-1, 0, 1, 40, 5.0], [-2, 1.5, 2**63, *NUMBERS]),
    "min_p": ([0, 0.5, 1], [-0.1, 1.1, *NUMBERS]),
    "presence_penalty": ([-2, 0, 2], [-2.1, 2.1, 1e308, *NUMBERS]),
    "frequency_penalty": ([-2, 0, 2], [-2.1, 2.1, *NUMBERS]),
    "repetition_penalty": ([0.5, 1, 2], [0, -1, 1e308, *NUMBERS]),
    "repeat_penalty": ([1.1], [0, *NUMBERS]),
    "repeat_last_n": ([-1, 0, 64], [-2, INT + 1, *NUMBERS]),
    "seed": ([0, 1, -1, 2**62, -(2**62)], [1.5, 2**63, 1e300, *NUMBERS]),
    "n": ([1, 2], [0, -1, 129, 2**31, 1.5, *NUMBERS]),
    "max_tokens": ([1, 5, INT], [-1, INT + 1, 2**63, 1.5, *NUMBERS]),
    "min_tokens": ([0, 1], [-1, 2**31, *NUMBERS]),
    "priority": ([-5, 0, 5], [-(10**7), 10**7, 0.5, *NUMBERS]),
    "stop": (["x", ["x"], ["x", "yy"], []], ["", [""], ["x", ""], [1], 1, {}, "x" * 2000,
                                             ["x"] * 17, "a\0b"]),
    "stop_token_ids": ([[], [1], [1, 2]], [1, "1", ["1"], [-1], [1.5], [2**31], {}]),
    "include_stop_str_in_output": ([True, False], [1, "true", []]),
    "ignore_eos": ([True, False], [1, "yes"]),
    "skip_special_tokens": ([True, False], [0, "no"]),
    "logit_bias": ([{}, {"5": 1}, {"5": -100, "6": 100.0}], [[], "x", {"x": 1}, {"-1": 1},
                   {"5": 101}, {"5": "1"}, {"5": None}, {"99999999999": 1}, {"": 1}, {"64": 1}]),
    "stream": ([False], [1, "true", []]),
    "response_format": ([{"type": "text"}], [{"type": "json_object"}, {"type": "json_schema"}, {},
                                              "text", {"type": 1}]),
    "cache_salt": (["x"], ["", 1, [], "a\0b"]),
    "cache_prompt": ([True, False], [1, "x"]),
    "user": (["x", 1, {}], []),
    "metadata": ([{"a": "b"}], []),
    "safety_identifier": (["x"], []),
    "service_tier": (["auto"], []),
    "prompt_cache_key": (["x"], []),
    "prompt_cache_retention": (["24h"], []),
    "request_id": (["x"], []),
    "session_id": (["x"], []),
    "keep_alive": (["5m"], []),
    "store": ([False], [True]),
    "reasoning_effort": ([], ["high"]),
    "model": (["table64"], [1, [], {}]),
    "nonsense": ([], [1, "x"]),
}  # fmt: skip
OF_CHAT = {
    "max_completion_tokens": ([1, 5], [0, -1, 1.5, *NUMBERS]),
    "logprobs": ([True, False], [1, "true", 3]),
    "chat_template_kwargs": (
        [{}, {"x": 1}],
        [[], "x", {"messages": []}, {"tools": 1}, {"bos_token": "x"}],
    ),
    "add_generation_prompt": ([True, False], [1, "x"]),
    "continue_final_message": ([False, True], [1, "x"]),
    "parallel_tool_calls": ([True, False], []),
    "tools": ([[]], [[{"type": "function"}], {}, "x"]),
    "tool_choice": (["none"], ["auto", "required", {}]),
    "functions": ([[]], [[{}]]),
    "function_call": (["none"], ["auto"]),
    "verbosity": (["medium"], ["low"]),
    "modalities": ([["text"]], [["text", "audio"]]),
    "audio": ([], [{}]),
    "prediction": ([], [{}]),
    "web_search_options": ([], [{}]),
    "messages": ([MESSAGES], [[], "hi", {}, 1, [1]]),
    "prompt": ([], ["x"]),
    "echo": ([], [True]),
}
OF_TEXT = {
    "prompt": (["a", ["a", "b"], [3, 4], [[3], [4, 5]], ["a", [3]]],
               ["", [], [""], 1, {}, [[]], [1.5], [-1], [[1], 2], ["a", 1], [True], [64], [[64]]]),
    "logprobs": ([0, 5], [-1, 6, True, "1"]),
    "echo": ([True, False], [1, "x"]),
    "suffix": ([""], ["x"]),
    "best_of": ([1], [2]),
    "messages": ([], [MESSAGES]),
    "top_logprobs": ([], [1]),
    "max_completion_tokens": ([], [1]),
}  # fmt: skip


def rows(table):
    for name, (right, wrong) in table.items():
        yield from ((name, v, True) for v in [None, *right])
        yield from ((name, v, False) for v in wrong)


def body_of(path, name, value):
    body = {"max_tokens": 2}
    body |= {"messages": MESSAGES} if path == CHAT else {"prompt": "a"}
    if name == "max_completion_tokens":
        del body["max_tokens"]
    return body | {name: value}


def check(server, connection, path, name, value, is_right):
    if name in ("messages", "prompt") and value is None:
        is_right = name not in ("messages" if path == CHAT else "prompt")
    status, _, text = server.request(
        "POST", path, body_of(path, name, value), connection=connection
    )
    where = (path, name, value, status, text)
    if is_right:
        assert status == 200, where
        return
    error = json.loads(text)["error"]
    assert 400 <= status < 500, where
    assert error["message"] and error["type"] == "invalid_request_error", where
    assert (error["param"] or "").split("[")[0].split(".")[0] == name, where


@pytest.mark.parametrize("path, fields", [(CHAT, BOTH | OF_CHAT), (TEXT, BOTH | OF_TEXT)])
def test_each_row(server, path, fields):
    connection = server.connect()
    for row in rows(fields):
        check(server, connection, path, *row)
    connection.close()


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e999", "01", "+1", "0x1"])
def test_what_is_no_json_number_is_refused_where_it_stands(server, text):
    body = f'{{"prompt": "a", "temperature": {text}}}'.encode()
    error = server.refusal(TEXT, body)
    assert error["param"] == "temperature" and "byte" in error["message"]


def test_fields_that_need_others(server):
    def refused(path, name, **fields):
        base = {"messages": MESSAGES} if path == CHAT else {"prompt": "a"}
        assert server.refusal(path, base | fields)["param"] == name

    refused(CHAT, "top_logprobs", top_logprobs=2)
    refused(CHAT, "top_logprobs", top_logprobs=2, logprobs=False)
    refused(CHAT, "top_logprobs", top_logprobs=21, logprobs=True)
    refused(CHAT, "stream_options", stream_options={"include_usage": True})
    refused(CHAT, "stream_options.include_usage", stream=True, stream_options={"include_usage": 1})
    refused(CHAT, "stream_options.nonsense", stream=True, stream_options={"nonsense": 1})
    refused(CHAT, "continue_final_message", continue_final_message=True, add_generation_prompt=True)
    refused(TEXT, "max_tokens", max_tokens=0)
    refused(TEXT, "n", prompt=["a"] * 100, n=3)
    refused(TEXT, "prompt", prompt=["a"] * 257)


def test_unknown_fields_can_be_ignored(table):
    with Server(table, "--ignore-unknown-fields") as s:
        assert s.chat(nonsense=1)["choices"][0]["message"]["content"] == "ok."
        assert s.refusal(CHAT, {"messages": MESSAGES, "tools": [1]})["param"] == "tools"


# ---- what each does: after "a" come b, c, d with 0.7, 0.2 and 0.1, after each of them "a" again
# ----

A, B, C, D = 3, 4, 5, 6


def letters(server, n=400, **fields):
    """What follows each "a" of a long answer."""
    fields = {"temperature": 1, "seed": 1, "max_tokens": 2 * n} | fields
    text = server.post(TEXT, {"prompt": "a", **fields})["choices"][0]["text"]
    return text[0::2]


def shares(text):
    return [text.count(x) / len(text) for x in "bcd"]


def near(got, wanted, n=400):
    """Within 4.5 standard deviations of a share counted in n draws; the seed makes it the same for
    ever."""
    return all(
        abs(g - w) <= 4.5 * math.sqrt(max(w * (1 - w), 1e-9) / n) for g, w in zip(got, wanted)
    )


def test_sampling_fields_have_their_effect(server):
    p = [0.7, 0.2, 0.1]
    assert near(shares(letters(server)), p)
    assert letters(server, 20, temperature=0) == "b" * 20
    assert letters(server, 20, top_k=1) == "b" * 20
    assert near(shares(letters(server, top_k=2)), [7 / 9, 2 / 9, 0])
    assert near(shares(letters(server, top_p=0.8)), [7 / 9, 2 / 9, 0])
    assert near(shares(letters(server, min_p=0.25)), [7 / 9, 2 / 9, 0])
    warm = [x ** (1 / 2) for x in p]
    assert near(shares(letters(server, temperature=2)), [x / sum(warm) for x in warm])
    assert near(shares(letters(server, logit_bias={str(B): -100})), [0, 2 / 3, 1 / 3])
    forced = letters(server, 20, logit_bias={str(D): 100, str(A): 100}, max_tokens=20)
    assert set(forced) <= set("da")
    assert letters(server, 30, seed=7) == letters(server, 30, seed=7)
    assert letters(server, 30, seed=7) != letters(server, 30, seed=8)


def test_penalties_have_their_effect(server):
    """The logits of b, c and d are ln 0.7, ln 0.2, ln 0.1: greedy answers show which is highest."""

    def greedy(**fields):
        return letters(server, 6, temperature=0, **fields)

    # b falls by 2 after its first use: ln 0.7 - 2 = -2.36 is less than c's -1.61, and then than d's
    # -2.30. After each was used once all are 2 lower: b again.
    assert greedy(presence_penalty=2) == "bcdbbb"
    # b: -0.36 -1.36 -2.36 -3.36 ...; c: -1.61 -2.61 ...; d: -2.30 ...
    assert greedy(frequency_penalty=1) == "bbcdbc"
    # Negative logits are multiplied: b's -0.36 becomes -1.78 at 5, less than c's -1.61, which
    # becomes -8.
    assert greedy(repetition_penalty=5) == "bcbbbb"


def test_lengths_and_ends_have_their_effect(server):
    def ask(**fields):
        return server.post(TEXT, {"prompt": "\n", "temperature": 0, **fields})["choices"][0]

    assert (ask()["text"], ask()["finish_reason"]) == ("ok.", "stop")
    assert (ask(max_tokens=2)["text"], ask(max_tokens=2)["finish_reason"]) == ("ok", "length")
    on = ask(ignore_eos=True, max_tokens=6)
    assert on["text"].startswith("ok.") and on["finish_reason"] == "length"
    assert ask(stop="k")["text"] == "o"
    assert ask(stop=["x", "k."])["text"] == "o"
    assert ask(stop="k", include_stop_str_in_output=True)["text"] == "ok"
    k = server.post("/tokenize", {"prompt": "k"})["tokens"]
    assert ask(stop_token_ids=k)["text"] == "o" and ask(stop_token_ids=k)["finish_reason"] == "stop"
    special = ask(ignore_eos=True, max_tokens=5, skip_special_tokens=False)
    assert "<|im_end|>" in special["text"] and "<|im_end|>" not in on["text"]


def test_chat_length_wins_by_its_newer_name(server):
    answer = server.chat(max_tokens=1, max_completion_tokens=2)
    assert answer["choices"][0]["message"]["content"] == "ok"


def test_template_fields_have_their_effect(server):
    def ask(**fields):
        body = {"messages": [{"role": "assistant", "content": "a"}], "max_tokens": 3, **fields}
        return server.post(CHAT, body)

    open_ended = ask(temperature=0)
    continued = ask(temperature=0, continue_final_message=True)
    assert open_ended["choices"][0]["message"]["content"] == "ok."
    assert continued["choices"][0]["message"]["content"] == "bab"
    assert continued["usage"]["prompt_tokens"] < open_ended["usage"]["prompt_tokens"]
    bare = ask(temperature=0, add_generation_prompt=False)
    assert bare["usage"]["prompt_tokens"] < open_ended["usage"]["prompt_tokens"]


def test_completions_take_batches_and_echo(server):
    body = {"prompt": ["a", "\n"], "n": 2, "temperature": 0, "max_tokens": 3, "echo": True}
    whole = server.post(TEXT, body)
    assert [c["text"] for c in whole["choices"]] == ["abab", "abab", "\nok.", "\nok."]
    assert [c["index"] for c in whole["choices"]] == [0, 1, 2, 3]
    assert whole["usage"]["prompt_tokens"] == 2 and whole["usage"]["completion_tokens"] == 12
    events = server.stream(TEXT, body)
    assert [joined(events, i)[0] for i in range(4)] == [c["text"] for c in whole["choices"]]
    ids = server.post(TEXT, body | {"prompt": [[A], [40]]})
    assert [c["text"] for c in ids["choices"]] == [c["text"] for c in whole["choices"]]
    alone = server.post(TEXT, {"prompt": "a", "echo": True, "max_tokens": 0})
    assert alone["choices"][0]["text"] == "a" and alone["usage"]["completion_tokens"] == 0
