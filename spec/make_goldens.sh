#!/bin/sh
# Rebuilds tests/golden/model. About a minute and a half on one core.  PYTHON names an interpreter with torch and numpy.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=$here/../tests/golden/model
run() { script=$1; shift; OMP_NUM_THREADS=1 "${PYTHON:-python3}" "$here/$script.py" "$@"; }
golden() { name=$1; seed=$2; shift 2; run make_golden "$name" "$out/$name-s$seed" --seed "$seed" --tokens 300 "$@"; }

golden k31 1 --taps mixture:0,1,3
golden k3 1 --taps sum:0,1,4
for name in k31-head128 k31-last-block-open k3-block12 linear k31-small k31-saturated k31-negative-bias linear-grouped-router; do
    golden "$name" 1
done
for name in k3 k31-small k31-saturated k31-negative-bias linear-grouped-router; do
    golden "$name" 2
done
run make_golden k31 "$out/k31-shards-s1" --seed 1 --tokens 300 --shards 3
for name in k31 k31-head128; do
    run answers "$out/$name-s1" --cache bf16 --li bf16 --selected selected.bf16.txt
    run answers "$out/$name-s1" --cache bf16 --li mxfp8 --li-scale floor --selected selected.mxfp8.txt
    run answers "$out/$name-s1" --cache bf16 --li mxfp8 --li-scale ceil --selected selected.mxfp8-ceil.txt
done
