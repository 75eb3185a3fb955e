import itertools

import numpy as np
import pytest

from attnbook.training.metrics import (
    alignment_error_rate,
    bleu,
    edit_distance,
    extract_links,
    sequence_error_rate,
    shift_links,
    symbol_error_rate,
)


def slow_distance(a, b):
    if not a or not b:
        return len(a) + len(b)
    return min(
        slow_distance(a[1:], b) + 1,
        slow_distance(a, b[1:]) + 1,
        slow_distance(a[1:], b[1:]) + (a[0] != b[0]),
    )


def test_edit_distance_is_its_definition():
    words = ["".join(w) for n in range(4) for w in itertools.product("ab", repeat=n)]
    for a, b in itertools.product(words, words):
        assert edit_distance(a, b) == slow_distance(a, b), (a, b)
    assert edit_distance("kitten", "sitting") == 3
    assert edit_distance(("Z", "AH"), ("AH", "Z")) == 2


def test_the_nearest_reference_counts():
    references = [["ab", "abcd"], ["x"]]
    assert symbol_error_rate(["abc", "x"], references) == 1 / 5
    assert symbol_error_rate(["", "xyz"], references) == 4 / 3


def test_a_sequence_is_right_or_wrong():
    references = [[("a", "b"), ("a",)], [("x",)]]
    assert sequence_error_rate([["a"], ["y"]], references) == 1 / 2
    assert sequence_error_rate([("a", "b"), ("x",)], references) == 0


def test_bleu_is_sacrebleus():
    import sacrebleu

    ours = ["le chat est sur le tapis rouge", "il pleut"]
    theirs = ["le chat est sur le tapis vert", "il pleut fort"]
    assert bleu(ours, theirs) == sacrebleu.corpus_bleu(ours, [theirs]).score
    assert bleu(theirs, theirs) == pytest.approx(100)
    assert 0 < bleu(ours, theirs) < 100


def test_links_leave_out_the_end():
    weights = np.array([[0.1, 0.9, 0], [0.2, 0.1, 0.7], [1, 0, 0]])
    assert extract_links(weights, targets=2, sources=2) == {(0, 1)}
    assert extract_links(weights, targets=3, sources=3) == {
        (0, 1),
        (1, 2),
        (2, 0),
    }


def test_alignment_error_is_och_and_neys():
    sure, possible = {(0, 0)}, {(0, 0), (1, 1), (1, 2)}
    assert alignment_error_rate([sure], [sure], [possible]) == 0
    assert alignment_error_rate([possible], [sure], [possible]) == 0
    assert alignment_error_rate([{(0, 1)}], [sure], [possible]) == 1
    # |A∩S| = 1, |A∩P| = 2, |A| = 3, |S| = 1
    predicted = {(0, 0), (1, 2), (2, 2)}
    error = alignment_error_rate([predicted], [sure], [possible])
    assert error == pytest.approx(1 - 3 / 4)


def test_shifted_links_outside_the_source_are_dropped():
    assert shift_links({(0, 0), (1, 2)}, by=1, sources=3) == {(0, 1)}
    assert shift_links({(0, 0), (1, 2)}, by=-1, sources=3) == {(1, 1)}


@pytest.mark.refusal
def test_unequal_counts_of_outputs_and_references_are_refused():
    with pytest.raises(ValueError, match=r"1 outputs .* 2 references"):
        sequence_error_rate(["a"], [["a"], ["b"]])
    with pytest.raises(ValueError, match="0 outputs"):
        bleu([], [])
    with pytest.raises(ValueError, match="not among the possible"):
        alignment_error_rate([set()], [{(0, 0)}], [{(1, 1)}])
