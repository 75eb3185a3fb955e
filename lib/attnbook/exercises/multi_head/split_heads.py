"""Exercise: cut the columns into heads.

Source: Vaswani et al. (2017), section 3.2.2,
    https://arxiv.org/abs/1706.03762
Axes: B batch, T positions, C columns, H heads, D columns of a head
"""

import torch
from torch import Tensor

from attnbook.attention import multi_head
from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_normal, to_double, to_half


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One head; then several; then numbers that hide a mistake."""
    usual = draw_normal(rng, 2, 5, 21), 3
    turned = draw_normal(rng, 2, 14, 3).transpose(1, 2)
    return (
        Case("with one head", (draw_normal(rng, 2, 3, 5), 1)),
        Case("with 3 heads of 7 columns", usual, gradient=True),
        Case("with as many heads as columns", (draw_normal(rng, 2, 3, 5), 5)),
        Case("with one position", (draw_normal(rng, 2, 1, 6), 2)),
        Case("with as many positions as heads", (draw_normal(rng, 1, 3, 9), 3)),
        Case("with everything equal", (draw_normal(rng, 3, 3, 9), 3)),
        Case("with columns not next to each other", (turned, 2)),
        Case("in double precision", to_double(usual), asked=False),
        Case("in half precision", to_half(usual), asked=False),
    )


def split_by_view(x: Tensor, heads: int) -> Tensor:
    """Return (B, H, T, D) as a mere change of shape, which scrambles."""
    return x.reshape(len(x), heads, x.shape[1], -1)


def interleave_heads(x: Tensor, heads: int) -> Tensor:
    """Return heads of which the h-th has every H-th column."""
    return x.unflatten(-1, (-1, heads)).permute(0, 3, 1, 2)


check_split_heads = Exercise(
    title="splitting the heads",
    stars=1,
    minutes=5,
    section="Splitting and merging heads",
    solution=multi_head.split_heads,
    returns=("split",),
    draw=draw,
    mistakes=(
        Mistake(
            "view-without-transpose",
            "reshape without transpose",
            "the tensor is only reshaped, so a head gets some of the "
            "positions instead of some of the columns",
            split_by_view,
        ),
        Mistake(
            "interleaved",
            "interleaved heads",
            "head h gets every H-th column; it should get a contiguous block "
            "of columns",
            interleave_heads,
        ),
        Mistake(
            "untransposed",
            "heads after positions",
            "the axis of heads comes after the positions; the shape should be "
            "(B, H, T, D)",
            lambda x, H: x.unflatten(-1, (H, -1)),
        ),
        Mistake(
            "heads-and-width-swapped",
            "number and width of heads swapped",
            "the number and the width of the heads are swapped; there should "
            "be H heads of width D",
            lambda x, H: x.unflatten(-1, (-1, H)).transpose(1, 2),
        ),
        Mistake(
            "interleaved-untransposed",
            "interleaved heads, last axis",
            "head h gets every H-th column, and the axis of heads comes last",
            lambda x, H: x.unflatten(-1, (-1, H)),
        ),
        Mistake(
            "width-before-positions",
            "positions and columns swapped",
            "positions and columns of each head are swapped; the shape should "
            "be (B, H, T, D)",
            lambda x, H: x.unflatten(-1, (H, -1)).permute(0, 2, 3, 1),
        ),
        Mistake(
            "scrambled",
            "transposed before the split",
            "positions and columns are transposed before the split, so only "
            "the shape is right",
            lambda x, H: x.mT.reshape(len(x), H, x.shape[1], -1),
        ),
        Mistake(
            "heads-first",
            "heads before the batch",
            "the axis of heads comes before the batch",
            lambda x, H: torch.stack(x.chunk(H, dim=-1)),
        ),
        Mistake(
            "heads-into-batch",
            "heads merged with the batch",
            "heads and batch are merged into one axis; they should be separate",
            lambda x, H: x.unflatten(-1, (H, -1)).transpose(1, 2).flatten(0, 1),
        ),
        Mistake(
            "copies",
            "every head a full copy",
            "every head gets all columns; it should get its own block",
            lambda x, H: x[:, None].repeat(1, H, 1, 1),
        ),
        Mistake(
            "first-head-only",
            "first block for all heads",
            "every head gets the first block of columns; it should get its own block",
            lambda x, H: x[:, None, :, : x.shape[-1] // H].repeat(1, H, 1, 1),
        ),
        Mistake(
            "backwards",
            "heads in reverse order",
            "the heads are in reverse order",
            lambda x, H: x.unflatten(-1, (H, -1)).transpose(1, 2).flip(1),
        ),
    ),
)
