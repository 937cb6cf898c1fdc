"""Run day0 on a checkpoint and judge its logits, and optionally its selections, against the float64 specification.

    compare.py DIR [--day0 PATH] [--tokens FILE | --text FILE] [--golden FILE] [--select FILE]
                   [--cache f32|bf16] [--li f32|bf16|mxfp8] [--li-scale floor|ceil]
                   [--max-rms X] [--max-position X] [--max-kl X] [--max-kl-position X] [--max-nll X] [--max-argmax N] [--min-agreement X]
                   [-- DAY0_FLAGS ...]

day0 is called as `day0 logits -m DIR --tokens FILE --out FILE [--dump select=FILE] DAY0_FLAGS`. --tokens: ids (default DIR/tokens.txt);
--text: text, tokenized here after [BOS]. The right answers come from the specification under --cache, --li and --li-scale, or from files:
--golden logits.f32, and --select selected.txt. `--select spec` compares selections with the specification. 
Relative RMS is rms(got - want) / rms(want) over all logits; a position's figure is the rms of its difference over the same rms(want). KL is from
float64 to day0, a position at a time. Exit status 1: a bound was exceeded, or a figure is not a number.
"""
import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

import answers
import bpe
import checkpoint

CLEAR_MARGIN = 1e-3          # an argmax counts where float64's two best logits are at least this far apart
BOUNDS = {"max_rms": "relative RMS", "max_position": "worst position", "max_kl": "KL mean", "max_kl_position": "KL max",
          "max_nll": "NLL relative difference", "max_argmax": "argmax disagreements"}


def parse_arguments():
    cut = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--day0", default="./day0")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--tokens", type=Path)
    source.add_argument("--text", type=Path)
    parser.add_argument("--golden", type=Path)
    parser.add_argument("--select")
    for name in BOUNDS:
        parser.add_argument("--" + name.replace("_", "-"), type=float, default=float("inf"))
    parser.add_argument("--min-agreement", type=float, default=0.0, help="share of selected positions that agree, in every layer")
    answers.add_numerics(parser)
    args = parser.parse_args(sys.argv[1:cut])
    args.flags = sys.argv[cut + 1:]
    return args


def tokens_of(args):
    if not args.text:
        return answers.read_tokens(args.tokens or args.directory / "tokens.txt")
    tokenizer = bpe.Tokenizer.load(args.directory)
    return [tokenizer.special["[BOS]"]] + tokenizer.encode(args.text.read_text())


def run_day0(args, ids, work):
    """-> (logits float64 [T,vocab], selections or None)."""
    answers.write_tokens(work / "tokens.txt", ids)
    command = [args.day0, "logits", "-m", str(args.directory), "--tokens", str(work / "tokens.txt"), "--out", str(work / "logits.f32")]
    if args.select:
        command += ["--dump", f"select={work / 'selected.txt'}"]
    subprocess.run(command + args.flags, check=True)
    logits = read_logits(work / "logits.f32", len(ids))
    return logits, answers.read_selected(work / "selected.txt") if args.select else None


def read_logits(path, length):
    """float32 file of `length` rows -> float64 [T,vocab]."""
    return torch.from_numpy(np.fromfile(path, "<f4").reshape(length, -1)).double()


def expected(args, ids):
    """-> (logits float64 [T,vocab], selections or None), from files or from the specification."""
    if not args.golden or args.select == "spec":
        got = answers.answer(checkpoint.load(args.directory), ids, answers.numerics_of(args), watch=args.select == "spec")
    logits = read_logits(args.golden, len(ids)) if args.golden else got.logits
    if args.select == "spec":
        return logits, answers.selected(got.run)
    return logits, answers.read_selected(args.select) if args.select else None


def judge(got, want, ids):
    """Two [T,vocab] and the tokens -> {figure: value}."""
    scale = want.square().mean().sqrt()
    position = (got - want).square().mean(-1).sqrt() / scale
    best_two = want.topk(2, -1).values
    clear = best_two[:, 0] - best_two[:, 1] > CLEAR_MARGIN
    differs = clear & (got.argmax(-1) != want.argmax(-1))
    log_p, log_q = want.log_softmax(-1), got.log_softmax(-1)
    kl = (log_p.exp() * (log_p - log_q)).sum(-1)
    nll, nll_want = answers.mean_nll(got, ids), answers.mean_nll(want, ids)
    return {"relative RMS": ((got - want).square().mean().sqrt() / scale).item(),
            "worst position": position.max().item(), "worst position at": int(position.argmax()),
            "argmax disagreements": int(differs.sum()), "argmax judged": int(clear.sum()), "KL mean": kl.mean().item(), "KL max": kl.max().item(),
            "NLL": nll, "NLL float64": nll_want, "NLL relative difference": abs(nll - nll_want) / abs(nll_want)}


def agreement(got, want):
    """Two {(layer, token): positions} -> {layer: (share of the wanted positions that were taken, rows that differ, rows)}."""
    result = {}
    for layer in sorted({layer for layer, _ in want}):
        rows = [(got.get((l, t), set()), positions) for (l, t), positions in want.items() if l == layer]
        taken, wanted = sum(len(a & b) for a, b in rows), sum(len(b) for _, b in rows)
        result[layer] = taken / wanted, sum(a != b for a, b in rows), len(rows)
    return result


def main():
    args = parse_arguments()
    ids, failed = tokens_of(args), False
    with tempfile.TemporaryDirectory() as work:
        got, got_selected = run_day0(args, ids, Path(work))
    want, want_selected = expected(args, ids)
    if got.shape != want.shape:
        sys.exit(f"day0 wrote logits {tuple(got.shape)}, the specification has {tuple(want.shape)}")
    figures = judge(got, want, ids)
    for name, value in figures.items():
        print(f"{name:24} {value:.6g}" if isinstance(value, float) else f"{name:24} {value}")
    for bound, name in BOUNDS.items():
        limit = getattr(args, bound)
        if not figures[name] <= limit:
            print(f"FAIL {name}: {figures[name]:.3g} is not within {limit:.3g}")
            failed = True
    for layer, (share, differ, rows) in (agreement(got_selected, want_selected) if args.select else {}).items():
        print(f"selection in layer {layer:<5} {share:.6f} of positions agree, {differ} of {rows} rows differ")
        if share < args.min_agreement:
            print(f"FAIL selection in layer {layer}: agreement {share:.6f} is under {args.min_agreement}")
            failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
