"""Random bodies: each is answered or refused, and a known request keeps giving its known tokens.
REPRISE_LONG=1 sends 50,000 instead of 2,000."""

import json
import os
import random

from server import Server

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
N = 50_000 if os.environ.get("REPRISE_LONG") else 2_000
PATHS = [CHAT, TEXT, TEXT, CHAT, "/tokenize", "/detokenize", "/apply-template"]
FIELDS = (
    """model messages prompt content tokens max_tokens max_completion_tokens stop stop_token_ids
    temperature top_p top_k min_p presence_penalty frequency_penalty repetition_penalty logit_bias seed n
    stream stream_options logprobs top_logprobs echo response_format priority cache_salt min_tokens
    ignore_eos chat_template_kwargs add_generation_prompt continue_final_message tools user suffix
    skip_special_tokens include_stop_str_in_output nonsense""".split()
)
VALUES = [None, True, False, -1, 0, 1, 2, 2**31, 2**63, -(2**63), 10**30, 1e308, 0.5, -0.0, "", "a", "NaN",
          "\n", "\0", "\u4f60\U0001f999", "x" * 300, [], {}, [1], [3, 4], ["a"], [[3]], [None], {"5": 1},
          {"type": "text"}, {"include_usage": True}, [{"role": "user", "content": "hi"}],
          [{"role": "user", "content": None}], [{"role": "system"}], [{"content": "x"}]]  # fmt: skip


def random_value(r, depth=0):
    if depth < 3 and r.random() < 0.1:
        return [random_value(r, depth + 1) for _ in range(r.randrange(4))]
    if depth < 3 and r.random() < 0.1:
        keys = ["role", "content", "type", "text", "5", "x"]
        return {r.choice(keys): random_value(r, depth + 1) for _ in range(3)}
    return r.choice(VALUES)


def random_body(r):
    body = {}
    if r.random() < 0.9:
        body = (
            {"messages": [{"role": "user", "content": "hi"}]}
            if r.random() < 0.5
            else {"prompt": "a"}
        )
        body["max_tokens"] = 3
    for _ in range(r.choice([0, 0, 1, 1, 2, 4])):
        body[r.choice(FIELDS)] = random_value(r)
    raw = json.dumps(body, ensure_ascii=r.random() < 0.5).encode("utf-8", "surrogatepass")
    if r.random() < 0.2:  # damage
        raw = bytearray(raw)
        for _ in range(r.randrange(1, 4)):
            at = r.randrange(len(raw) + 1)
            raw[at : at + r.randrange(3)] = r.randbytes(r.randrange(3))
        raw = bytes(raw)
    return raw


def test_random_bodies(table):
    r = random.Random(20)
    with Server(table, "-np", 4, "-c", 256, "--no-log-requests") as s:
        connection = s.connect()
        known = s.post(TEXT, {"prompt": "a", "max_tokens": 20, "seed": 4})["choices"]
        m = s.metrics()
        free = m['reprise_kv_blocks{state="free"}'] + m['reprise_kv_blocks{state="cached"}']
        counts = {}
        for i in range(N):
            raw = random_body(r)
            path = r.choice(PATHS) if r.random() < 0.3 else CHAT if b"messages" in raw else TEXT
            status, _, text = s.request("POST", path, raw, connection=connection)
            counts[status] = counts.get(status, 0) + 1
            assert status == 200 or 400 <= status < 500, (path, raw, status, text)
            if status != 200:
                error = json.loads(text)["error"]
                assert error["message"] and error["type"], (path, raw, text)
            if i % 100 == 99:
                again = s.post(
                    TEXT, {"prompt": "a", "max_tokens": 20, "seed": 4}, connection=connection
                )
                assert again["choices"] == known, (path, raw)
        connection.close()
        assert min(counts.get(200, 0), counts.get(400, 0)) > N / 20, counts
        s.wait_until_idle(free)
