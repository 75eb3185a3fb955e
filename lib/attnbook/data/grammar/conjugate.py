"""Verbs of the little grammar: tenses, negation, clitics and participles."""

from attnbook.data.grammar import small_words
from attnbook.data.grammar.build import Nominal
from attnbook.data.grammar.lexicon import Verb
from attnbook.data.grammar.phrases import French, Phrase, Word

BE = {
    time: (english.split(), french.split()) for time, english, french in small_words.BE
}


def _opening(auxiliary: str | None, middle: str | None, short: bool) -> list:
    """Make the words of ``didn't``, ``did not``, ``will never``, ``often``."""
    if middle == "not" and short and auxiliary in small_words.CONTRACTED:
        return [Word(small_words.CONTRACTED[auxiliary])] * 2
    return [_word(auxiliary), _word(middle)]


def _word(text: str | None) -> Word | None:
    return Word(text) if text else None


def _distinct(*chosen: Word | None) -> tuple[Word, ...]:
    return tuple(dict.fromkeys(word for word in chosen if word))


def _around(finite: French, middle: str | None, opening: list) -> tuple:
    """Return what stands before and after the conjugated verb: ne ... pas."""
    if not middle:
        return [], [finite]
    auxiliary, word = opening
    negation = small_words.NEGATIONS.get(middle)
    loose = _distinct(auxiliary) if middle == "not" else ()
    second = French(negation or small_words.ADVERBS[middle], (word,), loose)
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
        return leader.future + small_words.FUTURE_ENDINGS[person], None
    if leader.etre:
        form = agree(leader.participle, subject.feminine, subject.plural)
        return BE["present"][1][person], form
    if before:
        form = agree(leader.participle, before.feminine, before.plural)
        return small_words.HAVE[person], form
    return small_words.HAVE[person], leader.participle


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


def _linked(
    forms: tuple[str, str | None],
    head: Word,
    auxiliary: Word | None,
    particle: Word | None,
) -> list[French]:
    """Link "did look at" to "a regardé": the participle carries the verb."""
    text, participle = forms
    if participle:
        helper = French(text, (), _distinct(head, auxiliary))
        return [helper, French(participle, (head,), _distinct(particle))]
    loose = _distinct(auxiliary, particle)
    return [French(text, (head,), tuple(w for w in loose if w is not head))]


def build_verb_group(
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
    opening = _opening(auxiliary, middle, short or auxiliary == "can")
    head = Word(form) if form else opening[0]
    particle = _word(leader.particle)
    english = [*_distinct(*opening, head, particle)]
    forms = _finite(leader, subject, time, clitic or before)
    finite, *rest = _linked(forms, head, opening[0], particle)
    ne, verbs = _around(finite, middle, opening)
    if modal:
        base, own = Word(verb.base), _word(verb.particle)
        english += _distinct(base, own)
        rest = [French(verb.infinitive, (base,), _distinct(particle, own))]
    if clitic:
        assert clitic.pronoun, "a clitic is a pronoun"
        me, le = clitic.pronoun
        english.append(Word(me))
        (rest if modal else verbs).insert(0, French(le, (english[-1],)))
    return Phrase(english, [*ne, *verbs, *rest])


def build_copula(
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
