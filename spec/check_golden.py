"""Check that the specification still gives tests/golden/model: check_golden.py [DIR ...]

Logits and taps within 1e-6 relative RMS, selections equal. KDA runs in chunks here and ran token by token there, so this compares the two as well.
"""
import sys
from pathlib import Path

import numpy as np

import answers
import checkpoint
import k31

GOLDENS = Path(__file__).resolve().parents[1] / "tests" / "golden" / "model"
BOUND = 1e-6
SELECTIONS = {"selected.txt": k31.Numerics(), "selected.bf16.txt": k31.Numerics("bf16", "bf16"),
              "selected.mxfp8.txt": k31.Numerics("bf16", "mxfp8", "floor"), "selected.mxfp8-ceil.txt": k31.Numerics("bf16", "mxfp8", "ceil")}


def relative_rms(got, path):
    """got [T,N] against a float32 file."""
    want = np.fromfile(path, "<f4").reshape(got.shape).astype(np.float64)
    return np.sqrt(np.square(got.numpy() - want).mean() / np.square(want).mean())


def faults(directory):
    """Yields a sentence for every answer that is not the golden one."""
    model, ids = checkpoint.load(directory), answers.read_tokens(directory / "tokens.txt")
    taps_file = directory / "taps.txt"
    kind, *layers = taps_file.read_text().split() if taps_file.exists() else [None]
    taps = k31.Taps(kind, tuple(map(int, layers))) if kind else None
    exact = answers.answer(model, ids, taps=taps, recurrent=False)
    for values, file in ((exact.logits, "logits.f32"), (exact.taps, "taps.f32")):
        error = 0 if values is None else relative_rms(values, directory / file)
        if not error <= BOUND:
            yield f"{file}: relative RMS {error:.2g} is over {BOUND}"
    for file, numerics in SELECTIONS.items():
        if (directory / file).exists():
            want = answers.read_selected(directory / file)
            rounded = exact if numerics == k31.Numerics() else answers.answer(model, ids, numerics, recurrent=False)
            got = answers.selected(rounded.run)
            if got != want:
                yield f"{file}: {sum(got.get(key) != positions for key, positions in want.items())} of {len(want)} rows differ"


def main():
    directories = [Path(name) for name in sys.argv[1:]] or sorted(path for path in GOLDENS.iterdir() if path.is_dir())
    bad = [f"{directory.name}: {fault}" for directory in directories for fault in faults(directory)]
    print("\n".join(bad + [f"{len(directories)} goldens, {len(bad)} faults"]))
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
