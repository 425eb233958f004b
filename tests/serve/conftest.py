from pathlib import Path

import pytest

from cli import needs_reprise
from models import scripted
from server import Server

# What the scripted model answers to any chat: characters of one to four bytes.
STORY = "Hello, w\u00f6rld! \u4f60\u597d \U0001f999 done."


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(needs_reprise)


@pytest.fixture(scope="session")
def story(tmp_path_factory):
    """Answers STORY when a prompt ends in a line end, a byte or two per token."""
    return scripted(STORY).write(tmp_path_factory.mktemp("models") / "story.gguf", name="story")


@pytest.fixture(scope="module")
def server(table):
    with Server(table, "-np", 4) as s:
        yield s


@pytest.fixture(scope="module")
def teller(story):
    with Server(story, "-np", 4) as s:
        yield s
