import pytest
import torch

from attnbook.attention.scaled_dot_product import (
    attend,
    attend_gradient,
    jacobian_norm,
    scores_gradient,
)

B, H, T, S, D, E = 2, 3, 5, 7, 11, 13


def draw(*shape, seed=0, size=1.0):
    rng = torch.Generator().manual_seed(seed + sum(shape))
    made = size * torch.randn(shape, generator=rng, dtype=torch.float64)
    return made.requires_grad_()


def mask_with_empty_row():
    rng = torch.Generator().manual_seed(4)
    mask = torch.rand(B, 1, T, S, generator=rng) < 0.6
    mask[0, :, 2] = False
    return mask


CASES = {
    "plain": ((B, H, T, D), (B, H, S, D), (B, H, S, E), {}),
    "mask": (
        *((B, H, T, D), (B, H, S, D), (B, H, S, E)),
        {"mask": mask_with_empty_row()},
    ),
    "scale": ((T, D), (S, D), (S, E), {"scale": 0.7}),
    "broadcast": ((B, H, T, D), (B, 1, S, D), (1, 1, S, E), {}),
    "one key": ((B, 1, D), (B, 1, D), (B, 1, E), {}),
}


@pytest.mark.parametrize("case", CASES)
def test_the_derived_gradients_equal_autograd(case):
    *shapes, options = CASES[case]
    inputs = [draw(*shape, seed=i) for i, shape in enumerate(shapes)]
    output = attend(*inputs, **options)
    upstream = torch.randn_like(output)
    wanted = torch.autograd.grad(output, inputs, upstream)
    plain = [x.detach() for x in inputs]
    for ours, theirs in zip(
        attend_gradient(*plain, upstream, **options), wanted, strict=True
    ):
        torch.testing.assert_close(ours, theirs)


def test_an_empty_row_passes_zero_gradients():
    mask = mask_with_empty_row()
    inputs = [draw(B, H, n, w).detach() for n, w in ((T, D), (S, D), (S, E))]
    dquery, *_ = attend_gradient(*inputs, torch.ones(B, H, T, E).double(), mask)
    assert not dquery[0, :, 2].any()
    assert dquery[1].abs().sum(-1).all()


def test_large_logits_stay_finite():
    inputs = [draw(n, w, size=1e3).detach() for n, w in ((T, D), (S, D), (S, E))]
    for gradient in attend_gradient(*inputs, torch.ones(T, E).double()):
        assert gradient.isfinite().all()


def test_jacobian_norm_is_the_norm_of_the_jacobian():
    scores = draw(T, S, size=2.0).detach()
    for row, norm in zip(scores, jacobian_norm(scores.softmax(-1)), strict=True):
        matrix = torch.autograd.functional.jacobian(lambda x: x.softmax(-1), row)
        torch.testing.assert_close(norm, matrix.norm())


def test_the_scores_gradient_sums_to_zero():
    weights = draw(T, S).detach().softmax(-1)
    slope = scores_gradient(weights, draw(T, S, seed=1).detach())
    assert slope.abs().max() > 0.01
    torch.testing.assert_close(slope.sum(-1), torch.zeros(T, dtype=torch.float64))


@pytest.mark.refusal
def test_an_upstream_gradient_of_another_shape_is_refused():
    inputs = [draw(n, w).detach() for n, w in ((T, D), (S, D), (S, E))]
    with pytest.raises(ValueError, match=r"\(5, 11\) but the output \(5, 13\)"):
        attend_gradient(*inputs, torch.ones(T, D))
