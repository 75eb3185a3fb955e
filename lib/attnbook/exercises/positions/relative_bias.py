"""Exercise: relative position bias from a learned table.

Source: the clipped distance of Shaw et al. (2018), section 3.2,
    https://arxiv.org/abs/1803.02155, with a number for each head in place of a
    vector, as in Raffel et al. (2020), section 2.1,
    https://arxiv.org/abs/1910.10683
Axes: H heads, T queries, S keys (as many), reach
"""

from collections.abc import Callable

import torch
from torch import Tensor

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import (
    draw_integers,
    draw_normal,
    to_double,
    to_half,
)
from attnbook.positions.biases import relative_bias


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """Within reach; then beyond it; then numbers that hide a mistake."""

    def inputs(heads, reach, length):
        return draw_normal(rng, heads, 2 * reach + 1), length, length

    usual = inputs(3, 4, 11)
    return (
        Case("with one position", inputs(1, 2, 1)),
        Case("with all keys within reach", inputs(1, 5, 4)),
        Case("with keys beyond reach", inputs(1, 2, 7)),
        Case("with 3 heads", usual, gradient=True),
        Case("with a reach of 0", inputs(2, 0, 3)),
        Case("with as many distances as positions", inputs(5, 3, 7)),
        Case(
            "with a length drawn",
            inputs(2, 3, draw_integers(rng, 4, 19, 1).item()),
        ),
        Case("with everything equal", inputs(5, 2, 5)),
        Case("in double precision", to_double(usual), asked=False),
        Case("in half precision", to_half(usual), asked=False),
    )


def look_up_bias(
    index: Callable[[Tensor, int], Tensor],
    then: Callable[[Tensor], Tensor] = lambda bias: bias,
) -> Callable:
    """Return a bias out of a table, with another index.

    Args:
        index: the column, from s - t and reach.
        then: what happens to the bias.
    """

    def answer(table, T, S):
        away = torch.arange(S) - torch.arange(T)[:, None]
        return then(table[:, index(away, table.shape[-1] // 2)])

    return answer


def clip_distance(away: torch.Tensor, reach: int) -> torch.Tensor:
    """Return the right column."""
    return away.clamp(-reach, reach) + reach


def mask_clipped_distances(table: torch.Tensor, T: int, S: int) -> torch.Tensor:
    """Return no bias at all for keys beyond reach."""
    away = (torch.arange(S) - torch.arange(T)[:, None]).abs()
    bias = look_up_bias(clip_distance)(table, T, S)
    return bias.masked_fill(away > table.shape[-1] // 2, 0.0)


check_relative_bias = Exercise(
    title="relative position bias",
    stars=2,
    minutes=10,
    section="A learned bias for each distance, and T5's buckets",
    solution=relative_bias,
    returns=("bias",),
    draw=draw,
    without=frozenset({"long", "positions"}),
    allowed="Everything is allowed but the functions of `attnbook.positions`.",
    mistakes=(
        Mistake(
            "index-transposed",
            "distance with the wrong sign",
            "the distance is computed as t - s, which exchanges the keys "
            "before and after the query; it should be s - t",
            look_up_bias(lambda away, reach: clip_distance(-away, reach)),
        ),
        Mistake(
            "no-clip",
            "distances not clipped",
            "distances beyond `reach` are not clipped, so they index outside "
            "the table or from its end",
            look_up_bias(lambda away, reach: away + reach),
        ),
        Mistake(
            "wrapped",
            "distances wrap around",
            "distances beyond `reach` wrap around to the other end of the "
            "table; they should be clipped",
            look_up_bias(lambda away, reach: (away + reach) % (2 * reach + 1)),
        ),
        Mistake(
            "no-offset",
            "no offset",
            "the distances are used as indices without adding `reach`, so "
            "negative ones silently index from the end of the table",
            look_up_bias(lambda away, reach: away.clamp(-reach, reach)),
        ),
        Mistake(
            "clipped-too-late",
            "clipped after the offset",
            "the distance is clipped to ±reach after `reach` was added; it "
            "should be clipped before",
            look_up_bias(
                lambda away, reach: (away + reach).clamp(-reach, reach)
            ),
        ),
        Mistake(
            "one-side-clipped",
            "clipped on one side",
            "distances are clipped on one side only, so those far before the "
            "query index from the end of the table or outside it",
            look_up_bias(lambda away, reach: away.clamp(max=reach) + reach),
        ),
        Mistake(
            "clipped-too-early",
            "clipped one too early",
            "distances are clipped to ±(reach - 1), so the first and last "
            "columns of the table are never used",
            look_up_bias(
                lambda away, reach: (
                    away.clamp(1 - max(reach, 1), max(reach, 1) - 1) + reach
                )
            ),
        ),
        Mistake(
            "zero-beyond",
            "zero beyond reach",
            "keys beyond `reach` get the bias 0; they should get the bias of "
            "the largest distance",
            mask_clipped_distances,
        ),
        Mistake(
            "symmetric",
            "sign of the distance lost",
            "keys before and after the query get the same bias: the "
            "distance has lost its sign",
            look_up_bias(lambda away, reach: clip_distance(away.abs(), reach)),
        ),
        Mistake(
            "past-only",
            "later keys not distinguished",
            "all keys after the query get the bias of distance 0",
            look_up_bias(
                lambda away, reach: clip_distance(away.clamp(max=0), reach)
            ),
        ),
        Mistake(
            "future-only",
            "earlier keys not distinguished",
            "all keys before the query get the bias of distance 0",
            look_up_bias(
                lambda away, reach: clip_distance(away.clamp(min=0), reach)
            ),
        ),
        Mistake(
            "by-key",
            "absolute instead of relative position",
            "the bias depends on the position of the key alone; it should "
            "depend on its distance from the query",
            look_up_bias(
                lambda away, reach: clip_distance(
                    away[:1].expand_as(away), reach
                )
            ),
        ),
        Mistake(
            "heads-last",
            "axis of heads last",
            "the axis of heads comes last; the shape should be (heads, T, S)",
            look_up_bias(clip_distance, lambda bias: bias.permute(1, 2, 0)),
        ),
        Mistake(
            "first-head-only",
            "first head for all",
            "every head gets the bias of the first one",
            look_up_bias(clip_distance, lambda bias: bias[:1].expand_as(bias)),
        ),
        Mistake(
            "softmaxed",
            "weights instead of a bias",
            "the softmax has already been applied: these are weights, and the "
            "exercise asks for the bias",
            look_up_bias(clip_distance, lambda bias: bias.softmax(-1)),
        ),
        Mistake(
            "scaled",
            "unneeded scale",
            "the bias is divided by the root of the number of distances; the "
            "table's entries should be used unchanged",
            lambda table, T, S: (
                look_up_bias(clip_distance)(table, T, S)
                / table.shape[-1] ** 0.5
            ),
        ),
        Mistake(
            "batch-axis",
            "extra batch axis",
            "there is an extra axis of length 1; the shape should be (heads, "
            "T, S)",
            look_up_bias(clip_distance, lambda bias: bias[None]),
        ),
    ),
)
