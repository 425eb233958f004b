"""The examples of docs/serving.md do what the page says: its curl commands, its fields, its
options."""

import json
import re
import shlex
import shutil
import subprocess

import pytest

from cli import answer
from project import ROOT
from server import Server, parse_events

PAGE = (ROOT / "docs" / "serving.md").read_text()
# Indented blocks that begin with curl, up to the blank line.
COMMANDS = [
    re.sub(r"^    ", "", c, flags=re.M)
    for c in re.findall(r"^    curl .*\n(?:    .*\n)*", PAGE, re.M)
]


@pytest.fixture(scope="module")
def documented(table):
    with Server(table, "--alias", "smollm2") as s:
        yield s


def test_there_are_examples():
    assert len(COMMANDS) >= 8


@pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")
@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c.split()[1].split("8080")[1])
def test_curl(documented, command):
    words = [w.replace("http://127.0.0.1:8080", documented.url) for w in shlex.split(command)]
    done = subprocess.run([*words, "-sSf"], capture_output=True, timeout=60, check=True)
    text = done.stdout.decode()
    if '"stream": true' in command:
        assert parse_events(done.stdout)[-1]["usage"]["completion_tokens"] > 0
    elif "/metrics" in command:
        assert "vllm:num_requests_running" in text
    else:
        json.loads(text)


def test_every_field_is_in_the_table():
    """The names in the source's table are those of the page's."""
    source = (ROOT / "src" / "serve" / "fields.c").read_text()
    rows = re.findall(r'\{"(\w+)", F_\w+, ([^}]*)', source)
    named = {name for name, rest in rows if re.search(r"ANSWERS|CHAT|TEXT|TEMPLATES|0xff", rest)}
    table = PAGE.split("## Fields")[1].split("## Streams")[0]
    shown = set(
        re.findall(
            r"`(\w+)[`.]",
            "\n".join(r.split("|")[1] for r in table.splitlines() if r.startswith("| `")),
        )
    )
    assert named == shown


def test_every_option_of_the_server_is_in_the_table():
    section = answer("serve", "--help").split("\nServer\n")[1].split("\n\n")[0]
    names = set(re.findall(r"^ .*?--([a-z-]+)", section, re.M)) - {"ignore-unknown-fields"}
    missing = {n for n in names if f"`--{n}`" not in PAGE}
    assert not missing
