"""Make a small random checkpoint in the published layout and its float64 answers.

    make_golden.py NAME OUT [--seed N] [--tokens N] [--shards N] [--cache f32|bf16] [--li f32|bf16|mxfp8] [--li-scale floor|ceil]
                            [--taps KIND:LAYERS]

OUT gets config.json, model.safetensors (or shards and their index), tokens.txt, logits.f32, gaps.txt, and selected.txt where the model
has an indexer; README.md describes them. Tokens are drawn at random. A token is drawn again where, at its own position, float64 shows a
router or selection gap under GAP_FLOOR of the row's spread, nothing rounded: no correct engine can be asked to decide such a row the same way.
"""
import argparse
from pathlib import Path

import numpy as np

import answers
import cases
import checkpoint
import gaps

GAP_FLOOR = 1e-4


def too_close(model, ids):
    """(positions with a gap under the floor, ascending; gaps.smallest of the run)."""
    run = answers.answer(model, ids, recurrent=False).run
    found = gaps.smallest(run, model.c)
    return sorted({t for values, _ in found.values() for t in np.flatnonzero(values.numpy() < GAP_FLOOR).tolist()}), found


def draw_tokens(model, seed, count):
    """-> (ids, positions drawn again, gaps). A token moves nothing before it, so one pass from left to right settles all."""
    generator = np.random.default_rng(seed)
    draw = lambda n: generator.integers(2, model.c.vocab, n).tolist()
    ids, again = draw(count), []
    while True:
        close, found = too_close(model, ids)
        if not close:
            return ids, again, found
        again.append(close[0])
        ids[close[0]] = draw(1)[0]


def write_gaps(path, seed, again, found):
    """Text lines `seed N`, `floor F`, `router|selection GAP layer L token T` (L 1-based), `redrawn T T ...`."""
    lines = [f"seed {seed}", f"floor {GAP_FLOOR:g}"]
    for kind, (values, layers) in found.items():
        t = int(values.argmin())
        lines.append(f"{kind} {values[t]:.6g} layer {int(layers[t]) + 1} token {t}")
    lines.append(" ".join(["redrawn", *map(str, again)]))
    Path(path).write_text("\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("name", choices=cases.CASES)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=80)
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--taps", type=answers.parse_taps)
    answers.add_numerics(parser)
    args = parser.parse_args()
    checkpoint.save(cases.build(args.name, args.seed), args.out, cases.config_json(args.name), args.shards)
    model = checkpoint.load(args.out)
    ids, again, found = draw_tokens(model, args.seed, args.tokens)
    got = answers.answer(model, ids, answers.numerics_of(args), args.taps)
    answers.write_tokens(args.out / "tokens.txt", ids)
    answers.write_f32(args.out / "logits.f32", got.logits)
    write_gaps(args.out / "gaps.txt", args.seed, again, found)
    if got.run.selections:
        answers.write_selected(args.out / "selected.txt", got.run)
    if args.taps:
        answers.write_taps(args.out / "taps", args.taps, got.taps)
    print(f"{args.out}: {args.name}, seed {args.seed}, {args.tokens} tokens, logits rms {got.logits.square().mean().sqrt():.3f}")


if __name__ == "__main__":
    main()
