"""Exercise: put the heads' columns side by side again.

Chapter: chapters/06_multi_head
Source: Vaswani et al. (2017), section 3.2.2 (Concat),
    https://arxiv.org/abs/1706.03762
Axes: B batch, T positions, H heads, D columns of a head
"""

import torch

from attnbook import multi_head
from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import doubled, halved, normal


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One head; then several; then numbers that hide a mistake."""
    usual = (normal(rng, 2, 3, 5, 7),)
    turned = normal(rng, 2, 5, 3, 2).transpose(1, 2)
    return (
        Case("with one head", (normal(rng, 2, 1, 3, 5),)),
        Case("with 3 heads of 7 columns", usual, gradient=True),
        Case("with heads of one column", (normal(rng, 2, 5, 3, 1),)),
        Case("with one position", (normal(rng, 2, 3, 1, 5),)),
        Case("with everything equal", (normal(rng, 3, 3, 3, 3),)),
        Case("with columns not next to each other", (turned,)),
        Case("in double precision", doubled(usual)),
        Case("in half precision", halved(usual)),
    )


check_merge_heads = Exercise(
    title="merge the heads",
    stars=1,
    minutes=5,
    section="From a loop to one reshape",
    solution=multi_head.merge_heads,
    returns=("merged",),
    draw=draw,
    mistakes=(
        Mistake(
            "view-without-transpose",
            "the numbers are only given another shape: positions of one head "
            "come to stand side by side; exchange two axes first",
            lambda x: x.reshape(len(x), x.shape[2], -1),
        ),
        Mistake(
            "interleaved",
            "the heads take turns, column by column; each head's columns "
            "belong together",
            lambda x: x.permute(0, 2, 3, 1).flatten(2),
        ),
        Mistake(
            "not-merged",
            "heads and columns are still two axes: the shape is (B, T, H, D)",
            lambda x: x.transpose(1, 2).clone(),
        ),
        Mistake(
            "one-below-the-other",
            "the heads stand one below the other, as if they were more "
            "positions",
            lambda x: x.flatten(1, 2),
        ),
        Mistake(
            "summed",
            "the heads are added up; they stand side by side",
            lambda x: x.sum(1),
        ),
        Mistake(
            "averaged",
            "the heads are averaged; they stand side by side",
            lambda x: x.mean(1),
        ),
        Mistake(
            "first-head-only",
            "only the first head is left",
            lambda x: x[:, 0].clone(),
        ),
        Mistake(
            "width-for-positions",
            "positions and columns have changed places: the shape is "
            "(B, D, H·T)",
            lambda x: x.permute(0, 3, 1, 2).flatten(2),
        ),
        Mistake(
            "wrong-axes-swapped",
            "heads and columns have changed places, and then only the shape "
            "is right",
            lambda x: x.transpose(1, 3).reshape(len(x), x.shape[2], -1),
        ),
        Mistake(
            "last-axes-swapped",
            "positions and columns have changed places, and then only the "
            "shape is right",
            lambda x: x.mT.reshape(len(x), x.shape[2], -1),
        ),
        Mistake(
            "backwards",
            "the heads are in the opposite order",
            lambda x: x.flip(1).transpose(1, 2).flatten(2),
        ),
    ),
)
