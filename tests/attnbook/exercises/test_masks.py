"""What the exercises of chapter 7 are made of: solutions, models, a judge."""

import pytest
import torch

from attnbook import masks
from attnbook.exercises import masks as checks
from attnbook.exercises.masks import check_no_leak, models
from attnbook.exercises.masks.mask_fault import FAULTS
from attnbook.exercises.masks.no_leak import is_unaffected


@pytest.mark.parametrize(("T", "S"), [(1, 1), (3, 7), (7, 3), (1, 5), (5, 5)])
def test_the_solutions_equal_the_masks_of_the_library(T, S):
    lengths = torch.tensor([S, 0, 1])
    assert checks.check_causal.solution(T, S).equal(masks.causal(T, S))
    assert checks.check_padding.solution(lengths, S).equal(masks.padding(lengths, S))
    both = masks.causal(S, S) & masks.padding(lengths, S)
    assert checks.check_combine.solution(lengths, S).equal(both)


SOUND = {
    "attends to the past only",
    "is given one symbol",
    "has a window of 3",
    "is causal up to rounding",
    "is causal, in training mode with dropout",
    "is causal in evaluation mode, given in training mode",
}


@pytest.mark.parametrize("seed", range(3))
def test_the_models_leak_as_their_names_say(seed):
    cases = check_no_leak.draw_cases(seed)
    called = {case.tries.removeprefix("with a model that ") for case in cases}
    assert called > SOUND
    for case in cases:
        model, tokens = case.inputs
        name = case.tries.removeprefix("with a model that ")
        modes = [part.training for part in model.modules()]
        assert checks.check_no_leak.solution(model, tokens) == (name in SOUND), name
        assert [part.training for part in model.modules()] == modes
        assert is_unaffected(model, tokens) == (name in SOUND), name


@pytest.mark.parametrize("seed", range(3))
def test_small_leaks_are_much_larger_than_rounding_errors(seed):
    """So that any sensible tolerance tells them apart."""
    gaps = {}

    def noted(name):
        def same(a, b):
            gaps[name] = max(gaps.get(name, 0), float((a - b).abs().max()))
            return True

        return same

    for case in check_no_leak.draw_cases(seed):
        for name in "leaks very little", "is causal up to rounding":
            if case.tries.endswith(name):
                is_unaffected(*case.inputs, same=noted(name))
    assert 0 < gaps["is causal up to rounding"] < 1e-5
    assert 1e-3 < gaps["leaks very little"] < 0.3


def test_an_unmodified_model_is_causal():
    model = models.SmallModel(torch.Generator().manual_seed(0)).eval()
    tokens = torch.tensor([[1, 2, 3, 4, 5], [5, 0, 0, 2, 1]])
    whole = model(tokens)
    for n in range(1, 5):
        torch.testing.assert_close(model(tokens[:, :n]), whole[:, :n])


def compute_with_pytorch(scores, mask, how):
    """Return the weights that PyTorch's own functions use."""
    S = len(scores)
    if how.startswith("SDPA"):
        given = mask.bool() if how.endswith("boolean") else mask
        one = torch.eye(S)[None]
        return torch.nn.functional.scaled_dot_product_attention(
            scores[None, None], one, one, given[None, None], scale=1.0
        )[0, 0]
    # One head of width S: keys and values are unit vectors.
    module = torch.nn.MultiheadAttention(S, 1, bias=False, batch_first=True)
    with torch.no_grad():
        module.in_proj_weight.copy_(torch.eye(S).repeat(3, 1))
        module.out_proj.weight.copy_(torch.eye(S))
    given = mask.bool() if how.endswith("boolean") else mask
    one = torch.eye(S)[None]
    query = (scores * S**0.5)[None, None]
    found, _ = module(query, one, one, attn_mask=given[None], need_weights=False)
    return found[0, 0].detach()


@pytest.mark.parametrize("seed", range(3))
def test_the_predicted_weights_are_those_of_pytorch(seed):
    tried = set()
    for case in checks.check_interface_weights.draw_cases(seed):
        scores, mask, how = case.inputs
        if how.startswith(("SDPA", "module")):
            tried.add(how)
            torch.testing.assert_close(
                checks.check_interface_weights.solution(scores, mask, how),
                compute_with_pytorch(scores, mask, how),
                atol=1e-5,
                rtol=1e-5,
            )
    assert len(tried) == 4


@pytest.mark.parametrize("seed", range(3))
def test_every_fault_and_possibility_is_drawn_and_found(seed):
    found = set()
    for case in checks.check_mask_fault.draw_cases(seed):
        attention, x, mask = case.inputs
        number = checks.check_mask_fault.solution(attention, x, mask)
        assert number == FAULTS[attention.built_in]
        found.add(number)
    assert found == set(range(6))
    found = set()
    for case in checks.check_packed_model.draw_cases(seed):
        model, tokens, ids = case.inputs
        number = checks.check_packed_model.solution(model, tokens, ids)
        assert number == model.crosses + 2 * model.continues
        found.add(number)
    assert found == set(range(4))
