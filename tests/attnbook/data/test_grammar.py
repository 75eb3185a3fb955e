"""The sentences with known alignments: their sets, links and samples."""

import doctest

import pytest

from attnbook.data import grammar
from attnbook.data.grammar import (
    EXAMPLES,
    load,
    load_example,
    load_long,
    load_short,
    sample_pairs,
)


def test_the_docstrings_example_is_what_is_printed():
    assert doctest.testmod(grammar).failed == 0


def test_a_link_joins_words_that_exist_and_sure_links_are_possible():
    for pair in (
        *load().test,
        *load_long(),
        *load_short(8)[:1000],
        *load_short(10)[:1000],
    ):
        assert pair.sure <= pair.possible
        for row, column in pair.possible:
            assert 0 <= row < len(pair.target) and 0 <= column < len(pair.source)


def test_no_sentence_of_the_test_set_or_the_examples_was_trained_on():
    parts = load().train, load().valid, load().test, load_long()
    sources = [pair.source for part in parts for pair in part]
    assert len(set(sources)) == len(sources)
    assert {load_example(name).source for name in EXAMPLES}.isdisjoint(sources)


def test_every_held_out_word_occurs_in_training():
    for side in ("source", "target"):
        learnt = {word for pair in load().train for word in getattr(pair, side)}
        for part in (load().valid, load().test, load_long()):
            assert {word for pair in part for word in getattr(pair, side)} <= learnt


def test_a_seed_gives_the_same_distinct_sentences_of_the_lengths_asked_for():
    drawn = sample_pairs(50, seed=3, shortest=5, longest=8)
    assert drawn == sample_pairs(50, seed=3, shortest=5, longest=8)
    assert drawn != sample_pairs(50, seed=4, shortest=5, longest=8)
    assert len({pair.source for pair in drawn}) == 50
    assert all(5 <= len(pair.source) <= 8 for pair in drawn)


@pytest.mark.refusal
@pytest.mark.parametrize("lengths", [(9, 8), (41, 50), (3, 8)])
def test_more_sentences_than_there_are_are_refused(lengths):
    with pytest.raises(ValueError, match=r"from 1 to \d+.* not 100000"):
        sample_pairs(100_000, 0, *lengths)


@pytest.mark.refusal
def test_short_sentences_of_another_length_are_refused():
    with pytest.raises(ValueError, match="8 or 10 words, not 9"):
        load_short(9)


@pytest.mark.refusal
def test_an_unknown_example_is_refused():
    with pytest.raises(ValueError, match="'cat'; there are"):
        load_example("cat")
