"""Exercise: operations for each byte.

Source: Williams, Waterman and Patterson (2009),
    https://doi.org/10.1145/1498765.1498785
Axes: B batch, H heads, G groups (key-value heads), T queries, S keys, D width
    of query, key and value
"""

import torch

from attnbook.exercises.cost.flops import ALLOWED, draw_sizes, flops
from attnbook.exercises.cost.moved import moved
from attnbook.exercises.exercise import Case, Exercise, Mistake


def intensity(B: int, H: int, G: int, T: int, S: int, D: int, itemsize: int) -> float:
    """Return the FLOPs of both products per byte of the fused kernel."""
    forward = flops(B, H, G, T, S, D, D)[0]
    return forward / moved(B, H, G, T, S, D, D, itemsize)[3]


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One pair of query and key; then heads, groups, and a new query."""

    def given(itemsize, **some):
        return (*list(draw_sizes(rng, **some).values())[:-1], itemsize)

    return (
        Case("with one query and one key", (1, 1, 1, 1, 1, 2, 4)),
        Case("with one head", given(4, B=1, H=1, G=1)),
        Case("with several heads", given(4, H=6, G=6)),
        Case("in half precision", given(2, H=6, G=6)),
        Case("with one new query", given(2, T=1)),
        Case("with groups of heads", given(4)),
    )


check_intensity = Exercise(
    title="arithmetic intensity",
    stars=2,
    minutes=10,
    section="Arithmetic intensity: FLOPs per byte",
    solution=intensity,
    returns=("intensity",),
    draw=draw,
    allowed=ALLOWED,
    mistakes=(
        Mistake(
            "bytes-per-operation",
            "inverse intensity",
            "it returns bytes per operation; intensity is operations per byte",
            lambda *given: 1 / intensity(*given),
        ),
        Mistake(
            "multiplications-only",
            "additions not counted",
            "only multiplications are counted; each one comes with an addition",
            lambda *given: intensity(*given) / 2,
        ),
        Mistake(
            "elements",
            "per element, not per byte",
            "it returns operations per element; intensity is operations per byte",
            lambda *given: intensity(*given[:-1], 1),
        ),
        Mistake(
            "always-four",
            "4 bytes for every dtype",
            "every element is assumed to take 4 bytes; the size is given",
            lambda *given: intensity(*given[:-1], 4),
        ),
        Mistake(
            "step-by-step",
            "bytes of unfused attention",
            "the bytes are those of three separate steps; the fused version "
            "never writes the scores to memory",
            "moved(B, H, G, T, S, D, D, itemsize)[3] "
            "→ sum(moved(B, H, G, T, S, D, D, itemsize)[:3])",
        ),
        Mistake(
            "heads-for-groups",
            "shared keys read per query head",
            "keys and values are counted once for each query head; the heads "
            "of a group share them",
            lambda B, H, G, *rest: intensity(B, H, H, *rest),
        ),
        Mistake(
            "keys-as-queries",
            "S replaced by T",
            "the number of keys is assumed to equal the number of queries",
            lambda B, H, G, T, S, D, n: intensity(B, H, G, T, T, D, n),
        ),
        Mistake(
            "batch-counts",
            "batch counted in operations only",
            "only the operations are multiplied by the batch size; the bytes "
            "grow with the batch as well",
            lambda B, *rest: B * intensity(B, *rest),
        ),
        Mistake(
            "not-written",
            "output not counted",
            "the bytes of the output are not counted, but the output is "
            "written to memory",
            lambda B, H, G, T, S, D, n: (
                flops(B, H, G, T, S, D, D)[0]
                / (moved(B, H, G, T, S, D, D, n)[3] - B * H * T * D * n)
            ),
        ),
        Mistake(
            "back-too",
            "backward pass included",
            "the operations include the backward pass; count only the forward pass",
            lambda *given: 3 * intensity(*given),
        ),
    ),
)
