"""LibreOffice's sentences are clean, kept apart, and cut without loss."""

from collections import defaultdict

import numpy as np
import pytest

from attnbook.data import libreoffice
from workshop.derive.libreoffice import (
    SIMILAR,
    find_fault,
    find_words,
)

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
