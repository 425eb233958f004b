"""Figures: /metrics counts what was asked for, in names that dashboards know."""

import re

from server import Raw, Server

TEXT = "/v1/completions"


def test_counters(table):
    with Server(table, "-np", 2, "--capture", "on") as s:
        before = s.metrics()
        s.post(TEXT, {"prompt": "a", "max_tokens": 10, "ignore_eos": True})
        s.post(TEXT, {"prompt": "\n", "max_tokens": 10, "n": 2})
        s.refusal(TEXT, {"prompt": "a", "temperature": 9})
        m = s.metrics()

        def rise(name):
            return m[name] - before.get(name, 0)

        assert rise("vllm:prompt_tokens_total") in (2, 3)  # n answers may share the prompt's step
        assert rise("vllm:generation_tokens_total") == 10 + 2 * 4
        assert rise('vllm:request_success_total{finished_reason="length"}') == 1
        assert rise('vllm:request_success_total{finished_reason="stop"}') == 2
        assert rise("vllm:time_to_first_token_seconds_count") == 3
        assert rise("vllm:inter_token_latency_seconds_count") == 9 + 2 * 2
        assert rise("vllm:e2e_request_latency_seconds_count") == 3
        assert (
            rise('reprise_http_responses_total{status="2xx"}') == 3
        )  # two answers, one page of these
        assert rise('reprise_http_responses_total{status="4xx"}') == 1
        assert m["reprise_captures_total"] >= 1 and m["reprise_replays_total"] >= 1
        assert m["reprise_graph_bytes"] > 0
        assert any(k.startswith("reprise_eager_steps_total{reason=") for k in m)
        assert m["vllm:num_requests_running"] == m["vllm:num_requests_waiting"] == 0
        assert 0 <= m["vllm:kv_cache_usage_perc"] <= 1


def test_format(server):
    """Each sample has a type, a histogram's buckets rise to its count."""
    server.chat()
    text = server.get("/metrics")
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M))
    assert len(types) == text.count("# TYPE") == text.count("# HELP")
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        assert re.fullmatch(r'[a-z0-9:_]+(\{[a-z_]+="[^"]*"(,[a-z_]+="[^"]*")*\})? \S+', line), line
        name = line.split("{")[0]
        base = re.sub("_(bucket|sum|count)$", "", name)
        assert name in types or types[base] == "histogram", line
    counts = [
        int(n)
        for n in re.findall(r"^vllm:time_to_first_token_seconds_bucket\{.*\} (\d+)$", text, re.M)
    ]
    assert counts == sorted(counts) and counts[-1] > 0


def test_queue(endless):
    with Server(endless, "-np", 1, "-c", 1 << 20, "--max-queue", 2) as s:
        ask = {"prompt": "a", "max_tokens": 1 << 20, "temperature": 0, "stream": True}
        clients = [Raw(s) for _ in range(3)]
        for c, sign in zip(clients, [b"data: ", b"\r\n\r\n", b"\r\n\r\n"]):  # running, accepted
            c.post(TEXT, ask)
            c.take(sign)
        m = s.metrics()
        assert m["vllm:num_requests_running"] == 1 and m["vllm:num_requests_waiting"] == 2
        status, headers, body = s.request("POST", TEXT, ask)
        assert status == 429 and int(headers["retry-after"]) > 0 and b"rate_limit_error" in body
        assert s.metrics()["reprise_queue_refusals_total"] == 1
        for c in clients:
            c.reset()


def test_deadlines(endless):
    with Server(endless, "-np", 1, "-c", 1 << 16, "--request-timeout", 0.3) as s:
        ask = {"prompt": "a", "max_tokens": 60_000, "temperature": 0}
        with Raw(s) as streaming:
            streaming.post(TEXT, ask | {"stream": True})
            got = streaming.take_rest_of_stream()
            assert b'"error"' in got
        assert s.request("POST", TEXT, ask)[0] == 504
