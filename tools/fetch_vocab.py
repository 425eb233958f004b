#!/usr/bin/env python3
"""Fetches whole vocabularies of real models for the tests into the cache folder.

    tools/fetch_vocab.py

They come out of the source package of llama-cpp-python on PyPI, which carries llama.cpp's vocabulary files with texts
and their expected ids: vocab/ggml-vocab-NAME.gguf, .gguf.inp and .gguf.out below REPRISE_CACHE (else
~/.cache/reprise). Beside them tools/make_token_golden.py puts the ids that Hugging Face's `tokenizers` gives for 2,000
random texts. What is there is not fetched or made again. Needs the standard library and pip.
"""

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from fetch_model import FetchError, cache_folder, is_complete, pip_command, sha256_of

TOOLS = Path(__file__).resolve().parent
VERSION = "0.3.36"
SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
SDIST = f"llama_cpp_python-{VERSION}.tar.gz"
FOLDER = f"llama_cpp_python-{VERSION}/vendor/llama.cpp/models/"
NAMES = (
    "llama-bpe llama-spm phi-3 qwen2 qwen35 gpt-2 mpt starcoder refact command-r falcon deepseek-coder"
).split()


def say(text):
    print(f"fetch_vocab.py: {text}", file=sys.stderr, flush=True)


def wanted():
    return [f"ggml-vocab-{name}.gguf{end}" for name in NAMES for end in ("", ".inp", ".out")]


def fetch_sdist(folder):
    """pip also asks the package for its metadata before it keeps the file, which takes a minute or two."""
    sdist = folder / SDIST
    if is_complete(sdist, None, SHA256):
        return sdist
    sdist.unlink(missing_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    say(f"downloading {SDIST} (77 MB)")
    command = [*pip_command(), "download", "--disable-pip-version-check", "--no-deps", "--no-binary", ":all:"]
    command += ["-d", str(folder), f"llama-cpp-python=={VERSION}"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=sys.stderr)
    if done.returncode != 0 or not sdist.is_file():
        raise FetchError(f"pip could not download llama-cpp-python {VERSION}")
    if sha256_of(sdist) != SHA256:
        sdist.unlink()
        raise FetchError(f"{SDIST} has another SHA-256 than {SHA256}")
    return sdist


def unpack(sdist, folder):
    """Only the wanted files, each under its name when it is whole."""
    folder.mkdir(parents=True, exist_ok=True)
    missing = {FOLDER + name for name in wanted()}
    with tarfile.open(sdist) as archive:
        for member in archive:
            if member.name not in missing or not member.isfile():
                continue
            target = folder / Path(member.name).name
            partial = target.with_name(f"{target.name}.partial-{os.getpid()}")
            with archive.extractfile(member) as source, partial.open("wb") as out:
                shutil.copyfileobj(source, out)
            os.replace(partial, target)
            missing.remove(member.name)
    if missing:
        raise FetchError(f"{SDIST} has no {sorted(missing)[0]}")


def make_golden(folder):
    made = subprocess.run([TOOLS / "venv.sh"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    if made.returncode != 0:
        raise FetchError("the test environment could not be made")
    say("making the expected ids of random texts")
    command = [made.stdout.strip(), TOOLS / "make_token_golden.py", "--vocab", str(folder)]
    if subprocess.run(command, stdin=subprocess.DEVNULL).returncode != 0:
        raise FetchError("tools/make_token_golden.py failed")
    (folder / "golden-made").touch()


def main():
    folder = cache_folder() / "vocab"
    try:
        if not all((folder / name).is_file() for name in wanted()):
            unpack(fetch_sdist(cache_folder() / "pypi"), folder)
        if not (folder / "golden-made").is_file():
            make_golden(folder)
    except (FetchError, OSError, tarfile.TarError) as failed:
        say(str(failed))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
