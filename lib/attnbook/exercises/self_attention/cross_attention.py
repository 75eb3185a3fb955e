"""Exercise: attention from one sequence to another.

Source: Vaswani et al. (2017), section 3.2.3,
    https://arxiv.org/abs/1706.03762
Axes: B batch, T positions of x, S positions of the memory, C and M their
    widths, D width of query and key, E value width
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from attnbook.attention.scaled_dot_product import attend
from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_normal, to_double, to_half

ALLOWED = (
    "Everything is allowed but PyTorch's ready-made attention; chapter 4's "
    "`attend` is yours to use."
)


def cross_attention(
    x: Float[Tensor, "B T C"],
    memory: Float[Tensor, "B S M"],
    W_query: Float[Tensor, "D C"],
    W_key: Float[Tensor, "D M"],
    W_value: Float[Tensor, "E M"],
) -> Float[Tensor, "B T E"]:
    """Return attention of queries from x to keys and values from memory."""
    return attend(x @ W_query.T, memory @ W_key.T, memory @ W_value.T)


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One of each; then T ≠ S and C ≠ M; then what hides a mistake."""

    def inputs(b, t, s, c, m, d, e):
        sizes = (d, c), (d, m), (e, m)
        matrices = (draw_normal(rng, *size) * size[1] ** -0.5 for size in sizes)
        return draw_normal(rng, b, t, c), draw_normal(rng, b, s, m), *matrices

    usual = inputs(2, 3, 5, 7, 11, 2, 13)
    loud = tuple(4 * x for x in inputs(2, 3, 5, 2, 3, 5, 7))
    return (
        Case("with one position each", inputs(1, 1, 1, 2, 3, 5, 7)),
        Case("with 3 queries and 5 keys", usual, gradient=True),
        Case("with 5 queries and 3 keys", inputs(2, 5, 3, 3, 2, 7, 5)),
        Case("with everything equal", inputs(2, 4, 4, 4, 4, 4, 4)),
        Case("with large scores", loud),
        Case("in double precision", to_double(usual), asked=False),
        Case(
            "in half precision",
            to_half(inputs(2, 3, 5, 3, 2, 5, 7)),
            asked=False,
        ),
    )


def average_values(
    scale: Callable[[int, int], float] = lambda D, C: D**-0.5,
    axis: int = -1,
    then: Callable[[Tensor, int], Tensor] = lambda weights, D: weights,
    bend: Callable[[Tensor], Tensor] = lambda scores: scores,
) -> Callable:
    """Return cross-attention with another scale, axis or step in between.

    Args:
        scale: of the products, from the widths D of a key and C of the input.
        axis: of the softmax.
        then: what happens to the weights, with D.
        bend: what happens to the scores, a mask for instance.
    """

    def answer(x, memory, W_query, W_key, W_value):
        query, key = x @ W_query.T, memory @ W_key.T
        scores = query @ key.mT * scale(W_query.shape[0], x.shape[-1])
        weights = bend(scores).softmax(axis)
        return then(weights, W_query.shape[0]) @ (memory @ W_value.T)

    return answer


def mask_future(scores: Tensor, diagonal: int = 0) -> Tensor:
    """Return scores with -inf at every key after the query."""
    seen = torch.ones_like(scores, dtype=torch.bool).tril(diagonal)
    return scores.masked_fill(~seen, -torch.inf)


def attend_to_itself(cross: Callable) -> Callable:
    """Return the self-attention that a cross-attention makes."""
    return lambda x, *matrices: cross(x, x, *matrices)


RIGHT = average_values()

# Of attention from one sequence to another, and of self-attention.
SCALE_MISTAKES = (
    Mistake(
        "no-scale",
        "no division by √D",
        "the scores are not divided by √D",
        average_values(scale=lambda D, C: 1.0),
    ),
    Mistake(
        "scale-by-input-width",
        "division by √C, not by √D",
        "the scores are divided by √C, the root of the input width; they "
        "should be divided by √D, because queries and keys have D entries",
        average_values(scale=lambda D, C: C**-0.5),
    ),
    Mistake(
        "scale-without-root",
        "division by D, not by √D",
        "the scores are divided by D; they should be divided by √D",
        average_values(scale=lambda D, C: 1 / D),
    ),
    Mistake(
        "scale-after-softmax",
        "division after the softmax",
        "the weights are divided by √D after the softmax, so they no "
        "longer sum to 1; the scores should be divided before it",
        average_values(scale=lambda D, C: 1.0, then=lambda w, D: w * D**-0.5),
    ),
)


check_cross_attention = Exercise(
    title="cross-attention",
    stars=1,
    minutes=10,
    section="Cross-attention: keys and values from another sequence",
    solution=cross_attention,
    returns=("output",),
    draw=draw,
    allowed=ALLOWED,
    mistakes=(
        *SCALE_MISTAKES,
        Mistake(
            "softmax-over-queries",
            "softmax over the queries",
            "the softmax runs over the queries; it should run over the "
            "positions of the memory",
            average_values(axis=-2),
        ),
        Mistake(
            "softmax-over-batch",
            "softmax over the batch",
            "the softmax runs over the batch; it should run over the "
            "positions of the memory",
            average_values(axis=0),
        ),
        Mistake(
            "self",
            "self-attention instead of cross-attention",
            "`x` attends to itself; keys and values should come from `memory`",
            lambda x, memory, Q, K, V: RIGHT(x, x, Q, K, V),
        ),
        Mistake(
            "query-from-memory",
            "queries from the memory",
            "the memory attends to itself; the queries should come from `x`",
            lambda x, memory, Q, K, V: RIGHT(memory, memory, Q, K, V),
        ),
        Mistake(
            "swapped-sequences",
            "`x` and `memory` swapped",
            "`x` and `memory` are swapped: the memory attends to `x`",
            lambda x, memory, Q, K, V: RIGHT(memory, x, Q, K, V),
        ),
        Mistake(
            "swapped-query-key",
            "W_query and W_key swapped",
            "W_query and W_key are swapped",
            lambda x, memory, Q, K, V: RIGHT(x, memory, K, Q, V),
        ),
        Mistake(
            "key-for-value",
            "keys instead of values",
            "the keys are averaged; the values should be",
            lambda x, memory, Q, K, V: RIGHT(x, memory, Q, K, K),
        ),
        Mistake(
            "no-value-projection",
            "no value projection",
            "the memory itself is averaged; its values, memory @ W_value.T, should be",
            lambda x, memory, Q, K, V: RIGHT(
                x, memory, Q, K, torch.eye(memory.shape[-1]).to(memory)
            ),
        ),
        Mistake(
            "uniform",
            "uniform weights",
            "every position of the memory gets the same weight: the scores "
            "are not used",
            average_values(scale=lambda D, C: 0.0),
        ),
        Mistake(
            "untransposed",
            "projections not transposed",
            "the projections are applied as x @ W; it should be x @ W.T "
            "(with square matrices, the shapes do not show the mistake)",
            lambda x, memory, Q, K, V: RIGHT(x, memory, Q.mT, K.mT, V.mT),
        ),
        Mistake(
            "diagonal-mask",
            "unneeded causal mask",
            "position t can attend to the memory only up to position t; "
            "cross-attention has no causal mask",
            average_values(bend=mask_future),
        ),
    ),
)
