"""The search index contains words and no numbers; names are words, too."""

import pytest

from workshop.book.search import BookSearch


@pytest.mark.parametrize(
    "word",
    ["0000002", "599", "2017", "3e9", "70aao0", "46e", "1421_2", "10pictur"],
)
def test_a_number_is_left_out(word):
    assert not BookSearch({}).word_filter(word)


@pytest.mark.parametrize(
    "word", ["attent", "2d", "16bit", "h100", "fp16", "fp8_kernel"]
)
def test_a_word_with_digits_is_found(word):
    assert BookSearch({}).word_filter(word)


@pytest.mark.parametrize("word", ["abcdefghijklmnopqrstuvwxyz", "a38b16173474ba8b1a95"])
def test_an_alphabet_or_a_digest_is_left_out(word):
    assert not BookSearch({}).word_filter(word)


def test_a_name_is_found_by_its_words():
    words = BookSearch({}).split("attend(is_causal=True, key_2)")
    assert words == ["attend", "is", "causal", "True", "key", "2"]


def test_a_word_that_says_nothing_is_left_out_as_before():
    assert not BookSearch({}).word_filter("the")
