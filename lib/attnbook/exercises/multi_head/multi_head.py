"""Exercise: self-attention with several heads.

Chapter: chapters/06_multi_head
Source: Vaswani et al. (2017), section 3.2.2,
    https://arxiv.org/abs/1706.03762
Axes: B batch, T positions, C model width, H heads, D width of a head
"""

import torch

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import doubled, halved, normal
from attnbook.exercises.multi_head.answers import (
    by_view,
    interleaved,
    merged_by_view,
    merged_in_turns,
    past,
    with_heads,
)
from attnbook.multi_head import merge_heads
from attnbook.solutions import multi_head as solutions

RIGHT = with_heads()


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One head; then several; then numbers that hide a mistake."""

    def inputs(b, t, c, heads, size=1.5):
        matrices = (normal(rng, c, c) * size * c**-0.5 for _ in range(4))
        return normal(rng, b, t, c), *matrices, heads

    usual = inputs(2, 5, 21, 3)
    return (
        Case("with one head and one position", inputs(1, 1, 3, 1)),
        Case("with one head", inputs(2, 3, 5, 1)),
        Case("with 3 heads of width 7", usual, gradient=True),
        Case("with 2 heads and one position", inputs(2, 1, 10, 2)),
        Case("with as many positions as heads", inputs(2, 3, 15, 3)),
        Case("with everything equal", inputs(3, 3, 9, 3)),
        Case("with heads of width 1", inputs(2, 3, 5, 5)),
        Case("with large scores", inputs(2, 5, 14, 2, size=5.0)),
        Case("in double precision", doubled(usual)),
        Case("with very large scores", doubled(inputs(2, 5, 6, 2, size=50.0))),
        Case("in half precision", halved(inputs(2, 5, 6, 2))),
    )


check_multi_head = Exercise(
    title="several heads",
    stars=2,
    minutes=20,
    section="The output projection",
    solution=solutions.multi_head,
    returns=("output",),
    draw=draw,
    allowed="Everything is allowed but PyTorch's ready-made attention; "
    "chapter 4's `attend` and your own `split_heads` are yours to use.",
    mistakes=(
        Mistake(
            "split-by-view",
            "the heads are split by a change of shape alone: a head gets some "
            "of the positions, not some of the columns",
            with_heads(split=by_view),
        ),
        Mistake(
            "merge-by-view",
            "the heads are merged by a change of shape alone; exchange two "
            "axes first",
            with_heads(merge=merged_by_view),
        ),
        Mistake(
            "split-and-merge-by-view",
            "heads are split and merged by a change of shape alone: each head "
            "sees a few positions, with all their columns",
            with_heads(split=by_view, merge=merged_by_view),
        ),
        Mistake(
            "interleaved",
            "head h has every H-th column; a head's columns are neighbours",
            with_heads(split=interleaved, merge=merged_in_turns),
        ),
        Mistake(
            "interleaved-split",
            "the heads are split by every H-th column and merged by blocks",
            with_heads(split=interleaved),
        ),
        Mistake(
            "interleaved-merge",
            "the heads are split by blocks and merged column by column",
            with_heads(merge=merged_in_turns),
        ),
        Mistake(
            "attention-among-heads",
            "at each position the heads attend to each other: the axis of "
            "heads stands where that of positions should",
            with_heads(
                split=lambda x, H: x.unflatten(-1, (H, -1)),
                merge=lambda x: x.flatten(2),
            ),
        ),
        Mistake(
            "no-output-projection",
            "the output projection is missing",
            with_heads(output=lambda merged, W: merged),
        ),
        Mistake(
            "output-untransposed",
            "the output projection is applied as x @ W; x @ W.T is meant",
            with_heads(output=lambda merged, W: merged @ W),
        ),
        Mistake(
            "untransposed",
            "the matrices are applied as x @ W; x @ W.T is meant",
            lambda x, Q, K, V, W, H: RIGHT(x, Q.mT, K.mT, V.mT, W.mT, H),
        ),
        Mistake(
            "scale-by-model-width",
            "the products are divided by √C; those of a head are D = C / H "
            "wide",
            with_heads(scale=lambda D, H: (D * H) ** -0.5),
        ),
        Mistake(
            "scale-by-heads",
            "the products are divided by √H; the width of a head is meant",
            with_heads(scale=lambda D, H: H**-0.5),
        ),
        Mistake(
            "no-scale",
            "the products are not divided by √D",
            with_heads(scale=lambda D, H: 1.0),
        ),
        Mistake(
            "scale-without-root",
            "the products are divided by D; its square root is meant",
            with_heads(scale=lambda D, H: 1 / D),
        ),
        Mistake(
            "softmax-over-heads",
            "the softmax runs over the heads, which must not know of each "
            "other",
            with_heads(axis=1),
        ),
        Mistake(
            "softmax-over-queries",
            "the softmax runs over the positions that ask, not over those "
            "that are asked",
            with_heads(axis=-2),
        ),
        Mistake(
            "uniform",
            "every position takes the plain mean: the scores are not used",
            with_heads(scale=lambda D, H: 0.0),
        ),
        Mistake(
            "no-attention",
            "queries are projected and nothing is attended to",
            lambda x, Q, K, V, W, H: x @ Q.T @ W.T,
        ),
        Mistake(
            "values-only",
            "each position gets its own value: nothing is attended to",
            lambda x, Q, K, V, W, H: x @ V.T @ W.T,
        ),
        Mistake(
            "one-head",
            "it is one head of width C, however many are asked for",
            lambda x, Q, K, V, W, H: RIGHT(x, Q, K, V, W, 1),
        ),
        Mistake(
            "weights-averaged",
            "all heads look with the mean of their weights; each has its own",
            with_heads(then=lambda w: w.mean(1, keepdim=True)),
        ),
        Mistake(
            "first-head-only",
            "every head's output is that of the first",
            with_heads(merge=lambda x: merge_heads(x[:, :1].expand_as(x))),
        ),
        Mistake(
            "swapped-query-key",
            "W_query and W_key have changed places",
            lambda x, Q, K, V, W, H: RIGHT(x, K, Q, V, W, H),
        ),
        Mistake(
            "key-for-value",
            "the keys are averaged; it should be the values",
            lambda x, Q, K, V, W, H: RIGHT(x, Q, K, K, W, H),
        ),
        Mistake(
            "causal",
            "a position sees only what comes before it; nothing here asks "
            "for a mask",
            with_heads(bend=past),
        ),
    ),
)
