"""Exercise: predict the parameters and the KV cache of a decoder-only model.

Source: the parts of the block: Yang et al. (2025), section 2,
    https://arxiv.org/abs/2505.09388
Axes: V symbols, C model width, H heads, G groups (key-value heads), D width of
    a head, F hidden width, L blocks, S positions
"""

import torch

from attnbook.exercises.exercise import Case, Exercise, Mistake


def model_cost(V: int, C: int, H: int, G: int, F: int, L: int, S: int) -> list[int]:
    """Return four counts of a modern decoder-only model.

    In this order: parameters of one block's attention, QK-norm included;
    parameters of one block's SwiGLU network; parameters of the whole model;
    numbers in the KV cache of one sequence of S positions.
    """
    D = C // H
    attention = 2 * C * C + 2 * C * G * D + 2 * D
    network = 3 * C * F
    model = V * C + L * (attention + network + 2 * C) + C
    return [attention, network, model, 2 * L * S * G * D]


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One head of width 1; heads of their own; groups; a large model."""

    def count(low: int, high: int) -> int:
        return int(torch.randint(low, high, (), generator=rng))

    return (
        Case("with one head of width 1", (2, 1, 1, 1, 1, 1, 1)),
        Case(
            "with as many groups as heads",
            (count(20, 40), 30, 5, 5, count(41, 90), 2, count(3, 40)),
        ),
        Case(
            "with one group",
            (count(20, 40), 42, 6, 1, count(43, 90), 3, count(3, 40)),
        ),
        Case(
            "with two heads in a group",
            (count(20, 40), 66, 6, 3, count(67, 200), 5, count(3, 40)),
        ),
        Case("with a large model", (32_000, 4096, 32, 8, 11_008, 32, 8192)),
    )


check_model_cost = Exercise(
    title="parameters and KV cache of a decoder-only model",
    stars=2,
    minutes=15,
    section="A modern decoder block with a KV cache",
    solution=model_cost,
    returns=("counts",),
    draw=draw,
    mistakes=(
        Mistake(
            "groups-ignored",
            "keys and values of all heads",
            "the key and value projections are counted for H heads; there are "
            "only G of them",
            "2 * C * G * D → 2 * C * C",
        ),
        Mistake(
            "no-qk-norm",
            "gains of QK-norm not counted",
            "the gains of QK-norm are missing: D for the queries and D for "
            "the keys, shared by the heads",
            "G * D + 2 * D → G * D",
        ),
        Mistake(
            "qk-norm-per-head",
            "gains of QK-norm for every head",
            "the gains of QK-norm are counted for every head; all heads share them",
            "G * D + 2 * D → G * D + C + G * D",
        ),
        Mistake(
            "no-output-projection",
            "no output projection",
            "the output projection is missing: C · C parameters",
            "attention = 2 * C * C → attention = C * C",
        ),
        Mistake(
            "two-matrices",
            "no gate in SwiGLU",
            "only two matrices of the feed-forward network are counted; SwiGLU "
            "has a third, for the gate",
            "3 * C * F → 2 * C * F",
        ),
        Mistake(
            "untied",
            "output layer counted",
            "the output layer is counted as well; it is tied to the embedding",
            "model = V * C → model = 2 * V * C",
        ),
        Mistake(
            "no-final-norm",
            "no final norm",
            "the final norm of the model is missing: C parameters",
            "+ 2 * C) + C → + 2 * C)",
        ),
        Mistake(
            "no-norms-in-blocks",
            "norms of the blocks not counted",
            "the two norms of every block are missing: 2 C parameters per block",
            "network + 2 * C → network",
        ),
        Mistake(
            "layer-norm-biases",
            "norms with biases",
            "the norms are counted with biases; RMSNorm has only a gain",
            "+ 2 * C) + C → + 4 * C) + 2 * C",
        ),
        Mistake(
            "cache-of-all-heads",
            "cache of all heads",
            "the cache is counted for H heads; it has the keys and values of G groups",
            "S * G * D] → S * C]",
        ),
        Mistake(
            "cache-of-one-block",
            "cache of one block",
            "the cache is counted for one block; each of the L blocks has its own",
            "2 * L * S → 2 * S",
        ),
        Mistake(
            "cache-of-keys",
            "only keys cached",
            "the cache is counted for keys alone; the values are cached too",
            "2 * L * S → L * S",
        ),
    ),
)
