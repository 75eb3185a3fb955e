"""Exercise: operations for each byte.

Chapter: chapters/10_cost
Source: Williams, Waterman and Patterson (2009),
    https://doi.org/10.1145/1498765.1498785
Axes: B batch, H heads, G groups (key-value heads), T queries, S keys, D width
    of query, key and value
"""

import torch

from attnbook.exercises.cost.answers import ALLOWED, sizes
from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.solutions.cost import flops, intensity, moved


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One pair of query and key; then heads, groups, and a new query."""

    def given(itemsize, **some):
        return (*list(sizes(rng, **some).values())[:-1], itemsize)

    return (
        Case("with one query and one key", (1, 1, 1, 1, 1, 2, 4)),
        Case("with one head", given(4, B=1, H=1, G=1)),
        Case("with several heads", given(4, H=6, G=6)),
        Case("in half precision", given(2, H=6, G=6)),
        Case("with one new query", given(2, T=1)),
        Case("with groups of heads", given(4)),
    )


def over(count, size):
    """Return one number over another, both from the sizes."""

    def answer(B, H, G, T, S, D, itemsize):
        there = flops(B, H, G, T, S, D, D)[0]
        steps = moved(B, H, G, T, S, D, D, itemsize)
        return count(there, steps) / size(there, steps)

    return answer


def operations(there, steps):
    """Return the operations."""
    return there


def fused(there, steps):
    """Return the bytes of all in one step."""
    return steps[3]


check_intensity = Exercise(
    title="intensity: operations for each byte",
    stars=2,
    minutes=10,
    section="Intensity",
    solution=intensity,
    returns=("intensity",),
    draw=draw,
    allowed=ALLOWED,
    mistakes=(
        Mistake(
            "bytes-per-operation",
            "it returns bytes for each operation",
            over(fused, operations),
        ),
        Mistake(
            "multiplications-only",
            "only multiplications are counted; each comes with an addition",
            over(lambda f, b: f / 2, fused),
        ),
        Mistake(
            "elements",
            "it returns operations for each number, not for each byte",
            lambda *given: intensity(*given[:-1], 1),
        ),
        Mistake(
            "always-four",
            "every number is taken to have 4 bytes",
            lambda *given: intensity(*given[:-1], 4),
        ),
        Mistake(
            "step-by-step",
            "the bytes are those of three steps; here all is one step, which "
            "never writes its scores down",
            over(operations, lambda f, b: sum(b[:3])),
        ),
        Mistake(
            "heads-for-groups",
            "keys and values are read for every head of queries; heads of a "
            "group share them",
            lambda B, H, G, *rest: intensity(B, H, H, *rest),
        ),
        Mistake(
            "keys-as-queries",
            "keys are counted as many as queries",
            lambda B, H, G, T, S, D, n: intensity(B, H, G, T, T, D, n),
        ),
        Mistake(
            "batch-counts",
            "the operations are those of the batch, the bytes those of one "
            "sequence; both grow with the batch",
            lambda B, *rest: B * intensity(B, *rest),
        ),
        Mistake(
            "not-written",
            "the output is not counted; it is written",
            lambda B, H, G, T, S, D, n: (
                flops(B, H, G, T, S, D, D)[0]
                / (moved(B, H, G, T, S, D, D, n)[3] - B * H * T * D * n)
            ),
        ),
        Mistake(
            "back-too",
            "the operations are those of there and back",
            over(lambda f, b: 3 * f, fused),
        ),
    ),
)
