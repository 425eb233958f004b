#!/bin/sh
# Makes (or brings up to date) the Python environment of the tests and prints the path of its
# interpreter.
#
# It lies in the cache folder (REPRISE_CACHE, else ~/.cache/reprise), outside the working tree, and
# is made again only when tests/requirements.txt or the interpreter changes.
set -eu

here=$(cd "$(dirname "$0")/.." && pwd)
cache=${REPRISE_CACHE:-$HOME/.cache/reprise}
venv=$cache/venv
wanted=$(cat "$here/tests/requirements.txt" && python3 -c 'import sys; print(sys.version)')

if [ "$(cat "$venv/made-from" 2>/dev/null || true)" != "$wanted" ]; then
    echo "venv.sh: making $venv" >&2
    mkdir -p "$cache"
    rm -rf "$venv"
    python3 -m venv "$venv" >&2
    "$venv/bin/python" -m pip install -q --disable-pip-version-check \
        -r "$here/tests/requirements.txt" >&2 </dev/null
    printf '%s\n' "$wanted" >"$venv/made-from"
fi
echo "$venv/bin/python"
