"""Exercise: predict what heads cost, before running anything.

Source: Vaswani et al. (2017), section 3.2.2,
    https://arxiv.org/abs/1706.03762; Ainslie et al. (2023), section 2.2,
    https://arxiv.org/abs/2305.13245
Axes: C model width, H heads, G groups (key-value heads), T queries, S keys, D
    width of a head
"""

import torch

from attnbook.exercises.exercise import Case, Exercise, Mistake


def head_cost(C: int, H: int, G: int, T: int, S: int) -> list[int]:
    """Return four counts of grouped-query attention for one sequence.

    In this order: parameters of the four projections without biases; numbers
    in the attention weights; multiplications of the query-key products;
    numbers in the cached keys and values. Each head is C / H wide.
    """
    D = C // H
    return [2 * C * C + 2 * C * G * D, H * T * S, T * S * C, 2 * S * G * D]


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One head; then all heads of their own; then groups."""

    def sizes(*choices: tuple[int, int, int]) -> tuple[int, ...]:
        """Return D, H / G and G in some order, as C, H and G."""
        nth = int(torch.randint(len(choices), (), generator=rng))
        width, each, groups = choices[nth]
        return width * each * groups, each * groups, groups

    def length() -> int:
        return int(torch.randint(3, 40, (), generator=rng))

    return (
        Case("with one head of width 1 and one position", (1, 1, 1, 1, 1)),
        Case("with one head", (7, 1, 1, length(), length())),
        Case(
            "with as many groups as heads",
            (*sizes((5, 1, 6), (7, 1, 4)), length(), length()),
        ),
        Case("with one group", (*sizes((5, 6, 1), (7, 4, 1)), length(), length())),
        Case(
            "with several heads in a group",
            (*sizes((5, 3, 2), (7, 2, 3), (11, 3, 2)), length(), length()),
        ),
        Case("with one query and a long cache", (4096, 32, 8, 1, 8192)),
    )


check_head_cost = Exercise(
    title="the cost of heads",
    stars=2,
    minutes=10,
    section="Multi-query and grouped-query attention",
    solution=head_cost,
    returns=("counts",),
    draw=draw,
    mistakes=(
        Mistake(
            "parameters-per-head",
            "full projections for every head",
            "the parameters are counted as if every head had projections of "
            "the full width C; a head is only C / H wide",
            "2 * C * C + 2 * C * G * D → 2 * H * C * C + 2 * G * C * C",
        ),
        Mistake(
            "groups-ignored-in-parameters",
            "parameters without groups",
            "the key and value projections are counted for H heads; there are "
            "only G of them",
            "2 * C * G * D → 2 * C * C",
        ),
        Mistake(
            "all-projections-grouped",
            "query and output projection shared as well",
            "all four projections are counted for G groups; queries and output "
            "keep all H heads",
            "2 * C * C + 2 * C * G * D → 4 * C * G * D",
        ),
        Mistake(
            "no-output-projection",
            "parameters without the output projection",
            "the output projection is missing in the parameters",
            "[2 * C * C → [C * C",
        ),
        Mistake(
            "weights-of-one-head",
            "weights of one head",
            "the attention weights are counted for one head; every query head "
            "has its own",
            "H * T * S → T * S",
        ),
        Mistake(
            "weights-per-group",
            "weights counted per group",
            "the attention weights are counted per group; heads of a group "
            "share keys and values, not weights",
            "H * T * S → G * T * S",
        ),
        Mistake(
            "weights-times-width",
            "weights times the width of a head",
            "the attention weights are multiplied by the width of a head; each "
            "pair of query and key has one weight",
            "H * T * S → C * T * S",
        ),
        Mistake(
            "products-per-head",
            "products of full width in every head",
            "the multiplications are counted as if every head were C wide; "
            "together the heads are C wide",
            "T * S * C → H * T * S * C",
        ),
        Mistake(
            "products-per-group",
            "products counted per group",
            "the multiplications are counted per group; every query head is "
            "multiplied with the keys of its group",
            "T * S * C → T * S * G * D",
        ),
        Mistake(
            "keys-only",
            "only keys cached",
            "only the keys are counted in the cache; values are cached, too",
            "2 * S * G * D → S * G * D",
        ),
        Mistake(
            "cache-of-all-heads",
            "cache of all heads",
            "the cache is counted for H heads; only G of them have keys and values",
            "2 * S * G * D → 2 * S * C",
        ),
        Mistake(
            "cache-of-full-width",
            "cache of full width",
            "each group is counted with the model width C; its keys are only "
            "C / H wide",
            "2 * S * G * D → 2 * S * G * C",
        ),
        Mistake(
            "cache-of-queries",
            "queries cached as well",
            "the cache is counted for the T queries; it holds the keys and "
            "values of the S positions",
            "2 * S * G * D → 2 * T * G * D",
        ),
    ),
)
