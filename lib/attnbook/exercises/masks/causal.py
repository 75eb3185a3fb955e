"""Exercise: who comes before whom, with more keys than queries or fewer.

Chapter: chapters/07_masks
Source: none; bottom right is this book's convention
Axes: T queries, S keys
"""

import torch

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import whole
from attnbook.solutions.masks import causal


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """Square, then a cache, then more queries than keys; sizes by lot."""

    def size(low, high):
        return int(whole(rng, low, high, 1))

    # Two of each, so that two draws are hardly ever the same.
    few, less = size(2, 6), size(2, 6)
    many, more = size(8, 23), size(8, 23)
    return (
        Case("with one query and one key", (1, 1)),
        Case("with 3 queries and 3 keys", (3, 3)),
        Case("with as many queries as keys", (many, many)),
        Case("with one query and a cache of keys", (1, more)),
        Case("with more keys than queries", (few, many)),
        Case("with more queries than keys", (more, less)),
        Case("with many queries and one key", (many, 1)),
    )


def ones(T, S):
    """Return True for all."""
    return torch.ones(T, S, dtype=torch.bool)


check_causal = Exercise(
    title="a causal mask, square or not",
    stars=1,
    minutes=5,
    section="Causal masks that are not square",
    solution=causal,
    returns=("mask",),
    draw=draw,
    allowed="Everything in PyTorch is allowed; `attnbook.masks` has the answer "
    "in it.",
    mistakes=(
        Mistake(
            "inverted",
            "the mask is upside down: here True means that a query may look",
            lambda T, S: ~causal(T, S),
        ),
        Mistake(
            "top-left",
            "query 0 is put at key 0; with more keys than queries, the last "
            "query has to see all of them, or a cache is half forgotten",
            lambda T, S: ones(T, S).tril(),
        ),
        Mistake(
            "clamped",
            "with more queries than keys it begins again at the top left; the "
            "last query still stands at the last key, and the first see "
            "nothing",
            lambda T, S: ones(T, S).tril(max(S - T, 0)),
        ),
        Mistake(
            "wrong-sign",
            "the diagonal is moved by T - S, the wrong way",
            lambda T, S: ones(T, S).tril(T - S),
        ),
        Mistake(
            "not-itself",
            "a query does not see its own key",
            lambda T, S: ones(T, S).tril(S - T - 1),
        ),
        Mistake(
            "sees-next",
            "a query sees one key too many, the next one: what it is to "
            "predict",
            lambda T, S: ones(T, S).tril(S - T + 1),
        ),
        Mistake(
            "future",
            "a query sees itself and what comes after, not what came before",
            lambda T, S: ones(T, S).triu(S - T),
        ),
        Mistake(
            "everything",
            "every query sees every key: nothing is hidden",
            ones,
        ),
        Mistake(
            "square",
            "the mask is square, (S, S); it should have a row for each query",
            lambda T, S: causal(S, S),
        ),
        Mistake(
            "transposed",
            "queries and keys have changed places: the mask is (S, T)",
            lambda T, S: causal(T, S).mT,
        ),
        Mistake(
            "additive",
            "these are numbers to be added to scores; a truth value is asked "
            "for, True where a query may look",
            lambda T, S: torch.zeros(T, S).masked_fill(
                ~causal(T, S), -torch.inf
            ),
        ),
        Mistake(
            "zeros-and-ones",
            "these are numbers, 1 and 0, which another function may well add "
            "to the scores; truth values are asked for",
            lambda T, S: causal(T, S).float(),
        ),
    ),
)
