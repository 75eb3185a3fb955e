"""Error rates and alignments, on numbers checked by hand."""

import pytest
import torch

from attnbook.data import Pair, Splits
from attnbook.training.metrics import (
    alignment_error_rate,
    bleu,
    edit_distance,
    extract_links,
    sequence_error_rate,
    symbol_error_rate,
)
from attnbook.training.tasks import Task, compute_error_rate, count_errors_by_length

PAIRS = [
    Pair(("a", "b"), ("x", "y"), (("x", "y"), ("z",))),
    Pair(("a", "b"), ("x",)),
    Pair(("a", "b", "c"), ("x", "y", "z", "z")),
]


@pytest.mark.parametrize(
    ("a", "b", "edits"),
    [("kitten", "sitting", 3), ("ab", "ba", 2), ("", "abc", 3), ("abcd", "bc", 2)],
)
def test_edit_distance_counts_the_fewest_edits(a, b, edits):
    assert edit_distance(a, b) == edit_distance(b, a) == edits


def test_the_nearest_reference_counts():
    references = [["ab", "abcd"], ["x"]]
    assert symbol_error_rate(["abc", "x"], references) == 1 / 5
    assert symbol_error_rate(["", "xyz"], references) == 4 / 3


def test_a_sequence_is_right_or_wrong():
    references = [[("a", "b"), ("a",)], [("x",)]]
    assert sequence_error_rate([["a"], ["y"]], references) == 1 / 2
    assert sequence_error_rate([("a", "b"), ("x",)], references) == 0


def test_errors_by_length_are_counted_against_the_nearest_reference():
    table = count_errors_by_length([("z",), ("y",), ("x", "z")], PAIRS)
    assert table == {
        "2": {"count": 2, "wrong": 1, "edits": 1, "symbols": 2},
        "3": {"count": 1, "wrong": 1, "edits": 2, "symbols": 4},
    }
    assert compute_error_rate(table) == 2 / 3
    assert compute_error_rate(table, longest=2) == 1 / 2
    assert compute_error_rate(table, 3, 3, of="edits") == 1 / 2


def test_bleu_is_0_to_100_and_compares_outputs_with_references():
    ours = ["le chat est sur le tapis rouge", "il pleut"]
    theirs = ["le chat est sur le tapis vert", "il pleut fort"]
    assert bleu(theirs, theirs) == pytest.approx(100)
    assert bleu(ours, theirs) < bleu(theirs, ours) < 100  # too short costs more


def test_links_leave_out_the_end():
    weights = torch.tensor([[0.1, 0.9, 0.0], [0.2, 0.1, 0.7], [1.0, 0.0, 0.0]])
    assert extract_links(weights, targets=2, sources=2) == {(0, 1)}
    assert extract_links(weights, targets=3, sources=3) == {(0, 1), (1, 2), (2, 0)}


def test_alignment_error_is_och_and_neys():
    sure, possible = {(0, 0)}, {(0, 0), (1, 1), (1, 2)}
    assert alignment_error_rate([possible], [sure], [possible]) == 0
    assert alignment_error_rate([{(0, 1)}], [sure], [possible]) == 1
    # |L∩S| = 1, |L∩P| = 2, |L| = 3, |S| = 1
    predicted = {(0, 0), (1, 2), (2, 2)}
    error = alignment_error_rate([predicted], [sure], [possible])
    assert error == pytest.approx(1 - 3 / 4)


def test_reading_backwards_reverses_the_source():
    forwards, backwards = (Task(Splits(tuple(PAIRS), (), ()), x) for x in (False, True))
    source = PAIRS[2].source
    assert backwards.encode_source(source) == forwards.encode_source(source)[::-1]


@pytest.mark.refusal
def test_what_cannot_be_scored_is_refused():
    with pytest.raises(ValueError, match=r"1 outputs .* 2 references"):
        sequence_error_rate(["a"], [["a"], ["b"]])
    with pytest.raises(ValueError, match="0 outputs"):
        bleu([], [])
    with pytest.raises(ValueError, match="not among the possible"):
        alignment_error_rate([set()], [{(0, 0)}], [{(1, 1)}])
    with pytest.raises(ValueError, match="between 9 and 10"):
        compute_error_rate({"2": {}}, 9, 10)
