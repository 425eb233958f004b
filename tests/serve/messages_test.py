"""Message shapes: what clients send as content, roles and names, and where a refusal points."""

import pytest

CHAT, TEMPLATE = "/v1/chat/completions", "/apply-template"


def rendered(server, *messages):
    return server.post(TEMPLATE, {"messages": list(messages)})["prompt"]


def turn(role, content):
    return f"<|im_start|>{role}\n{content}<|im_end|>\n"


OPEN = "<|im_start|>assistant\n"


def user(content):
    return {"role": "user", "content": content}


def text(*parts):
    return [{"type": "text", "text": p} for p in parts]


@pytest.mark.parametrize(
    "message, wanted",
    [
        (user("hi"), turn("user", "hi")),
        (user(""), turn("user", "")),
        (user(text("one, ", "two")), turn("user", "one, two")),
        (user([]), turn("user", "")),
        (user(None), turn("user", "")),
        ({"role": "assistant", "content": None}, turn("assistant", "")),
        ({"role": "assistant"}, turn("assistant", "")),
        (
            {"role": "assistant", "content": None, "tool_calls": [], "refusal": None},
            turn("assistant", ""),
        ),
        (
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
            turn("assistant", "no"),
        ),
        ({"role": "system", "content": "be brief"}, turn("system", "be brief")),
        ({"role": "developer", "content": "be brief"}, turn("system", "be brief")),
        ({"role": "developer", "content": text("be brief")}, turn("system", "be brief")),
        (user("hi") | {"name": "Ada"}, turn("user", "hi")),
        (user("hi") | {"name": None}, turn("user", "hi")),
        (user("\u4f60\U0001f999"), turn("user", "\u4f60\U0001f999")),
    ],
)
def test_shapes(server, message, wanted):
    assert rendered(server, message) == wanted + OPEN
    answer = server.post(CHAT, {"messages": [message], "max_tokens": 1})
    assert answer["choices"][0]["message"]["content"] == "o"


def test_a_conversation(server):
    messages = [user("a"), {"role": "assistant", "content": "b"}, user("c")]
    wanted = turn("user", "a") + turn("assistant", "b") + turn("user", "c") + OPEN
    assert rendered(server, *messages) == wanted


@pytest.mark.parametrize(
    "message, param",
    [
        ({}, ".role"),
        ({"role": 1, "content": "x"}, ".role"),
        ({"role": None, "content": "x"}, ".role"),
        ({"role": "banana", "content": "x"}, ".role"),
        ({"role": "tool", "content": "x", "tool_call_id": "1"}, ".role"),
        ({"role": "function", "content": "x", "name": "f"}, ".role"),
        ({"role": "user"}, ".content"),
        ({"role": "system"}, ".content"),
        (user(1), ".content"),
        (user(True), ".content"),
        (user({}), ".content"),
        (user({"type": "text", "text": "x"}), ".content"),
        (user(["x"]), ".content[0].type"),
        (user([{"type": "text"}]), ".content[0].text"),
        (user([{"type": "text", "text": None}]), ".content[0].text"),
        (user(text("x") + [{"type": "image_url", "image_url": {"url": "x"}}]), ".content[1].type"),
        (user([{"type": "input_audio", "input_audio": {}}]), ".content[0].type"),
        (user("x") | {"name": 1}, ".name"),
        ({"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}, ".tool_calls"),
        ({"role": "assistant", "content": "x", "function_call": {"name": "f"}}, ".function_call"),
        ("hi", ""),
        (None, ""),
    ],
)
def test_refusals_name_the_place(server, message, param):
    for path in (CHAT, TEMPLATE, "/tokenize"):
        error = server.refusal(path, {"messages": [user("fine"), message]})
        assert error["param"] == "messages[1]" + param
        assert error["message"].startswith("messages[1]" + param)


def test_what_a_message_says_is_no_control_token(server):
    """Text that spells a control token is a token per letter, not the one it spells."""
    plain = server.post(CHAT, {"messages": [user("x")], "max_tokens": 1})["usage"]
    spelled = server.post(CHAT, {"messages": [user("x<|im_end|>")], "max_tokens": 1})["usage"]
    assert spelled["prompt_tokens"] == plain["prompt_tokens"] + len("<|im_end|>")


def test_a_zero_byte_is_text(server):
    """It reaches the model; where a prompt is shown as text it is refused, not cut there."""
    zero = {"messages": [user("a\0b")]}
    assert server.post(CHAT, zero | {"max_tokens": 1})["usage"]["prompt_tokens"] > 0
    assert server.refusal(TEMPLATE, zero)["param"] == "messages[0].content"


def test_template_variables(server):
    body = {"messages": [user("hi")], "chat_template_kwargs": {"unused": [1, "x", None]}}
    assert server.post(TEMPLATE, body)["prompt"] == turn("user", "hi") + OPEN
    body |= {"add_generation_prompt": False}
    assert server.post(TEMPLATE, body)["prompt"] == turn("user", "hi")


def test_context_is_never_cut_silently(server):
    """The context is 4,096: a prompt that leaves room for one token gets one, a longer one is
    refused
    with both numbers."""
    text_path = "/v1/completions"
    last = server.post(text_path, {"prompt": [3] * 4095, "max_tokens": 9})
    assert last["usage"]["completion_tokens"] == 1
    assert last["choices"][0]["finish_reason"] == "length"
    for n in (4096, 4097, 40960):
        error = server.refusal(text_path, {"prompt": [3] * n})
        assert error["code"] == "context_length_exceeded" and error["param"] == "prompt"
        assert str(n) in error["message"] and "4096" in error["message"]
    error = server.refusal(CHAT, {"messages": [user("a" * 5000)]})
    assert error["code"] == "context_length_exceeded" and error["param"] == "messages"
