"""Choices of the little grammar: verbs, their objects, and clauses."""

from random import Random

from attnbook.data.grammar import words
from attnbook.data.grammar.build import (
    DETERMINERS,
    NO,
    Determiner,
    Nominal,
    build_coordination,
    build_pronoun,
)
from attnbook.data.grammar.conjugate import build_verb_group
from attnbook.data.grammar.lexicon import VERB, VERBS, Verb
from attnbook.data.grammar.nouns import (
    ANY,
    DEFINITE,
    LIVING,
    LOOSE,
    THE,
    choose_nominal,
    choose_person,
    draw_chance,
)
from attnbook.data.grammar.phrases import Phrase, join, parse_phrase
from attnbook.data.grammar.predicates import (
    Clause,
    choose_adverbials,
    choose_copula_clause,
    choose_modifier,
)

SPECIAL = (*words.MODALS, *words.OF_SPEECH, "go")
PLAIN = tuple(verb for verb in VERBS if verb.base not in SPECIAL)
ACTS = {
    kind: {
        objects: tuple(
            verb
            for verb in PLAIN
            for _ in range(4 if verb.base == words.OFTEN_SAID else 1)
            if kind in verb.subjects and bool(verb.objects) == objects
        )
        for objects in (False, True)
    }
    for kind in LIVING
}
MODALS = tuple(VERB[name] for name in ("can", "must", "want to"))
TIMES = ("past",) * 4 + ("present",) * 4 + ("future",) * 2
FOR = ("buy", "draw", "find", "choose")
DEEP = 2
FIRST = {0: (0, 3), 1: (1,), 3: (0, 3)}  # nobody sees "me" or "us" twice


def choose_noun_phrase(
    rng: Random,
    of: tuple[str, ...],
    room: int,
    depth: int = 0,
    only: tuple[Determiner, ...] = DETERMINERS,
) -> Nominal:
    """Choose a noun phrase, perhaps with a relative clause."""
    if room < 5 or depth >= DEEP or not draw_chance(rng, min(0.7, room / 16)):
        return choose_nominal(rng, of, room, only, nested=depth > 1)
    only = LOOSE if only is DETERMINERS else (THE,)
    head = choose_nominal(rng, of, rng.randint(2, room - 3), only, nested=True)
    room -= len(head.phrase.english)
    clause = choose_relative_clause(rng, head, room, depth + 1)
    return head._replace(phrase=join(head.phrase, clause))


def choose_relative_clause(rng: Random, head: Nominal, room: int, depth: int) -> Phrase:
    """Choose "who saw the dog" or "that the king bought"."""
    time = rng.choice(("past", "past", "present"))
    if head.kind in LIVING and (room < 4 or draw_chance(rng, 0.6)):
        who = "who / qui" if head.kind == "person" else "that / qui"
        mine = choose_verb_clause(rng, head, room - 1, time, depth)
        return join(parse_phrase(who), mine.phrase)
    subject = choose_person(rng)
    if room >= 4 and draw_chance(rng, 0.6):
        subject = choose_nominal(rng, ("person",), room - 2, nested=True)
    verb = rng.choice(ACTS["person"][True])
    while head.kind not in verb.objects or verb.particle:
        verb = rng.choice(ACTS["person"][True])
    room -= len(subject.phrase.english) + 2
    how = choose_modifier(rng, subject, room, time)
    built = build_verb_group(verb, subject, time, how, before=head)
    return join(parse_phrase("that / que|qu'"), subject.phrase, built)


def choose_verb_clause(
    rng: Random,
    subject: Nominal,
    room: int,
    time: str,
    depth: int = 0,
    dated: bool = False,
) -> Clause:
    """Choose a verb and what belongs to it, for a living subject."""
    total = room
    room -= 1 + (time == "future")
    how = choose_modifier(rng, subject, room - 1, time)
    room -= 2 if how == "not" else bool(how)
    modal = None
    if time == "present" and room >= 2 and draw_chance(rng, 0.3):
        modal = rng.choice(MODALS)
        room -= 2
    short = draw_chance(rng, 0.6)
    verb, clitic, thing, after = _complement(
        rng, subject, room, depth, how in ("not", "never")
    )
    group = build_verb_group(
        verb, subject, time, how, clitic=clitic, modal=modal, short=short
    )
    built = join(group, after)
    room = total - len(built.english)
    free = not (dated or depth) and how in (None, "not")
    moves = verb.base in words.SLOWLY
    built = join(built, choose_adverbials(rng, room, time if free else None, moves))
    return Clause(built, subject, time, thing, verb)


def _complement(
    rng: Random, subject: Nominal, room: int, depth: int, negated: bool
) -> tuple[Verb, Nominal | None, Nominal | None, Phrase]:
    """Choose a verb, its object pronoun or noun, and what follows it."""
    nothing = Phrase([], [])
    if room >= 3 and draw_chance(rng, 0.08):
        there = choose_nominal(rng, ("building",), room - 1, (THE, *DEFINITE))
        return (
            VERB["go"],
            None,
            None,
            join(parse_phrase("to / à"), there.phrase),
        )
    if room < 1 or (room != 2 and draw_chance(rng, 0.15 + 0.5 * (room < 3))):
        return rng.choice(ACTS[subject.kind][False]), None, None, nothing
    verb = rng.choice(ACTS[subject.kind][True])
    room -= verb.particle is not None
    living = set(LIVING) <= set(verb.objects)
    if living and room >= 1 and (room < 2 or draw_chance(rng, 0.2)):
        clitic = choose_person(rng)
        if subject.person not in FIRST.get(clitic.person, ()):
            return verb, clitic, None, nothing
    if room < 2:
        return rng.choice(ACTS[subject.kind][False]), None, None, nothing
    only = (THE, *DEFINITE, NO, NO, NO) if negated else DETERMINERS
    to = verb.base in words.WITH_RECIPIENT and "to / à"
    to = to or (verb.base in FOR and draw_chance(rng, 0.4) and "for / pour")
    if to and room >= 5:
        return verb, None, *_to_whom(rng, verb, to, room, only)
    size = rng.randint(2, room) if draw_chance(rng, 0.5) else room
    thing = choose_noun_phrase(rng, verb.objects, size, depth, only)
    return verb, None, thing, thing.phrase


def _to_whom(
    rng: Random, verb: Verb, to: str, room: int, only: tuple[Determiner, ...]
) -> tuple[Nominal, Phrase]:
    """Choose "the book to the queen"."""
    thing = choose_nominal(rng, verb.objects, room - 3, only, nested=True)
    left = room - len(thing.phrase.english) - 1
    whom = choose_nominal(rng, ("person",), left, nested=True)
    return thing, join(thing.phrase, parse_phrase(to), whom.phrase)


def choose_subject(rng: Random, room: int, they: bool) -> Nominal:
    """Choose what a clause is about, leaving room for a predicate."""
    if draw_chance(rng, 0.7 if room < 3 else 0.22):
        if they and draw_chance(rng, 0.15):
            return build_pronoun("they")
        return choose_person(rng)
    draw = rng.random()
    size = rng.randint(2, max(2, min(room - 2, 2 + room // 2)))
    if draw < 0.1 and size >= 5:
        kind = (rng.choice(LIVING),)
        first = choose_nominal(rng, kind, size - 3, nested=True)
        left = size - 1 - len(first.phrase.english)
        return build_coordination(first, choose_nominal(rng, kind, left, nested=True))
    if draw < 0.8 or room < 4:
        return choose_noun_phrase(rng, LIVING, size)
    return choose_noun_phrase(rng, ANY, size)


def choose_clause(
    rng: Random,
    room: int,
    subject: Nominal,
    time: str,
    dated: bool = False,
) -> Clause:
    """Choose a clause of about `room` words about `subject`."""
    left = room - len(subject.phrase.english)
    if subject.kind not in LIVING or (left >= 2 and draw_chance(rng, 0.25)):
        built = choose_copula_clause(rng, subject, left, time, dated)
    else:
        built = choose_verb_clause(rng, subject, left, time, 0, dated)
    return built._replace(phrase=join(subject.phrase, built.phrase))
