#!/bin/sh
# clang-tidy over every source of src, configured in .clang-tidy, JOBS at a time (default: one a core).
#
#     tidy.sh [FILE]...
set -u
# shellcheck disable=SC2046 # names without blanks
[ $# -gt 0 ] || set -- $(git ls-files -co --exclude-standard 'src/*.c' | grep -v -e '_neon\.c$')
x86='-mavx2 -mfma -mf16c'
for source in "$@"; do
    case $source in
    *_avx2.c) flags=$x86 ;;
    *_avx512.c) flags="$x86 -mavx512f -mavx512bw -mavx512vl -mavx512dq" ;;
    *_avx512fp16.c)
        flags="$x86 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mavx512vbmi -mavx512fp16" ;;
    src/base/error.c) flags='' ;;
    *) flags='-include tools/lint/analyzer.h' ;;
    esac
    printf '%s -- -std=c11 -D_GNU_SOURCE -Isrc -Iinclude %s\n' "$source" "$flags"
done | xargs -P "${JOBS:-$(nproc)}" -I ARGUMENTS sh -c 'clang-tidy --quiet ARGUMENTS 2>/dev/null'
