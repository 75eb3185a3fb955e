"""A function of your own against the law, and against its usual mistakes.

Chapter: chapters/06_multi_head
Source: none (own work); the mistakes are those of published code, each with
    its thread in the chapters' pitfalls
Axes: B batch, H heads, T queries, S keys, D width of query and key, E of values
"""

from collections.abc import Callable

import torch
from torch import Tensor

from attnbook.diagnose.behaviour import apart
from attnbook.scaled_dot_product import attend

Attention = Callable[..., Tensor]

# T, S, D, E, and the kind of mask: a different prime on every axis, because
# equal axes hide a transpose.
CASES = {
    "no mask": (5, 7, 11, 13, None),
    "as many queries as keys": (7, 7, 11, 11, None),
    "a mask": (5, 7, 11, 13, "some"),
    "a causal mask": (7, 7, 11, 11, "causal"),
    "a query that sees no key": (5, 7, 11, 13, "empty"),
    "large scores": (5, 7, 11, 13, "loud"),
}


def drawn(name: str) -> tuple[list[Tensor], Tensor | None]:
    """Return query, key and value of a case, and its mask."""
    T, S, D, E, kind = CASES[name]
    rng = torch.Generator().manual_seed(7)
    shapes = (T, D), (S, D), (S, E)
    inputs = [torch.randn(2, 3, *shape, generator=rng) for shape in shapes]
    if kind == "loud":
        inputs[0] = 40 * inputs[0]
    if kind not in ("some", "causal", "empty"):
        return inputs, None
    mask = torch.rand(2, 1, T, S, generator=rng) < 0.6
    mask[..., 0] = True
    if kind == "causal":
        mask = torch.ones(T, S, dtype=torch.bool).tril()
    if kind == "empty":
        mask[0, :, 2] = False
    return inputs, mask


def told(function: Attention, name: str) -> Tensor:
    """Return what a function makes of a case; a mask is given if there is one.

    Raises:
        ValueError: if it fails, with what it said.
    """
    inputs, mask = drawn(name)
    try:
        with torch.no_grad():
            return (
                function(*inputs) if mask is None else function(*inputs, mask)
            )
    except Exception as error:
        raise ValueError(
            f"it fails at {name!r}: {type(error).__name__}: {error}"
        ) from error


def law_test(function: Attention) -> dict[str, float]:
    """Return how far a function is from `attend`, case by case.

    Args:
        function: of query (B, H, T, D), key (B, H, S, D), value (B, H, S, E)
            and, as a fourth argument, a boolean mask, True = may look. Wrap
            what wants it otherwise:
            `law_test(lambda q, k, v, mask=None: mine(q, k, v, ~mask))`.

    Raises:
        ValueError: if the function fails, or gives another shape.
    """
    found = {}
    for name in CASES:
        ours, theirs = told(attend, name), told(function, name)
        if ours.shape != theirs.shape:
            raise ValueError(
                f"at {name!r} it gives {tuple(theirs.shape)}, "
                f"but {tuple(ours.shape)} is right"
            )
        found[name] = float(apart(theirs, ours).amax())
    return found


def scaled(factor: Callable[[Tensor], float]) -> Attention:
    """Return attention with another scale, made from the query."""
    return lambda q, k, v, mask=None: attend(q, k, v, mask, scale=factor(q))


def weighed(q: Tensor, k: Tensor, axis: int = -1) -> Tensor:
    """Return the weights without any mask."""
    return (q @ k.mT * q.shape[-1] ** -0.5).softmax(axis)


def uniform_if_empty(q, k, v, mask=None):
    """Fill with a large negative number: an empty row becomes uniform."""
    scores = q @ k.mT * q.shape[-1] ** -0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, -1e9)
    return scores.softmax(-1) @ v


MISTAKES: dict[str, Attention] = {
    "the scores are not scaled": scaled(lambda q: 1.0),
    "divided by D, not by its root": scaled(lambda q: 1 / q.shape[-1]),
    "divided by the root of H · D": scaled(
        lambda q: (q.shape[1] * q.shape[-1]) ** -0.5
    ),
    "divided by the root of H": scaled(lambda q: q.shape[1] ** -0.5),
    "the mask the other way round": lambda q, k, v, mask=None: attend(
        q, k, v, None if mask is None else ~mask
    ),
    "the mask is not used": lambda q, k, v, mask=None: attend(q, k, v),
    "masked after the softmax": lambda q, k, v, mask=None: (
        weighed(q, k) * (1 if mask is None else mask) @ v
    ),
    "softmax over the queries": lambda q, k, v, mask=None: (
        weighed(q, k, -2) * (1 if mask is None else mask) @ v
    ),
    "a row without a key becomes uniform": uniform_if_empty,
}


def known_mistakes(function: Attention, close: float = 1e-4) -> list[str]:
    """Return the usual mistakes that give exactly this function's numbers.

    A mistake counts if it explains every case, and some case is wrong.
    """
    if max(law_test(function).values()) < close:
        return []
    return [
        mistake
        for mistake, wrong in MISTAKES.items()
        if all(
            apart(told(function, name), told(wrong, name)).amax() < close
            for name in CASES
        )
    ]
