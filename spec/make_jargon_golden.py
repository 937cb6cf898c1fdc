"""Float64 answers of the bundled model on its evaluation text.

    make_jargon_golden.py MODEL OUT

MODEL is models/jargon-k31. The text is [BOS] and MODEL/eval.txt as one sequence. tests/golden/jargon/README.md describes the files.
"""
import sys
from pathlib import Path

import answers
import bpe
import checkpoint
import gaps
import k31

PREFIX = 512
NUMERICS = (k31.Numerics(), k31.Numerics("bf16", "bf16"), k31.Numerics("bf16", "mxfp8", "floor"), k31.Numerics("bf16", "mxfp8", "ceil"))


def eval_tokens(directory):
    """[BOS] and the ids of eval.txt."""
    tokenizer = bpe.Tokenizer.load(directory)
    return [tokenizer.special["[BOS]"]] + tokenizer.encode((directory / "eval.txt").read_text())


def nll_lines(model, ids):
    """A line per length and numerics: `cache li scale-rule tokens predictions nll`."""
    for count in (PREFIX, len(ids)):
        for n in NUMERICS:
            got = answers.answer(model, ids[:count], n, watch=False)
            yield f"{n.cache} {n.li} {n.li_scale} {count} {count - 1} {answers.mean_nll(got.logits, ids[:count]):.9f}"


def write_gaps(path, run, config):
    """`router|selection GAP layer L token T` for the smallest of each token, in order of tokens."""
    lines = [f"{kind} {gap:.6g} layer {layer + 1} token {t}"
             for kind, (values, layers) in gaps.smallest(run, config).items()
             for t, (gap, layer) in enumerate(zip(values.tolist(), layers.tolist()))]
    Path(path).write_text("\n".join(lines) + "\n")


def main():
    directory, out = Path(sys.argv[1]), Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    model, ids = checkpoint.load(directory), eval_tokens(directory)
    answers.write_tokens(out / "eval_tokens.txt", ids)
    answers.write_tokens(out / "tokens.txt", ids[:PREFIX])
    got = answers.answer(model, ids[:PREFIX])
    answers.write_f32(out / "logits.f32", got.logits)
    answers.write_selected(out / "selected.txt", got.run)
    write_gaps(out / "gaps.txt", got.run, model.c)
    (out / "nll.txt").write_text("\n".join(nll_lines(model, ids)) + "\n")


if __name__ == "__main__":
    main()
