"""The web page in a headless Chromium, against models whose answers are known to the letter."""

import json
import random
import time
import urllib.error
import urllib.request

import pytest

from browser import CHROMIUM, Browser
from conftest import STORY
from fake_server import FakeServer
from models import scripted
from project import BUILD
from server import Server

pytestmark = pytest.mark.skipif(not CHROMIUM, reason="no Chromium here (tools/setup.sh browser)")

# What a page must show as text, and what it must make of the rest.
MARKDOWN = """# Title
<img src=x onerror="window.hacked=1"> and <script>window.hacked=2</script>

Some **bold**, *thin* and `a<b>c`; [good](https://example.org/x) but [bad](javascript:window.hacked=3).

1. one
   - inner
2. two

| k | v |
|---|--:|
| a | 1 |

> quoted

```c
int x = a < b && *p;
```
end."""
LONG_PROMPT = "z" * 200
TOO_SLOW = 20  # seconds; a start takes one. Past that every test here would take minutes


@pytest.fixture(scope="module")
def one_browser():
    began = time.monotonic()
    with Browser() as b:
        b.open("about:blank")
        if time.monotonic() - began > TOO_SLOW:
            pytest.skip(f"Chromium took more than {TOO_SLOW} s to start: the machine is too busy for it")
        yield b


@pytest.fixture
def browser(one_browser):
    """Without pages of other tests, which would go on asking their servers."""
    yield one_browser
    one_browser.close_pages()


@pytest.fixture
def page(browser, teller):
    return opened(browser, teller)


@pytest.fixture
def talker():
    """Says "w0 w1 w2 ...", fifty words a second, for longer than any test."""
    with FakeServer(chunks=100000, gap=0.02, page=BUILD / "page.html") as s:
        yield s


@pytest.fixture(scope="module")
def writer(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "markdown.gguf"
    with Server(scripted(MARKDOWN).write(path, name="markdown")) as s:
        yield s


def opened(browser, server, **size):
    page = browser.open(server.url + "/", **size)
    page.wait("document.querySelector('#status').dataset.state === 'ready'")
    return page


def ask(page, text):
    page.click("#input")
    page.type(text)
    page.press("Enter")


def wait_for_answer(page, n=1):
    page.wait(f"document.querySelectorAll('.message.assistant').length === {n}")
    page.wait("document.querySelector('.is-streaming') === null")


def answers(page):
    return page.texts(".message.assistant .body")


def put_chat(page, messages):
    """A chat as a browser would have kept it, opened."""
    chat = {"id": "kept", "title": "kept", "system": "", "updated": 1, "messages": messages}
    page.eval(f"localStorage.setItem('reprise.chat.kept', {json.dumps(json.dumps(chat))})")
    page.eval("localStorage.setItem('reprise.current', '\"kept\"')")
    page.reload()
    page.wait_for(".message")


def test_an_answer_comes_and_is_there_after_a_reload(page):
    assert page.text("#welcome p") == "story answers on this server."
    ask(page, "hi there")
    wait_for_answer(page)
    for _ in range(2):
        assert answers(page) == [STORY]
        assert page.texts(".message.user .body") == ["hi there"]
        assert page.texts("#chat-list .open") == ["hi there"] and page.text("#title") == "hi there"
        assert "tokens, " in page.text(".figures") and "first after " in page.text(".figures")
        page.reload()
        page.wait_for(".message")
    assert page.problems == []


def test_escape_and_the_button_stop(browser, talker):
    page = opened(browser, talker)
    n_stopped = 0
    for stop in (lambda: page.press("Escape"), lambda: page.click("#send")):
        page.click("#new-chat")
        ask(page, "go")
        page.wait("document.querySelector('.is-streaming .body')?.textContent.length > 20")
        assert page.eval("document.querySelector('#send').ariaLabel") == "Stop"
        stop()
        wait_for_answer(page)
        (text,) = answers(page)
        words = text.split()
        assert words == [f"w{i}" for i in range(len(words))]
        assert page.text(".figures").endswith("stopped")
        assert page.eval("document.querySelector('#send').ariaLabel") == "Send"
        n_stopped += 1
        page.wait_until(lambda: talker.n_left == n_stopped)
        assert answers(page) == [text]
    assert page.problems == []


def test_an_answer_goes_on_while_another_chat_is_shown(browser, talker):
    page = opened(browser, talker)
    ask(page, "first")
    page.wait("document.querySelector('.is-streaming .body')?.textContent.length > 5")
    page.click("#new-chat")
    page.wait_for("#chat-list .is-running")
    assert page.texts(".message") == []
    page.click("#chat-list .open")
    before = len(answers(page)[0])
    page.wait(f"document.querySelector('.is-streaming .body').textContent.length > {before}")
    page.press("Escape")
    wait_for_answer(page)


def test_answer_again(page):
    ask(page, "hi")
    wait_for_answer(page)
    page.click("[aria-label='Answer again']")
    page.wait_for(".is-streaming, .message")
    wait_for_answer(page)
    assert answers(page) == [STORY]
    assert page.texts(".message.user .body") == ["hi"]


def test_edit_and_undo(page):
    ask(page, "one")
    wait_for_answer(page)
    ask(page, "two")
    wait_for_answer(page, 2)
    page.click(".message.user [aria-label='Edit']")
    assert page.eval("document.activeElement.value") == "one"
    page.eval("document.activeElement.select()")
    page.type("new")
    page.press("Enter")
    wait_for_answer(page)
    assert page.texts(".message.user .body") == ["new"] and answers(page) == [STORY]
    page.click("#toast button")
    assert page.texts(".message.user .body") == ["one", "two"]
    page.press("ArrowUp")  # in the empty composer: edit the last message
    page.eval("document.querySelector('#input').focus()")
    page.press("ArrowUp")
    assert page.eval("document.activeElement.value") == "two"
    page.press("Escape")
    assert page.texts(".message.user .body") == ["one", "two"]


def test_markdown_is_made_of_text_nodes(browser, writer):
    page = opened(browser, writer)
    ask(page, "write")
    wait_for_answer(page)
    body = ".message.assistant .body "
    assert page.text(body + "h1") == "Title"
    first, second = page.texts(body + "> p")[:2]
    assert first == '<img src=x onerror="window.hacked=1"> and <script>window.hacked=2</script>'
    assert second == "Some bold, thin and a<b>c; good but [bad](javascript:window.hacked=3)."
    assert page.texts(body + "strong") == ["bold"] and page.texts(body + "em") == ["thin"]
    assert page.texts(body + "p > code") == ["a<b>c"]
    assert page.eval(f"[...document.querySelectorAll('{body}a')].map(a => a.href)") == [
        "https://example.org/x"
    ]
    assert page.texts(body + "> ol > li > ul > li") == ["inner"]
    assert page.texts(body + "th") == ["k", "v"] and page.texts(body + "td") == ["a", "1"]
    assert page.eval(f"document.querySelectorAll('{body}td')[1].className") == "right"
    assert page.text(body + "blockquote") == "quoted"
    assert page.text(body + "pre") == "int x = a < b && *p;"
    assert page.text(body + ".code header span") == "c"
    assert page.texts(body + "> p")[-1] == "end."
    assert page.texts("img, article script") == [] and not page.eval("window.hacked")
    page.click(body + ".code button")
    page.wait(f"document.querySelector('{body}.code button').textContent === 'Copied'")
    assert page.problems == []


def test_no_text_breaks_the_page(page):
    """Kept chats are rendered when the page opens: what a model might write, and worse."""
    pick = random.Random(3)
    parts = ["*", "**", "_", "`", "```", "~~~", "\n", "\n\n", "[", "](", ")", "!", "<b>", "# ", "- ", "1. ",
             "> ", "|", "|-|", "    ", "a", "b c", "\\", "https://x.y/", "javascript:x", "&amp;", "\u4f60"]  # fmt: skip
    texts = ["".join(pick.choices(parts, k=60)) for _ in range(60)]
    texts += [mark * 5000 for mark in ("*", "_a ", "[", "`", "> ", "- ", "|", "![", "<", "\\", "~~")]
    texts += ["> " * 2000 + "x", "\n".join(" " * i + "- x" for i in range(200)), "|a" * 1000 + "\n" + "|-" * 1000]
    put_chat(page, [{"role": "assistant", "content": t, "finish": "stop"} for t in texts])
    assert len(page.texts(".message .body")) == len(texts)
    hrefs = page.eval("[...document.querySelectorAll('.body a')].map(a => a.protocol)")
    assert set(hrefs) <= {"https:"}
    assert page.texts(".body b, .body img, .body script") == []
    assert page.problems == []


def test_the_policy_allows_nothing_else(page):
    with pytest.raises(AssertionError, match="TrustedHTML"):
        page.eval("document.body.innerHTML = '<p>x</p>'")
    page.eval("document.body.append(Object.assign(document.createElement('img'), {src: 'http://127.0.0.1:9/'}))")
    page.wait("true")
    assert any("Content Security Policy" in p for p in page.problems)


def test_an_error_is_the_servers_sentence(browser, story):
    with Server(story, "-c", 128) as server:
        page = opened(browser, server)
        ask(page, LONG_PROMPT)
        page.wait_for(".failure")
        request = urllib.request.Request(
            server.url + "/v1/chat/completions",
            data=json.dumps({"messages": [{"role": "user", "content": LONG_PROMPT}]}).encode(),
            headers={"Content-Type": "application/json"},
        )
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request)
        assert page.text(".failure p") == json.load(refused.value)["error"]["message"]
        page.click("#new-chat")
        ask(page, "hi")
        wait_for_answer(page)
        assert answers(page) == [STORY]
    ask(page, "are you there?")
    page.wait_for(".failure")
    assert page.text(".failure p") == "The server cannot be reached."
    page.wait("document.querySelector('#status').dataset.state === 'gone'")
    assert page.text(".failure button") == "Try again"


def test_a_key_is_asked_for(browser, story):
    with Server(story, "--api-key", "open sesame") as server:
        page = browser.open(server.url + "/")
        page.wait_for("#key-dialog[open]")
        assert "key" in page.text("#key-reason").lower()
        page.click("#key")
        page.type("open sesame")
        page.press("Enter")
        page.wait("document.querySelector('#status').dataset.state === 'ready'")
        for _ in range(2):
            ask(page, "hi")
            wait_for_answer(page)
            assert answers(page) == [STORY]
            page.reload()  # the key lasts as long as the tab
            page.wait("document.querySelector('#status').dataset.state === 'ready'")
            page.click("#new-chat")


def test_settings_are_sent_and_kept(page):
    page.wait("document.querySelector('[name=temperature]').placeholder === '1'")
    page.click("#open-settings")
    page.click("[name=max_tokens]")
    page.type("3")
    page.click("#system")
    page.type("Be brief.")
    page.click("#settings .primary")
    ask(page, "hi")
    wait_for_answer(page)
    (text,) = answers(page)
    assert STORY.startswith(text) and text != STORY
    assert page.text(".figures").startswith("3 tokens") and page.text(".figures").endswith("cut at the token limit")
    page.reload()
    page.wait_for(".message")
    assert page.text(".system p") == "Be brief."
    assert page.eval("document.querySelector('[name=max_tokens]').value") == "3"
    page.click("#open-settings")
    page.click("#reset-settings")
    page.press("Escape")
    page.click("[aria-label='Answer again']")
    page.wait(f"document.querySelector('.assistant .body')?.textContent === {json.dumps(STORY)}")


def test_chats_are_renamed_exported_deleted(browser, page, tmp_path):
    for name in ("alpha", "beta"):
        page.click("#new-chat")
        ask(page, name)
        wait_for_answer(page)
    assert page.texts("#chat-list .open") == ["beta", "alpha"]
    page.click("#chat-list .is-current [aria-label='Rename']")
    page.type("gamma")
    page.press("Enter")
    assert page.texts("#chat-list .open") == ["gamma", "alpha"] and page.text("#title") == "gamma"
    page.allow_downloads(tmp_path)
    page.click("#chat-list .is-current [aria-label='Export']")
    kept = json.loads(page.wait_for_download(tmp_path / "gamma.json"))
    assert [m["content"] for m in kept["messages"]] == ["beta", STORY] and kept["model"] == "story"
    page.click("#chat-list .is-current [aria-label='Delete']")
    assert page.texts("#chat-list .open") == ["alpha"] and page.texts(".message") == []
    page.click("#toast button")
    assert page.texts("#chat-list .open") == ["gamma", "alpha"] and answers(page) == [STORY]
    page.reload()
    page.wait_for(".message")
    assert page.texts("#chat-list .open") == ["gamma", "alpha"]


def test_keyboard(page):
    page.click("#input")
    page.type("two")
    page.press("Enter", shift=True)
    page.type("lines")
    page.press("Enter")
    wait_for_answer(page)
    assert page.texts(".message.user .body") == ["two\nlines"]
    nameless = page.eval(
        """[...document.querySelectorAll('button, input, textarea')].filter(n => !n.ariaLabel &&
           !n.textContent.trim() && !n.labels?.length && n.checkVisibility()).map(n => n.outerHTML)"""
    )
    assert nameless == []
    page.eval("document.querySelector('#new-chat').focus()")
    page.press("Tab")
    assert page.eval("document.activeElement.className") == "open"
    assert page.eval("getComputedStyle(document.activeElement).outlineStyle") != "none"


def test_a_phone_needs_no_sideways_scrolling(browser, writer):
    page = opened(browser, writer, width=320, height=560)
    ask(page, "write " + "x" * 100)
    wait_for_answer(page)
    assert page.eval("document.documentElement.scrollWidth") <= 320
    assert page.eval("document.querySelector('#log').scrollWidth") <= 320
    assert not page.eval("document.querySelector('#chat-list').checkVisibility({visibilityProperty: true})")
    page.click("#open-side")
    page.wait("document.querySelector('#side').getBoundingClientRect().x === 0")
    page.click("#chat-list .open")
    page.wait("document.querySelector('#side').getBoundingClientRect().right <= 0")


def test_light_and_dark(page):
    def background():
        return page.eval("getComputedStyle(document.body).backgroundColor")

    page.prefer_dark(False)
    light = background()
    page.prefer_dark(True)
    dark = background()
    assert light != dark
    page.click("#theme")
    assert background() == light
    page.click("#theme")
    assert background() == dark
    page.reload()
    page.prefer_dark(False)
    assert background() == dark


def test_live_figures(page, teller):
    page.click("#open-panel")
    page.wait_for(".tile")
    ask(page, "hi")
    wait_for_answer(page)
    page.wait("document.querySelectorAll('.tile polyline')[0].getAttribute('points')?.includes(' ')")
    page.wait("document.querySelectorAll('.tile b')[1].textContent === '0 running'")
    shown = page.texts(".tile b")
    assert shown[0].endswith(" tokens/s") and shown[2].endswith(" %")
    steps = teller.metrics()
    replays = steps["reprise_replays_total"]
    eager = sum(v for k, v in steps.items() if k.startswith("reprise_eager_steps_total"))
    share = replays / (replays + eager)
    text = f"{100 * share:.{1 if share < 0.1 else 0}f} %"
    page.wait(f"document.querySelectorAll('.tile b')[4].textContent === '{text}'")
    assert page.problems == []
