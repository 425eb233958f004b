"""From the command line to the end of the process: options, what is printed, loading, signals, a
dead
engine."""

import os
import signal
import socket
import stat
import time

import pytest

from cli import FAILED, USAGE, answer, environment, refusal, reprise
from project import BUILD
from server import PATIENCE, Raw, Server

TEXT = "/v1/completions"
ENDLESS = {"prompt": "a", "max_tokens": 100_000, "temperature": 0, "stream": True}


@pytest.mark.parametrize(
    "args, status, part",
    [
        ([], USAGE, "no model: give -m MODEL"),
        (["x.gguf", "y"], USAGE, 'unexpected argument "y"'),
        (["nowhere.gguf"], FAILED, "nowhere.gguf"),
        (["x", "--port", "65536"], USAGE, "--port needs a whole number from 0 to 65535"),
        (["x", "--ssl-key-file", "k"], USAGE, "give --ssl-key-file and --ssl-cert-file"),
        (["x", "--api-key", ""], USAGE, "--api-key is empty"),
        (["x", "--api-key-file", "/nowhere"], FAILED, "cannot open /nowhere"),
        (["x", "--host", "no such host"], FAILED, "--host no such host"),
        (["x", "--host", "203.0.113.1"], FAILED, "cannot listen on 203.0.113.1"),
        (["x", "--host", "/" + "d" * 200], FAILED, "a socket's path has at most"),
        (["x", "--max-body", "12k"], USAGE, "--max-body needs a whole number"),
        (["x", "--temp", "1"], USAGE, "--temp is an option of `reprise run`"),
    ],
)
def test_refusals(args, status, part):
    assert part in refusal("serve", "-q", *args, status=status)


def test_a_key_file_without_keys(tmp_path):
    (tmp_path / "keys").write_text("\n\r\n")
    sentence = refusal("serve", "-q", "x", "--api-key-file", tmp_path / "keys", status=USAGE)
    assert sentence == f"--api-key-file {tmp_path}/keys has no key"


def test_tls_files_must_fit(table, tmp_path):
    for name in ("key", "cert"):
        (tmp_path / name).write_text("nonsense")
    files = ["--ssl-key-file", tmp_path / "key", "--ssl-cert-file", tmp_path / "cert"]
    sentence = refusal("serve", "-q", table, "--port", "0", *files, status=FAILED)
    assert "the TLS key and certificate are no matching PEM pair" in sentence


def test_help_has_both_dialects():
    text = answer("serve", "--help")
    for names in ("-a, --served-model-name, --alias NAME", "-np, --max-num-seqs, --parallel N",
                  "--host ADDRESS", "--port N", "--api-key KEY", "--cors, --allowed-origins ORIGIN",
                  "-c, --max-model-len, --ctx-size N", "env REPRISE_PORT"):  # fmt: skip
        assert names in text


def test_a_port_in_use(server):
    sentence = refusal("serve", "-q", "x", "--port", server.address[1], status=FAILED)
    assert sentence.startswith(f"port {server.address[1]} of 127.0.0.1 is in use")


def test_configuration_is_printed_once(table):
    env = environment(REPRISE_PARALLEL=3, REPRISE_API_KEY="secret-of-env")
    with Server(table, "--alias", "one", "--served-model-name", "two", env=env) as s:
        listed = [line.split() for line in s.log if line and line.startswith("  ")]
        values = {words[0]: words[1:] for words in listed}
        assert len(values) == len(listed)
        assert values["model"] == [str(table)]
        assert values["max-num-seqs"] == ["3", "(environment)"]
        assert values["served-model-name"] == ["one,", "two", "(argument)"]
        assert values["max-num-batched-tokens"] == ["512"]
        assert values["max-model-len"] == ["4096"]  # what the file says, as nobody said more
        assert values["num-blocks"] == [str(3 * 4096 // 32)]  # three of them, full
        assert values["device"][0] == "cpu" and "1 thread," in " ".join(values["device"]), values
        assert values["api-key"] == ["(set)", "(environment)"]
        assert not any("secret" in line for line in s.log)
        key = {"Authorization": "Bearer secret-of-env"}
        for name in ("one", "two", str(table)):
            body = {"model": name, "prompt": "a", "max_tokens": 1}
            assert s.post(TEXT, body, headers=key)["model"] == name
        assert s.post(TEXT, {"prompt": "a"}, headers=key)["model"] == "one"


def test_quiet(table):
    process = Server.__new__(Server)
    Server.__init__(process, table, "--no-log-requests")
    process.chat()
    assert process.stop() == 0
    assert not any(line and "POST" in line for line in process.log)


def test_answers_503_until_the_model_is_there(table, tmp_path):
    """The template comes from a pipe, so that loading waits for it."""
    pipe = tmp_path / "template"
    os.mkfifo(pipe)
    with Server(table, "--chat-template-file", pipe, wait=False) as s:
        for method, path in [("GET", "/health"), ("POST", TEXT), ("GET", "/props")]:
            status, headers, body = s.request(method, path, {"prompt": "a"})
            assert status == 503 and b"loading" in body and int(headers["retry-after"]) > 0
        assert s.request("GET", "/v1/models")[0] == 200
        assert s.request("GET", "/metrics")[0] == 200
        pipe.write_text("{{ messages[0]['content'] }}")
        s.wait_for("serving")
        s.get("/health")
        assert s.chat("hello \n", max_tokens=2)["choices"][0]["message"]["content"] == "ok"


def test_a_signal_while_loading(table, tmp_path):
    pipe = tmp_path / "template"
    os.mkfifo(pipe)
    s = Server(table, "--chat-template-file", pipe, wait=False)
    s.process.send_signal(signal.SIGTERM)
    time.sleep(
        0.1
    )  # the signal is counted before the load goes on; if not, it drains: 0 all the same
    pipe.write_text("x")
    assert s.process.wait(PATIENCE) == 0


def test_one_signal_finishes_what_runs(endless):
    s = Server(endless, "-np", 2, "-c", 1 << 16)
    with Raw(s) as running, Raw(s) as idle:
        running.post(TEXT, ENDLESS | {"max_tokens": 3000})
        running.take(b"data: ")
        s.process.send_signal(signal.SIGTERM)
        s.wait_for("stopping")
        with pytest.raises(ConnectionRefusedError):
            for _ in range(1000):  # until the kernel has heard of it
                socket.create_connection(s.address).close()
                time.sleep(0.01)
        rest = running.take(b"[DONE]")
        assert rest.count(b"data: ") > 10
        assert idle.take_rest() == b""
    assert s.process.wait(PATIENCE) == 0


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_at_once(endless, second):
    s = Server(endless, "-np", 1, "-c", 1 << 20)
    with Raw(s) as running:
        running.post(TEXT, ENDLESS | {"max_tokens": 1 << 20})
        running.take(b"data: ")
        s.process.send_signal(signal.SIGINT)
        s.wait_for("stopping")
        s.process.send_signal(second)
        assert s.process.wait(PATIENCE) == 130


def test_a_unix_socket(table, tmp_path):
    path = tmp_path / "socket"
    for _ in range(2):
        s = Server(table, "--host", path)
        assert s.url == f"unix:{path}" and stat.S_ISSOCK(path.stat().st_mode)
        with socket.socket(socket.AF_UNIX) as c:
            c.settimeout(PATIENCE)
            c.connect(str(path))
            c.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert c.recv(100).startswith(b"HTTP/1.1 200")
        second = reprise("serve", "-q", table, "--host", path)
        assert second.returncode == FAILED and b"cannot listen on" in second.stderr
        s.process.kill()  # leaves the file, which the next one removes
        s.stop()
    with Server(table, "--host", path):
        pass
    assert not path.exists()


def test_an_engine_that_dies_ends_the_process(table):
    """A device is lost in a step and cannot be opened again: the request gets an error, /health
    says so,
    and the process ends with a failure."""
    plugin = BUILD / "plugin" / "sample.so"
    s = Server(table, "--device", plugin, "--device-options", "lost_at=500")
    status, _, body = s.request("POST", TEXT, {"prompt": "a", "max_tokens": 4000})
    assert status >= 500 and b"error" in body
    while s.request("GET", "/health")[0] != 503:  # the request hears of it first
        pass
    assert s.request("POST", TEXT, {"prompt": "a"})[0] == 503
    assert s.process.wait(PATIENCE) == FAILED
    s.reader.join(PATIENCE)
    assert s.log[-2].startswith("reprise: ") and "it stays lost" in s.log[-2]
