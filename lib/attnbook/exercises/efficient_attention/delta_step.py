"""Exercise: one position of the delta rule.

Source: Schlag et al. (2021), section 4.2, https://arxiv.org/abs/2102.11174;
    Yang et al. (2024), section 2.2, https://arxiv.org/abs/2406.06484
Axes: B batch, H heads, D width of query and key, E of values
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_normal, to_double


def delta_step(
    state: Float[Tensor, "B H D E"],
    query: Float[Tensor, "B H D"],
    key: Float[Tensor, "B H D"],
    value: Float[Tensor, "B H E"],
    beta: Float[Tensor, "B H"],
) -> tuple[Float[Tensor, "B H E"], Float[Tensor, "B H D E"]]:
    """Return query · new state, and the state after the value is written."""
    old = (key[..., None, :] @ state)[..., 0, :]
    written = beta[..., None] * (value - old)
    state = state + key[..., :, None] * written[..., None, :]
    return (query[..., None, :] @ state)[..., 0, :], state


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """An empty memory; a full one; then what hides a mistake."""

    def inputs(b, h, d, e, beta=None, size=1.0):
        state = size * draw_normal(rng, b, h, d, e)
        query, key = draw_normal(rng, b, h, d), draw_normal(rng, b, h, d)
        strength = draw_normal(rng, b, h).sigmoid()
        if beta is not None:
            strength = torch.full((b, h), beta)
        key = normalize(key, dim=-1)
        return state, query, key, draw_normal(rng, b, h, e), strength

    usual = inputs(2, 3, 4, 7)
    return (
        Case("with an empty memory", inputs(1, 1, 2, 3, 1.0, 0.0)),
        Case("with beta = 1", inputs(1, 1, 2, 3, 1.0)),
        Case("with beta = 0", inputs(1, 1, 2, 3, 0.0)),
        Case("with 3 heads", usual, gradient=True),
        Case("with all sizes equal", inputs(4, 4, 4, 4)),
        Case("with a full memory", inputs(2, 1, 5, 3, size=30.0), True),
        Case("in double precision", to_double(usual), asked=False),
    )


check_delta_step = Exercise(
    title="one step of the delta rule",
    stars=2,
    minutes=10,
    section="The delta rule: overwrite instead of add",
    solution=delta_step,
    returns=("output", "state"),
    draw=draw,
    mistakes=(
        Mistake(
            "added",
            "old value not subtracted",
            "the value is added as it is; what the memory returns for the key "
            "should be subtracted from it first",
            "(value - old) → value",
        ),
        Mistake(
            "wrong-sign",
            "old minus new",
            "the difference is old minus new, so the memory moves away from the value",
            "value - old → old - value",
        ),
        Mistake(
            "old-value-added",
            "old value added",
            "what the memory returns for the key is added to the value; it "
            "should be subtracted",
            "value - old → value + old",
        ),
        Mistake(
            "no-beta",
            "beta not used",
            "beta is not used: the old value is always replaced altogether",
            "beta[..., None] * (value - old) → value - old",
        ),
        Mistake(
            "beta-on-value",
            "beta on the new value only",
            "only the new value is multiplied by beta; the old one must be, too",
            "beta[..., None] * (value - old) → beta[..., None] * value - old",
        ),
        Mistake(
            "beta-inverted",
            "1 - beta instead of beta",
            "the written difference is multiplied by 1 - beta",
            "beta[..., None] * → (1 - beta[..., None]) *",
        ),
        Mistake(
            "whole-memory-decays",
            "whole memory decays",
            "the whole memory is multiplied by 1 - beta; only the value that "
            "is stored for the key should be replaced",
            (
                "(value - old) → value",
                "state = state + → state = (1 - beta[..., None, None]) * state + ",
            ),
        ),
        Mistake(
            "read-before-written",
            "output before the update",
            "the output is read before the value is written; it should be "
            "query · new state",
            lambda state, query, key, value, beta: (
                (query[..., None, :] @ state)[..., 0, :],
                delta_step(state, query, key, value, beta)[1],
            ),
        ),
        Mistake(
            "erased-with-query",
            "old value of the query",
            "what the memory returns for the query is subtracted; it should "
            "be what it returns for the key",
            "key[..., None, :] → query[..., None, :]",
        ),
        Mistake(
            "written-at-query",
            "value written at the query",
            "the value is written at the query; it should be written at the key",
            "key[..., :, None] → query[..., :, None]",
        ),
        Mistake(
            "read-with-key",
            "output of the key",
            "the output is what the memory returns for the key; it should be "
            "what it returns for the query",
            lambda state, query, key, value, beta: delta_step(
                state, key, key, value, beta
            ),
        ),
        Mistake(
            "overwritten",
            "memory overwritten",
            "the memory is replaced by what is written; it should be added",
            "state = state + → state =",
        ),
        Mistake(
            "scaled",
            "queries scaled by 1/√D",
            "the query is multiplied by 1/√D; here the output is query · new state",
            lambda state, query, key, value, beta: delta_step(
                state, query * query.shape[-1] ** -0.5, key, value, beta
            ),
        ),
    ),
)
