"""Exercise: the window of local attention.

Chapter: chapters/03_luong
Source: Luong et al. (2015), section 3.2, https://arxiv.org/abs/1508.04025.
    Departure: places count from 0, and the window's half width D is `reach`.
Axes: B batch, T queries, S keys
"""

import torch
from torch import Tensor

from attnbook import local_attention
from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import doubled, halved, whole


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One place; whole centres; centres in between; windows cut off."""

    def quarters(low, high, *shape):
        """Return centres a quarter away from a whole number: no ties."""
        side = whole(rng, 0, 1, *shape) / 2 - 0.25
        return whole(rng, low, high, *shape) + side

    wholes = whole(rng, 1, 5, 2, 3).float()
    between = (
        whole(rng, 1, 5, 2, 3) + 0.1 + 0.8 * torch.rand(2, 3, generator=rng)
    )
    over = torch.cat(
        [quarters(-1, 0, 2, 1), quarters(6, 7, 2, 1), quarters(2, 4, 2, 1)], 1
    )
    outside = torch.cat([quarters(-9, -6, 2, 2), quarters(16, 20, 2, 1)], 1)
    return (
        Case("with one query and one place", (torch.zeros(1, 1), 1, 0)),
        Case("around whole numbers", (wholes, 7, 1)),
        Case("around centres between the places", (between, 7, 1)),
        Case("with a reach of 2", (wholes.flip(1), 11, 2)),
        Case("with windows over either end", (over, 7, 2)),
        Case("with windows beyond either end", (outside, 11, 2)),
        Case("with a reach of 0", (torch.cat([wholes, between], 1), 7, 0)),
        Case("with a reach beyond both ends", (between, 5, 40)),
        Case("with fewer places than queries", (quarters(0, 2, 2, 5), 3, 1)),
        Case("with B = T = S", (whole(rng, 0, 2, 3, 3).float(), 3, 1)),
        Case("with a transposed view", (quarters(0, 6, 5, 2).T, 7, 2)),
        Case("in double precision", doubled((between, 7, 2))),
        Case("in half precision", halved((over, 7, 2))),
    )


def apart(centre: Tensor, places: int) -> Tensor:
    """Return s - centre for every place s."""
    return torch.arange(places) - centre[..., None]


def around(move):
    """Return windows around centres moved by a function of (centre, S, r)."""

    def answer(centre, places, reach):
        moved = move(centre, places, reach)
        return apart(moved, places).abs() <= reach

    return answer


def of_distance(seen):
    """Return windows that another test of (s - centre, r) decides."""
    return lambda centre, places, reach: seen(apart(centre, places), reach)


def wrapped(centre, places, reach):
    """Go on at the other end, as `torch.roll` does."""
    away = apart(centre, places).abs() % places
    return torch.minimum(away, places - away) <= reach


check_local_window = Exercise(
    title="the window of local attention",
    stars=1,
    minutes=10,
    section="Only a window",
    solution=local_attention.local_window,
    returns=("window",),
    draw=draw,
    mistakes=(
        Mistake(
            "strict",
            "the edge is left out: a place just `reach` away belongs to the "
            "window",
            of_distance(lambda x, r: x.abs() < r),
        ),
        Mistake(
            "half-open",
            "the right edge is left out, as a slice leaves out its end",
            of_distance(lambda x, r: (x >= -r) & (x < r)),
        ),
        Mistake(
            "no-left-edge",
            "the window has no left edge, as when `abs` is forgotten",
            of_distance(lambda x, r: x <= r),
        ),
        Mistake(
            "no-right-edge",
            "the window has no right edge, as when `abs` is forgotten",
            of_distance(lambda x, r: -x <= r),
        ),
        Mistake(
            "only-before",
            "the window ends at its centre; it reaches as far after it as "
            "before it",
            of_distance(lambda x, r: (x >= -r) & (x <= 0)),
        ),
        Mistake(
            "only-after",
            "the window begins at its centre; it reaches as far before it as "
            "after it",
            of_distance(lambda x, r: (x >= 0) & (x <= r)),
        ),
        Mistake(
            "half-reach",
            "`reach` is taken for the width of the whole window; it counts "
            "to either side",
            of_distance(lambda x, r: x.abs() <= r / 2),
        ),
        Mistake(
            "squared",
            "the squared distance is compared with `reach`",
            of_distance(lambda x, r: x**2 <= r),
        ),
        Mistake(
            "inverted",
            "the window is upside down: True where it may not look",
            of_distance(lambda x, r: x.abs() > r),
        ),
        Mistake(
            "rounded",
            "the centre is rounded to a place; it may lie between two",
            around(lambda c, S, r: c.round()),
        ),
        Mistake(
            "floored",
            "the centre is rounded down to a place; it may lie between two",
            around(lambda c, S, r: c.floor()),
        ),
        Mistake(
            "truncated",
            "the centre is made an integer; it may lie between two places",
            around(lambda c, S, r: c.long()),
        ),
        Mistake(
            "clamped",
            "the centre is pulled back into the sentence; a window beyond it "
            "is empty",
            around(lambda c, S, r: c.clamp(0, S - 1)),
        ),
        Mistake(
            "moved-inside",
            "the window is moved until all of it lies in the sentence; what "
            "reaches over the end is cut off",
            around(lambda c, S, r: c.clamp(min(r, S - 1), max(S - 1 - r, 0))),
        ),
        Mistake(
            "wrapped",
            "the window goes on at the other end of the sentence",
            wrapped,
        ),
        Mistake(
            "counts-from-one",
            "the first place has the number 1; here places count from 0",
            around(lambda c, S, r: c - 1),
        ),
        Mistake(
            "step-for-centre",
            "the window stands at the number of the query, not at its centre",
            around(lambda c, S, r: torch.arange(c.shape[1]).expand_as(c).to(c)),
        ),
        Mistake(
            "first-centre",
            "every query has the window of the first",
            around(lambda c, S, r: c[:, :1].expand_as(c)),
        ),
        Mistake(
            "first-sequence",
            "every sequence has the windows of the first",
            around(lambda c, S, r: c[:1].expand_as(c)),
        ),
        Mistake(
            "swapped-axes",
            "queries and places have changed places: the mask is (B, S, T)",
            lambda c, S, r: (apart(c, S).abs() <= r).mT,
        ),
    ),
)
