import math

import pytest
import torch

from attnbook.attention.error_budget import (
    Bounded,
    error_budget,
    share_of_budget,
)
from attnbook.attention.running_errors import EXPONENTIAL, ErrorBounds

DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
TRUTH = torch.tensor([1.0, -4.0, 0.0], dtype=torch.float64)
MASK = torch.eye(4, dtype=torch.bool)
BOUNDED = Bounded(TRUTH, torch.tensor([0.5, 1.0, 0.0], dtype=torch.float64))


def test_a_share_is_the_largest_ratio_of_error_to_bound():
    assert share_of_budget(TRUTH.float(), BOUNDED) == 0
    near = TRUTH + torch.tensor([0.25, 0.25, 0.0])
    assert share_of_budget(near, BOUNDED) == 0.5


@pytest.mark.parametrize(
    "spoilt", [[math.nan, -4.0, 0.0], [math.inf, -4.0, 0.0], [1.0, -4.0, 1e-30]]
)
def test_nan_or_an_error_where_none_is_allowed_is_an_infinite_share(spoilt):
    assert share_of_budget(torch.tensor(spoilt), BOUNDED) == math.inf


@pytest.mark.refusal
def test_another_shape_is_refused():
    with pytest.raises(ValueError, match=r"shape \(2,\).*for \(3,\)"):
        share_of_budget(TRUTH[:2], BOUNDED)


@pytest.mark.refusal
def test_an_operation_without_a_rule_is_refused():
    x = torch.ones(3)
    with pytest.raises(NotImplementedError, match=r"no rule.*erf"):
        error_budget(torch.erf, [x], x)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_sum_that_cancels_is_judged_by_its_terms(dtype):
    """In every order of summation, although the result is nearly 0."""
    rng = torch.Generator().manual_seed(0)
    half = torch.randn(32, generator=rng, dtype=torch.float64)
    a = torch.cat([half, -half]).to(dtype)[None]
    b = torch.ones(64, 1, dtype=dtype)
    b[0] += 1 / 128
    upstream = torch.ones(1, 1, dtype=dtype)
    bounded = error_budget(torch.matmul, [a, b], upstream, accumulate=dtype)[0]
    worst, allowed_by_result = 0.0, 64 * torch.finfo(dtype).eps
    for seed in range(50):
        rng.manual_seed(seed)
        total = torch.zeros(1, 1, dtype=dtype)
        for i in torch.randperm(64, generator=rng):
            total = total + a[:, i, None] * b[i]
        worst = max(worst, float((total.double() - bounded.truth).abs()))
        assert share_of_budget(total, bounded) <= 1
    assert worst > allowed_by_result * float(bounded.truth.abs()) / 64


@pytest.mark.parametrize("dtype", DTYPES)
def test_gamma_bounds_the_worst_product_of_roundings(dtype):
    u = torch.finfo(dtype).eps / 2
    errors = ErrorBounds(dtype, accumulate=dtype)
    assert errors.compute_gamma(0, 0) == 0
    for n in (1, 10, 100):
        assert errors.compute_gamma(n, 0) >= (1 + u) ** n - 1
        assert 1 - (1 - u) ** n <= errors.compute_gamma(n, 0)
        if n * u < 1:
            assert errors.compute_gamma(n, 0) <= n * u / (1 - n * u) + 1e-15


def perturbed(function, inputs, errors, count=200):
    """Return the largest change of results under changed inputs."""
    rng = torch.Generator().manual_seed(1)
    truth = function(*inputs)
    largest = torch.zeros_like(truth)
    for _ in range(count):
        moved = [
            x + (torch.randint(0, 2, x.shape, generator=rng) * 2 - 1) * error
            for x, error in zip(inputs, errors, strict=True)
        ]
        largest = torch.maximum(largest, (function(*moved) - truth).abs())
    return largest


FUNCTIONS = {
    "product": lambda a, b: a @ b,
    "sum": lambda a, b: a + b - 0.5 * a,
    "numbers": lambda a, b: a * b,
    "quotient": lambda a, b: a / (b.square() + 1),
    "softmax": lambda a, b: (3 * a).softmax(-1) * b,
    "masked": lambda a, b: (
        (a * b).masked_fill(MASK, -torch.inf).softmax(-1).masked_fill(MASK, 0)
    ),
    "tanh": lambda a, b: 2 * (a / 2).tanh() + b,
    "exponential": lambda a, b: (a - b).exp(),
    "ReLU": lambda a, b: (a @ b).relu(),
    "root": lambda a, b: (a.square().mean(-1, keepdim=True) + b * b).rsqrt(),
    "sums": lambda a, b: a.sum(-1, keepdim=True) * b.mean(0) - a,
    "whole power": lambda a, b: a**3 + b,
    "linear": lambda a, b: torch.nn.functional.linear(a, b, b[0]),
    "moved": lambda a, b: torch.cat([a.mT[1:], b[:1]]).flip(0) * 1.5,
}


@pytest.mark.parametrize("title", FUNCTIONS)
def test_errors_are_carried_forward_and_backward(title):
    """Inputs that are off by 1 % move results by no more than is carried."""
    rng = torch.Generator().manual_seed(0)
    function = FUNCTIONS[title]
    inputs = [torch.randn(4, 4, generator=rng, dtype=torch.float64) for _ in "ab"]
    upstream = torch.randn(4, 4, generator=rng, dtype=torch.float64)
    off = [0.01 * x.abs() for x in inputs]

    def both(*given):
        given = [x.detach().requires_grad_() for x in given]
        output = function(*given)
        return torch.stack(
            [output, *torch.autograd.grad(output, given, upstream)]
        ).detach()

    leaves = [x.clone().requires_grad_() for x in inputs]
    with ErrorBounds(torch.float64) as errors:
        for x, error in zip(leaves, off, strict=True):
            errors.set_error(x, error)
        output = function(*leaves)
        found = [output, *torch.autograd.grad(output, leaves, upstream)]
    carried = torch.stack([errors.get_error(x.detach()) for x in found])
    moved = perturbed(both, inputs, off)
    assert (moved <= carried + 1e-12).all()
    assert (moved > carried / 30).any()


@pytest.mark.parametrize("dtype", DTYPES[1:])
def test_the_errors_of_exp_on_this_machine_stay_within_their_bound(dtype):
    x = torch.linspace(-8, 8, 10_001).to(dtype)
    errors = ErrorBounds(dtype, accumulate=dtype)
    relative = x.exp().double() / x.double().exp() - 1
    allowed = (
        errors.compute_gamma(EXPONENTIAL)
        + errors.compute_gamma(2, 0) * x.double().abs()
    )
    assert (relative.abs() <= allowed).all()


def attend_in_single(query, key, value, upstream, scores_in):
    """Return output and gradients as kernels round them.

    Scores are stored in one precision, and the factors of products and the
    results in that of the inputs.
    """
    dtype = query.dtype

    def narrow(x):
        return x.to(dtype).float()

    q, k, v, up = (x.float() for x in (query, key, value, upstream))
    weights = (q @ k.mT).to(scores_in).float().softmax(-1)
    output = narrow(narrow(weights) @ v)
    means = (output * up).sum(-1, keepdim=True)
    dscores = narrow(weights * (up @ v.mT - means))
    grads = dscores @ k, dscores.mT @ q, narrow(weights).mT @ up
    return [narrow(x) for x in (output, *grads)]


@pytest.mark.parametrize("dtype", DTYPES[2:])
def test_between_holds_for_scores_in_single_precision_only(dtype):
    rng = torch.Generator().manual_seed(0)
    *inputs, upstream = (torch.randn(37, 64, generator=rng).to(dtype) for _ in range(4))

    def attend(query, key, value):
        return (query @ key.mT).softmax(-1) @ value

    single = torch.float32
    wide = error_budget(attend, inputs, upstream, accumulate=single)
    tight = error_budget(attend, inputs, upstream, accumulate=single, between=single)
    shares = {
        (kind, name): max(
            map(
                share_of_budget,
                attend_in_single(*inputs, upstream, kind),
                budget,
            )
        )
        for kind in (single, dtype)
        for name, budget in (("wide", wide), ("tight", tight))
    }
    assert shares[single, "wide"] <= shares[single, "tight"] <= 1
    assert shares[dtype, "wide"] <= 1
    assert shares[dtype, "tight"] > 1


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_same_precision_between_changes_nothing(dtype):
    rng = torch.Generator().manual_seed(0)
    a, b, upstream = (torch.randn(4, 4, generator=rng).to(dtype) for _ in range(3))
    budgets = [
        error_budget(FUNCTIONS["softmax"], [a, b], upstream, **more)
        for more in ({}, {"between": dtype})
    ]
    for x, y in zip(*budgets, strict=True):
        assert torch.equal(x.allowed, y.allowed)
