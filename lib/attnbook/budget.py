"""The error budget: how wrong a result may be in the precision it is made in.

Chapter: chapters/04_scaled_dot_product
Source: the rule that flash-attention's tests use (Dao et al., 2022,
    https://github.com/Dao-AILab/flash-attention/blob/main/tests): no further
    from the truth than twice plain PyTorch in that precision. Ours adds a
    floor of one rounding of the largest number.
Axes: none
"""

import torch
from torch import Tensor


def share_of_budget(ours: Tensor, plain: Tensor, truth: Tensor) -> float:
    """Return the largest error as a share of what is allowed; at most 1 is met.

    Allowed is 2 · (largest error of plain) + ε · (largest number of truth),
    where ε is the machine epsilon of the precision that ours is in.

    Args:
        ours: the result to be judged.
        plain: what plain PyTorch gives in the same precision.
        truth: what float64 gives for the same inputs.

    Raises:
        ValueError: if the shapes differ, or plain is in another precision.
    """
    if not ours.shape == plain.shape == truth.shape:
        raise ValueError(
            f"shapes differ: ours {tuple(ours.shape)}, plain "
            f"{tuple(plain.shape)}, truth {tuple(truth.shape)}"
        )
    if ours.dtype != plain.dtype:
        raise ValueError(f"ours is {ours.dtype} but plain is {plain.dtype}")
    if not truth.numel():
        return 0.0

    def error(result: Tensor) -> float:
        return float((result.detach().double() - truth.detach()).abs().max())

    floor = torch.finfo(ours.dtype).eps * float(truth.detach().abs().max())
    allowed = 2 * error(plain) + floor
    # NaN must not pass: no comparison with it holds.
    wrong = error(ours)
    return 0.0 if wrong == 0 else wrong / allowed if allowed else float("inf")
