"""Masks from first principles, weights that keep to them, and a leakage test.

Source: the mask contract is this book's
Axes: B batch, T queries, S keys, V symbols
"""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def causal(T: int, S: int) -> Bool[Tensor, "T S"]:
    """Return True where key s does not come after query t.

    The last query stands at the last key, so query t stands at t + S - T.
    """
    return torch.arange(S) <= torch.arange(T)[:, None] + S - T


def padding(lengths: Int[Tensor, " B"], S: int) -> Bool[Tensor, "B 1 1 S"]:
    """Return True for keys that are no padding; for all heads and queries."""
    return (torch.arange(S) < lengths[:, None])[:, None, None, :]


def combine(lengths: Int[Tensor, " B"], T: int) -> Bool[Tensor, "B 1 T T"]:
    """Return True where a key is no padding and does not come later."""
    return causal(T, T) & padding(lengths, T)


def no_leak(
    model: Callable[[Int[Tensor, "B T"]], Float[Tensor, "B T V"]],
    tokens: Int[Tensor, "B T"],
) -> bool:
    """Tell whether a model's past stays when its future changes.

    Args:
        model: a module that gives logits, one for each of V symbols, of which
            0 is padding. It is judged in evaluation mode, and left as it came.
        tokens: a batch to begin with.
    """
    training = model.training
    before = model.eval()(tokens)

    def stays(start: int, symbol: int) -> bool:
        changed = tokens.clone()
        changed[:, start:] = symbol
        after = model(changed)[:, :start]
        return torch.allclose(after, before[:, :start], rtol=1e-5, atol=1e-5)

    sound = all(
        stays(start, symbol)
        for start in range(1, tokens.shape[1])
        for symbol in range(before.shape[-1])
    )
    model.train(training)
    return sound
