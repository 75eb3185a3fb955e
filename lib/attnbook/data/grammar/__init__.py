"""A little English-French grammar: translations whose alignments are known.

    >>> from attnbook.data.grammar.build import DETERMINER, build_noun_phrase
    >>> from attnbook.data.grammar.lexicon import ADJECTIVE, NOUN
    >>> both = ADJECTIVE["big"], ADJECTIVE["red"]
    >>> car = build_noun_phrase(DETERMINER["the"], NOUN["car"], adjectives=both)
    >>> print(format_alignment(align_words(car.phrase)))
            the big red car
    la       #   .   .   .
    grande   .   #   .   .
    voiture  .   .   .   #
    rouge    .   .   #   .

The words are tables (`words` and `small_words`, read by `lexicon`). `phrases`
puts both languages and their links together, `build` and `conjugate` know the
rules of French, and `nouns`, `predicates`, `clauses` and `sentences` choose
what is said; `examples` builds a few well-known sentences. English
decides: no sentence has two translations. Everything is in lower case and
without punctuation, and what French writes together with an apostrophe is two
words: ``l' animal``, ``qu' il``.

Source: written for this book. Sure and possible links: Och and Ney 2003,
    section 5, https://aclanthology.org/J03-1002/; ours are known by
    construction, not annotated.
Axes: links are (target position, source position), counted from 0.
"""

from dataclasses import dataclass
from functools import cache
from random import Random

from attnbook.data import Pair, Splits
from attnbook.data.grammar.phrases import Phrase, write_pair
from attnbook.data.grammar.sentences import choose_sentence

SHORTEST, LONGEST = 3, 40
TRAINED_LENGTH = 20
MAX_ATTEMPTS = 500


@dataclass(frozen=True)
class Aligned(Pair):
    """A sentence, its translation, and which words belong together.

    Attributes:
        sure: links (target position, source position) nobody would dispute.
        possible: these, and links that are a matter of taste.
    """

    sure: frozenset[tuple[int, int]] = frozenset()
    possible: frozenset[tuple[int, int]] = frozenset()


def align_words(phrase: Phrase) -> Aligned:
    """Finish a phrase: spell it, and count its links from 0."""
    source, target, sure, possible = write_pair(phrase)
    return Aligned(source, target, sure=sure, possible=possible)


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


def sample_pairs(
    count: int, seed: int, shortest: int = SHORTEST, longest: int = LONGEST
) -> list[Aligned]:
    """Choose distinct sentences, about as many of each length.

    Args:
        count: how many.
        seed: the same seed gives the same sentences.
        shortest: fewest English words, at least 3.
        longest: most English words, at most 40.

    Raises:
        ValueError: if the lengths are impossible, or if sentences of such
            lengths run out.
    """
    _check_request(count, shortest, longest)
    rng = Random(seed)
    made: dict[tuple[str, ...], Aligned] = {}
    misses = 0
    while len(made) < count:
        phrase = choose_sentence(rng, rng.randint(shortest, longest))
        pair = None
        if shortest <= len(phrase.english) <= longest:
            pair = align_words(phrase)
        if pair is None or pair.source in made:
            misses += 1
            if misses > MAX_ATTEMPTS:
                raise ValueError(
                    f"found only {len(made)} of {count} distinct sentences "
                    f"of {shortest} to {longest} words"
                )
            continue
        made[pair.source] = pair
        misses = 0
    return list(made.values())


def _check_request(count: int, shortest: int, longest: int) -> None:
    if count < 1:
        raise ValueError(f"count must be at least 1, not {count}")
    if shortest > longest:
        raise ValueError(
            f"shortest ({shortest}) must not be more than longest ({longest})"
        )
    if shortest < SHORTEST or longest > LONGEST:
        raise ValueError(
            f"sentences have {SHORTEST} to {LONGEST} words, not {shortest} to {longest}"
        )


@cache
def load() -> Splits:
    """Return 20,000 sentences to learn from, 1,000 to choose, 1,000 to test.

    All have 3 to 20 English words, and no sentence occurs twice.
    """
    pairs = tuple(sample_pairs(22_000, seed=15, longest=TRAINED_LENGTH))
    return Splits(pairs[:20_000], pairs[20_000:21_000], pairs[21_000:])


@cache
def load_long() -> tuple[Aligned, ...]:
    """Return 1,000 sentences of 21 to 40 words: longer than those of `load`."""
    return tuple(sample_pairs(1_000, seed=1, shortest=TRAINED_LENGTH + 1))
