"""CMUdict is split by word, without stress, and as its script splits it."""

import pytest

from attnbook.data import cmudict, read_lines
from workshop.derive.cmudict import collect_pronunciations, split_words

pytestmark = pytest.mark.precision


@pytest.fixture(scope="module")
def splits():
    """The three splits."""
    return cmudict.load()


def words(pairs):
    """The distinct words of some pairs."""
    return {"".join(pair.source) for pair in pairs}


def test_the_splits_have_the_documented_sizes(splits):
    assert len(splits.valid) == len(words(splits.valid)) == 2_000
    assert len(splits.test) == len(words(splits.test)) == 6_000
    assert len(words(splits.train)) == 116_926
    assert len(splits.train) == 125_091


def test_no_word_is_in_two_splits(splits):
    train, valid, test = map(words, (splits.train, splits.valid, splits.test))
    assert not train & valid
    assert not train & test
    assert not valid & test


def test_symbols_are_letters_and_phonemes_without_stress(splits):
    pairs = splits.train + splits.valid + splits.test
    letters = {symbol for pair in pairs for symbol in pair.source}
    phonemes = {s for pair in pairs for one in pair.references for s in one}
    assert letters == set("abcdefghijklmnopqrstuvwxyz'")
    assert len(phonemes) == 39
    assert not any(c.isdigit() for phoneme in phonemes for c in phoneme)


def test_the_split_is_what_the_script_draws():
    stored = [line.split("\t")[0] for line in read_lines("cmudict/words.tsv.bz2")]
    assert stored == sorted(set(stored))
    valid, test = split_words(stored[::-1])  # whatever the order
    assert valid == read_lines("cmudict/valid.txt")
    assert test == read_lines("cmudict/test.txt")


def test_pronunciations_drop_stress_comments_and_other_words():
    dictionary = """\
read R EH1 D
read(2) R IY1 D
read(3) R IY0 D # the same without stress
aalborg AO1 L B AO0 R G # place, danish
able-bodied EY1 B AH0 L
a.m. EY1 EH1 M
'til T IH1 L
"""
    assert collect_pronunciations(dictionary) == {
        "read": ["R EH D", "R IY D"],
        "aalborg": ["AO L B AO R G"],
        "'til": ["T IH L"],
    }
