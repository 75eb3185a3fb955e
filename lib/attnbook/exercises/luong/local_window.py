"""Exercise: the window of local attention.

Source: Luong et al. (2015), section 3.2, https://arxiv.org/abs/1508.04025.
    Departure: positions count from 0, and the window's half width D is `reach`.
Axes: B batch, T queries, S keys
"""

import torch
from torch import Tensor

from attnbook.attention import local
from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_integers, to_double, to_half


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One position; whole centers; centers in between; windows cut off."""

    def quarters(low, high, *shape):
        """Return centers a quarter away from a whole number: no ties."""
        side = draw_integers(rng, 0, 1, *shape) / 2 - 0.25
        return draw_integers(rng, low, high, *shape) + side

    wholes = draw_integers(rng, 1, 5, 2, 3).float()
    between = (
        draw_integers(rng, 1, 5, 2, 3) + 0.1 + 0.8 * torch.rand(2, 3, generator=rng)
    )
    over = torch.cat(
        [quarters(-1, 0, 2, 1), quarters(6, 7, 2, 1), quarters(2, 4, 2, 1)], 1
    )
    outside = torch.cat([quarters(-9, -6, 2, 2), quarters(16, 20, 2, 1)], 1)
    return (
        Case("with one query and one position", (torch.zeros(1, 1), 1, 0)),
        Case("around whole numbers", (wholes, 7, 1)),
        Case("around centers between positions", (between, 7, 1)),
        Case("with a reach of 2", (wholes.flip(1), 11, 2)),
        Case("with windows over either end", (over, 7, 2)),
        Case("with windows beyond either end", (outside, 11, 2)),
        Case("with a reach of 0", (torch.cat([wholes, between], 1), 7, 0)),
        Case("with a reach beyond both ends", (between, 5, 40)),
        Case("with fewer positions than queries", (quarters(0, 2, 2, 5), 3, 1)),
        Case("with B = T = S", (draw_integers(rng, 0, 2, 3, 3).float(), 3, 1)),
        Case("with a transposed view", (quarters(0, 6, 5, 2).T, 7, 2)),
        Case("in double precision", to_double((between, 7, 2)), asked=False),
        Case("in half precision", to_half((over, 7, 2)), asked=False),
    )


def compute_offsets(center: Tensor, length: int) -> Tensor:
    """Return s - center for every place s."""
    return torch.arange(length) - center[..., None]


def move_center(move):
    """Return windows around centers moved by a function of (center, S, r)."""

    def answer(center, length, reach):
        moved = move(center, length, reach)
        return compute_offsets(moved, length).abs() <= reach

    return answer


def compare_offsets(seen):
    """Return windows that another test of (s - center, r) decides."""
    return lambda center, length, reach: seen(compute_offsets(center, length), reach)


def wrap_window(center, length, reach):
    """Go on at the other end, as `torch.roll` does."""
    away = compute_offsets(center, length).abs() % length
    return torch.minimum(away, length - away) <= reach


check_local_window = Exercise(
    title="mask of local attention",
    stars=1,
    minutes=10,
    section="Global and local attention",
    solution=local.local_window,
    returns=("window",),
    draw=draw,
    mistakes=(
        Mistake(
            "strict",
            "edges excluded",
            "the edges are excluded; a position at a distance of exactly "
            "`reach` belongs to the window",
            compare_offsets(lambda x, r: x.abs() < r),
        ),
        Mistake(
            "half-open",
            "right edge excluded",
            "the right edge is excluded, as at the end of a Python slice; it "
            "belongs to the window",
            compare_offsets(lambda x, r: (x >= -r) & (x < r)),
        ),
        Mistake(
            "no-left-edge",
            "no left edge",
            "the window has no left edge, as when `abs` is missing",
            compare_offsets(lambda x, r: x <= r),
        ),
        Mistake(
            "no-right-edge",
            "no right edge",
            "the window has no right edge, as when `abs` is missing",
            compare_offsets(lambda x, r: -x <= r),
        ),
        Mistake(
            "only-before",
            "positions after the center missing",
            "the window ends at its center; it should reach equally far to both sides",
            compare_offsets(lambda x, r: (x >= -r) & (x <= 0)),
        ),
        Mistake(
            "only-after",
            "positions before the center missing",
            "the window begins at its center; it should reach equally far to "
            "both sides",
            compare_offsets(lambda x, r: (x >= 0) & (x <= r)),
        ),
        Mistake(
            "half-reach",
            "reach taken as the full width",
            "`reach` is taken as the width of the whole window; it is the "
            "distance to each side",
            compare_offsets(lambda x, r: x.abs() <= r / 2),
        ),
        Mistake(
            "squared",
            "squared distance",
            "the squared distance is compared with `reach`; it should be the distance",
            compare_offsets(lambda x, r: x**2 <= r),
        ),
        Mistake(
            "inverted",
            "inverted mask",
            "the mask is inverted: True should mean that a query can attend "
            "to the position",
            compare_offsets(lambda x, r: x.abs() > r),
        ),
        Mistake(
            "rounded",
            "center rounded",
            "the center is rounded to an integer; it may lie between two positions",
            move_center(lambda c, S, r: c.round()),
        ),
        Mistake(
            "floored",
            "center rounded down",
            "the center is rounded down to an integer; it may lie between two "
            "positions",
            move_center(lambda c, S, r: c.floor()),
        ),
        Mistake(
            "truncated",
            "center converted to an integer",
            "the center is converted to an integer; it may lie between two positions",
            move_center(lambda c, S, r: c.long()),
        ),
        Mistake(
            "clamped",
            "center clamped to the sentence",
            "the center is clamped to the sentence; a window outside the "
            "sentence should be empty",
            move_center(lambda c, S, r: c.clamp(0, S - 1)),
        ),
        Mistake(
            "moved-inside",
            "window moved inside the sentence",
            "the window is moved until all of it lies inside the sentence; "
            "the part outside should be cut off",
            move_center(lambda c, S, r: c.clamp(min(r, S - 1), max(S - 1 - r, 0))),
        ),
        Mistake(
            "wrapped",
            "window wraps around",
            "the window wraps around to the other end of the sentence",
            wrap_window,
        ),
        Mistake(
            "counts-from-one",
            "positions counted from 1",
            "the positions are counted from 1; they should be counted from 0",
            move_center(lambda c, S, r: c - 1),
        ),
        Mistake(
            "step-for-center",
            "query index as center",
            "the window is centered on the index of the query; it should be "
            "centered on the given center",
            move_center(lambda c, S, r: torch.arange(c.shape[1]).expand_as(c).to(c)),
        ),
        Mistake(
            "first-center",
            "first center for all queries",
            "every query uses the center of the first one",
            move_center(lambda c, S, r: c[:, :1].expand_as(c)),
        ),
        Mistake(
            "first-sequence",
            "first sequence only",
            "every sequence uses the windows of the first one",
            move_center(lambda c, S, r: c[:1].expand_as(c)),
        ),
        Mistake(
            "swapped-axes",
            "queries and positions swapped",
            "the axes of queries and positions are swapped; the mask should "
            "have the shape (B, T, S)",
            lambda c, S, r: (compute_offsets(c, S).abs() <= r).mT,
        ),
    ),
)
