#!/bin/sh
# Runs test programs one after the other and sums up: the last line is `N passed, N failed, N skipped`.
#
#     run_tests.sh [NAME=VALUE | --with COMMAND | --skip REASON | PROGRAM]...
#
# NAME=VALUE sets a variable for the programs that follow, NAME= unsets it; --with runs them under a command, '' ends
# it; --skip counts one as skipped. What a program is shows in its path: */kernels/check prints its own closing line,
# *_fuzz replays tests/fuzz/corpus/<target> and counts as one test, so does *.sh (exit status 77: skipped), anything
# else speaks cmocka. A program that dies, runs into TEST_SECONDS_MAX, or ran nothing at all counts as a failure; the
# output of failing programs is shown.
set -u
seconds_max=${TEST_SECONDS_MAX:-$([ "${DAY0_SLOW:-}" ] && echo 3600 || echo 900)}
export UBSAN_OPTIONS="${UBSAN_OPTIONS:-print_stacktrace=1}"
passed=0 failed=0 skipped=0 with='' settings='' failures=''
output=$(mktemp "${TMPDIR:-/tmp}/day0-test.XXXXXX") || exit 1
trap 'rm -f "$output"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Sums the numbers of the lines `[  WORD  ] 12 test(s)`; a program may have several groups.
cmocka_count() {
    sed -n "s/^\[ *$1 *\] \([0-9][0-9]*\) test(s).*/\1/p" "$output" | awk '{ n += $1 } END { print n + 0 }'
}

# Number $1 (1 passed, 2 failed, 3 skipped) of the closing line.
closing_number() {
    awk -v at="$1" '/^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$/ { n = $(2 * at - 1) } END { print n }' "$output"
}

# What was skipped: cmocka's names; of the kernel test how many bodies of which tier.
list_skipped() {
    sed -n 's/^\[  SKIPPED \] \([^0-9].*\)/      skipped: \1/p' "$output" | sort -u
    sed -n 's/^SKIPPED: /      skipped: /p' "$output"
    sed -n 's/^.*; skipped: *//p' "$output" | tr ' ' '\n' | sort | uniq -c |
        sed 's/^ *\([0-9]*\) \(.*\)/      skipped: \1 kernels of tier \2/'
}

note() {
    printf '%-4s  %-44s %5d passed %3d failed %3d skipped %7.1f s\n' "$@"
}

run_program() {
    program=$1 name=${1#*tests/}
    label="$name${settings:+ $settings}${with:+ (${with%% *})}"
    set -- "$program"
    case $name in
    *_fuzz) set -- "$program" "tests/fuzz/corpus/$(basename "$name" _fuzz)" ;;
    *.sh) set -- sh "$program" ;;
    esac
    begin=$(date +%s.%N)
    # shellcheck disable=SC2086 # a command with its arguments
    timeout "$seconds_max" $with "$@" >"$output" 2>&1 </dev/null
    status=$?
    seconds=$(echo "$begin $(date +%s.%N)" | awk '{ print $2 - $1 }')
    case $name in
    kernels/check) p=$(closing_number 1) f=$(closing_number 2) s=$(closing_number 3) ;;
    *_fuzz) p=$((status == 0)) f=$((status != 0)) s=0 ;;
    *.sh) p=$((status == 0)) s=$((status == 77)) f=$((status != 0 && status != 77)) ;;
    *) p=$(cmocka_count PASSED) f=$(cmocka_count FAILED) s=$(cmocka_count SKIPPED) ;;
    esac
    p=${p:-0} f=${f:-0} s=${s:-0}
    [ "$s" -eq 0 ] || [ "$status" -ne 77 ] || status=0
    if [ "$f" -eq 0 ] && { [ "$status" -ne 0 ] || [ $((p + s)) -eq 0 ]; }; then
        f=1
        [ "$status" -ne 124 ] || echo "$program: stopped after $seconds_max seconds" >>"$output"
        echo "$program: exit status $status, $p passed, $s skipped" >>"$output"
    fi
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    if [ "$f" -ne 0 ]; then
        failures="$failures $name"
        cat "$output"
        note FAIL "$label" "$p" "$f" "$s" "$seconds"
    else
        note ok "$label" "$p" "$f" "$s" "$seconds"
    fi
    [ "$s" -eq 0 ] || list_skipped
}

while [ $# -gt 0 ]; do
    case $1 in
    --with)
        with=$2
        shift
        ;;
    --skip)
        skipped=$((skipped + 1))
        echo "      skipped: $2"
        shift
        ;;
    [A-Z]*=)
        unset "${1%=}"
        settings=$(printf '%s' "$settings" | sed "s/ *${1}[^ ]*//")
        ;;
    [A-Z]*=*)
        export "${1?}"
        settings="${settings:+$settings }$1"
        ;;
    *)
        if [ -n "$with" ] && ! command -v "${with%% *}" >/dev/null; then
            skipped=$((skipped + 1))
            echo "      skipped: ${1#*/tests/}: there is no ${with%% *}"
        else
            run_program "$1"
        fi
        ;;
    esac
    shift
done
[ -z "$failures" ] || echo "failed in:$failures"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
