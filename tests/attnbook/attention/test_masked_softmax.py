import pytest
import torch

from attnbook.attention.masked_softmax import masked_softmax


def test_weights_depend_on_unmasked_scores_alone():
    scores = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0))
    mask = torch.tensor([True, False, True, True, False])
    weights = masked_softmax(scores, mask)
    expected = scores[..., mask].softmax(-1)
    torch.testing.assert_close(weights[..., mask], expected)
    assert (weights[..., ~mask] == 0).all()


def test_an_empty_row_gives_zeros_and_finite_gradients():
    scores = torch.full((2, 3), 1e4, requires_grad=True)
    mask = torch.tensor([[True, True, False], [False, False, False]])
    weights = masked_softmax(scores, mask)
    assert weights.tolist() == [[0.5, 0.5, 0.0], [0.0, 0.0, 0.0]]
    (weights * torch.tensor([[1.0, 2.0, 3.0]])).sum().backward()
    assert scores.grad.isfinite().all()
    assert (scores.grad[1] == 0).all()
    assert (scores.grad[0, :2] != 0).all()


def test_a_masked_out_score_has_no_effect_however_large():
    scores = torch.tensor([[1.0, 2.0, 1e30]])
    mask = torch.tensor([[True, True, False]])
    small = masked_softmax(torch.tensor([[1.0, 2.0, -5.0]]), mask)
    assert torch.equal(masked_softmax(scores, mask), small)


def test_an_unmasked_nan_surfaces():
    scores = torch.tensor([[1.0, torch.nan]])
    assert masked_softmax(scores, torch.tensor([True, True])).isnan().all()


def test_nothing_is_changed_in_place():
    scores = torch.randn(2, 3)
    mask = torch.tensor([[True, False, True], [False, False, False]])
    kept, shown = scores.clone(), mask.clone()
    masked_softmax(scores, mask)
    assert torch.equal(scores, kept)
    assert torch.equal(mask, shown)


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (torch.ones(3), "must be boolean.*but is torch.float32"),
        (torch.ones(4).bool(), r"\(4,\) does not broadcast.*\(2, 3\)"),
        (torch.ones(5, 2, 3).bool(), r"\(5, 2, 3\) does not broadcast"),
    ],
)
def test_a_mask_that_does_not_fit_is_refused(mask, message):
    with pytest.raises(ValueError, match=message):
        masked_softmax(torch.zeros(2, 3), mask)
