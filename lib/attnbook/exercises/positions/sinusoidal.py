"""Exercise: sinusoidal encodings that are added to the embeddings.

Source: Vaswani et al. (2017), section 3.5, https://arxiv.org/abs/1706.03762
Axes: T positions, C model width
"""

import torch
from jaxtyping import Float
from torch import Tensor

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_integers


def sinusoidal(length: int, width: int) -> Float[Tensor, "T C"]:
    """Return sine and cosine of each pair's angle, interleaved."""
    steps = 10000.0 ** -(torch.arange(0, width, 2) / width)
    angle = torch.arange(length)[:, None] * steps
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)


def encode_by_column(length: int, width: int) -> torch.Tensor:
    """Return encodings in which column j has its own exponent j / C."""
    angle = torch.arange(length)[:, None] * 1e4 ** (-torch.arange(width) / width)
    even = torch.arange(width) % 2 == 0
    return torch.where(even, angle.sin(), angle.cos())


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One position; then one pair of columns; then many of both."""

    def number(low, high):
        return draw_integers(rng, low, high, 1).item()

    return (
        Case("with one position", (1, 2 * number(2, 9))),
        Case("with one pair of columns", (number(3, 11), 2)),
        Case("with two pairs of columns", (number(3, 11), 4)),
        Case("with several", (number(5, 19), 2 * number(3, 9))),
        Case("with more columns than positions", (3, 2 * number(9, 19))),
        Case("with more positions", (number(20, 24), 10)),
    )


def compute_exponents(width: int) -> Tensor:
    """Return 2i / width for each pair of columns."""
    return torch.arange(0, width, 2) / width


def interleave(even: Tensor, odd: Tensor) -> Tensor:
    """Return the columns of two tensors interleaved."""
    return torch.stack([even, odd], dim=-1).flatten(-2)


check_sinusoidal = Exercise(
    title="sinusoidal position encoding",
    stars=1,
    minutes=10,
    section="Sinusoidal positions: fast and slow waves",
    solution=sinusoidal,
    returns=("encodings",),
    draw=draw,
    allowed="Everything is allowed but the functions of `attnbook.positions`.",
    mistakes=(
        Mistake(
            "concatenated",
            "sines and cosines not interleaved",
            "all sines come first, then all cosines; they should be interleaved",
            ("torch.stack → torch.cat", ".flatten(1) → "),
        ),
        Mistake(
            "cosine-first",
            "sine and cosine swapped",
            "sine and cosine are swapped: the even columns should be sines",
            "angle.sin(), angle.cos() → angle.cos(), angle.sin()",
        ),
        Mistake(
            "exponent-by-pair",
            "exponent i / width instead of 2i / width",
            "the exponent of pair i is i / width; it should be 2i / width, so "
            "that the exponents range from 0 to nearly 1",
            "/ width) → / width / 2)",
        ),
        Mistake(
            "exponent-by-column",
            "exponent for each column",
            "every column has its own exponent; the two columns of a pair share one",
            encode_by_column,
        ),
        Mistake(
            "exponent-to-the-end",
            "last exponent equal to 1",
            "the last exponent is 1, as in the Tensor2Tensor code; in the "
            "paper's formula, it is 1 - 2 / width",
            "(torch.arange(0, width, 2) / width) → torch.linspace(0, 1, width // 2)",
        ),
        Mistake(
            "exponent-floored",
            "integer division",
            "the exponents are computed with `//`, which makes all of them 0",
            "/ width) → // width)",
        ),
        Mistake(
            "wavelength-for-frequency",
            "multiplied instead of divided",
            "the positions are multiplied by base^(2i / width); they should "
            "be divided by it",
            "** - → ** ",
        ),
        Mistake(
            "slow-first",
            "frequencies in reverse order",
            "the frequencies are in reverse order: the first pair should have "
            "the highest one",
            "/ width) → / width).flip(0)",
        ),
        Mistake(
            "base-1000",
            "base 1000",
            "the base is 1000; it should be 10000, as in the paper",
            "10000.0 → 1000.0",
        ),
        Mistake(
            "counted-from-one",
            "positions counted from 1",
            "the positions are counted from 1; they should be counted from 0",
            "torch.arange(length) → torch.arange(1, length + 1)",
        ),
        Mistake(
            "angles-in-half",
            "angles in half precision",
            "positions and angles are computed in half precision, which has "
            "only 11 significant bits",
            (
                "[:, None] * steps → .half()[:, None] * steps.half()",
                "flatten(1) → flatten(1).float()",
            ),
        ),
        Mistake(
            "full-turns",
            "angles multiplied by 2π",
            "the angles are multiplied by 2π; the angle of the first pair "
            "should grow by 1 radian for each position",
            "* steps → * steps * 2 * torch.pi",
        ),
        Mistake(
            "degrees",
            "degrees instead of radians",
            "the angles are taken as degrees; they should be radians",
            "* steps → * steps * torch.pi / 180",
        ),
        Mistake(
            "sine-only",
            "sines only",
            "every column is a sine; the odd columns should be cosines",
            "angle.cos() → angle.sin()",
        ),
        Mistake(
            "sine-sign",
            "wrong sign of the sines",
            "the sines have the wrong sign",
            "angle.sin() → -angle.sin()",
        ),
        Mistake(
            "transposed",
            "transposed",
            "the result is transposed: the positions should be the rows",
            "flatten(1) → flatten(1).T",
        ),
        Mistake(
            "batch-axis",
            "extra batch axis",
            "there is an extra axis of length 1; the shape should be (length, width)",
            "flatten(1) → flatten(1)[None]",
        ),
        Mistake(
            "double-precision",
            "double precision",
            "the encodings are in double precision, which would convert the "
            "embeddings to double precision",
            "flatten(1) → flatten(1).double()",
        ),
    ),
)
