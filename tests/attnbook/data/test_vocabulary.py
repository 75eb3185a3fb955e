"""Symbols become numbers and come back; batches know their lengths."""

import pytest
import torch

from attnbook.data.vocabulary import (
    END,
    PAD,
    SPECIAL,
    START,
    UNKNOWN,
    Vocabulary,
    pad_sequences,
)

LETTERS = Vocabulary.of(["cab", "bad"])


def test_special_symbols_come_first_and_the_others_are_sorted():
    assert LETTERS.symbols == ("<pad>", "<start>", "<end>", "<unk>", *"abcd")
    assert [SPECIAL[i] for i in (PAD, START, END, UNKNOWN)] == [*SPECIAL]
    assert Vocabulary.of(["dab", "c"]).symbols == LETTERS.symbols
    assert len(LETTERS) == 8


def test_encode_and_decode_are_inverse():
    assert LETTERS.encode("dcba") == [7, 6, 5, 4]
    assert LETTERS.decode([7, 6, 5, 4]) == tuple("dcba")
    assert LETTERS.encode_known("axb") == [4, UNKNOWN, 5]


def test_decode_stops_at_end_and_skips_start_and_padding():
    written = [START, 4, PAD, 5, UNKNOWN, END, 6, 99]
    assert LETTERS.decode(written) == ("a", "b", "<unk>")
    assert LETTERS.decode(torch.tensor(written)) == ("a", "b", "<unk>")


def test_a_batch_is_padded_at_the_end():
    tokens, lengths = pad_sequences([[4, 5, 6], [7], [5, 4]])
    assert tokens.tolist() == [[4, 5, 6], [7, PAD, PAD], [5, 4, PAD]]
    assert lengths.tolist() == [3, 1, 2]


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: LETTERS.encode("axb"), "^'x' is not one of the 8 symbols"),
        (lambda: LETTERS.decode([4, 8]), "^8 is not .* from 0 to 7$"),
        (lambda: Vocabulary("aba"), "7 symbols.*'a'"),
        (lambda: Vocabulary(["a", "<pad>"]), "6 symbols.*'<pad>'"),
        (lambda: pad_sequences([]), "at least 1 sequence, but got 0$"),
        (lambda: pad_sequences([[4], [], [5]]), "sequence 1 of 3 has length 0$"),
    ],
)
def test_symbols_numbers_and_sequences_that_are_not_possible_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
