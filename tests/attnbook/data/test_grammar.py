"""The little grammar: its French, its links, its splits."""

import doctest
from collections import Counter
from random import Random

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
    NO,
    build_comparison,
    build_coordination,
    build_noun_phrase,
    build_possessive,
    build_pronoun,
    build_pronoun_for,
)
from attnbook.data.grammar.conjugate import build_copula, build_verb_group
from attnbook.data.grammar.lexicon import ADJECTIVE, ADJECTIVES, NOUN, VERB
from attnbook.data.grammar.phrases import (
    join,
    parse_phrase,
    write_pair,
)
from attnbook.data.grammar.sentences import choose_sentence

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
PERSONS = {"je": 0, "j'": 0, "tu": 1, "il": 2, "elle": 2, "ils": 4, "elles": 4}
CLITICS = ("me", "m'", "te", "t'", "le", "la", "l'", "les", "nous")


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


def test_a_short_sentence_is_linked_word_by_word():
    made = align_words(examples.build_place_example())
    assert made.source == ("i", "am", "here")
    assert made.target == ("je", "suis", "ici")
    assert made.sure == made.possible == {(0, 0), (1, 1), (2, 2)}


def test_links_cross_where_an_adjective_follows_its_noun():
    made = align_words(examples.build_car_example())
    assert " ".join(made.source) == "he bought the big red car"
    assert " ".join(made.target) == "il a acheté la grande voiture rouge"
    sure = {(0, 0), (2, 1), (3, 2), (4, 3), (5, 5), (6, 4)}
    assert made.sure == sure
    assert made.possible == sure | {(1, 1)}


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
        (lambda: build_noun_phrase(THE, NOUN["owl"]), "le hibou"),
        (lambda: build_noun_phrase(THE, NOUN["horse"], True), "les chevaux"),
        (
            lambda: build_noun_phrase(THE, NOUN["hotel"], False, (ADJECTIVE["old"],)),
            "le vieil hôtel",
        ),
        (
            lambda: build_noun_phrase(
                DETERMINER["my"], NOUN["school"], False, (ADJECTIVE["new"],)
            ),
            "ma nouvelle école",
        ),
        (
            lambda: build_noun_phrase(DETERMINER["my"], NOUN["school"]),
            "mon école",
        ),
        (
            lambda: build_noun_phrase(DETERMINER["this"], NOUN["animal"]),
            "cet animal",
        ),
        (
            lambda: build_noun_phrase(DETERMINER["this"], NOUN["owl"]),
            "ce hibou",
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


def test_the_prepositions_de_and_a_merge_with_articles():
    king, kings = (build_noun_phrase(THE, NOUN["king"], many) for many in (False, True))
    man = build_noun_phrase(THE, NOUN["man"])
    near, to = "near1 / près1 de|d'", "to / à"
    assert text(parse_phrase(near), king.phrase)[1] == "près du roi"
    assert text(parse_phrase(near), kings.phrase)[1] == "près des rois"
    assert text(parse_phrase(near), man.phrase)[1] == "près de l' homme"
    assert text(parse_phrase(to), king.phrase)[1] == "au roi"
    assert text(parse_phrase(to), kings.phrase)[1] == "aux rois"
    merged = align_words(join(parse_phrase(near), king.phrase))
    assert merged.sure == {(0, 0), (1, 1), (2, 2)}
    assert merged.possible == merged.sure | {(1, 0)}


QUEENS = build_noun_phrase(THE, NOUN["queen"], True)
MIXED = build_coordination(
    build_noun_phrase(THE, NOUN["queen"]), build_noun_phrase(THE, NOUN["king"])
)
SHE, WE, ME = (
    build_pronoun("she", True),
    build_pronoun("we"),
    build_pronoun("i"),
)
CARS = build_noun_phrase(THE, NOUN["car"], True)


@pytest.mark.parametrize(
    ("subject", "group", "english", "french"),
    [
        (QUEENS, ("leave", "past"), "left", "sont parties"),
        (MIXED, ("leave", "past"), "left", "sont partis"),
        (QUEENS, ("sleep", "past"), "slept", "ont dormi"),
        (SHE, ("sleep", "past", "not"), "didn't sleep", "n' a pas dormi"),
        (SHE, ("go", "past", "never"), "never went", "n' est jamais allée"),
        (SHE, ("go", "present"), "goes", "va"),
        (SHE, ("see", "past", "often"), "often saw", "a souvent vu"),
        (WE, ("eat", "present"), "eat", "mangeons"),
        (WE, ("swim", "present"), "swim", "nageons"),
        (WE, ("buy", "future"), "will buy", "achèterons"),
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


def test_long_and_short_negation_differ_only_in_links():
    say_it = [
        build_verb_group(VERB["see"], SHE, "past", "not", short=s)
        for s in (True, False)
    ]
    short, long = (align_words(join(SHE.phrase, said)) for said in say_it)
    assert short.source == ("she", "didn't", "see")
    assert long.source == ("she", "did", "not", "see")
    assert short.target == long.target == ("elle", "n'", "a", "pas", "vu")
    assert {(1, 1), (3, 1), (4, 2)} <= short.sure
    assert {(1, 2), (3, 2), (4, 3)} <= long.sure
    assert {(1, 1), (2, 1), (3, 1)} <= long.possible - long.sure


def test_a_participle_agrees_with_an_object_before_it():
    them = build_pronoun_for(CARS)
    said = build_verb_group(VERB["sell"], ME, "past", "not", clitic=them)
    assert text(ME.phrase, said) == (
        "i didn't sell them",
        "je ne les ai pas vendues",
    )
    said = build_verb_group(VERB["buy"], ME, "past", before=CARS)
    assert text(parse_phrase("that / que|qu'"), ME.phrase, said)[1] == (
        "que j' ai achetées"
    )
    assert text(ME.phrase, build_verb_group(VERB["buy"], ME, "past"))[1] == (
        "j' ai acheté"
    )


def test_modal_verbs_take_an_infinitive():
    car = build_pronoun_for(build_noun_phrase(THE, NOUN["car"]))
    want, can = VERB["want to"], VERB["can"]
    said = build_verb_group(VERB["sell"], SHE, "present", "not", modal=want)
    assert text(SHE.phrase, said) == (
        "she doesn't want to sell",
        "elle ne veut pas vendre",
    )
    how = {"modal": can, "clitic": car}
    said = build_verb_group(VERB["sell"], SHE, "present", "not", **how)
    assert text(SHE.phrase, said) == (
        "she can't sell it",
        "elle ne peut pas la vendre",
    )


def test_comparison_agrees_with_the_subject():
    than = build_noun_phrase(A, NOUN["ant"])
    older = build_comparison(ADJECTIVE["old"], QUEENS, than)
    said = build_copula(QUEENS, "past", older, "not")
    assert text(QUEENS.phrase, said) == (
        "the queens weren't older than an ant",
        "les reines n' étaient pas plus vieilles qu' une fourmi",
    )


def test_a_negated_indefinite_object_becomes_de():
    said = build_verb_group(VERB["see"], SHE, "past", "not")
    car, egg = (build_noun_phrase(NO, NOUN[name]) for name in ("car", "egg"))
    assert text(said, car.phrase)[1] == "n' a pas vu de voiture"
    assert text(said, egg.phrase) == ("didn't see an egg", "n' a pas vu d' œuf")


@pytest.mark.refusal
def test_an_unknown_pronoun_is_refused():
    with pytest.raises(ValueError, match=r"'he'.*feminine=True"):
        build_pronoun("he", feminine=True)


# Properties of everything the grammar says


def test_links_are_in_range_and_sure_ones_are_possible(sentences):
    for pair in sentences:
        assert pair.sure <= pair.possible
        for target, source in pair.possible:
            assert 0 <= target < len(pair.target)
            assert 0 <= source < len(pair.source)


def test_every_word_has_a_link(sentences):
    for pair in sentences:
        rows, columns = (set(side) for side in zip(*pair.possible, strict=True))
        assert rows == set(range(len(pair.target))), pair
        assert columns == set(range(len(pair.source))), pair


def test_most_links_are_sure(sentences):
    sure = sum(len(pair.sure) for pair in sentences)
    possible = sum(len(pair.possible) for pair in sentences)
    assert 0.8 < sure / possible < 0.99


def test_a_third_of_the_sentences_have_crossing_links(sentences):
    crossing = sum(
        any(a < c and b > d for a, b in pair.sure for c, d in pair.sure)
        for pair in sentences
    )
    assert crossing > len(sentences) / 3


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


def test_verbs_agree_with_their_pronouns(sentences):
    finite = {0: set(), 1: set(), 2: set(), 4: set()}
    ends = ("ai", "as", "a", "ons", "ont")
    for person, forms in finite.items():
        forms |= {verb.present[person] for verb in VERB.values()}
        forms |= {verb.future + ends[person] for verb in VERB.values()}
    finite[0] |= {"ai", "suis", "étais", "serai"}
    finite[1] |= {"as", "es", "étais", "seras"}
    finite[2] |= {"a", "est", "était", "sera"}
    finite[4] |= {"ont", "sont", "étaient", "seront"}
    checked = 0
    for pair in sentences:
        for index, word in enumerate(pair.target):
            before = pair.target[index + 1 : index + 3]
            if word in PERSONS and before != ("y", "a"):
                rest = [
                    each
                    for each in pair.target[index + 1 :]
                    if each not in ("ne", "n'", *CLITICS)
                ]
                assert rest[0] in finite[PERSONS[word]], pair.target
                checked += 1
    assert checked > 1_000


def test_participles_with_etre_agree_with_their_pronouns(sentences):
    ends = {"il": "", "elle": "e", "ils": "s", "elles": "es"}
    moved = {verb.participle for verb in VERB.values() if verb.etre}
    checked = Counter()
    for pair in sentences:
        words = pair.target
        for subject, is_, participle in zip(words, words[1:], words[2:], strict=False):
            if subject in ends and is_ in ("est", "sont"):
                for stem in moved:
                    if participle.rstrip("es") == stem.rstrip("es"):
                        assert participle == stem + ends[subject], words
                        checked[subject] += 1
    assert min(checked[subject] for subject in ends) >= 5


def test_predicates_agree_with_their_pronouns(sentences):
    subjects = {
        "il": ("m", False),
        "elle": ("f", False),
        "ils": ("m", True),
        "elles": ("f", True),
    }
    be = ("est", "était", "sera", "sont", "étaient", "seront")
    between = ("ne", "n'", "pas", "jamais", "souvent", "toujours", "rarement")
    between += ("déjà", "trop", "très", "plus")
    checked = Counter()
    for pair in sentences:
        said = [word for word in pair.target if word not in between]
        for subject, is_, word in zip(said, said[1:], said[2:], strict=False):
            if subject in subjects and is_ in be and word in LOOKS:
                assert subjects[subject] in LOOKS[word], pair.target
                checked[subject] += 1
    assert min(checked[subject] for subject in subjects) >= 20


def vowel(word):
    """Say whether a French word starts with a vowel sound."""
    return word.startswith((*VOWELS, *SILENT_H))


def test_short_words_are_elided_before_vowels_only(sentences):
    elided = ["l'", "n'", "d'", "j'", "m'", "t'", "qu'", "cet"]
    elided += ["bel", "vieil", "nouvel"]
    full = ["le", "la", "ne", "de", "je", "me", "te", "que", "ce", "ma", "ta"]
    seen = Counter()
    for pair in sentences:
        neighbours = zip(pair.target, pair.target[1:], strict=False)
        for word, following in neighbours:
            seen[word] += 1
            assert word not in elided or vowel(following), pair.target
            assert word not in (*full, "sa") or not vowel(following), pair
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


def test_every_french_negation_has_both_words(sentences):
    for pair in sentences:
        words = pair.target
        opened = sum(word in ("ne", "n'") for word in words)
        assert opened == sum(word in ("pas", "jamais") for word in words)


def test_every_word_is_in_lower_case_and_has_letters_only(sentences):
    for pair in sentences:
        for word in (*pair.source, *pair.target):
            assert word == word.lower()
            assert word.replace("'", "").isalpha(), word


def test_equal_english_sentences_have_equal_translations_and_links(plain):
    rng, seen, again = Random(11), {}, 0
    for _ in range(10_000):
        source, *rest = write_pair(choose_sentence(rng, rng.randint(3, 6)))
        again += source in seen
        assert seen.setdefault(source, rest) == rest
    assert again > 200


def test_a_seed_gives_the_same_sentences():
    assert sample_pairs(50, seed=3) == sample_pairs(50, seed=3)
    assert sample_pairs(50, seed=3) != sample_pairs(50, seed=4)
    assert sample_pairs(20, seed=3) == sample_pairs(50, seed=3)[:20]


def test_a_sample_is_distinct_and_has_the_requested_lengths():
    pairs = sample_pairs(500, seed=0, shortest=5, longest=8)
    assert len({pair.source for pair in pairs}) == 500
    assert Counter(len(pair.source) for pair in pairs).keys() == {5, 6, 7, 8}


def test_splits_have_their_sizes_and_no_common_sentence(plain):
    splits = load()
    parts = splits.train, splits.valid, splits.test, load_long()
    assert [len(part) for part in parts] == [20_000, 1_000, 1_000, 1_000]
    assert all(isinstance(pair, Aligned) for part in parts for pair in part)
    sources = {pair.source for part in parts for pair in part}
    assert len(sources) == 23_000


def test_sentence_lengths_are_nearly_uniform_in_every_split(plain):
    splits = load()
    for part in (splits.train, splits.valid, splits.test):
        lengths = Counter(len(pair.source) for pair in part)
        assert lengths.keys() == set(range(3, 21))
        assert max(lengths.values()) < 2 * len(part) / 18
        assert min(lengths.values()) > 0.5 * len(part) / 18
    lengths = Counter(len(pair.source) for pair in load_long())
    assert lengths.keys() == set(range(21, 41))


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
        ({"shortest": 2, "longest": 8}, "3 to 40 words, not 2 to 8"),
        ({"shortest": 0, "longest": 0}, "3 to 40 words, not 0 to 0"),
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
