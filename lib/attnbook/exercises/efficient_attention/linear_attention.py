"""Exercise: causal linear attention in its parallel form.

Source: Katharopoulos et al. (2020), sections 3.2 and 3.3,
    https://arxiv.org/abs/2006.16236
Axes: B batch, H heads, T positions, D width of query and key, E of values
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import elu

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_normal, to_double


def linear_attention(
    query: Float[Tensor, "B H T D"],
    key: Float[Tensor, "B H T D"],
    value: Float[Tensor, "B H T E"],
) -> Float[Tensor, "B H T E"]:
    """Return values averaged with the weights φ(query) · φ(key)."""
    query, key = elu(query) + 1, elu(key) + 1
    weights = (query @ key.transpose(-2, -1)).tril()
    return weights @ value / weights.sum(dim=-1, keepdim=True)


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One position; one head; several; then what hides a mistake."""

    def inputs(b, h, t, d, e, size=1.0):
        query, key = (size * draw_normal(rng, b, h, t, d) for _ in range(2))
        return query, key, draw_normal(rng, b, h, t, e)

    usual = inputs(2, 3, 5, 4, 7)
    views = tuple(x.transpose(1, 2) for x in inputs(2, 4, 3, 5, 2))
    return (
        Case("with one position", inputs(1, 1, 1, 2, 3)),
        Case("with 3 positions", inputs(1, 1, 3, 2, 3)),
        Case("with 3 heads", usual, gradient=True),
        Case("with all sizes equal", inputs(4, 4, 4, 4, 4)),
        Case("with 13 positions", inputs(1, 2, 13, 3, 5), gradient=True),
        Case("with large queries and keys", inputs(1, 2, 7, 4, 3, size=4.0)),
        Case("with views", views),
        Case("in double precision", to_double(usual), asked=False),
    )


MAPPED = "elu(query) + 1, elu(key) + 1"

check_linear_attention = Exercise(
    title="linear attention, all positions at once",
    stars=1,
    minutes=10,
    section="Linear attention: change the order of the products",
    solution=linear_attention,
    returns=("output",),
    draw=draw,
    key_line="return weights @ value / weights.sum(dim=-1, keepdim=True)",
    mistakes=(
        Mistake(
            "not-causal",
            "future not masked out",
            "each position averages over later positions as well; set the "
            "weights of later keys to 0",
            ".tril() → ",
        ),
        Mistake(
            "own-key-missing",
            "own position masked out",
            "a position does not average over its own value, and the first "
            "one divides by 0",
            "tril() → tril(-1)",
        ),
        Mistake(
            "future",
            "future instead of past",
            "each position averages over itself and later positions; it "
            "should be earlier ones",
            "tril → triu",
        ),
        Mistake(
            "not-normalized",
            "not normalized",
            "the outputs are not divided by their sums of weights",
            " / weights.sum(dim=-1, keepdim=True) → ",
        ),
        Mistake(
            "normalized-over-queries",
            "sum over the queries",
            "the weights are summed over the queries; sum over the keys",
            "weights.sum(dim=-1, keepdim=True) → weights.sum(dim=-2)[..., None]",
        ),
        Mistake(
            "all-keys-in-the-sum",
            "sum over all keys",
            "the divisor is the sum of the weights of all keys; it should be "
            "that of the keys up to the position",
            "weights.sum(dim=-1, keepdim=True) "
            "→ (query @ key.mT).sum(dim=-1, keepdim=True)",
        ),
        Mistake(
            "divided-by-count",
            "division by the number of keys",
            "the outputs are divided by the number of keys; they should be "
            "divided by the sum of the weights",
            "weights.sum(dim=-1, keepdim=True) "
            "→ torch.arange(1, weights.shape[-1] + 1)[:, None]",
        ),
        Mistake(
            "softmax",
            "softmax of the weights",
            "a softmax is applied to the weights; linear attention has no "
            "exponential of products",
            lambda query, key, value: (
                ((elu(query) + 1) @ (elu(key) + 1).mT)
                .masked_fill(
                    ~torch.ones(2 * query.shape[2:3]).bool().tril(), -torch.inf
                )
                .softmax(-1)
                @ value
            ),
        ),
        Mistake(
            "scaled",
            "queries scaled by 1/√D",
            "the queries are multiplied by 1/√D, which linear attention does not need",
            "elu(query) → elu(query * query.shape[-1] ** -0.5)",
        ),
        Mistake(
            "no-plus-one",
            "1 not added",
            "the feature map is elu without + 1, whose features can be "
            "negative, and with them the weights",
            f"{MAPPED} → elu(query), elu(key)",
        ),
        Mistake(
            "query-not-mapped",
            "feature map missing on the query",
            "the feature map is not applied to the query",
            "elu(query) + 1, → query,",
        ),
        Mistake(
            "key-not-mapped",
            "feature map missing on the key",
            "the feature map is not applied to the key",
            ", elu(key) + 1 → , key",
        ),
        Mistake(
            "mapped-product",
            "feature map of the product",
            "the feature map is applied to the products; it should be applied "
            "to query and key, so that the sum over the keys can be taken "
            "first",
            (
                f"{MAPPED} → query, key",
                "query @ key.transpose(-2, -1) → elu(query @ key.mT) + 1",
            ),
        ),
        Mistake(
            "relu",
            "ReLU instead of elu",
            "the feature map is ReLU + 1; it should be elu + 1",
            f"{MAPPED} → query.relu() + 1, key.relu() + 1",
        ),
    ),
)
