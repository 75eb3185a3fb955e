"""English-French sentences whose word alignments are known.

    >>> print(format_alignment(load_example("car")))
            he bought the big red car
    il      #    .     .   .   .   .
    a       .    o     .   .   .   .
    acheté  .    #     .   .   .   .
    la      .    .     #   .   .   .
    grande  .    .     .   #   .   .
    voiture .    .     .   .   .   #
    rouge   .    .     .   .   #   .

A grammar written for this book generated them; no English sentence has two
translations. Everything is in lower case and without punctuation, and what
French writes together with an apostrophe is two words: ``l' animal``.

Source: workshop/derive/grammar.py. Sure and possible links: Och and Ney 2003,
    section 5, https://aclanthology.org/J03-1002/; ours are known by
    construction, not annotated. The animal that was too tired, or the street
    too wide: Uszkoreit 2017,
    https://research.google/blog/transformer-a-novel-neural-network-architecture-for-language-understanding/
Axes: links are (target position, source position), counted from 0.
"""

from dataclasses import dataclass
from functools import cache

from attnbook.data import Pair, Splits, read_lines

EXAMPLES = ("car", "tired", "wide")


@dataclass(frozen=True)
class Aligned(Pair):
    """A sentence, its translation, and which words belong together.

    Attributes:
        sure: links (target position, source position) nobody would dispute.
        possible: these, and links that are a matter of taste.
    """

    sure: frozenset[tuple[int, int]] = frozenset()
    possible: frozenset[tuple[int, int]] = frozenset()


def format_alignment(pair: Aligned) -> str:
    """Draw the links: # is sure, o is possible."""
    width = max(map(len, pair.target))
    lines = [" ".join(["".ljust(width), *pair.source])]
    for row, word in enumerate(pair.target):
        cells = [word.ljust(width)]
        for column, english in enumerate(pair.source):
            link = row, column
            mark = "o" if link in pair.possible else "."
            mark = "#" if link in pair.sure else mark
            cells.append(mark.center(len(english)))
        lines.append(" ".join(cells).rstrip())
    return "\n".join(lines)


@cache
def load() -> Splits:
    """Return 20,000 sentences to learn from, 1,000 to choose, 1,000 to test.

    All have 3 to 20 English words, and no sentence occurs twice.
    """
    return Splits(*(_read_set(name) for name in ("train", "valid", "test")))


def load_long() -> tuple[Aligned, ...]:
    """Return 1,000 sentences of 21 to 40 words: longer than those of `load`."""
    return _read_set("long")


def load_short(longest: int) -> tuple[Aligned, ...]:
    """Return distinct sentences of 3 words and more, for models of a minute.

    Args:
        longest: 8 for 6,600 sentences of at most 8 words, 10 for 20,600 of at
            most 10.

    Raises:
        ValueError: for any other length.
    """
    if longest not in (8, 10):
        raise ValueError(f"there are sentences of up to 8 or 10 words, not {longest}")
    return _read_set(f"up to {longest}")


def load_example(name: str) -> Aligned:
    """Return a well-known sentence, in none of the other sets.

    Args:
        name: "car" (he bought the big red car), "tired" or "wide" (the animal
            didn't cross the street because it was too ...).

    Raises:
        ValueError: if there is no such sentence.
    """
    if name not in EXAMPLES:
        raise ValueError(f"no example is named {name!r}; there are {[*EXAMPLES]}")
    return _read_set(name)[0]


@cache
def _read_all() -> dict[str, list[list[str]]]:
    rows: dict[str, list[list[str]]] = {}
    for line in read_lines("grammar/sentences.tsv.bz2"):
        name, *columns = line.split("\t")
        rows.setdefault(name, []).append(columns)
    return rows


@cache
def _read_set(name: str) -> tuple[Aligned, ...]:
    return tuple(_parse(*columns) for columns in _read_all()[name])


def _parse(english: str, french: str, links: str) -> Aligned:
    sure, possible = set(), set()
    for link in links.split():
        row, column = map(int, link.replace("?", "-").split("-"))
        possible.add((row, column))
        if "-" in link:
            sure.add((row, column))
    source, target = tuple(english.split()), tuple(french.split())
    return Aligned(source, target, sure=frozenset(sure), possible=frozenset(possible))
