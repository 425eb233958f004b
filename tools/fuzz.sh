#!/bin/sh
# Runs every fuzzer built in a folder for some seconds each on its corpus: tools/fuzz.sh FOLDER
# SECONDS [FILTER] New inputs stay in FOLDER/corpus; the committed corpus in fuzz/corpus is only
# read.
set -eu

folder=$1 seconds=$2 filter=${3:-}
here=$(cd "$(dirname "$0")/.." && pwd)
n=0
for fuzzer in "$folder"/fuzz/*_fuzz; do
    [ -x "$fuzzer" ] || continue
    name=$(basename "$fuzzer" _fuzz)
    case $name in *"$filter"*) ;; *) continue ;; esac
    found=$folder/corpus/$name
    mkdir -p "$found" "$folder/crashes"
    set -- "$found"
    [ ! -d "$here/fuzz/corpus/$name" ] || set -- "$@" "$here/fuzz/corpus/$name"
    echo "fuzz $name for $seconds s"
    "$fuzzer" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -verbosity=0 \
        -print_final_stats=1 -artifact_prefix="$folder/crashes/$name-" "$@"
    n=$((n + 1))
done
if [ "$n" -eq 0 ]; then
    echo "fuzz.sh: no fuzzer in $folder/fuzz has \"$filter\" in its name" >&2
    exit 1
fi
echo "$n fuzzers ran without a finding"
