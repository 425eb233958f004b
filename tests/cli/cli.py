"""Running the built command line: its path, tidy environments, and models whose answers are known."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from models import TableModel
from project import BUILD
from tiny_vocab import small_vocab

REPRISE = Path(os.environ.get("REPRISE_BIN", BUILD / "reprise"))
needs_reprise = pytest.mark.skipif(not REPRISE.exists(), reason=f"{REPRISE} is not built")

FAILED, USAGE, INTERRUPTED = 1, 2, 130


def environment(**more):
    """This one without REPRISE_ variables (each is an option), plus those given."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("REPRISE_")}
    return env | {k: str(v) for k, v in more.items()}


def reprise(*args, stdin=b"", env=None, timeout=60):
    """The finished process; its output as bytes."""
    command = [str(REPRISE), *(a if isinstance(a, bytes) else str(a) for a in args)]
    return subprocess.run(
        command, input=stdin, capture_output=True, env=env or environment(), timeout=timeout
    )


def answer(*args, **kwargs):
    """Standard output of a run that must succeed."""
    done = reprise(*args, **kwargs)
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return done.stdout.decode()


def refusal(*args, status, **kwargs):
    """The one sentence of a run that must fail with nothing on the standard output."""
    done = reprise(*args, **kwargs)
    lines = done.stderr.decode().splitlines()
    assert done.returncode == status, (done.returncode, lines)
    assert done.stdout == b""
    assert len(lines) == 1 and lines[0].startswith("reprise: "), lines
    return lines[0].removeprefix("reprise: ")


def figures(stderr):
    """The closing lines of the standard error as {first word: rest}."""
    return dict(re.findall(r"^(\w+) +(.*)$", stderr.decode(), re.M))


def endless_model(path):
    """Says "bababa..." after "a" or a line end for as long as its context of a million positions goes."""
    model = TableModel(small_vocab(), d=64)
    model.follow("a", "b")
    model.follow("b", "a")
    model.follow("\n", "b")
    return model.write(path, context=1 << 20, name="endless")
