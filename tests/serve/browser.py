"""A headless Chromium, driven over its DevTools protocol through two pipes.

    with Browser() as browser:
        page = browser.open("http://127.0.0.1:8080/")
        page.click("#send")
        page.wait("document.title === 'x'")

`page.problems` collects what the page would write to its console: exceptions, refusals by the
content security policy, failed requests."""

import base64
import json
import os
import queue
import shutil
import signal
import subprocess
import tempfile
import threading
import time

CHROMIUM = os.environ.get("CHROMIUM") or next(
    filter(None, map(shutil.which, ["chromium", "chromium-browser", "google-chrome"])), None
)
PATIENCE = 60  # seconds until something that should happen counts as missing
KEYS = {"Enter": ("\r", 13), "Escape": ("", 27), "Tab": ("", 9), "ArrowUp": ("", 38)}
SHIFT = 8


class Browser:
    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="reprise-chromium-", ignore_cleanup_errors=True)
        to_browser, self.write_fd = os.pipe()
        self.read_fd, from_browser = os.pipe()
        flags = ["--headless", "--remote-debugging-pipe", "--disable-gpu", "--no-first-run",
                 "--disable-dev-shm-usage", "--hide-scrollbars", f"--user-data-dir={self.folder.name}"]
        if os.geteuid() == 0:
            flags.append("--no-sandbox")  # Chromium's own sandbox refuses root

        def take_pipes():  # the protocol's ends are descriptors 3 and 4
            os.dup2(to_browser, 103)
            os.dup2(from_browser, 104)
            os.dup2(103, 3)
            os.dup2(104, 4)

        self.process = subprocess.Popen(
            [CHROMIUM, *flags], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, preexec_fn=take_pipes, pass_fds=(3, 4), start_new_session=True,
        )
        os.close(to_browser)
        os.close(from_browser)
        self.n_calls, self.replies, self.pages = 0, {}, {}
        self.lock = threading.Lock()
        threading.Thread(target=self.listen, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.killpg(self.process.pid, signal.SIGKILL)  # its helpers too; nothing of it is kept
        self.process.wait()
        os.close(self.write_fd)
        self.folder.cleanup()

    def listen(self):
        with os.fdopen(self.read_fd, "rb") as pipe:
            rest = b""
            while chunk := pipe.read1(1 << 16):
                *messages, rest = (rest + chunk).split(b"\0")
                for message in map(json.loads, messages):
                    if "id" in message:
                        self.replies.pop(message["id"]).put(message)
                    elif message.get("sessionId") in self.pages:
                        self.pages[message["sessionId"]].on_event(message["method"], message["params"])

    def call(self, method, session=None, **params):
        reply = queue.Queue()
        with self.lock:
            self.n_calls += 1
            message = {"id": self.n_calls, "method": method, "params": params}
            if session:
                message["sessionId"] = session
            self.replies[self.n_calls] = reply
            data = json.dumps(message).encode() + b"\0"
            while data:
                data = data[os.write(self.write_fd, data) :]
        answer = reply.get(timeout=PATIENCE)
        assert "error" not in answer, (method, answer["error"])
        return answer["result"]

    def close_pages(self):
        for page in self.pages.values():
            self.call("Target.disposeBrowserContext", browserContextId=page.context)
        self.pages.clear()

    def open(self, url, width=1200, height=800):
        """A page with a storage of its own."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        page.context = context
        self.pages[session] = page
        for domain in ("Page", "Runtime", "Log"):
            page.call(domain + ".enable")
        page.resize(width, height)
        page.goto(url)
        return page


class Page:
    def __init__(self, browser, session):
        self.browser, self.session, self.problems = browser, session, []

    def call(self, method, **params):
        return self.browser.call(method, self.session, **params)

    def on_event(self, method, params):
        if method == "Runtime.exceptionThrown":
            self.problems.append(params["exceptionDetails"]["exception"].get("description"))
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.problems.append(params["entry"]["text"])

    def goto(self, url):
        self.call("Page.navigate", url=url)
        self.wait(f"document.readyState === 'complete' && location.href === {json.dumps(url)}")

    def reload(self):
        self.eval("window.isOld = true")
        self.call("Page.reload")
        self.wait("!window.isOld && document.readyState === 'complete'")

    def eval(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, (expression, result["exceptionDetails"])
        return result["result"].get("value")

    def wait_until(self, condition, what="the condition"):
        end = time.monotonic() + PATIENCE
        while not (value := condition()):
            assert time.monotonic() < end, f"never true: {what}"
            time.sleep(0.02)
        return value

    def wait(self, expression):
        """Until the expression is true; its value. It may fail meanwhile: the document may be in
        the middle of being replaced."""
        return self.wait_until(lambda: self.eval(f"(() => {{ try {{ return {expression} }} catch {{}} }})()"), expression)

    def text(self, selector):
        return self.eval(f"document.querySelector({json.dumps(selector)})?.textContent")

    def texts(self, selector):
        return self.eval(f"[...document.querySelectorAll({json.dumps(selector)})].map(n => n.textContent)")

    def wait_for(self, selector):
        self.wait(f"document.querySelector({json.dumps(selector)}) !== null")

    def click(self, selector):
        """A real click in the middle of the element, which must be what is met there."""
        where = self.eval(
            f"""(() => {{ const node = document.querySelector({json.dumps(selector)});
                node.scrollIntoView({{block: 'center', behavior: 'instant'}});
                const r = node.getBoundingClientRect();
                const x = r.x + r.width / 2, y = r.y + r.height / 2;
                const met = document.elementFromPoint(x, y);
                return [x, y, node.contains(met)]; }})()"""
        )
        x, y, is_met = where
        assert is_met, f"{selector} cannot be clicked: something lies over it"
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            button = {} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **button)

    def type(self, text):
        """Into what has the focus."""
        self.call("Input.insertText", text=text)

    def press(self, key, shift=False):
        text, code = KEYS[key]
        common = {"key": key, "code": key, "windowsVirtualKeyCode": code, "modifiers": SHIFT * shift}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **common)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def resize(self, width, height, scale=1):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=scale, mobile=False)

    def prefer_dark(self, is_dark):
        feature = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[feature])

    def allow_downloads(self, folder):
        self.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(folder))

    def wait_for_download(self, path):
        self.wait_until(path.exists, path)
        return path.read_text()

    def screenshot(self, path):
        with open(path, "wb") as f:
            f.write(base64.b64decode(self.call("Page.captureScreenshot")["data"]))
