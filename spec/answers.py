"""The float64 answers of a checkpoint on given tokens, and the files that hold them.

    answers.py DIR [--tokens FILE] [--cache f32|bf16] [--li f32|bf16|mxfp8] [--li-scale floor|ceil]
                   [--logits FILE] [--selected FILE] [--taps KIND:LAYERS --taps-out STEM]

README.md describes the files. FILE names are taken relative to DIR; --tokens defaults to DIR/tokens.txt.
"""
import argparse
from dataclasses import dataclass
from pathlib import Path

import torch

import checkpoint
import k31


@dataclass
class Answers:
    logits: torch.Tensor      # float64 [T,vocab]
    taps: torch.Tensor        # float64 [T,len(layers)*D] or None
    run: k31.Run              # with selections and routings, if watched


def answer(model, ids, numerics=k31.Numerics(), taps=None, recurrent=True, watch=True):
    """ids: list of T token ids -> Answers. Watching keeps every score: memory grows with T squared."""
    run = k31.Run(numerics=numerics, recurrent=recurrent, watch=watch)
    with torch.no_grad():
        out = model(torch.tensor([ids]), run, taps)
    logits, tapped = out if taps else (out, None)
    return Answers(logits[0], tapped[0] if taps else None, run)


def mean_nll(logits, ids):
    """Mean negative log-likelihood (natural log) of ids[1:] under logits [T,vocab]; the last row predicts nothing."""
    rows = logits[:-1].double().log_softmax(-1)
    return -rows.gather(-1, torch.tensor(ids[1:])[:, None]).mean().item()


def read_tokens(path):
    return [int(word) for word in Path(path).read_text().split()]


def write_tokens(path, ids):
    Path(path).write_text(" ".join(map(str, ids)) + "\n")


def write_f32(path, x):
    x.float().contiguous().numpy().astype("<f4").tofile(path)


def selected(run):
    """-> {(layer, 1-based, token): set of positions}."""
    return {(s.layer + 1, s.first + r): set(row.nonzero().flatten().tolist()) for s in run.selections for r, row in enumerate(s.keep[0])}


def write_selected(path, run):
    """A line for each full-attention layer (1-based) and token: `layer token position position ...`, positions ascending."""
    lines = (" ".join(map(str, (*row, *sorted(positions)))) for row, positions in sorted(selected(run).items()))
    Path(path).write_text("".join(line + "\n" for line in lines))


def read_selected(path):
    """The inverse: what selected() gives."""
    lines = ([int(word) for word in line.split()] for line in Path(path).read_text().splitlines())
    return {(layer, token): set(positions) for layer, token, *positions in lines}


def write_taps(stem, taps, values):
    """STEM.f32 [T][len(layers)*D] and STEM.txt: `kind layer layer ...`, 0-based."""
    write_f32(stem.with_suffix(".f32"), values)
    stem.with_suffix(".txt").write_text(" ".join([taps.kind, *map(str, taps.layers)]) + "\n")


def parse_taps(text):
    """"mixture:0,2" -> k31.Taps."""
    kind, _, layers = text.partition(":")
    if kind not in ("mixture", "sum"):
        raise argparse.ArgumentTypeError(f"{kind!r}: want mixture or sum")
    return k31.Taps(kind, tuple(sorted(int(i) for i in layers.split(","))))


def add_numerics(parser):
    parser.add_argument("--cache", choices=("f32", "bf16"), default="f32", help="rounding of the latent cache")
    parser.add_argument("--li", choices=("f32", "bf16", "mxfp8"), default="f32", help="rounding of index queries and keys")
    parser.add_argument("--li-scale", choices=("floor", "ceil"), default="floor", help="scale rule of mxfp8")


def numerics_of(args):
    return k31.Numerics(args.cache, args.li, args.li_scale)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--tokens", default="tokens.txt")
    parser.add_argument("--logits")
    parser.add_argument("--selected")
    parser.add_argument("--taps", type=parse_taps)
    parser.add_argument("--taps-out", default="taps")
    add_numerics(parser)
    args = parser.parse_args()
    got = answer(checkpoint.load(args.directory), read_tokens(args.directory / args.tokens), numerics_of(args), args.taps)
    if args.logits:
        write_f32(args.directory / args.logits, got.logits)
    if args.selected:
        write_selected(args.directory / args.selected, got.run)
    if args.taps:
        write_taps(args.directory / args.taps_out, args.taps, got.taps)


if __name__ == "__main__":
    main()
