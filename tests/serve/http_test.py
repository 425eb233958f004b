"""HTTP: routes, methods, limits, malformed requests, keys, CORS, TLS, request ids."""

import datetime
import http.client
import ipaddress
import json
import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from server import Raw, Server

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
GETS = ["/", "/health", "/version", "/props", "/metrics", "/v1/models", "/v1/models/table64"]
POSTS = [CHAT, TEXT, "/tokenize", "/detokenize", "/apply-template"]
OPEN = ["/", "/health"]


def test_routes_and_methods(server):
    for path in GETS:
        assert server.request("GET", path)[0] == 200
        head = server.request("HEAD", path)
        assert head[0] == 200 and head[2] == b""
    for path in GETS + POSTS:
        right = "GET, HEAD" if path in GETS else "POST"
        for method in ("GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
            if method in right:
                continue
            status, headers, body = server.request(method, path, b"{}")
            assert (status, headers["allow"]) == (405, right), (method, path)
            assert json.loads(body)["error"]["code"] == "method_not_allowed"
    for path in ("/nothing", "/v1", "/v1/", "/v1/chat", "//v1/models", "/V1/models", "/health/",
                 "/v1/models/../models", "/" + "x" * 2000):  # fmt: skip
        assert server.request("GET", path)[0] == 404, path
    assert server.request("GET", "/v1/models?x=1")[0] == 200
    hint = server.refusal("/chat/completions", {}, 404)["message"]
    assert hint == "there is nothing at POST /chat/completions; there is /v1/chat/completions"
    assert server.refusal("/v1/embeddings", {}, 404)["message"].endswith("POST /v1/embeddings")


def test_texts(server):
    tokens = server.post("/tokenize", {"prompt": "abc", "return_token_strs": True})
    assert tokens == {"count": 3, "max_model_len": 4096, "tokens": [3, 4, 5],
                      "token_strs": ["a", "b", "c"]}  # fmt: skip
    assert server.post("/tokenize", {"content": "<|im_end|>"})["tokens"] == [2]
    plain = server.post("/tokenize", {"content": "<|im_end|>", "parse_special": False})
    assert plain["count"] == 10
    assert server.post("/tokenize", {"prompt": ""})["tokens"] == []
    back = server.post("/detokenize", {"tokens": [3, 4, 5, 2]})
    assert back["prompt"] == back["content"] == "abc<|im_end|>"
    assert server.post("/detokenize", {"tokens": []})["prompt"] == ""
    messages = [{"role": "user", "content": "hi"}]
    shown = server.post("/apply-template", {"messages": messages})["prompt"]
    ids = server.post("/tokenize", {"messages": messages})["tokens"]
    assert server.post("/detokenize", {"tokens": ids})["prompt"] == shown
    assert server.refusal("/detokenize", {"tokens": [64]})["param"] == "tokens[0]"
    assert server.refusal("/detokenize", {})["param"] == "tokens"
    assert server.refusal("/tokenize", {})["param"] == "prompt"


def test_props_and_version(server):
    props = json.loads(server.get("/props"))
    assert props["total_slots"] == 4 and props["n_ctx"] == 4096 and props["n_vocab"] == 64
    assert props["has_chat_template"] is True
    assert json.loads(server.get("/version"))["version"] in props["build_info"]


# ---- malformed requests ----


@pytest.mark.parametrize(
    "body, part",
    [
        (b"", "empty"),
        (b"{", "byte"),
        (b'{"prompt": "a"', "byte"),
        (b'{"prompt": "a"} x', "byte"),
        (b"[]", "object"),
        (b"1", "byte"),
        (b"null", "byte"),
        (b"\xff\xfe", "byte"),
        (b'{"prompt": "\xff"}', "decode byte"),
        (b'{"prompt": "\xed\xa0\x80"}', "decode byte"),
        (b'{"prompt": "\\ud800"}', "byte"),
        (b'{"prompt": "a\nb"}', "byte"),
        (b"{'prompt': 'a'}", "byte"),
        (b"[" * 100, "deeper"),
        (b'{"x":' * 60_000, "deeper"),
        (b'{"prompt": "a", "metadata": ' + b"[" * 70 + b"]" * 70 + b"}", "deeper"),
    ],
)
def test_bodies_that_are_no_request(server, body, part):
    error = server.refusal(TEXT, body)
    assert part in error["message"] and error["type"] == "invalid_request_error"


def test_body_and_header_limits(table):
    with Server(table, "--max-body", 2048, "--max-header", 2048) as s:
        ok = {"prompt": "a", "max_tokens": 1, "user": "x" * 1000}
        s.post(TEXT, ok)
        big = json.dumps(ok | {"user": "x" * 4000}).encode()
        assert s.refusal(TEXT, big, 413)["code"] == "body_too_large"
        chunks = iter([big[:3000], big[3000:]])
        c = s.connect()
        c.request("POST", TEXT, chunks, encode_chunked=True)
        assert c.getresponse().status == 413
        c.close()
        status, _, body = s.request("GET", "/health", headers={"x-long": "y" * 3000})
        assert status == 431 and json.loads(body)["error"]["code"] == "headers_too_large"
        assert s.request("GET", "/health", headers={"x-long": "y" * 200_000})[0] == 431
        with Raw(s) as raw:  # who asks first is told before the body is sent
            raw.send(
                f"POST {TEXT} HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999\r\n"
                "Expect: 100-continue\r\n\r\n"
            )
            assert raw.take(b"}}").startswith(b"HTTP/1.1 413")
        with Raw(s) as raw:
            raw.send(
                f"POST {TEXT} HTTP/1.1\r\nHost: x\r\nContent-Length: 30\r\n"
                "Expect: 100-continue\r\n\r\n"
            )
            assert raw.take(b"\r\n\r\n").startswith(b"HTTP/1.1 100")
            raw.send(b'{"prompt": "a", "max_tokens":1}'[:30])
            raw.take(b"}}")
        s.post(TEXT, ok)


@pytest.mark.parametrize(
    "raw",
    [
        b"\r\n\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /health HTTP/9.9\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n{",
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET /health HTTP/1.1\r\nHost: x\r\nBad Header\r\n\r\n",
    ],
)
def test_what_is_hardly_http_harms_nobody(server, raw):
    with Raw(server) as r:
        r.send(raw)
        r.socket.shutdown(1)
        got = r.take_rest()
        assert not got or got.startswith(b"HTTP/1."), got
    assert server.chat()["choices"][0]["message"]["content"] == "ok."


def test_a_connection_that_brings_no_request_is_closed(table):
    with Server(table, "--timeout", 0.5) as s:
        with Raw(s) as silent, Raw(s) as slow, Raw(s) as half:
            slow.send(b"POST /v1/completions HTTP/1.1\r\nHo")
            half.post(TEXT, {"prompt": "a"})
            half.take(b'"usage"')
            assert silent.take_rest() == b""
            slow.take_rest()
            half.take_rest()
        s.chat()


# ---- keys ----


def test_every_route_wants_the_key_but_two(table, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("\nfile-key\r\n\nlast")
    with Server(table, "--api-key", "sesame", "--api-key-file", keys) as s:
        body = {"prompt": "a", "max_tokens": 1}
        wrong = [
            {},
            {"Authorization": "sesame"},
            {"Authorization": "Bearer"},
            {"Authorization": "Bearer "},
            {"Authorization": "Bearer sesam"},
            {"Authorization": "Bearer sesamee"},
            {"Authorization": "Bearer Sesame"},
            {"Authorization": "Bearer sesame sesame"},
            {"Authorization": "Basic sesame"},
            {"x-api-key": "sesame"},
        ]
        odd = ["//v1/models", "/V1/models", "/v1/./models", "/%76%31/models", "/v1/models/", "/%2e",
               "/health/../v1/models", "/health%00", "/x"]  # fmt: skip
        for headers in wrong:
            for path in GETS + POSTS + odd:
                for method in ("GET", "POST", "PUT", "HEAD"):
                    if path in [*OPEN, "/health%00"] and method in ("GET", "HEAD"):
                        continue
                    status, got, _ = s.request(method, path, b"{}", headers)
                    assert status == 401, (method, path, headers, status)
                    assert got["www-authenticate"] == "Bearer"
        for path in OPEN:
            assert s.request("GET", path)[0] == 200
        for key in ("sesame", "file-key", "last"):
            for scheme in ("Bearer", "bearer"):
                auth = {"Authorization": f"{scheme} {key}"}
                assert s.post(TEXT, body, headers=auth)["object"] == "text_completion"
        assert s.request("GET", "/nothing", headers=auth)[0] == 404
        assert all("sesame" not in line for line in s.log)


# ---- pages of other origins ----


def test_cors(server, table):
    page = {"Origin": "https://chat.example"}
    ask = page | {
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "x-own",
    }
    assert "access-control-allow-origin" not in server.request("GET", "/health", headers=page)[1]
    assert server.request("OPTIONS", CHAT, headers=ask)[0] == 405
    with Server(table, "--cors", "https://chat.example", "--api-key", "k") as s:
        status, headers, body = s.request("OPTIONS", CHAT, headers=ask)
        assert (status, body) == (204, b"")
        assert headers["access-control-allow-origin"] == "https://chat.example"
        assert headers["access-control-allow-headers"] == "x-own"
        assert "POST" in headers["access-control-allow-methods"] and headers["vary"] == "Origin"
        other = {"Origin": "https://evil.example"}
        assert "access-control-allow-origin" not in s.request("GET", "/health", headers=other)[1]
        refused = s.request("POST", CHAT, b"{}", page)
        assert refused[0] == 401 and "access-control-allow-origin" in refused[1]
    with Server(table, "--allowed-origins", "*") as s:
        assert s.request("GET", "/health", headers=page)[1]["access-control-allow-origin"] == "*"


# ---- ids ----


def test_request_ids(server):
    _, headers, body = server.request(
        "POST", TEXT, {"prompt": "a", "max_tokens": 1}, {"x-request-id": "mine-1"}
    )
    assert headers["x-request-id"] == "mine-1" and json.loads(body)["id"] == "cmpl-mine-1"
    line = server.wait_for(r"mine-1")
    assert "POST /v1/completions 200" in line and "generated 1" in line and line.endswith("length")
    made = {server.request("GET", "/version")[1]["x-request-id"] for _ in range(20)}
    assert len(made) == 20 and all(len(m) == 24 for m in made)
    for odd in ("", "a b", "\u00e9", "x" * 129):
        got = server.request("GET", "/version", headers={"x-request-id": odd})[1]["x-request-id"]
        assert len(got) == 24 and got != odd


# ---- TLS ----


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    start = datetime.datetime(2020, 1, 1)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(start)
        .not_valid_after(datetime.datetime(2120, 1, 1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return folder


def test_tls(table, certificate):
    files = ["--ssl-key-file", certificate / "key.pem", "--ssl-cert-file", certificate / "cert.pem"]
    trust = ssl.create_default_context(cafile=certificate / "cert.pem")
    with Server(table, *files) as s:
        assert s.url.startswith("https://")
        c = http.client.HTTPSConnection(*s.address, context=trust, timeout=60)
        body = json.dumps({"prompt": "a", "max_tokens": 50, "stream": True})
        for _ in range(2):  # over one connection
            c.request("POST", TEXT, body)
            r = c.getresponse()
            assert r.status == 200 and r.read().endswith(b"[DONE]\n\n")
        c.close()
        with Raw(s) as plain:
            plain.send(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b"HTTP/1.1 200" not in plain.take_rest()
        with Raw(s, tls=trust) as gone:
            gone.post(TEXT, {"prompt": "a", "max_tokens": 4000, "stream": True})
            gone.take(b"data: ")
