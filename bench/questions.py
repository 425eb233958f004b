"""Requests whose answers can be compared to the bit: the same question, asked alone and in company,
as a stream and whole, must be answered alike. For `same_bits.py` and `soak.py`."""

import contextlib
import json
import random
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / f) for f in ("tools", "tests", "tests/cli", "tests/serve")]
from cli import environment  # noqa: E402, F401
import server as server_module  # noqa: E402
from server import Server, parse_events  # noqa: E402, F401

server_module.PATIENCE = 3600  # seconds: nothing here is about time

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
MODEL = Path.home() / ".cache" / "reprise" / "models" / "smollm2.gguf"
SUBJECTS = """the tide, bread, a lighthouse, prime numbers, the moon, a violin, rain, blue,
    a long road, winter, bees, an old map, the number seven, glass, a letter, salt""".replace(
    "\n", " "
).split(
    ", "
)


def random_ids(r, n, n_vocab):
    """Ids that are no control tokens in the vocabularies at hand, which begin with those."""
    return [
        r.randrange(64, n_vocab) if n_vocab > 128 else r.randrange(1, n_vocab) for _ in range(n)
    ]


def simple(n, n_new, n_vocab, seed=1):
    """n prompts, each greedy and seeded, in lengths around the ends of blocks; every other one
    begins like its neighbours."""
    r = random.Random(seed)
    lengths = [1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 127, 128, 129, 200]
    shared = random_ids(r, max(lengths), n_vocab)
    made = []
    for i in range(n):
        size = lengths[i // 2 % len(lengths)]
        ids = shared[:size] if i % 2 == 0 else random_ids(r, size, n_vocab)
        common = {"prompt": ids, "max_tokens": n_new, "ignore_eos": True, "logprobs": 3,
                  "return_tokens_as_token_ids": True}  # fmt: skip
        made += [
            (TEXT, common | {"temperature": 0}),
            (TEXT, common | {"temperature": 1, "seed": i}),
        ]
    return made


def mixed(n, n_vocab, seed=1):
    """n requests of all shapes: chats and completions, greedy and seeded, penalties, stops,
    choices, long prompts of which many begin alike."""
    r = random.Random(seed)
    shared = random_ids(r, 600, n_vocab)
    made = []
    for i in range(n):
        body = {
            "max_tokens": r.choice([1, 8, 16, 32, 48]),
            "temperature": r.choice([0, 0.7, 1]),
            "seed": i,
        }
        if i % 2:
            about = f"Tell me about {r.choice(SUBJECTS)}, please. {i}"
            body |= {"messages": [{"role": "user", "content": about}]}
            body |= r.choice([{}, {"logprobs": True, "top_logprobs": 2}])
        else:
            common = r.randrange(len(shared)) if r.random() < 0.5 else 0
            body |= {"prompt": shared[:common] + random_ids(r, r.choice([1, 15, 40, 300]), n_vocab)}
            body |= r.choice([{}, {"logprobs": 2}, {"echo": True}])
        body |= r.choice([{}, {}, {"n": 2}, {"n": 3}, {"top_p": 0.9}, {"top_k": 5}, {"min_p": 0.1},
                          {"stop": [" the"]}, {"repetition_penalty": 1.3}, {"presence_penalty": 1},
                          {"ignore_eos": True}, {"logit_bias": {"70": -100}},
                          {"priority": r.randrange(-2, 3)}])  # fmt: skip
        made.append((CHAT if i % 2 else TEXT, body))
    return made


def _add(into, more):
    """Lists of log probabilities, part by part, as the whole has them."""
    for key, value in (more or {}).items():
        into[key] = into.get(key, []) + value if isinstance(value, list) else value


def _choice(parts):
    """What came for one choice: its text, its end, its log probabilities."""
    text, finish, logprobs = "", None, {}
    for c in parts:
        said = c.get("message") or c.get("delta") or c
        text += said.get("content", said.get("text")) or ""
        finish = c["finish_reason"] or finish
        _add(logprobs, c["logprobs"])
    return text, finish, logprobs


def answer_of(objects):
    """One whole answer or the events of a stream, as (choices, completion tokens)."""
    parts, tokens = {}, None
    for o in objects:
        if "error" in o:
            return o["error"]
        tokens = o["usage"]["completion_tokens"] if o.get("usage") else tokens
        for c in o["choices"]:
            parts.setdefault(c["index"], []).append(c)
    return [_choice(parts[i]) for i in sorted(parts)], tokens


def ask(server, question, stream):
    """(status, answer); the answer is only there for status 200."""
    path, body = question
    if stream:
        body = body | {"stream": True, "stream_options": {"include_usage": True}}
    with contextlib.closing(server.connect()) as connection:
        status, _, raw = server.request("POST", path, body, connection=connection)
    if status != 200:
        return status, raw
    return 200, answer_of(parse_events(raw) if stream else [json.loads(raw)])
