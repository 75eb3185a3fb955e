"""Exercise: a penalty that grows with the distance.

Chapter: chapters/08_positions
Source: Press et al. (2022), section 3, https://arxiv.org/abs/2108.12409
Axes: H heads, T queries, S keys; the queries are the last T of S positions
"""

from dataclasses import replace

import torch

from attnbook.exercises.exercise import Case, Exercise, Mistake, Outcome
from attnbook.exercises.inputs import whole
from attnbook.exercises.positions.answers import penalty, slopes_of
from attnbook.masked_softmax import masked_softmax
from attnbook.self_attention import causal_mask
from attnbook.solutions import positions as solutions

RIGHT = penalty()


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One head; then several; then fewer queries than keys."""

    def odd(low, high):
        return 2 * whole(rng, low // 2, high // 2, 1).item() + 1

    # Odd, so that no length is a number of heads.
    equal, few = odd(5, 13), odd(3, 5)
    return (
        Case("with one head", (1, equal, equal)),
        Case("with 8 heads", (8, equal, equal)),
        Case("with 2 heads", (2, odd(5, 11), 13)),
        Case("with 4 heads, and fewer queries than keys", (4, few, few + 4)),
        Case("with 16 heads", (16, few, few + 2 * odd(1, 5))),
        Case("with one query, as when decoding", (8, 1, odd(3, 17))),
        Case("with one key", (4, 1, 1)),
    )


def causal_weights(outcome: Outcome) -> Outcome:
    """Return the weights that a bias alone gives among the keys so far.

    A softmax takes any constant of a row away, and a causal mask all that
    stands after a query: there, a bias may be whatever it likes.
    """
    if outcome.form != "a tensor":
        return outcome
    (bias,) = outcome.output
    if bias.ndim != 3 or not bias.is_floating_point():
        return outcome
    weights = masked_softmax(bias, causal_mask(*bias.shape[1:]))
    return replace(outcome, output=(weights,))


check_alibi = Exercise(
    title="a penalty for distance",
    stars=1,
    minutes=10,
    section="A penalty for distance",
    solution=solutions.alibi,
    returns=("softmax(bias)",),
    draw=draw,
    allowed="Everything is allowed but the functions of `attnbook.positions`.",
    counts=causal_weights,
    mistakes=(
        Mistake(
            "sign",
            "the sign is wrong: far keys are favoured, and should be penalised",
            penalty(shape=lambda away: away),
        ),
        Mistake(
            "top-left",
            "queries and keys are both counted from 0; the last query stands "
            "at the last key",
            penalty(shape=lambda away: -away.abs(), start=lambda T, S: 0),
        ),
        Mistake(
            "top-left-clamped",
            "queries and keys are both counted from 0, and keys after the "
            "query cost nothing; the last query stands at the last key",
            penalty(
                shape=lambda away: -away.clamp(min=0), start=lambda T, S: 0
            ),
        ),
        Mistake(
            "slopes-of-8-heads",
            "head h has the slope 2^-h, which fits 8 heads only; how fast "
            "slopes fall depends on H",
            penalty(lambda heads: 2.0 ** -torch.arange(1, heads + 1)),
        ),
        Mistake(
            "slopes-from-one",
            "the first head's slope is 1, and the last one's not 2^-8; heads "
            "count from 1 in the exponent",
            penalty(lambda heads: slopes_of(heads) * 2 ** (8 / heads)),
        ),
        Mistake(
            "slopes-reversed",
            "the heads are in the opposite order: the first has the steepest "
            "slope",
            penalty(lambda heads: slopes_of(heads).flip(0)),
        ),
        Mistake(
            "slopes-turned",
            "the slopes are the reciprocals of the right ones: the exponent "
            "lacks its minus",
            penalty(lambda heads: 1 / slopes_of(heads)),
        ),
        Mistake(
            "slopes-linear",
            "the slopes fall in equal steps; they fall by equal factors",
            penalty(lambda heads: torch.arange(heads, 0, -1) / heads),
        ),
        Mistake(
            "slopes-harmonic",
            "head h has the slope 1 / h; slopes fall by equal factors",
            penalty(lambda heads: 1 / torch.arange(1, heads + 1)),
        ),
        Mistake(
            "one-slope",
            "every head has the slope of the first",
            penalty(lambda heads: slopes_of(heads)[:1].expand(heads)),
        ),
        Mistake(
            "no-slope",
            "every head has the slope 1",
            penalty(lambda heads: torch.ones(heads)),
        ),
        Mistake(
            "squared",
            "the distance is squared; the penalty grows in a straight line",
            penalty(shape=lambda away: -away.square()),
        ),
        Mistake(
            "logarithmic",
            "the penalty grows with the logarithm of the distance; it grows "
            "in a straight line",
            penalty(shape=lambda away: -away.abs().float().log1p()),
        ),
        Mistake(
            "zero",
            "all keys of the past have the same bias",
            penalty(shape=lambda away: 0 * away),
        ),
        Mistake(
            "weights-returned",
            "the softmax is taken already; the bias itself is asked for",
            lambda heads, T, S: masked_softmax(
                RIGHT(heads, T, S), causal_mask(T, S)
            ),
        ),
        Mistake(
            "factor-returned",
            "the exponential of the bias is returned, as if weights were to "
            "be multiplied by it; it is added to the scores",
            lambda heads, T, S: RIGHT(heads, T, S).exp(),
        ),
        Mistake(
            "heads-last",
            "the axis of heads comes last; the shape is (heads, T, S)",
            lambda heads, T, S: RIGHT(heads, T, S).permute(1, 2, 0),
        ),
        Mistake(
            "transposed",
            "queries and keys have changed places: the shape is (heads, T, S)",
            lambda heads, T, S: RIGHT(heads, T, S).mT,
        ),
        Mistake(
            "batch-axis",
            "there is a first axis of length 1; (heads, T, S) is asked for",
            lambda heads, T, S: RIGHT(heads, T, S)[None],
        ),
        Mistake(
            "double-precision",
            "the bias is in double precision, and makes double whatever it is "
            "added to",
            lambda heads, T, S: RIGHT(heads, T, S).double(),
        ),
    ),
)
