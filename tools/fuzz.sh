#!/bin/sh
# Runs every libFuzzer program of a folder for some seconds, starting from its corpus under tests/fuzz/corpus. What is
# new goes to build/fuzz-corpus, what fails to build/fuzz-failures: minimize it and add it to the corpus with the fix.
#
#     fuzz.sh FOLDER SECONDS [TARGET]...
set -u
folder=$1 seconds=$2
shift 2
# shellcheck disable=SC2046 # names without blanks
[ $# -gt 0 ] || set -- $(cd "$folder" && ls -- *_fuzz)
failed=''
for target in "$@"; do
    name=${target%_fuzz}
    mkdir -p "build/fuzz-corpus/$name" build/fuzz-failures
    echo "fuzz: $name for $seconds s"
    "$folder/${name}_fuzz" -max_total_time="$seconds" -timeout=30 -rss_limit_mb=4096 -print_final_stats=1 \
        -artifact_prefix="build/fuzz-failures/$name-" "build/fuzz-corpus/$name" "tests/fuzz/corpus/$name" \
        >"build/fuzz-failures/$name.log" 2>&1 || failed="$failed $name"
    sed -n -e 's/^stat::number_of_executed_units: */  runs /p' -e 's/^stat::new_units_added: */  new inputs /p' \
        -e '/^SUMMARY/s/^/  /p' "build/fuzz-failures/$name.log"
done
[ -z "$failed" ] || {
    echo "fuzz: failures of$failed, see build/fuzz-failures"
    exit 1
}
