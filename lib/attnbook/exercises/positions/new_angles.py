"""Exercise: predict which pairs of RoPE reach new angles, without running it.

Source: Peng et al. (2023), sections 3.1 and 3.2,
    https://arxiv.org/abs/2309.00071
Axes: D width of a head, in D / 2 pairs of columns
"""

import math

import torch

from attnbook.exercises.exercise import Case, Exercise, Mistake


def new_angles(D: int, base: float, L: int, s: int) -> list[int]:
    """Return four counts of pairs of columns.

    In this order: pairs that complete at least one rotation within L positions;
    pairs that reach new angles within s · L positions if nothing is changed,
    with position interpolation, and with NTK-aware scaling.
    """
    complete = sum(L * base ** (-2 * i / D) >= 2 * math.pi for i in range(D // 2))
    slow = D // 2 - complete
    # NTK-aware scaling divides only the slowest pair by s.
    return [complete, slow, 0, max(slow - 1, 0)]


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """Two pairs; then all or none complete; then models of usual sizes."""

    def one_of(*choices):
        return choices[int(torch.randint(len(choices), (), generator=rng))]

    def usual(*widths: int) -> tuple:
        return (
            one_of(*widths),
            one_of(1e4, 5e5, 1e6),
            one_of(512, 2048, 4096, 8192),
            one_of(2, 4, 8),
        )

    return (
        Case("with two pairs", (4, 1e4, 64, 2)),
        Case("with this chapter's model", (16, 1e4, 64, one_of(2, 4, 8))),
        Case("with a small base", (16, 100.0, one_of(2048, 4096), 4)),
        Case("with very short sequences", (one_of(8, 16), 1e4, 4, 2)),
        Case("with heads of usual width", usual(64, 80, 96)),
        Case("with wide heads", usual(128, 256)),
        Case("with the sizes of Llama 3.1", (128, 5e5, 8192, 8)),
    )


check_new_angles = Exercise(
    title="new angles of RoPE in longer sequences",
    stars=2,
    minutes=15,
    section="Wavelengths and the trained length",
    solution=new_angles,
    returns=("counts",),
    draw=draw,
    allowed="Everything is allowed but the functions of `attnbook.positions`.",
    mistakes=(
        Mistake(
            "one-radian",
            "1 radian taken for a rotation",
            "a pair is counted as complete once its angle reaches 1 radian; a "
            "rotation has 2π radians",
            "2 * math.pi → 1.0",
        ),
        Mistake(
            "half-rotation",
            "half a rotation taken for a whole one",
            "a pair is counted as complete after half a rotation, π radians",
            "2 * math.pi → math.pi",
        ),
        Mistake(
            "degrees",
            "360 radians taken for a rotation",
            "the angles are in radians, but compared with 360",
            "2 * math.pi → 360.0",
        ),
        Mistake(
            "exponent-by-pair",
            "exponent i / D instead of 2i / D",
            "the exponent of pair i is i / D; it should be 2i / D",
            "-2 * i → -i",
        ),
        Mistake(
            "counted-at-the-longer-length",
            "complete pairs counted in the longer sequences",
            "complete pairs are counted within s · L positions; count them "
            "within the trained length L",
            "L * base → s * L * base",
        ),
        Mistake(
            "columns-for-pairs",
            "columns counted instead of pairs",
            "columns are counted; each pair has two of them",
            lambda *sizes: [2 * count for count in new_angles(*sizes)],
        ),
        Mistake(
            "complete-pairs-new",
            "all pairs reach new angles",
            "all pairs are counted as reaching new angles; a pair that "
            "completes a rotation in training has reached every angle",
            "[complete, slow, → [complete, D // 2,",
        ),
        Mistake(
            "fast-and-slow-swapped",
            "fast and slow pairs swapped",
            "the first two counts are swapped: fast pairs complete a rotation, "
            "slow pairs reach new angles",
            "[complete, slow, → [slow, complete,",
        ),
        Mistake(
            "interpolation-without-effect",
            "new angles with interpolation",
            "interpolation is counted as if nothing were changed; it divides "
            "every position by s, so the largest angles are those of training",
            "slow, 0, → slow, slow,",
        ),
        Mistake(
            "ntk-like-interpolation",
            "no new angles with NTK-aware scaling",
            "NTK-aware scaling is counted like interpolation; it divides only "
            "the slowest pair by s, and all others by less",
            "max(slow - 1, 0) → 0",
        ),
        Mistake(
            "ntk-without-effect",
            "NTK-aware scaling changes no count",
            "NTK-aware scaling is counted as if nothing were changed; it "
            "divides the slowest pair by s exactly, so this pair reaches no "
            "new angle",
            "max(slow - 1, 0) → slow",
        ),
    ),
)
