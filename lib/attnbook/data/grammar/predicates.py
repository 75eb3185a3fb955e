"""Choices of the little grammar: what a clause can say with "to be"."""

from random import Random
from typing import NamedTuple

from attnbook.data.grammar import small_words, words
from attnbook.data.grammar.build import (
    Nominal,
    build_adjective_phrase,
    build_comparison,
)
from attnbook.data.grammar.conjugate import build_copula
from attnbook.data.grammar.lexicon import Adjective, Verb
from attnbook.data.grammar.nouns import (
    ADJECTIVES_OF,
    DEFINITE,
    LIVING,
    THE,
    choose_nominal,
    choose_place,
    draw_chance,
)
from attnbook.data.grammar.phrases import Phrase, join, parse_phrase

OFTEN = tuple(small_words.ADVERBS)
UNMOVED = ("way", "area", "building")


class Clause(NamedTuple):
    """A clause, and what the next one may refer back to."""

    phrase: Phrase
    subject: Nominal
    time: str
    object: Nominal | None = None
    verb: Verb | None = None


def choose_modifier(rng: Random, subject: Nominal, room: int, time: str) -> str | None:
    """Choose a negation, an adverb, or usually nothing."""
    draw = rng.random()
    negatable = subject.phrase.english[0].text != "every"
    if draw < 0.22 and room >= 2 and negatable:
        return "not"
    if draw < 0.27 and room and negatable:
        return "never"
    if draw < 0.36 and room:
        return rng.choice(OFTEN if time == "past" else OFTEN[:3])
    return None


def choose_adverbials(rng: Random, room: int, time: str | None, moves: bool) -> Phrase:
    """Choose where, how and when, as far as there is room."""
    built = []
    if moves and room >= 1 and draw_chance(rng, 0.2):
        built.append(parse_phrase(rng.choice(small_words.MANNERS)))
        room -= 1
    if room >= 3 and draw_chance(rng, 0.8):
        built.append(choose_place(rng, room))
        room -= len(built[-1].english)
    if time and room >= 1 and draw_chance(rng, 0.7):
        when = parse_phrase(rng.choice(small_words.WHEN[time]))
        if len(when.english) <= room:
            built.append(when)
    return join(*built)


def choose_degree(
    rng: Random, adjective: Adjective, subject: Nominal, room: int
) -> Phrase:
    """Choose "too tired", "very tired" or "tired"."""
    degree = rng.choice(("too / trop", "very / très", None))
    if room < 2 or adjective.english in words.WITHOUT_DEGREE:
        degree = None
    return build_adjective_phrase(adjective, subject, degree)


def _complement(rng: Random, subject: Nominal, room: int) -> Phrase:
    before, after = ADJECTIVES_OF[subject.kind]
    adjective = rng.choice(before + after)
    draw = rng.random()
    stays = subject.kind in UNMOVED
    if room >= 3 and draw < 0.4 and not stays:
        return choose_place(rng, room)
    if room >= 4 and adjective.comparative and draw < 0.8:
        of = LIVING if subject.kind in LIVING else (subject.kind,)
        than = choose_nominal(rng, of, room - 2, (THE, *DEFINITE))
        return build_comparison(adjective, subject, than)
    if draw < 0.5 and not stays:
        return parse_phrase(rng.choice(small_words.PLACES))
    return choose_degree(rng, adjective, subject, room)


def choose_copula_clause(
    rng: Random, subject: Nominal, room: int, time: str, dated: bool = False
) -> Clause:
    """Choose "is too tired", "wasn't older than the dog", "is here"."""
    how = choose_modifier(rng, subject, room - 3, time)
    room -= 1 + (time == "future") + (2 if how == "not" else bool(how))
    complement = _complement(rng, subject, room)
    room -= len(complement.english)
    built = build_copula(subject, time, complement, how, draw_chance(rng, 0.6))
    free = not dated and how in (None, "not")
    if free and room and draw_chance(rng, 0.6):
        built = join(built, choose_adverbials(rng, min(room, 2), time, False))
    return Clause(built, subject, time)
