"""The little grammar: its French, its links, its splits."""

import doctest
from collections import Counter

import pytest

from attnbook.data import grammar
from attnbook.data.grammar import (
    Aligned,
    align_words,
    examples,
    load,
    load_long,
    sample_pairs,
)
from attnbook.data.grammar.build import (
    DETERMINER,
    build_coordination,
    build_noun_phrase,
    build_possessive,
    build_pronoun,
)
from attnbook.data.grammar.conjugate import build_verb_group
from attnbook.data.grammar.lexicon import ADJECTIVE, ADJECTIVES, NOUN, VERB
from attnbook.data.grammar.phrases import (
    join,
)

pytestmark = pytest.mark.precision

THE, A = DETERMINER["the"], DETERMINER["a|an"]
VOWELS = tuple("aeiouâàéèêëîïôœ")
SILENT_H = ("homme", "horloge", "histoire", "hôpital", "hôtel", "heureu")
ARTICLES = {
    **dict.fromkeys(["le", "un", "ce", "mon", "ton", "son"], ("m", False)),
    **dict.fromkeys(["la", "une", "cette", "ma", "ta", "sa"], ("f", False)),
    **dict.fromkeys(["du", "au", "cet"], ("m", False)),
    **dict.fromkeys(["les", "des", "aux", "ces", "mes", "tes"], (None, True)),
    **dict.fromkeys(["ses", "nos", "leurs", "quelques"], (None, True)),
    **dict.fromkeys(["deux", "trois"], (None, True)),
    **dict.fromkeys(["notre", "leur", "chaque", "l'"], (None, False)),
}


def forms_of_nouns():
    """Map every French noun form to the (gender, plural) it may have."""
    forms = {}
    for noun in NOUN.values():
        for plural, form in enumerate(noun.french):
            gender = "f" if noun.feminine else "m"
            forms.setdefault(form, set()).add((gender, bool(plural)))
    return forms


def forms_of_adjectives():
    """Map every French adjective form to the (gender, plural) it may have."""
    forms = {}
    for adjective in ADJECTIVES:
        for plural, row in enumerate(adjective.french):
            for gender, cell in zip("mf", row, strict=True):
                for form in cell.split("|"):
                    forms.setdefault(form, set()).add((gender, bool(plural)))
    return forms


NOUNS, LOOKS = forms_of_nouns(), forms_of_adjectives()


@pytest.fixture(scope="session")
def plain(pytestconfig):
    """Skip under the hook: it checks shapes, and would take minutes here."""
    if pytestconfig.getoption("--jaxtyping-packages", None):
        pytest.skip("thousands of sentences without a single tensor")


@pytest.fixture(scope="module")
def sentences(plain):
    """A sample of all lengths."""
    return sample_pairs(4_000, seed=5)


def text(*phrases):
    """Return both sides of a finished phrase."""
    made = align_words(join(*phrases))
    return " ".join(made.source), " ".join(made.target)


def test_the_alignments_drawn_in_the_docstrings_are_right():
    result = doctest.testmod(grammar)
    assert result.attempted > 0
    assert result.failed == 0


# Known sentences


def test_the_sentence_about_the_animal_has_its_translation_and_links():
    made = align_words(examples.build_animal_example("tired"))
    assert " ".join(made.source) == (
        "the animal didn't cross the street because it was too tired"
    )
    assert " ".join(made.target) == (
        "l' animal n' a pas traversé la rue parce qu' il était trop fatigué"
    )
    sure = {(0, 0), (1, 1), (2, 2), (4, 2), (5, 3), (6, 4), (7, 5), (8, 6)}
    sure |= {(9, 6), (10, 7), (11, 8), (12, 9), (13, 10)}
    assert made.sure == sure
    assert made.possible == sure | {(3, 2), (3, 3)}


def test_a_pronoun_has_the_gender_of_its_noun():
    wide, tired = (
        align_words(examples.build_animal_example(name)) for name in ("wide", "tired")
    )
    assert wide.source[:-1] == tired.source[:-1]
    assert wide.target[-4:] == ("elle", "était", "trop", "large")
    assert tired.target[-4:] == ("il", "était", "trop", "fatigué")
    assert wide.sure == tired.sure


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("adjective", "message"), [("old", "not of 2"), ("purple", "'purple'")]
)
def test_an_adjective_that_fits_both_nouns_or_none_is_refused(adjective, message):
    with pytest.raises(ValueError, match=message):
        examples.build_animal_example(adjective)


@pytest.mark.parametrize(
    ("phrase", "french"),
    [
        (lambda: build_noun_phrase(A, NOUN["umbrella"]), "un parapluie"),
        (lambda: build_noun_phrase(THE, NOUN["man"]), "l' homme"),
        (lambda: build_noun_phrase(THE, NOUN["horse"], True), "les chevaux"),
        (
            lambda: build_noun_phrase(THE, NOUN["hotel"], False, (ADJECTIVE["old"],)),
            "le vieil hôtel",
        ),
        (
            lambda: build_possessive(build_noun_phrase(THE, NOUN["king"]), NOUN["car"]),
            "la voiture du roi",
        ),
        (
            lambda: build_coordination(
                build_noun_phrase(THE, NOUN["king"]),
                build_noun_phrase(THE, NOUN["queen"]),
            ),
            "le roi et la reine",
        ),
    ],
)
def test_a_noun_phrase_has_the_known_french(phrase, french):
    assert text(phrase().phrase)[1] == french


QUEENS = build_noun_phrase(THE, NOUN["queen"], True)
MIXED = build_coordination(
    build_noun_phrase(THE, NOUN["queen"]), build_noun_phrase(THE, NOUN["king"])
)
SHE, WE, ME = (
    build_pronoun("she", True),
    build_pronoun("we"),
    build_pronoun("i"),
)


@pytest.mark.parametrize(
    ("subject", "group", "english", "french"),
    [
        (QUEENS, ("leave", "past"), "left", "sont parties"),
        (MIXED, ("leave", "past"), "left", "sont partis"),
        (QUEENS, ("sleep", "past"), "slept", "ont dormi"),
        (SHE, ("go", "past", "never"), "never went", "n' est jamais allée"),
        (SHE, ("go", "present"), "goes", "va"),
        (SHE, ("see", "past", "often"), "often saw", "a souvent vu"),
        (WE, ("come", "future", "not"), "won't come", "ne viendrons pas"),
        (ME, ("open", "present"), "open", "ouvre"),
    ],
)
def test_a_verb_has_its_tense_person_and_negation(subject, group, english, french):
    verb, *rest = group
    said = build_verb_group(VERB[verb], subject, *rest)
    left, right = text(subject.phrase, said)
    assert left.endswith(" " + english)
    assert right.endswith(" " + french)


# Properties of everything the grammar says


def test_every_word_has_a_link(sentences):
    for pair in sentences:
        rows, columns = (set(side) for side in zip(*pair.possible, strict=True))
        assert rows == set(range(len(pair.target))), pair
        assert columns == set(range(len(pair.source))), pair


def noun_groups(words):
    """Yield (article, adjectives, noun) as they stand in a French sentence."""
    for index, word in enumerate(words):
        if word in ARTICLES:
            stop = index + 1
            while stop < len(words) and words[stop] in LOOKS:
                stop += 1
            if stop < len(words) and words[stop] in NOUNS:
                after = words[stop + 1 : stop + 2]
                yield index, stop, [word for word in after if word in LOOKS]


def test_articles_adjectives_and_nouns_agree(sentences):
    seen = Counter()
    for pair in sentences:
        words = pair.target
        for index, stop, after in noun_groups(words):
            gender, plural = ARTICLES[words[index]]
            may = {
                (g, p)
                for g, p in NOUNS[words[stop]]
                if p == plural and gender in (None, g)
            }
            eludes = words[index] in ("mon", "ton", "son")
            if eludes and words[index + 1].startswith((*VOWELS, *SILENT_H)):
                may = {(g, p) for g, p in NOUNS[words[stop]] if not p}
            for adjective in (*words[index + 1 : stop], *after):
                seen[adjective] += 1
                may &= LOOKS[adjective]
            assert may, " ".join(words[index : stop + 2])
            seen[words[index]] += 1
    assert set(ARTICLES) <= set(seen)
    assert len(set(LOOKS) & set(seen)) > 100


def test_short_words_are_elided_before_vowels_only(sentences):
    elided = ["l'", "n'", "d'", "j'", "m'", "t'", "qu'", "cet"]
    elided += ["bel", "vieil", "nouvel"]
    full = ["le", "la", "ne", "de", "je", "me", "te", "que", "ce", "ma", "ta"]
    seen = Counter()
    for pair in sentences:
        neighbours = zip(pair.target, pair.target[1:], strict=False)
        for word, following in neighbours:
            seen[word] += 1
            assert word not in elided or following.startswith((*VOWELS, *SILENT_H)), (
                pair.target
            )
            assert word not in (*full, "sa") or not following.startswith(
                (*VOWELS, *SILENT_H)
            ), pair
            assert word not in ("de", "à") or following not in ("le", "les")
        assert pair.target[-1] not in elided
    assert all(seen[word] for word in (*elided, *full))


def test_an_stands_before_vowels_and_a_before_consonants(sentences):
    seen = Counter()
    for pair in sentences:
        for word, following in zip(pair.source, pair.source[1:], strict=False):
            if word in ("a", "an"):
                seen[word] += 1
                assert (following[0] in "aeiou") == (word == "an")
    assert min(seen["a"], seen["an"]) > 50


# What is handed out


def test_a_seed_gives_the_same_sentences():
    assert sample_pairs(50, seed=3) == sample_pairs(50, seed=3)
    assert sample_pairs(50, seed=3) != sample_pairs(50, seed=4)
    assert sample_pairs(20, seed=3) == sample_pairs(50, seed=3)[:20]


def test_splits_have_their_sizes_and_no_common_sentence(plain):
    splits = load()
    parts = splits.train, splits.valid, splits.test, load_long()
    assert [len(part) for part in parts] == [20_000, 1_000, 1_000, 1_000]
    assert all(isinstance(pair, Aligned) for part in parts for pair in part)
    sources = {pair.source for part in parts for pair in part}
    assert len(sources) == 23_000


def test_every_held_out_word_occurs_in_training(plain):
    splits = load()
    for side in ("source", "target"):
        learnt = {w for pair in splits.train for w in getattr(pair, side)}
        for part in (splits.valid, splits.test, load_long()):
            assert {w for pair in part for w in getattr(pair, side)} <= learnt


def test_the_sentences_about_the_animal_are_not_in_training(plain):
    learnt = {pair.source for pair in load().train}
    for adjective in ("tired", "wide"):
        assert (
            align_words(examples.build_animal_example(adjective)).source not in learnt
        )


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"shortest": 9, "longest": 8}, r"shortest \(9\).*longest \(8\)"),
        ({"shortest": 5, "longest": 41}, "3 to 40 words, not 5 to 41"),
        ({"count": 0}, "at least 1, not 0"),
    ],
)
def test_an_impossible_sample_is_refused(how, message):
    with pytest.raises(ValueError, match=message):
        sample_pairs(**{"count": 1, "seed": 0, **how})


@pytest.mark.refusal
def test_running_out_of_sentences_is_reported(monkeypatch):
    monkeypatch.setattr(grammar, "MAX_ATTEMPTS", 12)
    with pytest.raises(ValueError, match=r"only \d+ of 100000 .* 3 to 3 words"):
        sample_pairs(100_000, seed=0, shortest=3, longest=3)
