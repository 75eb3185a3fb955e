"""How outputs are scored, on pairs made by hand."""

from types import SimpleNamespace

import pytest

from attnbook.data import Pair, Splits
from attnbook.training.tasks import (
    Task,
    bootstrap_bleu,
    compute_error_rate,
    compute_shifted_error,
    count_errors_by_length,
)

PAIRS = [
    Pair(("a", "b"), ("x", "y"), (("x", "y"), ("z",))),
    Pair(("a", "b"), ("x",)),
    Pair(("a", "b", "c"), ("x", "y", "z", "z")),
]


def test_errors_by_length_are_counted_against_the_nearest_reference():
    table = count_errors_by_length([("z",), ("y",), ("x", "z")], PAIRS)
    assert table == {
        "2": {"count": 2, "wrong": 1, "edits": 1, "symbols": 2},
        "3": {"count": 1, "wrong": 1, "edits": 2, "symbols": 4},
    }
    assert compute_error_rate(table) == 2 / 3
    assert compute_error_rate(table, longest=2) == 1 / 2
    assert compute_error_rate(table, 3, 3, of="edits") == 1 / 2


@pytest.mark.refusal
def test_a_range_without_a_length_is_refused():
    with pytest.raises(ValueError, match="between 9 and 10"):
        compute_error_rate({"2": {}}, 9, 10)


def test_an_interval_contains_its_score():
    ours = ["le chat dort ici ce soir", "il pleut très fort ce matin"] * 4
    theirs = ["le chat dort ici ce matin", "il pleut fort ce matin"] * 4
    found = bootstrap_bleu(ours, theirs, draws=40)
    assert found["low"] <= found["bleu"] <= found["high"]
    assert found == bootstrap_bleu(ours, theirs, draws=40)


def test_links_are_moved_before_they_are_scored():
    sure = frozenset({(0, 1), (1, 2)})
    known = SimpleNamespace(source=("a", "b", "c"), sure=sure, possible=sure)
    links = [{(0, 0), (1, 1)}]
    assert compute_shifted_error(links, [known], 0) == 1
    assert compute_shifted_error(links, [known], 1) == 0


def test_reading_backwards_reverses_the_source():
    forwards, backwards = (Task(Splits(tuple(PAIRS), (), ()), x) for x in (False, True))
    source = PAIRS[2].source
    assert backwards.encode_source(source) == forwards.encode_source(source)[::-1]
