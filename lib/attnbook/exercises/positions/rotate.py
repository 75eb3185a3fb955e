"""Exercise: turn queries and keys to their positions.

Source: Su et al. (2021), section 3.4, equation 34,
    https://arxiv.org/abs/2104.09864
Axes: B batch, H heads, T positions, D width of a head
"""

import torch

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import cast, doubled, halved, normal, whole
from attnbook.exercises.positions.answers import (
    added,
    exponents,
    halves,
    mixed_pairing,
    mixed_the_other_way,
    one_after_the_other,
    rotation,
)
from attnbook.exercises.solutions import positions as solutions


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One position; then many; then numbers that hide a mistake."""

    def inputs(b, h, t, d, at=0, base=10000.0):
        return normal(rng, b, h, t, d), torch.arange(t) + at, base

    start = whole(rng, 3, 20, 1).item()
    jumps = whole(rng, 1, 4, 5).cumsum(0).flip(0)
    usual = inputs(2, 3, 5, 14)
    late = inputs(2, 3, 5, 6, at=3001 + start)
    return (
        Case("at position 0", inputs(1, 1, 1, 2)),
        Case("with one pair of columns", inputs(2, 1, 3, 2)),
        Case("with 7 pairs of columns", usual, gradient=True),
        Case("with a first position that is not 0", inputs(2, 3, 5, 6, start)),
        Case("with positions that jump", (normal(rng, 2, 3, 5, 6), jumps, 1e4)),
        Case("with another base", inputs(2, 3, 5, 10, base=100.0)),
        Case("with the base left out", inputs(1, 2, 3, 10)[:2]),
        Case("with everything equal", inputs(4, 4, 4, 4)),
        Case("in double precision, at position 0", doubled(inputs(2, 1, 1, 6))),
        Case("in half precision", halved(inputs(2, 3, 5, 6))),
        Case("in half precision, at distant positions", halved(late)),
        Case("in bfloat16, at distant positions", cast(late, torch.bfloat16)),
    )


check_rotate = Exercise(
    title="rotary position embedding",
    stars=2,
    minutes=15,
    section="Rotated queries and keys",
    solution=solutions.rotate,
    returns=("rotated",),
    draw=draw,
    allowed="Everything is allowed but the functions of `attnbook.positions`.",
    mistakes=(
        Mistake(
            "half-split",
            "halves paired",
            "column i is paired with column i + D / 2, as in GPT-NeoX and "
            "Llama; here adjacent columns are pairs, as in the paper",
            rotation(split=halves, join=one_after_the_other),
        ),
        Mistake(
            "concatenated",
            "result not interleaved",
            "adjacent columns are rotated, but the results are concatenated "
            "as two halves; they should be interleaved again",
            rotation(join=one_after_the_other),
        ),
        Mistake(
            "split-by-halves",
            "halves rotated, result interleaved",
            "the two halves are rotated as pairs, but the result is "
            "interleaved; split and join should use the same pairs",
            rotation(split=halves),
        ),
        Mistake(
            "pairings-mixed",
            "angles laid out for halves",
            "adjacent columns are rotated by angles laid out for halves, so "
            "the two columns of a pair get different angles",
            mixed_pairing,
        ),
        Mistake(
            "pairings-mixed-halves",
            "angles laid out for adjacent pairs",
            "the two halves are rotated by angles laid out for adjacent "
            "columns, so the two columns of a pair get different angles",
            mixed_the_other_way,
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
            rotation(angle_of=torch.neg),
        ),
        Mistake(
            "reflected",
            "not a rotation",
            "a sign is wrong: this is not a rotation, because it changes the "
            "length of the vectors",
            rotation(turned=lambda a, b, s, c: (a * c + b * s, a * s + b * c)),
        ),
        Mistake(
            "sine-for-cosine",
            "sine and cosine swapped",
            "sine and cosine are swapped: the vector at position 0 should not "
            "be rotated",
            rotation(turned=lambda a, b, s, c: (a * s - b * c, a * c + b * s)),
        ),
        Mistake(
            "cosine-only",
            "sines missing",
            "the columns are multiplied by the cosines only; the sines are "
            "missing",
            rotation(turned=lambda a, b, s, c: (a * c, b * c)),
        ),
        Mistake(
            "offset-ignored",
            "given positions not used",
            "the positions are counted from 0; use the given ones, which need "
            "not start there",
            rotation(place=lambda positions: torch.arange(len(positions))),
        ),
        Mistake(
            "start-only",
            "only the first position used",
            "only the first position is used and the others are counted from "
            "it; the given positions may have gaps",
            rotation(place=lambda at: at[0] + torch.arange(len(at))),
        ),
        Mistake(
            "counted-from-one",
            "positions counted from 1",
            "1 is added to the positions; the vector at position 0 should not "
            "be rotated",
            rotation(place=lambda positions: positions + 1),
        ),
        Mistake(
            "base-ignored",
            "base not used",
            "the base is always 10000, whatever `base` is",
            rotation(root=lambda base: 10000.0),
        ),
        Mistake(
            "base-10",
            "base 10",
            "the default base is 10; it should be 10000",
            rotation(root=lambda base: 10.0),
        ),
        Mistake(
            "exponent-by-pair",
            "exponent i / D instead of 2i / D",
            "the exponent of pair i is i / D, so the exponents end near 1/2; "
            "it should be 2i / D",
            rotation(power=lambda width: exponents(width) / 2),
        ),
        Mistake(
            "wavelength-for-frequency",
            "multiplied instead of divided",
            "the positions are multiplied by base^(2i / D); they should be "
            "divided by it",
            rotation(power=lambda width: -exponents(width)),
        ),
        Mistake(
            "slow-first",
            "frequencies in reverse order",
            "the frequencies are in reverse order: the first pair should have "
            "the highest one",
            rotation(power=lambda width: exponents(width).flip(0)),
        ),
        Mistake(
            "one-frequency",
            "one frequency for all pairs",
            "all pairs are rotated by the same angle",
            rotation(power=lambda width: 0 * exponents(width)),
        ),
        Mistake(
            "angles-in-half",
            "angles in half precision",
            "the angles are computed in the dtype of `x`: in half precision, "
            "distant positions become equal",
            rotation(angle_dtype=lambda x: x.dtype),
        ),
        Mistake(
            "added",
            "added instead of rotated",
            "sines and cosines are added to `x`; `x` should be rotated",
            added,
        ),
    ),
)
