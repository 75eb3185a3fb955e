"""Verbs of the little grammar: tenses, negation, clitics and participles.

Chapter: chapters/02_bahdanau
Source: none (own work)
Axes: none
"""

from attnbook.data.grammar import words
from attnbook.data.grammar.build import Nominal
from attnbook.data.grammar.lexicon import Verb
from attnbook.data.grammar.phrases import French, Phrase, Word

BE = {
    time: (english.split(), french.split())
    for time, english, french in words.BE
}


def _opening(auxiliary: str | None, middle: str | None, short: bool) -> list:
    """Make the words of ``didn't``, ``did not``, ``will never``, ``often``."""
    if middle == "not" and short and auxiliary in words.CONTRACTED:
        return [Word(words.CONTRACTED[auxiliary])] * 2
    return [Word(text) if text else None for text in (auxiliary, middle)]


def _distinct(*chosen: Word | None) -> tuple[Word, ...]:
    return tuple(dict.fromkeys(word for word in chosen if word))


def _around(finite: French, middle: str | None, opening: list) -> tuple:
    """Return what stands before and after the conjugated verb: ne ... pas."""
    if not middle:
        return [], [finite]
    auxiliary, word = opening
    negation = words.NEGATIONS.get(middle)
    loose = _distinct(auxiliary) if middle == "not" else ()
    second = French(negation or words.ADVERBS[middle], (word,), loose)
    ne = [French("ne|n'", (word,), loose)] if negation else []
    return ne, [finite, second]


def agree(participle: str, feminine: bool, plural: bool) -> str:
    """Form achetée, partis, prises."""
    return participle + "e" * feminine + "s" * plural


def _finite(
    leader: Verb, subject: Nominal, time: str, before: Nominal | None
) -> tuple[str, str | None]:
    """Return the conjugated French verb, and the past participle if any."""
    person = subject.person
    if time == "present":
        return leader.present[person], None
    if time == "future":
        return leader.future + words.FUTURE_ENDINGS[person], None
    if leader.etre:
        form = agree(leader.participle, subject.feminine, subject.plural)
        return BE["present"][1][person], form
    if before:
        form = agree(leader.participle, before.feminine, before.plural)
        return words.HAVE[person], form
    return words.HAVE[person], leader.participle


def _english(leader: Verb, subject: Nominal, time: str, middle: str | None):
    """Return the auxiliary, if English needs one, and the verb's form."""
    third = subject.person == 2
    if leader.base in ("can", "must"):
        return leader.base, None
    if time == "future":
        return "will", leader.base
    if middle == "not":
        do = "does" if third else "do"
        return "did" if time == "past" else do, leader.base
    if time == "past":
        return None, leader.past
    return None, leader.third if third else leader.base


def verb_group(
    verb: Verb,
    subject: Nominal,
    time: str,
    middle: str | None = None,
    *,
    modal: Verb | None = None,
    clitic: Nominal | None = None,
    before: Nominal | None = None,
    short: bool = True,
) -> Phrase:
    """Conjugate: didn't see it -> ne l' a pas vue.

    Args:
        verb: the verb.
        subject: what the verb agrees with.
        time: "past", "present" or "future".
        middle: "not", "never", or an adverb such as "often".
        modal: can, must or want; `verb` then is an infinitive.
        clitic: an object pronoun.
        before: a direct object that stands before the verb, for agreement.
        short: whether "not" joins its auxiliary: "didn't".
    """
    leader = modal or verb
    auxiliary, form = _english(leader, subject, time, middle)
    short = short or auxiliary == "can"
    opening = _opening(auxiliary, middle, short)
    head = Word(form) if form else opening[0]
    particle = Word(leader.particle) if leader.particle else None
    text, participle = _finite(leader, subject, time, clitic or before)
    loose = tuple(w for w in _distinct(opening[0], particle) if w is not head)
    if participle:
        finite = French(text, (), _distinct(head, opening[0]))
        rest = [French(participle, (head,), _distinct(particle))]
    else:
        finite, rest = French(text, (head,), loose), []
    english = [*_distinct(*opening, head, particle)]
    ne, verbs = _around(finite, middle, opening)
    if modal:
        base = Word(verb.base)
        own = Word(verb.particle) if verb.particle else None
        english += _distinct(base, own)
        rest = [French(verb.infinitive, (base,), _distinct(particle, own))]
    if clitic:
        me, le = clitic.pronoun
        word = Word(me)
        english.append(word)
        (rest if modal else verbs).insert(0, French(le, (word,)))
    return Phrase(english, [*ne, *verbs, *rest])


def copula(
    subject: Nominal,
    time: str,
    complement: Phrase,
    middle: str | None = None,
    short: bool = True,
) -> Phrase:
    """Isn't too tired -> n' est pas trop fatiguée."""
    english, french = (forms[subject.person] for forms in BE[time])
    opening = _opening("will" if time == "future" else english, middle, short)
    head = Word(english) if time == "future" else opening[0]
    loose = _distinct(opening[0]) if time == "future" else ()
    ne, verbs = _around(French(french, (head,), loose), middle, opening)
    return Phrase(
        [*_distinct(*opening, head), *complement.english],
        [*ne, *verbs, *complement.french],
    )
