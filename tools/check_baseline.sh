#!/bin/sh
# Runs the kernel test under an x86-64 CPU model without AVX: the baseline build must execute no instruction beyond it,
# and the tiers must be found absent. Needs qemu-user; says so and passes if it is missing.
#
# usage: tools/check_baseline.sh [program [argument ...]]   another program than the kernel test
set -eu
cd "$(dirname "$0")/.."

emulator=${QEMU:-qemu-x86_64}
model=${CPU_MODEL:-Nehalem}
if ! command -v "$emulator" >/dev/null; then
    echo "SKIPPED: the baseline was not tested, '$emulator' is missing (qemu-user)"
    exit 0
fi
if [ $# -eq 0 ]; then
    [ -x build/release/tests/kernels/check ] || make build/release/tests/kernels/check >/dev/null
    set -- build/release/tests/kernels/check
fi
QUICK=1 "$emulator" -cpu "$model" "$@"
