"""Exercise: one position of causal linear attention, from its state.

Source: Katharopoulos et al. (2020), section 3.4, equations 16 to 20,
    https://arxiv.org/abs/2006.16236
Axes: B batch, H heads, D width of query and key, E of values
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import elu

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_normal, to_double


def recurrent_step(
    state: Float[Tensor, "B H D E"],
    normalizer: Float[Tensor, "B H D"],
    query: Float[Tensor, "B H D"],
    key: Float[Tensor, "B H D"],
    value: Float[Tensor, "B H E"],
) -> tuple[Float[Tensor, "B H E"], Float[Tensor, "B H D E"], Float[Tensor, "B H D"]]:
    """Return the output of a position, and the next state and normalizer."""
    query, key = elu(query) + 1, elu(key) + 1
    state = state + key[..., :, None] * value[..., None, :]
    normalizer = normalizer + key
    output = (query[..., None, :] @ state)[..., 0, :]
    total = (query * normalizer).sum(dim=-1, keepdim=True)
    return output / total, state, normalizer


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """The first position; a later one; then what hides a mistake."""

    def inputs(b, h, d, e, before=5):
        keys = elu(draw_normal(rng, b, h, before, d)) + 1
        state = keys.mT @ draw_normal(rng, b, h, before, e)
        sizes = d, d, e
        new = (draw_normal(rng, b, h, n) for n in sizes)
        return state, keys.sum(2), *new

    usual = inputs(2, 3, 4, 7)
    return (
        Case("at the first position", inputs(1, 1, 2, 3, before=0)),
        Case("at the second position", inputs(1, 1, 2, 3, before=1)),
        Case("with 3 heads", usual, gradient=True),
        Case("with all sizes equal", inputs(4, 4, 4, 4)),
        Case("after many positions", inputs(2, 1, 3, 5, before=50)),
        Case("in double precision", to_double(usual), asked=False),
    )


check_recurrent_step = Exercise(
    title="one step of linear attention",
    stars=2,
    minutes=10,
    section="Recurrent and chunked linear attention",
    solution=recurrent_step,
    returns=("output", "state", "normalizer"),
    draw=draw,
    mistakes=(
        Mistake(
            "read-before-written",
            "output before the update",
            "the output is computed from the state before the new token is "
            "added; the new token counts for its own output",
            lambda state, normalizer, query, key, value: (
                ((elu(query) + 1)[..., None, :] @ state)[..., 0, :]
                / ((elu(query) + 1) * normalizer).sum(-1, keepdim=True),
                *recurrent_step(state, normalizer, query, key, value)[1:],
            ),
        ),
        Mistake(
            "old-normalizer",
            "divisor before the update",
            "the divisor is computed from the normalizer before the new key is added",
            "(query * normalizer) → (query * (normalizer - key))",
        ),
        Mistake(
            "normalizer-not-updated",
            "normalizer not updated",
            "the new key is not added to the normalizer",
            "normalizer = normalizer + key → pass",
        ),
        Mistake(
            "not-normalized",
            "not normalized",
            "the output is not divided by query · normalizer",
            "output / total → output",
        ),
        Mistake(
            "state-overwritten",
            "state overwritten",
            "the state is replaced by that of the new token; it should be "
            "added to the state",
            "state = state + → state =",
        ),
        Mistake(
            "query-not-mapped",
            "feature map missing on the query",
            "the feature map is not applied to the query",
            "query, key = elu(query) + 1, elu(key) + 1 → key = elu(key) + 1",
        ),
        Mistake(
            "key-not-mapped",
            "feature map missing on the key",
            "the feature map is not applied to the key",
            "query, key = elu(query) + 1, elu(key) + 1 → query = elu(query) + 1",
        ),
        Mistake(
            "no-plus-one",
            "1 not added",
            "the feature map is elu without + 1, so features can be negative",
            "elu(query) + 1, elu(key) + 1 → elu(query), elu(key)",
        ),
        Mistake(
            "scaled",
            "queries scaled by 1/√D",
            "the query is multiplied by 1/√D, which linear attention does not need",
            "elu(query) + 1 → elu(query * query.shape[-1] ** -0.5) + 1",
        ),
        Mistake(
            "mean-of-positions",
            "state averaged",
            "the state is the mean of old and new; it should be their sum",
            "state = state + key[..., :, None] * value[..., None, :] "
            "→ state = (state + key[..., :, None] * value[..., None, :]) / 2",
        ),
        Mistake(
            "normalizer-of-queries",
            "query added to the normalizer",
            "the query is added to the normalizer; it is the sum of the keys",
            "normalizer + key → normalizer + query",
        ),
        Mistake(
            "transposed-state",
            "transposed state",
            "the state has the shape (B, H, E, D); it should be (B, H, D, E), "
            "one row for each feature of the key",
            lambda state, normalizer, query, key, value: (
                (found := recurrent_step(state, normalizer, query, key, value))[0],
                found[1].mT,
                found[2],
            ),
        ),
    ),
)
