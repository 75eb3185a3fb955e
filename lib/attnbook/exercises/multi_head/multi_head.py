"""Exercise: self-attention with several heads.

Source: Vaswani et al. (2017), section 3.2.2,
    https://arxiv.org/abs/1706.03762
Axes: B batch, T positions, C model width, H heads, D width of a head
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from attnbook.attention.multi_head import merge_heads, split_heads
from attnbook.attention.scaled_dot_product import attend
from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_normal, to_double, to_half
from attnbook.exercises.multi_head.merge_heads import (
    interleave_columns,
    merge_by_view,
)
from attnbook.exercises.multi_head.split_heads import (
    interleave_heads,
    split_by_view,
)
from attnbook.exercises.self_attention.cross_attention import mask_future


def multi_head(
    x: Float[Tensor, "B T C"],
    W_query: Float[Tensor, "C C"],
    W_key: Float[Tensor, "C C"],
    W_value: Float[Tensor, "C C"],
    W_output: Float[Tensor, "C C"],
    heads: int,
) -> Float[Tensor, "B T C"]:
    """Return multi-head self-attention of x, (B, T, C)."""
    query = split_heads(x @ W_query.T, heads)
    key = split_heads(x @ W_key.T, heads)
    value = split_heads(x @ W_value.T, heads)
    return merge_heads(attend(query, key, value)) @ W_output.T


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One head; then several; then numbers that hide a mistake."""

    def inputs(b, t, c, heads, size=1.5):
        matrices = (draw_normal(rng, c, c) * size * c**-0.5 for _ in range(4))
        return draw_normal(rng, b, t, c), *matrices, heads

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
        Case("in double precision", to_double(usual), asked=False),
        Case("with very large scores", to_double(inputs(2, 5, 6, 2, size=50.0))),
        Case("in half precision", to_half(inputs(2, 5, 6, 2)), asked=False),
    )


def compute_scale(D: int, H: int) -> float:
    """Return the scale that is right."""
    return D**-0.5


def average_values(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: Callable[[int, int], float] = compute_scale,
    axis: int = -1,
    then: Callable[[Tensor], Tensor] = lambda weights: weights,
    bend: Callable[[Tensor], Tensor] = lambda scores: scores,
) -> Tensor:
    """Return attention with another scale, axis or step in between.

    Args:
        query: of each head, (B, H, T, D).
        key: of each head.
        value: of each head.
        scale: of the products, from D and H.
        axis: of the softmax.
        then: what happens to the weights.
        bend: what happens to the scores, a mask for instance.
    """
    scores = query @ key.mT * scale(query.shape[-1], query.shape[1])
    return then(bend(scores).softmax(axis)) @ value


def change_heads(
    split: Callable = split_heads,
    merge: Callable = merge_heads,
    output: Callable = lambda merged, W: merged @ W.T,
    **more,
) -> Callable:
    """Return multi-head attention with a part of it exchanged.

    Args:
        split: cuts columns into heads.
        merge: puts them together.
        output: applies the last projection.
        **more: of `average_values`.
    """

    def answer(x, W_query, W_key, W_value, W_output, heads):
        parts = (split(x @ W.T, heads) for W in (W_query, W_key, W_value))
        return output(merge(average_values(*parts, **more)), W_output)

    return answer


RIGHT = change_heads()


check_multi_head = Exercise(
    title="multi-head attention",
    stars=2,
    minutes=20,
    section="The output projection",
    solution=multi_head,
    returns=("output",),
    draw=draw,
    allowed="Everything is allowed but PyTorch's ready-made attention; "
    "chapter 4's `attend` and your own `split_heads` are yours to use.",
    mistakes=(
        Mistake(
            "split-by-view",
            "split without transpose",
            "the heads are split by a reshape alone, so a head gets some of "
            "the positions instead of some of the columns",
            change_heads(split=split_by_view),
        ),
        Mistake(
            "merge-by-view",
            "merged without transpose",
            "the heads are merged by a reshape alone; transpose heads and "
            "positions first",
            change_heads(merge=merge_by_view),
        ),
        Mistake(
            "split-and-merge-by-view",
            "split and merged without transpose",
            "heads are split and merged by reshapes alone, so each head "
            "attends among a few positions with all their columns",
            change_heads(split=split_by_view, merge=merge_by_view),
        ),
        Mistake(
            "interleaved",
            "interleaved heads",
            "head h has every H-th column; the columns of a head should be contiguous",
            change_heads(split=interleave_heads, merge=interleave_columns),
        ),
        Mistake(
            "interleaved-split",
            "interleaved split",
            "the heads are split with every H-th column and merged as "
            "contiguous blocks",
            change_heads(split=interleave_heads),
        ),
        Mistake(
            "interleaved-merge",
            "interleaved merge",
            "the heads are split as contiguous blocks and merged with every "
            "H-th column",
            change_heads(merge=interleave_columns),
        ),
        Mistake(
            "attention-among-heads",
            "attention among heads",
            "the heads of each position attend to each other; transpose heads "
            "and positions, so that positions attend to positions",
            change_heads(
                split=lambda x, H: x.unflatten(-1, (H, -1)),
                merge=lambda x: x.flatten(2),
            ),
        ),
        Mistake(
            "no-output-projection",
            "no output projection",
            "the output projection is missing",
            change_heads(output=lambda merged, W: merged),
        ),
        Mistake(
            "output-untransposed",
            "output projection not transposed",
            "the output projection is applied as x @ W; it should be x @ W.T",
            change_heads(output=lambda merged, W: merged @ W),
        ),
        Mistake(
            "untransposed",
            "projections not transposed",
            "the projections are applied as x @ W; it should be x @ W.T",
            lambda x, Q, K, V, W, H: RIGHT(x, Q.mT, K.mT, V.mT, W.mT, H),
        ),
        Mistake(
            "scale-by-model-width",
            "division by √C, not by √D",
            "the scores are divided by √C; they should be divided by √D, with "
            "D = C / H",
            change_heads(scale=lambda D, H: (D * H) ** -0.5),
        ),
        Mistake(
            "scale-by-heads",
            "division by √H, not by √D",
            "the scores are divided by √H; they should be divided by √D, the "
            "root of the head width",
            change_heads(scale=lambda D, H: H**-0.5),
        ),
        Mistake(
            "no-scale",
            "no division by √D",
            "the scores are not divided by √D",
            change_heads(scale=lambda D, H: 1.0),
        ),
        Mistake(
            "scale-without-root",
            "division by D, not by √D",
            "the scores are divided by D; they should be divided by √D",
            change_heads(scale=lambda D, H: 1 / D),
        ),
        Mistake(
            "softmax-over-heads",
            "softmax over the heads",
            "the softmax runs over the heads; it should run over the keys",
            change_heads(axis=1),
        ),
        Mistake(
            "softmax-over-queries",
            "softmax over the queries",
            "the softmax runs over the queries; it should run over the keys",
            change_heads(axis=-2),
        ),
        Mistake(
            "uniform",
            "uniform weights",
            "every position gets the same weight: the scores are not used",
            change_heads(scale=lambda D, H: 0.0),
        ),
        Mistake(
            "no-attention",
            "projected queries returned",
            "the queries are projected and returned: there is no attention",
            lambda x, Q, K, V, W, H: x @ Q.T @ W.T,
        ),
        Mistake(
            "values-only",
            "values without attention",
            "each position gets its own value: there is no attention",
            lambda x, Q, K, V, W, H: x @ V.T @ W.T,
        ),
        Mistake(
            "one-head",
            "one head of full width",
            "there is only one head, of width C, whatever the number of heads",
            lambda x, Q, K, V, W, H: RIGHT(x, Q, K, V, W, 1),
        ),
        Mistake(
            "weights-averaged",
            "weights averaged over the heads",
            "all heads use the mean of the heads' weights; each should use its own",
            change_heads(then=lambda w: w.mean(1, keepdim=True)),
        ),
        Mistake(
            "first-head-only",
            "first head only",
            "every head returns the output of the first one",
            change_heads(merge=lambda x: merge_heads(x[:, :1].expand_as(x))),
        ),
        Mistake(
            "swapped-query-key",
            "W_query and W_key swapped",
            "W_query and W_key are swapped",
            lambda x, Q, K, V, W, H: RIGHT(x, K, Q, V, W, H),
        ),
        Mistake(
            "key-for-value",
            "keys instead of values",
            "the keys are averaged; the values should be",
            lambda x, Q, K, V, W, H: RIGHT(x, Q, K, K, W, H),
        ),
        Mistake(
            "causal",
            "unneeded causal mask",
            "a position can attend only to itself and earlier ones; the "
            "exercise has no mask",
            change_heads(bend=mask_future),
        ),
    ),
)
