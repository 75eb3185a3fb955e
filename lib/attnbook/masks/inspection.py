"""Diagnostics for attention masks: common mistakes, found before use.

Most wrong masks raise no error. They broadcast along another axis, have the
opposite meaning, or leave a query without any key. Each of these can be
detected from the mask and the shapes of query and key.

Source: the threads that chapter 7 links
Axes: B batch, H heads, T queries, S keys
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor


class Finding(NamedTuple):
    """A likely mistake in a mask: a short name, and what was found, with numbers."""

    slug: str
    text: str


def inspect_mask(
    mask: Tensor,
    query: Float[Tensor, "B H T D"],
    key: Float[Tensor, "B H S D"],
) -> list[Finding]:
    """Return likely mistakes in a mask that should mean True = can attend.

    An empty list means that nothing was found, not that the mask is right. The
    three arguments are those of `attend`; keys may have fewer heads than queries.
    """
    B, H, T = query.shape[:3]
    S = key.shape[-2]
    if mask.dtype != torch.bool:
        return [find_numbers(mask)]
    try:
        full = mask.expand(B, H, T, S)
    except RuntimeError:
        text = f"shape {tuple(mask.shape)} does not broadcast to {(B, H, T, S)}"
        return [Finding("shape", text)]
    return [
        *find_axis_errors(mask, B, H, T, S),
        *find_empty_rows(full),
        *find_order_errors(full, T, S),
    ]


def find_numbers(mask: Tensor) -> Finding:
    """Return a finding that says what a mask of numbers probably means."""
    numbers = mask.unique()
    some = ", ".join(f"{x:.4g}" for x in numbers[:4].tolist())
    kind = "zeros and ones" if set(numbers.tolist()) <= {0, 1} else "additive"
    return Finding(
        "not-boolean",
        f"the mask is {mask.dtype} and holds {some}: {kind}? Convert it with "
        f"attnbook.masks.conventions.read_mask",
    )


def find_axis_errors(mask: Tensor, B: int, H: int, T: int, S: int) -> Iterator[Finding]:
    """Yield findings on axes that broadcasting aligns with the wrong axis."""
    shape = tuple(mask.shape)
    if mask.ndim == 2 and mask.shape[0] == B == T and B > 1 and B != S:
        yield Finding(
            "batch-as-queries",
            f"shape {shape} is read as (T, S); if its first axis is the batch of "
            f"{B}, write (B, 1, 1, S)",
        )
    if mask.ndim == 3 and mask.shape[0] == B == H and B > 1:
        yield Finding(
            "batch-as-heads",
            f"shape {shape} is read as (H, T, S), the same for every sequence; if "
            f"its first axis is the batch of {B}, write (B, 1, T, S)",
        )
    if mask.ndim >= 2 and mask.shape[-1] == 1 < S and mask.shape[-2] == T:
        yield Finding(
            "queries-not-keys",
            f"shape {shape} hides full queries from all keys; padding hides keys: "
            f"write (B, 1, 1, S)",
        )


def find_empty_rows(full: Tensor) -> Iterator[Finding]:
    """Yield findings on queries without keys, and on masks without effect."""
    empty = ~full.any(-1)
    if empty.any():
        b, h, t = empty.nonzero()[0].tolist()
        yield Finding(
            "empty-rows",
            f"{int(empty.sum())} of {empty.numel()} queries have no key; the first "
            f"is query {t} of head {h}, sequence {b}",
        )
    if full.numel() and full.all():
        yield Finding("nothing-hidden", "every query can attend to every key")


def find_order_errors(full: Tensor, T: int, S: int) -> Iterator[Finding]:
    """Yield findings on an inverted or wrongly aligned causal mask."""
    q = torch.arange(T, device=full.device)[:, None]
    k = torch.arange(S, device=full.device)
    future, past = k > q + S - T, k < q + S - T
    one = full.flatten(0, 1)
    if not (future.any() and past.any()) or not len(one):
        return
    if (one & future).any() and not (one & past).any():
        yield Finding(
            "inverted",
            "queries attend to later keys and to no earlier ones: does True mean "
            "masked out here?",
        )
    if T < S and torch.equal(one, (k <= q).expand_as(one)):
        yield Finding(
            "top-left",
            f"causal from the top left: the last of {T} queries attends to {T} of "
            f"{S} keys. With cached keys, the last query is aligned with the last "
            f"key",
        )
