"""Exercise: put the heads' columns side by side again.

Source: Vaswani et al. (2017), section 3.2.2 (Concat),
    https://arxiv.org/abs/1706.03762
Axes: B batch, T positions, H heads, D columns of a head
"""

import torch
from torch import Tensor

from attnbook.attention import multi_head
from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_normal, to_double, to_half


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One head; then several; then numbers that hide a mistake."""
    usual = (draw_normal(rng, 2, 3, 5, 7),)
    turned = draw_normal(rng, 2, 5, 3, 2).transpose(1, 2)
    return (
        Case("with one head", (draw_normal(rng, 2, 1, 3, 5),)),
        Case("with 3 heads of 7 columns", usual, gradient=True),
        Case("with heads of one column", (draw_normal(rng, 2, 5, 3, 1),)),
        Case("with one position", (draw_normal(rng, 2, 3, 1, 5),)),
        Case("with everything equal", (draw_normal(rng, 3, 3, 3, 3),)),
        Case("with columns not next to each other", (turned,)),
        Case("in double precision", to_double(usual), asked=False),
        Case("in half precision", to_half(usual), asked=False),
    )


def merge_by_view(x: Tensor) -> Tensor:
    """Return (B, T, H·D) as a mere change of shape, which scrambles."""
    return x.reshape(len(x), x.shape[2], -1)


def interleave_columns(x: Tensor) -> Tensor:
    """Return the heads' columns interleaved."""
    return x.permute(0, 2, 3, 1).flatten(2)


check_merge_heads = Exercise(
    title="merging the heads",
    stars=1,
    minutes=5,
    section="Splitting and merging heads",
    solution=multi_head.merge_heads,
    returns=("merged",),
    draw=draw,
    mistakes=(
        Mistake(
            "view-without-transpose",
            "reshape without transpose",
            "the tensor is only reshaped, so different positions of one head "
            "end up side by side; transpose heads and positions first",
            merge_by_view,
        ),
        Mistake(
            "interleaved",
            "interleaved heads",
            "the columns of the heads are interleaved; the columns of each "
            "head should stay together",
            interleave_columns,
        ),
        Mistake(
            "not-merged",
            "heads not merged",
            "heads and columns are still two axes; the shape should be (B, T, H·D)",
            lambda x: x.transpose(1, 2).clone(),
        ),
        Mistake(
            "one-below-the-other",
            "heads concatenated along positions",
            "the heads are concatenated along the positions; they should be "
            "concatenated along the columns",
            lambda x: x.flatten(1, 2),
        ),
        Mistake(
            "summed",
            "heads summed",
            "the heads are summed; they should be concatenated",
            lambda x: x.sum(1),
        ),
        Mistake(
            "averaged",
            "heads averaged",
            "the heads are averaged; they should be concatenated",
            lambda x: x.mean(1),
        ),
        Mistake(
            "first-head-only",
            "first head only",
            "only the first head is returned",
            lambda x: x[:, 0].clone(),
        ),
        Mistake(
            "width-for-positions",
            "positions and columns swapped",
            "positions and columns are swapped; the shape should be (B, T, H·D)",
            lambda x: x.permute(0, 3, 1, 2).flatten(2),
        ),
        Mistake(
            "wrong-axes-swapped",
            "heads and columns transposed",
            "heads and columns are transposed before the reshape, so only the "
            "shape is right; transpose heads and positions",
            lambda x: x.transpose(1, 3).reshape(len(x), x.shape[2], -1),
        ),
        Mistake(
            "last-axes-swapped",
            "positions and columns transposed",
            "positions and columns are transposed before the reshape, so only "
            "the shape is right; transpose heads and positions",
            lambda x: x.mT.reshape(len(x), x.shape[2], -1),
        ),
        Mistake(
            "backwards",
            "heads in reverse order",
            "the heads are in reverse order",
            lambda x: x.flip(1).transpose(1, 2).flatten(2),
        ),
    ),
)
