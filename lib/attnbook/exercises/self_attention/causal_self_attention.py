"""Exercise: self-attention that sees no future.

Chapter: chapters/05_self_attention
Source: Vaswani et al. (2017), section 3.2.3 (the decoder's self-attention),
    https://arxiv.org/abs/1706.03762
Axes: B batch, T positions, C width of the input, D width of query and key, E
    value width
"""

import torch

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import normal
from attnbook.exercises.self_attention.answers import itself, past, weighed
from attnbook.exercises.self_attention.self_attention import draw
from attnbook.solutions import self_attention as solutions

RIGHT = itself(weighed(bend=past))


def draw_causal(rng: torch.Generator) -> tuple[Case, ...]:
    """The cases of self-attention; then scores that no sentinel undercuts."""
    W = normal(rng, 7, 3)
    # What asks is the opposite of what answers: every position's score with
    # itself is about -1e10, and the first position sees no other.
    low = 1e5 * normal(rng, 2, 5, 3), W, -W, normal(rng, 11, 3)
    return (*draw(rng), Case("with very low scores", low))


def upper(scores, diagonal=1):
    """Return True above the diagonal: the future."""
    return torch.ones_like(scores, dtype=torch.bool).triu(diagonal)


check_causal_self_attention = Exercise(
    title="causal self-attention",
    stars=2,
    minutes=10,
    section="Only the past",
    solution=solutions.causal_self_attention,
    returns=("output",),
    draw=draw_causal,
    allowed="Everything is allowed but PyTorch's ready-made attention; "
    "chapter 4's `attend` is yours to use.",
    mistakes=(
        Mistake(
            "no-mask",
            "a position sees what comes after it",
            itself(weighed()),
        ),
        Mistake(
            "upside-down",
            "the mask is upside down: each position sees itself and what "
            "comes after it",
            itself(
                weighed(bend=lambda s: s.masked_fill(upper(s).mT, -torch.inf))
            ),
        ),
        Mistake(
            "not-itself",
            "a position may see itself; the first would see nothing else",
            itself(
                weighed(
                    bend=lambda s: past(s, -1),
                    then=lambda w, D: w.nan_to_num(),
                )
            ),
        ),
        Mistake(
            "not-itself-nan",
            "a position may see itself; the first sees nothing here, and the "
            "softmax of nothing is NaN",
            itself(weighed(bend=lambda s: past(s, -1))),
        ),
        Mistake(
            "one-too-many",
            "a position sees one place into the future",
            itself(weighed(bend=lambda s: past(s, 1))),
        ),
        Mistake(
            "masked-after",
            "the mask comes after the softmax: the future has already taken "
            "its share, and the weights do not sum to 1",
            itself(weighed(then=lambda w, D: w.tril())),
        ),
        Mistake(
            "zero-score",
            "the future gets the score 0, and 0 is a score like any other",
            itself(weighed(bend=torch.tril)),
        ),
        Mistake(
            "mask-added",
            "the mask is added as ones and zeros, which shifts scores by 1 "
            "and hides nothing",
            itself(weighed(bend=lambda s: s + torch.ones_like(s).tril())),
        ),
        Mistake(
            "small-sentinel",
            "the future gets a score of -10, and a real score can be lower; "
            "minus infinity cannot be beaten",
            itself(weighed(bend=lambda s: s.masked_fill(upper(s), -10.0))),
        ),
        Mistake(
            "no-scale",
            "the products are not divided by √D",
            itself(weighed(scale=lambda D, C: 1.0, bend=past)),
        ),
        Mistake(
            "scale-by-input-width",
            "the products are divided by √C; what is multiplied are queries "
            "and keys, D wide",
            itself(weighed(scale=lambda D, C: C**-0.5, bend=past)),
        ),
        Mistake(
            "scale-after-softmax",
            "the division by √D comes after the softmax",
            itself(
                weighed(
                    scale=lambda D, C: 1.0,
                    bend=past,
                    then=lambda w, D: w * D**-0.5,
                )
            ),
        ),
        Mistake(
            "uniform",
            "each position takes the plain mean of its past: the scores are "
            "not used",
            itself(weighed(scale=lambda D, C: 0.0, bend=past)),
        ),
        Mistake(
            "values-only",
            "each position gets its own value: nothing is attended to",
            lambda x, Q, K, V: x @ V.T,
        ),
        Mistake(
            "swapped-query-key",
            "W_query and W_key have changed places",
            lambda x, Q, K, V: RIGHT(x, K, Q, V),
        ),
        Mistake(
            "key-for-value",
            "the keys are averaged; it should be the values",
            lambda x, Q, K, V: RIGHT(x, Q, K, K),
        ),
    ),
)
