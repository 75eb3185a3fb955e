"""Exercise: self-attention to the own and to earlier positions only.

Source: Vaswani et al. (2017), section 3.2.3 (the decoder's self-attention),
    https://arxiv.org/abs/1706.03762
Axes: B batch, T positions, C width of the input, D width of query and key, E
    value width
"""

import torch
from jaxtyping import Float
from torch import Tensor

from attnbook.attention.scaled_dot_product import attend
from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_normal
from attnbook.exercises.self_attention.cross_attention import (
    ALLOWED,
    attend_to_itself,
    average_values,
    mask_future,
)
from attnbook.exercises.self_attention.self_attention import draw


def causal_self_attention(
    x: Float[Tensor, "B T C"],
    W_query: Float[Tensor, "D C"],
    W_key: Float[Tensor, "D C"],
    W_value: Float[Tensor, "E C"],
) -> Float[Tensor, "B T E"]:
    """Return attention of every position to itself and earlier positions."""
    T = x.shape[1]
    past = torch.ones(T, T, dtype=torch.bool, device=x.device).tril()
    return attend(x @ W_query.T, x @ W_key.T, x @ W_value.T, past)


RIGHT = attend_to_itself(average_values(bend=mask_future))


def draw_causal(rng: torch.Generator) -> tuple[Case, ...]:
    """The cases of self-attention; then scores that no sentinel undercuts."""
    W = draw_normal(rng, 7, 3)
    # A query is the opposite of its key: every position's score with itself
    # is about -1e10, and the first position can attend to no other.
    low = 1e5 * draw_normal(rng, 2, 5, 3), W, -W, draw_normal(rng, 11, 3)
    return (*draw(rng), Case("with very low scores", low))


def mask_upper_triangle(scores, diagonal=1):
    """Return True above the diagonal: the future."""
    return torch.ones_like(scores, dtype=torch.bool).triu(diagonal)


check_causal_self_attention = Exercise(
    title="causal self-attention",
    stars=2,
    minutes=10,
    section="Causal self-attention: no access to later positions",
    solution=causal_self_attention,
    returns=("output",),
    draw=draw_causal,
    allowed=ALLOWED,
    mistakes=(
        Mistake(
            "no-mask",
            "no causal mask",
            "there is no causal mask: a position can attend to later positions",
            attend_to_itself(average_values()),
        ),
        Mistake(
            "upside-down",
            "inverted mask",
            "the mask is inverted: a position can attend only to itself and "
            "to later positions",
            attend_to_itself(
                average_values(
                    bend=lambda s: s.masked_fill(mask_upper_triangle(s).mT, -torch.inf)
                )
            ),
        ),
        Mistake(
            "not-itself",
            "own position masked out",
            "a position cannot attend to itself; it should, because the first "
            "one would otherwise have no key",
            attend_to_itself(
                average_values(
                    bend=lambda s: mask_future(s, -1),
                    then=lambda w, D: w.nan_to_num(),
                )
            ),
        ),
        Mistake(
            "not-itself-nan",
            "NaN at the first position",
            "a position cannot attend to itself, so the first one has no key, "
            "and its softmax is NaN",
            attend_to_itself(average_values(bend=lambda s: mask_future(s, -1))),
        ),
        Mistake(
            "one-too-many",
            "next position not masked out",
            "a position can attend to the next one; it should attend to "
            "itself and earlier ones only",
            attend_to_itself(average_values(bend=lambda s: mask_future(s, 1))),
        ),
        Mistake(
            "masked-after",
            "mask after the softmax",
            "the mask is applied after the softmax, so the remaining weights "
            "no longer sum to 1",
            attend_to_itself(average_values(then=lambda w, D: w.tril())),
        ),
        Mistake(
            "zero-score",
            "masked scores set to 0",
            "the scores of later positions are set to 0, but after the "
            "softmax, a score of 0 still has a positive weight; set them to "
            "minus infinity",
            attend_to_itself(average_values(bend=torch.tril)),
        ),
        Mistake(
            "mask-added",
            "mask added to the scores",
            "the mask is added as ones and zeros, which shifts the scores by "
            "1 and masks nothing out",
            attend_to_itself(
                average_values(bend=lambda s: s + torch.ones_like(s).tril())
            ),
        ),
        Mistake(
            "small-sentinel",
            "-10 instead of minus infinity",
            "the scores of later positions are set to -10, which leaves them "
            "a small weight; use minus infinity",
            attend_to_itself(
                average_values(
                    bend=lambda s: s.masked_fill(mask_upper_triangle(s), -10.0)
                )
            ),
        ),
        Mistake(
            "no-scale",
            "no division by √D",
            "the scores are not divided by √D",
            attend_to_itself(average_values(scale=lambda D, C: 1.0, bend=mask_future)),
        ),
        Mistake(
            "scale-by-input-width",
            "division by √C, not by √D",
            "the scores are divided by √C, the root of the input width; they "
            "should be divided by √D, because queries and keys have D entries",
            attend_to_itself(
                average_values(scale=lambda D, C: C**-0.5, bend=mask_future)
            ),
        ),
        Mistake(
            "scale-after-softmax",
            "division after the softmax",
            "the weights are divided by √D after the softmax; the scores "
            "should be divided before it",
            attend_to_itself(
                average_values(
                    scale=lambda D, C: 1.0,
                    bend=mask_future,
                    then=lambda w, D: w * D**-0.5,
                )
            ),
        ),
        Mistake(
            "uniform",
            "uniform weights",
            "each position takes the plain mean over itself and earlier "
            "positions: the scores are not used",
            attend_to_itself(average_values(scale=lambda D, C: 0.0, bend=mask_future)),
        ),
        Mistake(
            "values-only",
            "values without attention",
            "each position gets its own value: there is no attention",
            lambda x, Q, K, V: x @ V.T,
        ),
        Mistake(
            "swapped-query-key",
            "W_query and W_key swapped",
            "W_query and W_key are swapped",
            lambda x, Q, K, V: RIGHT(x, K, Q, V),
        ),
        Mistake(
            "key-for-value",
            "keys instead of values",
            "the keys are averaged; the values should be",
            lambda x, Q, K, V: RIGHT(x, Q, K, K),
        ),
    ),
)
