"""Exercise: the bytes that attention moves, step by step and in one.

Chapter: chapters/10_cost
Source: Dao et al. (2022), section 2.2, https://arxiv.org/abs/2205.14135
Axes: B batch, H heads, G groups (key-value heads), T queries, S keys, D width
    of query and key, E of values
"""

import torch

from attnbook.exercises.cost.answers import ALLOWED, sizes
from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.solutions.cost import moved


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One pair of query and key; then heads, groups, and half precision."""
    return (
        Case("with one query and one key", (1, 1, 1, 1, 1, 2, 3, 4)),
        Case("with one head", (*sizes(rng, B=1, H=1, G=1).values(), 4)),
        Case("with several heads", (*sizes(rng, H=6, G=6).values(), 4)),
        Case("in half precision", (*sizes(rng, H=6, G=6).values(), 2)),
        Case("with one new query", (*sizes(rng, T=1).values(), 2)),
        Case("with groups of heads", (*sizes(rng).values(), 4)),
    )


def built(make):
    """Return an answer from the numbers of q, k, v, scores and output."""

    def answer(B, H, G, T, S, D, E, itemsize):
        query, output = B * H * T * D, B * H * T * E
        key, value, scores = B * G * S * D, B * G * S * E, B * H * T * S
        return [itemsize * n for n in make(query, key, value, scores, output)]

    return answer


check_moved = Exercise(
    title="bytes that attention moves",
    stars=2,
    minutes=15,
    section="Bytes",
    solution=moved,
    returns=("moved",),
    draw=draw,
    allowed=ALLOWED,
    mistakes=(
        Mistake(
            "elements",
            "it returns how many numbers are moved, not how many bytes",
            lambda *given: moved(*given[:-1], 1),
        ),
        Mistake(
            "always-four",
            "every number is taken to have 4 bytes",
            lambda *given: moved(*given[:-1], 4),
        ),
        Mistake(
            "read-only",
            "what is written is not counted",
            built(lambda q, k, v, s, o: (q + k, s, s + v, q + k + v)),
        ),
        Mistake(
            "written-only",
            "what is read is not counted",
            built(lambda q, k, v, s, o: (s, s, o, o)),
        ),
        Mistake(
            "heads-for-groups",
            "keys and values are counted for every head of queries; heads of a "
            "group share them",
            lambda B, H, G, *rest: moved(B, H, H, *rest),
        ),
        Mistake(
            "groups-for-heads",
            "queries and scores are counted for the heads of keys; every head "
            "of queries has its own",
            lambda B, H, G, *rest: moved(B, G, G, *rest),
        ),
        Mistake(
            "one-width",
            "the values are taken to be as wide as the keys",
            lambda B, H, G, T, S, D, E, n: moved(B, H, G, T, S, D, D, n),
        ),
        Mistake(
            "keys-as-queries",
            "keys are counted as many as queries",
            lambda B, H, G, T, S, D, E, n: moved(B, H, G, T, T, D, E, n),
        ),
        Mistake(
            "one-sequence",
            "the batch is forgotten",
            lambda B, *rest: moved(1, *rest),
        ),
        Mistake(
            "softmax-once",
            "softmax is counted once; it reads the scores and writes weights",
            built(
                lambda q, k, v, s, o: (q + k + s, s, s + v + o, q + k + v + o)
            ),
        ),
        Mistake(
            "weights-stay",
            "the weights are not read back for the product with the values; "
            "between two steps, they are in memory",
            built(
                lambda q, k, v, s, o: (q + k + s, 2 * s, v + o, q + k + v + o)
            ),
        ),
        Mistake(
            "fused-with-scores",
            "in one step, the scores are never in memory",
            built(
                lambda q, k, v, s, o: (
                    *(q + k + s, 2 * s, s + v + o),
                    q + k + v + o + s,
                )
            ),
        ),
        Mistake(
            "fused-is-the-sum",
            "all in one is counted as the sum of the steps; what passes from "
            "step to step is then never in memory",
            built(
                lambda q, k, v, s, o: (
                    *(q + k + s, 2 * s, s + v + o),
                    q + k + v + o + 4 * s,
                )
            ),
        ),
    ),
)
