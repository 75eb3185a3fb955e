"""Exercise: attention from one sequence to another.

Chapter: chapters/05_self_attention
Source: Vaswani et al. (2017), section 3.2.3,
    https://arxiv.org/abs/1706.03762
Axes: B batch, T positions that ask, S positions asked, C and M their widths, D
    width of query and key, E value width
"""

import torch

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import doubled, halved, normal
from attnbook.exercises.self_attention.answers import weighed
from attnbook.solutions import self_attention as solutions

RIGHT = weighed()


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One of each; then T ≠ S and C ≠ M; then what hides a mistake."""

    def inputs(b, t, s, c, m, d, e):
        sizes = (d, c), (d, m), (e, m)
        matrices = (normal(rng, *size) * size[1] ** -0.5 for size in sizes)
        return normal(rng, b, t, c), normal(rng, b, s, m), *matrices

    usual = inputs(2, 3, 5, 7, 11, 2, 13)
    loud = tuple(4 * x for x in inputs(2, 3, 5, 2, 3, 5, 7))
    return (
        Case("with one position each", inputs(1, 1, 1, 2, 3, 5, 7)),
        Case("with 3 asking and 5 asked", usual, gradient=True),
        Case("with 5 asking and 3 asked", inputs(2, 5, 3, 3, 2, 7, 5)),
        Case("with everything equal", inputs(2, 4, 4, 4, 4, 4, 4)),
        Case("with large scores", loud),
        Case("in double precision", doubled(usual)),
        Case("in half precision", halved(inputs(2, 3, 5, 3, 2, 5, 7))),
    )


check_cross_attention = Exercise(
    title="cross-attention",
    stars=1,
    minutes=10,
    section="Two sequences",
    solution=solutions.cross_attention,
    returns=("output",),
    draw=draw,
    allowed="Everything is allowed but PyTorch's ready-made attention; "
    "chapter 4's `attend` is yours to use.",
    mistakes=(
        Mistake(
            "no-scale",
            "the products are not divided by √D",
            weighed(scale=lambda D, C: 1.0),
        ),
        Mistake(
            "scale-by-input-width",
            "the products are divided by √C; what is multiplied are queries "
            "and keys, D wide",
            weighed(scale=lambda D, C: C**-0.5),
        ),
        Mistake(
            "scale-without-root",
            "the products are divided by D; its square root is meant",
            weighed(scale=lambda D, C: 1 / D),
        ),
        Mistake(
            "scale-after-softmax",
            "the division by √D comes after the softmax, and the weights no "
            "longer sum to 1",
            weighed(scale=lambda D, C: 1.0, then=lambda w, D: w * D**-0.5),
        ),
        Mistake(
            "softmax-over-queries",
            "the softmax runs over the positions that ask; each of them "
            "shares itself out over the memory",
            weighed(axis=-2),
        ),
        Mistake(
            "softmax-over-batch",
            "the softmax runs over the batch, not over the memory",
            weighed(axis=0),
        ),
        Mistake(
            "self",
            "`x` asks itself; keys and values come from `memory`",
            lambda x, memory, Q, K, V: RIGHT(x, x, Q, K, V),
        ),
        Mistake(
            "memory-asks",
            "the memory asks itself; queries come from `x`",
            lambda x, memory, Q, K, V: RIGHT(memory, memory, Q, K, V),
        ),
        Mistake(
            "swapped-sequences",
            "`x` and `memory` have changed places: the memory asks",
            lambda x, memory, Q, K, V: RIGHT(memory, x, Q, K, V),
        ),
        Mistake(
            "swapped-query-key",
            "W_query and W_key have changed places",
            lambda x, memory, Q, K, V: RIGHT(x, memory, K, Q, V),
        ),
        Mistake(
            "key-for-value",
            "the keys are averaged; it should be the values",
            lambda x, memory, Q, K, V: RIGHT(x, memory, Q, K, K),
        ),
        Mistake(
            "no-value-projection",
            "the memory itself is averaged, not its values",
            lambda x, memory, Q, K, V: RIGHT(
                x, memory, Q, K, torch.eye(memory.shape[-1]).to(memory)
            ),
        ),
        Mistake(
            "uniform",
            "the memory's plain mean: the scores are not used",
            weighed(scale=lambda D, C: 0.0),
        ),
        Mistake(
            "untransposed",
            "a matrix is applied as x @ W; x @ W.T is meant, which only "
            "square matrices do not tell apart by shape",
            lambda x, memory, Q, K, V: RIGHT(x, memory, Q.mT, K.mT, V.mT),
        ),
        Mistake(
            "diagonal-mask",
            "position t sees the memory only up to place t: a causal mask "
            "has no business between two sequences",
            weighed(bend=lambda s: s.masked_fill(above(s), -torch.inf)),
        ),
    ),
)


def above(scores):
    """Return True above the diagonal."""
    return torch.ones_like(scores, dtype=torch.bool).triu(1)
