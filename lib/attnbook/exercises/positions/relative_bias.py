"""Exercise: relative position bias from a learned table.

Source: the clipped distance of Shaw et al. (2018), section 3.2,
    https://arxiv.org/abs/1803.02155, with a number for each head in place of a
    vector, as in Raffel et al. (2020), section 2.1,
    https://arxiv.org/abs/1910.10683
Axes: H heads, T queries, S keys (as many), reach
"""

import torch

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


INDEX = "away.clamp(-reach, reach) + reach"

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
            "away.clamp → (-away).clamp",
        ),
        Mistake(
            "no-clip",
            "distances not clipped",
            "distances beyond `reach` are not clipped, so they index outside "
            "the table or from its end",
            ".clamp(-reach, reach) → ",
        ),
        Mistake(
            "wrapped",
            "distances wrap around",
            "distances beyond `reach` wrap around to the other end of the "
            "table; they should be clipped",
            f"{INDEX} → (away + reach) % columns",
        ),
        Mistake(
            "no-offset",
            "no offset",
            "the distances are used as indices without adding `reach`, so "
            "negative ones silently index from the end of the table",
            " + reach] → ]",
        ),
        Mistake(
            "clipped-too-late",
            "clipped after the offset",
            "the distance is clipped to ±reach after `reach` was added; it "
            "should be clipped before",
            f"{INDEX} → (away + reach).clamp(-reach, reach)",
        ),
        Mistake(
            "one-side-clipped",
            "clipped on one side",
            "distances are clipped on one side only, so those far before the "
            "query index from the end of the table or outside it",
            "clamp(-reach, reach) → clamp(max=reach)",
        ),
        Mistake(
            "clipped-too-early",
            "clipped one too early",
            "distances are clipped to ±(reach - 1), so the first and last "
            "columns of the table are never used",
            "clamp(-reach, reach) → clamp(1 - max(reach, 1), max(reach, 1) - 1)",
        ),
        Mistake(
            "zero-beyond",
            "zero beyond reach",
            "keys beyond `reach` get the bias 0; they should get the bias of "
            "the largest distance",
            f"{INDEX}] → {INDEX}].masked_fill(away.abs() > reach, 0.0)",
        ),
        Mistake(
            "symmetric",
            "sign of the distance lost",
            "keys before and after the query get the same bias: the "
            "distance has lost its sign",
            "away.clamp → away.abs().clamp",
        ),
        Mistake(
            "past-only",
            "later keys not distinguished",
            "all keys after the query get the bias of distance 0",
            "away.clamp → away.clamp(max=0).clamp",
        ),
        Mistake(
            "future-only",
            "earlier keys not distinguished",
            "all keys before the query get the bias of distance 0",
            "away.clamp → away.clamp(min=0).clamp",
        ),
        Mistake(
            "by-key",
            "absolute instead of relative position",
            "the bias depends on the position of the key alone; it should "
            "depend on its distance from the query",
            "away.clamp → away[:1].expand_as(away).clamp",
        ),
        Mistake(
            "heads-last",
            "axis of heads last",
            "the axis of heads comes last; the shape should be (heads, T, S)",
            f"{INDEX}] → {INDEX}].permute(1, 2, 0)",
        ),
        Mistake(
            "first-head-only",
            "first head for all",
            "every head gets the bias of the first one",
            "table[:, → table[:1].expand_as(table)[:,",
        ),
        Mistake(
            "softmaxed",
            "weights instead of a bias",
            "the softmax has already been applied: these are weights, and the "
            "exercise asks for the bias",
            f"{INDEX}] → {INDEX}].softmax(-1)",
        ),
        Mistake(
            "scaled",
            "unneeded scale",
            "the bias is divided by the root of the number of distances; the "
            "table's entries should be used unchanged",
            f"{INDEX}] → {INDEX}] / columns**0.5",
        ),
        Mistake(
            "batch-axis",
            "extra batch axis",
            "there is an extra axis of length 1; the shape should be (heads, T, S)",
            f"{INDEX}] → {INDEX}][None]",
        ),
    ),
)
