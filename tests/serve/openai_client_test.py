"""The official Python client cannot tell the server from the original."""

import openai
import pytest

from conftest import STORY
from server import Server

HELLO = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def client(teller):
    return openai.OpenAI(base_url=teller.url + "/v1", api_key="none", max_retries=0)


@pytest.fixture(scope="module")
def chooser(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)


def test_chat(client):
    answer = client.chat.completions.create(model="story", messages=HELLO)
    assert answer.object == "chat.completion" and answer.id.startswith("chatcmpl-")
    assert answer.model == "story" and answer.system_fingerprint.startswith("reprise-")
    (choice,) = answer.choices
    assert choice.index == 0 and choice.finish_reason == "stop" and choice.logprobs is None
    assert choice.message.role == "assistant" and choice.message.content == STORY
    assert choice.message.refusal is None and choice.message.tool_calls is None
    usage = answer.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert usage.prompt_tokens_details.cached_tokens <= usage.prompt_tokens


def test_stream(client):
    with client.chat.completions.create(
        model="story", messages=HELLO, stream=True, stream_options={"include_usage": True}
    ) as stream:
        chunks = list(stream)
    first, *middle, last = chunks
    assert first.choices[0].delta.role == "assistant" and first.choices[0].delta.content == ""
    assert all(c.object == "chat.completion.chunk" and c.id == first.id for c in chunks)
    assert "".join(c.choices[0].delta.content or "" for c in middle) == STORY
    assert [c.choices[0].finish_reason for c in middle] == [None] * (len(middle) - 1) + ["stop"]
    assert all(c.usage is None for c in chunks[:-1])
    whole = client.chat.completions.create(model="story", messages=HELLO)
    assert last.choices == [] and last.usage.completion_tokens == whole.usage.completion_tokens
    assert last.usage.prompt_tokens == whole.usage.prompt_tokens


def test_several_choices_have_seeds_of_their_own(chooser):
    def ask(**more):
        return chooser.completions.create(
            model="table64", prompt="a", max_tokens=40, seed=5, **more
        )

    three = ask(n=3)
    assert [c.index for c in three.choices] == [0, 1, 2]
    assert len({c.text for c in three.choices}) == 3
    assert three.choices[0].text == ask().choices[0].text
    assert three.usage.completion_tokens == 120 and three.usage.prompt_tokens == 1
    parts = ["", "", ""]
    for chunk in ask(n=3, stream=True):
        for c in chunk.choices:
            parts[c.index] += c.text
    assert parts == [c.text for c in three.choices]


def test_logprobs(chooser):
    answer = chooser.chat.completions.create(
        model="table64", messages=HELLO, logprobs=True, top_logprobs=2, max_tokens=2
    )
    entries = answer.choices[0].logprobs.content
    assert [e.token for e in entries] == ["o", "k"]
    assert [bytes(e.bytes) for e in entries] == [b"o", b"k"]
    assert all(len(e.top_logprobs) == 2 and e.top_logprobs[0].token == e.token for e in entries)


def test_models(client):
    (model,) = client.models.list().data
    assert model.id == "story" and model.object == "model" and model.owned_by == "reprise"
    assert client.models.retrieve("story").id == "story"
    with pytest.raises(openai.NotFoundError) as error:
        client.models.retrieve("gpt-4")
    assert error.value.code == "model_not_found"


@pytest.mark.parametrize(
    "fields, kind, param",
    [
        ({"temperature": 3}, openai.BadRequestError, "temperature"),
        ({"model": "gpt-4"}, openai.NotFoundError, "model"),
        ({"tools": [{"type": "function"}]}, openai.BadRequestError, "tools"),
        ({"messages": []}, openai.BadRequestError, "messages"),
    ],
)
def test_errors(client, fields, kind, param):
    with pytest.raises(kind) as error:
        client.chat.completions.create(**{"model": "story", "messages": HELLO, **fields})
    assert error.value.param == param and error.value.body["message"]


def test_key(table):
    with Server(table, "--api-key", "sesame", "--api-key", "other") as s:
        for key in ("sesame", "other"):
            good = openai.OpenAI(base_url=s.url + "/v1", api_key=key, max_retries=0)
            assert good.models.list().data[0].id == "table64"
        bad = openai.OpenAI(base_url=s.url + "/v1", api_key="sesam", max_retries=0)
        with pytest.raises(openai.AuthenticationError) as error:
            bad.models.list()
        assert error.value.code == "invalid_api_key"
