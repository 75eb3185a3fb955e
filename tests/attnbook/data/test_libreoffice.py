"""LibreOffice's sentences are clean, kept apart, and cut without loss."""

from collections import Counter, defaultdict

import numpy as np
import pytest

from attnbook.data import libreoffice, read_file
from workshop.derive.libreoffice import (
    QUOTAS,
    SIMILAR,
    find_fault,
    keep_unique,
    normalize,
    split_pairs,
    train_subwords,
)
from workshop.derive.neighbours import find_words

pytestmark = pytest.mark.precision


@pytest.fixture(scope="module")
def texts():
    """The three splits as whole sentences."""
    return libreoffice.load_text()


def sides(pairs):
    """Turn pairs of one symbol into (English, French)."""
    return [(pair.source[0], pair.target[0]) for pair in pairs]


def test_the_splits_have_the_documented_sizes(texts):
    counts = [len(s) for s in (texts.train, texts.valid, texts.test)]
    assert counts == [16_006, 500, 1_000]


def test_lengths_of_held_out_sentences_fill_their_quotas(texts):
    for (first, last), quota in QUOTAS.items():
        for pairs, count in zip((texts.valid, texts.test), quota, strict=True):
            lengths = [len(english.split()) for english, _ in sides(pairs)]
            assert sum(first <= n <= last for n in lengths) == count


def test_every_pair_is_clean_and_unique(texts):
    pairs = sides(texts.train + texts.valid + texts.test)
    assert {find_fault(*pair) for pair in pairs} == {"kept"}
    for side in zip(*pairs, strict=True):
        assert len(set(side)) == len(pairs)


@pytest.mark.parametrize("side", ["source", "target"])
def test_no_held_out_sentence_has_a_near_twin(texts, side):
    held_out = texts.valid + texts.test
    pairs = held_out + texts.train
    sets = [find_words(getattr(pair, side)[0]) for pair in pairs]
    sizes = np.array([len(one) for one in sets])
    holders = defaultdict(list)
    for index, one in enumerate(sets):
        for word in one:
            holders[word].append(index)
    holders = {word: np.array(found) for word, found in holders.items()}
    closest = []
    for index, one in enumerate(sets[: len(held_out)]):
        found = np.concatenate([holders[word] for word in one])
        shared = np.bincount(found, minlength=len(sets))
        similarity = shared / (sizes + len(one) - shared)
        similarity[index] = 0
        closest.append(similarity.max())
    assert 0.5 < max(closest) < SIMILAR


def test_pieces_join_to_the_sentence_they_came_from(texts):
    cut = libreoffice.load()
    for split_name in ("train", "valid", "test"):
        whole, parts = getattr(texts, split_name), getattr(cut, split_name)
        assert len(whole) == len(parts)
        for one, other in zip(whole, parts, strict=True):
            assert libreoffice.join_pieces(other.source) == one.source[0]
            assert libreoffice.join_pieces(other.target) == one.target[0]


@pytest.mark.parametrize(("language", "side"), [("en", "source"), ("fr", "target")])
def test_pieces_hold_all_that_occurs(language, side):
    pieces = libreoffice.list_pieces(language)
    assert len(pieces) == len(set(pieces)) == 2_999
    cut = libreoffice.load()
    for pair in cut.train + cut.valid + cut.test:
        assert set(getattr(pair, side)) <= set(pieces)


def test_subwords_know_the_training_sentences_only(texts):
    english = [pair.source[0] for pair in texts.train]
    assert train_subwords(english) == read_file("libreoffice/en.model")


@pytest.mark.refusal
@pytest.mark.parametrize("text", ["", "  "])
def test_an_empty_sentence_is_refused(text):
    with pytest.raises(ValueError, match=rf"at least 1 word, but '{text}' has"):
        libreoffice.split_into_pieces(text, "en")


@pytest.mark.refusal
def test_an_unknown_character_is_named():
    with pytest.raises(ValueError, match=r"^'Ж' in 'Open Ж' .* 'en'$"):
        libreoffice.split_into_pieces("Open Ж", "en")


@pytest.mark.refusal
def test_an_unknown_language_is_named():
    with pytest.raises(ValueError, match=r"are en and fr, not 'de'$"):
        libreoffice.list_pieces("de")


def test_normalize_makes_quotes_dashes_and_spaces_plain():
    assert (
        normalize("\u201cA\u201d \u2013 l\u2019été\xa0\u2026\n b .")
        == '"A" - l\'été ... b.'
    )
    assert normalize("«\xa0Oui\xa0» !") == '"Oui" !'


@pytest.mark.parametrize(
    ("english", "french", "reason"),
    [
        ("Open it.", "Ouvrez le fichier.", "not 3 to 50 words"),
        ("Returns a string.", "Returns a string.", "same in both"),
        ("Type a <?> b.", "Saisissez a <?> b.", "code or other scripts"),
        ("- a b c.", "- d e f.", "does not start with a letter"),
        ("Displaying Hidden Text", "Affichage de texte", "no sentence end"),
        ("Open a file.Then b.", "Ouvrez un fichier.", "run together"),
        ("Open 1 2 3.", "Ouvrez 1 2 3.", "less than 85 % letters"),
        ("Open the a.", "Un deux trois quatre dix six huit.", "twice as long"),
        ("Use 3 or more.", "Deux ou plus.", "numbers differ"),
        ("Value of Red or.", "Value of Red ou.", "not translated"),
        ("Opens the file.", "Ouvre le fichier.", "kept"),
    ],
)
def test_find_fault_names_why_a_pair_is_left_out(english, french, reason):
    assert reason in find_fault(english, french)


def test_keep_unique_keeps_the_most_frequent_translation():
    counts = Counter({("a", "b"): 1, ("a", "c"): 2, ("d", "c"): 1})
    counts["e", "f"] = 1
    assert list(keep_unique(counts, counts)) == [("a", "c"), ("e", "f")]


def test_split_never_holds_out_a_pair_with_a_twin():
    apart = [(f"{chr(97 + i)}x y{i} {i}", f"z{i} {i}") for i in range(9)]
    twins = [("one two three", "un"), ("one two three four", "deux")]
    splits = split_pairs(apart + twins)
    assert splits == {"train": twins, "valid": apart, "test": []}
