"""Exercise: the waves that are added to the embeddings.

Chapter: chapters/08_positions
Source: Vaswani et al. (2017), section 3.5, https://arxiv.org/abs/1706.03762
Axes: T positions, C model width
"""

import torch

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import whole
from attnbook.exercises.positions.answers import (
    exponents,
    in_turns,
    one_after_the_other,
    waves,
)
from attnbook.solutions import positions as solutions

RIGHT = waves()


def by_column(length: int, width: int) -> torch.Tensor:
    """Return waves in which column j, not its pair, has the exponent j / C."""
    angle = torch.arange(length)[:, None] * 1e4 ** (
        -torch.arange(width) / width
    )
    even = torch.arange(width) % 2 == 0
    return torch.where(even, angle.sin(), angle.cos())


def to_the_end(width: int) -> torch.Tensor:
    """Return exponents from 0 to 1, both included."""
    return torch.arange(width // 2) / max(width // 2 - 1, 1)


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One position; then one pair of columns; then many of both."""

    def number(low, high):
        return whole(rng, low, high, 1).item()

    return (
        Case("with one position", (1, 2 * number(2, 9))),
        Case("with one pair of columns", (number(3, 11), 2)),
        Case("with two pairs of columns", (number(3, 11), 4)),
        Case("with several", (number(5, 19), 2 * number(3, 9))),
        Case("with more columns than positions", (3, 2 * number(9, 19))),
        Case("with more positions", (number(20, 24), 10)),
    )


check_sinusoidal = Exercise(
    title="waves for places",
    stars=1,
    minutes=10,
    section="Waves for places",
    solution=solutions.sinusoidal,
    returns=("waves",),
    draw=draw,
    allowed="Everything is allowed but the functions of `attnbook.positions`.",
    mistakes=(
        Mistake(
            "concatenated",
            "all sines come first, then all cosines; they stand in turns, the "
            "sine of a pair beside its cosine",
            waves(join=one_after_the_other),
        ),
        Mistake(
            "cosine-first",
            "sine and cosine have changed places: even columns hold the sine",
            waves(join=lambda sine, cosine: in_turns(cosine, sine)),
        ),
        Mistake(
            "exponent-by-pair",
            "pair i has the exponent i / width; the paper's 2i counts "
            "columns, so that the exponents go from 0 nearly to 1",
            waves(power=lambda width: exponents(width) / 2),
        ),
        Mistake(
            "exponent-by-column",
            "every column has an exponent of its own; the two columns of a "
            "pair share one",
            by_column,
        ),
        Mistake(
            "exponent-to-the-end",
            "the exponents are spread so that the last is 1, as in the code "
            "of Tensor2Tensor; the paper's formula ends one step before",
            waves(power=to_the_end),
        ),
        Mistake(
            "exponent-floored",
            "the exponents are divided with `//`, which leaves 0 for all",
            waves(power=lambda width: exponents(width).floor()),
        ),
        Mistake(
            "wavelength-for-frequency",
            "positions are multiplied by base^(2i / width), and should be "
            "divided by it",
            waves(power=lambda width: -exponents(width)),
        ),
        Mistake(
            "slow-first",
            "the frequencies are in the opposite order: the first pair is the "
            "fastest",
            waves(power=lambda width: exponents(width).flip(0)),
        ),
        Mistake(
            "base-1000",
            "the base is 1000; it is 10000 in the paper",
            waves(base=1000.0),
        ),
        Mistake(
            "counted-from-one",
            "the first position is counted as 1; positions count from 0",
            waves(first=1),
        ),
        Mistake(
            "angles-in-half",
            "positions and angles are rounded to half precision on the way, "
            "which has 11 bits",
            waves(dtype=torch.float16),
        ),
        Mistake(
            "full-turns",
            "the angles are multiplied by 2π; the fastest pair turns by one "
            "radian a step",
            waves(then=lambda angle: 2 * torch.pi * angle),
        ),
        Mistake(
            "degrees",
            "the angles are taken for degrees",
            waves(then=torch.deg2rad),
        ),
        Mistake(
            "sine-only",
            "every column holds a sine; odd columns hold the cosine",
            waves(join=lambda sine, cosine: in_turns(sine, sine)),
        ),
        Mistake(
            "sine-sign",
            "the sines have the wrong sign, as if positions ran backwards",
            waves(join=lambda sine, cosine: in_turns(-sine, cosine)),
        ),
        Mistake(
            "transposed",
            "there is a column for each position; positions are the rows",
            lambda length, width: RIGHT(length, width).T,
        ),
        Mistake(
            "batch-axis",
            "there is a first axis of length 1; (length, width) is asked for",
            lambda length, width: RIGHT(length, width)[None],
        ),
        Mistake(
            "double-precision",
            "the waves are in double precision, and make double whatever they "
            "are added to",
            lambda length, width: RIGHT(length, width).double(),
        ),
    ),
)
