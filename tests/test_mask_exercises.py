"""What the exercises of chapter 7 are made of: solutions, models, a judge."""

import pytest
import torch

from attnbook import masks
from attnbook.exercises.masks import check_no_leak, models
from attnbook.exercises.masks.leakage import judge
from attnbook.solutions import masks as solutions


@pytest.mark.parametrize(("T", "S"), [(1, 1), (3, 7), (7, 3), (1, 5), (5, 5)])
def test_the_solutions_are_the_librarys_masks(T, S):
    lengths = torch.tensor([S, 0, 1])
    assert solutions.causal(T, S).equal(masks.causal(T, S))
    assert solutions.padding(lengths, S).equal(masks.padding(lengths, S))
    both = masks.causal(S, S) & masks.padding(lengths, S)
    assert solutions.combine(lengths, S).equal(both)


SOUND = {
    "sees the past only",
    "is given one symbol",
    "has a window of 3",
    "is sound but for rounding",
    "is sound, in training, with dropout",
    "is sound in evaluation, and comes in training",
}


@pytest.mark.parametrize("seed", range(3))
def test_the_models_are_what_they_are_called(seed):
    cases = check_no_leak.cases(seed)
    called = {case.tries.removeprefix("with a model that ") for case in cases}
    assert called > SOUND
    for case in cases:
        model, tokens = case.inputs
        name = case.tries.removeprefix("with a model that ")
        modes = [part.training for part in model.modules()]
        assert solutions.no_leak(model, tokens) == (name in SOUND), name
        assert [part.training for part in model.modules()] == modes
        assert judge(model, tokens) == (name in SOUND), name


@pytest.mark.parametrize("seed", range(3))
def test_small_leaks_and_rounding_are_far_apart(seed):
    """So that any sensible tolerance tells them apart."""
    gaps = {}

    def noted(name):
        def same(a, b):
            gaps[name] = max(gaps.get(name, 0), float((a - b).abs().max()))
            return True

        return same

    for case in check_no_leak.cases(seed):
        for name in "leaks very little", "is sound but for rounding":
            if case.tries.endswith(name):
                judge(*case.inputs, same=noted(name))
    assert 0 < gaps["is sound but for rounding"] < 1e-5
    assert 1e-3 < gaps["leaks very little"] < 0.3


def test_a_reader_without_changes_is_causal():
    model = models.Reader(torch.Generator().manual_seed(0)).eval()
    tokens = torch.tensor([[1, 2, 3, 4, 5], [5, 0, 0, 2, 1]])
    whole = model(tokens)
    for n in range(1, 5):
        torch.testing.assert_close(model(tokens[:, :n]), whole[:, :n])
