"""A server under test: started on a free port, asked over sockets, stopped; and a raw client that
can
do what no decent client does."""

import contextlib
import http.client
import json
import re
import signal
import socket
import ssl
import subprocess
import threading
import time
from urllib.parse import urlsplit

from cli import REPRISE, environment

# What a test waits for at most before it fails; never a measure of speed.
PATIENCE = 60


class Server:
    """`with Server(model, "--alias", "toy") as server: server.post("/v1/completions", {...})`"""

    def __init__(self, model, *args, env=None, wait=True, port=0, binary=REPRISE):
        # One thread: on a busy machine two wait for each other.
        command = [str(binary), "serve", str(model), "--port", str(port), "-t", "1"]
        command += map(str, args)
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=env or environment(),
        )  # fmt: skip
        self.log = []
        self.news = threading.Condition()
        self.reader = threading.Thread(target=self._read_log, daemon=True)
        self.reader.start()
        line = self.wait_for(r"(loading|serving) \S+ at ")
        self.url = line.rsplit(" ", 1)[1]
        if wait:
            self.wait_for(r"serving \S+ at ")

    def _read_log(self):
        for raw in self.process.stderr:
            with self.news:
                self.log.append(raw.decode("utf-8", "replace").rstrip("\n"))
                self.news.notify_all()
        with self.news:
            self.log.append(None)
            self.news.notify_all()

    def wait_for(self, pattern, since=0):
        """The first line of the log (from line `since` on) in which the pattern is found."""
        found = re.compile(pattern)
        end = time.monotonic() + PATIENCE
        with self.news:
            while True:
                for line in self.log[since:]:
                    if line is None:
                        raise AssertionError(f"the server ended; its log: {self.log}")
                    if found.search(line):
                        return line
                since = len(self.log)
                if not self.news.wait(end - time.monotonic()):
                    raise AssertionError(f"no line with {pattern!r} in {self.log}")

    def stop(self, number=signal.SIGTERM):
        """Ends it by a signal; its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(PATIENCE)
        finally:
            self.process.kill()
            self.reader.join(PATIENCE)
            self.process.stdout.close()
            self.process.stderr.close()

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        status = self.stop()
        if kind is None:
            assert status == 0, (status, self.log)

    # -- asking --
    @property
    def address(self):
        parts = urlsplit(self.url)
        return parts.hostname, parts.port

    def connect(self):
        return http.client.HTTPConnection(*self.address, timeout=PATIENCE)

    def request(self, method, path, body=None, headers=(), connection=None):
        """(status, headers, body as bytes)."""
        raw = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        with contextlib.ExitStack() as stack:
            c = connection or stack.enter_context(contextlib.closing(self.connect()))
            c.request(method, path, raw, dict(headers))
            r = c.getresponse()
            return r.status, dict((k.lower(), v) for k, v in r.getheaders()), r.read()

    def get(self, path, status=200, **kwargs):
        got, _, body = self.request("GET", path, **kwargs)
        assert got == status, (got, body)
        return body.decode()

    def post(self, path, body, status=200, **kwargs):
        got, _, text = self.request("POST", path, body, **kwargs)
        assert got == status, (got, text)
        return json.loads(text)

    def refusal(self, path, body, status=400, **kwargs):
        """The error object."""
        return self.post(path, body, status, **kwargs)["error"]

    def stream(self, path, body, **kwargs):
        """The data of each event, parsed; the last must be [DONE]."""
        status, headers, text = self.request("POST", path, {**body, "stream": True}, **kwargs)
        assert status == 200, (status, text)
        assert headers["content-type"].startswith("text/event-stream")
        return parse_events(text)

    def chat(self, content="hi", **fields):
        return self.post(
            "/v1/chat/completions", {"messages": [{"role": "user", "content": content}], **fields}
        )

    def metrics(self):
        """{name with labels: value}, the model's name left out of the labels."""
        text = re.sub(r'\{model_name="[^"]*",?', "{", self.get("/metrics")).replace("{}", "")
        lines = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
        return {name: float(value) for name, value in lines}

    def wait_until_idle(self, free):
        """Until nothing runs and `free` blocks are free or kept for their prefix alone."""
        end = time.monotonic() + PATIENCE
        while True:
            m = self.metrics()
            blocks = m['reprise_kv_blocks{state="free"}'] + m['reprise_kv_blocks{state="cached"}']
            if m['reprise_kv_blocks{state="live"}'] == 0 and blocks == free:
                return m
            assert time.monotonic() < end, m
            time.sleep(0.02)


def parse_events(raw):
    """Checks the frames of a stream: whole events, valid UTF-8, JSON, one [DONE] at the end."""
    text = raw.decode("utf-8")
    assert text.endswith("\n\n"), text[-200:]
    events = [e for e in text[:-2].split("\n\n") if not e.startswith(":")]
    assert all(e.startswith("data: ") and "\n" not in e for e in events), events
    data = [e.removeprefix("data: ") for e in events]
    assert data[-1] == "[DONE]" and data.count("[DONE]") == 1
    return [json.loads(d) for d in data[:-1]]


def joined(events, index=0):
    """(text, finish reason) of one choice of a stream."""
    text, finish = "", None
    for event in events:
        for choice in event["choices"]:
            if choice["index"] != index:
                continue
            assert finish is None, "nothing comes after the end"
            part = choice["delta"].get("content") if "delta" in choice else choice["text"]
            text += part or ""
            finish = choice["finish_reason"]
    return text, finish


class Raw:
    """A connection that sends and takes bytes as it is told."""

    def __init__(self, server, tls=None, receive_buffer=None):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(PATIENCE)
        self.socket.connect(server.address)
        if tls:
            self.socket = tls.wrap_socket(self.socket, server_hostname="localhost")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, raw):
        self.socket.sendall(raw if isinstance(raw, bytes) else raw.encode())

    def post(self, path, body, headers=""):
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send(
            f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(raw)}\r\n{headers}\r\n".encode()
            + raw
        )

    def take(self, until):
        """Reads until these bytes came; what was read."""
        got = b""
        while until not in got:
            more = self.socket.recv(4096)
            assert more, f"the connection ended: {got!r}"
            got += more
        return got

    def take_rest(self):
        got = b""
        with contextlib.suppress(ConnectionResetError, ssl.SSLError):
            while more := self.socket.recv(65536):
                got += more
        return got

    def take_rest_of_stream(self):
        """Up to the end of a chunked body."""
        return self.take(b"\r\n0\r\n\r\n")

    def reset(self):
        """Ends the connection with a reset instead of a farewell."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.socket.close()
