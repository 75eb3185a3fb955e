"""Masks that would do something else than they seem to: found before use.

Most wrong masks raise no error. They broadcast along another axis, say the
opposite, or leave a query without any key. Each of these has a sign that can be
read off the mask and the shapes it will meet.

Chapter: chapters/07_masks
Source: the threads that chapter 7 links (own work)
Axes: B batch, H heads, T queries, S keys
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor


class Finding(NamedTuple):
    """Something about a mask that its writer should know.

    Attributes:
        slug: a short name.
        text: what was seen, with the numbers.
    """

    slug: str
    text: str


def inspect_mask(
    mask: Tensor,
    query: Float[Tensor, "B H T D"],
    key: Float[Tensor, "B H S D"],
) -> list[Finding]:
    """Return what is strange about a mask that should say True = may look.

    An empty list means that nothing was found, not that the mask is right.

    Args:
        mask: what is about to be given to `attend(query, key, value, mask)`.
        query: the queries, with axes (B, H, T, D).
        key: the keys, with axes (B, H, S, D); fewer heads than queries will do.
    """
    B, H, T = query.shape[:3]
    S = key.shape[-2]
    if mask.dtype != torch.bool:
        return [not_boolean(mask)]
    try:
        whole = mask.expand(B, H, T, S)
    except RuntimeError:
        said = f"shape {tuple(mask.shape)} does not broadcast to {(B, H, T, S)}"
        return [Finding("shape", said)]
    return [
        *axes_taken(mask, B, H, T, S),
        *rows_and_columns(whole),
        *order(whole, T, S),
    ]


def not_boolean(mask: Tensor) -> Finding:
    """Return what a mask of numbers probably is."""
    numbers = mask.unique()
    some = ", ".join(f"{x:.4g}" for x in numbers[:4].tolist())
    kind = "zeros and ones" if set(numbers.tolist()) <= {0, 1} else "additive"
    return Finding(
        "not-boolean",
        f"the mask is {mask.dtype} and holds {some}: {kind}? Say which, with "
        f"attnbook.masks.conventions.read",
    )


def axes_taken(mask: Tensor, B: int, H: int, T: int, S: int) -> list[Finding]:
    """Return axes that broadcasting takes for something else."""
    found = []
    if mask.ndim == 2 and mask.shape[0] == B == T and B > 1 and B != S:
        found.append(
            Finding(
                "batch-as-queries",
                f"shape {tuple(mask.shape)} is read as (T, S); if its first "
                f"axis is the batch of {B}, write (B, 1, 1, S)",
            )
        )
    if mask.ndim == 3 and mask.shape[0] == B == H and B > 1:
        found.append(
            Finding(
                "batch-as-heads",
                f"shape {tuple(mask.shape)} is read as (H, T, S), the same for "
                f"every text; if its first axis is the batch of {B}, write "
                f"(B, 1, T, S)",
            )
        )
    if mask.ndim >= 2 and mask.shape[-1] == 1 < S and mask.shape[-2] == T:
        found.append(
            Finding(
                "queries-not-keys",
                f"shape {tuple(mask.shape)} hides whole queries from all keys; "
                f"padding hides keys: write (B, 1, 1, S)",
            )
        )
    return found


def rows_and_columns(whole: Tensor) -> list[Finding]:
    """Return queries that see nothing, keys that nobody sees."""
    found = []
    empty = ~whole.any(-1)
    if empty.any():
        b, h, t = empty.nonzero()[0].tolist()
        found.append(
            Finding(
                "empty-rows",
                f"{int(empty.sum())} of {empty.numel()} queries see no key; "
                f"the first is query {t} of head {h}, text {b}",
            )
        )
    if whole.numel() and whole.all():
        found.append(Finding("nothing-hidden", "every query sees every key"))
    return found


def order(whole: Tensor, T: int, S: int) -> list[Finding]:
    """Return signs that past and future, or the ends, have been exchanged."""
    found = []
    q, k = torch.arange(T)[:, None], torch.arange(S)
    q, k = q.to(whole.device), k.to(whole.device)
    future, past = k > q + S - T, k < q + S - T
    one = whole.flatten(0, 1)
    if not (future.any() and past.any()) or not len(one):
        return found
    sees_future = (one & future).any()
    if sees_future and not (one & past).any():
        found.append(
            Finding(
                "inverted",
                "queries see keys after them and none before: is True = may "
                "not look meant?",
            )
        )
    upper_left = (k <= q).expand_as(one)
    if T < S and torch.equal(one, upper_left):
        found.append(
            Finding(
                "top-left",
                f"causal from the top left: the last of {T} queries sees {T} "
                f"of {S} keys. With a past, the last query stands at the last "
                f"key",
            )
        )
    return found
