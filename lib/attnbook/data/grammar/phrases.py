"""Phrases in two languages at once, with the links between their words.

An English word is an object with an identity; a French word names the English
words it translates. So phrases are put together by plain concatenation, each
language in its own order, and links take care of themselves. At the very end
`finish` lets neighbouring words merge (``le animal`` -> ``l' animal``,
``de le roi`` -> ``du roi``) and turns identities into positions.

Source: sure and possible links: Och and Ney 2003, "A Systematic Comparison of
    Various Statistical Alignment Models", section 5,
    https://aclanthology.org/J03-1002/. Ours are known by construction.
Axes: links are (target position, source position), counted from 0.
"""

from functools import cache
from typing import NamedTuple

ENGLISH_VOWELS = "aeiou"
FRENCH_VOWELS = "aeiouhâàéèêëîïôœ"
ASPIRATED = ("hibou",)
MERGED = {
    ("de", "le"): "du",
    ("de", "les"): "des",
    ("à", "le"): "au",
    ("à", "les"): "aux",
}


class Word:
    """One occurrence of an English word (compared by identity)."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        """Hold the word's text."""
        self.text = text


class French(NamedTuple):
    """A French word, the words it surely translates, and perhaps others."""

    text: str
    sure: tuple[Word, ...] = ()
    possible: tuple[Word, ...] = ()


class Phrase(NamedTuple):
    """The same thing said in both languages."""

    english: list[Word]
    french: list[French]


def join(*phrases: Phrase) -> Phrase:
    """Concatenate phrases whose order is the same in both languages."""
    return Phrase(
        [word for phrase in phrases for word in phrase.english],
        [word for phrase in phrases for word in phrase.french],
    )


@cache
def _read(side: str) -> tuple[tuple[str, str], ...]:
    return tuple(
        (word.rstrip("123"), word[len(word.rstrip("123")) :]) for word in side.split()
    )


def parse_phrase(entry: str) -> Phrase:
    """Make a phrase of a line such as ``"near1 / près1 de|d'"``.

    Equal digits are sure links, a word without one may go with every word of
    the other side; if there is no digit at all, every link is sure.
    """
    left, _, right = entry.partition(" / ")
    english = [(Word(text), digit) for text, digit in _read(left)]
    everything = tuple(word for word, _ in english)
    digits = any(digit for _, digit in english)
    french = []
    for text, digit in _read(right):
        if not digits:
            french.append(French(text, everything))
        elif digit:
            sure = tuple(word for word, tag in english if tag == digit)
            loose = tuple(word for word, tag in english if not tag)
            french.append(French(text, sure, loose))
        else:
            french.append(French(text, (), everything))
    return Phrase(list(everything), french)


def _before(text: str, following: str, vowels: str) -> str:
    """Choose between the two forms of ``x|y`` by the next word's start."""
    consonant, _, vowel = text.partition("|")
    if not vowel or not following or following.startswith(ASPIRATED):
        return consonant
    return vowel if following[0] in vowels else consonant


def write_english(english: list[Word]) -> tuple[str, ...]:
    """Write the English words out: ``a|an`` depends on the next word."""
    texts: list[str] = [""]
    for word in reversed(english):
        texts.append(_before(word.text, texts[-1], ENGLISH_VOWELS))
    return tuple(texts[:0:-1])


def merge_french(french: list[French]) -> list[French]:
    """Let neighbours meet: l' animal, n' a pas, du roi, cet hôpital."""
    done = [French("")]
    for word in reversed(french):
        after = done[-1]
        text = _before(word.text, after.text, FRENCH_VOWELS)
        both = MERGED.get((text, after.text))
        if both:
            done[-1] = French(
                both, word.sure + after.sure, word.possible + after.possible
            )
        else:
            done.append(French(text, word.sure, word.possible))
    return done[:0:-1]


def write_pair(phrase: Phrase) -> tuple:
    """Spell both sides and turn links into (target, source) positions."""
    french = merge_french(phrase.french)
    place = {word: index for index, word in enumerate(phrase.english)}
    sure: set[tuple[int, int]] = set()
    possible: set[tuple[int, int]] = set()
    for index, word in enumerate(french):
        sure.update((index, place[source]) for source in word.sure)
        possible.update((index, place[source]) for source in word.possible)
    return (
        write_english(phrase.english),
        tuple(word.text for word in french),
        frozenset(sure),
        frozenset(sure | possible),
    )
