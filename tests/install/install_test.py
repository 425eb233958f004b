"""An installation below a temporary prefix is enough to build against, from C and from C++."""

import os
import re
import shutil
import subprocess

import pytest

from project import BUILD, ROOT

pytestmark = pytest.mark.skipif(
    not (BUILD / "CMakeCache.txt").exists(), reason=f"no build in {BUILD}"
)

CONSUMER = """
#include <string.h>
int main(void) { return strcmp(rp_status_name(RP_EFORMAT), "RP_EFORMAT") == 0 ? 0 : 1; }
"""
LANGUAGES = {"c": ["cc", "-std=c11"], "cpp": ["c++", "-std=c++17"]}
STRICT = ["-Wall", "-Wextra", "-pedantic", "-Werror"]


def run(*args, **kwargs):
    done = subprocess.run(
        [str(a) for a in args],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        **kwargs,
    )
    assert done.returncode == 0, f"{args}\n{done.stdout}"
    return done.stdout


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    """Installed at one place and then moved: what was installed must not remember where it was."""
    first = tmp_path_factory.mktemp("first") / "usr"
    run("cmake", "--install", BUILD, "--prefix", first)
    second = tmp_path_factory.mktemp("second") / "usr"
    shutil.move(first, second)
    return second


@pytest.fixture(scope="module")
def libdir(prefix):
    return next(prefix.rglob("libreprise.so")).parent


def flags(libdir, *options):
    env = dict(os.environ, PKG_CONFIG_PATH=str(libdir / "pkgconfig"))
    return run("pkg-config", *options, "reprise", env=env).split()


def headers(prefix):
    return sorted(
        p.relative_to(prefix / "include").as_posix() for p in (prefix / "include").rglob("*.h")
    )


def test_every_public_header_is_installed(prefix):
    assert headers(prefix) == sorted(
        f"reprise/{p.name}" for p in (ROOT / "include/reprise").glob("*.h")
    )


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_header_stands_alone(prefix, libdir, tmp_path, language):
    for header in headers(prefix):
        source = tmp_path / f"one.{language}"
        source.write_text(f"#include <{header}>\n")
        run(
            *LANGUAGES[language],
            *STRICT,
            *flags(libdir, "--cflags"),
            "-c",
            source,
            "-o",
            tmp_path / "one.o",
        )


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("kind", ["shared", "static"])
def test_consumer_by_pkg_config(prefix, libdir, tmp_path, language, kind):
    source = tmp_path / f"consumer.{language}"
    source.write_text("".join(f"#include <{h}>\n" for h in headers(prefix)) + CONSUMER)
    libraries = flags(libdir, "--libs", *(["--static"] if kind == "static" else []))
    if kind == "static":
        libraries = [libdir / "libreprise.a" if x == "-lreprise" else x for x in libraries]
    sanitizer = re.search(r"^RP_SANITIZE:\w+=(.+)$", (BUILD / "CMakeCache.txt").read_text(), re.M)
    extra = [f"-fsanitize={sanitizer[1]}"] if sanitizer else []
    program = tmp_path / "consumer"
    run(
        *LANGUAGES[language],
        *STRICT,
        *extra,
        *flags(libdir, "--cflags"),
        source,
        *libraries,
        "-o",
        program,
    )
    run(program, env=dict(os.environ, LD_LIBRARY_PATH=str(libdir)))


@pytest.mark.parametrize("example", sorted(p.name for p in (ROOT / "examples").glob("*.c")))
def test_examples_compile(libdir, tmp_path, example):
    source = ROOT / "examples" / example
    run("cc", "-std=c11", *STRICT, *flags(libdir, "--cflags"), "-c", source, "-o", tmp_path / "x.o")


CMAKE = """
cmake_minimum_required(VERSION 3.25)
project(consumer LANGUAGES C)
find_package(reprise 0.1 REQUIRED COMPONENTS static)
foreach(kind reprise static)
  add_executable(with_${kind} consumer.c)
  target_link_libraries(with_${kind} PRIVATE reprise::${kind})
endforeach()
"""


def test_consumer_by_cmake(prefix, libdir, tmp_path):
    (tmp_path / "CMakeLists.txt").write_text(CMAKE)
    (tmp_path / "consumer.c").write_text("#include <reprise/status.h>\n" + CONSUMER)
    run("cmake", "-S", tmp_path, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", tmp_path / "build")
    run(tmp_path / "build/with_reprise")
    run(tmp_path / "build/with_static")


@pytest.fixture(scope="module")
def exported(libdir):
    lines = run("nm", "-D", "--defined-only", libdir / "libreprise.so").splitlines()
    return {line.split()[-1].split("@")[0] for line in lines}


@pytest.fixture(scope="module")
def declared(prefix):
    text = "".join((prefix / "include" / h).read_text() for h in headers(prefix))
    found = set(re.findall(r"^RP_API\b[^;(]*?\b(rp_\w+)\s*\(", text, re.M))
    assert "rp_status_name" in found
    return found


def test_only_public_functions_are_exported(exported, declared):
    assert exported - declared == set()


def test_every_public_function_is_exported(exported, declared):
    assert declared - exported == set()


def test_static_library_shows_rp_names_only(libdir):
    for line in run("nm", "--defined-only", "--extern-only", libdir / "libreprise.a").splitlines():
        fields = line.split()
        if len(fields) == 3:
            assert fields[2].startswith("rp_"), line
