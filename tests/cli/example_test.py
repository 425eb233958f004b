"""examples/complete.c is C11 against the public header alone, and answers."""

import subprocess

import pytest

from cli import environment, needs_reprise
from project import BUILD, ROOT

SOURCE = ROOT / "examples" / "complete.c"


def test_it_compiles_as_c11():
    strict = ["-std=c11", "-pedantic", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
    subprocess.run(["cc", *strict, f"-I{ROOT}/include", SOURCE], check=True)


@needs_reprise
@pytest.mark.skipif(not (BUILD / "libreprise.so").exists(), reason=f"no library in {BUILD}")
def test_it_answers(table, tmp_path):
    program = tmp_path / "complete"
    link = [f"-I{ROOT}/include", f"-L{BUILD}", "-lreprise", f"-Wl,-rpath,{BUILD}"]
    subprocess.run(["cc", "-std=c11", SOURCE, *link, "-o", program], check=True)
    done = subprocess.run([program, table, "e", "4"], capture_output=True, env=environment())
    assert (done.returncode, done.stdout) == (0, b"fghi\n")
