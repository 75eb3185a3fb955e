"""The tables of `words`, read: nouns, adjectives and verbs with every form."""

from collections.abc import Iterator
from typing import NamedTuple

from attnbook.data.grammar import words


class Noun(NamedTuple):
    """A noun: its forms are (singular, plural) in each language."""

    english: tuple[str, str]
    french: tuple[str, str]
    feminine: bool
    kind: str


class Adjective(NamedTuple):
    """An adjective; `french[plural][feminine]` is the form that agrees."""

    english: str
    comparative: str | None
    french: tuple[tuple[str, str], tuple[str, str]]
    before: bool
    kinds: frozenset[str]


class Verb(NamedTuple):
    """A verb; `present` has one form a person: je, tu, il, nous, ils."""

    base: str
    third: str
    past: str
    particle: str | None
    infinitive: str
    present: tuple[str, ...]
    participle: str
    future: str
    subjects: frozenset[str]
    objects: tuple[str, ...]
    etre: bool


def expand_kinds(names: str) -> tuple[str, ...]:
    """Expand groups: ``"person place"`` -> ``("person", "way", "area")``."""
    return tuple(
        kind for name in names.split() for kind in words.KINDS.get(name, name).split()
    )


def parse_entries(table: str) -> Iterator[tuple[list[str], list[str]]]:
    """Split ``"a b / c d, e / f"`` into pairs of lists of forms."""
    for entry in table.split(","):
        english, _, french = entry.partition("/")
        yield english.split(), french.split()


def add_english_s(word: str) -> str:
    """Add the s of a plural noun or of the third person."""
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    hissing = word.endswith(("s", "x", "z", "ch", "sh")) or word == "go"
    return word + ("es" if hissing else "s")


def form_french_plural(word: str) -> str:
    """Form a regular French plural: tableaux, chevaux, souris, rues."""
    if word.endswith(("s", "x", "z")):
        return word
    if word.endswith("al"):
        return word[:-2] + "aux"
    return word + ("x" if word.endswith("eau") else "s")


def form_french_feminine(word: str) -> str:
    """Form a regular French feminine: triste, grande, fatiguée."""
    return word if word.endswith("e") else word + "e"


def parse_noun(kind: str, english: list[str], french: list[str]) -> Noun:
    """Read one noun; the last French word is its gender."""
    *forms, gender = french
    return Noun(
        (english[0], english[1] if english[1:] else add_english_s(english[0])),
        (forms[0], forms[1] if forms[1:] else form_french_plural(forms[0])),
        gender == "f",
        kind,
    )


def parse_adjective(place: str, of: str, english: list, french: list) -> Adjective:
    """Read one adjective, adding the regular forms that are not written."""
    masculine, *rest = french
    feminine = rest[0] if rest else form_french_feminine(masculine)
    plural = rest[1] if rest[1:] else form_french_plural(masculine)
    return Adjective(
        english[0],
        english[1] if english[1:] else None,
        ((masculine, feminine), (plural, form_french_plural(feminine))),
        place == "before",
        frozenset(expand_kinds(of)),
    )


def parse_verb(line: str) -> Verb:
    """Read one verb; those of the first group conjugate themselves."""
    forms, _, frame = line.partition(" : ")
    english, french = (side.split() for side in forms.split(" / "))
    subjects, _, objects = frame.partition(" > ")
    base, past, *particle = english
    infinitive, *irregular = french
    stem = infinitive[:-2]
    soft = stem + "e" if stem.endswith("g") else stem
    first = (stem + "e", stem + "es", stem + "e", soft + "ons", stem + "ent")
    *present, participle, future = irregular or [*first, stem + "é", infinitive]
    return Verb(
        base,
        base if base in ("can", "must") else add_english_s(base),
        past,
        particle[0] if particle else None,
        infinitive,
        tuple(present),
        participle,
        future,
        frozenset(expand_kinds(subjects)),
        expand_kinds(objects),
        base in words.WITH_ETRE,
    )


NOUNS = {
    kind: tuple(parse_noun(kind, *entry) for entry in parse_entries(table))
    for kind, table in words.NOUNS.items()
}
NOUN = {each.english[0]: each for group in NOUNS.values() for each in group}
ADJECTIVES = tuple(
    parse_adjective(place, of, *entry)
    for (place, of), table in words.ADJECTIVES.items()
    for entry in parse_entries(table)
)
ADJECTIVE = {each.english: each for each in ADJECTIVES}
VERBS = tuple(parse_verb(line) for line in words.VERBS.strip().splitlines())
VERB = {" ".join(filter(None, (each.base, each.particle))): each for each in VERBS}
