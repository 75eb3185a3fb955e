"""Exercise: predict what additive attention costs, before running it.

Source: Bahdanau, Cho and Bengio (2015), appendix A.1.2,
    https://arxiv.org/abs/1409.0473
Axes: B batch, T target symbols, S source symbols, N width of a decoder state,
    M width of an encoder state, A alignment width
"""

import torch

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_integers


def attention_cost(B: int, T: int, S: int, N: int, M: int, A: int) -> list[int]:
    """Return four counts of additive attention in a decoder.

    In this order: parameters of the alignment model; numbers in the largest
    intermediate tensor of one call with T queries (inputs and parameters are
    not counted); multiplications that project the keys, if they are projected
    once for each sentence; and if they are projected again at each of T steps.
    """
    once = B * S * M * A
    return [A * (N + M + 1), B * T * S * A, once, T * once]


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """All ones; then sizes that tell each axis from the others."""

    def some(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw_integers(rng, low, high, 6).tolist())

    primes = torch.tensor([2, 3, 5, 7, 11, 13])
    shuffled = primes[torch.randperm(6, generator=rng)].tolist()
    return (
        Case("with all sizes 1", (1,) * 6),
        Case("with one sentence and one step", (1, 1, *some(2, 9)[:4])),
        Case("with six different sizes", tuple(shuffled)),
        Case("with one source symbol", (3, 4, 1, *some(2, 9)[:3])),
        Case("with the sizes of the paper", (80, 50, 50, 1000, 2000, 1000)),
        Case("with random sizes", some(1, 40)),
    )


check_attention_cost = Exercise(
    title="the cost of additive attention",
    stars=2,
    minutes=10,
    section="What attention costs",
    solution=attention_cost,
    returns=("counts",),
    draw=draw,
    mistakes=(
        Mistake(
            "v-forgotten",
            "parameters without v",
            "the parameters of v are missing",
            "N + M + 1 → N + M",
        ),
        Mistake(
            "square-matrices",
            "square projections",
            "W and U are counted as square; W has A · N parameters, U has A · M",
            "N + M + 1 → 2 * A + 1",
        ),
        Mistake(
            "biases",
            "parameters with biases",
            "biases are counted; the projections of the formula have none",
            "N + M + 1 → N + M + 3",
        ),
        Mistake(
            "parameters-per-pair",
            "parameters of every pair",
            "the parameters are counted again for every pair; all pairs share them",
            "[A * (N → [T * S * A * (N",
        ),
        Mistake(
            "scores-largest",
            "scores taken for the largest tensor",
            "the scores are taken for the largest tensor, but the hidden layer "
            "that they are computed from has A times as many numbers",
            "B * T * S * A → B * T * S",
        ),
        Mistake(
            "projections-largest",
            "projections taken for the largest tensor",
            "the projected queries and keys are counted; the largest tensor "
            "is the hidden layer, with A numbers for each pair: B · T · S · A",
            "B * T * S * A → B * (T + S) * A",
        ),
        Mistake(
            "batch-forgotten",
            "largest tensor of one sentence",
            "the largest tensor is counted for one sentence of the batch",
            "B * T * S * A → T * S * A",
        ),
        Mistake(
            "keys-of-one-sentence",
            "keys of one sentence projected",
            "the multiplications for the keys are counted for one sentence of "
            "the batch",
            "B * S * M * A → S * M * A",
        ),
        Mistake(
            "query-width",
            "keys projected from the query's width",
            "the keys are projected from the width N of the decoder states; "
            "the encoder states have the width M",
            "B * S * M * A → B * S * N * A",
        ),
        Mistake(
            "once-per-step",
            "both costs are the same",
            "the last two counts are equal; projecting the keys at each of "
            "T steps costs T times as much as projecting them once",
            "T * once → once",
        ),
        Mistake(
            "swapped",
            "costs of projecting once and at every step swapped",
            "the last two counts are swapped: first the keys projected once, "
            "then projected at every step",
            "once, T * once → T * once, once",
        ),
    ),
)
