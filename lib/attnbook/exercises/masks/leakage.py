"""The leakage test with its parts to be replaced, to make it go wrong.

Axes: B batch, T positions, V symbols
"""

import copy
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn


def close(a: Tensor, b: Tensor) -> bool:
    """Tell whether two outputs are equal but for rounding."""
    return torch.allclose(a, b, rtol=1e-5, atol=1e-5)


def judge(
    model: nn.Module,
    tokens: Tensor,
    same: Callable[[Tensor, Tensor], bool] = close,
    keep: int = 0,
    cuts: Iterable[int] | None = None,
    symbols: Iterable[int] | None = None,
    mode: bool | None = False,
) -> bool:
    """Tell whether the past of a model stays when its future changes.

    Args:
        model: maps tokens (B, T) to logits (B, T, V).
        tokens: a batch to begin with.
        same: tells whether two outputs are.
        keep: how many changed positions are compared as well.
        cuts: where the future begins; everywhere unless given.
        symbols: what the future is changed to; all V unless given.
        mode: training (True), evaluation (False) or as it comes (None).
    """
    if mode is not None:
        model = copy.deepcopy(model).train(mode)
    before = model(tokens)
    for cut in range(1, tokens.shape[1]) if cuts is None else cuts:
        for symbol in range(before.shape[-1]) if symbols is None else symbols:
            changed, at = tokens.clone(), cut % tokens.shape[1]
            changed[:, at:] = symbol
            after = model(changed)
            if not same(after[:, : at + keep], before[:, : at + keep]):
                return False
    return True


def cut_off(model: nn.Module, tokens: Tensor) -> bool:
    """Tell whether a beginning alone gives what it gives in the whole."""
    model = copy.deepcopy(model).eval()
    whole = model(tokens)
    return all(
        close(model(tokens[:, :n]), whole[:, :n])
        for n in range(1, tokens.shape[1])
    )
