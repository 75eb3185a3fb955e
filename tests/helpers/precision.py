"""Hold results in any precision to a reference that is computed in float64."""

import math
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
# How far a result may be from the reference, as a share of the largest number
# of its tensor: room for sums in any order, for scores of 200 that are rounded in
# float32, and for about ten roundings to a half precision, such as those of scores
# and weights that are stored. What a mistake changes is larger.
BOUNDS = {
    torch.float64: 1e-11,
    torch.float32: 1e-4,
    torch.float16: 1e-2,
    torch.bfloat16: 6e-2,
}
# Every precision has the same shapes: they are checked in one.
each_dtype = pytest.mark.parametrize(
    "dtype",
    [
        pytest.param(
            dtype,
            id=str(dtype)[6:],
            marks=() if dtype == torch.float32 else pytest.mark.precision,
        )
        for dtype in DTYPES
    ],
)


def draw(*shapes: Sequence[int], seed: int = 0) -> list[Tensor]:
    """Return normally distributed numbers in float64, one tensor for each shape."""
    rng = torch.Generator().manual_seed(seed)
    return [torch.randn(s, generator=rng, dtype=torch.float64) for s in shapes]


def attend_with_sink(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, sinks: Tensor
) -> Tensor:
    """Give each head one more key, whose score is its sink and whose value is 0."""
    scores = (query @ key.mT / query.shape[-1] ** 0.5).masked_fill(~mask, -torch.inf)
    more = sinks[:, None, None].expand(*scores.shape[:-1], 1)
    return torch.cat([scores, more], dim=-1).softmax(-1)[..., :-1] @ value


def run_with_gradients(
    function: Callable, inputs: Sequence[Tensor], upstream: Tensor
) -> list[Tensor]:
    """Return the output of a function, and a gradient for each of its inputs."""
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    output = function(*leaves)
    return [output, *torch.autograd.grad(output, leaves, upstream)]


def measure_difference(found: Tensor, expected: Tensor) -> float:
    """Return the largest difference as a share of the largest number, or of 1.

    NaN is infinitely far from every number.
    """
    size = max(1.0, expected.abs().max().item())
    difference = (found.double() - expected).abs().max().item() / size
    return math.inf if math.isnan(difference) else difference


def assert_close_to(found: Tensor, expected: Tensor, name: str) -> None:
    """Compare a result with the same in float64, within its precision's bound."""
    torch.testing.assert_close(
        found.double(),
        expected,
        rtol=0,
        atol=BOUNDS[found.dtype] * max(1.0, expected.abs().max().item()),
        msg=lambda text: f"{name} in {found.dtype}: {text}",
    )


def assert_all_close_to(found: Sequence[Tensor], expected: Sequence[Tensor]) -> None:
    """Compare an output and its gradients with the same in float64."""
    names = ["output", *(f"gradient of input {i}" for i in range(len(expected) - 1))]
    for name, x, truth in zip(names, found, expected, strict=True):
        assert x.dtype == found[0].dtype, f"{name} is {x.dtype}"
        assert_close_to(x, truth, name)


def assert_equals_reference(
    function: Callable,
    reference: Callable,
    inputs: Sequence[Tensor],
    upstream: Tensor,
) -> None:
    """Compare a function's output and gradients with those of a reference."""
    found = run_with_gradients(function, inputs, upstream)
    wide = [x.double() for x in inputs]
    expected = run_with_gradients(reference, wide, upstream.double())
    assert found[0].dtype == inputs[0].dtype
    assert_all_close_to(found, expected)
