"""The rules of the little grammar: what agrees, and what changes places.

Every function builds English and French together, and chooses nothing.

Source: written for this book. Known simplifications: "you" is tu; i, you, and
    they without an antecedent are masculine; the past is the passé composé,
    but était for to be.
"""

from typing import NamedTuple

from attnbook.data.grammar import small_words
from attnbook.data.grammar.lexicon import Adjective, Noun
from attnbook.data.grammar.phrases import (
    French,
    Phrase,
    Word,
    join,
    parse_phrase,
)


class Determiner(NamedTuple):
    """English (singular, plural) and French (masculine, feminine, plural)."""

    english: tuple[str, str]
    french: tuple[str, str, str]


class Nominal(NamedTuple):
    """A noun phrase or a pronoun, and all that must agree with it."""

    phrase: Phrase
    person: int = 2
    feminine: bool = False
    plural: bool = False
    kind: str = "person"
    pronoun: tuple[str, str] | None = None


def _determiner(line: str) -> Determiner:
    english, french = (side.split() for side in line.split(" / "))
    if len(french) == 2:
        french = [french[0], *french]
    one, many = english
    masculine, feminine, plural = french
    return Determiner((one, many), (masculine, feminine, plural))


DETERMINERS = tuple(map(_determiner, small_words.DETERMINERS.strip().splitlines()))
DETERMINER = {
    form: each for each in DETERMINERS for form in each.english if form != "-"
}
NO = Determiner(("a|an", "-"), ("de|d'", "de|d'", "-"))
_PRONOUNS = [line.split() for line in small_words.PRONOUNS.strip().splitlines()]


def build_pronoun(english: str, feminine: bool = False, kind="person") -> Nominal:
    """Make a subject pronoun; its `pronoun` holds (me, me|m')."""
    for subject, me, _, je, clitic, person, gender, number in _PRONOUNS:
        if subject == english and gender == ("f" if feminine else "m"):
            phrase = parse_phrase(f"{subject} / {je}")
            features = int(person), feminine, number == "plural"
            return Nominal(phrase, *features, kind, (me, clitic))
    raise ValueError(f"no pronoun is written {english!r} with feminine={feminine}")


def build_pronoun_for(nominal: Nominal) -> Nominal:
    """Make the pronoun that stands for `nominal` in the next clause."""
    if nominal.person in (0, 1, 3):
        name = {0: "i", 1: "you", 3: "we"}[nominal.person]
    elif nominal.plural:
        name = "they"
    elif nominal.kind == "person":
        name = "she" if nominal.feminine else "he"
    else:
        name = "it"
    return build_pronoun(name, nominal.feminine, nominal.kind)


def build_noun_phrase(
    determiner: Determiner,
    noun: Noun,
    plural: bool = False,
    adjectives: tuple[Adjective, ...] = (),
) -> Nominal:
    """The big red car -> la grande voiture rouge."""
    article = Word(determiner.english[plural])
    head = _with_adjectives(noun, plural, adjectives)
    form = determiner.french[2 if plural else noun.feminine]
    french = French(form, (article,))
    phrase = Phrase([article, *head.english], [french, *head.french])
    person = 4 if plural else 2
    return Nominal(phrase, person, noun.feminine, plural, noun.kind)


def _with_adjectives(noun: Noun, plural: bool, adjectives: tuple) -> Phrase:
    name = Word(noun.english[plural])
    words = [(each, Word(each.english)) for each in adjectives]
    french = [
        French(each.french[plural][noun.feminine], (word,)) for each, word in words
    ]
    before = [each.before for each in adjectives].count(True)
    french.insert(before, French(noun.french[plural], (name,)))
    return Phrase([*(word for _, word in words), name], french)


def build_possessive(
    owner: Nominal,
    noun: Noun,
    plural: bool = False,
    adjectives: tuple[Adjective, ...] = (),
) -> Nominal:
    """The king 's red car -> la voiture rouge du roi."""
    mark = Word("'s")
    head = _with_adjectives(noun, plural, adjectives)
    article = DETERMINER["the"].french[2 if plural else noun.feminine]
    phrase = Phrase(
        [*owner.phrase.english, mark, *head.english],
        [
            French(article, (), (mark,)),
            *head.french,
            French("de|d'", (mark,)),
            *owner.phrase.french,
        ],
    )
    person = 4 if plural else 2
    return Nominal(phrase, person, noun.feminine, plural, noun.kind)


def build_coordination(first: Nominal, second: Nominal) -> Nominal:
    """The king and the queen: plural, masculine unless both are feminine."""
    phrase = join(first.phrase, parse_phrase("and / et"), second.phrase)
    feminine = first.feminine and second.feminine
    return Nominal(phrase, 4, feminine, True, first.kind)


def build_adjective_phrase(
    adjective: Adjective, subject: Nominal, degree: str | None = None
) -> Phrase:
    """Too tired -> trop fatiguée, agreeing with the subject."""
    word = Word(adjective.english)
    form = adjective.french[subject.plural][subject.feminine]
    phrase = Phrase([word], [French(form.split("|")[0], (word,))])
    return join(parse_phrase(degree), phrase) if degree else phrase


def build_comparison(adjective: Adjective, subject: Nominal, than: Nominal) -> Phrase:
    """Older than the dog -> plus vieille que le chien."""
    assert adjective.comparative, f"{adjective.english} has no comparative"
    word = Word(adjective.comparative)
    form = adjective.french[subject.plural][subject.feminine].split("|")[0]
    more = Phrase([word], [French("plus", (word,)), French(form, (word,))])
    return join(more, parse_phrase("than / que|qu'"), than.phrase)
