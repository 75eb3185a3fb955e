"""Choices of the little grammar: noun phrases and places.

`room` is the number of English words that may still be said.
"""

from random import Random

from attnbook.data.grammar import small_words, words
from attnbook.data.grammar.build import (
    DETERMINER,
    DETERMINERS,
    NO,
    Determiner,
    Nominal,
    build_noun_phrase,
    build_possessive,
    build_pronoun,
)
from attnbook.data.grammar.lexicon import (
    ADJECTIVES,
    NOUNS,
    Adjective,
    Noun,
    expand_kinds,
)
from attnbook.data.grammar.phrases import Phrase, join, parse_phrase

ANY, LIVING, GOODS = (
    expand_kinds("any"),
    expand_kinds("living"),
    expand_kinds("goods"),
)
ADJECTIVES_OF = {
    kind: tuple(
        tuple(a for a in ADJECTIVES if kind in a.kinds and a.before == before)
        for before in (True, False)
    )
    for kind in ANY
}
PREPOSITIONS = tuple(
    (entry, expand_kinds(of)) for entry, of in small_words.PREPOSITIONS.items()
)
THE = DETERMINER["the"]
DEFINITE = tuple(
    each for each in DETERMINERS if each.english[0] not in ("a|an", "every", "-")
)
LOOSE = tuple(
    each
    for each in DETERMINERS
    if each.english[0] not in (*small_words.POSSESSIVE, "this", "every")
)
PEOPLE = ("i", "you", "we", "he", "she")


def draw_chance(rng: Random, probability: float) -> bool:
    """Be true with this probability."""
    return rng.random() < probability


def choose_person(rng: Random) -> Nominal:
    """Choose a pronoun that needs no antecedent."""
    name = rng.choice(PEOPLE)
    return build_pronoun(name, name == "she")


def choose_adjectives(rng: Random, kind: str, room: int) -> tuple[Adjective, ...]:
    """Choose none, one or two adjectives: one on each side in French."""
    chosen: list[Adjective] = []
    for side in ADJECTIVES_OF[kind]:
        if side and len(chosen) < room and draw_chance(rng, 0.3):
            chosen.append(rng.choice(side))
    return tuple(chosen)


def _determiner(rng: Random, noun: Noun, among: tuple[Determiner, ...]) -> Determiner:
    often_the = among is DETERMINERS and draw_chance(rng, 0.5)
    determiner = THE if often_the else rng.choice(among)
    mine = determiner.english[0] in small_words.POSSESSIVE
    return THE if mine and noun.english[0] in words.NEVER_POSSESSED else determiner


def _number(rng: Random, determiner: Determiner) -> bool:
    if "-" in determiner.english:
        return determiner.english[0] == "-"
    return draw_chance(rng, 0.3)


def choose_nominal(
    rng: Random,
    of: tuple[str, ...],
    room: int,
    determiners: tuple[Determiner, ...] = DETERMINERS,
    nested: bool = False,
) -> Nominal:
    """Choose a noun phrase of at most `room` words, at least two."""
    noun = rng.choice(NOUNS[rng.choice(of)])
    if room >= 4 and not nested and draw_chance(rng, 0.12):
        owner = choose_nominal(rng, ("person",), 2, (THE, *DEFINITE), nested=True)
        if not owner.plural:
            chosen_adjectives = choose_adjectives(rng, noun.kind, room - 4)
            return build_possessive(
                owner, noun, draw_chance(rng, 0.3), chosen_adjectives
            )
    determiner = _determiner(rng, noun, determiners)
    plural = _number(rng, determiner)
    chosen_adjectives = choose_adjectives(rng, noun.kind, room - 2)
    head = build_noun_phrase(determiner, noun, plural, chosen_adjectives)
    room -= len(head.phrase.english)
    if nested or room < 3 or noun.kind not in (*LIVING, *GOODS):
        return head
    if determiner is NO or not draw_chance(rng, 0.25):
        return head
    return head._replace(phrase=join(head.phrase, choose_place(rng, room, True)))


def choose_place(rng: Random, room: int, nested: bool = False) -> Phrase:
    """Choose a place: near the river -> près de la rivière."""
    while True:
        entry, of = rng.choice(PREPOSITIONS)
        preposition = parse_phrase(entry)
        left = room - len(preposition.english)
        if left >= 2:
            there = choose_nominal(rng, of, left, nested=nested)
            return join(preposition, there.phrase)
