"""Exercise: self-attention with its three projections.

Source: Vaswani et al. (2017), sections 3.2.1 and 3.2.3,
    https://arxiv.org/abs/1706.03762
Axes: B batch, T positions, C width of the input, D width of query and key, E
    value width
"""

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from attnbook.attention.scaled_dot_product import attend
from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_normal, to_double, to_half
from attnbook.exercises.self_attention.cross_attention import (
    ALLOWED,
    SCALE_MISTAKES,
    attend_to_itself,
    average_values,
    mask_future,
)


def self_attention(
    x: Float[Tensor, "B T C"],
    W_query: Float[Tensor, "D C"],
    W_key: Float[Tensor, "D C"],
    W_value: Float[Tensor, "E C"],
) -> Float[Tensor, "B T E"]:
    """Return attention of every position to all positions."""
    return attend(x @ W_query.T, x @ W_key.T, x @ W_value.T)


RIGHT = average_values()


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One position; then widths that all differ; then what hides a mistake."""

    def inputs(b, t, c, d, e):
        matrices = (draw_normal(rng, n, c) * c**-0.5 for n in (d, d, e))
        return draw_normal(rng, b, t, c), *matrices

    usual = inputs(2, 5, 3, 7, 11)
    loud = tuple(4 * x for x in inputs(2, 3, 5, 2, 7))
    return (
        Case("with one position", inputs(1, 1, 2, 3, 5)),
        Case("with 5 positions and D = 7", usual, gradient=True),
        Case("with all widths equal", inputs(2, 4, 4, 4, 4), gradient=True),
        Case("with large scores", loud),
        Case(
            "with the input a transposed view",
            (draw_normal(rng, 2, 3, 5).mT, *inputs(1, 1, 3, 2, 5)[1:]),
        ),
        Case("in double precision", to_double(usual), asked=False),
        Case("in half precision", to_half(inputs(2, 5, 3, 2, 7)), asked=False),
    )


check_self_attention = Exercise(
    title="self-attention",
    stars=1,
    minutes=10,
    section="Queries, keys and values from one sequence",
    solution=self_attention,
    returns=("output",),
    draw=draw,
    allowed=ALLOWED,
    mistakes=(
        *(replace(x, answer=attend_to_itself(x.answer)) for x in SCALE_MISTAKES),
        Mistake(
            "softmax-over-queries",
            "softmax over the queries",
            "the softmax runs over the queries; it should run over the keys",
            attend_to_itself(average_values(axis=-2)),
        ),
        Mistake(
            "softmax-over-batch",
            "softmax over the batch",
            "the softmax runs over the batch; it should run over the keys",
            attend_to_itself(average_values(axis=0)),
        ),
        Mistake(
            "swapped-query-key",
            "W_query and W_key swapped",
            "W_query and W_key are swapped",
            lambda x, Q, K, V: RIGHT(x, x, K, Q, V),
        ),
        Mistake(
            "one-projection",
            "keys from W_query",
            "the keys are computed with W_query, which makes the scores "
            "symmetric; use W_key",
            lambda x, Q, K, V: RIGHT(x, x, Q, Q, V),
        ),
        Mistake(
            "key-for-value",
            "keys instead of values",
            "the keys are averaged; the values should be",
            lambda x, Q, K, V: RIGHT(x, x, Q, K, K),
        ),
        Mistake(
            "no-value-projection",
            "no value projection",
            "the input itself is averaged; its values, x @ W_value.T, should be",
            lambda x, Q, K, V: RIGHT(x, x, Q, K, torch.eye(x.shape[-1]).to(x)),
        ),
        Mistake(
            "uniform",
            "uniform weights",
            "every position gets the same weight: the scores are not used",
            attend_to_itself(average_values(scale=lambda D, C: 0.0)),
        ),
        Mistake(
            "values-only",
            "values without attention",
            "each position gets its own value: there is no attention",
            lambda x, Q, K, V: x @ V.T,
        ),
        Mistake(
            "untransposed",
            "projections not transposed",
            "the projections are applied as x @ W; it should be x @ W.T "
            "(with square matrices, the shapes do not show the mistake)",
            lambda x, Q, K, V: RIGHT(x, x, Q.mT, K.mT, V.mT),
        ),
        Mistake(
            "unstable",
            "exponential overflows",
            "the exponentials overflow; subtract the largest score first, or "
            "use `softmax`",
            lambda x, Q, K, V: compute_unstable_softmax(x, Q, K, V),
        ),
        Mistake(
            "causal",
            "unneeded causal mask",
            "a position can attend only to itself and earlier ones; here it "
            "should attend to all positions",
            attend_to_itself(average_values(bend=mask_future)),
        ),
    ),
)


def compute_unstable_softmax(x, W_query, W_key, W_value):
    """Exponentials of the scores as they are."""
    scores = (x @ W_query.T) @ (x @ W_key.T).mT * W_query.shape[0] ** -0.5
    powers = scores.exp()
    return powers / powers.sum(-1, keepdim=True) @ (x @ W_value.T)
