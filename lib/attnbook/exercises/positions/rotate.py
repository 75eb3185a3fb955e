"""Exercise: turn queries and keys to their positions.

Chapter: chapters/08_positions
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
from attnbook.solutions import positions as solutions


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
        Case("in half precision, far into a text", halved(late)),
        Case("in bfloat16, far into a text", cast(late, torch.bfloat16)),
    )


check_rotate = Exercise(
    title="rotated queries and keys",
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
            "column i is paired with column i + D / 2, as in GPT-NeoX and "
            "Llama; here neighbours are pairs, as in the paper",
            rotation(split=halves, join=one_after_the_other),
        ),
        Mistake(
            "concatenated",
            "neighbours are turned, but put back as two halves; they belong "
            "where they came from",
            rotation(join=one_after_the_other),
        ),
        Mistake(
            "split-by-halves",
            "halves are turned and put back in turns",
            rotation(split=halves),
        ),
        Mistake(
            "pairings-mixed",
            "neighbours are turned by angles laid out for halves: the two "
            "columns of a pair get different angles",
            mixed_pairing,
        ),
        Mistake(
            "pairings-mixed-halves",
            "halves are turned by angles laid out for neighbours: the two "
            "columns of a pair get different angles",
            mixed_the_other_way,
        ),
        Mistake(
            "identity",
            "nothing is turned",
            lambda x, positions, base=10000.0: x * 1,
        ),
        Mistake(
            "backwards",
            "every pair turns the other way; check both signs against the "
            "matrix of a rotation",
            rotation(angle_of=torch.neg),
        ),
        Mistake(
            "reflected",
            "a sign is wrong: this is no rotation, lengths change",
            rotation(turned=lambda a, b, s, c: (a * c + b * s, a * s + b * c)),
        ),
        Mistake(
            "sine-for-cosine",
            "sine and cosine have changed places: at position 0 nothing may "
            "turn",
            rotation(turned=lambda a, b, s, c: (a * s - b * c, a * c + b * s)),
        ),
        Mistake(
            "cosine-only",
            "the columns are multiplied by cosines; the sines are missing",
            rotation(turned=lambda a, b, s, c: (a * c, b * c)),
        ),
        Mistake(
            "offset-ignored",
            "the rows are counted from 0; their positions are given, and need "
            "not start there",
            rotation(place=lambda positions: torch.arange(len(positions))),
        ),
        Mistake(
            "start-only",
            "only the first position is used, and counted on from there; "
            "positions may jump",
            rotation(place=lambda at: at[0] + torch.arange(len(at))),
        ),
        Mistake(
            "counted-from-one",
            "positions are counted from 1; at position 0 nothing turns",
            rotation(place=lambda positions: positions + 1),
        ),
        Mistake(
            "base-ignored",
            "the base is always 10000, whatever is given",
            rotation(root=lambda base: 10000.0),
        ),
        Mistake(
            "base-10",
            "the base is 10; it is 10000 unless given",
            rotation(root=lambda base: 10.0),
        ),
        Mistake(
            "exponent-by-pair",
            "pair i has the exponent i / D, so that the exponents end at a "
            "half; the paper's 2i counts columns",
            rotation(power=lambda width: exponents(width) / 2),
        ),
        Mistake(
            "wavelength-for-frequency",
            "positions are multiplied by base^(2i / D), and should be divided "
            "by it",
            rotation(power=lambda width: -exponents(width)),
        ),
        Mistake(
            "slow-first",
            "the frequencies are in the opposite order: the first pair is the "
            "fastest",
            rotation(power=lambda width: exponents(width).flip(0)),
        ),
        Mistake(
            "one-frequency",
            "all pairs turn by the same angle",
            rotation(power=lambda width: 0 * exponents(width)),
        ),
        Mistake(
            "angles-in-half",
            "the angles are computed in the precision of `x`: in half "
            "precision far positions fall together",
            rotation(angle_dtype=lambda x: x.dtype),
        ),
        Mistake(
            "added",
            "the waves are added to `x`; `x` is to be turned",
            added,
        ),
    ),
)
