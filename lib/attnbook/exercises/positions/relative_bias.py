"""Exercise: look a distance's bias up in a table.

Chapter: chapters/08_positions
Source: the clipped distance of Shaw et al. (2018), section 3.2,
    https://arxiv.org/abs/1803.02155, with a number for each head in place of a
    vector, as in Raffel et al. (2020), section 2.1,
    https://arxiv.org/abs/1910.10683
Axes: H heads, T queries, S keys (as many), reach
"""

import torch

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import doubled, halved, normal, whole
from attnbook.exercises.positions.answers import looked_up
from attnbook.positions.biases import relative_bias


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """Within reach; then beyond it; then numbers that hide a mistake."""

    def inputs(heads, reach, length):
        return normal(rng, heads, 2 * reach + 1), length, length

    usual = inputs(3, 4, 11)
    return (
        Case("with one position", inputs(1, 2, 1)),
        Case("with all keys within reach", inputs(1, 5, 4)),
        Case("with keys beyond reach", inputs(1, 2, 7)),
        Case("with 3 heads", usual, gradient=True),
        Case("with a reach of 0", inputs(2, 0, 3)),
        Case("with a table as wide as the text", inputs(5, 3, 7)),
        Case("with a length drawn", inputs(2, 3, whole(rng, 4, 19, 1).item())),
        Case("with everything equal", inputs(5, 2, 5)),
        Case("in double precision", doubled(usual)),
        Case("in half precision", halved(usual)),
    )


def clipped(away: torch.Tensor, reach: int) -> torch.Tensor:
    """Return the right column."""
    return away.clamp(-reach, reach) + reach


def zero_beyond(table: torch.Tensor, T: int, S: int) -> torch.Tensor:
    """Return no bias at all for keys beyond reach."""
    away = (torch.arange(S) - torch.arange(T)[:, None]).abs()
    bias = looked_up(clipped)(table, T, S)
    return bias.masked_fill(away > table.shape[-1] // 2, 0.0)


check_relative_bias = Exercise(
    title="a table of distances",
    stars=2,
    minutes=10,
    section="A table of distances",
    solution=relative_bias,
    returns=("bias",),
    draw=draw,
    allowed="Everything is allowed but the functions of `attnbook.positions`.",
    mistakes=(
        Mistake(
            "index-transposed",
            "the distance is taken as t - s: keys before and after the query "
            "have changed places",
            looked_up(lambda away, reach: clipped(-away, reach)),
        ),
        Mistake(
            "no-clip",
            "distances beyond reach are not clipped: they point outside the "
            "table, or from its end backwards",
            looked_up(lambda away, reach: away + reach),
        ),
        Mistake(
            "wrapped",
            "distances beyond reach begin again at the other end of the "
            "table; clip them",
            looked_up(lambda away, reach: (away + reach) % (2 * reach + 1)),
        ),
        Mistake(
            "no-offset",
            "distances serve as places in the table as they are: negative "
            "ones count from its end, without an error",
            looked_up(lambda away, reach: away.clamp(-reach, reach)),
        ),
        Mistake(
            "clipped-too-late",
            "the distance is clipped after `+ reach`, to the limits from "
            "before it",
            looked_up(lambda away, reach: (away + reach).clamp(-reach, reach)),
        ),
        Mistake(
            "one-side-clipped",
            "distances are clipped at one end only: those far before the "
            "query count from the table's end, or outside it",
            looked_up(lambda away, reach: away.clamp(max=reach) + reach),
        ),
        Mistake(
            "clipped-too-early",
            "distances are clipped one too early: the table's first and last "
            "column are never used",
            looked_up(
                lambda away, reach: (
                    away.clamp(1 - max(reach, 1), max(reach, 1) - 1) + reach
                )
            ),
        ),
        Mistake(
            "zero-beyond",
            "keys beyond reach get 0; they get the bias of the farthest "
            "distance",
            zero_beyond,
        ),
        Mistake(
            "symmetric",
            "keys before and after the query get the same bias: the "
            "distance has lost its sign",
            looked_up(lambda away, reach: clipped(away.abs(), reach)),
        ),
        Mistake(
            "past-only",
            "keys after the query are counted as if they stood at it",
            looked_up(lambda away, reach: clipped(away.clamp(max=0), reach)),
        ),
        Mistake(
            "future-only",
            "keys before the query are counted as if they stood at it",
            looked_up(lambda away, reach: clipped(away.clamp(min=0), reach)),
        ),
        Mistake(
            "by-key",
            "the position of the key is looked up, wherever the query stands",
            looked_up(
                lambda away, reach: clipped(away[:1].expand_as(away), reach)
            ),
        ),
        Mistake(
            "heads-last",
            "the axis of heads comes last; the shape is (heads, T, S)",
            looked_up(clipped, lambda bias: bias.permute(1, 2, 0)),
        ),
        Mistake(
            "first-head-only",
            "every head gets the bias of the first",
            looked_up(clipped, lambda bias: bias[:1].expand_as(bias)),
        ),
        Mistake(
            "softmaxed",
            "the softmax is taken already; the bias itself is asked for",
            looked_up(clipped, lambda bias: bias.softmax(-1)),
        ),
        Mistake(
            "scaled",
            "the bias is divided by the root of the number of distances; it "
            "stands in the table as it is added",
            lambda table, T, S: (
                looked_up(clipped)(table, T, S) / table.shape[-1] ** 0.5
            ),
        ),
        Mistake(
            "batch-axis",
            "there is a first axis of length 1; (heads, T, S) is asked for",
            looked_up(clipped, lambda bias: bias[None]),
        ),
    ),
)
