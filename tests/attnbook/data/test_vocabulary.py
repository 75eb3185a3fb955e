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
    assert LETTERS.symbols == (*SPECIAL, "a", "b", "c", "d")
    assert Vocabulary.of(["dab", "c"]).symbols == LETTERS.symbols
    assert [SPECIAL[i] for i in (PAD, START, END, UNKNOWN)] == [
        "<pad>",
        "<start>",
        "<end>",
        "<unk>",
    ]
    assert len(LETTERS) == 8


def test_encode_and_decode_are_inverse():
    numbers = LETTERS.encode("dcba")
    assert numbers == [7, 6, 5, 4]
    assert LETTERS.decode(numbers) == tuple("dcba")


def test_decode_stops_at_end_and_skips_start_and_padding():
    written = [START, 4, PAD, 5, UNKNOWN, END, 6, 99]
    assert LETTERS.decode(written) == ("a", "b", "<unk>")
    assert LETTERS.decode(torch.tensor(written)) == ("a", "b", "<unk>")
    assert LETTERS.decode([END, 4]) == ()


def test_encode_known_maps_only_unknown_symbols():
    assert LETTERS.encode_known("axb") == [4, UNKNOWN, 5]


@pytest.mark.refusal
def test_encode_names_the_unknown_symbol():
    with pytest.raises(ValueError, match=r"^'x' is not one of the 8 symbols"):
        LETTERS.encode("axb")


@pytest.mark.refusal
@pytest.mark.parametrize("number", [8, -1])
def test_decode_names_a_number_out_of_range(number):
    with pytest.raises(ValueError, match=rf"^{number} is not .* from 0 to 7$"):
        LETTERS.decode([4, number])


@pytest.mark.refusal
@pytest.mark.parametrize("symbols", [["a", "b", "a"], ["a", "<pad>"]])
def test_symbols_must_differ_from_each_other_and_the_special(symbols):
    count = len(symbols) + 4
    with pytest.raises(ValueError, match=rf"{count} symbols.*{symbols[-1]!r}"):
        Vocabulary(symbols)


def test_batch_pads_at_the_end_and_counts():
    tokens, lengths = pad_sequences([[4, 5, 6], [7], [5, 4]])
    expected = [[4, 5, 6], [7, PAD, PAD], [5, 4, PAD]]
    assert tokens.tolist() == expected
    assert lengths.tolist() == [3, 1, 2]
    assert tokens.dtype == lengths.dtype == torch.int64


@pytest.mark.refusal
def test_batch_refuses_no_sequence_and_length_zero():
    with pytest.raises(ValueError, match=r"at least 1 sequence, but got 0$"):
        pad_sequences([])
    with pytest.raises(ValueError, match=r"sequence 1 of 3 has length 0$"):
        pad_sequences([[4], [], [5]])
