"""The examples are C11 against the public header alone, and answer."""

import subprocess

import pytest

from cli import environment, needs_reprise
from project import BUILD, ROOT

EXAMPLES = ROOT / "examples"
STRICT = ["-std=c11", "-pedantic", "-Wall", "-Wextra", "-Werror"]


@pytest.mark.parametrize("name", sorted(p.stem for p in EXAMPLES.glob("*.c")))
def test_it_compiles_as_c11(name):
    source = EXAMPLES / f"{name}.c"
    subprocess.run(["cc", *STRICT, f"-I{ROOT}/include", "-fsyntax-only", source], check=True)


def answers(name, tmp_path, *args, stdin=b""):
    program = tmp_path / name
    link = [f"-I{ROOT}/include", f"-L{BUILD}", "-lreprise", f"-Wl,-rpath,{BUILD}"]
    subprocess.run(
        ["cc", "-std=c11", EXAMPLES / f"{name}.c", *link, "-o", program], check=True
    )
    done = subprocess.run([program, *args], input=stdin, capture_output=True, env=environment())
    assert done.returncode == 0, done.stderr
    return done.stdout


needs_library = pytest.mark.skipif(
    not (BUILD / "libreprise.so").exists(), reason=f"no library in {BUILD}"
)


@needs_reprise
@needs_library
def test_complete_answers(table, tmp_path):
    assert answers("complete", tmp_path, table, "e", "4") == b"fghi\n"


@needs_reprise
@needs_library
def test_batch_answers_every_line_in_order(table, tmp_path):
    lines = b"".join(bytes([c]) + b"\n" for c in b"efghefghefgh")
    out = answers("batch", tmp_path, table, "3", stdin=lines)
    assert out == b"fgh\nghi\nhij\nijk\n" * 3


@needs_reprise
@needs_library
def test_stream_gives_both_answers(table, tmp_path):
    out = answers("stream", tmp_path, table, 'Say "ok".', "8").decode().splitlines()
    for choice in "12":
        said = [line[3:] for line in out if line.startswith(choice)]
        assert said[-1] == "(stop)" and "".join(said[:-1]) == "ok."
