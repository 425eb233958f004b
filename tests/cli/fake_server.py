"""A small server with OpenAI's streaming API, whose answers and their times are a test's to choose."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class FakeServer:
    """`with FakeServer(chunks=5) as server:`; server.bodies are the requests that came.

    chunks       pieces of text of every answer
    first, gap   seconds before the first and between two
    gather       so many requests must be there before any is answered
    plan         {index of the request: what happens to it instead}: an HTTP status, "error" (in the
                 stream), "cut" (the stream ends early), "hang"
    tokens       tokens of a word, for /tokenize; None: there is no /tokenize
    page         a file that is answered at /
    n_left       answers whose client went away before the end"""

    def __init__(self, chunks=3, first=0, gap=0, gather=1, plan=None, tokens=None, usage=True, page=None):
        self.chunks, self.first, self.gap, self.usage = chunks, first, gap, usage
        self.plan, self.tokens, self.gather = plan or {}, tokens, gather
        self.page, self.n_left = page, 0
        self.bodies, self.paths, self.keys = [], [], set()
        self.lock, self.are_there, self.is_over = threading.Lock(), threading.Event(), threading.Event()

    def __enter__(self):
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                if self.path == "/" and fake.page:
                    fake.reply(self, 200, fake.page.read_bytes(), "text/html; charset=utf-8")
                else:
                    fake.reply(self, 200, {"data": [{"id": "fake"}]})

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                fake.take(self, body)

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        self.are_there.set()
        self.http.shutdown()
        self.http.server_close()

    @property
    def prompts(self):
        return [b["prompt"] if "prompt" in b else b["messages"][0]["content"] for b in self.bodies]

    def count(self, text):
        return sum(self.tokens(word) for word in text.split())

    def reply(self, handler, status, body, kind="application/json"):
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        handler.send_response(status)
        handler.send_header("Content-Type", kind)
        handler.send_header("Content-Length", str(len(raw)))
        handler.end_headers()
        handler.wfile.write(raw)

    def take(self, handler, body):
        if handler.path == "/tokenize":
            if not self.tokens:
                return self.reply(handler, 404, {"error": {"message": "no such route"}})
            return self.reply(handler, 200, {"tokens": [0] * self.count(body["content"])})
        with self.lock:
            index = len(self.bodies)
            self.bodies.append(body)
            self.paths.append(handler.path)
            self.keys.add(handler.headers["Authorization"])
            if len(self.bodies) >= self.gather:
                self.are_there.set()
        self.are_there.wait()
        try:
            self.answer(handler, body, self.plan.get(index))
        except OSError:
            self.n_left += 1
            handler.close_connection = True

    def answer(self, handler, body, event):
        if isinstance(event, int):
            return self.reply(handler, event, {"error": {"message": f"refused with {event}"}})
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()

        def put(text):
            raw = text.encode()
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(raw), raw))

        def choice(text):
            return {"text": text} if "prompt" in body else {"delta": {"content": text}}

        time.sleep(self.first)
        put(": a comment\r\n\r\n")
        put("data: " + json.dumps({"choices": [choice("")]}) + "\n\n")  # the role comes without text
        for i in range(self.chunks):
            if event == "hang" and i == 1:
                self.is_over.wait()
            if event == "error" and i == 1:
                put('data: {"error": {"message": "out of luck"}}\n\n')
            time.sleep(self.gap if i else 0)
            line = "data: " + json.dumps({"choices": [choice(f"w{i} ")]}) + "\n\n"
            put(line[:9])  # a line may come in pieces
            put(line[9:])
        if event != "cut":
            if self.usage:
                details = {"prompt_tokens_details": {"cached_tokens": 2}}
                usage = {"prompt_tokens": 7, "completion_tokens": 2 * self.chunks, **details}
                put("data: " + json.dumps({"choices": [], "usage": usage}) + "\n\n")
            put("data: [DONE]\n\n")
        handler.wfile.write(b"0\r\n\r\n")
