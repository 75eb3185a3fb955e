"""Exercise: the operations of attention's products, there and back.

Chapter: chapters/10_cost
Source: five products on the way back: Dao (2023), section 4.1,
    https://arxiv.org/abs/2307.08691
Axes: B batch, H heads, G groups (key-value heads), T queries, S keys, D width
    of query and key, E of values
"""

import torch

from attnbook.exercises.cost.answers import ALLOWED, sizes
from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.solutions.cost import flops


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One pair of query and key; then heads, groups, and all at once."""
    return (
        Case("with one query and one key", (1, 1, 1, 1, 1, 2, 3)),
        Case("with one head", (*sizes(rng, B=1, H=1, G=1).values(),)),
        Case("with several heads", (*sizes(rng, H=6, G=6).values(),)),
        Case("with one new query", (*sizes(rng, T=1).values(),)),
        Case("with groups of heads", (*sizes(rng).values(),)),
    )


def built(forward, back, again):
    """Return an answer from the scores' and the values' operations."""

    def answer(B, H, G, T, S, D, E):
        scores, values = 2 * B * H * T * S * D, 2 * B * H * T * S * E
        return [f(scores, values) for f in (forward, back, again)]

    return answer


def both(scores, values):
    """Return the operations of one way there."""
    return scores + values


def twice(scores, values):
    """Return the operations of the way back, the weights being there."""
    return 2 * scores + 2 * values


def five(scores, values):
    """Return the operations of the way back with the scores made again."""
    return 3 * scores + 2 * values


def halved(*given):
    """Return half of everything."""
    return [x // 2 for x in flops(*given)]


check_flops = Exercise(
    title="operations of attention, there and back",
    stars=1,
    minutes=10,
    section="Operations",
    solution=flops,
    returns=("flops",),
    draw=draw,
    allowed=ALLOWED,
    mistakes=(
        Mistake(
            "multiplications-only",
            "only multiplications are counted; each comes with an addition",
            halved,
        ),
        Mistake(
            "groups-for-heads",
            "it counts the heads of keys; every head of queries has scores of "
            "its own, whoever shares the keys",
            lambda B, H, G, *rest: flops(B, G, G, *rest),
        ),
        Mistake(
            "one-width",
            "the values are taken to be as wide as the keys",
            lambda B, H, G, T, S, D, E: flops(B, H, G, T, S, D, D),
        ),
        Mistake(
            "keys-as-queries",
            "keys are counted as many as queries: T² in place of T · S",
            lambda B, H, G, T, S, D, E: flops(B, H, G, T, T, D, E),
        ),
        Mistake(
            "one-sequence",
            "the batch is forgotten",
            lambda B, *rest: flops(1, *rest),
        ),
        Mistake(
            "heads-forgotten",
            "the heads are forgotten",
            lambda B, H, G, *rest: flops(B, 1, 1, *rest),
        ),
        Mistake(
            "scores-only",
            "only the scores are counted; the weights are multiplied with the "
            "values, too",
            built(
                lambda s, v: s,
                lambda s, v: 2 * s,
                lambda s, v: 3 * s,
            ),
        ),
        Mistake(
            "back-like-there",
            "the way back is counted like the way there; each product has two "
            "gradients, and each of them is a product",
            built(both, both, lambda s, v: 2 * s + v),
        ),
        Mistake(
            "there-and-back",
            "the way back holds the way there as well",
            built(both, lambda s, v: 3 * s + 3 * v, lambda s, v: 4 * s + 3 * v),
        ),
        Mistake(
            "nothing-again",
            "the scores that are computed once more are not counted",
            built(both, twice, twice),
        ),
        Mistake(
            "all-again",
            "the output is computed once more, too; the way back needs the "
            "weights, and for them the scores alone",
            built(both, twice, lambda s, v: 3 * s + 3 * v),
        ),
        Mistake(
            "causal",
            "it counts what a causal mask leaves; nothing is hidden here",
            lambda *given: [
                x // 2 + x // (2 * given[4]) for x in flops(*given)
            ],
        ),
        Mistake(
            "adds-up",
            "the last number is that of there and back together",
            built(both, twice, lambda s, v: 4 * s + 3 * v),
        ),
    ),
)
