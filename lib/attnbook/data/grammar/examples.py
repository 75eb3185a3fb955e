"""Sentences of the grammar that everybody quotes, built by its own rules.

Source: the tired animal and the wide street: Uszkoreit 2017, "Transformer: A
    Novel Neural Network Architecture for Language Understanding",
    https://research.google/blog/transformer-a-novel-neural-network-architecture-for-language-understanding/
"""

from attnbook.data.grammar.build import (
    DETERMINER,
    build_adjective_phrase,
    build_noun_phrase,
    build_pronoun,
    build_pronoun_for,
)
from attnbook.data.grammar.conjugate import build_copula, build_verb_group
from attnbook.data.grammar.lexicon import ADJECTIVE, NOUN, VERB
from attnbook.data.grammar.phrases import Phrase, join, parse_phrase

THE = DETERMINER["the"]


def build_place_example() -> Phrase:
    """I am here: je suis ici."""
    subject = build_pronoun("i")
    predicate = build_copula(subject, "present", parse_phrase("here / ici"))
    return join(subject.phrase, predicate)


def build_car_example() -> Phrase:
    """He bought the big red car: il a acheté la grande voiture rouge."""
    subject = build_pronoun("he")
    looks = ADJECTIVE["big"], ADJECTIVE["red"]
    bought = build_verb_group(VERB["buy"], subject, "past")
    thing = build_noun_phrase(THE, NOUN["car"], adjectives=looks)
    return join(subject.phrase, bought, thing.phrase)


def build_animal_example(adjective: str) -> Phrase:
    """The animal didn't cross the street because it was too ...

    What "it" is, and so its gender in French, hangs on the last word.

    Args:
        adjective: "tired" is said of the animal, "wide" of the street.
    """
    if adjective not in ADJECTIVE:
        raise ValueError(
            f"{adjective!r} is not an adjective of the grammar, "
            f"which has {sorted(ADJECTIVE)}"
        )
    crosser = build_noun_phrase(THE, NOUN["animal"])
    street = build_noun_phrase(THE, NOUN["street"])
    didnt = build_verb_group(VERB["cross"], crosser, "past", "not")
    kinds = ADJECTIVE[adjective].kinds
    it = [build_pronoun_for(each) for each in (crosser, street)]
    it = [each for each in it if each.kind in kinds]
    if len(it) != 1:
        raise ValueError(
            f"{adjective!r} must be said of either the animal or the street, "
            f"not of {len(it)} of them"
        )
    too = build_adjective_phrase(ADJECTIVE[adjective], it[0], "too / trop")
    because = parse_phrase("because / parce que|qu'")
    was = build_copula(it[0], "past", too)
    first = join(crosser.phrase, didnt, street.phrase)
    return join(first, because, it[0].phrase, was)
