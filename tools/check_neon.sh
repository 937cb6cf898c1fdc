#!/bin/sh
# Builds the kernel test for AArch64 and runs it under qemu: the NEON bodies against their references.
# Needs gcc-aarch64-linux-gnu and qemu-user (Debian); says so and passes if they are missing. K=, SEED= as for the test.
set -eu
cd "$(dirname "$0")/.."

compiler=${CROSS_CC:-aarch64-linux-gnu-gcc}
emulator=${QEMU:-qemu-aarch64}
for program in "$compiler" "$emulator"; do
    if ! command -v "$program" >/dev/null; then
        echo "SKIPPED: the NEON kernels were not tested, '$program' is missing (gcc-aarch64-linux-gnu, qemu-user)"
        exit 0
    fi
done

out=build/neon
mkdir -p "$out"
sources="src/base/check.c src/base/error.c src/cpu/tiers.c"
for file in src/tensor/*.c src/kernels/*.c tests/kernels/*.c; do
    case $file in
    *_avx2.c | *_avx512.c) ;;
    *) sources="$sources $file" ;;
    esac
done
# shellcheck disable=SC2086  # a list of files
"$compiler" -std=c11 -D_GNU_SOURCE -O2 -g -Wall -Wextra -Wshadow -Wundef -Wvla -Wstrict-prototypes -Wmissing-prototypes \
    -fno-math-errno -ffp-contract=off -Isrc -static -o "$out/check" $sources -lm
QUICK=1 "$emulator" "$out/check"
