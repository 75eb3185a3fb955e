"""Exercise: predict attention weights after a change, without the scores.

Source: every rule follows from the softmax; the chapter derives them
Axes: S keys
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_integers, draw_normal, shuffle_cases

CHANGES = (
    "add 3 to every score",
    "double every value",
    "halve the temperature",
    "double the temperature",
    "negate the query",
    "set the query to zero",
    "mask out the key",
    "repeat the key",
)


def predicted_weights(
    weights: Float[Tensor, " S"], change: str, key: int
) -> Float[Tensor, " S_after"]:
    """Return one query's weights after a change, from those before it.

    Args:
        weights: the softmax of the scores of S keys, none of them 0.
        change: one of `CHANGES`.
        key: the number of the key that is masked out, or repeated at the end.
    """
    ratios = weights.clone()  # of the exponentials of the scores
    if change == "halve the temperature":
        ratios = ratios**2
    elif change == "double the temperature":
        ratios = ratios.sqrt()
    elif change == "negate the query":
        ratios = 1 / ratios
    elif change == "set the query to zero":
        ratios = torch.ones_like(ratios)
    elif change == "mask out the key":
        ratios[key] = 0.0
    elif change == "repeat the key":
        ratios = torch.cat([ratios, ratios[key, None]])
    return ratios / ratios.sum()


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """Every change, for several numbers of keys, in any order."""

    def case(change: str, size: int, spread: float = 1.0) -> Case:
        weights = (spread * draw_normal(rng, size)).softmax(-1)
        key = int(draw_integers(rng, 0, size - 1, 1))
        if "key" in change and spread > 1:
            key = int(weights.argmax())
        about = f"with {size} keys and the change “{change}”"
        return Case(about, (weights, change, key))

    cases = [
        case(change, size, spread)
        for change in CHANGES
        for size, spread in ((3, 1.0), (5, 2.0))
    ]
    return shuffle_cases((case(CHANGES[0], 2), *cases), rng)


def replace_prediction(change: str, wrong: Callable) -> Callable:
    """Return right predictions, except after one change."""

    def answer(weights, asked, key):
        if asked == change:
            return wrong(weights, key)
        return predicted_weights(weights, asked, key)

    return answer


def zero_key(weights: Tensor, key: int) -> Tensor:
    """Return the weights with one of them set to 0."""
    return weights.masked_fill(torch.arange(len(weights)) == key, 0.0)


check_predicted_weights = Exercise(
    title="weights after a change",
    stars=2,
    minutes=15,
    section="Temperature: from soft to hard lookup",
    solution=predicted_weights,
    returns=("new_weights",),
    draw=draw,
    mistakes=(
        Mistake(
            "nothing-changes",
            "no change has an effect",
            "it returns the weights unchanged, whatever is changed",
            lambda weights, change, key: weights.clone(),
        ),
        Mistake(
            "shift-evens-out",
            "a shift makes the weights more equal",
            "it changes the weights; a number that is added to every score "
            "multiplies every exponential by the same factor, so the weights "
            "stay the same",
            replace_prediction(
                "add 3 to every score",
                lambda w, key: (w + 3) / (w + 3).sum(),
            ),
        ),
        Mistake(
            "values-matter",
            "values change the weights",
            "it changes the weights; they are computed from queries and keys "
            "and do not depend on the values",
            replace_prediction("double every value", lambda w, key: 2 * w),
        ),
        Mistake(
            "temperature-swapped",
            "halved and doubled temperature swapped",
            "halving and doubling the temperature are swapped; a lower "
            "temperature makes the largest weight larger",
            (
                "ratios = ratios**2 → ratios = ratios.sqrt( )",
                "ratios = ratios.sqrt()\n → ratios = ratios**2\n",
            ),
        ),
        Mistake(
            "doubled-not-squared",
            "weights doubled instead of squared",
            "it doubles the exponentials; halving the temperature doubles each "
            "score, which squares every exponential",
            "ratios**2 → 2 * ratios",
        ),
        Mistake(
            "not-normalized",
            "not divided by the sum",
            "the new weights do not sum to 1: divide by their sum",
            "ratios / ratios.sum() → ratios",
        ),
        Mistake(
            "negated-complement",
            "1 - w for the negated query",
            "it uses 1 - w; negating the query negates every score, so every "
            "exponential becomes its inverse",
            "1 / ratios → 1 - ratios",
        ),
        Mistake(
            "zero-query-zero",
            "a query of zeros attends to nothing",
            "it gives weights of 0; a query of zeros has the score 0 for every "
            "key, and equal scores have equal weights",
            replace_prediction(
                "set the query to zero", lambda w, key: torch.zeros_like(w)
            ),
        ),
        Mistake(
            "mask-not-normalized",
            "mask after the softmax",
            "the weight of the masked key is set to 0, but the other weights "
            "do not sum to 1",
            replace_prediction("mask out the key", zero_key),
        ),
        Mistake(
            "mask-spread-evenly",
            "the masked weight is shared equally",
            "the masked weight is divided equally; the other weights keep "
            "their ratios, so each of them grows by the same factor",
            replace_prediction(
                "mask out the key",
                lambda w, key: zero_key(w + w[key] / (len(w) - 1), key),
            ),
        ),
        Mistake(
            "repeated-shares",
            "a repeated key shares its weight",
            "the repeated key shares its old weight; each copy has the whole "
            "exponential, so the two together have more weight than before",
            replace_prediction(
                "repeat the key",
                lambda w, key: (
                    torch.cat([(w + zero_key(w, key)) / 2, w[key, None] / 2])
                    + torch.cat([zero_key(w, key) / 2, torch.zeros(1)])
                ),
            ),
        ),
    ),
)
