"""Derived cases find what declared ones do not: wrong answers by kind."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from attnbook.exercises.derived_cases import LIKELY
from attnbook.exercises.encoder_decoder import (
    check_greedy,
    check_last_state,
    check_masked_loss,
    check_reverse_source,
)
from attnbook.exercises.exercise import FIRST
from attnbook.exercises.masks import check_causal
from attnbook.exercises.multi_head import check_multi_head
from attnbook.exercises.named_axes import Inputs
from attnbook.exercises.scaled_dot_product import check_attend
from attnbook.exercises.transformer import check_layer_norm
from kind_mutants import list_mutants
from workshop.book.mistakes import list_entries

VARIED = {
    "attend": check_attend,
    "greedy": check_greedy,
    "last_state": check_last_state,
    "masked_loss": check_masked_loss,
    "multi_head": check_multi_head,
    "layer_norm": check_layer_norm,
    "causal": check_causal,
}


def list_kinds(exercise):
    return {case.kind for case in exercise.draw_cases(FIRST)} - {""}


def mutants():
    for name, exercise in VARIED.items():
        for kind, words, mutant in list_mutants(exercise, exercise.solution):
            yield pytest.param(exercise, kind, mutant, id=f"{name}-{kind}-{words}")


@pytest.mark.long
@pytest.mark.precision
@pytest.mark.parametrize(("exercise", "kind", "mutant"), list(mutants()))
def test_an_answer_that_is_wrong_in_one_kind_of_case_is_found(exercise, kind, mutant):
    verdict = exercise.judge(exercise.run_attempt(mutant, (FIRST,)), own=False)
    if kind == "nan":
        assert verdict and verdict.remarks
    else:
        assert not verdict


def test_every_kind_has_a_likely_mistake():
    kinds = set().union(*(list_kinds(x.exercise) for x in list_entries()))
    assert kinds == set(LIKELY)


def test_every_exercise_on_tensors_has_derived_cases():
    some = [x.name for x in list_entries() if list_kinds(x.exercise)]
    assert len(some) >= 40


def test_only_the_first_inputs_have_derived_cases():
    assert not {c.kind for c in check_attend.draw_cases(FIRST + 1)} - {""}


def test_kinds_that_an_exercise_excludes_are_left_out():
    assert not list_kinds(check_reverse_source) & {"long", "positions"}
    without = replace(check_attend, without=frozenset(LIKELY))
    assert list_kinds(without) == list_kinds(check_attend)  # declared once
    plain = replace(
        check_attend, draw=check_attend.draw.draw, without=frozenset(LIKELY)
    )
    assert list_kinds(plain) == set()


def test_a_view_that_needs_another_layout_is_a_remark():
    def loss(logits, targets, pad):
        return F.cross_entropy(
            logits.view(-1, logits.shape[-1]),
            targets.reshape(-1),
            ignore_index=pad,
        )

    verdict = check_masked_loss(loss, 3)
    assert verdict
    assert "with transposed views" in verdict.remarks[0]


def test_resizing_keeps_padding_at_the_end():
    axes = {"targets": ("B", "T"), "lengths": ("B",), "keys": ("B", "S")}
    given = Inputs(
        axes,
        {
            "targets": torch.tensor([[5, 6, 7, 0, 0]]),
            "lengths": torch.tensor([2]),
            "keys": torch.arange(4)[None],
        },
    )
    longer = given.resize("T", 9).given["targets"][0].tolist()
    assert len(longer) == 9
    assert sorted(longer, key=lambda x: x == 0) == longer
    assert given.resize("S", 8).given["lengths"].tolist() == [4]
    assert given.resize("S", 1).given["lengths"].tolist() == [1]
