"""What the demo model reads: the Jargon File as questions and answers and as essays, and lookup exercises."""
import gzip
import re
from pathlib import Path

SOURCE = Path("/usr/share/doc/jargon-text/jargon.txt.gz")       # Debian's jargon-text, version 4.4.7, public domain
QUESTIONS = ("What is {}?", "Define {}.", "{}", "What does {} mean?")
NAMES = ("red blue green gold black white amber coral jade lime navy olive pink plum ruby teal iron tin zinc lead fox owl cat dog hen bee ant "
         "elk bat cow oak elm fir ash fig pear kiwi rice corn bean salt sand rock wind rain snow fire moon star sun lake hill road ship bell "
         "drum harp lute cup pot key map").split()
LOOKUP_SIZES = (2, 4, 8, 16, 24, 32)
SHORTEST_DEFINITION = 20
ESSAY_PIECE = 1200           # tokens
LOOKUP_SHARE = 0.2           # of all tokens


# --------------------------------------------------------------------------------------------------------- the Jargon File

def unwrapped(text):
    """Paragraphs on one line each, an empty line between them."""
    paragraphs = (" ".join(p.split()) for p in re.split(r"\n\s*\n", text))
    return "\n\n".join(p for p in paragraphs if p)


def read_jargon(path=SOURCE):
    """-> (entries [(term, definition)], essays [str]): the lexicon, and the chapters before and appendices after it."""
    text = gzip.open(path, "rt", encoding="utf-8").read().replace("\N{NO-BREAK SPACE}", " ")
    chapters, lexicon = text.index("\nChapter 1. "), text.index("\n   :(TM):")
    appendices = text.index("Part III. Appendices", lexicon)
    heads = list(re.finditer(r"^   :(\S.{0,58}?):(?=\s)", text[lexicon:appendices], re.M))
    ends = [head.start() for head in heads[1:]] + [appendices - lexicon]
    entries = [(head[1], unwrapped(text[lexicon + head.end():lexicon + end])) for head, end in zip(heads, ends)]
    folklore = text.index("\nAppendix A. ", appendices)
    return ([entry for entry in entries if len(entry[1]) > SHORTEST_DEFINITION],
            [unwrapped(text[chapters:lexicon]), unwrapped(text[folklore:])])


# ---------------------------------------------------------------------------------------------------------------- documents

def lookup(rng, size):
    """-> (question, answer): "fox7 = jade; elm2 = tin | elm2?" and "tin". Keys are distinct."""
    keys = rng.sample([f"{name}{digit}" for name in NAMES for digit in range(10)], size)
    table = {key: rng.choice(NAMES) for key in keys}
    key = rng.choice(keys)
    return "; ".join(f"{k} = {v}" for k, v in table.items()) + f" | {key}?", table[key]


def chat(tokenizer, question, answer):
    """Ids of one exchange in K3's message format, thinking off: every control token and every text between two is encoded by itself."""
    text, special = tokenizer.encode, tokenizer.special
    opened = lambda tag: [special["<|open|>"], *text(tag), special["<|sep|>"]]
    closed = lambda tag: [special["<|close|>"], *text(tag), special["<|sep|>"]]
    message = lambda role, body: [*opened(f'message role="{role}"'), *body, *closed("message"), special["<|end_of_msg|>"]]
    return message("user", text(question)) + message("assistant", opened("response") + text(answer) + closed("response"))


def one_reading(tokenizer, jargon, rng):
    """-> documents (id lists) of one pass over everything, shuffled, with fresh questions and exercises."""
    entries, essays = jargon
    documents = [chat(tokenizer, rng.choice(QUESTIONS).format(term), definition) for term, definition in entries]
    for essay in map(tokenizer.encode, essays):
        documents += [essay[i:i + ESSAY_PIECE] for i in range(0, len(essay), ESSAY_PIECE)]
    wanted = sum(map(len, documents)) * LOOKUP_SHARE / (1 - LOOKUP_SHARE)
    while wanted > 0:
        documents.append(chat(tokenizer, *lookup(rng, rng.choice(LOOKUP_SIZES))))
        wanted -= len(documents[-1])
    rng.shuffle(documents)
    return documents


def windows(tokenizer, jargon, rng, length):
    """Endless lists of length+1 ids cut from documents that follow each other, each after [BOS]; windows share one id."""
    pending = []
    while True:
        for document in one_reading(tokenizer, jargon, rng):
            pending += [tokenizer.special["[BOS]"], *document]
            while len(pending) > length:
                yield pending[:length + 1]
                pending = pending[length:]


def evaluation_text(jargon, every=97, essay=6000):
    """Some definitions and the beginning of the essays, as plain text."""
    entries, essays = jargon
    return "\n\n".join(f"{term}: {definition}" for term, definition in entries[::every]) + "\n\n" + essays[0][:essay] + "\n"
