#!/usr/bin/env python3
"""Checks the rules of the code that no compiler checks.

    tools/lint.py [--build build] [--root .]

Errors (exit status 1): an include against the layers, a device named outside its folder, a
forbidden call, a symbol that the library should not show, a file too long, a byte that is not
ASCII. Reports only: formatting and line length. A line may carry `lint-allow: NAME` in a comment,
with the reason beside it, to use one forbidden call."""

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

# What each folder of src/ may include, besides itself. The library is everything but serve and cli.
_BASE = {"base"}
_DEVICE = _BASE | {"tensor", "device"}
_MODEL = _DEVICE | {"plan", "file", "model"}
LAYERS = {
    "base": _BASE,
    "tensor": _BASE,
    "device": _DEVICE,
    "plan": _DEVICE,
    "text": _BASE,
    "file": _BASE | {"tensor"},
    "model": _MODEL,
    "engine": _MODEL | {"text"},
    "serve": _BASE,
    "cli": _BASE | {"serve"},  # a subcommand starts the server
}
LIBRARY = set(LAYERS) - {"serve", "cli"}
# Public headers by the lowest layer that may include them (and all above it).
PUBLIC = {
    "reprise/status.h": set(LAYERS),
    "reprise/common.h": set(LAYERS),
    "reprise/tensor.h": set(LAYERS) - {"base", "text"},
    "reprise/device.h": set(LAYERS) - {"base", "text", "tensor", "file"},
    "reprise/reprise.h": {"engine", "serve", "cli"},
}

# Each with its reason.
EXCEPTIONS = {
    ("src/base/log.h", "reprise/reprise.h"): "the type of the log callback is public",
}

DEVICES = ("cpu", "emu", "vulkan", "cuda", "tenstorrent", "metal")
REGISTRY = {"src/device/registry.c"}  # one line per device

_PRINT = "printf vprintf fprintf vfprintf puts fputs putchar fputc putc perror"
_HEAP = (
    "malloc calloc realloc reallocarray free strdup strndup aligned_alloc posix_memalign memalign "
    "asprintf vasprintf"
)
_UNSAFE = "strcpy strcat sprintf vsprintf gets strtok alloca"
# Rule, calls, folders where it holds, files that are the one place for it.
FORBIDDEN = [
    (
        "ends or interrupts the process",
        "exit _exit _Exit quick_exit abort signal sigaction",
        LIBRARY | {"serve"},
        {"src/base/fail.c"},
    ),
    ("prints", _PRINT, LIBRARY, {"src/base/fail.c"}),
    (
        "reads the environment",
        "getenv secure_getenv setenv putenv unsetenv",
        set(LAYERS),
        {"src/base/options.c"},
    ),
    ("uses the heap beside base/alloc.h", _HEAP, set(LAYERS), {"src/base/alloc.c"}),
    ("is unsafe", _UNSAFE, set(LAYERS), set()),
    ("changes the locale of the process", "setlocale", set(LAYERS), set()),
]
MAX_LINES = 800
MAX_EXAMPLE_LINES = 80
MAX_COLUMNS = 100

TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.S)


def without_comments(text):
    """The same text with comments blanked, line breaks kept."""

    def blank(m):
        return re.sub(r"[^\n]", " ", m[0]) if m[0].startswith("/") else m[0]

    return TOKEN.sub(blank, text)


def without_strings(text):
    return TOKEN.sub(
        lambda m: m[0] if m[0].startswith("/") else m[0][0] + " " * (len(m[0]) - 2) + m[0][0], text
    )


class Lint:
    def __init__(self, root):
        self.root = Path(root)
        self.errors = []
        self.reports = []

    def error(self, where, sentence):
        self.errors.append(f"{where}: {sentence}")

    def files(self, *folders, suffixes=(".c", ".h")):
        for folder in folders:
            for path in sorted((self.root / folder).rglob("*")):
                if path.suffix in suffixes and path.is_file():
                    yield path, path.relative_to(self.root).as_posix()

    # -- layers --
    def check_includes(self):
        for path, name in self.files("src"):
            layer = name.split("/")[1]
            if layer not in LAYERS:
                self.error(name, f"src/{layer} is no layer; the layers are {', '.join(LAYERS)}")
                continue
            for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
                m = re.match(r'\s*#\s*include\s*"([^"]+)"', line)
                if m:
                    self.check_include(f"{name}:{number}", name, layer, m[1])

    def check_include(self, where, name, layer, target):
        first = target.split("/")[0]
        if (name, target) in EXCEPTIONS:
            return
        if first == "reprise":
            if layer not in PUBLIC.get(target, set()):
                self.error(where, f'src/{layer} may not include "{target}"')
        elif "/" in target and first in LAYERS:
            if first != layer and first not in LAYERS[layer]:
                self.error(
                    where, f'src/{layer} may not include "{target}": the arrow points the other way'
                )
        elif (self.root / name).parent.joinpath(target).exists():
            pass  # a file beside it
        else:
            self.error(
                where,
                f'"{target}" is neither below src/ by its full path nor a file beside this one',
            )

    # -- devices --
    def check_device_names(self):
        word = re.compile(
            r"(?<![A-Za-z0-9_])(?:rp__|RP_)?(" + "|".join(DEVICES) + r")(?=_|\b)", re.I
        )
        for path, name in self.files("src"):
            own = re.match(r"src/device/([a-z]+)/", name)
            if name in REGISTRY:
                continue
            text = without_comments(path.read_text(errors="replace"))
            for number, line in enumerate(text.splitlines(), 1):
                for m in word.finditer(line):
                    if not (own and own[1] == m[1].lower()) and not self.allowed(
                        path, number, m[1].lower()
                    ):
                        self.error(
                            f"{name}:{number}",
                            f'names the device "{m[1]}": ask for a capability instead',
                        )

    def allowed(self, path, number, what):
        line = path.read_text(errors="replace").splitlines()[number - 1]
        return re.search(rf"lint-allow: [^*]*\b{re.escape(what)}\b", line) is not None

    # -- calls --
    def check_calls(self):
        rules = [
            (
                why,
                re.compile(r"(?<![A-Za-z0-9_.>])(" + "|".join(calls.split()) + r")\s*\("),
                layers,
                homes,
            )
            for why, calls, layers, homes in FORBIDDEN
        ]
        for path, name in self.files("src"):
            text = without_strings(without_comments(path.read_text(errors="replace")))
            for number, line in enumerate(text.splitlines(), 1):
                for why, call, layers, homes in rules:
                    if name.split("/")[1] not in layers or name in homes:
                        continue
                    for m in call.finditer(line):
                        if not self.allowed(path, number, m[1]):
                            self.error(f"{name}:{number}", f"{m[1]}() {why}")

    # -- text --
    def check_text(self):
        wide = 0
        for path, name in self.files(
            "src",
            "include",
            "tests",
            "fuzz",
            "bench",
            "examples",
            "tools",
            suffixes=(".c", ".h", ".cpp", ".py", ".sh", ".slang"),
        ):
            raw = path.read_bytes()
            if b"Generated by tools/" in raw[:600] or "/fixtures/" in name:
                continue
            lines = raw.decode("utf-8", "replace").splitlines()
            limit = MAX_EXAMPLE_LINES if name.startswith("examples/") else MAX_LINES
            if len(lines) > limit:
                self.error(name, f"{len(lines)} lines, more than {limit}: split it by noun")
            wide += sum(len(line) > MAX_COLUMNS for line in lines)
            if name.startswith(("src/", "include/")):
                for number, line in enumerate(lines, 1):
                    bad = next((c for c in line if c != "\t" and not " " <= c <= "~"), None) or (
                        "\t" in line and "\t"
                    )
                    if bad:
                        self.error(
                            f"{name}:{number}",
                            f"has the character U+{ord(bad):04X}: ASCII and spaces only",
                        )
        self.reports.append(f"{wide} lines are longer than {MAX_COLUMNS} columns")

    def report_format(self):
        tool = shutil.which("clang-format")
        if not tool:
            self.reports.append("clang-format is not installed: the formatting was not looked at")
            return
        names = [
            name for _, name in self.files("src", "include", "tests", "fuzz", "bench", "examples")
        ]
        off = 0
        for name in names:
            done = subprocess.run(
                [tool, "--dry-run", "-Werror", "--ferror-limit=1", name],
                cwd=self.root,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            off += done.returncode != 0
        self.reports.append(
            f"{off} of {len(names)} C files differ from .clang-format (make format)"
        )

    # -- symbols --
    def check_symbols(self, build):
        shared, static = Path(build) / "libreprise.so", Path(build) / "libreprise.a"
        for path, dynamic in ((shared, True), (static, False)):
            if not path.exists():
                self.error(path, "is not there: build first")
                continue
            for name, hidden in global_symbols(path, dynamic):
                if name.startswith("rp__") and not hidden:
                    self.error(path.name, f"exports {name}: rp__ names are the library's own")
                elif not name.startswith("rp_") or (dynamic and name.startswith("rp__")):
                    self.error(path.name, f"shows {name}: make it static, or name it rp_ or rp__")


def global_symbols(path, dynamic):
    """(name, is hidden) of each global symbol defined in an ELF library."""
    done = subprocess.run(
        ["readelf", "-W", "--dyn-syms" if dynamic else "-s", path],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
    )
    for line in done.stdout.splitlines():
        f = line.split()
        if (
            len(f) >= 8
            and f[0].rstrip(":").isdigit()
            and f[4] in ("GLOBAL", "WEAK", "UNIQUE")
            and f[6] != "UND"
        ):
            yield f[7].split("@")[0], f[5] in ("HIDDEN", "INTERNAL")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--build", help="build folder, for the symbols of the libraries")
    parser.add_argument("--root", default=Path(__file__).resolve().parent.parent)
    args = parser.parse_args()
    lint = Lint(args.root)
    lint.check_includes()
    lint.check_device_names()
    lint.check_calls()
    lint.check_text()
    if args.build:
        lint.check_symbols(args.build)
    lint.report_format()
    for line in lint.errors:
        print(line)
    for line in lint.reports:
        print(f"report: {line}")
    print(f"lint: {len(lint.errors)} errors")
    return 1 if lint.errors else 0


if __name__ == "__main__":
    sys.exit(main())
