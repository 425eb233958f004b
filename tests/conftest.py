import pytest

from cli import endless_model
from project import FIXTURES


@pytest.fixture(scope="session")
def table():
    """tests/fixtures/models/table64.json says what follows what: a chat is answered with "ok."."""
    return FIXTURES / "models" / "table64.gguf"


@pytest.fixture(scope="session")
def endless(tmp_path_factory):
    return endless_model(tmp_path_factory.mktemp("models") / "endless.gguf")
