#!/bin/sh
# Makes the folder with the arm64 libraries that a cross build links with and qemu-user runs with, and
# prints its path. From Debian's packages for arm64, unpacked but not installed: the system's own
# packages stay as they are, and no root is needed.
#
# It lies in the cache folder (REPRISE_CACHE, else ~/.cache/reprise), and is made again only when the
# list below or the release changes.
set -eu

packages="libc6-dev libjansson-dev libpcre2-dev libutf8proc-dev libcmocka-dev libmicrohttpd-dev
    libcurl4-openssl-dev"

cache=${REPRISE_CACHE:-$HOME/.cache/reprise}
sysroot=$cache/sysroot-arm64
wanted=$(echo "$packages" && cat /etc/os-release)

make_in() { # make_in FOLDER: a package manager with a state of its own, on which nothing is installed
    apt=$1/apt
    mkdir -p "$apt/lists/partial" "$apt/archives/partial" "$1/root"
    : >"$apt/status"
    in_apt() {
        apt-get -q -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User= \
            -o Dir::State="$apt" -o Dir::State::status="$apt/status" -o Dir::Cache="$apt" \
            -o Debug::NoLocking=1 "$@" >&2 </dev/null
    }
    in_apt update
    # shellcheck disable=SC2086 # the list is meant to be split
    in_apt install -y --no-install-recommends --download-only $packages
    for deb in "$apt"/archives/*.deb; do dpkg-deb -x "$deb" "$1/root"; done
}

if [ "$(cat "$sysroot/made-from" 2>/dev/null || true)" != "$wanted" ]; then
    echo "sysroot_arm64.sh: making $sysroot" >&2
    mkdir -p "$cache"
    scratch=$(mktemp -d "$cache/sysroot-XXXXXX")
    trap 'rm -rf "$scratch"' EXIT
    make_in "$scratch"
    printf '%s\n' "$wanted" >"$scratch/root/made-from"
    rm -rf "$sysroot"
    mv "$scratch/root" "$sysroot"
fi
echo "$sysroot"
