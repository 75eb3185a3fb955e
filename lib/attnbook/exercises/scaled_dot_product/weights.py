"""Exercise: attention weights, scaled.

Source: Vaswani et al. (2017), section 3.2.1, equation 1,
    https://arxiv.org/abs/1706.03762
Axes: T queries, S keys, D width of query and key
"""

import torch
from jaxtyping import Float
from torch import Tensor

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_normal, to_double, to_half


def weights(
    query: Float[Tensor, "*B T D"], key: Float[Tensor, "*B S D"]
) -> Float[Tensor, "*B T S"]:
    """Return softmax(query keyᵀ / √D) over the keys."""
    # The query is scaled, not the product: in half precision the product may
    # overflow before any factor could bring it back.
    scale = query.shape[-1] ** -0.5
    return (query * scale @ key.transpose(-2, -1)).softmax(dim=-1)


def draw_large_scores(rng: torch.Generator, s: int, d: int) -> tuple[Tensor, Tensor]:
    """Return two queries whose scores all lie near 110, and near -110."""
    along = torch.nn.functional.normalize(draw_normal(rng, d), dim=-1)
    size = (110 * d**0.5) ** 0.5
    query = size * torch.stack([along, -along])
    return query, size * along + 0.1 * draw_normal(rng, s, d)


def draw_overflowing_products(
    rng: torch.Generator, t: int, s: int
) -> tuple[Tensor, Tensor]:
    """Return vectors whose products overflow in half precision.

    Once scaled they do not, and each query's own key wins by far, so that
    rounding decides nothing.
    """
    signs = torch.where(draw_normal(rng, t, 64) > 0, 1.0, -1.0)
    key = torch.cat([45 * signs, draw_normal(rng, s - t, 64)])
    return to_half((45 * signs, key))


def draw_weights(rng: torch.Generator) -> tuple[Case, ...]:
    """Width 1 needs no scale; then T ≠ S; then what hides a mistake."""

    def inputs(*lead, t, s, d):
        return draw_normal(rng, *lead, t, d), draw_normal(rng, *lead, s, d)

    usual = inputs(t=3, s=5, d=7)
    heads = inputs(2, 3, t=7, s=5, d=11)
    # Heads cut out of wider vectors, as views: (B, T, H, D) transposed.
    query, key = draw_normal(rng, 2, 3, 4, 5), draw_normal(rng, 2, 6, 4, 5)
    return (
        Case("with one query, two keys and width 1", inputs(t=1, s=2, d=1)),
        Case("with 3 queries and 5 keys", usual, gradient=True),
        Case("with as many queries as keys", inputs(2, t=4, s=4, d=6)),
        Case("with a batch of 2 and 3 heads", heads, gradient=True),
        Case(
            "with transposed views",
            (query.transpose(1, 2), key.transpose(1, 2)),
        ),
        Case("with scores near 110 and -110", draw_large_scores(rng, 5, 7)),
        Case("in double precision", to_double(usual), asked=False),
        Case("in half precision", to_half(inputs(2, t=3, s=5, d=7))),
        Case(
            "with products beyond half precision",
            draw_overflowing_products(rng, 3, 5),
            asked=False,
        ),
    )


def scale_query(factor):
    """Return weights whose query is multiplied by another factor."""

    def answer(query, key):
        return (query * factor(query) @ key.mT).softmax(-1)

    return answer


def count_heads(query) -> int:
    """Return the size of the axis before the queries."""
    return query.shape[-3] if query.ndim > 2 else 1


def compute_unstable_softmax(query, key):
    """Return weights without the shift by the maximum."""
    e = (query * query.shape[-1] ** -0.5 @ key.mT).exp()
    return e / e.sum(-1, keepdim=True)


check_weights = Exercise(
    title="attention weights",
    stars=1,
    minutes=5,
    section="Scaled dot-product attention",
    solution=weights,
    returns=("weights",),
    draw=draw_weights,
    mistakes=(
        Mistake(
            "no-scale",
            "no division by √D",
            "the scores are not divided by √D",
            scale_query(lambda q: 1.0),
        ),
        Mistake(
            "scaled-by-width",
            "division by D, not by √D",
            "the scores are divided by D; they should be divided by √D",
            scale_query(lambda q: 1 / q.shape[-1]),
        ),
        Mistake(
            "scaled-by-model-width",
            "division by √(H·D), not by √D",
            "the scores are divided by √(H·D), the root of the model width; "
            "they should be divided by √D",
            scale_query(lambda q: (count_heads(q) * q.shape[-1]) ** -0.5),
        ),
        Mistake(
            "scaled-by-heads",
            "division by √H, not by √D",
            "the scores are divided by √H, the root of the number of heads; "
            "they should be divided by √D",
            scale_query(lambda q: count_heads(q) ** -0.5),
        ),
        Mistake(
            "scaled-by-queries",
            "division by √T, not by √D",
            "the scores are divided by √T, the root of the number of queries; "
            "they should be divided by √D, where D is the last axis",
            scale_query(lambda q: q.shape[-2] ** -0.5),
        ),
        Mistake(
            "multiplied",
            "multiplied by √D",
            "the scores are multiplied by √D; they should be divided by it",
            scale_query(lambda q: q.shape[-1] ** 0.5),
        ),
        Mistake(
            "scaled-after",
            "division after the softmax",
            "the weights are divided by √D after the softmax; the scores "
            "should be divided before it",
            lambda q, k: (q @ k.mT).softmax(-1) / q.shape[-1] ** 0.5,
        ),
        Mistake(
            "no-shift",
            "exponential without a shift",
            "the exponential is applied to the scores without a shift, so it "
            "overflows; subtract the maximum first, as `softmax` does",
            compute_unstable_softmax,
        ),
        Mistake(
            "wrong-axis",
            "softmax over the queries",
            "the softmax runs over the queries; it should run over the keys",
            lambda q, k: (q * q.shape[-1] ** -0.5 @ k.mT).softmax(-2),
        ),
        Mistake(
            "no-softmax",
            "no softmax",
            "it returns the scores: the softmax is missing",
            lambda q, k: q * q.shape[-1] ** -0.5 @ k.mT,
        ),
        Mistake(
            "swapped-axes",
            "queries and keys swapped",
            "the axes of queries and keys are swapped; the weights should "
            "have the shape (…, T, S)",
            lambda q, k: (k * q.shape[-1] ** -0.5 @ q.mT).softmax(-1),
        ),
        Mistake(
            "reshaped",
            "reshaped instead of transposed",
            "the keys are reshaped instead of transposed: the shape is right, "
            "but the entries are in the wrong order",
            lambda q, k: (
                q
                * q.shape[-1] ** -0.5
                @ k.reshape(*k.shape[:-2], k.shape[-1], k.shape[-2])
            ).softmax(-1),
        ),
    ),
    remarks=(
        Mistake(
            "scaled-late",
            "scaled after the product",
            "in half precision the product overflows before it is divided; "
            "scale the query first",
            lambda q, k: (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1),
        ),
    ),
)
