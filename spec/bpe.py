"""The family's tokenizer: byte-level BPE in the tiktoken file format.

tiktoken.model has a line for each token: base64 of its bytes, a space, its rank (= id). Special tokens are named in tokenizer_config.json
under added_tokens_decoder and never come from plain text.
"""
import base64
import json
from pathlib import Path

import regex

_CAPITAL = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
_SMALL = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
_LEAD, _CONTRACTION = r"[^\r\n\p{L}\p{N}]?", r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
PIECES = regex.compile("|".join((
    r"[\p{Han}]+",
    f"{_LEAD}{_CAPITAL}*{_SMALL}+{_CONTRACTION}",
    f"{_LEAD}{_CAPITAL}+{_SMALL}*{_CONTRACTION}",
    r"\p{N}{1,3}",
    r" ?[^\s\p{L}\p{N}]+[\r\n]*",
    r"\s*[\r\n]+",
    r"\s+(?!\S)",
    r"\s+",
)), regex.V1)


class Tokenizer:
    """ranks {token bytes: id}; special {name: id}."""

    def __init__(self, ranks, special):
        self.ranks, self.special, self._known = ranks, special, {}

    @staticmethod
    def load(directory):
        directory = Path(directory)
        lines = (line.split() for line in (directory / "tiktoken.model").read_text().splitlines())
        added = json.loads((directory / "tokenizer_config.json").read_text())["added_tokens_decoder"]
        return Tokenizer({base64.b64decode(token): int(rank) for token, rank in lines},
                         {entry["content"]: int(number) for number, entry in added.items()})

    def save(self, directory):
        directory = Path(directory)
        by_rank = sorted(self.ranks, key=self.ranks.get)
        (directory / "tiktoken.model").write_text("".join(f"{base64.b64encode(t).decode()} {self.ranks[t]}\n" for t in by_rank))
        config = {"added_tokens_decoder": {str(i): {"content": name, "special": True} for name, i in self.special.items()},
                  "bos_token": "[BOS]", "eos_token": "[EOS]", "tokenizer_class": "TikTokenTokenizer", "model_max_length": 1048576}
        (directory / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")

    def encode(self, text):
        """Ids of plain text: names of special tokens in it are text like any other."""
        return [i for piece in PIECES.findall(text) for i in self._piece(piece)]

    def _piece(self, piece):
        if piece not in self._known:
            data = piece.encode()
            self._known[piece] = [self.ranks[data]] if data in self.ranks else self._merge(data)
        return self._known[piece]

    def _merge(self, data):
        """From single bytes, join the neighbours whose union has the lowest rank (the leftmost of equals) until none is a token."""
        parts = [data[i:i + 1] for i in range(len(data))]
        while True:
            joined = [(self.ranks[a + b], i) for i, (a, b) in enumerate(zip(parts, parts[1:])) if a + b in self.ranks]
            if not joined:
                return [self.ranks[part] for part in parts]
            at = min(joined)[1]
            parts[at:at + 2] = [parts[at] + parts[at + 1]]

    def decode(self, ids):
        """Text of ids; bytes that are not UTF-8 become replacement characters."""
        names = {i: name.encode() for name, i in self.special.items()}
        tokens = {i: token for token, i in self.ranks.items()}
        return b"".join(names[i] if i in names else tokens[i] for i in ids).decode(errors="replace")
