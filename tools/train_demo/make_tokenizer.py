"""Train the demo model's tokenizer: make_tokenizer.py OUT  (writes OUT/tiktoken.model and OUT/tokenizer_config.json)."""
import random
import sys
from collections import Counter, defaultdict
from pathlib import Path

import documents

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "spec"))
import bpe

TOKENS = 1984
SPECIAL = ("[BOS]", "[EOS]", "<|end_of_msg|>", "<|open|>", "<|close|>", "<|sep|>", "[PAD]")


def joined(parts, pair):
    """parts with every occurrence of the pair made one, from the left."""
    out, i = [], 0
    while i < len(parts):
        step = 2 if tuple(parts[i:i + 2]) == pair else 1
        out.append(b"".join(parts[i:i + step]))
        i += step
    return out


class PairCounts:
    """How often each pair of neighbouring tokens occurs in a text, kept up to date while pairs are joined."""

    def __init__(self, text):
        self.pieces = Counter(bpe.PIECES.findall(text))
        self.parts = {piece: [bytes([byte]) for byte in piece.encode()] for piece in self.pieces}
        self.counts, self.where = Counter(), defaultdict(set)
        for piece in self.pieces:
            self._add(piece, 1)

    def _add(self, piece, sign):
        for pair in zip(self.parts[piece], self.parts[piece][1:]):
            self.counts[pair] += sign * self.pieces[piece]
            self.where[pair].add(piece)

    def commonest(self):
        """Equal counts: the pair that is later in byte order."""
        return max(self.counts, key=lambda pair: (self.counts[pair], pair))

    def join(self, pair):
        for piece in self.where.pop(pair):
            self._add(piece, -1)
            self.parts[piece] = joined(self.parts[piece], pair)
            self._add(piece, 1)
        del self.counts[pair]


def train(text, size):
    """-> {token bytes: rank}: the 256 bytes, then the union of the commonest pair, over and over."""
    ranks, pairs = {bytes([byte]): byte for byte in range(256)}, PairCounts(text)
    while len(ranks) < size:
        pair = pairs.commonest()
        ranks.setdefault(pair[0] + pair[1], len(ranks))
        pairs.join(pair)
    return ranks


def main():
    out, rng = Path(sys.argv[1]), random.Random(0)
    out.mkdir(parents=True, exist_ok=True)
    entries, essays = documents.read_jargon()
    exercises = [" ".join(documents.lookup(rng, 16)) for _ in range(100)]
    ranks = train("\n".join([definition for _, definition in entries] + essays + exercises), TOKENS)
    bpe.Tokenizer(ranks, {name: TOKENS + i for i, name in enumerate(SPECIAL)}).save(out)
    (out / "eval.txt").write_text(documents.evaluation_text((entries, essays)))


if __name__ == "__main__":
    main()
