#!/bin/sh
# Checks that what the project needs is on this machine, and on Debian installs it when run as root.
#
#   tools/setup.sh [build] [test] [browser] [arm64] [fuzz] [format]      (default: build)
#
# Says nothing and changes nothing when all is there. Without root it prints the one command to run
# and exits 1.
set -eu

missing=
need() { # need PACKAGE CHECK...: the Debian package is missing when the check fails
    package=$1
    shift
    "$@" >/dev/null 2>&1 || missing="$missing $package"
}

check_build() {
    need build-essential sh -c 'command -v gcc && command -v g++'
    need cmake command -v cmake
    need ninja-build command -v ninja
    need pkg-config command -v pkg-config
    need libjansson-dev pkg-config --exists jansson
    need libpcre2-dev pkg-config --exists libpcre2-8
    need libutf8proc-dev pkg-config --exists libutf8proc
    need libcmocka-dev pkg-config --exists cmocka
    need libmicrohttpd-dev pkg-config --exists libmicrohttpd
    need libcurl4-openssl-dev pkg-config --exists libcurl
    need python3 command -v python3
    need python3-venv python3 -c 'import venv, ensurepip'
    need python3-pip python3 -m pip --version
}
check_fuzz() {
    need clang command -v clang
    need libclang-rt-14-dev has_fuzzer_runtime
}
check_browser() { need chromium command -v chromium; } # for the tests of the web page
check_arm64() { # the libraries for it: sysroot_arm64.sh
    need gcc-aarch64-linux-gnu command -v aarch64-linux-gnu-gcc
    need qemu-user command -v qemu-aarch64
}
check_format() { need clang-format command -v clang-format; }
check_test() { :; }

has_fuzzer_runtime() {
    command -v clang || return 1
    find "$(clang --print-resource-dir)" -name '*fuzzer*.a' | grep -q .
}

check() { for part in "$@"; do "check_$part"; done; }

[ $# -gt 0 ] || set -- build
for part in "$@"; do
    case $part in
    build | test | browser | arm64 | fuzz | format) ;;
    *)
        echo "setup.sh: \"$part\" is not one of build, test, browser, arm64, fuzz, format" >&2
        exit 2
        ;;
    esac
done

check "$@"
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null 2>&1; then
    echo "setup.sh: missing (by their Debian names):$missing" >&2
    exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "setup.sh: packages are missing; run this once:" >&2
    echo "    sudo apt-get update && sudo apt-get install -y$missing" >&2
    exit 1
fi

echo "setup.sh: installing$missing" >&2
export DEBIAN_FRONTEND=noninteractive
apt-get update -q >&2 </dev/null
# shellcheck disable=SC2086 # the list is meant to be split
apt-get install -y -q --no-install-recommends $missing >&2 </dev/null

missing=
check "$@"
if [ -n "$missing" ]; then
    echo "setup.sh: still missing after the installation:$missing" >&2
    exit 1
fi
