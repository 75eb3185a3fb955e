"""Choices of the little grammar: how clauses follow one another.

A pronoun means the subject of the clause before. Only "it" or "they" with a
word that is said of places alone ("wide") means that clause's object.
"""

from random import Random

from attnbook.data.grammar import small_words, words
from attnbook.data.grammar.build import Nominal, build_pronoun_for
from attnbook.data.grammar.clauses import (
    ACTS,
    TIMES,
    choose_clause,
    choose_subject,
    choose_verb_clause,
)
from attnbook.data.grammar.conjugate import build_copula, build_verb_group
from attnbook.data.grammar.lexicon import ADJECTIVE, VERB, expand_kinds
from attnbook.data.grammar.nouns import ADJECTIVES_OF, draw_chance
from attnbook.data.grammar.phrases import Phrase, join, parse_phrase
from attnbook.data.grammar.predicates import (
    Clause,
    choose_degree,
    choose_modifier,
)

AND, BUT, WHEN = "and / et", "but / mais", "when / quand"
BECAUSE = "because / parce que|qu'"
JOINTS = (AND, AND, BUT, BECAUSE, BECAUSE, WHEN)
GOODS, PLACES = expand_kinds("goods"), expand_kinds("place")
WIDE = tuple(ADJECTIVE[name] for name in words.SAID_OF_PLACES_ONLY)
LONGEST_CLAUSE = 12


def choose_sentence(rng: Random, room: int) -> Phrase:
    """Choose a sentence of about `room` English words."""
    built, latest = [], None
    if room >= 7 and draw_chance(rng, 0.08):
        latest = _speech(rng)
        built.append(latest.phrase)
    dated = not latest and room >= 5 and draw_chance(rng, 0.08)
    time = rng.choice(TIMES)
    if dated:
        built.append(parse_phrase(rng.choice(small_words.WHEN[time])))
    room -= sum(len(phrase.english) for phrase in built)
    subject = _subject(rng, _share(rng, room), latest)
    latest = choose_clause(rng, _share(rng, room), subject, time, dated)
    built.append(latest.phrase)
    room -= len(latest.phrase.english)
    joint = None
    while room >= 3:
        joint = _joint(rng, joint, latest)
        latest = _next(rng, _share(rng, room) - 1, latest, joint)
        built += parse_phrase(joint), latest.phrase
        room -= 1 + len(latest.phrase.english)
    return join(*built)


def _share(rng: Random, room: int) -> int:
    """Choose how many of the words that are left the next clause may use."""
    if room <= 6 or (room <= LONGEST_CLAUSE and draw_chance(rng, 0.5)):
        return room
    return rng.randint(4, min(LONGEST_CLAUSE, room - 3))


def _speech(rng: Random) -> Clause:
    """Choose "the king says that"; the rest is about any time."""
    subject = choose_subject(rng, 3, they=True)
    while subject.kind != "person":
        subject = choose_subject(rng, 3, they=True)
    verb = VERB[rng.choice(words.OF_SPEECH)]
    built = build_verb_group(verb, subject, "present")
    phrase = join(subject.phrase, built, parse_phrase("that / que|qu'"))
    return Clause(phrase, subject, "present")


def _subject(rng: Random, room: int, latest: Clause | None):
    """Choose a new subject, or the pronoun for the one before."""
    if latest and (room < 3 or draw_chance(rng, 0.5)):
        return build_pronoun_for(latest.subject)
    return choose_subject(rng, room, they=latest is None)


def _joint(rng: Random, last: str | None, latest: Clause) -> str:
    """Choose a conjunction, not the same twice in a row."""
    crossed = latest.object and latest.object.kind in PLACES
    while True:
        joint = rng.choice(JOINTS + (BECAUSE,) * 3 if crossed else JOINTS)
        if joint != last and (joint != WHEN or latest.time != "future"):
            return joint


def _next(rng: Random, room: int, latest: Clause, joint: str) -> Clause:
    """Choose a clause that follows `latest` after the conjunction `joint`."""
    time = "present" if latest.time == "future" else latest.time
    if joint in (AND, BUT):
        if latest.subject.kind in ACTS and draw_chance(rng, 0.4):
            return _same_subject(rng, room, latest)
        time = rng.choice(TIMES)
    thing = latest.object
    wide = joint == BECAUSE and thing and thing.kind in PLACES
    if wide and room >= 3 and draw_chance(rng, 0.5):
        return _wide(rng, latest, time)
    if joint == BECAUSE and room >= 3 and draw_chance(rng, 0.4):
        return _tired(rng, latest, time)
    return choose_clause(rng, room, _subject(rng, room, latest), time)


def _tired(rng: Random, latest: Clause, time: str) -> Clause:
    """Choose "it was too tired", said of the subject."""
    subject = build_pronoun_for(latest.subject)
    before, after = ADJECTIVES_OF[subject.kind]
    return _because(rng, subject, before + after, time)


def _wide(rng: Random, latest: Clause, time: str) -> Clause:
    """Choose "it was too wide", said of the place that was crossed."""
    assert latest.object, "what was crossed is the object"
    return _because(rng, build_pronoun_for(latest.object), WIDE, time)


def _because(rng: Random, subject: Nominal, of: tuple, time: str) -> Clause:
    complement = choose_degree(rng, rng.choice(of), subject, 2)
    built = build_copula(subject, time, complement)
    return Clause(join(subject.phrase, built), subject, time)


def _same_subject(rng: Random, room: int, latest: Clause) -> Clause:
    """Choose "and sold it", "but didn't sleep": no new subject."""
    subject, thing = build_pronoun_for(latest.subject), latest.object
    if thing and thing.kind in GOODS and draw_chance(rng, 0.7):
        verbs = [v for v in ACTS[subject.kind][True] if v != latest.verb]
        verb = rng.choice([v for v in verbs if thing.kind in v.objects])
        how = choose_modifier(rng, subject, room - 2, latest.time)
        it = build_pronoun_for(thing)
        built = build_verb_group(verb, subject, latest.time, how, clitic=it)
        return Clause(built, subject, latest.time)
    return choose_verb_clause(rng, subject, room, latest.time)
