"""Exercise: turn queries and keys to their positions.

Source: Su et al. (2021), section 3.4, equation 34,
    https://arxiv.org/abs/2104.09864
Axes: B batch, H heads, T positions, D width of a head
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import (
    cast,
    draw_integers,
    draw_normal,
    to_double,
    to_half,
)
from attnbook.exercises.positions.sinusoidal import (
    compute_exponents,
    interleave,
)


def rotate(
    x: Float[Tensor, "B H T D"],
    positions: Int[Tensor, "T"],
    base: float = 10000.0,
) -> Float[Tensor, "B H T D"]:
    """Return x, columns 2i and 2i + 1 rotated by position · base^(-2i/D)."""
    D = x.shape[-1]
    # In single precision at least: half precision cannot count positions.
    steps = base ** -(torch.arange(0, D, 2, dtype=torch.float64) / D)
    angle = positions[:, None] * steps
    sine, cosine = angle.sin().to(x.dtype), angle.cos().to(x.dtype)
    even, odd = x[..., 0::2], x[..., 1::2]
    pair = even * cosine - odd * sine, even * sine + odd * cosine
    return torch.stack(pair, dim=-1).flatten(-2)


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One position; then many; then numbers that hide a mistake."""

    def inputs(b, h, t, d, at=0, base=10000.0):
        return draw_normal(rng, b, h, t, d), torch.arange(t) + at, base

    start = draw_integers(rng, 3, 20, 1).item()
    jumps = draw_integers(rng, 1, 4, 5).cumsum(0).flip(0)
    usual = inputs(2, 3, 5, 14)
    late = inputs(2, 3, 5, 6, at=20_011 + start)
    return (
        Case("at position 0", inputs(1, 1, 1, 2)),
        Case("with one pair of columns", inputs(2, 1, 3, 2)),
        Case("with 7 pairs of columns", usual, gradient=True),
        Case("with a first position that is not 0", inputs(2, 3, 5, 6, start)),
        Case(
            "with positions that jump",
            (draw_normal(rng, 2, 3, 5, 6), jumps, 1e4),
        ),
        Case("with another base", inputs(2, 3, 5, 10, base=100.0)),
        Case("with the base left out", inputs(1, 2, 3, 10)[:2]),
        Case("with everything equal", inputs(4, 4, 4, 4)),
        Case("in double precision, at position 0", to_double(inputs(2, 1, 1, 6))),
        Case("in half precision", to_half(inputs(2, 3, 5, 6))),
        Case("in half precision, at distant positions", to_half(late)),
        Case("in bfloat16, at distant positions", cast(late, torch.bfloat16)),
    )


def rotate_pairs_by_half_angles(
    x: Tensor, positions: Tensor, base: float = 10000.0
) -> Tensor:
    """Return adjacent pairs rotated by angles laid out for halves."""
    angle = positions[:, None] * base ** -compute_exponents(x.shape[-1])
    angle = torch.cat([angle, angle], dim=-1)
    sine, cosine = angle.sin().to(x.dtype), angle.cos().to(x.dtype)
    return x * cosine + interleave(-x[..., 1::2], x[..., ::2]) * sine


def rotate_halves_by_pair_angles(
    x: Tensor, positions: Tensor, base: float = 10000.0
) -> Tensor:
    """Return halves rotated by angles laid out for adjacent pairs."""
    angle = positions[:, None] * base ** -compute_exponents(x.shape[-1])
    angle = angle.repeat_interleave(2, dim=-1)
    sine, cosine = angle.sin().to(x.dtype), angle.cos().to(x.dtype)
    first, second = x.chunk(2, dim=-1)
    return x * cosine + torch.cat([-second, first], dim=-1) * sine


def add_encoding(x: Tensor, positions: Tensor, base: float = 10000.0) -> Tensor:
    """Return x with the sinusoidal encodings added."""
    angle = positions[:, None] * base ** -compute_exponents(x.shape[-1])
    return x + interleave(angle.sin(), angle.cos()).to(x.dtype)


check_rotate = Exercise(
    same_precision=True,
    title="rotary position embedding",
    stars=2,
    minutes=15,
    section="RoPE: rotated queries and keys",
    solution=rotate,
    returns=("rotated",),
    draw=draw,
    # `view_as_complex` takes one layout in memory, and is a usual way.
    without=frozenset({"layout"}),
    allowed="Everything is allowed but the functions of `attnbook.positions`.",
    mistakes=(
        Mistake(
            "half-split",
            "halves paired",
            "column i is paired with column i + D / 2, as in GPT-NeoX and "
            "Llama; here adjacent columns are pairs, as in the paper",
            (
                "x[..., 0::2], x[..., 1::2] → x.chunk(2, dim=-1)",
                "torch.stack(pair, dim=-1).flatten(-2) → torch.cat(pair, dim=-1)",
            ),
        ),
        Mistake(
            "concatenated",
            "result not interleaved",
            "adjacent columns are rotated, but the results are concatenated "
            "as two halves; they should be interleaved again",
            "torch.stack(pair, dim=-1).flatten(-2) → torch.cat(pair, dim=-1)",
        ),
        Mistake(
            "split-by-halves",
            "halves rotated, result interleaved",
            "the two halves are rotated as pairs, but the result is "
            "interleaved; split and join should use the same pairs",
            "x[..., 0::2], x[..., 1::2] → x.chunk(2, dim=-1)",
        ),
        Mistake(
            "pairings-mixed",
            "angles laid out for halves",
            "adjacent columns are rotated by angles laid out for halves, so "
            "the two columns of a pair get different angles",
            rotate_pairs_by_half_angles,
        ),
        Mistake(
            "pairings-mixed-halves",
            "angles laid out for adjacent pairs",
            "the two halves are rotated by angles laid out for adjacent "
            "columns, so the two columns of a pair get different angles",
            rotate_halves_by_pair_angles,
        ),
        Mistake(
            "identity",
            "no rotation",
            "the input is returned without rotation",
            lambda x, positions, base=10000.0: x * 1,
        ),
        Mistake(
            "backwards",
            "rotation in the opposite direction",
            "every pair is rotated in the opposite direction; check both "
            "signs against the rotation matrix",
            "angle = positions → angle = -positions",
        ),
        Mistake(
            "reflected",
            "not a rotation",
            "a sign is wrong: this is not a rotation, because it changes the "
            "length of the vectors",
            "cosine - odd → cosine + odd",
        ),
        Mistake(
            "sine-for-cosine",
            "sine and cosine swapped",
            "sine and cosine are swapped: the vector at position 0 should not "
            "be rotated",
            "sine, cosine = → cosine, sine =",
        ),
        Mistake(
            "cosine-only",
            "sines missing",
            "the columns are multiplied by the cosines only; the sines are missing",
            (" - odd * sine → ", "even * sine + odd * cosine → odd * cosine"),
        ),
        Mistake(
            "offset-ignored",
            "given positions not used",
            "the positions are counted from 0; use the given ones, which need "
            "not start there",
            "positions[:, None] → torch.arange(len(positions))[:, None]",
        ),
        Mistake(
            "start-only",
            "only the first position used",
            "only the first position is used and the others are counted from "
            "it; the given positions may have gaps",
            "positions[:, None] "
            "→ (positions[0] + torch.arange(len(positions)))[:, None]",
        ),
        Mistake(
            "counted-from-one",
            "positions counted from 1",
            "1 is added to the positions; the vector at position 0 should not "
            "be rotated",
            "positions[:, None] → (positions + 1)[:, None]",
        ),
        Mistake(
            "base-ignored",
            "base not used",
            "the base is always 10000, whatever `base` is",
            "base ** → 10000.0 **",
        ),
        Mistake(
            "base-10",
            "base 10",
            "the default base is 10; it should be 10000",
            "base ** → 10.0 **",
        ),
        Mistake(
            "exponent-by-pair",
            "exponent i / D instead of 2i / D",
            "the exponent of pair i is i / D, so the exponents end near 1/2; "
            "it should be 2i / D",
            "/ D) → / D / 2)",
        ),
        Mistake(
            "wavelength-for-frequency",
            "multiplied instead of divided",
            "the positions are multiplied by base^(2i / D); they should be "
            "divided by it",
            "** - → ** ",
        ),
        Mistake(
            "slow-first",
            "frequencies in reverse order",
            "the frequencies are in reverse order: the first pair should have "
            "the highest one",
            "/ D) → / D).flip(0)",
        ),
        Mistake(
            "one-frequency",
            "one frequency for all pairs",
            "all pairs are rotated by the same angle",
            "/ D) → / D * 0)",
        ),
        Mistake(
            "angles-in-half",
            "angles in half precision",
            "the angles are computed in the dtype of `x`: in half precision, "
            "distant positions become equal",
            "positions[:, None] * steps "
            "→ positions[:, None].to(x.dtype) * steps.to(x.dtype)",
        ),
        Mistake(
            "added",
            "added instead of rotated",
            "sines and cosines are added to `x`; `x` should be rotated",
            add_encoding,
        ),
    ),
)
