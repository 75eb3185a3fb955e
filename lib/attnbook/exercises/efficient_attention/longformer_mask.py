"""Exercise: Longformer's mask, a two-sided window with global positions.

Source: Beltagy et al. (2020), section 3.1, https://arxiv.org/abs/2004.05150
Axes: T positions
"""

import torch
from jaxtyping import Bool
from torch import Tensor

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_integers


def longformer_mask(
    length: int, reach: int, global_positions: list[int]
) -> Bool[Tensor, "T T"]:
    """Return True within `reach`, and in the rows and columns of globals."""
    index = torch.arange(length)
    near = (index[:, None] - index).abs() <= reach
    chosen = torch.isin(index, torch.tensor(global_positions).long())
    return near | chosen[:, None] | chosen


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One position; a window; one global position; then several."""

    def size(low, high):
        return int(draw_integers(rng, low, high, 1))

    def some(length, count):
        return sorted(torch.randperm(length, generator=rng)[:count].tolist())

    length = size(15, 29)
    return (
        Case("with one position", (1, 0, [0])),
        Case("with a window alone", (5, 1, [])),
        Case("with reach 0 and one global position", (5, 0, [1])),
        Case("with a window and the first position global", (7, 1, [0])),
        Case("with a global position inside", (9, 2, [size(3, 5)])),
        Case("with 2 global positions", (length, 2, some(length, 2))),
        Case("with a large reach", (length, size(3, 6), some(length, 3))),
        Case("with a reach beyond the length", (size(3, 6), 9, [])),
    )


JOINED = "near | chosen[:, None] | chosen"

check_longformer_mask = Exercise(
    title="Longformer's mask",
    stars=1,
    minutes=10,
    section="Fixed patterns: windows, dilation, global tokens, random blocks",
    solution=longformer_mask,
    returns=("mask",),
    draw=draw,
    allowed="Everything in PyTorch is allowed; `attnbook.masks` has the answer in it.",
    mistakes=(
        Mistake(
            "columns-only",
            "global positions do not attend everywhere",
            "global positions are attended to from everywhere, but do not "
            "attend everywhere: their rows must be True as well",
            "chosen[:, None] | chosen → chosen",
        ),
        Mistake(
            "rows-only",
            "global positions are not attended to",
            "global positions attend everywhere, but are not attended to from "
            "everywhere: their columns must be True as well",
            "chosen[:, None] | chosen → chosen[:, None]",
        ),
        Mistake(
            "only-among-themselves",
            "global positions attend to each other only",
            "global positions are connected only with one another; each is "
            "connected with every position",
            "chosen[:, None] | chosen → (chosen[:, None] & chosen)",
        ),
        Mistake(
            "no-global",
            "global positions not used",
            "the global positions are not used: the mask is a window",
            f"{JOINED} → near",
        ),
        Mistake(
            "no-window",
            "window not used",
            "the window is not used: only global positions are connected",
            "near | chosen → chosen",
        ),
        Mistake(
            "and",
            "`and` instead of `or`",
            "a key must be near and global; one of both is enough",
            f"{JOINED} → near & (chosen[:, None] | chosen)",
        ),
        Mistake(
            "one-sided",
            "window to one side only",
            "the window only looks back; `reach` counts keys on each side",
            "near | chosen → near.tril() | chosen",
        ),
        Mistake(
            "causal",
            "causal mask",
            "later positions are masked out altogether; Longformer's encoder "
            "attends in both directions",
            f"{JOINED} → ({JOINED}).tril()",
        ),
        Mistake(
            "reach-in-total",
            "reach divided between the sides",
            "half of `reach` is used on each side; `reach` counts the keys of one side",
            "<= reach → <= reach // 2",
        ),
        Mistake(
            "one-too-few",
            "one key too few on each side",
            "the window has one key too few on each side; a key at distance "
            "`reach` is still inside",
            "<= reach → < reach",
        ),
        Mistake(
            "one-too-many",
            "one key too many on each side",
            "the window has one key too many on each side",
            "<= reach → <= reach + 1",
        ),
        Mistake(
            "inverted",
            "inverted mask",
            "the mask is inverted: True should mean that a query can attend to a key",
            f"{JOINED} → ~({JOINED})",
        ),
        Mistake(
            "numbers",
            "numbers instead of booleans",
            "the mask contains the numbers 1 and 0, which other functions may "
            "add to the scores; it should be boolean",
            f"{JOINED} → ({JOINED}).float()",
        ),
    ),
)
