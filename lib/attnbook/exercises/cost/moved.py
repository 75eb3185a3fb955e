"""Exercise: the bytes that attention moves, step by step and in one.

Source: Dao et al. (2022), section 2.2, https://arxiv.org/abs/2205.14135
Axes: B batch, H heads, G groups (key-value heads), T queries, S keys, D width
    of query and key, E of values
"""

import torch

from attnbook.exercises.cost.flops import ALLOWED, draw_sizes
from attnbook.exercises.exercise import Case, Exercise, Mistake


def moved(
    B: int, H: int, G: int, T: int, S: int, D: int, E: int, itemsize: int
) -> list[int]:
    """Return the bytes of scores, softmax, values and one fused kernel."""
    query, output = B * H * T * D, B * H * T * E
    key, value, scores = B * G * S * D, B * G * S * E, B * H * T * S
    steps = query + key + scores, 2 * scores, scores + value + output
    return [itemsize * n for n in (*steps, query + key + value + output)]


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One pair of query and key; then heads, groups, and half precision."""
    return (
        Case("with one query and one key", (1, 1, 1, 1, 1, 2, 3, 4)),
        Case("with one head", (*draw_sizes(rng, B=1, H=1, G=1).values(), 4)),
        Case("with several heads", (*draw_sizes(rng, H=6, G=6).values(), 4)),
        Case("in half precision", (*draw_sizes(rng, H=6, G=6).values(), 2)),
        Case("with one new query", (*draw_sizes(rng, T=1).values(), 2)),
        Case("with groups of heads", (*draw_sizes(rng).values(), 4)),
    )


check_moved = Exercise(
    title="bytes moved by attention",
    stars=2,
    minutes=15,
    section="HBM and SRAM: what a kernel reads and writes",
    solution=moved,
    returns=("moved",),
    draw=draw,
    allowed=ALLOWED,
    mistakes=(
        Mistake(
            "elements",
            "elements instead of bytes",
            "it returns the number of elements moved, not the number of bytes",
            lambda *given: moved(*given[:-1], 1),
        ),
        Mistake(
            "always-four",
            "4 bytes for every dtype",
            "every element is assumed to take 4 bytes; the size is given",
            lambda *given: moved(*given[:-1], 4),
        ),
        Mistake(
            "read-only",
            "writes not counted",
            "only reads are counted; writes move bytes as well",
            (
                "query + key + scores, 2 * scores, scores + value + output "
                "→ query + key, scores, scores + value",
                "query + key + value + output → query + key + value",
            ),
        ),
        Mistake(
            "written-only",
            "reads not counted",
            "only writes are counted; reads move bytes as well",
            (
                "query + key + scores, 2 * scores, scores + value + output "
                "→ scores, scores, output",
                "query + key + value + output → output",
            ),
        ),
        Mistake(
            "heads-for-groups",
            "shared keys counted per query head",
            "keys and values are counted once for each query head; the heads "
            "of a group share them",
            lambda B, H, G, *rest: moved(B, H, H, *rest),
        ),
        Mistake(
            "groups-for-heads",
            "query heads counted as groups",
            "queries and scores are counted once for each key head; every "
            "query head has its own",
            lambda B, H, G, *rest: moved(B, G, G, *rest),
        ),
        Mistake(
            "one-width",
            "value width not used",
            "the values are assumed to be as wide as the keys",
            lambda B, H, G, T, S, D, E, n: moved(B, H, G, T, S, D, D, n),
        ),
        Mistake(
            "keys-as-queries",
            "S replaced by T",
            "the number of keys is assumed to equal the number of queries",
            lambda B, H, G, T, S, D, E, n: moved(B, H, G, T, T, D, E, n),
        ),
        Mistake(
            "one-sequence",
            "batch size missing",
            "the batch size is not counted",
            lambda B, *rest: moved(1, *rest),
        ),
        Mistake(
            "softmax-once",
            "softmax counted once",
            "the softmax is counted as one pass over the scores; it reads the "
            "scores and writes the weights",
            "2 * scores → scores",
        ),
        Mistake(
            "weights-stay",
            "weights not read again",
            "the weights are not read for the product with the values; "
            "between two separate steps they are stored in memory",
            "scores + value → value",
        ),
        Mistake(
            "fused-with-scores",
            "scores in the fused version",
            "the scores are counted in the fused version, which never writes "
            "them to memory",
            "query + key + value + output → query + key + value + output + scores",
        ),
        Mistake(
            "fused-is-the-sum",
            "fused counted as the sum",
            "the fused version is counted as the sum of the steps; its "
            "intermediate results are never written to memory",
            "query + key + value + output → query + key + value + output + 4 * scores",
        ),
    ),
)
