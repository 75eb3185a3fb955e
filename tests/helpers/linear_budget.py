"""Judge functions that compute in at least single precision.

Linear attention and the delta rule have references of their own. Half-precision
inputs are computed in single precision and rounded once, when results are
stored; the budget is that of single precision and of this rounding.
"""

import pytest
import torch
from torch import Tensor

from attnbook.attention.error_budget import (
    Bounded,
    error_budget,
    share_of_budget,
)

DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
# Every precision has the same shapes: they are checked in one.
each_dtype = pytest.mark.parametrize(
    "dtype",
    [
        pytest.param(
            d,
            id=str(d)[6:],
            marks=() if d == torch.float32 else pytest.mark.precision,
        )
        for d in DTYPES
    ],
)


def find_budgets(reference, inputs, upstream) -> list[Bounded]:
    """Return truth and budget of the output and of each gradient."""
    dtype = inputs[0].dtype
    wide = torch.promote_types(dtype, torch.float32)
    found = error_budget(reference, inputs, upstream, dtype=wide)
    if dtype == wide:
        return found
    info = torch.finfo(dtype)
    return [
        Bounded(x.truth, x.allowed + info.eps * (x.truth.abs() + x.allowed)
                + info.tiny)
        for x in found
    ]  # fmt: skip


def judge(function, inputs, upstream, budgets) -> float:
    """Return the largest share of the budgets that a function uses."""
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    output = function(*leaves)
    grads = torch.autograd.grad(output, leaves, upstream)
    assert all(x.dtype == inputs[0].dtype for x in (output, *grads))
    pairs: list[tuple[Tensor, Bounded]] = [*zip((output, *grads), budgets, strict=True)]
    return max(share_of_budget(*pair) for pair in pairs)
